"""Quantile regression and quantile networks on the CPU, compiled: row by row, without arrays of all pairs or units."""

from __future__ import annotations

import math

import numpy as np

from nfdrl.engines.compiled.alike import Members
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
def quantiles(features: Array, levels: Array, members: Members, chosen: Array, weights: Weights) -> Array:
    """A quantile network at the levels of each group, for the chosen actions of each of its rows.

    See `laws.implicit.QuantileNetwork`, and `descend` for the groups.

    Shapes: (G, F), (G, P), ((B,), (G + 1,)), (B, R) → (B, R, P)
    """
    embedding, embedding_bias, hidden, hidden_bias, output, output_bias = weights
    order, first = members
    points, width = levels.shape[1], hidden.shape[1]
    found = np.empty((len(chosen), chosen.shape[1], points), np.float32)
    cosines, every = np.empty((embedding.shape[1], points), np.float32), np.arange(width)
    for g in range(len(features)):
        index = _features_that_count(features[g])
        _cosines(levels[g], cosines)
        product = np.dot(embedding[index], cosines)
        _rectified(product, embedding_bias, index)
        product *= features[g][index].reshape(-1, 1)
        units = np.dot(hidden[index].T, product)
        _rectified(units, hidden_bias, every)
        for b in order[first[g] : first[g + 1]]:
            found[b] = np.dot(output[chosen[b]], units)
            for r in range(chosen.shape[1]):
                found[b, r] += output_bias[chosen[b, r]]
    return found


@inlined
def _actions_of(rows: Array, action: Array, count: int) -> tuple[Array, Array]:
    """Which actions the rows have, in order, and the place of every action among them."""
    taken = np.zeros(count, np.bool_)
    for b in rows:
        taken[action[b]] = True
    return np.nonzero(taken)[0], np.cumsum(taken) - 1


@compiled_sums
def descend(
    features: Array,
    levels: Array,
    members: Members,
    action: Array,
    targets: Array,
    threshold: F,
    share: Array,
    weights: Weights,
) -> tuple[Array, Array, Array, Weights]:
    """Quantile regression of a quantile network: losses and quantiles of all rows, and the gradients.

    Rows with the same features and levels are one group, with one forward and one backward pass: the members of group
    g are `order[first[g] : first[g + 1]]`, where `order, first = members`. Gradients are those of the losses' sum,
    weighted by `share`. Each group is done with while its units are in the cache. The gradient in a feature that is
    zero is left out: features that are learned are rectified, and it would end there.

    Shapes: (G, F), (G, P), ((B,), (G + 1,)), (B,), (B, M), (), (B,) → (B,), (B, P), (G, F), those of the weights
    """
    embedding, embedding_bias, hidden, hidden_bias, output, output_bias = weights
    into_embedding, into_embedding_bias = np.zeros_like(embedding), np.zeros_like(embedding_bias)
    into_hidden, into_hidden_bias = np.zeros_like(hidden), np.zeros_like(hidden_bias)
    into_output, into_output_bias = np.zeros_like(output), np.zeros_like(output_bias)
    order, first = members
    points, width = levels.shape[1], hidden.shape[1]
    losses, into_features = np.zeros(len(action), np.float32), np.zeros_like(features)
    values = np.empty((len(action), points), np.float32)
    cosines, every = np.empty((embedding.shape[1], points), np.float32), np.arange(width)
    for g in range(len(features)):
        rows, index = order[first[g] : first[g + 1]], _features_that_count(features[g])
        _cosines(levels[g], cosines)
        embedded = np.dot(embedding[index], cosines)
        _rectified(embedded, embedding_bias, index)
        factor = features[g][index]
        product = embedded * factor.reshape(-1, 1)
        forth = hidden[index]
        units = np.dot(forth.T, product)
        _rectified(units, hidden_bias, every)
        acts, place = _actions_of(rows, action, len(output))
        outgoing, slopes = output[acts], np.zeros((len(acts), points), np.float32)
        of_acts = np.dot(outgoing, units)
        for b in rows:
            act, k = action[b], place[action[b]]
            for i in range(points):
                values[b, i] = of_acts[k, i] + output_bias[act]
                loss, slope = _regress(values[b, i], levels[g, i], targets[b], threshold)
                losses[b] += loss
                slopes[k, i] += slope * share[b]
                into_output_bias[act] += slope * share[b]
        into_outgoing, pull = np.dot(slopes, units.T), np.dot(outgoing.T, slopes)
        for k in range(len(acts)):
            into_output[acts[k]] += into_outgoing[k]
        for h in range(width):
            total = ZERO
            for i in range(points):
                moved = pull[h, i] if units[h, i] > ZERO else ZERO
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
            into_features[g, at] = of_feature
            into_embedding_bias[at] += of_bias
            into_hidden[at] += into_forth[r]
        into_near = np.dot(back, cosines.T)
        for r in range(len(index)):
            into_embedding[index[r]] += into_near[r]
    into = into_embedding, into_embedding_bias, into_hidden, into_hidden_bias, into_output, into_output_bias
    return losses, values, into_features, into
