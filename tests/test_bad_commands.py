"""Bad command lines: exit code 1 or 2, one line on stderr, no traceback, and nothing written or lost."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from nfdrl.cli import main
from nfdrl.runs.session import Run
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

LONG = "x" * 300
HUGE = "9" * 40
TRAIN = "train --no-progress --out new --steps 50"
EVALUATE = "evaluate run"
COMPARE = "compare --smoke --out new"
COMPARE_ONE = "compare --smoke --envs mdp2 --methods dqn"
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
    "comparison.bandwidth=nan", "comparison.bandwidth=inf", "comparison.grid_size=1",
    f"comparison.grid_size={HUGE}", "initial_bound=0", "initial_bound=nan",
    "initial_bound=inf", "terminal_std=-1", "terminal_std=nan", "n_flows=0", "held=2",
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
    "math:", "a:b:c", "c51[atoms=13][atoms=14]", f"iqn[hidden={HUGE}]", f"iqn[samples={HUGE}]", f"umdqn[points={HUGE}]",
    f"nfdrl[samples={HUGE}]", "iqn[hidden=1000000000]", "nfdrl[mean_weight=-1]", "nfdrl[mean_weight=nan]",
    "nfdrl[reward=0]", "nfdrl[auxiliary=-1]", f"nfdrl[auxiliary={HUGE}]", "nfdrl[auxiliary=1000000000]", LONG,
]  # fmt: skip
ENVIRONMENTS = [
    "''", "Nope-v0", "CartPole", "CartPole-v99", "CartPole-v1[nope=1]", "CartPole-v1[", "CartPole-v1[sutton=]",
    "Pendulum-v1", "no_such_module:Env-v0", "broken_module:Env-v0", "exiting_module:Env-v0", ":Env-v0", "math:Env-v0",
    "math:", "a:b:c", "ALE/Nope-v5", "ALE/Pong-v5[nope=1]", "ALE/Pong-v5[frame_skip=0]", "ALE/Pong-v5[sticky=2]",
    "MinAtar/Nope-v1", "FrozenLake-v1[map_name=9x9]", "nfdrl/Nope-v0", LONG, "[bold]x[/bold]", "../x",
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

# Specs of sweeps and of tunings that nothing can be run with, by what is wrong with them.
SPEC = 'envs = ["CartPole-v1"]\nmethods = ["dqn"]\nsteps = 50\nset.learning_starts = 20\nset.buffer_size = 100\n'
TRUTH = 'kind = "truth"\nenvs = ["mdp2"]\nmethods = ["dqn"]\n'
SWEEPS = {
    "empty": "", "no-env": 'methods = ["dqn"]\nsteps = 5', "no-method": 'envs = ["CartPole-v1"]\nsteps = 5',
    "many-seeds": f"{SPEC}seeds = 100_000_000", "many-trials": f"{SPEC}seeds = 50_000\ngrid.n_step = [1, 2, 3]",
    "wide-grid": SPEC + "\n".join(f"grid.k{i} = {list(range(40))}" for i in range(8)), "seeds": f"{SPEC}seeds = -1",
    "seed": f"{SPEC}seeds = [99999999999]", "half-seed": f"{SPEC}seeds = [1.5]", "steps": SPEC.replace("50", "0"),
    "long": SPEC.replace("50", HUGE), "order": f'{SPEC}order = ["x"]', "kind": f'{SPEC}kind = "x"', "toml": "x = [",
    "cpus": f"{SPEC}resources.cpus = nan", "memory": f"{SPEC}resources.memory_gb = inf", "deep": "a = " + "[" * 5000,
    "date": f"{SPEC}evaluate = 2020-01-01", "setting": f"{SPEC}set.a.b.c = 3", "keep": f"{SPEC}keep = 0",
    "every": f"{SPEC}checkpoint_every = -1", "env": SPEC.replace("CartPole", "Nope"), "id": SPEC.replace('"dqn"', "{}"),
    "method": SPEC.replace("dqn", "nope"), "broken": SPEC.replace("dqn", "broken_module:M"),
    "exiting": SPEC.replace("CartPole-v1", "exiting_module:E"), "preset": f'{SPEC}preset = "nope"',
    "preset-file": f'{SPEC}preset = "nope.toml"', "risk": f'{SPEC}set.risk = "x"',
    "rate": f"{SPEC}set.learning_rate = nan",
    "episodes": f"{SPEC}evaluate = {HUGE}", "twice": SPEC.replace('"dqn"', '"dqn", "dqn"'), "key": f"{'k' * 1000} = 1",
    "table": TRUTH.replace("mdp2", "CartPole-v1"), "updates": f"{TRUTH}updates = 0", "discount": f"{TRUTH}discount = 3",
    "stack": f"{SPEC}set.frame_stack = {HUGE}",
}  # fmt: skip
TUNE = 'env = "CartPole-v1"\nsteps = 50\nevaluate = 1\nsearch.learning_rate = { low = 1e-4, high = 1e-2 }\n'
TUNINGS = {
    "empty": "", "no-search": TUNE.partition("search")[0], "trials": f"{TUNE}trials = 0",
    "many": f"{TUNE}trials = {HUGE}",
    "many-seeds": f"{TUNE}seeds = 100_000_000", "order": TUNE.replace("1e-4", "1"), "nan": TUNE.replace("1e-4", "nan"),
    "log": TUNE.replace("low = 1e-4", "low = -1, log = true"), "one": f"{TUNE}search.n_step = [3]",
    "wide": TUNE.replace("low = 1e-4, high = 1e-2", "low = -1e308, high = 1e308"), "number": f"{TUNE}search.n_step = 3",
    "unknown": f"{TUNE}search.nope = [1, 2]",
    "value": f"{TUNE}search.n_step = [0, 1]", "objective": f'{TUNE}objective = "x"',
    "both": f"{TUNE}set.learning_rate = 1",
    "asha": f"{TUNE}asha.reduction = 1", "grace": f"{TUNE}asha.grace = 99999", "env": TUNE.replace("CartPole", "Nope"),
    "actions": TUNE.replace("CartPole", "Pendulum"), "method": f'{TUNE}method = "c51["',
    "seed": f"{TUNE}search_seed = -1",
    "exact": f'{TUNE}objective = "truth"', "risk": f'{TUNE}set.risk = "x"', "cpus": f"{TUNE}resources.cpus = 0",
    "every": f"{TUNE}evaluate_every = 99999", "preset": f'{TUNE}preset = "nope.toml"',
    "episodes": f"{TUNE}evaluate = 0",
}  # fmt: skip

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
    *(f"page {word}" for word in ("nowhere", "file.txt", "foreign", "empty", "damaged", "''", LONG, "", "run nowhere")),
    *(f"page run --out {word}" for word in ("file.txt", "file.txt/x.html", "run", f"{LONG}.html", "''")),
    *(f"page run --out new.html --episodes {word}" for word in ("0", "-1", "x", "1.5")),
    *(f"page run --out new.html --max-steps {word}" for word in ("0", "-1", "x")),
    *(f"page run --out new.html --frames {word}" for word in ("-1", "x", "nan")),
    *(f"page run --out new.html --seed {word}" for word in ("-1", "x", HUGE)),
    *(f"page run --out new.html --risk {word}" for word in RISKS),
    *(f"page run --out new.html --env {word}" for word in ("Acrobot-v1", "Nope-v0", "broken_module:Env-v0", "''")),
    *(f"page run --out new.html --method {word}" for word in ("c51", "no_such_module:METHOD", "broken_module:METHOD")),
    *(f"page run --out new.html --figures {word}" for word in ("nowhere", "file.txt")),
    *(f"watch {word}" for word in ("nowhere", "file.txt", LONG, "run run")),
    *(f"watch run --port {word}" for word in ("-1", "65536", "x", "1.5", HUGE)),
    *(f"watch run --port 0 --host {word}" for word in ("nowhere.invalid", "999.1.1.1", "''", "x y", LONG)),
    *(f"watch run --port 0 --method {word}" for word in ("nope", "no_such_module:METHOD", "exiting_module:METHOD")),
    *(f"export {word} --onnx new.onnx" for word in ("nowhere", "file.txt", "foreign", "empty", "damaged", "''", LONG)),
    *(f"export run --onnx {word}" for word in ("file.txt", "file.txt/x.onnx", "run", f"{LONG}.onnx", "''")),
    *(f"export run --onnx new/x.onnx --levels {word}" for word in ("2", "-1", "nan", "x", "cvar:2", "''", "")),
    *(f"export run --onnx new.onnx --risk {word}" for word in RISKS),
    *(f"export run --onnx new.onnx --method {word}" for word in ("c51", "no_such_module:METHOD", "exiting_module:M")),
    *(f"export run --onnx new.onnx --torso {word}" for word in ("x", "math:pi", "no_such:T", ":", "''")),
    *(f"export run --onnx new.onnx --torso {word}_module:T" for word in ("broken", "exiting")), "export run", "export",
    *(f"settings {word}" for word in ("nope", "''", "c51[atoms=0]", "no_such:M", "broken_module:M", LONG, "a b")),
    *(f"settings --preset {word}" for word in ("nope", "''", LONG)),
    *(f"sweep sweep-{name}.toml --out new" for name in SWEEPS),
    *(f"sweep sweep-{name}.toml --estimate" for name in ("many-seeds", "wide-grid", "rate", "env")),
    *(f"sweep {word} --out new" for word in ("nope", "''", "file.txt", "run", LONG, "../x", "'[x]'", "tune-cpus.toml")),
    *(f"sweep good.toml --out new --cpus {word}" for word in ("0", "-1", "x", "1.5", "1 --address auto")),
    *(f"sweep good.toml --out new --only {word}" for word in ("nope", "''", "'*/nfdrl/*' 'x*'")),
    *(f"sweep good.toml --out {word}" for word in ("file.txt", "file.txt/x", "foreign", LONG)), "sweep",
    *(f"tune tune-{name}.toml --out new" for name in TUNINGS),
    *(f"tune {word} --out new" for word in ("nope", "''", "file.txt", "run", LONG, "smoke", "sweep-twice.toml")),
    *(f"tune tune-smoke --out new --cpus {word}" for word in ("0", "-1", "x", "1.5", "1 --address auto")),
    *(f"tune tune-smoke --out {word}" for word in ("file.txt", "file.txt/x", "foreign", LONG)), "tune",
    *(f"{verb} --out {word}" for verb in (COMPARE_ONE, PAPER, "bench losses --smoke", "report run")
      for word in ("run", "foreign")),
    *(f"report {word}-metrics --out new" for word in ("wordy", "endless", "binary", "lost")),
    *(f"report run --out new --target {word}"
      for word in ("x", "=3", "CartPole-v1=nan", "CartPole-v1=1:1", "Nope-v0=3")),
    *(f"{EVALUATE} --episodes 1 --max-steps {word}" for word in ("0", "-1", "x")),
    *(f"{EVALUATE} --episodes 1 --calibration --states {word}" for word in ("0", "-1", "x")),
    *(f"{EVALUATE} --episodes 1 --calibration --resolution {word}" for word in ("nan", "inf", "-1", "x")),
    "evaluate foreign-run --episodes 1 --calibration", "evaluate run/config.json", "evaluate run/checkpoints",
    f"page run --out new.html --episodes {HUGE}", "page run --overwrite --out run", "page run --overwrite --out ''",
    "page run --overwrite --out pipe", "page run --out file.txt/x/y.html --episodes 9999",
    *(f"{TRAIN} --stop-at {word}" for word in ("nan", "inf", "x")), f"{TRAIN} --evaluate {HUGE}", f"{TRAIN} --exact",
    *(f"{TRAIN} --evaluate-every {word}" for word in ("-1", "x", "1.5")),
    *(f"{TRAIN} --set {name}={word}" for name in ("frame_stack", "step_limit") for word in ("-1", "x", "nan")),
    f"{TRAIN} --set frame_stack={HUGE}", f"{TRAIN} --set frame_stack=1000000000", f"{TRAIN} --steps {HUGE}",
    "train --no-progress --resume run --steps 100 --stop-at nan", f"train --no-progress --resume run --steps {HUGE}",
    f"train --no-progress --resume run --steps 100 --evaluate {HUGE}",
    *(f"{verb} odd\udcff" for verb in ("evaluate", f"{TRAIN} --env", f"{TRAIN} --set", "report", "page",
    "export run --onnx")),
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
    for name in ("metrics.json", "sweep.csv", "best.toml"):
        (folder / "foreign" / name).write_text('{"mine": 1}')
    shutil.copytree(folder / "run", folder / "foreign-run")
    (folder / "foreign-run" / "calibration.csv").write_text("mine")
    table = (folder / "run" / "metrics.csv").read_text().splitlines()
    for name, content in {
        "wordy": "\n".join([table[0], "x" + table[1]]).encode(),
        "endless": b"x" * 200_000,
        "binary": bytes(range(256)) * 20,
        "lost": "\n".join([table[0], "nan" + table[1][table[1].index(",") :]]).encode(),
    }.items():
        shutil.copytree(folder / "run", folder / f"{name}-metrics")
        (folder / f"{name}-metrics" / "metrics.csv").write_bytes(content)
    for kind, specs in (("sweep", SWEEPS), ("tune", TUNINGS)):
        for name, content in specs.items():
            (folder / f"{kind}-{name}.toml").write_text(content)
    (folder / "good.toml").write_text(SPEC)
    os.mkfifo(folder / "pipe")
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
        "train", "evaluate", "compare", "paper", "report", "bench", "page", "watch", "export", "settings", "sweep",
        "tune",
    }  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[:70])
def test_a_bad_command_is_refused_in_one_line(command: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = state(here)
    refused(shlex.split(command), capsys)
    assert state(here) == before
