"""The producer's tier: stamps messages, and reports which of them were acknowledged."""

import secrets
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any, cast

from attrs import evolve

from ..app.clients.shared.blocking_shell import logger
from ..app.clients.shared.bootstrap import Bootstrap
from ..app.clients.shared.connect import secured, without_security
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
    """Stamps each message, and publishes every `interval.ms` which were acknowledged since.

    `props`: `window.ms` (600000), `interval.ms` (10000), `server` (this machine's name), `instance` (the server's name
    and a random number), `bootstrap.servers` (the cluster of the audit topic, with its `security.protocol`, `sasl.*`
    and `ssl.*`; the producer's own). Raises `ConfigError`.

    A separate producer and thread publish the reports; closing waits for the last one, for an interval, and at least a
    second. Counts that were not published when the process is killed are lost: the instance then stays open, and its
    arrived messages are unconfirmed.
    """

    def __init__(self, props: Mapping[str, object]) -> None:
        given = {str(key).replace("_", "."): value for key, value in props.items()}
        unknown = sorted(without_security(given).keys() - set(_PROPS))
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
        """Timeout of a report, and of closing."""
        own = given.get("bootstrap.servers")
        self._bootstrap: Any = None if own is None else secured(cast("Bootstrap", own), given)
        self._lock = threading.Lock()
        self._next: dict[str, int] = {}
        self._arrived, self._failed = MessageCounts(width_ms), MessageCounts(width_ms)
        self._numbered = 0
        """Number of the last report."""
        self._unsent: list[Message] = []
        """Numbered reports that are not known to have arrived."""
        self._complains = False
        self._ended = threading.Event()
        self._publisher: Publisher | None = None
        self._thread = threading.Thread(target=self._run, name=f"audit of {self.instance}", daemon=True)

    def start(self, bootstrap: object) -> None:
        self._publisher = Publisher(cast("Bootstrap", self._bootstrap or bootstrap))
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
        self._publish([InstanceReport(origin=self._origin(), closed=False)], self._patience_s)
        while not self._ended.wait(self._interval_s):
            self._publish(self._next_reports(), self._patience_s)

    def close(self) -> None:
        """Publish the last counts and close. A second call has no effect."""
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
        """Publish the counts first: a reader of the end may rely on them."""
        self._publish(self._next_reports(), max(0.1, deadline - time.monotonic()))
        if not self._unsent:
            self._publish(
                self._next_reports(), max(0.1, deadline - time.monotonic())
            )  # what the one before had to leave
        if not self._unsent:
            self._publish([InstanceReport(origin=self._origin(), closed=True)], max(0.1, deadline - time.monotonic()))

    def _next_reports(self) -> list[Report]:
        """Return the next reports; nothing while earlier ones are not delivered, so that they stay few."""
        if self._unsent:
            return []
        origin = self._origin()
        with self._lock:
            taken: list[CountReport] = [
                *self._arrived.take_reports(origin),
                *self._failed.take_reports(origin, failed=True),
            ]
        return [*taken]

    def _origin(self) -> Reporter:
        return Reporter(tier=PRODUCER, by=self.instance, time_ms=wall_ms())

    def _publish(self, reports: list[Report], timeout_s: float) -> None:
        for report in in_sizes(reports):
            numbered = evolve(report, origin=evolve(report.origin, number=self._numbered))
            self._numbered += 1
            self._unsent += messages_of([numbered])
        if not self._unsent or self._publisher is None:
            return
        try:
            self._publisher.publish(self._unsent, timeout_s)
        except (BarnabasError, OSError) as error:
            if not self._complains:
                logger.warning("audit of %s: publishing failed, and is retried: %s", self.instance, error)
            self._complains = True
        else:
            self._unsent, self._complains = [], False
