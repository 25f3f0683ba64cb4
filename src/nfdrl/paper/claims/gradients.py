"""Claims about sampled transitions (Q3): bias of gradients, and what the losses are minimised by."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from nfdrl.losses.surrogate import Surrogate, cramer_surrogate
from nfdrl.paper.claims.base import OURS, STANDARD_ERRORS, claim, mass_cramer
from nfdrl.paper.claims.smoothing import PRINTED_WIDTH
from nfdrl.reports import Row


def sample_gradients(replicates: int, generator: torch.Generator) -> tuple[list[Row], dict[str, Any]]:
    """Section Q3: E∇ of the sample loss minus ∇ of the true loss, along one direction, in standard errors.

    w = softmax(θ) is the prediction, v̂ the frequencies of m draws of the truth; the direction is ∇D² itself.
    """
    y = torch.linspace(-2, 2, 12, dtype=torch.float64)
    truth = (-0.5 * (y - 0.6).square()).softmax(-1)
    theta = 0.5 * torch.randn(12, generator=generator, dtype=torch.float64)
    losses = {
        "D²": cramer_surrogate,
        "D": lambda w, v, at: (cramer_surrogate(w, v, at) + 1e-30).sqrt(),
        "exact": mass_cramer,
        "KL": lambda w, v, _: (torch.special.xlogy(v, v) - torch.special.xlogy(v, w)).sum(-1),
        "W₁": lambda w, v, at: ((w - v).cumsum(-1)[..., :-1].abs() * at.diff(dim=-1)).sum(-1),
    }
    direction = _gradients(losses["D²"], theta, truth[None], y)[0]
    direction = direction / direction.norm()
    sizes = (1, 2, 4, 8, 16, 32)
    data: dict[str, Any] = {"m": sizes}
    for name, loss in losses.items():
        true = _gradients(loss, theta, truth[None], y)[0] @ direction
        bias, error = [], []
        for m in sizes:
            drawn = torch.multinomial(truth.expand(replicates, -1), m, replacement=True, generator=generator)
            frequency = torch.zeros(replicates, 12, dtype=torch.float64).scatter_add_(
                -1, drawn, torch.full(drawn.shape, 1 / m, dtype=torch.float64)
            )
            along = _gradients(loss, theta, frequency, y) @ direction
            bias.append(float((along.mean() - true) / true.abs()))
            error.append(float(along.std() / math.sqrt(replicates) / true.abs()))
        data[name] = {"bias": bias, "error": error}
    return [_bias_row(name, data, replicates) for name in losses], data


def _gradients(loss: Any, theta: Tensor, targets: Tensor, y: Tensor) -> Tensor:
    """∇θ of the loss to each target; shapes (N,), (R, N) → (R, N)."""
    parameters = theta.expand(targets.shape[0], -1).clone().requires_grad_(True)
    total = loss(parameters.softmax(-1), targets, y.expand(targets.shape[0], -1)).sum()
    return torch.autograd.grad(total, parameters)[0]


def _bias_row(name: str, data: dict[str, Any], replicates: int) -> Row:
    """Property (U) for one sample of the target, which is what a sampled transition gives."""
    bias, error = data[name]["bias"][0], data[name]["error"][0]
    score = abs(bias) / error
    note = f"relative bias of the gradient at m = 1: {score:.1f} standard errors of {replicates} replicates"
    text = {"D²": "D² has unbiased sample gradients", "D": "D, rooted, has unbiased sample gradients"}
    text |= {"exact": "squared exact Cramér has unbiased sample gradients", "KL": "KL has unbiased sample gradients"}
    label = "Proposition 1" if name == "KL" else "Q3"
    if name == "W₁":
        lacking = "W₁ does not have unbiased sample gradients"
        return claim("Proposition 2", lacking, "≠ 0", abs(bias), f"> {STANDARD_ERRORS * error:.3g}", note, error)
    return claim(label, text[name], 0, bias, f"± {STANDARD_ERRORS * error:.3g}", note, error)


def minimisers() -> list[Row]:
    """What sampled transitions teach: the mass on one of two atoms that minimises the expected loss, which is 0.7."""
    q = torch.linspace(0, 1, 1001, dtype=torch.float64)
    w = torch.stack([q, 1 - q], -1)
    y, (one, other) = torch.tensor([0.3, 0.8], dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    rows = []
    for name, power in (("D², squared", 1.0), ("D, rooted", 0.5)):
        parts = (cramer_surrogate(w, v.expand_as(w), y.expand_as(w)).pow(power) for v in (one, other))
        first, second = parts
        best = float(q[(0.7 * first + 0.3 * second).argmin()])
        note = "mass on the atom of probability 0.7 that minimises the mean loss over sampled transitions, off by"
        text = f"{name}: sampled transitions are fitted by their law"
        rows.append(claim("Q3", text, 0, best - 0.7, "± 0.001", f"{note} this; it is {best:g}"))
    return rows


def practical_bias() -> list[Row]:
    """Is the practical loss, on normalised kernel estimates, unbiased on sampled transitions? (Q3 treats fixed masses.)

    The target is 0.8 or 0.3 with chance ½, spread by N(0, 0.1): the mean gradient over the two against that of the
    mixture.
    """
    levels = torch.special.ndtri((torch.arange(100, dtype=torch.float64) + 0.5) / 100)
    one, other = 0.8 + 0.1 * levels, 0.3 + 0.1 * levels
    mixture = torch.cat([one, other]).sort().values[::2]
    predicted = (0.6 + 0.3 * levels)[None].requires_grad_()

    def gradient(how: Surrogate, target: Tensor) -> Tensor:
        slope: Tensor = torch.autograd.grad(how(predicted, target[None]).sum(), predicted)[0]
        return slope

    rows = []
    printed = replace(PRINTED_WIDTH, rooted=False, support="samples", grid_size=None)
    for label, text, how in (
        ("Q3", "the squared practical loss has unbiased sample gradients (Appendix F)", printed),
        (OURS, "the same on the shared grid", replace(printed, support="shared", grid_size=400)),
    ):
        true = gradient(how, mixture)
        mean = 0.5 * (gradient(how, one) + gradient(how, other))
        angle = float(torch.cosine_similarity(true, mean, dim=-1))
        note = "cosine between the mean gradient over sampled targets and the gradient of the true target; h = 0.05"
        rows.append(claim(label, text, 1, angle, ">= 0.99", note))
    return rows
