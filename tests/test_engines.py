"""The compiled engine against the graph, which is the definition; and what a network promises as a plain module."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from torch import nn
from torch.testing import assert_close

from nfdrl import engines
from nfdrl.engines.base import Work
from nfdrl.engines.compiled import flow
from nfdrl.engines.compiled.adam import NumbaAdam
from nfdrl.engines.compiled.heads import head_kernel_of
from nfdrl.engines.compiled.kernels import BasePoints, Bellman, kernel_of
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.flow import MIN_SCALE, FlowLaw, zero_point
from nfdrl.laws.fraction import FQF
from nfdrl.laws.implicit import IQN
from nfdrl.laws.monotone import UMDQN
from nfdrl.laws.quantile import QRDQN
from nfdrl.learner import Learner, Optimisation
from nfdrl.losses.exact import Exact
from nfdrl.losses.grid import GridDistance
from nfdrl.losses.l2 import L2
from nfdrl.losses.surrogate import Surrogate
from nfdrl.networks import network_for
from nfdrl.numerics.base_points import RULES, base_points
from nfdrl.replay import Batch
from nfdrl.risk import parse_risk
from nfdrl.torsos import TorsoSizes

FLOW = METHODS["nfdrl-s"]
WITH_KERNEL = ["dqn", "c51", "qr-dqn", "nfdrl", "nfdrl-s", "nfdrl-e"]
WITH_HEAD_KERNEL = ["iqn", "fqf", "umdqn"]
VARIANTS = METHODS | {
    "dqn without threshold": DQN(huber_threshold=None),
    "c51, few atoms": C51(atoms=2, v_min=-0.5, v_max=0.5),
    "c51, every return beyond the support": C51(atoms=5, v_min=50, v_max=60),
    "qr-dqn, pinball": QRDQN(quantiles=7, huber_threshold=0.0),
    "nfdrl-s by filter": replace(FLOW, samples=600),
    "nfdrl-s with the samples of the paper": replace(FLOW, samples=500),
    "nfdrl-s, seven components": replace(FLOW, components=7, initial_bound=30.0),
    "nfdrl-e, another range": replace(METHODS["nfdrl-e"], initial_bound=4.0),
    "nfdrl-s, wide terminal laws": replace(FLOW, terminal_std=0.1),
    "nfdrl-s, random points": replace(FLOW, points="random"),
    "nfdrl-s, one Gaussian": replace(FLOW, comparison=Surrogate(kernel="gaussian")),
    "densities": replace(FLOW, comparison=L2()),
    "nfdrl, mean anchor": replace(METHODS["nfdrl"], anchor=1.0, unit=3.0, start=0.3),
    "nfdrl, median anchor": replace(METHODS["nfdrl"], anchor=0.0, unit=0.1),
    "nfdrl, exact": replace(METHODS["nfdrl"], comparison=Exact(), unit=2.0),
    "nfdrl, random points": replace(METHODS["nfdrl"], points="random"),
    "nfdrl, surrogate": replace(METHODS["nfdrl"], comparison=Surrogate(), unit=2.0),
    "nfdrl, error of the mean": replace(METHODS["nfdrl"], mean_weight=5.0, unit=2.0, gain=3.0),
    "nfdrl, auxiliary quantiles": replace(METHODS["nfdrl"], auxiliary=7, unit=2.0, gain=3.0),
    "nfdrl, surrogate, auxiliary quantiles": replace(METHODS["nfdrl"], comparison=Surrogate(), auxiliary=3),
    "iqn, pinball, fewer targets": IQN(samples=9, target_samples=5, cosines=7, hidden=11, huber_threshold=0.0),
    "fqf, few fractions": FQF(fractions=5, hidden=11, huber_threshold=0.3),
    "umdqn, few points": UMDQN(points=4, v_min=-1.0, v_max=2.0, hidden=9),
    "umdqn, odd points, returns beyond the range": UMDQN(points=31, v_min=0.2, v_max=0.5, hidden=17),
    "nfdrl-s, rooted": replace(FLOW, comparison=Surrogate(rooted=True)),  # no kernel: its loss is the graph's
}
ACTIONS, ROWS = 3, 32
SPACES = {
    "numbers": gymnasium.spaces.Box(-1, 1, (5,), np.float32),
    "states": gymnasium.spaces.Discrete(6),
    "one channel": gymnasium.spaces.Box(0, 1, (1, 12, 9), np.float32),
    "channels first": gymnasium.spaces.Box(0, 255, (3, 9, 12), np.uint8),
    "large images": gymnasium.spaces.Box(0, 255, (2, 40, 44), np.uint8),
    "images": gymnasium.spaces.Box(0, 255, (10, 10, 3), np.uint8),
    "planes": gymnasium.spaces.Box(0, 1, (10, 8, 4), np.bool_),
    "planes, channels first": gymnasium.spaces.Box(0, 1, (2, 9, 12), np.bool_),
}


def learner_of(method, space="numbers", risk="mean", **options):
    network = network_for(method, SPACES[space], ACTIONS, TorsoSizes(mlp=(16, 16), small_image=(16,)), seed=0)
    if hasattr(network.head, "linear"):
        draws = torch.Generator().manual_seed(1)
        with torch.no_grad():
            network.head.linear.weight.copy_(0.3 * torch.randn(network.head.linear.weight.shape, generator=draws))
    generator = torch.Generator().manual_seed(2)
    return Learner(method, network, Optimisation(1e-3, **options), risk=parse_risk(risk), generator=generator)


def batch_of(space="numbers", seed=0):
    rng, box = np.random.default_rng(seed), SPACES[space]
    box.seed(seed)
    rows = [torch.from_numpy(np.stack([box.sample() for _ in range(ROWS)])) for _ in range(2)]
    return Batch(
        rows[0],
        torch.from_numpy(rng.integers(ACTIONS, size=ROWS)),
        torch.from_numpy(rng.normal(size=ROWS).astype(np.float32)),
        torch.from_numpy(np.where(rng.random(ROWS) < 0.3, 0, 0.97).astype(np.float32)),
        rows[1],
    )


def both_engines(method, space="numbers", **options):
    """Two learners with the same weights: one compiled, one through the graph."""
    pair = [learner_of(method, space, engine=engine, **options) for engine in ("compiled", "graph")]
    noise = 0.1 * torch.randn(len(pair[0]._target_weights), generator=torch.Generator().manual_seed(3))
    for learner in pair:  # so that the two networks choose different actions
        learner._target_weights.add_(noise)
    return pair


def gradient_of(learner, batch, *more):
    learner._gradient.zero_()
    loss = learner.engine.differentiate(batch, *more)
    return loss, learner._gradient.clone()


def assert_same(pair, batch, *more):
    (loss, gradient), (wanted_loss, wanted) = (gradient_of(learner, batch, *more) for learner in pair)
    assert loss == pytest.approx(wanted_loss, rel=2e-4, abs=1e-7)
    assert float(wanted.norm()) > 0
    # The largest sample of a row lies on a grid point: rounding decides which of its two slopes it gets.
    assert float((gradient - wanted).norm()) < (0.02 if on_grid(pair[0].method) else 1e-4) * float(wanted.norm())


def on_grid(method):
    return isinstance(getattr(method, "comparison", None), GridDistance)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("double_q", [False, True])
def test_both_engines_compute_the_same_update(variant, double_q):
    pair = both_engines(VARIANTS[variant], double_q=double_q)
    assert [learner.engine.name for learner in pair] == ["compiled", "graph"]
    assert_same(pair, batch_of())
    assert_same(pair, batch_of(seed=1), torch.arange(ROWS) % ACTIONS)


@pytest.mark.parametrize("name", WITH_HEAD_KERNEL)
@pytest.mark.parametrize("states", [1, 2, 6])
def test_rows_of_one_state_are_computed_together_and_each_counts(name, states):
    weight, batch = torch.linspace(0, 2, ROWS), batch_of("states")
    few = replace(batch, observation=batch.observation % states, next_observation=batch.next_observation % states)
    pair = both_engines(METHODS[name], "states", double_q=True)
    assert_same(pair, few, None, weight)
    assert_same(pair, few, torch.arange(ROWS) % ACTIONS, weight)


@pytest.mark.parametrize("name", METHODS)
def test_a_weight_per_row_multiplies_its_loss(name):
    weight, chosen = torch.linspace(0, 2, ROWS), torch.arange(ROWS) % ACTIONS
    pair = both_engines(METHODS[name])
    assert_same(pair, batch_of(), chosen, weight)
    for learner in pair:
        found = []
        for factor in (1.0, 2.0, 0.0):
            learner.generator.manual_seed(4)
            found.append(gradient_of(learner, batch_of(), chosen, factor * weight))
        (once, gradient), (twice, doubled), (nothing, zero) = found
        assert twice == pytest.approx(2 * once, rel=1e-5)
        assert_close(doubled, 2 * gradient, rtol=1e-4, atol=1e-6)
        assert nothing == float(zero.norm()) == 0


def law_of_raw(raw, initial):
    shift = zero_point(raw.shape[-1] // 3, torch.float32, torch.device("cpu")).numpy()
    return flow.law_of(shift, MIN_SCALE, initial)


def test_compiled_returns_and_gradients_match_the_law():
    draws = torch.Generator().manual_seed(3)
    raw = torch.randn(40, 13, generator=draws).requires_grad_()
    law, z = law_of_raw(raw, 7.0), base_points(50, "midpoint", like=raw)
    y, saved = flow.returns(raw.detach().numpy(), law, z.numpy(), len(raw))
    wanted = FlowLaw.from_raw(raw, 7.0).at(z)
    assert_close(torch.from_numpy(y), wanted, rtol=1e-5, atol=1e-5)
    slope = torch.randn(40, 50, generator=draws)
    found = flow.gradient(slope.numpy(), raw.detach().numpy(), law, z.numpy(), saved)
    assert_close(torch.from_numpy(found), torch.autograd.grad(wanted, raw, slope)[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n", [1, 33, 64])
def test_compiled_base_points_are_the_same_draws(rule, n):
    drawn, expected = (torch.Generator().manual_seed(8) for _ in range(2))
    points = BasePoints(n, rule, drawn)
    for _ in range(50):
        z, levels = points()
        wanted = base_points(n, rule, like=torch.empty(0), generator=expected)
        assert np.array_equal(z, wanted.numpy())
        assert_close(torch.from_numpy(levels), torch.special.ndtr(wanted), rtol=1e-5, atol=1e-6)
    assert torch.equal(drawn.get_state(), expected.get_state())


@pytest.mark.parametrize("size", [1.0, 5.0, 30.0])
def test_compiled_returns_are_off_by_a_few_roundings_of_the_range(size):
    raw = size * torch.randn(4_000, 13, generator=torch.Generator().manual_seed(4))
    z = base_points(64, like=raw)
    y, _ = flow.returns(raw.numpy(), law_of_raw(raw, 1.0), z.numpy(), 0)
    exact = FlowLaw.from_raw(raw.double())
    error = (torch.from_numpy(y).double() - exact.at(z.double())).abs() / exact.bound.unsqueeze(-1)
    # Large raw outputs are themselves rounded: a location of 30 moves by 4e-6 between two floats.
    assert float(error.median()) < 2e-7
    assert float(error.quantile(0.99)) < 2e-6 * max(1.0, size)


@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("size", [0.1, 1.0, 6.0])
def test_compiled_cvar_matches_the_law(alpha, size):
    raw = size * torch.randn(500, 13, generator=torch.Generator().manual_seed(5))
    level = np.float32(torch.special.ndtri(torch.tensor(alpha).double()).item())
    found = flow.cvars(raw.numpy(), law_of_raw(raw, 3.0), np.float32(alpha), level)
    law = FlowLaw.from_raw(raw.double(), 3.0)
    error = (torch.from_numpy(found).double() - law.cvar(alpha)).abs() / law.bound
    assert float(error.max()) < 3e-6 / alpha


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", METHODS)
def test_both_engines_compute_the_same_update_on_every_torso(space, name):
    for double_q in (False, True):
        assert_same(both_engines(METHODS[name], space, double_q=double_q), batch_of(space))


@pytest.mark.parametrize("risk", ["cvar:0.1", "var:0.3", "wang:-0.75", "mean-variance:0.1"])
@pytest.mark.parametrize("name", METHODS)
def test_both_engines_choose_the_same_actions_by_any_risk(name, risk):
    compiled, graph = both_engines(METHODS[name], risk=risk)
    observation = torch.randn(500, 5, generator=torch.Generator().manual_seed(6)).numpy()
    with torch.no_grad():
        values = parse_risk(risk)(graph.online(torch.from_numpy(observation)))
    best, second = values.topk(2, -1).values.unbind(-1)
    clear = (best - second > 1e-4 * values.abs().amax()).numpy()
    assert clear.mean() > 0.5
    assert np.array_equal(compiled.engine.greedy(observation)[clear], graph.engine.greedy(observation)[clear])


@pytest.mark.parametrize("name", WITH_KERNEL + WITH_HEAD_KERNEL)
def test_a_risk_other_than_the_mean_keeps_the_kernel(name):
    pair = both_engines(METHODS[name], risk="cvar:0.2", double_q=True)
    assert "layers and loss" in pair[0].engine.reason
    assert_same(pair, batch_of())


@pytest.mark.parametrize("name", WITH_KERNEL)
def test_the_means_of_a_kernel_match_the_laws(name):
    learner = learner_of(METHODS[name])
    with torch.no_grad():
        raw = learner.online.head.linear(learner.online.torso(batch_of().observation))
        wanted = learner.online.head.read(raw).mean()
    found = kernel_of(METHODS[name], None).means(raw.numpy().reshape(ROWS, ACTIONS, -1))
    assert_close(torch.from_numpy(found), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("space", ["numbers", "states"])
@pytest.mark.parametrize("name", WITH_HEAD_KERNEL)
def test_the_means_of_a_head_kernel_match_the_laws(name, space):
    learner = learner_of(METHODS[name], space)
    with torch.no_grad():
        features = learner.online.torso(batch_of(space).observation)
        wanted = learner.online.head(features).mean()
    found = head_kernel_of(METHODS[name], learner.online.head, None).means(features.numpy())
    assert_close(torch.from_numpy(found), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WITH_HEAD_KERNEL)
def test_gradients_of_a_head_with_a_kernel_replace_those_of_the_last_update(name):
    learner, batch = learner_of(METHODS[name], max_grad_norm=1e-3), batch_of()
    _, wanted = gradient_of(learner, batch)
    assert learner.engine.accumulating() == []
    learner._gradient.fill_(7.0)
    learner.generator.manual_seed(2)
    learner.engine.differentiate(batch)
    assert torch.equal(learner._gradient, wanted)


@pytest.mark.parametrize("base", [IQN, FQF, UMDQN])
def test_a_method_that_derives_from_another_does_not_get_its_kernel(base):
    class Derived(base):
        def loss(self, predicted, target, generator=None):
            return 3 * super().loss(predicted, target, generator)

    plain, derived = (learner_of(method(), engine="compiled") for method in (base, Derived))
    assert "loss is PyTorch's" in derived.engine.reason
    (loss, _), (tripled, _) = (gradient_of(learner, batch_of()) for learner in (plain, derived))
    assert tripled == pytest.approx(3 * loss, rel=1e-4)


@pytest.mark.parametrize("name", WITH_HEAD_KERNEL)
def test_features_that_are_all_zero_are_learned_from_as_well(name):
    pair = both_engines(METHODS[name])
    for learner in pair:
        with torch.no_grad():  # the torso's last layer is silent for every observation
            learner.online.torso.layers[-1].bias.fill_(-1e3)
    assert_same(pair, batch_of())


def monotone_head(draw, width, points, size):
    """A head whose first layer bends inside the range, beyond it, at its ends, or not at all."""
    head = UMDQN(points=points, v_min=-1.0, v_max=2.0, hidden=width).head(4, ACTIONS)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.from_numpy(draw.normal(scale=size, size=tuple(parameter.shape))))
        slopes = head.from_return.weight
        slopes[draw.random(width) < 0.2] = 0.0
        slopes[draw.random(width) < 0.2] *= 100.0
    return head


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(4, 40), st.sampled_from([0.05, 0.5, 1.5]))
def test_a_monotone_network_walked_from_bend_to_bend_is_the_network(seed, width, points, size):
    draw = np.random.default_rng(seed)
    head = monotone_head(draw, width, points, size)
    features = torch.from_numpy(draw.normal(size=(6, 4)).astype(np.float32))
    features[0] = 0.0
    wanted = copy.deepcopy(head).double()(features.double()).cumulative.detach().numpy()
    # Steep slopes cost digits, in PyTorch's float32 as well: what it loses is the measure.
    lost = np.abs(head(features).cumulative.detach().numpy() - wanted).max()
    allowed = 1e-4 * max(1.0, size**4) + 10 * lost
    kernel = head_kernel_of(UMDQN(points=points, v_min=-1.0, v_max=2.0, hidden=width), head, None)
    found = kernel._cumulative(features.numpy(), np.tile(np.arange(ACTIONS), (6, 1)))
    assert np.abs(found - wanted).max() < allowed
    reward, discount = draw.normal(size=6).astype(np.float32), np.float32([0.0, 0.3, 0.99, 1.0, 0.5, 0.0])
    chosen = draw.integers(ACTIONS, size=6)
    law = (
        head(features).select(torch.from_numpy(chosen)).bootstrap(torch.from_numpy(reward), torch.from_numpy(discount))
    )
    target = kernel.target(features.numpy(), chosen, Bellman(reward, discount))
    grid = torch.linspace(-1.0, 2.0, points)
    off = np.abs(target - law.cdf(grid).detach().numpy())
    away = np.abs(grid.numpy() - reward[:, None]) > 1e-5  # where rounding does not decide on which side of a step
    assert off[away].max() < 4 * allowed


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 5.0, 30.0]), st.sampled_from(["nfdrl-s", "nfdrl-e"]))
def test_outputs_of_any_size_give_the_losses_of_the_graph(seed, size, name):
    method, draws = METHODS[name], np.random.default_rng(seed)
    raw, following = (draws.normal(size=(8, 13), scale=size).astype(np.float32) for _ in range(2))
    reward, discount = draws.normal(size=(2, 8)).astype(np.float32)
    discount = np.abs(discount).clip(max=1)
    losses, gradient = kernel_of(method, None).differentiate(raw, following, Bellman(reward, discount))
    law, target = (FlowLaw.from_raw(torch.from_numpy(part).double()) for part in (raw, following))
    wanted = method.loss(law, target.bootstrap(torch.from_numpy(reward), torch.from_numpy(discount)))
    assert np.isfinite(gradient).all()
    assert_close(torch.from_numpy(losses).double(), wanted, rtol=5e-3, atol=1e-5 * float(wanted.max()))


def seeded_kernel(name):
    return kernel_of(METHODS[name], torch.Generator().manual_seed(0))


# Of a flow: an amplitude, a location, a scale; only a component at infinity is as good as none.
@pytest.mark.parametrize(("bad", "place"), [(np.nan, 0), (np.nan, 5), (np.nan, 9), (np.inf, 0)])
@pytest.mark.parametrize("name", WITH_KERNEL)
def test_a_row_that_is_not_finite_spoils_no_other(bad, name, place):
    batch, outputs = batch_of(), learner_of(METHODS[name]).online.head.linear.out_features // ACTIONS
    raw, following = np.random.default_rng(0).normal(size=(2, ROWS, outputs)).astype(np.float32)
    bellman = Bellman(batch.reward.numpy(), batch.discount.numpy())
    clean, _ = seeded_kernel(name).differentiate(raw, following, bellman)
    spoiled = raw.copy()
    spoiled[5, place % outputs] = bad
    with np.errstate(invalid="ignore"):
        losses, _ = seeded_kernel(name).differentiate(spoiled, following, bellman)
    assert not np.isfinite(losses[5])
    others = np.arange(ROWS) != 5
    assert np.array_equal(losses[others], clean[others])


@pytest.mark.parametrize("engine", ["compiled", "graph"])
@pytest.mark.parametrize("name", METHODS)
def test_an_update_that_is_not_finite_moves_nothing(name, engine):
    learner, batch = learner_of(METHODS[name], engine=engine), batch_of()
    batch.observation[0, 0] = torch.nan
    before = learner._online_weights.clone()
    learner.update(batch)
    assert learner.skipped == 1
    assert torch.equal(learner._online_weights, before)
    batch.observation[0, 0] = 0
    learner.update(batch)
    assert learner.skipped == 1
    assert not torch.equal(learner._online_weights, before)


@pytest.mark.parametrize("engine", ["compiled", "graph"])
def test_adam_matches_pytorch(engine):
    learner, batch = learner_of(FLOW, engine=engine, max_grad_norm=0.01, adam_eps=1e-5), batch_of()
    network = copy.deepcopy(learner.online)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, eps=1e-5)
    for _ in range(5):
        learner.engine.differentiate(batch)
        for ours, theirs in zip(learner.online.parameters(), network.parameters(), strict=True):
            theirs.grad = ours.grad.clone()
        nn.utils.clip_grad_norm_(network.parameters(), 0.01)
        optimizer.step()
        learner._gradient.zero_()
        learner.update(batch)
    for ours, theirs in zip(learner.online.parameters(), network.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_adam_keeps_no_subnormal_means_of_gradients_that_have_gone():
    weights, gradient = torch.ones(100), torch.logspace(-20, 0, 100)
    adam = NumbaAdam(weights, gradient, 1e-3, 1e-8)
    adam.step(1.0)
    gradient.zero_()
    for _ in range(1_200):  # 0.9¹²⁰⁰ is 1e-55
        adam.step(1.0)
    assert torch.equal(adam.state["mean"], torch.zeros(100))
    square = adam.state["square"]
    assert not ((square > 0) & (square < torch.finfo(torch.float32).tiny)).any()
    assert square[-1] > 0


def test_an_engine_says_why_it_runs(monkeypatch):
    assert str(learner_of(FLOW).engine) == "compiled engine: layers and loss in NumPy and Numba on the CPU"
    assert "loss is PyTorch's" in learner_of(METHODS["er-dqn"]).engine.reason
    assert learner_of(FLOW, engine="graph").engine.reason == "asked for"
    with pytest.raises(NfdrlError, match="unknown engine 'grpah': did you mean 'graph'"):
        learner_of(FLOW, engine="grpah")
    network = network_for(FLOW, SPACES["numbers"], ACTIONS, TorsoSizes(), seed=0).double()
    assert "torch.float64" in engines.engine_for(Work(FLOW, network)).reason
    with pytest.raises(NfdrlError, match=r"cannot run: .*torch\.float64"):
        engines.engine_for(Work(FLOW, network), "compiled")
    own = copy.deepcopy(network).float()
    own.torso = nn.Sequential(nn.Linear(5, 128), nn.ReLU())
    assert "not one of nfdrl's" in engines.engine_for(Work(FLOW, own)).reason
    for missing in ("numba", "scipy"):
        monkeypatch.setattr(engines, "find_spec", lambda name, gone=missing: None if name == gone else find_spec(name))
        assert f"(pip install {missing})" in learner_of(FLOW).engine.reason


def test_every_library_of_linear_algebra_is_on_one_thread_while_an_agent_learns():
    """In a process of its own, in which one of them is loaded after the first use of the others."""
    program = """
import nfdrl
from nfdrl.threads import threads
from threadpoolctl import threadpool_info

with threads(1):
    pass
found = set()
def look(agent, event):
    found.update((one["filepath"], one["num_threads"]) for one in threadpool_info() if one["user_api"] == "blas")
small = {"learning_starts": 32, "batch_size": 8}
nfdrl.Agent("iqn[hidden=8]", "CartPole-v1", config=small).learn(60, callbacks=[look], progress=False)
print(len(found), {count for _, count in found})
"""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "2 {1}\n"  # NumPy's own, and SciPy's, with which Numba multiplies matrices


def test_the_package_works_without_the_compiled_engine():
    """Run in a process that can import neither Numba nor nfdrl.engines.compiled."""
    program = """
import sys

class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "numba" or name.startswith("nfdrl.engines.compiled"):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Gone())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if "compiled" in name or name == "numba" else real(name, *a)
import nfdrl
for method in nfdrl.METHODS:
    agent = nfdrl.Agent(method, "CartPole-v1", seed=0)
    agent.learn(1_060, progress=False)
    assert agent.learner.engine.name == "graph"
    assert agent.learner.updates == 30
assert not any(name.startswith(("numba", "nfdrl.engines.compiled")) for name in sys.modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_code_just_compiled_and_read_back_compute_the_same_bits(tmp_path):
    """A resumed run reads back what its first process compiled."""
    program = """
import hashlib
import numpy as np
import torch
from nfdrl.engines.compiled.kernels import Bellman, kernel_of
from nfdrl.laws import METHODS
from nfdrl.risk import CVaR

found = hashlib.sha256()
draws = np.random.default_rng(0)
for name, outputs in (("qr-dqn", 200), ("nfdrl-s", 13), ("nfdrl-e", 13), ("nfdrl", 13)):
    raw, following = draws.normal(size=(2, 64, outputs)).astype(np.float32)
    bellman = Bellman(*np.abs(draws.normal(size=(2, 64))).astype(np.float32).clip(max=1))
    kernel = kernel_of(METHODS[name], torch.Generator().manual_seed(0))
    for part in (*kernel.differentiate(raw, following, bellman), kernel.means(raw)):
        found.update(np.ascontiguousarray(part).tobytes())
    if name != "qr-dqn":
        found.update(kernel.values(raw[:, None], CVaR(0.1)).tobytes())
from nfdrl.engines.compiled.heads import head_kernel_of
for name in ("iqn", "fqf", "umdqn"):
    torch.manual_seed(0)
    head, generator = METHODS[name].head(24, 3), torch.Generator().manual_seed(0)
    for parameter in head.parameters():
        parameter.grad = torch.zeros_like(parameter)
    features, following = draws.normal(size=(2, 64, 24)).clip(0).astype(np.float32)
    kernel, action = head_kernel_of(METHODS[name], head, generator), draws.integers(3, size=64)
    share = np.full(64, 1 / 64, np.float32)
    parts = kernel.differentiate(features, action, lambda: kernel.target(following, action, bellman), share)
    for part in (*parts, kernel.means(features), *(p.grad.numpy() for p in head.parameters())):
        found.update(np.ascontiguousarray(part).tobytes())
weights = torch.from_numpy(draws.normal(size=5_000).astype(np.float32))
from nfdrl.engines.compiled.adam import NumbaAdam
adam = NumbaAdam(weights, weights.flip(0).contiguous(), 1e-3, 1e-8)
for _ in range(3):
    adam.step(0.5)
found.update(weights.numpy().tobytes())
print(found.hexdigest())
"""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    cold, warm = (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
        for _ in range(2)
    )
    assert any(tmp_path.rglob("*.nbc"))
    assert cold.stdout == warm.stdout


# A network is a plain module ----------------------------------------------------------------------------------------


class Policy(nn.Module):
    """Observation → values of all actions and two quantiles, as a user would export it."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, observation):
        law = self.network(observation)
        return law.mean(), law.quantile(torch.tensor([0.1, 0.9]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("trained", [False, True], ids=["before training", "after training"])
@pytest.mark.parametrize("name", METHODS)
def test_a_network_copies_pickles_traces_and_exports(name, trained):
    learner, batch = learner_of(METHODS[name]), batch_of()
    if trained:
        for _ in range(3):
            learner.update(batch)
    network, x = learner.online, torch.randn(4, 5, generator=torch.Generator().manual_seed(7))
    other = torch.randn(6, 5, generator=torch.Generator().manual_seed(8))
    policy = Policy(network).eval()
    wanted = policy(other)
    with torch.no_grad():
        assert_close(policy(other), wanted)
        for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
            assert_close(twin(other), wanted)
            for ours, theirs in zip(twin.parameters(), policy.parameters(), strict=True):
                assert ours.data_ptr() != theirs.data_ptr()
        traced = torch.jit.trace(policy, (x,), check_trace=False)
        assert_close(traced(other), wanted)
        rows = torch.export.Dim("rows", min=2, max=64)
        exported = torch.export.export(policy, (x,), dynamic_shapes=({0: rows},))
        assert_close(exported.module()(other), wanted)
    seen = []
    hook = network.torso.register_forward_hook(lambda *_: seen.append(1))
    network(x)
    hook.remove()
    assert seen == [1]
    learner.update(batch)  # none of that may have affected training
    assert learner.skipped == 0


@pytest.mark.parametrize("engine", ["compiled", "graph"])
@pytest.mark.parametrize("name", ["nfdrl-s", "fqf"])
@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_a_copied_learner_learns_the_same_independently(name, engine, twin_of):
    learner, batch = learner_of(METHODS[name], engine=engine), batch_of()
    learner.update(batch)
    learner.set_learning_rate(3e-4)
    twin = twin_of(learner)
    for one in (learner, twin):
        for seed in range(3):
            one.update(batch_of(seed=seed))
    assert twin.updates == learner.updates == 4
    for key, value in learner.tensors().items():
        assert torch.equal(value, twin.tensors()[key]), key
    assert all(
        a.data_ptr() != b.data_ptr() for a, b in zip(learner.online.parameters(), twin.online.parameters(), strict=True)
    )


def test_weights_that_moved_in_memory_are_found_again():
    network = network_for(METHODS["dqn"], SPACES["numbers"], 2, TorsoSizes(mlp=(8,)), seed=0)
    engine, x = engines.engine_for(Work(METHODS["dqn"], network)), torch.randn(50, 5).numpy()
    before = engine.greedy(x)
    for parameter in network.parameters():
        parameter.data = -parameter.data
    with torch.no_grad():
        wanted = network(torch.from_numpy(x)).mean().argmax(-1).numpy()
    assert not np.array_equal(wanted, before)
    assert np.array_equal(engine.greedy(x), wanted)
    network.double()
    with pytest.raises(NfdrlError, match=r"torch\.float64"):
        engine.greedy(x)


def test_elementary_functions_match_pytorch():
    t = np.linspace(-9, 9, 4001).astype(np.float32)

    @njit
    def all_three(t, gauss, erf, softplus):
        for k in range(len(t)):
            gauss[k] = flow.exp_negative(-t[k] * t[k])
            erf[k] = flow.erf_of(t[k], gauss[k])
            softplus[k] = flow.softplus(3 * t[k])

    gauss, erf, softplus = np.empty((3, len(t)), np.float32)
    all_three(t, gauss, erf, softplus)
    exact = torch.from_numpy(t.astype(np.float64))
    assert_close(torch.from_numpy(gauss).double(), torch.exp(-exact.square()), rtol=1e-5, atol=2e-38)
    assert_close(torch.from_numpy(erf).double(), torch.erf(exact), rtol=0, atol=6e-7)
    wanted = torch.logaddexp(3 * exact, torch.zeros(()).double())
    assert_close(torch.from_numpy(softplus).double(), wanted, rtol=2e-6, atol=0)
