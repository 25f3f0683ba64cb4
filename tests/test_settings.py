"""Settings are read by the types of their fields, whoever writes them: a command line, a word, a file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal

import pytest

from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, find_method
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.l2 import L2
from nfdrl.settings import apply_settings, changed, from_plain, read_word, to_plain
from nfdrl.training.config import TrainConfig
from nfdrl.training.presets import PRESETS


@dataclass(frozen=True)
class Round:
    kind: ClassVar[str] = "round"

    radius: float = 1.0


@dataclass(frozen=True)
class Square:
    kind: ClassVar[str] = "square"

    side: float = 2.0
    tilted: bool = False

    def __post_init__(self) -> None:
        if self.side <= 0:
            raise NfdrlError(f"side must be positive, got {self.side}")


@dataclass(frozen=True)
class Sizes:
    widths: tuple[int, ...] = (8, 8)
    side: float = 0.0


@dataclass(frozen=True)
class Drawing:
    shape: Round | Square = field(default_factory=Square)
    sizes: Sizes = field(default_factory=Sizes)
    low: float = 0.0
    high: float | None = 1.0
    count: int = 3
    line: Literal["solid", "dashed"] = "solid"
    title: str = ""

    def __post_init__(self) -> None:
        if self.high is not None and not self.low < self.high:
            raise NfdrlError("low must be less than high")


def draw(**texts: str) -> Drawing:
    return changed(Drawing(), {name.replace("__", "."): text for name, text in texts.items()}, "drawing")


def test_texts_are_read_by_the_types_of_their_fields() -> None:
    made = draw(low="-1", high="none", count="5", line="dashed", title="1", sizes__widths="(4, 5)")
    assert made == Drawing(low=-1.0, high=None, count=5, line="dashed", title="1", sizes=Sizes((4, 5)))
    assert type(made.low) is float
    assert draw(sizes__widths="7").sizes.widths == draw(sizes__widths="[7]").sizes.widths == (7,)
    assert draw(shape__tilted="TRUE").shape == Square(tilted=True)


def test_fields_are_changed_all_at_once() -> None:
    """Either alone would leave an empty range for a moment."""
    assert draw(low="5", high="6") == draw(high="6", low="5") == Drawing(low=5.0, high=6.0)


def test_a_kind_replaces_the_whole_and_a_path_changes_a_part() -> None:
    assert draw(shape="round").shape == Round()
    assert draw(shape__side="3").shape == Square(side=3.0)
    assert draw(shape__radius="4", shape="round").shape == Round(4.0)
    with pytest.raises(NfdrlError, match=r"unknown setting of drawing.shape 'radius': .*known: side, tilted"):
        draw(shape__radius="4")


def test_an_inner_field_is_found_by_its_name_alone_unless_two_have_it() -> None:
    assert draw(tilted="true").shape == Square(tilted=True)
    assert draw(widths="(1,)").sizes.widths == (1,)
    with pytest.raises(NfdrlError, match="unknown setting of drawing 'side'"):
        draw(side="1")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"count": "many"}, "count cannot be 'many': it must be an integer"),
        ({"count": "2.0"}, "count cannot be '2.0': it must be an integer"),
        ({"count": "true"}, "count cannot be 'true': it must be an integer"),
        ({"low": "1" + "0" * 400}, "low cannot be '1000000"),
        ({"high": "tall"}, "high cannot be 'tall': it must be a number or none"),
        ({"tilted": "1"}, "tilted cannot be '1': it must be true or false"),
        ({"line": "dotted"}, "unknown line 'dotted': did you mean 'dashed'? (known: solid, dashed)"),
        ({"shape": "squares"}, "unknown shape 'squares': did you mean 'square'? (known: round, square)"),
        ({"sizes": "3"}, "sizes cannot be '3': set sizes.widths, sizes.side"),
        ({"sizes.widths": "(1, 2.5)"}, "widths cannot be '(1, 2.5)': it must be integers in parentheses"),
        ({"counts": "3"}, "unknown setting of drawing 'counts': did you mean 'count'?"),
        ({"count.x": "3"}, "count of drawing has no settings of its own, got 'count.x'"),
        ({"shape.side": "-1"}, "side must be positive, got -1.0"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_in_one_line(texts: dict[str, str], said: str) -> None:
    with pytest.raises(NfdrlError) as caught:
        changed(Drawing(), texts, "drawing")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("made", [Drawing(), Drawing(Round(3.0), Sizes(()), -1.0, None, 0, "dashed", "x")])
def test_settings_survive_json(made: Drawing) -> None:
    plain = json.loads(json.dumps(to_plain(made)))
    assert plain["shape"]["kind"] == made.shape.kind
    assert from_plain(Drawing, plain, "drawing") == made


@pytest.mark.parametrize(
    ("plain", "said"),
    [
        ({"colour": 3}, "settings of drawing have unknown fields: colour"),
        ({"shape": {"kind": "round", "side": 1.0}}, "settings of round have unknown fields: side"),
        ({"shape": {"kind": "oval"}}, "shape cannot be {'kind': 'oval'}"),
        ({"count": "3"}, "count cannot be '3'"),
        ({"count": None}, "count cannot be None"),
        ([], "must be a JSON object, got []"),
    ],
)
def test_foreign_json_is_refused(plain: object, said: str) -> None:
    with pytest.raises(NfdrlError) as caught:
        from_plain(Drawing, plain, "drawing")
    assert said in str(caught.value)


def test_fields_that_json_leaves_out_keep_their_defaults() -> None:
    assert from_plain(Drawing, {"low": -2}, "drawing") == Drawing(low=-2.0)


def test_tuples_may_stand_inside_brackets() -> None:
    assert read_word("Env-v0[size=(3, 4),name=a]") == ("Env-v0", {"size": (3, 4), "name": "a"})


@pytest.mark.parametrize("word", ["c51[atoms]", "c51[atoms=]", "c51[=3]", "c51[atoms=3", "c51]", ""])
def test_a_malformed_word_is_refused(word: str) -> None:
    with pytest.raises(NfdrlError, match=r"written NAME"):
        find_method(word)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_and_every_run_survives_json(name: str) -> None:
    method, config = METHODS[name], TrainConfig(max_grad_norm=None)
    for settings in (method, config):
        assert from_plain(type(settings), json.loads(json.dumps(to_plain(settings))), name) == settings


def test_words_of_a_run_reach_its_torso_and_its_method() -> None:
    words = ["mlp=(64,64)", "torso.image=7", "n_step=1", "components=8", "comparison.rooted=true"]
    config, method = apply_settings(words, TrainConfig(), METHODS["nfdrl-s"])
    assert (config.torso.mlp, config.torso.image, config.n_step) == ((64, 64), (7,), 1)
    assert method == find_method("nfdrl-s[components=8,comparison.rooted=true]")
    assert method.comparison.rooted


# Every count of every method.


def leaves(settings: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name in (entry.name for entry in fields(settings)):
        value = getattr(settings, name)
        if is_dataclass(value):
            yield from leaves(value, f"{path}{name}.")
        else:
            yield path + name, value


def with_value(settings: Any, path: str, value: Any) -> Any:
    name, _, rest = path.partition(".")
    return replace(settings, **{name: with_value(getattr(settings, name), rest, value) if rest else value})


ALL = {**METHODS, "run": TrainConfig(), "l2": FlowMethod(L2()), "atari": PRESETS["atari"].config}
COUNTS = [(name, path) for name, kind in ALL.items() for path, value in leaves(kind) if type(value) is int]
WIDTHS = [(name, path) for name, kind in ALL.items() for path, value in leaves(kind) if isinstance(value, tuple)]
NUMBERS = [(name, path) for name, kind in ALL.items() for path, value in leaves(kind) if type(value) is float]
MAY_BE_ZERO = {"learning_starts"}


@pytest.mark.parametrize(("name", "path"), COUNTS)
def test_a_count_that_learns_nothing_is_refused(name: str, path: str) -> None:
    for value in [-1, -(10**9), *([] if path in MAY_BE_ZERO else [0])]:
        with pytest.raises(NfdrlError, match=f"{path.rpartition('.')[2]}|atoms|points"):
            with_value(ALL[name], path, value)
        with pytest.raises(NfdrlError):
            changed(ALL[name], {path: str(value)}, name)


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, path in COUNTS if name in METHODS])
def test_a_count_beyond_any_memory_is_refused(name: str, path: str) -> None:
    for value in (2**31 + 1, 10**30 + 1):
        with pytest.raises(NfdrlError, match="must be at most"):
            with_value(ALL[name], path, value)


@pytest.mark.parametrize(("name", "path"), WIDTHS)
def test_a_layer_without_units_is_refused(name: str, path: str) -> None:
    for value in ((0,), (8, 0), (-1,)):
        with pytest.raises(NfdrlError, match="at least 1"):
            with_value(ALL[name], path, value)


@pytest.mark.parametrize(("name", "path"), NUMBERS)
def test_a_number_that_is_not_finite_is_refused(name: str, path: str) -> None:
    for value in (math.nan, math.inf, -math.inf):
        with pytest.raises(NfdrlError):
            with_value(ALL[name], path, value)


def test_every_method_has_its_counts_in_these_tests() -> None:
    assert {name for name, _ in COUNTS} >= set(METHODS) - {"dqn"}
