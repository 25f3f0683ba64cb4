"""How training acts: random actions, episodes by the mean, and what the replay is told of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from nfdrl.agent import Agent
from nfdrl.engines import Engine, Work, engine_for
from nfdrl.engines.base import Array
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.networks import network_for
from nfdrl.risk import CVaR, parse_risk
from nfdrl.torsos import TorsoSizes
from nfdrl.training.acting import Actor
from nfdrl.training.config import TrainConfig

OBSERVATIONS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)
SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=50, buffer_size=300, target_every=7, torso=TorsoSizes(mlp=(8, 8))
)


def averse_engine(engine: str = "auto", name: str = "nfdrl") -> Engine:
    """CVaR on a network whose laws differ in their tails, so that it often disagrees with the mean."""
    space = gymnasium.spaces.Box(-1, 1, (4,))
    network = network_for(METHODS[name], space, 3, TorsoSizes(mlp=(16,)), seed=0)
    generator = torch.Generator().manual_seed(0)
    for parameter in network.head.parameters():
        torch.nn.init.normal_(parameter, generator=generator)
    return engine_for(Work(METHODS[name], network, CVaR(0.1)), engine)  # type: ignore[arg-type]


def actor_with(episodes_by_mean: Sequence[bool], engine: Engine | None = None) -> Actor:
    actor = Actor(engine or averse_engine(), 3, np.random.default_rng(1), explore_by_mean=0.5)
    actor.begin(np.ones(len(episodes_by_mean), np.bool_))
    actor.by_mean[:] = episodes_by_mean
    return actor


def choices(engine: Engine) -> tuple[Array, Array]:
    """What the laws say: the best actions by CVaR and by the mean."""
    law = engine.work.online(torch.from_numpy(OBSERVATIONS))
    return law.cvar(0.1).argmax(-1).numpy(), law.mean().argmax(-1).numpy()


@pytest.mark.parametrize("engine", ["graph", "compiled"])
@pytest.mark.parametrize("name", ["nfdrl", "c51", "qr-dqn", "iqn"])
def test_some_environments_are_acted_in_by_the_mean_and_the_others_by_risk(engine: str, name: str) -> None:
    averse = averse_engine(engine, name)
    by_risk, by_mean = choices(averse)
    assert 0.1 < (by_risk != by_mean).mean() < 0.9
    halves = np.arange(400) % 2 == 0
    actor = actor_with(halves, averse)
    assert np.mean(actor.act(OBSERVATIONS, 0.0) == np.where(halves, by_mean, by_risk)) > 0.99  # but for ties
    assert np.array_equal(actor.explored[~halves], np.zeros(200, np.bool_))
    assert np.mean(actor.explored[halves] == (by_risk != by_mean)[halves]) > 0.99


def test_an_action_that_risk_agrees_with_is_not_explored_and_a_random_one_is() -> None:
    actor = actor_with([True] * 400)
    by_risk, _ = choices(actor.engine)
    chosen = actor.act(OBSERVATIONS, 0.0)
    assert np.array_equal(actor.explored, chosen != actor.engine.greedy(OBSERVATIONS))
    assert 0 < actor.explored.mean() < 1
    actor.act(OBSERVATIONS, 0.5)
    assert actor.explored.mean() > 0.5 * (1 + (chosen != by_risk).mean()) - 0.1


def test_only_episodes_that_begin_are_tossed_for() -> None:
    actor = actor_with([True, False] * 500)
    before, begun = actor.by_mean.copy(), np.arange(1000) < 400
    actor.begin(begun)
    assert np.array_equal(actor.by_mean[400:], before[400:])
    assert not np.array_equal(actor.by_mean[:400], before[:400])
    assert actor.by_mean[:400].mean() == pytest.approx(0.5, abs=0.1)  # four standard errors


@pytest.mark.parametrize(("share", "risk"), [(0.0, "cvar:0.1"), (0.5, "mean")])
def test_no_coin_is_tossed_where_there_is_nothing_to_choose(share: float, risk: str) -> None:
    engine = averse_engine()
    engine.work = replace(engine.work, risk=parse_risk(risk))
    actor = Actor(engine, 3, np.random.default_rng(1), explore_by_mean=share)
    before = actor.rng.bit_generator.state
    actor.begin(np.ones(5, np.bool_))
    assert actor.rng.bit_generator.state == before
    assert not actor.by_mean.any()


def test_an_agent_that_acts_by_the_mean_learns_the_same_bits_whatever_the_share() -> None:
    weights = [
        Agent("nfdrl", "CartPole-v1", seed=3, config=replace(SMALL, explore_by_mean=share))
        .learn(200, progress=False)
        .network.head.linear.weight
        for share in (0.0, 1.0)
    ]
    assert torch.equal(*weights)


def test_an_averse_agent_walks_along_the_cliff_in_episodes_by_the_mean_and_nowhere_else() -> None:
    """At the start of the cliff the mean prefers the short way and CVaR the long one."""
    shares = []
    for share in (0.0, 0.5, 1.0):
        config = TrainConfig(discount=1.0, epsilon_end=0.0, explore_by_mean=share)
        agent = Agent("nfdrl", "nfdrl/RiskyCliff-v0", seed=0, risk="cvar:0.1", config=config)
        agent.learn(6_000, progress=False)
        assert agent.predict(0)[0] == 1
        replay = agent.trainer.replay
        states = replay.storage.gather(np.arange(len(replay.live))).numpy().ravel()
        late = replay.live & (states == 0) & (np.arange(len(states)) > 3_000)
        shares.append(float((replay.action[late] == 0).mean()))
    assert shares[0] < 0.1
    assert shares[1] == pytest.approx(0.5, abs=0.1)
    assert shares[2] > 0.9


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(NfdrlError, match=r"explore_by_mean must lie in \[0, 1\]"):
        TrainConfig(explore_by_mean=share)


def test_finite_states_are_learned_at_the_methods_rate_for_them() -> None:
    rates = {env: Agent("nfdrl", env).config.learning_rate for env in ("FrozenLake-v1", "CartPole-v1")}
    assert rates == {"FrozenLake-v1": 4e-3, "CartPole-v1": 1e-3}
    assert Agent("c51", "FrozenLake-v1").config.learning_rate == Agent("c51", "CartPole-v1").config.learning_rate
    assert Agent("nfdrl", "FrozenLake-v1", config={"learning_rate": 2e-3}).config.learning_rate == 2e-3
