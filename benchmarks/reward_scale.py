"""Learn CartPole with rewards times a factor and no setting touched: the same curves for every factor.

python benchmarks/reward_scale.py --factors 0.01 1 100 10000 --seeds 0 1 2 3 4 --out results/reward_scale
"""

from __future__ import annotations

import argparse
import csv
import json
from datetime import date
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import nfdrl
from nfdrl.provenance import hardware
from nfdrl.training.events import EpisodeEnd

WINDOW = 20  # episodes in a point of a curve
POINTS = 50


def learn(method: str, env: str, factor: float, seed: int, steps: int) -> dict[str, Any]:
    """One run: the length of episodes over training, and the mean return of greedy ones in the original rewards."""
    wrapped = gymnasium.wrappers.TransformReward(gymnasium.make(env), lambda reward: reward * factor)
    agent = nfdrl.Agent(method, wrapped, seed=seed)
    ends = [(event.step, event.length) for event in agent.events(steps) if isinstance(event, EpisodeEnd)]
    at, lengths = (np.array(column) for column in zip(*ends, strict=True))
    curve = []
    for step in np.linspace(steps / POINTS, steps, POINTS):
        seen = lengths[at <= step][-WINDOW:]
        curve.append(float(seen.mean()) if len(seen) else None)
    return {"factor": factor, "seed": seed, "greedy": greedy(agent, env, 20), "curve": curve}


def greedy(agent: nfdrl.Agent, env: str, episodes: int) -> float:
    """The mean return of greedy episodes, without the factor."""
    plain, returns = gymnasium.make(env), []
    for episode in range(episodes):
        observation, _ = plain.reset(seed=1_000 + episode)
        total, done = 0.0, False
        while not done:
            action, _ = agent.predict(observation)
            observation, reward, terminated, truncated, _ = plain.step(int(action))
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def draw(rows: list[dict[str, Any]], steps: int, path: Path) -> None:
    """The mean curve of each factor, with the range over seeds."""
    from nfdrl.style import figure

    made, axes = figure(8.0, 4.0)
    at = np.linspace(steps / POINTS, steps, POINTS)
    for factor in dict.fromkeys(row["factor"] for row in rows):
        curves = np.array([row["curve"] for row in rows if row["factor"] == factor], float)
        (line,) = axes[0, 0].plot(at, np.nanmean(curves, 0), label=f"rewards × {factor:g}")
        axes[0, 0].fill_between(at, np.nanmin(curves, 0), np.nanmax(curves, 0), color=line.get_color(), alpha=0.15)
    axes[0, 0].set(xlabel="steps", ylabel=f"length of an episode, mean of the last {WINDOW}")
    axes[0, 0].legend(frameon=False)
    made.savefig(path, dpi=110)


def main() -> None:
    """Learn, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="nfdrl")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--factors", nargs="+", type=float, default=[0.01, 1.0, 100.0, 1e4])
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = []
    for seed in options.seeds:
        for factor in options.factors:
            rows.append(learn(options.method, options.env, factor, seed, options.steps))
            print({name: rows[-1][name] for name in ("factor", "seed", "greedy")}, flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "greedy.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["factor", "seed", "greedy"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    told = {"steps": options.steps, "date": date.today().isoformat(), "hardware": hardware(), "rows": rows}
    (options.out / "metrics.json").write_text(json.dumps(told) + "\n")
    draw(rows, options.steps, options.out / "figure.png")


if __name__ == "__main__":
    main()
