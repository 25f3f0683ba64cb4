"""From the paper as printed to our defaults, one change at a time, on MDP2, FrozenLake and CartPole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from matplotlib.figure import Figure

from nfdrl.agent import Agent
from nfdrl.colours import BLUE, GREY, ORANGE
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.toy import mdp2
from nfdrl.evaluation.comparison import Problem, Store
from nfdrl.evaluation.distances import batch_distances
from nfdrl.paper.base import Experiment, Result
from nfdrl.paper.frozenlake import DISCOUNT
from nfdrl.paper.literal_path import COIN, EPISODES, LAKE, STEPS, Trial, trials
from nfdrl.paper.toy import learn_pair
from nfdrl.progress import Progress
from nfdrl.reports import Row, plain
from nfdrl.settings import to_plain
from nfdrl.style import figure
from nfdrl.training.events import Report
from nfdrl.training.policy_laws import learn_policy_laws

CHANCE = 0.7  # of MDP2's larger return: a loss that learns a median instead of the law shows at once
MIDDLE = 0.55  # between the two returns 0.3 and 0.8
REPORTS = 100  # steps between two of them on CartPole, each of which moves the bar


@dataclass(frozen=True)
class Bench:
    """What measures a trial, with one seed; what the store has is not measured again."""

    seed: int
    smoke: bool
    progress: Progress
    store: Store
    lake: Problem

    def coin(self, trial: Trial) -> Row:
        """MDP2, (s1, a1): the mass on the lower return, and the distance to the true law."""
        settings = trial.table(replace(COIN, updates=3, batch_size=4) if self.smoke else COIN)

        def measure() -> Row:
            learned = learn_pair(
                mdp2(p=CHANCE), (0, 0), trial.method, settings,
                label=f"{trial.step.label}, MDP2", seed=self.seed, progress=self.progress,
            )  # fmt: skip
            return {"mdp2_below": float(learned.law.cdf(MIDDLE)), "mdp2_cramer": float(learned.row["cramer"])}

        return self._kept("MDP2", trial, asdict(settings), measure)

    def frozen(self, trial: Trial) -> Row:
        """FrozenLake: distances to the exact laws and errors of the means, over all live pairs."""
        settings, lake = trial.table(replace(LAKE, updates=3, batch_size=4) if self.smoke else LAKE), self.lake

        def measure() -> Row:
            learned = learn_policy_laws(
                lake.mdp, lake.policy, trial.method, settings, discount=lake.discount, seed=self.seed,
                track=lambda steps: self.progress.track(steps, f"{trial.step.label}, FrozenLake", settings.updates),
            )  # fmt: skip
            found = batch_distances(learned.laws(lake.truth.pairs), lake.truth.laws)
            means = {name: float(values.mean()) for name, values in found.items()}
            return {"frozenlake_cramer": means["cramer"], "frozenlake_mean_error": means["mean_error"]}

        return self._kept("FrozenLake", trial, asdict(settings), measure)

    def cartpole(self, trial: Trial) -> Row:
        """CartPole: the mean return of greedy episodes after a short run."""
        config = replace(trial.config, report_every=REPORTS)
        steps, episodes = (STEPS, EPISODES) if not self.smoke else (60, 2)
        if self.smoke:
            config = replace(config, learning_starts=40, batch_size=4)

        def measure() -> Row:
            agent = Agent(trial.method, "CartPole-v1", seed=self.seed, config=config, device="cpu")
            reports = (event for event in agent.events(steps) if isinstance(event, Report))
            for _ in self.progress.track(reports, f"{trial.step.label}, CartPole", steps // REPORTS):
                pass
            played = agent.evaluate(episodes)
            return {"cartpole_return": played.mean, "cartpole_std": played.std}

        return self._kept("CartPole", trial, {"steps": steps, "run": to_plain(config)}, measure)

    def _kept(self, problem: str, trial: Trial, settings: Row, measure: Callable[[], Row]) -> Row:
        settings = plain({"method": to_plain(trial.method), "seed": self.seed, "settings": settings})
        return self.store.get(f"{problem}-{trial.step.label}-seed{self.seed}", settings, measure)


def compute(seed: int, smoke: bool, progress: Progress, store: Store) -> Result:
    """Learn with every step, tables first: a run on CartPole takes longer than both."""
    mdp = FiniteMDP.from_env("FrozenLake-v1", map_name="4x4", is_slippery=True)
    bench = Bench(seed, smoke, progress, store, Problem.of("FrozenLake-v1", mdp, DISCOUNT))
    rows = [_row(trial) for trial in trials()]
    for trial, row in progress.track(list(zip(trials(), rows, strict=True)), "steps by table"):
        if trial.step.tabular:
            row |= bench.coin(trial) | bench.frozen(trial)
    for trial, row in progress.track(list(zip(trials(), rows, strict=True)), "steps on CartPole"):
        if trial.step.played:
            row |= bench.cartpole(trial)
    return Result(rows)


def _row(trial: Trial) -> Row:
    """A step, what it changes, and what measures it, still empty."""
    return {
        "method": trial.method.name, "step": trial.step.label, "words": trial.step.method | trial.step.run,
        "samples": trial.method.samples, "mdp2_updates": COIN.updates, "frozenlake_updates": LAKE.updates,
        "batch_size": LAKE.batch_size, "cartpole_steps": STEPS,
        "mdp2_below": None, "mdp2_cramer": None, "frozenlake_cramer": None, "frozenlake_mean_error": None,
        "cartpole_return": None, "cartpole_std": None,
    }  # fmt: skip


def draw(result: Result) -> Figure:
    """A line per step, a column per measure."""
    made, axes = figure(12.0, 0.3 * len(result.rows) + 1.2, 1, 4, sharey=True)
    first = result.rows[0]
    columns = (
        ("mdp2_below", f"MDP2, p = {CHANCE}: P(Z < {MIDDLE})", 1 - CHANCE, 1.05),
        ("frozenlake_cramer", "FrozenLake: Cramér distance", None, None),
        ("frozenlake_mean_error", "FrozenLake: error of the means", None, None),
        ("cartpole_return", "CartPole: return, of 500", None, 510),
    )
    made.suptitle(
        f"after {first['mdp2_updates']:,} (MDP2) and {first['frozenlake_updates']:,} updates of "
        f"{first['batch_size']}, and {first['cartpole_steps']:,} steps on CartPole; "
        "grey line: the truth; orange: tried and not kept",
        fontsize=10,
    )
    for ax, (key, title, true, right) in zip(axes[0], columns, strict=True):
        for height, row in enumerate(result.rows):
            if row[key] is not None:
                color = ORANGE if row["step"].startswith("(") else BLUE
                ax.plot(float(row[key]), height, "o", clip_on=False, color=color)
        if true is not None:
            ax.axvline(true, color=GREY, linewidth=4, alpha=0.5, zorder=0)
        ax.set_xlim(0, right)
        ax.set_title(title, fontsize=9.5)
        ax.grid(axis="y", color="#eeeeee")
    axes[0][0].set(yticks=range(len(result.rows)), yticklabels=[row["step"] for row in result.rows])
    axes[0][0].invert_yaxis()
    return made


EXPERIMENT = Experiment(
    "literal", "From the paper as printed to our defaults, one change at a time", compute, draw, keeps_parts=True
)
