"""Quantile regression on the CPU, compiled: all pairs of quantiles in one pass, without arrays of them."""

from __future__ import annotations

import numpy as np

from nfdrl.engines.compiled.jit import HALF, ONE, ZERO, Array, F, compiled_sums


@compiled_sums
def quantile_huber(values: Array, targets: Array, threshold: F) -> tuple[Array, Array]:
    """Huber quantile regression at midpoint levels, and its slope in the values (see `losses.pinball`).

    Shapes: (B, N), (B, M), () → (B,), (B, N)
    """
    rows, n, m = len(values), values.shape[1], targets.shape[1]
    losses, slopes = np.zeros(rows, np.float32), np.empty((rows, n), np.float32)
    for b in range(rows):
        for i in range(n):
            level, value = (F(i) + HALF) / F(n), values[b, i]
            loss, total = ZERO, ZERO
            for j in range(m):
                error = targets[b, j] - value
                weight = level if error >= ZERO else ONE - level
                slope = min(max(error, -threshold), threshold) / threshold if threshold > ZERO else F(np.sign(error))
                loss += weight * slope * (error - HALF * threshold * slope)
                total += weight * slope
            losses[b] += loss / F(m)
            slopes[b, i] = -total / F(m)
    return losses, slopes
