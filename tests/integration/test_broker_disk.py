"""A broker whose disk is full."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from support.raw import RawConnection, fetch_error_and_records, fetch_v4, produce_error, produce_v3
from support.waiting import PATIENCE_S, wait_for

from barnabas.app.embedded_broker import Broker
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import batch

DISK_BYTES = 2 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A volume of 2 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a volume")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_returns_storage_error_and_stored_messages_stay_readable(small_disk: Path) -> None:
    payload = b"x" * 50_000
    with Broker(small_disk / "data") as broker, RawConnection(broker.bootstrap) as connection:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", payload)
        assert producer.flush(PATIENCE_S) == 0
        written = 1
        for _ in range(2 * DISK_BYTES // len(payload)):
            error = produce_error(connection.exchange(produce_v3("t", bytes(batch(payload)))), "t")
            if error:
                break
            written += 1
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        assert 10 < written < 2 * DISK_BYTES // len(payload)
        assert _count(connection) == written
        for _ in range(3):
            assert produce_error(connection.exchange(produce_v3("t", bytes(batch(payload)))), "t") == error
        segment = small_disk / "data" / "t-0" / f"{0:020d}.log"
        assert segment.stat().st_size == _bytes(connection), "no half batch is left"
    with Broker(small_disk / "data") as broker, RawConnection(broker.bootstrap) as connection:
        assert _count(connection) == written


def test_a_disk_that_is_freed_takes_messages_again(small_disk: Path) -> None:
    """Without a restart, also from an idempotent producer that met the full disk."""
    filler = small_disk / "another user's"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    observed: list[tuple[int, KafkaError | None]] = []
    with Broker(small_disk / "data") as broker, RawConnection(broker.bootstrap) as connection:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0, "retry.backoff.ms": 50}
        )

        def send(number: int) -> None:
            value = b"%d " % number + b"x" * 50_000
            producer.produce("t", value, on_delivery=lambda error, _: observed.append((number, error)))
            producer.poll(0)

        send(0)
        assert producer.flush(PATIENCE_S) == 0
        written = 1
        while not (error := produce_error(connection.exchange(produce_v3("t", bytes(batch(b"y" * 50_000)))), "t")):
            written += 1
        assert error == ErrorCode.KAFKA_STORAGE_ERROR
        for number in range(1, 5):
            send(number)
        assert producer.flush(0.5) > 0, "they wait for the disk"
        filler.unlink()
        wait_for(lambda: not producer.flush(0.1))
        assert observed == [(number, None) for number in range(5)]
        assert _count(connection) == written + 4
        assert produce_error(connection.exchange(produce_v3("t", bytes(batch(b"more")))), "t") == 0
    with Broker(small_disk / "data") as broker, RawConnection(broker.bootstrap) as connection:
        assert _count(connection) == written + 5


def test_a_transaction_that_meets_the_full_disk_commits_once_there_is_room(small_disk: Path) -> None:
    """With what it wrote before and after, and the positions of a group: everything, once."""
    filler = small_disk / "another user's"
    filler.write_bytes(bytes(DISK_BYTES // 2))
    with (
        Broker(small_disk / "data", offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1) as broker,
        RawConnection(broker.bootstrap) as connection,
    ):
        where = {"bootstrap.servers": broker.bootstrap, "retry.backoff.ms": 50, "retry.backoff.max.ms": 50}
        producer = Producer({**where, "transactional.id": "x", "linger.ms": 0})
        reader = Consumer({**where, "group.id": "g", "isolation.level": "read_committed"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce("t", b"before")
        assert producer.flush(PATIENCE_S) == 0
        assert not produce_error(connection.exchange(produce_v3("t", bytes(batch(b"plain")))), "t")
        while not produce_error(connection.exchange(produce_v3("t", bytes(batch(b"y" * 20_000)))), "t"):
            pass
        producer.produce("t", b"z" * 20_000)
        assert producer.flush(0.3) > 0, "it waits for the disk"
        filler.unlink()
        partitions = [TopicPartition("t", 0, 5)]
        producer.send_offsets_to_transaction(partitions, reader.consumer_group_metadata(), PATIENCE_S)
        producer.commit_transaction(PATIENCE_S)
        assert reader.committed([TopicPartition("t", 0)], PATIENCE_S)[0].offset == 5
        reader.assign([TopicPartition("t", 0, 0)])
        found: list[bytes | None] = []

        def all_there() -> bool:
            found.extend(each.value() for each in reader.consume(100, 0.1) if each.error() is None)
            return bool(found) and found[-1] == b"z" * 20_000

        wait_for(all_there)
        reader.close()
        assert [value for value in found if value != b"y" * 20_000] == [b"before", b"plain", b"z" * 20_000]


def test_full_disk_fails_deliveries_of_producer(small_disk: Path) -> None:
    errors: list[KafkaError | None] = []
    with Broker(small_disk / "data") as broker:
        patient = Producer({"bootstrap.servers": broker.bootstrap})
        patient.produce("t", b"x" * 50_000, on_delivery=lambda error, _: errors.append(error))
        assert patient.flush(PATIENCE_S) == 0
        assert errors == [None]
        producer = Producer({"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 1500, "linger.ms": 0})
        for _ in range(100):
            producer.produce("t", b"x" * 50_000, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(PATIENCE_S) == 0
    assert len(errors) == 101
    assert any(errors), "the disk cannot hold them all"


def _records(connection: RawConnection) -> Iterator[bytes]:
    offset = 0
    while True:
        error, records = fetch_error_and_records(connection.exchange(fetch_v4("t", offset)), "t")
        assert error == 0
        headers = list(MessageSet(records).batches())
        if not headers:
            return
        yield records[: sum(header.size for header in headers)]
        offset = headers[-1].next_offset


def _count(connection: RawConnection) -> int:
    return sum(header.count for records in _records(connection) for header in MessageSet(records).batches())


def _bytes(connection: RawConnection) -> int:
    return sum(len(records) for records in _records(connection))
