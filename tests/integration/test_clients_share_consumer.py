"""The share consumer's shell, with its threads, against a scripted cluster."""

import asyncio
import threading
import time
from collections.abc import Mapping
from typing import Any

import pytest
from support.plain_cluster import PlainCluster, PlainConnector
from support.share_group_script import ShareGroupScript
from support.waiting import PATIENCE_S, wait_for

from barnabas import AsyncShareConsumer, Message, ShareConsumer, ShareMessage
from barnabas.core.client.errors import DecodeError
from barnabas.ports.broker_api.share_groups import ShareAcknowledge, ShareFetch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from barnabas.ports.types import TopicPartition

T0 = TopicPartition("t", 0)


class World:
    def __init__(self, partitions: int = 1, **settings: Any) -> None:
        self.cluster = PlainCluster(t=partitions)
        self.passed_ms = 0.0
        """Time that the group is ahead of the clock."""
        self.group = ShareGroupScript(self.cluster, lambda: time.monotonic() * 1000 + self.passed_ms, **settings)

    def consumer(self, *, subscribed: bool = True, **settings: Any) -> ShareConsumer:
        chosen = {"retry_backoff_ms": 1, "reconnect_backoff_ms": 1, "group_id": "g", **settings}
        consumer = ShareConsumer(PlainConnector(self.cluster), **chosen)
        if subscribed:
            consumer.subscribe("t")
        return consumer

    def explicit(self, **settings: Any) -> ShareConsumer:
        return self.consumer(share_acknowledgement_mode="explicit", **settings)


def get(consumer: ShareConsumer, count: int) -> list[ShareMessage]:
    """Exactly this number of messages, acknowledged in implicit mode but for the last ones."""
    found: list[ShareMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline
        found += consumer.poll_many(count - len(found), 1)
    return found


def offsets(messages: Any) -> list[int]:
    return [message.offset for message in messages]


# --- implicit mode


def test_iteration_accepts_what_it_has_passed() -> None:
    world = World()
    values = world.group.fill(T0, 3, 2)
    with world.consumer() as consumer:
        read: list[ShareMessage] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(read) < len(values):
            assert time.monotonic() < deadline
            read += consumer.messages(timeout=0.2)
    assert [message.value for message in read] == values
    assert all(isinstance(message, Message) and message.delivery_count == 1 for message in read)
    assert world.group.all_done(T0)


def test_poll_accepts_earlier_messages_and_close_the_last_ones() -> None:
    world = World()
    world.group.fill(T0, 4)
    with world.consumer() as consumer:
        first = get(consumer, 1)
        assert offsets(first + get(consumer, 2)) == [0, 1, 2]
        assert consumer.commit_sync() == {T0: None}
        assert world.group.state(T0).start_offset == 3
        assert offsets(get(consumer, 1)) == [3]
        assert world.group.state(T0).start_offset == 3
    assert world.group.all_done(T0)


def test_exception_in_block_releases_messages_that_were_handed_out() -> None:
    world = World()
    world.group.fill(T0, 3)
    with pytest.raises(KeyError), world.consumer() as consumer:
        for message in consumer:
            if message.offset == 1:
                raise KeyError(message.offset)
    with world.consumer() as other:
        assert [(each.offset, each.delivery_count) for each in get(other, 2)] == [(1, 2), (2, 2)]


def test_slow_user_finishes_messages_before_it_asks_for_more() -> None:
    world = World()
    world.group.interval_ms = 3_600_000  # no heartbeat drives the client meanwhile
    world.group.fill(T0, 3)
    with world.consumer() as consumer:
        iterator = iter(consumer)
        next(iterator), next(iterator)
        wait_for(lambda: world.group.state(T0).start_offset == 1)
        assert len(world.cluster.of(ShareFetch)) == 1


def test_acknowledge_in_implicit_mode_names_the_setting() -> None:
    world = World()
    world.group.fill(T0, 1)
    with world.consumer() as consumer, pytest.raises(ConfigError, match=r"share\.acknowledgement\.mode=explicit"):
        consumer.acknowledge(get(consumer, 1)[0])


# --- explicit mode


def test_each_kind_of_acknowledgement_has_its_effect() -> None:
    world = World()
    world.group.fill(T0, 4)
    with world.explicit() as consumer:
        kinds = ["accept", "release", "reject", "release"]
        for message, kind in zip(get(consumer, 4), kinds, strict=True):
            consumer.acknowledge(message, kind)
        again = get(consumer, 2)
        assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (3, 2)]
        for message in again:
            consumer.acknowledge(message)
        assert consumer.commit_sync() == {T0: None}
    assert world.group.all_done(T0)


def test_message_without_acknowledgement_stops_the_next_call() -> None:
    world = World()
    world.group.fill(T0, 3)
    with world.explicit() as consumer:
        first, second = get(consumer, 2)
        consumer.acknowledge(first)
        for ask in (consumer.poll, lambda: next(iter(consumer))):
            with pytest.raises(ApiError, match="1 message not acknowledged, the first one at t-0 offset 1"):
                ask()
        consumer.acknowledge(second, "release")
        iterator = consumer.messages(timeout=0.2)
        next(iterator)
        with pytest.raises(ApiError, match="not acknowledged"):
            next(iterator)


def test_renewed_message_stays_with_user_while_it_reads_on() -> None:
    world = World(lock_ms=600_000)
    world.group.fill(T0, 1, 1)
    with world.explicit(max_poll_records=1, share_acquire_mode="record_limit") as consumer:
        (slow,) = get(consumer, 1)
        for _ in range(4):
            locked_until_ms = world.group.state(T0).batches[0].deadline_ms
            world.passed_ms += 400_000
            consumer.acknowledge(slow, "renew")
            wait_for(lambda: world.group.state(T0).batches[0].deadline_ms > locked_until_ms)  # noqa: B023
        (other,) = get(consumer, 1)
        assert other.offset == 1
        consumer.acknowledge(other)
        consumer.acknowledge(slow)
        assert consumer.commit_sync() == {T0: None}
        with pytest.raises(ApiError, match="t-0 offset 0 is not in the hands"):
            consumer.acknowledge(slow)
    assert world.group.all_done(T0)


def test_other_threads_may_acknowledge() -> None:
    world = World()
    world.group.fill(T0, 50)
    with world.explicit() as consumer:
        messages = get(consumer, 50)

        def accept(part: list[ShareMessage]) -> None:
            for each in part:
                consumer.acknowledge(each)

        threads = [threading.Thread(target=accept, args=(messages[n::5],)) for n in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert consumer.commit_sync() == {T0: None}
    assert world.group.all_done(T0)


def test_unknown_kind_names_those_that_there_are() -> None:
    world = World()
    world.group.fill(T0, 1)
    with world.explicit() as consumer, pytest.raises(ConfigError, match="accept, release, reject, renew"):
        consumer.acknowledge(get(consumer, 1)[0], "nack")


# --- results


def test_callback_gets_offsets_and_errors() -> None:
    world = World()
    world.group.fill(T0, 2)
    calls: list[tuple[Mapping[TopicPartition, frozenset[int]], BarnabasError | None]] = []
    with world.explicit() as consumer:
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: calls.append((offsets, error)))
        first, second = get(consumer, 2)
        consumer.acknowledge(first)
        consumer.commit_async()
        wait_for(lambda: world.group.state(T0).start_offset == 1)
        consumer.acknowledge(second)
        assert consumer.commit_sync() == {T0: None}
        assert calls == [({T0: frozenset({0})}, None), ({T0: frozenset({1})}, None)]
        world.group.fill(T0, 1)
        (third,) = get(consumer, 1)
        world.group.drop_sessions(1)
        consumer.acknowledge(third)
        (error,) = consumer.commit_sync().values()
    assert isinstance(error, ApiError)
    assert error.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert calls[2] == ({T0: frozenset({2})}, error)


def test_callback_must_not_poll() -> None:
    world = World()
    world.group.fill(T0, 1)
    with world.explicit() as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *_: consumer.poll())
        consumer.acknowledge(get(consumer, 1)[0])
        with pytest.raises(BarnabasError, match="must not ask for messages"):
            consumer.commit_sync()
        consumer.set_acknowledgement_commit_callback(None)


def test_failed_acknowledgements_are_logged_without_callback(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.group.fill(T0, 2)
    with world.consumer() as consumer:
        get(consumer, 2)
        world.group.drop_sessions(1)
        consumer.commit_sync()
    assert "2 messages not acknowledged" in caplog.text


def test_message_that_cannot_be_decoded_is_released_and_next_ones_come() -> None:
    world = World(deliveries=2)
    world.group.fill(T0, 3)

    def decode(data: bytes) -> int:
        if data == b"1":
            raise ValueError(data)
        return int(data)

    with world.consumer(decoder=decode) as consumer:
        found: list[Any] = []
        errors = 0
        while len(found) < 2 or errors < 2:
            try:
                found += [message.value for message in consumer.poll_many(timeout=1)]
            except DecodeError as error:
                assert "t-0 offset 1" in str(error)
                errors += 1
    assert found == [0, 2]
    assert world.group.all_done(T0)


# --- waiting and ending


def test_wakeup_ends_a_wait() -> None:
    with World().consumer() as consumer:
        threading.Timer(0.2, consumer.wakeup).start()
        assert consumer.poll(PATIENCE_S) is None
        consumer.wakeup()
        assert list(consumer) == []


def test_close_by_another_thread_ends_iteration() -> None:
    consumer = World().consumer()
    threading.Timer(0.2, consumer.close).start()
    with pytest.raises(ClosedError):
        next(iter(consumer))
    consumer.close()


def test_unsubscribe_releases_and_subscribe_joins_again() -> None:
    world = World()
    world.group.fill(T0, 2)
    with world.explicit() as consumer:
        first, _ = get(consumer, 2)
        consumer.acknowledge(first)
        with pytest.raises(ApiError, match="not acknowledged"):
            consumer.poll()
        consumer.unsubscribe()
        assert not world.group.epochs
        assert not consumer.subscription
        assert not consumer.assignment
        with pytest.raises(ConfigError, match="nothing is subscribed"):
            consumer.poll()
        consumer.subscribe(["t"])
        (again,) = get(consumer, 1)
        assert (again.offset, again.delivery_count) == (1, 2)
        consumer.acknowledge(again)
    assert world.cluster.of(ShareAcknowledge)[-1].share_session_epoch == -1
    assert world.group.all_done(T0)


def test_refused_member_raises_what_to_do() -> None:
    world = World()
    world.group.errors.append(ErrorCode.UNSUPPORTED_VERSION)
    world.group.fill(T0, 1)
    with world.consumer() as consumer:
        with pytest.raises(ApiError, match=r"the cluster has no share groups \(KIP-932\)"):
            consumer.poll(PATIENCE_S)
        assert offsets(get(consumer, 1)) == [0]


def test_metrics_have_names_of_kafka() -> None:
    world = World()
    world.group.fill(T0, 3)
    with world.consumer() as consumer:
        get(consumer, 3)
        consumer.commit_sync()
        metrics = consumer.metrics()
        assert consumer.acquisition_lock_timeout_ms == 30_000
    assert metrics["records-consumed-total"] == 3
    assert metrics["acknowledgements-send-total"] == 3
    assert metrics["acknowledgements-error-total"] == 0
    assert metrics["fetch-total"] >= 1


# --- settings


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "needs a group.id"),
        ({"group_id": "g", "share_acknowledgement_mode": "manual"}, "share_acknowledgement_mode"),
        ({"group_id": "g", "auto_offset_reset": "earliest"}, "share.auto.offset.reset"),
        ({"group_id": "g", "isolation_level": "read_committed"}, "share.isolation.level"),
        ({"group_id": "g", "enable_auto_commit": False}, "a ShareConsumer does not have it"),
    ],
)
def test_settings_that_cannot_be_say_why(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        ShareConsumer("localhost:1", **settings)


# --- asyncio


def test_asyncio_reads_acknowledges_and_loses_nothing_to_cancelled_calls() -> None:
    world = World()

    async def run() -> list[bytes | None]:
        values: list[bytes | None] = []
        chosen: dict[str, Any] = {"group_id": "g", "share_acknowledgement_mode": "explicit", "consumer_timeout_ms": 1}
        async with AsyncShareConsumer(PlainConnector(world.cluster), **chosen) as consumer:
            await consumer.subscribe("t")
            assert consumer.subscription == ["t"]
            waiting = asyncio.create_task(consumer.poll(PATIENCE_S))
            await asyncio.sleep(0.3)
            waiting.cancel()
            await asyncio.sleep(0)
            world.group.fill(T0, 5)
            while len(values) < 2:
                message = await consumer.poll(1)
                if message is not None:
                    consumer.acknowledge(message)
                    values.append(message.value)
            async for each in consumer:
                consumer.acknowledge(each)
                values.append(each.value)
                if len(values) == 5:
                    break
            assert await consumer.commit_sync() == {T0: None}
            world.group.fill(T0, 1)
            while (last := await consumer.poll(1)) is None:
                pass
            consumer.acknowledge(last)
            consumer.commit_async()
            assert consumer.assignment == [T0]
            await consumer.unsubscribe()
        return values

    assert sorted(map(str, asyncio.run(run()))) == sorted(str(b"%d" % number) for number in range(5))
    assert world.group.all_done(T0)
