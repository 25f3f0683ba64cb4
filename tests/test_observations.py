"""Observations of several parts, images without channels, normalised and stacked observations, torsos of one's own."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.testing import assert_close

from dict_env import SIDE, Corridor
from nfdrl import METHODS, Agent
from nfdrl.engines import Work, engine_for
from nfdrl.errors import NfdrlError
from nfdrl.export import difference, random_observations, write_onnx
from nfdrl.learner import Learner, Optimisation
from nfdrl.networks import network_for
from nfdrl.observations import as_rows, as_tensors, parts_of, storage_dtype
from nfdrl.replay import Replay, row_bytes
from nfdrl.runs.checkpoint import space_config, space_from
from nfdrl.torsos import NatureCNN, Parts, SmallCNN, TorsoSizes, torso_for
from nfdrl.training.config import TrainConfig
from test_resume import SMALL, assert_same, resumed_and_undisturbed

QUICK = replace(SMALL, torso=TorsoSizes(mlp=(16, 16), small_image=(8,)))
NORMALISED = replace(QUICK, normalise_observations=True)


def observation(seed: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = Corridor().reset(seed=seed)[0]
    return found


# Parts.


def test_parts_are_named_by_their_path_and_keep_their_dtype() -> None:
    space = Corridor().observation_space
    assert [*parts_of(space)] == ["map", "robot.0", "robot.1"]
    dtype = storage_dtype(space)
    assert [dtype[name].base for name in dtype.names or ()] == [np.uint8, np.float32, np.int64]
    assert row_bytes(space) == SIDE * SIDE + 2 * 4 + 8 + row_bytes(Discrete(2)) - 8


@pytest.mark.parametrize(
    ("space", "given", "said"),
    [
        (Discrete(16), 16, r"must lie in Discrete\(16\), got 16"),
        (Discrete(3, start=5), [5, 7, 4], r"must lie in Discrete\(3, start=5\), got 4"),
        (Discrete(16), 1.5, r"must lie in Discrete\(16\), got 1\.5"),
        (MultiDiscrete([2, 5]), [[1, 4], [2, 0]], r"must lie in MultiDiscrete\(\[2 5\]\), got 2"),
        (Discrete(16), "x", "must be numbers, got 'x'"),
        (Box(-1, 1, (2,)), [0.0, "x"], "must be numbers, got '0.0'"),
        (Tuple([Discrete(3), Box(-1, 1, (2,))]), (3, [0.0, 0.0]), r"must lie in Discrete\(3\), got 3"),
    ],
)
def test_what_no_environment_would_show_is_refused_in_one_line(space: Any, given: Any, said: str) -> None:
    with pytest.raises(NfdrlError, match=said):
        as_rows(space, given)


def test_a_single_observation_and_a_batch_are_told_apart() -> None:
    space = Corridor().observation_space
    one, single = as_rows(space, observation())
    many, several = as_rows(space, {"map": np.zeros((3, SIDE, SIDE)), "robot": (np.ones((3, 2)), [1, 2, 1])})
    assert (single, several, len(one), len(many)) == (True, False, 1, 3)
    assert np.array_equal(one["map"][0], observation()["map"])
    assert many["robot.1"].tolist() == [1, 2, 1]
    again, _ = as_rows(space, many)
    assert np.array_equal(again, many)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"map": np.zeros((SIDE, SIDE))}, "must have the parts"),
        ({"map": np.zeros((SIDE, SIDE)), "robot": (np.zeros(3), 1)}, r"must have shapes .*got"),
        ({"map": np.zeros((2, SIDE, SIDE)), "robot": (np.zeros((3, 2)), [1, 1])}, r"with B rows each"),
        (3, "must have the parts"),
    ],
)
def test_observations_of_another_form_are_refused_in_one_line(given: Any, said: str) -> None:
    with pytest.raises(NfdrlError, match=said) as caught:
        Agent("dqn", Corridor()).predict(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("space", [Corridor().observation_space, Tuple([Discrete(3), Dict({"a": Box(0, 1, (2,))})])])
def test_spaces_with_parts_survive_json(space: gymnasium.Space[Any]) -> None:
    assert space_config(space_from(space_config(space))) == space_config(space)
    assert storage_dtype(space_from(space_config(space))) == storage_dtype(space)


def test_the_replay_returns_what_was_seen() -> None:
    agent = Agent("dqn", Corridor(), config=QUICK).learn(60, progress=False)
    replay: Replay = agent.trainer.replay
    rows = np.flatnonzero(replay.live)[:20]
    batch = replay.transitions_at(rows)
    assert isinstance(batch.observation, dict)
    assert isinstance(batch.next_observation, dict)
    places, steps = batch.observation["robot.0"].unbind(-1)
    pictured = batch.observation["map"].float().sum(-1).argmax(-1)
    assert torch.equal(pictured, (places / 100).long())  # the image belongs to the vector
    moved = batch.next_observation["robot.0"][:, 0] - places
    assert torch.equal(moved, 100.0 * (2 * batch.action - 1))
    assert (batch.observation["map"].dtype, steps.dtype) == (torch.uint8, torch.float32)
    halves = batch.split(15)
    assert [len(half.observation["map"]) for half in halves] == [15, 5]  # type: ignore[call-overload]


def test_parts_meet_in_common_layers() -> None:
    torso = torso_for(Corridor().observation_space)
    assert isinstance(torso, Parts)
    assert torso.layers[0].in_features == 128 + 2 + 2
    network = network_for(METHODS["dqn"], Corridor().observation_space, 2, TorsoSizes(), 0)
    rows, _ = as_rows(Corridor().observation_space, observation())
    whole = as_tensors(rows)
    assert isinstance(whole, dict)
    before = network(whole).mean()
    for name, part in whole.items():
        changed = {**whole, name: 3 - part if name == "robot.1" else part + 1}
        assert not torch.equal(network(changed).mean(), before), name
    assert set(network.dormant(whole)) == {"torsos.0.convolutions.0", "torsos.0.layers.0", "layers.0", "layers.1"}


def test_the_compiled_engine_leaves_parts_to_the_graph() -> None:
    network = network_for(METHODS["dqn"], Corridor().observation_space, 2, TorsoSizes(), 0)
    assert str(engine_for(Work(METHODS["dqn"], network))) == "graph engine: observations have several parts"
    with pytest.raises(NfdrlError, match="cannot run: observations have several parts"):
        engine_for(Work(METHODS["dqn"], network), "compiled")


@pytest.mark.parametrize("config", [QUICK, replace(NORMALISED, num_envs=2, n_step=2), replace(QUICK, frame_stack=3)])
def test_a_dict_environment_resumes_bit_for_bit(config: TrainConfig, tmp_path: Path) -> None:
    assert_same(*resumed_and_undisturbed(lambda: "Corridor-v0", "nfdrl-s", config, tmp_path, (140, 200)))


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_vector_environments_of_dicts_resume_bit_for_bit(mode: AutoresetMode, tmp_path: Path) -> None:
    def make() -> Any:
        return SyncVectorEnv([Corridor] * 2, autoreset_mode=mode)

    assert_same(*resumed_and_undisturbed(make, "dqn", QUICK, tmp_path, (130,)))


def test_a_dict_agent_learns_is_saved_loaded_evaluated_and_exported(tmp_path: Path) -> None:
    config = replace(NORMALISED, learning_starts=100, learning_rate=3e-3, epsilon_fraction=0.5)
    agent = Agent("nfdrl-e", Corridor(), seed=1, config=config)
    agent.learn(1_500, total_steps=1_560, progress=False)
    assert agent.evaluate(20).mean > 0.9  # the way to the right end
    agent.save(tmp_path / "agent", replay=True)
    loaded = Agent.load(tmp_path / "agent", Corridor())
    rows = random_observations(agent.observation_space, 1_000)
    assert np.array_equal(agent.predict(rows)[0], loaded.predict(rows)[0])
    assert loaded.predict(observation())[0].shape == ()
    assert loaded.returns(observation()).batch_shape == (2,)
    policy = loaded.policy([0.1, 0.9])
    write_onnx(policy, tmp_path / "policy.onnx")
    gap, changed = difference(policy, tmp_path / "policy.onnx", rows)
    assert gap <= 1e-5
    assert not changed
    assert_same(agent.learn(60, progress=False), loaded.learn(60, progress=False))


def test_a_tuple_of_finite_parts_is_learned_from() -> None:
    agent = Agent("c51", "Blackjack-v1", config=QUICK).learn(150, progress=False)
    assert agent.returns((12, 3, 1)).batch_shape == (2,)
    assert agent.evaluate(3).returns.shape == (3,)


def test_a_part_that_is_not_finite_is_refused() -> None:
    class Broken(Corridor):
        def step(self, action: int) -> Any:
            seen, *rest = super().step(action)
            seen["robot"][0][1] = np.nan
            return seen, *rest

    with pytest.raises(NfdrlError, match="observation that is not finite"):
        Agent("dqn", Broken(), config=QUICK).learn(10, progress=False)


# Images.


@pytest.mark.parametrize(("shape", "kind"), [((84, 84), NatureCNN), ((10, 12), SmallCNN), ((3, 40, 50, 2), NatureCNN)])
def test_bytes_with_two_or_four_axes_are_images(shape: tuple[int, ...], kind: type) -> None:
    space = Box(0, 255, shape, np.uint8)
    network = network_for(METHODS["dqn"], space, 3, TorsoSizes(image=(8,), small_image=(8,)), 0)
    assert isinstance(network.torso, kind)
    rows = torch.from_numpy(np.stack([space.sample(), space.sample()]))
    assert network(rows).batch_shape == (2, 3)
    assert not torch.equal(network(rows).mean()[0], network(rows).mean()[1])


def test_an_image_without_channels_is_one_with_a_single_channel() -> None:
    sizes, rows = TorsoSizes(), torch.randint(0, 256, (3, 12, 10), dtype=torch.uint8)
    flat, deep = (network_for(METHODS["dqn"], Box(0, 255, s, np.uint8), 2, sizes, 0) for s in ((12, 10), (12, 10, 1)))
    assert_close(flat(rows).mean(), deep(rows.unsqueeze(-1)).mean(), rtol=0, atol=0)


def test_stacked_colour_images_are_images_with_all_channels() -> None:
    sizes, rows = TorsoSizes(), torch.randint(0, 256, (3, 2, 12, 10, 3), dtype=torch.uint8)
    spaces = Box(0, 255, (2, 12, 10, 3), np.uint8), Box(0, 255, (12, 10, 6), np.uint8)
    stacked, flat = (network_for(METHODS["dqn"], space, 2, sizes, 0) for space in spaces)
    joined = torch.cat([rows[:, 0], rows[:, 1]], -1)
    assert_close(stacked(rows).mean(), flat(joined).mean(), rtol=0, atol=0)


def test_vectors_of_bytes_and_matrices_of_numbers_are_no_images() -> None:
    assert type(torso_for(Box(0, 255, (128,), np.uint8))).__name__ == "MLP"
    assert type(torso_for(Box(-1, 1, (4, 4)))).__name__ == "MLP"


# Frame stacking.


def test_a_stack_holds_the_last_observations(tmp_path: Path) -> None:
    config = replace(SMALL, frame_stack=3, num_envs=2, n_step=1)
    agent = Agent("dqn", "CartPole-v1", config=config).learn(150, progress=False)
    assert agent.observation_space.shape == (3, 4)
    replay = agent.trainer.replay
    rows = np.flatnonzero(replay.live & ~replay.ended)
    batch = replay.transitions_at(rows)
    assert isinstance(batch.observation, Tensor)
    assert isinstance(batch.next_observation, Tensor)
    assert torch.equal(batch.observation[:, 1:], batch.next_observation[:, :-1])
    assert agent.evaluate(2).returns.shape == (2,)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    assert loaded.observation_space == agent.observation_space
    assert np.array_equal(loaded.evaluate(3).returns, agent.evaluate(3).returns)
    assert Agent.load(tmp_path / "agent", loaded.source.fresh()).observation_space.shape == (3, 4)


def test_stacked_images_are_stored_as_single_frames() -> None:
    class Picture(gymnasium.Env[Any, Any]):
        observation_space, action_space = Box(0, 255, (12, 12), np.uint8), Discrete(2)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed, options=options)
            return self.observation_space.sample(), {}

        def step(self, action: int) -> Any:
            return self.observation_space.sample(), float(action), bool(self.np_random.random() < 0.1), False, {}

    agent = Agent("dqn", Picture(), config=replace(QUICK, frame_stack=4)).learn(60, progress=False)
    assert type(agent.trainer.replay.storage).__name__ == "FrameStorage"
    assert type(agent.network.torso).__name__ == "SmallCNN"


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")]), "single environments"),
        ("ALE/Pong-v5", "stack frames themselves"),
    ],
)
def test_stacks_that_cannot_be_made_are_refused(env: Any, said: str) -> None:
    with pytest.raises(NfdrlError, match=said):
        Agent("dqn", env, config=TrainConfig(frame_stack=2))


# Normalisation.


def test_statistics_are_those_of_all_observations_seen() -> None:
    seen: list[Any] = []

    class Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
        def reset(self, **named: Any) -> Any:
            observation, info = self.env.reset(**named)
            seen.append(observation)
            return observation, info

        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = self.env.step(action)
            if not (terminated or truncated):  # an episode's final observation is learned from, and nothing acts on it
                seen.append(observation)
            return observation, reward, terminated, truncated, info

    agent = Agent("dqn", Watched(gymnasium.make("CartPole-v1")), config=NORMALISED).learn(300, progress=False)
    normaliser = agent.network.normaliser
    assert normaliser is not None
    exact = np.array(seen, np.float64)
    assert int(normaliser.count) == len(seen)
    assert_close(normaliser.mean_0, torch.from_numpy(exact.mean(0)), rtol=1e-10, atol=0)
    values = normaliser(torch.tensor(exact, dtype=torch.float32))
    assert isinstance(values, Tensor)
    assert_close(values.mean(0), torch.zeros(4), atol=1e-5, rtol=0)
    assert_close(values.std(0, correction=0), torch.ones(4), atol=1e-4, rtol=0)


def test_running_statistics_are_exact_in_any_grouping() -> None:
    space, rng = Box(-np.inf, np.inf, (3,)), np.random.default_rng(0)
    rows = (rng.normal(size=(200, 3)) * [1, 100, 1e-3] + [5, 0, 1e3]).astype(np.float32)
    network = network_for(METHODS["dqn"], space, 2, TorsoSizes(), 0, normalise=True)
    normaliser = network.normaliser
    assert normaliser is not None
    before = network(torch.from_numpy(rows))
    for part in np.split(rows, [1, 2, 50, 120]):
        normaliser.update(part)
    exact = rows.astype(np.float64)
    assert_close(normaliser.mean_0, torch.from_numpy(exact.mean(0)), rtol=1e-12, atol=0)
    assert_close(normaliser.square_0 / 200, torch.from_numpy(exact.var(0)), rtol=1e-9, atol=0)
    assert not torch.equal(before.mean(), network(torch.from_numpy(rows)).mean())


def test_evaluation_and_prediction_leave_the_statistics_alone(tmp_path: Path) -> None:
    agent = Agent("dqn", "CartPole-v1", config=NORMALISED).learn(150, progress=False)
    before = copy.deepcopy(agent.network.state_dict())
    agent.evaluate(3)
    agent.predict(np.full(4, 50.0))
    assert all(torch.equal(value, before[name]) for name, value in agent.network.state_dict().items())
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    assert all(torch.equal(value, before[name]) for name, value in loaded.network.state_dict().items())
    assert np.array_equal(loaded.evaluate(3).returns, agent.evaluate(3).returns)


def test_normalised_observations_resume_bit_for_bit_with_the_compiled_engine(tmp_path: Path) -> None:
    config = replace(SMALL, normalise_observations=True, num_envs=2)
    whole, resumed = resumed_and_undisturbed(lambda: "CartPole-v1", "nfdrl-s", config, tmp_path, (140,))
    assert_same(whole, resumed)
    assert whole.learner.engine.name == "compiled"
    assert whole.learner.target.normaliser is whole.network.normaliser


def test_both_engines_see_the_same_normalised_observations() -> None:
    agent = Agent("qr-dqn", "CartPole-v1", config=NORMALISED).learn(100, progress=False)
    batch = agent.trainer.replay.sample(32)
    losses = []
    for engine in ("graph", "compiled"):
        learner = Learner(agent.method, copy.deepcopy(agent.network), Optimisation(engine=engine))  # type: ignore[arg-type]
        losses.append(learner.engine.differentiate(batch))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("space", [Discrete(3), MultiDiscrete([2, 2]), Box(0, 255, (10, 10), np.uint8)])
def test_observations_without_numbers_cannot_be_normalised(space: gymnasium.Space[Any]) -> None:
    with pytest.raises(NfdrlError, match="needs a Box of numbers"):
        network_for(METHODS["dqn"], space, 2, TorsoSizes(), 0, normalise=True)


# Torsos of one's own.


class Wave(nn.Module):
    """Sines and cosines of a linear map."""

    def __init__(self, inputs: int = 4, width: int = 16) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)

    def forward(self, observation: Tensor) -> Tensor:
        phase = self.linear(observation)
        return torch.cat([phase.sin(), phase.cos()], -1)


def wave(space: gymnasium.Space[Any]) -> nn.Module:
    assert space.shape is not None
    return Wave(space.shape[0])


@pytest.mark.parametrize("torso", [wave, Wave(), Wave])
def test_a_torso_of_ones_own_learns_is_saved_by_name_and_asked_for(torso: Any, tmp_path: Path) -> None:
    torso = (lambda space: Wave(space.shape[0])) if torso is Wave else torso
    agent = Agent("nfdrl-s", "CartPole-v1", seed=2, config=SMALL, torso=torso)
    agent.learn(150, total_steps=200, progress=False)
    assert str(agent.learner.engine) == "graph engine: the torso is your own"
    assert agent.network.head.linear.in_features == 32
    agent.save(tmp_path / "agent", replay=True)
    with pytest.raises(NfdrlError, match=r"torso '.*' is not part of nfdrl: pass it as `torso`$"):
        Agent.load(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", torso=torso)
    assert_same(agent.learn(50, progress=False), loaded.learn(50, progress=False))
    write_onnx(loaded.policy(), tmp_path / "policy.onnx")
    rows = random_observations(agent.observation_space, 100)
    assert difference(loaded.policy(), tmp_path / "policy.onnx", rows) <= (1e-5, 0)


def test_the_same_seed_gives_a_made_torso_the_same_weights_and_a_given_one_is_copied() -> None:
    made = [Agent("dqn", "CartPole-v1", seed=seed, torso=wave).network.state_dict() for seed in (1, 1, 2)]
    name = "torso.module.linear.weight"
    assert torch.equal(made[0][name], made[1][name])
    assert not torch.equal(made[0][name], made[2][name])
    given = Wave()
    before = given.linear.weight.detach().clone()
    agent = Agent("dqn", "CartPole-v1", config=SMALL, torso=given).learn(100, progress=False)
    assert torch.equal(given.linear.weight, before)
    assert not torch.equal(agent.network.state_dict()[name], before)


def test_a_torso_of_ones_own_sees_parts_by_name() -> None:
    class Speed(nn.Module):
        def forward(self, observation: dict[str, Tensor]) -> Tensor:
            assert set(observation) == {"map", "robot.0", "robot.1"}
            return observation["robot.0"]

    agent = Agent("dqn", Corridor(), config=QUICK, torso=Speed()).learn(80, progress=False)
    assert agent.network.head.linear.in_features == 2


@pytest.mark.parametrize(
    ("torso", "said"),
    [
        (nn.Linear(3, 2), "the torso cannot take observations of Box"),
        (nn.Unflatten(1, (2, 2)), r"must turn \(B, …\) into \(B, features\); two observations became \(2, 2, 2\)"),
        (lambda _: 3, "must be an nn.Module or a function that makes one, got int"),
    ],
)
def test_a_torso_that_does_not_fit_is_refused_in_one_line(torso: Any, said: str) -> None:
    with pytest.raises(NfdrlError, match=said) as caught:
        Agent("dqn", "CartPole-v1", torso=torso)
    assert "\n" not in str(caught.value)


def test_another_torso_than_the_saved_one_is_refused(tmp_path: Path) -> None:
    Agent("dqn", "CartPole-v1", torso=wave).save(tmp_path / "own")
    Agent("dqn", "CartPole-v1").save(tmp_path / "plain")
    with pytest.raises(NfdrlError, match="the one given is 'test_observations:Wave'"):
        Agent.load(tmp_path / "own", torso=Wave())
    with pytest.raises(NfdrlError, match="has a torso of nfdrl's"):
        Agent.load(tmp_path / "plain", torso=wave)
