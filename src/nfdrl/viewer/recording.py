"""An agent's episodes, its laws in chosen states, and its start state's law over training."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfdrl.agent import Agent
from nfdrl.envs.finite import FiniteMDP
from nfdrl.envs.solo import Solo
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.distances import batch_distances
from nfdrl.evaluation.episode import discounted
from nfdrl.evaluation.truth import ReturnTruth, exact_returns
from nfdrl.laws import Law
from nfdrl.risk import Risk
from nfdrl.runs import layout
from nfdrl.viewer.folders import FoundRun
from nfdrl.viewer.messages import pack
from nfdrl.viewer.packing import pack_laws, pack_mixtures
from nfdrl.viewer.schema import End, Episode, Frames, Ridge, StateLaws, StateTable
from nfdrl.viewer.stage import Moment, Stage

Array = NDArray[Any]
Track = Callable[[Iterable[int]], Iterable[int]]
ROLLOUTS = 5_000  # per pair, where a law is too long to be exact
MOST_CHECKPOINTS = 40
BUDGET = 3_400_000  # bytes of an episode's laws before base64, which adds a third: less than 5 MB in a page
LEAST_NUMBERS = 14  # of one law, whatever the budget: as many as a flow of four components has


def record_episode(stage: Stage, run: str, seed: int, *, max_steps: int, frames: int, track: Track = iter) -> Episode:
    """Play one episode with at most `frames` pictures, evenly spread; its laws take at most BUDGET bytes.

    An episode is played twice if it is drawn: the first time to see how long it is.
    """
    moments = _played(stage, seed, max_steps, track=track)
    every = max(1, -(-len(moments) // frames)) if stage.drawn and frames else 0
    if every:
        moments = _played(stage, seed, len(moments), range(0, len(moments), every))
    end: End = moments[-1].end if moments[-1].end != "running" else "cut off"
    rewards, ends = (np.array([getattr(m, name) for m in moments]) for name in ("learned_reward", "ends"))
    followed = discounted(rewards, ends, stage.agent.config.discount) if end == "terminated" else None
    risk = stage.agent.risk
    law = laws_of(stage.agent, [moment.observation for moment in moments])
    return Episode(
        run=run,
        seed=seed,
        risk=str(risk) if isinstance(risk, Risk) else None,
        end=end,
        taken=[moment.action for moment in moments],
        rewards=pack([moment.reward for moment in moments]),
        followed=None if followed is None else pack(followed),
        states=None if stage.mdp is None else [int(moment.observation) for moment in moments],
        laws=pack_laws(law, max(LEAST_NUMBERS, BUDGET // (4 * law.batch_shape.numel()))),
        frames=Frames(every, [m.picture for m in moments if m.picture is not None]) if every else None,
    )


def _played(stage: Stage, seed: int, max_steps: int, drawn: Container[int] = (), track: Track = iter) -> list[Moment]:
    """An episode, with pictures of the steps in `drawn`."""
    stage.reset(seed)
    moments: list[Moment] = []
    for t in track(range(max_steps)):
        moments.append(stage.step(draw=t in drawn))
        if stage.over:
            break
    return moments


def laws_of(agent: Agent, observations: Sequence[Array]) -> Law:
    """The laws of all actions for each observation; batch shape (T, A)."""
    return agent.returns(np.stack(observations))


def state_table(stages: Sequence[Stage], runs: Sequence[FoundRun]) -> StateTable | None:
    """All agents of one environment in all live states of its finite MDP; None if it has none."""
    stage = stages[0]
    if stage.mdp is None:
        return None
    mdp = stage.mdp
    states = sorted({int(state) for state, _ in mdp.live_pairs()})
    names = [mdp.state_names[s] if mdp.state_names else f"state {s}" for s in states]
    agents = [_state_laws(one.agent, run.card.id, mdp, states) for one, run in zip(stages, runs, strict=True)]
    return StateTable(runs[0].card.env, states, names, None, stage.action_names(), stage.map, agents)


def _state_laws(agent: Agent, run: str, mdp: FiniteMDP, states: Sequence[int]) -> StateLaws:
    law = laws_of(agent, [np.asarray(state) for state in states])
    first = int(agent.action_space.start)
    everywhere = agent.predict(np.arange(mdp.n_states))[0] - first
    truth = _truth(mdp, everywhere, agent.config.discount)
    chosen = [int(everywhere[state]) for state in states]
    packed = pack_laws(law)
    if truth is None:
        return StateLaws(run, packed, chosen)
    pairs = [(s, a) for s in states for a in range(mdp.n_actions)]
    exact = pack_mixtures([truth.get(pair) for pair in pairs], mdp.n_actions)
    measured = batch_distances(_pair_laws(agent, truth.pairs), truth.laws)
    index = [pairs.index((int(s), int(a))) for s, a in truth.pairs]
    placed = {name: np.full(len(pairs), -1.0) for name in ("cramer", "w1")}
    for name, values in placed.items():
        values[index] = measured[name]
    kind = "exact law" if truth.kind == "exact" else f"law of {ROLLOUTS:,} episodes"
    return StateLaws(run, packed, chosen, exact, kind, pack(placed["cramer"]), pack(placed["w1"]))


def _pair_laws(agent: Agent, pairs: Array) -> Law:
    """The laws of state-action pairs (P, 2); batch shape (P,)."""
    return agent.returns(pairs[:, 0]).select(torch.as_tensor(pairs[:, 1]))


def _truth(mdp: FiniteMDP, policy: Array, discount: float) -> ReturnTruth | None:
    """The exact laws of a policy; None if its returns are not finite."""
    try:
        return exact_returns(mdp, policy, discount, tolerance=1e-6, rollouts=ROLLOUTS)
    except NfdrlError:
        return None


def probe_table(stages: Sequence[Stage], runs: Sequence[FoundRun], seed: int, count: int = 12) -> StateTable:
    """All agents of one environment in a few states of the first one's episode, each with its picture."""
    stage = stages[0]
    length = len(_played(stage, seed, 1_000))
    at = np.unique(np.linspace(0, length - 1, min(count, length)).astype(int)).tolist()
    moments = _played(stage, seed, length, at)
    observations = [moments[t].observation for t in at]
    pictures = [moments[t].picture or "" for t in at]
    agents = []
    for one, run in zip(stages, runs, strict=True):
        chosen = (one.agent.predict(np.stack(observations))[0] - one.first_action).tolist()
        agents.append(StateLaws(run.card.id, pack_laws(laws_of(one.agent, observations)), chosen))
    names = [f"step {t + 1}" for t in at]
    return StateTable(
        runs[0].card.env, at, names, pictures if stage.drawn else None, stage.action_names(), None, agents
    )


def ridge_of(run: FoundRun, load: Callable[[Any], Agent], seed: int, track: Track = iter) -> Ridge | None:
    """The laws of the start state of one episode at each checkpoint; None if there are fewer than two."""
    found = layout.checkpoints(run.folder)[::-1][-MOST_CHECKPOINTS:]
    if len(found) < 2:
        return None
    solo: Solo | None = None
    steps, chosen, laws = [], [], []
    for k in track(range(len(found))):
        try:
            agent = load(found[k])
        except NfdrlError:  # removed in the meantime, or damaged
            continue
        solo = solo or Solo(agent.source.fresh(), agent.config.limits())
        observation = np.asarray(solo.reset(seed)[0])
        steps.append(agent.step)
        chosen.append(int(agent.predict(observation)[0]) - int(agent.action_space.start))
        laws.append(pack_laws(laws_of(agent, [observation])))
    if solo is not None:
        solo.env.close()
    return Ridge(run.card.id, steps, chosen, laws) if len(steps) > 1 else None


def grouped(stages: Sequence[Stage], runs: Sequence[FoundRun]) -> Iterator[tuple[list[Stage], list[FoundRun]]]:
    """Agents that play the same environment, together."""
    for env in dict.fromkeys(run.card.env for run in runs):
        index = [k for k, run in enumerate(runs) if run.card.env == env]
        yield [stages[k] for k in index], [runs[k] for k in index]
