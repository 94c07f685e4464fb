"""Transactions of librdkafka with one broker: commit, abort, fencing, time, restarts, what administrators see."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from support.confluent import AdminClient
from support.raw_transactions import RawTransactions
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker
from barnabas.ports.error_codes import ErrorCode as E

pytestmark = [pytest.mark.xdist_group("confluent")]

SETTINGS: dict[str, Any] = {
    "coordination": "memory",
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 2,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": 50,
    "group_initial_rebalance_delay_ms": 0,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", **SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.nodeid))}"
    with Admin(broker) as admin:
        admin.create_topic(name, partitions=2)
    return name


def producer(broker: Broker, name: str, **settings: object) -> Producer:
    made = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "linger.ms": 0, "log_level": 0, **settings}
    )
    made.init_transactions(PATIENCE_S)
    return made


def send(sender: Producer, topic: str, *values: bytes, partition: int = 0) -> None:
    for value in values:
        sender.produce(topic, value, partition=partition)
    assert sender.flush(PATIENCE_S) == 0


def transaction(sender: Producer, topic: str, *values: bytes, commit: bool = True) -> None:
    sender.begin_transaction()
    send(sender, topic, *values)
    if commit:
        sender.commit_transaction(PATIENCE_S)
    else:
        sender.abort_transaction(PATIENCE_S)


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[bytes]:
    """Return all values that such a reader gets now, of both partitions."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{topic}-{committed}-{time.monotonic_ns()}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    found: list[bytes] = []
    ends = 0
    try:
        reader.subscribe([topic])
        while ends < 2:
            message = reader.poll(PATIENCE_S)
            assert message is not None, f"nothing more after {found}"
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ends += 1
    finally:
        reader.close()
    return found


def codes(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    code: int = raised.value.args[0].code()
    return code


def test_committed_messages_are_read_and_aborted_ones_are_not(broker: Broker, topic: str) -> None:
    sender = producer(broker, topic)
    transaction(sender, topic, b"1", b"2")
    transaction(sender, topic, b"3", commit=False)
    transaction(sender, topic, b"4")
    sender.begin_transaction()
    send(sender, topic, b"5")
    assert read(broker.bootstrap, topic) == [b"1", b"2", b"4"]
    assert read(broker.bootstrap, topic, committed=False) == [b"1", b"2", b"3", b"4", b"5"]
    sender.commit_transaction(PATIENCE_S)
    assert read(broker.bootstrap, topic) == [b"1", b"2", b"4", b"5"]


def test_a_transaction_over_partitions_and_topics_is_seen_as_a_whole(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    with Admin(broker) as admin:
        admin.create_topic(other, partitions=2)
    sender = producer(broker, topic)
    sender.begin_transaction()
    send(sender, topic, b"a", partition=0)
    send(sender, topic, b"b", partition=1)
    send(sender, other, b"c", partition=1)
    assert read(broker.bootstrap, topic) == []
    sender.commit_transaction(PATIENCE_S)
    assert sorted(read(broker.bootstrap, topic)) == [b"a", b"b"]
    assert read(broker.bootstrap, other) == [b"c"]


def test_a_second_producer_fences_the_first(broker: Broker, topic: str) -> None:
    first = producer(broker, topic)
    first.begin_transaction()
    send(first, topic, b"lost")
    second = producer(broker, topic)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(PATIENCE_S)
    assert codes(fenced) in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
    assert fenced.value.args[0].fatal()
    transaction(second, topic, b"kept")
    assert read(broker.bootstrap, topic) == [b"kept"]


@pytest.mark.slow
def test_a_transaction_that_lasts_too_long_is_aborted(broker: Broker, topic: str) -> None:
    sender = producer(broker, topic, **{"transaction.timeout.ms": 3000, "message.timeout.ms": 3000})
    transaction(sender, topic, b"1")
    sender.begin_transaction()
    send(sender, topic, b"late")
    wait_for(lambda: RawTransactions(broker.bootstrap, topic).describe().state == "CompleteAbort")
    with pytest.raises(KafkaException) as fenced:
        sender.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].fatal()
    assert read(broker.bootstrap, topic) == [b"1"]


def test_a_timeout_that_is_more_than_the_broker_allows() -> None:
    with Broker(storage="memory", **SETTINGS, transaction_max_timeout_ms=5000) as strict:
        sender = Producer(
            {
                "bootstrap.servers": strict.bootstrap,
                "transactional.id": "x",
                "transaction.timeout.ms": 6000,
                "log_level": 0,
            }
        )
        with pytest.raises(KafkaException) as refused:
            sender.init_transactions(PATIENCE_S)
        assert codes(refused) == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_transactions_outlive_the_broker(tmp_path: Path, topic: str) -> None:
    """A stop in order, with one transaction decided and one open."""
    settings = {**SETTINGS, "coordination": "embedded"}
    with Broker(data_dir=tmp_path, **settings) as first:
        with Admin(first) as admin:
            admin.create_topic(topic, partitions=2)
        sender = RawTransactions(first.bootstrap)
        assert sender.init() is E.NONE
        assert sender.add((topic, 0)) == [E.NONE]
        assert sender.produce(topic, b"before") is E.NONE
        assert sender.end(commit=True) is E.NONE
        assert sender.add((topic, 0)) == [E.NONE]
        assert sender.produce(topic, b"across") is E.NONE
    with Broker(data_dir=tmp_path, **settings) as second:
        sender.bootstrap = second.bootstrap
        assert sender.describe().state == "Ongoing"
        assert read(second.bootstrap, topic) == [b"before"]
        assert sender.produce(topic, b"after") is E.NONE
        assert sender.end(commit=True) is E.NONE
        wait_for(lambda: sender.describe().state == "CompleteCommit")
        assert read(second.bootstrap, topic) == [b"before", b"across", b"after"]


def test_a_topic_that_is_deleted_within_a_transaction(broker: Broker, topic: str) -> None:
    doomed = f"{topic}-doomed"
    with Admin(broker) as admin:
        admin.create_topic(doomed, partitions=1)
        sender = RawTransactions(broker.bootstrap, topic)
        assert sender.init() is E.NONE
        assert sender.add((doomed, 0), (topic, 0)) == [E.NONE, E.NONE]
        assert sender.produce(topic, b"kept") is E.NONE
        admin.delete_topics([doomed])
    assert sender.end(commit=True) is E.NONE
    wait_for(lambda: sender.describe().state == "CompleteCommit")
    assert read(broker.bootstrap, topic) == [b"kept"]


def test_the_topic_is_like_kafkas(broker: Broker, topic: str) -> None:
    producer(broker, topic)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    observed = admin.list_topics(timeout=PATIENCE_S).topics["__transaction_state"]
    assert len(observed.partitions) == 2
    with Admin(broker) as ours:
        configs = ours.describe_topic_configs("__transaction_state")
    wanted = {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert {name: configs[name] for name in wanted} == wanted


def test_clients_do_not_write_into_it(broker: Broker, topic: str) -> None:
    sender = producer(broker, topic)
    errors: list[KafkaError | None] = []
    sender.begin_transaction()
    sender.produce("__transaction_state", b"x", partition=0, on_delivery=lambda error, _: errors.append(error))
    with pytest.raises(KafkaException):
        sender.commit_transaction(PATIENCE_S)
    wait_for(lambda: sender.poll(0) or errors)
    assert errors[0] is not None
    transaction(producer(broker, topic), topic, b"1")
    assert read(broker.bootstrap, topic) == [b"1"]


def test_many_producers_side_by_side(broker: Broker, topic: str) -> None:
    senders = [producer(broker, f"{topic}-{number}") for number in range(5)]
    for round_number in range(6):
        for number, sender in enumerate(senders):
            transaction(sender, topic, b"%d-%d" % (number, round_number), commit=round_number % 2 == 0)
    expected = sorted(b"%d-%d" % (number, each) for number in range(5) for each in (0, 2, 4))
    assert sorted(read(broker.bootstrap, topic)) == expected


def test_consume_transform_produce(broker: Broker, topic: str) -> None:
    """Positions and messages count together, or not at all."""
    source, target = f"{topic}-source", f"{topic}-target"
    with Admin(broker) as admin:
        for name in (source, target):
            admin.create_topic(name, partitions=2)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        plain.produce(source, b"%02d" % number, partition=0)
    assert plain.flush(PATIENCE_S) == 0
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    sender = producer(broker, topic)
    for commit, upto in ((False, 3), (True, 5), (False, 7), (True, 10)):
        reader = Consumer(settings)
        try:
            reader.subscribe([source])
            sender.begin_transaction()
            while True:
                message = reader.poll(PATIENCE_S)
                assert message is not None
                assert message.error() is None
                value = message.value() or b""
                sender.produce(target, b"<" + value, partition=1)
                if int(value) == upto - 1:
                    break
            positions = reader.position(reader.assignment())
            sender.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), PATIENCE_S)
            if commit:
                sender.commit_transaction(PATIENCE_S)
            else:
                sender.abort_transaction(PATIENCE_S)
        finally:
            reader.close()
    assert read(broker.bootstrap, target) == [b"<%02d" % number for number in range(10)]
