"""Distances to the truth, checked against scipy and closed forms, for laws that are mixtures and laws that are not."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from typing_extensions import Self

from nfdrl.errors import NfdrlError
from nfdrl.evaluation.distances import batch_distances, cramer, distances, wasserstein1
from nfdrl.laws.base import Law
from nfdrl.laws.mixture import MixtureLaw


def floats(*values):
    return torch.tensor(values, dtype=torch.float64)


class Uniform(Law):
    """Z uniform on (low, high): a smooth law with a closed quantile function, of any dtype."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    @property
    def batch_shape(self):
        return self.low.shape

    @property
    def reference(self):
        return self.low

    def mean(self):
        return (self.low + self.high) / 2

    def variance(self):
        return (self.high - self.low).square() / 12

    def _quantile(self, tau):
        return self.low.unsqueeze(-1) + (self.high - self.low).unsqueeze(-1) * tau

    def _cdf(self, y):
        return ((y - self.low.unsqueeze(-1)) / (self.high - self.low).unsqueeze(-1)).clamp(0, 1)

    def select(self, action) -> Self:
        raise NotImplementedError

    def bootstrap(self, reward, discount) -> Self:
        raise NotImplementedError


@st.composite
def atoms(draw):
    n = draw(st.integers(1, 8))
    values = draw(st.lists(st.floats(-1, 1), min_size=n, max_size=n))
    parts = draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))
    return MixtureLaw.atoms(floats(*values), floats(*parts) / sum(parts))


@settings(deadline=None, max_examples=50)
@given(atoms(), atoms())
def test_distances_of_atoms_match_scipy(law, truth):
    arrays = [t.numpy() for t in (law.means, truth.means, law.weights, truth.weights)]
    assert wasserstein1(law, truth) == pytest.approx(stats.wasserstein_distance(*arrays), abs=1e-4)
    # scipy's energy distance is (2 ∫ (F − G)²)^½.
    assert cramer(law, truth) == pytest.approx(stats.energy_distance(*arrays) / math.sqrt(2), abs=1e-4)


@settings(deadline=None, max_examples=50)
@given(atoms())
def test_the_distance_of_a_law_to_itself_is_zero(law):
    found = distances(law, law)
    assert found["mean_error"] == found["cvar_error"] == 0
    assert found["w1"] < 1e-4
    assert found["cramer"] < 1e-4


def test_diracs_are_as_far_apart_as_their_values():
    # F − G = 1 over a length of 3: W1 = 3, ℓ₂ = √3.
    law, truth = MixtureLaw.dirac(floats(2.0)[0]), MixtureLaw.dirac(-1.0)
    expected = {"cramer": math.sqrt(3), "w1": 3, "mean_error": 3, "cvar_error": 3}
    assert distances(law, truth) == pytest.approx(expected, abs=1e-9)


def test_uniform_against_an_atom_in_its_middle():
    # |F − G| is y up to ½ and 1 − y after: W1 = 2·(½·¼) = ¼; ∫ = 2·(½)³/3 = 1/12.
    # The worst tenth has mean 0.05 against 0.5.
    law = Uniform(floats(0.0)[0], floats(1.0)[0])
    expected = {"cramer": math.sqrt(1 / 12), "w1": 0.25, "mean_error": 0.0, "cvar_error": 0.45}
    assert distances(law, MixtureLaw.dirac(0.5)) == pytest.approx(expected, abs=1e-6)


def test_uniform_against_a_staircase_with_known_remainder():
    # n equal atoms at the midpoints of n equal cells: n cells of |F − G| up to 1/(2n): W1 = 1/(4n), ∫ = 1/(12 n²).
    n = 10
    truth = MixtureLaw.empirical((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    law = Uniform(floats(0.0)[0], floats(1.0)[0])
    assert wasserstein1(law, truth) == pytest.approx(1 / (4 * n), abs=1e-6)
    assert cramer(law, truth) == pytest.approx(math.sqrt(1 / 12) / n, abs=1e-6)


@pytest.mark.parametrize("std", [0.01, 1.0, 30.0])
def test_shifted_gaussians_have_the_closed_forms(std):
    # W1 of a shift d is d. ∫(F − G)² = E|X−Y| − E|X−X′| with X−Y ~ N(d, 2s²), X−X′ ~ N(0, 2s²).
    shift, root = 0.5 * std, math.sqrt(2) * std
    one = floats(1.0)
    law, truth = (MixtureLaw(one, floats(m), floats(std)) for m in (shift, 0.0))
    folded = stats.foldnorm(shift / root, scale=root).mean() - stats.foldnorm(0, scale=root).mean()
    assert wasserstein1(law, truth) == pytest.approx(shift, rel=1e-4)
    assert cramer(law, truth) == pytest.approx(math.sqrt(folded), rel=1e-4)
    found = distances(law, truth)
    assert [found["mean_error"], found["cvar_error"]] == pytest.approx([shift, shift])


def test_a_dirac_against_a_bimodal_gaussian_truth():
    # W1 to an atom at 0 is E|Z| = E|N(2,1)|, by symmetry of ½N(−2,1) + ½N(2,1).
    truth = MixtureLaw(floats(0.5, 0.5), floats(-2.0, 2.0), floats(1.0, 1.0))
    assert wasserstein1(MixtureLaw.dirac(0.0), truth) == pytest.approx(stats.foldnorm(2).mean(), abs=1e-4)


def test_a_truth_of_atom_and_gaussian_keeps_its_jump():
    # G = ½·1{y ≥ 0} + ½Φ(y): against an atom at 0, W1 = ½E|N(0,1)| = 1/√(2π); ∫ = ½∫₀^∞ (1 − Φ)² dy.
    truth = MixtureLaw(floats(0.5, 0.5), floats(0.0, 0.0), floats(0.0, 1.0))
    assert wasserstein1(MixtureLaw.dirac(0.0), truth) == pytest.approx(1 / math.sqrt(2 * math.pi), abs=1e-5)
    # ∫₀^∞ (1 − Φ)² dy = (√2 − 1)/(2√π), by parts.
    expected = math.sqrt(0.5 * (math.sqrt(2) - 1) / (2 * math.sqrt(math.pi)))
    assert cramer(MixtureLaw.dirac(0.0), truth) == pytest.approx(expected, abs=1e-5)


def test_distances_scale_with_the_returns():
    # Z → cZ: W1 by c, ℓ₂ by √c.
    law, truth = MixtureLaw.atoms([0.0, 1.0], [0.3, 0.7]), MixtureLaw.atoms([0.1, 0.9], [0.5, 0.5])
    small = [
        wasserstein1(law.bootstrap(0, 0.01), truth.bootstrap(0, 0.01)),
        cramer(law.bootstrap(0, 0.01), truth.bootstrap(0, 0.01)),
    ]
    assert small == pytest.approx([0.01 * wasserstein1(law, truth), 0.1 * cramer(law, truth)], rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_batch_is_compared_pair_by_pair(dtype):
    low, high = torch.tensor([0.0, -1.0, 2.0], dtype=dtype), torch.tensor([1.0, 1.0, 2.5], dtype=dtype)
    truths = [
        MixtureLaw.dirac(0.25),
        MixtureLaw.atoms([-1.0, 0.0, 1.0], [0.25, 0.5, 0.25]),
        MixtureLaw(floats(1.0), floats(2.0), floats(0.5)),
    ]
    batch = batch_distances(Uniform(low, high), truths)
    for k, truth in enumerate(truths):
        one = distances(Uniform(low[k].double(), high[k].double()), truth)
        assert {name: float(value[k]) for name, value in batch.items()} == pytest.approx(one, abs=1e-5)


def test_crossing_quantiles_describe_the_law_of_q_of_u():
    # Q(τ) = 1 − τ, decreasing, is still uniform.
    law = Uniform(floats(1.0)[0], floats(0.0)[0])
    assert wasserstein1(law, MixtureLaw.dirac(0.5)) == pytest.approx(0.25, abs=1e-6)


def test_the_level_of_the_cvar_error_is_an_argument():
    law, truth = MixtureLaw.atoms([0.0, 1.0], [0.5, 0.5]), MixtureLaw.dirac(1.0)
    # Worst ¾: (½·0 + ¼·1)/¾ = 1/3, against 1.
    assert distances(law, truth, alpha=0.75)["cvar_error"] == pytest.approx(2 / 3)


def test_batches_that_do_not_match_are_refused():
    pair = MixtureLaw.dirac(floats(0.0, 1.0))
    with pytest.raises(NfdrlError, match=r"batch shape \(2,\) cannot be compared with 1 truths"):
        batch_distances(pair, [MixtureLaw.dirac(0.0)])
    with pytest.raises(NfdrlError, match="without a batch axis"):
        batch_distances(pair, [pair, pair])


def test_no_gradient_is_recorded():
    low = floats(0.0).requires_grad_()
    found = batch_distances(Uniform(low, low + 1), [MixtureLaw.dirac(0.5)])
    assert all(isinstance(value, np.ndarray) for value in found.values())
