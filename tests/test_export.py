"""A policy without nfdrl's engines: as a module, through torch.export, and as an ONNX file run by ONNX Runtime."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch.testing import assert_close

from nfdrl import METHODS, Agent
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.export import OnnxPolicy, difference, random_observations, write_onnx
from nfdrl.numerics import elementary
from nfdrl.training.config import TrainConfig

COUNT = 1_000
SMALL = TrainConfig(learning_starts=64, batch_size=16, train_every=4, num_envs=2)
LEVELS = (0.05, 0.5, "cvar:0.1", 0.95)
RISKS = ("cvar:0.2", "var:0.3", "wang:-0.5", "cpw", "entropic:0.5", "mean-variance:0.1", "cvar:1", "mean")


def trained(method: str, env: Any = "CartPole-v1", steps: int = 200, **named: Any) -> Agent:
    return Agent(method, env, seed=3, config=SMALL, **named).learn(steps, total_steps=steps + 50, progress=False)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "nfdrl-e"])  # whose law is that of nfdrl-s
def test_a_file_says_what_the_agent_says(method: str, tmp_path: Path) -> None:
    agent = trained(method)
    policy = agent.policy(LEVELS)
    write_onnx(policy, tmp_path / "policy.onnx")
    rows = random_observations(agent.observation_space, COUNT)
    action, mean, levels = OnnxPolicy(tmp_path / "policy.onnx")(rows)
    law = agent.returns(rows)
    scale = max(1.0, float(law.mean().abs().max()))
    expected = torch.stack([law.quantile(0.05), law.quantile(0.5), law.cvar(0.1), law.quantile(0.95)], -1)
    assert_close(torch.from_numpy(mean), law.mean(), atol=1e-5 * scale, rtol=0)
    assert_close(torch.from_numpy(levels), expected, atol=1e-5 * scale, rtol=0)
    best = law.mean().sort(-1).values
    clear = (best[:, -1] - best[:, -2] > 1e-6 * scale).numpy()  # two engines may break a tie differently
    assert clear.mean() > 0.99
    assert np.array_equal(action[clear], agent.predict(rows)[0][clear])
    assert difference(policy, tmp_path / "policy.onnx", rows)[1] == 0


@pytest.mark.parametrize("method", ["qr-dqn", "nfdrl"])
def test_every_risk_functional_can_be_exported(method: str, tmp_path: Path) -> None:
    agent = trained(method, risk="wang:-0.75")
    policy = agent.policy(RISKS)
    write_onnx(policy, tmp_path / "policy.onnx")
    gap, changed = difference(policy, tmp_path / "policy.onnx", random_observations(agent.observation_space, COUNT))
    assert gap <= 1e-5
    assert not changed


@pytest.mark.parametrize("method", ["c51", "nfdrl-s"])
def test_an_exported_program_takes_any_number_of_rows(method: str) -> None:
    policy = trained(method).policy(LEVELS)
    program = policy.export().module()
    for count in (1, 2, 7):
        rows = torch.randn(count, 4)
        for found, expected in zip(program(rows), policy(rows), strict=True):
            assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch's, about torch
def test_torch_export_takes_the_module_as_it_is() -> None:
    policy = trained("dqn").policy()
    program = torch.export.export(policy, (torch.zeros(2, 4),))
    assert_close(program.module()(torch.ones(2, 4))[1], policy(torch.ones(2, 4))[1])


@pytest.mark.parametrize("method", METHODS)
def test_a_policy_is_the_agent_without_its_engine(method: str) -> None:
    agent = trained(method, risk="cvar:0.25")
    policy = agent.policy(["cvar:0.25", 0.5])
    rows = random_observations(agent.observation_space, 50)
    action, mean, levels = policy(torch.from_numpy(rows))
    law = agent.returns(rows)
    assert (action.shape, mean.shape, levels.shape) == ((50,), (50, 2), (50, 2, 2))
    assert_close(mean, law.mean())
    assert_close(levels, torch.stack([law.cvar(0.25), law.quantile(0.5)], -1))
    assert_close(action, levels[..., 0].argmax(-1))
    assert all(torch.equal(a, b) for a, b in zip(policy(torch.from_numpy(rows)), (action, mean, levels), strict=True))


def test_a_policy_keeps_its_weights_while_the_agent_learns_on() -> None:
    agent = trained("dqn")
    policy, rows = agent.policy(), torch.randn(5, 4)
    before = policy(rows)[1]
    agent.learn(50, progress=False)
    assert_close(policy(rows)[1], before, rtol=0, atol=0)
    assert not torch.equal(agent.policy()(rows)[1], before)
    assert not any(p.requires_grad for p in policy.parameters())


def test_a_policy_takes_a_risk_of_its_own_and_double_precision() -> None:
    agent = trained("qr-dqn")
    rows = torch.randn(20, 4, dtype=torch.float64)
    action, _, levels = agent.policy(["var:0.9"], risk="var:0.9")(rows)
    assert_close(action, levels[..., 0].argmax(-1))


@pytest.mark.parametrize(
    ("levels", "said"),
    [((), "at least one level"), ((1.5,), "tau must lie strictly between 0 and 1, got 1.5"), (("cvr:1",), "'cvar'")],
)
def test_bad_levels_are_refused_in_one_line(levels: tuple[Any, ...], said: str) -> None:
    with pytest.raises(NfdrlError, match=said):
        Agent("dqn", "CartPole-v1").policy(levels)


def test_what_cannot_be_traced_is_refused_in_one_line() -> None:
    with pytest.raises(NfdrlError, match=r"^torch.export cannot trace this policy: [^\n]*$"):
        Agent("nfdrl-s", "CartPole-v1").policy(["below:3"]).export()


# The functions that ONNX lacks.


def test_error_functions_keep_their_digits_in_both_tails() -> None:
    x = torch.linspace(-8, 25, 4_001, dtype=torch.float64)
    assert_close(elementary.erf(x), torch.erf(x), rtol=1e-13, atol=1e-14)
    assert_close(elementary.erfc(x), torch.from_numpy(special.erfc(x.numpy())), rtol=1e-13, atol=0)
    assert_close(elementary.log_ndtr(-x), torch.from_numpy(special.log_ndtr(-x.numpy())), rtol=1e-13, atol=1e-14)
    tau = torch.cat([torch.logspace(-300, -1, 999, dtype=torch.float64), torch.linspace(0.01, 0.999, 999).double()])
    assert_close(elementary.ndtri(tau), torch.from_numpy(special.ndtri(tau.numpy())), rtol=1e-12, atol=1e-12)
    ends, infinite = torch.tensor([0.0, 1.0]).double(), torch.tensor([-torch.inf, torch.inf]).double()
    assert torch.equal(elementary.ndtri(ends), infinite)
    assert torch.equal(elementary.erfc(infinite), torch.tensor([2.0, 0.0]).double())


def test_sums_searches_and_running_extremes_are_pytorchs() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(3, 4, 9, generator=generator)
    ordered, points = x.sort(-1).values, torch.cat([x[..., :3], x[..., :3] + 0.1], -1)
    for right in (False, True):
        found = elementary.searchsorted(ordered, points, right=right)
        assert torch.equal(found, torch.searchsorted(ordered, points, right=right))
    assert_close(elementary.cumsum(x, 1), x.cumsum(1))
    for ours, theirs in ((elementary.cummax, torch.cummax), (elementary.cummin, torch.cummin)):
        assert all(torch.equal(a, b) for a, b in zip(ours(x, -1), theirs(x, -1), strict=True))


# The command.


def test_the_command_writes_a_checked_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = tmp_path / "run", tmp_path / "new" / "policy.onnx"
    trained("dqn", "FrozenLake-v1").save(run)
    words = ["export", str(run), "--onnx", str(file), "--levels", "0.25", "cvar:0.1", "--risk", "var:0.5"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "checked on 1,000 observations: the same actions" in said
    assert "observation (rows,) → action, mean, levels (var:0.25, cvar:0.1)" in said
    action, mean, levels = OnnxPolicy(file)(np.arange(16))
    assert (action.shape, mean.shape, levels.shape) == ((16,), (16, 4), (16, 4, 2))
    notes = OnnxPolicy(file).session.get_modelmeta().custom_metadata_map
    assert (notes["method"], notes["env"], notes["risk"]) == ("dqn", "FrozenLake-v1", "var:0.5")
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        return None if name in ("onnxscript", "huggingface_hub") else importlib.util.find_spec(name)

    monkeypatch.setattr("nfdrl.export.find_spec", without)
    monkeypatch.setattr("nfdrl.hub.find_spec", without)
    agent = Agent("dqn", "FrozenLake-v1")
    with pytest.raises(NfdrlError, match=r'pip install "nfdrl\[export\]"'):
        write_onnx(agent.policy(), tmp_path / "x.onnx")
    with pytest.raises(NfdrlError, match=r'pip install "nfdrl\[hub\]"'):
        agent.push_to_hub("me/lake")


# The Hub, as a local folder.


class LocalHub(types.ModuleType):
    """The documented interface of huggingface_hub, on a folder: repositories are folders in it."""

    def __init__(self, root: Path) -> None:
        super().__init__("huggingface_hub")
        self.root, self.private = root, {}

    def create_repo(
        self,
        repo_id: str,
        *,
        token: str | None = None,  # noqa: ARG002
        private: bool | None = None,
        exist_ok: bool = False,
    ) -> None:
        self.private[repo_id] = private
        (self.root / repo_id).mkdir(parents=True, exist_ok=exist_ok)

    def upload_folder(
        self,
        *,
        repo_id: str,
        folder_path: str | Path,
        commit_message: str | None = None,
        token: str | None = None,  # noqa: ARG002
        allow_patterns: list[str] | str | None = None,
    ) -> Any:
        for path in Path(folder_path).iterdir():
            if path.name in (allow_patterns or ()):
                shutil.copy(path, self.root / repo_id)
        return types.SimpleNamespace(commit_url=f"local/{repo_id}/{commit_message}")

    def snapshot_download(
        self,
        repo_id: str,
        *,
        revision: str | None = None,  # noqa: ARG002
        token: str | None = None,  # noqa: ARG002
        allow_patterns: list[str] | str | None = None,
    ) -> str:
        if not (self.root / repo_id).is_dir():
            raise RuntimeError(f"404: no repository\n{repo_id}")
        kept = self.root / "cache" / repo_id
        kept.mkdir(parents=True)
        for path in (self.root / repo_id).iterdir():
            if path.name in (allow_patterns or ()):
                (kept / path.name).symlink_to(path)  # as the real one does
        return str(kept)


@pytest.fixture
def local_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHub:
    made = LocalHub(tmp_path / "hub")
    made.__spec__ = importlib.util.spec_from_loader("huggingface_hub", None)
    monkeypatch.setitem(sys.modules, "huggingface_hub", made)
    return made


def test_an_agent_comes_back_from_the_hub(local_hub: LocalHub) -> None:
    agent = trained("c51")
    address = agent.push_to_hub("me/cartpole", private=True, commit_message="first")
    assert (address, local_hub.private) == ("local/me/cartpole/first", {"me/cartpole": True})
    page = (local_hub.root / "me/cartpole/README.md").read_text()
    assert "library_name: nfdrl" in page
    assert 'nfdrl.Agent.from_hub("me/cartpole")' in page
    loaded = Agent.from_hub("me/cartpole", risk="cvar:0.5")
    rows = random_observations(agent.observation_space, 20)
    assert_close(loaded.returns(rows).mean(), agent.returns(rows).mean(), rtol=0, atol=0)
    assert (loaded.step, str(loaded.risk)) == (agent.step, "cvar:0.5")


def test_nothing_else_is_downloaded_and_damage_is_noticed(local_hub: LocalHub) -> None:
    Agent("dqn", "CartPole-v1").push_to_hub("me/cartpole")
    (local_hub.root / "me/cartpole/evil.py").write_text("raise SystemExit")
    weights = local_hub.root / "me/cartpole/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(NfdrlError, match=r"weights.safetensors is damaged"):
        Agent.from_hub("me/cartpole")
    kept = {path.name for path in (local_hub.root / "cache/me/cartpole").iterdir()}
    assert kept == {"manifest.json", "config.json", "state.json", "weights.safetensors"}


def test_what_the_hub_refuses_is_said_in_one_line(local_hub: LocalHub) -> None:
    with pytest.raises(NfdrlError, match=r"^'me/nothing' cannot be read from the Hub: 404: no repository me/nothing$"):
        Agent.from_hub("me/nothing")
