"""`nfdrl train`: one run of one method in one environment."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from nfdrl.cli.counts import Count
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, find_method
from nfdrl.progress import say
from nfdrl.settings import apply_settings

if TYPE_CHECKING:
    from nfdrl.runs.session import Run

METHOD_HELP = (
    f"{', '.join(METHODS)}, or package.module:METHOD of your own; with settings in brackets: c51[atoms=13]. "
    "By default nfdrl, or what a preset file says. A resumed run needs it only if the method is your own."
)
KEPT = ("method", "env", "seed", "preset", "set", "risk", "checkpoint_every", "out")  # by a resumed run
ON_DISK = "replay_on_disk="  # but for this setting: where files are made is up to this command


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings for the user as lines, without the place in the code."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = lambda message, *_, **__: say(str(message))
        yield


@dataclass(frozen=True)
class Train:
    """Train a method in a Gymnasium environment with discrete actions.

    Writes config.json, metrics.csv, checkpoints/, replay/ and, at the end, metrics.json. After a crash, a kill or
    Ctrl-C, `--resume RUN` continues.

    Example: `nfdrl train --method nfdrl-s --env CartPole-v1 --steps 100000 --out out/cartpole`.
    """

    method: Annotated[str | None, tyro.conf.arg(help=METHOD_HELP)] = None

    env: str = "CartPole-v1"
    """A Gymnasium id, maybe with settings (`ALE/Pong-v5[sticky=0.25]`); `module:id` imports the module first."""

    steps: Count | None = None
    """Total number of transitions, `100000` or `1e5`; by default the preset's."""

    seed: int = 0
    """The same seed on the same machine gives the same weights."""

    out: Path = Path("out/train")
    """Folder of the run."""

    preset: str = "default"
    """Settings to start from: default, atari, minatar, paper (its table), paper-literal (its loss as well), or a .toml
    file, as `nfdrl tune` writes it."""

    set: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE ...")] = ()
    """Settings to change, of the run or of the method: `--set learning_rate=1e-3 n_step=3 comparison.rooted=true`."""

    risk: str = "mean"
    """What actions are chosen by, in training too: mean, cvar:0.1, var:0.1, wang:-0.75, cpw, …"""

    device: str = "auto"
    """auto, cpu or cuda."""

    evaluate: int = 20
    """Episodes of the final evaluation; 0 for none."""

    evaluate_every: Count = 0
    """Also evaluate every so many steps, into evaluations.csv, and keep the best agent in best/; 0 for never."""

    stop_at: float | None = None
    """Stop at this mean return: of an evaluation with --evaluate-every, else of the last 100 training episodes."""

    checkpoint_every: int = 50_000
    """Steps between two checkpoints, at which all environments are reset; there is always one at the end."""

    keep: int = 3
    """How many of the last checkpoints to keep; the best one is kept as well, without its replay."""

    tensorboard: bool = False
    """Write scalars for TensorBoard, too."""

    resume: Path | None = None
    """Continue the run in this folder with its own settings; larger --steps extend it."""

    exact: bool = False
    """With --resume: start from the last regular checkpoint, to reach the weights of an undisturbed run."""

    overwrite: bool = False
    """Remove the run in --out first."""

    force: bool = False
    """Take the run from a process on another machine that is no longer there."""

    progress: bool = True
    """Show a progress bar."""

    def run(self) -> int:
        from nfdrl.runs.session import Interrupted

        run, steps = self._new() if self.resume is None else self._resumed(self.resume)
        print(run.agent.trainer.actor.engine)
        try:
            with warnings_as_lines():
                run.train(steps, progress=self.progress)
        except Interrupted as stop:
            print(stop, flush=True)
            return 128 + stop.number
        evaluation = run.summary.get("evaluation")
        if evaluation is not None:
            print(f"return {evaluation['mean']:.4g} ± {evaluation['std']:.3g} over {evaluation['episodes']} episodes")
        print(f"{run.agent.step:,} steps in {run.summary['seconds']:.1f} s; written: {run.folder}")
        return 0

    def _new(self) -> tuple[Run, int]:
        from nfdrl.runs.session import Run
        from nfdrl.training.presets import find_preset

        if self.exact:
            raise NfdrlError("only a run that exists can continue as if undisturbed: --exact needs --resume")
        preset = find_preset(self.preset)
        method = find_method(preset.method if self.method is None else self.method, preset.adapt)
        config, method = apply_settings(self.set, preset.config, method)
        run = Run(
            self.out,
            method,
            self.env,
            seed=self.seed,
            config=config,
            risk=self.risk,
            device=self.device,
            checkpoint_every=self.checkpoint_every,
            keep=self.keep,
            evaluate=self.evaluate,
            evaluate_every=self.evaluate_every,
            stop_at=self.stop_at,
            tensorboard=self.tensorboard,
            overwrite=self.overwrite,
            force=self.force,
        )
        return run, preset.steps if self.steps is None else self.steps

    def _resumed(self, folder: Path) -> tuple[Run, int | None]:
        from nfdrl.runs.session import Run

        if self.overwrite:
            raise NfdrlError("a run can be resumed or overwritten, not both: leave out --resume or --overwrite")
        own_method = find_method(self.method) if self.method is not None and ":" in self.method else None
        on_disk = [word for word in self.set if word.startswith(ON_DISK)]
        allowed = {"method": own_method is not None, "set": len(on_disk) == len(self.set) == 1}
        changed = [name for name in KEPT if self._given(name) is not None and not allowed.get(name)]
        if changed:
            raise NfdrlError(f"a resumed run keeps its own {', '.join(changed)}: leave out --{changed[0]}")
        own = {name: self._given(name) for name in ("keep", "evaluate", "evaluate_every", "stop_at", "tensorboard")}
        own |= {"replay_on_disk": on_disk[0].removeprefix(ON_DISK)} if on_disk else {}
        run = Run.resume(folder, method=own_method, exact=self.exact, device=self.device, force=self.force, **own)
        return run, self.steps

    def _given(self, name: str) -> Any:
        """The value of an argument, or None if it is the default: a resumed run then keeps its own."""
        default = next(field.default for field in fields(self) if field.name == name)
        value = getattr(self, name)
        return None if value == default else value
