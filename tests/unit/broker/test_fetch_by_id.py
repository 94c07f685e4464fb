"""Fetch from version 13 on: topics by id."""

from support.simulated_broker import SimulatedBroker

from barnabas.ports.broker_api import DeleteTopics, Fetch, FetchPartition, FetchResultPartition
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.error_codes import ErrorCode


def _id_of(broker: SimulatedBroker, topic: str) -> bytes:
    return broker.node.state.image.topic(topic).topic_id


def _fetch(broker: SimulatedBroker, *topic_ids: bytes, max_wait_ms: int = 0) -> list[FetchResultPartition]:
    asked = [FetchPartition("", 0, 0, 1 << 20, topic_id=topic_id) for topic_id in topic_ids]
    return list(broker.ask(Fetch(partitions=asked, max_wait_ms=max_wait_ms)).partitions)


def test_topics_are_found_by_their_ids_and_answered_with_them() -> None:
    broker = SimulatedBroker()
    broker.create("a")
    broker.create("b")
    broker.produce("b", b"x")
    asked = [_id_of(broker, "b"), b"nobody has this!", _id_of(broker, "a")]
    told = _fetch(broker, *asked)
    assert [part.topic_id for part in told] == asked
    assert [part.error for part in told] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert [part.high_watermark for part in told] == [1, -1, 0]


def test_an_unknown_id_is_answered_at_once() -> None:
    broker = SimulatedBroker()
    broker.create("a")
    told = _fetch(broker, _id_of(broker, "a"), b"nobody has this!", max_wait_ms=60_000)
    assert [part.error for part in told] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def test_the_id_of_a_topic_that_was_made_again_is_not_that_of_the_first() -> None:
    broker = SimulatedBroker()
    broker.create("a")
    first = _id_of(broker, "a")
    broker.ask(DeleteTopics(names=["a"]))
    broker.create("a")
    told = _fetch(broker, first, _id_of(broker, "a"))
    assert [part.error for part in told] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]


def test_neither_name_nor_id() -> None:
    broker = SimulatedBroker()
    (told,) = _fetch(broker, NO_TOPIC_ID)
    assert told.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
