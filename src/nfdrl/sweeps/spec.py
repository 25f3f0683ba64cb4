"""The spec of a sweep, a TOML file that names methods, environments, seeds and settings; and the trials it means."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, Literal, TypeVar

from nfdrl.errors import NfdrlError, check_at_least, check_at_most, check_seed, unknown_name
from nfdrl.files import read_toml
from nfdrl.runs.keeping import KEEP
from nfdrl.runs.session import CHECKPOINT_EVERY, Upkeep
from nfdrl.settings import from_plain, split_word
from nfdrl.sweeps.trial import Resources, TrainTrial, Trial, TruthTrial
from nfdrl.training.presets import FILE

T = TypeVar("T")

SHIPPED = Path(__file__).with_name("specs")
MOST_TRIALS = 100_000  # of one sweep: more take longer to list than anyone waits
ORDERS = ("seed", "env", "method")
OF_TRAINING = ("preset", "steps", "evaluate", "evaluate_every", "checkpoint_every", "keep", "keep_replay")
OF_TRUTH = ("updates", "batch_size", "discount")
Seeds = int | tuple[int, ...]  # how many, from 0; or which


@dataclass(frozen=True)
class MethodPart:
    """A method of the sweep."""

    id: str = ""  # as for `nfdrl train --method`
    seeds: Seeds | None = None  # none for the sweep's; a trial needs a seed that method and environment both have
    set: Any = field(default_factory=dict)  # settings for it alone


@dataclass(frozen=True)
class EnvPart:
    """An environment of the sweep."""

    id: str = ""  # as for `nfdrl train --env`; for `kind = "truth"` as for `nfdrl compare --envs`
    seeds: Seeds | None = None
    steps: int | None = None  # none for the sweep's
    evaluate: int | None = None
    checkpoint_every: int | None = None
    set: Any = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """All that a spec says."""

    kind: Literal["train", "truth"] = "train"  # runs of `nfdrl train`, or cells of `nfdrl compare`
    methods: tuple[MethodPart, ...] = ()
    envs: tuple[EnvPart, ...] = ()
    seeds: Seeds = 1
    set: Any = field(default_factory=dict)  # settings of all trials, as for `nfdrl train --set`; and `risk`
    grid: Any = field(default_factory=dict)  # settings with several values each: every combination is tried
    preset: str = "default"
    steps: int | None = None
    evaluate: int = 20  # episodes of the final evaluation
    evaluate_every: int = 0
    checkpoint_every: int = CHECKPOINT_EVERY
    keep: int = KEEP
    keep_replay: bool = True  # of finished runs; without it they can be evaluated, but not continued
    updates: int = 15_000  # of a truth trial, as for `nfdrl compare`
    batch_size: int = 128
    discount: float | None = None
    resources: Resources = field(default_factory=Resources)
    # what trials are sorted by; where they agree, as written: environment by environment
    order: tuple[str, ...] = ("seed",)  # early results cover all of the table

    def __post_init__(self) -> None:
        Upkeep(self.checkpoint_every, self.keep, self.evaluate, evaluate_every=self.evaluate_every)
        check_at_least(1, updates=self.updates, batch_size=self.batch_size)
        for name in self.order:
            if name not in ORDERS:
                raise unknown_name("order", name, ORDERS)

    def trials(self) -> list[Trial]:
        """Every trial, in order; two that would share a folder are refused."""
        placed = sorted(self._trials(), key=lambda pair: [pair[0][by] for by in self.order])
        found = [trial for _, trial in placed]
        name, times = Counter(trial.name.lower() for trial in found).most_common(1)[0] if found else ("", 0)
        if times > 1:
            raise NfdrlError(f"{times} trials would share the folder {name!r}: write what differs in brackets, c51[…]")
        if not found:
            raise NfdrlError("methods and envs must name at least one each, with a seed that both have")
        return found

    def _trials(self) -> Iterator[tuple[dict[str, int], Trial]]:
        """Every trial with its place among the environments, the methods and the seeds."""
        values = [_values(name, given) for name, given in flattened(self.grid, "grid").items()]
        seeds = sum(len(self._seeds_of(method, env)) for env, method in product(self.envs, self.methods))
        check_at_most(MOST_TRIALS, trials=math.prod(map(len, values)) * seeds)
        combinations = list(product(*values))
        for (i, env), (j, method), varied in product(enumerate(self.envs), enumerate(self.methods), combinations):
            texts = {**words(self.set, "set"), **words(env.set, f"set of {env.id}")}
            texts |= {**words(method.set, f"set of {method.id}"), **dict(varied)}
            settings = ",".join(f"{name}={text}" for name, text in varied)
            for seed in self._seeds_of(method, env):
                name = "/".join([*map(slug, filter(None, (env.id, method.id, settings))), f"seed-{seed}"])
                with naming(name):
                    yield {"env": i, "method": j, "seed": seed}, self._trial(name, method.id, env, seed, varied, texts)

    def _seeds_of(self, method: MethodPart, env: EnvPart) -> list[int]:
        wanted, known = (listed(self.seeds if part.seeds is None else part.seeds) for part in (method, env))
        both = {*wanted} & {*known}
        return [seed for seed in wanted if seed in both]

    def _trial(
        self,
        name: str,
        method: str,
        env: EnvPart,
        seed: int,
        varied: tuple[tuple[str, str], ...],
        texts: dict[str, str],
    ) -> Trial:
        if self.kind == "truth":
            inner, given = split_word(method)
            settings = ",".join(f"{name}={text}" for name, text in {**given, **texts}.items())
            word = f"{inner}[{settings}]" if settings else inner
            return TruthTrial(name, word, env.id, seed, varied, self.updates, self.batch_size, self.discount)
        steps = self.steps if env.steps is None else env.steps
        if steps is None:
            raise NfdrlError(f"steps are missing: give them to {env.id}, or to all environments")
        return TrainTrial(
            name,
            method,
            env.id,
            seed,
            varied,
            preset=self.preset,
            words=tuple(f"{name}={text}" for name, text in texts.items() if name != "risk"),
            risk=texts.get("risk", "mean"),
            steps=steps,
            evaluate=self.evaluate if env.evaluate is None else env.evaluate,
            evaluate_every=self.evaluate_every,
            checkpoint_every=self.checkpoint_every if env.checkpoint_every is None else env.checkpoint_every,
            keep=self.keep,
            keep_replay=self.keep_replay,
        )


def check_trials(trials: Sequence[Trial]) -> None:
    """Refuse a method, an environment or a setting that does not exist, before anything runs."""
    for trial in {trial.cell: trial for trial in trials}.values():
        with naming(trial.name):
            trial.check()


def select(trials: Sequence[Trial], patterns: Sequence[str]) -> list[Trial]:
    """Trials whose folder fits one of the patterns, in which * stands for anything; one that fits none is refused."""
    for pattern in patterns:
        if not any(fnmatchcase(trial.name, pattern) for trial in trials):
            raise NfdrlError(f"only {pattern!r}: no trial fits, they are named like {trials[0].name!r}")
    return [trial for trial in trials if any(fnmatchcase(trial.name, pattern) for pattern in patterns)]


def find_spec(word: str) -> Path:
    """The file of that name, or the spec that nfdrl ships under it.

    >>> find_spec("smoke").name, find_spec("smoke.toml").name
    ('smoke.toml', 'smoke.toml')
    """
    shipped = SHIPPED / f"{word.removesuffix('.toml')}.toml"
    path = Path(word)
    if path.is_file():
        return path
    if path.name == word and shipped.is_file():
        return shipped
    names = ", ".join(sorted(path.stem for path in SHIPPED.glob("*.toml")))
    raise NfdrlError(f"there is no spec {word!r}: name a TOML file, or one that nfdrl has: {names}")


def read_spec(path: Path) -> Spec:
    """The spec in a file, every key of it checked."""
    table = read_toml(path)
    methods = _parts(MethodPart, table.pop("methods", []), "methods", path.name)
    envs = _parts(EnvPart, table.pop("envs", []), "envs", path.name)
    resources = read_table(Resources, table.pop("resources", {}), f"resources of {path.name}")
    spec = read_table(Spec, table, path.name)
    said = {*table, *(name for env in envs for name in OF_TRAINING if getattr(env, name, None) is not None)}
    for name in OF_TRAINING if spec.kind == "truth" else OF_TRUTH:
        if name in said:
            hint = "" if spec.kind == "truth" else f": settings of training are written set.{name}"
            raise NfdrlError(f"{path.name}: {name} means nothing in a spec of kind {spec.kind!r}{hint}")
    preset = str(Path(spec.preset).absolute()) if spec.preset.endswith(FILE) else spec.preset  # for every worker
    return replace(spec, methods=methods, envs=envs, resources=resources, preset=preset)


def read_table(kind: type[T], table: Any, what: str) -> T:
    """A dataclass from a table; a key that it has not, or a value that does not fit, is named."""
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if not isinstance(table, Mapping):
        raise NfdrlError(f"{what} must be a table, got {table!r:.80}")
    for key in table:
        if key not in known:
            raise unknown_name(f"key of {what}", key, known)
    with naming(what):
        return from_plain(kind, table, what)


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Begin errors with what they are about."""
    try:
        yield
    except NfdrlError as error:
        raise NfdrlError(f"{what}: {error}") from None


def _parts(kind: type[T], given: Any, key: str, file: str) -> tuple[T, ...]:
    if not isinstance(given, list):
        raise NfdrlError(f"{key} of {file} must be a list of words or tables, got {given!r:.80}")
    tables = [{"id": part} if isinstance(part, str) else part for part in given]
    read = [read_table(kind, part, f"{key}[{k}] of {file}") for k, part in enumerate(tables)]
    for k, part in enumerate(read):
        if not part.id:  # type: ignore[attr-defined]
            raise NfdrlError(f"{key}[{k}] of {file} has no id")
    return tuple(read)


def listed(seeds: Seeds) -> list[int]:
    """Which seeds these are.

    >>> listed(3), listed((7, 9))
    ([0, 1, 2], [7, 9])
    """
    check_at_most(MOST_TRIALS, seeds=seeds if isinstance(seeds, int) else len(seeds))
    found = list(range(seeds)) if isinstance(seeds, int) else list(dict.fromkeys(seeds))
    for seed in found:
        check_seed(seed)
    if not found:
        raise NfdrlError(f"seeds must be a number of at least 1 or a list, got {seeds!r}")
    return found


def words(table: Any, what: str) -> dict[str, str]:
    """Settings as the words of `train --set`, by their path.

    >>> words({"torso": {"mlp": [64, 64]}, "double_q": True, "risk": "cvar:0.1"}, "set")
    {'torso.mlp': '(64, 64)', 'double_q': 'true', 'risk': 'cvar:0.1'}
    """
    return {name: _text(name, value) for name, value in flattened(table, what).items()}


def flattened(table: Any, what: str) -> dict[str, Any]:
    """Inner tables by their path; TOML reads `torso.mlp = …` as one."""
    if not isinstance(table, Mapping):
        raise NfdrlError(f"{what} must be a table of settings, got {table!r:.80}")
    flat: dict[str, Any] = {}
    for name, value in table.items():
        inner = isinstance(value, Mapping)
        flat |= {f"{name}.{key}": part for key, part in flattened(value, what).items()} if inner else {name: value}
    return flat


def _values(name: str, given: Any) -> Sequence[tuple[str, str]]:
    if not isinstance(given, list) or not given:
        raise NfdrlError(f"grid.{name} must be a list of values, got {given!r:.80}")
    values = [(name, _text(name, value)) for value in given]
    if len(set(values)) < len(values):
        raise NfdrlError(f"grid.{name} must not have a value twice, got {given!r:.80}")
    return values


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return str(tuple(value))
    if isinstance(value, (int, float, str)):
        return str(value)
    raise NfdrlError(f"{name} cannot be {value!r:.80}: it must be a number, a word, true, false or a list")


def slug(word: str) -> str:
    """A word as the name of a folder.

    >>> slug("ALE/Pong-v5[sticky=0.25]")
    'ALE-Pong-v5-sticky=0.25'
    >>> slug("…")  # never empty: a path that begins with a slash would lead out of the sweep's folder
    '_'
    """
    return re.sub(r"[^A-Za-z0-9.=_]+", "-", word).strip("-.") or "_"
