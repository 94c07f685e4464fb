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
    from ..core.security.sasl.oauthbearer import InvalidToken, TokenValidator, ValidatedToken
    from ..core.security.sasl.plain import Authenticator
    from ..core.security.sasl.server_authenticator import AuthenticationContext, PrincipalBuilder
    from ..core.security.standard_authorizer import Authorizer
    from ..ports.broker_api.envelope import Principal
    from ..ports.coordination import CoordinationBackend, SessionRequest
    from ..ports.remote_storage import RemoteStorage, RemoteStorageFactory
    from .host import PluginHost

_HOMES = {
    "Assignor": "..core.client.group.assignor",
    "AuthenticationContext": "..core.security.sasl.server_authenticator",
    "Authenticator": "..core.security.sasl.plain",
    "Authorizer": "..core.security.standard_authorizer",
    "BatchOutcome": "..core.client.producer.handlers",
    "CallbackHandler": "..core.client.producer.handlers",
    "Codec": "..core.message.codec",
    "CoordinationBackend": "..ports.coordination",
    "Decoder": "..core.client.serde",
    "DeletionContext": "..core.log.retention",
    "DeletionPolicy": "..core.log.retention",
    "Encoder": "..core.client.serde",
    "EventHandler": "..core.client.producer.handlers",
    "InvalidToken": "..core.security.sasl.oauthbearer",
    "MessageCounter": "..core.client.message_counter",
    "NearReader": "..core.replica.leader.replica_selector",
    "Partitioner": "..core.client.producer.partitioner",
    "PluginHost": ".host",
    "Principal": "..ports.broker_api.envelope",
    "PrincipalBuilder": "..core.security.sasl.server_authenticator",
    "ProducerItem": "..core.client.producer.handlers",
    "Rebalancer": "..core.classic.rebalancer",
    "RecordPolicy": "..core.log.retention",
    "RemoteStorage": "..ports.remote_storage",
    "RemoteStorageFactory": "..ports.remote_storage",
    "ReplicaSelector": "..core.replica.leader.replica_selector",
    "ReplicaView": "..core.replica.leader.replica_selector",
    "SegmentInfo": "..core.log.retention",
    "SessionRequest": "..ports.coordination",
    "Subscription": "..core.client.group.consumer_protocol",
    "TokenValidator": "..core.security.sasl.oauthbearer",
    "ValidatedToken": "..core.security.sasl.oauthbearer",
    "murmur2_partition": "..core.client.producer.hashing",
}

__all__ = [
    "RemoteStorage",
    "RemoteStorageFactory",
    "ValidatedToken",
    "TokenValidator",
    "PrincipalBuilder",
    "Principal",
    "InvalidToken",
    "Authorizer",
    "Authenticator",
    "AuthenticationContext",
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
