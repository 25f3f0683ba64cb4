"""A run that was killed and resumed equals one that was not."""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import NormalizeObservation, NormalizeReward
from safetensors.torch import load_file
from torch import Tensor

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.make import EnvLike
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.runs.keeping import Checkpoints, newest
from nfdrl.runs.layout import checkpoints as checkpoints_of
from nfdrl.runs.signals import pausing_on_signals
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import EpisodeEnd, Pause, Report

STEPS, EVERY = 240, 60
SMALL = TrainConfig(
    learning_starts=40, batch_size=8, report_every=35, buffer_size=90, target_every=7, torso=TorsoSizes(mlp=(8, 8))
)  # the ring is full after 90 rows, so that resumed rows come from both sides of its end


def everything(agent: Agent) -> dict[str, Tensor]:
    generator = agent.learner.generator
    assert generator is not None
    return agent.learner.tensors() | {"generator": generator.get_state()}


def assert_same(first: Agent, second: Agent) -> None:
    assert first.step == second.step
    assert first.method == second.method
    ours, theirs = everything(first), everything(second)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    assert first.trainer.rng.bit_generator.state == second.trainer.rng.bit_generator.state


def told(event: Any) -> Any:
    """An event without the clock."""
    return replace(event, steps_per_second=0.0) if isinstance(event, Report) else event


def train(agent: Agent, checkpoints: Checkpoints, until: int, stop_at: int | None = None) -> list[Any]:
    """The events up to a step; as far as the files can tell, the process dies at `stop_at`."""
    events = []
    for event in agent.events(until - agent.step, pause_every=EVERY):
        if isinstance(event, Pause):
            assert checkpoints.save(agent, regular=event.regular)
        if isinstance(event, EpisodeEnd | Report):
            events.append(told(event))
        if stop_at is not None and agent.step >= stop_at:
            break
    return events


def resumed_and_undisturbed(
    make: Callable[[], EnvLike],
    method: str,
    config: TrainConfig,
    folder: Path,
    stops: tuple[int, ...],
    risk: str = "mean",
) -> tuple[Agent, Agent]:
    whole = Agent(method, make(), seed=3, config=config, risk=risk)
    expected = train(whole, Checkpoints(folder / "whole"), STEPS)
    agent, checkpoints = Agent(method, make(), seed=3, config=config, risk=risk), Checkpoints(folder / "killed")
    found: list[Any] = []
    for stop in stops:
        found += train(agent, checkpoints, STEPS, stop)
        assert agent.step < STEPS
        result = newest(folder / "killed", make())
        assert result is not None
        agent, saved = result
        assert agent.step >= stop - EVERY - 3 * config.num_envs
        found = [event for event in found if event.step <= agent.step]
        checkpoints = Checkpoints(folder / "killed", resumed=saved)
    found += train(agent, checkpoints, STEPS)
    assert found == expected
    return whole, agent


@pytest.mark.parametrize("method", METHODS)
def test_every_method_resumes_bit_for_bit(method: str, tmp_path: Path) -> None:
    assert_same(*resumed_and_undisturbed(lambda: "CartPole-v1", method, SMALL, tmp_path, (140, 200)))


SETTINGS = {
    "three environments, three steps": replace(SMALL, num_envs=3, n_step=3, buffer_size=120),
    "stopped in the warm-up": replace(SMALL, learning_starts=130),
    "rates that decay": replace(SMALL, train_every=9, learning_rate_decay="cosine", double_q=True, target_tau=0.3),
    "a buffer smaller than the interval": replace(SMALL, buffer_size=30, learning_starts=20),
    "enough updates to look for dormant units": replace(SMALL, train_every=1),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_resumes_bit_for_bit(name: str, tmp_path: Path) -> None:
    assert_same(*resumed_and_undisturbed(lambda: "CartPole-v1", "nfdrl-e", SETTINGS[name], tmp_path, (90, 150)))


@pytest.mark.parametrize("num_envs", [1, 3])
def test_episodes_by_the_mean_resume_bit_for_bit(num_envs: int, tmp_path: Path) -> None:
    config = replace(SMALL, num_envs=num_envs, buffer_size=90 * num_envs)
    pair = resumed_and_undisturbed(lambda: "CartPole-v1", "nfdrl", config, tmp_path, (90, 150), risk="cvar:0.1")
    assert_same(*pair)


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1"])
def test_vector_environments_resume_bit_for_bit(mode: AutoresetMode, env: str, tmp_path: Path) -> None:
    def make() -> EnvLike:
        return SyncVectorEnv([lambda: gymnasium.make(env)] * 3, autoreset_mode=mode)

    assert_same(*resumed_and_undisturbed(make, "iqn", SMALL, tmp_path, (130, 200)))


def test_normalised_environments_resume_bit_for_bit(tmp_path: Path) -> None:
    def make() -> EnvLike:
        return NormalizeReward(NormalizeObservation(gymnasium.make("CartPole-v1")))

    assert_same(*resumed_and_undisturbed(make, "nfdrl-s", SMALL, tmp_path, (130, 200)))


def test_atari_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = replace(SMALL, num_envs=2, n_step=2, train_every=24, batch_size=4, torso=TorsoSizes(image=(8,)))
    assert_same(*resumed_and_undisturbed(lambda: "ALE/Breakout-v5", "nfdrl-s", config, tmp_path, (200,)))


def test_an_agent_saved_with_its_replay_continues_exactly(tmp_path: Path) -> None:
    agent = Agent("nfdrl-s", "CartPole-v1", config=SMALL).learn(150, total_steps=200, progress=False)
    agent.save(tmp_path / "agent", replay=True)
    agent.save(tmp_path / "agent", replay=True)  # again, in place
    assert len(list((tmp_path / "agent" / "replay").iterdir())) == 1
    loaded = Agent.load(tmp_path / "agent")
    assert_same(agent.learn(50, progress=False), loaded.learn(50, progress=False))
    without = Agent.load(tmp_path / "agent", replay=False)
    assert len(without.trainer.replay) == 0


def test_saving_does_not_disturb_learning(tmp_path: Path) -> None:
    quiet, watched = (Agent("dqn", "CartPole-v1", config=SMALL) for _ in range(2))
    quiet.learn(200, progress=False)
    for event in watched.events(200):
        if isinstance(event, Report):
            watched.save(tmp_path / "agent", replay=True)
    assert_same(quiet, watched)


def test_only_the_last_checkpoints_and_the_best_are_kept(tmp_path: Path) -> None:
    agent = Agent("dqn", "CartPole-v1", seed=1, config=SMALL)
    checkpoints = Checkpoints(tmp_path, keep=2)
    sizes = []
    for event in agent.events(700, pause_every=20):
        if isinstance(event, Pause):
            checkpoints.save(agent, regular=True)
            sizes.append(sum(path.stat().st_size for path in (tmp_path / "replay").iterdir()))
    assert checkpoints.best is not None
    steps = [int(path.name.removeprefix("step-")) for path in checkpoints_of(tmp_path)]
    assert steps[:2] == [680, 660]
    assert set(steps[2:]) == {checkpoints.best["step"]} - {680, 660}
    # 90 rows, those of the interval between the two that are kept, and the oldest segment's that are no longer needed;
    # an interval has 20 transitions and the final observations of its episodes.
    row = 4 * 4 + 18
    assert max(sizes) <= (90 + 3 * 30) * row + 10 * 400
    assert not list((tmp_path / "checkpoints").glob(".*"))


# The command line, as a process that is really killed.

QUICK = ["--set", "learning_starts=64", "batch_size=8", "report_every=50", "buffer_size=400", "mlp=(8,8)"]
RUN = [
    "--method",
    "c51",
    "--env",
    "CartPole-v1",
    "--seed",
    "2",
    "--steps",
    "1500",
    "--checkpoint-every",
    "100",
    "--evaluate",
    "2",
]
TIMED = ("steps_per_second",)


def words(*more: str) -> list[str]:
    return ["train", "--no-progress", *RUN, *more, *QUICK]


def resume(run: Path, *more: str) -> list[str]:
    return ["train", "--no-progress", "--resume", str(run), *more]


# A run that waits at its last checkpoint but one for the signal: it cannot end before a test comes to send it.
HELD = """
import sys, time
from nfdrl.cli import main
from nfdrl.runs.keeping import Checkpoints

save = Checkpoints.save

def held(self, agent, **words):
    done = save(self, agent, **words)
    while agent.step == 1400 and not agent.trainer.pausing:
        time.sleep(0.01)
    return done

Checkpoints.save = held
sys.exit(main(sys.argv[1:]))
"""


def process(line: list[str]) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", HELD, *line]
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def rows_of(run: Path) -> list[dict[str, str]]:
    with (run / "metrics.csv").open() as file:
        return [{name: value for name, value in row.items() if name not in TIMED} for row in csv.DictReader(file)]


def assert_same_runs(first: Path, second: Path) -> None:
    assert rows_of(first) == rows_of(second)
    ours, theirs = (checkpoints_of(run)[0] for run in (first, second))
    assert ours.name == theirs.name
    assert {p.name: p.read_bytes() for p in ours.glob("weights*")} == {
        p.name: p.read_bytes() for p in theirs.glob("weights*")
    }
    one, other = (json.loads((run / "metrics.json").read_text())["evaluation"] for run in (first, second))
    assert one == other


def wait_for(condition: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    while not condition():
        assert running.poll() is None, running.communicate()
        time.sleep(0.002)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    assert main(words("--out", str(out))) == 0
    return out


def test_a_killed_run_is_resumed_to_the_same_files(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = words("--out", str(out))
    for least in ("step-000000000300", "step-000000000800"):
        with process(line) as running:
            wait_for(lambda: max((path.name for path in checkpoints_of(out)), default="") >= least, running)  # noqa: B023
            running.kill()
        assert not (out / "metrics.json").exists()
        line = resume(out)
    assert main(line) == 0
    assert_same_runs(undisturbed, out)


def test_a_signal_leaves_a_checkpoint_and_says_how_to_resume(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with process(words("--out", str(out))) as running:
        wait_for(lambda: len(checkpoints_of(out)) >= 2, running)
        running.send_signal(signal.SIGTERM)
        said, _ = running.communicate(timeout=600)
    assert running.returncode == 128 + signal.SIGTERM
    assert f"nfdrl train --resume {out}" in said
    state = json.loads((checkpoints_of(out)[0] / "state.json").read_text())
    assert f"{state['step']:,}" in said
    # Resumed from the interruption it is another run; from the regular checkpoint before it, the same.
    assert main(resume(out, "--exact")) == 0
    assert state["run"]["regular"] or "made by an interruption" in capsys.readouterr().err
    assert_same_runs(undisturbed, out)


def test_one_interrupt_stops_after_the_step_and_a_second_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    agent = Agent("dqn", "CartPole-v1", config=SMALL)
    with pausing_on_signals(agent.trainer) as received:
        for event in agent.events(20_000):
            if not received:
                os.kill(os.getpid(), signal.SIGINT)
                first = agent.step
            elif isinstance(event, Pause):
                break
        assert not event.regular
        assert event.step == first  # the step in which the episode ended
        assert received == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_a_run_without_a_checkpoint_starts_over(undisturbed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    shutil.copy(undisturbed / "config.json", out)
    (out / "metrics.csv").write_text("step\n50\n")
    assert main(resume(out)) == 0
    assert_same_runs(undisturbed, out)


def test_a_damaged_checkpoint_is_skipped_for_the_one_before_it(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    (out / "metrics.json").unlink()
    path = checkpoints_of(out)[0] / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    before = checkpoints_of(out)[1].name
    assert main(resume(out)) == 0
    assert f"resuming from {before}\n" in capsys.readouterr().err
    assert_same_runs(undisturbed, out)
    for path in checkpoints_of(out):
        (path / "manifest.json").write_text("{}")
    capsys.readouterr()
    assert main(resume(out, "--steps", "5000")) == 2
    error = capsys.readouterr().err
    assert error.count("cannot be used") == len(checkpoints_of(out))
    assert "no checkpoint in" in error


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", [damage, Path.unlink])
def test_a_damaged_segment_costs_its_transitions_and_not_the_run(
    how: Callable[[Path], None], undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    (out / "metrics.json").unlink()
    last = checkpoints_of(out)[0]
    named = [segment["file"]["name"] for segment in json.loads((last / "state.json").read_text())["replay"]["segments"]]
    how(out / "replay" / named[0])  # the oldest, which every kept checkpoint needs
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert main(resume(out, "--exact", "--steps", "1600")) == 2
    assert "without --exact, a damaged replay would do" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    whole = len(Agent.load(undisturbed).trainer.replay)
    assert main(resume(out, "--steps", "1600")) == 0
    said = re.search(
        r"(step-\d+) continues with ([\d,]+) transitions of its replay: ([\d,]+) were lost", capsys.readouterr().err
    )
    assert said is not None
    assert said[1] == last.name
    left, lost = (int(said[k].replace(",", "")) for k in (2, 3))
    assert left + lost == whole
    assert 0 < lost < whole
    # What is left is whole from here on.
    assert main(resume(out, "--steps", "1700")) == 0
    assert "lost" not in capsys.readouterr().err
    state = json.loads((checkpoints_of(out)[0] / "state.json").read_text())
    assert named[0] not in [segment["file"]["name"] for segment in state["replay"]["segments"]]


def test_a_whole_checkpoint_is_preferred_to_a_newer_one_with_a_damaged_replay(
    undisturbed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    (out / "metrics.json").unlink()
    last = json.loads((checkpoints_of(out)[0] / "state.json").read_text())["replay"]["segments"][-1]
    damage(out / "replay" / last["file"]["name"])
    assert main(resume(out)) == 0
    assert_same_runs(undisturbed, out)


def test_a_run_with_nothing_left_of_its_replay_refills_it(
    undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    shutil.copytree(undisturbed, out)
    shutil.rmtree(out / "replay")
    assert main(resume(out, "--steps", "1700")) == 0
    assert "continues with 0 transitions" in capsys.readouterr().err
    assert len(Agent.load(out).trainer.replay) == 200


def test_weights_are_plain_tensors(undisturbed: Path) -> None:
    assert "online.head.linear.weight" in load_file(checkpoints_of(undisturbed)[0] / "weights.safetensors")
    kinds = {path.suffix for path in undisturbed.rglob("*") if path.is_file()}
    assert kinds == {".json", ".safetensors", ".npy", ".csv"}


def test_a_full_disk_or_lost_permission_costs_a_checkpoint_but_not_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, checkpoints = Agent("dqn", "CartPole-v1", config=SMALL), Checkpoints(tmp_path / "run")
    outcomes = []
    whole = Agent("dqn", "CartPole-v1", config=SMALL)
    train(whole, Checkpoints(tmp_path / "whole"), STEPS)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    tmp_path.chmod(0o700)
    for event in agent.events(STEPS, pause_every=EVERY):
        if not isinstance(event, Pause):
            continue
        before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        if event.step == 120:  # no file may exceed a few bytes: writing fails as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
            try:
                outcomes.append(checkpoints.save(agent, regular=True))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        elif event.step == 180:
            outcomes.append(save_without_permission(checkpoints, agent, tmp_path))
        else:
            outcomes.append(checkpoints.save(agent, regular=True))
        if not outcomes[-1]:
            after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
            assert after == before
            assert Agent.load(tmp_path / "run").step == 60
    assert outcomes == [True, False, False]
    assert checkpoints.failures == 2
    assert capsys.readouterr().err.count("training continues") == 2
    assert_same(agent, whole)
    assert checkpoints.save(agent, regular=True)
    result = newest(tmp_path / "run")
    assert result is not None
    assert_same(result[0], whole)


def save_without_permission(checkpoints: Checkpoints, agent: Agent, folder: Path) -> bool:
    """As a user other than root, who may do anything."""
    if os.geteuid() == 0:
        os.seteuid(65534)
        try:
            return checkpoints.save(agent, regular=True)
        finally:
            os.seteuid(0)
    folders = [folder / "run" / name for name in ("checkpoints", "replay")]
    for path in folders:
        path.chmod(0o500)
    try:
        return checkpoints.save(agent, regular=True)
    finally:
        for path in folders:
            path.chmod(0o700)


def test_resuming_imports_the_module_of_an_environment_and_loading_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_env.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Own-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=30)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "run"
    line = ["--env", "own_env:Own-v0", "--steps", "100", "--evaluate", "0", "--out", str(out)]
    assert main(["train", "--no-progress", "--method", "dqn", *line, *QUICK]) == 0
    del gymnasium.registry["Own-v0"]
    monkeypatch.delitem(sys.modules, "own_env")
    assert main(resume(out, "--steps", "150")) == 0
    del gymnasium.registry["Own-v0"]
    monkeypatch.delitem(sys.modules, "own_env")
    with pytest.raises(NfdrlError, match="would import a module"):
        Agent.load(out)
    assert "own_env" not in sys.modules
    assert Agent.load(out, "own_env:Own-v0").step == 150
