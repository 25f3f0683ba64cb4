"""Updates in NumPy against the same updates through PyTorch's graph."""

from dataclasses import replace
from importlib.util import find_spec

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from torch.testing import assert_close

from nfdrl.laws import METHODS, flow_raw
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.quantile import QRDQN
from nfdrl.learner import Learner, Optimisation
from nfdrl.losses.cramer import Comparison
from nfdrl.networks import TorsoSizes, network_for
from nfdrl.numerics import fused
from nfdrl.numerics.base_points import base_points
from nfdrl.replay import Batch
from nfdrl.risk import CVaR

FLOW = METHODS["nfdrl-s"]
VARIANTS = {
    "dqn": METHODS["dqn"],
    "dqn without threshold": DQN(huber_threshold=None),
    "c51": METHODS["c51"],
    "c51, few atoms": C51(atoms=2, v_min=-0.5, v_max=0.5),
    "c51, every return beyond the support": C51(atoms=5, v_min=50, v_max=60),
    "qr-dqn": METHODS["qr-dqn"],
    "qr-dqn, pinball": QRDQN(quantiles=7, huber_threshold=0.0),
    "nfdrl-s": FLOW,
    "nfdrl-e": METHODS["nfdrl-e"],
    "nfdrl-s by filter": replace(FLOW, samples=600),
    "nfdrl-s with the samples of the paper": replace(FLOW, samples=500),
    "nfdrl-s, seven components": replace(FLOW, components=7, initial_bound=30.0),
    "nfdrl-s, held range": replace(FLOW, held=0.5, initial_bound=4.0),
    "nfdrl-e, fixed range": replace(METHODS["nfdrl-e"], held=1.0, initial_bound=4.0),
    "nfdrl-s, wide terminal laws": replace(FLOW, terminal_std=0.1),
    "nfdrl-s, random points": replace(FLOW, points="random"),
    "nfdrl-s, one Gaussian": replace(FLOW, comparison=Comparison(kernel="gaussian")),
    "densities": replace(FLOW, comparison=Comparison("l2")),
}
ACTIONS, ROWS = 3, 32
SPACES = {
    "numbers": gymnasium.spaces.Box(-1, 1, (5,), np.float32),
    "states": gymnasium.spaces.Discrete(6),
    "one channel": gymnasium.spaces.Box(0, 1, (1, 12, 9), np.float32),
    "channels first": gymnasium.spaces.Box(0, 255, (3, 9, 12), np.uint8),
    "large images": gymnasium.spaces.Box(0, 255, (2, 40, 44), np.uint8),
    "images": gymnasium.spaces.Box(0, 255, (10, 10, 3), np.uint8),
}


def learner_of(method, space="numbers", **options):
    network = network_for(method, SPACES[space], ACTIONS, TorsoSizes(mlp=(16, 16), small_image=(16,)), seed=0)
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        network.head.linear.weight.copy_(0.3 * torch.randn(network.head.linear.weight.shape, generator=draws))
    generator = torch.Generator().manual_seed(2)
    return Learner(method, network, Optimisation(1e-3, **options), generator=generator)


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


def gradient_of(learner, batch, next_action=None, *, direct):
    learner._gradient.zero_()
    loss = (learner._direct if direct else learner._through_graph)(batch, next_action)
    return loss, learner._gradient.clone()


def assert_same(learner, batch, next_action=None):
    state = learner.generator.get_state()
    loss, gradient = gradient_of(learner, batch, next_action, direct=True)
    learner.generator.set_state(state)
    wanted_loss, wanted = gradient_of(learner, batch, next_action, direct=False)
    assert loss == pytest.approx(wanted_loss, rel=2e-4, abs=1e-7)
    assert float(wanted.norm()) > 0
    # The largest sample of a row lies on a grid point: rounding decides which of its two slopes it gets.
    assert float((gradient - wanted).norm()) < (0.02 if on_grid(learner.method) else 1e-4) * float(wanted.norm())


def on_grid(method):
    return not isinstance(method, (DQN, C51, QRDQN)) and method.comparison.distance != "exact"


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("double_q", [False, True])
def test_an_update_in_numpy_is_the_one_through_the_graph(variant, double_q):
    learner = learner_of(VARIANTS[variant], double_q=double_q)
    assert learner.direct is not None
    with torch.no_grad():  # so that the two networks choose different actions
        learner._target_weights.add_(0.1 * torch.randn(len(learner._target_weights)))
    assert_same(learner, batch_of())
    assert_same(learner, batch_of(seed=1), torch.arange(ROWS) % ACTIONS)


def test_returns_and_their_gradients_are_those_of_the_law():
    draws = torch.Generator().manual_seed(3)
    raw = torch.randn(40, 13, generator=draws)
    law = (
        flow_raw.zero_point(4, torch.float32, torch.device("cpu")).numpy(),
        np.float32(flow_raw.MIN_SCALE),
        np.float32(2),
        np.float32(5),
    )
    z = base_points(50, "midpoint", like=raw)
    y, saved = fused.returns(raw.numpy(), law, z.numpy())
    wanted, wanted_saved = flow_raw.returns_forward(raw, (2.0, 5.0), z)
    assert_close(torch.from_numpy(y), wanted, rtol=1e-5, atol=1e-5)
    slope = torch.randn(40, 50, generator=draws)
    found = fused.gradient(slope.numpy(), raw.numpy(), law, z.numpy(), saved)
    assert_close(torch.from_numpy(found), flow_raw.returns_backward(slope, wanted_saved), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ["dqn", "c51", "qr-dqn", "nfdrl-s", "nfdrl-e"])
def test_so_it_is_on_every_torso(space, name):
    assert_same(learner_of(METHODS[name], space), batch_of(space))


@pytest.mark.parametrize("name", ["dqn", "c51", "qr-dqn", "nfdrl-s", "nfdrl-e"])
def test_its_means_are_those_of_the_laws(name):
    learner = learner_of(METHODS[name])
    raw = learner.online.raw(batch_of().observation)
    wanted = learner.online.law(torch.from_numpy(raw)).mean()
    assert_close(torch.from_numpy(learner.direct.means(raw.reshape(ROWS, ACTIONS, -1))), wanted, rtol=1e-5, atol=1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.1, 1.0, 5.0, 30.0]), st.sampled_from(["nfdrl-s", "nfdrl-e"]))
def test_outputs_of_any_size_give_the_graphs_losses(seed, size, name):
    learner = learner_of(METHODS[name])
    draws = np.random.default_rng(seed)
    raw, following = (draws.normal(size=(8, ACTIONS, 13), scale=size).astype(np.float32) for _ in range(2))
    action, chosen = (draws.integers(ACTIONS, size=8) for _ in range(2))
    reward, discount = draws.normal(size=(2, 8)).astype(np.float32)
    discount = np.abs(discount).clip(max=1)
    losses, gradient = learner.direct.differentiate(raw, action, following, chosen, reward, discount)
    law, target = (learner.online.law(torch.from_numpy(part.reshape(8, -1)).double()) for part in (raw, following))
    target = target.select(torch.from_numpy(chosen)).bootstrap(torch.from_numpy(reward), torch.from_numpy(discount))
    wanted = learner.method.loss(law.select(torch.from_numpy(action)), target)
    assert np.isfinite(gradient).all()
    assert_close(torch.from_numpy(losses).double(), wanted, rtol=5e-3, atol=1e-5 * float(wanted.max()))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["dqn", "c51", "qr-dqn", "nfdrl-s", "nfdrl-e"])
def test_what_is_not_finite_spoils_its_row_and_no_other(bad, name):
    learner = learner_of(METHODS[name])
    batch = batch_of()
    raw = learner.online.raw(batch.observation).reshape(ROWS, ACTIONS, -1)
    rest = batch.action.numpy(), raw, np.zeros(ROWS, np.int64), batch.reward.numpy(), batch.discount.numpy()
    clean, _ = learner.direct.differentiate(raw, *rest)
    spoiled = raw.copy()
    spoiled[5, batch.action[5], 0] = bad
    with np.errstate(invalid="ignore"):
        losses, _ = learner.direct.differentiate(spoiled, *rest)
    assert not np.isfinite(losses[5])
    others = np.arange(ROWS) != 5
    assert np.array_equal(losses[others], clean[others])


def test_an_update_that_is_not_finite_moves_nothing():
    learner, batch = learner_of(FLOW), batch_of()
    batch.observation[0, 0] = torch.nan
    before = learner._online_weights.clone()
    learner.update(batch)
    assert learner.skipped == 1
    assert torch.equal(learner._online_weights, before)


def test_other_settings_go_through_the_graph(monkeypatch):
    for method in (
        replace(FLOW, n_flows=2),
        replace(FLOW, comparison=Comparison(bandwidth=0.05)),
        replace(FLOW, comparison=Comparison(rooted=True)),
        replace(FLOW, comparison=Comparison(support="samples")),
        METHODS["er-dqn"],
    ):
        assert learner_of(method).direct is None
    assert learner_of(FLOW, direct=False).direct is None
    network = network_for(FLOW, SPACES["numbers"], ACTIONS, TorsoSizes(), seed=0)
    assert Learner(FLOW, network, Optimisation(), risk=CVaR(0.1)).direct is None
    monkeypatch.setattr("nfdrl.laws.flow.find_spec", lambda name: None if name == "numba" else find_spec(name))
    assert learner_of(FLOW).direct is None
    assert learner_of(METHODS["dqn"]).direct is not None


def test_the_elementary_functions_are_those_of_the_library():
    t = np.linspace(-9, 9, 4001).astype(np.float32)

    @njit
    def all_three(t, gauss, erf, softplus):
        for k in range(len(t)):
            gauss[k] = fused.exp_negative(-t[k] * t[k])
            erf[k] = fused.erf_of(t[k], gauss[k])
            softplus[k] = fused.softplus(3 * t[k])

    gauss, erf, softplus = np.empty((3, len(t)), np.float32)
    all_three(t, gauss, erf, softplus)
    exact = torch.from_numpy(t.astype(np.float64))
    assert_close(torch.from_numpy(gauss).double(), torch.exp(-exact.square()), rtol=1e-5, atol=2e-38)
    assert_close(torch.from_numpy(erf).double(), torch.erf(exact), rtol=0, atol=6e-7)
    wanted = torch.logaddexp(3 * exact, torch.zeros(()).double())
    assert_close(torch.from_numpy(softplus).double(), wanted, rtol=2e-6, atol=0)
