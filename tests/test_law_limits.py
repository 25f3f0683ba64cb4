"""Laws at the ends of the number line: NaN, infinity, the largest floats, and floats of 16 bits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from nfdrl.errors import NfdrlError
from nfdrl.laws.base import DensityLaw, Law, capped_exp
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.implicit import IQN
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.monotone import UMDQN
from nfdrl.laws.pushforward import ChainLaw
from nfdrl.numerics.flows import MixtureCDF
from test_contract import ACTIONS, BATCH, FEATURES, example_methods

NAN, INF = math.nan, math.inf


def law_of(name: str) -> Law:
    head = example_methods()[name].head(FEATURES, ACTIONS).double()
    features = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return head(features)


def flow(dtype: torch.dtype = torch.float64, scale: float = 1.0, bound: float = 2.0) -> tuple[FlowLaw, list[Any]]:
    parts = ([0.3, 0.7], [-1.0, 0.5], [scale, 1.0], bound)
    leaves = [torch.tensor(part, dtype=dtype, requires_grad=True) for part in parts]
    return FlowLaw(*leaves, torch.zeros((), dtype=dtype)), leaves


@pytest.mark.parametrize("name", example_methods())
def test_the_cdf_and_the_density_of_nan_are_nan(name: str) -> None:
    law = law_of(name)
    points = torch.tensor([NAN, 0.25, INF, -INF], dtype=torch.float64)
    found = law.cdf(points)
    assert found[..., 0].isnan().all()
    assert torch.equal(found[..., 1], law.cdf(0.25))
    assert (found[..., 2] > 1 - 1e-12).all()
    assert (found[..., 3] == 0).all()
    assert law.cdf(NAN).isnan().all()
    if isinstance(law, DensityLaw):
        assert law.pdf(points)[..., 0].isnan().all()
        assert law.log_prob(NAN).isnan().all()
        assert (law.pdf(points)[..., 2:] == 0).all()


def test_the_exact_laws_know_nan_as_well() -> None:
    smooth = MixtureLaw(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
    atoms = MixtureLaw.atoms([0.0, 1.0], [0.5, 0.5])
    for law in (smooth, atoms):
        assert law.cdf(torch.tensor([NAN, 9.9e9])).isnan().tolist() == [True, False]
        assert law.cdf_left(NAN).isnan()
    assert smooth.pdf(torch.tensor([NAN, 0.0])).isnan().tolist() == [True, False]
    one, least = torch.ones(1, dtype=torch.float64), torch.tensor([1e-310], dtype=torch.float64)
    narrow = MixtureLaw(one, 0 * one, least)
    assert narrow.pdf(0.0).isfinite()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bound", [2.0, 1e-30])
def test_densities_and_their_gradients_are_finite(dtype: torch.dtype, bound: float) -> None:
    """Near an end of the support the density of a flow law grows beyond every float: it is capped below that."""
    for scale in (1.0, 8.0, 1e4):
        law, leaves = flow(dtype, scale, bound)
        y = bound * torch.tensor([0.0, 0.5, 1 - 1e-7, 1 - 1e-15, 1.0, INF, -INF, NAN], dtype=dtype)
        for value in (law.pdf(y)[:-1], law.cdf(y)[:-1]):
            assert value.isfinite().all()
            for gradient in torch.autograd.grad(value.sum(), leaves, retain_graph=True):
                assert gradient.isfinite().all()
        whole = torch.where(y.isnan(), 0, law.pdf(y)).sum()  # NaN in a batch spoils nothing beside it
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(whole, leaves))


def test_the_cap_of_a_density_is_made_in_its_own_dtype() -> None:
    """exp(400) is a float64 and not a float32."""
    single, double = (torch.tensor(400.0, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert capped_exp(single) < 2e19
    assert 1e153 < capped_exp(double) < 2e154
    assert capped_exp(torch.tensor(300.0, dtype=torch.float64)) == math.exp(300)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_variance_is_finite_or_its_bound_is_refused(dtype: torch.dtype) -> None:
    largest = 0.5 * math.sqrt(torch.finfo(dtype).max)
    law, _ = flow(dtype, bound=0.99 * largest)
    assert law.variance().isfinite()
    assert law.std().isfinite()
    with pytest.raises(NfdrlError, match=r"bound must be at most .* for a variance in float"):
        flow(dtype, bound=1.01 * largest)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", example_methods())
def test_floats_of_16_bits_are_computed_in_32_or_refused_by_name(name: str, dtype: torch.dtype) -> None:
    method = example_methods()[name]
    head = method.head(FEATURES, ACTIONS).to(dtype)
    features = torch.ones(2, FEATURES, dtype=dtype)
    kind = str(dtype).removeprefix("torch.")
    if isinstance(method, IQN | UMDQN) or name == "fqf":
        with pytest.raises(NfdrlError, match=f"laws need float32 or float64, got {kind}"):
            head(features)
        return
    law = head(features)
    assert law.reference.dtype == torch.float32
    assert law.quantile(0.3).isfinite().all()
    assert law.mean().dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_laws_made_of_16_bits_are_refused_by_name(dtype: torch.dtype) -> None:
    kind = str(dtype).removeprefix("torch.")
    half = torch.ones(1, dtype=dtype)
    with pytest.raises(NfdrlError, match=kind):
        FlowLaw(half, half, half, half.squeeze(), half.squeeze())
    with pytest.raises(NfdrlError, match=kind):
        MixtureLaw(half, half, half)
    chain = ChainLaw((MixtureCDF(half, half, half),), half.squeeze())
    for ask in (lambda: chain.cdf(0.1), lambda: chain.quantile(0.5), lambda: chain.pdf(0.0), lambda: chain.sample(3)):
        with pytest.raises(NfdrlError, match=kind):
            ask()
