"""The finite MDPs and the methods that words name, for comparisons with exact laws."""

from __future__ import annotations

import inspect

from nfdrl.envs import FINITE_MDPS
from nfdrl.envs.finite import FiniteMDP, check_tabular_id
from nfdrl.errors import NfdrlError, unknown_name
from nfdrl.evaluation.comparison import Contender
from nfdrl.laws import find_method
from nfdrl.settings import read_word, split_word

DISCOUNT = 0.95  # if neither the command nor the MDP has one; also the paper's for FrozenLake


def discount_for(mdp: FiniteMDP, given: float | None) -> float:
    """The discount that was given, or the MDP's own, or `DISCOUNT`."""
    own = mdp.discount if given is None else given
    return mdp.resolve_discount(DISCOUNT if own is None else own)


def contender(word: str) -> Contender:
    """The method that a word names, with its settings changed."""
    return Contender(word, find_method(word), frozenset(split_word(word)[1]))


def finite_mdp(word: str) -> FiniteMDP:
    """The finite MDP that a word names: one of ours, or a Gymnasium environment with a table."""
    name, settings = read_word(word)
    if name in FINITE_MDPS:
        known = list(inspect.signature(FINITE_MDPS[name]).parameters)
        for key in settings:
            if key not in known:
                raise unknown_name(f"setting of {name}", key, known)
        return FINITE_MDPS[name](**settings)
    check_tabular_id(name, *FINITE_MDPS)
    try:
        return FiniteMDP.from_env(name, **settings)
    except NfdrlError:
        raise
    except Exception as error:  # whatever an environment's constructor raises for its settings
        raise NfdrlError(f"environment {word!r} cannot be made: {error}") from None
