"""The records of `__consumer_offsets`: Kafka's own keys and values (facts E3).

A key begins with a version that also gives its type: 0 and 1 a committed offset, 2 a group. A value begins with a
version of its own; None is a tombstone. Strings have 16-bit lengths, bytes and lists 32-bit ones; in values of version
4 varints one above the length, and fields with tags end each structure. Committed offsets are written in version 4,
which names the topic's id; groups in version 3.
"""

from collections.abc import Sequence
from struct import Struct, pack
from typing import NamedTuple

from attrs import field

from ....ports.broker_api.metadata import NO_TOPIC_ID
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..record_fields import FlexibleReader, RecordReader, UnknownVersion, encode_text, encode_varint

LONG_MAX = 2**63 - 1
_OFFSET_KEY = 1
_GROUP_KEY = 2
_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3
_KNOWN_VALUES = range(5)
_FLEXIBLE = 4
_TOPIC_ID_TAG = 0
_EXPIRY_TAG = 10_000
"""Not Kafka's: its version 4 has no place for an expiry of a commit's own. Kafka's readers skip the tag, and keep the
offset as long as any other."""
_TOPIC_ID_HEAD = bytes((_TOPIC_ID_TAG, len(NO_TOPIC_ID)))
_EXPIRY_HEAD = encode_varint(_EXPIRY_TAG) + b"\x08"

_SHORT = Struct(">h")
_INT = Struct(">i")
_LONG = Struct(">q")
_OFFSET_HEAD = Struct(">hqi")


class StoredOffset(NamedTuple):
    """A position of a group: the offset of the next record to read. A named tuple: commits are many and quick.

    `expire_timestamp_ms` -1: as the broker is configured. `topic_id`: the topic that the offset is of; NO_TOPIC_ID for
    records that older versions wrote.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = -1
    topic_id: bytes = NO_TOPIC_ID

    def is_of(self, topic_id: bytes) -> bool:
        """Return True if the offset belongs to the topic with this id, or the record names no id."""
        return self.topic_id in (topic_id, NO_TOPIC_ID)


@frozen(kw_only=True)
class StoredMember:
    """A member as the log keeps it. `subscription` is its metadata for the protocol of the generation."""

    member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes = field(default=b"", repr=lambda data: f"<{len(data)} bytes>")
    assignment: bytes = field(default=b"", repr=lambda data: f"<{len(data)} bytes>")


@frozen(kw_only=True)
class StoredGroup:
    """One generation of a group as the log keeps it; without members the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = -1
    """The time at which it entered its present state; -1 = not known."""
    members: Sequence[StoredMember] = ()

    @property
    def size_bytes(self) -> int:
        """The size of the members' subscriptions and assignments, which is nearly all of the record."""
        return sum(len(member.subscription) + len(member.assignment) for member in self.members)


@frozen
class OffsetKey:
    """The record is about one position of a group."""

    group_id: str
    partition: TopicPartition


@frozen
class GroupKey:
    """The record is about the members of a group."""

    group_id: str


def encode_offset_key(group_id: str, topic: str, partition: int) -> bytes:
    """Version 1. Raises `ApiError` INVALID_REQUEST for a string of more than 32767 bytes, as the others here."""
    return b"\x00\x01" + encode_text(group_id) + encode_text(topic) + _INT.pack(partition)


def encode_offset(value: StoredOffset) -> bytes:
    """Version 4. Without a topic id version 3, or 1 with an expiry of its own; brokers before Kafka 4 read these."""
    metadata = encode_text(value.metadata)
    if value.topic_id != NO_TOPIC_ID:
        text = encode_varint(len(metadata) - _SHORT.size + 1) + metadata[_SHORT.size :]
        head = _OFFSET_HEAD.pack(_FLEXIBLE, value.offset, value.leader_epoch)
        data = head + text + _LONG.pack(value.commit_timestamp_ms)
        if value.expire_timestamp_ms < 0:
            return data + b"\x01" + _TOPIC_ID_HEAD + value.topic_id
        expiry = _EXPIRY_HEAD + _LONG.pack(value.expire_timestamp_ms)
        return data + b"\x02" + _TOPIC_ID_HEAD + value.topic_id + expiry
    if value.expire_timestamp_ms < 0:
        head = _OFFSET_HEAD.pack(_OFFSET_VALUE, value.offset, value.leader_epoch)
        return head + metadata + _LONG.pack(value.commit_timestamp_ms)
    head = pack(">hq", _OFFSET_VALUE_WITH_EXPIRY, value.offset)
    return head + metadata + pack(">qq", value.commit_timestamp_ms, value.expire_timestamp_ms)


def encode_group_key(group_id: str) -> bytes:
    """Version 2."""
    return b"\x00\x02" + encode_text(group_id)


def encode_group(group: StoredGroup) -> bytes:
    """Version 3."""
    parts = [
        _SHORT.pack(_GROUP_VALUE),
        encode_text(group.protocol_type),
        _INT.pack(group.generation),
        _nullable(group.protocol),
        _nullable(group.leader),
        pack(">qi", group.state_timestamp_ms, len(group.members)),
    ]
    for member in group.members:
        parts += (
            encode_text(member.member_id),
            _nullable(member.group_instance_id),
            encode_text(member.client_id),
            encode_text(member.client_host),
            pack(">iii", member.rebalance_timeout_ms, member.session_timeout_ms, len(member.subscription)),
            member.subscription,
            _INT.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def decode_key(key: bytes) -> OffsetKey | GroupKey:
    """Raises `UnknownVersion`, and `ApiError` CORRUPT_MESSAGE for nonsense."""
    reader = RecordReader(key)
    version = reader.i16()
    if version in (0, _OFFSET_KEY):
        return OffsetKey(reader.text(), TopicPartition(reader.text(), reader.i32()))
    if version == _GROUP_KEY:
        return GroupKey(reader.text())
    raise UnknownVersion("a key", version)


def decode_offset(value: bytes) -> StoredOffset:
    """Versions 0 to 4. Raises as `decode_key`."""
    reader = RecordReader(value)
    version = reader.i16()
    if version not in _KNOWN_VALUES:
        raise UnknownVersion("a committed offset", version)
    if version >= _FLEXIBLE:
        reader = FlexibleReader(value[_SHORT.size :])
    stored = StoredOffset(
        offset=reader.i64(),
        leader_epoch=reader.i32() if version >= 3 else -1,
        metadata=reader.text(),
        commit_timestamp_ms=reader.i64(),
        expire_timestamp_ms=reader.i64() if version == 1 else -1,
    )
    tags = reader.tags()
    topic_id, expiry = tags.get(_TOPIC_ID_TAG, NO_TOPIC_ID), tags.get(_EXPIRY_TAG)
    if len(topic_id) != len(NO_TOPIC_ID) or (expiry is not None and len(expiry) != _LONG.size):
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a tagged field of another size than its type has")
    if expiry is not None:
        stored = stored._replace(expire_timestamp_ms=_LONG.unpack(expiry)[0])
    return stored._replace(topic_id=topic_id) if tags else stored


def decode_group(value: bytes) -> StoredGroup:
    """Versions 0 to 4. Raises as `decode_key`."""
    reader = RecordReader(value)
    version = reader.i16()
    if version not in _KNOWN_VALUES:
        raise UnknownVersion("a group", version)
    if version >= _FLEXIBLE:
        reader = FlexibleReader(value[_SHORT.size :])
    return StoredGroup(
        protocol_type=reader.text(),
        generation=reader.i32(),
        protocol=reader.optional_text(),
        leader=reader.optional_text(),
        state_timestamp_ms=reader.i64() if version >= 2 else -1,
        members=tuple(_member(reader, version) for _ in range(reader.count())),
    )


def _member(reader: RecordReader, version: int) -> StoredMember:
    member_id = reader.text()
    instance_id = reader.optional_text() if version >= 3 else None
    client_id, client_host = reader.text(), reader.text()
    rebalance_timeout_ms = reader.i32() if version >= 1 else None
    session_timeout_ms = reader.i32()
    member = StoredMember(
        member_id=member_id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        # Version 0 was written when there was only one timeout.
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.data(),
        assignment=reader.data(),
    )
    reader.skip_tags()
    return member


def _nullable(text: str | None) -> bytes:
    return b"\xff\xff" if text is None else encode_text(text)
