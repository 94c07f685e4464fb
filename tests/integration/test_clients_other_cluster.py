"""Our clients against a cluster that is not ours: the mock cluster inside librdkafka."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from attrs import evolve
from support.group_members import QUICK, member
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Consumer, Message, Producer, SimpleConsumer
from barnabas.adapters.wire_kafka.table import BY_REQUEST
from barnabas.core.client.producer.hashing import crc32_partition, murmur2_partition
from barnabas.ports.broker_api.groups import JoinGroup, LeaveGroup, SyncGroup
from barnabas.ports.types import TopicPartition


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """The addresses of a mock cluster of three brokers; topics have four partitions."""
    owner = confluent_kafka.Producer({"test.mock.num.brokers": 3, "log_level": 0})
    brokers = owner.list_topics(timeout=PATIENCE_S).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del owner


def test_producing_and_reading_back(bootstrap: str) -> None:
    sent = [Message(b"value %d" % n, key=b"key %d" % (n % 11)) for n in range(1000)]
    with Producer(bootstrap) as producer:
        assert producer.send("round", b"first", b"key 0", headers=[("h", b"1")]).result(PATIENCE_S).offset == 0
        assert producer.send_many("round", sent).result(PATIENCE_S) == 1000
    with Consumer(bootstrap) as consumer:
        assert len(consumer.assign("round", position="earliest")) == 4
        received = list(consumer.messages(stop_at_end=True))
    assert sorted((m.key, m.value) for m in received) == sorted(
        [(b"key 0", b"first"), *((m.key, m.value) for m in sent)],
        key=lambda pair: (pair[0] or b"", pair[1] or b""),
    )
    assert [m.headers for m in received if m.value == b"first"] == [(("h", b"1"),)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_our_compressed_batches(bootstrap: str, codec: str) -> None:
    topic = f"written-{codec}"
    with Producer(bootstrap, compression_type=codec) as producer:
        producer.send_many(topic, [b"x" * 200 + b"%d" % n for n in range(300)], partition=0).result(PATIENCE_S)
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "check.crcs": True})
    try:
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[bytes | None] = []
        while len(found) < 300:
            found += [message.value() for message in reader.consume(300, timeout=PATIENCE_S)]
    finally:
        reader.close()
    assert found == [b"x" * 200 + b"%d" % n for n in range(300)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_we_read_compressed_batches_of_librdkafka(bootstrap: str, codec: str) -> None:
    topic = f"read-{codec}"
    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    for number in range(300):
        writer.produce(topic, b"y" * 200 + b"%d" % number, key=b"%d" % number, partition=2)
    assert writer.flush(PATIENCE_S) == 0
    with SimpleConsumer(bootstrap) as simple:
        found = [message for piece in simple.read(topic, 2, 0) for message in piece]
    assert [(m.key, m.value) for m in found] == [(b"%d" % n, b"y" * 200 + b"%d" % n) for n in range(300)]


@pytest.mark.parametrize(
    ("theirs", "ours"), [("murmur2", murmur2_partition), ("consistent", crc32_partition)], ids=["murmur2", "crc32"]
)
def test_keys_go_where_librdkafka_sends_them(bootstrap: str, theirs: str, ours: object) -> None:
    keys = [bytes([n]) * (n % 17 + 1) for n in range(100)]
    partitions: dict[bytes | None, int | None] = {}

    def observed(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        partitions[message.key()] = message.partition()

    writer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": theirs})
    for key in keys:
        writer.produce("hashed", b"", key=key, on_delivery=observed)
    assert writer.flush(PATIENCE_S) == 0
    name = {"murmur2": "murmur2", "consistent": "crc32"}[theirs]
    with Producer(bootstrap, partitioner=name) as producer:
        handles = {key: producer.send("hashed", b"", key) for key in keys}
        assert {key: handle.result(PATIENCE_S).partition for key, handle in handles.items()} == partitions
    assert {key: ours(key, 4) for key in keys} == partitions  # type: ignore[operator]  # one of the two functions


def test_the_cluster_is_described(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("described", b"x", partition=3).result(PATIENCE_S)
    with Admin(bootstrap) as admin:
        (topic,) = admin.describe_topics(["described"])
        assert len(topic.partitions) == 4
        assert {p.leader for p in topic.partitions} <= {1, 2, 3}
        ends = admin.list_offsets({("described", p): "latest" for p in range(4)})
        assert ends == {TopicPartition("described", p): int(p == 3) for p in range(4)}


def test_group_offsets_are_stored_by_their_coordinators(bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send("positions", b"x").result(PATIENCE_S)
    with Admin(bootstrap) as admin:
        groups = [f"group-{number}" for number in range(6)]
        coordinators = {admin.coordinator(group).node_id for group in groups}
        assert len(coordinators) > 1
        for number, group in enumerate(groups):
            assert admin.group_offsets(group, [("positions", 1)]) == {}
            admin.alter_group_offsets(group, {("positions", 1): number})
        for number, group in enumerate(groups):
            found = admin.group_offsets(group, [("positions", 0), ("positions", 1)])
            assert {tp: each.offset for tp, each in found.items()} == {TopicPartition("positions", 1): number}


@pytest.fixture
def versions_of_librdkafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones, which librdkafka never sends, the mock offers, and then hangs up or answers in another version."""
    for kind, highest in ((JoinGroup, 5), (SyncGroup, 3), (LeaveGroup, 1)):
        api = BY_REQUEST[kind]
        monkeypatch.setitem(BY_REQUEST, kind, evolve(api, versions=(api.versions[0], highest)))


@pytest.mark.usefixtures("versions_of_librdkafka")
def test_a_member_of_a_group_there_reads_and_commits(bootstrap: str) -> None:
    """One alone: the mock refuses the assignment of a member that asks for it after the leader has brought it."""
    values = [b"%d" % number for number in range(200)]
    with Producer(bootstrap) as producer:
        for number, value in enumerate(values):
            producer.send("grouped", value, partition=number % 4)
    with member(bootstrap, "grouped", **{**QUICK, "heartbeat_interval_ms": 200, "group_id": "g"}) as one:
        one.wait_until_owned(0, 1, 2, 3)  # its first rebalance takes 3 s
        wait_for(lambda: len(one.values) == len(values))
        assert sorted(one.values) == sorted(values)
        partitions = one.consumer.assignment
    with Consumer(bootstrap, group_id="g") as asking:
        committed = asking.committed(partitions)
        assert {tp: at and at.offset for tp, at in committed.items()} == asking.end_offsets(partitions)
        asking.assign("grouped")
        assert list(asking.messages(stop_at_end=True)) == []
