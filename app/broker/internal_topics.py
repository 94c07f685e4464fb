"""The topics that belong to the broker itself: what they are like, and what clients may not do with them (facts C6)."""

from attrs import evolve

from ...core.coordinator.group.config import GroupConfig
from ...ports.broker_api.topics import NewTopic
from ..config import BrokerConfig
from ..config.classic import FORMAT_KEY, V2

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"

_RECORD_MAX_BYTES = GroupConfig().group_record_max_bytes + 8 * 1024 * 1024
"""The largest batch: one group, with the names of its members."""


def as_it_must_be(new: NewTopic, static: BrokerConfig, live_brokers: int) -> NewTopic:
    """The request for a topic, completed where it asks for the offsets topic.

    It gets `offsets.topic.replication.factor` replicas, or one on each broker that lives; see `OffsetsReplicas`.
    """
    if new.name != OFFSETS_TOPIC:
        return new
    configs: dict[str, str | None] = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "max.message.bytes": str(max(_RECORD_MAX_BYTES, static.message_max_bytes)),
        "segment.bytes": str(static.offsets_topic_segment_bytes),
    }
    if static.message_format != V2:
        configs[FORMAT_KEY] = V2
    completed = evolve(new, configs={**configs, **new.configs})
    if new.assignments is not None:
        return completed
    replicas = min(static.offsets_topic_replication_factor, max(1, live_brokers))
    return evolve(
        completed,
        partitions=static.offsets_topic_num_partitions if new.partitions == -1 else new.partitions,
        replication_factor=replicas if new.replication_factor == -1 else new.replication_factor,
    )
