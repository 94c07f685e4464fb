"""Consumers that share the partitions of a topic: who joins, leaves, hangs, crashes, comes back."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.group_members import QUICK, member
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer
from barnabas.core.client.errors import CommitFailed
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.tcp_proxy import TcpProxy

ALL = [0, 1, 2, 3]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With the topic t, of four partitions."""
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0, group_min_session_timeout_ms=50) as broker:
        with Admin(broker) as admin:
            admin.create_topic("t", partitions=4)
        yield broker


@pytest.fixture
def fill(broker: Broker) -> Iterator[Callable[[int], list[bytes]]]:
    """Yield a function that sends `count` messages to all partitions in turn, and returns their values."""
    sent = 0

    with Producer(broker, linger_ms=0) as producer:

        def send(count: int) -> list[bytes]:
            nonlocal sent
            values = [b"%d" % number for number in range(sent, sent + count)]
            for number, value in enumerate(values):
                producer.send("t", value, partition=number % 4)
            producer.flush()
            sent += count
            return values

        yield send


def tps(*partitions: int) -> list[TopicPartition]:
    return [TopicPartition("t", partition) for partition in partitions]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_come_and_go_and_every_message_is_read_once(
    broker: Broker, fill: Callable[[int], list[bytes]], strategy: str
) -> None:
    how = {"partition_assignment_strategy": strategy, "group_id": f"share-{strategy}"}
    expected = fill(100)
    with member(broker, **how) as one:
        one.wait_until_owned(*ALL)
        with member(broker.bootstrap, **how) as two:
            wait_for(lambda: len(one.partitions) == len(two.partitions) == 2 and two.consumer.settled)
            expected += fill(100)
            with member(broker.bootstrap, **how) as three:
                wait_for(lambda: sorted(one.partitions + two.partitions + three.partitions) == ALL and three.partitions)
                expected += fill(100)
                wait_for(lambda: len(one.values + two.values + three.values) >= 300)
            wait_for(lambda: len(one.partitions) == len(two.partitions) == 2)
            expected += fill(100)
            wait_for(lambda: len(one.values + two.values + three.values) >= 400)
            assert two.values
            assert three.values
        one.wait_until_owned(*ALL)
        expected += fill(100)
        wait_for(lambda: len(one.values + two.values + three.values) >= 500)
    assert sorted(one.values + two.values + three.values) == sorted(expected)


def test_eager_rebalance_listener_gets_all_partitions_on_polling_thread(broker: Broker) -> None:
    with member(broker, group_id="eager") as one:
        one.wait_until_owned(*ALL)
        assert one.events == [("assigned", tps(*ALL))]
        with member(broker, group_id="eager") as two:
            wait_for(lambda: len(one.partitions) == len(two.partitions) == 2 and len(one.events) == 3)
            assert one.events[1:] == [("revoked", tps(*ALL)), ("assigned", tps(*one.partitions))]
        assert [what for what, _ in two.events] == ["assigned", "revoked"]
        one.wait_until_owned(*ALL)
        assert one.threads == {one.thread}
    assert [what for what, _ in one.events] == ["assigned", "revoked", "assigned", "revoked", "assigned", "revoked"]


def test_cooperative_rebalance_listener_gets_moved_partitions_only(broker: Broker) -> None:
    how = {"partition_assignment_strategy": "cooperative-sticky", "group_id": "cooperative"}
    with member(broker, **how) as one:
        one.wait_until_owned(*ALL)
        with member(broker, **how) as two:
            wait_for(lambda: len(two.partitions) == 2 and two.consumer.settled)
            moved = two.consumer.assignment
            assert [event for event in one.events if event[1]] == [("assigned", tps(*ALL)), ("revoked", moved)]
        one.wait_until_owned(*ALL)
        assert [event for event in one.events if event[1]][2:] == [("assigned", moved)]


def test_paused_partition_stays_paused_while_assigned(broker: Broker, fill: Callable[[int], list[bytes]]) -> None:
    with member(broker, group_id="paused") as one:
        one.wait_until_owned(*ALL)
        one.consumer.pause(("t", 0))
        with member(broker, group_id="paused"):
            wait_for(lambda: len(one.partitions) == 2)
            assert one.consumer.paused == [tp for tp in tps(0) if 0 in one.partitions]
        one.wait_until_owned(*ALL)
        was_mine = one.consumer.paused
        fill(40)
        wait_for(lambda: len(one.messages) >= 30)
        if was_mine:
            assert {message.partition for message in one.messages} == {1, 2, 3}


def test_a_pattern_finds_topics_that_come_later(broker: Broker) -> None:
    with (
        Admin(broker) as admin,
        Producer(broker) as producer,
        member(broker, pattern=r"logs\..*", group_id="pattern", metadata_max_age_ms=30) as one,
    ):
        wait_for(lambda: one.consumer.settled)
        assert one.consumer.subscription == []
        for name in ("logs.a", "other", "logs.b"):
            admin.create_topic(name, partitions=1)
            producer.send(name, name.encode()).result()
        wait_for(lambda: len(one.messages) == 2)
        assert sorted(one.values) == [b"logs.a", b"logs.b"]
        assert one.consumer.subscription == ["logs.a", "logs.b"]


def test_a_static_member_may_be_restarted_without_a_rebalance(broker: Broker) -> None:
    with member(broker, group_id="static", group_instance_id="one") as first:
        first.wait_until_owned(*ALL)
        with member(broker, group_id="static") as other:
            wait_for(lambda: len(other.partitions) == 2 and other.consumer.settled)
            before, generation = first.partitions, other.consumer.group_metadata.generation_id
            wait_for(lambda: first.partitions == [number for number in ALL if number not in other.partitions])
            before = first.partitions
            first.stop()
            with member(broker, group_id="static", group_instance_id="one") as second:
                second.wait_until_owned(*before)
                assert second.consumer.group_metadata.group_instance_id == "one"
                assert other.consumer.group_metadata.generation_id == generation
                assert [what for what, _ in other.events] == ["assigned"]


def test_two_of_one_name_are_not_possible(broker: Broker) -> None:
    first = Consumer(broker, **QUICK, group_id="fenced", group_instance_id="one")
    first.subscribe("t")
    assert list(first.messages(stop_at_end=True)) == []
    with Consumer(broker, **QUICK, group_id="fenced", group_instance_id="one") as second:
        second.subscribe("t")
        assert list(second.messages(stop_at_end=True)) == []
        with pytest.raises(ApiError) as caught:
            list(first.messages(timeout=PATIENCE_S))
        assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
        with pytest.raises(CommitFailed):
            first.commit({("t", 0): 0})
    first.close()


def test_member_that_does_not_poll_is_out_until_it_polls(broker: Broker) -> None:
    with (
        member(broker, group_id="slow", max_poll_interval_ms=300) as slow,
        member(broker, group_id="slow") as other,
    ):
        wait_for(lambda: len(slow.partitions) == len(other.partitions) == 2)
        slow.hold.clear()
        other.wait_until_owned(*ALL)
        with pytest.raises(CommitFailed, match=r"max\.poll\.interval\.ms=300"):
            slow.consumer.commit({("t", 0): 0})
        slow.hold.set()
        wait_for(lambda: len(slow.partitions) == len(other.partitions) == 2)
        assert "lost" in [what for what, _ in slow.events]


def test_expelled_member_stays_out_with_fetched_messages(broker: Broker, fill: Callable[[int], list[bytes]]) -> None:
    fill(40)
    observed: list[str] = []
    settings = {**QUICK, "group_id": "g", "max_poll_interval_ms": 100, "enable_auto_commit": False}
    with Admin(broker) as admin, Consumer(broker, **settings) as consumer:
        consumer.subscribe(
            "t", on_assigned=lambda _: observed.append("assigned"), on_lost=lambda _: observed.append("lost")
        )
        assert consumer.poll(PATIENCE_S) is not None
        wait_for(lambda: admin.describe_groups(["g"])[0].state == "Empty")
        assert {admin.describe_groups(["g"])[0].state for _ in range(50)} == {"Empty"}
        assert consumer.poll(PATIENCE_S) is not None
        assert observed == ["assigned", "lost", "assigned"]


def test_a_topic_that_is_deleted_does_not_hold_up_its_readers(
    broker: Broker, fill: Callable[[int], list[bytes]]
) -> None:
    settings = {**QUICK, "group_id": "g", "metadata_max_age_ms": 50, "allow_auto_create_topics": False}
    settings["default_api_timeout_ms"] = int(5 * PATIENCE_S * 1000)
    with Admin(broker) as admin, Producer(broker) as producer, Consumer(broker, **settings) as consumer:
        admin.create_topic("u", partitions=1)
        producer.send("u", b"not committed yet").result(PATIENCE_S)
        consumer.subscribe(["t", "u"])
        assert consumer.poll(PATIENCE_S) is not None
        admin.delete_topics(["u"])
        began = time.monotonic()
        wait_for(lambda: not consumer.poll_many() and all(tp.topic == "t" for tp in consumer.assignment))
        fill(1)
        assert consumer.poll(PATIENCE_S) is not None
        assert time.monotonic() - began < PATIENCE_S / 2  # not until the commit of u has run out of time


def test_member_that_works_on_fetched_messages_counts_as_alive(
    broker: Broker, fill: Callable[[int], list[bytes]]
) -> None:
    fill(400)
    with Consumer(broker, **QUICK, group_id="steady", max_poll_interval_ms=1500) as consumer:
        consumer.subscribe("t", on_lost=lambda _: pytest.fail("it was alive"))
        messages = consumer.messages(timeout=PATIENCE_S)
        generation, work = 0, threading.Event()
        for number, _ in enumerate(messages):
            generation = generation or consumer.group_metadata.generation_id
            if number >= 50:
                break
            work.wait(0.04)
        assert consumer.group_metadata.generation_id == generation == 1


def test_a_member_that_crashes_costs_one_session_timeout(broker: Broker) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    proxy = TcpProxy((host, int(port)))
    settings: dict[str, Any] = {"group_id": "crash", "session_timeout_ms": 400}
    try:
        with member(broker, **settings) as other:
            lost = Consumer(f"127.0.0.1:{proxy.port}", **{**QUICK, **settings})
            # The broker advertises its own address: the way through the proxy is kept for all requests.
            lost._shell._links._address = lambda _: ("127.0.0.1", proxy.port)
            lost.subscribe("t")
            wait_for(lambda: lost.poll_many() is not None and len(lost.assignment) == 2)
            other.wait_until_owned(*(number for number in ALL if TopicPartition("t", number) not in lost.assignment))
            proxy.cut()
            other.wait_until_owned(*ALL)
            proxy.restore()
            wait_for(lambda: lost.poll_many() is not None and lost.settled and len(lost.assignment) == 2)
            lost.close()
    finally:
        proxy.close()
