"""Risk functionals against closed forms, and the properties they have for every law."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.laws.base import Law
from nfdrl.laws.dirac import DiracLaw
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.risk import (
    CPW,
    RISKS,
    CVaR,
    DistortedMean,
    Entropic,
    Mean,
    MeanVariance,
    Risk,
    Shortfall,
    VaR,
    Wang,
    parse_risk,
)
from test_contract import example_law, example_methods

EXAMPLES = [
    "mean", "cvar:0.1", "cvar:1", "var:0.3", "wang:-0.75", "wang:0.75", "cpw", "cpw:0.5",
    "entropic:2", "entropic:-0.5", "entropic:0", "mean-variance:0.5", "below:0.5",
]  # fmt: skip
EQUIVARIANT = [text for text in EXAMPLES if not text.startswith("below")]


def normal(mean: float, std: float) -> MixtureLaw:
    one = torch.ones(1, dtype=torch.float64)
    return MixtureLaw(one, mean * one, std * one)


def uniform(low: float, high: float) -> FlowLaw:
    one = torch.ones(1, dtype=torch.float64)
    bound = torch.tensor(0.5 * (high - low), dtype=torch.float64)
    return FlowLaw(one, 0 * one, one, bound, torch.tensor(0.5 * (high + low), dtype=torch.float64))


def skewed_laws() -> dict[str, Law]:
    parts = torch.tensor([[0.2, 0.8], [-3.0, 1.0], [0.5, 0.3]], dtype=torch.float64)
    return {
        "normal": normal(0.7, 1.3),
        "uniform": uniform(-1.0, 3.0),
        "atoms": MixtureLaw.atoms([-2.0, 0.0, 0.5], [0.1, 0.3, 0.6]),
        "mixture": MixtureLaw(*parts),
    }


def law_of(name: str) -> Law:
    """An example law of any method, of batch shape (B, A)."""
    if name in example_methods():
        return example_law(name)
    raw = torch.randn(5, 3, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return FlowLaw.from_raw(raw, 2.0)


ALL_METHODS = sorted({*example_methods(), *METHODS})


def near(value: Tensor, expected: float, tolerance: float = 1e-3) -> None:
    assert value.item() == pytest.approx(expected, abs=tolerance)


# Closed forms


@pytest.mark.parametrize("eta", [-2.0, -0.75, 0.0, 0.5, 2.0])
def test_wang_of_a_normal_moves_its_mean_by_eta_stds(eta: float) -> None:
    near(Wang(eta)(normal(0.7, 1.3)), 0.7 + eta * 1.3, 1e-2)


@pytest.mark.parametrize("eta", [-1.5, -0.75, 0.4])
def test_wang_of_a_uniform_law(eta: float) -> None:
    """E[Φ(N + η)] = Φ(η/√2) on (0, 1)."""
    near(Wang(eta)(uniform(-1.0, 3.0)), -1 + 4 * stats.norm.cdf(eta / math.sqrt(2)))


def test_wang_of_two_atoms() -> None:
    """Mass h(0.1) = Φ(Φ⁻¹(0.1) + 0.75) = Φ(−0.53155) = 0.29752 on −2, the rest on 1."""
    law = MixtureLaw.atoms([-2.0, 1.0], [0.1, 0.9])
    near(Wang(-0.75)(law), 1 - 3 * 0.29752, 3 / 192)


@pytest.mark.parametrize("beta", [-1.0, 1e-6, 0.5, 1.0, 2.0])
def test_entropic_of_a_normal_is_its_mean_less_half_beta_variance(beta: float) -> None:
    near(Entropic(beta)(normal(0.7, 1.3)), 0.7 - beta * 1.3**2 / 2, 1e-2)


def test_entropic_of_a_uniform_law() -> None:
    """E[e^{−βZ}] = (e^{−βa} − e^{−βb})/β(b − a)."""
    a, b, beta = -1.0, 3.0, 1.7
    expected = -math.log((math.exp(-beta * a) - math.exp(-beta * b)) / (beta * (b - a))) / beta
    near(Entropic(beta)(uniform(a, b)), expected)


def test_entropic_tends_to_the_worst_return_and_does_not_overflow() -> None:
    law = MixtureLaw.atoms([-5000.0, 3000.0], [0.25, 0.75])
    near(Entropic(1.0)(law), -5000 - math.log(0.25), 0.05)
    near(Entropic(-1.0)(law), 3000 + math.log(0.75), 0.05)


def test_entropic_with_a_small_beta_is_the_mean_in_float32() -> None:
    law = FlowLaw(torch.ones(1), torch.zeros(1), torch.ones(1), torch.tensor(10.0), torch.tensor(3.0))
    assert Entropic(1e-6)(law).dtype == torch.float32
    near(Entropic(1e-6)(law), 3.0)


def cpw_curve(tau: float, eta: float) -> float:
    return tau**eta / (tau**eta + (1 - tau) ** eta) ** (1 / eta)


@pytest.mark.parametrize("eta", [0.5, 0.71, 1.0])
@pytest.mark.parametrize("which", ["normal", "uniform"])
def test_cpw_against_quadrature(eta: float, which: str) -> None:
    """∫ F⁻¹ dh = a + ∫ₐᵇ (1 − h(F(y))) dy by parts, where F(a) = 0 and F(b) = 1."""
    oracle = stats.norm(0.7, 1.3) if which == "normal" else stats.uniform(-1, 4)
    low, high = (-12.0, 14.0) if which == "normal" else (-1.0, 3.0)
    upper, _ = integrate.quad(lambda y: 1 - cpw_curve(float(oracle.cdf(y)), eta), low, high, limit=400)
    near(CPW(eta)(skewed_laws()[which]), low + upper, 2e-3)


def test_cpw_of_two_atoms_overweights_the_rare_one() -> None:
    """h(0.05) = 0.05^0.71/(0.05^0.71 + 0.95^0.71)^(1/0.71) = 0.10648: twice the probability of the bad return."""
    weight = cpw_curve(0.05, 0.71)
    assert weight == pytest.approx(0.10648, abs=1e-5)
    near(CPW()(MixtureLaw.atoms([-1.0, 0.0], [0.05, 0.95])), -weight, 1 / 192)


def test_mean_variance_is_entropic_for_a_normal() -> None:
    law = normal(0.7, 1.3)
    near(MeanVariance(0.5)(law), 0.7 - 0.5 * 1.3**2, 1e-12)
    near(Entropic(1.0)(law), MeanVariance(0.5)(law).item(), 5e-3)


def test_shortfall_counts_what_lies_strictly_below() -> None:
    law = MixtureLaw.atoms([0.0, 0.5, 1.0], [0.2, 0.3, 0.5])
    near(Shortfall(0.5)(law), -0.2, 1e-12)
    near(Shortfall(0.50001)(law), -0.5, 1e-12)
    near(Shortfall(0.0)(law), 0.0, 1e-12)
    near(Shortfall(2.0)(uniform(-1.0, 3.0)), -0.75, 1e-9)


def test_mean_cvar_and_var_match_closed_forms() -> None:
    law = uniform(-1.0, 3.0)
    near(Mean()(law), 1.0, 1e-12)
    near(CVaR(0.5)(law), 0.0, 1e-9)
    near(CVaR(1.0)(law), 1.0, 1e-12)
    near(VaR(0.25)(law), 0.0, 1e-9)


@pytest.mark.parametrize("which", skewed_laws())
@pytest.mark.parametrize("neutral", [Wang(0.0), CPW(1.0), Entropic(0.0), Entropic(1e-9), MeanVariance(0.0), CVaR(1.0)])
def test_the_neutral_parameter_gives_the_mean(which: str, neutral: Risk) -> None:
    law = skewed_laws()[which]
    near(neutral(law), law.mean().item(), 1e-2)


# Properties


@pytest.mark.parametrize("which", skewed_laws())
@pytest.mark.parametrize(
    "family",
    [
        [CVaR(alpha) for alpha in (0.02, 0.1, 0.5, 0.9, 1.0)],
        [VaR(tau) for tau in (0.02, 0.1, 0.5, 0.9)],
        [Wang(eta) for eta in (-3.0, -1.0, 0.0, 0.5, 2.0)],
        [Entropic(beta) for beta in (4.0, 1.0, 0.1, 0.0, -0.5)],
        [MeanVariance(weight) for weight in (2.0, 0.5, 0.0, -1.0)],
        [Shortfall(c) for c in (4.0, 0.5, 0.0, -2.5)],
    ],
    ids=lambda family: family[0].name,
)
def test_the_value_rises_as_the_risk_aversion_falls(which: str, family: list[Risk]) -> None:
    values = torch.stack([risk(skewed_laws()[which]) for risk in family])
    # a neutral one is a closed form, its neighbours sums over cells, which see an atom's mass to 1/384
    assert bool((values.diff() >= -1e-2).all())
    assert values[-1] > values[0]


@pytest.mark.parametrize("which", skewed_laws())
def test_a_risk_averse_value_is_at_most_the_mean(which: str) -> None:
    law = skewed_laws()[which]
    for risk in (CVaR(0.3), Wang(-0.75), Entropic(1.0), MeanVariance(0.5)):
        assert risk(law) < law.mean()


@pytest.mark.parametrize("text", EQUIVARIANT)
def test_every_value_of_a_dirac_is_its_location(text: str) -> None:
    places = torch.tensor([[-3.0, 0.0], [0.25, 700.0]], dtype=torch.float64)
    for law in (DiracLaw(places), MixtureLaw.dirac(places), uniform(-1, 1).bootstrap(places, 0.0)):
        assert_close(parse_risk(text)(law), places)


def test_the_shortfall_of_a_dirac_is_all_or_nothing() -> None:
    law = DiracLaw(torch.tensor([0.4, 0.5, 0.6]))
    assert Shortfall(0.5)(law).tolist() == [-1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ALL_METHODS)
@pytest.mark.parametrize("text", EQUIVARIANT)
def test_a_sure_gain_is_added_to_the_value(text: str, name: str) -> None:
    risk, law = parse_risk(text), law_of(name)
    assert_close(risk(law.bootstrap(2.5, 1.0)), risk(law) + 2.5, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ALL_METHODS)
@pytest.mark.parametrize("text", ["mean", "cvar:0.1", "var:0.3", "wang:-0.75", "cpw"])
def test_a_change_of_unit_scales_the_value(text: str, name: str) -> None:
    risk, law = parse_risk(text), law_of(name)
    assert_close(risk(law.bootstrap(0.0, 0.5)), 0.5 * risk(law), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ALL_METHODS)
@pytest.mark.parametrize("text", EXAMPLES)
def test_every_risk_values_every_law(text: str, name: str) -> None:
    risk, law = parse_risk(text), law_of(name)
    values = risk(law)
    assert values.shape == law.batch_shape == (5, 3)
    assert values.dtype == torch.float64
    assert bool(values.isfinite().all())
    action = torch.tensor([0, 2, 1, 1, 0])
    assert_close(risk(law.select(action)), values[torch.arange(5), action])


@pytest.mark.parametrize("text", EXAMPLES)
def test_float32_agrees_with_float64(text: str) -> None:
    raw = torch.randn(5, 3, 13, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    fine, coarse = (parse_risk(text)(FlowLaw.from_raw(each, 2.0)) for each in (raw, raw.float()))
    assert coarse.dtype == torch.float32
    assert_close(coarse.double(), fine, rtol=0, atol=1e-4)


@pytest.mark.parametrize("risk", [Wang(-3.0), Wang(3.0), CPW(0.28), CPW(0.71)], ids=str)
def test_a_distortion_increases_from_zero_to_one(risk: DistortedMean) -> None:
    levels = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    values = risk.distort(levels)
    assert values[0] == 0
    assert values[-1] == 1
    assert bool((values.diff() >= 0).all())


# Names


@pytest.mark.parametrize("text", EXAMPLES)
def test_a_name_round_trips(text: str) -> None:
    risk = parse_risk(text)
    assert parse_risk(str(risk)) == risk
    assert str(risk) == ("cpw:0.71" if text == "cpw" else text)


def test_every_digit_round_trips() -> None:
    assert parse_risk(str(CVaR(1 / 3))) == CVaR(1 / 3)


def test_the_registry_has_every_risk_under_its_name() -> None:
    assert {parse_risk(text).name for text in EXAMPLES} == set(RISKS)
    assert all(kind.name == name for name, kind in RISKS.items())


def test_case_and_underscores_do_not_matter() -> None:
    assert parse_risk(" CVaR:0.1") == CVaR(0.1)
    assert parse_risk("mean_variance:0.5") == MeanVariance(0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cvra:0.1", "unknown risk 'cvra': did you mean 'cvar'"),
        ("", "unknown risk ''"),
        ("cvar", "risk 'cvar' needs its alpha: write it as 'cvar:number'"),
        ("cvar:", "alpha of risk 'cvar' must be a number, got ''"),
        ("cvar:low", "alpha of risk 'cvar' must be a number, got 'low'"),
        ("cvar:0", "alpha must lie in (0, 1], got 0.0"),
        ("cvar:1.5", "alpha must lie in (0, 1], got 1.5"),
        ("cvar:0.1:0.2", "alpha of risk 'cvar' must be a number, got '0.1:0.2'"),
        ("var:1", "tau must lie strictly between 0 and 1, got 1.0"),
        ("cpw:0.2", "eta must lie between 0.28 and 1, got 0.2"),
        ("mean:1", "risk 'mean' takes no number, got '1'"),
        ("wang:nan", "eta must be finite, got nan"),
        ("entropic:inf", "beta must be finite, got inf"),
        ("mean-variance:nan", "weight must be finite"),
        ("below:nan", "threshold must be finite"),
    ],
)
def test_a_bad_name_or_number_is_explained(text: str, message: str) -> None:
    with pytest.raises(NfdrlError) as caught:
        parse_risk(text)
    assert message in str(caught.value)
