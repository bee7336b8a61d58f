"""The estimators."""

from sojourn.models.files import from_hmmlearn, load
from sojourn.models.hdp_hmm import HDPHMM
from sojourn.models.hmm import HMM

__all__ = ["HDPHMM", "HMM", "from_hmmlearn", "load"]
