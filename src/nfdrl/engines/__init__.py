"""How an update is computed: one interface and two engines, which give the same numbers up to rounding.

`graph` is PyTorch's autograd, for every method, risk functional and device. `compiled` runs small networks several
times as fast on a CPU, where PyTorch's calls cost more than its arithmetic; the package works without it.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from nfdrl.engines.base import Engine, Work
from nfdrl.engines.graph import GraphEngine
from nfdrl.errors import NfdrlError, unknown_name

EngineName = Literal["auto", "compiled", "graph"]
ENGINES: tuple[EngineName, ...] = ("auto", "compiled", "graph")
NEEDED = ("numba", "scipy")  # by the compiled engine

__all__ = ["ENGINES", "Engine", "EngineName", "Work", "engine_for"]


def engine_for(work: Work, choice: EngineName = "auto") -> Engine:
    """The engine asked for; with `auto`, the compiled one wherever it can run."""
    if choice not in ENGINES:
        raise unknown_name("engine", choice, ENGINES)
    if choice == "graph":
        return GraphEngine(work, "asked for")
    obstacle = _obstacle(work)
    if obstacle is None:
        from nfdrl.engines.compiled import CompiledEngine

        return CompiledEngine(work)
    if choice == "compiled":
        raise NfdrlError(f"the compiled engine cannot run: {obstacle}")
    return GraphEngine(work, obstacle)


def _obstacle(work: Work) -> str | None:
    """Why the compiled engine cannot run; None where it can."""
    if find_spec("nfdrl.engines.compiled") is None:
        return "nfdrl.engines.compiled is not part of this installation"
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        return f"not installed: {names} (pip install {names}), which makes training several times as fast on a CPU"
    from nfdrl.engines.compiled import obstacle

    return obstacle(work)
