"""An environment that breaks while an agent is looked at: exit code 1, one line that names the episode and the step."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import httpx
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from nfdrl.agent import Agent
from nfdrl.cli import main
from nfdrl.envs.watching import EnvironmentFailure
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.rollouts import Episodes
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.callbacks import Evaluate
from nfdrl.training.config import TrainConfig
from odd_env import Odd, fail, hang

ID = "nfdrl-tests/Breaks-v0"
SMALL = TrainConfig(
    learning_starts=20, batch_size=8, report_every=50, buffer_size=400, torso=TorsoSizes(mlp=(8,))
)  # fmt: skip
PATIENCE = 300  # seconds: the machine may be busy
# With seed 0, it is tried whether the environment can draw itself.
WHERE = r"(in episode \d+( \(seed 1000\d\))?|in the episode with seed (1000\d|0)), at step \d+"


def register(**odd: Any) -> None:
    """From now on, environments of this id break; their episodes have ten steps."""
    gymnasium.registry.pop(ID, None)
    gymnasium.register(ID, lambda **made: Odd(**made, **odd), disable_env_checker=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of two checkpoints, from the time when its environment still worked."""
    register()
    folder = tmp_path_factory.mktemp("breaks") / "run"
    Run(folder, "dqn", ID, config=SMALL, checkpoint_every=60).train(120, progress=False)
    yield folder
    gymnasium.registry.pop(ID, None)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with narrow limits."""
    register()
    folder = tmp_path_factory.mktemp("breaks") / "hasty"
    limits = replace(SMALL, reset_limit=2.0, step_limit=2.0)
    Agent("dqn", ID, config=limits).learn(60, progress=False).save(folder)
    return folder


VERBS: dict[str, list[str]] = {
    "evaluate": ["evaluate", "RUN", "--episodes", "3", "--out", "NEW/returns.json"],
    "calibration": ["evaluate", "RUN", "--episodes", "8", "--calibration"],
    "video": ["evaluate", "RUN", "--episodes", "1", "--video", "NEW/episode.gif"],
    "page": ["page", "RUN", "--episodes", "1", "--out", "NEW/law.html"],
}
NAN = np.array([0, np.nan, 0, 0], np.float32)
FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "raises in a step": ({"odd": lambda: 1 // 0}, "failed WHERE: ZeroDivisionError"),
    "raises in a reset": ({"odd": lambda: 1 // 0, "where": "reset"}, "failed WHERE: ZeroDivisionError"),
    "says much": ({"odd": fail(RuntimeError("a\nb\nc" * 200))}, "failed WHERE: RuntimeError: a b c"),
    "exits": ({"odd": fail(SystemExit(3))}, "failed WHERE: SystemExit: 3"),
    "exits in a reset": ({"odd": fail(SystemExit(0)), "where": "reset"}, "failed WHERE: SystemExit: 0"),
    "hangs in a step": ({"odd": hang}, r"hung WHERE: a step took more than 2 s \(setting: step_limit\)"),
    "hangs in a reset": ({"odd": hang, "where": "reset"}, r"hung WHERE: reset.* took more than 2 s"),
    "another shape": ({"odd": lambda: np.ones(3, np.float32)}, r"of shape \(3,\) instead of \(4,\) WHERE"),
    "no observation": ({"odd": lambda: None, "where": "reset"}, r"an observation of shape \(\).* WHERE"),
    "NaN": ({"odd": lambda: NAN}, "an observation that is not finite WHERE"),
    "a reward of NaN": ({"odd": lambda: float("nan"), "where": "reward"}, "a reward of nan WHERE"),
    "no reward": ({"odd": lambda: "much", "where": "reward"}, "failed WHERE: ValueError"),
}


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(line) == 1
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert said.err.startswith("nfdrl: error: ")
    assert len(said.err) < 600
    return said.err


@pytest.mark.parametrize("name", FAILURES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_failure_ends_a_command_in_one_line(
    verb: str,
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    odd, message = FAILURES[name]
    run = request.getfixturevalue("hasty" if name.startswith("hangs") else "run")
    register(**{"after": 0 if odd.get("where") == "reset" else 4} | odd)
    if verb == "calibration":  # comes after an evaluation, which would fail first
        monkeypatch.setattr(Agent, "evaluate", lambda *_, **__: Episodes(np.zeros(1), np.zeros(1, np.int64)))
    before = sorted(run.rglob("*"))
    line = [word.replace("RUN", str(run)).replace("NEW", str(tmp_path)) for word in VERBS[verb]]
    error = refused(line, capsys)
    assert re.search(message.replace("WHERE", WHERE), error), error
    assert not list(tmp_path.iterdir())
    assert sorted(run.rglob("*")) == before


@pytest.mark.parametrize("odd", [fail(OSError("no\ndisplay")), lambda: None, lambda: np.zeros((3, 3))])
@pytest.mark.parametrize("verb", ["video", "page"])
def test_a_picture_that_cannot_be_drawn_is_explained(
    verb: str, odd: Callable[[], Any], run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    register(odd=odd, where="render", after=3)
    line = [word.replace("RUN", str(run)).replace("NEW", str(tmp_path)) for word in VERBS[verb]]
    assert re.search(WHERE, refused(line, capsys))


def test_the_step_and_the_episode_are_the_ones_that_failed(run: Path) -> None:
    agent, made = Agent.load(run, Odd()), []

    def make(**words: Any) -> Odd:
        made.append(Odd(**words, **({"odd": lambda: 1 // 0, "after": 17} if len(made) == 2 else {})))
        return made[-1]

    gymnasium.registry.pop(ID, None)
    gymnasium.register(ID, make, disable_env_checker=True)
    # The first one made is only asked for its spaces. Of the eight that play, the second fails in its second episode.
    with pytest.raises(EnvironmentFailure, match=r"in episode 9 \(seed 109\), at step 6: ZeroDivisionError"):
        agent.evaluate(12, 100, env=ID, progress=False)
    assert len(made) == 9


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_a_vector_environment_that_fails_names_its_episodes(mode: AutoresetMode, run: Path) -> None:
    agent = Agent.load(run, Odd())
    vector = SyncVectorEnv([Odd, lambda: Odd(odd=lambda: 1 // 0, after=4)], autoreset_mode=mode)
    message = r"failed in one of the episodes 0 to 1 \(the first has seed 7\), at step 3: ZeroDivisionError"
    with pytest.raises(EnvironmentFailure, match=message):
        agent.evaluate(2, 7, env=vector, progress=False)


def test_an_evaluation_that_fails_during_training_leaves_a_checkpoint(tmp_path: Path, run: Path) -> None:
    register()
    training = Run(tmp_path / "new", "dqn", ID, config=SMALL)
    broken = Evaluate(50, 2, env=Odd(odd=fail(SystemExit(1)), after=3))
    message = r"in episode 0 \(seed 10000\), at step 2: SystemExit: 1; the last checkpoint is"
    with pytest.raises(NfdrlError, match=message):
        training.train(200, callbacks=[broken], progress=False)
    assert Run.resume(tmp_path / "new").train(200, progress=False).agent.step == 200


DYING = """
import os, signal, gymnasium
from gymnasium.vector import AsyncVectorEnv
from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError

class Dies(gymnasium.Wrapper):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    agent = Agent("dqn", "CartPole-v1")
    vector = AsyncVectorEnv([lambda: gymnasium.make("CartPole-v1"), lambda: Dies(gymnasium.make("CartPole-v1"))])
    try:
        agent.evaluate(2, 3, env=vector)
    except NfdrlError as error:
        print(error, flush=True)
    os._exit(0)  # Gymnasium cannot close what has died
"""


def test_a_worker_that_dies_ends_an_evaluation_in_one_line() -> None:
    done = subprocess.run([sys.executable, "-c", DYING], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.startswith(
        "the environment failed in one of the episodes 0 to 1 (the first has seed 3), at step 0"
    )
    assert done.stdout.count("\n") == 1


SERVING = """
import sys
sys.path.insert(0, sys.argv[1])
from test_failing_evaluation import hang, main, register
register(odd=(lambda: 1 // 0) if sys.argv[2] == "fails" else hang, after=4)
sys.exit(main(["watch", sys.argv[3], "--port", "0"]))
"""


@pytest.mark.parametrize(("how", "message"), [("fails", "failed"), ("hangs", "hung")])
def test_a_live_page_says_what_happened_and_the_server_stays(how: str, message: str, hasty: Path) -> None:
    line = [sys.executable, "-c", SERVING, str(Path(__file__).parent), how, str(hasty)]
    where = f"the environment {message} in the episode with seed 10000, at step 3"
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[1].rstrip("/")
        (found,) = httpx.get(f"{address}/api/runs", timeout=PATIENCE).json()["runs"]
        socket = f"{address.replace('http', 'ws')}/api/play/{found['id']}"
        with connect(socket, origin=address, open_timeout=PATIENCE) as page:
            page.recv()
            page.send(json.dumps({"playing": True}))
            with pytest.raises(ConnectionClosed) as closed:
                list(page)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason.startswith(where)
        if how == "fails":
            table = httpx.get(f"{address}/api/table/{found['id']}", timeout=PATIENCE)
            assert (table.status_code, table.text) == (
                500,
                f"{where}: ZeroDivisionError: integer division or modulo by zero",
            )
        assert httpx.get(f"{address}/api/runs", timeout=PATIENCE).status_code == 200
        server.send_signal(signal.SIGINT)  # ends it, even if a thread hangs
        said = server.communicate(timeout=PATIENCE)[1]
    assert "Traceback" not in said
    assert where in said
