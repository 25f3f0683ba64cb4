"""A preset file says what `--set` says, in TOML, and is written by the code that reads it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nfdrl import find_preset
from nfdrl.cli import main
from nfdrl.errors import NfdrlError
from nfdrl.files import read_json, read_toml, to_toml
from nfdrl.laws import METHODS, find_method
from nfdrl.settings import apply_settings, words_of
from nfdrl.torsos import TorsoSizes
from nfdrl.training.config import TrainConfig
from nfdrl.training.presets import PRESETS, PresetFile, read_preset, write_preset

NUMBERS = st.floats(allow_nan=False)
VALUES = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), NUMBERS, st.text(), st.lists(st.integers(0, 99)))
TABLES = st.dictionaries(st.text(), VALUES, max_size=5)


def written(folder: Path, text: str) -> Path:
    path = folder / "preset.toml"
    path.write_text(text, encoding="utf-8")
    return path


@given(TABLES, TABLES, st.text())
def test_toml_is_read_as_it_was_written(tmp_path_factory, values, table, comment) -> None:
    content = values | {"a table": table}
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_bytes(to_toml(content, "".join(c if c.isprintable() else " " for c in comment)))
    assert read_toml(path) == content


@given(
    rate=st.floats(1e-8, 1.0),
    norm=st.none() | st.floats(0.1, 100.0),
    every=st.integers(1, 10**6),
    double=st.booleans(),
    decay=st.sampled_from(["constant", "linear", "quadratic", "cosine"]),
    layers=st.lists(st.integers(1, 512), min_size=1, max_size=3),
    components=st.integers(1, 9),
)
def test_a_preset_is_read_as_it_was_written(
    tmp_path_factory, rate, norm, every, double, decay, layers, components
) -> None:
    settings = {
        "learning_rate": rate,
        "max_grad_norm": "none" if norm is None else norm,
        "target_every": every,
        "double_q": double,
        "learning_rate_decay": decay,
        "torso.mlp": layers,
        "components": components,
    }
    path = tmp_path_factory.getbasetemp() / "round.toml"
    file = PresetFile(settings, method="nfdrl-e", steps=1234)
    write_preset(path, file, "Two lines\nof comment.")
    assert read_preset(path) == file
    preset = find_preset(path)
    changes = {"learning_rate": rate, "max_grad_norm": norm, "target_every": every, "double_q": double}
    torso = replace(TorsoSizes(), mlp=tuple(layers))
    assert preset.config == replace(TrainConfig(), **changes, learning_rate_decay=decay, torso=torso)
    assert find_method(preset.method, preset.adapt) == replace(METHODS["nfdrl-e"], components=components)
    assert preset.steps == 1234


def test_a_file_says_what_the_same_words_say(tmp_path: Path) -> None:
    path = written(tmp_path, 'preset = "atari"\n[set]\nn_step = 5\ncomparison.rooted = true\n"torso.mlp" = [8]\n')
    words = ["n_step=5", "comparison.rooted=true", "torso.mlp=(8,)"]
    preset, atari = find_preset(str(path)), PRESETS["atari"]
    config, method = apply_settings(words, atari.config, METHODS["nfdrl-s"])
    assert (preset.config, preset.adapt(METHODS["nfdrl-s"]), preset.steps) == (config, method, atari.steps)


def test_a_file_keeps_what_its_named_preset_changes_in_a_method(tmp_path: Path) -> None:
    path = written(tmp_path, 'preset = "paper"\n[set]\nsamples = 50\n')
    expected = replace(PRESETS["paper"].adapt(METHODS["nfdrl-s"]), samples=50)
    assert find_preset(path).adapt(METHODS["nfdrl-s"]) == expected


@pytest.mark.parametrize("name", PRESETS)
def test_a_file_trains_the_method_of_its_named_preset(name: str, tmp_path: Path) -> None:
    expected = "nfdrl-s" if name.startswith("paper") else "nfdrl"
    assert PRESETS[name].method == expected
    assert find_preset(written(tmp_path, f'preset = "{name}"\n')).method == expected


def test_brackets_and_set_take_precedence_over_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, 'method = "c51"\nsteps = 30\n[set]\natoms = 7\nbatch_size = 4\nlearning_starts = 10\n')
    run = tmp_path / "run"
    words = ["train", "--preset", str(path), "--evaluate", "0", "--no-progress", "--out", str(run)]
    assert main([*words, "--set", "batch_size=5"]) == 0
    saved = read_json(run / "config.json")
    assert saved["method"]["name"] == "c51"
    assert (saved["method"]["settings"]["atoms"], saved["steps"]) == (7, 30)
    assert (saved["train"]["batch_size"], saved["train"]["learning_starts"]) == (5, 10)
    assert main([*words, "--overwrite", "--method", "c51[atoms=9]", "--steps", "20"]) == 0
    saved = read_json(run / "config.json")
    assert (saved["method"]["settings"]["atoms"], saved["steps"]) == (9, 20)


def test_settings_of_a_file_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, "[set]\ntarget_every = 777\n")
    assert main(["settings", "--preset", str(path)]) == 0
    assert "777" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 1\nsteps = 2\n", "is not valid TOML"),
        ("steps = ", "is not valid TOML"),
        ("learning_rate = 1e-3\n", "settings of a preset have unknown fields: learning_rate"),
        ("steps = 0.5\n", "steps cannot be 0.5: it must be an integer"),
        ("steps = -1\n", "steps must be at least 0, got -1"),
        ('preset = "papr"\n', "unknown preset 'papr': did you mean 'paper'?"),
        ('preset = "best.toml"\n', "unknown preset 'best.toml'"),
        ("set = 3\n", "set must be a table of settings, got 3"),
        ("[set]\nlearning_rat = 1\n", "unknown setting 'learning_rat': did you mean 'learning_rate'?"),
        ("[set]\nbatch_size = 0\n", "batch_size must be at least 1, got 0"),
        ("[set]\nbatch_size = 0.5\n", "batch_size cannot be '0.5'"),
        ("[set]\ndiscount = nan\n", "discount cannot be 'nan'"),
        ("[set]\ndiscount = 1979-05-27\n", "discount cannot be '1979-05-27'"),
        ('[set]\ntorso.mlp = [8]\n"torso.mlp" = [9]\n', "setting torso.mlp is given twice"),
        ("[set]\natoms = 9\n", "unknown setting 'atoms'"),
        ('method = "nfdrl-x"\n', "unknown method 'nfdrl-x'"),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = written(tmp_path, text), tmp_path / "run"
    assert main(["train", "--preset", str(path), "--steps", "10", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error
    assert str(path) in error
    assert not out.exists()


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NfdrlError, match=r"absent\.toml cannot be read: No such file"):
        find_preset(tmp_path / "absent.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(NfdrlError, match="cannot be read: Is a directory"):
        find_preset(tmp_path / "folder.toml")


def test_numbers_become_words_that_are_read_as_the_same_numbers() -> None:
    words = words_of({"learning_rate": 0.1 + 0.2, "adam_eps": math.ulp(1.0), "learning_starts": 10**6})
    config, _ = apply_settings(words, TrainConfig(), METHODS["dqn"])
    assert (config.learning_rate, config.adam_eps, config.learning_starts) == (0.1 + 0.2, math.ulp(1.0), 10**6)


def test_the_documented_file_is_a_preset(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "settings.md").read_text()
    preset = find_preset(written(tmp_path, page.partition("```toml\n")[2].partition("```")[0]))
    assert (preset.steps, preset.config.learning_rate, preset.config.max_grad_norm) == (50_000, 5e-4, None)
    assert find_method(preset.method, preset.adapt) == find_method("nfdrl[components=8]")
