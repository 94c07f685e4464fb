"""Tests of the verdict of `make table-kills`."""

from collections import Counter

import pytest
from table_kills.verdict import Seen, faults, went_back

pytestmark = pytest.mark.slow

REACHED = {("a", 0): 3, ("a", 1): 1}
RIGHT: Seen = Counter({("a", 0, 0): 1, ("a", 0, 1): 1, ("a", 0, 2): 1, ("a", 1, 0): 1})


def test_a_right_table_has_no_faults() -> None:
    assert faults(RIGHT, REACHED) == []
    assert went_back(REACHED, {**REACHED, ("a", 1): 2}) == []


@pytest.mark.parametrize(
    ("spoilt", "text"),
    [
        (RIGHT + Seen({("a", 0, 1): 1}), "('a', 0, 1) is there 2 times"),
        (RIGHT - Seen({("a", 0, 1): 1}), "1 rows are lost, ('a', 0, 1) to ('a', 0, 1)"),
        (RIGHT + Seen({("a", 1, 1): 1}), "1 rows are there that the offsets do not know"),
        (RIGHT + Seen({("b", 0, 0): 1}), "1 rows are there that the offsets do not know"),
    ],
)
def test_each_kind_of_fault_is_found(spoilt: Seen, text: str) -> None:
    (found,) = faults(spoilt, REACHED)
    assert found.startswith(text)


def test_lost_committed_message_is_found() -> None:
    assert went_back(REACHED, {("a", 0): 2}) == ["('a', 0) was at 3 and is at 2", "('a', 1) was at 1 and is at 0"]
