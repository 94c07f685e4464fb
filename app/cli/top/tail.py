"""The newest messages of a topic, as they come: bounded in memory, and in what it asks of the brokers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....core.message.message import Message
from ....ports.errors import BarnabasError
from ..message_format import headers_text
from .state import Tailed, TailedMessage

if TYPE_CHECKING:
    from ...clients.consumer.consumer import Consumer

KEPT_MAX = 1000
"""Messages that are kept, and so searched."""
FIRST = 100
"""Messages that are shown when a topic is opened, about."""
TEXT_MAX = 2000
"""Characters of a key, a value or headers that are kept."""
BATCH = 500
ROUND_S = 0.5
"""One batch each: what comes faster is passed over, so that a busy topic is no load on its brokers."""
AGAIN_S = 2.0
_SETTINGS = {"max.partition.fetch.bytes": 1 << 18, "default.api.timeout.ms": 5000}


def kept_of(message: Message) -> TailedMessage:
    """As much of it as is shown and searched."""
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

    def __init__(self, bootstrap: str, topic: str, told: Callable[[Tail], None]) -> None:
        """`told` is called, from that thread, when there is something new."""
        self.topic = topic
        self._bootstrap = bootstrap
        self._told = told
        self._kept: deque[TailedMessage] = deque(maxlen=KEPT_MAX)
        self._missed = 0
        self._problem = ""
        self._stopping = threading.Event()
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail {topic}", daemon=True)
        self._now = Tailed()

    @property
    def now(self) -> Tailed:
        """What is kept now; never changed."""
        return self._now

    def start(self) -> None:
        self._thread.start()

    def rest(self, resting: bool) -> None:
        """Whether to ask for nothing for a while."""
        if resting:
            self._resting.set()
        else:
            self._resting.clear()

    def stop(self) -> None:
        """Ask for no more; the thread ends soon."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        from ...clients.consumer.consumer import Consumer

        while not self._stopping.is_set():
            try:
                with Consumer(self._bootstrap, config=_SETTINGS) as consumer:
                    self._begin(consumer)
                    while not self._stopping.is_set():
                        self._round(consumer)
            except BarnabasError as error:
                self._tell(problem=str(error))
                self._stopping.wait(AGAIN_S)

    def _begin(self, consumer: Consumer) -> None:
        consumer.assign(self.topic, position="latest")
        self._to_the_last(consumer, FIRST if not self._kept else 0)

    def _to_the_last(self, consumer: Consumer, messages: int) -> int:
        """Go on so many messages before the end, about; returns how many lie behind the old positions then."""
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
        if len(batch) == BATCH and sum(consumer.lag().values()) > KEPT_MAX:
            self._missed += self._to_the_last(consumer, BATCH)

    def _keep(self, batch: Sequence[Message]) -> None:
        # Partitions are read one after the other.
        by_time = sorted(batch, key=lambda message: message.timestamp_ms or 0)
        self._kept.extendleft(kept_of(message) for message in by_time)
        self._tell(problem="")

    def _tell(self, *, problem: str) -> None:
        self._problem = problem
        self._now = Tailed(messages=tuple(self._kept), missed=self._missed, problem=problem)
        self._told(self)
