"""librdkafka's share consumer at a broker on a socket."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.share_groups import read_from_the_beginning, start_offsets
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Producer, TopicPartition
from barnabas.app.embedded_broker import Broker

confluent = pytest.importorskip("confluent_kafka")
if not hasattr(confluent, "ShareConsumer"):
    pytest.skip("confluent-kafka has no share consumer", allow_module_level=True)

pytestmark = [pytest.mark.xdist_group("confluent")]

COUNT = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("shares"), log_retention_ms=-1) as running:
        settings = {"share.delivery.count.limit": "2"}
        read_from_the_beginning(running.bootstrap, "implicit", "explicit", "closed", "flight", settings=settings)
        yield running


def fill(broker: Broker, topic: str, partitions: int = 2) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.create_topic(topic, partitions=partitions)
    with Producer(broker.bootstrap) as producer:
        for number in range(COUNT):
            producer.send(topic, str(number).encode())


class Lines(logging.Handler):
    """Stores what librdkafka says of a consumer's group and requests, for a test that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=80)
        self.has_assignment = False

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        self.has_assignment |= "to share assignment which now consists of" in line
        if not self.lines or self.lines[-1] != line:
            self.lines.append(line)


_said: dict[Any, Lines] = {}
"""The log of each share consumer."""


def share_consumer(broker: Broker, group: str, topic: str, **settings: Any) -> Any:
    logger, lines = logging.Logger(group), Lines()
    logger.addHandler(lines)
    chosen = {"bootstrap.servers": broker.bootstrap, "group.id": group, "debug": "cgrp,protocol", **settings}
    consumer = confluent.ShareConsumer(chosen, logger=logger)
    _said[consumer] = lines
    consumer.subscribe([topic])
    return consumer


def close(consumer: Any) -> None:
    """Close it, or fail. It needs to have its assignment: librdkafka 2.16 waits without an end if it is closed while it
    asks for the topic of a new one, since it then takes the partition over."""
    closing = threading.Thread(target=consumer.close, daemon=True)
    closing.start()
    closing.join(PATIENCE_S)
    said = "\n".join(_said[consumer].lines)
    assert not closing.is_alive(), f"librdkafka does not close its share consumer:\n{said}"


def poll_until(consumer: Any, is_done: Callable[[list[Any]], bool], each: Callable[[Any], None]) -> list[Any]:
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while not is_done(found):
        assert time.monotonic() < deadline, f"{len(found)} messages"
        for message in consumer.poll(0.5):
            assert message.error() is None
            found.append(message)
            each(message)
    return found


def test_implicitly_acknowledged_messages_are_delivered_once(broker: Broker) -> None:
    fill(broker, "implicit")
    consumers = [share_consumer(broker, "implicit", "implicit") for _ in range(2)]
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and not (
        len(found) >= COUNT and all(_said[each].has_assignment for each in consumers)
    ):
        for consumer in consumers:
            found += consumer.poll(0.2)
    assert sorted(int(each.value()) for each in found) == list(range(COUNT))
    for consumer in consumers:
        assert set(consumer.commit_sync(PATIENCE_S).values()) <= {None}
        close(consumer)
    assert sum(start_offsets(broker.bootstrap, "implicit").values()) == COUNT


def test_released_messages_come_again_and_rejected_ones_do_not(broker: Broker) -> None:
    fill(broker, "explicit", 1)
    kinds = confluent.AcknowledgeType
    consumer = share_consumer(broker, "explicit", "explicit", **{"share.acknowledgement.mode": "explicit"})
    seen: dict[int, int] = {}

    def decide(message: Any) -> None:
        number = int(message.value())
        seen[number] = seen.get(number, 0) + 1
        kind = (kinds.ACCEPT, kinds.RELEASE, kinds.REJECT)[number % 3]
        consumer.acknowledge(message, kind)

    wanted = {number: 2 if number % 3 == 1 else 1 for number in range(COUNT)}
    poll_until(consumer, lambda _: seen == wanted, decide)
    assert set(consumer.commit_sync(PATIENCE_S).values()) <= {None}
    close(consumer)
    assert start_offsets(broker.bootstrap, "explicit") == {0: COUNT}


def test_messages_of_a_closed_consumer_go_to_another_one(broker: Broker) -> None:
    fill(broker, "closed", 1)
    settings = {"share.acknowledgement.mode": "explicit"}
    first = share_consumer(broker, "closed", "closed", **settings)
    held = poll_until(first, bool, lambda _: None)
    first.acknowledge(held[0])
    close(first)
    second = share_consumer(broker, "closed", "closed", **settings)
    rest = poll_until(second, lambda found: len(found) == COUNT - 1, second.acknowledge)
    assert held[0].offset() not in {each.offset() for each in rest}
    second.commit_sync(PATIENCE_S)
    close(second)
    assert start_offsets(broker.bootstrap, "closed") == {0: COUNT}


def test_messages_in_flight_are_described(broker: Broker) -> None:
    fill(broker, "flight", partitions=1)
    settings = {"share.acknowledgement.mode": "explicit", "client.id": "holder"}
    consumer = share_consumer(broker, "flight", "flight", **settings)
    deadline = time.monotonic() + PATIENCE_S
    held: list[Any] = []
    while not held and time.monotonic() < deadline:
        held = consumer.poll(0.5)
    tp = TopicPartition("flight", 0)
    with Admin(broker.bootstrap) as admin:
        found = admin.describe_share_partitions("flight")[tp]
        assert (found.start_offset, found.acquired, found.available) == (0, COUNT, 0)
        assert [(each.delivery_count, each.records) for each in found.deliveries] == [(1, COUNT)]
        (holder,) = found.holders
        assert holder.records == COUNT
        assert 0 < holder.lock_ms <= 30_000
        assert admin.describe_share_partitions("nobody") == {}
        close(consumer)
        wait_for(lambda: admin.describe_share_partitions("flight")[tp].acquired == 0)
        assert admin.describe_share_partitions("flight")[tp].available == COUNT
