"""A saved agent: a folder with a manifest, settings, state and tensors. Reading it executes nothing.

`manifest.json` names the format and says what each file must be; it is written last and checked first.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from nfdrl.errors import NfdrlError
from nfdrl.files import (
    FileRecord,
    describing,
    from_json,
    read_file,
    read_json,
    sealed,
    sync_folder,
    to_json,
    unsealed,
    write_file,
    write_json,
)
from nfdrl.runs.journal import Snapshot
from nfdrl.runs.layout import CONFIG, MANIFEST, SECOND, STATE, WEIGHTS

FORMAT = 2
MAX_ENTRIES = 1 << 26  # of one observation, whose bounds take memory before anything else is checked


@dataclass(frozen=True)
class Saved:
    """What an agent is restored from: settings, where training stood, and tensors."""

    config: dict[str, Any]
    state: dict[str, Any]
    tensors: dict[str, Tensor]

    @property
    def replay(self) -> Snapshot | None:
        saved = self.state.get("replay")
        with describing("a replay", Path(STATE)):
            return None if saved is None else Snapshot.from_json(saved)

    @property
    def run(self) -> dict[str, Any]:
        """What the run keeps with its checkpoints: `regular`, `metrics_bytes`, `best`."""
        found = self.state.get("run", {})
        best = found.get("best") if isinstance(found, dict) else {}
        size = found.get("metrics_bytes") if isinstance(found, dict) else None
        known = best is None or (
            isinstance(best, dict) and _is_count(best.get("step")) and _is_number(best.get("mean_return"))
        )
        if not known or not (size is None or _is_count(size)):
            raise NfdrlError(f"the saved state of the run is none: {found!r:.80}")
        return dict(found)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def write(folder: Path, saved: Saved) -> None:
    """Write a checkpoint; readers see the previous one until the manifest, written last, is in place."""
    folder.mkdir(parents=True, exist_ok=True)
    before = _names_in_use(folder)
    contents = {CONFIG: to_json(saved.config), STATE: to_json(saved.state), WEIGHTS: serialised(saved.tensors)}
    records = {}
    for role, content in contents.items():
        path = folder / (SECOND[role] if role in before else role)
        path.unlink(missing_ok=True)
        records[role] = asdict(write_file(path, [content]))
    sync_folder(folder)
    write_json(folder / MANIFEST, sealed({"format": FORMAT, "files": records}))
    for name in before - {record["name"] for record in records.values()}:
        (folder / name).unlink(missing_ok=True)


def _names_in_use(folder: Path) -> set[str]:
    try:
        return {record.name for record in _manifest(folder).values()}
    except (NfdrlError, OSError):
        return {name for name in SECOND if (folder / name).exists()}


def serialised(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a safetensors file."""
    try:  # safetensors ends the process if it cannot allocate; it and PyTorch make four copies in all
        np.empty(4 * sum(t.nbytes for t in tensors.values()), np.uint8)
    except MemoryError:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from None
    plain = {name: t.detach().cpu().clone(memory_format=torch.contiguous_format) for name, t in tensors.items()}
    return save_tensors(plain)


def read(folder: Path) -> Saved:
    """The checkpoint in a folder: every byte is checked before any is interpreted."""
    records = _manifest(folder)
    config, state = (from_json(read_file(folder, records[role]), folder / role) for role in (CONFIG, STATE))
    return Saved(config, state, _tensors(read_file(folder, records[WEIGHTS]), folder / WEIGHTS))


def _manifest(folder: Path) -> dict[str, FileRecord]:
    """What each file of a checkpoint must be, by its role."""
    path = folder / MANIFEST
    if not path.is_file():
        raise NfdrlError(f"no saved agent in {str(folder)!r}: {MANIFEST} is missing")
    manifest = read_json(path)
    version = manifest.get("format")
    if not isinstance(version, int) or isinstance(version, bool) or version < FORMAT:
        raise NfdrlError(f"{path} has an unknown format: expected {FORMAT}, found {version!r}")
    if version > FORMAT:
        raise NfdrlError(f"{path} has format {version}, from a newer nfdrl: this one reads format {FORMAT}")
    content = unsealed(manifest, path)
    try:
        return {role: FileRecord.from_json(content["files"][role]) for role in (CONFIG, STATE, WEIGHTS)}
    except (KeyError, TypeError):
        raise NfdrlError(f"{path} does not name the files of a checkpoint") from None


def _tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(content)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError) as error:
        raise NfdrlError(f"{path} cannot be read: {error}") from None


def check_shapes(network: Callable[[], nn.Module], tensors: Mapping[str, Tensor], parts: Sequence[str]) -> None:
    """Refuse weights that do not fit the network, which is built here without memory for weights of its own."""
    with torch.device("meta"):
        expected = {name: value.shape for name, value in network().state_dict().items()}
    for part in parts:
        found = {name.removeprefix(f"{part}."): t.shape for name, t in tensors.items() if name.startswith(f"{part}.")}
        if found != expected:
            raise NfdrlError("the saved weights do not fit the network that the saved settings describe")


def space_config(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """An observation or action space as JSON, without its bounds, on which no network depends."""
    spaces = gymnasium.spaces
    if isinstance(space, spaces.Dict):
        return {"kind": "Dict", "spaces": [[key, space_config(part)] for key, part in space.spaces.items()]}
    if isinstance(space, spaces.Tuple):
        return {"kind": "Tuple", "spaces": [space_config(part) for part in space.spaces]}
    if isinstance(space, spaces.Discrete):
        return {"kind": "Discrete", "n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"kind": "MultiDiscrete", "nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
    if isinstance(space, spaces.MultiBinary):
        return {"kind": "MultiBinary", "shape": list(space.shape)}
    assert isinstance(space, spaces.Box)
    return {"kind": "Box", "shape": list(space.shape), "dtype": np.dtype(space.dtype).name}


def space_from(config: Mapping[str, Any]) -> gymnasium.Space[Any]:
    """The space that `space_config` wrote, with the widest bounds its dtype has."""
    spaces, kind = gymnasium.spaces, config["kind"]
    if not 0 < math.prod(config.get("shape", [1])) <= MAX_ENTRIES:
        raise NfdrlError(f"the shape of a saved space must have 1 to {MAX_ENTRIES:,} entries, got {config['shape']!r}")
    if kind == "Dict":
        return spaces.Dict([(str(key), space_from(part)) for key, part in config["spaces"]])
    if kind == "Tuple":
        return spaces.Tuple([space_from(part) for part in config["spaces"]])
    if kind == "Discrete":
        return spaces.Discrete(config["n"], start=config["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(config["nvec"], start=config["start"])
    if kind == "MultiBinary":
        return spaces.MultiBinary(config["shape"])
    dtype = np.dtype(config["dtype"])
    low, high = (-np.inf, np.inf) if dtype.kind == "f" else (0, 1)
    if dtype.kind in "iu":
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return spaces.Box(low, high, tuple(config["shape"]), dtype.type)
