"""The flow law's closed forms against numerical integration, and its behaviour at the extremes."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from scipy.integrate import quad
from scipy.stats import norm

from flow_laws import floats, flow_laws
from nfdrl.errors import NfdrlError
from nfdrl.laws.flow import FlowHead, FlowLaw
from nfdrl.laws.pushforward import ChainLaw
from nfdrl.numerics.flows import Affine, MixtureCDF, pushforward_log_prob
from nfdrl.numerics.normal import log_phi

pytestmark = pytest.mark.usefixtures("double")

LEVELS = torch.tensor([0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999], dtype=torch.float64)


def integrate(law, function, upper=9.0):
    """E[function(y); Z ≤ upper] by quadrature in the base noise, where the integrand is smooth."""
    cuts = sorted({-9.0, upper, *(c for c in law.locations.tolist() if -9 < c < upper)})

    def integrand(z):
        y = law.at(torch.tensor([z], dtype=torch.float64)).item()
        return function(y) * norm.pdf(z)

    return sum(quad(integrand, a, b, epsabs=1e-11, epsrel=1e-11, limit=200)[0] for a, b in itertools.pairwise(cuts))


@given(flow_laws(max_location=0.8, min_scale=0.7))
def test_cdf_inverts_quantile(law):
    torch.testing.assert_close(law.cdf(law.quantile(LEVELS)), LEVELS, atol=1e-8, rtol=0)


@given(flow_laws(max_location=8.0, min_scale=1e-2))
def test_cdf_inverts_quantile_to_rounding_however_sharp_the_law(law):
    # Where F is flat, a whole range of levels falls on one floating-point return: the level must then lie between
    # the CDF a few roundings below and a few above it.
    y = law.quantile(LEVELS)
    rounding = 4e-15 * (law.bound + law.center.abs())
    assert (law.cdf(y - rounding) <= LEVELS + 1e-8).all()
    assert (law.cdf(y + rounding) >= LEVELS - 1e-8).all()


@given(flow_laws(max_location=1.5, min_scale=0.4))
def test_pdf_is_the_derivative_of_the_cdf(law):
    y = law.quantile(LEVELS[2:-2]).detach().requires_grad_()
    (slope,) = torch.autograd.grad(law.cdf(y).sum(), y)
    torch.testing.assert_close(law.pdf(y), slope, rtol=1e-6, atol=0)


@given(flow_laws(max_location=1.5, min_scale=0.4))
def test_pdf_integrates_to_one(law):
    # Eight Gauss-Legendre nodes in y on each panel between the images of z = −8, −7.95, …, 8; what lies outside the
    # panels that rounding can tell from the ends is Φ of the outermost z.
    z = torch.linspace(-8, 8, 321)
    edges = law.at(z)
    inside = (edges - law.center).abs() < law.bound * (1 - 1e-9)
    z, edges = z[inside], edges[inside]
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(8))
    half = 0.5 * edges.diff().unsqueeze(-1)
    points = edges[:-1, None] + half * (nodes + 1)
    mass = (half * weights * law.pdf(points.flatten()).view_as(points)).sum()
    outside = norm.cdf(float(z[0])) + norm.sf(float(z[-1]))
    assert mass.item() + outside == pytest.approx(1, abs=1e-6)


@given(flow_laws())
def test_mean_equals_its_integral(law):
    error = law.mean().item() - integrate(law, lambda y: y)
    assert abs(error) <= 1e-6 * law.bound.item() + 1e-12 * law.center.abs().item()


@given(flow_laws())
def test_variance_equals_its_integral(law):
    mean = law.mean().item()
    expected = integrate(law, lambda y: ((y - mean) / law.bound.item()) ** 2)
    assert law.variance().item() / law.bound.item() ** 2 == pytest.approx(expected, abs=1e-6)
    torch.testing.assert_close(law.std().square(), law.variance())


@given(flow_laws(), floats(0.005, 0.995))
def test_cvar_equals_the_mean_of_the_tail(law, alpha):
    expected = integrate(law, lambda y: (y - law.center.item()) / law.bound.item(), upper=norm.ppf(alpha)) / alpha
    assert ((law.cvar(alpha) - law.center) / law.bound).item() == pytest.approx(expected, abs=1e-6)


@given(flow_laws(), floats(-5, 5), floats(0.01, 1))
def test_bootstrap_is_affine_in_every_quantile(law, reward, discount):
    moved = law.bootstrap(reward, discount)
    torch.testing.assert_close(moved.quantile(LEVELS), reward + discount * law.quantile(LEVELS), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved.mean(), reward + discount * law.mean(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(moved.std(), discount * law.std(), rtol=1e-6, atol=1e-7 * law.bound.item())


def test_discount_zero_leaves_a_dirac_at_the_reward():
    law = FlowLaw.from_raw(torch.randn(3, 13)).bootstrap(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([0.0, 0.0, 0.9]))
    assert law.mean()[:2].tolist() == [1.0, -2.0]
    assert law.variance()[:2].tolist() == [0.0, 0.0]
    assert law.cdf(torch.tensor([[0.99, 1.0], [-2.01, -2.0], [9.0, 9.0]])).tolist() == [[0, 1], [0, 1], [1, 1]]
    assert law.log_prob(torch.tensor([[0.99], [0.0], [9.0]])).tolist() == [[-torch.inf]] * 3
    assert torch.isfinite(law.quantile(LEVELS)).all()


def test_samples_follow_the_cdf():
    law = FlowLaw.from_raw(torch.randn(2, 3, 13, generator=torch.Generator().manual_seed(0)), 5.0)
    n = 20_000
    samples = law.sample(n, torch.Generator().manual_seed(1))
    assert samples.shape == (2, 3, n)
    ordered = samples.sort(-1).values
    empirical = (torch.arange(n) + 0.5) / n
    # Kolmogorov-Smirnov at the level 1e-6: √(log(2/1e-6)/2n).
    assert (law.cdf(ordered) - empirical).abs().max() < 0.0191


def test_select_picks_one_law_per_row():
    raw = torch.randn(4, 3, 13)
    law, action = FlowLaw.from_raw(raw), torch.tensor([2, 0, 1, 2])
    chosen = law.select(action)
    assert chosen.batch_shape == (4,)
    torch.testing.assert_close(chosen.mean(), law.mean()[torch.arange(4), action])
    torch.testing.assert_close(law.select(1).cvar(0.1), law.cvar(0.1)[:, 1])


@pytest.mark.parametrize("name", ["mean", "variance", "quantile", "cdf", "cvar", "log_prob"])
def test_gradients_are_those_of_finite_differences(name):
    raw = torch.randn(3, 13, generator=torch.Generator().manual_seed(3)).requires_grad_()
    points = {"mean": (), "variance": (), "quantile": (0.3,), "cvar": (0.1,), "cdf": (0.2,), "log_prob": (0.2,)}[name]
    assert torch.autograd.gradcheck(lambda value: getattr(FlowLaw.from_raw(value, 2.0), name)(*points), (raw,))


def test_gradients_reach_points_and_levels():
    law = FlowLaw.from_raw(torch.randn(3, 13, generator=torch.Generator().manual_seed(4)))
    inside = torch.tensor([-0.4, 0.1, 0.7], requires_grad=True)
    level = torch.tensor([0.05, 0.5, 0.95], requires_grad=True)
    assert torch.autograd.gradcheck(law.cdf, (inside,))
    assert torch.autograd.gradcheck(law.quantile, (level,))
    assert torch.autograd.gradcheck(law.cvar, (level,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [1e-3, 1.0, 1e4])
def test_extreme_parameters_give_finite_values_and_gradients(dtype, bound):
    # Every combination of narrow and wide, far and central components, with weights down to 1e-30.
    rows = list(itertools.product([-8.0, 0.0, 8.0], [-8.0, 0.0, 8.0], [1e-2, 5.0], [0.5, 1e-8, 1e-30]))
    locations = torch.tensor([[a, b] for a, b, _, _ in rows], dtype=dtype, requires_grad=True)
    scales = torch.tensor([[s, 1e-2] for _, _, s, _ in rows], dtype=dtype, requires_grad=True)
    weights = torch.tensor([[w, 1 - w] for _, _, _, w in rows], dtype=dtype, requires_grad=True)
    bounds = torch.full((len(rows),), bound, dtype=dtype, requires_grad=True)
    law = FlowLaw(weights, locations, scales, bounds)
    levels = torch.tensor([1e-6, 0.01, 0.5, 0.99, 1 - 1e-6], dtype=dtype)
    points = bound * torch.tensor([-1.5, -0.999999, -0.9, -0.3, 0.0, 0.3, 0.9, 0.999999, 1.0], dtype=dtype)
    results = {
        "mean": law.mean(),
        "variance": law.variance(),
        "std": law.std(),
        "quantile": law.quantile(levels),
        "cvar": law.cvar(levels),
        "cdf": law.cdf(points),
        "pdf": law.pdf(points),
    }
    for name, value in results.items():
        assert torch.isfinite(value).all(), name
        gradients = torch.autograd.grad(value.sum(), (weights, locations, scales, bounds), retain_graph=True)
        assert all(torch.isfinite(gradient).all() for gradient in gradients), name
    assert (results["quantile"].diff(dim=-1) >= 0).all()
    assert (results["cdf"].diff(dim=-1) >= 0).all()
    assert not torch.isnan(law.log_prob(points)).any()


# --- the chain of flows -------------------------------------------------------------------------------------------


def example_mixture(seed, batch=(2,)):
    generator = torch.Generator().manual_seed(seed)
    law = FlowLaw.from_raw(torch.randn(*batch, 13, generator=generator))
    return MixtureCDF(law.weights, law.locations, law.scales)


def test_three_layers_reproduce_the_log_densities_of_the_paper():
    mixture, bound = example_mixture(0), torch.tensor([2.0, 0.3])
    reward, discount = torch.tensor([0.5, -1.0]), torch.tensor([0.9, 0.5])
    rescaled = ChainLaw((mixture,), bound).flow()
    target = rescaled.then(Affine(reward, discount))
    z = torch.linspace(-2, 2, 9).expand(2, 9).clone().requires_grad_()
    base = log_phi(z) - mixture.log_derivative(z)
    # The unnumbered equation with −log 2G, and eq:target_bootstrap with −log γ.
    torch.testing.assert_close(pushforward_log_prob(rescaled, z), base - (2 * bound).log().unsqueeze(-1))
    torch.testing.assert_close(
        pushforward_log_prob(target, z), base - (2 * bound).log().unsqueeze(-1) - discount.log().unsqueeze(-1)
    )
    (slope,) = torch.autograd.grad(target.forward(z).sum(), z)
    torch.testing.assert_close(target.log_derivative(z), slope.log())
    torch.testing.assert_close(target.inverse(target.forward(z)), z, atol=1e-8, rtol=0)


def test_bootstrapping_a_law_is_appending_a_flow():
    mixture, bound = example_mixture(1), torch.tensor([2.0, 0.3])
    reward, discount = torch.tensor([0.5, -1.0]), torch.tensor([0.9, 0.5])
    law = FlowLaw(mixture.weights, mixture.locations, mixture.scales, bound)
    appended = law.flow().then(Affine(reward, discount))
    z = torch.linspace(-2, 2, 9)
    moved = law.bootstrap(reward, discount)
    torch.testing.assert_close(moved.at(z), appended.forward(z))
    torch.testing.assert_close(moved.log_prob(moved.at(z)), pushforward_log_prob(appended, z).expand(2, 9))


@pytest.mark.parametrize("n_flows", [1, 2, 3])
def test_a_chain_of_mixtures_is_a_law(n_flows):
    law = ChainLaw(tuple(example_mixture(seed) for seed in range(n_flows)), torch.tensor([2.0, 0.3]))
    inner = LEVELS[1:-1]
    torch.testing.assert_close(law.cdf(law.quantile(inner)), inner.expand(2, -1), atol=1e-8, rtol=0)
    y = law.quantile(inner).detach().requires_grad_()
    (slope,) = torch.autograd.grad(law.cdf(y).sum(), y)
    torch.testing.assert_close(law.pdf(y), slope, rtol=1e-6, atol=0)
    samples = law.sample(200_000, torch.Generator().manual_seed(0))
    assert (law.mean() - samples.mean(-1)).abs().max() < 5 * (law.std() / 200_000**0.5).max()
    moved = law.bootstrap(1.0, 0.5)
    torch.testing.assert_close(moved.mean(), 1 + 0.5 * law.mean())
    torch.testing.assert_close(moved.std(), 0.5 * law.std())


def test_one_flow_in_a_chain_is_the_flow_law():
    mixture, bound = example_mixture(2), torch.tensor([2.0, 0.3])
    chain, law = ChainLaw((mixture,), bound), FlowLaw(mixture.weights, mixture.locations, mixture.scales, bound)
    torch.testing.assert_close(chain.mean(), law.mean(), atol=1e-4, rtol=0)
    torch.testing.assert_close(chain.cvar(0.1), law.cvar(0.1), atol=1e-4, rtol=0)
    torch.testing.assert_close(chain.quantile(0.3), law.quantile(0.3))


# --- the head -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("components", [1, 4, 8])
def test_zero_outputs_start_wide_and_smooth(components):
    law = FlowLaw.from_raw(torch.zeros(3 * components + 1), 10.0)
    torch.testing.assert_close(law.mean(), torch.tensor(0.0), atol=1e-9, rtol=0)
    # Within 5 % of the standard deviation of the uniform law on (−10, 10), and no density over twice its own.
    assert law.std().item() == pytest.approx(20 / 12**0.5, rel=0.05)
    assert law.pdf(torch.linspace(-9, 9, 91)).max() < 2 / 20


@pytest.mark.parametrize("n_flows", [1, 2])
def test_a_head_gives_one_law_for_each_action(n_flows):
    head = FlowHead(7, 3, components=4, n_flows=n_flows, initial_bound=2.0)
    assert sum(p.numel() for p in head.parameters()) == (7 + 1) * 3 * (12 * n_flows + 1)
    law = head(torch.randn(5, 7))
    assert law.batch_shape == (5, 3)
    law.mean().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in head.parameters())


# --- bad input ----------------------------------------------------------------------------------------------------


def parts(**changes):
    good = {
        "weights": torch.tensor([0.5, 0.5]),
        "locations": torch.zeros(2),
        "scales": torch.ones(2),
        "bound": torch.tensor(1.0),
    }
    return good | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weights": torch.ones(3) / 3}, r"share one shape .* \(3,\), \(2,\), \(2,\)"),
        ({"bound": torch.ones(2)}, r"batch shape \(\), got \(2,\)"),
        ({"locations": torch.tensor([0.0, torch.nan])}, "locations must be finite, got nan"),
        ({"bound": torch.tensor(torch.inf)}, "bound must be finite, got inf"),
        ({"scales": torch.tensor([1.0, -0.5])}, "scales must be positive, got -0.5"),
        ({"bound": torch.tensor(0.0)}, "bound must be positive, got 0.0"),
        ({"weights": torch.tensor([0.5, 0.6])}, "sum to 1"),
    ],
)
def test_bad_parameters_are_named(changes, message):
    with pytest.raises(NfdrlError, match=message):
        FlowLaw(**parts(**changes))


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_levels_outside_the_unit_interval_are_refused(level):
    law = FlowLaw(**parts())
    with pytest.raises(NfdrlError, match=f"tau must lie strictly between 0 and 1, got {level}"):
        law.quantile(level)
    with pytest.raises(NfdrlError, match=f"alpha must lie strictly between 0 and 1, got {level}"):
        law.cvar(torch.tensor([0.5, level]))


@pytest.mark.parametrize("discount", [-0.1, 1.01, float("nan")])
def test_discounts_outside_the_closed_unit_interval_are_refused(discount):
    with pytest.raises(NfdrlError, match=r"discount must lie in \[0, 1\]"):
        FlowLaw(**parts()).bootstrap(0.0, discount)


def test_a_wrong_number_of_raw_outputs_is_refused():
    with pytest.raises(NfdrlError, match="3n \\+ 1 raw outputs, got 12"):
        FlowLaw.from_raw(torch.zeros(12))


def test_gradients_reach_the_raw_outputs():
    raw = (2 * torch.randn(5, 13, generator=torch.Generator().manual_seed(6))).requires_grad_()
    z = torch.linspace(-3, 3, 5)
    assert torch.autograd.gradcheck(lambda value: FlowLaw.from_raw(value, 3.0).at(z), (raw,))
