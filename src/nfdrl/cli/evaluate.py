"""`nfdrl evaluate`: greedy episodes of a trained agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from nfdrl.cli.train import warnings_as_lines
from nfdrl.envs.watching import closed_after
from nfdrl.errors import MOST_EPISODES, NfdrlError, check_at_least, check_at_most, check_seed
from nfdrl.files import check_file_name

if TYPE_CHECKING:
    from nfdrl.agent import Agent


@dataclass(frozen=True)
class Evaluate:
    """Play whole episodes with a trained agent and print its returns.

    Examples: `nfdrl evaluate out/cartpole --episodes 100 --risk cvar:0.1`,
    `nfdrl evaluate out/cartpole --episodes 1 --video cartpole.gif`,
    `nfdrl evaluate out/cartpole --episodes 100 --calibration`.
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """Folder that `nfdrl train` or `Agent.save` wrote."""

    episodes: int = 20
    """Number of episodes; the k-th is seeded with seed + k."""

    seed: int = 10_000
    """Seed of the first episode."""

    max_steps: int | None = None
    """Cut off episodes after this many steps; by default after 108,000."""

    risk: str | None = None
    """What actions are chosen by: mean, cvar:0.1, …; by default as in training."""

    env: str | None = None
    """Another environment with the same observations and actions."""

    method: str | None = None
    """package.module:METHOD if the run's method is your own: loading by itself imports nothing."""

    device: str = "auto"
    """auto, cpu or cuda."""

    out: Path | None = None
    """JSON file for all returns and lengths."""

    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A .mp4 or .gif file of the first episode, with the law of each action next to the picture."""

    video_steps: int = 1_000
    """At most this many steps go into the video."""

    fps: float | None = None
    """Steps per second in the video; by default the environment's own rate."""

    calibration: bool = False
    """Also hold predicted laws against the discounted returns that came: calibration.json, .csv, .png, .svg in RUN."""

    states: int = 20
    """Of the calibration: at most this many random states of each episode; 1 gives independent ones."""

    resolution: float = 0.0
    """Of the calibration: differences in the return that do not count."""

    def run(self) -> int:
        from nfdrl.agent import Agent
        from nfdrl.laws import find_method

        check_at_least(1, episodes=self.episodes)
        check_at_most(MOST_EPISODES, episodes=self.episodes)
        check_seed(self.seed)
        if self.out is not None:
            if self.out.exists():
                raise NfdrlError(f"{str(self.out)!r} exists: name another file")
            check_file_name(self.out)
        if self.calibration:
            self._check_calibration()
        if self.video is not None:
            from nfdrl.evaluation.video import check_video

            check_video(self.video)
            check_at_least(1, video_steps=self.video_steps)
            if self.fps is not None and not 0.01 <= self.fps <= 1000:
                raise NfdrlError(f"fps must lie in [0.01, 1000], got {self.fps}")
        method = None if self.method is None else find_method(self.method)
        agent = Agent.load(self.run_folder, self.env, method=method, risk=self.risk, device=self.device, replay=False)
        if self.video is not None:
            self._record(agent, self.video)
        with warnings_as_lines():
            result = agent.evaluate(self.episodes, self.seed, max_steps=self.max_steps)
        if self.out is not None:
            from nfdrl.runs.session import write_evaluation

            self.out.parent.mkdir(parents=True, exist_ok=True)
            write_evaluation(self.out, agent, result)
        print(
            f"return {result.mean:.4g} ± {result.std:.3g} over {self.episodes} episodes "
            f"(least {result.returns.min():.4g}, most {result.returns.max():.4g}, length {result.lengths.mean():.4g})"
        )
        if self.calibration:
            self._calibrate(agent)
        return 0

    def _check_calibration(self) -> None:
        """Refuse what could not be calibrated or written, before anything is played."""
        from nfdrl.files import check_writable
        from nfdrl.reports import check_own
        from nfdrl.runs.layout import CALIBRATION

        check_own(self.run_folder, CALIBRATION, [f"{CALIBRATION}.png", f"{CALIBRATION}.svg"])
        if self.run_folder.is_dir():  # loading says what is wrong with others
            check_writable(self.run_folder)

    def _calibrate(self, agent: Agent) -> None:
        from rich.console import Console

        from nfdrl.evaluation.calibration_report import draw, said_of, table_of
        from nfdrl.reports import command_of, provenance, write_report
        from nfdrl.runs.layout import CALIBRATION

        found = agent.calibration(self.episodes, self.seed, states=self.states, resolution=self.resolution)
        made_by = {"step": agent.step, "risk": str(agent.risk), **provenance(command_of("evaluate", self))}
        title = f"{agent.source.name}, {agent.step:,} steps"
        written = write_report(
            self.run_folder, made_by | found.summary(), tables={CALIBRATION: found.rows()},
            draw=lambda: draw({agent.method.label: (found, agent.method.colour)}, title),
            figure=CALIBRATION, name=CALIBRATION,
        )  # fmt: skip
        Console().print(table_of(found))
        print(f"{said_of(found)}\nwritten to {self.run_folder}: {', '.join(written)}")

    def _record(self, agent: Agent, path: Path) -> None:
        from nfdrl.evaluation.episode import rendering_env
        from nfdrl.evaluation.video import record

        if not agent.source.known:
            raise NfdrlError("the saved agent has no environment: name one with --env")
        limits = agent.config.limits()
        env = rendering_env(agent.source, limits)
        with closed_after(env.close):
            made = record(
                agent, env, path, seed=self.seed, max_steps=self.video_steps, fps=self.fps,
                discount=agent.config.discount, limits=limits,
            )  # fmt: skip
        print(f"video of {made.frames} steps with a return of {made.episode_return:.4g}, {made.end}: {path}")
