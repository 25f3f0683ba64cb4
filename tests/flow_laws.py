"""Hypothesis strategies for flow laws, shared by the property tests."""

import torch
from hypothesis import strategies as st

from nfdrl.laws.flow import FlowLaw


def floats(low, high):
    return st.floats(low, high, allow_nan=False, allow_infinity=False)


@st.composite
def flow_laws(draw, max_location=3.0, min_scale=0.15, max_scale=3.0, dtype=torch.float64):
    """A law of batch shape () with one to five components, well inside what float64 resolves."""
    n = draw(st.integers(1, 5))
    logits = torch.tensor(draw(st.lists(floats(-3, 3), min_size=n, max_size=n)), dtype=dtype)
    locations = torch.tensor(draw(st.lists(floats(-max_location, max_location), min_size=n, max_size=n)), dtype=dtype)
    scales = torch.tensor(draw(st.lists(floats(min_scale, max_scale), min_size=n, max_size=n)), dtype=dtype)
    bound = torch.tensor(10 ** draw(floats(-3, 4)), dtype=dtype)
    center = torch.tensor(draw(floats(-2, 2)), dtype=dtype) * bound
    return FlowLaw(logits.softmax(-1), locations, scales, bound, center)
