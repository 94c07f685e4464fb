"""Extension points: hook specifications, the plugin host, and the built-in plugins.

The names below are the stable face for those who write plugins (docs/plugins.md). They are loaded on first use: plugins
are loaded with every client and broker, and are to cost little.
"""

from typing import TYPE_CHECKING

from .specs import hookimpl

if TYPE_CHECKING:
    from ..core.classic.rebalancer import Rebalancer
    from ..core.client.group.assignor import Assignor
    from ..core.client.group.consumer_protocol import Subscription
    from ..core.client.message_counter import MessageCounter
    from ..core.client.producer.handlers import BatchOutcome, CallbackHandler, EventHandler, ProducerItem
    from ..core.client.producer.hashing import murmur2_partition
    from ..core.client.producer.partitioner import Partitioner
    from ..core.client.serde import Decoder, Encoder
    from ..core.log.retention import DeletionContext, DeletionPolicy, RecordPolicy, SegmentInfo
    from ..core.message.codec import Codec
    from ..core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView
    from ..ports.coordination import CoordinationBackend, SessionRequest
    from .host import PluginHost

_HOMES = {
    "Assignor": "..core.client.group.assignor",
    "BatchOutcome": "..core.client.producer.handlers",
    "CallbackHandler": "..core.client.producer.handlers",
    "CoordinationBackend": "..ports.coordination",
    "Codec": "..core.message.codec",
    "Decoder": "..core.client.serde",
    "DeletionContext": "..core.log.retention",
    "DeletionPolicy": "..core.log.retention",
    "Encoder": "..core.client.serde",
    "EventHandler": "..core.client.producer.handlers",
    "MessageCounter": "..core.client.message_counter",
    "NearReader": "..core.replica.leader.replica_selector",
    "Partitioner": "..core.client.producer.partitioner",
    "PluginHost": ".host",
    "ProducerItem": "..core.client.producer.handlers",
    "Rebalancer": "..core.classic.rebalancer",
    "RecordPolicy": "..core.log.retention",
    "ReplicaSelector": "..core.replica.leader.replica_selector",
    "ReplicaView": "..core.replica.leader.replica_selector",
    "SessionRequest": "..ports.coordination",
    "SegmentInfo": "..core.log.retention",
    "Subscription": "..core.client.group.consumer_protocol",
    "murmur2_partition": "..core.client.producer.hashing",
}

__all__ = [
    "Assignor",
    "BatchOutcome",
    "CallbackHandler",
    "Codec",
    "CoordinationBackend",
    "Decoder",
    "DeletionContext",
    "DeletionPolicy",
    "Encoder",
    "EventHandler",
    "MessageCounter",
    "NearReader",
    "Partitioner",
    "PluginHost",
    "ProducerItem",
    "Rebalancer",
    "RecordPolicy",
    "ReplicaSelector",
    "ReplicaView",
    "SegmentInfo",
    "SessionRequest",
    "Subscription",
    "hookimpl",
    "murmur2_partition",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home, __name__), name)
    globals()[name] = value
    return value
