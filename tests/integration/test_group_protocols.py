"""The choice between the group protocols at our own broker."""

import pytest

from barnabas import Consumer, Producer
from barnabas.testing import TestBroker

pytestmark = [pytest.mark.process]


def test_auto_reads_and_commits_whatever_the_broker_offers() -> None:
    with TestBroker() as broker:
        with Producer(broker.bootstrap) as producer:
            for number in range(10):
                producer.send("t", str(number).encode())
        for expected in (10, 0):
            with Consumer(
                broker.bootstrap, group_id="g", group_protocol="auto", auto_offset_reset="earliest"
            ) as consumer:
                consumer.subscribe("t")
                assert len(list(consumer.messages(stop_at_end=True))) == expected


def test_pattern_of_auto_survives_the_change_to_the_classic_protocol() -> None:
    with TestBroker() as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("orders-1", b"a")
            producer.send("orders-2", b"b")
            producer.send("bills", b"c")
        with Consumer(broker.bootstrap, group_id="g", group_protocol="auto", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(pattern="orders-[0-9]")
            values = sorted(message.value or b"" for message in consumer.messages(stop_at_end=True))
    assert values == [b"a", b"b"]
