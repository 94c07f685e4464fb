"""Fetch from version 13 on: topics by id."""

from typing import Any

from barnabas.adapters.wire_kafka import KafkaLink, connect_kafka
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResultPartition
from barnabas.ports.broker_api.topics import DeleteTopics
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker


def _id_of(broker: ManualBroker, topic: str) -> bytes:
    return broker.node.state.image.topic(topic).topic_id


def _fetch(broker: ManualBroker, *topic_ids: bytes, max_wait_ms: int = 0) -> list[FetchResultPartition]:
    """Over a connection; time passes only as long as messages need."""
    opened: list[Any] = []
    connect_kafka(
        broker.network.transport("client"),
        broker.scheduler,
        ("broker", 9092),
        client_id="by-id",
        request_timeout_ms=120_000,
        connect_timeout_ms=1000,
        opened=opened.append,
    )
    broker.scheduler.run_until(lambda: bool(opened))
    link = opened[0]
    assert isinstance(link, KafkaLink)
    asked = [FetchPartition(f"asked-{index}", 0, 0, 1 << 20, topic_id=each) for index, each in enumerate(topic_ids)]
    replies: list[Any] = []
    began = broker.clock.now_ms()
    link.submit(Fetch(partitions=asked, max_wait_ms=max_wait_ms), Caller(), replies.append)
    broker.scheduler.run_until(lambda: bool(replies))
    assert broker.clock.now_ms() - began < 1000
    link.close()
    assert [part.topic for part in replies[0].partitions] == [entry.topic for entry in asked]
    return list(replies[0].partitions)


def test_topics_are_found_by_their_ids_and_answered_with_them() -> None:
    broker = ManualBroker()
    broker.create("a")
    broker.create("b")
    broker.produce("b", b"x")
    asked = [_id_of(broker, "b"), b"nobody has this!", _id_of(broker, "a")]
    observed = _fetch(broker, *asked)
    assert [part.topic_id for part in observed] == asked
    assert [part.error for part in observed] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
    assert [part.high_watermark for part in observed] == [1, -1, 0]


def test_an_unknown_id_is_answered_at_once() -> None:
    broker = ManualBroker()
    broker.create("a")
    observed = _fetch(broker, _id_of(broker, "a"), b"nobody has this!", max_wait_ms=60_000)
    assert [part.error for part in observed] == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID]


def test_the_id_of_a_topic_that_was_made_again_is_not_that_of_the_first() -> None:
    broker = ManualBroker()
    broker.create("a")
    first = _id_of(broker, "a")
    broker.ask(DeleteTopics(names=["a"]))
    broker.create("a")
    observed = _fetch(broker, first, _id_of(broker, "a"))
    assert [part.error for part in observed] == [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE]
