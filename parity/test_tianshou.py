"""Our losses against the released code of Tianshou, called for real.

Tianshou needs another version of Gymnasium than we do, so `make parity` runs this in its own environment.
"""

from __future__ import annotations

import importlib
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.testing import assert_close

from nfdrl.laws.base import Law
from nfdrl.laws.fraction import FQF, FractionLaw, fraction_gradient, fraction_loss
from nfdrl.losses.categorical import project
from nfdrl.losses.pinball import quantile_huber


def imported(name: str) -> Any:
    """The module, with the warnings it raises on import switched off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_projection_matches_tianshou() -> None:
    module = imported("tianshou.algorithm.modelfree.c51")
    data = imported("tianshou.data")
    support = torch.linspace(-10, 10, 51)
    masses = draws(8, 3, 51).softmax(-1)
    action = np.array([0, 2, 1, 1, 0, 2, 0, 1])
    returns = draws(8, 1, seed=1) + 1.3 * support

    def policy(*_: Any, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(act=action, logits=masses)

    stub_policy: Any = policy
    stub_policy.v_min, stub_policy.v_max, stub_policy.support = -10.0, 10.0, support
    algorithm = SimpleNamespace(use_target_network=False, policy=stub_policy, delta_z=20 / 50)
    theirs = module.C51._target_dist(algorithm, data.Batch(obs_next=np.zeros((8, 1)), returns=returns))
    assert_close(project(masses[np.arange(8), action], returns, support), theirs)


class Recorder:
    """An optimiser that keeps the gradient of what it is asked to minimise."""

    def __init__(self, variable: Tensor) -> None:
        self.variable = variable
        self.loss = torch.zeros(())
        self.gradient = torch.zeros(())

    def step(self, loss: Tensor, retain_graph: bool | None = None) -> None:
        self.loss = loss.detach()
        (self.gradient,) = torch.autograd.grad(loss, self.variable, retain_graph=retain_graph)


def test_the_losses_of_fqf_match_tianshou() -> None:
    """With increasing quantiles; Tianshou corrects signs where they cross, Proposition 1 of the paper does not."""
    module = imported("tianshou.algorithm.modelfree.fqf")
    data = imported("tianshou.data")
    rows, fractions = 4, 6
    torch.manual_seed(0)
    head = FQF(fractions=fractions, cosines=4, hidden=6).head(3, 2)
    with torch.no_grad():
        head.proposal.weight.normal_()
        head.network.embedding.weight.zero_()[:, 1] = -1.0
        head.network.hidden.weight.abs_()
        head.network.output.weight.abs_()
    law: Law = head(torch.rand(rows, 3)).select(0)
    assert isinstance(law, FractionLaw)
    taus = law.fractions.detach().requires_grad_()
    atoms = law.atoms.detach().requires_grad_()
    free = FractionLaw(taus, atoms, law.implicit)
    targets = draws(rows, fractions, seed=3)

    output = SimpleNamespace(
        logits=atoms.unsqueeze(1),
        quantiles_tau=law.implicit._quantile(taus[:, 1:-1]).detach().unsqueeze(1),
        fractions=SimpleNamespace(taus=taus, tau_hats=law.levels, entropies=torch.zeros(())),
    )
    quantile_optimiser, fraction_optimiser = Recorder(atoms), Recorder(taus)
    algorithm = SimpleNamespace(
        policy=lambda _: output,
        optim=quantile_optimiser,
        fraction_optim=fraction_optimiser,
        ent_coef=0.0,
        _periodically_update_lagged_network_weights=lambda: None,
    )
    batch = data.Batch(act=np.zeros(rows, dtype=int), returns=targets)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # its smooth_l1_loss broadcasts
        module.FQF._update_with_batch(algorithm, batch)

    quantile_part = quantile_huber(atoms, law.levels, targets).mean()
    assert_close(quantile_part.detach(), quantile_optimiser.loss)
    assert_close(torch.autograd.grad(quantile_part, atoms)[0], quantile_optimiser.gradient)
    assert_close(fraction_gradient(free) / rows, fraction_optimiser.gradient[:, 1:-1])
    ours = torch.autograd.grad(fraction_loss(free).mean(), taus)[0]
    assert_close(ours, fraction_optimiser.gradient)
