"""Decoders of the records of internal topics, for `barnabas log dump`."""

from ....core.cluster.layout import encode_id
from ....core.coordinator.group.records import GroupKey, decode_group, decode_offset
from ....core.coordinator.group.records import decode_key as decode_group_key
from ....core.coordinator.record_fields import UnknownVersion
from ....core.coordinator.transaction.records import decode_key as decode_transactional_id
from ....core.coordinator.transaction.records import decode_value
from ....core.message.message import Message
from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.errors import ApiError

Fields = dict[str, object]


def offsets(message: Message) -> Fields:
    """Decode a record of `__consumer_offsets`: a committed offset of a group, or its members."""
    try:
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
