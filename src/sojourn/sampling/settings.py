"""Settings of the samplers, as users give them."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.sampling.chains import Chains


@dataclass(frozen=True)
class Sampling:
    """A sampler and its number of sweeps, for the parameter `inference` of an estimator.

    The name of a sampler, ``inference="gibbs"``, is short for ``Sampling("gibbs")``.

    Parameters
    ----------
    method : {"gibbs", "blocked-gibbs", "beam"}
        Name of the sampler; see `HMM` and `HDPHMM` for those that each offers.
    n_samples : int
        Draws kept from each chain.
    burn_in : int
        Sweeps of each chain before the first draw is kept.
    thin : int
        Sweeps from one kept draw to the next; 1 keeps the draw of every sweep.
    n_chains : int
        Number of chains, each from its own random start.

    Examples
    --------
    >>> import sojourn as sj
    >>> sampling = sj.Sampling("gibbs", n_samples=20, burn_in=10)
    >>> model = sj.HMM(2, sj.Categorical(3), inference=sampling, random_state=0)
    >>> len(model.fit([[0, 1, 0], [2, 2]]).samples_)
    20
    """

    method: str
    n_samples: int = 100
    burn_in: int = 100
    thin: int = 1
    n_chains: int = 1

    @property
    def chains(self) -> Chains:
        """Number of sweeps, and which are kept."""
        return Chains(self.n_samples, self.burn_in, self.thin, self.n_chains)
