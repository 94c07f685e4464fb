"""Barnabas' own clients of a test broker or cluster, and messages given in short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..core.message.message import Message
from ..ports.broker_api.configs import ConfigSource, ResourceKind

if TYPE_CHECKING:
    from ..app.clients.admin.admin import Admin
    from ..app.clients.consumer.consumer import Consumer
    from ..app.clients.producer.producer import Producer
    from ..app.clients.share.share_consumer import ShareConsumer
    from ..app.clients.shared.bootstrap import Bootstrap
    from ..core.client.producer.producer_batch import Delivery

PATIENCE_S = 60.0


_GIVES_UP_MS = 10_000
"""The delivery timeout of producers: a test that ends must not wait for Kafka's two minutes."""


def producer_of(bootstrap: str, **settings: Any) -> Producer:
    """Return a `Producer` that does not wait for more messages, and gives up after ten seconds; the caller closes
    it."""
    from ..app.clients.producer.producer import Producer

    quick = {"linger_ms": 0, "retry_backoff_ms": 10}
    if not {"delivery_timeout_ms", "request_timeout_ms", "config"} & settings.keys():
        quick |= {"delivery_timeout_ms": _GIVES_UP_MS, "request_timeout_ms": _GIVES_UP_MS // 2}
        quick |= {"max_block_ms": _GIVES_UP_MS}  # of a topic that it hears nothing of
    return Producer(bootstrap, **{**quick, **settings})


def consumer_of(bootstrap: str, **settings: Any) -> Consumer:
    """Return a `Consumer` that begins with the earliest messages; the caller closes it."""
    from ..app.clients.consumer.consumer import Consumer

    return Consumer(bootstrap, **{"auto_offset_reset": "earliest", "retry_backoff_ms": 10, **settings})


def share_consumer_of(admin: Admin, bootstrap: str, **settings: Any) -> ShareConsumer[Any, Any]:
    """Return a `ShareConsumer`; the caller closes it. A new group begins with the earliest messages, unless it is
    configured.

    Where a share group begins is a setting of the group, and not of the consumer.
    """
    from ..app.clients.share.share_consumer import ShareConsumer

    consumer: ShareConsumer[Any, Any] = ShareConsumer(bootstrap, **{"retry_backoff_ms": 10, **settings})
    group, key = consumer.settings.group_id, "share.auto.offset.reset"
    (entry,) = admin.describe_configs(ResourceKind.GROUP, group, [key])
    if entry.source is not ConfigSource.GROUP:
        admin.alter_configs(ResourceKind.GROUP, group, {key: "earliest"})
    return consumer


def admin_of(bootstrap: str, **settings: Any) -> Admin:
    """Return an `Admin`; the caller closes it."""
    from ..app.clients.admin.admin import Admin

    return Admin(bootstrap, **{"retry_backoff_ms": 10, **settings})


class CachedProducer:
    """One producer for all that a test produces through its broker or cluster."""

    def __init__(self) -> None:
        self._producer: Producer | None = None

    def produce(
        self, source: Bootstrap, topic: str, messages: Iterable[Any], partition: int | None, **settings: Any
    ) -> list[Delivery]:
        """Produce, and wait for all deliveries; `source` and `settings` are for a new producer, if there is none."""
        if self._producer is None:
            from ..app.clients.producer.producer import Producer

            self._producer = Producer(source, linger_ms=0, **settings)
        handles = [self._producer.send(topic, _message(each), partition=partition) for each in messages]
        return [handle.result(PATIENCE_S) for handle in handles]

    def close(self) -> None:
        """Abandon all undelivered messages and close the producer; the next call makes a new one. A second call has no
        effect.
        """
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0)


def text_of(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(given: Any) -> Message:
    if isinstance(given, Message):
        return given
    if isinstance(given, tuple):
        key, value = given
        return Message(_bytes(value), _bytes(key))
    return Message(_bytes(given))


def _bytes(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    import json

    return json.dumps(value).encode()
