"""Plans for reassignments: even, with few moves, and in the form of Kafka's tool."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.app.clients.admin.reassignments import drained, from_json, moved, planned, racks_of, to_json
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition

RACKS = st.sampled_from([None, "a", "b", "c"])


def _places(*held: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("t", number): each for number, each in enumerate(held)}


@given(st.data())
def test_a_plan_is_whole_and_even_and_settled(data: st.DataObject) -> None:
    brokers = data.draw(st.dictionaries(st.integers(0, 8), RACKS, min_size=1, max_size=6), label="brokers")
    count = data.draw(st.integers(1, len(brokers)), label="replicas")
    held = st.lists(st.integers(0, 8), min_size=count, max_size=count, unique=True).map(tuple)
    current = _places(*data.draw(st.lists(held, min_size=1, max_size=12), label="current"))
    plan = planned(current, brokers)
    assert plan.keys() == current.keys()
    assert all(len(set(each)) == count and set(each) <= brokers.keys() for each in plan.values())
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(broker for each in plan.values() for broker in each)
    if len(set(brokers.values())) == 1:  # with racks, their spread comes first
        assert max(load.values()) - min(load.values()) <= 1
    assert planned(plan, brokers) == plan


def test_correct_placement_is_not_moved() -> None:
    current = _places((1, 2), (2, 3), (3, 1))
    assert planned(current, dict.fromkeys((1, 2, 3))) == current


def test_only_the_replicas_of_a_broker_that_goes_move() -> None:
    current = _places((1, 2), (2, 3), (3, 1), (1, 3))
    plan = planned(current, dict.fromkeys((1, 2, 4)))
    assert sorted(tp.partition for tp, _ in moved(current, plan)) == [1, 2, 3]


def test_plan_moves_only_fair_share_to_new_broker() -> None:
    current = _places(*[(1, 2)] * 3, *[(2, 1)] * 3)
    plan = planned(current, dict.fromkeys((1, 2, 3)))
    assert Counter(broker for held in plan.values() for broker in held) == {1: 4, 2: 4, 3: 4}
    assert Counter(held[0] for held in plan.values()) == {1: 2, 2: 2, 3: 2}
    assert len(moved(current, plan)) == 4


def test_leaders_are_levelled_over_a_broker_between() -> None:
    """1 has too many and shares none with 3, so 2 takes one of its and gives one away."""
    current = _places((1, 2), (1, 2), (1, 2), (2, 3), (2, 3))
    plan = planned(current, dict.fromkeys((1, 2, 3)), replication_factor=None)
    led = Counter(held[0] for held in plan.values())
    assert max(led.values()) - min(led.values()) <= 1, plan


def test_more_and_fewer_replicas() -> None:
    current = _places((1,), (2,), (3,))
    wider = planned(current, dict.fromkeys((1, 2, 3)), replication_factor=2)
    assert all(len(held) == 2 and held[0] == current[tp][0] for tp, held in wider.items())
    assert planned(wider, dict.fromkeys((1, 2, 3)), replication_factor=1) == current


def test_racks_are_spread_over() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = planned(_places((1, 5), (2, 5), (3, 5), (4, 5)), brokers)
    assert all({brokers[broker] for broker in held} == {"a", "b"} for held in plan.values()), plan


def test_too_few_brokers_for_the_replicas() -> None:
    with pytest.raises(ConfigError, match="t-0 needs 2 replicas, but only 1 broker remains; lower the repl"):
        planned(_places((1, 2)), {1: None})


def _spread(held: tuple[int, ...], racks: dict[int, str | None]) -> int:
    return len({racks[broker] for broker in held if broker in racks})


@given(st.data())
def test_plan_with_racks_keeps_spread_and_is_even_in_each_rack(data: st.DataObject) -> None:
    racks = data.draw(st.dictionaries(st.integers(0, 8), RACKS, min_size=1, max_size=8), label="racks")
    count = data.draw(st.integers(1, len(racks)), label="replicas")
    held = st.lists(st.sampled_from(sorted(racks)), min_size=count, max_size=count, unique=True).map(tuple)
    current = _places(*data.draw(st.lists(held, min_size=1, max_size=20), label="current"))
    plan = planned(current, racks)
    assert all(_spread(plan[tp], racks) >= _spread(current[tp], racks) for tp in current)
    load = Counter(dict.fromkeys(racks, 0))
    load.update(broker for each in plan.values() for broker in each)
    for rack in set(racks.values()):
        loads = [load[broker] for broker in racks if racks[broker] == rack]
        assert max(loads) - min(loads) <= 1


@given(st.data())
def test_plan_without_racks_makes_the_fewest_moves_for_equal_shares(data: st.DataObject) -> None:
    brokers = range(data.draw(st.integers(1, 6), label="brokers"))
    count = data.draw(st.integers(1, len(brokers)), label="replicas")
    held = st.lists(st.sampled_from(brokers), min_size=count, max_size=count, unique=True).map(tuple)
    current = _places(*data.draw(st.lists(held, min_size=1, max_size=20), label="current"))
    plan = planned(current, dict.fromkeys(brokers))
    load = Counter(dict.fromkeys(brokers, 0))
    load.update(broker for each in current.values() for broker in each)
    share, more = divmod(sum(load.values()), len(brokers))
    wanted = [share + 1] * more + [share] * (len(brokers) - more)
    needed = sum(max(0, has - gets) for has, gets in zip(sorted(load.values(), reverse=True), wanted, strict=True))
    assert len(moved(current, plan)) == needed


def test_new_broker_gets_partitions_of_all_topics() -> None:
    current = {TopicPartition(topic, number): (number % 3 + 1,) for topic in "abcd" for number in range(3)}
    plan = planned(current, dict.fromkeys((1, 2, 3, 4)))
    got = [tp.topic for tp, broker in moved(current, plan)]
    assert sorted(got) == sorted(set(got))
    assert len(got) == 3


@st.composite
def _drains(draw: st.DrawFn) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]:
    """Draw what brokers hold, and the racks of the brokers that remain when broker 0 goes. Broker 9 is down."""
    racks = draw(st.dictionaries(st.integers(1, 8), RACKS, min_size=1, max_size=7))
    some = st.lists(st.sampled_from([0, 9, *racks]), min_size=1, max_size=len(racks), unique=True).map(tuple)
    return _places(*draw(st.lists(some, min_size=1, max_size=20))), racks


@given(_drains(), st.data())
def test_drain_moves_each_replica_of_the_broker_once_and_nothing_else(
    drawn: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]], data: st.DataObject
) -> None:
    current, racks = drawn
    sizes = {tp: data.draw(st.integers(0, 3)) for tp in current}
    plan = drained(current, 0, racks, sizes)
    assert plan.keys() == {tp for tp, held in current.items() if 0 in held}
    for tp, held in plan.items():
        stays = {broker for broker in current[tp] if broker != 0}
        assert len(held) == len(set(held)) == len(current[tp])
        assert stays <= set(held)
        (target,) = set(held) - stays
        assert target in racks
        used = Counter(racks.get(broker) for broker in stays)
        assert used[racks[target]] == min(used[racks[b]] for b in racks if b not in stays)  # as far apart as can be


@given(_drains())
def test_drain_leaves_counts_as_even_as_moves_of_its_replicas_can(
    drawn: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]],
) -> None:
    current, racks = drawn
    plan = drained(current, 0, racks)
    load = Counter(dict.fromkeys(racks, 0))
    load.update(broker for each in {**current, **plan}.values() for broker in each)
    for tp, held in plan.items():
        (target,) = set(held) - set(current[tp])
        used = Counter(racks.get(broker) for broker in held if broker != target)
        for other in racks.keys() - set(held):
            if used[racks[other]] <= used[racks[target]]:
                assert load[target] - load[other] <= 1, (tp, target, other)


@given(_drains())
def test_drain_shares_leaders_that_it_takes_over(
    drawn: tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]],
) -> None:
    current, racks = drawn
    plan = drained(current, 0, racks)
    led = Counter(held[0] for held in {**current, **plan}.values())
    for tp, held in plan.items():
        if current[tp][0] != 0:
            assert held[0] == current[tp][0]  # the preferred leader stays
            continue
        assert held[0] in racks  # not a broker that is down
        assert all(led[held[0]] - led[other] <= 1 for other in held if other in racks)


def test_drain_shares_sizes_between_brokers_of_equal_count() -> None:
    current = _places((0,), (0,), (0,), (0,))
    sizes = {tp: 10 ** (tp.partition + 1) for tp in current}
    plan = drained(current, 0, {1: None, 2: None}, sizes)
    assert Counter(held[0] for held in plan.values()) == {1: 2, 2: 2}
    largest = plan[TopicPartition("t", 3)]
    assert plan[TopicPartition("t", 2)] != largest  # the two largest are apart


def test_drain_with_a_lower_replication_factor_copies_nothing() -> None:
    plan = drained(_places((1, 2, 3), (3, 1)), 3, {1: None, 2: None}, replication_factor=2)
    assert plan == _places((1, 2), (1, 2)) or plan == _places((1, 2), (2, 1))


def test_drain_without_a_place_names_the_ways_out() -> None:
    text = "t-0 needs 3 replicas, but only 2 brokers remain; lower the replication factor with --replication-factor 2,"
    with pytest.raises(ConfigError, match=text):
        drained(_places((1, 2, 3)), 3, {1: None, 2: None})


def test_the_json_of_kafkas_tool() -> None:
    current = _places((1, 2))
    assert json.loads(to_json(current)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}],
    }
    assert from_json(to_json(current), "it") == current
    assert from_json('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}', "it") == current


@pytest.mark.parametrize(
    ("text", "observed"),
    [
        ("nothing", "it is not JSON"),
        ("[]", "no list"),
        ('{"version": 2, "partitions": []}', "version 2"),
        ('{"partitions": [{"topic": "t"}]}', "an entry without"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "t-0 needs brokers"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "t-0 needs brokers"),
        ('{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "an entry without"),
        (to_json(_places((1,)))[:-2] + ', {"topic": "t", "partition": 0, "replicas": [2]}]}', "t-0 twice"),
    ],
)
def test_other_json_is_refused(text: str, observed: str) -> None:
    with pytest.raises(ConfigError, match=observed):
        from_json(text, "it")


def test_plans_spread_over_hosts_where_no_broker_has_a_rack() -> None:
    workers = [BrokerNode(node_id=number, host=f"host-{number // 10}", port=9092) for number in (10, 11, 20, 21)]
    assert racks_of(workers) == {10: "host-1", 11: "host-1", 20: "host-2", 21: "host-2"}
    current = {TopicPartition("t", number): (10,) for number in range(4)}
    assert all({each // 10 for each in held} == {1, 2} for held in planned(current, racks_of(workers), 2).values())
    assert racks_of([*workers, BrokerNode(node_id=1, host="h", port=1, rack="r")])[10] is None
