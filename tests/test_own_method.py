"""A method is one file: everything that trains, saves, compares, evaluates and draws the others works with it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from nfdrl import METHODS, Agent
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.laws import find_method
from nfdrl.style import draw_law, figure

SOURCE = '''
"""A Gaussian per action, learned in W₂: (μ − ν)² + (σ − τ)²."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from nfdrl.laws.base import DensityLaw, LinearHead, Method, select_rows


@dataclass(frozen=True, eq=False)
class Gaussian(DensityLaw):
    location: torch.Tensor
    scale: torch.Tensor

    @property
    def batch_shape(self):
        return self.location.shape

    @property
    def reference(self):
        return self.location

    def mean(self):
        return self.location

    def variance(self):
        return self.scale.square()

    def normal(self):
        return torch.distributions.Normal(self.location[..., None], self.scale[..., None].clamp_min(1e-6))

    def _quantile(self, tau):
        return self.normal().icdf(tau)

    def _cdf(self, y):
        return self.normal().cdf(y)

    def _log_prob(self, y):
        return self.normal().log_prob(y)

    def select(self, action):
        return Gaussian(*(select_rows(part, action, 0) for part in (self.location, self.scale)))

    def bootstrap(self, reward, discount):
        return Gaussian(reward + discount * self.location, discount * self.scale)


class GaussianHead(LinearHead):
    def __init__(self, features, actions, width):
        super().__init__(features, actions, 2)
        self.width = width

    def read(self, raw):
        location, scale = self.by_action(raw).unbind(-1)
        return Gaussian(location, self.width * torch.nn.functional.softplus(scale))


@dataclass(frozen=True)
class Gauss(Method):
    name: ClassVar[str] = "gauss"
    colour: ClassVar[str] = "#123456"

    width: float = 1.0

    def head(self, features, actions):
        return GaussianHead(features, actions, self.width)

    def loss(self, predicted, target, generator=None):
        return (predicted.mean() - target.mean()).square() + (predicted.std() - target.std()).square()

    def within(self, low, high):
        return Gauss(width=0.25 * (high - low))


METHOD = Gauss()
'''
QUICK = ["--no-progress", "--set", "learning_starts=64", "batch_size=16", "report_every=50", "mlp=(16,16)"]
WORD = "own_method:METHOD"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path that holds the module."""
    (tmp_path / "own_method.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_method", raising=False)
    return tmp_path


def train(out: Path, method: str, *words: str) -> int:
    command = ["train", "--method", method, "--env", "CartPole-v1", "--out", str(out), "--evaluate", "2"]
    return main([*command, "--steps", "150", *QUICK, *words])


def test_a_registered_method_works_in_every_command(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(METHODS, "gauss", find_method(WORD))
    out = own / "run"
    assert train(out, "gauss[width=3]", "--checkpoint-every", "100") == 0
    assert main(["train", "--resume", str(out), "--steps", "200", "--no-progress"]) == 0
    assert json.loads((out / "metrics.json").read_text())["step"] == 200
    assert main(["evaluate", str(out), "--episodes", "1", "--risk", "cvar:0.2"]) == 0
    assert main(["report", str(out), "--out", str(own / "report")]) == 0
    assert main(["compare", "--smoke", "--envs", "mdp2", "--methods", "gauss,dqn", "--out", str(own / "compare")]) == 0
    gauss, dqn = json.loads((own / "compare" / "metrics.json").read_text())["rows"]
    assert (gauss["method"], gauss["outputs"], gauss["limit"], dqn["outputs"]) == ("gauss", 2, None, 1)
    assert main(["compare", "--smoke", "--envs", "mdp2", "--methods", "gaus", "--out", str(own / "compare")]) == 2
    assert "did you mean 'gauss'" in capsys.readouterr().err


def test_a_module_path_works_wherever_a_method_is_named(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = own / "run"
    assert train(out, f"{WORD}[width=3]", "return_range=method") == 0
    config = json.loads((out / "config.json").read_text())
    assert config["method"] == {"name": "gauss", "class": "own_method:Gauss", "settings": {"width": 3.0}}
    assert main(["train", "--resume", str(out), "--steps", "200", "--method", WORD, "--no-progress"]) == 0
    assert main(["evaluate", str(out), "--episodes", "1", "--method", WORD]) == 0
    words = ["--smoke", "--envs", "mdp2", "--methods", f"{WORD}[width=2],dqn"]
    assert main(["compare", *words, "--out", str(own / "compare")]) == 0
    capsys.readouterr()


def test_nothing_is_imported_when_a_run_is_loaded(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = own / "run"
    assert train(out, WORD) == 0
    del sys.modules["own_method"]
    for words in (["train", "--resume", str(out), "--steps", "200"], ["evaluate", str(out)]):
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "the saved method 'gauss' (own_method:Gauss) is not part of nfdrl" in error
        assert "--method" in error
    assert "own_method" not in sys.modules
    assert main(["evaluate", str(out), "--method", "dqn"]) == 2
    assert "own_method:Gauss, the one given has nfdrl.laws.dirac:DQN" in capsys.readouterr().err


def test_an_agent_learns_saves_and_draws_a_method_of_ones_own(own: Path) -> None:
    method = find_method(WORD)
    agent = Agent(method, "CartPole-v1", risk="cvar:0.25").learn(1_100, progress=False)
    assert agent.method != method  # its width comes from the returns seen
    agent.save(own / "agent")
    with pytest.raises(NfdrlError, match=r"own_method:Gauss"):
        Agent.load(own / "agent")
    loaded = Agent.load(own / "agent", method=method)
    assert loaded.method == agent.method
    law = loaded.returns([0.0, 0.0, 0.0, 0.0])
    assert_close(law.cvar(0.25), agent.returns([0.0, 0.0, 0.0, 0.0]).cvar(0.25))
    assert int(loaded.predict([0.0, 0.0, 0.0, 0.0])[0]) == int(law.cvar(0.25).argmax())
    _, axes = figure(4, 3)
    for view in ("density", "cdf", "quantile"):
        draw_law(axes[0, 0], law.select(torch.tensor(0)), loaded.method, view)
    assert {line.get_color() for line in axes[0, 0].lines} == {"#123456"}
    assert [line.get_label() for line in axes[0, 0].lines] == ["gauss"] * 3


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("no_such_module:METHOD", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module'"),
        ("own_method:METHODS", "cannot be imported: AttributeError: module 'own_method' has no attribute 'METHODS'"),
        ("own_method:Gauss", "must be an instance of nfdrl.laws.Method, got ABCMeta"),
        ("own_method:METHOD[with=3]", "unknown setting of own_method:METHOD 'with': did you mean 'width'?"),
        (":METHOD", "cannot be imported"),
    ],
)
def test_a_path_to_no_method_is_refused_in_one_line(own: Path, word: str, said: str) -> None:
    with pytest.raises(NfdrlError) as caught:
        find_method(word)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
