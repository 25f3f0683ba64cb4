"""The distance to a continuous target: what it measures, and that mixtures of targets are its minimum."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nfdrl.engines.compiled import distances
from nfdrl.losses.continuous import Continuous
from nfdrl.losses.exact import Exact
from nfdrl.numerics.atoms import midpoints
from nfdrl.numerics.base_points import SHIFTS
from nfdrl.numerics.normal import normal_cdf, normal_quantile

pytestmark = pytest.mark.usefixtures("double")

LATTICE = 64  # a power of two: sums of lattice points are exact, and ties stay ties


@st.composite
def returns_at_levels(draw, least=1):
    """Two sorted rows of equally many returns on a lattice, often tied, and the levels of both."""
    n = draw(st.integers(least, 12))
    rows = [sorted(draw(st.lists(st.integers(-40, 40), min_size=n, max_size=n))) for _ in range(2)]
    shift = draw(st.floats(0.01, 0.99))
    y, v = (torch.tensor([row], dtype=torch.float64) / LATTICE for row in rows)
    return y, v, (torch.arange(n) + shift) / n


def cdf_of_lines(v, levels):
    """G, written out: a function of one return. Where returns coincide it jumps, and is read in the middle."""
    v, levels = v.tolist(), levels.tolist()
    if len(v) > 1:
        low = v[0] - (v[1] - v[0]) * levels[0] / (levels[1] - levels[0])
        high = v[-1] + (v[-1] - v[-2]) * (1 - levels[-1]) / (levels[-1] - levels[-2])
        knots, heights = [low, *v, high], [0.0, *levels, 1.0]
    else:
        knots, heights = v * 3, [0.0, *levels, 1.0]

    def cdf(x):
        at = [height for knot, height in zip(knots, heights, strict=True) if knot == x]
        if at:
            return (at[0] + at[-1]) / 2
        if x < knots[0] or x > knots[-1]:
            return float(x > knots[0])
        k = next(k for k, knot in enumerate(knots) if knot > x)
        return heights[k - 1] + (heights[k] - heights[k - 1]) * (x - knots[k - 1]) / (knots[k] - knots[k - 1])

    return cdf


def integral(f, start, end, pieces=4_000):
    """By midpoints."""
    width = (end - start) / pieces
    return width * sum(f(start + (k + 0.5) * width) for k in range(pieces))


@settings(max_examples=15)
@given(returns_at_levels())
def test_it_is_the_integral_of_the_gap_between_levels_and_the_cdf(drawn):
    y, v, levels = drawn
    cdf = cdf_of_lines(v[0], levels)
    wanted = sum(
        integral(lambda x, level=level: cdf(x) - level, start, end)
        for start, end, level in zip(v[0].tolist(), y[0].tolist(), levels.tolist(), strict=True)
    )
    value = Continuous()(y, v, levels=levels)
    assert_close(value, torch.tensor([2 * wanted / len(levels)]), rtol=1e-3, atol=1e-5)


@given(returns_at_levels())
def test_its_slope_is_twice_the_gap_at_the_return(drawn):
    y, v, levels = drawn
    cdf, n = cdf_of_lines(v[0], levels), len(levels)
    wanted = [2 * (cdf(x) - level) / n for x, level in zip(y[0].tolist(), levels.tolist(), strict=True)]
    y.requires_grad_()
    (slope,) = torch.autograd.grad(Continuous()(y, v, levels=levels).sum(), y)
    assert_close(slope, torch.tensor([wanted]), rtol=0, atol=1e-12)


@given(returns_at_levels())
def test_it_is_never_negative_and_zero_for_equal_returns(drawn):
    y, v, levels = drawn
    assert Continuous()(y, v, levels=levels).item() >= -1e-15
    # Equal atoms pull as far to one side as to the other; elsewhere nothing pulls at all.
    value, slope = Continuous().value_and_slope(v, v, levels)
    assert abs(value.item()) < 1e-15
    alone = v[0].diff().ne(0) if v.shape[1] > 1 else torch.tensor([])
    if alone.all() and v.shape[1] > 1:
        assert_close(slope, torch.zeros_like(slope), rtol=0, atol=1e-15)


def test_of_two_points_it_is_their_gap_and_of_a_point_target_the_crps():
    assert_close(Continuous()(torch.tensor([[1.0]]), torch.tensor([[3.5]])), torch.tensor([2.5]))
    # CRPS of atoms at 0 and 1 for the outcome 1: E|Y − 1| − ½E|Y − Y′| = ½ − ¼.
    assert_close(Continuous()(torch.tensor([[0.0, 1.0]]), torch.ones(1, 2)), torch.tensor([0.25]))


def test_with_many_returns_it_is_the_exact_distance():
    # Two normal laws: ∫(Φ(y) − Φ((y − ½)/0.7))² dy = E|X−Y| − ½E|X−X′| − ½E|Y−Y′|, each a folded normal law.
    def mean_gap(location, variance):
        ratio = torch.tensor(location / variance**0.5)
        return variance**0.5 * (
            (2 / torch.pi) ** 0.5 * (-ratio.square() / 2).exp() + ratio * (2 * normal_cdf(ratio) - 1)
        )

    truth = mean_gap(0.5, 1.49) - 0.5 * mean_gap(0.0, 2.0) - 0.5 * mean_gap(0.0, 0.98)
    z = normal_quantile(midpoints(4_000, torch.empty(0)))
    found = Continuous()(z[None], 0.5 + 0.7 * z[None])
    assert_close(found[0], truth, rtol=1e-3, atol=0)


def pulls(how, n):
    """The largest mean pull on a mixture's own quantiles, over shifted levels, if its two components are the targets.

    N(0, 1) and N(0.01, 1), which are closer together than n returns of either.
    """
    gap, total = 0.01, torch.zeros(n)
    for shift in range(SHIFTS):
        levels = (torch.arange(n) + (shift + 0.5) / SHIFTS) / n
        z = normal_quantile(levels)
        mixture = z + 0.2 * gap  # to first order in the gap
        for share, target in ((0.8, z), (0.2, z + gap)):
            rest = (levels,) if isinstance(how, Continuous) else ()
            total += share * how.value_and_slope(mixture[None], target[None], *rest)[1][0] / SHIFTS
    return (total[n // 4 : -n // 4] * n / 2).abs().max().item()


def test_the_mixture_of_close_targets_is_its_minimum_and_not_that_of_two_empirical_cdfs():
    # Between two steps the exact distance only sees on which side of its partner a return lies: here four times in
    # five on the right, however near. (0.8 − 0.2)/2n is what that pull amounts to.
    assert pulls(Exact(), 32) > 0.5 * 0.3 / 32
    assert pulls(Continuous(), 32) < 1e-4


def test_gradients_reach_the_predicted_returns_only():
    y, v = torch.zeros(1, 3, requires_grad=True), torch.ones(1, 3, requires_grad=True)
    Continuous()(y, v).sum().backward()
    assert y.grad is not None
    assert v.grad is None


@settings(max_examples=50)
@given(returns_at_levels())
def test_the_compiled_form_is_the_same(drawn):
    y, v, levels = drawn
    value, slope = Continuous().value_and_slope(y, v, levels)
    compiled_value, compiled_slope = distances.lines(*(part.float().numpy() for part in (y, v, levels)), np.float32(1))
    assert_close(torch.from_numpy(compiled_value).double(), value, rtol=1e-4, atol=3e-6)
    # A return on an outermost knot, which is no lattice point, may round to either side of it: the CDF is 0 or 1 there.
    assert_close(torch.from_numpy(compiled_slope).double(), slope, rtol=1e-4, atol=3e-6)


@pytest.mark.parametrize("spoiled", ["predicted", "target"])
def test_a_row_that_is_not_finite_has_a_loss_that_is_not_finite(spoiled):
    levels = midpoints(16, torch.empty(0, dtype=torch.float32)).numpy()
    rows = {name: np.tile(levels, (2, 1)) for name in ("predicted", "target")}
    rows[spoiled][1] = np.nan
    value, _ = distances.lines(rows["predicted"], rows["target"], levels, np.float32(1))
    assert np.isfinite(value[0])
    assert np.isnan(value[1])
