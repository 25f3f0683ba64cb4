"""Quantile regression and quantile networks on the CPU, compiled: row by row, without arrays of all pairs or units."""

from __future__ import annotations

import math

import numpy as np

from nfdrl.engines.compiled.jit import HALF, ONE, ZERO, Array, F, compiled_sums, inlined

Weights = tuple[Array, Array, Array, Array, Array, Array]  # embedding, hidden (transposed) and output, each with bias


@inlined
def _regress(value: F, level: F, targets: Array, threshold: F) -> tuple[F, F]:
    """Huber quantile regression of one quantile onto all targets, and its slope (see `losses.pinball`)."""
    loss, total, m = ZERO, ZERO, len(targets)
    for j in range(m):
        error = targets[j] - value
        weight = level if error >= ZERO else ONE - level
        slope = min(max(error, -threshold), threshold) / threshold if threshold > ZERO else F(np.sign(error))
        loss += weight * slope * (error - HALF * threshold * slope)
        total += weight * slope
    return loss / F(m), -total / F(m)


@compiled_sums
def quantile_huber(values: Array, targets: Array, threshold: F) -> tuple[Array, Array]:
    """Huber quantile regression at midpoint levels, and its slope in the values.

    Shapes: (B, N), (B, M), () → (B,), (B, N)
    """
    rows, n = values.shape
    losses, slopes = np.zeros(rows, np.float32), np.empty((rows, n), np.float32)
    for b in range(rows):
        for i in range(n):
            loss, slope = _regress(values[b, i], (F(i) + HALF) / F(n), targets[b], threshold)
            losses[b] += loss
            slopes[b, i] = slope
    return losses, slopes


@inlined
def _features_that_count(row: Array) -> Array:
    """Where a row of features is not zero: only these enter its product with an embedding. At least one of them."""
    index = np.nonzero(row)[0]
    return index if len(index) else np.zeros(1, index.dtype)


@inlined
def _cosines(levels: Array, cosines: Array) -> None:
    """cos(πiτ), i = 0, 1, …, by cos(i+1)x = 2 cos x cos ix − cos(i−1)x; shapes (P,) → (C, P)."""
    first = np.cos(math.pi * levels.astype(np.float64))
    before, now = first.copy(), np.ones(len(levels))
    for i in range(len(cosines)):
        for p in range(len(levels)):
            after = 2 * first[p] * now[p] - before[p]
            cosines[i, p] = F(now[p])
            before[p], now[p] = now[p], after


@inlined
def _rectified(values: Array, bias: Array, index: Array) -> None:
    """max(value + bias, 0) in place, with the bias of each row."""
    for r in range(len(values)):
        offset = bias[index[r]]
        for p in range(values.shape[1]):
            value = values[r, p] + offset
            values[r, p] = value if value > ZERO else ZERO


@compiled_sums
def quantiles(features: Array, levels: Array, chosen: Array, weights: Weights) -> Array:
    """A quantile network at the levels of each row, for the chosen actions (see `laws.implicit.QuantileNetwork`).

    Shapes: (B, F), (B, P), (B, R) → (B, R, P)
    """
    embedding, embedding_bias, hidden, hidden_bias, output, output_bias = weights
    rows, points, width = len(features), levels.shape[1], hidden.shape[1]
    found = np.empty((rows, chosen.shape[1], points), np.float32)
    cosines, every = np.empty((embedding.shape[1], points), np.float32), np.arange(width)
    for b in range(rows):
        index = _features_that_count(features[b])
        _cosines(levels[b], cosines)
        product = np.dot(embedding[index], cosines)
        _rectified(product, embedding_bias, index)
        product *= features[b][index].reshape(-1, 1)
        units = np.dot(hidden[index].T, product)
        _rectified(units, hidden_bias, every)
        found[b] = np.dot(output[chosen[b]], units)
        for r in range(chosen.shape[1]):
            found[b, r] += output_bias[chosen[b, r]]
    return found


@compiled_sums
def descend(
    features: Array, levels: Array, action: Array, targets: Array, threshold: F, share: Array, weights: Weights
) -> tuple[Array, Array, Array, Weights]:
    """Quantile regression of a quantile network at the levels of each row: losses, quantiles, and the gradients.

    Gradients are those of the losses' sum, weighted by `share`. Each row is done with, forward and backward, while its
    units are in the cache. The gradient in a feature that is zero is left out: features that are learned are rectified,
    and it would end there.

    Shapes: (B, F), (B, P), (B,), (B, M), (), (B,) → (B,), (B, P), (B, F), those of the weights
    """
    embedding, embedding_bias, hidden, hidden_bias, output, output_bias = weights
    into_embedding, into_embedding_bias = np.zeros_like(embedding), np.zeros_like(embedding_bias)
    into_hidden, into_hidden_bias = np.zeros_like(hidden), np.zeros_like(hidden_bias)
    into_output, into_output_bias = np.zeros_like(output), np.zeros_like(output_bias)
    rows, points, width = len(features), levels.shape[1], hidden.shape[1]
    losses, into_features = np.zeros(rows, np.float32), np.zeros_like(features)
    values = np.empty((rows, points), np.float32)
    cosines, every = np.empty((embedding.shape[1], points), np.float32), np.arange(width)
    slopes, pull = np.empty(points, np.float32), np.empty((width, points), np.float32)
    for b in range(rows):
        index, act = _features_that_count(features[b]), action[b]
        _cosines(levels[b], cosines)
        embedded = np.dot(embedding[index], cosines)
        _rectified(embedded, embedding_bias, index)
        factor = features[b][index]
        product = embedded * factor.reshape(-1, 1)
        forth = hidden[index]
        units = np.dot(forth.T, product)
        _rectified(units, hidden_bias, every)
        values[b] = np.dot(output[act], units) + output_bias[act]
        for i in range(points):
            loss, slope = _regress(values[b, i], levels[b, i], targets[b], threshold)
            losses[b] += loss
            slopes[i] = slope * share[b]
            into_output_bias[act] += slopes[i]
        into_output[act] += np.dot(units, slopes)
        for h in range(width):
            total, weight = ZERO, output[act, h]
            for i in range(points):
                moved = weight * slopes[i] if units[h, i] > ZERO else ZERO
                pull[h, i] = moved
                total += moved
            into_hidden_bias[h] += total
        back, into_forth = np.dot(forth, pull), np.dot(product, pull.T)
        for r in range(len(index)):
            at, of_feature, of_bias = index[r], ZERO, ZERO
            for i in range(points):
                of_feature += back[r, i] * embedded[r, i]
                back[r, i] = back[r, i] * factor[r] if embedded[r, i] > ZERO else ZERO
                of_bias += back[r, i]
            into_features[b, at] = of_feature
            into_embedding_bias[at] += of_bias
            into_hidden[at] += into_forth[r]
        into_near = np.dot(back, cosines.T)
        for r in range(len(index)):
            into_embedding[index[r]] += into_near[r]
    into = into_embedding, into_embedding_bias, into_hidden, into_hidden_bias, into_output, into_output_bias
    return losses, values, into_features, into
