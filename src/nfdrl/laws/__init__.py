"""Return laws, one file for each representation, and the methods that learn them."""

from __future__ import annotations

from nfdrl.errors import unknown_name
from nfdrl.laws.base import Law, Method
from nfdrl.laws.categorical import C51
from nfdrl.laws.dirac import DQN
from nfdrl.laws.expectile import ERDQN
from nfdrl.laws.flow import FlowMethod
from nfdrl.laws.fraction import FQF
from nfdrl.laws.implicit import IQN
from nfdrl.laws.monotone import UMDQN
from nfdrl.laws.quantile import QRDQN
from nfdrl.losses.exact import Exact
from nfdrl.losses.surrogate import Surrogate

METHODS: dict[str, Method] = {
    "dqn": DQN(),
    "c51": C51(),
    "qr-dqn": QRDQN(),
    "iqn": IQN(),
    "fqf": FQF(),
    "er-dqn": ERDQN(),
    "umdqn": UMDQN(),
    "nfdrl-s": FlowMethod(Surrogate()),
    "nfdrl-e": FlowMethod(Exact()),
}

__all__ = ["METHODS", "Law", "Method", "find_method"]


def find_method(name: str) -> Method:
    """The method of that name with its default hyper-parameters."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]
