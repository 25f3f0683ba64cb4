"""Numbers of the peer methods worked out by hand, and their fast forms against slow, obvious ones."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from scipy import optimize
from torch import Tensor, nn
from torch.testing import assert_close

from nfdrl.errors import NfdrlError
from nfdrl.laws.base import Head
from nfdrl.laws.categorical import C51, CategoricalLaw
from nfdrl.laws.dirac import DQN, DiracLaw
from nfdrl.laws.expectile import ERDQN, ExpectileLaw
from nfdrl.laws.fraction import FQF, FractionLaw, fraction_gradient, fraction_loss, middles
from nfdrl.laws.implicit import IQN, ImplicitLaw
from nfdrl.laws.monotone import INTEGRATION_WIDTH, UMDQN, MonotoneHead, cumulative_trapezoid
from nfdrl.laws.quantile import QRDQN, QuantileLaw
from nfdrl.losses.categorical import categorical_kl, project
from nfdrl.losses.expectile import expectile_regression
from nfdrl.losses.pinball import quantile_huber
from nfdrl.numerics.atoms import atomic_cdf, atomic_cvar, atomic_mean, atomic_quantile, atomic_variance
from nfdrl.numerics.expectiles import impute_atoms

pytestmark = pytest.mark.usefixtures("double")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Atoms -----------------------------------------------------------------------------------------------------------


def test_atomic_statistics_match_hand_worked_numbers() -> None:
    # Masses ½, ¼, ¼ on 2, 0, 1 (unsorted); in order: 0 (¼), 1 (¼), 2 (½), cumulative ¼, ½, 1.
    masses, atoms = torch.tensor([0.5, 0.25, 0.25]), torch.tensor([2.0, 0.0, 1.0])
    assert atomic_mean(masses, atoms).item() == 1.25
    # E Z² = ¼·1 + ½·4 = 2.25; 2.25 − 1.5625 = 0.6875
    assert_close(atomic_variance(masses, atoms), torch.tensor(0.6875))
    assert_close(
        atomic_cdf(masses, atoms, torch.tensor([-1.0, 0.0, 0.5, 1.0, 2.0])), torch.tensor([0, 0.25, 0.25, 0.5, 1])
    )
    # inf{y : F(y) ≥ τ}: a level on a step belongs to the atom below it
    assert_close(
        atomic_quantile(masses, atoms, torch.tensor([0.1, 0.25, 0.26, 0.5, 0.9])), torch.tensor([0.0, 0, 1, 1, 2])
    )
    # α = 0.4: (0.25·0 + 0.15·1)/0.4 = 0.375; α = 0.75: (0 + 0.25 + 0.25·2)/0.75 = 1
    assert_close(atomic_cvar(masses, atoms, torch.tensor([0.2, 0.4, 0.75])), torch.tensor([0.0, 0.375, 1.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [3, 10, 51, 200])
def test_a_level_on_a_step_belongs_to_its_own_atom(dtype: torch.dtype, count: int) -> None:
    levels = (torch.arange(count, dtype=torch.float64) + 1).div(count).to(dtype)[:-1]
    masses, atoms = torch.full((count,), 1 / count, dtype=dtype), torch.arange(count, dtype=dtype)
    assert_close(atomic_quantile(masses, atoms, levels), atoms[:-1])


# DQN -------------------------------------------------------------------------------------------------------------


def test_dqn_loss_by_hand() -> None:
    # errors 0.5 and 3: Huber 0.125 and 3 − ½; square ½·0.25 and ½·9
    predicted, target = DiracLaw(torch.tensor([0.0, 1.0])), DiracLaw(torch.tensor([0.5, -2.0]))
    assert_close(DQN().loss(predicted, target), torch.tensor([0.125, 2.5]))
    assert_close(DQN(huber_threshold=None).loss(predicted, target), torch.tensor([0.125, 4.5]))


# C51 -------------------------------------------------------------------------------------------------------------


def test_projection_splits_a_return_between_two_atoms() -> None:
    # 1.5 on the atoms 0..5 lies halfway between 1 and 2
    projected = project(torch.ones(1, 1), torch.tensor([[1.5]]), torch.arange(6.0))
    assert_close(projected, torch.tensor([[0, 0.5, 0.5, 0, 0, 0]]))


def test_projection_keeps_all_mass_at_integer_positions_and_clips_at_the_ends() -> None:
    # atoms −3 → 0, 2 stays (b = 2 exactly), 5 stays (the last atom), 9 → 5, 3.25 → ¾ on 3 and ¼ on 4
    atoms = torch.tensor([[-3.0, 2.0, 5.0, 9.0, 3.25]])
    masses = torch.tensor([[0.1, 0.2, 0.3, 0.1, 0.3]])
    expected = torch.tensor([[0.1, 0, 0.2, 0.225, 0.075, 0.4]])
    assert_close(project(masses, atoms, torch.arange(6.0)), expected)


def test_projecting_a_law_on_the_support_changes_nothing() -> None:
    support = torch.linspace(-10, 10, 51)
    masses = torch.rand(7, 51, generator=generator()).softmax(-1)
    assert_close(project(masses, support, support), masses)


def naive_projection(masses: Tensor, atoms: Tensor, support: Tensor) -> Tensor:
    """Bellemare et al. 2017, Eq. 7, as printed: Σⱼ pⱼ [1 − |clip(zⱼ) − zᵢ|/Δz] clipped to [0, 1]."""
    gap = support[1] - support[0]
    clipped = atoms.clamp(support[0], support[-1])
    kernel = (1 - (clipped.unsqueeze(-2) - support.unsqueeze(-1)).abs() / gap).clamp(0, 1)
    return (kernel * masses.unsqueeze(-2)).sum(-1)


def test_projection_is_the_triangular_kernel() -> None:
    masses = torch.rand(4, 2, 23, generator=generator()).softmax(-1)
    atoms = 4 * torch.randn(4, 2, 23, generator=generator(1))
    support = torch.linspace(-5, 3, 17)
    projected = project(masses, atoms, support)
    assert_close(projected, naive_projection(masses, atoms, support))
    assert_close(projected.sum(-1), torch.ones(4, 2))


def test_projection_keeps_the_mean_of_returns_inside_the_range() -> None:
    masses = torch.rand(4, 23, generator=generator()).softmax(-1)
    atoms = torch.rand(4, 23, generator=generator(1)) * 8 - 5
    support = torch.linspace(-5, 3, 17)
    assert_close((project(masses, atoms, support) * support).sum(-1), (masses * atoms).sum(-1))


def test_categorical_loss_by_hand() -> None:
    # target (½, ½), predicted (¼, ¾): ½ log 2 + ½ log(2/3) = ½ log(4/3)
    log_masses, target = torch.tensor([[0.25, 0.75]]).log(), torch.tensor([[0.5, 0.5]])
    assert_close(categorical_kl(log_masses, target), torch.tensor([4 / 3]).log() / 2)
    # a target without mass on an atom contributes nothing there: log(1/¾)
    assert_close(categorical_kl(log_masses, torch.tensor([[0.0, 1.0]])), torch.tensor([4 / 3]).log())


def test_c51_refuses_a_bootstrapped_prediction() -> None:
    law = C51().head(2, 2).double()(torch.ones(1, 2)).select(0)
    assert isinstance(law, CategoricalLaw)
    with pytest.raises(NfdrlError, match="fixed support"):
        C51().loss(law.bootstrap(1.0, 0.5), law)


# Quantiles ---------------------------------------------------------------------------------------------------------


def test_quantile_huber_by_hand_with_more_targets_than_quantiles() -> None:
    # quantiles 0, 1 at levels ¼, ¾; targets −½, ½, 3; κ = 1
    # quantile 0: u = −½, ½, 3 → Huber ⅛, ⅛, 2½; weights ¾, ¼, ¼ → (0.09375 + 0.03125 + 0.625)/3 = 0.25
    # quantile 1: u = −1½, −½, 2 → Huber 1, ⅛, 1½; weights ¼, ¼, ¾ → (0.25 + 0.03125 + 1.125)/3 = 0.46875
    quantiles, levels, targets = (
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([0.25, 0.75]),
        torch.tensor([[-0.5, 0.5, 3.0]]),
    )
    assert_close(quantile_huber(quantiles, levels, targets), torch.tensor([0.25 + 0.46875]))
    # plain pinball: quantile 0: (0.375 + 0.125 + 0.75)/3; quantile 1: (0.375 + 0.125 + 1.5)/3
    assert_close(quantile_huber(quantiles, levels, targets, threshold=0.0), torch.tensor([3.25 / 3]))


def test_quantile_huber_takes_levels_of_each_row() -> None:
    quantiles, targets = torch.randn(3, 4, generator=generator()), torch.randn(3, 5, generator=generator(1))
    levels = torch.rand(3, 4, generator=generator(2))
    rows = [quantile_huber(quantiles[i], levels[i], targets[i]) for i in range(3)]
    assert_close(quantile_huber(quantiles, levels, targets), torch.stack(rows))


def test_quantile_huber_is_the_double_loop() -> None:
    quantiles, targets = 2 * torch.randn(3, generator=generator()), 2 * torch.randn(5, generator=generator(1))
    levels, kappa = torch.tensor([0.2, 0.5, 0.9]), 0.7
    total = 0.0
    for theta, tau in zip(quantiles.tolist(), levels.tolist(), strict=True):
        for z in targets.tolist():
            u = z - theta
            huber = 0.5 * u * u if abs(u) <= kappa else kappa * (abs(u) - 0.5 * kappa)
            total += abs(tau - (u < 0)) * huber / kappa / len(targets)
    assert_close(quantile_huber(quantiles, levels, targets, kappa), torch.tensor(total))


@pytest.mark.parametrize("kappa", [0.0, 0.7])
def test_quantile_huber_has_the_gradient_of_its_value(kappa: float) -> None:
    quantiles = (2 * torch.randn(2, 3, generator=generator())).requires_grad_()
    targets = (2 * torch.randn(2, 5, generator=generator(1))).requires_grad_()
    levels = torch.tensor([0.2, 0.5, 0.9])
    assert torch.autograd.gradcheck(lambda q, z: quantile_huber(q, levels, z, kappa), (quantiles, targets))


def test_qr_dqn_rests_at_the_midpoint_quantiles() -> None:
    # with κ = 0, moving any one value away from the target's own quantiles raises the loss
    method = QRDQN(quantiles=5, huber_threshold=0.0)
    values = torch.tensor([[-1.0, 0.0, 0.5, 2.0, 4.0]])
    target = QuantileLaw(values)
    rest = method.loss(QuantileLaw(values), target)
    for i in range(5):
        for move in (-0.3, 0.3):
            moved = values.clone()
            moved[0, i] += move
            assert bool(method.loss(QuantileLaw(moved), target) > rest)


def test_crossing_values_are_sorted_by_the_law_and_not_by_the_loss() -> None:
    crossed, ordered = QuantileLaw(torch.tensor([[2.0, 0.0]])), QuantileLaw(torch.tensor([[0.0, 2.0]]))
    assert_close(crossed.quantile(0.2), ordered.quantile(0.2))
    method = QRDQN(quantiles=2)
    assert bool(method.loss(crossed, ordered) > method.loss(ordered, ordered))


# IQN -----------------------------------------------------------------------------------------------------------------


def test_the_implicit_network_computes_its_equation() -> None:
    head = IQN(cosines=4, hidden=3).head(2, 2).double()
    x, tau, action = torch.tensor([0.3, -0.7]), 0.35, 1
    net = head.network
    cosines = torch.stack([torch.cos(torch.tensor(torch.pi * i * tau)) for i in range(4)])
    phi = (net.embedding.weight @ cosines + net.embedding.bias).relu()
    hidden = (net.hidden.weight @ (x * phi) + net.hidden.bias).relu()
    expected = net.output.weight[action] @ hidden + net.output.bias[action]
    assert_close(head(x).select(action).quantile(tau), expected)
    assert_close(head(x).quantile(tau)[action], expected)


def test_an_implicit_law_made_without_gradients_stays_without() -> None:
    head = IQN(hidden=4).head(3, 2).double()
    with torch.no_grad():
        target = head(torch.ones(2, 3)).select(0)
    assert not target.mean().requires_grad
    assert not target.sample(3, generator()).requires_grad
    live = head(torch.ones(2, 3)).select(0)
    assert live.mean().requires_grad
    with torch.no_grad():
        moved = live.bootstrap(1.0, 0.9)
    assert not moved.mean().requires_grad


def test_a_law_is_selected_at_most_once() -> None:
    law = IQN(hidden=4).head(3, 2).double()(torch.ones(2, 3)).select(0)
    assert isinstance(law, ImplicitLaw)
    with pytest.raises(NfdrlError, match="select"):
        law.select(0)


# FQF -----------------------------------------------------------------------------------------------------------------


def increasing_network(head: Head) -> None:
    """Make the quantile network of a head increase in τ: φ from −cos(πτ) alone, and positive weights after it."""
    network = head.network
    assert isinstance(network, nn.Module)
    with torch.no_grad():
        only = torch.zeros_like(network.embedding.weight)
        only[:, 1] = -network.embedding.weight[:, 1].abs() - 0.5
        network.embedding.weight.copy_(only)
        for layer in (network.hidden, network.output):
            layer.weight.abs_()


def fraction_law(seed: int = 0) -> FractionLaw:
    torch.manual_seed(seed)
    head = FQF(fractions=5, cosines=4, hidden=6).head(3, 2).double()
    increasing_network(head)
    nn.init.normal_(head.proposal.weight)
    law = head(torch.rand(1, 3)).select(1)
    assert isinstance(law, FractionLaw)
    return law


def wasserstein_to_staircase(fractions: Tensor, quantile: Callable[[Tensor], Tensor]) -> Tensor:
    """W₁ = Σᵢ ∫ over [τᵢ, τᵢ₊₁] of |F⁻¹(t) − F⁻¹(τ̂ᵢ)| dt, by 4,000 midpoints per step."""
    steps = (torch.arange(4000) + 0.5) / 4000
    total = torch.zeros(())
    for low, high in pairwise(fractions):
        inside = quantile(low + (high - low) * steps)
        total = total + (high - low) * (inside - quantile(0.5 * (low + high).unsqueeze(0))).abs().mean()
    return total


def test_the_fraction_gradient_is_the_derivative_of_the_wasserstein_distance() -> None:
    with torch.no_grad():
        law = fraction_law()
        fractions = law.fractions[0]

        def quantile(tau: Tensor) -> Tensor:
            return law.implicit._quantile(tau)[0]

        step = 1e-4
        for i in range(1, 5):
            shift = step * nn.functional.one_hot(torch.tensor(i), 6)
            upper = wasserstein_to_staircase(fractions + shift, quantile)
            lower = wasserstein_to_staircase(fractions - shift, quantile)
            assert_close(fraction_gradient(law)[0, i - 1], (upper - lower) / (2 * step), rtol=1e-3, atol=1e-5)


def test_the_two_parts_of_the_fqf_loss_reach_different_parameters() -> None:
    method = FQF(fractions=5, cosines=4, hidden=6)
    torch.manual_seed(0)
    head = method.head(3, 2).double()
    features = torch.rand(4, 3).requires_grad_()
    law = head(features).select(0)
    assert isinstance(law, FractionLaw)
    only_fractions = torch.autograd.grad(
        fraction_loss(law).sum(), [*head.parameters(), features], allow_unused=True, retain_graph=True
    )
    names = [name for name, _ in head.named_parameters()] + ["features"]
    reached = {name for name, g in zip(names, only_fractions, strict=True) if g is not None}
    assert reached == {"proposal.weight", "proposal.bias"}
    target = QuantileLaw(torch.randn(4, 7))
    quantile_part = quantile_huber(law.atoms, law.levels, target.values).sum()
    unused = torch.autograd.grad(quantile_part, head.fraction_parameters(), allow_unused=True)
    assert unused == (None, None)


def test_the_fraction_loss_is_zero_with_the_stated_gradient() -> None:
    law = fraction_law()
    fractions = law.fractions.detach().requires_grad_()
    free = FractionLaw(fractions, law.atoms, law.implicit)
    loss = fraction_loss(free)
    assert_close(loss, torch.zeros(1))
    (gradient,) = torch.autograd.grad(loss.sum(), fractions)
    assert_close(gradient[:, 1:-1], fraction_gradient(law))


def test_fqf_tells_a_learner_how_to_train_its_fractions() -> None:
    method = FQF(fractions=5, cosines=4, hidden=6)
    head = method.head(3, 2)
    (group,) = method.parameter_groups(head)
    assert group["optimizer"] == "rmsprop"
    own = {id(p) for p in group["params"]}
    assert own == {id(p) for p in head.proposal.parameters()}
    settings = {key: group[key] for key in ("lr", "alpha", "eps")}
    optimizer = torch.optim.RMSprop(group["params"], **settings)
    before = head.proposal.bias.detach().clone()
    law = head(torch.rand(4, 3)).select(0)
    method.loss(law, QuantileLaw(torch.randn(4, 7))).mean().backward()
    nn.utils.clip_grad_norm_(group["params"], group["max_grad_norm"])
    optimizer.step()
    assert not torch.equal(before, head.proposal.bias)


def test_untrained_fractions_are_nearly_even() -> None:
    law = FQF().head(16, 2).double()(torch.rand(3, 16, generator=generator()))
    assert isinstance(law, FractionLaw)
    assert_close(law.fractions, torch.linspace(0, 1, 33).expand(3, 2, -1), rtol=0, atol=5e-3)
    assert_close(law.levels, middles(law.fractions).detach())


# ER-DQN --------------------------------------------------------------------------------------------------------------


def naive_expectile(masses: Tensor, atoms: Tensor, level: float) -> float:
    """The root e of τ E(Z−e)₊ = (1−τ) E(e−Z)₊."""

    def excess(e: float) -> float:
        error = atoms - e
        return float((masses * torch.where(error < 0, 1 - level, level) * error).sum())

    return float(optimize.brentq(excess, float(atoms.min()) - 1, float(atoms.max()) + 1, xtol=1e-13))


def naive_expectiles(masses: Tensor, atoms: Tensor, levels: Tensor) -> Tensor:
    return torch.tensor([naive_expectile(masses, atoms, level) for level in levels.tolist()])


def test_imputation_by_hand() -> None:
    # Atoms −1, 1 with masses ½, ½ at τ = 1/5, ½, 4/5: ⅘ (1 − e) = ⅕ (1 + e) gives e = 3/5, so e = −3/5, 0, 3/5.
    levels = torch.tensor([0.2, 0.5, 0.8])
    masses, atoms = impute_atoms(torch.tensor([-0.6, 0.0, 0.6]), levels)
    assert_close(masses, torch.tensor([0.5, 0.5]))
    assert_close(atoms, torch.tensor([-1.0, 1.0]))


@pytest.mark.parametrize("count", [3, 5, 11, 21])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_imputation_recovers_the_expectiles(count: int, scale: float) -> None:
    levels = torch.linspace(0.01, 0.99, count)
    for seed in range(5):
        draws = generator(seed)
        atoms = 7.0 + scale * torch.randn(9, generator=draws).sinh()
        masses = torch.rand(9, generator=draws).softmax(-1)
        expectiles = naive_expectiles(masses, atoms, levels)
        again = naive_expectiles(*impute_atoms(expectiles, levels), levels)
        assert_close(again / scale, expectiles / scale, rtol=0, atol=1e-6)


def test_imputation_of_a_skewed_law_with_a_rare_disaster() -> None:
    levels = torch.linspace(0.01, 0.99, 11)
    expectiles = naive_expectiles(torch.tensor([0.01, 0.99]), torch.tensor([-100.0, 1.0]), levels)
    masses, atoms = impute_atoms(expectiles, levels)
    assert_close(naive_expectiles(masses, atoms, levels), expectiles, rtol=0, atol=1e-6)


def test_imputing_values_that_no_law_has_still_gives_a_law_with_the_right_mean() -> None:
    values = torch.randn(50, 11, generator=generator())
    masses, atoms = impute_atoms(values, torch.linspace(0.01, 0.99, 11))
    assert bool((masses >= 0).all())
    assert bool(atoms.isfinite().all())
    assert_close(masses.sum(-1), torch.ones(50))
    assert_close((masses * atoms).sum(-1), values[:, 5])


def test_expectile_loss_by_hand() -> None:
    # expectiles 0, 1 at ¼, ¾; atoms −1 (⅓), 2 (⅔)
    # 0: ⅓·¾·1 + ⅔·¼·4 = 0.25 + 2/3; 1: ⅓·¼·4 + ⅔·¾·1 = 1/3 + 0.5; together 1.75
    loss = expectile_regression(
        torch.tensor([[0.0, 1.0]]),
        torch.tensor([0.25, 0.75]),
        torch.tensor([1 / 3, 2 / 3]),
        torch.tensor([[-1.0, 2.0]]),
    )
    assert_close(loss, torch.tensor([1.75]))


def test_er_dqn_rests_at_the_expectiles_of_its_target() -> None:
    levels = torch.linspace(0.01, 0.99, 11)
    values = naive_expectiles(torch.full((6,), 1 / 6), torch.tensor([-2.0, -1.0, 0.0, 0.5, 3.0, 4.0]), levels)
    free = values.unsqueeze(0).requires_grad_()
    target = ExpectileLaw(values.unsqueeze(0), levels)
    (gradient,) = torch.autograd.grad(ERDQN().loss(ExpectileLaw(free, levels), target).sum(), free)
    assert_close(gradient, torch.zeros(1, 11), rtol=0, atol=1e-9)


@pytest.mark.parametrize("count", [2, 4, 1])
def test_er_dqn_needs_the_mean_among_its_expectiles(count: int) -> None:
    with pytest.raises(NfdrlError, match="odd"):
        ERDQN(expectiles=count)


# UMDQN ---------------------------------------------------------------------------------------------------------------


def monotone_head() -> MonotoneHead:
    torch.manual_seed(0)
    return UMDQN(points=200, v_min=-4, v_max=6, hidden=16).head(3, 2).double()


def test_the_integral_is_that_of_a_dense_quadrature() -> None:
    head, x = monotone_head(), torch.rand(3)
    position = torch.linspace(-1, 1, 200)
    with torch.no_grad():
        fast = cumulative_trapezoid(head.integrand(x, position), INTEGRATION_WIDTH / 199)
        for k in (20, 100, 199):
            dense = torch.linspace(-1, float(position[k]), 100_001)
            slow = torch.trapezoid(head.integrand(x, dense), dense) * INTEGRATION_WIDTH / 2
            assert_close(fast[:, k], slow, rtol=1e-5, atol=1e-5)


def test_the_trapezoid_is_exact_on_straight_lines() -> None:
    # ∫₀^y 2t dt = y² at y = 0, ½, 1, 1½
    assert_close(cumulative_trapezoid(torch.tensor([0.0, 1.0, 2.0, 3.0]), 0.5), torch.tensor([0, 0.25, 1.0, 2.25]))


def test_the_monotone_cdf_increases_strictly_from_zero_to_one() -> None:
    law = monotone_head()(torch.rand(7, 3))
    cdf = law.cdf(torch.linspace(-4, 6, 333))
    assert bool((cdf.diff(dim=-1) > 0).all())
    assert_close(cdf[..., 0], torch.zeros(7, 2))
    assert_close(cdf[..., -1], torch.ones(7, 2))


@torch.no_grad()
def test_a_monotone_law_agrees_with_integrals_of_its_cdf() -> None:
    law = monotone_head()(torch.rand(1, 3)).select(0).bootstrap(0.5, 0.8)
    y = torch.linspace(0.5 + 0.8 * -4, 0.5 + 0.8 * 6, 400_001)
    cdf = law.cdf(y)[0]
    # E Z = y_max − ∫F and E Z² = y_max² − ∫ 2yF
    mean = y[-1] - torch.trapezoid(cdf, y)
    second = y[-1] ** 2 - torch.trapezoid(2 * y * cdf, y)
    assert_close(law.mean()[0], mean, rtol=0, atol=1e-8)
    assert_close(law.variance()[0], second - mean**2, rtol=0, atol=1e-7)
    assert_close(law.cdf(law.quantile(0.37).unsqueeze(-1)), torch.tensor([[0.37]]))
    # lower CVaR = q − ∫ up to q of F, divided by α
    q = law.quantile(0.2)
    below = torch.linspace(float(y[0]), float(q), 100_001)
    assert_close(law.cvar(0.2), q - torch.trapezoid(law.cdf(below), below) / 0.2, rtol=0, atol=1e-8)


def test_umdqn_loss_by_hand() -> None:
    # F(y) = y on [0, 1] against a step at ½, on a grid with spacing h: ∫(F − G)² = 2 ∫₀^½ y² = 1/12
    method = UMDQN(points=4001, v_min=0, v_max=1, hidden=2)
    head = method.head(1, 1).double()
    with torch.no_grad():
        law = head(torch.zeros(1, 1)).select(0)
        grid = torch.linspace(0, 1, 4001)
        uniform = type(law)(grid.unsqueeze(0), grid, torch.zeros(()), torch.ones(()))
        assert_close(method.loss(uniform, DiracLaw(torch.tensor([0.5]))), torch.tensor([1 / 12]), rtol=0, atol=1e-3)
        assert_close(method.loss(uniform, law.bootstrap(0.5, 0.0)), torch.tensor([1 / 12]), rtol=0, atol=1e-3)


@pytest.mark.parametrize("build", [lambda: UMDQN(points=3), lambda: UMDQN(v_min=1, v_max=1), lambda: C51(atoms=1)])
def test_a_range_that_holds_no_law_is_refused(build: Callable[[], object]) -> None:
    with pytest.raises(NfdrlError, match="v_min < v_max"):
        build()
