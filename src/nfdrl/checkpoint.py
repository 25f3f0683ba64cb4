"""A saved agent: a folder with `config.json` and tensors in safetensors. Nothing in it is executed when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, Method
from nfdrl.laws.flow import FlowMethod
from nfdrl.losses.cramer import Comparison
from nfdrl.networks import TorsoSizes
from nfdrl.training.config import TrainConfig

FORMAT = 1
CONFIG, WEIGHTS = "config.json", "weights.safetensors"

T = TypeVar("T")


def write(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a checkpoint; each file replaces the old one only when it is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / (WEIGHTS + ".tmp")
    save_file(
        {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()},
        fresh,
    )
    fresh.replace(folder / WEIGHTS)
    text = json.dumps({"format": FORMAT, **config}, indent=2, allow_nan=False, ensure_ascii=False)
    fresh = folder / (CONFIG + ".tmp")
    fresh.write_text(text + "\n", encoding="utf-8")
    fresh.replace(folder / CONFIG)


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the tensors of a checkpoint."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise NfdrlError(f"no saved agent in {str(folder)!r}: {name} is missing")
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise NfdrlError(f"{folder / CONFIG} is not valid JSON: {error}") from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        found = config.get("format") if isinstance(config, dict) else None
        raise NfdrlError(f"{folder / CONFIG} has format {found}; this version of nfdrl reads format {FORMAT}")
    try:
        return config, load_file(folder / WEIGHTS)
    except SafetensorError as error:
        raise NfdrlError(f"{folder / WEIGHTS} cannot be read: {error}") from None


def method_name(method: Method) -> str:
    """The name in METHODS under which a method of this kind is found; its class's name for one of a user's own."""
    for name, known in METHODS.items():
        if type(known) is not type(method):
            continue
        if not isinstance(method, FlowMethod) or not isinstance(known, FlowMethod):
            return name
        if known.comparison.distance == method.comparison.distance:
            return name
    return type(method).__name__


def method_config(method: Method) -> dict[str, Any]:
    """A method as JSON."""
    return {"name": method_name(method), "settings": asdict(method) if is_dataclass(method) else {}}


def method_from(config: Mapping[str, Any]) -> Method:
    """The method that `method_config` wrote."""
    known = METHODS.get(str(config["name"]))
    if known is None:
        raise NfdrlError(f"the saved method {config['name']!r} is not part of nfdrl: pass `method` to load it")
    settings = dict(config["settings"])
    if "comparison" in settings:
        settings["comparison"] = dataclass_from(Comparison, settings["comparison"])
    return dataclass_from(type(known), settings)


def train_config_from(config: Mapping[str, Any]) -> TrainConfig:
    """The training settings that `asdict` wrote."""
    torso = {name: tuple(widths) for name, widths in config["torso"].items()}
    return dataclass_from(TrainConfig, {**config, "torso": dataclass_from(TorsoSizes, torso)})


def dataclass_from(kind: type[T], settings: Mapping[str, Any]) -> T:
    """An instance of a dataclass from its fields; fields of another version are named, not dropped."""
    unknown = set(settings) - {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise NfdrlError(f"saved settings of {kind.__name__} have unknown fields: {', '.join(sorted(unknown))}")
    return kind(**settings)


def space_config(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """An observation or action space as JSON: what a network depends on, which bounds are not."""
    spaces = gymnasium.spaces
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
