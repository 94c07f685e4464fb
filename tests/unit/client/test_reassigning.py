"""Plans for reassignments: even, with few moves, and in the form of Kafka's tool."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.app.clients.admin.reassignments import from_json, moved, planned, to_json
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
    assert sorted(place.partition for place, _ in moved(current, plan)) == [1, 2, 3]


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
    assert all(len(held) == 2 and held[0] == current[place][0] for place, held in wider.items())
    assert planned(wider, dict.fromkeys((1, 2, 3)), replication_factor=1) == current


def test_racks_are_spread_over() -> None:
    brokers = {1: "a", 2: "a", 3: "b", 4: "b"}
    plan = planned(_places((1, 5), (2, 5), (3, 5), (4, 5)), brokers)
    assert all({brokers[broker] for broker in held} == {"a", "b"} for held in plan.values()), plan


def test_too_few_brokers_for_the_replicas() -> None:
    with pytest.raises(ConfigError, match="t-0 shall have 2 replicas, and 1 broker is there for them"):
        planned(_places((1, 2)), {1: None})


def test_the_json_of_kafkas_tool() -> None:
    current = _places((1, 2))
    assert json.loads(to_json(current)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}],
    }
    assert from_json(to_json(current), "it") == current
    assert from_json('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}', "it") == current


@pytest.mark.parametrize(
    ("text", "told"),
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
def test_other_json_is_refused(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        from_json(text, "it")
