"""The matrix of cases that `tools.digests` records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import sojourn as sj
from tools.digest_data import (
    EXAMPLES,
    Data,
    data,
    words_of,
    write_columns,
    write_csv,
    write_folder,
    write_npy,
    write_parquet,
    write_text,
)
from tools.digest_fits import (
    Case,
    Digests,
    Run,
    digest,
    fitted,
    from_file,
    in_minibatches,
    laid_out,
    outcome,
    reloaded,
    resumed,
)


def _from_an_iterable(run: Run) -> Digests:
    emission, X = data("Categorical")
    source = sj.open(iter(X), total_sequences=len(X))
    return outcome(run.make("HDPHMM", emission, n_passes=1).fit(source), X)


def _from_statistics(run: Run) -> Digests:
    emission, X = data("Categorical")
    before = run.make("HMM", emission).fit(X)
    return outcome(run.make("HDPHMM", emission, init=before.statistics_).fit(X), X)


def _passes_after_a_fit(run: Run) -> Digests:
    emission, X = data("Gaussian")
    model = run.make("HDPHMM", emission).fit(X)
    return outcome(model.partial_fit(X[:20]).partial_fit(X[20:]), X)


def _more_passes_resumed(run: Run) -> Digests:
    emission, X = data("Categorical")
    folder = run.path("checkpoints")
    run.make("HDPHMM", emission).fit(X, checkpoint=folder)
    return outcome(
        run.make("HDPHMM", emission, n_passes=4).fit(X, checkpoint=folder, resume=True), X
    )


def _numbers_of_states(run: Run) -> Digests:
    emission, X = data("Categorical")
    selection = sj.select_n_states(run.make("HMM", emission), list(X), n_states=[2, 3])
    model = run.make("HMM", emission).fit(X)
    criteria = [model.aic(X), model.bic(X)]
    return {"best": repr(selection.best.n_states), "criteria": digest(criteria)} | outcome(model, X)


def _states_matched(run: Run) -> Digests:
    emission, X = data("Gaussian")
    a, b = (run.make("HDPHMM", emission, random_state=seed).fit(X) for seed in (1, 2))
    return {
        "match_states": digest(repr(sj.match_states(a, b, X))),
        "dwell_summary": digest(repr(sj.dwell_summary(a.predict(X)))),
        "dwell_times_": digest(a.dwell_times_),
    }


def _through_hmmlearn(run: Run) -> Digests:
    emission, X = data("Categorical")
    model = run.make("HMM", emission).fit(X)
    again = sj.from_hmmlearn(model.to_hmmlearn())
    return {"startprob_": digest(again.startprob_), "transmat_": digest(again.transmat_)}


def _seeded_by(make_seed: Callable[[], Any]) -> Case:
    emission, X = data("Categorical")
    return lambda run: outcome(run.make("HMM", emission, random_state=make_seed()).fit(X), X)


def _family_cases() -> Iterator[tuple[str, Case]]:
    for name in EXAMPLES:
        for model in ("HMM", "HDPHMM"):
            for missing in (False, True):
                suffix = ", missing" if missing else ""
                yield f"family/{name}/{model}{suffix}", fitted(model, data(name, missing=missing))
        yield f"family/{name}/HMM, moves", fitted("HMM", data(name), moves="auto")
        yield f"family/{name}/HMM, svi", fitted("HMM", data(name), inference="svi")
        yield (
            f"family/{name}/HDPHMM, reference",
            fitted("HDPHMM", data(name), device="reference", hdp_batch_size=20, init="exponential"),
        )
        yield f"family/{name}/HMM, partial_fit", in_minibatches("HMM", data(name, missing=True), 15)


def _inference_cases() -> Iterator[tuple[str, Case]]:
    chains = {"n_samples": 4, "burn_in": 3, "thin": 2, "n_chains": 2}
    variational = ("scvi", "svi", "cvb0", "vb")
    symbols, numbers = data("Categorical"), data("Gaussian")
    for model in ("HMM", "HDPHMM"):
        for method in variational + (("em",) if model == "HMM" else ()):
            for source in (symbols, numbers) if method != "em" else (symbols,):
                family = type(source.emission).__name__
                for dtype in ("float32", "float64"):
                    yield (
                        f"inference/{model}/{method}/{family}/{dtype}",
                        fitted(
                            model,
                            source,
                            inference=method,
                            dtype=dtype,
                            fit={"validation": source.X[:9], "track_bound": True},
                        ),
                    )
                yield (
                    f"inference/{model}/{method}/{family}/missing",
                    fitted(model, data(family, missing=True), inference=method, n_passes=3),
                )
                yield (
                    f"inference/{model}/{method}/{family}/reference",
                    fitted(model, source, inference=method, device="reference", moves=None),
                )
        for method in ("gibbs", "blocked-gibbs" if model == "HMM" else "beam"):
            for suffix, options in {"": {}, ", float64": {"dtype": "float64"}}.items():
                yield (
                    f"inference/{model}/{method}{suffix}",
                    fitted(model, symbols, inference=method, **chains, **options),
                )
            yield (
                f"inference/{model}/{method}, n_init",
                fitted(
                    model,
                    symbols,
                    inference=method,
                    n_init=2,
                    fit={"validation": symbols.X[:9]},
                    **chains,
                ),
            )
            yield (
                f"inference/{model}/{method}, missing",
                fitted(model, data("Categorical", missing=True), inference=method, **chains),
            )


SHARED: dict[str, dict[str, Any]] = {
    "moves auto": {"moves": "auto"},
    "moves auto, five passes": {"moves": "auto", "n_passes": 5},
    "moves auto, twelve states": {"moves": "auto", "n_states": 12},
    "moves None": {"moves": None},
    "init_states 1": {"moves": "auto", "init_states": 1, "n_passes": 4},
    "init_states 2": {"moves": "auto", "init_states": 2, "init": "exponential", "n_passes": 4},
    "stickiness 5": {"stickiness": 5.0},
    "stickiness 5, moves": {"stickiness": 5.0, "moves": "auto"},
    "stickiness 5, cvb0": {"stickiness": 5.0, "inference": "cvb0"},
    "stickiness learned": {"stickiness": "learned"},
    "stickiness learned, moves": {"stickiness": "learned", "moves": "auto"},
    "tuned": {"tuned": True},
    "tuned, moves": {"tuned": True, "moves": "auto"},
    "tuned, svi": {"tuned": True, "inference": "svi"},
    "tuned steps": {"tuned": ["steps"]},
    "tuned concentration": {"tuned": ["concentration"]},
    "tuned base": {"tuned": "base"},
    "float64": {"dtype": "float64"},
    "float64, moves": {"dtype": "float64", "moves": "auto"},
    "n_init 3": {"n_init": 3},
    "init exponential": {"init": "exponential"},
    "init segments": {"init": "segments"},
    "batch_size None": {"batch_size": None},
    "batch_size 1": {"batch_size": 1, "n_passes": 1},
    "batch_size 7": {"batch_size": 7},
    "batch_size 1000": {"batch_size": 1000},
    "forgetting": {"forgetting_rate": 0.8, "delay": 5.0},
    "forgetting_rate 0": {"forgetting_rate": 0.0},
    "one state": {"n_states": 1},
}
OWN: dict[str, dict[str, dict[str, Any]]] = {
    "HMM": {
        "transition_concentration": {"transition_concentration": 2.0},
        "concentrations by row": {
            "transition_concentration": np.linspace(0.1, 1.0, 25).reshape(5, 5),
            "start_concentration": np.linspace(0.5, 2.0, 5),
            "moves": "auto",
        },
        "stickiness_prior": {"stickiness": "learned", "stickiness_prior": (2.0, 0.5)},
    },
    "HDPHMM": {
        "alpha_prior": {"alpha_prior": (3.0, 0.5)},
        "gamma_prior": {"gamma_prior": (3.0, 0.5)},
        "alpha_prior and gamma_prior, svi": {
            "alpha_prior": (3.0, 0.5),
            "gamma_prior": (3.0, 0.5),
            "inference": "svi",
        },
        "hdp_batch_size 30": {"hdp_batch_size": 30},
        "hdp_batch_size 20, svi": {"hdp_batch_size": 20, "inference": "svi"},
        "second_order_tables False": {"second_order_tables": False},
        "sort_states False": {"sort_states": False},
        "normalize_rows False": {"normalize_rows": False},
        "occupancy exact": {"occupancy": "exact"},
        "occupancy fast": {"occupancy": "fast"},
        "exchangeable_tables False": {"exchangeable_tables": False},
        "the paper": {
            "second_order_tables": False,
            "exchangeable_tables": False,
            "occupancy": "exact",
            "moves": None,
            "hdp_batch_size": 20,
        },
    },
}


def _option_cases() -> Iterator[tuple[str, Case]]:
    for model in ("HMM", "HDPHMM"):
        for family in ("Categorical", "Gaussian"):
            for name, options in (SHARED | OWN[model]).items():
                yield f"options/{model}/{family}/{name}", fitted(model, data(family), **options)
            X = data(family, seed=5).X
            yield (
                f"options/{model}/{family}/validation",
                fitted(model, data(family), fit={"validation": X, "validation_every": 1}),
            )
            yield (
                f"options/{model}/{family}/n_init 3, validation",
                fitted(model, data(family), n_init=3, fit={"validation": X}),
            )
    for shape in ((7,), (5, 7)):
        concentration = np.linspace(0.1, 1.0, int(np.prod(shape))).reshape(shape)
        source = Data(sj.Categorical(7, concentration), data("Categorical").X)
        for model in ("HMM", "HDPHMM"):
            yield f"options/{model}/concentration {shape}", fitted(model, source)
    many = data("Categorical of many symbols")
    for model in ("HMM", "HDPHMM"):
        for tuned in ("steps", "concentration", "base"):
            yield f"options/{model}/many symbols, tuned {tuned}", fitted(model, many, tuned=tuned)
        yield f"options/{model}/many symbols, tuned", fitted(model, many, tuned=True, moves="auto")
    yield "options/init Statistics", _from_statistics
    yield "options/Generator", _seeded_by(lambda: np.random.default_rng(4))
    yield "options/RandomState", _seeded_by(lambda: np.random.RandomState(4))


def _layout_cases() -> Iterator[tuple[str, Case]]:
    for model in ("HMM", "HDPHMM"):
        symbols, numbers = data("Categorical").X, data("Gaussian").X
        layouts: dict[str, tuple[Any, Any, Any]] = {
            "words": (sj.Categorical(), words_of(symbols), None),
            "lists": (sj.Categorical(), [x.tolist() for x in symbols], None),
            "lengths": (sj.Gaussian(), numbers.values, numbers.lengths),
            "a sequence": (sj.Gaussian(), numbers.values, None),
            "arrays": (sj.Gaussian(), list(numbers), None),
            "table": (sj.Categorical(), symbols.values[:600].reshape(60, 10), None),
        }
        for name, (emission, X, lengths) in layouts.items():
            yield f"layout/{model}/{name}", laid_out(model, emission, X, lengths)


def _stepwise_cases() -> Iterator[tuple[str, Case]]:
    for model in ("HMM", "HDPHMM"):
        often = {"hdp_batch_size": 10} if model == "HDPHMM" else {}
        for family in ("Categorical", "Gaussian", "Categorical of many symbols"):
            for moves in (None, "auto"):
                yield (
                    f"partial_fit/{model}/{family}, moves {moves}",
                    in_minibatches(model, data(family), 20, n_rounds=20, moves=moves, **often),
                )
        options: dict[str, dict[str, Any]] = {
            "svi": {"inference": "svi"},
            "tuned": {"tuned": True},
            "sticky": {"stickiness": "learned"},
            "float64": {"dtype": "float64"},
        }
        for name, given in options.items():
            yield (
                f"partial_fit/{model}/{name}",
                in_minibatches(model, data("Categorical"), 9, **given, **often),
            )
    yield "partial_fit/after a fit", _passes_after_a_fit


def _persistence_cases() -> Iterator[tuple[str, Case]]:
    chains = {"n_samples": 3, "burn_in": 2}
    for model in ("HMM", "HDPHMM"):
        for family in ("Categorical", "Gaussian", "Product", "AutoregressiveGaussian"):
            yield f"files/{model}/{family}", reloaded(model, data(family))
            yield f"checkpoints/{model}/{family}", resumed(model, data(family))
        for name, options in {
            "tuned": {"tuned": True},
            "sticky": {"stickiness": "learned"},
            "svi": {"inference": "svi"},
        }.items():
            yield f"files/{model}/{name}", reloaded(model, data("Categorical"), **options)
            yield f"checkpoints/{model}/{name}", resumed(model, data("Categorical"), **options)
        yield (
            f"files/{model}/gibbs",
            reloaded(model, data("Categorical"), inference="gibbs", **chains),
        )
        for name, options in {
            "moves, exponential": {"moves": "auto", "init": "exponential", "n_passes": 4},
            "growing": {"moves": "auto", "init_states": 2, "n_passes": 4},
            "vb": {"inference": "vb", "n_passes": 5},
        }.items():
            yield f"checkpoints/{model}/{name}", resumed(model, data("Categorical"), **options)
        yield f"checkpoints/{model}/Parquet", resumed(model, data("Categorical"), write_parquet)
    yield "checkpoints/HMM/em", resumed("HMM", data("Categorical"), inference="em", n_passes=5)
    yield "checkpoints/more passes", _more_passes_resumed


def _source_cases() -> Iterator[tuple[str, Case]]:
    symbols, numbers = data("Categorical"), data("Gaussian")
    plain = {"init": "exponential"}
    for place, cluster in (("source", False), ("cluster", True)):
        for model in ("HMM", "HDPHMM"):
            for name, write in {
                "Parquet": write_parquet,
                "npy": write_npy,
                "folder": write_folder,
            }.items():
                yield f"{place}/{model}/{name}", from_file(model, symbols, write, cluster=cluster)
            yield (
                f"{place}/{model}/text",
                from_file(model, symbols, write_text, words=True, cluster=cluster),
            )
            yield (
                f"{place}/{model}/npy, Gaussian",
                from_file(model, numbers, write_npy, cluster=cluster),
            )
            yield (
                f"{place}/{model}/columns, Gaussian",
                from_file(
                    model,
                    numbers,
                    write_columns,
                    opened={"column": ["x0", "x1", "x2"]},
                    cluster=cluster,
                ),
            )
            yield (
                f"{place}/{model}/csv",
                from_file(model, symbols, write_csv, opened={"sequence": "id"}, cluster=cluster),
            )
            yield (
                f"{place}/{model}/Parquet, batch_size None",
                from_file(model, symbols, write_parquet, batch_size=None, cluster=cluster, **plain),
            )
            yield (
                f"{place}/{model}/Parquet, svi",
                from_file(model, symbols, write_parquet, inference="svi", cluster=cluster),
            )
            yield (
                f"{place}/{model}/Parquet, vb",
                from_file(model, symbols, write_parquet, inference="vb", cluster=cluster),
            )
        yield (
            f"{place}/HMM/Parquet, em",
            from_file("HMM", symbols, write_parquet, inference="em", cluster=cluster),
        )
        yield (
            f"{place}/HDPHMM/Parquet, tuned",
            from_file("HDPHMM", symbols, write_parquet, tuned=True, cluster=cluster),
        )
        yield (
            f"{place}/HDPHMM/Parquet, float64",
            from_file("HDPHMM", symbols, write_parquet, dtype="float64", cluster=cluster),
        )
    yield "source/iterable", _from_an_iterable


def _large_cases() -> Iterator[tuple[str, Case]]:
    """Cases of several chunks, row groups and fillings of the shuffle buffer."""
    plain = {"batch_size": 2000}
    for model in ("HMM", "HDPHMM"):
        for family in ("Categorical", "Gaussian", "Poisson", "Categorical of many symbols"):
            source = data(family, n=4000, longest=60)
            yield f"large/{model}/{family}", fitted(model, source, moves=None, **plain)
            yield (
                f"large/{model}/{family}, whole",
                fitted(model, source, moves=None, batch_size=None),
            )
    moving = data("Categorical", n=1000, longest=40)
    yield "large/HDPHMM/moves", fitted("HDPHMM", moving, batch_size=100)
    yield "large/HDPHMM/partial_fit, moves", in_minibatches("HDPHMM", moving, 500, n_rounds=12)
    many = data("Categorical", n=140_000, longest=4)
    for place, cluster in (("source", False), ("cluster", True)):
        yield (
            f"large/HMM/many sequences, {place}",
            from_file("HMM", many, write_npy, cluster=cluster, batch_size=45_000, n_passes=1),
        )
    yield (
        "large/HDPHMM/one long sequence",
        fitted("HDPHMM", data("Gaussian", n=1, longest=9000), n_passes=1),
    )


def cases() -> dict[str, Case]:
    """Return all cases by name."""
    groups = (
        _family_cases,
        _inference_cases,
        _option_cases,
        _layout_cases,
        _stepwise_cases,
        _persistence_cases,
        _source_cases,
        _large_cases,
    )
    found: dict[str, Case] = {
        "tools/select_n_states": _numbers_of_states,
        "tools/match_states": _states_matched,
        "tools/hmmlearn": _through_hmmlearn,
    }
    for group in groups:
        for name, case in group():
            if name in found:
                raise ValueError(f"two cases are called {name!r}")
            found[name] = case
    return found
