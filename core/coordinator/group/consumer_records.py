"""The records of consumer groups in `__consumer_offsets` (KIP-848): Kafka's own keys and values.

A key is its type, the group id and for some the member id. Every value has version 0, which is flexible.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from struct import Struct, pack
from typing import TypeVar

from attrs import field

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define, frozen
from ..log import Record
from ..record_fields import FlexibleReader, FlexibleWriter, RecordReader, UnknownVersion, encode_text, encode_varint
from .expressions import ResolvedExpression

_SHORT = Struct(">h")
_LONG = Struct(">q")
_VERSION = 0
_TAG = 0
"""The one tagged field that the values have."""

AssignedPartitions = Mapping[bytes, Mapping[int, int]]
"""Partitions by topic id, each with the epoch in which its member got it."""


class ConsumerRecord(IntEnum):
    """The type of a record, which begins its key."""

    GROUP = 3
    PARTITION_METADATA = 4
    """Written by Kafka before 4.1; the hash in GROUP has replaced it."""
    MEMBER = 5
    TARGET_ASSIGNMENT = 6
    TARGET_ASSIGNMENT_OF_MEMBER = 7
    CURRENT_ASSIGNMENT = 8
    REGULAR_EXPRESSION = 16


_R = ConsumerRecord
_WITH_MEMBER = frozenset({_R.MEMBER, _R.TARGET_ASSIGNMENT_OF_MEMBER, _R.CURRENT_ASSIGNMENT, _R.REGULAR_EXPRESSION})
"""The keys with a member id, or a regular expression, behind the group id."""
CONSUMER_RECORDS = frozenset(_SHORT.pack(kind) for kind in ConsumerRecord)
"""The first bytes of the keys."""


@frozen
class ClassicMemberMetadata:
    """The part of a member that has the classic protocol: it has joined a consumer group all the same."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """The names and metadata of its protocols, the preferred one first."""

    @property
    def protocol(self) -> str:
        """The name of the preferred protocol."""
        return self.protocols[0][0]


@define(kw_only=True)
class StoredConsumerMember:
    """A member as its records have it."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None


@define(kw_only=True)
class StoredConsumerAssignment:
    """The epoch that a member has reached, and its partitions."""

    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: int = 0
    assigned: AssignedPartitions = field(factory=dict)
    revoking: AssignedPartitions = field(factory=dict)
    """Partitions that the member has not yet confirmed to have given up."""


@define
class StoredConsumerGroup:
    """A consumer group as its records have it: the last value of each."""

    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    target_timestamp_ms: int = 0
    members: dict[str, StoredConsumerMember] = field(factory=dict)
    target: dict[str, dict[bytes, frozenset[int]]] = field(factory=dict)
    current: dict[str, StoredConsumerAssignment] = field(factory=dict)
    expressions: dict[str, ResolvedExpression] = field(factory=dict)

    @property
    def is_void(self) -> bool:
        """True after the tombstone of the group."""
        return not self.epoch and not self.members

    def add(self, kind: int, key: RecordReader, value: bytes | None) -> None:
        """Take the next record, whose key is read up to the group id. Raises as `decode_key`."""
        member_id = key.text() if kind in _WITH_MEMBER else ""
        reader = None if value is None else _reader(kind, value)
        match kind:
            case ConsumerRecord.GROUP:
                self.epoch, self.metadata_hash = (0, 0) if reader is None else (reader.i32(), _tagged(reader))
            case ConsumerRecord.TARGET_ASSIGNMENT:
                stored = (0, 0) if reader is None else (reader.i32(), _tagged(reader))
                self.target_epoch, self.target_timestamp_ms = stored
            case ConsumerRecord.MEMBER:
                _put(self.members, member_id, None if reader is None else _member(member_id, reader))
            case ConsumerRecord.TARGET_ASSIGNMENT_OF_MEMBER:
                _put(self.target, member_id, None if reader is None else _target(reader))
            case ConsumerRecord.CURRENT_ASSIGNMENT:
                _put(self.current, member_id, None if reader is None else _current(reader))
            case ConsumerRecord.REGULAR_EXPRESSION:
                _put(self.expressions, member_id, None if reader is None else _expression(reader))


def encode_key(kind: ConsumerRecord, group_id: str, member_id: str = "") -> bytes:
    """Raises `ApiError` INVALID_REQUEST for a string of more than 32767 bytes."""
    data = _SHORT.pack(kind) + encode_text(group_id)
    return data + encode_text(member_id) if kind in _WITH_MEMBER else data


def encode_epoch(epoch: int, number: int) -> bytes:
    """Encode the epoch of the group with its metadata hash, or that of the target with its time."""
    writer = FlexibleWriter(_VERSION)
    writer.i32(epoch)
    writer.end({_TAG: _LONG.pack(number)} if number else None)
    return writer.value()


def encode_member(member: StoredConsumerMember) -> bytes:
    """Encode what a member says of itself."""
    writer = FlexibleWriter(_VERSION)
    writer.optional_text(member.instance_id)
    writer.optional_text(member.rack_id)
    writer.text(member.client_id)
    writer.text(member.client_host)
    writer.texts(member.subscribed_topic_names)
    writer.optional_text(member.subscribed_topic_regex)
    writer.i32(member.rebalance_timeout_ms)
    writer.optional_text(member.server_assignor)
    writer.end(None if member.classic is None else {_TAG: _encode_classic(member.classic)})
    return writer.value()


def _encode_classic(classic: ClassicMemberMetadata) -> bytes:
    """Encode a structure that may be null, and is not."""
    writer = FlexibleWriter(_VERSION)
    writer.i8(1)
    writer.i32(classic.session_timeout_ms)
    writer.count(len(classic.protocols))
    for name, metadata in classic.protocols:
        writer.text(name)
        writer.data(metadata)
        writer.end()
    writer.end()
    return writer.value()[_SHORT.size :]


def encode_target(partitions: Mapping[bytes, Iterable[int]]) -> bytes:
    """Encode the target of a member."""
    writer = FlexibleWriter(_VERSION)
    writer.count(len(partitions))
    for topic_id, numbers in partitions.items():
        writer.uuid(topic_id)
        writer.numbers(sorted(numbers))
        writer.end()
    writer.end()
    return writer.value()


def encode_current(current: StoredConsumerAssignment) -> bytes:
    """Encode what a member has."""
    writer = FlexibleWriter(_VERSION)
    writer.i32(current.member_epoch)
    writer.i32(current.previous_member_epoch)
    writer.i8(current.state)
    for partitions in (current.assigned, current.revoking):
        writer.count(len(partitions))
        for topic_id, epochs in partitions.items():
            writer.uuid(topic_id)
            writer.numbers(epochs)
            writer.end({_TAG: _numbers(epochs.values())})
    writer.end()
    return writer.value()


def encode_expression(resolved: ResolvedExpression) -> bytes:
    """Encode the topics of a regular expression."""
    writer = FlexibleWriter(_VERSION)
    writer.texts(sorted(resolved.topics))
    writer.i64(resolved.version)
    writer.i64(resolved.timestamp_ms)
    writer.end()
    return writer.value()


def tombstone(kind: ConsumerRecord, group_id: str, member_id: str = "") -> Record:
    """Return the record that takes another one out of the log."""
    return encode_key(kind, group_id, member_id), None


def tombstones(group_id: str, member_ids: Iterable[str], expressions: Iterable[str] = ()) -> list[Record]:
    """Return the records that end a group and its members, in Kafka's order: the group itself last."""
    members = sorted(member_ids)
    return [
        *(tombstone(_R.CURRENT_ASSIGNMENT, group_id, each) for each in members),
        *(tombstone(_R.TARGET_ASSIGNMENT_OF_MEMBER, group_id, each) for each in members),
        tombstone(_R.TARGET_ASSIGNMENT, group_id),
        *(tombstone(_R.MEMBER, group_id, each) for each in members),
        *(tombstone(_R.REGULAR_EXPRESSION, group_id, each) for each in sorted(expressions)),
        tombstone(_R.GROUP, group_id),
    ]


T = TypeVar("T")


def _put(found: dict[str, T], member_id: str, value: T | None) -> None:
    if value is None:
        found.pop(member_id, None)
    else:
        found[member_id] = value


def _reader(kind: int, value: bytes) -> FlexibleReader:
    version = RecordReader(value).i16()
    if version != _VERSION:
        raise UnknownVersion(f"a record of type {kind}", version)
    return FlexibleReader(value[_SHORT.size :])


def _tagged(reader: RecordReader) -> int:
    data = reader.tags().get(_TAG)
    if data is None:
        return 0
    if len(data) != _LONG.size:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a tagged field of another size than its type has")
    return int(_LONG.unpack(data)[0])


def _member(member_id: str, reader: RecordReader) -> StoredConsumerMember:
    member = StoredConsumerMember(
        member_id=member_id,
        instance_id=reader.optional_text(),
        rack_id=reader.optional_text(),
        client_id=reader.text(),
        client_host=reader.text(),
        subscribed_topic_names=reader.texts(),
        subscribed_topic_regex=reader.optional_text(),
        rebalance_timeout_ms=reader.i32(),
        server_assignor=reader.optional_text(),
    )
    tags = reader.tags()
    if _TAG in tags:
        member.classic = _classic(FlexibleReader(tags[_TAG]))
    return member


def _classic(reader: RecordReader) -> ClassicMemberMetadata | None:
    if reader.i8() < 0:
        return None
    session_timeout_ms, protocols = reader.i32(), []
    for _ in range(reader.count()):
        protocols.append((reader.text(), reader.data()))
        reader.skip_tags()
    return ClassicMemberMetadata(session_timeout_ms, tuple(protocols)) if protocols else None


def _target(reader: RecordReader) -> dict[bytes, frozenset[int]]:
    target = {}
    for _ in range(reader.count()):
        topic_id = reader.uuid()
        target[topic_id] = frozenset(reader.numbers())
        reader.skip_tags()
    return target


def _current(reader: RecordReader) -> StoredConsumerAssignment:
    epoch, previous, state = reader.i32(), reader.i32(), reader.i8()
    assigned, revoking = _assigned(reader, epoch), _assigned(reader, epoch)
    return StoredConsumerAssignment(
        member_epoch=epoch, previous_member_epoch=previous, state=state, assigned=assigned, revoking=revoking
    )


def _assigned(reader: RecordReader, epoch: int) -> AssignedPartitions:
    """Read partitions. Records of Kafka before 4.3 name no epochs: then the member's is taken, which is the latest."""
    found = {}
    for _ in range(reader.count()):
        topic_id, numbers, tags = reader.uuid(), reader.numbers(), reader.tags()
        epochs = FlexibleReader(tags[_TAG]).numbers() if _TAG in tags else (epoch,) * len(numbers)
        if len(epochs) != len(numbers):
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{len(epochs)} epochs for {len(numbers)} partitions")
        found[topic_id] = dict(zip(numbers, epochs, strict=True))
    return found


def _expression(reader: RecordReader) -> ResolvedExpression:
    resolved = ResolvedExpression(frozenset(reader.texts()), reader.i64(), reader.i64())
    reader.skip_tags()
    return resolved


def _numbers(numbers: Collection[int]) -> bytes:
    return encode_varint(len(numbers) + 1) + pack(f">{len(numbers)}i", *numbers)
