"""Distributional reinforcement learning with normalizing-flow return laws."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import nfdrl.envs  # noqa: F401  registers the nfdrl/… environments with Gymnasium

if TYPE_CHECKING:
    from nfdrl.agent import Agent as Agent
    from nfdrl.laws import METHODS as METHODS
    from nfdrl.laws.flow import FlowLaw as FlowLaw
    from nfdrl.runs.session import Run as Run

__version__ = version("nfdrl")
__all__ = ["METHODS", "Agent", "FlowLaw", "Run", "__version__"]

_HOMES = {"Agent": "nfdrl.agent", "FlowLaw": "nfdrl.laws.flow", "METHODS": "nfdrl.laws", "Run": "nfdrl.runs.session"}


def __getattr__(name: str) -> Any:
    """PyTorch takes seconds to import: it is, once one of these is asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
