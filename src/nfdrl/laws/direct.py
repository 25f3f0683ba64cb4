"""A method's arithmetic on raw outputs in NumPy, for updates in which PyTorch's calls cost more than the numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class Direct(ABC):
    """What a linear head's raw outputs mean, and how the loss moves them; float32 arrays in and out.

    It computes what the head's law and the method's loss compute. Learning that is neutral to risk uses it on a CPU.
    """

    @abstractmethod
    def means(self, raw: Array) -> Array:
        """Expected returns; shape (B, A, K) → (B, A)."""

    @abstractmethod
    def differentiate(
        self, raw: Array, action: Array, following: Array, chosen: Array, reward: Array, discount: Array
    ) -> tuple[Array, Array]:
        """The loss of each row, and the gradient of their mean in the raw outputs.

        The law of `action` in `raw` is compared with reward + discount · that of `chosen` in `following`.

        Shapes: (B, A, K), (B,), (B, A, K), (B,), (B,), (B,) → (B,), (B, A, K)
        """
