from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.system import SeededEntropy
from barnabas.core.cluster.assignment import assign_added, assign_new_topic, assign_replicas, check_manual
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

BROKERS = st.sets(st.integers(0, 200), min_size=1, max_size=9)


@st.composite
def racked(draw: st.DrawFn) -> dict[int, str | None]:
    return {broker: draw(st.sampled_from("xyz")) for broker in sorted(draw(BROKERS))}


def no_racks(brokers: set[int]) -> dict[int, str | None]:
    return dict.fromkeys(sorted(brokers))


def test_the_example_of_five_brokers() -> None:
    """Ten partitions, three replicas, from broker 0 with shift 0, worked out by hand from facts D7."""
    assigned = assign_replicas(no_racks({0, 1, 2, 3, 4}), 10, 3, start=0, shift=0)
    assert assigned == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_assignment_alternates_between_racks() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: "c"}
    assigned = assign_replicas(racks, 6, 3, start=0, shift=0)
    assert [replicas[0] for replicas in assigned.values()] == [0, 2, 4, 1, 3, 5]
    assert all({racks[broker] for broker in replicas} == {"a", "b", "c"} for replicas in assigned.values())


@given(BROKERS, st.integers(1, 40), st.data())
def test_replicas_are_different_and_leaders_even(brokers: set[int], partitions: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start = data.draw(st.integers(0, len(brokers) - 1))
    shift = data.draw(st.integers(0, len(brokers) - 1))
    assigned = assign_replicas(no_racks(brokers), partitions, factor, start=start, shift=shift)
    assert list(assigned) == list(range(partitions))
    for replicas in assigned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= brokers
    leaders = Counter(replicas[0] for replicas in assigned.values())
    assert max(leaders.values()) - min(leaders[broker] for broker in brokers) <= 1
    assert assigned[0][0] == sorted(brokers)[start]


@given(racked(), st.integers(1, 40), st.data())
def test_replicas_use_as_many_racks_as_they_can(
    racks: dict[int, str | None], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    start = data.draw(st.integers(0, len(racks) - 1))
    shift = data.draw(st.integers(0, len(racks) - 1))
    assigned = assign_replicas(racks, partitions, factor, start=start, shift=shift)
    for replicas in assigned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))


@given(st.sets(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 12), st.integers(1, 12), st.data())
def test_added_partitions_keep_the_rules(brokers: set[int], present: int, added: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    existing = assign_replicas(no_racks(brokers), present, factor, start=0, shift=0)
    more = assign_added(no_racks(brokers), existing, added)
    assert list(more) == list(range(present, present + added))
    assert all(len(set(replicas)) == factor for replicas in more.values())


def test_added_partitions_are_assigned_from_the_first_replica() -> None:
    existing = {0: (11, 12), 1: (12, 10), 2: (10, 11)}
    assert assign_added(no_racks({10, 11, 12}), existing, 2) == {3: (11, 12), 4: (12, 10)}


def test_a_first_replica_that_is_gone() -> None:
    assert assign_added(no_racks({1, 2}), {0: (5,)}, 2) == {1: (2,), 2: (1,)}


def test_a_broker_without_rack_makes_racks_count_for_nothing() -> None:
    mixed: dict[int, str | None] = {0: "a", 1: "b", 2: None}
    plain = no_racks({0, 1, 2})
    assert assign_replicas(mixed, 4, 2, start=1, shift=0) == assign_replicas(plain, 4, 2, start=1, shift=0)


@pytest.mark.parametrize(
    ("partitions", "factor", "brokers", "code"),
    [
        (0, 1, 1, ErrorCode.INVALID_PARTITIONS),
        (-3, 1, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 2, 1, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_counts_that_cannot_be(partitions: int, factor: int, brokers: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        assign_new_topic(no_racks(set(range(brokers))), partitions, factor, SeededEntropy(1))
    assert refused.value.code == code


def test_the_start_is_random() -> None:
    starts = {assign_new_topic(no_racks({1, 2, 3}), 1, 1, SeededEntropy(seed))[0][0] for seed in range(40)}
    assert starts == {1, 2, 3}


@pytest.mark.parametrize(
    ("assignments", "fault"),
    [
        ([[1], []], "no replicas"),
        ([[1, 2], [1]], "has 1 replica where the others have 2"),
        ([[1, 1]], "twice"),
        ([[1, 9]], r"not alive: \[9\]"),
    ],
)
def test_assignments_by_hand_are_checked(assignments: list[list[int]], fault: str) -> None:
    with pytest.raises(ApiError, match=fault) as refused:
        check_manual(assignments, no_racks({1, 2, 3}))
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert check_manual([[1, 2], [2, 3]], no_racks({1, 2, 3})) == [(1, 2), (2, 3)]


def workers(machines: int, per_machine: int) -> dict[int, str]:
    """Machine k has the workers 100k + 1, 100k + 2, and so on."""
    return {100 * k + w: f"machine-{k}" for k in range(1, machines + 1) for w in range(1, per_machine + 1)}


@pytest.mark.parametrize("machines", [1, 3])
@pytest.mark.parametrize("start", [0, 5])
def test_sixteen_workers_on_each_machine_lead_and_hold_equal_shares(machines: int, start: int) -> None:
    machine_of = workers(machines, 16)
    racks = no_racks(set(machine_of))
    for partitions in (16 * machines, 80 * machines):
        for factor in (1, 2, 3):
            assigned = assign_replicas(racks, partitions, factor, start=start, shift=start, machines=machine_of)
            led = Counter(replicas[0] for replicas in assigned.values())
            held = Counter(broker for replicas in assigned.values() for broker in replicas)
            assert set(led.values()) == {partitions // (16 * machines)}
            assert set(held.values()) == {factor * partitions // (16 * machines)}
            for replicas in assigned.values():
                assert len(set(replicas)) == factor
                assert len({machine_of[broker] for broker in replicas}) == min(factor, machines)


def test_workers_of_few_partitions_are_on_all_machines() -> None:
    machine_of = workers(3, 16)
    assigned = assign_replicas(no_racks(set(machine_of)), 3, 1, start=0, shift=0, machines=machine_of)
    assert sorted(machine_of[replicas[0]] for replicas in assigned.values()) == ["machine-1", "machine-2", "machine-3"]


@given(racked(), st.integers(1, 40), st.data())
def test_racks_come_before_machines(racks: dict[int, str | None], partitions: int, data: st.DataObject) -> None:
    """A machine may even stand in several racks, if the settings say so."""
    factor = data.draw(st.integers(1, len(racks)))
    machine_of = {broker: data.draw(st.sampled_from("mno")) for broker in racks if data.draw(st.booleans())}
    within_racks = data.draw(st.booleans())
    if within_racks:
        machine_of = {broker: f"{racks[broker]}{machine}" for broker, machine in machine_of.items()}
    assigned = assign_replicas(racks, partitions, factor, start=0, shift=1, machines=machine_of)
    used = len({machine_of.get(broker, broker) for broker in racks})
    for replicas in assigned.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))
        if len(set(racks.values())) == 1:
            assert len({machine_of.get(broker, broker) for broker in replicas}) == min(factor, used)


def test_a_broker_without_a_machine_has_one_to_itself() -> None:
    machine_of = {1: "m", 2: "m", 3: "m"}
    assigned = assign_replicas(no_racks({1, 2, 3, 4, 5}), 10, 3, start=0, shift=0, machines=machine_of)
    assert all({4, 5} < set(replicas) for replicas in assigned.values())


def test_added_partitions_and_new_topics_know_machines() -> None:
    machine_of = workers(2, 4)
    racks = no_racks(set(machine_of))
    made = assign_new_topic(racks, 8, 2, SeededEntropy(3), machine_of)
    added = assign_added(racks, made, 8, machine_of)
    assert all(len({machine_of[broker] for broker in replicas}) == 2 for replicas in {**made, **added}.values())
    assert set(Counter(replicas[0] for replicas in made.values()).values()) == {1}
