"""MixtureLaw: atoms, Gaussians and both, against scipy and hand-worked numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.laws.mixture import MixtureLaw

LEVELS = torch.tensor([0.01, 0.1, 0.25, 0.3, 0.5, 0.75, 0.9, 0.99], dtype=torch.float64)


def floats(*values):
    return torch.tensor(values, dtype=torch.float64)


ATOMS = MixtureLaw.atoms([2.0, -1.0, 0.5], [0.25, 0.25, 0.5])
GAUSSIANS = MixtureLaw(floats(0.3, 0.7), floats(-2.0, 1.0), floats(1.0, 0.5))
BOTH = MixtureLaw(floats(0.4, 0.6), floats(0.0, 1.0), floats(0.0, 2.0))
LAWS = {"atoms": ATOMS, "gaussians": GAUSSIANS, "both": BOTH}


@st.composite
def mixtures(draw):
    n = draw(st.integers(1, 6))
    number = st.integers(-20, 20).map(lambda k: k / 4)  # a coarse lattice, so that components coincide
    means = draw(st.lists(number, min_size=n, max_size=n))
    stds = draw(st.lists(st.sampled_from([0.0, 0.0, 0.5, 2.0]), min_size=n, max_size=n))
    parts = draw(st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(sum))
    return MixtureLaw(floats(*parts) / sum(parts), floats(*means), floats(*stds))


def slow_cdf(law, y, closed=True):
    """Σ wᵢ Fᵢ(y), one component at a time."""
    total = 0.0
    for w, m, s in zip(law.weights.tolist(), law.means.tolist(), law.stds.tolist(), strict=True):
        total += w * (stats.norm.cdf(y, m, s) if s > 0 else float(m <= y if closed else m < y))
    return total


@settings(deadline=None)
@given(mixtures(), st.floats(-8, 8))
def test_cdf_is_the_weighted_sum_of_component_cdfs(law, y):
    assert law.cdf(y).item() == pytest.approx(slow_cdf(law, y), abs=1e-12)
    assert law.cdf_left(y).item() == pytest.approx(slow_cdf(law, y, closed=False), abs=1e-12)


@settings(deadline=None)
@given(mixtures())
def test_cdf_jumps_by_the_mass_at_each_atom(law):
    for m in law.means:
        mass = law.weights[(law.means == m) & (law.stds == 0)].sum()
        assert_close(law.cdf(m) - law.cdf_left(m), mass, atol=1e-12, rtol=0)


@settings(deadline=None)
@given(mixtures(), st.floats(1e-4, 1 - 1e-4))
def test_quantile_is_the_least_return_whose_cdf_reaches_the_level(law, tau):
    q = law.quantile(tau).item()
    assert slow_cdf(law, q) >= tau - 1e-12
    assert slow_cdf(law, q - 1e-9 * (1 + abs(q)), closed=True) <= tau + 1e-12


def test_quantile_at_the_foot_and_top_of_a_jump_is_the_atom():
    # −1 holds (0, ¼], 0.5 holds (¼, ¾], 2 holds (¾, 1].
    levels = floats(0.25, math.nextafter(0.25, 1), 0.75, math.nextafter(0.75, 1))
    assert ATOMS.quantile(levels).tolist() == [-1.0, 0.5, 0.5, 2.0]


def test_quantile_inside_the_jump_of_a_mixed_law_is_exactly_the_atom():
    # P(Z < 0) = 0.6 Φ(−½) = 0.1851, P(Z ≤ 0) = 0.5851.
    assert BOTH.quantile(floats(0.19, 0.4, 0.58)).tolist() == [0.0, 0.0, 0.0]
    assert BOTH.quantile(0.18).item() < 0 < BOTH.quantile(0.59).item()


def test_atoms_without_mass_are_never_returned():
    law = MixtureLaw.atoms([-9.0, 1.0, 2.0, 9.0], [0.0, 0.5, 0.5, 0.0])
    assert law.quantile(floats(1e-12, 0.5, 1 - 1e-12)).tolist() == [1.0, 1.0, 2.0]
    assert set(law.sample(200, torch.Generator().manual_seed(0)).tolist()) == {1.0, 2.0}


@settings(deadline=None)
@given(mixtures())
def test_mean_and_variance_are_those_of_the_components(law):
    w, m, s = (t.numpy() for t in (law.weights, law.means, law.stds))
    mean = float(w @ m)
    assert law.mean().item() == pytest.approx(mean, abs=1e-12)
    assert law.variance().item() == pytest.approx(float(w @ (m**2 + s**2)) - mean**2, abs=1e-10)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.75, 0.99])
def test_cvar_is_the_quantile_less_the_mean_shortfall(name, alpha):
    # CVaR = q − E[(q − Z)⁺]/α = q − ∫_{−∞}^q F(y) dy / α   (Rockafellar and Uryasev, 2000)
    law = LAWS[name]
    q = law.quantile(alpha).item()
    jumps = [y for y in (-1.0, 0.0, 0.5, 2.0) if y < q]
    shortfall, _ = integrate.quad(lambda y: slow_cdf(law, y), -20, q, points=jumps, limit=200)
    assert law.cvar(alpha).item() == pytest.approx(q - shortfall / alpha, abs=1e-6)


def test_cvar_of_atoms_splits_the_atom_at_the_level():
    # The worst 0.6: ¼ at −1 and 0.35 of the ½ at 0.5, so (−0.25 + 0.175)/0.6 = −0.125.
    assert ATOMS.cvar(0.6).item() == pytest.approx(-0.125, abs=1e-15)


def test_cvar_of_a_gaussian_is_the_inverse_mills_ratio():
    # N(m, s²): CVaR = m − s φ(Φ⁻¹(α))/α.
    law = MixtureLaw(floats(1.0), floats(3.0), floats(2.0))
    expected = 3 - 2 * stats.norm.pdf(stats.norm.ppf(0.1)) / 0.1
    assert law.cvar(0.1).item() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(mixtures(), st.floats(-3, 3), st.floats(0, 1))
def test_bootstrap_is_the_law_of_reward_plus_discounted_return(law, reward, discount):
    after = law.bootstrap(reward, discount)
    assert_close(after.mean(), reward + discount * law.mean())
    assert_close(after.variance(), discount**2 * law.variance())
    if discount > 1e-3:
        assert_close(after.quantile(LEVELS), reward + discount * law.quantile(LEVELS), atol=1e-9, rtol=1e-9)


def test_bootstrap_with_discount_zero_is_a_dirac_at_the_reward():
    law = GAUSSIANS.bootstrap(0.7, 0.0)
    assert law.is_atomic
    assert law.quantile(LEVELS).tolist() == [0.7] * len(LEVELS)


@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_the_law(name):
    law = LAWS[name]
    samples = law.sample(20_000, torch.Generator().manual_seed(1))
    points = torch.linspace(-4, 4, 33, dtype=torch.float64)
    empirical = (samples.unsqueeze(-1) <= points).double().mean(0)
    # Dvoretzky–Kiefer–Wolfowitz: sup|Fₙ − F| > 0.0163 has probability 2·exp(−2·20000·0.0163²) < 5e-5.
    assert (empirical - law.cdf(points)).abs().max() < 0.0163


def test_sampling_is_a_function_of_the_generator():
    first, second = (BOTH.sample(50, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, BOTH.sample(50, torch.Generator().manual_seed(8)))


def test_log_prob_is_the_log_of_scipys_mixture_density():
    y = np.linspace(-4, 3, 29)
    density = 0.3 * stats.norm.pdf(y, -2, 1) + 0.7 * stats.norm.pdf(y, 1, 0.5)
    assert_close(GAUSSIANS.pdf(torch.from_numpy(y)), torch.from_numpy(density))
    assert_close(GAUSSIANS.log_prob(torch.from_numpy(y)), torch.from_numpy(np.log(density)))


@pytest.mark.parametrize("law", [ATOMS, BOTH])
def test_a_law_with_an_atom_has_no_density(law):
    assert law.has_atoms
    with pytest.raises(NfdrlError, match="atom has no density"):
        law.pdf(0.0)


def test_an_atom_without_mass_leaves_the_density_defined():
    law = MixtureLaw(floats(1.0, 0.0), floats(0.0, 5.0), floats(1.0, 0.0))
    assert not law.has_atoms
    assert law.pdf(0.0).item() == pytest.approx(1 / math.sqrt(2 * math.pi))


@pytest.mark.parametrize("kind", ["quantile", "cvar", "cdf"])
@pytest.mark.parametrize("std", [0.0, 1.5])
def test_a_batch_is_its_laws_one_by_one(kind, std):
    generator = torch.Generator().manual_seed(3)
    weights = torch.softmax(torch.randn(2, 3, 4, generator=generator, dtype=torch.float64), -1)
    means = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    batch = MixtureLaw(weights, means, torch.full_like(means, std))
    assert batch.batch_shape == (2, 3)
    found = getattr(batch, kind)(LEVELS)
    for i in range(2):
        chosen = batch.select(torch.tensor([i, 2 - i]))
        assert_close(getattr(chosen, kind)(LEVELS)[0], found[0, i])
        for j in range(3):
            one = MixtureLaw(weights[i, j], means[i, j], torch.full_like(means[i, j], std))
            assert_close(getattr(one, kind)(LEVELS), found[i, j])
            assert_close(getattr(one, kind)(0.3), found[i, j, 3])


def test_select_takes_one_action_or_one_per_row():
    law = MixtureLaw.dirac(floats(1.0, 2.0, 3.0).expand(2, 3))
    assert law.select(1).mean().tolist() == [2.0, 2.0]
    assert law.select(torch.tensor([2, 0])).mean().tolist() == [3.0, 1.0]


def test_empirical_law_weighs_repeated_samples():
    law = MixtureLaw.empirical([1.0, 3.0, 1.0, 2.0])
    assert law.means.tolist() == [1.0, 2.0, 3.0]
    assert law.weights.tolist() == [0.5, 0.25, 0.25]
    assert law.cdf(1.0).item() == 0.5


@pytest.mark.parametrize(
    ("weights", "means", "stds", "message"),
    [
        ([0.5, 0.4], [0.0, 1.0], [0.0, 0.0], "sum to 1, got 0.9"),
        ([1.5, -0.5], [0.0, 1.0], [0.0, 0.0], "masses must be at least 0, got -0.5"),
        ([0.5, 0.5], [0.0], [0.0, 0.0], "one shape"),
        ([0.5, 0.5], [0.0, math.inf], [0.0, 0.0], "means must be finite, got inf"),
        ([0.5, 0.5], [0.0, 1.0], [0.0, -2.0], "stds must be at least 0, got -2"),
        ([], [], [], "last axis of components"),
    ],
)
def test_what_is_not_a_law_is_refused(weights, means, stds, message):
    with pytest.raises(NfdrlError, match=message):
        MixtureLaw(floats(*weights), floats(*means), floats(*stds))
