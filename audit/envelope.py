"""The stamp in front of the value, for the classic generation, which has no headers.

The reasons are in docs/design/registry.md, 'Classic audit'. The layout:

Four bytes 0xFE "aud", the size of the stamp without its sequence (1 byte), the stamp as in the header, the value.
"""

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from ..core.client.producer.handlers import BatchOutcome
from ..core.client.serde import Encoder
from .producing import ProducerAudit
from .publishing import wall_ms
from .stamp import MAGIC, enveloped


class AuditEncoder:
    """Prepends the stamp to values encoded by `inner` (default: bytes), and reports the sent messages.

        with AuditEncoder("HOST:PORT") as encoder, Producer(broker_list="0:HOST:PORT", encoder=encoder) as producer:
            producer.send("orders", b"apples")

    bootstrap: the current cluster with the audit topic. `props` are those of `ProducerAudit`.

    Classic brokers acknowledge nothing, so that every encoded message counts; close this after the producer. Any
    thread. A null value stays null, and is not counted. Raises `ConfigError`.
    """

    def __init__(
        self, bootstrap: object, *, inner: Encoder | None = None, props: Mapping[str, object] | None = None
    ) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._audit = ProducerAudit(props or {})
        self._audit.start(bootstrap)

    def encode(self, topic: str, value: Any) -> bytes | None:
        data = value if self._inner is None else self._inner.encode(topic, value)
        if data is None:
            return None
        if not isinstance(data, bytes):
            raise TypeError(f"expected bytes, got {type(data).__name__}: give the audit encoder an inner encoder")
        now_ms = wall_ms()
        with self._lock:
            numbered = self._audit.before_batch(topic, 1, now_ms)
            if numbered is None:
                return data
            self._audit.after_batch(BatchOutcome(topic, 1, now_ms, numbered, None))
        return b"".join((MAGIC, bytes((len(numbered.head),)), numbered.head, *numbered.numbers(1), data))

    def close(self) -> None:
        """Publish the last counts."""
        self._audit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AuditDecoder:
    """Removes the stamp of a value, if it has one; the rest is bytes."""

    def decode(self, topic: str, data: bytes | None) -> bytes | None:  # noqa: ARG002  # it is the same in all topics
        stamp = enveloped(data)
        if data is None or stamp is None:
            return data
        return data[len(MAGIC) + 1 + len(stamp) :]
