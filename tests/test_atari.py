"""Real emulators: what is learned from and what is reported, life by life."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
import torch

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs import make
from nfdrl.envs.atari import AtariGame, AtariProtocol, AtariStream, protocol_from
from nfdrl.envs.make import source_of
from nfdrl.envs.stepping import Step
from nfdrl.envs.watching import Limits
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.arenas import AtariArena, SingleArena, arena_of
from nfdrl.evaluation.rollouts import rollout
from nfdrl.files import read_json
from nfdrl.frames import FrameStorage
from nfdrl.laws import METHODS, find_method, method_config
from nfdrl.replay import ArrayStorage, Replay
from nfdrl.settings import read_word
from nfdrl.training.config import TrainConfig
from nfdrl.training.presets import PRESETS

gymnasium.register_envs(ale_py)
PROTOCOL = AtariProtocol()


def played(stream: AtariStream, steps: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[np.ndarray, Step]]]:
    first = stream.reset(seed=seed).copy()
    rng = np.random.default_rng(seed)
    actions = rng.integers(int(stream.action_space.n), size=(steps, stream.num_envs))
    return first, [(action, stream.step(action)) for action in actions]


@pytest.fixture(scope="module")
def breakout() -> tuple[np.ndarray, list[tuple[np.ndarray, Step]]]:
    return played(AtariStream("breakout", PROTOCOL, 2), 400)


def test_a_lost_life_ends_the_learned_return_but_not_the_episode(breakout: Any) -> None:
    _, steps = breakout
    lost = np.array([step.life_lost for _, step in steps])
    ended = np.array([step.terminated for _, step in steps])
    assert ended.sum() >= 2
    assert not (lost & ended).any()
    for env in range(2):
        last = int(np.flatnonzero(ended[:, env])[-1])
        # five lives: four are lost on the way, the fifth with the game
        assert lost[: last + 1, env].sum() == 4 * ended[: last + 1, env].sum()


def test_single_frames_restore_the_stacks_of_the_emulator(breakout: Any) -> None:
    first, steps = breakout
    space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
    storage = FrameStorage(600, 2, space)
    replays = [
        Replay(600, space, num_envs=2, rng=np.random.default_rng(0), n_step=3, storage=kind)
        for kind in (storage, ArrayStorage(600, space))
    ]
    for replay in replays:
        replay.start(first)
        for action, step in steps:
            replay.add(action, step)
    assert len(storage.aside) == 0
    rows = np.flatnonzero(replays[0].live)
    ours, naive = (replay.transitions_at(rows) for replay in replays)
    for name in ("observation", "action", "reward", "discount", "next_observation"):
        assert getattr(ours, name).equal(getattr(naive, name)), name


def test_rewards_are_clipped_for_learning_only() -> None:
    _, steps = played(AtariStream("space_invaders", PROTOCOL, 2), 200)
    reward = np.array([step.reward for _, step in steps])
    assert reward.max() >= 5
    assert np.array_equal(np.array([step.learned_reward for _, step in steps]), np.sign(reward))


def test_a_seeded_reset_forgets_the_past() -> None:
    used = AtariStream("breakout", AtariProtocol(sticky=0.25), 2)
    played(used, 60, seed=5)
    used.send(np.zeros(2, np.int64))  # also one whose step was never received
    first, steps = played(used, 150, seed=9)
    other_first, other = played(AtariStream("breakout", AtariProtocol(sticky=0.25), 2), 150, seed=9)
    assert np.array_equal(first, other_first)
    for (_, a), (_, b) in zip(steps, other, strict=True):
        assert np.array_equal(a.observation, b.observation)
        assert np.array_equal(a.reward, b.reward)


def test_evaluation_plays_the_same_game_in_colour() -> None:
    stream, game = AtariStream("breakout", PROTOCOL, 1), AtariGame("breakout", PROTOCOL, render_mode="rgb_array")
    seen, shown = stream.reset(seed=4), game.reset(seed=4)[0]
    rng = np.random.default_rng(0)
    ended = False
    while not ended:
        assert np.array_equal(seen[0], shown)
        action = int(rng.integers(4))
        step = stream.step(np.array([action]))
        shown, reward, terminated, truncated, _ = game.step(action)
        seen, ended = step.reached, terminated or truncated
        assert (reward, terminated) == (step.reward[0], bool(step.terminated[0]))
    assert np.array_equal(seen[0], shown)
    assert game.get_action_meanings() == ["NOOP", "FIRE", "RIGHT", "LEFT"]
    picture = game.render()
    assert picture.shape == (210, 160, 3)
    # the brightest red of the wall is not grey: the picture is in colour
    assert int(np.ptp(picture.astype(int), axis=-1).max()) > 100


def test_the_frame_limit_cuts_an_episode_off() -> None:
    _, steps = played(AtariStream("pong", AtariProtocol(frame_limit=200), 1), 60)
    assert [bool(step.truncated[0]) for _, step in steps].index(True) == 49  # four frames per step
    assert not any(step.terminated[0] for _, step in steps)


def test_protocols_have_the_settings_of_their_papers() -> None:
    assert protocol_from({}) == PROTOCOL
    machado = protocol_from({"protocol": "machado", "frame_skip": 5})
    assert (machado.sticky, machado.life_loss, machado.full_actions, machado.frame_skip) == (0.25, False, True, 5)
    assert read_word("ALE/Pong-v5[sticky=0.25, clip=false]") == ("ALE/Pong-v5", {"sticky": 0.25, "clip": False})
    source = source_of("ALE/Pong-v5[protocol=machado]")
    assert int(source.action_space.n) == 18
    assert source.name == "ALE/Pong-v5[protocol=machado]"
    stream = source.stream(1)
    stream.reset(seed=0)
    step = stream.step(np.array([0]))
    assert step.life_lost is None
    assert step.learned_reward is not None


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ALE/Pnog-v5", "did you mean 'ALE/Pong-v5'"),
        ("MinAtar/Brakeout-v1", "did you mean 'MinAtar/Breakout-v1'"),
        ("ALE/Pong-v5[stiky=0.25]", "did you mean 'sticky'"),
        ("ALE/Pong-v5[sticky=1.5]", r"sticky must lie in \[0, 1\)"),
        ("ALE/Pong-v5[clip=3]", "clip cannot be 3: it must be true or false"),
        ("ALE/Pong-v5[protocol=minh]", "did you mean 'mnih'"),
        ("ALE/Pong-v5[sticky]", "NAME=VALUE"),
        ("ALE/Pong-v5[", "SETTING=VALUE"),
        ("MinAtar/Breakout-v1[sticky=0.1]", "unexpected keyword"),
    ],
)
def test_bad_input_says_what_to_do(word: str, message: str) -> None:
    with pytest.raises(NfdrlError, match=message):
        source_of(word)


@pytest.mark.parametrize(("name", "extra"), [("ALE/Pong-v5", "atari"), ("MinAtar/Breakout-v1", "minatar")])
def test_a_missing_package_names_the_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "find_spec", lambda _: None)
    monkeypatch.delitem(gymnasium.registry, name, raising=False)
    with pytest.raises(NfdrlError, match=rf'pip install "nfdrl\[{extra}\]"'):
        source_of(name)


def test_stacked_frames_of_given_environments_are_recognised() -> None:
    vector = gymnasium.make_vec("ALE/Pong-v5", num_envs=2)
    plain = gymnasium.make("ALE/Pong-v5", obs_type="grayscale")
    wrapped = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.FrameStackObservation(plain, 4), 100)
    assert [source_of(env).stacked for env in (vector, plain, wrapped)] == [True, False, True]
    config = TrainConfig(learning_starts=16, buffer_size=400, batch_size=4, train_every=8)
    agent = Agent("dqn", vector, config=config, device="cpu").learn(30, progress=False)
    assert isinstance(agent.trainer.replay.storage, FrameStorage)


def test_an_agent_learns_and_survives_save_and_load(tmp_path: Path) -> None:
    config = TrainConfig(num_envs=2, learning_starts=40, buffer_size=400, batch_size=4, train_every=8, n_step=3)
    agent = Agent("nfdrl-s", "ALE/Pong-v5[frame_limit=240]", config=config, device="cpu").learn(80, progress=False)
    assert isinstance(agent.trainer.replay.storage, FrameStorage)
    agent.save(tmp_path)
    loaded = Agent.load(tmp_path, device="cpu")
    assert loaded.source is not None
    assert loaded.source.name == "ALE/Pong-v5[frame_limit=240]"
    assert loaded.evaluate(1).lengths.tolist() == [60]


def test_games_side_by_side_are_those_that_are_played_one_by_one() -> None:
    small = TrainConfig(buffer_size=100)
    agent = Agent("dqn", "ALE/Breakout-v5[frame_limit=1400,sticky=0.25]", config=small, device="cpu")
    source = agent.source
    assert source is not None

    def policy(rows: Any) -> Any:
        return rows.sum((1, 2, 3)) % int(source.action_space.n)

    with arena_of(source, 2, agent.trainer) as arena:
        assert isinstance(arena, AtariArena)
        together = rollout(policy, arena, 5, seed=3)
    alone = rollout(policy, SingleArena([source.fresh()], Limits()), 5, seed=3)
    assert together.returns.tolist() == alone.returns.tolist()
    assert together.lengths.tolist() == alone.lengths.tolist()
    assert len(set(together.lengths.tolist())) > 1


@pytest.mark.parametrize("preset", ["paper-atari", "paper-literal-atari"])
def test_the_command_runs_the_papers_table(preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["learning_starts=12", "buffer_size=400", "batch_size=2", f"replay_on_disk={tmp_path / 'replay'}"]
    words = ["train", "--env", "ALE/Pong-v5", "--preset", preset, "--steps", "20", "--evaluate", "0"]
    assert main([*words, "--no-progress", "--out", str(tmp_path / "run"), "--set", *small]) == 0
    assert "20 steps" in capsys.readouterr().out
    # Without --method: the paper's flow with all that the preset changes in it.
    expected = method_config(PRESETS[preset].adapt(METHODS["nfdrl-s"]))
    assert read_json(tmp_path / "run" / "config.json")["method"] == expected


def test_a_replay_that_cannot_fit_is_refused_before_a_step_is_taken() -> None:
    agent = Agent("dqn", "ALE/Pong-v5", config=TrainConfig(buffer_size=100_000_000), device="cpu")
    with pytest.raises(NfdrlError, match="replay_on_disk"):
        agent.learn(1, progress=False)


def test_features_still_tell_states_apart_after_the_first_updates_on_pong() -> None:
    """With PyTorch's first weights and a first range of ±10 a run of 142,000 steps ended with a dead network."""
    preset = PRESETS["atari"]
    config = replace(preset.config, learning_starts=400, buffer_size=1000, double_q=False)
    agent = Agent(preset.adapt(find_method("nfdrl-s")), "ALE/Pong-v5", seed=0, config=config, device="cpu")
    agent.learn(404, progress=False)
    learner, replay = agent.learner, agent.trainer.replay
    states = replay.sample(64).observation
    for _ in range(100):
        learner.update(replay.sample(32))
    with torch.no_grad():
        features = learner.online.torso(states)
    assert max(learner.online.dormant(states).values()) < 0.75
    assert float(features.std(0).mean()) > 2e-3
