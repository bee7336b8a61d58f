"""Training and prediction: `trainer` → `step` → `local` → a kernel, and statistics come back."""

from sojourn.inference.local import Engine
from sojourn.inference.method import METHODS, Method
from sojourn.inference.objective import COLLAPSED, MEAN_FIELD, Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import Schedule, StepSizes
from sojourn.inference.statistics import Statistics
from sojourn.inference.step import StepInfo, step
from sojourn.inference.trainer import Checkpoint, Position, Progress, train

__all__ = [
    "COLLAPSED",
    "MEAN_FIELD",
    "METHODS",
    "Checkpoint",
    "Engine",
    "Method",
    "Objective",
    "Position",
    "Posterior",
    "Progress",
    "Schedule",
    "Statistics",
    "StepInfo",
    "StepSizes",
    "step",
    "train",
]
