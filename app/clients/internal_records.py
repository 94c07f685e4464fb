"""Decoders of the records of internal topics, for `barnabas log dump` and the web console."""

from collections.abc import Callable, Collection, Mapping

from ...core.cluster.layout import encode_id
from ...core.coordinator.group.consumer_records import (
    CONSUMER_RECORDS,
    ConsumerRecord,
    StoredConsumerAssignment,
    StoredConsumerGroup,
    StoredConsumerMember,
)
from ...core.coordinator.group.records import GroupKey, decode_group, decode_offset
from ...core.coordinator.group.records import decode_key as decode_group_key
from ...core.coordinator.group.share_group_records import (
    SHARE_RECORDS,
    ShareGroupKey,
    StoredCurrentAssignment,
    StoredShareGroup,
    StoredShareMember,
    StoredStatePartitions,
    StoredTargetAssignment,
    StoredTopicPartitions,
    decode_share_key,
    decode_share_value,
)
from ...core.coordinator.record_fields import RecordReader, UnknownVersion
from ...core.coordinator.share.records import SNAPSHOT, decode_snapshot, decode_update
from ...core.coordinator.share.records import decode_key as decode_share_state_key
from ...core.coordinator.transaction.records import decode_key as decode_transactional_id
from ...core.coordinator.transaction.records import decode_value
from ...core.message.message import Message
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.errors import ApiError

Fields = dict[str, object]


def offsets(message: Message) -> Fields:
    """Decode a record of `__consumer_offsets`: a committed offset, or a part of a group of any type."""
    try:
        if message.key and message.key[:2] in CONSUMER_RECORDS:
            return _consumer_record(message.key, message.value)
        if message.key and message.key[:2] in SHARE_RECORDS:
            share_key = decode_share_key(message.key)
            return {"key": _share_key(share_key), "value": _share_value(share_key, message.value)}
        key = decode_group_key(message.key or b"")
        if isinstance(key, GroupKey):
            found: Fields = {"group": key.group_id}
            return {"key": found, "value": _group(message.value)}
        found = {"group": key.group_id, "topic": key.partition.topic, "partition": key.partition.partition}
        if message.value is None:
            return {"key": found, "value": None}
        stored = decode_offset(message.value)
        value: Fields = {"offset": stored.offset, "leader_epoch": stored.leader_epoch, "metadata": stored.metadata}
        value["commit_timestamp"] = stored.commit_timestamp_ms
        value["topic_id"] = None if stored.topic_id == NO_TOPIC_ID else encode_id(stored.topic_id)
        return {"key": found, "value": value}
    except (ApiError, UnknownVersion) as error:
        return {"undecoded": str(error)}


def _group(content: bytes | None) -> Fields | None:
    if content is None:
        return None
    group = decode_group(content)
    return {
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id, "client_host": member.client_host}
            for member in group.members
        ],
    }


def _consumer_record(content: bytes, value: bytes | None) -> Fields:
    """Decode a record of a consumer group (KIP-848)."""
    key = RecordReader(content)
    kind = ConsumerRecord(key.i16())
    found: Fields = {"type": int(kind), "group": key.text()}
    if key.has_more:
        found["regex" if kind is ConsumerRecord.REGULAR_EXPRESSION else "member"] = key.text()
    if value is None:
        return {"key": found, "value": None}
    key, group = RecordReader(content), StoredConsumerGroup()
    key.i16(), key.text()
    group.add(kind, key, value)
    return {"key": found, "value": _consumer_value(kind, group)}


def _consumer_value(kind: ConsumerRecord, group: StoredConsumerGroup) -> Fields | None:
    """Return the fields of a record, as it was loaded into an empty group."""
    match kind:
        case ConsumerRecord.GROUP:
            return {"epoch": group.epoch, "metadata_hash": group.metadata_hash}
        case ConsumerRecord.TARGET_ASSIGNMENT:
            return {"assignment_epoch": group.target_epoch, "assignment_timestamp": group.target_timestamp_ms}
        case ConsumerRecord.MEMBER:
            (member,) = group.members.values()
            return _consumer_member(member)
        case ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER:
            (target,) = group.target.values()
            return {"topic_partitions": _partitions(target)}
        case ConsumerRecord.CURRENT_ASSIGNMENT:
            (current,) = group.current.values()
            return _consumer_assignment(current)
        case ConsumerRecord.REGULAR_EXPRESSION:
            (resolved,) = group.expressions.values()
            found: Fields = {"topics": sorted(resolved.topics), "version": resolved.version}
            return {**found, "timestamp": resolved.timestamp_ms}
    return None


def _consumer_member(member: StoredConsumerMember) -> Fields:
    classic = member.classic
    return {
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": list(member.subscribed_topic_names),
        "subscribed_topic_regex": member.subscribed_topic_regex,
        "rebalance_timeout_ms": member.rebalance_timeout_ms,
        "server_assignor": member.server_assignor,
        "classic_protocol": None if classic is None else classic.protocol,
    }


def _consumer_assignment(current: StoredConsumerAssignment) -> Fields:
    return {
        "member_epoch": current.member_epoch,
        "previous_member_epoch": current.previous_member_epoch,
        "state": current.state,
        "assigned_partitions": _partitions(current.assigned),
        "partitions_pending_revocation": _partitions(current.revoking),
    }


def _partitions(topics: Mapping[bytes, Collection[int]]) -> list[Fields]:
    return [{"topic_id": encode_id(topic_id), "partitions": sorted(numbers)} for topic_id, numbers in topics.items()]


def _share_key(key: ShareGroupKey) -> Fields:
    found: Fields = {"type": int(key.kind), "group": key.group_id}
    return {**found, "member": key.member_id} if key.member_id else found


def _share_value(key: ShareGroupKey, content: bytes | None) -> Fields | None:
    if content is None:
        return None
    match decode_share_value(key.kind, content):
        case StoredShareMember() as member:
            return {
                "rack_id": member.rack_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "subscribed_topic_names": list(member.subscribed_topic_names),
            }
        case StoredShareGroup() as group:
            return {"epoch": group.epoch, "metadata_hash": group.metadata_hash}
        case StoredTargetAssignment() as target:
            return {"assignment_epoch": target.assignment_epoch, "assignment_timestamp": target.timestamp_ms}
        case StoredCurrentAssignment() as current:
            return {
                "member_epoch": current.member_epoch,
                "previous_member_epoch": current.previous_member_epoch,
                "state": current.state,
                "assigned_partitions": _partitions(current.assigned),
            }
        case StoredStatePartitions() as partitions:
            return {
                "initializing_topics": _topics(partitions.initializing),
                "initialized_topics": _topics(partitions.initialized),
                "deleting_topics": [
                    {"topic_id": encode_id(topic_id), "topic_name": topic}
                    for topic_id, topic in partitions.deleting.items()
                ],
            }
        case assignment:
            return {"topic_partitions": _partitions(assignment)}


def _topics(topics: Mapping[bytes, StoredTopicPartitions]) -> list[Fields]:
    return [
        {"topic_id": encode_id(topic_id), "topic_name": each.topic, "partitions": list(each.partitions)}
        for topic_id, each in topics.items()
    ]


def transactions(message: Message) -> Fields:
    """Decode a record of `__transaction_state`."""
    try:
        found: Fields = {"transactional_id": decode_transactional_id(message.key or b"")}
        if message.value is None:
            return {"key": found, "value": None}
        stored = decode_value(message.value)
    except (ApiError, UnknownVersion) as error:
        return {"undecoded": str(error)}
    value: Fields = {
        "producer_id": stored.producer_id,
        "producer_epoch": stored.producer_epoch,
        "timeout_ms": stored.timeout_ms,
        "state": stored.state.name,
        "partitions": [str(each) for each in sorted(stored.partitions)],
        "updated": stored.updated_ms,
        "started": stored.started_ms,
    }
    return {"key": found, "value": value}


def share_states(message: Message) -> Fields:
    """Decode a record of `__share_group_state`: the state of a share partition, or changes of it."""
    try:
        record_type, key = decode_share_state_key(message.key or b"")
        found: Fields = {
            "type": "snapshot" if record_type == SNAPSHOT else "update",
            "group": key.group_id,
            "topic_id": encode_id(key.topic_id),
            "partition": key.partition,
        }
        if message.value is None:
            return {"key": found, "value": None}
        value: Fields
        if record_type == SNAPSHOT:
            snapshot = decode_snapshot(message.value)
            offset = snapshot.offset
            value = {
                "snapshot_epoch": snapshot.snapshot_epoch,
                "state_epoch": offset.state_epoch,
                "leader_epoch": offset.leader_epoch,
                "start_offset": offset.start_offset,
                "delivery_complete_count": offset.delivery_complete_count,
                "create_timestamp": snapshot.created_ms,
                "write_timestamp": snapshot.written_ms,
            }
            batches = offset.state_batches
        else:
            update = decode_update(message.value)
            value = {
                "snapshot_epoch": update.snapshot_epoch,
                "leader_epoch": update.leader_epoch,
                "start_offset": update.start_offset,
                "delivery_complete_count": update.delivery_complete_count,
            }
            batches = tuple(update.state_batches)
    except (ApiError, UnknownVersion) as error:
        return {"undecoded": str(error)}
    value["state_batches"] = [
        {
            "first_offset": each.first_offset,
            "last_offset": each.last_offset,
            "delivery_state": each.delivery_state,
            "delivery_count": each.delivery_count,
        }
        for each in batches
    ]
    return {"key": found, "value": value}


DECODERS: Mapping[str, Callable[[Message], Fields]] = {
    "__consumer_offsets": offsets,
    "__transaction_state": transactions,
    "__share_group_state": share_states,
}
"""The decoders by topic."""
