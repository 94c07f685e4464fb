"""The behaviour of a consumer in a group for its user: commits, positions, listeners, errors."""

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.group_members import QUICK
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Message, Producer
from barnabas.app.clients.aio import AsyncConsumer
from barnabas.app.clients.consumer.rebalance_listener import RebalanceListener
from barnabas.core.client.errors import CommitFailed, NoOffset
from barnabas.core.client.group.events import CommittedOffset
from barnabas.ports.errors import BarnabasError, ClosedError, ConfigError
from barnabas.ports.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """With the topic t: ten messages in partition 0, with their offsets as values, and five in partition 1."""
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0) as broker:
        with Admin(broker) as admin, Producer(broker, linger_ms=0) as producer:
            admin.create_topic("t", partitions=2)
            for number in range(10):
                producer.send("t", b"%d" % number, partition=0, timestamp_ms=1000 * number)
            for number in range(5):
                producer.send("t", b"%d" % number, partition=1, timestamp_ms=1000 * number)
        yield broker


def consumer_of(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(broker, **{**QUICK, "group_id": "g", **settings})


def committed(broker: Broker, group: str = "g") -> dict[TopicPartition, int]:
    with Consumer(broker, group_id=group) as asking:
        found = asking.committed([T0, T1])
    return {tp: at.offset for tp, at in found.items() if at is not None}


def offsets(messages: Any) -> list[tuple[int, int]]:
    return sorted((message.partition, message.offset) for message in messages)


WHOLE = [*((0, number) for number in range(10)), *((1, number) for number in range(5))]


# --- commits


def test_next_consumer_resumes_at_committed_offset(broker: Broker) -> None:
    with consumer_of(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        read = []
        for message in consumer.messages(stop_at_end=True):
            read.append(message)
            if message.partition == 0 and message.offset == 3:
                consumer.commit(message)
            if len(read) == 12:
                break
        assert committed(broker) == {T0: 4}
        consumer.commit()
    assert committed(broker) == {T0: 10, T1: 2} or committed(broker) == {T0: 7, T1: 5}
    with consumer_of(broker) as consumer:
        consumer.subscribe("t")
        rest = list(consumer.messages(stop_at_end=True))
    assert offsets([*read, *rest]) == WHOLE


def test_ways_to_say_what_is_committed(broker: Broker) -> None:
    class Theirs:
        """The consumer interface of other libraries."""

        offset, metadata, leader_epoch = 6, "theirs", None

    with consumer_of(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        read = sorted(consumer.messages(stop_at_end=True), key=lambda m: (m.partition, m.offset))
        for what, expected in (
            (read[2], {T0: CommittedOffset(3)}),
            ([read[4], read[1], read[11]], {T0: CommittedOffset(5), T1: CommittedOffset(2)}),
            (read[9], {T0: CommittedOffset(10, leader_epoch=0)}),
            ({("t", 0): 8}, {T0: CommittedOffset(8)}),
            ({T0: CommittedOffset(7, 3, "mine")}, {T0: CommittedOffset(7, 3, "mine")}),
            ({T0: Theirs()}, {T0: CommittedOffset(6, -1, "theirs")}),
            (None, {T0: CommittedOffset(10, 0), T1: CommittedOffset(5, 0)}),
        ):
            consumer.commit(what)
            assert expected.items() <= consumer.committed().items()
        for wrong in (["x"], Message(b""), {T0: "1"}, {T0: -1}, {T0: True}):
            with pytest.raises(ConfigError):
                consumer.commit(wrong)


def test_a_commit_that_is_not_waited_for(broker: Broker) -> None:
    observed: list[Any] = []
    with consumer_of(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        list(consumer.messages(stop_at_end=True))
        consumer.commit_async({T0: 3}, lambda *what: observed.append((*what, threading.current_thread())))
        wait_for(lambda: committed(broker) == {T0: 3})
        assert not observed
        assert consumer.poll() is None
        wait_for(lambda: consumer.poll() is None and observed)
        assert observed == [({T0: CommittedOffset(3)}, None, threading.current_thread())]
        consumer.commit_async(callback=lambda *what: observed.append(what))
        consumer.commit({T0: 4})
        wait_for(lambda: len(observed) == 2)
        assert committed(broker) == {T0: 4, T1: 5}


def test_positions_are_committed_at_an_interval_but_not_what_is_being_worked_on(broker: Broker) -> None:
    with consumer_of(broker, auto_commit_interval_ms=20) as consumer:
        consumer.subscribe("t")
        messages = consumer.messages()
        first = next(messages)
        tp = TopicPartition(first.topic, first.partition)
        wait_for(lambda: consumer._group is not None and consumer._group.wanted)  # the commit is due
        assert committed(broker).get(tp, 0) == 0
        next(messages)
        wait_for(lambda: committed(broker).get(tp, 0) >= 1)
        assert committed(broker)[tp] < 5
        while consumer.poll(1) is not None:
            pass
        wait_for(lambda: consumer.poll() is None and committed(broker) == {T0: 10, T1: 5})


def test_lists_are_committed_when_the_user_comes_back(broker: Broker) -> None:
    with consumer_of(broker, auto_commit_interval_ms=0) as consumer:
        consumer.subscribe("t")
        found = consumer.poll_many(3, PATIENCE_S)
        tp = TopicPartition("t", found[0].partition)
        before = committed(broker)
        assert before.get(tp, 0) == 0
        consumer.poll_many(1, PATIENCE_S)
        wait_for(lambda: committed(broker).get(tp) == len(found))


def test_closing_commits_and_an_exception_does_not(broker: Broker) -> None:
    with pytest.raises(ZeroDivisionError), consumer_of(broker) as consumer:
        consumer.subscribe("t")
        for _ in consumer:
            1 / 0  # noqa: B018  # the user's work fails
    assert committed(broker) == {}
    with consumer_of(broker) as consumer:
        consumer.subscribe("t")
        assert offsets(consumer.messages(stop_at_end=True)) == WHOLE
    assert committed(broker) == {T0: 10, T1: 5}


def test_an_interrupt_while_messages_are_waited_for_commits(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), consumer_of(broker) as consumer:
        consumer.subscribe("t")
        assert offsets(consumer.messages(stop_at_end=True)) == WHOLE
        monkeypatch.setattr(consumer, "_wait_for_fetch", interrupted)
        next(iter(consumer))
    assert committed(broker) == {T0: 10, T1: 5}


def test_after_a_caught_interrupt_the_next_messages_are_not_done(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(ZeroDivisionError), consumer_of(broker) as consumer:
        consumer.subscribe("t")
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(consumer, "_wait_for_fetch", interrupted)
            consumer.poll(PATIENCE_S)
        assert consumer.poll(PATIENCE_S) is not None
        1 / 0  # noqa: B018  # the user's work fails
    assert committed(broker) == {}


def test_close_without_auto_commit_commits_nothing(broker: Broker) -> None:
    with consumer_of(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        list(consumer.messages(stop_at_end=True))
    assert committed(broker) == {}


def test_commits_are_refused_once_another_has_the_partitions(broker: Broker) -> None:
    with consumer_of(broker, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        list(consumer.messages(stop_at_end=True))
        member_id = consumer.group_metadata.member_id
        consumer.unsubscribe()
        assert member_id
        assert consumer.group_metadata.member_id == ""
        with consumer_of(broker, auto_offset_reset="earliest") as other:
            other.subscribe("t")
            list(other.messages(stop_at_end=True))
            with pytest.raises(CommitFailed):
                consumer.commit({T0: 1})


# --- assigned by hand


def test_assigned_partitions_resume_at_committed_offset_of_group(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign(T0)
        assert consumer.poll_many(4, PATIENCE_S)[0].offset == 0
        assert consumer.group_metadata.generation_id == -1
    at = committed(broker)[T0]
    assert at >= 1
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.assign(T0)
        assert consumer.position(T0) == at
        with pytest.raises(ConfigError, match="say where to begin"):
            consumer.assign([T0, T1])
        consumer.assign(T0, position=9)
        consumer.commit()
    assert committed(broker) == {T0: 9}


def test_a_member_and_an_assignment_do_not_mix(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.assign(T0)
        with pytest.raises(ConfigError, match="unsubscribe"):
            consumer.subscribe("t")
        consumer.unsubscribe()
        consumer.subscribe("t")
        with pytest.raises(ConfigError, match="unsubscribe"):
            consumer.assign(T0)
        assert offsets(consumer.messages(stop_at_end=True)) == WHOLE
        assert consumer.subscription == ["t"]
        consumer.unsubscribe()
        assert not consumer.assignment
        assert not consumer.subscription
        with pytest.raises(ConfigError, match="nothing is assigned"):
            consumer.poll()


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({}, "topics, or to a pattern"),
        ({"topics": "t", "pattern": "t"}, "topics, or to a pattern"),
        ({"topics": []}, "at least one"),
        ({"topics": [""]}, "at least one"),
        ({"pattern": "("}, "regular expression"),
        ({"topics": "t", "listener": object()}, "no on_assigned"),
        ({"topics": "t", "listener": RebalanceListener(), "on_lost": print}, "not both"),
    ],
)
def test_subscriptions_that_cannot_be_are_named(broker: Broker, how: dict[str, Any], text: str) -> None:
    with consumer_of(broker) as consumer, pytest.raises(ConfigError, match=text):
        consumer.subscribe(**how)


def test_unknown_assignment_strategy_raises_config_error(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="cooperative-sticky"):
        consumer_of(broker, partition_assignment_strategy="fair")
    with pytest.raises(ConfigError, match="has no name"):
        consumer_of(broker, partition_assignment_strategy=[object()])


# --- listeners


def test_a_listener_says_where_to_begin(broker: Broker) -> None:
    class Later(RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            assert consumer.position(T0) == 0
            consumer.seek(T0, 8)
            consumer.seek_to_time(3000, [T1])
            consumer.commit({T1: 2})
            assert consumer.committed(partitions) == {T0: None, T1: CommittedOffset(2)}

    with consumer_of(broker) as consumer:
        consumer.subscribe("t", listener=Later())
        assert offsets(consumer.messages(stop_at_end=True)) == [(0, 8), (0, 9), (1, 3), (1, 4)]


def test_error_of_a_listener_reaches_the_user_and_breaks_nothing(broker: Broker) -> None:
    def fail(_: Any) -> None:
        raise KeyError("mine")

    with consumer_of(broker) as consumer:
        consumer.subscribe("t", on_assigned=fail)
        with pytest.raises(KeyError, match="mine"):
            consumer.poll(PATIENCE_S)
        assert offsets(consumer.messages(stop_at_end=True)) == WHOLE
        consumer.subscribe("t", on_revoked=fail)
        with pytest.raises(KeyError, match="mine"):
            consumer.unsubscribe()
        assert consumer.assignment == []


def test_a_listener_must_not_ask_for_messages(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.subscribe("t", on_assigned=lambda _: consumer.poll())
        with pytest.raises(BarnabasError, match="must not ask for messages"):
            consumer.poll(PATIENCE_S)


def test_without_a_position_and_a_policy_a_partition_waits_for_a_seek(broker: Broker) -> None:
    with consumer_of(broker, auto_offset_reset="none") as consumer:
        consumer.subscribe("t", on_assigned=lambda _: consumer.seek(T1, 3))
        found = []
        with pytest.raises(NoOffset, match="no offset of t-0"):
            while True:
                found += consumer.poll_many(1, PATIENCE_S)
        assert offsets(found) in ([], [(1, 3)], [(1, 3), (1, 4)])
        consumer.seek(T0, 9)
        assert offsets([*found, *consumer.messages(stop_at_end=True)]) == [(0, 9), (1, 3), (1, 4)]


# --- ends, lag, closing


def test_lag_is_known_from_fetch_responses(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.subscribe("t", on_assigned=lambda _: consumer.seek(T0, 4))
        assert consumer.lag() == {}
        taken = next(consumer.messages())
        assert sum(consumer.lag().values()) == 10
        assert consumer.lag([T0])[T0] == (5 if taken.partition == 0 else 6)
        list(consumer.messages(stop_at_end=True))
        assert consumer.lag() == {T0: 0, T1: 0}


def test_the_end_of_members_is_the_end_of_their_partitions(broker: Broker) -> None:
    read: list[Any] = []

    def work() -> None:
        with consumer_of(broker) as consumer:
            consumer.subscribe("t")
            joined.wait()
            read.extend(consumer.messages(stop_at_end=True))

    joined = threading.Barrier(3)
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(PATIENCE_S)
    assert offsets(read) == WHOLE


def test_a_member_with_nothing_to_read_is_at_the_end(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        consumer.subscribe(pattern="nothing.*")
        assert list(consumer.messages(stop_at_end=True)) == []


def test_closing_from_another_thread_ends_iterating(broker: Broker) -> None:
    consumer = consumer_of(broker)
    consumer.subscribe("t")
    read: list[Message] = []

    def close_when_idle() -> None:
        wait_for(lambda: len(read) == len(WHOLE) and consumer._asked)
        consumer.close()

    closing = threading.Thread(target=close_when_idle)
    closing.start()
    with pytest.raises(ClosedError):
        for message in consumer:
            read.append(message)
    closing.join()
    assert committed(broker) == {T0: 10, T1: 5}
    consumer.close()


def test_iteration_raises_closed_error_after_close_by_other_thread(broker: Broker) -> None:
    consumer = consumer_of(broker)
    consumer.subscribe("t")
    with pytest.raises(ClosedError):
        for _ in consumer:
            closing = threading.Thread(target=consumer.close)
            closing.start()
            closing.join()


def test_a_broker_that_has_gone_holds_up_closing_for_a_limited_time(broker: Broker) -> None:
    consumer = consumer_of(broker)
    consumer.subscribe("t")
    list(consumer.messages(stop_at_end=True))
    broker.close()
    observed: list[Any] = []
    consumer.commit_async({T0: 1}, lambda _, error: observed.append(error))
    consumer.close(0.1)
    assert len(observed) == 1
    assert isinstance(observed[0], BarnabasError)
    with pytest.raises(ClosedError):
        consumer.commit({T0: 1})


# --- asyncio


def test_the_same_with_asyncio(broker: Broker) -> None:
    async def story() -> list[Message]:
        settings = {**QUICK, "group_id": "g", "enable_auto_commit": False}
        async with AsyncConsumer(broker, **settings) as consumer:
            await consumer.subscribe("t")
            read = [message async for message in consumer.messages(stop_at_end=True)]
            assert await consumer.lag() == {T0: 0, T1: 0}
            assert await consumer.position(T0) == 10
            await consumer.commit(read[0])
            first = TopicPartition("t", read[0].partition)
            assert (await consumer.committed())[first] == CommittedOffset(1)
            await consumer.unsubscribe()
        async with AsyncConsumer(broker, **settings) as consumer:
            await consumer.subscribe("t")
            async for message in consumer:
                if message.partition == first.partition:
                    assert message.offset == 1
                    await consumer.commit()  # what was handed out by now, not what was fetched
                    break
        assert committed(broker)[first] == 2
        return read

    assert offsets(asyncio.run(story())) == WHOLE


def test_a_cancelled_task_loses_no_message(broker: Broker) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, **QUICK, group_id="g", auto_commit_interval_ms=1) as consumer:
            await consumer.subscribe("t")
            read = [message async for message in consumer.messages(stop_at_end=True)]
            for number, getting in enumerate(
                (consumer.poll(PATIENCE_S), consumer.poll_many(5, PATIENCE_S), anext(consumer.messages()))
            ):
                task = asyncio.ensure_future(getting)
                await asyncio.sleep(0.05)  # it waits on a thread by now; if not, nothing is to be lost
                task.cancel()
                with Producer(broker, linger_ms=0) as producer:
                    await asyncio.to_thread(producer.send("t", b"new", partition=0).result)
                message = await consumer.poll(PATIENCE_S)
                assert message is not None
                assert message.offset == 10 + number
            assert offsets(read) == WHOLE

    asyncio.run(story())


@pytest.mark.parametrize("still_works", [True, False])
def test_closing_from_another_thread_commits_what_is_done_with(broker: Broker, still_works: bool) -> None:
    """A message in work may stay unprocessed; an application that has ended has processed all its messages."""
    consumer = consumer_of(broker, auto_commit_interval_ms=60_000)
    consumer.subscribe("t")
    has_one, released = threading.Event(), threading.Event()

    def work() -> None:
        assert consumer.poll(PATIENCE_S) is not None
        has_one.set()
        released.wait(PATIENCE_S)

    worker = threading.Thread(target=work)
    worker.start()
    assert has_one.wait(PATIENCE_S)
    if not still_works:
        released.set()
        worker.join()
    consumer.close()
    released.set()
    worker.join()
    assert sum(committed(broker).values()) == (0 if still_works else 1)


def test_topics_that_are_none(broker: Broker) -> None:
    with consumer_of(broker) as consumer:
        for nothing in (5, "", [], [b"t"]):
            with pytest.raises(ConfigError, match="subscribe to"):
                consumer.subscribe(nothing)  # type: ignore[arg-type]  # what a user may give


def test_a_commit_before_anybody_answers_says_so(broker: Broker) -> None:
    address = broker.bootstrap
    broker.close()
    with Consumer(address, **{**QUICK, "group_id": "g"}) as consumer:
        consumer.subscribe("t")
        wait_for(lambda: consumer._group is not None and consumer._group.membership._finder.last_error)
        with pytest.raises(CommitFailed, match="coordinator was not found: "):
            consumer.commit({T0: 1}, timeout=0.2)
        consumer.close(0.1)


def test_first_member_of_a_group_does_not_wait_on_a_single_broker() -> None:
    took: dict[int | None, float] = {}
    for delay_ms in (None, 3000):
        settings: dict[str, Any] = {} if delay_ms is None else {"group_initial_rebalance_delay_ms": delay_ms}
        with Broker(storage="memory", coordination="memory", **settings) as broker:
            with Producer(broker) as producer:
                producer.send("orders", b"one").result(PATIENCE_S)
            with Consumer(
                broker, group_id="billing", auto_offset_reset="earliest", group_protocol="classic"
            ) as consumer:
                consumer.subscribe("orders")
                begun = time.monotonic()
                assert consumer.poll(timeout=PATIENCE_S) is not None
                took[delay_ms] = time.monotonic() - begun
    assert took[None] < took[3000]
