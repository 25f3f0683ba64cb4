"""Environments that break end a run with a checkpoint and one line that names the step; nothing bad is stored."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.stepping import DirectStream, VectorStream
from nfdrl.envs.watching import Blaming, EnvironmentFailure, Hung, limited, watched
from nfdrl.errors import NfdrlError
from nfdrl.runs.layout import checkpoints
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from odd_env import BOX, Odd, fail, hang

NAN = float("nan")
SMALL = TrainConfig(
    learning_starts=20,
    batch_size=8,
    report_every=50,
    buffer_size=400,
    torso=TorsoSizes(mlp=(8,)),
)


@pytest.fixture(autouse=True)
def no_alarm() -> None:
    """Training that another test has left half-way may still have its alarm."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


UINT8, FIVE = spaces.Box(0, 255, (3,), np.uint8), spaces.Discrete(5)
MISFITS: dict[str, tuple[spaces.Space[Any], Any, str]] = {
    "a number": (BOX, 1.0, r"of shape \(\) instead of \(4,\)"),
    "one entry": (BOX, np.ones(1, np.float32), r"of shape \(1,\)"),
    "an axis too many": (BOX, np.ones((1, 4), np.float32), r"of shape \(1, 4\)"),
    "too many entries": (BOX, np.ones(5, np.float32), r"of shape \(5,\)"),
    "words": (BOX, np.array(["a"] * 4), "whose values are not float32"),
    "nothing": (BOX, None, "of shape"),
    "fractions of bytes": (UINT8, np.full(3, 300.7), "of float64 whose values are not uint8"),
    "numbers beyond bytes": (UINT8, np.full(3, 300), "of int64 whose values are not uint8"),
    "negative bytes": (UINT8, np.full(3, -1), "not uint8"),
    "fractions of states": (FIVE, 2.7, "of float64 whose values are not int64"),
    "a state beyond the last": (FIVE, 5, r"outside Discrete\(5\)"),
    "a negative state": (FIVE, -1, r"outside Discrete\(5\)"),
    "a choice beyond the last": (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "outside MultiDiscrete"),
    "two in a bit": (spaces.MultiBinary(2), np.array([0, 2], np.int8), "outside MultiBinary"),
    "NaN": (BOX, np.array([0, NAN, 0, 0], np.float32), "not finite"),
    "infinity": (BOX, np.array([0, 0, np.inf, 0], np.float32), "not finite"),
    "more than float32 holds": (spaces.Box(-np.inf, np.inf, (2,), np.float64), np.array([1e300, -1e300]), "not finite"),
}
FITS: dict[str, tuple[spaces.Space[Any], Any]] = {
    "whole floats for bytes": (UINT8, np.full(3, 7.0)),
    "a list": (BOX, [1.0, 2.0, 3.0, 4.0]),
    "doubles for floats": (BOX, np.ones(4)),
    "integers for floats": (BOX, np.ones(4, np.int64)),
    "a NumPy integer for a state": (FIVE, np.int32(4)),
    "a whole float for a state": (FIVE, 2.0),
}


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused_and_not_stored(name: str, where: str) -> None:
    space, odd, message = MISFITS[name]
    agent = Agent("dqn", Odd(space, odd=lambda: odd, where=where, after=30), config=SMALL)
    with pytest.raises(EnvironmentFailure, match=f"{message}.* at step {'29' if where == 'step' else '29|30'}"):
        agent.learn(100, progress=False)
    rows = agent.trainer.replay.storage.read(np.arange(60))
    assert np.isfinite(rows).all()
    assert set(np.unique(rows).tolist()) <= {0, 1}


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
@pytest.mark.parametrize("name", MISFITS)
def test_a_vector_environment_may_not_hide_it(name: str, mode: AutoresetMode) -> None:
    """NaN reaches training from an automatic reset as well."""
    space, odd, message = MISFITS[name]

    class Direct(SyncVectorEnv):
        """Gives what the environment gave, without casting it to the space."""

        def step(self, actions: Any) -> Any:
            observation, *rest = super().step(actions)
            taken = self.envs[0].unwrapped.taken
            return (np.stack([odd, odd]) if taken >= 30 else observation), *rest

    def make() -> gymnasium.Env[Any, Any]:
        nan = isinstance(odd, np.ndarray) and odd.dtype.kind == "f" and message == "not finite"
        return Odd(space, odd=(lambda: odd) if nan else None, where="reset", after=30)

    envs = [make, make]
    vector: Any = SyncVectorEnv(envs, autoreset_mode=mode)
    if make().odd is None:  # type: ignore[attr-defined]
        vector = Direct(envs, autoreset_mode=mode)
    agent = Agent("dqn", vector, config=SMALL)
    with pytest.raises(EnvironmentFailure, match=r" at step \d+"):
        agent.learn(200, progress=False)
    assert np.isfinite(agent.trainer.replay.storage.read(np.arange(60))).all()


@pytest.mark.parametrize("name", FITS)
def test_what_fits_without_loss_is_accepted(name: str) -> None:
    space, odd = FITS[name]
    agent = Agent("dqn", Odd(space, odd=lambda: odd, after=0), config=SMALL)
    assert agent.learn(60, progress=False).step == 60


@pytest.mark.parametrize("reward", [NAN, np.inf, 1e300, None, "much", [1.0, 2.0]])
def test_a_reward_that_is_none_is_refused(reward: Any) -> None:
    agent = Agent("dqn", Odd(odd=lambda: reward, where="reward", after=30), config=SMALL)
    with pytest.raises(EnvironmentFailure, match="at step 29"):
        agent.learn(100, progress=False)


FAILURES: dict[str, tuple[Callable[[], Any], str]] = {
    "exits": (fail(SystemExit(3)), "SystemExit: 3"),
    "divides by zero": (lambda: 1 // 0, "ZeroDivisionError"),
    "says much": (fail(RuntimeError("a\nb\nc" * 200)), "RuntimeError: a b c"),
    "hangs": (hang, r"hung at step [\d,]+: (reset of environment 0|a step) took more than 2 s"),
}


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("name", FAILURES)
def test_a_run_whose_environment_breaks_ends_with_a_checkpoint_and_one_line(
    name: str, where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd, message = FAILURES[name]
    gymnasium.register("nfdrl-tests/Odd-v0", lambda: Odd(odd=odd, where=where), disable_env_checker=True)
    line = ["--env", "nfdrl-tests/Odd-v0", "--steps", "400", "--checkpoint-every", "100", "--out", str(tmp_path)]
    settings = ["learning_starts=20", "batch_size=8", "mlp=(8,)"]
    settings += ["reset_limit=2", "step_limit=2"] if name == "hangs" else []
    try:
        assert main(["train", "--no-progress", "--method", "dqn", *line, "--set", *settings]) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "at step 149" in error
        assert len(error) < 600
        assert re.search(message, error)
        assert checkpoints(tmp_path)[0].name == "step-000000000149"
        assert f"the last checkpoint is {checkpoints(tmp_path)[0]}" in error
        # A new environment of this kind breaks after its own 150 steps: one checkpoint farther on.
        with pytest.raises(NfdrlError, match="at step 298"):
            Run.resume(tmp_path).train(progress=False)
    finally:
        del gymnasium.registry["nfdrl-tests/Odd-v0"]


DYING = """
import os, signal, gymnasium
from gymnasium.vector import AsyncVectorEnv
from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError

if __name__ == "__main__":
    vector = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 2)
    agent = Agent("dqn", vector)
    try:
        for event in agent.events(100_000):
            if event.step >= 60:
                os.kill(vector.processes[1].pid, signal.SIGKILL)
    except NfdrlError as error:
        print(agent.step, error, flush=True)
    os._exit(0)  # Gymnasium cannot close what has died
"""


def test_a_worker_that_dies_ends_training_with_the_step() -> None:
    done = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, timeout=300, check=True)
    step, _, error = done.stdout.partition(" ")
    assert int(step) >= 60
    assert error.startswith(f"the environment failed at step {step}: ")


def test_a_limit_is_kept_and_leaves_no_trace() -> None:
    with pytest.raises(Hung, match=r"waiting took more than 0.05 s"), limited(0.05, "waiting"):
        hang()
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    heard: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with limited(0.01, "waiting"):  # the program's own alarms come first
            while not heard:
                time.sleep(0.005)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with limited(0, "waiting"):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_limits_inside_one_another_do_not_forget_the_outer_one() -> None:
    passed = []

    def step() -> None:
        with limited(500, "a reset"):
            passed.append(signal.getitimer(signal.ITIMER_REAL)[0] > 400)
        with limited(0, "a reset without a limit"):
            time.sleep(0.5)
            passed.append(True)
        hang()

    blaming, message = Blaming(), r"hung at step 7: a step took more than 0.2 s \(setting: step_limit\)"
    with pytest.raises(EnvironmentFailure, match=message), watched(blaming, 0.2), blaming.at(7):
        step()
    assert passed == [True, True]
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_time_between_steps_is_not_limited() -> None:
    blaming = Blaming()
    with watched(blaming, 0.05):
        with blaming:
            pass
        time.sleep(0.3)  # a callback, say, or a checkpoint


def test_training_leaves_the_programs_alarms_alone() -> None:
    heard: list[int] = []

    def callback(agent: Agent, event: Any) -> None:
        signal.signal(signal.SIGALRM, lambda number, _: heard.append(number))

    try:
        Agent("dqn", Odd(), config=SMALL).learn(60, callbacks=[callback], progress=False)
        signal.raise_signal(signal.SIGALRM)
        assert heard == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0)
    Agent("dqn", Odd(), config=SMALL).learn(60, progress=False)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_streams_check_what_they_are_given() -> None:
    short = DirectStream([Odd(odd=lambda: np.ones(2, np.float32), after=0)])
    short.reset(seed=0)
    with pytest.raises(NfdrlError, match=r"environment 0 gave an observation of shape \(2,\)"):
        short.step(np.zeros(1, np.int64))

    class Longer(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            observation, reward, *rest = super().step(actions)
            return observation, np.append(reward, 1.0), *rest

    longer = VectorStream(Longer([Odd, Odd]))
    longer.reset(seed=0)
    with pytest.raises(NfdrlError, match=r"must have that length, got \(3,\)"):
        longer.step(np.zeros(2, np.int64))
