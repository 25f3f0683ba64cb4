"""Bad command lines: exit code 1 or 2, one line on stderr, no traceback, and nothing written or lost."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import pytest

from nfdrl.cli import main
from nfdrl.networks import TorsoSizes
from nfdrl.runs.session import Run
from nfdrl.training.config import TrainConfig

LONG = "x" * 300
HUGE = "9" * 40
TRAIN = "train --no-progress --out new --steps 50"
EVALUATE = "evaluate run"
COMPARE = "compare --smoke --out new"
PAPER = "paper architecture --smoke"

# Values of --set that nothing can be trained with: settings of the run, of the torso, and of the default method.
SETTINGS = [
    "batch_size=0", "batch_size=-1", "batch_size=1.5", "batch_size=many", "batch_size=", "batch_size=true",
    f"batch_size={HUGE}", "batch_size=100000000000", "buffer_size=0", "buffer_size=4", "buffer_size=1e6",
    f"buffer_size={HUGE}", "buffer_size=1000000000000000", "buffer_size=(1,2)", "discount=2", "discount=-0.1",
    "discount=nan", "discount=x", "learning_rate=0", "learning_rate=-1", "learning_rate=nan", "learning_rate=inf",
    "learning_rate_decay=slow", "adam_eps=0", "adam_eps=inf", "max_grad_norm=0", "max_grad_norm=nan",
    "max_grad_norm=inf", "frame_replay=maybe", "frame_replay=on", "frame_replay=compressed", "learning_starts=-1",
    "train_every=0", "train_every=none", "target_every=0", "target_tau=0", "target_tau=2", "target_tau=nan",
    "double_q=3", "double_q=yes", "n_step=0", "n_step=-3", "cut_explored=x", "epsilon_start=2", "epsilon_end=-1",
    "epsilon_fraction=nan", "num_envs=0", "num_envs=-2", f"num_envs={HUGE}", "return_range=wide", "engine=steam",
    "report_every=0", "reset_limit=-1", "reset_limit=inf", "reset_limit=nan", "mlp=(1.5,)", "mlp=(0,)", "mlp=(8,-8)",
    "mlp=x", "mlp=(8,'a')", "mlp=(((8,),),)", f"mlp=({HUGE},)", "mlp=(1000000,1000000)", "torso=3", "torso=(8,8)",
    "torso.mlp=(0,)", "torso.depth=3", "torso.mlp.x=1", "components=0", "components=-1", "components=1.5",
    "samples=0", "points=nowhere", "comparison=best", "comparison.rooted=3", "comparison.bandwidth=-1",
    "comparison.bandwidth=nan", "comparison.bandwidth=inf", "comparison.grid_size=1", "initial_bound=0",
    "initial_bound=nan", "initial_bound=inf", "terminal_std=-1", "terminal_std=nan", "n_flows=0", "held=2",
    "action_value=most", "no_such_setting=1", "batch_siz=3", "=3", "batch_size", "batch_size==3", "[]=1",
    "replay_on_disk=file.txt/inside", f"replay_on_disk={LONG}",
]  # fmt: skip
METHODS = [
    "nope", "''", "[]", "c51[", "c51]", "c51[atoms]", "c51[atoms=]", "c51[atoms=1]", "c51[atoms=0]", "c51[atoms=x]",
    "c51[v_min=3,v_max=1]", "c51[v_max=inf]", "c51[v_min=nan]", "c51[nope=1]", "qr-dqn[quantiles=0]",
    "qr-dqn[huber_threshold=-1]", "qr-dqn[huber_threshold=nan]", "iqn[samples=0]", "iqn[target_samples=0]",
    "iqn[acting_levels=0]", "iqn[cosines=0]", "iqn[hidden=0]", "fqf[fractions=0]", "fqf[hidden=0]", "fqf[cosines=-1]",
    "fqf[fraction_lr=nan]", "umdqn[points=2]", "umdqn[hidden=0]", "er-dqn[expectiles=2]", "er-dqn[outermost_level=1]",
    "nfdrl[components=0]", "nfdrl[unit=0]", "nfdrl[unit=inf]", "nfdrl[anchor=2]", "dqn[huber_threshold=0]",
    "no_such_module:METHOD", "broken_module:METHOD", "exiting_module:METHOD", "math:pi", "math:nothing", ":METHOD",
    "math:", "a:b:c", "c51[atoms=13][atoms=14]", f"iqn[hidden={HUGE}]", "iqn[hidden=1000000000]", LONG,
]  # fmt: skip
ENVIRONMENTS = [
    "''", "Nope-v0", "CartPole", "CartPole-v99", "CartPole-v1[nope=1]", "CartPole-v1[", "CartPole-v1[sutton=]",
    "Pendulum-v1", "no_such_module:Env-v0", "broken_module:Env-v0", "exiting_module:Env-v0", ":Env-v0", "math:Env-v0",
    "math:", "a:b:c", "ALE/Nope-v5", "ALE/Pong-v5[nope=1]", "ALE/Pong-v5[frame_skip=0]", "ALE/Pong-v5[sticky=2]",
    "MinAtar/Nope-v1", "FrozenLake-v1[map_name=9x9]", "nfdrl/Nope-v0", "Blackjack-v1", LONG, "[bold]x[/bold]", "../x",
]  # fmt: skip
DEVICES = ["gpu", "cuda", "cuda:99", "meta", "''", "cpu:x", "tpu", "cuda:-1", "mps", LONG]
RISKS = [
    "x",
    "''",
    "cvar",
    "cvar:",
    "cvar:0",
    "cvar:2",
    "cvar:nan",
    "cvar:x",
    "var:-1",
    "wang:x",
    "mean:1",
    "cvar:0.1:2",
]

COMMANDS = [
    *(f"{TRAIN} --set {shlex.quote(word)}" for word in SETTINGS),
    *(f"{TRAIN} --method {word}" for word in METHODS),
    *(f"{TRAIN} --env {word}" for word in ENVIRONMENTS),
    *(f"{TRAIN} --device {word}" for word in DEVICES),
    *(f"{TRAIN} --risk {word}" for word in RISKS),
    *(f"{TRAIN} --seed {word}" for word in ("-1", "x", "1.5", HUGE, "4294967296", "nan")),
    *(f"{TRAIN} --{name} {word}" for name in ("keep", "checkpoint-every") for word in ("0", "-1", "x", "1.5", "none")),
    *(f"{TRAIN} --evaluate {word}" for word in ("-1", "x", "1.5")),
    *(f"train --no-progress --out new --steps {word}" for word in ("0", "-1", "x", "1.5", "''")),
    *(f"{TRAIN} --preset {word}" for word in ("x", "''", "paper-x")),
    *(f"train --no-progress --steps 50 --out {word}" for word in ("run", "file.txt", "file.txt/x", "foreign", LONG)),
    *(f"train --no-progress --steps 50 --overwrite --out {word}" for word in ("file.txt", "foreign")),
    *(f"train --no-progress --resume {word}" for word in ("nowhere", "file.txt", "foreign", "''", LONG, "damaged")),
    *(f"train --no-progress --resume run --{word}" for word in ("seed 3", "env X", "method dqn", "set n_step=2")),
    *(f"train --no-progress --resume run --{word}" for word in ("overwrite", "out x", "steps 10", "steps 60")),
    "train --no-progress --resume run --steps 100 --device cuda:99",
    "train --no-progress --resume run --steps 100 --keep 0",
    "train --no-progress --resume run --steps 100 --set replay_on_disk=file.txt/x",
    "train --no-progress --resume run --steps 100 --method no_such_module:METHOD",
    "train --nope", "train --steps", "train x", "train --progress maybe",
    *(f"{EVALUATE} --episodes {word}" for word in ("0", "-1", "x", "1.5", HUGE)),
    *(f"{EVALUATE} --episodes 1 --seed {word}" for word in ("-1", "x", HUGE)),
    *(f"{EVALUATE} --episodes 1 --risk {word}" for word in RISKS),
    *(f"{EVALUATE} --episodes 1 --env {word}" for word in ("Acrobot-v1", "Nope-v0", "broken_module:Env-v0", "''")),
    *(f"{EVALUATE} --episodes 1 --device {word}" for word in DEVICES),
    *(f"{EVALUATE} --episodes 1 --out {word}" for word in ("file.txt", "file.txt/x.json", "run", f"{LONG}.json")),
    *(f"{EVALUATE} --episodes 1 --video {word}" for word in ("x", "x.avi", "''", "file.txt/x.gif", "run", ".gif")),
    *(f"{EVALUATE} --episodes 1 --video x.gif --fps {word}" for word in ("nan", "0", "-1", "inf", "x", "1e-300")),
    *(f"{EVALUATE} --episodes 1 --video x.gif --video-steps {word}" for word in ("0", "-1", "x")),
    *(f"evaluate {word}" for word in ("nowhere", "file.txt", "foreign", "''", LONG, "damaged", "''/x", ".")),
    f"{EVALUATE} --method c51", f"{EVALUATE} --method no_such_module:METHOD", "evaluate",
    *(f"{COMPARE} --envs {word}" for word in ("''", "nope", "CartPole-v1", "mdp2[nope=1]", "mdp2[", ",,")),
    *(f"{COMPARE} --envs mdp2 --methods {word}" for word in ("''", "nope", "c51[atoms=0]", "broken_module:M", ",")),
    *(f"{COMPARE} --envs mdp2 --methods dqn --discount {word}" for word in ("2", "-1", "nan", "x", "1.0000001")),
    *(f"compare --out new --envs mdp2 --methods dqn --{name} 0" for name in ("steps", "batch", "seeds")),
    *(f"compare --out new --envs mdp2 --methods dqn --{name} -1" for name in ("steps", "batch", "seeds")),
    "compare --smoke --envs mdp2 --methods dqn --out file.txt", f"{COMPARE} --envs FrozenLake-v1[map_name=9x9]",
    *(f"paper {word}" for word in ("nope", "''", "theroy", LONG, "../theory", "list x", "'[bold]'")),
    *(f"{PAPER} --seed {word}" for word in ("-1", "x", HUGE)),
    *(f"{PAPER} --out {word}" for word in ("file.txt", "file.txt/x", LONG)),
    *(f"paper atari5 --smoke --out new --runs {word}" for word in ("nowhere", "file.txt", "empty")),
    *(f"paper pong --smoke --out new --runs {word}" for word in ("nowhere", "file.txt", "empty", "damaged")),
    *(f"report {word}" for word in ("nowhere", "file.txt", "empty", "damaged", "''", LONG)),
    "report run --out file.txt", "report run --out file.txt/x", f"report run --out {LONG}", "report", "report run x",
    *(f"bench {word}" for word in ("nope", "''", "lossess", LONG, "losses --out file.txt", "losses --seed x", "../x")),
    "nope", "--nope", "train train", "''", LONG, "-x", "--version=3x",
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    small = TrainConfig(learning_starts=20, batch_size=8, buffer_size=100, torso=TorsoSizes(mlp=(8,)))
    Run(folder / "run", "dqn", "CartPole-v1", config=small).train(60, progress=False)
    shutil.copytree(folder / "run", folder / "damaged")
    for path in (folder / "damaged").rglob("*.json"):
        path.write_text(path.read_text()[: path.stat().st_size // 2])
    (folder / "foreign").mkdir()
    (folder / "foreign" / "metrics.json").write_text("{}")
    (folder / "empty").mkdir()
    (folder / "file.txt").write_text("mine")
    (folder / "broken_module.py").write_text("1 / 0\n")
    (folder / "exiting_module.py").write_text("raise SystemExit('[no]\\nmore')\n")
    return folder


@pytest.fixture
def here(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(prepared)
    monkeypatch.syspath_prepend(str(prepared))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return prepared


def state(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused(line: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """What a command that must fail says."""
    capsys.readouterr()
    try:
        code = main(line)
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr()
    assert code in (1, 2), (line, code, said)
    assert said.err.count("\n") == 1, (line, said.err)
    assert said.err.startswith("nfdrl: error: "), (line, said.err)
    assert len(said.err) < 700, (line, said.err)
    assert "Traceback" not in said.out + said.err
    return said.err


def test_there_are_at_least_two_hundred_bad_commands() -> None:
    assert len(set(COMMANDS)) == len(COMMANDS) >= 200
    assert {shlex.split(command)[0] for command in COMMANDS} >= {
        "train", "evaluate", "compare", "paper", "report", "bench",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:70])
def test_a_bad_command_is_refused_in_one_line(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(here)
    refused(shlex.split(command), capsys)
    assert state(here) == before
