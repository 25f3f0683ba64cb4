"""Laws as their parameters, from which the browser computes everything else by the same formulas."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nfdrl.errors import NfdrlError
from nfdrl.laws import Law
from nfdrl.laws.atomic import AtomicLaw
from nfdrl.laws.categorical import CategoricalLaw
from nfdrl.laws.dirac import DiracLaw
from nfdrl.laws.flow import FlowLaw
from nfdrl.laws.implicit import ImplicitLaw
from nfdrl.laws.mixture import MixtureLaw
from nfdrl.laws.monotone import MonotoneLaw
from nfdrl.laws.quantile import QuantileLaw
from nfdrl.numerics.atoms import midpoints
from nfdrl.viewer.messages import pack
from nfdrl.viewer.schema import AtomLaws, FlowLaws, Laws, LinearLaws, MixtureLaws

SAMPLED = 128  # quantiles of a law that has no finite set of parameters


@torch.no_grad()
def pack_laws(law: Law, most: int | None = None) -> Laws:
    """Laws of batch shape (T, A) for the browser; with more than `most` numbers each, as `most` quantiles."""
    if len(law.batch_shape) != 2:
        raise NfdrlError(f"laws must have batch shape (T, A), got {tuple(law.batch_shape)}")
    rows, actions = law.batch_shape
    if most is not None and _numbers(law) > most:
        return _quantiles(law, most, f"drawn from {most} quantiles of each law")
    if isinstance(law, FlowLaw):
        weights, locations, scales = map(_packed, (law.weights, law.locations, law.scales))
        bound, center = _packed(law.bound), _packed(law.center)
        return FlowLaws(rows, actions, law.weights.shape[-1], weights, locations, scales, bound, center)
    if isinstance(law, DiracLaw):
        return AtomLaws(rows, actions, 1, _packed(law.value))
    if isinstance(law, QuantileLaw):
        return AtomLaws(rows, actions, law.values.shape[-1], _packed(law.values))
    if isinstance(law, CategoricalLaw):
        return AtomLaws(rows, actions, law.masses.shape[-1], _packed(law.atoms), _packed(law.masses))
    if isinstance(law, MonotoneLaw) and law.scale.ndim == 0 and law.shift.ndim == 0:
        grid = law.shift + law.scale * law.grid
        return LinearLaws(rows, actions, len(grid), _packed(grid), _packed(law.cumulative))
    if isinstance(law, AtomicLaw):
        masses, atoms = torch.broadcast_tensors(*law.weighted_atoms())  # type: ignore[no-untyped-call]
        return AtomLaws(rows, actions, atoms.shape[-1], _packed(atoms), _packed(masses))
    if isinstance(law, ImplicitLaw):  # at the levels by which it acts, so that its means are its own
        return _quantiles(law, law.levels, f"drawn at the {law.levels} levels by which it acts")
    return _quantiles(law, SAMPLED, f"drawn from {SAMPLED} quantiles of each law")


def _numbers(law: Law) -> int:
    """How many numbers describe one law."""
    if isinstance(law, FlowLaw):
        return 3 * law.weights.shape[-1] + 2
    if isinstance(law, MonotoneLaw):
        return law.cumulative.shape[-1]
    if isinstance(law, CategoricalLaw | QuantileLaw):
        return law.reference.shape[-1]
    if isinstance(law, AtomicLaw):
        return 2 * law.weighted_atoms()[1].shape[-1]
    return 1 if isinstance(law, DiracLaw) else law.levels if isinstance(law, ImplicitLaw) else SAMPLED


def _quantiles(law: Law, count: int, note: str) -> AtomLaws:
    rows, actions = law.batch_shape
    values = law.quantile(midpoints(count, law.reference))
    return AtomLaws(rows, actions, count, _packed(values), note=note)


def _packed(values: Tensor) -> str:
    return pack(values.detach().float().cpu().numpy())


def pack_mixtures(laws: Sequence[MixtureLaw | None], actions: int) -> MixtureLaws:
    """Exact laws, row by row; None where there is none."""
    parts: dict[str, list[Tensor]] = {"weights": [], "means": [], "stds": []}
    first = [0]
    for law in laws:
        live = torch.zeros(0, dtype=torch.bool) if law is None else law.weights > 0
        for name, found in parts.items():
            found.append(torch.zeros(0) if law is None else getattr(law, name)[live])
        first.append(first[-1] + int(live.sum()))
    weights, means, stds = (_packed(torch.cat([part.double() for part in found])) for found in parts.values())
    return MixtureLaws(len(laws) // actions, actions, first, weights, means, stds)
