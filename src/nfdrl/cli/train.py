"""`nfdrl train`: one run of one method in one environment."""

from __future__ import annotations

import csv
import json
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nfdrl.cli.bench import check_writable
from nfdrl.cli.settings import apply_settings
from nfdrl.errors import NfdrlError

if TYPE_CHECKING:
    from nfdrl.agent import Agent
    from nfdrl.training.loop import Report
    from nfdrl.training.trackers import Tracker

CONFIG, METRICS, SUMMARY, CHECKPOINT, TENSORBOARD = (
    "config.json",
    "metrics.csv",
    "metrics.json",
    "checkpoint",
    "tensorboard",
)


@dataclass(frozen=True)
class Train:
    """Train a method in a Gymnasium environment with discrete actions.

    Writes config.json, metrics.csv, checkpoint/ and, at the end, metrics.json.

    Example: `nfdrl train --method nfdrl-s --env CartPole-v1 --steps 100000 --out out/cartpole`.
    """

    method: str = "nfdrl-s"
    """dqn, c51, qr-dqn, iqn, fqf, er-dqn, umdqn, nfdrl-s or nfdrl-e."""

    env: str = "CartPole-v1"
    """A Gymnasium id; `module:id` imports the module that registers it."""

    steps: int | None = None
    """Transitions to train for, in all; the preset's number where it is not given."""

    seed: int = 0
    """The same seed on the same machine gives the same weights."""

    out: Path = Path("out/train")
    """Folder of the run."""

    preset: str = "default"
    """Settings to start from: default, or paper (its table of hyper-parameters)."""

    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Settings to change, of the run or of the method: `--set learning_rate=1e-3 n_step=3 components=8`."""

    risk: str = "mean"
    """What actions are chosen by, in training as well: mean, cvar:0.1, var:0.1, wang:-0.75, cpw, …"""

    device: str = "auto"
    """auto, cpu or cuda."""

    evaluate: int = 20
    """Episodes of the final evaluation; 0 for none."""

    checkpoint_every: int = 50_000
    """Steps between two checkpoints; there is one at the end in any case."""

    tensorboard: bool = False
    """Write scalars for TensorBoard as well."""

    resume: bool = False
    """Go on with the run in `out`, with its own settings, to `steps` in all."""

    overwrite: bool = False
    """Remove the run in `out` first."""

    progress: bool = True
    """Show a progress bar."""

    def run(self) -> int:
        """Do what was asked; the exit code."""
        if self.evaluate < 0 or self.checkpoint_every < 1:
            raise NfdrlError("evaluate must not be negative, and checkpoint_every at least 1")
        if self.resume and self.overwrite:
            raise NfdrlError("a run can be resumed or overwritten, not both")
        agent, steps = self._agent()
        if agent.step >= steps:
            raise NfdrlError(f"the run in {str(self.out)!r} has {agent.step:,} steps: ask for more than that")
        check_writable(self.out)
        if self.overwrite:
            clear_run(self.out)
        trim_metrics(self.out / METRICS, agent.step)
        self._write_config(agent, steps)
        started = time.perf_counter()
        report = self._train(agent, steps)
        self._write_summary(agent, report, time.perf_counter() - started)
        return 0

    def _agent(self) -> tuple[Agent, int]:
        """A new agent, or that of the run to go on with; and how many steps it shall have in the end."""
        from nfdrl.agent import Agent
        from nfdrl.laws import find_method
        from nfdrl.training.presets import find_preset

        preset = find_preset(self.preset)
        steps = preset.steps if self.steps is None else self.steps
        if steps < 1:
            raise NfdrlError(f"steps must be at least 1, got {steps}")
        present = (self.out / CONFIG).exists() or (self.out / CHECKPOINT).exists()
        if self.resume:
            return Agent.load(self.out / CHECKPOINT, device=self.device), steps
        if present and not self.overwrite:
            raise NfdrlError(f"{str(self.out)!r} holds a run: add --resume or --overwrite, or name another folder")
        method, config = apply_settings(self.set, preset.adapt(find_method(self.method)), preset.config)
        agent = Agent(method, self.env, seed=self.seed, config=config, risk=self.risk, device=self.device)
        return agent, steps

    def _train(self, agent: Agent, steps: int) -> Report | None:
        from nfdrl.training.loop import Report

        last, save_at = None, agent.step + self.checkpoint_every
        try:
            for event in agent.events(steps - agent.step, self._trackers(agent, steps)):
                last = event if isinstance(event, Report) else last
                if agent.step >= save_at:
                    save_at += self.checkpoint_every
                    agent.save(self.out / CHECKPOINT)
        finally:  # also when interrupted: what was learned is kept
            agent.save(self.out / CHECKPOINT)
        return last

    def _trackers(self, agent: Agent, steps: int) -> list[Tracker]:
        from nfdrl.training.trackers import CsvTracker, ProgressTracker, TensorBoardTracker

        trackers: list[Tracker] = [CsvTracker(self.out / METRICS)]
        if self.tensorboard:
            trackers.append(TensorBoardTracker(self.out / TENSORBOARD))
        if self.progress:
            trackers.append(ProgressTracker(steps, agent.step))
        return trackers

    def _write_config(self, agent: Agent, steps: int) -> None:
        from nfdrl.checkpoint import method_config

        config = {
            "method": method_config(agent.method),
            "env": agent.source.name if agent.source else None,
            "steps": steps,
            "seed": agent.seed,
            "preset": self.preset,
            "risk": str(agent.risk),
            "train": asdict(agent.config),
        }
        write_json(self.out / CONFIG, config)

    def _write_summary(self, agent: Agent, report: Report | None, seconds: float) -> None:
        summary: dict[str, Any] = {"step": agent.step, "seconds": round(seconds, 3)}
        if report is not None:
            summary["training"] = asdict(report)
        if self.evaluate:
            result = agent.evaluate(self.evaluate)
            summary["evaluation"] = {
                "episodes": self.evaluate,
                "mean": result.mean,
                "std": result.std,
                "returns": result.returns.tolist(),
                "lengths": result.lengths.tolist(),
            }
            print(f"return {result.mean:.4g} ± {result.std:.3g} over {self.evaluate} episodes")
        write_json(self.out / SUMMARY, summary)
        print(f"{agent.step:,} steps in {seconds:.1f} s; written: {self.out}")


def write_json(path: Path, content: dict[str, Any]) -> None:
    """JSON with a final newline."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False, ensure_ascii=False) + "\n", encoding="utf-8")


def clear_run(folder: Path) -> None:
    """Remove the files of a run, and no others."""
    for name in (CONFIG, METRICS, SUMMARY):
        (folder / name).unlink(missing_ok=True)
    for name in (CHECKPOINT, TENSORBOARD):
        shutil.rmtree(folder / name, ignore_errors=True)


def trim_metrics(path: Path, step: int) -> None:
    """Drop the lines behind the step at which a run goes on, so that no step is there twice."""
    if not path.exists():
        return
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        names, rows = reader.fieldnames or [], [row for row in reader if int(row["step"]) <= step]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
