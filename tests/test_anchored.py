"""The flow law with a location of its own: what its numbers mean, and that the scale of rewards does not matter."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch.testing import assert_close

from nfdrl.agent import Agent
from nfdrl.engines import EngineName
from nfdrl.envs.cliff import risky_cliff
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS, find_method, method_config, method_from
from nfdrl.laws.anchored import NARROWEST, REACH, WIDEST, AnchoredMethod, anchored_law, anchored_zero
from nfdrl.laws.categorical import CategoricalLaw
from nfdrl.laws.flow import FlowLaw
from nfdrl.learner import Learner, Optimisation
from nfdrl.networks import table
from nfdrl.numerics.base_points import base_points
from nfdrl.replay import Batch
from nfdrl.training.policy_laws import PolicyLearning, learn_policy_laws
from nfdrl.training.presets import PRESETS

ENGINES: tuple[EngineName, ...] = ("compiled", "graph")


def raws(rows=50, size=1.0, seed=0):
    return size * torch.randn(rows, 13, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_the_location_is_the_mean_for_anchor_one_and_the_median_for_anchor_zero():
    raw = raws()
    assert_close(anchored_law(raw, 3.0, anchor=1.0).mean(), 3 * raw[:, -1])
    assert_close(anchored_law(raw, 3.0, anchor=0.0).quantile(0.5), 3 * raw[:, -1])


def test_between_them_it_is_the_mean_under_narrower_noise():
    raw = raws()
    z = 0.5 * base_points(20_000, like=raw)
    assert_close(anchored_law(raw, 2.0, anchor=0.5).at(z).mean(-1), 2 * raw[:, -1], rtol=0, atol=1e-3)


def test_returns_are_those_of_the_formula():
    raw, z, start, s = raws(5), torch.linspace(-3, 3, 7, dtype=torch.float64), 0.4, 0.5
    law = anchored_law(raw, 1.5, s, start)
    a = 1.5 * (start + raw[:, :4]).abs()
    phi = torch.distributions.Normal(0.0, 1.0).cdf
    steps = phi((z - law.locations.unsqueeze(-1)) / law.scales.unsqueeze(-1))
    kappa = phi(-law.locations / (s**2 + law.scales**2).sqrt())
    wanted = 1.5 * raw[:, -1:] + (a.unsqueeze(-1) * (steps - kappa.unsqueeze(-1))).sum(-2)
    assert_close(law.at(z), wanted)


def test_it_contains_the_laws_of_the_paper_whose_components_are_in_reach():
    paper = FlowLaw.from_raw(raws(1, seed=3)[0], 2.0)
    paper = FlowLaw(
        paper.weights, paper.locations.clamp(-2, 2), paper.scales.clamp(max=1.4), paper.bound, validate=False
    )
    z = torch.linspace(-3, 3, 50, dtype=torch.float64)
    raw = torch.cat([
        2 * paper.bound * paper.weights,
        REACH * torch.atanh(paper.locations / REACH),
        torch.logit((paper.scales - NARROWEST) / WIDEST),
        paper.at(torch.zeros(1, dtype=torch.float64)),  # its median
    ])  # fmt: skip
    raw -= anchored_zero(4, 1.0, torch.float64, torch.device("cpu"))
    assert_close(anchored_law(raw, anchor=0.0, start=1.0).at(z), paper.at(z))


@given(hnp.arrays(np.float64, 13, elements=st.floats(-1e3, 1e3)))
def test_no_component_hides_beyond_the_base_points(raw):
    law = anchored_law(torch.from_numpy(raw))
    assert (law.locations.abs() <= REACH).all()
    assert ((law.scales >= NARROWEST) & (law.scales <= NARROWEST + WIDEST)).all()


def test_shifted_base_points_reach_every_level():
    points = torch.stack(
        [base_points(8, "shifted", like=torch.empty(0), generator=g) for g in [torch.Generator()] * 500]
    )
    levels = torch.special.ndtr(points).flatten().sort().values
    assert levels[0] < 0.01
    assert levels[-1] > 0.99
    assert levels.diff().max() < 0.01


def test_gradients_are_those_of_finite_differences():
    z = torch.linspace(-2, 2, 5, dtype=torch.float64)
    raw = raws(3, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda value: anchored_law(value, 2.0).at(z), (raw,))


def test_an_amplitude_of_zero_still_has_a_slope():
    raw = torch.zeros(1, 13, dtype=torch.float64)
    raw[0, :4] = -0.25 + 1e-12  # all amplitudes are as good as zero: the law is a point
    raw.requires_grad_()
    method = AnchoredMethod(samples=32)
    far = anchored_law(torch.zeros(1, 13, dtype=torch.float64), start=1.0)
    (gradient,) = torch.autograd.grad(method.loss(anchored_law(raw), far).sum(), raw)
    assert gradient.isfinite().all()
    assert (gradient[0, :4].abs() > 1e-3).all()


def test_a_step_changes_sides_at_zero_and_the_law_does_not_notice():
    raw, z = raws(20), torch.linspace(-3, 3, 25, dtype=torch.float64)
    above, below = raw.clone(), raw.clone()
    above[:, 1], below[:, 1] = -0.25 + 1e-10, -0.25 - 1e-10
    one, other = anchored_law(above), anchored_law(below)
    assert_close(one.at(z), other.at(z), rtol=0, atol=1e-9)
    assert_close(one.locations[:, 1], -other.locations[:, 1])
    assert torch.equal(one.locations[:, [0, 2, 3]], other.locations[:, [0, 2, 3]])


def test_steps_that_lie_where_nothing_happens_return_where_they_are_needed():
    atoms = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    masses = torch.tensor([[0.6, 0.15, 0.15, 0.1]], dtype=torch.float64)  # all jumps lie in the upper half
    target = CategoricalLaw(masses.log(), atoms)
    method, generator = AnchoredMethod(), torch.Generator().manual_seed(0)
    raw = torch.zeros(1, 13, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([raw], lr=1e-2)
    for _ in range(1_500):
        optimiser.zero_grad()
        method.loss(anchored_law(raw), target, generator).sum().backward()
        optimiser.step()
    law = anchored_law(raw.detach())
    in_use = (2 * law.bound * law.weights > 0.3) & (law.locations > 0)
    assert in_use.sum() >= 3
    assert (raw.detach()[0, :2] < -0.25).any()  # one of them has changed sides


def learned_table(method, settings, factor=1.0):
    """A small table of laws after 40 updates with rewards times a factor."""
    torch.manual_seed(0)
    learner = Learner(method, table(method, 5, 2), settings)
    draws = np.random.default_rng(0)
    for _ in range(40):
        state, after = (torch.from_numpy(draws.integers(5, size=32)) for _ in range(2))
        reward = torch.from_numpy((factor * draws.normal(size=32)).astype(np.float32))
        discount = torch.from_numpy(np.where(draws.random(32) < 0.3, 0, 0.9).astype(np.float32))
        learner.update(Batch(state, torch.from_numpy(draws.integers(2, size=32)), reward, discount, after))
    return learner.online


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("power", [-7, 13])
@pytest.mark.parametrize("beside", [{}, {"auxiliary": 5, "mean_weight": 3.0}], ids=["law alone", "with the rest"])
def test_learning_gives_the_same_bits_for_rewards_times_a_power_of_two(engine, power, beside):
    outputs, settings = [], Optimisation(1e-2, max_grad_norm=1.0, engine=engine)
    for factor in (1.0, 2.0**power):
        network = learned_table(AnchoredMethod(unit=0.7 * factor, reward=0.3 * factor, **beside), settings, factor)
        outputs.append(network.head.linear.weight.detach().clone())
        outputs.append(network(torch.arange(5)).mean().detach() / factor)
    assert torch.equal(outputs[0], outputs[2])
    assert torch.equal(outputs[1], outputs[3])


def head_of(method, features=6, actions=2):
    torch.manual_seed(0)
    return method.head(features, actions).double()


def test_auxiliary_quantiles_are_no_part_of_the_law():
    with_them, without = head_of(AnchoredMethod(auxiliary=5, unit=3.0)), head_of(AnchoredMethod(auxiliary=0, unit=3.0))
    rows = with_them.linear.weight.detach().view(2, 18, 6)
    with torch.no_grad():
        without.linear.weight.copy_(rows[:, :13].reshape(26, 6))
    features = torch.randn(7, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    law, plain = with_them(features), without(features)
    assert plain.auxiliary is None
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    assert_close(law.at(z), plain.at(z), rtol=0, atol=1e-12)
    assert_close(law.auxiliary, 3 * (features @ rows[:, 13:].mT).movedim(0, 1), rtol=0, atol=1e-12)
    assert_close(law.select(1).auxiliary, law.auxiliary[:, 1])
    assert law.select(1).bootstrap(1.0, 0.9).auxiliary is None  # a target needs none


def test_auxiliary_quantiles_start_apart_and_laws_start_alike():
    weights = head_of(AnchoredMethod(auxiliary=32), features=64).linear.weight.view(2, 45, 64)
    assert weights[:, :13].std() < 0.01 / 8 * 1.2
    assert 0.05 < weights[:, 13:].std() < 0.1  # PyTorch draws them from ±1/√64
    assert torch.equal(
        head_of(AnchoredMethod()).linear.weight, head_of(AnchoredMethod(auxiliary=0)).linear.weight
    )  # None is none


def test_auxiliary_quantiles_become_those_of_the_target():
    method = AnchoredMethod(auxiliary=8, unit=2.0, points="midpoint", samples=512)
    target = FlowLaw(*(torch.tensor([part], dtype=torch.float64) for part in ([0.3, 0.7], [-1.0, 1.0], [0.4, 0.6])),
                     torch.tensor([2.0], dtype=torch.float64))  # fmt: skip
    law = anchored_law(torch.zeros(1, 13, dtype=torch.float64), 2.0)
    law.auxiliary = torch.zeros(1, 8, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([law.auxiliary], lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 600)
    for _ in range(600):
        optimiser.zero_grad()
        method.loss(law, target).sum().backward()
        optimiser.step()
        schedule.step()
    levels = (torch.arange(8, dtype=torch.float64) + 0.5) / 8
    assert_close(law.auxiliary.detach(), target.quantile(levels), rtol=0, atol=0.02)


def test_the_error_of_the_mean_adds_half_its_square_in_units_and_rewards():
    raw = torch.randn(6, 13, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    law, target = anchored_law(raw, 3.0), anchored_law(raw.flip(0), 3.0).bootstrap(0.5, 0.9)
    plain, weighted = (
        AnchoredMethod(unit=3.0, gain=2.0, mean_weight=weight, reward=0.7, points="midpoint", samples=20_000).loss(
            law, target
        )
        for weight in (0.0, 5.0)
    )
    error = law.mean() - target.mean()
    assert_close(weighted - plain, 2 * 5 * 0.5 * (error / 3) * (error / 0.7), rtol=1e-4, atol=1e-6)


def test_the_size_of_a_reward_is_measured_where_it_counts():
    config = {"learning_starts": 50, "buffer_size": 500, "batch_size": 8}
    env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1"), lambda reward: 0.25 * reward)
    weighted = Agent("nfdrl[mean_weight=1]", env, config=config).learn(60, progress=False)
    assert weighted.method.reward == 0.25
    assert Agent("nfdrl", env, config=config).learn(60, progress=False).method.reward == 1.0


def test_on_small_images_there_are_auxiliary_quantiles_unless_their_number_is_given():
    config = {"learning_starts": 100, "buffer_size": 500, "batch_size": 8}
    agent = Agent("nfdrl", "MinAtar/Breakout-v1", config=config).learn(120, progress=False)
    assert agent.method.auxiliary == 32
    assert agent.learner.online.head.linear.out_features == 3 * 45
    assert agent.returns(agent.observation_space.sample())[0].quantile(0.5).shape == ()
    assert Agent("nfdrl[auxiliary=0]", "MinAtar/Breakout-v1", config=config).method.auxiliary == 0
    assert Agent("nfdrl[auxiliary=3]", "MinAtar/Breakout-v1", config=config).method.auxiliary == 3
    assert Agent("nfdrl", "CartPole-v1").network.head.linear.out_features == 2 * 13
    for setting in ("auxiliary", "mean_weight"):
        with pytest.raises(NfdrlError, match=f"{setting} must be at least 0, got -1"):
            AnchoredMethod(**{setting: -1})


def test_saved_settings_that_know_no_auxiliary_quantiles_mean_none(tmp_path):
    settings = method_config(AnchoredMethod())["settings"]
    del settings["auxiliary"]
    assert method_from({"name": "nfdrl", "settings": settings}).head(6, 2).linear.out_features == 2 * 13
    config = {"learning_starts": 100, "buffer_size": 500, "batch_size": 8}
    for word, outputs in (("nfdrl[auxiliary=0]", 13), ("nfdrl", 45)):
        agent = Agent(word, "MinAtar/Breakout-v1", config=config).learn(120, progress=False)
        agent.save(tmp_path / word)
        loaded = Agent.load(tmp_path / word)
        assert loaded.network.head.linear.out_features == 3 * outputs
        seen = agent.observation_space.sample()
        assert torch.equal(loaded.returns(seen).mean(), agent.returns(seen).mean())


@pytest.mark.parametrize("engine", ENGINES)
def test_a_gain_makes_the_epsilon_of_adam_as_much_smaller(engine):
    once, smaller, more = (
        learned_table(AnchoredMethod(gain=gain), Optimisation(1e-2, eps, engine=engine)).head.linear.weight
        for gain, eps in ((1.0, 1e-3), (1.0, 1e-3 / 8), (8.0, 1e-3))
    )
    assert torch.equal(smaller, more)
    assert not torch.allclose(once, more)


def test_the_preset_for_atari_raises_the_gain_of_this_law_alone():
    adapt = PRESETS["atari"].adapt
    assert adapt(AnchoredMethod(samples=32)) == AnchoredMethod(samples=32, gain=10.0)
    assert find_method("nfdrl[gain=3]", adapt).gain == 3
    assert adapt(METHODS["nfdrl-s"]) == METHODS["nfdrl-s"]


def test_an_agent_measures_its_unit_from_the_first_rewards():
    agent = Agent("nfdrl", "CartPole-v1", seed=0).learn(1_010, progress=False)
    assert agent.method.unit == pytest.approx(25, rel=1e-6)  # returns of 0 to 1/(1 − γ)


@pytest.mark.parametrize(("seed", "weight"), [(0, 0.0), (1, 0.0), (2, 0.0), (0, 0.5)])
def test_the_rare_falls_of_the_cliff_stay_in_the_law(seed, weight):
    mdp = risky_cliff()
    method = replace(METHODS["nfdrl"].within(-1.4, 0.0), mean_weight=weight)
    laws = learn_policy_laws(
        mdp, mdp.optimal_policy(), method, PolicyLearning(4_000, 128, 7e-3, "quadratic"), seed=seed
    )
    short, long = laws.laws([[0, 0], [0, 1]]).cvar(0.1).tolist()
    assert short < -1.0  # −1.184 after longer training; the paper's form stays above −0.5
    assert long == pytest.approx(-0.6, abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"unit": 0.0}, "unit must be positive, got 0.0"),
        ({"gain": -1.0}, "gain must be positive, got -1.0"),
        ({"start": -1.0}, "start must be positive"),
        ({"anchor": 2.0}, r"anchor must lie in \[0, 1\], got 2.0"),
        ({"components": 0}, "components must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(NfdrlError, match=message):
        replace(METHODS["nfdrl"], **settings)
