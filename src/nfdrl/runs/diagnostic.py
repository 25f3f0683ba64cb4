"""What is written when too many updates in a row failed, to find out why."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from nfdrl.bellman import bellman_target
from nfdrl.files import replace_file, write_json
from nfdrl.runs.checkpoint import serialised
from nfdrl.runs.layout import DIAGNOSTIC, NUMBERS, TENSORS
from nfdrl.training.events import NonFiniteError


def write_diagnostic(run: Path, error: NonFiniteError) -> Path:
    """The inputs and results of the last update that failed: numbers as JSON, and tensors next to them."""
    folder, learner, batch = run / DIAGNOSTIC, error.learner, error.batch
    folder.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        law = learner.online(batch.observation).select(batch.action)
        chooser = learner.online if learner.settings.double_q else None
        target = bellman_target(batch, learner.target, learner.risk, chooser)
    tensors: dict[str, torch.Tensor] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        parts = value if isinstance(value, dict) else {"": value}
        tensors |= {f"batch.{field.name}.{name}".rstrip("."): part for name, part in parts.items()}
    for name, found in (("predicted", law), ("target", target)):
        tensors |= _tensors_of(found, name)
    numbers = {
        "error": str(error),
        "step": error.step,
        "updates": learner.updates,
        "skipped": learner.skipped,
        "learning_rate": learner.learning_rate,
        "weight_norms": {
            f"{part}.{name}": _shown(value.float().norm())
            for part, network in (("online", learner.online), ("target", learner.target))
            for name, value in network.state_dict().items()
        },
        "tensors": {name: _summary(value.float()) for name, value in tensors.items()},
    }
    write_json(folder / NUMBERS, numbers)
    replace_file(folder / TENSORS, serialised(tensors))
    return folder


def _tensors_of(law: object, name: str) -> dict[str, torch.Tensor]:
    """The parameters of a law and of the laws inside it."""
    found: dict[str, torch.Tensor] = {}
    for key, value in vars(law).items():
        if isinstance(value, torch.Tensor):
            found[f"{name}.{key}"] = value
        elif isinstance(value, tuple | list):
            found |= {f"{name}.{key}.{k}": entry for k, entry in enumerate(value) if isinstance(entry, torch.Tensor)}
        elif type(value).__module__.startswith("nfdrl."):
            found |= _tensors_of(value, f"{name}.{key}")
    return found


def _summary(values: torch.Tensor) -> dict[str, Any]:
    finite = values[values.isfinite()]
    least, most = (_shown(finite.min()), _shown(finite.max())) if finite.numel() else (None, None)
    return {"shape": list(values.shape), "not_finite": int(values.numel() - finite.numel()), "min": least, "max": most}


def _shown(value: torch.Tensor) -> float | str:
    number = value.item()
    return number if math.isfinite(number) else str(number)  # JSON has no NaN
