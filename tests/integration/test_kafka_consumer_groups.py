"""Groups of group.protocol=consumer (KIP-848), at this broker and at Apache Kafka: our members alone, and with
others."""

import asyncio
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from support.compat.java_client import QUICK, java_classpath
from support.kafka_server import KafkaServer
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, AsyncConsumer, Broker, Consumer, Producer
from barnabas.core.coordinator.group import expressions
from barnabas.ports.types import TopicPartition

APACHE, BARNABAS = "apache", "barnabas"
SERVERS = [BARNABAS, pytest.param(APACHE, marks=[pytest.mark.process, pytest.mark.slow])]
HEARTBEAT_MS = 500
"""The heartbeat interval of this broker's groups: 5 s, the default, would make the scenarios long."""

PARTITIONS = 6


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def bootstrap(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if server == BARNABAS:
        with Broker(
            storage="memory",
            coordination="memory",
            offsets_topic_num_partitions=1,
            group_consumer_min_heartbeat_interval_ms=HEARTBEAT_MS,
            group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
        ) as broker:
            yield broker.bootstrap
        return
    kafka = KafkaServer(tmp_path_factory.mktemp("kafka"))
    kafka.start()
    try:
        kafka.wait_ready()
        yield kafka.bootstrap
    finally:
        kafka.stop()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
    return name


def fill(bootstrap: str, topic: str, first: int, count: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(first, first + count):
            producer.send(topic, str(number).encode(), partition=number % PARTITIONS)


class Member:
    """One of our consumers, with what its listener was called for and the messages that it got."""

    def __init__(self, bootstrap: str, group: str, **settings: Any) -> None:
        chosen = {"group_protocol": "consumer", "auto_offset_reset": "earliest", **settings}
        self.consumer = Consumer(bootstrap, group_id=group, **chosen)
        self.calls: list[tuple[str, list[TopicPartition]]] = []
        self.values: list[bytes | None] = []

    def subscribe(self, *topics: str, pattern: str | None = None) -> "Member":
        self.consumer.subscribe(
            list(topics) or None,
            on_assigned=lambda partitions: self.calls.append(("assigned", partitions)),
            on_revoked=lambda partitions: self.calls.append(("revoked", partitions)),
            on_lost=lambda partitions: self.calls.append(("lost", partitions)),
            pattern=pattern,
        )
        return self

    def poll(self) -> None:
        self.values += [message.value for message in self.consumer.poll_many(100, 0.05)]

    @property
    def count(self) -> int:
        return len(self.consumer.assignment)


class Librdkafka:
    """A member of confluent-kafka."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: str) -> None:
        chosen = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings}
        self.consumer = confluent_kafka.Consumer(chosen)
        self.consumer.subscribe([topic])
        self.values: list[bytes | None] = []

    def poll(self) -> None:
        message = self.consumer.poll(0.05)
        if message is not None and message.error() is None:
            self.values.append(message.value())

    @property
    def count(self) -> int:
        return len(self.consumer.assignment())


def poll_until(members: Sequence[Any], true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, [(member.count, len(member.values)) for member in members]
        for member in members:
            member.poll()


def has_all(member: Any) -> bool:
    return bool(member.count == PARTITIONS)


def close(*members: Any) -> None:
    for member in members:
        member.consumer.close()


def test_members_share_partitions_and_each_message_is_read_once(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, 60)
    a, b = (Member(bootstrap, topic).subscribe(topic) for _ in range(2))
    poll_until([a, b], lambda: a.count == b.count == 3 and len(a.values + b.values) >= 60)
    fill(bootstrap, topic, 60, 60)
    poll_until([a, b], lambda: len(a.values + b.values) >= 120)
    assert sorted(int(value or b"") for value in a.values + b.values) == list(range(120))
    metadata = a.consumer.group_metadata
    assert metadata.generation_id > 1
    assert len(metadata.member_id) == 22
    close(b)
    poll_until([a], lambda: a.count == PARTITIONS)
    fill(bootstrap, topic, 120, 60)
    poll_until([a], lambda: len(a.values + b.values) >= 180)
    assert sorted(int(value or b"") for value in a.values + b.values) == list(range(180))
    close(a)
    assert not [partitions for what, partitions in a.calls + b.calls if what == "lost"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_listener_is_called_alike_by_both_protocols(bootstrap: str, topic: str, protocol: str) -> None:
    """New partitions once, before their messages; an empty list when nothing new came; what goes, before it goes."""
    settings = {"group_protocol": protocol}
    if protocol == "classic":
        settings["partition_assignment_strategy"] = "cooperative-sticky"
    every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    a = Member(bootstrap, topic, **settings).subscribe(topic)
    poll_until([a], lambda: a.count == PARTITIONS)
    b = Member(bootstrap, topic, **settings).subscribe(topic)
    poll_until([a, b], lambda: a.count == b.count == 3 and a.calls[-1] == ("assigned", []))
    revoked = sorted(tp for what, partitions in a.calls if what == "revoked" for tp in partitions)
    assert revoked == b.consumer.assignment
    assert [partitions for what, partitions in a.calls if what == "assigned" and partitions] == [every]
    got = [partitions for what, partitions in b.calls if what == "assigned" and partitions]
    assert got == [b.consumer.assignment]
    close(a, b)
    assert a.calls[-1] == ("revoked", [each for each in every if each not in revoked])


@pytest.mark.parametrize(
    "other",
    [
        {"group.protocol": "consumer"},
        {"group.protocol": "classic", "partition.assignment.strategy": "cooperative-sticky"},
    ],
    ids=["librdkafka-consumer", "librdkafka-classic"],
)
def test_new_member_shares_a_group_with_librdkafka_and_a_classic_member(
    bootstrap: str, topic: str, other: dict[str, str]
) -> None:
    fill(bootstrap, topic, 0, 60)
    new = Member(bootstrap, topic).subscribe(topic)
    classic = Member(
        bootstrap, topic, group_protocol="classic", partition_assignment_strategy="cooperative-sticky"
    ).subscribe(topic)
    foreign = Librdkafka(bootstrap, topic, topic, **other)
    members: list[Any] = [new, classic, foreign]
    poll_until(members, lambda: [member.count for member in members] == [2, 2, 2])
    fill(bootstrap, topic, 60, 60)
    poll_until(members, lambda: len({value for member in members for value in member.values}) == 120)
    close(foreign, new)
    poll_until([classic], lambda: classic.count == PARTITIONS)
    close(classic)


def test_new_member_shares_a_group_with_one_of_librdkafka(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, 60)
    new = Member(bootstrap, topic).subscribe(topic)
    foreign = Librdkafka(bootstrap, topic, topic, **{"group.protocol": "consumer"})
    members: list[Any] = [new, foreign]
    poll_until(members, lambda: [member.count for member in members] == [3, 3])
    fill(bootstrap, topic, 60, 60)
    poll_until(members, lambda: len({value for member in members for value in member.values}) == 120)
    close(foreign)
    poll_until([new], lambda: new.count == PARTITIONS)
    close(new)


def test_pattern_is_matched_by_the_broker_and_finds_new_topics(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expressions, "REFRESH_AFTER_CHANGE_MS", 300)  # of this process: Apache Kafka waits 10 s
    member = Member(bootstrap, topic).subscribe(pattern=f"{topic}(-more)?")
    poll_until([member], lambda: member.count == PARTITIONS)
    assert member.consumer.subscription == [topic]
    with Admin(bootstrap) as admin:
        admin.create_topic(f"{topic}-more", partitions=1)
    poll_until([member], lambda: member.count == PARTITIONS + 1)
    close(member)


def test_static_member_returns_to_its_partitions(bootstrap: str, topic: str) -> None:
    a, b = (Member(bootstrap, topic, group_instance_id=name).subscribe(topic) for name in ("one", "two"))
    poll_until([a, b], lambda: a.count == b.count == 3)
    had = a.consumer.assignment
    epoch = b.consumer.group_metadata.generation_id
    close(a)
    again = Member(bootstrap, topic, group_instance_id="one").subscribe(topic)
    poll_until([again, b], lambda: again.count == 3)
    assert again.consumer.assignment == had
    assert b.consumer.group_metadata.generation_id == epoch
    close(again, b)


def test_transaction_takes_the_offsets_of_a_member(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, 12)
    member = Member(bootstrap, topic, enable_auto_commit=False).subscribe(topic)
    poll_until([member], lambda: len(member.values) == 12)
    with Producer(bootstrap, transactional_id=topic) as producer, producer.transaction():
        producer.send_offsets(member.consumer)
    committed = member.consumer.committed()
    assert {at.offset for at in committed.values() if at is not None} == {2}
    close(member)


def test_new_member_that_stops_at_the_end_reads_everything(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, 60)
    with Consumer(bootstrap, group_id=topic, group_protocol="consumer", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(topic)
        assert len(list(consumer.messages(stop_at_end=True))) == 60


def test_asyncio_consumer_joins_by_the_new_protocol(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 0, 6)

    async def read() -> list[bytes | None]:
        async with AsyncConsumer(
            bootstrap, group_id=topic, group_protocol="consumer", auto_offset_reset="earliest"
        ) as consumer:
            await consumer.subscribe(topic)
            return [message.value async for message in consumer.messages(stop_at_end=True)]

    assert len(asyncio.run(read())) == 6


def test_auto_chooses_the_new_protocol_unless_a_setting_needs_the_classic_one(bootstrap: str, topic: str) -> None:
    with ExitStack() as stack:
        chosen: list[str] = []
        variants: list[dict[str, Any]] = [
            {},
            {"session_timeout_ms": 30_000},
            {"partition_assignment_strategy": "sticky"},
        ]
        for settings in variants:
            group = f"{topic}-{len(chosen)}"
            member = Member(bootstrap, group, group_protocol="auto", **settings).subscribe(topic)
            stack.callback(close, member)
            poll_until([member], partial(has_all, member))
            assert member.consumer._group is not None
            chosen.append(member.consumer._group.membership.group_protocol)
    assert chosen == ["consumer", "classic", "classic"]


def test_member_that_does_not_poll_loses_its_partitions_and_returns(bootstrap: str, topic: str) -> None:
    every = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    fill(bootstrap, topic, 0, 12)
    member = Member(bootstrap, topic, max_poll_interval_ms=3_000).subscribe(topic)
    poll_until([member], lambda: len(member.values) == 12)
    member.consumer.commit()
    wait_for(lambda: not member.consumer.settled)
    poll_until([member], lambda: ("lost", every) in member.calls and member.calls[-1] == ("assigned", every))
    assert [what for what, partitions in member.calls if partitions] == ["assigned", "lost", "assigned"]
    assert len(member.values) == 12
    close(member)


@pytest.mark.process
@pytest.mark.slow
def test_member_shares_a_group_with_one_of_java(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """The member is Kafka's own VerifiableConsumer, which prints each event as a line of JSON."""
    fill(bootstrap, topic, 0, 60)
    command = ["java", *QUICK, "-cp", java_classpath(4), "org.apache.kafka.tools.VerifiableConsumer"]
    options = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", topic, "--reset-policy", "earliest"]
    with (tmp_path / "java.log").open("wb") as log:
        java = subprocess.Popen([*command, *options, "--group-protocol", "consumer"], stdout=log, stderr=log)
    try:
        member = Member(bootstrap, topic).subscribe(topic)
        poll_until([member], lambda: b"partitions_assigned" in (tmp_path / "java.log").read_bytes())
        poll_until([member], lambda: member.count == PARTITIONS // 2)
        fill(bootstrap, topic, 60, 60)
        poll_until([member], lambda: {b"offsets_committed"} <= events_of(tmp_path) and len(member.values) >= 30)
    finally:
        java.terminate()
        java.wait()
    poll_until([member], partial(has_all, member))
    close(member)


def events_of(folder: Path) -> set[bytes]:
    found = re.findall(rb'"name":"(\w+)"', (folder / "java.log").read_bytes())
    return set(found)
