"""The records of share groups in `__consumer_offsets` (KIP-932): Kafka's own keys and values.

A key is its type, the group id and for some the member id. Every value has version 0, which is flexible.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from struct import Struct

from attrs import field

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define, frozen
from ..log import Record
from ..record_fields import FlexibleReader, FlexibleWriter, RecordReader, UnknownVersion, encode_text

_SHORT = Struct(">h")
_LONG = Struct(">q")
_VERSION = 0
_TIMESTAMP_TAG = 0

TopicIdAssignment = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id."""


class ShareRecord(IntEnum):
    """The subject of a record of a share group: the type in its key."""

    MEMBER = 10
    GROUP = 11
    TARGET_ASSIGNMENT = 12
    TARGET_ASSIGNMENT_OF_MEMBER = 13
    CURRENT_ASSIGNMENT = 14
    STATE_PARTITIONS = 15


SHARE_RECORDS = frozenset(_SHORT.pack(kind) for kind in ShareRecord)
"""The first bytes of the keys."""
_WITH_MEMBER = frozenset({ShareRecord.MEMBER, ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER, ShareRecord.CURRENT_ASSIGNMENT})


@frozen
class ShareGroupKey:
    """The key of a record. `member_id` is empty where the record is about the whole group."""

    kind: ShareRecord
    group_id: str
    member_id: str = ""


@frozen(kw_only=True)
class StoredShareMember:
    """A member as it has described itself (10)."""

    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()


@frozen
class StoredShareGroup:
    """The epoch of a group, and the hash of the metadata of its topics (11)."""

    epoch: int = 0
    metadata_hash: int = 0


@frozen
class StoredTargetAssignment:
    """The group epoch that the target assignment was made for, and the time, 0 if unknown (12)."""

    assignment_epoch: int = 0
    timestamp_ms: int = 0


@frozen
class StoredCurrentAssignment:
    """The epoch of a member, and its last assignment (14)."""

    member_epoch: int
    previous_member_epoch: int
    assigned: TopicIdAssignment = field(factory=dict)
    state: int = 0


@frozen
class StoredTopicPartitions:
    """Partitions of a topic, by its name."""

    topic: str
    partitions: tuple[int, ...]


@frozen
class StoredStatePartitions:
    """The partitions whose state the share coordinator has, or is to have or to delete, by topic id (15)."""

    initializing: Mapping[bytes, StoredTopicPartitions] = field(factory=dict)
    initialized: Mapping[bytes, StoredTopicPartitions] = field(factory=dict)
    deleting: Mapping[bytes, str] = field(factory=dict)
    """The names of topics of which all state is to be deleted."""


StoredShareValue = (
    StoredShareMember
    | StoredShareGroup
    | StoredTargetAssignment
    | StoredCurrentAssignment
    | StoredStatePartitions
    | TopicIdAssignment
)


@define
class LoadedShareGroup:
    """A share group as its records have it: the last value of each."""

    group: StoredShareGroup = field(factory=StoredShareGroup)
    target: StoredTargetAssignment = field(factory=StoredTargetAssignment)
    state_partitions: StoredStatePartitions = field(factory=StoredStatePartitions)
    members: dict[str, StoredShareMember] = field(factory=dict)
    targets: dict[str, TopicIdAssignment] = field(factory=dict)
    current: dict[str, StoredCurrentAssignment] = field(factory=dict)

    @property
    def is_void(self) -> bool:
        """True after the tombstone of the group."""
        return not self.group.epoch and not self.members

    def add(self, key: ShareGroupKey, value: bytes | None) -> None:
        """Take the next record. Raises as `decode_share_key`."""
        match None if value is None else decode_share_value(key.kind, value):
            case StoredShareMember() as member:
                self.members[key.member_id] = member
            case StoredShareGroup() as group:
                self.group = group
            case StoredTargetAssignment() as target:
                self.target = target
            case StoredCurrentAssignment() as current:
                self.current[key.member_id] = current
            case StoredStatePartitions() as partitions:
                self.state_partitions = partitions
            case None:
                self._remove(key)
            case assignment:
                self.targets[key.member_id] = assignment

    def _remove(self, key: ShareGroupKey) -> None:
        match key.kind:
            case ShareRecord.MEMBER:
                self.members.pop(key.member_id, None)
            case ShareRecord.GROUP:
                self.group = StoredShareGroup()
            case ShareRecord.TARGET_ASSIGNMENT:
                self.target = StoredTargetAssignment()
            case ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER:
                self.targets.pop(key.member_id, None)
            case ShareRecord.CURRENT_ASSIGNMENT:
                self.current.pop(key.member_id, None)
            case ShareRecord.STATE_PARTITIONS:
                self.state_partitions = StoredStatePartitions()


def encode_share_key(key: ShareGroupKey) -> bytes:
    """Raises `ApiError` INVALID_REQUEST for a string of more than 32767 bytes."""
    data = _SHORT.pack(key.kind) + encode_text(key.group_id)
    return data + encode_text(key.member_id) if key.kind in _WITH_MEMBER else data


def decode_share_key(key: bytes) -> ShareGroupKey:
    """Raises `UnknownVersion` for a key of another type, and `ApiError` CORRUPT_MESSAGE for nonsense."""
    reader = RecordReader(key)
    number = reader.i16()
    try:
        kind = ShareRecord(number)
    except ValueError:
        raise UnknownVersion("a key", number) from None
    return ShareGroupKey(kind, reader.text(), reader.text() if kind in _WITH_MEMBER else "")


def encode_share_value(value: StoredShareValue) -> bytes:
    """Return the value of a record; its type decides about the form."""
    writer = FlexibleWriter(_VERSION)
    tags: dict[int, bytes] = {}
    match value:
        case StoredShareMember():
            writer.optional_text(value.rack_id)
            writer.text(value.client_id)
            writer.text(value.client_host)
            writer.texts(value.subscribed_topic_names)
        case StoredShareGroup():
            writer.i32(value.epoch)
            writer.i64(value.metadata_hash)
        case StoredTargetAssignment():
            writer.i32(value.assignment_epoch)
            if value.timestamp_ms:
                tags[_TIMESTAMP_TAG] = _LONG.pack(value.timestamp_ms)
        case StoredCurrentAssignment():
            writer.i32(value.member_epoch)
            writer.i32(value.previous_member_epoch)
            writer.i8(value.state)
            _write_assignment(writer, value.assigned)
        case StoredStatePartitions():
            _write_topics(writer, value.initializing)
            _write_topics(writer, value.initialized)
            writer.count(len(value.deleting))
            for topic_id, topic in value.deleting.items():
                writer.uuid(topic_id)
                writer.text(topic)
                writer.end()
        case _:
            _write_assignment(writer, value)
    writer.end(tags)
    return writer.value()


def decode_share_value(kind: ShareRecord, value: bytes) -> StoredShareValue:
    """Raises as `decode_share_key`."""
    version = RecordReader(value).i16()
    if version != _VERSION:
        raise UnknownVersion(f"a record of type {int(kind)}", version)
    reader = FlexibleReader(value[_SHORT.size :])
    found = _VALUES[kind](reader)
    if kind is not ShareRecord.TARGET_ASSIGNMENT:  # which has read its tags
        reader.skip_tags()
    return found


def _member(reader: RecordReader) -> StoredShareMember:
    return StoredShareMember(
        rack_id=reader.optional_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        subscribed_topic_names=reader.texts(),
    )


def _group(reader: RecordReader) -> StoredShareGroup:
    return StoredShareGroup(reader.i32(), reader.i64())


def _target(reader: RecordReader) -> StoredTargetAssignment:
    epoch = reader.i32()
    timestamp = reader.tags().get(_TIMESTAMP_TAG)
    if timestamp is None:
        return StoredTargetAssignment(epoch)
    if len(timestamp) != _LONG.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a tagged field of another size than its type has")
    return StoredTargetAssignment(epoch, _LONG.unpack(timestamp)[0])


def _current(reader: RecordReader) -> StoredCurrentAssignment:
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    return StoredCurrentAssignment(epoch, previous, _read_assignment(reader), state)


def _state_partitions(reader: RecordReader) -> StoredStatePartitions:
    initializing, initialized = _read_topics(reader), _read_topics(reader)
    deleting = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        deleting[topic_id] = reader.text()
        reader.skip_tags()
    return StoredStatePartitions(initializing, initialized, deleting)


def _read_assignment(reader: RecordReader) -> TopicIdAssignment:
    assignment = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        assignment[topic_id] = reader.numbers()
        reader.skip_tags()
    return assignment


def _write_assignment(writer: FlexibleWriter, assignment: TopicIdAssignment) -> None:
    writer.count(len(assignment))
    for topic_id, partitions in assignment.items():
        writer.uuid(topic_id)
        writer.numbers(partitions)
        writer.end()


def _read_topics(reader: RecordReader) -> Mapping[bytes, StoredTopicPartitions]:
    topics = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        topics[topic_id] = StoredTopicPartitions(reader.text(), reader.numbers())
        reader.skip_tags()
    return topics


def _write_topics(writer: FlexibleWriter, topics: Mapping[bytes, StoredTopicPartitions]) -> None:
    writer.count(len(topics))
    for topic_id, each in topics.items():
        writer.uuid(topic_id)
        writer.text(each.topic)
        writer.numbers(each.partitions)
        writer.end()


_VALUES: Mapping[ShareRecord, Callable[[RecordReader], StoredShareValue]] = {
    ShareRecord.MEMBER: _member,
    ShareRecord.GROUP: _group,
    ShareRecord.TARGET_ASSIGNMENT: _target,
    ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER: _read_assignment,
    ShareRecord.CURRENT_ASSIGNMENT: _current,
    ShareRecord.STATE_PARTITIONS: _state_partitions,
}


def share_tombstones(group_id: str, member_ids: Iterable[str]) -> list[Record]:
    """Return the records that end a group and its members, in Kafka's order: the group itself last."""
    members = sorted(member_ids)
    keys = [
        *(ShareGroupKey(ShareRecord.CURRENT_ASSIGNMENT, group_id, each) for each in members),
        *(ShareGroupKey(ShareRecord.TARGET_ASSIGNMENT_OF_MEMBER, group_id, each) for each in members),
        ShareGroupKey(ShareRecord.TARGET_ASSIGNMENT, group_id),
        *(ShareGroupKey(ShareRecord.MEMBER, group_id, each) for each in members),
        ShareGroupKey(ShareRecord.STATE_PARTITIONS, group_id),
        ShareGroupKey(ShareRecord.GROUP, group_id),
    ]
    return [(encode_share_key(key), None) for key in keys]
