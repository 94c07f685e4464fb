"""How a coordinator assigns partitions: examples that Kafka's own assignors answer in this way."""

from collections.abc import Mapping

import pytest
from support.server_assignors import Group

from barnabas.core.coordinator.group.assignors.range_assignor import ServerRangeAssignor


def test_range_gives_consecutive_partitions_and_one_more_to_the_first() -> None:
    group = Group({"t": 6, "u": 4}, {"A": "t u", "B": "t", "C": "u"})
    assert group.assign(ServerRangeAssignor()) == {
        "A": {"t": {0, 1, 2}, "u": {0, 1}},
        "B": {"t": {3, 4, 5}},
        "C": {"u": {2, 3}},
    }


def test_range_orders_static_members_first() -> None:
    group = Group({"t": 5}, {"A": "t", "B": "t", "C": "t"}, instances={"C": "x", "B": "y"})
    assert group.assign(ServerRangeAssignor()) == {"C": {"t": {0, 1}}, "B": {"t": {2, 3}}, "A": {"t": {4}}}


def test_range_with_more_members_than_partitions_leaves_the_last_without() -> None:
    group = Group({"t": 1}, {"A": "t", "B": "t"})
    assert group.assign(ServerRangeAssignor()) == {"A": {"t": {0}}, "B": {}}


def test_topic_that_does_not_exist_is_not_assigned() -> None:
    group = Group({"t": 1}, {"A": "t gone"})
    assert group.assign(ServerRangeAssignor()) == {"A": {"t": {0}}}


def test_target_that_does_not_change_is_the_same_object() -> None:
    former: Mapping[str, set[int]] = {"t": {0, 1}}
    group = Group({"t": 2}, {"A": "t"}, owned={"A": former})
    assert ServerRangeAssignor().assign(group.spec, group).members["A"] is group.spec.members["A"].partitions


@pytest.mark.parametrize("count", [0, 1, 7])
def test_group_without_members_gets_nothing(count: int) -> None:
    assert Group({"t": count}, {}).assign(ServerRangeAssignor()) == {}
