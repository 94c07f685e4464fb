"""The coordinator's assignors: examples with the answers of Kafka's own assignors."""

import time
from collections.abc import Mapping

import pytest
from support.assign_cases import random_cases
from support.long_tests import examples
from support.server_assignors import Group

from barnabas.core.coordinator.group.assignors import (
    PartitionAssignor,
    ServerRangeAssignor,
    SimpleAssignor,
    UniformAssignor,
)

ASSIGNORS: list[PartitionAssignor] = [UniformAssignor(), ServerRangeAssignor(), SimpleAssignor()]
every_assignor = pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda assignor: assignor.name)


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


def test_uniform_gives_equal_numbers_over_all_topics() -> None:
    found = Group({"t": 5, "u": 2}, {"A": "t u", "B": "t u", "C": "t u"}).assign(UniformAssignor())
    assert sorted(sum(map(len, parts.values())) for parts in found.values()) == [2, 2, 3]


def test_uniform_takes_from_each_member_what_a_third_one_needs() -> None:
    owned = {"A": {"t": {0, 1, 2}}, "B": {"t": {3, 4, 5}}}
    group = Group({"t": 6}, {"A": "t", "B": "t", "C": "t"}, owned=owned)
    assert group.assign(UniformAssignor()) == {"A": {"t": {0, 1}}, "B": {"t": {3, 4}}, "C": {"t": {2, 5}}}


def test_uniform_leaves_the_extra_partition_where_it_is() -> None:
    owned = {"A": {"t": {0}}, "B": {"t": {1, 2}}}
    group = Group({"t": 3}, {"A": "t", "B": "t"}, owned=owned)
    assert group.assign(UniformAssignor()) == owned


def test_uniform_with_mixed_topics_gives_what_only_one_can_read_to_that_one() -> None:
    found = Group({"t": 6, "u": 4}, {"A": "t u", "B": "t", "C": "u"}).assign(UniformAssignor())
    assert sorted(sum(map(len, parts.values())) for parts in found.values()) == [3, 3, 4]


def test_uniform_with_mixed_topics_moves_what_a_member_has_too_much() -> None:
    owned = {"A": {"t": {0, 1}, "u": {0, 1}}, "B": {}}
    found = Group({"t": 2, "u": 2}, {"A": "t u", "B": "u"}, owned=owned).assign(UniformAssignor())
    assert found == {"A": {"t": {0, 1}}, "B": {"u": {0, 1}}}


def test_uniform_with_mixed_topics_moves_new_partitions_before_old_ones() -> None:
    """z:1 is new, and y:1 is not: one of them must come to a member that reads nothing else."""
    members = {"A": "x y z", "B": "y z"}
    found = Group({"x": 1, "y": 1, "z": 2}, members, owned={"A": {"y": {0}}}).assign(UniformAssignor())
    assert found == {"A": {"x": {0}, "y": {0}}, "B": {"z": {0, 1}}}


def test_simple_gives_each_partition_to_enough_members() -> None:
    found = Group({"t": 2}, {"A": "t", "B": "t", "C": "t"}).assign(SimpleAssignor())
    assert sorted(map(len, (parts["t"] for parts in found.values()))) == [1, 1, 2]
    assert set.union(*(parts["t"] for parts in found.values())) == {0, 1}


def test_simple_with_few_members_gives_each_partition_to_one() -> None:
    found = Group({"t": 5}, {"A": "t", "B": "t"}).assign(SimpleAssignor())
    assert sorted(len(parts["t"]) for parts in found.values()) == [2, 3]


def test_simple_keeps_shared_partitions_where_they_are() -> None:
    owned = {"A": {"t": {0, 1}}, "B": {"t": {0}}, "C": {"t": {1}}}
    group = Group({"t": 2}, {"A": "t", "B": "t", "C": "t"}, owned=owned)
    assert group.assign(SimpleAssignor()) == owned


def test_simple_exchanges_a_partition_that_the_last_member_has_already() -> None:
    """Two members for each of t:0 to t:2, and C has t:2 already, which is all that would be left."""
    owned = {"A": {"t": {0, 1}}, "B": {"t": {0, 1}}, "C": {"t": {2}}, "D": {"t": set[int]()}}
    found = Group({"t": 3}, dict.fromkeys("ABCD", "t"), owned=owned).assign(SimpleAssignor())
    held = [number for parts in found.values() for number in parts["t"]]
    assert sorted(held) == [0, 0, 1, 1, 2, 2]


def test_simple_assigns_only_partitions_that_may_be_assigned() -> None:
    group = Group({"t": 3}, {"A": "t", "B": "t"}, assignable={"t": {1, 2}})
    assert group.assign(SimpleAssignor()) == {"A": {"t": {1}}, "B": {"t": {2}}}


@every_assignor
def test_topic_that_does_not_exist_is_not_assigned(assignor: PartitionAssignor) -> None:
    group = Group({"t": 1}, {"A": "t gone"}, owned={"A": {"gone": {0}}})
    assert group.assign(assignor) == {"A": {"t": {0}}}


@every_assignor
def test_partitions_of_topics_given_up_go_to_subscribers(assignor: PartitionAssignor) -> None:
    group = Group({"t": 2, "u": 1}, {"A": "u", "B": "t"}, owned={"A": {"t": {0, 1}}})
    assert group.assign(assignor) == {"A": {"u": {0}}, "B": {"t": {0, 1}}}


@every_assignor
@pytest.mark.parametrize("members", [{"A": "t"}, {"A": "t u", "B": "u"}], ids=["equal", "mixed"])
def test_target_that_does_not_change_is_the_same_object(
    assignor: PartitionAssignor, members: Mapping[str, str]
) -> None:
    topics = {"t": 2, "u": 2}
    first = Group(topics, members).assign(assignor)
    group = Group(topics, members, owned=first)
    found = assignor.assign(group.spec, group).members
    assert all(found[member] is group.spec.members[member].partitions for member in members)


@every_assignor
@pytest.mark.parametrize("count", [0, 1, 7])
def test_group_without_members_gets_nothing(count: int, assignor: PartitionAssignor) -> None:
    assert Group({"t": count}, {}).assign(assignor) == {}


@pytest.mark.parametrize("assignor", ["uniform", "simple"])
def test_random_groups_have_every_partition_and_become_stable(assignor: str) -> None:
    """Assigned once more, nothing moves."""
    for case in random_cases(3, examples(1000)):
        ours = {each.name: each for each in ASSIGNORS}[assignor]
        found = case.group.assign(ours)
        read = {name for names in case.members.values() for name in names}
        for name in read:
            held = [number for parts in found.values() for number in parts.get(name, ())]
            assert set(held) == set(range(case.topics[name]))
            assert assignor == "simple" or len(held) == case.topics[name]
        case.owned = found
        assert case.group.assign(ours) == found


@pytest.mark.parametrize("kinds", [1, 2, 10])
def test_large_group_is_assigned_quickly(kinds: int) -> None:
    """1,000 members with 10,000 partitions: 0.1 s and less, here with a wide margin."""
    topics = {f"t{number}": 100 for number in range(100)}
    names = [" ".join(f"t{number}" for number in range(kind, 100)) for kind in range(kinds)]
    members = {f"m{number}": names[number % kinds] for number in range(1000)}
    group = Group(topics, members)
    began = time.process_time()
    found = UniformAssignor().assign(group.spec, group).members
    assert time.process_time() - began < 2
    assert {sum(map(len, parts.values())) for parts in found.values()} == {10}
