"""Everything that `make bench` measures, with one bar, and the tables at the end.

    python -m benchmarks

The parts are `benchmarks.cpu` (against sgemm, end to end, and hmmlearn, dynamax and pomegranate in
the same run), `benchmarks.families` and `benchmarks.few_states` (hmmlearn, in turns).
"""

from __future__ import annotations

from benchmarks import bar, cpu, families, few_states, readme

PARTS = (cpu, families, few_states)


def main() -> None:
    """Measure all parts, write the result files and the figures that quote them, print tables."""
    with bar.shown(sum(part.SECONDS for part in PARTS)):
        tables = [part.measure([]) for part in PARTS]
        readme.main()
    for table in tables:
        bar.print_table(table)


if __name__ == "__main__":
    main()
