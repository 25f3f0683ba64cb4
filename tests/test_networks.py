from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text
from torch.testing import assert_close

from nfdrl.engines.compiled.layers import Dense
from nfdrl.errors import NfdrlError
from nfdrl.laws import METHODS
from nfdrl.networks import network_for
from nfdrl.torsos import TorsoSizes, highest_rate, torso_for
from nfdrl.training.config import TrainConfig

SPACES = {
    "MLP": Box(-1, 1, (4,)),
    "OneHot": Discrete(5, start=2),
    "MultiOneHot": MultiDiscrete([3, 2], start=[1, 0]),
    "NatureCNN": Box(0, 255, (84, 84, 4), np.uint8),
    "SmallCNN": Box(0, 1, (10, 10, 6), np.bool_),
}


def samples(space: gymnasium.Space, n: int = 3) -> torch.Tensor:
    space.seed(0)
    return torch.as_tensor(np.stack([space.sample() for _ in range(n)]))


@pytest.mark.parametrize("name", SPACES)
def test_each_space_gets_its_torso(name: str) -> None:
    torso = torso_for(SPACES[name])
    assert type(torso).__name__ == name
    assert torso(samples(SPACES[name])).shape == (3, torso.features)


@pytest.mark.parametrize(
    ("space", "kind"),
    [
        (Box(0, 255, (4, 84, 84), np.uint8), "NatureCNN"),
        (Box(0, 1, (96, 96, 3), np.float32), "NatureCNN"),
        (Box(0, 255, (7, 7, 3), np.uint8), "SmallCNN"),
        (Box(0, 1, (2, 5, 9), np.float32), "SmallCNN"),
        (Box(0, 1, (2, 3), np.float32), "MLP"),
        (Box(0, 1, (), np.float32), "MLP"),
        (Box(0, 255, (128,), np.uint8), "MLP"),
        (MultiBinary(6), "MLP"),
    ],
)
def test_other_shapes_get_a_suitable_torso(space: gymnasium.Space, kind: str) -> None:
    torso = torso_for(space)
    assert type(torso).__name__ == kind
    assert torso(samples(space)).shape == (3, torso.features)


def test_both_channel_orders_give_the_same_features() -> None:
    first, last = Box(0, 255, (4, 84, 84), np.uint8), Box(0, 255, (84, 84, 4), np.uint8)
    torsos = [torso_for(first), torso_for(last)]
    torsos[1].load_state_dict(torsos[0].state_dict())
    image = samples(last)
    assert_close(torsos[0](image.permute(0, 3, 1, 2).contiguous()), torsos[1](image))


def test_bytes_are_scaled_to_one_and_left_as_they_are() -> None:
    torso = torso_for(SPACES["NatureCNN"])
    image = samples(SPACES["NatureCNN"])
    before = image.clone()
    as_floats = torso_for(Box(0, 1, (84, 84, 4), np.float32))
    as_floats.load_state_dict(torso.state_dict())
    assert_close(torso(image), as_floats(image / 255))
    assert torch.equal(image, before)
    floats = image / 255
    kept = floats.clone()
    as_floats(floats)
    assert torch.equal(floats, kept)


def test_one_hot_counts_from_the_start_of_the_space() -> None:
    assert_close(torso_for(Discrete(3, start=4))(torch.tensor([4, 6])), torch.tensor([[1.0, 0, 0], [0, 0, 1.0]]))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_a_head_for_every_torso(method: str) -> None:
    for space in SPACES.values():
        network = network_for(METHODS[method], space, 3, TorsoSizes(mlp=(8, 8), image=(8,), small_image=(8,)), 0)
        assert network(samples(space)).mean().shape == (3, 3)


def test_the_seed_decides_the_weights_and_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    networks = [network_for(METHODS["dqn"], SPACES["MLP"], 2, TorsoSizes(), seed) for seed in (1, 1, 2)]
    assert torch.equal(torch.get_rng_state(), state)
    weights = [network.head.linear.weight for network in networks]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_space_without_a_torso_is_refused_with_advice() -> None:
    with pytest.raises(NfdrlError, match="pass one as `torso`"):
        torso_for(Dict({"x": Text(2)}))


def test_layers_without_units_are_refused() -> None:
    with pytest.raises(NfdrlError, match="at least 1"):
        TorsoSizes(mlp=(0,))


def test_layers_in_numpy_give_the_gradients_of_autograd():
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 7), torch.nn.Linear(7, 6), torch.nn.Linear(6, 3)]
    x = torch.randn(4, 5, requires_grad=True)
    y = layers[2](torch.relu(layers[1](torch.relu(layers[0](x)))))
    pull = torch.randn_like(y)
    y.backward(pull)
    expected = [p.grad.clone() for layer in layers for p in layer.parameters()]
    for layer in layers:
        for p in layer.parameters():
            p.grad.fill_(99.0)  # set, not added to
    dense = Dense(layers, rectified=2)
    outputs = dense.forward(x.detach().numpy())
    to_input = dense.backward(outputs, pull.numpy(), to_input=True)
    assert_close(torch.from_numpy(outputs[-1]), y.detach())
    assert_close(torch.from_numpy(to_input), x.grad)
    for found, wanted in zip((p.grad for layer in layers for p in layer.parameters()), expected, strict=True):
        assert_close(found, wanted)


@pytest.mark.parametrize("name", ["MLP", "NatureCNN", "SmallCNN"])
def test_dormant_units_are_those_that_no_observation_activates(name):
    network = network_for(METHODS["dqn"], SPACES[name], 3, TorsoSizes(mlp=(8, 8), image=(8,), small_image=(8,)), 0)
    x = samples(SPACES[name], 8)
    layers = {key: layer for key, layer in network.torso.named_modules() if hasattr(layer, "weight")}
    last = list(layers)[-1]
    before = network.dormant(x)
    assert before.keys() == layers.keys()
    assert all(0 <= share < 1 for share in before.values())
    with torch.no_grad():
        layers[last].weight[:4], layers[last].bias[:4] = 0, -1
        layers[last].weight[4:], layers[last].bias[4:] = 0, 1
    after = network.dormant(x)
    assert after.pop(last) == 0.5
    assert after == {key: share for key, share in before.items() if key != last}
    assert not any(layer._forward_hooks for layer in layers.values())


def test_a_table_has_no_units():
    network = network_for(METHODS["dqn"], SPACES["OneHot"], 3, TorsoSizes(), 0)
    assert network.dormant(samples(SPACES["OneHot"])) == {}


def test_two_images_still_differ_after_four_layers():
    """With PyTorch's own initial weights they differ by a thirtieth of that, and learning Pong kills the network."""
    torch.manual_seed(0)
    torso = torso_for(Box(0, 255, (4, 84, 84), np.uint8))
    image = torch.full((1, 4, 84, 84), 100, dtype=torch.uint8)
    other = image.clone()
    other[:, :, 30:50, 30:50] = 200
    pixels = torch.linalg.vector_norm((image.float() - other.float()) / 255)
    with torch.no_grad():
        moved = torch.linalg.vector_norm(torso(image) - torso(other)) / pixels
        for layer in torso.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        default = torch.linalg.vector_norm(torso(image) - torso(other)) / pixels
    assert moved > 10 * default


@pytest.mark.parametrize("name", METHODS)
def test_heads_that_multiply_features_get_learned_ones_of_a_state(name):
    features = {
        widths: network_for(METHODS[name], SPACES["OneHot"], 3, TorsoSizes(states=widths), 0).torso.features
        for widths in ((), (7,))
    }
    assert features == {(): 64 if name in ("iqn", "fqf") else 5, (7,): 7}
    parts = network_for(METHODS[name], Dict({"a": SPACES["OneHot"]}), 3, TorsoSizes(mlp=(9,)), 0).torso
    assert parts.features == 9
    assert parts.torsos[0].features == 5


def test_networks_on_images_learn_at_smaller_rates_unless_one_is_given():
    planes, frames = Box(0, 1, (10, 10, 4), bool), Box(0, 255, (4, 84, 84), np.uint8)
    thin = Box(0, 1, (5, 2, 12), np.float32)  # not wide enough for a convolution
    rates = {
        name: [TrainConfig().of_method(METHODS[name], space).learning_rate for space in (SPACES["MLP"], planes, frames)]
        for name in ("nfdrl", "dqn")
    }
    assert rates == {"nfdrl": [1e-3, 2.5e-4, 1e-4], "dqn": [5e-4, 2.5e-4, 1e-4]}
    assert highest_rate(Dict({"a": SPACES["MLP"], "b": planes, "c": Dict({"d": frames})})) == 1e-4
    assert type(torso_for(thin)).__name__ == "MLP"
    assert highest_rate(thin) == float("inf")
    assert TrainConfig(learning_rate=0.1).of_method(METHODS["dqn"], frames).learning_rate == 0.1
