"""`TestBroker` without pytest's fixtures: its life, what it says was produced, its clock, its groups."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas import Consumer, DeliveryFailed, Producer
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from barnabas.testing import Message, TestBroker, assert_produced, own_clients, produced

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


def _can_connect(broker: TestBroker) -> bool:
    host, _, port = broker.bootstrap.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    return True


# --- life


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_restart_keeps_the_address_and_the_data(tmp_path: Path, on_disk: bool) -> None:
    with TestBroker(data_dir=tmp_path / "data" if on_disk else None) as broker:
        address = broker.bootstrap
        topic = broker.create_topic(partitions=2, configs={"retention.ms": 123_456})
        broker.produce(topic, ["a", "b"], partition=1)
        broker.restart()
        assert broker.bootstrap == address
        assert [message.value for message in broker.produced(topic)] == [b"a", b"b"]
        with broker.admin() as admin:
            assert admin.topic_overrides(topic) == {"retention.ms": "123456"}
        broker.stop()
        broker.stop()
        assert not broker.running
        assert not _can_connect(broker)
        with pytest.raises(ClosedError, match=r"call start\(\)"):
            broker.produced(topic)
        broker.start()
        assert broker.start() is broker
        assert broker.bootstrap == address
        assert len(broker.produced(topic)) == 2
    assert not _can_connect(broker)
    broker.close()
    assert (tmp_path / "data").exists() == on_disk


def test_clients_continue_after_test_broker_restart(broker: TestBroker) -> None:
    topic = broker.create_topic()
    with broker.producer() as producer, broker.consumer() as consumer:
        consumer.assign(topic)
        foreign = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "log_level": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 20,
                "linger.ms": 0,
            }
        )
        foreign.produce(topic, b"foreign before")
        assert foreign.flush(PATIENCE_S) == 0
        producer.send(topic, b"before").result(PATIENCE_S)
        broker.stop()
        foreign.produce(topic, b"foreign while stopped")
        sent = producer.send(topic, b"while stopped")
        broker.start()
        sent.result(PATIENCE_S)
        assert foreign.flush(PATIENCE_S) == 0
        found = [message.value for message in consumer.messages(stop_at_end=True)]
    assert sorted(value or b"" for value in found) == [
        b"before",
        b"foreign before",
        b"foreign while stopped",
        b"while stopped",
    ]


def test_test_broker_accepts_settings_and_rejects_unknown_ones() -> None:
    with TestBroker({"num.partitions": 3, "auto.create.topics.enable": "false"}, message_max_bytes=1000) as broker:
        assert broker.config.num_partitions == 3
        assert broker.config.message_max_bytes == 1000
        assert broker.config.group_initial_rebalance_delay_ms == 0
        assert len({message.partition for message in broker.produced(broker.create_topic())}) == 0
        with broker.admin() as admin:
            assert len(admin.describe_topics([broker.create_topic()])[0].partitions) == 3
        assert broker.produced("nothing") == []
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        TestBroker({"num.partition": 3})


def test_several_test_brokers_are_separate_and_need_explicit_choice(broker: TestBroker) -> None:
    with TestBroker() as other:
        assert other.bootstrap != broker.bootstrap
        other.produce("t", ["a"])
        assert broker.produced("t") == []
        with pytest.raises(ConfigError, match=r"\d test brokers run here"):
            assert_produced("t", ["a"])
        assert_produced("t", ["a"], broker=other)
        assert_produced("t", ["a"], broker=other.bootstrap)


def test_clients_in_the_process_go_through_the_faults(broker: TestBroker) -> None:
    topic = broker.create_topic()
    with Producer(broker, linger_ms=0) as producer, Producer(broker.inner, linger_ms=0) as past:
        with broker.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED") as fault:
            with pytest.raises(ApiError) as refused:
                producer.send(topic, b"a").result(PATIENCE_S)
            assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            past.send(topic, b"b").result(PATIENCE_S)
        assert fault.hits == 1
        assert not fault.active
    broker.assert_produced(topic, ["b"])


# --- what was produced


def test_messages_of_a_foreign_client_are_asserted(broker: TestBroker) -> None:
    topic = broker.create_topic()
    for codec in CODECS:
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "linger.ms": 5}
        )
        for number in range(3):
            producer.produce(topic, b"%d" % number * 100, key=codec, headers={"codec": codec})
        assert producer.flush(PATIENCE_S) == 0
    found = broker.assert_produced(
        topic,
        [str(number) * 100 for _ in CODECS for number in range(3)],
        keys=[codec for codec in CODECS for _ in range(3)],
        headers=[{"codec": codec} for codec in CODECS for _ in range(3)],
    )
    assert [message.offset for message in found] == list(range(15))
    assert found == broker.produced(topic)
    lz4 = broker.assert_produced(topic, count=3, where=lambda message: message.key == b"lz4")
    assert [message.offset for message in lz4] == [9, 10, 11]


def test_assert_produced_waits_for_later_messages(broker: TestBroker) -> None:
    topic = "not-there-yet"
    with broker.producer() as producer:

        def produce() -> None:
            for value in (b"a", b"b", b"c"):
                producer.send(topic, value).result(PATIENCE_S)

        timer = threading.Timer(0.1, produce)
        timer.start()
        try:
            assert len(broker.assert_produced(topic, ["a", "b", "c"], timeout=PATIENCE_S)) == 3
        finally:
            timer.join()


def test_assert_produced_failure_lists_actual_messages(broker: TestBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, [("k", {"id": 1}), ("k", None), Message(b"last", headers=(("h", b"v"),))])
    with pytest.raises(AssertionError) as failed:
        broker.assert_produced(topic, [{"id": 1}, "last", "more"], timeout=0.05)
    assert str(failed.value).splitlines() == [
        f"{topic}: 1 of 3 expected messages are missing (no further message can change that)",
        "  0-0: value={\"id\": 1} key='k'",
        "+ 0-1: value=None key='k'",
        "  0-2: value='last' headers={'h': 'v'}",
        "- value='more'",
    ]
    with pytest.raises(AssertionError, match="there is no topic nowhere; expected a message, found none"):
        broker.assert_produced("nowhere", timeout=0.05)
    broker.assert_produced("nowhere", count=0)
    with pytest.raises(AssertionError, match="expected 2 messages, found 3"):  # in vain: no waiting
        broker.assert_produced(topic, count=2, timeout=60)


def test_assert_produced_fails_at_once_when_no_message_can_help(
    broker: TestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first red test is explained by one look at the topic."""
    topic = broker.create_topic()
    broker.produce(topic, ["a", "b"])
    waits: list[float] = []
    monkeypatch.setattr(produced._Reader, "more", lambda _reader, timeout: waits.append(timeout))
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="1 of 2 expected messages are missing"):
        broker.assert_produced(topic, ["a", "c"], timeout=1000)
    with pytest.raises(AssertionError, match="no further message can change that"):
        broker.assert_produced(topic, ["b", "c"], mode="any_order", timeout=1000)
    assert time.monotonic() - begun < 500
    assert waits == []


def test_assert_produced_checks_order_per_partition(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=3)
    for partition in (2, 1, 0):
        broker.produce(topic, [f"{partition}a", f"{partition}b"], partition=partition)
    broker.assert_produced(topic, ["2b", "2a", "1a", "1b", "0a", "0b"])
    broker.assert_produced(topic, ["2a", "2b"], partition=2)
    broker.assert_produced(topic, ["1a"], mode="contains")
    with pytest.raises(AssertionError, match="messages are missing"):
        broker.assert_produced(topic, ["2b", "2a"], partition=2, timeout=0)
    with pytest.raises(ConfigError, match="give partition="):
        broker.assert_produced(topic, ["0a"], mode="ordered")
    with pytest.raises(ApiError, match="has 3 partitions, no 7"):
        broker.assert_produced(topic, ["0a"], partition=7)
    assert [message.value for message in broker.produced(topic, partition=1)] == [b"1a", b"1b"]


# --- the clock


def test_messages_expire_when_the_clock_jumps() -> None:
    with TestBroker() as broker:
        topic = broker.create_topic(configs={"retention.ms": 60_000})
        broker.produce(topic, ["old"])
        broker.jump(seconds=30)
        assert len(broker.produced(topic)) == 1
        broker.jump(minutes=1)
        assert broker.produced(topic) == []
        assert broker.produce(topic, [Message(b"new", timestamp_ms=broker.clock.now_ms())])[0].offset == 1
        broker.jump(seconds=30)
        assert [message.value for message in broker.produced(topic)] == [b"new"]
        broker.stop()
        broker.jump(hours=1)
        broker.start()
        wait_for(lambda: broker.produced(topic) == [])
        with pytest.raises(ConfigError, match="does not go back"):
            broker.jump(seconds=-1)


def test_an_open_connection_lives_through_a_jump(broker: TestBroker) -> None:
    topic = broker.create_topic(configs={"retention.ms": -1})
    with broker.producer() as producer, broker.consumer(fetch_max_wait_ms=60_000) as consumer:
        consumer.assign(topic)
        producer.send(topic, b"a").result(PATIENCE_S)
        assert consumer.poll(PATIENCE_S) is not None
        broker.jump(days=8)
        producer.send(topic, b"b").result(PATIENCE_S)
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value == b"b"
    broker.clock.set_right()


# --- groups


def _member(broker: TestBroker, group: str, topic: str, client_id: str, **settings: object) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    consumer.subscribe([topic])
    return consumer


def _assigned(*members: confluent_kafka.Consumer, partitions: int) -> None:
    """Poll until the members share all partitions."""

    def shared() -> bool:
        for member in members:
            member.poll(0.01)
        counts = [len(member.assignment()) for member in members]
        return sum(counts) == partitions and all(counts)

    wait_for(shared)


def test_the_first_join_of_a_group_does_not_wait(broker: TestBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["a"])
    with closing(_member(broker, "quick", topic, "one")) as consumer:
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"a"


def test_a_member_expires(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=4)
    with closing(_member(broker, "g", topic, "one")) as one, closing(_member(broker, "g", topic, "two")) as two:
        _assigned(one, two, partitions=4)
        with broker.faults.error("JoinGroup", "COORDINATOR_NOT_AVAILABLE", client_id="two"):
            expired = broker.expire_member("g", "two")
            assert expired.startswith("two-")
            _assigned(one, partitions=4)
        _assigned(one, two, partitions=4)
        with pytest.raises(ConfigError, match=r"'three' is not a member of group g, there is: (one|two)-.* \(client"):
            broker.expire_member("g", "three")
        with pytest.raises(ConfigError, match=r"no group 'h', there is: .*g"):
            broker.expire_member("h", "two")


def test_a_static_member_expires(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=2)
    with closing(_member(broker, "s", topic, "one", **{"group.instance.id": "instance"})) as one:
        _assigned(one, partitions=2)
        with broker.faults.drop("JoinGroup", group="s"), broker.admin() as admin:
            expired = broker.expire_member("s", "instance")
            assert expired not in [member.member_id for member in admin.describe_groups(["s"])[0].members]
            with pytest.raises(ConfigError, match="not a member of group s, there is: no member"):
                broker.expire_member("s", expired)


def test_expired_member_of_new_protocol_gives_its_partitions_to_others(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=4)
    with (
        broker.consumer(client_id="one", group_id="modern", group_protocol="consumer") as one,
        broker.consumer(client_id="two", group_id="modern", group_protocol="consumer") as two,
    ):
        for consumer in (one, two):
            consumer.subscribe(topic)

        def have(*counts: int) -> bool:
            for consumer in (one, two):
                consumer.poll(0.02)
            return (len(one.assignment), len(two.assignment)) == counts

        wait_for(lambda: have(2, 2), PATIENCE_S)
        with broker.faults.error("ConsumerGroupHeartbeat", "COORDINATOR_NOT_AVAILABLE", client_id="two"):
            assert broker.expire_member("modern", "two") == two.group_metadata.member_id
            wait_for(lambda: one.poll(0.02) is None and len(one.assignment) == 4, PATIENCE_S)
        wait_for(lambda: have(2, 2), PATIENCE_S)


def test_share_consumer_reads_from_the_beginning_and_its_locks_lapse_when_the_clock_jumps(broker: TestBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["a"])
    with (
        broker.share_consumer(client_id="slow", group_id="shared", share_acknowledgement_mode="explicit") as slow,
        broker.share_consumer(group_id="shared") as other,
    ):
        for consumer in (slow, other):
            consumer.subscribe(topic)
        message = slow.poll(PATIENCE_S)
        assert message is not None
        assert (message.value, message.delivery_count) == (b"a", 1)
        broker.jump(seconds=31)
        again = other.poll(PATIENCE_S)
        assert again is not None
        assert (again.value, again.delivery_count) == (b"a", 2)
        assert broker.expire_member("shared", "slow")
        assert set(other.commit_sync().values()) == {None}


def test_sessions_end_when_the_clock_jumps(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=2)
    with closing(_member(broker, "j", topic, "one", **{"session.timeout.ms": 30_000})) as one:
        _assigned(one, partitions=2)
        with broker.faults.drop(client_id="one"), broker.admin() as admin:
            broker.jump(seconds=31)
            described = admin.describe_groups(["j"])[0]
            assert (described.state, described.members) == ("Empty", [])
        _assigned(one, partitions=2)
    broker.clock.set_right()


def test_positions_outlive_a_restart(broker: TestBroker) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["a", "b"])
    with closing(_member(broker, "kept", topic, "one")) as one:
        message = one.poll(PATIENCE_S)
        assert message is not None
        one.commit(message=message, asynchronous=False)
    broker.restart()
    with closing(_member(broker, "kept", topic, "one")) as one:
        message = one.poll(PATIENCE_S)
        assert message is not None
        assert message.value() == b"b"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_our_own_consumer_in_a_group(broker: TestBroker, protocol: str) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["a"])
    settings: dict[str, Any] = {"group_id": f"ours-{protocol}", "group_protocol": protocol, "client_id": "mine"}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        metadata = consumer.group_metadata
        assert broker.expire_member(metadata.group_id, "mine") == metadata.member_id
        broker.produce(topic, ["b"])
        wait_for(lambda: (found := consumer.poll(0.1)) is not None and found.value == b"b")


@pytest.mark.parametrize("how", ["refused", "stopped"])
def test_test_producer_closes_soon_when_broker_is_unreachable(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that has heard nothing of its topic."""
    monkeypatch.setattr(own_clients, "_GIVES_UP_MS", 400)
    with TestBroker() as broker, ExitStack() as stack:
        if how == "stopped":
            broker.stop()
        else:
            stack.enter_context(broker.faults.refuse())
        began = time.monotonic()
        with pytest.raises(DeliveryFailed), broker.producer() as producer:
            sent = producer.send("new", b"x")
        assert time.monotonic() - began < PATIENCE_S / 2
        with pytest.raises(BarnabasError):
            sent.result(0)
