"""Scripts for maintainers: run each with `python -m tools.NAME`."""
