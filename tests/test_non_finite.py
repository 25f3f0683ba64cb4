"""An update that is not finite is skipped; many in a row stop the run and leave a diagnostic."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nfdrl.agent import Agent
from nfdrl.bellman import bellman_target
from nfdrl.cli import main
from nfdrl.laws import Law
from nfdrl.laws.fraction import FQF
from nfdrl.runs.diagnostic import write_diagnostic
from nfdrl.runs.layout import checkpoints
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.events import NonFiniteError, Report
from nfdrl.training.loop import MAX_SKIPPED

SMALL = TrainConfig(learning_starts=40, batch_size=8, report_every=50, torso=TorsoSizes(mlp=(8, 8)))


@dataclass(frozen=True)
class Poisoned(FQF):
    """Its loss, or its gradient alone, is not finite at some updates."""

    bad: frozenset[int] = frozenset()
    factor: float = float("nan")
    calls: list[int] = field(default_factory=lambda: [0], compare=False)

    def loss(self, predicted: Law, target: Law, generator: torch.Generator | None = None) -> Tensor:
        self.calls[0] += 1
        loss = super().loss(predicted, target, generator)
        if self.calls[0] not in self.bad:
            return loss
        if np.isfinite(self.factor):  # the value is finite, its derivative is not
            return loss + torch.sqrt((loss - loss.detach()).abs())
        return loss * self.factor


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 0.0])
def test_a_bad_update_moves_nothing_and_is_counted(factor: float) -> None:
    agent = Agent(Poisoned(bad=frozenset({20, 21, 30}), factor=factor), "CartPole-v1", config=SMALL)
    reports = [event for event in agent.events(200) if isinstance(event, Report)]
    assert reports[-1].skipped == agent.learner.skipped == 3
    assert agent.learner.skipped_in_a_row == 0
    assert all(np.isfinite(report.loss) for report in reports[1:] if report.loss is not None)
    assert all(bool(value.isfinite().all()) for value in agent.learner.tensors().values())
    learner, replay = agent.learner, agent.trainer.replay
    method = agent.method
    assert isinstance(method, Poisoned)
    bad = replace(method, bad=frozenset({method.calls[0] + 1}))
    learner.engine.work = replace(learner.engine.work, method=bad)
    before = {name: value.clone() for name, value in learner.tensors().items() if name != "updates"}
    learner.update(replay.sample(8))
    after = learner.tensors()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    learner.update(replay.sample(8))
    moved = {
        name for name, value in learner.tensors().items() if name in before and not torch.equal(value, before[name])
    }
    assert any(name.startswith("special.") for name in moved)
    assert any(name.startswith("online.torso.") for name in moved)


def test_many_bad_updates_in_a_row_stop_training() -> None:
    agent = Agent(Poisoned(bad=frozenset(range(10, 1_000))), "CartPole-v1", config=SMALL)
    with pytest.raises(NonFiniteError, match=f"{MAX_SKIPPED} updates in a row"):
        agent.learn(500, progress=False)
    assert agent.learner.updates == 9 + MAX_SKIPPED


class Overflowing(gymnasium.Env[Any, Any]):
    """From its 150th step, observations are as large as float32 allows."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    taken = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ARG002
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002
        self.taken += 1
        size = 3e38 if self.taken > 150 else 1.0
        return np.array([size, -size], np.float32), 1.0, False, self.taken % 10 == 0, {}


gymnasium.register("nfdrl-tests/Overflowing-v0", Overflowing)


@pytest.mark.parametrize("method", ["dqn", "c51", "nfdrl-s"])
def test_the_run_leaves_a_diagnostic_and_its_last_checkpoint(
    method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["--checkpoint-every", "50", "--steps", "2000", "--evaluate", "0", "--no-progress", "--out", str(out)]
    settings = ["learning_starts=40", "batch_size=8", "report_every=10", "mlp=(8,8)", "train_every=1"]
    line = ["train", "--method", method, "--env", "nfdrl-tests/Overflowing-v0", *words, "--set", *settings]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"{MAX_SKIPPED} updates in a row" in error
    last = checkpoints(out)[0]
    assert str(last) in error
    assert all(bool(value.isfinite().all()) for value in load_file(last / "weights.safetensors").values())
    found = json.loads((out / "diagnostic" / "diagnostic.json").read_text())
    tensors = load_file(out / "diagnostic" / "tensors.safetensors")
    assert found["tensors"]["batch.observation"]["max"] > 1e38
    assert any(name.startswith("predicted.") for name in tensors)
    assert any(name.startswith("target.") for name in tensors)
    assert all(isinstance(norm, float) for norm in found["weight_norms"].values())
    with (out / "metrics.csv").open() as file:
        assert int(list(csv.DictReader(file))[-1]["skipped"]) > 0


def test_the_diagnostic_chooses_the_next_action_as_the_update_does(tmp_path: Path) -> None:
    agent = Agent("dqn", "CartPole-v1", config=replace(SMALL, double_q=True)).learn(100, progress=False)
    learner, batch = agent.learner, agent.trainer.replay.sample(64)
    with torch.no_grad():  # the two networks choose differently
        for network, sign in ((learner.online, 1.0), (learner.target, -1.0)):
            network.head.linear.bias += sign * torch.tensor([100.0, -100.0])
    folder = write_diagnostic(tmp_path, NonFiniteError(100, batch, learner))
    found = load_file(folder / "tensors.safetensors")
    expected = bellman_target(batch, learner.target, learner.risk, learner.online).mean()
    assert [name for name, value in found.items() if name.startswith("target.") and torch.equal(value, expected)]
