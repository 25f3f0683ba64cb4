"""Distributional reinforcement learning with normalizing-flow return laws."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import nfdrl.envs  # noqa: F401  registers the nfdrl/… environments with Gymnasium
from nfdrl.errors import NfdrlError

if TYPE_CHECKING:
    from nfdrl.agent import Agent
    from nfdrl.envs.finite import FiniteMDP
    from nfdrl.evaluation.truth import exact_returns
    from nfdrl.laws import METHODS
    from nfdrl.laws.base import DensityLaw, Law, Method
    from nfdrl.laws.flow import FlowLaw
    from nfdrl.risk import Risk, parse_risk
    from nfdrl.runs.session import Run
    from nfdrl.torsos import TorsoSizes
    from nfdrl.training.callbacks import Evaluate, StopAt, TensorBoard, WeightsAndBiases
    from nfdrl.training.config import TrainConfig
    from nfdrl.training.presets import PRESETS, find_preset

__version__ = version("nfdrl")
__all__ = [
    "METHODS", "PRESETS", "Agent", "DensityLaw", "Evaluate", "FiniteMDP", "FlowLaw", "Law", "Method", "NfdrlError",
    "Risk", "Run", "StopAt", "TensorBoard", "TorsoSizes", "TrainConfig", "WeightsAndBiases", "__version__",
    "exact_returns", "find_preset", "parse_risk",
]  # fmt: skip

_HOMES = {
    "nfdrl.agent": ("Agent",),
    "nfdrl.envs.finite": ("FiniteMDP",),
    "nfdrl.evaluation.truth": ("exact_returns",),
    "nfdrl.laws": ("METHODS",),
    "nfdrl.laws.base": ("DensityLaw", "Law", "Method"),
    "nfdrl.laws.flow": ("FlowLaw",),
    "nfdrl.torsos": ("TorsoSizes",),
    "nfdrl.risk": ("Risk", "parse_risk"),
    "nfdrl.runs.session": ("Run",),
    "nfdrl.training.callbacks": ("Evaluate", "StopAt", "TensorBoard", "WeightsAndBiases"),
    "nfdrl.training.config": ("TrainConfig",),
    "nfdrl.training.presets": ("PRESETS", "find_preset"),
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: PyTorch takes seconds to import."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
