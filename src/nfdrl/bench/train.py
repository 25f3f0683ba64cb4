"""Training on CartPole-v1 as a whole, steps per second on one thread: our loop beside Stable-Baselines3's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from nfdrl.bench.race import PEERS, SB3_DQN, SB3_QRDQN, Contestant, Course, Run, check_installed, race
from nfdrl.bench.report import Measured
from nfdrl.engines import EngineName
from nfdrl.threads import threads

ENV, WIDTHS = "CartPole-v1", (64, 64)
COURSE = Course(batch=64, buffer=50_000, warm_up=500, learning_rate=1e-3, rounds=15, stretch=400, smoke_stretch=60)
DQN, FLOW = "ours dqn", "ours nfdrl-s"
GRAPH = f"{FLOW}, through the graph"


def _ours(method: str, engine: EngineName = "auto", risk: str = "mean") -> Callable[[int], Run]:
    def make(seed: int) -> Run:
        from nfdrl.agent import Agent
        from nfdrl.torsos import TorsoSizes

        config = COURSE.config(engine=engine, torso=TorsoSizes(mlp=WIDTHS))
        agent = Agent(method, ENV, seed=seed, config=config, risk=risk, device="cpu")
        return lambda steps: agent.learn(steps, progress=False)

    return make


def _peer(name: str) -> Callable[[int], Run]:
    return lambda seed: COURSE.peer(name, "MlpPolicy", ENV, seed, {"net_arch": list(WIDTHS)})


CONTESTANTS = (
    Contestant(SB3_DQN, _peer("dqn")),
    Contestant(DQN, _ours("dqn"), SB3_DQN),
    Contestant(SB3_QRDQN, _peer("qr-dqn")),
    Contestant("ours qr-dqn", _ours("qr-dqn"), SB3_QRDQN),
    Contestant("ours nfdrl", _ours("nfdrl"), DQN),
    Contestant(FLOW, _ours("nfdrl-s"), SB3_QRDQN),
    Contestant("ours nfdrl-e", _ours("nfdrl-e"), SB3_QRDQN),
    Contestant(f"{FLOW}, by CVaR", _ours("nfdrl-s", risk="cvar:0.1"), FLOW),
    Contestant("ours dqn, through the graph", _ours("dqn", "graph"), SB3_DQN),
    Contestant(GRAPH, _ours("nfdrl-s", "graph"), SB3_QRDQN),
)


def main(out: Path, smoke: bool, seed: int) -> Measured:  # noqa: ARG001
    """Run the benchmark."""
    check_installed("peers", *PEERS)
    warm_up, also = 10 * COURSE.train_every, ((DQN, FLOW), (GRAPH, FLOW))
    with threads(1):
        return race(ENV, COURSE, CONTESTANTS, seed=seed, smoke=smoke, warm_up=warm_up, also=also)
