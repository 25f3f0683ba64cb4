"""Whatever the bytes are, loading gives an agent or one clear line.

A few hundred inputs here; `make fuzz` (NFDRL_FUZZ=100000) spends the same tests on a hundred thousand.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nfdrl.agent import Agent
from nfdrl.errors import NfdrlError
from nfdrl.evaluation.lines import lines_of
from nfdrl.evaluation.numbers import Numbers
from nfdrl.evaluation.seed_figures import curves
from nfdrl.files import sealed, to_json
from nfdrl.laws import METHODS, method_config
from nfdrl.runs import checkpoint
from nfdrl.runs.layout import checkpoints
from nfdrl.runs.reading import REPORTED, find_runs, read_run, unmeasured
from nfdrl.runs.session import Run, agent_of
from nfdrl.settings import apply_settings
from nfdrl.sweeps.board import glimpse
from nfdrl.training.presets import PRESETS
from nfdrl.viewer.folders import find_run, read_curve
from nfdrl.viewer.messages import to_text
from nfdrl.viewer.report import report_of
from test_safe_loading import SMALL, record, vouch

TOTAL = int(os.environ.get("NFDRL_FUZZ", "400"))
TRIED: dict[str, list[int]] = {}  # test → inputs, of which refused


def share(part: float) -> settings:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(
        max_examples=max(1, round(part * TOTAL)), deadline=None, suppress_health_check=checks, database=None
    )


@pytest.fixture(autouse=True)
def count() -> Iterator[None]:
    yield
    print(f"\n{sum(total for total, _ in TRIED.values()):,} inputs (refused): {TRIED}")


@contextmanager
def refused_or_fine(what: str) -> Iterator[None]:
    """Only NfdrlError may be raised, in one line."""
    entry, said = TRIED.setdefault(what, [0, 0]), None
    entry[0] += 1
    try:
        yield
    except NfdrlError as error:
        said = str(error)
    if said is not None:
        entry[1] += 1
        assert "\n" not in said


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent") / "saved"
    Agent("nfdrl-s", "CartPole-v1", config=SMALL).learn(60, progress=False).save(folder, replay=True)
    return folder


EDITS = st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 4)), min_size=1, max_size=4)


def edited(content: bytes, edits: list[tuple[float, bytes, int]]) -> bytes:
    """Some bytes replaced, added or removed."""
    for place, new, removed in edits:
        at = round(place * len(content))
        content = content[:at] + new + content[at + removed :]
    return content


FILES = ["manifest.json", "config.json", "state.json", "weights.safetensors", "replay"]


@share(0.48)
@given(st.sampled_from(FILES), EDITS)
def test_edited_files_load_or_fail_in_one_line(saved: Path, name: str, edits: list[tuple[float, bytes, int]]) -> None:
    path = next((saved / "replay").iterdir()) if name == "replay" else saved / name
    whole = path.read_bytes()
    try:
        path.write_bytes(edited(whole, edits))
        with refused_or_fine("edited"):
            Agent.load(saved)
    finally:
        path.write_bytes(whole)


@share(0.03)
@given(st.sampled_from(FILES[1:]), EDITS)
def test_edited_files_with_checksums_load_or_fail_in_one_line(
    saved: Path, name: str, edits: list[tuple[float, bytes, int]]
) -> None:
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    path = next((saved / "replay").iterdir()) if name == "replay" else saved / name
    try:
        path.write_bytes(edited(before[path], edits))
        vouch(saved, name)
        with refused_or_fine("edited, vouched for"):
            Agent.load(saved)
    finally:
        for path, content in before.items():
            path.write_bytes(content)


VALUES: list[Any] = [None, True, -1, 0, 1, 3, 2**31, 2**64, -(10**30), 0.5, 1e308, "", "x", "mean", "é", [], {}]
VALUES += [[1], [-1, 2**40], {"name": 1}, [[]], "../x", "CartPole-v1", "Box", "float64", "int32", "O"]


def with_another_value(content: Any, rng: random.Random) -> Any:
    """The same JSON with one entry replaced, removed or added anywhere in it."""
    content = copy.deepcopy(content)
    places = list(_places(content))
    holder, key = rng.choice(places)
    action = rng.random()
    if action < 0.1 and isinstance(holder, dict):
        del holder[key]
    elif action < 0.15 and isinstance(holder, dict):
        holder[rng.choice(["x", "format", "name"])] = rng.choice(VALUES)
    else:
        holder[key] = rng.choice(VALUES)
    return content


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    entries = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(entries):
        yield content, key
        yield from _places(value)


@share(0.03)
@given(st.sampled_from(["manifest.json", "config.json", "state.json"]), st.integers(0, 2**40))
def test_other_values_with_checksums_load_or_fail_in_one_line(saved: Path, name: str, seed: int) -> None:
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    try:
        content = json.loads(before[saved / name])
        content.pop("checksum", None)
        with refused_or_fine("other values"):
            content = with_another_value(content, random.Random(seed))
            if name == "manifest.json":
                (saved / name).write_bytes(to_json(sealed(content)))
            else:
                (saved / name).write_bytes(to_json(content))
                vouch(saved, name)
            Agent.load(saved)
    finally:
        for path, content in before.items():
            path.write_bytes(content)


RUN: dict[str, Any] = {
    "method": method_config(METHODS["nfdrl-s"]),
    "env": "CartPole-v1",
    "steps": 1000,
    "seed": 0,
    "risk": "cvar:0.1",
    "train": json.loads(json.dumps(checkpoint.asdict(SMALL))),
}


@share(0.01)
@given(st.integers(0, 2**40))
def test_edited_settings_of_a_run_resume_or_fail_in_one_line(seed: int) -> None:
    config = with_another_value(RUN, random.Random(seed))
    with refused_or_fine("run settings"):
        if not isinstance(config.get("env"), str):
            raise NfdrlError("no env")
        agent_of(config, Path("run"), "cpu")


NAMES = ["learning_rate", "batch_size", "mlp", "components", "double_q", "max_grad_norm", "return_range", "atoms", "x"]
WORDS = st.one_of(
    st.text(max_size=20),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.text(max_size=12)),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.sampled_from(VALUES)),
    st.builds("{}={}".format, st.sampled_from(NAMES), st.recursive(st.integers(), st.lists, max_leaves=4)),
)


@share(0.45)
@given(st.sampled_from(sorted(METHODS)), st.lists(WORDS, max_size=3))
def test_any_words_of_set_apply_or_fail_in_one_line(method: str, words: list[str]) -> None:
    with refused_or_fine("words"):
        apply_settings(words, PRESETS["default"].config, METHODS[method])


# The files of a run, field by field: each entry of each JSON file in turn has other values, with correct checksums.

PER_FIELD = len(VALUES) if TOTAL > 400 else 2


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    made = Run(folder, "dqn", "CartPole-v1", config=SMALL, checkpoint_every=30)
    made.train(60, progress=False)
    made.evaluate(1)
    return folder


def replaced(content: Any, k: int, value: Any) -> Any:
    content = copy.deepcopy(content)
    holder, key = list(_places(content))[k]
    holder[key] = value
    return content


def fields_of(path: Path) -> Iterator[tuple[int, Any]]:
    content = json.loads(path.read_text())
    content.pop("checksum", None)
    for k in range(len(list(_places(content)))):
        for j in range(PER_FIELD):
            yield k, replaced(content, k, VALUES[(7 * k + j) % len(VALUES)])


@pytest.mark.parametrize("name", ["state.json", "config.json"])
def test_a_run_with_any_other_field_in_a_checkpoint_resumes_or_fails_in_one_line(
    name: str, run: Path, tmp_path: Path
) -> None:
    last = checkpoints(run)[0].name
    for k, content in fields_of(run / "checkpoints" / last / name):
        folder = tmp_path / f"{k}"
        shutil.copytree(run, folder, dirs_exist_ok=True)
        for path in checkpoints(folder)[1:]:
            shutil.rmtree(path)
        saved = folder / "checkpoints" / last
        (saved / name).write_bytes(to_json(content))
        manifest = json.loads((saved / "manifest.json").read_text())
        manifest["files"][name] = record(saved / name)
        manifest.pop("checksum")
        (saved / "manifest.json").write_bytes(to_json(sealed(manifest)))
        with refused_or_fine(f"fields of {name}"):
            resumed = Run.resume(folder)
            resumed.train(resumed.agent.step + 3, progress=False)
        with refused_or_fine(f"fields of {name}, loaded"):
            Agent.load(folder)
        shutil.rmtree(folder)


def reported(folder: Path) -> Numbers:
    """The numbers of a report, which its page can hold."""
    lines, notes = lines_of([read_run(folder)])
    numbers = Numbers.of(lines, {}, notes, lambda _: {})
    to_text(report_of(numbers, "", ""))
    return numbers


@pytest.mark.parametrize("name", ["config.json", "metrics.json", "evaluation.json"])
def test_a_run_with_any_other_field_in_its_own_files_is_read_or_refused_in_one_line(
    name: str, run: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    drawn = False
    for _, content in fields_of(run / name):
        (folder / name).write_bytes(to_json(content))
        with refused_or_fine(f"fields of a run's {name}"):
            told = reported(folder)
            if not drawn:
                drawn = True
                curves(told)
        if name == "config.json":
            with refused_or_fine("resumed by other settings"):
                Run.resume(folder)


@pytest.mark.parametrize(
    "rows",
    [
        "", "step\n", "step,episodes\n1\n", "\x00", "x" * 200_000, "a\n" + "y" * 200_000 + "\n",
        *(f"{','.join(REPORTED)}\n{step},1,2,3\n" for step in ("x", "nan", "inf", "-1", "1e99")),
    ],
)  # fmt: skip
def test_metrics_of_any_kind_are_read_or_refused_in_one_line(rows: str, run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    (folder / "metrics.csv").write_text(rows)
    with refused_or_fine("metrics"):
        find_runs(folder.parent)
        unmeasured(folder)
        reported(folder)
    found = find_run(folder)  # the page shows what there is
    assert (found.dormant(), read_curve(found)) == (None, None) or rows.startswith("step,")
    assert glimpse(folder) is None or rows.startswith("step,")
