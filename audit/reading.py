"""Reads the audit topics of clusters."""

import time
from collections.abc import Iterable, Sequence

from ..app.clients.admin.admin import Admin
from ..app.clients.consumer.consumer import Consumer
from ..app.clients.shared.bootstrap import Bootstrap
from ..core.message.message import Message
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, ConfigError
from .reports import TOPIC, decode
from .totals import AuditTotals

_EARLIER_MS = 3_600_000
"""Maximum apparent age of reports before their window, where clocks differ."""
_PATIENCE_MS = 10_000
"""A timeout for a waiting person."""
_MARKERS_S = 2.0
"""Time to wait for reports of commits in progress: a commit returns before its markers are written."""


class AuditReader:
    """Reads the reports of several clusters into one totals, incrementally. Raises `BarnabasError`."""

    def __init__(self, bootstraps: Sequence[Bootstrap], *, since_ms: int = 0) -> None:
        self.totals = AuditTotals()
        self._admins: list[Admin] = []
        self._consumers: list[Consumer] = []
        start_ms = max(0, since_ms - _EARLIER_MS)
        try:
            for bootstrap in bootstraps:
                self._admins.append(Admin(bootstrap, default_api_timeout_ms=_PATIENCE_MS))
                consumer = Consumer(
                    bootstrap,
                    isolation_level="read_committed",
                    allow_auto_create_topics=False,
                    default_api_timeout_ms=_PATIENCE_MS,
                )
                self._consumers.append(consumer)
                _assign(consumer, str(bootstrap), start_ms)
        except BaseException:
            self.close()
            raise

    def read(self) -> None:
        """Read all reports published until now, including the latest commits."""
        for admin, consumer in zip(self._admins, self._consumers, strict=True):
            ends = admin.list_offsets(dict.fromkeys(consumer.assignment, "latest"))
            self._add_reports(consumer.messages(stop_at_end=True))
            deadline = time.monotonic() + _MARKERS_S
            while not consumer.reached(ends) and time.monotonic() < deadline:
                self._add_reports(consumer.poll_many(timeout=0.02))

    def _add_reports(self, messages: Iterable[Message]) -> None:
        for message in messages:
            report = decode(message.value)
            if report is not None:
                self.totals.add(report)

    def close(self) -> None:
        for consumer in self._consumers:
            consumer.close()
        for admin in self._admins:
            admin.close()


def _assign(consumer: Consumer, bootstrap: str, start_ms: int) -> None:
    try:
        if start_ms:
            consumer.assign(TOPIC, timestamp_ms=start_ms)
        else:
            consumer.assign(TOPIC, position="earliest")
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise ConfigError(
            f"{bootstrap} has no topic {TOPIC}: it is not audited; "
            'begin with Producer(..., callback_handler="audit") and barnabas audit count'
        ) from error
