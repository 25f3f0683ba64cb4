"""How fast laws are learned from frames: the values of random play on Pong, from one recorded replay.

python benchmarks/pixels.py --methods nfdrl "nfdrl[unit=2]" nfdrl-s --seeds 0 1 --out results/bench/pixels.json

Four games are played at random. Each method learns the laws of three of them with the preset `atari`, from the same
batches, and every so often its means are compared with the returns that came in the fourth: their correlation, which
needs no more than the frames, and their mean difference, which also needs the target network to have moved often.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import nfdrl
from nfdrl.arguments import network_of
from nfdrl.laws import find_method
from nfdrl.learner import Learner
from nfdrl.progress import Progress
from nfdrl.provenance import hardware
from nfdrl.replay import Replay
from nfdrl.training.presets import find_preset

PRESET = find_preset("atari")
TARGET_EVERY = 50  # so that values travel far enough in a few thousand updates
SHOWN = 1_500  # transitions of the fourth game that are compared


def recorded(env: str, steps: int, seed: int) -> nfdrl.Agent:
    """An agent whose replay holds random play."""
    config = replace(PRESET.config, learning_starts=steps, buffer_size=steps + 1_000, report_every=steps)
    agent = nfdrl.Agent("dqn", env, seed=seed, config=config, device="cpu").learn(steps, progress=False)
    agent.trainer.replay.explored[:] = False  # random play is what is judged, so no return stops before it
    return agent


def returns_of(replay: Replay) -> NDArray[np.float32]:
    """The discounted return that came after each row; NaN where its game has not ended."""
    found = np.full(len(replay.live), np.nan, np.float32)
    for start in replay.first_row:
        later = np.float32(np.nan)
        for row in range(start + replay.filled - 1, start - 1, -1):
            kept = replay.kept[row]
            later = replay.reward[row] + (kept * later if kept else 0) if replay.live[row] else np.float32(np.nan)
            found[row] = later
    return found


def learn(name: str, agent: nfdrl.Agent, seed: int, given: argparse.Namespace, bars: Progress) -> dict[str, Any]:
    """Correlation and mean difference after every `given.every` updates."""
    replay, method = agent.trainer.replay, find_method(name, PRESET.adapt)
    returns = returns_of(replay)
    known = np.flatnonzero(~np.isnan(returns))
    last = known >= replay.first_row[-1]
    rng = np.random.default_rng(seed)
    learned, shown = known[~last], rng.choice(known[last], min(SHOWN, int(last.sum())), replace=False)
    batch, came = replay.transitions_at(shown), torch.from_numpy(returns[shown])

    config = replace(PRESET.config, target_every=TARGET_EVERY, double_q=False)
    network = network_of(method, agent.source, config, seed, None)
    learner = Learner(method, network, config.optimisation(), generator=torch.Generator().manual_seed(seed))
    actions = int(agent.action_space.n)
    row: dict[str, Any] = {"method": name, "seed": seed, "correlation": [], "difference": []}
    for done in bars.track(range(1, given.updates + 1), f"{name}, seed {seed}"):
        # A uniform next action is what random play takes.
        following = torch.from_numpy(rng.integers(actions, size=config.batch_size))
        learner.update(replay.transitions_at(rng.choice(learned, config.batch_size)), following)
        if done % given.every == 0:
            with torch.no_grad():
                parts = [network(part.observation).select(part.action).mean() for part in batch.split(250)]
            means = torch.cat(parts)
            row["correlation"].append(round(float(torch.corrcoef(torch.stack([means, came]))[0, 1]), 4))
            row["difference"].append(round(float((means - came).mean()), 4))
    return row


def main() -> None:
    """Play, learn, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="ALE/Pong-v5")
    parser.add_argument("--methods", nargs="+", default=["nfdrl", "nfdrl-s", "c51", "dqn"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--steps", type=int, default=40_000, help="of random play, all games together")
    parser.add_argument("--updates", type=int, default=3_000)
    parser.add_argument("--every", type=int, default=500, help="updates between two comparisons")
    parser.add_argument("--out", type=Path, default=Path("out/pixels.json"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    agent, rows = recorded(given.env, given.steps, seed=0), []
    with Progress() as bars:
        for seed in given.seeds:
            for name in given.methods:
                rows.append(learn(name, agent, seed, given, bars))
                curve = " ".join(f"{value:6.3f}" for value in rows[-1]["correlation"])
                print(f"{name:24} seed {seed}  {curve}  off by {rows[-1]['difference'][-1]:+.2f}", flush=True)
    made = {"date": date.today().isoformat(), "hardware": hardware(), "env": given.env, "steps": given.steps}
    made |= {"updates": given.updates, "every": given.every, "rows": rows}
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    main()
