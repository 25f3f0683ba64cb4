"""Return laws, one file for each representation, and the methods that learn them."""

from __future__ import annotations

from collections.abc import Callable

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
from nfdrl.losses.cramer import Comparison
from nfdrl.settings import changed, split_word

METHODS: dict[str, Method] = {
    "dqn": DQN(),
    "c51": C51(),
    "qr-dqn": QRDQN(),
    "iqn": IQN(),
    "fqf": FQF(),
    "er-dqn": ERDQN(),
    "umdqn": UMDQN(),
    "nfdrl-s": FlowMethod(Comparison(distance="surrogate")),
    "nfdrl-e": FlowMethod(Comparison(distance="exact")),
}

__all__ = ["METHODS", "Law", "Method", "find_method"]


def find_method(word: str, adapt: Callable[[Method], Method] | None = None) -> Method:
    """The method that a word names, `adapt`ed where that is asked, and then with the settings in the word's brackets.

    >>> find_method("c51[atoms=13,v_min=0]")
    C51(atoms=13, v_min=0.0, v_max=10.0)
    """
    name, texts = split_word(word)
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    method = METHODS[name]
    return changed(method if adapt is None else adapt(method), texts, name)
