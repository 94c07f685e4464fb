"""Reading what was produced, and waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from ..core.client.errors import no_partition
from ..core.message.message import Message
from ..ports.broker_api.offsets import EARLIEST
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, ConfigError
from .expected import Expectation, Mode
from .running import RunningBroker, running_broker

_PATIENCE_S = 60.0
_POLL_S = 0.05
_SETTINGS: Mapping[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "socket_connection_setup_timeout_ms": 1000,
}


def assert_produced(
    topic: str,
    values: Sequence[Any] | None = None,
    *,
    keys: Sequence[Any] | None = None,
    headers: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
    count: int | None = None,
    mode: Mode | None = None,
    where: Callable[[Message], bool] | None = None,
    partition: int | None = None,
    committed: bool = False,
    timeout: float = _PATIENCE_S,
    broker: RunningBroker | str | None = None,
) -> list[Message]:
    """Wait until a topic holds what is expected; returns its messages. Raises `AssertionError` with the difference:
    after the `timeout`, or as soon as no further message can make it come true.

    values, keys: one for each message: bytes or None; a str as UTF-8; a dict, list or number as JSON; a callable.
    headers:      for each message the headers that it must have, or one mapping for all of them.
    count:        how many messages there are; with nothing else given, at least one.
    mode:         "ordered" (all, in this order; the default of one partition), "any_order" (all; the default of several
                  partitions), "contains" (others may be there).
    where:        look only at the messages for which this is true.
    partition:    look only at this partition.
    committed:    leave out what belongs to transactions that are open or were aborted.
    timeout:      seconds to wait.
    broker:       a `TestBroker`, a `TestCluster`, or the address of any Kafka broker; None: the one of them that runs.

    Reads from the beginning, past the faults that a test broker has been given.
    """
    __tracebackhide__ = True
    expected = {"values": values, "keys": keys, "headers": headers, "count": count, "where": where}
    expectation, chosen, why = _wait(
        _source(broker), topic, partition, timeout, mode=mode, committed=committed, **expected
    )
    if why is None:
        return chosen
    waited = "no further message can change that" if expectation.in_vain(chosen) else f"waited {timeout:g} s"
    lines = [f"{topic}: {why} ({waited})", *expectation.difference(chosen)]
    raise AssertionError("\n".join(lines))


def read_all(source: object, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Message]:
    """The messages that a topic holds now, by partition and offset; none if there is no such topic."""
    with _Reader(source, topic, partition, committed=committed) as reader:
        if not reader.open():
            return []
        return reader.sorted(reader.to_the_end())


def _wait(
    source: object,
    topic: str,
    partition: int | None,
    timeout: float,
    *,
    mode: Mode | None,
    committed: bool,
    **expected: Any,
) -> tuple[Expectation, list[Message], str | None]:
    """Return the expectation, the messages that it is about, and why they do not fulfil it (None if they do)."""
    deadline = time.monotonic() + timeout
    # What is wrong with the call is to be said before anything is waited for.
    expectation = Expectation.of(mode=mode or "any_order", **expected)
    seen: list[Message] = []
    with _Reader(source, topic, partition, committed=committed) as reader:
        while not reader.open():
            if expectation.failure([]) is None or time.monotonic() >= deadline:
                return expectation, [], _no_topic(expectation, topic)
            time.sleep(_POLL_S / 10)
        if mode is None and reader.partitions == 1:
            expectation = Expectation.of(mode="ordered", **expected)
        if mode == "ordered" and reader.partitions > 1:
            raise ConfigError(f"{topic} has {reader.partitions} partitions without a common order: give partition=")
        seen += reader.to_the_end()
        while True:
            chosen = expectation.chosen(reader.sorted(seen))
            why = expectation.failure(chosen)
            left = deadline - time.monotonic()
            if why is None or left <= 0 or expectation.in_vain(chosen):
                return expectation, chosen, why
            seen += reader.more(min(left, _POLL_S))


def _no_topic(expectation: Expectation, topic: str) -> str | None:
    why = expectation.failure([])
    return why and f"there is no topic {topic}; {why}"


class _Reader:
    """One topic, from the beginning."""

    def __init__(self, source: object, topic: str, partition: int | None, *, committed: bool) -> None:
        from ..app.clients.admin.admin import Admin
        from ..app.clients.consumer.simple_consumer import SimpleConsumer

        self._topic = topic
        self._partition = partition
        self._next: dict[int, int] = {}
        self._closing = ExitStack()
        with ExitStack() as opened:
            self._admin = opened.enter_context(Admin(source, **_SETTINGS))
            level = "read_committed" if committed else "read_uncommitted"
            self._consumer = opened.enter_context(SimpleConsumer(source, isolation_level=level, **_SETTINGS))
            self._closing = opened.pop_all()

    @property
    def partitions(self) -> int:
        """The number of partitions that are read."""
        return len(self._next)

    def open(self) -> bool:
        """False while there is no such topic. Raises `ApiError` for a partition that it does not have."""
        try:
            (found,) = self._admin.describe_topics([self._topic])
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        numbers = sorted(each.partition for each in found.partitions)
        if self._partition is not None:
            if self._partition not in numbers:
                raise no_partition(self._topic, len(numbers), self._partition)
            numbers = [self._partition]
        self._next = {number: self._consumer.offset_at(self._topic, number, EARLIEST) for number in numbers}
        return True

    def to_the_end(self) -> list[Message]:
        """All that is there now and was not read yet."""
        return [message for number in self._next for message in self._rest(number)]

    def more(self, timeout: float) -> list[Message]:
        """Return the messages that arrive within `timeout` seconds."""
        asked = [(self._topic, number, offset) for number, offset in self._next.items()]
        try:
            self._consumer.multifetch(asked, 1, max_wait_ms=int(timeout * 1000))
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        return self.to_the_end()

    def _rest(self, number: int) -> list[Message]:
        found: list[Message] = []
        while True:
            try:
                for piece in self._consumer.read(self._topic, number, self._next[number]):
                    found += piece
                    self._next[number] = piece.next_offset
            except ApiError as error:
                earliest = self._consumer.offset_at(self._topic, number, EARLIEST)
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or earliest <= self._next[number]:
                    raise
                self._next[number] = earliest  # what was to be read has expired meanwhile
            else:
                return found

    def sorted(self, messages: Sequence[Message]) -> list[Message]:
        return sorted(messages, key=lambda message: (message.partition, message.offset))

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _source(broker: RunningBroker | str | None) -> object:
    if isinstance(broker, str):
        return broker
    return (broker or running_broker()).source
