"""What the parameters of hmmlearn's models are here, for errors that say so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature
from typing import Any

_PRIOR = "belongs to the emission family: see its own prior parameters"

INSTEAD = {
    "n_components": "is n_states here",
    "n_iter": "is n_passes here; by default training ends by itself",
    "covariance_type": (
        "is chosen by the emission family here: Gaussian() is 'full', DiagonalGaussian() 'diag', "
        "SphericalGaussian() 'spherical' and TiedGaussian() 'tied'"
    ),
    "algorithm": "is a parameter of decode here: decode(X, algorithm='map')",
    "startprob_prior": "is start_concentration here, less one: hmmlearn's 1.1 is 0.1",
    "transmat_prior": "is transition_concentration here, less one: hmmlearn's 1.1 is 0.1",
    "params": "is fixed here, which names what is not learned: fixed='emissions'",
    "init_params": "is init here: a Statistics value to begin with",
    "implementation": "has no counterpart: recursions are scaled, and there is nothing to choose",
    "n_features": "belongs to the emission family: Categorical(n_features)",
    "n_trials": "has no counterpart: Multinomial() takes any number of trials, step by step",
    "min_covar": "has no counterpart: the prior of the emission family keeps variances positive",
    "n_mix": "belongs to the emission family: Mixture(DiagonalGaussian(), n_mix)",
    "weights_prior": "is the concentration of Mixture",
    "emissionprob_prior": "is the concentration of Categorical, less one",
    **dict.fromkeys(("means_prior", "means_weight", "covars_prior", "covars_weight"), _PRIOR),
    **dict.fromkeys(("lambdas_prior", "lambdas_weight"), _PRIOR),
    **dict.fromkeys(("beta_prior", "dof_prior", "scale_prior"), _PRIOR),
}
"""What to use instead of each parameter of hmmlearn that has another name here."""


_OF_FAMILIES = {
    "n_features": "is n_symbols here",
    "n_mix": "is n_components of Mixture: Mixture(DiagonalGaussian(), 3)",
    "emissionprob_prior": "is concentration here, less one: hmmlearn's 1.1 is 0.1",
    "means_prior": "is mean here",
    "means_weight": "is mean_strength here",
    "covars_prior": "is scale here",
    "covars_weight": "is degrees_of_freedom here",
    "lambdas_prior": "is prior_shape here",
    "lambdas_weight": "is prior_rate here",
    "beta_prior": "is mean_strength here",
    "dof_prior": "is degrees_of_freedom here",
    "scale_prior": "is scale here",
}
_FOR_MODELS = ("n_components", "n_iter", "startprob_prior", "transmat_prior")

OF_FAMILIES = {
    name: f"belongs to the model, HMM or HDPHMM, and {text}" if name in _FOR_MODELS else text
    for name, text in (INSTEAD | _OF_FAMILIES).items()
}
"""The same where it is given to an emission family."""


def refuse_names_of_hmmlearn(
    owner: str, names: Iterable[str], instead: Mapping[str, str] = INSTEAD
) -> None:
    """Raise an error that says what to use instead, if a parameter is one of hmmlearn's.

    Examples
    --------
    >>> refuse_names_of_hmmlearn("HMM", ["n_components"])
    Traceback (most recent call last):
    ...
    TypeError: HMM has no parameter n_components, which is hmmlearn's: it is n_states here
    """
    for name in names:
        if name in instead:
            raise TypeError(
                f"{owner} has no parameter {name}, which is hmmlearn's: it {instead[name]}"
            )


class KnowsHmmlearn:
    """Emission families, which say what parameters of hmmlearn are called here."""

    def __new__(cls, *args: Any, **parameters: Any) -> Any:
        """Make a family, or say what a parameter is called."""
        theirs = parameters.keys() & OF_FAMILIES.keys()
        if theirs:
            unknown = sorted(theirs - signature(cls.__init__).parameters.keys())
            refuse_names_of_hmmlearn(cls.__name__, unknown, OF_FAMILIES)
        return super().__new__(cls)
