"""Unsupported features are refused at once, by an error of each client and not by a timeout."""

import time
from collections.abc import Callable, Iterator

import pytest
from support.kafka_python import KafkaProducer, kafka_errors
from support.waiting import PATIENCE_S

from barnabas import Admin, Broker

pytestmark = [pytest.mark.xdist_group("confluent")]

SOON_S = PATIENCE_S / 2
"""Far below every client's timeout, and far above what it takes."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", coordination="memory", offsets_topic_num_partitions=1) as running:
        with Admin(running) as admin:
            admin.create_topic("t", partitions=1)
        yield running


def seconds(action: Callable[[], object]) -> float:
    began = time.monotonic()
    action()
    return time.monotonic() - began


@pytest.mark.parametrize("version", [(0, 9), (0, 10, 0)])
def test_a_producer_of_the_old_message_format(broker: Broker, version: tuple[int, ...]) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, api_version=version)

    def send() -> None:
        with pytest.raises(kafka_errors.UnsupportedVersionError):
            producer.send("t", b"x").get(PATIENCE_S)

    try:
        assert seconds(send) < SOON_S
    finally:
        producer.close(timeout=1)
