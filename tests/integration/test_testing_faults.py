"""Faults on demand act on every client library."""

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from aiokafka.errors import KafkaConnectionError
from support.compat.matrix import CLIENTS
from support.compat.model import Client, Record, Sending, Start
from support.waiting import PATIENCE_S, wait_for

from barnabas import Producer
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.broker_api.fetch import Fetch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing import TestBroker

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

RECORDS = [Record(value=b"%d" % number) for number in range(3)]
VALUES = ["0", "1", "2"]


@pytest.fixture
def topic(barnabas_topic: str) -> str:
    return barnabas_topic


@pytest.fixture(params=["barnabas", "librdkafka", "kafka-python", "aiokafka"])
def client(request: pytest.FixtureRequest, barnabas_broker: TestBroker) -> Iterator[Client]:
    made = CLIENTS[request.param].make(barnabas_broker.bootstrap)
    yield made
    made.close()
    if request.param in ("kafka-python", "aiokafka"):  # they leave sockets to the garbage collector
        del made
        gc.collect()


# --- each with four libraries


def test_an_error_of_one_partition_is_retried(barnabas_broker: TestBroker, client: Client, topic: str) -> None:
    with barnabas_broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic=topic, partition=0, times=2) as fault:
        client.produce(topic, RECORDS)
    assert fault.hits == 2
    barnabas_broker.assert_produced(topic, VALUES)


@pytest.mark.parametrize("after", [False, True])
def test_a_dropped_connection_is_made_again(
    barnabas_broker: TestBroker, client: Client, topic: str, after: bool
) -> None:
    with barnabas_broker.faults.drop("Produce", topic=topic, after=after, times=1) as fault:
        client.produce(topic, RECORDS, Sending(idempotent=True))
    assert fault.hits == 1
    barnabas_broker.assert_produced(topic, VALUES)  # each once, though it was sent twice


def test_a_fetch_with_an_error_is_asked_again(barnabas_broker: TestBroker, client: Client, topic: str) -> None:
    barnabas_broker.produce(topic, VALUES)
    with barnabas_broker.faults.error("Fetch", 6, topic=topic, times=1) as fault:
        found = client.read(topic, 3)
    assert [record.value for record in found] == [b"0", b"1", b"2"]
    assert fault.hits == 1


def test_connections_are_refused(
    request: pytest.FixtureRequest, barnabas_broker: TestBroker, client: Client, topic: str
) -> None:
    with barnabas_broker.faults.refuse(times=1) as fault:
        if request.node.callspec.params["client"] == "aiokafka":  # it tries each bootstrap address once
            with pytest.raises(KafkaConnectionError):
                client.produce(topic, RECORDS)
        else:
            client.produce(topic, RECORDS)
    assert fault.hits == 1
    if not barnabas_broker.produced(topic):
        client.produce(topic, RECORDS)
    barnabas_broker.assert_produced(topic, VALUES)


# --- with some


def test_an_error_that_is_no_use_to_retry(barnabas_broker: TestBroker, topic: str) -> None:
    barnabas_broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", topic=topic)
    with barnabas_broker.producer() as producer, pytest.raises(ApiError) as refused:
        producer.send(topic, b"a").result(PATIENCE_S)
    assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    observed: list[Any] = []
    foreign = confluent_kafka.Producer({"bootstrap.servers": barnabas_broker.bootstrap, "log_level": 0})
    foreign.produce(topic, b"a", on_delivery=lambda error, _: observed.append(error))
    foreign.flush(PATIENCE_S)
    assert [error.code() for error in observed] == [confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert barnabas_broker.produced(topic) == []


def test_an_answer_that_comes_too_late(barnabas_broker: TestBroker, topic: str) -> None:
    """The producer sends the batch again, and the broker recognises it."""
    with barnabas_broker.faults.delay("Produce", 60_000, topic=topic, times=1) as fault:
        with barnabas_broker.producer(request_timeout_ms=200) as producer:
            producer.send(topic, b"ours").result(PATIENCE_S)
        assert fault.hits == 1
    with barnabas_broker.faults.delay("Produce", 60_000, topic=topic, times=1) as fault:
        foreign = confluent_kafka.Producer(
            {
                "bootstrap.servers": barnabas_broker.bootstrap,
                "socket.timeout.ms": 1000,
                "request.timeout.ms": 300,
                "retry.backoff.ms": 20,
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        foreign.produce(topic, b"foreign")
        assert foreign.flush(PATIENCE_S) == 0
        assert fault.hits == 1
    barnabas_broker.assert_produced(topic, ["ours", "foreign"])


def test_a_short_delay(barnabas_broker: TestBroker, topic: str) -> None:
    barnabas_broker.faults.delay("Produce", 100, topic=topic)
    with barnabas_broker.producer() as producer:
        started = time.monotonic()
        producer.send(topic, b"a").result(PATIENCE_S)
        assert time.monotonic() - started >= 0.1


def test_an_answer_is_held_until_the_fault_is_removed(barnabas_broker: TestBroker, topic: str) -> None:
    with barnabas_broker.producer() as producer:
        fault = barnabas_broker.faults.delay("Produce", topic=topic, times=1)
        sent = producer.send(topic, b"a")
        fault.wait()
        assert not fault.active
        with pytest.raises(ClientTimeout):
            sent.result(0.05)
        barnabas_broker.assert_produced(topic, ["a"])  # it is done; only the answer waits
        fault.remove()
        sent.result(PATIENCE_S)
        held = barnabas_broker.faults.delay("Produce", topic=topic, times=1)
        second = producer.send(topic, b"b")
        held.wait()
        barnabas_broker.faults.clear()
        second.result(PATIENCE_S)


def test_metadata_and_offsets(barnabas_broker: TestBroker, topic: str) -> None:
    barnabas_broker.produce(topic, VALUES)
    faults = barnabas_broker.faults
    no_leader = faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic=topic, times=2)
    no_offset = faults.error("ListOffsets", "OFFSET_NOT_AVAILABLE", topic=topic, times=2)
    with barnabas_broker.consumer() as consumer:
        consumer.assign(topic)
        assert len(list(consumer.messages(stop_at_end=True))) == 3
    assert (no_leader.hits, no_offset.hits) == (2, 2)
    gone = faults.error("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic=topic, times=1)
    foreign: Client = CLIENTS["librdkafka"].make(barnabas_broker.bootstrap)
    assert len(foreign.read(topic, 3, Start(offset=confluent_kafka.OFFSET_BEGINNING))) == 3
    foreign.close()
    assert gone.hits == 1


def test_groups_with_faults(barnabas_broker: TestBroker, barnabas_group: str, topic: str) -> None:
    barnabas_broker.produce(topic, VALUES)
    faults = barnabas_broker.faults
    made = [
        faults.error("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", group=barnabas_group, times=1),
        faults.error("SyncGroup", "REBALANCE_IN_PROGRESS", group=barnabas_group, times=1),
        faults.error("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", group=barnabas_group, times=1),
        faults.error("OffsetCommit", "REQUEST_TIMED_OUT", topic=topic, times=1),
    ]
    foreign = confluent_kafka.Consumer(
        {
            "bootstrap.servers": barnabas_broker.bootstrap,
            "group.id": barnabas_group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "retry.backoff.ms": 20,
            "log_level": 0,
        }
    )
    try:
        foreign.subscribe([topic])
        found: list[Any] = []
        wait_for(lambda: found.append(foreign.poll(0.05)) or len([each for each in found if each]) == 3)  # type: ignore[func-returns-value]  # to call it
        foreign.commit(asynchronous=False)
    finally:
        foreign.close()
    assert [fault.hits for fault in made] == [1] * len(made)


def test_every_connection_is_closed(barnabas_broker: TestBroker, topic: str) -> None:
    with barnabas_broker.producer() as producer:
        producer.send(topic, b"a").result(PATIENCE_S)
        with barnabas_broker.faults.refuse() as refused:
            barnabas_broker.disconnect_clients()
            sent = producer.send(topic, b"b")
            refused.wait()
            assert not sent.done
        sent.result(PATIENCE_S)
    barnabas_broker.assert_produced(topic, ["a", "b"])


def test_fault_applies_to_matching_requests(barnabas_broker: TestBroker, topic: str) -> None:
    faults = barnabas_broker.faults
    with barnabas_broker.producer(client_id="me") as mine, barnabas_broker.producer(client_id="other") as others:
        fault = faults.error("Produce", "INVALID_RECORD", client_id="me")
        others.send(topic, b"a").result(PATIENCE_S)
        with pytest.raises(ApiError):
            mine.send(topic, b"b").result(PATIENCE_S)
        fault.remove()
        fault.remove()
        threads: set[str] = set()

        def seen(request: Any, caller: Any) -> bool:
            threads.add(threading.current_thread().name)
            return bool(caller.client_id == "other" and request.acks == -1)

        faults.drop("Produce", when=seen, times=1)
        mine.send(topic, b"c").result(PATIENCE_S)
        others.send(topic, b"d").result(PATIENCE_S)
        assert threads == {"barnabas-broker"}
    barnabas_broker.assert_produced(topic, ["a", "c", "d"])


def test_several_faults_act_one_after_the_other(barnabas_broker: TestBroker, topic: str) -> None:
    faults = barnabas_broker.faults
    slow = faults.delay(0, 50, topic=topic)
    wrong = faults.error(0, 6, topic=topic, times=1)
    assert faults.active == (slow, wrong)
    assert repr(wrong) == f"<error Produce topic={topic!r}, 0 hits>"
    with barnabas_broker.producer() as producer:
        producer.send(topic, b"a").result(PATIENCE_S)
    assert (slow.hits, wrong.hits) == (2, 1)
    with pytest.raises(TimeoutError, match=r"has happened 1 times in 0\.01 s, not 2"):
        wrong.wait(2, timeout=0.01)


def test_faults_outlive_a_restart(barnabas_broker: TestBroker, topic: str) -> None:
    fault = barnabas_broker.faults.error("Produce", 6, topic=topic, times=1)
    barnabas_broker.restart()
    with Producer(barnabas_broker, linger_ms=0, retry_backoff_ms=10) as producer:
        producer.send(topic, b"a").result(PATIENCE_S)
    assert fault.hits == 1
    barnabas_broker.produce(topic, ["b"])
    with barnabas_broker.faults.error(Fetch, 1, topic=topic):
        barnabas_broker.assert_produced(topic, ["a", "b"])  # past the faults


def test_a_producer_that_cannot_deliver_does_not_keep_a_test_for_minutes() -> None:
    with TestBroker() as broker:
        settings = broker.producer().settings
        assert settings.delivery_timeout_ms <= 10_000
        assert broker.producer(delivery_timeout_ms=60_000).settings.delivery_timeout_ms == 60_000
