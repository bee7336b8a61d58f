"""Prediction methods of the estimators, with their documentation for users."""

from __future__ import annotations

from abc import abstractmethod
from os import PathLike
from typing import Any

from numpy.typing import ArrayLike

from sojourn.kernels.interface import Floats
from sojourn.prediction import FittedModel
from sojourn.sequences import Sequences


class PredictionMixin:
    """Prediction methods of estimators: every call is delegated to their `FittedModel`."""

    random_state: Any

    @property
    @abstractmethod
    def fitted_(self) -> FittedModel:
        """The fitted model."""

    def score(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        per_step: bool = False,
        client: Any = None,
    ) -> float:
        """Log predictive likelihood of all sequences together, in nats.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        per_step : bool
            Divide by the number of time steps.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.
        """
        return self.fitted_.score(X, lengths, per_step=per_step, client=client)

    def log_likelihood(self, X: Any, lengths: ArrayLike | None = None) -> Floats:
        """Log predictive likelihood of each sequence, in nats, shape (N,)."""
        return self.fitted_.log_likelihood(X, lengths)

    def predict(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> Any:
        """Most probable state path (Viterbi), in the same form as the data.

        Parameters
        ----------
        X, lengths
            As for `fit`.
        out : path, optional
            Parquet file to write the paths to, one list per sequence; required if X is a file
            or source.
        overwrite : bool
            Whether an existing `out` may be overwritten.
        client : distributed.Client, optional
            Compute on a Dask cluster, whose workers open the files of `X` themselves.  `out` is
            then a folder to which they write files; sorted by name, the files contain the
            sequences in the order of `X`.

        Returns
        -------
        array, list of arrays, Sequences, or Path
            States; with `out`, the path that they were written to.
        """
        return self.fitted_.predict(X, lengths, out=out, overwrite=overwrite, client=client)

    def decode(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> tuple[float, Any]:
        """Most probable state path and its log joint probability, summed over sequences.

        Parameters
        ----------
        X, lengths, out, overwrite, client
            As for `predict`.

        Returns
        -------
        log_probability : float
        path : array, list of arrays, Sequences, or Path
            States, in the same form as the data; with `out`, the path that they were written to.
        """
        return self.fitted_.decode(X, lengths, out=out, overwrite=overwrite, client=client)

    def predict_proba(
        self,
        X: Any,
        lengths: ArrayLike | None = None,
        *,
        out: str | PathLike[str] | None = None,
        overwrite: bool = False,
        client: Any = None,
    ) -> Any:
        """Posterior probability of each state at each step, in the same form as the data.

        Parameters
        ----------
        X, lengths, out, overwrite, client
            As for `predict`; in the file, each step is a list of K numbers.
        """
        return self.fitted_.predict_proba(X, lengths, out=out, overwrite=overwrite, client=client)

    def sample(
        self, n_sequences: int = 1, length: int | ArrayLike = 1, *, random_state: Any = None
    ) -> tuple[Sequences, Sequences]:
        """Draw sequences from the posterior mean parameters.

        Parameters
        ----------
        n_sequences : int
        length : int or (n_sequences,) array
            One length for all sequences, or the length of each.
        random_state : int, Generator, RandomState or None
            None uses the model's ``random_state``.

        Returns
        -------
        observations, states : Sequences
        """
        own = self.random_state if random_state is None else random_state
        return self.fitted_.sample(n_sequences, length, random_state=own)
