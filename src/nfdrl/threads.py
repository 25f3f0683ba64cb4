"""How many threads compute."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController


@contextmanager
def threads(count: int) -> Iterator[None]:
    """PyTorch on so many threads inside, as before outside.

    NumPy's linear algebra always gets one: its threads and PyTorch's would wait for each other's cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
