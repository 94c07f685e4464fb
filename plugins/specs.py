"""The hooks that a plugin may implement (installed ones are found by the entry-point group `barnabas`).

Every hook is a factory, called when something is composed and never on the way of a message: it returns a new object
for a name it knows, or None. The first that answers wins; plugins are asked before the built-in ones.

    from barnabas.plugins import hookimpl

    @hookimpl
    def barnabas_partitioner(name): return MyPartitioner() if name == "mine" else None

    @hookimpl
    def barnabas_names(kind): return ["mine"] if kind == "partitioner" else []
"""

# Annotations stay text here, so that making the specs imports none of the rooms they speak of.
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from ..core.classic.rebalancer import Rebalancer
    from ..core.client.group.assignor import Assignor
    from ..core.client.message_counter import MessageCounter
    from ..core.client.producer.handlers import CallbackHandler, EventHandler
    from ..core.client.producer.partitioner import Partitioner
    from ..core.client.serde import Decoder, Encoder
    from ..core.log.retention import DeletionContext, DeletionPolicy
    from ..core.message.codec import Codec
    from ..core.replica.leader.replica_selector import ReplicaSelector
    from ..core.security.sasl.oauthbearer import TokenValidator
    from ..core.security.sasl.plain import Authenticator
    from ..core.security.sasl.server_authenticator import PrincipalBuilder
    from ..core.security.standard_authorizer import Authorizer
    from ..ports.coordination import CoordinationBackend
    from ..ports.remote_storage import RemoteStorageFactory

PROJECT = "barnabas"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Specs:
    """The hook specifications."""

    @hookspec
    def barnabas_names(self, kind: str) -> Sequence[str]:
        """Return the names this plugin answers to for a kind ("encoder", "partitioner", ...), for error messages."""
        raise NotImplementedError

    @hookspec
    def barnabas_codecs(self) -> Sequence[Codec]:
        """Compression codecs; one with the id of a built-in codec replaces it."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_encoder(self, name: str) -> Encoder | None:
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_decoder(self, name: str) -> Decoder | None:
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_partitioner(self, name: str) -> Partitioner | None:
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_event_handler(self, name: str, config: Mapping[str, object]) -> EventHandler | None:
        """`config` is what the user gave as `event.handler.props`."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_callback_handler(self, name: str, config: Mapping[str, object]) -> CallbackHandler | None:
        """`config` is what the user gave as `callback.handler.props`."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_message_counter(self, name: str, config: Mapping[str, object]) -> MessageCounter | None:
        """Return a counter of the messages that a mirror's stream copies (`MirrorMaker`, `counter`), one per stream."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_deletion_policy(self, name: str, context: DeletionContext) -> DeletionPolicy | None:
        """Return the rule that deletes from a log (`deletion.policy`), one per log. `context` may be omitted.

        It raises `ConfigError` for invalid parameters.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_rebalance_strategy(self, name: str) -> Assignor | None:
        """Return the assignor of a group's leader (`partition.assignment.strategy`).

        Members of all clients must know it by this name.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_rebalancer(self, name: str) -> Rebalancer | None:
        """Return the rule that assigns a topic's partitions to threads of a classic group (`rebalance.strategy`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_replica_selector(self, name: str) -> ReplicaSelector | None:
        """Return the rule that chooses a preferred read replica (`replica.selector.class`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_authenticator(self, name: str) -> Authenticator | None:
        """Return the check of user names and passwords of SASL/PLAIN (`sasl.server.callback.handler.class`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_token_validator(self, name: str) -> TokenValidator | None:
        """Return the check of bearer tokens of SASL/OAUTHBEARER (`sasl.server.callback.handler.class`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_authorizer(self, name: str) -> Authorizer | None:
        """Return the rule that allows operations on resources (`authorizer.class.name`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_principal_builder(self, name: str) -> PrincipalBuilder | None:
        """Return the rule that makes the principal of a connection (`principal.builder.class`)."""
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_coordination(self, scheme: str) -> CoordinationBackend | None:
        """Return the coordination service whose URLs begin with this scheme (`coordination=SCHEME://...`).

        `barnabas_names("coordination")` gives the schemes of the plug-in.
        """
        raise NotImplementedError

    @hookspec(firstresult=True)
    def barnabas_remote_storage(self, scheme: str) -> RemoteStorageFactory | None:
        """Return what opens the remote storage of URLs with this scheme (`remote.log.storage.manager.class.name`).

        A value that is no URL, such as the name of a class, comes whole. `barnabas_names("remote_storage")` gives the
        schemes of the plug-in.
        """
        raise NotImplementedError
