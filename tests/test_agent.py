from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from rich.console import Console
from torch import Tensor
from torch.testing import assert_close

import nfdrl
from nfdrl.agent import Agent
from nfdrl.bellman import bellman_target
from nfdrl.envs.make import source_of
from nfdrl.envs.stepping import Step
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, Law
from nfdrl.laws.categorical import C51
from nfdrl.learner import Learner, Optimisation
from nfdrl.networks import table
from nfdrl.replay import Batch, Replay
from nfdrl.risk import CVaR
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import Evaluation, Report
from nfdrl.training.presets import PRESETS, find_preset
from nfdrl.training.ranges import observed_range, observed_reward
from nfdrl.training.trackers import ProgressTracker

SMALL = TrainConfig(learning_starts=64, batch_size=16, report_every=50, torso=TorsoSizes(mlp=(16, 16)))


@pytest.fixture(scope="module")
def agent() -> Agent:
    return Agent("nfdrl-s", "CartPole-v1", seed=3, config=SMALL).learn(200, progress=False)


def weights(agent: Agent) -> dict[str, Tensor]:
    return agent.learner.online.state_dict()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1"])
def test_every_method_learns_acts_and_survives_save_and_load(method: str, env: str, tmp_path: Path) -> None:
    agent = Agent(method, env, config=SMALL).learn(100, total_steps=140, progress=False)
    before = [value.clone() for value in weights(agent).values()]
    agent.learn(40, progress=False)
    assert any(not torch.equal(old, new) for old, new in zip(before, weights(agent).values(), strict=True))
    assert agent.learner.updates == (140 - 64 + 1) // 2
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    assert loaded.method == agent.method
    assert loaded.config == agent.config
    observation = agent.observation_space.sample()
    assert_close(loaded.returns(observation).mean(), agent.returns(observation).mean(), rtol=0, atol=0)
    names = ["config.json", "manifest.json", "state.json", "weights.safetensors"]
    assert sorted(path.name for path in (tmp_path / "agent").iterdir()) == names


def test_predict_has_the_shapes_of_stable_baselines(agent: Agent) -> None:
    action, state = agent.predict(np.zeros(4, np.float32))
    assert isinstance(action, np.ndarray)
    assert action.shape == ()
    assert state is None
    assert agent.predict(np.zeros((5, 4)))[0].shape == (5,)
    assert agent.predict([0.0, 0.0, 0.0, 0.0])[0].dtype == np.int64
    lake = Agent("dqn", "FrozenLake-v1")
    assert lake.predict(3)[0].shape == ()
    assert lake.predict(np.array([3, 4]))[0].shape == (2,)
    with pytest.raises(NfdrlError, match=r"shape \(4,\)"):
        agent.predict(np.zeros(3))


def test_stable_baselines_evaluates_our_agent(agent: Agent) -> None:
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    returns, lengths = evaluate_policy(
        agent, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=3, return_episode_rewards=True
    )
    assert returns == [float(length) for length in lengths]


def test_predict_without_determinism_explores(agent: Agent) -> None:
    noisy = Agent("dqn", "CartPole-v1", config=replace(SMALL, epsilon_end=1.0))
    assert set(noisy.predict(np.zeros((64, 4)), deterministic=False)[0]) == {0, 1}
    assert len(set(noisy.predict(np.zeros((64, 4)))[0])) == 1


def test_returns_are_laws_of_all_actions(agent: Agent) -> None:
    observations = np.random.default_rng(0).normal(size=(3, 4))
    batch = agent.returns(observations)
    assert batch.batch_shape == (3, 2)
    one = agent.returns(observations[1])
    assert one.batch_shape == (2,)
    assert_close(one.mean(), batch.mean()[1])
    assert not one.mean().requires_grad
    assert agent.predict(observations)[0].tolist() == batch.mean().argmax(-1).tolist()


def test_evaluation_depends_on_the_seed_alone(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    first = agent.evaluate(5, seed=7)
    assert first.returns.shape == first.lengths.shape == (5,)
    assert first.mean == first.returns.mean()
    monkeypatch.setattr("nfdrl.agent.EVALUATION_ENVS", 2)
    assert agent.evaluate(5, seed=7).returns.tolist() == first.returns.tolist()
    with pytest.raises(NfdrlError, match="episodes"):
        agent.evaluate(0)


@pytest.mark.parametrize("method", ["nfdrl-s", "iqn"])
def test_the_same_seed_gives_the_same_weights(method: str) -> None:
    first, second, other = (
        Agent(method, "CartPole-v1", seed=seed, config=SMALL).learn(150, progress=False) for seed in (5, 5, 6)
    )
    for name, value in weights(first).items():
        assert torch.equal(value, weights(second)[name]), name
    assert any(not torch.equal(value, weights(other)[name]) for name, value in weights(first).items())


def test_acting_and_evaluating_do_not_disturb_learning() -> None:
    quiet, watched = (Agent("nfdrl-s", "CartPole-v1", config=SMALL) for _ in range(2))
    quiet.learn(150, progress=False)
    for event in watched.events(150):
        if isinstance(event, Report):
            watched.predict(np.zeros((3, 4)))
            watched.evaluate(1)
    assert all(torch.equal(value, weights(watched)[name]) for name, value in weights(quiet).items())


@pytest.mark.parametrize("method", METHODS)
def test_the_range_is_observed_and_the_first_weights_stay(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Learner] = []
    monkeypatch.setattr("nfdrl.training.loop.Learner", lambda *a, **k: built.append(Learner(*a, **k)) or built[-1])
    monkeypatch.setattr("nfdrl.training.loop.observed_range", lambda _: (-3.0, 7.0))
    agent = Agent(method, "CartPole-v1", config=replace(SMALL, train_every=10**6))
    network, first = agent.network, {name: value.clone() for name, value in agent.network.state_dict().items()}
    agent.learn(SMALL.learning_starts - 1, total_steps=200, progress=False)
    assert agent.method is METHODS[method]
    assert agent.predict(np.zeros((5, 4)))[0].shape == (5,)
    assert agent.returns(np.zeros((5, 4))).batch_shape == (5, 2)
    with pytest.raises(NfdrlError, match="begins after 64 random steps, got 63"):
        _ = agent.learner
    agent.learn(50, progress=False)
    assert built == [agent.learner]  # once
    assert agent.learner.online is agent.network is network
    assert agent.learner.method is agent.method
    assert all(torch.equal(value, first[name]) for name, value in network.state_dict().items())
    assert agent.method == METHODS[method].within(-3.0, 7.0)
    if isinstance(agent.method, C51):
        law = agent.returns(np.zeros(4))
        assert (law.cdf(-3.1) == 0).all()
        assert (law.cdf(7.0) > 1 - 1e-5).all()


def test_learning_leaves_global_generators_alone() -> None:
    np.random.seed(1)  # noqa: NPY002
    state, draws = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    Agent("iqn", "CartPole-v1", config=SMALL).learn(100, progress=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert (np.random.get_state()[1] == draws).all()  # type: ignore[index]  # noqa: NPY002


def test_a_loaded_agent_continues_learning(agent: Agent, tmp_path: Path) -> None:
    agent.save(tmp_path)
    loaded = Agent.load(tmp_path)
    assert (loaded.step, loaded.learner.updates) == (agent.step, agent.learner.updates)
    saved, restored = agent.learner.tensors(), loaded.learner.tensors()
    assert saved.keys() == restored.keys()
    assert all(torch.equal(value, restored[name]) for name, value in saved.items())
    loaded.learn(100, total_steps=agent.step + 100, progress=False)
    assert loaded.step == agent.step + 100
    assert loaded.learner.updates > agent.learner.updates


def test_risk_chooses_the_action_and_is_saved(tmp_path: Path) -> None:
    averse = Agent("nfdrl-s", "CartPole-v1", config=SMALL, risk="cvar:0.1").learn(100, progress=False)
    averse.save(tmp_path / "averse")
    loaded = Agent.load(tmp_path / "averse")
    assert loaded.risk == CVaR(0.1)
    observations = np.random.default_rng(0).normal(size=(20, 4))
    expected = averse.returns(observations).cvar(0.1).argmax(-1)
    assert loaded.predict(observations)[0].tolist() == expected.tolist()

    def second_action(law: Law) -> Tensor:
        return torch.tensor([0.0, 1.0]).expand(law.batch_shape)

    own = Agent("dqn", "CartPole-v1", config=SMALL, risk=second_action)
    assert own.predict(observations)[0].tolist() == [1] * 20
    own.save(tmp_path / "own")
    with pytest.raises(NfdrlError, match="pass it as `risk`"):
        Agent.load(tmp_path / "own")
    assert Agent.load(tmp_path / "own", risk=second_action).predict(observations)[0].tolist() == [1] * 20


def test_loading_into_another_environment_is_refused(agent: Agent, tmp_path: Path) -> None:
    with pytest.raises(NfdrlError, match=r"no saved agent .* manifest.json is missing"):
        Agent.load(tmp_path / "nowhere")
    agent.save(tmp_path)
    with pytest.raises(NfdrlError, match="observation_space"):
        Agent.load(tmp_path, "MountainCar-v0")


@pytest.mark.parametrize(
    ("method", "env", "message"),
    [
        ("dqnn", "CartPole-v1", "did you mean 'dqn'"),
        ("dqn", "CartPol-v1", "did you mean 'CartPole-v1'"),
        ("dqn", "Pendulum-v1", "discretise"),
        ("dqn", 3, "must be an id"),
    ],
)
def test_bad_input_says_what_to_do(method: str, env: Any, message: str) -> None:
    with pytest.raises(NfdrlError, match=message):
        Agent(method, env)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise gymnasium.error.DependencyNotInstalled(
            'Box2D is not installed, you can install it by run `pip install "x"`'
        )

    monkeypatch.setattr(gymnasium, "make", refuse)
    with pytest.raises(NfdrlError, match=r'pip install "nfdrl\[box2d\]"'):
        source_of("LunarLander-v3")


def test_agents_learn_from_images() -> None:
    class Pixels(gymnasium.Env[Any, Any]):
        observation_space = Box(0, 255, (6, 6, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
            super().reset(seed=seed)
            return self.np_random.integers(0, 255, (6, 6, 3), np.uint8), {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            return self.reset()[0], float(action), bool(self.np_random.random() < 0.1), False, {}

    agent = Agent("c51", Pixels(), config=SMALL).learn(100, progress=False)
    assert agent.returns(np.zeros((6, 6, 3), np.uint8)).batch_shape == (2,)
    assert agent.evaluate(2).returns.shape == (2,)


def replay_of(rewards: list[list[float]], terminated: bool, discount: float = 0.9) -> Replay:
    """A replay of whole episodes."""
    replay = Replay(200, Box(0, 1, (1,)), discount=discount, rng=np.random.default_rng(0))
    nothing = np.zeros((1, 1), np.float32)
    replay.start(nothing)
    for episode in rewards:
        for k, reward in enumerate(episode):
            last = np.array([k == len(episode) - 1])
            no = np.array([False])
            ends = (last, no) if terminated else (no, last)
            replay.add(np.array([0]), Step(np.array([reward]), *ends, nothing, nothing, last))
    return replay


def test_the_observed_size_of_a_reward_is_the_root_mean_square_of_those_that_are_not_zero() -> None:
    assert observed_reward(replay_of([[0, 3, 0, -4]], True)) == pytest.approx(12.5**0.5)
    assert observed_reward(replay_of([[0, 0]], True)) == 1


def test_observed_ranges_worked_by_hand() -> None:
    # A goal that ends the episode is reached once: [0, 1], whatever the discount.
    assert observed_range(replay_of([[0, 0, 1], [0, 0]], True)) == (0, 1)
    # A reward of 1 per step may continue for 1/(1 − 0.9) = 10 steps; the longest return seen, 1 + 0.9 + … + 0.9⁴ =
    # 4.0951, widened by twice its width is 12.2853: the first bound holds.
    low, high = observed_range(replay_of([[1] * 5, [1] * 3], True))
    assert (low, high) == (0, pytest.approx(10))
    # A reward of 1 seen once in a long episode: at most 1 + 2·1 is expected, not 10.
    assert observed_range(replay_of([[0] * 20 + [1] + [0] * 20], False)) == (0, pytest.approx(3))
    # Nothing seen: rewards of size 1 are assumed.
    assert observed_range(replay_of([[0, 0, 0]], True)) == (-1, 1)


def test_every_method_gets_the_same_observed_range() -> None:
    for method in METHODS.values():
        scaled = method.within(-2.0, 5.0)
        if isinstance(scaled, C51):
            assert (scaled.v_min, scaled.v_max) == (-2, 5)
        if hasattr(scaled, "initial_bound"):
            assert scaled.initial_bound == 5


def test_the_learner_clips_syncs_and_chooses_by_its_settings() -> None:
    draws = torch.Generator().manual_seed(0)
    batch = Batch(
        *(torch.randint(3, (8,), generator=draws) for _ in range(2)),
        torch.ones(8),
        torch.full((8,), 0.9),
        torch.zeros(8).long(),
    )
    hard, soft, double = (
        Learner(METHODS["dqn"], table(METHODS["dqn"], 3, 3), settings)
        for settings in (
            Optimisation(target_every=2),
            Optimisation(target_tau=0.25),
            Optimisation(double_q=True, target_every=100),
        )
    )
    start = hard.target.head.linear.weight.clone()
    hard.update(batch)
    assert torch.equal(hard.target.head.linear.weight, start)
    hard.update(batch)
    assert torch.equal(hard.target.head.linear.weight, hard.online.head.linear.weight)
    start = soft.target.head.linear.weight.clone()
    soft.update(batch)
    assert_close(soft.target.head.linear.weight, start.lerp(soft.online.head.linear.weight.detach(), 0.25))
    # The online network prefers action 2, the target network action 0, and the target is what action 2 is worth.
    with torch.no_grad():
        for network, best in ((double.online, 2), (double.target, 0)):
            network.head.linear.weight.zero_()
            network.head.linear.bias.copy_(torch.eye(3)[best] + torch.arange(3.0) / 10)
    target = bellman_target(batch, double.target, double.risk, double.online)
    assert_close(target.mean(), torch.full((8,), 1 + 0.9 * 0.2))


def test_fractions_have_their_own_optimiser() -> None:
    learner = Agent("fqf", "CartPole-v1", config=SMALL).learn(SMALL.learning_starts, progress=False).learner
    proposal = {id(p) for p in learner.online.head.fraction_parameters()}
    apart = {id(p) for optimiser, _ in learner._special for p in optimiser.param_groups[0]["params"]}
    assert apart == proposal
    everything = sum(p.numel() for p in learner.online.parameters())
    special = sum(p.numel() for p in learner.online.head.fraction_parameters())
    assert learner.optimizer.state["mean"].numel() == everything - special


def test_reports_come_at_their_interval_and_at_the_end() -> None:
    agent = Agent("dqn", "CartPole-v1", config=SMALL)
    reports = [event for event in agent.events(130) if isinstance(event, Report)]
    assert [report.step for report in reports] == [50, 100, 130]
    assert reports[-1].loss is not None
    assert reports[-1].epsilon == 0.04


def test_several_environments_steps_and_a_soft_target_work_together() -> None:
    config = replace(SMALL, num_envs=3, n_step=3, double_q=True, target_tau=0.1, target_every=1, train_every=5)
    agent = Agent("nfdrl-e", "CartPole-v1", config=config).learn(200, progress=False)
    # 201 transitions, three per step; the 64 of the warm-up are reached with the 66th
    assert agent.step == 201
    assert agent.learner.updates == (201 - 66 + 3) // 5


def test_the_progress_bar_shows_speed_return_and_loss() -> None:
    screen = io.StringIO()
    bar = ProgressTracker(1000, console=Console(file=screen, force_terminal=True, width=120))
    bar.track(Evaluation(400, 5, 31.5, 0.0, 31.5, 31.5, 31.5, True))
    bar.track(Report(500, 100, 3, 21.5, 21.5, 0.25, 0.1, 1e-3, 1234.0))
    bar.close()
    for words in ("500/1,000", "1,234 steps/s", "return 21.5", "loss 0.25", "evaluation 31.5"):
        assert words in screen.getvalue()


def test_presets_have_the_settings_of_their_sources() -> None:
    paper = find_preset("paper")
    assert (paper.steps, paper.config.learning_rate, paper.config.num_envs) == (10_000_000, 5e-5, 4)
    method = paper.adapt(METHODS["nfdrl-s"])
    assert (method.samples, method.terminal_std, method.comparison.bandwidth) == (500, 0.1, 0.05)
    assert paper.adapt(METHODS["c51"]) is METHODS["c51"]
    assert PRESETS["paper-atari"] == paper
    assert PRESETS["atari"].adapt(METHODS["nfdrl-s"]) is METHODS["nfdrl-s"]
    with pytest.raises(NfdrlError, match="did you mean 'paper'"):
        find_preset("papers")


def test_the_package_exports_its_public_names() -> None:
    assert nfdrl.Agent is Agent
    assert nfdrl.METHODS is METHODS
    assert all(getattr(nfdrl, name) for name in nfdrl.__all__)
    assert "nfdrl/MDP1-v0" in gymnasium.registry
    with pytest.raises(AttributeError):
        nfdrl.Agnet  # noqa: B018


def test_a_layer_without_live_units_is_reported_and_warns_once() -> None:
    agent = Agent("dqn", "CartPole-v1", config=replace(SMALL, train_every=1, report_every=100))
    reports = [event for event in agent.events(300, total_steps=600) if isinstance(event, Report)]
    assert reports[0].dormant is None  # 37 updates
    assert all(report.dormant is not None and report.dormant < 1 for report in reports[1:])
    with torch.no_grad():
        agent.learner.online.torso.layers[0].bias.fill_(-100)
    with pytest.warns(UserWarning, match=r"no unit of the layer 'layers.0' responds") as warned:
        later = [event.dormant for event in agent.events(300) if isinstance(event, Report)]
    assert later == [1.0, 1.0, 1.0]
    assert len(warned) == 1
