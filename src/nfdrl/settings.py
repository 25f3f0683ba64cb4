"""Settings are frozen dataclasses; here they are read from words and from JSON, by the types of their fields.

A field may hold a dataclass of its own, or one of several that differ in their `kind`. Words name inner fields by a
path, `comparison.rooted=true`, and replace the whole by its kind, `comparison=exact`.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from nfdrl.errors import NfdrlError, suggestion, unknown_name

T = TypeVar("T")
U = TypeVar("U")

WORD = re.compile(r"^(?P<name>[^\[\]]+?)(?:\[(?P<settings>[^\[\]]*)\])?$")
COMMAS = re.compile(r",(?![^(]*\))")  # between settings, not inside a tuple
CONSTANTS = {"true": True, "false": False, "none": None}
MISFIT: Any = object()  # stands for a value that a field cannot have
LARGEST = 2**1023
CALLED: dict[Any, str] = {bool: "true or false", int: "an integer", float: "a number", str: "a word", NoneType: "none"}


def split_word(word: str) -> tuple[str, dict[str, str]]:
    """A name and the texts of its settings.

    >>> split_word("c51[atoms=13, v_min=0]")
    ('c51', {'atoms': '13', 'v_min': '0'})
    """
    found = WORD.match(word)
    if found is None:
        raise NfdrlError(f"{word!r} must be written NAME or NAME[SETTING=VALUE,...]")
    parts = filter(str.strip, COMMAS.split(found["settings"] or ""))
    texts = dict(split_setting(part.strip()) for part in parts)
    empty = [name for name, text in texts.items() if not text]
    if empty:
        raise NfdrlError(f"settings must be written NAME=VALUE, but {empty[0]} has no value in {word!r}")
    return found["name"].strip(), texts


def split_setting(word: str) -> tuple[str, str]:
    """The name and the text of NAME=VALUE."""
    name, _, text = (piece.strip() for piece in word.partition("="))
    if not name or "=" not in word:
        raise NfdrlError(f"settings must be written NAME=VALUE, got {word!r}")
    return name, text


def read_word(word: str) -> tuple[str, dict[str, Any]]:
    """A name and its settings, whose types are not known: Python literals, and text otherwise.

    >>> read_word("FrozenLake-v1[map_name=8x8,is_slippery=false]")
    ('FrozenLake-v1', {'map_name': '8x8', 'is_slippery': False})
    """
    name, texts = split_word(word)
    return name, {key: _literal(text) for key, text in texts.items()}


def _literal(text: str) -> Any:
    """The text as a Python literal, with true, false and none in any case; the text itself if it is none."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return text


def changed(settings: T, texts: Mapping[str, str], what: str) -> T:
    """Settings with all named fields replaced at once, each by what its text says; errors name `what` they belong to.

    An inner field is named by its path, or by its name alone if no other field has it.
    """
    values: dict[str, Any] = {}
    inner: dict[str, dict[str, str]] = {}
    for path, text in texts.items():
        name, _, rest = _full(settings, path, what).partition(".")
        if rest:
            inner.setdefault(name, {})[rest] = text
        else:
            values[name] = _read_field(type(settings), name, text, _from_text)
    for name, rest_texts in inner.items():
        value = values.get(name, getattr(settings, name))
        values[name] = changed(value, rest_texts, f"{what}.{name}")
    return _made(lambda: cast(T, replace(cast(Any, settings), **values)), what) if values else settings


def apply_settings(words: Iterable[str], config: T, method: U) -> tuple[T, U]:
    """The settings of a run and of its method, with the fields that NAME=VALUE words name replaced in either."""
    texts: tuple[dict[str, str], dict[str, str]] = {}, {}
    of_config, of_method = _reachable(config), _reachable(method)
    for path, text in map(split_setting, words):
        name = path.partition(".")[0]
        if name not in of_config and name not in of_method:
            raise unknown_name("setting", name, sorted({*of_config, *of_method}))
        texts[name not in of_config][path] = text
    return changed(config, texts[0], "run"), changed(method, texts[1], "method")


def words_of(settings: Mapping[str, Any], path: str = "") -> list[str]:
    """The NAME=VALUE words of settings in a file, inner tables by their path; text is read as a word's is.

    >>> words_of({"learning_rate": 0.001, "max_grad_norm": "none", "torso": {"mlp": [64, 64]}})
    ['learning_rate=0.001', 'max_grad_norm=none', 'torso.mlp=(64, 64)']
    """
    words: list[str] = []
    for name, value in settings.items():
        words += words_of(value, f"{path}{name}.") if isinstance(value, Mapping) else [f"{path}{name}={_text(value)}"]
    names = Counter(word.partition("=")[0] for word in words)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise NfdrlError(f"setting {twice[0]} is given twice")
    return words


def _text(value: Any) -> str:
    """A value as a word writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(tuple(value)) if isinstance(value, (list, tuple)) else str(value)


def own_words(words: Iterable[str], settings: Any) -> list[str]:
    """Those of NAME=VALUE words that name a field of these settings."""
    known = _reachable(settings)
    return [word for word in words if split_setting(word)[0].partition(".")[0] in known]


def _reachable(settings: Any) -> dict[str, str]:
    """The path of each field by its name: all outer fields, and the inner ones whose name is unique."""
    own = [field.name for field in fields(settings)]
    nested = {name: fields(value) for name in own if is_dataclass(value := getattr(settings, name))}
    deep = [(field.name, f"{name}.{field.name}") for name, inner in nested.items() for field in inner]
    homes = Counter([*own, *(name for name, _ in deep)])
    return {name: name for name in own} | {name: path for name, path in deep if homes[name] == 1}


def _full(settings: Any, path: str, what: str) -> str:
    """A path that begins with a field of these settings."""
    name, dot, rest = path.partition(".")
    known = _reachable(settings)
    if name not in known:
        raise unknown_name(f"setting of {what}", name, [field.name for field in fields(settings)])
    full = known[name]
    if dot and not is_dataclass(getattr(settings, full, None)):
        raise NfdrlError(f"{name} of {what} has no settings of its own, got {path!r}")
    return full + dot + rest


def to_plain(settings: Any) -> dict[str, Any]:
    """A dataclass as JSON, with its kind where it has one.

    >>> from dataclasses import make_dataclass
    >>> to_plain(make_dataclass("Sizes", [("mlp", tuple[int, ...])])((64, 64)))
    {'mlp': [64, 64]}
    """
    kind, plain = _kind(type(settings)), {f.name: _plain(getattr(settings, f.name)) for f in fields(settings)}
    return plain if kind is None else {"kind": kind} | plain


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return to_plain(value)
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def from_plain(kind: type[T], plain: Any, what: str) -> T:
    """The dataclass that `to_plain` wrote; unknown fields, of another version perhaps, are refused."""
    if not isinstance(plain, Mapping):
        raise NfdrlError(f"settings of {what} must be a JSON object, got {plain!r:.80}")
    own = {name: value for name, value in plain.items() if name != "kind" or _kind(kind) is None}
    hints: dict[str, Any] = _hints(cast(Any, kind))
    unknown = sorted(set(own) - set(hints))
    if unknown:
        hint = suggestion(unknown[0], hints)
        raise NfdrlError(f"settings of {what} have unknown fields: {', '.join(unknown)}; {hint}")
    values = {name: _read_field(kind, name, value, _fit) for name, value in own.items()}
    return _made(lambda: kind(**values), what)


def _made(make: Callable[[], T], what: str) -> T:
    try:
        return make()
    except (TypeError, OverflowError) as error:  # a number too large for a float, a missing field
        raise NfdrlError(f"settings of {what}: {error}") from None


def _kind(of: Any) -> str | None:
    """What tells a dataclass from others that a field may hold: the `kind` of its class, which is not a field."""
    return None if "kind" in _hints(of) else getattr(of, "kind", None)


@lru_cache(maxsize=128)
def _hints(kind: Any) -> dict[str, Any]:
    """The type of every field."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind) if field.init}


def _read_field(kind: type, name: str, given: Any, read: Callable[[Any, Any], Any]) -> Any:
    hint = _hints(kind)[name]
    value = read(hint, given)
    if value is MISFIT:
        raise _refused(hint, given, name)
    return value


def _from_text(hint: Any, text: str) -> Any:
    """What a text means for a field of this type: a literal if one fits, or the text itself."""
    value = _fit(hint, _literal(text))
    return _fit(hint, text) if value is MISFIT else value


def _fit(hint: Any, value: Any) -> Any:
    """The value as the type has it, or MISFIT: integers become floats, lists tuples, kinds and objects dataclasses."""
    origin, of = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return next((found for member in of if (found := _fit(member, value)) is not MISFIT), MISFIT)
    if origin is Literal:
        return value if any(value == choice and type(value) is type(choice) for choice in of) else MISFIT
    if origin is tuple:
        parts = [_fit(of[0], part) for part in (value if isinstance(value, (list, tuple)) else [value])]
        return MISFIT if MISFIT in parts else tuple(parts)
    if is_dataclass(hint):
        return _fit_dataclass(cast(type, hint), value)
    if hint is float and type(value) is int:
        return float(value) if abs(value) < LARGEST else MISFIT
    return value if hint is Any or type(value) is hint else MISFIT


def _fit_dataclass(kind: type, value: Any) -> Any:
    name = _kind(kind)
    if isinstance(value, Mapping) and value.get("kind") == name:
        return from_plain(kind, value, kind.__name__ if name is None else name)
    return kind() if name is not None and value == name else MISFIT


def _refused(hint: Any, given: Any, name: str) -> NfdrlError:
    """Why a field of this name and type cannot have a value."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    own = [member for member in members if is_dataclass(member)]
    choices = [choice for member in members if get_origin(member) is Literal for choice in get_args(member)]
    choices += [kind for member in own if (kind := _kind(member)) is not None]
    if choices and isinstance(given, str):
        return unknown_name(name, given, choices)
    words = [CALLED.get(member, "integers in parentheses") for member in members if get_origin(member) is not Literal]
    inner = [f"{name}.{field.name}" for field in fields(own[0])] if own else []
    must = f"set {', '.join(inner)}" if own else f"it must be {' or '.join(words + choices)}"
    return NfdrlError(f"{name} cannot be {given!r:.80}: {must}")


@dataclass(frozen=True)
class Note:
    """What the comments next to a field say: its meaning in those above it, the source of its default beside it."""

    meaning: str = ""
    source: str = ""


def notes_of(kind: type) -> dict[str, Note]:
    """The notes of all fields of a dataclass; empty where its source code is not at hand.

    >>> from nfdrl.losses.exact import Exact
    >>> notes_of(Exact)["rooted"].meaning
    'whether the root of the distance is taken'
    """
    found: dict[str, Note] = {}
    for base in reversed([base for base in kind.__mro__ if is_dataclass(base)]):
        with suppress(OSError, TypeError, SyntaxError):
            found |= _notes(textwrap.dedent(inspect.getsource(base)))
    return {field.name: found.get(field.name, Note()) for field in fields(kind)}


def _notes(code: str) -> dict[str, Note]:
    """The notes in the source code of a class."""
    (tree,) = ast.parse(code).body
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    comments = {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}
    alone = {n for n, line in enumerate(code.splitlines(), 1) if line.lstrip().startswith("#")}
    found = {}
    for line in cast(ast.ClassDef, tree).body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            first = line.lineno
            while first - 1 in alone:
                first -= 1
            beside = [comments[n] for n in range(line.lineno, (line.end_lineno or line.lineno) + 1) if n in comments]
            above = [comments[n] for n in range(first, line.lineno)]
            found[line.target.id] = Note(" ".join(above), " ".join(beside))
    return found
