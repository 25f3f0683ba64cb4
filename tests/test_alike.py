"""Rows that are equal are found, whatever their bits, and nothing else is taken for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nfdrl.engines.compiled import alike
from nfdrl.engines.compiled.alike import alone, rows_alike

FEW = st.sampled_from(np.array([0.0, -0.0, 1.0, np.nan, np.inf, 1e-45], np.float32).tolist())


def words(rows):
    return rows.view(np.uint32)


@given(st.integers(1, 4).flatmap(lambda width: arrays(np.float32, (12, width), elements=FEW)))
def test_rows_of_a_group_are_equal_and_rows_of_two_groups_differ(rows):
    found = rows_alike(rows)
    assert np.array_equal(words(rows[found.first])[found.group], words(rows))
    assert len(np.unique(words(rows[found.first]), axis=0)) == len(found.first)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=20))
def test_members_are_the_rows_of_each_group(states):
    rows = np.eye(6, dtype=np.float32)[states]
    found = rows_alike(rows)
    order, first = found.members()
    assert sorted(order) == list(range(len(states)))
    for group in range(len(found.first)):
        assert set(found.group[order[first[group] : first[group + 1]]]) == {group}


def test_rows_with_one_key_are_not_taken_for_equal_ones(monkeypatch):
    monkeypatch.setattr(alike, "_factors", lambda width: np.zeros(width, np.uint64))
    assert rows_alike(np.eye(3, dtype=np.float32)).group.tolist() == [0, 1, 2]
    assert rows_alike(np.ones((3, 2), np.float32)).group.tolist() == [0, 0, 0]


@pytest.mark.parametrize("count", [1, 5])
def test_rows_that_stand_alone_are_groups_of_one(count):
    order, first = alone(count)
    assert order.tolist() == list(range(count))
    assert np.diff(first).tolist() == [1] * count
