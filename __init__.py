"""Barnabas: a complete distributed log in Python.

The names below are the stable face of the package. They are loaded on first use, so that `import barnabas` and the
commands that need few of them start quickly.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .app.broker.broker import Broker
    from .app.clients.admin import Admin
    from .app.clients.classic.consumer_connector import ConsumerConnector
    from .app.clients.consumer import Consumer
    from .app.clients.consumer_listener import RebalanceListener
    from .app.clients.producer import Producer
    from .app.clients.simple_consumer import SimpleConsumer
    from .app.mirror import MirrorMaker
    from .core.classic.registry.layout import BrokerPartition
    from .core.classic.registry.topic_filter import TopicFilter
    from .core.client.errors import AbortNeeded, CommitFailed, ProducerFenced, TransactionError
    from .core.client.group.events import CommittedOffset
    from .core.client.producer.transaction import PreparedTransaction
    from .core.message.message import Message

__version__ = "0.1.0"

_HOMES = {
    "AbortNeeded": "core.client.errors",
    "Admin": "app.clients.admin",
    "Broker": "app.broker.broker",
    "BrokerPartition": "core.classic.registry.layout",
    "CommitFailed": "core.client.errors",
    "CommittedOffset": "core.client.group.events",
    "Consumer": "app.clients.consumer",
    "ConsumerConnector": "app.clients.classic.consumer_connector",
    "Message": "core.message.message",
    "MirrorMaker": "app.mirror",
    "PreparedTransaction": "core.client.producer.transaction",
    "Producer": "app.clients.producer",
    "ProducerFenced": "core.client.errors",
    "RebalanceListener": "app.clients.consumer_listener",
    "SimpleConsumer": "app.clients.simple_consumer",
    "TopicFilter": "core.classic.registry.topic_filter",
    "TransactionError": "core.client.errors",
}

__all__ = [
    "AbortNeeded",
    "Admin",
    "Broker",
    "BrokerPartition",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerConnector",
    "Message",
    "MirrorMaker",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "RebalanceListener",
    "SimpleConsumer",
    "TopicFilter",
    "TransactionError",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value
