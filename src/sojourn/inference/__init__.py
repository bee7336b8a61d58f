"""Training and prediction: `trainer` → `step` → `local` → a kernel, which returns statistics."""

from sojourn.inference.backend import Backend, Chunk, LocalBackend
from sojourn.inference.method import METHODS, Method
from sojourn.inference.objective import COLLAPSED, MEAN_FIELD, Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.progress import Position, Progress
from sojourn.inference.schedule import Schedule, StepSizes
from sojourn.inference.statistics import Statistics
from sojourn.inference.step import StepInfo, step
from sojourn.inference.trainer import Checkpoint, train

__all__ = [
    "COLLAPSED",
    "MEAN_FIELD",
    "METHODS",
    "Backend",
    "Checkpoint",
    "Chunk",
    "LocalBackend",
    "Method",
    "Objective",
    "Position",
    "Posterior",
    "Problem",
    "Progress",
    "Schedule",
    "Statistics",
    "StepInfo",
    "StepSizes",
    "step",
    "train",
]
