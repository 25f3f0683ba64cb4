"""The losses against their slow, literal forms, in value and gradient, and what any distance of laws must satisfy."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.laws.flow import FlowLaw
from nfdrl.losses import grid as grid_losses
from nfdrl.losses.continuous import Continuous
from nfdrl.losses.exact import Exact, cramer_exact
from nfdrl.losses.l2 import L2
from nfdrl.losses.surrogate import Surrogate, cramer_surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.numerics.kde import KERNELS, Grid, smoothed_masses
from nfdrl.numerics.spread import pairwise_gap_sum, uniform_gap_sum
from oracles import (
    compare_slowly,
    cramer_energy,
    cramer_integral,
    double_sum,
    kernel_density,
    omega,
)

SMOOTHED = {
    "shared": Surrogate(support="shared"),
    "interpolated": Surrogate(support="interpolated"),
    "samples": Surrogate(support="samples"),
    "l2": L2(),
}
ON_A_GRID = {"shared": Surrogate(), "l2": L2()}
KINDS = {"exact": Exact(), "continuous": Continuous()} | SMOOTHED
BANDWIDTHS = {  # in the returns' own unit, relative to their range, and the larger of the two
    "absolute": {"bandwidth": 0.1, "relative_bandwidth": 0.0},
    "relative": {"bandwidth": 0.0, "relative_bandwidth": 0.03},
    "larger": {"bandwidth": 0.12, "relative_bandwidth": 0.03},
}

on_a_grid = pytest.mark.parametrize("how", ON_A_GRID.values(), ids=ON_A_GRID)
every_kind = pytest.mark.parametrize("how", KINDS.values(), ids=KINDS)
every_kernel = pytest.mark.parametrize("kernel", KERNELS)
every_bandwidth = pytest.mark.parametrize("width", BANDWIDTHS.values(), ids=BANDWIDTHS)
absolute_or_relative = pytest.mark.parametrize("width", list(BANDWIDTHS.values())[:2], ids=list(BANDWIDTHS)[:2])

pytestmark = pytest.mark.usefixtures("double")


def with_width(how, **width):
    """The same distance with another bandwidth, where it has one."""
    return how if isinstance(how, Exact | Continuous) else replace(how, **width)


def at_samples(how):
    return isinstance(how, Surrogate) and how.support != "shared"


def samples(n, seed=0, batch=8, location=0.0, scale=1.0):
    noise = torch.randn(batch, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (location + scale * noise).sort(-1).values


def two_laws(n=37, m=53):
    """Overlapping sample sets of different sizes, both with gradients."""
    return samples(n).requires_grad_(), samples(m, 1, location=0.4, scale=0.7).requires_grad_()


@st.composite
def sample_pairs(draw, distinct=True):
    """Two sorted sets of one row each, of different sizes, in units from 10⁻³ to 10³.

    Positions are on a lattice, so that distinct ones stay apart: at a tie an absolute value has no derivative.
    """
    n, m = draw(st.lists(st.integers(1, 20), min_size=2, max_size=2, unique=True))
    lattice = st.integers(-5_000, 5_000)
    positions = draw(st.lists(lattice, min_size=n + m, max_size=n + m, unique=distinct))
    y = torch.tensor(positions, dtype=torch.float64) * 10 ** draw(st.floats(-6, 0))
    x, y = y[:n].sort().values, y[n:].sort().values
    return x.unsqueeze(0).requires_grad_(), y.unsqueeze(0).requires_grad_()


def value_and_gradients(f, *inputs):
    """f and the gradients of its sum with respect to all inputs."""
    value = f(*inputs)
    return value.detach(), torch.autograd.grad(value.sum(), inputs)


def assert_same(fast, slow, *inputs, tolerance=1e-6):
    """Two functions agree in value and in every gradient, relative to the largest entry."""
    (value, gradients), (value_slow, gradients_slow) = (value_and_gradients(f, *inputs) for f in (fast, slow))
    for ours, theirs in zip((value, *gradients), (value_slow, *gradients_slow), strict=True):
        assert_close(ours, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()) + 1e-12)


# Forms that are exact -----------------------------------------------------------------------------------------------


@given(sample_pairs())
def test_a_prefix_sum_gives_all_pairwise_gaps(pair):
    # Weighted, so that the gradient is that of each Ωᵢ and not of their sum alone.
    support = torch.cat(pair, -1).detach().sort(-1).values.requires_grad_()
    weight = torch.linspace(1, 2, support.shape[-1], dtype=torch.float64)
    assert_same(lambda y: weight * pairwise_gap_sum(y), lambda y: weight * omega(y), support)


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_the_gaps_of_a_uniform_grid_have_a_closed_form(n):
    step = torch.tensor([0.3, 5.0], requires_grad=True)
    points = torch.arange(n, dtype=torch.float64)
    weight = points + 1
    assert_same(
        lambda s: weight * uniform_gap_sum(n, s), lambda s: weight * omega(s.unsqueeze(-1) * points - 7.0), step
    )


def test_two_spikes_on_a_grid_are_as_far_apart_as_in_the_paper():
    # Appendix F: on −10 … 10, Ω₋₁₀ = Ω₁₀ = 210 and Ω₋₉ = 191; N²D² is 401 for neighbours, 420 for the two ends.
    support = torch.arange(-10.0, 11.0)
    spike = torch.eye(21)
    assert_close(21**2 * cramer_surrogate(spike[0], spike[1], support), torch.tensor(401.0))
    assert_close(21**2 * cramer_surrogate(spike[0], spike[20], support), torch.tensor(420.0))


def test_the_exact_distance_by_hand():
    # F steps to 1 at 0; G to ½ at 1 and to 1 at 3: 1²·1 + (½)²·2 = 1.5.
    assert_close(cramer_exact(torch.tensor([[0.0]]), torch.tensor([[1.0, 3.0]])), torch.tensor([1.5]))


@pytest.mark.parametrize("slow", [cramer_integral, cramer_energy])
@given(pair=sample_pairs())
def test_one_merge_gives_the_exact_distance(slow, pair):
    assert_same(cramer_exact, slow, *pair)


@pytest.mark.parametrize("slow", [cramer_integral, cramer_energy])
@given(pair=sample_pairs(distinct=False))
def test_ties_do_not_change_the_exact_distance(slow, pair):
    x, y = (part.detach() for part in pair)
    x = torch.cat([x, y[:, :1]], -1).sort(-1).values
    assert_close(cramer_exact(x, y), slow(x, y), rtol=1e-6, atol=1e-12)


@given(sample_pairs(), st.integers(0, 1000))
def test_the_surrogate_is_the_double_sum(pair, seed):
    support = torch.cat(pair, -1).detach().sort(-1).values.requires_grad_()
    n = support.shape[-1]
    logits = torch.randn(2, 1, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    w, v = (part.requires_grad_() for part in logits.softmax(-1))
    assert_same(cramer_surrogate, double_sum, w, v, support)


def finer(size, kernel):
    """A grid that resolves the sharp parts of the multi-scale kernel as well as `size` points do a Gaussian."""
    return size * (8 if kernel == "multi-scale" else 1)


# Forms on a grid ----------------------------------------------------------------------------------------------------


@every_kernel
def test_bin_and_filter_is_a_kernel_estimate(kernel):
    x, width = samples(50), torch.full((8,), 0.2)
    grid = Grid.covering(x[:, 0], x[:, -1], 4 * width, finer(512, kernel))
    density = smoothed_masses(x, width, grid, kernel) / grid.step.unsqueeze(-1)
    direct = kernel_density(grid.points(), x, 0.2, kernel)
    assert (density - direct).abs().max() < 2e-3 * direct.max()
    # Bins share each sample and the filter keeps the sum: no mass is lost, whatever the margin.
    assert_close((density * grid.step.unsqueeze(-1)).sum(-1), torch.ones(8))
    assert_close((density * grid.step.unsqueeze(-1) * grid.points()).sum(-1), x.mean(-1), rtol=0, atol=1e-3)


@on_a_grid
@every_kernel
@every_bandwidth
def test_binned_losses_match_the_direct_ones(how, kernel, width):
    how = replace(how, **width, kernel=kernel, grid_size=finer(1500, kernel))
    inputs = two_laws()
    value, gradients = value_and_gradients(lambda x, y: how(x, y), *inputs)
    direct, direct_gradients = value_and_gradients(lambda x, y: compare_slowly(x, y, how), *inputs)
    assert_close(value, direct, rtol=1e-2, atol=0)
    # A single gradient is the slope of a chord of the kernel, and of first order; the errors have no common sign.
    for ours, theirs in zip(gradients, direct_gradients, strict=True):
        assert torch.cosine_similarity(ours, theirs, dim=-1).min() > 0.99
        assert_close(ours.norm(), theirs.norm(), rtol=1e-2, atol=0)


@on_a_grid
@every_kernel
@every_bandwidth
def test_the_error_of_a_grid_is_of_second_order(how, kernel, width):
    inputs = [part.detach() for part in two_laws()]
    errors = []
    for size in (150, 300, 600):
        at_size = replace(how, **width, kernel=kernel, grid_size=finer(size, kernel))
        direct = compare_slowly(*inputs, at_size)
        errors.append(float(((at_size(*inputs) - direct) / direct).abs().mean()))
    # A quarter each time, so a sixteenth of the first; single errors depend on where samples fall between grid points.
    assert errors[1] < 0.5 * errors[0]
    assert errors[2] < 0.12 * errors[0]


@on_a_grid
@every_kernel
@settings(max_examples=40)
@given(pair=sample_pairs())
def test_binned_losses_match_the_direct_ones_on_any_samples(how, kernel, pair):
    how = replace(how, kernel=kernel, relative_bandwidth=0.5, grid_size=finer(500, kernel))
    spread = float(torch.cat(pair, -1).detach().max() - torch.cat(pair, -1).detach().min())
    unit = 1 / spread if how.kind == "l2" else spread
    x, y = (part.detach() for part in pair)
    assert_close(how(x, y) / unit, compare_slowly(x, y, how) / unit, rtol=1e-2, atol=1e-6)


# Distances of laws --------------------------------------------------------------------------------------------------


@every_kind
def test_the_root_is_taken_of_each_support(how):
    x, y = (part.detach() for part in two_laws())
    squared, rooted = how(x, y), replace(how, rooted=True)(x, y)
    if not at_samples(how):
        assert_close(rooted, squared.sqrt())
    else:  # one root per support (eq:practical_loss_app): a² + b² ≤ (a + b)² ≤ 2(a² + b²)
        assert (rooted.square() >= squared).all()
        assert (rooted.square() <= 2 * squared + 1e-12).all()
        fine = replace(how, rooted=True, kernel="gaussian", grid_size=1000)
        assert_close(fine(x, y), compare_slowly(x, y, fine), rtol=1e-2, atol=0)


@every_kind
def test_the_distance_of_a_law_to_itself_is_zero(how):
    x = samples(40)
    assert_close(how(x, x), torch.zeros(8), rtol=0, atol=1e-15)


@every_kind
def test_one_sample_per_law_is_enough(how):
    x, y = torch.tensor([[0.2]], requires_grad=True), torch.tensor([[0.9]])
    value = how(x, y)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert value.isfinite().all()
    assert gradient.isfinite().all()


@every_kind
def test_distances_are_symmetric_and_positive(how):
    x, y = (part.detach() for part in two_laws())
    # Only one of the two CDFs is continuous, so that the sides differ by what a step is worth.
    assert_close(how(x, y), how(y, x), **({"rtol": 0.05, "atol": 1e-3} if isinstance(how, Continuous) else {}))
    assert (how(x, y) > 0).all()


@every_kind
@absolute_or_relative
def test_distances_ignore_a_common_shift(how, width):
    how = with_width(how, **width)
    x, y = (part.detach() for part in two_laws())
    if isinstance(how, Surrogate) and how.support == "interpolated":
        # Algorithm 1's grid on ±max|y| does not move with the laws: as printed, the loss is not invariant.
        assert not torch.allclose(how(x + 64, y + 64), how(x, y), rtol=1e-2)
        return
    # 64 and not 60: a power of two leaves the rounding of grid positions almost as it was.
    assert_close(how(x + 64, y + 64), how(x, y), rtol=1e-8, atol=1e-12)


@every_kind
@pytest.mark.parametrize("factor", [1e-3, 0.99, 250.0])
def test_a_relative_bandwidth_makes_distances_scale_with_returns(how, factor):
    # Masses stay, gaps grow by c (property S of the paper, squared). A density falls by c: L² grows by 1/c.
    x, y = (part.detach() for part in two_laws())
    expected = how(x, y) * (1 / factor if how.kind == "l2" else factor)
    assert_close(how(factor * x, factor * y), expected, rtol=1e-8, atol=0)


@every_kind
def test_rows_do_not_affect_each_other(how):
    x, y = two_laws()
    value = how(x, y)
    assert value.shape == (8,)
    assert_close(torch.stack([how(x[i : i + 1], y[i : i + 1])[0] for i in range(8)]), value)
    (gradient,) = torch.autograd.grad(value[3], x)
    assert gradient[3].abs().sum() > 0
    assert gradient[[0, 1, 2, 4, 5, 6, 7]].abs().sum() == 0


@every_kind
def test_a_detached_target_gets_no_gradient(how):
    x, y = two_laws()
    target = y.detach()
    how(x, target).sum().backward()
    assert x.grad is not None
    assert target.grad is None
    assert y.grad is None
    assert not how(x.detach(), target).requires_grad


@every_kind
@absolute_or_relative
@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.1, 3.0, 1e4])
def test_a_dirac_target_gives_a_positive_distance_and_finite_gradients(how, width, rooted, dtype, reward):
    # What termination leaves: inside the predicted returns, next to them, far from them.
    how = replace(with_width(how, **width), rooted=rooted)
    x = samples(40).to(dtype).requires_grad_()
    value = how(x, torch.full((8, 30), reward, dtype=dtype))
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert value.isfinite().all()
    # Algorithm 1's grid of 40 points on ±10,000 tells nothing apart that is closer together than 500.
    assert ((value > 0) | (at_samples(how) & (reward == 1e4))).all()
    assert gradient.isfinite().all()


@every_kind
@absolute_or_relative
@pytest.mark.parametrize("rooted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.0, -2.0, 1e4])
def test_the_distance_of_two_equal_diracs_is_zero(how, width, rooted, dtype, reward):
    how = replace(with_width(how, **width), rooted=rooted)
    x = torch.full((3, 40), reward, dtype=dtype, requires_grad=True)
    value = how(x, torch.full((3, 30), reward, dtype=dtype))
    (gradient,) = torch.autograd.grad(value.sum(), x)
    # A density of zero width has no unit but that of rounding: L² is as good as zero beside its 1/eps.
    assert_close(value, torch.zeros(3, dtype=dtype), rtol=0, atol=1e-2 if how.kind == "l2" else 1e-5)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("how", [KINDS[name] for name in ("exact", "shared", "l2")], ids=["exact", "shared", "l2"])
def test_a_dirac_pulls_the_law_towards_it(how):
    # Descent moves the mean towards the target, from either side. The forms at sample points promise no such thing:
    # they see the law only where samples are, and may gain by moving those away (as do their literal forms).
    x = samples(100, scale=0.5).requires_grad_()
    for reward, sign in ((0.8, -1), (-0.8, 1)):
        at_width = with_width(how, bandwidth=0.3)
        (gradient,) = torch.autograd.grad(at_width(x, torch.full((8, 60), reward)).sum(), x)
        assert (sign * gradient.sum(-1) > 0).all()


@every_kind
def test_midpoints_estimate_the_distance_of_two_flows_better_than_draws(how):
    how = with_width(how, grid_size=400)
    weights, locations, scales = torch.tensor([0.3, 0.7]), torch.tensor([-0.5, 1.0]), torch.tensor([0.6, 0.9])
    one = FlowLaw(weights, locations, scales, torch.tensor(2.0))
    other = one.bootstrap(0.5, 0.9)

    def distance(n, rule, seed=0):
        z = base_points(n, rule, like=one.bound, generator=torch.Generator().manual_seed(seed))
        # Masses fall as 1/N and Ω grows as N: D² at N sample points falls as N⁻². A grid has its own number of points.
        return (n**2 if at_samples(how) else 1) * how(one.at(z).unsqueeze(0), other.at(z).unsqueeze(0))

    truth = distance(4000, "midpoint")
    drawn = torch.cat([distance(200, "random", seed) for seed in range(30)])
    error = (distance(200, "midpoint") - truth).abs()
    assert error < 0.05 * truth
    assert error < 0.5 * (drawn - truth).square().mean().sqrt()
    assert_close(distance(200, "midpoint"), distance(200, "midpoint", seed=1), rtol=0, atol=0)


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bandwidth": 0.0, "relative_bandwidth": 0.0}, "one of them positive, got 0.0 and 0.0"),
        ({"bandwidth": -1.0}, "must be non-negative"),
        ({"relative_bandwidth": -1.0}, "must be non-negative"),
        ({"bandwidth": float("nan")}, "must be non-negative"),
        ({"grid_size": 3}, "grid_size must be at least 4, got 3"),
        ({"support": "interpolate"}, "unknown support 'interpolate': did you mean 'interpolated'"),
        ({"masses": "densty"}, "unknown masses 'densty': did you mean 'density'"),
        ({"masses": "density"}, "set support to 'interpolated' or 'samples'"),
        ({"kernel_gradients": False}, "set support to 'interpolated' or 'samples'"),
        ({"kernel": "gausian"}, "unknown kernel 'gausian': did you mean 'gaussian'"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(NfdrlError, match=message):
        Surrogate(**settings)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", [Surrogate, L2])
def test_one_matrix_equals_two_filters(kind, kernel, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(6, n, dtype=torch.float64, generator=generator).sort(-1).values for n in (12, 9))
    y[0] = x[0, 3]  # a Dirac
    how = kind(kernel=kernel, grid_size=200)
    by_matrix = how.value_and_slope(x, y)
    monkeypatch.setattr(grid_losses, "LARGEST_FORM", 0)
    for ours, theirs in zip(by_matrix, how.value_and_slope(x, y), strict=True):
        assert_close(ours, theirs)
