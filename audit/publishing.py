"""Publishing of reports to the audit topic."""

import time
from collections.abc import Iterable, Sequence

from ..app.clients.admin.admin import Admin
from ..app.clients.producer.producer import Producer
from ..app.clients.shared.bootstrap import Bootstrap
from ..core.message.message import Message
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError
from .reports import TOPIC, CountReport, Report, encode, in_pieces

RETENTION_MS = 30 * 86_400_000
_PATIENCE_MS = 10_000
_CLOSE_S = 1.0
"""Timeout of closing; undelivered reports were reported as failed before."""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def ensure_topic(bootstrap: Bootstrap, timeout_s: float = _PATIENCE_MS / 1000) -> None:
    """Create the audit topic if it is missing: one partition, retention of 30 days. Raises `BarnabasError`."""
    with Admin(bootstrap, default_api_timeout_ms=max(1, int(timeout_s * 1000))) as admin:
        if TOPIC in admin.list_topics(internal=True):
            return
        try:
            admin.create_topic(TOPIC, partitions=1, configs={"retention.ms": str(RETENTION_MS)})
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def in_sizes(reports: Iterable[Report]) -> list[Report]:
    """Split reports that are too large for a message."""
    return [
        piece for report in reports for piece in (in_pieces(report) if isinstance(report, CountReport) else (report,))
    ]


def messages_of(reports: Iterable[Report]) -> list[Message]:
    """Return the messages of reports; their key is the tier's name."""
    return [Message(encode(report), report.origin.tier.encode()) for report in reports]


class Publisher:
    """Sends reports to the audit topic of a cluster, at least once; readers drop duplicates."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._bootstrap = bootstrap
        self._producer: Producer | None = None

    def publish(self, messages: Sequence[Message], timeout_s: float) -> None:
        """Publish; durable on return. Raises `BarnabasError`: the outcome is unknown; publish the same again."""
        if self._producer is None:
            ensure_topic(self._bootstrap, timeout_s)
            self._producer = Producer(self._bootstrap, acks="all", delivery_timeout_ms=max(1.0, timeout_s * 1000))
        handle = self._producer.send_many(TOPIC, messages)
        self._producer.flush(timeout_s)
        handle.result(timeout_s)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close(_CLOSE_S)
