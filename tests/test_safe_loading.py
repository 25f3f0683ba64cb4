"""A damaged, foreign or hostile checkpoint: one clear line, nothing executed, nothing half loaded."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
import shutil
import struct
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from nfdrl.agent import Agent
from nfdrl.envs.saving import described
from nfdrl.errors import NfdrlError
from nfdrl.files import FileRecord, sealed, to_json, unsealed
from nfdrl.runs import checkpoint
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig

SMALL = TrainConfig(learning_starts=40, batch_size=8, report_every=35, buffer_size=90, torso=TorsoSizes(mlp=(8, 8)))
FILES = ["manifest.json", "config.json", "state.json", "weights.safetensors", "replay"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent") / "saved"
    Agent("c51", "CartPole-v1", config=SMALL).learn(150, progress=False).save(folder, replay=True)
    return folder


@pytest.fixture
def saved(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "saved")
    return tmp_path / "saved"


def file_of(saved: Path, name: str) -> Path:
    return next((saved / "replay").iterdir()) if name == "replay" else saved / name


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def hostile(content: bytes, marker: Path) -> bytes:
    return pickle.dumps(Touch(marker))


def hostile_array(content: bytes, marker: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Touch(marker)], dtype=object), allow_pickle=True)
    return file.getvalue()


def truncated(content: bytes, marker: Path) -> bytes:
    return content[: len(content) // 2]


def emptied(content: bytes, marker: Path) -> bytes:
    return b""


def lengthened(content: bytes, marker: Path) -> bytes:
    return content + bytes(1000)


def flipped(content: bytes, marker: Path) -> bytes:
    at = len(content) // 3
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


def claiming_too_much(content: bytes, marker: Path) -> bytes:
    """Headers of safetensors and .npy that promise terabytes."""
    if content[:6] == b"\x93NUMPY":
        file = io.BytesIO()
        shape = {"descr": "<f8", "fortran_order": False, "shape": (2**40,)}
        np.lib.format.write_array_header_2_0(file, shape)
        return file.getvalue() + content[:100]
    header = b'{"online.x":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    return struct.pack("<Q", len(header)) + header + content[:100]


DAMAGE = [hostile, hostile_array, truncated, emptied, lengthened, flipped, claiming_too_much]


def vouch(saved: Path, name: str) -> None:
    """Correct the checksums, as an attacker would."""
    if name == "replay":
        state = json.loads((saved / "state.json").read_text())
        state["replay"]["segments"][0]["file"] = record(file_of(saved, name))
        (saved / "state.json").write_bytes(to_json(state))
    manifest = unsealed(json.loads((saved / "manifest.json").read_text()), saved)
    for role in manifest["files"]:
        manifest["files"][role] = record(saved / role)
    (saved / "manifest.json").write_bytes(to_json(sealed(manifest)))


def record(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return asdict(FileRecord(path.name, len(content), hashlib.blake2b(content, digest_size=32).hexdigest()))


PLAIN = [(name, damage, False) for name in FILES for damage in DAMAGE]
# Other numbers with a matching checksum are another agent, and a reader of .npy stops where the header says.
HARMLESS = [("weights.safetensors", flipped), ("replay", flipped), ("replay", lengthened)]
VOUCHED = [(name, damage, True) for name in FILES[3:] for damage in DAMAGE if (name, damage) not in HARMLESS]


@pytest.mark.parametrize(
    ("name", "damage", "vouched"), PLAIN + VOUCHED, ids=lambda case: getattr(case, "__name__", case)
)
def test_a_damaged_file_is_refused(
    name: str, damage: Callable[[bytes, Path], bytes], vouched: bool, saved: Path, tmp_path: Path
) -> None:
    path, marker = file_of(saved, name), tmp_path / "executed"
    path.write_bytes(damage(path.read_bytes(), marker))
    if vouched:
        vouch(saved, name)
    with pytest.raises(NfdrlError) as caught:
        Agent.load(saved)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert not marker.exists()


def test_an_undamaged_checkpoint_loads(saved: Path) -> None:
    vouch(saved, "replay")
    assert len(Agent.load(saved).trainer.replay) > 50


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str, saved: Path) -> None:
    path = file_of(saved, name)
    path.unlink()
    with pytest.raises(NfdrlError, match="missing"):
        Agent.load(saved)


def test_a_huge_file_is_not_read(saved: Path) -> None:
    for name in FILES:
        path = file_of(saved, name)
        before = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(1 << 40)  # a terabyte of nothing
        with pytest.raises(NfdrlError, match="bytes"):
            Agent.load(saved)
        path.write_bytes(before)


def rewritten(saved: Path, role: str, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads((saved / role).read_text())
    change(content)
    (saved / role).write_bytes(to_json(content))
    vouch(saved, role)


CHANGES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "a network larger than its weights": ("config.json", lambda c: c["train"]["torso"].update(mlp=[50_000, 50_000])),
    "too many actions": ("config.json", lambda c: c["action_space"].update(n=2**40)),
    "a replay beyond all memory": ("config.json", lambda c: c["train"].update(buffer_size=2**50)),
    "a method nobody knows": ("config.json", lambda c: c["method"].update({"class": "x:X"})),
    "a setting nobody knows": ("config.json", lambda c: c["train"].update(x=1)),
    "a word for a number": ("config.json", lambda c: c["train"].update(batch_size="many")),
    "no method": ("config.json", lambda c: c.pop("method")),
    "a list for the method": ("config.json", lambda c: c.update(method=[])),
    "a negative seed": ("config.json", lambda c: c.update(seed=-1)),
    "another generator": ("state.json", lambda c: c["rng"].update(bit_generator="MT19937")),
    "a file of another folder": (
        "state.json",
        lambda c: c["replay"]["segments"][0]["file"].update(name="../../weights.safetensors"),
    ),
    "rows that run backwards": ("state.json", lambda c: c["replay"]["segments"][0].update(start=[99], stop=[3])),
    "a negative row": ("state.json", lambda c: c["replay"].update(position=[-1])),
    "episodes that are none": ("state.json", lambda c: c["trainer"].update(recent=[1, 2])),
    "no step": ("state.json", lambda c: c.pop("step")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_impossible_settings_are_refused(name: str, saved: Path) -> None:
    rewritten(saved, *CHANGES[name])
    with pytest.raises(NfdrlError) as caught:
        Agent.load(saved)
    assert "\n" not in str(caught.value)


def source_of(**changes: Any) -> dict[str, Any]:
    """A description of CartPole with other parts."""
    whole = described(gymnasium.make("CartPole-v1"))
    return whole | changes


MARKER = "nfdrl_must_not_be_imported"
SOURCES: dict[str, dict[str, Any]] = {
    "a module before the id": source_of(id=f"{MARKER}:CartPole-v1"),
    "another entry point": source_of(entry_point=f"{MARKER}:Env"),
    "an id that nobody registered": source_of(id="Nothing-v0"),
    "a wrapper to import": source_of(wrappers=[{"entry_point": f"{MARKER}:Wrapper", "kwargs": {"dict": {}}}]),
    "a function for a wrapper": source_of(wrappers=[{"entry_point": "os:system", "kwargs": {"dict": {}}}]),
    "a class that is no wrapper": source_of(wrappers=[{"entry_point": "subprocess:Popen", "kwargs": {"dict": {}}}]),
    "a wrapper that writes": source_of(
        wrappers=[
            {
                "entry_point": "gymnasium.wrappers.rendering:RecordVideo",
                "kwargs": {"dict": {"video_folder": "nfdrl-must-not-be-written"}},
            }
        ]
    ),
    "an unknown argument": source_of(kwargs={"dict": {"x": 1}}),
    "an unknown tag": source_of(kwargs={"dict": {"sutton_barto_reward": {"eval": "1"}}}),
    "objects for numbers": source_of(kwargs={"dict": {"x": {"array": [1], "dtype": "O", "scalar": False}}}),
    "nothing": {},
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_hostile_environment_is_refused_and_nothing_is_imported(
    name: str, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{MARKER}.py").write_text("from pathlib import Path\nPath('nfdrl-must-not-be-written').touch()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rewritten(saved, "config.json", lambda config: config.update(source=SOURCES[name]))
    with pytest.raises(NfdrlError) as caught:
        Agent.load(saved)
    assert "\n" not in str(caught.value)
    assert MARKER not in sys.modules
    assert not (tmp_path / "nfdrl-must-not-be-written").exists()
    assert Agent.load(saved, "CartPole-v1").step == 150


@pytest.mark.parametrize(
    ("found", "message"),
    [("3", "format 3, from a newer nfdrl: this one reads format 2"), ("1", "an unknown format"), ('"x"', "'x'")],
)
def test_a_checkpoint_of_another_format_is_refused(found: str, message: str, saved: Path) -> None:
    (saved / "manifest.json").write_text(f'{{"format": {found}, "anything": "else"}}')
    with pytest.raises(NfdrlError, match=message):
        Agent.load(saved)


def test_an_interrupted_save_leaves_the_previous_one_intact(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Agent.load(saved)
    agent = Agent.load(saved).learn(40, total_steps=190, progress=False)

    def power_cut(*args: Any) -> None:
        raise KeyboardInterrupt

    for name in ("write_json", "serialised", "sync_folder"):
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, name, power_cut)
            with pytest.raises(KeyboardInterrupt):
                agent.save(saved, replay=True)
        assert Agent.load(saved).step == before.step == 150
    agent.save(saved, replay=True)
    assert Agent.load(saved).step == 190
    assert len(list((saved / "replay").iterdir())) == 1
