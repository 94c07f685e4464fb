"""`barnabas groups list` and `Admin.list_group_lags`: which groups lag, by how many messages and since when."""

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.command import Command
from support.group_member import IdleMember
from support.waiting import PATIENCE_S

from barnabas import Admin, Message, Producer, TopicPartition
from barnabas.app.clients.admin import consumer_lag
from barnabas.app.clients.admin.consumer_lag import first_timestamp
from barnabas.app.clients.shared.client_shell import ClientShell
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.testing import TestBroker, TestCluster

HOUR_MS = 3_600_000
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture(scope="module")
def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="module")
def broker(now_ms: int) -> Iterator[TestBroker]:
    """Topic `t`: partition 0 with ten messages, ten to one hours old, in one compressed batch; 1 with a new one."""
    with TestBroker(log_retention_ms=-1) as running:
        running.create_topic("t", partitions=2)
        with Producer(running.bootstrap, compression_type="lz4", linger_ms=50) as producer:
            sent = [Message(b"%d" % n, timestamp_ms=now_ms - (10 - n) * HOUR_MS) for n in range(10)]
            producer.send_many("t", sent, partition=0).result(PATIENCE_S)
            producer.send("t", b"new", partition=1).result(PATIENCE_S)
        yield running


@pytest.fixture
def admin(broker: TestBroker) -> Iterator[Admin]:
    with Admin(broker.bootstrap) as client:
        yield client


@pytest.fixture
def run(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "--bootstrap", broker.bootstrap)


def test_lag_in_messages_and_in_time_is_that_of_the_oldest_unread_message(admin: Admin, now_ms: int) -> None:
    admin.alter_group_offsets("behind", {T0: 7, T1: 0})
    admin.alter_group_offsets("ready", {T0: 10, T1: 1})
    member = IdleMember(admin, "read-nothing", [T0])
    found = {each.group_id: each for each in admin.list_group_lags()}
    behind = found["behind"]
    assert (behind.lag, behind.unread_since_ms) == (4, now_ms - 3 * HOUR_MS), "in the middle of a compressed batch"
    assert (behind.state, behind.members, behind.topics, behind.coordinator) == ("Empty", 0, ["t"], 1)
    assert (found["ready"].lag, found["ready"].unread_since_ms) == (0, None)
    reading = found["read-nothing"]
    assert (reading.members, reading.protocol, reading.lag) == (1, "range", None)
    assert admin.group_lag("behind", times=True)[T0].unread_since_ms == now_ms - 3 * HOUR_MS
    assert admin.group_lag("behind")[T0].unread_since_ms is None, "only if it is asked for"
    assert all(each.unread_since_ms is None for each in admin.list_group_lags(times=False))
    assert [each.group_id for each in admin.list_group_lags(states=["Stable"])] == ["read-nothing"]
    del member


def test_groups_list_sorts_by_lag_and_by_time(admin: Admin, run: Command) -> None:
    admin.alter_group_offsets("a-new-one", {T1: 0})
    admin.alter_group_offsets("b-old-one", {T0: 9})
    admin.alter_group_offsets("c-most", {T0: 8})
    names = [row["group"] for row in json.loads(run("groups", "list", "--sort", "lag", "--json").out)]
    assert names.index("c-most") < names.index("a-new-one") < names.index("b-old-one")
    rows = json.loads(run("groups", "list", "--sort", "time", "--json").out)
    names = [row["group"] for row in rows]
    assert names.index("c-most") < names.index("b-old-one") < names.index("a-new-one")
    lines = run("groups", "list").out.splitlines()
    assert lines[0].split() == ["GROUP", "STATE", "TYPE", "PROTOCOL", "MEMBERS", "LAG", "LAG_TIME", "TOPICS"]
    assert next(line.split() for line in lines if line.startswith("c-most")) == [
        *("c-most", "Empty", "classic", "-", "0", "2", "2h", "t")
    ]
    described = run("groups", "describe", "c-most").out.splitlines()
    assert described[1].split()[4:6] == ["LAG", "LAG_TIME"]
    assert described[2].split()[4:6] == ["2", "2h"]


def test_many_groups_take_few_requests(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def count(name: str) -> None:
        method: Callable[..., Any] = getattr(ClientShell, name)

        def counted(self: ClientShell, *words: Any, **more: Any) -> Any:
            asked.append(name)
            return method(self, *words, **more)

        monkeypatch.setattr(ClientShell, name, counted)

    with Admin(broker.bootstrap) as admin:
        for number in range(250):
            admin.alter_group_offsets(f"many-{number:03}", {T0: number % 5, T1: 0})
        for name in ("ask", "ask_leaders"):
            count(name)
        found = [each for each in admin.list_group_lags() if each.group_id.startswith("many")]
    assert [each.lag for each in found] == [11 - number % 5 for number in range(250)]
    assert all(each.unread_since_ms is not None for each in found)
    assert len(asked) < 30, "of which 6 to 8 are for 250 groups and more, and one for each distinct offset"


def test_deleted_and_unreadable_messages_and_bounded_work(
    admin: Admin, broker: TestBroker, monkeypatch: pytest.MonkeyPatch, now_ms: int
) -> None:
    broker.create_topic("short", partitions=1)
    tp = TopicPartition("short", 0)
    with broker.producer() as producer:
        for age in (5, 4, 3):
            producer.send("short", b"x", timestamp_ms=now_ms - age * HOUR_MS).result(PATIENCE_S)
    admin.alter_group_offsets("late", {tp: 0, T0: 0})
    admin.delete_records({tp: 2})
    (late,) = [each for each in admin.list_group_lags() if each.group_id == "late"]
    assert late.unread_since_ms == now_ms - 10 * HOUR_MS
    assert admin.group_lag("late", times=True)[tp].unread_since_ms == now_ms - 3 * HOUR_MS, "the first that is left"
    admin.delete_topics(["short"])
    (late,) = [each for each in admin.list_group_lags() if each.group_id == "late"]
    assert late.lag == 10, "of the partitions that exist"
    monkeypatch.setattr(consumer_lag, "PARTITIONS_PER_ROUND", 1)
    monkeypatch.setattr(consumer_lag, "ROUNDS_MAX", 2)
    for group, offset in (("early-1", 1), ("early-2", 2)):
        admin.alter_group_offsets(group, {T0: offset})
    admin.alter_group_offsets("other", {T1: 0})
    known = {each.group_id for each in admin.list_group_lags() if each.unread_since_ms is not None}
    assert {"late", "other"} <= known, "each partition has its turn, the oldest offset first"
    assert not {"early-1", "early-2"} & known
    monkeypatch.setattr(consumer_lag, "ROUNDS_MAX", 0)
    (late,) = [each for each in admin.list_group_lags() if each.group_id == "late"]
    assert (late.lag, late.unread_since_ms) == (10, None)


def test_lag_in_time_needs_the_right_to_read_the_topic() -> None:
    with TestBroker(security="SASL_PLAINTEXT", users={"alice": "secret"}) as broker:
        broker.create_topic("t", partitions=1)
        broker.produce("t", [b"x"])
        with Admin(broker.bootstrap, config=broker.client_settings("alice")) as admin:
            admin.alter_group_offsets("g", {T0: 0})
            broker.deny("User:alice", "Read", "topic:t")
            (found,) = admin.list_group_lags()
    assert (found.lag, found.unread_since_ms) == (1, None), "the ends need only the right to describe it"


def test_groups_of_all_coordinators_and_leaders_are_summed() -> None:
    with TestCluster(brokers=3, offsets_topic_num_partitions=8) as cluster, Admin(cluster.bootstrap) as admin:
        cluster.create_topic("t", partitions=6)
        for partition in range(6):
            cluster.produce("t", [b"x"] * (partition + 1), partition=partition)
        for number in range(8):
            admin.alter_group_offsets(f"g{number}", {TopicPartition("t", p): 0 for p in range(6)})
        found = admin.list_group_lags()
    assert [(each.group_id, each.lag) for each in found] == [(f"g{number}", 21) for number in range(8)]
    assert len({each.coordinator for each in found}) > 1
    assert all(each.unread_since_ms is not None for each in found)


def test_first_timestamp_of_a_truncated_batch_is_that_of_its_header() -> None:
    with TestBroker(log_retention_ms=-1) as broker, Admin(broker.bootstrap) as admin:
        broker.create_topic("t", partitions=1)
        with Producer(broker.bootstrap, linger_ms=50, batch_size=200_000) as producer:
            sent = [Message(bytes(1000), timestamp_ms=1_700_000_000_000 + n) for n in range(100)]
            producer.send_many("t", sent, partition=0).result(PATIENCE_S)
        broker.create_topic("u", partitions=1)
        broker.produce("u", [b"x"])
        admin.alter_group_offsets("g", {T0: 50, TopicPartition("u", 0): 0})
        (found,) = admin.list_group_lags()
    assert found.unread_since_ms is not None
    assert 0 <= found.unread_since_ms - 1_700_000_000_000 <= 50
    assert first_timestamp(b"", 0, builtin_codecs()) is None
    assert first_timestamp(bytes(40), 0, builtin_codecs()) is None
