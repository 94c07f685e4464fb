"""The plugins that come with Barnabas; each is asked last, so that a user's own of the same name wins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...ports.types import TopicPartition
from ..specs import hookimpl

if TYPE_CHECKING:
    from ...core.classic.rebalancer import Rebalancer
    from ...core.client.group.assignor import Assignor
    from ...core.client.producer.handlers import CallbackHandler, EventHandler
    from ...core.client.producer.partitioner import Partitioner
    from ...core.client.serde import Decoder, Encoder
    from ...core.log.retention import DeletionContext, DeletionPolicy
    from ...core.message.codec import Codec
    from ...core.replica.leader.replica_selector import NearReader, ReplicaSelector, ReplicaView


class RackAwareSelector:
    """A replica in the rack of the reader: the leader if it is there, else the one that is farthest (KIP-392)."""

    def select(
        self,
        place: TopicPartition,  # noqa: ARG002
        reader: NearReader,
        leader: ReplicaView,
        replicas: Sequence[ReplicaView],
    ) -> int:
        near = [replica for replica in replicas if reader.rack and replica.rack == reader.rack]
        if not near or leader in near:
            return leader.broker_id
        return max(near, key=lambda each: (each.log_end_offset, -each.behind_ms, -each.broker_id)).broker_id


class LeaderSelector:
    """Always the leader."""

    def select(
        self,
        place: TopicPartition,  # noqa: ARG002
        reader: NearReader,  # noqa: ARG002
        leader: ReplicaView,
        replicas: Sequence[ReplicaView],  # noqa: ARG002
    ) -> int:
        return leader.broker_id


_SELECTORS: dict[str, Callable[[], ReplicaSelector]] = {
    "leader": LeaderSelector,
    "rack-aware": RackAwareSelector,
    "org.apache.kafka.common.replica.LeaderSelector": LeaderSelector,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector": RackAwareSelector,
}
REPLICA_SELECTOR_NAMES = tuple(_SELECTORS)
HANDLER_NAMES = ("default",)
"""The handlers of producers that change nothing."""


def builtin_replica_selector(name: str) -> ReplicaSelector | None:
    """Return the selector of this name, None if there is none; Kafka's names of its classes are known, too."""
    made = _SELECTORS.get(name)
    return made() if made is not None else None


class BuiltIn:
    """The built-in names. What is behind them is imported when asked for: a broker needs no partitioners to start."""

    @hookimpl(trylast=True)
    def barnabas_names(self, kind: str) -> Sequence[str]:
        from ...core.client.group.builtin_assignors import ASSIGNOR_NAMES
        from .deletion import DELETION_POLICY_NAMES
        from .encoders import SERDE_NAMES
        from .partitioners import PARTITIONER_NAMES

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
        from ...core.client.producer.handlers import EventHandler

        return EventHandler() if name in HANDLER_NAMES else None

    @hookimpl(trylast=True)
    def barnabas_callback_handler(self, name: str, config: Mapping[str, object]) -> CallbackHandler | None:  # noqa: ARG002
        from ...core.client.producer.handlers import CallbackHandler

        return CallbackHandler() if name in HANDLER_NAMES else None

    @hookimpl(trylast=True)
    def barnabas_deletion_policy(self, name: str, context: DeletionContext) -> DeletionPolicy | None:
        from .deletion import builtin_deletion_policy

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

        return builtin_replica_selector(name)
