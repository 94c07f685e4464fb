"""The producer's tier: stamps messages, and tells which of them were acknowledged."""

import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

from attrs import evolve

from ..app.clients.shared.blocking_shell import logger
from ..core.client.producer.handlers import BatchOutcome, CallbackHandler
from ..core.message.message import Message
from ..core.message.numbered_header import NumberedHeader
from ..ports.errors import BarnabasError, ConfigError
from .counting import MessageCounts
from .publishing import Publisher, in_sizes, messages_of, wall_ms
from .reports import PRODUCER, TOPIC, WINDOW_MS, CountReport, InstanceReport, Report, Reporter
from .stamp import HEADER, encode_head
from .words import positive

INTERVAL_MS = 10_000
_PROPS = ("bootstrap.servers", "server", "instance", "window.ms", "interval.ms")


class ProducerAudit(CallbackHandler):
    """Gives each message its stamp, and publishes every `interval.ms` which were acknowledged since.

    `props`: `window.ms` (600000), `interval.ms` (10000), `server` (this machine's name), `instance` (the server's name
    and a random number), `bootstrap.servers` (where the audit topic is; the producer's own). Raises `ConfigError`.

    Reports are published by a producer and a thread of their own; closing waits for the last one, an interval, and a
    second at least. What was not published when the process is killed is never told: the instance then stays
    open, and what arrived of it shows as unconfirmed.
    """

    def __init__(self, props: Mapping[str, object]) -> None:
        given = {str(key).replace("_", "."): value for key, value in props.items()}
        unknown = sorted(given.keys() - set(_PROPS))
        if unknown:
            raise ConfigError(
                f"callback.handler.props of audit: unknown {', '.join(unknown)}; known: {', '.join(_PROPS)}"
            )
        server = str(given.get("server") or socket.gethostname())
        self.instance = str(given.get("instance") or f"{server[:150]}/{secrets.token_hex(4)}")
        try:
            encode_head(self.instance, 0)
        except ValueError as error:
            raise ConfigError(f"callback.handler.props of audit: {error}") from error
        width_ms = positive(given.get("window.ms", WINDOW_MS), "window.ms")
        self._interval_s = positive(given.get("interval.ms", INTERVAL_MS), "interval.ms") / 1000
        self._patience_s = max(1.0, self._interval_s)
        """How long a report may take, and closing."""
        self._bootstrap: Any = given.get("bootstrap.servers")
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._arrived, self._failed = MessageCounts(width_ms), MessageCounts(width_ms)
        self._told = 0
        """How many reports have a number."""
        self._unsent: list[Message] = []
        """Those that have one, and are not known to have arrived."""
        self._complains = False
        self._ended = threading.Event()
        self._publisher: Publisher | None = None
        self._thread = threading.Thread(target=self._run, name=f"audit of {self.instance}", daemon=True)

    def start(self, bootstrap: object) -> None:
        self._publisher = Publisher(self._bootstrap or bootstrap)
        self._thread.start()

    # --- the producer's thread

    def before_batch(self, topic: str, count: int, time_ms: int) -> NumberedHeader | None:
        if topic == TOPIC:
            return None
        first = self._next.get(topic, 0)
        self._next[topic] = first + count
        return NumberedHeader(HEADER, encode_head(self.instance, time_ms), first)

    def after_batch(self, outcome: BatchOutcome) -> None:
        head, first = outcome.numbered.head, outcome.numbered.first
        with self._lock:
            counts = self._arrived if outcome.error is None else self._failed
            counts.add_run(outcome.topic, head, first, first + outcome.messages - 1, wall_ms())

    # --- the publishing thread, and the one that closes when that has ended

    def _run(self) -> None:
        self._tell([InstanceReport(origin=self._origin(), closed=False)], self._patience_s)
        while not self._ended.wait(self._interval_s):
            self._tell(self._take(), self._patience_s)

    def close(self) -> None:
        """Twice is harmless."""
        ended_before = self._ended.is_set()
        self._ended.set()
        if self._publisher is None or ended_before:
            return
        deadline = time.monotonic() + self._patience_s
        self._thread.join(self._patience_s)
        if not self._thread.is_alive():
            self._close_in_order(deadline)
            self._publisher.close()
        if self._unsent:
            logger.error("audit of %s: the last counts could not be published; it stays open", self.instance)

    def _close_in_order(self, deadline: float) -> None:
        """The counts first: who is told of the end may rely on them."""
        self._tell(self._take(), max(0.1, deadline - time.monotonic()))
        if not self._unsent:
            self._tell(self._take(), max(0.1, deadline - time.monotonic()))  # what the one before had to leave
        if not self._unsent:
            self._tell([InstanceReport(origin=self._origin(), closed=True)], max(0.1, deadline - time.monotonic()))

    def _take(self) -> list[Report]:
        """What is to be told; nothing while earlier reports are not safe, so that they stay few."""
        if self._unsent:
            return []
        origin = self._origin()
        with self._lock:
            taken: list[CountReport] = [*self._arrived.take(origin), *self._failed.take(origin, failed=True)]
        return [*taken]

    def _origin(self) -> Reporter:
        return Reporter(tier=PRODUCER, by=self.instance, time_ms=wall_ms())

    def _tell(self, reports: list[Report], timeout_s: float) -> None:
        for report in in_sizes(reports):
            numbered = evolve(report, origin=evolve(report.origin, number=self._told))
            self._told += 1
            self._unsent += messages_of([numbered])
        if not self._unsent or self._publisher is None:
            return
        try:
            self._publisher.publish(self._unsent, timeout_s)
        except (BarnabasError, OSError) as error:
            if not self._complains:
                logger.warning("audit of %s: counts are not published, which is tried again: %s", self.instance, error)
            self._complains = True
        else:
            self._unsent, self._complains = [], False
