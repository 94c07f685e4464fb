"""Stray replicas: logs that this broker should not have by the metadata (KAFKA-14616; LogManager.isStrayReplica).

Kafka goes by the assignment alone, since its metadata never go back. The coordination service may have been restored
from a backup, and then a log that is assigned elsewhere may be the only complete one. So a log is stray only if the
partition certainly does not need it, and if its leader has all records of it.
"""

from ...ports.broker_api.epochs import EpochEndOffset
from ...ports.error_codes import ErrorCode
from ...ports.types import TopicPartition
from .election import ElectionRules
from .image import ClusterImage
from .layout import encode_id
from .reassignment import live_isr
from .topics import Topic


def why_stray(image: ClusterImage, key: TopicPartition, topic_id: bytes, own: int, rules: ElectionRules) -> str | None:
    """Return why the log of a partition is stray on the broker `own`; None: it is not, or that is in doubt.

    The image must be current. The partition must have a live leader and enough other replicas in sync, and this broker
    must be no member of it. `topic_id` is that of the log. Ask `has_all_records` as well.
    """
    topic = image.topics.get(key.topic)
    replicas = () if topic is None else topic.partitions.get(key.partition, ())
    if topic is None or topic.topic_id != topic_id or not replicas or own in replicas:
        return None
    state, brokers = image.state(key), image.brokers_with(key)
    in_sync = set(live_isr(state, brokers)) & set(replicas)
    if own in state.members or state.leader not in in_sync or len(in_sync) < rules.enough(replicas, state):
        return None
    return f"the current replica assignment {list(replicas)} does not contain the local brokerId {own}"


def has_all_records(latest_epoch: int, log_end_offset: int, leader: EpochEndOffset) -> bool:
    """Return True if a leader has all records of a log, by its answer for the latest leader epoch of that log."""
    if latest_epoch < 0:
        return log_end_offset == 0
    is_known = leader.error is ErrorCode.NONE and leader.leader_epoch == latest_epoch
    return is_known and leader.end_offset >= log_end_offset


def why_orphan_is_stray(topic: Topic | None, topic_id: bytes | None) -> str | None:
    """Return why the folder of a partition is stray whose topic the broker did not know at its start; None: it is not,
    or that is in doubt.

    `topic` is the one that has its name now, `topic_id` that of the folder. A topic that is missing may have been
    deleted, or its nodes were lost; then the folder may be the only copy, and must be opened when they are back.
    """
    if topic is None or topic_id is None or topic.topic_id == topic_id:
        return None
    return f"topic {topic.name} has the topicId {encode_id(topic.topic_id)} by now, not {encode_id(topic_id)}"
