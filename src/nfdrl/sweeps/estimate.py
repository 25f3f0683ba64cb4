"""What a sweep will cost, from a short run of each of its cells."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nfdrl.agent import Agent
from nfdrl.evaluation.comparison import Budget, Problem, run_cell
from nfdrl.evaluation.problems import contender, discount_for, finite_mdp
from nfdrl.runs.session import Upkeep, replay_rows
from nfdrl.sweeps.driver import demands
from nfdrl.sweeps.trial import Resources, TrainTrial, Trial, TruthTrial
from nfdrl.threads import threads
from nfdrl.training.events import Report
from nfdrl.training.storing import transition_bytes

SECONDS = 4.0  # of a cell's measurement
STARTS = 200  # random steps before the first update of a measurement
WARM_UP = 40  # steps with updates before the clock starts: the first ones compile code and fill caches
BETWEEN = 40  # steps between two looks at the clock
ROWS = 20_000  # of a measurement's replay
UPDATES = 60  # of a truth trial's measurement, the first third to warm up
ENDLESS = 10**9  # steps
COPIES = 4  # of every weight in a checkpoint: online, target, and Adam's two moments
WEIGHT = 4  # bytes


@dataclass(frozen=True)
class Cost:
    """The cost of a trial, and how many trials of its cell there are."""

    trial: Trial
    trials: int
    cpu_seconds: float
    seconds: float  # of the trial, on the cores that it is given
    memory: int  # bytes
    replay: int  # bytes on disk, of a running trial
    rest: int  # bytes on disk, of a finished one

    @property
    def cpu_hours(self) -> float:
        """Of all trials of the cell."""
        return self.trials * self.cpu_seconds / 3600


def estimate(
    trials: Sequence[Trial], resources: Resources, track: Callable[[Iterable[Trial]], Iterable[Trial]]
) -> Iterator[Cost]:
    """The cost of every cell, measured in this process; nothing is written. The final evaluation is not counted.

    Without a GPU all times are those of the processor: others may be using the machine.
    """
    cells: dict[tuple[object, ...], list[Trial]] = {}
    for trial in trials:
        cells.setdefault(trial.cell, []).append(trial)
    for trial in track([alike[0] for alike in cells.values()]):
        (_, memory), *_ = demands([trial], resources)
        count = len(cells[trial.cell])
        with threads(resources.threads):
            if isinstance(trial, TrainTrial):
                (cpu, clock), replay, weights = _of_run(trial, resources)
                rest = weights + (replay if trial.keep_replay else 0)
            else:
                assert isinstance(trial, TruthTrial)
                (cpu, clock), replay, rest = _of_cell(trial), 0, 0
        seconds = clock if resources.gpus else cpu / resources.threads
        yield Cost(trial, count, trial.work * cpu, trial.work * seconds, memory, replay, rest)


class _Clock:
    """Seconds per step, of the processor and on the clock, from the first look that counts to the last."""

    def __init__(self) -> None:
        self._looks: list[tuple[int, float, float]] = []

    def look(self, step: int) -> float:
        """Take the time at a step; returns the seconds since the first look."""
        self._looks.append((step, time.process_time(), time.perf_counter()))
        return self._looks[-1][2] - self._looks[0][2]

    def per_step(self) -> tuple[float, float]:
        steps, cpu, clock = (last - first for first, last in zip(self._looks[0], self._looks[-1], strict=True))
        return cpu / steps, clock / steps


def _of_run(trial: TrainTrial, resources: Resources) -> tuple[tuple[float, float], int, int]:
    """Seconds per step, and the bytes of a run's replay and weights on disk."""
    config, method = trial.parts()
    rows, clock = min(config.buffer_size, ROWS), _Clock()
    measured = replace(config, learning_starts=STARTS, report_every=BETWEEN, buffer_size=rows, replay_on_disk="")
    with Agent(method, trial.env, seed=trial.seed, config=measured, risk=trial.risk, device=resources.device) as agent:
        for event in agent.events(ENDLESS, total_steps=ENDLESS):
            warm = isinstance(event, Report) and agent.step >= STARTS + WARM_UP
            if warm and clock.look(agent.step) >= SECONDS:
                break
        weights = sum(parameter.numel() for parameter in agent.network.parameters())
        row = transition_bytes(agent.source, config)
    upkeep = Upkeep(trial.checkpoint_every, trial.keep)
    replay = row * replay_rows(config.buffer_size, upkeep, trial.steps)
    return clock.per_step(), replay, (trial.keep + 1) * COPIES * WEIGHT * weights


def _of_cell(trial: TruthTrial) -> tuple[float, float]:
    """Seconds per update."""
    mdp = finite_mdp(trial.env)
    problem = Problem.of(trial.env, mdp, discount_for(mdp, trial.discount))
    fitted = contender(trial.method).for_returns(*problem.returns())
    clock = _Clock()

    def timed(steps: Iterable[int], _: str) -> Iterator[int]:
        for count, step in enumerate(steps):
            if count >= UPDATES // 3:
                clock.look(count)
            yield step

    run_cell(problem, fitted, trial.seed, Budget(UPDATES, trial.batch_size), timed)
    return clock.per_step()
