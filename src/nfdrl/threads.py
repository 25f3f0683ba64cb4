"""How many threads to compute on, and what a thread of its own is for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from threading import Thread

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch on `count` threads within the context.

    NumPy's linear algebra always gets one: its threads and PyTorch's would compete for the cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries("nfdrl.engines.compiled" in sys.modules).limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


def prepare_optimisers() -> None:
    """Import what PyTorch's first optimiser imports, its compiler, in a thread of its own.

    The import keeps the frames that led to it until the cycle collector runs, and with them the first agent's memory.
    """
    if "torch._dynamo" not in sys.modules:
        thread = Thread(target=import_module, args=("torch._dynamo",))
        thread.start()
        thread.join()


@lru_cache(maxsize=2)
def _libraries(compiled: bool) -> ThreadpoolController:  # noqa: ARG001
    """The libraries that are loaded; the compiled engine loads another one."""
    return ThreadpoolController()
