"""The estimators."""

from sojourn.models.hdp_hmm import HDPHMM
from sojourn.models.hmm import HMM

__all__ = ["HDPHMM", "HMM"]
