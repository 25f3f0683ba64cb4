"""What a user of Stable-Baselines3 does in the first week, with the released package beside ours where it can be."""

from __future__ import annotations

import copy
import pickle
import re
import sys
import types
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from torch import Tensor

import nfdrl
from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.layers import layers
from nfdrl.errors import NfdrlError
from nfdrl.losses.exact import Exact
from nfdrl.losses.l2 import L2
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Evaluation, Event
from nfdrl.training.trackers import read_evaluations

SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=50, buffer_size=300, target_every=7, torso=TorsoSizes(mlp=(8, 8))
)


def new(env: Any = "CartPole-v1", method: str = "nfdrl-s", config: TrainConfig = SMALL, **settings: Any) -> Agent:
    return Agent(method, env, seed=3, config=config, device="cpu", **settings)


def everything(agent: Agent) -> dict[str, Tensor]:
    """Weights, optimiser, generators, and the replay."""
    replay = agent.trainer.replay
    arrays = (replay.action, replay.reward, replay.kept, replay.ended, replay.live, replay.position)
    draws = np.array(copy.deepcopy(agent.trainer.rng).integers(2**62))
    return agent.trainer.tensors() | {str(k): torch.from_numpy(a) for k, a in enumerate([*arrays, draws])}


def assert_same(first: Agent, second: Agent) -> None:
    ours, theirs = everything(first), everything(second)
    ours.pop("trainer.loss", None)  # the mean since the last report, and every call ends with one
    theirs.pop("trainer.loss", None)
    assert first.step == second.step
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not torch.equal(value, theirs[name])] == []


# Several calls of `learn`.

ENVS: dict[str, tuple[Callable[[], Any], TrainConfig]] = {
    "an id": (lambda: "CartPole-v1", SMALL),
    "three environments": (lambda: "CartPole-v1", replace(SMALL, num_envs=3)),
    "an environment": (lambda: gymnasium.make("FrozenLake-v1"), SMALL),
    "statistics": (lambda: gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1")), SMALL),
    "next step": (lambda: gymnasium.make_vec("CartPole-v1", 3), SMALL),
    "same step": (
        lambda: SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3, autoreset_mode=AutoresetMode.SAME_STEP),
        SMALL,
    ),
}


@pytest.mark.parametrize("risk", ["mean", "cvar:0.1"])
@pytest.mark.parametrize("name", ENVS)
def test_calls_within_a_plan_are_one_call_bit_for_bit(name: str, risk: str) -> None:
    make, config = ENVS[name]
    once = new(make(), config=config, risk=risk).learn(200, progress=False)
    several = new(make(), config=config, risk=risk).learn(30, total_steps=200, progress=False)
    for steps in (65, 55, 50):
        several.learn(steps, progress=False)
    assert_same(once, several)


def test_a_plan_survives_saving(tmp_path: Path) -> None:
    agent = new().learn(100, total_steps=200, progress=False)
    agent.save(tmp_path, replay=True)
    assert_same(agent.learn(100, progress=False), Agent.load(tmp_path, device="cpu").learn(100, progress=False))


def test_acting_sampling_and_evaluating_between_two_calls_change_nothing() -> None:
    quiet = new(method="iqn").learn(200, progress=False)
    watched = new(method="iqn").learn(120, total_steps=200, progress=False)
    watched.predict(np.zeros((50, 4)), deterministic=False)
    watched.returns(np.zeros((5, 4))).sample(10)
    watched.evaluate(2)
    assert_same(quiet, watched.learn(80, progress=False))


def test_a_plan_that_is_exceeded_says_so_and_is_stretched() -> None:
    agent = new().learn(100, progress=False)
    assert agent.learner.learning_rate < agent.config.rate(0.0) * 0.03
    with pytest.warns(UserWarning, match=r"planned for 100 steps .* to 150: .* learning rate 0, .* pass total_steps"):
        agent.learn(50, progress=False)
    assert agent.trainer.plan == 150
    steady = replace(SMALL, learning_rate_decay="constant", epsilon_start=0.04)
    new(config=steady).learn(60, progress=False).learn(60, progress=False)  # nothing to warn of
    with pytest.raises(NfdrlError, match="total_steps must be at least 250, the steps so far and these, got 200"):
        agent.learn(100, total_steps=200, progress=False)


def test_an_environment_that_was_used_in_between_is_reset() -> None:
    env = gymnasium.make("CartPole-v1")
    agent = new(env).learn(100, total_steps=200, progress=False)
    observation, _ = env.reset(seed=0)
    for _ in range(5):
        observation = env.step(int(agent.predict(observation)[0]))[0]
    agent.learn(1, progress=False)
    replay = agent.trainer.replay
    batch = replay.transitions_at(np.flatnonzero(replay.live)[-1:])
    (place, speed, *_), (reached, *_) = batch.observation[0].tolist(), batch.next_observation[0].tolist()
    # One step of CartPole moves the cart by 0.02 times its speed: the transition begins where the environment was.
    assert reached == pytest.approx(place + 0.02 * speed)


@pytest.mark.parametrize("steps", [1e2, np.int64(100), np.float64(100)])
def test_steps_may_be_any_whole_number(steps: Any) -> None:
    assert new().learn(steps, progress=False).step == 100
    with pytest.raises(NfdrlError, match=r"steps must be a whole number, got 0\.5"):
        new().learn(0.5, progress=False)  # type: ignore[arg-type]


# An agent comes back with its own environment.


class Doubled(gymnasium.RewardWrapper[Any, Any]):
    """A wrapper as most people write them, which records nothing."""

    def __init__(self, env: Any, factor: float = 2.0) -> None:
        super().__init__(env)
        self.factor = factor

    def reward(self, reward: Any) -> float:
        return self.factor * float(reward)


class Recorded(gymnasium.utils.RecordConstructorArgs, Doubled):
    def __init__(self, env: Any, factor: float = 2.0) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, factor=factor)
        Doubled.__init__(self, env, factor)


class Forgetful(Recorded):
    """Its second argument is not recorded."""

    def __init__(self, env: Any, factor: float = 2.0, offset: float = 0.0) -> None:
        super().__init__(env, factor)
        self.offset = offset

    def reward(self, reward: Any) -> float:
        return super().reward(reward) + self.offset


def lake(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("FrozenLake-v1", **settings)


def cart(**settings: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make("CartPole-v1", **settings)


wrap = gymnasium.wrappers
RECORDED: dict[str, Callable[[], Any]] = {
    "arguments": lambda: lake(is_slippery=False),
    "a list of texts": lambda: lake(desc=["SFF", "FFF", "FFG"]),
    "a limit": lambda: cart(max_episode_steps=7),
    "a limit around a skip": lambda: wrap.TimeLimit(wrap.MaxAndSkipObservation(cart(), 2), 5),
    "statistics": lambda: wrap.NormalizeReward(wrap.NormalizeObservation(cart()), gamma=0.9),
    "a tuple": lambda: wrap.ReshapeObservation(cart(), (2, 2)),
    "a number type": lambda: wrap.DtypeObservation(cart(), np.float64),
    "an array": lambda: wrap.RescaleObservation(
        wrap.ClipReward(gymnasium.make("MountainCar-v0", max_episode_steps=50), -0.5), np.float32(-1), np.float32(1)
    ),
    "a wrapper of one's own": lambda: Recorded(cart(), 3.0),
    "a vector environment": lambda: gymnasium.make_vec("CartPole-v1", 3, max_episode_steps=9),
    "environments in a row": lambda: gymnasium.make_vec(
        "CartPole-v1", 3, "sync", {"autoreset_mode": AutoresetMode.SAME_STEP}, max_episode_steps=9
    ),
}


@pytest.mark.parametrize("name", RECORDED)
def test_an_agent_comes_back_with_its_own_environment(name: str, tmp_path: Path) -> None:
    agent = new(RECORDED[name]()).learn(120, total_steps=160, progress=False)
    expected = agent.evaluate(4)
    agent.save(tmp_path, replay=True)
    loaded = Agent.load(tmp_path, device="cpu")
    kinds = [
        [type(layer) for layer in layers(one.source.given) if not isinstance(layer, wrap.PassiveEnvChecker)]
        for one in (agent, loaded)
    ]
    assert kinds[0] == kinds[1]
    found = loaded.evaluate(4)
    assert found.returns.tolist() == expected.returns.tolist()
    assert found.lengths.tolist() == expected.lengths.tolist()
    assert_same(agent.learn(40, progress=False), loaded.learn(40, progress=False))


UNRECORDED: dict[str, tuple[Callable[[], Any], str]] = {
    "a function": (lambda: wrap.TransformReward(cart(), lambda reward: 100 * reward), "func of TransformReward is a"),
    "no arguments recorded": (lambda: Doubled(cart(), 3.0), "Doubled does not record its arguments"),
    "not all recorded": (lambda: Forgetful(cart(), 3.0, 1.0), "Forgetful does not record its arguments"),
    "not registered": (lambda: gymnasium.envs.classic_control.CartPoleEnv(), "not registered with Gymnasium"),
    "sub-environments": (lambda: SyncVectorEnv([cart] * 2), "not registered with Gymnasium"),
    "a vector wrapper": (
        lambda: wrap.vector.NormalizeObservation(gymnasium.make_vec("CartPole-v1", 2)),
        "does not record the vector wrapper NormalizeObservation",
    ),
    "wrappers of make_vec": (lambda: gymnasium.make_vec("CartPole-v1", 2, "sync", wrappers=[Doubled]), "are functions"),
}


@pytest.mark.parametrize("name", UNRECORDED)
def test_an_environment_that_cannot_be_made_again_must_be_passed(name: str, tmp_path: Path) -> None:
    make, reason = UNRECORDED[name]
    agent = new(wrap.TimeLimit(make(), 30) if name == "not registered" else make()).learn(100, progress=False)
    agent.save(tmp_path)
    with pytest.raises(NfdrlError, match=rf"^the saved environment .*{reason}.*: pass env=$"):
        Agent.load(tmp_path)
    loaded = Agent.load(tmp_path, make(), device="cpu")
    observations = np.random.default_rng(0).normal(size=(20, 4))
    assert loaded.predict(observations)[0].tolist() == agent.predict(observations)[0].tolist()
    blind = Agent.load(tmp_path, env=False, device="cpu")
    assert blind.predict(observations)[0].tolist() == agent.predict(observations)[0].tolist()
    with pytest.raises(NfdrlError, match="without an environment"):
        blind.learn(10)


# Evaluation, wherever training was possible.


class Endless(gymnasium.Env[Any, Any]):
    """Never ends, and is not registered; it counts its own steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ARG002
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ARG002
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 1.0, False, False, {}


class Locked(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cannot be copied, like an environment with an open file or a process."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot be copied")


EVALUATED: dict[str, Callable[[], Any]] = {
    **RECORDED,
    **{name: make for name, (make, _) in UNRECORDED.items() if name != "not registered"},
    "two vector wrappers": lambda: wrap.vector.TransformReward(
        wrap.vector.NormalizeObservation(gymnasium.make_vec("CartPole-v1", 3, "sync")), lambda reward: 2 * reward
    ),
    "processes": lambda: gymnasium.make_vec("CartPole-v1", 2, "async"),
}


@pytest.mark.parametrize("name", EVALUATED)
def test_every_environment_that_trained_evaluates_without_a_trace(name: str) -> None:
    quiet, watched = (new(EVALUATED[name]()) for _ in range(2))
    quiet.learn(160, progress=False)
    watched.learn(100, total_steps=160, progress=False)
    first = watched.evaluate(5, seed=7, progress=False)
    assert first.returns.shape == (5,)
    assert watched.evaluate(5, seed=7, progress=False).returns.tolist() == first.returns.tolist()
    if not isinstance(watched.source.given, VectorEnv):  # each episode has a seed of its own
        assert watched.evaluate(2, seed=10, progress=False).returns.tolist() == first.returns[3:].tolist()
    assert_same(quiet, watched.learn(60, progress=False))


def test_rewards_and_limits_of_wrappers_count() -> None:
    agent = new(Doubled(cart(max_episode_steps=9), 3.0)).learn(60, progress=False)
    found = agent.evaluate(4)
    assert found.returns.tolist() == (3 * found.lengths).tolist()
    assert found.lengths.max() <= 9


def test_an_endless_episode_is_cut_off_and_said_so() -> None:
    agent = new(Endless()).learn(60, progress=False)
    with pytest.warns(UserWarning, match="3 of 3 episodes had not ended after 25 steps .* pass max_steps"):
        found = agent.evaluate(3, max_steps=25)
    assert found.lengths.tolist() == [25, 25, 25]
    assert found.summary()["cut"] == found.cut == 3
    assert "cut" not in new().evaluate(1).summary()
    with pytest.raises(NfdrlError, match="max_steps must be at least 1, got 0"):
        agent.evaluate(3, max_steps=0)


def test_stable_baselines_sees_the_returns_that_we_see() -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    agent = new().learn(200, progress=False)
    monitored = Monitor(cart())
    monitored.reset(seed=123)
    theirs, _ = evaluate_policy(agent, monitored, n_eval_episodes=1, return_episode_rewards=True, warn=False)
    assert len(theirs) == 1
    # The other way round: its Monitor is a wrapper that records nothing of itself, and counts each of our episodes.
    ours = agent.evaluate(4, env=monitored)
    assert monitored.get_episode_rewards()[-4:] == ours.returns.tolist()
    assert new(Monitor(cart())).learn(60, progress=False).evaluate(2).returns.shape == (2,)
    # Its vector environments reset themselves, as ours do in SAME_STEP mode.
    from stable_baselines3.common.vec_env import DummyVecEnv

    vector = DummyVecEnv([cart, cart])
    vector.seed(5)
    theirs, _ = evaluate_policy(agent, vector, n_eval_episodes=2, return_episode_rewards=True, warn=False)
    assert sorted(theirs) == sorted(agent.evaluate(2, seed=5).returns.tolist())


def test_statistics_of_training_are_used_and_stay_as_they_are(tmp_path: Path) -> None:
    env = wrap.NormalizeObservation(cart())
    agent = new(env).learn(150, progress=False)
    count, mean = env.obs_rms.count, env.obs_rms.mean.copy()
    expected = agent.evaluate(5)
    other = wrap.NormalizeObservation(cart())
    for _ in range(3):
        other.reset()
    assert agent.evaluate(5, env=other).returns.tolist() == expected.returns.tolist()
    assert other.update_running_mean  # as it was
    assert env.obs_rms.count == other.obs_rms.count == count
    assert (env.obs_rms.mean == mean).all()
    assert env.update_running_mean
    # By hand, and by Stable-Baselines3 with its own normalisation frozen at the same statistics.
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    vector = VecNormalize(DummyVecEnv([cart]), training=False, norm_reward=False, epsilon=env.epsilon, clip_obs=1e9)
    vector.obs_rms.mean, vector.obs_rms.var = mean, env.obs_rms.var
    vector.seed(10_000)
    theirs, _ = evaluate_policy(agent, vector, n_eval_episodes=1, return_episode_rewards=True, warn=False)
    assert theirs == expected.returns[:1].tolist()


def test_an_environment_of_its_own_is_checked_and_left_open() -> None:
    agent = new().learn(100, progress=False)
    with pytest.raises(NfdrlError, match="observation_space"):
        agent.evaluate(1, env="MountainCar-v0")
    short = cart(max_episode_steps=4)
    assert agent.evaluate(3, env=short).lengths.tolist() == [4, 4, 4]
    short.reset()
    assert agent.evaluate(3, env="CartPole-v1[sutton_barto_reward=true]").returns.tolist() == [-1.0] * 3
    vector = gymnasium.make_vec("CartPole-v1", 2, max_episode_steps=4)
    assert agent.evaluate(5, env=vector).lengths.tolist() == [4] * 5


def test_an_environment_that_cannot_be_copied_is_evaluated_between_two_calls_only() -> None:
    agent = new(Locked(cart())).learn(60, total_steps=120, progress=False)
    with pytest.warns(UserWarning, match="cannot be copied: evaluating ends its episode"):
        agent.evaluate(1)
    for _ in agent.events(60):
        with pytest.raises(NfdrlError, match="training needs it: pass another as env="):
            agent.evaluate(1)
        assert agent.evaluate(1, env=cart()).returns.shape == (1,)
    with pytest.raises(NfdrlError, match=r"cannot be copied: .* num_envs=1"):
        new(Locked(cart()), config=replace(SMALL, num_envs=2)).learn(10, progress=False)


# Callbacks.


def test_evaluating_during_training_changes_no_bit_and_keeps_the_best(tmp_path: Path) -> None:
    quiet, watched = (new() for _ in range(2))
    quiet.learn(300, progress=False)
    seen: list[Evaluation] = []
    evaluate = nfdrl.Evaluate(every=60, episodes=3, env=cart(), best=tmp_path / "best")

    def note(agent: Agent, event: Event) -> None:
        assert agent is watched
        if isinstance(event, Evaluation):
            seen.append(event)

    watched.learn(300, callbacks=[evaluate, note], progress=False)
    assert_same(quiet, watched)
    assert [event.step // 60 for event in seen] == [1, 2, 3, 4, 5]
    best = max(seen, key=lambda event: event.mean)
    loaded = Agent.load(tmp_path / "best", device="cpu")
    assert loaded.step == best.step
    assert evaluate.highest == best.mean == loaded.evaluate(3).mean


def test_a_callback_stops_training_and_everything_is_closed() -> None:
    closed: list[str] = []

    class Listening:
        def begin(self, agent: Agent) -> None:
            self.steps = [agent.step]

        def __call__(self, agent: Agent, event: Event) -> bool:  # noqa: ARG002
            self.steps.append(event.step)
            return event.step < 100

        def close(self) -> None:
            closed.append("closed")

    listening = Listening()
    agent = new().learn(300, callbacks=[listening], progress=False)
    assert listening.steps[0] == 0
    assert 100 <= agent.step == listening.steps[-1] < 300
    assert closed == ["closed"]
    assert agent.learn(50, progress=False).step == listening.steps[-1] + 50  # still within its plan


def test_training_stops_at_a_return() -> None:
    easy = new(cart(max_episode_steps=5), config=replace(SMALL, report_every=20))
    easy.learn(900, callbacks=[nfdrl.Evaluate(every=50, episodes=2), nfdrl.StopAt(5.0)], progress=False)
    assert easy.step < 100
    again = new(cart(max_episode_steps=5), config=replace(SMALL, report_every=20))
    again.learn(900, callbacks=[nfdrl.StopAt(4.9, "training")], progress=False)
    assert 500 <= again.step < 900  # after a hundred episodes
    with pytest.raises(NfdrlError, match="unknown return to stop at 'best'"):
        nfdrl.StopAt(5.0, "best")  # type: ignore[arg-type]
    with pytest.raises(NfdrlError, match="every must be at least 1, got 0"):
        nfdrl.Evaluate(every=0)


def test_stable_baselines_evaluates_as_often_as_we_do() -> None:
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import EvalCallback
    from stable_baselines3.common.monitor import Monitor

    theirs: list[int] = []

    class Noting(EvalCallback):
        def _on_step(self) -> bool:
            if self.n_calls % self.eval_freq == 0:
                theirs.append(self.num_timesteps)
            return super()._on_step()

    DQN("MlpPolicy", cart(), learning_starts=50, device="cpu").learn(
        300, callback=Noting(Monitor(cart()), eval_freq=100, n_eval_episodes=1, verbose=0)
    )
    ours: list[int] = []

    def note(agent: Agent, event: Event) -> None:
        if isinstance(event, Evaluation):
            ours.append(event.step)

    new().learn(300, callbacks=[nfdrl.Evaluate(every=100, episodes=1), note], progress=False)
    assert ours == theirs == [100, 200, 300]


def test_dashboards_get_reports_and_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: dict[str, set[int]] = {}
    settings: dict[str, Any] = {}

    class Run:
        def log(self, numbers: dict[str, float], step: int) -> None:
            for name in numbers:
                logged.setdefault(name, set()).add(step)

        def finish(self) -> None:
            logged["finished"] = set()

    stub = types.ModuleType("wandb")  # its documented interface: init, Run.log and Run.finish

    def init(*, project: str, name: str | None, config: dict[str, Any]) -> Run:
        assert (project, name) == ("pole", "first")
        settings.update(config)
        return Run()

    stub.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", stub)
    listeners = [nfdrl.TensorBoard(tmp_path), nfdrl.WeightsAndBiases("pole", "first")]
    new().learn(100, callbacks=[nfdrl.Evaluate(every=50, episodes=1), *listeners], progress=False)
    assert logged["evaluate/mean"] == logged["train/epsilon"] == {50, 100}
    assert "finished" in logged
    assert (settings["seed"], settings["train"]["batch_size"]) == (3, 8)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path)).Reload()
    assert {event.step for event in events.Scalars("evaluate/mean")} == {50, 100}
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(NfdrlError, match=r'pip install "nfdrl\[wandb\]"'):
        nfdrl.WeightsAndBiases("pole")


# Small things.


def test_agents_and_laws_show_what_they_are() -> None:
    agent = new(risk="cvar:0.1").learn(100, total_steps=200, progress=False)
    assert repr(agent) == "Agent(nfdrl-s on CartPole-v1: 100 of 200 steps, risk cvar:0.1, seed 3, cpu)"
    assert "Endless: 0 steps, risk mean" in repr(new(Endless()))


@pytest.mark.parametrize("method", nfdrl.METHODS)
def test_a_law_shows_its_mean_spread_and_quantiles(method: str) -> None:
    law = new(method=method).returns(np.zeros((5, 4)))
    shown = repr(law)
    assert shown.startswith(f"{type(law).__name__} of shape (5, 2): mean [")
    assert len(shown) < 400
    one = law.select(torch.zeros(5, dtype=torch.long))
    numbers = re.findall(r"(mean|std|5 %|95 %) \[([-\d.e+]+),", repr(one))
    assert [name for name, _ in numbers] == ["mean", "std", "5 %", "95 %"]
    for (_, text), value in zip(numbers, (one.mean(), one.std(), one.quantile(0.05), one.quantile(0.95)), strict=True):
        assert float(text) == pytest.approx(float(value[0]), rel=1e-3, abs=1e-6)


def test_settings_may_be_a_dict_and_a_seed_may_be_drawn() -> None:
    agent = Agent("dqn", "CartPole-v1", config={"batch_size": 16, "torso": {"mlp": (8, 8)}}, device="cpu")
    assert agent.config == TrainConfig(batch_size=16, torso=TorsoSizes(mlp=(8, 8)), learning_rate=5e-4)
    wrong = (
        r"settings of training have unknown fields: learning_rates; did you mean 'learning_rate'\? \(known: discount, "
    )
    with pytest.raises(NfdrlError, match=wrong):
        Agent("dqn", "CartPole-v1", config={"learning_rates": 1e-3})
    seeds = {Agent("dqn", "CartPole-v1", seed=None, device="cpu").seed for _ in range(3)}
    assert len(seeds) == 3
    with pytest.raises(NfdrlError, match=r"seed must be a whole number, got 0\.5"):
        Agent("dqn", "CartPole-v1", seed=0.5)  # type: ignore[arg-type]


def test_an_environment_in_the_place_of_the_method_is_named_as_such() -> None:
    with pytest.raises(
        NfdrlError, match=r"'CartPole-v1' is an environment, not a method: write Agent\(env='CartPole-v1'\)"
    ):
        Agent("CartPole-v1")
    with pytest.raises(
        NfdrlError, match="method must be a name or a Method, got TimeLimit: an environment is passed as env="
    ):
        Agent(gymnasium.make("CartPole-v1"))  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["graph", "compiled"])
@pytest.mark.parametrize("steps", [30, 100], ids=["before learning", "after"])
def test_a_new_risk_counts_in_acting_and_in_learning(engine: Any, steps: int) -> None:
    config = replace(SMALL, engine=engine)
    agent, neutral = (new(config=config).learn(steps, total_steps=200, progress=False) for _ in range(2))
    before = everything(neutral)
    agent.risk = "cvar:0.1"
    assert str(agent.risk) == "cvar:0.1"
    assert all(torch.equal(value, before[name]) for name, value in everything(agent).items())  # nothing else changed
    observations = np.random.default_rng(0).normal(size=(40, 4))
    assert agent.predict(observations)[0].tolist() == agent.returns(observations).cvar(0.1).argmax(-1).tolist()
    agent.risk = lambda law: -law.mean()  # the worst action, which no learner would choose by itself
    if steps > SMALL.learning_starts:  # with equal weights, the same batch has other targets
        batch = copy.deepcopy(neutral).trainer.replay.sample(64)
        losses = [copy.deepcopy(one).learner.engine.differentiate(batch) for one in (agent, neutral)]
        assert not np.isclose(*losses)
    agent.learn(200 - steps, progress=False)
    neutral.learn(200 - steps, progress=False)
    assert agent.learner.engine.work.risk is agent.risk
    assert agent.predict(observations)[0].tolist() == agent.returns(observations).mean().argmin(-1).tolist()
    ours, theirs = (one.learner.online.state_dict() for one in (agent, neutral))
    assert any(not torch.equal(value, theirs[name]) for name, value in ours.items())
    with pytest.raises(NfdrlError, match="did you mean 'cvar'"):
        agent.risk = "cvr:0.1"
    with pytest.raises(NfdrlError, match="risk must be a word"):
        agent.risk = 3  # type: ignore[assignment]


class Closing(gymnasium.Wrapper[Any, Any, Any, Any]):
    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_an_agent_closes_what_it_made_and_nothing_else() -> None:
    given = Closing(cart())
    with new(given) as agent:
        agent.learn(50, total_steps=100, progress=False)
    assert not given.closed
    agent.learn(50, progress=False)  # and it can be used again
    made: list[Closing] = []

    def make() -> Closing:
        made.append(Closing(gymnasium.envs.classic_control.CartPoleEnv()))
        return made[-1]

    gymnasium.register("Closing-v0", make, max_episode_steps=20)
    try:
        with new("Closing-v0") as agent:
            agent.learn(50, progress=False).evaluate(3)
        assert all(env.closed for env in made)
        assert len(made) == 5  # one to look at, one to train in, three to evaluate in
    finally:
        del gymnasium.registry["Closing-v0"]


COPIES: dict[str, Callable[[Agent], Agent]] = {
    "copy": copy.deepcopy,
    "pickle": lambda agent: pickle.loads(pickle.dumps(agent)),
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("name", ["an id", "three environments", "statistics", "next step"])
@pytest.mark.parametrize("method", ["nfdrl-s", "fqf"])
def test_a_copy_learns_as_a_loaded_agent_does(name: str, method: str, how: str, tmp_path: Path) -> None:
    (make, config), copied = ENVS[name], COPIES[how]
    agent = new(make(), method, config).learn(120, total_steps=200, progress=False)
    twin = copied(agent)
    agent.save(tmp_path, replay=True)
    loaded = Agent.load(tmp_path, device="cpu").learn(80, progress=False)
    before = everything(twin)
    assert_same(loaded, agent.learn(80, progress=False))
    assert all(torch.equal(value, before[key]) for key, value in everything(twin).items() if not key.isdigit())
    twin = copied(Agent.load(tmp_path, device="cpu"))
    assert_same(loaded, twin.learn(80, progress=False))


def test_a_copy_of_what_cannot_be_copied_still_acts() -> None:
    agent = new(Locked(cart())).learn(60, progress=False)
    twin = copy.deepcopy(agent)
    assert twin.predict(np.zeros(4))[0] == agent.predict(np.zeros(4))[0]
    with pytest.raises(NfdrlError, match="without an environment"):
        twin.learn(10)


def test_a_discount_of_the_environment_is_compared_with_that_of_training() -> None:
    with pytest.warns(
        UserWarning, match=r"discount of 0\.9 of its own and training one of 0\.99, .* set discount=0\.9"
    ):
        new("nfdrl/MDP1-v0").learn(50, progress=False)
    new("nfdrl/MDP1-v0", config=replace(SMALL, discount=0.9)).learn(50, progress=False)


def test_every_setting_has_a_meaning_and_a_source() -> None:
    from nfdrl.cli.settings import rows_of

    methods = [*nfdrl.METHODS.values(), *(replace(nfdrl.METHODS["nfdrl-s"], comparison=kind()) for kind in (Exact, L2))]
    for settings in (TrainConfig(), *methods):
        assert [name for name, _, meaning, source in rows_of(settings) if not (meaning and source)] == []


def test_the_command_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["settings"]) == 0
    said = capsys.readouterr().out
    assert all(field.name in said for field in fields(TrainConfig) if field.name != "torso")
    assert "torso.mlp" in said
    assert main(["settings", "c51[atoms=13]"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"atoms +│ 13 +│ atoms of a law +│ Bellemare et al. 2017", said)
    assert main(["settings", "c52"]) == 2


def test_the_command_takes_round_numbers_and_evaluates_as_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--set", "learning_starts=40", "batch_size=8", "report_every=50", "buffer_size=300", "mlp=(8,8)"]
    line = ["train", "--no-progress", "--method", "dqn", "--steps", "3e2", "--evaluate-every", "1e2", "--evaluate", "2"]
    assert main([*line, "--out", str(tmp_path / "run"), *small]) == 0
    assert "300 steps" in capsys.readouterr().out
    assert [row.step for row in read_evaluations(tmp_path / "run" / "evaluations.csv")] == [100, 200, 300]
    assert Agent.load(tmp_path / "run" / "best").step in (100, 200, 300)
    assert main([*line, "--stop-at", "1", "--out", str(tmp_path / "stopped"), *small]) == 0
    assert "100 steps" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--max-steps", "3"]) == 0
    captured = capsys.readouterr()
    assert "return 3 ± 0 over 2 episodes" in captured.out
    assert "nfdrl: 2 of 2 episodes had not ended after 3 steps" in captured.err
    with pytest.raises(SystemExit):
        main(["train", "--steps", "0.5"])
