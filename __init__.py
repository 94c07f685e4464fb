"""Barnabas: a complete distributed log in Python.

The names below are the stable face of the package. They are loaded on first use, so that `import barnabas` and the
commands that need few of them start quickly.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app.clients.admin.admin import Admin
    from .app.clients.aio import AsyncConsumer, AsyncProducer, AsyncShareConsumer
    from .app.clients.classic.consumer_connector import ConsumerConnector
    from .app.clients.classic.streams import MessageStream
    from .app.clients.consumer.consumer import Consumer
    from .app.clients.consumer.rebalance_listener import RebalanceListener
    from .app.clients.consumer.simple_consumer import SimpleConsumer
    from .app.clients.producer.producer import Producer
    from .app.clients.share.share_consumer import ShareConsumer
    from .app.clients.shared.bootstrap import Bootstrap
    from .app.clients.shared.typed_settings import (
        ClientKeywords,
        ConsumerKeywords,
        ProducerKeywords,
        ShareConsumerKeywords,
    )
    from .app.compose.broker import outside_of
    from .app.embedded_broker import Broker
    from .app.mirror import MirrorMaker
    from .app.typed_broker_settings import BrokerKeywords
    from .core.classic.consumer.settings import ConsumerRebalanceFailed, ConsumerTimeout
    from .core.classic.consumer.streams import StreamMessage
    from .core.classic.registry.layout import BrokerPartition
    from .core.classic.registry.topic_filter import TopicFilter
    from .core.client.errors import (
        AbortNeeded,
        ClientTimeout,
        CommitFailed,
        DecodeError,
        DeliveryFailed,
        EncodeError,
        EncodeTypeError,
        EncodeValueError,
        HookError,
        LogTruncated,
        NoOffset,
        ProducerFenced,
        QueueFull,
        TransactionAborted,
        TransactionError,
    )
    from .core.client.group.events import CommittedOffset
    from .core.client.producer.transaction_manager import PreparedTransaction
    from .core.message.corrupt_record import CorruptRecord
    from .core.message.message import Message, ShareMessage
    from .ports.coordination import CoordinationError
    from .ports.error_codes import ErrorCode
    from .ports.errors import (
        ApiError,
        BarnabasError,
        ClosedError,
        ConfigError,
    )
    from .ports.storage import StorageError
    from .ports.transport import AuthenticationError, TransportError
    from .ports.types import TopicPartition

    __version__: str

_HOMES = {
    "AbortNeeded": "core.client.errors",
    "Admin": "app.clients.admin.admin",
    "ApiError": "ports.errors",
    "AsyncConsumer": "app.clients.aio",
    "AsyncProducer": "app.clients.aio",
    "AsyncShareConsumer": "app.clients.aio",
    "AuthenticationError": "ports.transport",
    "BarnabasError": "ports.errors",
    "Broker": "app.embedded_broker",
    "BrokerPartition": "core.classic.registry.layout",
    "Bootstrap": "app.clients.shared.bootstrap",
    "BrokerKeywords": "app.typed_broker_settings",
    "ClientKeywords": "app.clients.shared.typed_settings",
    "ClientTimeout": "core.client.errors",
    "ClosedError": "ports.errors",
    "CommitFailed": "core.client.errors",
    "CommittedOffset": "core.client.group.events",
    "ConfigError": "ports.errors",
    "Consumer": "app.clients.consumer.consumer",
    "ConsumerConnector": "app.clients.classic.consumer_connector",
    "ConsumerRebalanceFailed": "core.classic.consumer.settings",
    "ConsumerKeywords": "app.clients.shared.typed_settings",
    "ConsumerTimeout": "core.classic.consumer.settings",
    "CoordinationError": "ports.coordination",
    "CorruptRecord": "core.message.corrupt_record",
    "DecodeError": "core.client.errors",
    "DeliveryFailed": "core.client.errors",
    "EncodeError": "core.client.errors",
    "EncodeTypeError": "core.client.errors",
    "EncodeValueError": "core.client.errors",
    "ErrorCode": "ports.error_codes",
    "HookError": "core.client.errors",
    "LogTruncated": "core.client.errors",
    "Message": "core.message.message",
    "MessageStream": "app.clients.classic.streams",
    "MirrorMaker": "app.mirror",
    "NoOffset": "core.client.errors",
    "PreparedTransaction": "core.client.producer.transaction_manager",
    "Producer": "app.clients.producer.producer",
    "ProducerFenced": "core.client.errors",
    "ProducerKeywords": "app.clients.shared.typed_settings",
    "QueueFull": "core.client.errors",
    "RebalanceListener": "app.clients.consumer.rebalance_listener",
    "ShareConsumer": "app.clients.share.share_consumer",
    "ShareConsumerKeywords": "app.clients.shared.typed_settings",
    "ShareMessage": "core.message.message",
    "SimpleConsumer": "app.clients.consumer.simple_consumer",
    "StorageError": "ports.storage",
    "StreamMessage": "core.classic.consumer.streams",
    "TopicFilter": "core.classic.registry.topic_filter",
    "TopicPartition": "ports.types",
    "TransactionAborted": "core.client.errors",
    "TransactionError": "core.client.errors",
    "TransportError": "ports.transport",
    "outside_of": "app.compose.broker",
}

__all__ = [
    "AbortNeeded",
    "Admin",
    "ApiError",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
    "AuthenticationError",
    "BarnabasError",
    "Broker",
    "BrokerPartition",
    "Bootstrap",
    "BrokerKeywords",
    "ClientKeywords",
    "ClientTimeout",
    "ClosedError",
    "CommitFailed",
    "CommittedOffset",
    "ConfigError",
    "Consumer",
    "ConsumerConnector",
    "ConsumerRebalanceFailed",
    "ConsumerKeywords",
    "ConsumerTimeout",
    "CoordinationError",
    "CorruptRecord",
    "DecodeError",
    "DeliveryFailed",
    "EncodeError",
    "EncodeTypeError",
    "EncodeValueError",
    "ErrorCode",
    "HookError",
    "LogTruncated",
    "Message",
    "MessageStream",
    "MirrorMaker",
    "NoOffset",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "ProducerKeywords",
    "QueueFull",
    "RebalanceListener",
    "ShareConsumer",
    "ShareConsumerKeywords",
    "ShareMessage",
    "SimpleConsumer",
    "StorageError",
    "StreamMessage",
    "TopicFilter",
    "TopicPartition",
    "TransactionAborted",
    "TransactionError",
    "TransportError",
    "__version__",
    "outside_of",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    value: object
    if name == "__version__":
        value = _installed_version()
    elif home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        from importlib import import_module

        value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def _installed_version() -> str:
    """Return the version in pyproject.toml, the one place that has it, as the installation noted it."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("barnabas")
    except PackageNotFoundError:  # the sources stand on the path without an installation
        return "unknown"
