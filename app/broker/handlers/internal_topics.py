"""The configuration of internal topics (facts C6)."""

from attrs import evolve

from ....core.cluster.topics import INTERNAL_TOPICS
from ....core.coordinator.group.config import GroupCoordinatorConfig
from ....ports.broker_api.topics import NewTopic
from ...config import BrokerConfig
from ...config.classic import FORMAT_KEY, V2

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"

_RECORD_MAX_BYTES = GroupCoordinatorConfig().group_record_max_bytes + 8 * 1024 * 1024
"""The size limit of batches, which must hold one group with its member ids."""


def replication_factor_of(topic: str, static: BrokerConfig) -> int:
    """Return the wanted replication factor of an internal topic, which needs as many brokers."""
    if topic == TRANSACTIONS_TOPIC:
        return static.transaction_state_log_replication_factor
    if topic == SHARE_STATE_TOPIC:
        return static.share_coordinator_state_topic_replication_factor
    return static.offsets_topic_replication_factor


def _configs(topic: str, static: BrokerConfig) -> dict[str, str | None]:
    configs: dict[str, str | None] = {"cleanup.policy": "compact"}
    if topic == TRANSACTIONS_TOPIC:
        configs |= {
            "compression.type": "uncompressed",
            "min.insync.replicas": str(static.transaction_state_log_min_isr),
            "segment.bytes": str(static.transaction_state_log_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    elif topic == SHARE_STATE_TOPIC:
        configs |= {
            "cleanup.policy": "delete",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(static.share_coordinator_state_topic_min_isr),
            "retention.bytes": "-1",
            "retention.ms": "-1",
            "segment.bytes": str(static.share_coordinator_state_topic_segment_bytes),
            "unclean.leader.election.enable": "false",
        }
    else:
        configs |= {
            "compression.type": "producer",
            "max.message.bytes": str(max(_RECORD_MAX_BYTES, static.message_max_bytes)),
            "segment.bytes": str(static.offsets_topic_segment_bytes),
        }
    if static.message_format != V2:
        configs[FORMAT_KEY] = V2
    return configs


def as_it_must_be(new: NewTopic, static: BrokerConfig, live_machines: int) -> NewTopic:
    """Return the request for a topic, completed if it is an internal one.

    The topic gets its replication factor, or one replica on each live machine if there are fewer; see
    `InternalReplicas`.
    """
    if new.name not in INTERNAL_TOPICS:
        return new
    completed = evolve(new, configs={**_configs(new.name, static), **new.configs})
    if new.assignments is not None:
        return completed
    replicas = min(replication_factor_of(new.name, static), max(1, live_machines))
    partitions = static.offsets_topic_num_partitions
    if new.name == TRANSACTIONS_TOPIC:
        partitions = static.transaction_state_log_num_partitions
    elif new.name == SHARE_STATE_TOPIC:
        partitions = static.share_coordinator_state_topic_num_partitions
    return evolve(
        completed,
        partitions=partitions if new.partitions == -1 else new.partitions,
        replication_factor=replicas if new.replication_factor == -1 else new.replication_factor,
    )
