"""One suite of properties that every method must have."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, find_method, method_config, method_from
from nfdrl.laws.anchored import AnchoredMethod
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.base import DensityLaw, Head, Law, Method
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.expectile import ERDQN
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.implicit import IQN
from nfdrl.laws.monotone import UMDQN
from nfdrl.laws.quantile import QRDQN, QuantileLaw
from nfdrl.losses.exact import Exact

BATCH, FEATURES, ACTIONS = 5, 12, 3


def example_methods() -> dict[str, Method]:
    """Small instances of every method, by name; κ is small, since κ = 1 visibly narrows laws of spread 1."""
    return {
        "dqn": DQN(),
        "c51": C51(atoms=21, v_min=-3, v_max=3),
        "qr-dqn": QRDQN(quantiles=13, huber_threshold=0.05),
        "iqn": IQN(samples=24, target_samples=40, acting_levels=32, cosines=8, hidden=32, huber_threshold=0.05),
        "fqf": FQF(fractions=12, cosines=8, hidden=16, huber_threshold=0.05),
        "er-dqn": ERDQN(),
        "umdqn": UMDQN(points=101, v_min=-3, v_max=3, hidden=16),
        "nfdrl": AnchoredMethod(samples=48),
        "nfdrl-s": FlowMethod(samples=48, initial_bound=3.0),
        "nfdrl-e": FlowMethod(Exact(), samples=48, initial_bound=3.0),
    }


def finer_methods() -> dict[str, Method]:
    """The same methods at another resolution, for targets whose size differs from the prediction's."""
    return {
        "c51": C51(atoms=33, v_min=-4, v_max=2),
        "qr-dqn": QRDQN(quantiles=29),
        "iqn": IQN(samples=7, target_samples=9, acting_levels=11, cosines=4, hidden=8),
        "fqf": FQF(fractions=17, cosines=4, hidden=8),
        "er-dqn": ERDQN(expectiles=17),
        "umdqn": UMDQN(points=64, v_min=-4, v_max=2, hidden=8),
        "nfdrl-s": FlowMethod(components=6, n_flows=2, initial_bound=2.0),
    }


NAMES = list(example_methods())
# mean, cvar and quantile of these laws use different levels of a smooth network: equal up to quadrature error
QUADRATURE_ERROR = {"iqn": 5e-3}
# quantiles straight from a network, which nothing keeps in order
MAY_CROSS = {"iqn"}
CROSSING_ERROR = {"iqn": 3e-2}

REWARD = torch.tensor([1.0, -0.5, 0.0, 2.0, 0.3], dtype=torch.float64)
DISCOUNT = torch.tensor([0.9, 0.5, 1.0, 0.0, 0.99], dtype=torch.float64)
ACTION = torch.tensor([0, 2, 1, 1, 0])


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def features(seed: int = 1, rows: int = BATCH) -> Tensor:
    noise = torch.rand(rows, FEATURES, generator=generator(seed), dtype=torch.float64)
    return 0.3 * noise + torch.eye(rows, FEATURES, dtype=torch.float64)


def example_head(method: Method, seed: int = 2) -> Head:
    head = method.head(FEATURES, ACTIONS).double()
    draws = generator(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=draws, dtype=parameter.dtype))
    return head


@cache
def fitted_head(name: str) -> Head:
    """A head after a short fit to three normal laws: for properties of laws that look like return laws."""
    method, head = example_methods()[name], example_head(example_methods()[name])
    levels = (torch.arange(64, dtype=torch.float64) + 0.5) / 64
    normal = torch.special.ndtri(levels)
    spread = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    values = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)[:, None] + spread[:, None] * normal
    target = QuantileLaw(values.expand(BATCH, ACTIONS, -1))
    apart = {id(parameter) for group in method.parameter_groups(head) for parameter in group["params"]}
    optimizer = torch.optim.Adam([p for p in head.parameters() if id(p) not in apart], lr=5e-2)
    draws = generator(3)
    steps = 400
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 5e-2 * (1 - step / steps)
        optimizer.zero_grad()
        method.loss(head(features()), target, draws).mean().backward()
        optimizer.step()
    return head.requires_grad_(False)


def example_law(name: str, seed: int = 2) -> Law:
    return example_head(example_methods()[name], seed)(features())


def chosen(method: Method, seed: int) -> Law:
    return example_head(method, seed)(features(seed)).select(ACTION)


def target_of(method: Method, seed: int = 9) -> Law:
    with torch.no_grad():
        return chosen(method, seed).bootstrap(REWARD, DISCOUNT)


def test_a_head_gives_one_law_for_each_row_and_action(name: str) -> None:
    law = example_law(name)
    assert law.batch_shape == (BATCH, ACTIONS)
    assert law.mean().shape == law.variance().shape == law.std().shape == (BATCH, ACTIONS)
    assert law.reference.dtype == law.mean().dtype == torch.float64
    assert bool((law.variance() >= 0).all())


@pytest.mark.parametrize("question", ["quantile", "cdf", "cvar"])
def test_points_broadcast_with_the_batch(name: str, question: str) -> None:
    law = example_law(name)
    ask = getattr(law, question)
    points = torch.tensor([0.1, 0.4, 0.8], dtype=torch.float64)
    assert ask(0.4).shape == (BATCH, ACTIONS)
    assert ask(points).shape == (BATCH, ACTIONS, 3)
    assert_close(ask(points)[..., 1], ask(0.4))
    own = torch.rand(BATCH, ACTIONS, 2, generator=generator(), dtype=torch.float64) * 0.9 + 0.05
    assert_close(ask(own)[1, 2], ask(own[1, 2])[1, 2])
    assert_close(ask(own[:, :1])[3, 1], ask(own[3, 0])[3, 1])
    picked = law.select(ACTION)
    assert_close(getattr(picked, question)(own[:, 0])[4], ask(own[4, 0])[4, ACTION[4]])


def test_a_head_takes_any_number_of_leading_axes(name: str) -> None:
    head = example_head(example_methods()[name])
    flat = features(rows=6)
    assert_close(head(flat.unflatten(0, (2, 3))).mean(), head(flat).mean().unflatten(0, (2, 3)))
    assert_close(head(flat[0]).mean(), head(flat).mean()[0])
    assert_close(head(flat[0]).select(1).quantile(0.3), head(flat).quantile(0.3)[0, 1])


def test_laws_of_one_observation_are_a_sequence(name: str) -> None:
    law = example_head(example_methods()[name])(features()[0])
    assert len(law) == len([*law]) == ACTIONS
    assert_close(torch.stack([one.cvar(0.3) for one in law]), law.cvar(0.3))
    assert_close(law[-1].mean(), law.mean()[-1])
    with pytest.raises(IndexError):
        law[ACTIONS]
    for laws in (example_law(name), law[0]):  # which axis would be meant, and none at all
        assert laws
        with pytest.raises(TypeError, match=r"along one axis.*select"):
            laws[0]


@pytest.mark.parametrize("count", [(2, 3), 0.5, -1])
def test_only_a_number_of_samples_can_be_drawn(name: str, count: Any) -> None:
    with pytest.raises(NfdrlError, match="n must be"):
        example_law(name).sample(count)


def test_bootstrap_is_affine_in_the_mean(name: str) -> None:
    law = example_law(name).select(ACTION)
    assert_close(law.bootstrap(REWARD, DISCOUNT).mean(), REWARD + DISCOUNT * law.mean())
    assert_close(law.bootstrap(REWARD, DISCOUNT).variance(), DISCOUNT**2 * law.variance())
    assert_close(law.bootstrap(0.5, 0.9).mean(), 0.5 + 0.9 * law.mean())


def test_bootstrap_moves_quantiles_and_pulls_back_the_cdf(name: str) -> None:
    law = example_law(name).select(ACTION)
    moved = law.bootstrap(0.5, 0.9)
    assert_close(moved.quantile(0.3), 0.5 + 0.9 * law.quantile(0.3))
    assert_close(moved.cdf(0.5 + 0.9 * 0.123), law.cdf(0.123))
    assert_close(moved.cvar(0.2), 0.5 + 0.9 * law.cvar(0.2))


def test_bootstraps_compose(name: str) -> None:
    law = example_law(name).select(ACTION)
    twice = law.bootstrap(REWARD, DISCOUNT).bootstrap(0.25, 0.5)
    once = law.bootstrap(0.25 + 0.5 * REWARD, 0.5 * DISCOUNT)
    assert_close(twice.quantile(0.7), once.quantile(0.7))


def test_discount_zero_is_a_dirac_at_the_reward(name: str) -> None:
    law = example_law(name).select(ACTION).bootstrap(REWARD, 0.0)
    levels = torch.tensor([0.01, 0.5, 0.99], dtype=torch.float64)
    assert_close(law.quantile(levels), REWARD[:, None].expand(-1, 3))
    assert_close(law.cvar(levels), REWARD[:, None].expand(-1, 3))
    assert_close(law.variance(), torch.zeros_like(REWARD))
    around = REWARD[:, None] + torch.tensor([-1e-6, 1e-6], dtype=torch.float64)
    assert_close(law.cdf(around), torch.tensor([0.0, 1.0], dtype=torch.float64).expand(BATCH, 2))


def test_a_discount_outside_the_unit_interval_is_refused(name: str) -> None:
    with pytest.raises(NfdrlError, match="discount"):
        example_law(name).bootstrap(0.0, 1.5)


def test_select_commutes_with_mean_and_bootstrap(name: str) -> None:
    law = example_law(name)
    rows = torch.arange(BATCH)
    assert_close(law.select(ACTION).mean(), law.mean()[rows, ACTION])
    assert_close(law.select(2).mean(), law.mean()[:, 2])
    every = law.bootstrap(REWARD[:, None], DISCOUNT[:, None])
    assert_close(every.mean(), REWARD[:, None] + DISCOUNT[:, None] * law.mean())
    assert_close(every.select(ACTION).quantile(0.4), law.select(ACTION).bootstrap(REWARD, DISCOUNT).quantile(0.4))


@torch.no_grad()
def test_samples_match_the_cdf(name: str) -> None:
    """Kolmogorov–Smirnov at the samples, on both sides of each jump; 4,000 draws, bound at p ≈ 1e-5."""
    law = example_law(name).select(ACTION)
    n = 4000
    samples = law.sample(n, generator()).sort(-1).values
    below = torch.searchsorted(samples, samples - 1e-9, right=False) / n
    upto = torch.searchsorted(samples, samples, right=True) / n
    at, before = law.cdf(samples), law.cdf(samples - 1e-9)
    allowed = 2.5 / n**0.5
    assert float((at - upto).max()) < allowed
    assert float((below - before).max()) < allowed
    assert_close(samples.mean(-1), law.mean(), rtol=0, atol=5 * float(law.std().max()) / n**0.5 + 1e-2)


def test_samples_follow_the_generator(name: str) -> None:
    law = example_law(name)
    assert_close(law.sample(7, generator(5)), law.sample(7, generator(5)))
    assert law.sample(7, generator()).shape == (BATCH, ACTIONS, 7)


def test_the_cdf_rises_from_zero_to_one(name: str) -> None:
    law = example_law(name)
    points = torch.linspace(-50, 50, 401, dtype=torch.float64)
    values = law.cdf(points)
    assert bool((values.diff(dim=-1) >= 0).all())
    assert_close(values[..., 0], torch.zeros_like(values[..., 0]))
    assert_close(values[..., -1], torch.ones_like(values[..., -1]))


def test_every_registered_method_is_covered() -> None:
    assert list(METHODS) == NAMES


def test_masses_sum_to_one(name: str) -> None:
    law = example_law(name)
    if isinstance(law, AtomicLaw):
        masses = law.weighted_atoms()[0]
        assert bool((masses >= 0).all())
        assert_close(masses.sum(-1).expand(BATCH, ACTIONS), torch.ones(BATCH, ACTIONS, dtype=torch.float64))
    if isinstance(law, DensityLaw):
        law = fitted_head(name)(features())  # as smooth as a return law, so that a trapezoid sees all of it
        assert isinstance(law, DensityLaw)
        points = torch.linspace(-60, 60, 60_001, dtype=torch.float64)
        assert_close(torch.trapezoid(law.pdf(points), points), torch.ones_like(law.mean()), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MAY_CROSS])
def test_quantiles_do_not_cross(name: str) -> None:
    levels = torch.linspace(0.001, 0.999, 200, dtype=torch.float64)
    assert bool((example_law(name).quantile(levels).diff(dim=-1) >= 0).all())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MAY_CROSS])
def test_quantile_is_the_generalised_inverse_of_the_cdf(name: str) -> None:
    law = example_law(name)
    levels = torch.linspace(0.013, 0.987, 37, dtype=torch.float64)
    at = law.quantile(levels)
    assert bool((law.cdf(at + 1e-9) >= levels - 1e-9).all())
    assert bool((law.cdf(at - 1e-9) <= levels + 1e-6).all())


def test_cvar_rises_to_the_mean(name: str) -> None:
    law = fitted_head(name)(features())
    slack = CROSSING_ERROR.get(name, 1e-9)
    alphas = torch.tensor([0.05, 0.1, 0.3, 0.6, 0.9, 1 - 1e-9], dtype=torch.float64)
    cvar = law.cvar(alphas)
    assert bool((cvar <= law.mean().unsqueeze(-1) + slack).all())
    assert bool((cvar.diff(dim=-1) >= -slack).all())
    assert_close(cvar[..., -1], law.mean(), rtol=0, atol=max(slack, 1e-6))


def test_cvar_is_the_average_of_the_worst_quantiles(name: str) -> None:
    law = fitted_head(name)(features())
    for alpha in (0.07, 0.5):
        dense = Law._cvar(law, torch.tensor([alpha], dtype=torch.float64)).squeeze(-1)
        assert_close(law.cvar(alpha), dense, rtol=0, atol=QUADRATURE_ERROR.get(name, 2e-3))


def test_a_fit_finds_the_mean_and_the_spread(name: str) -> None:
    law = fitted_head(name)(features())
    centre = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64).expand(BATCH, ACTIONS)
    assert_close(law.mean(), centre, rtol=0, atol=0.1)
    if name != "dqn":
        spread = torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64).expand(BATCH, ACTIONS)
        assert_close(law.std(), spread, rtol=0, atol=0.2)


def test_loss_is_smallest_at_equality(name: str) -> None:
    """Of several predictions, the one equal to the target has the smallest loss."""
    method, head = example_methods()[name], fitted_head(name)
    laws = [head(features()).select(a) for a in range(ACTIONS)]
    for a, target in enumerate(laws):
        losses = torch.stack([method.loss(law, target, generator()) for law in laws])
        assert bool((losses.argmin(0) == a).all())
    if name in {"dqn", "c51", "umdqn", "nfdrl", "nfdrl-s", "nfdrl-e"}:
        assert_close(method.loss(laws[0], laws[0]), torch.zeros(BATCH, dtype=torch.float64))


def test_loss_is_one_finite_number_per_row(name: str) -> None:
    method = example_methods()[name]
    loss = method.loss(chosen(method, 2), target_of(method), generator())
    assert loss.shape == (BATCH,)
    assert bool(loss.isfinite().all())


def test_gradients_reach_every_parameter_and_the_features(name: str) -> None:
    method = example_methods()[name]
    head = example_head(method)
    inputs = features().requires_grad_()
    target_head = example_head(method, 9)
    with torch.no_grad():
        target = target_head(features(9)).select(ACTION).bootstrap(REWARD, DISCOUNT)
    method.loss(head(inputs).select(ACTION), target, generator()).sum().backward()
    for label, parameter in head.named_parameters():
        assert parameter.grad is not None, label
        assert bool(parameter.grad.isfinite().all()), label
        assert float(parameter.grad.abs().sum()) > 0, label
    assert inputs.grad is not None
    assert float(inputs.grad.abs().sum()) > 0
    assert all(parameter.grad is None for parameter in target_head.parameters())


@pytest.mark.parametrize("name", list(finer_methods()))
def test_target_and_prediction_may_differ_in_size(name: str) -> None:
    method, finer = example_methods()[name], finer_methods()[name]
    loss = method.loss(chosen(method, 2), target_of(finer), generator())
    assert loss.shape == (BATCH,)
    assert bool(loss.isfinite().all())


@pytest.mark.parametrize("other", NAMES)
def test_any_law_serves_as_a_target(name: str, other: str) -> None:
    method = example_methods()[name]
    loss = method.loss(chosen(method, 2), target_of(example_methods()[other]), generator())
    assert loss.shape == (BATCH,)
    assert bool(loss.isfinite().all())


def test_rows_do_not_affect_each_other(name: str) -> None:
    method = example_methods()[name]
    head, target_head = example_head(method), example_head(method, 9)
    inputs, next_inputs, reward = features(), features(9), REWARD.clone()
    before = method.loss(
        head(inputs).select(ACTION), target_head(next_inputs).select(ACTION).bootstrap(reward, DISCOUNT), generator()
    )
    inputs[0] += 0.5
    next_inputs[0] -= 0.3
    reward[0] += 1.0
    after = method.loss(
        head(inputs).select(ACTION), target_head(next_inputs).select(ACTION).bootstrap(reward, DISCOUNT), generator()
    )
    assert_close(after[1:], before[1:])
    assert bool((after[0] - before[0]).abs() > 1e-6)


def test_a_loss_is_reproduced_by_its_generator(name: str) -> None:
    method = example_methods()[name]
    predicted, target = chosen(method, 2), target_of(method)
    assert_close(method.loss(predicted, target, generator(4)), method.loss(predicted, target, generator(4)))


def test_float32_agrees_with_float64(name: str) -> None:
    method = example_methods()[name]
    head = example_head(method)
    mean, cvar = head(features()).mean(), head(features()).cvar(0.25)
    head.float()
    coarse = head(features().float())
    assert coarse.mean().dtype == torch.float32
    assert_close(coarse.mean().double(), mean, rtol=1e-4, atol=1e-4)
    assert_close(coarse.cvar(0.25).double(), cvar, rtol=1e-3, atol=1e-3)


def test_default_methods_build_a_head(name: str) -> None:
    method = type(example_methods()[name])()
    assert method.head(8, 2)(torch.zeros(3, 8)).mean().shape == (3, 2)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_found_by_its_own_name(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    assert find_method(name) == method
    assert method_from(json.loads(json.dumps(method_config(method)))) == method


def test_no_two_methods_look_alike() -> None:
    looks = [(method.colour, method.line) for method in METHODS.values()]
    assert len(set(looks)) == len({method.label for method in METHODS.values()}) == len(looks)
