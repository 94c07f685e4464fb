"""The plugins that come with Barnabas; each is asked last, so that a user's own of the same name wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..specs import hookimpl

if TYPE_CHECKING:
    from ...core.classic.rebalancer import Rebalancer
    from ...core.client.group.assignor import Assignor
    from ...core.client.producer.handlers import CallbackHandler, EventHandler
    from ...core.client.producer.partitioner import Partitioner
    from ...core.client.serde import Decoder, Encoder
    from ...core.log.retention import DeletionContext, DeletionPolicy
    from ...core.message.codec import Codec
    from ...core.replica.leader.replica_selector import ReplicaSelector


class BuiltIn:
    """The built-in names. What is behind them is imported when asked for: a broker needs no partitioners to start."""

    @hookimpl(trylast=True)
    def barnabas_names(self, kind: str) -> Sequence[str]:
        from ...core.client.group.builtin_assignors import ASSIGNOR_NAMES
        from .deletion_policies import DELETION_POLICY_NAMES
        from .encoders import SERDE_NAMES
        from .handlers import HANDLER_NAMES
        from .partitioners import PARTITIONER_NAMES
        from .replica_selectors import REPLICA_SELECTOR_NAMES

        names: dict[str, Sequence[str]] = {
            "encoder": SERDE_NAMES,
            "decoder": SERDE_NAMES,
            "partitioner": PARTITIONER_NAMES,
            "event_handler": HANDLER_NAMES,
            "callback_handler": HANDLER_NAMES,
            "deletion_policy": DELETION_POLICY_NAMES,
            "rebalance_strategy": ASSIGNOR_NAMES,
            "rebalancer": ("range",),
            "replica_selector": REPLICA_SELECTOR_NAMES,
        }
        return names.get(kind, ())

    @hookimpl(trylast=True)
    def barnabas_codecs(self) -> Sequence[Codec]:
        from .codecs import builtin_codecs

        codecs = builtin_codecs()
        return [codec for name in codecs.names if (codec := codecs.by_name(name)) is not None]

    @hookimpl(trylast=True)
    def barnabas_encoder(self, name: str) -> Encoder | None:
        from .encoders import builtin_serde

        return builtin_serde(name)

    @hookimpl(trylast=True)
    def barnabas_decoder(self, name: str) -> Decoder | None:
        from .encoders import builtin_serde

        return builtin_serde(name)

    @hookimpl(trylast=True)
    def barnabas_partitioner(self, name: str) -> Partitioner | None:
        from .partitioners import builtin_partitioner

        return builtin_partitioner(name)

    @hookimpl(trylast=True)
    def barnabas_event_handler(self, name: str, config: Mapping[str, object]) -> EventHandler | None:  # noqa: ARG002
        from .handlers import builtin_event_handler

        return builtin_event_handler(name)

    @hookimpl(trylast=True)
    def barnabas_callback_handler(self, name: str, config: Mapping[str, object]) -> CallbackHandler | None:  # noqa: ARG002
        from .handlers import builtin_callback_handler

        return builtin_callback_handler(name)

    @hookimpl(trylast=True)
    def barnabas_deletion_policy(self, name: str, context: DeletionContext) -> DeletionPolicy | None:
        from .deletion_policies import builtin_deletion_policy

        return builtin_deletion_policy(name, context)

    @hookimpl(trylast=True)
    def barnabas_rebalance_strategy(self, name: str) -> Assignor | None:
        from ...core.client.group.builtin_assignors import ASSIGNOR_NAMES, builtin_assignor

        return builtin_assignor(name) if name in ASSIGNOR_NAMES else None

    @hookimpl(trylast=True)
    def barnabas_rebalancer(self, name: str) -> Rebalancer | None:
        from ...core.classic.rebalancer import RangeRebalancer

        return RangeRebalancer() if name == "range" else None

    @hookimpl(trylast=True)
    def barnabas_replica_selector(self, name: str) -> ReplicaSelector | None:
        from .replica_selectors import builtin_replica_selector

        return builtin_replica_selector(name)
