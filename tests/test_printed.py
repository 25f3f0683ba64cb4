"""The paper's loss as it is printed, against transcriptions in plain loops, row by row, in value and gradient."""

import itertools
import math
import pkgutil
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.evaluation.problems import contender
from nfdrl.laws import METHODS
from nfdrl.laws.flow import FlowLaw, FlowMethod
from nfdrl.losses.exact import Exact
from nfdrl.losses.surrogate import MASSES, Surrogate
from nfdrl.numerics.base_points import base_points
from nfdrl.paper import EXPERIMENTS
from nfdrl.risk import Mean
from nfdrl.settings import apply_settings
from nfdrl.training.presets import find_preset

pytestmark = pytest.mark.usefixtures("double")

H = 0.05  # tab:hyperparameters: bandwidth
PRINTED = Surrogate(kernel="gaussian", bandwidth=H, relative_bandwidth=0.0, support="interpolated", averaged=True)
every_support = pytest.mark.parametrize("support", ["interpolated", "samples"])
every_mass = pytest.mark.parametrize("masses", MASSES)


# Transcriptions -----------------------------------------------------------------------------------------------------


def gaussian(u):
    return torch.exp(-0.5 * (u / H) ** 2) / (H * math.sqrt(2 * math.pi))


def estimate(at, samples, weights):
    """KDE(y, weights) at one point."""
    total = torch.zeros(())
    for y, weight in zip(samples, weights, strict=True):
        total = total + weight * gaussian(at - y)
    return total


def appendix_f(points, samples, weights):
    """Item 2: the estimate at each support point directly."""
    return torch.stack([estimate(point, samples, weights) for point in points])


def algorithm_1(points, samples, weights, everything):
    """The estimate on s = [−max, max] and its linear interpolation at each support point."""
    n = len(samples)
    reach = max(float(y.detach().abs()) for y in everything)
    support = [-reach + 2 * reach * k / (n - 1) for k in range(n)]
    values = [estimate(torch.tensor(s), samples, weights) for s in support]
    found = []
    for point in points:
        left = min(n - 2, int((float(point.detach()) + reach) / (support[1] - support[0])))
        share = (point - support[left]) / (support[1] - support[0])
        found.append((1 - share) * values[left] + share * values[left + 1])
    return torch.stack(found)


def normalised(values):
    """Item 3: Δy is the same at every point and cancels."""
    return values / values.sum()


def printed_d(w, v, support):
    """eq:loss: the root of N⁻² Σᵢⱼ (wᵢ − vᵢ)² |yᵢ − yⱼ|."""
    n = len(support)
    total = torch.zeros(())
    for i, j in itertools.product(range(n), range(n)):
        total = total + (w[i] - v[i]) ** 2 * (support[i] - support[j]).abs()
    return (total / n**2).sqrt()


def printed_loss(how, y, target, log_p, log_q):
    """eq:loss_full, of one row: D on the predicted returns plus D on the target's."""
    laws, own = (y, target), (normalised(log_p.exp()), normalised(log_q.exp()))
    total = torch.zeros(())
    for here, points in enumerate(laws):
        masses = []
        for law, samples in enumerate(laws):
            if how.masses == "density" and law == here:
                masses.append(own[law])
                continue
            weights = own[law] if how.masses == "weighted" else torch.full_like(samples, 1 / len(samples))
            if how.support == "samples":
                values = appendix_f(points, samples, weights)
            else:
                values = algorithm_1(points, samples, weights, [*y, *target])
            masses.append(normalised(values if how.kernel_gradients else values.detach()))
        total = total + printed_d(*masses, points)
    return total


# --------------------------------------------------------------------------------------------------------------------


def flow(rows, seed, width=1.0):
    """A batch of laws whose parameters have gradients."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(rows, 3, generator=generator).softmax(-1)
    locations = torch.randn(rows, 3, generator=generator)
    scales = 0.3 + torch.rand(rows, 3, generator=generator)
    bound = width * (0.5 + torch.rand(rows, generator=generator))
    parts = [part.requires_grad_() for part in (weights, locations, scales, bound)]
    return FlowLaw(*parts, validate=False), parts


@every_support
@every_mass
@pytest.mark.parametrize("kernel_gradients", [True, False])
def test_the_loss_is_the_printed_one_in_value_and_gradient(support, masses, kernel_gradients):
    how = replace(PRINTED, support=support, masses=masses, kernel_gradients=kernel_gradients, rooted=True)
    law, parts = flow(2, 0)
    target = flow(2, 1)[0].bootstrap(0.2, 0.9)
    z = base_points(11, "random", like=law.bound, generator=torch.Generator().manual_seed(2))
    returns, densities = (law.at(z), target.at(z).detach()), (law.log_density_at(z), target.log_density_at(z).detach())
    ours = how(*returns, densities)
    literal = torch.stack([printed_loss(how, *(t[k] for t in (*returns, *densities))) for k in range(2)])
    assert_close(ours, literal, rtol=1e-8, atol=0)
    slopes, printed = (torch.autograd.grad(value.sum(), parts, retain_graph=True) for value in (ours, literal))
    for one, other in zip(slopes, printed, strict=True):
        assert_close(one, other, rtol=1e-6, atol=1e-7 * float(other.abs().max()) + 1e-14)


def test_a_terminal_target_is_the_printed_gaussian():
    # N(r, 0.1) at r + 0.1 z: its density is φ(z)/0.1, and a mass is its share of their sum.
    method = FlowMethod(replace(PRINTED, masses="weighted", rooted=True), samples=9, terminal_std=0.1)
    law, _ = flow(1, 0)
    target = flow(1, 1)[0].bootstrap(0.3, 0.0)
    z = base_points(9, like=law.bound)
    expected = printed_loss(method.comparison, law.at(z)[0], 0.3 + 0.1 * z, law.log_density_at(z)[0], -0.5 * z**2)
    assert_close(method.loss(law, target)[0], expected, rtol=1e-8, atol=0)


@every_support
@every_mass
@pytest.mark.parametrize("gap", [0.0, 1.0, 30.0])
def test_masses_keep_their_digits_however_far_the_other_law_is(support, masses, gap):
    # By the fast transform where laws overlap, pair by pair in logarithms where a density is as small as exp(−180,000).
    how = replace(PRINTED, support=support, masses=masses, rooted=True, grid_size=7)
    y = torch.linspace(-0.2, 0.1, 7)
    target = torch.linspace(-0.1, 0.3, 7) + gap
    log_p, log_q = -y.square(), -target.square() / (1 + gap)
    if gap < 2:  # past that the plain sums are zero, and their shares are not numbers
        assert_close(
            how(y[None], target[None], (log_p[None], log_q[None]))[0], printed_loss(how, y, target, log_p, log_q)
        )
    found = how(y[None], target[None], (log_p[None], log_q[None]))
    assert found.isfinite().all()
    assert (found > 0).all()


@pytest.mark.parametrize("kernel", ["gaussian", "multi-scale"])
def test_the_fast_transform_is_the_sum_over_all_pairs(kernel, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(3, n, generator=generator).sort(-1).values for n in (300, 200))
    how = replace(PRINTED, kernel=kernel, support="samples")
    fast = how(x, y)
    monkeypatch.setattr("nfdrl.numerics.gauss.LONGEST", 0)
    assert_close(fast, how(x, y), rtol=1e-8, atol=0)


@every_support
@pytest.mark.parametrize("kernel", ["gaussian", "multi-scale"])
@pytest.mark.parametrize(("gap", "spread"), [(0.5, 0.001), (2.0, 0.1), (30.0, 3.0)])
def test_points_that_cannot_count_are_left_out(support, kernel, gap, spread, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, n, generator=generator).sort(-1).values for n in (60, 50))
    x, y = (spread * x).requires_grad_(), gap + spread * torch.tensor([[1.0], [2.0], [0.0], [5.0]]) * y
    how = replace(PRINTED, kernel=kernel, support=support, rooted=True)
    monkeypatch.setattr("nfdrl.numerics.gauss.LONGEST", 0)  # every row pair by pair
    found = []
    for negligible in (45.0, math.inf):
        monkeypatch.setattr("nfdrl.numerics.gauss.NEGLIGIBLE", negligible)
        loss = how(x, y)
        found.append((loss, *torch.autograd.grad(loss.sum(), x)))
    assert_close(found[0], found[1], rtol=1e-10, atol=1e-14)


def test_masses_from_densities_need_the_densities():
    with pytest.raises(NfdrlError, match="pass both"):
        replace(PRINTED, masses="density")(torch.zeros(1, 4), torch.zeros(1, 4))


def test_without_kernel_gradients_the_target_returns_give_none():
    # What is left of eq:loss_full is the model's own density at its own returns: the second sum is a constant.
    how = replace(PRINTED, support="samples", kernel_gradients=False)
    y = torch.randn(2, 9, generator=torch.Generator().manual_seed(0)).sort(-1).values.requires_grad_()
    target = y.detach() + 0.1
    part = how._masses((y, target), None)
    assert not any(mass.requires_grad for pair in part for mass in pair)


def test_smoothed_cdfs_have_the_closed_form_of_gaussian_pairs():
    # X + hε: E|a + sε| = s√(2/π) exp(−a²/2s²) + a(1 − 2Φ(−a/s)) with s = √2 h, in the energy form of the distance.
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, n, generator=generator).sort(-1).values.requires_grad_() for n in (20, 13))

    def mean_gap(a, b, s):
        gap = a.unsqueeze(-1) - b.unsqueeze(-2)
        wide = s * math.sqrt(2 / math.pi) * torch.exp(-0.5 * (gap / s) ** 2)
        return (wide + gap * (1 - 2 * torch.special.ndtr(-gap / s))).mean((-1, -2))

    for h in (0.05, 0.3):
        s = math.sqrt(2) * h
        energy = mean_gap(x, y, s) - 0.5 * mean_gap(x, x, s) - 0.5 * mean_gap(y, y, s)
        ours = Exact(bandwidth=h)(x, y)
        assert_close(ours, energy, rtol=1e-2, atol=0)
        slopes = [torch.autograd.grad(value.sum(), x, retain_graph=True)[0] for value in (ours, energy)]
        assert torch.cosine_similarity(*slopes, dim=-1).min() > 0.999


def test_a_vanishing_bandwidth_leaves_the_exact_distance():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, n, generator=generator).sort(-1).values for n in (20, 13))
    assert_close(Exact(bandwidth=1e-3)(x, y), Exact()(x, y), rtol=1e-2, atol=0)


def test_the_literal_preset_is_the_paper_in_every_setting():
    method = find_preset("paper-literal").adapt(METHODS["nfdrl-s"])
    how = method.comparison
    assert (how.rooted, how.averaged, how.kernel_gradients) == (True, True, False)
    assert (how.support, how.masses, how.kernel, how.bandwidth) == ("interpolated", "density", "gaussian", 0.05)
    assert (method.samples, method.points, method.terminal_std) == (500, "random", 0.1)
    assert method.action_value == "density-sum"
    config = find_preset("paper-literal").config
    assert (config.target_every, config.learning_rate_decay, config.learning_rate) == (1, "constant", 5e-5)
    assert find_preset("paper-literal").adapt(METHODS["c51"]) is METHODS["c51"]


def test_every_literal_setting_can_be_taken_back_by_words():
    words = [
        "comparison.rooted=false", "comparison.averaged=false", "comparison.kernel_gradients=true",
        "comparison.masses=kernel", "comparison.support=shared", "comparison.kernel=multi-scale",
        "comparison.bandwidth=0", "comparison.relative_bandwidth=0.25", "samples=64", "points=midpoint",
        "terminal_std=0", "action_value=mean",
    ]  # fmt: skip
    preset = find_preset("paper-literal")
    _, method = apply_settings(words, preset.config, preset.adapt(METHODS["nfdrl-s"]))
    assert method == METHODS["nfdrl-s"]


def test_brackets_make_the_literal_method_of_our_own():
    words = (
        "comparison.rooted=true,comparison.averaged=true,comparison.kernel_gradients=false,comparison.masses=density,"
        "comparison.support=interpolated,comparison.kernel=gaussian,comparison.bandwidth=0.05,"
        "comparison.relative_bandwidth=0,samples=500,points=random,terminal_std=0.1,action_value=density-sum"
    )
    assert contender(f"nfdrl-s[{words}]").method == find_preset("paper-literal").adapt(METHODS["nfdrl-s"])


def test_the_printed_value_is_the_sum_of_returns_times_densities():
    method = FlowMethod(samples=5, action_value="density-sum")
    law, _ = flow(3, 0)
    returns, densities = (part(base_points(5, like=law.bound)) for part in (law.at, law.log_density_at))
    expected = torch.stack(
        [sum(y * p.exp() for y, p in zip(*row, strict=True)) for row in zip(returns, densities, strict=True)]
    )
    assert_close(method.value(law, Mean()), expected)
    assert_close(FlowMethod().value(law, Mean()), law.mean())


def test_every_name_in_the_paper_map_exists():
    text = (Path(__file__).parents[1] / "docs" / "paper-map.md").read_text()
    names = set(re.findall(r"`(nfdrl(?:\.\w+)+)`", text))
    assert len(names) > 15
    for name in names:
        assert pkgutil.resolve_name(name) is not None
    assert set(re.findall(r"`nfdrl paper ([\w-]+)", text)) == set(EXPERIMENTS)
