"""How `__consumer_offsets` is made: with how many replicas."""

import pytest

from barnabas.app.broker.internal_topics import OFFSETS_TOPIC, as_it_must_be
from barnabas.app.config import BrokerConfig
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.errors import ApiError

NEW = NewTopic(name=OFFSETS_TOPIC)
SET = {"offsets.topic.replication.factor": 3}


def replicas(live: int, *, is_alone: bool = False, **settings: int) -> int:
    config = BrokerConfig.from_mapping({key.replace("_", "."): value for key, value in settings.items()})
    return as_it_must_be(NEW, config, live, is_alone=is_alone).replication_factor


@pytest.mark.parametrize(("live", "expected"), [(0, 1), (1, 1), (2, 2), (3, 3), (5, 3)])
def test_without_a_word_about_it_there_are_three_or_one_on_each_broker(live: int, expected: int) -> None:
    assert replicas(live) == expected


def test_a_number_that_was_set_on_purpose_counts() -> None:
    assert replicas(3, offsets_topic_replication_factor=2) == 2
    with pytest.raises(
        ApiError, match=r"INVALID_REPLICATION_FACTOR.*offsets\.topic\.replication\.factor=3.*2 brokers live"
    ):
        replicas(2, offsets_topic_replication_factor=3)


def test_where_nobody_else_can_come_it_is_made_all_the_same() -> None:
    assert replicas(1, is_alone=True, offsets_topic_replication_factor=3) == 1


def test_who_names_the_replicas_gets_them() -> None:
    config = BrokerConfig.from_mapping(SET)
    new = NewTopic(name=OFFSETS_TOPIC, replication_factor=2)
    assert as_it_must_be(new, config, 1, is_alone=False).replication_factor == 2
    placed = NewTopic(name=OFFSETS_TOPIC, assignments={0: [1]})
    assert as_it_must_be(placed, config, 1, is_alone=False).assignments == {0: [1]}
