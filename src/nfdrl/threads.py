"""How many threads to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

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
        with _libraries().limit(limits=1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()
