"""The newest messages of a topic, bounded in memory and in requests to the brokers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ....core.message.message import Message
from ....ports.errors import BarnabasError
from ..message_format import headers_text
from .state import Tailed, TailedMessage

if TYPE_CHECKING:
    from ...clients.consumer.consumer import Consumer

MESSAGES_MAX = 1000
"""Maximum number of stored messages, which are searched."""
FIRST = 100
"""Approximate number of messages shown when a topic is opened."""
TEXT_MAX = 2000
"""Maximum length of a stored key, value or header text."""
BATCH = 500
ROUND_S = 0.5
"""Interval of reads of one batch each: faster messages are skipped, to limit the load on the brokers."""
AGAIN_S = 2.0
_SETTINGS = {"max.partition.fetch.bytes": 1 << 18, "default.api.timeout.ms": 5000}


def to_tailed(message: Message) -> TailedMessage:
    """Return the part of a message that is shown and searched."""
    return TailedMessage(
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        key=_text(message.key),
        value=_text(message.value),
        headers=_text(headers_text(message)) or "",
    )


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[: 4 * TEXT_MAX].decode(errors="backslashreplace")
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


class Tail:
    """Reads a topic in a thread of its own, from its last messages on."""

    def __init__(
        self, bootstrap: str, config: Mapping[str, Any], topic: str, on_change: Callable[[Tail], None]
    ) -> None:
        """`on_change` is called from that thread, when there is something new."""
        self.topic = topic
        self._bootstrap = bootstrap
        self._config = {**_SETTINGS, **config}
        self._on_change = on_change
        self._messages: deque[TailedMessage] = deque(maxlen=MESSAGES_MAX)
        self._missed = 0
        self._problem = ""
        self._stopping = threading.Event()
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail {topic}", daemon=True)
        self._now = Tailed()

    @property
    def now(self) -> Tailed:
        """Return the stored messages as an immutable value."""
        return self._now

    def start(self) -> None:
        self._thread.start()

    def rest(self, resting: bool) -> None:
        """Pause or resume the requests."""
        if resting:
            self._resting.set()
        else:
            self._resting.clear()

    def stop(self) -> None:
        """Stop requesting; the thread ends soon."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        from ...clients.consumer.consumer import Consumer

        while not self._stopping.is_set():
            try:
                with Consumer(self._bootstrap, config=self._config) as consumer:
                    self._begin(consumer)
                    while not self._stopping.is_set():
                        self._round(consumer)
            except BarnabasError as error:
                self._report(problem=str(error))
                self._stopping.wait(AGAIN_S)

    def _begin(self, consumer: Consumer) -> None:
        consumer.assign(self.topic, position="latest")
        self._to_the_last(consumer, FIRST if not self._messages else 0)

    def _to_the_last(self, consumer: Consumer, messages: int) -> int:
        """Seek to about `messages` before the end; return how many were skipped."""
        first, ends = consumer.beginning_offsets(), consumer.end_offsets()
        each = max(1, messages // max(1, len(ends))) if messages else 0
        passed = 0
        for place, end in ends.items():
            to = max(first[place], end - each)
            passed += max(0, to - consumer.position(place))
            consumer.seek(place, to)
        return passed

    def _round(self, consumer: Consumer) -> None:
        if self._resting.is_set():
            self._stopping.wait(ROUND_S)
            return
        batch = consumer.poll_many(BATCH, timeout=ROUND_S)
        if batch or self._problem:
            self._keep(batch)
        if batch:
            self._stopping.wait(ROUND_S)
        if len(batch) == BATCH and sum(consumer.lag().values()) > MESSAGES_MAX:
            self._missed += self._to_the_last(consumer, BATCH)

    def _keep(self, batch: Sequence[Message]) -> None:
        # Partitions are read one after the other.
        by_time = sorted(batch, key=lambda message: message.timestamp_ms or 0)
        self._messages.extendleft(to_tailed(message) for message in by_time)
        self._report(problem="")

    def _report(self, *, problem: str) -> None:
        self._problem = problem
        self._now = Tailed(messages=tuple(self._messages), missed=self._missed, problem=problem)
        self._on_change(self)
