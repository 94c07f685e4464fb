"""The records of `__cluster_metadata` that an import reads (Kafka: the schemas in `metadata/src/main/resources`).

A value is a frame: unsigned varints of the frame version, the record type and the version of its body, then the body,
which is always of a flexible version. Records of other types come as `OtherRecord`.
"""

from collections.abc import Callable, Mapping
from struct import pack, unpack

from attrs import field

from ...ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from ...ports.broker_api.operations import Operation
from ...ports.broker_api.scram import SCRAM_MECHANISMS
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import Secret, frozen
from ..coordinator.record_fields import FlexibleReader
from ..security.sasl.scram import ScramCredential

FRAME_VERSION = 1
NO_LEADER_CHANGE = -2
"""The leader in a `PartitionChangeRecord` that does not change it."""
_REPLICAS_TAG, _LEADER_TAG, _NAME_TAG = 2, 1, 0


@frozen(kw_only=True)
class TopicRecord:
    name: str
    topic_id: bytes


@frozen(kw_only=True)
class PartitionRecord:
    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


@frozen(kw_only=True)
class PartitionChangeRecord:
    """A change of a partition; None and `NO_LEADER_CHANGE` leave a field as it is."""

    topic_id: bytes
    partition: int
    isr: tuple[int, ...] | None = None
    leader: int = NO_LEADER_CHANGE
    replicas: tuple[int, ...] | None = None


@frozen(kw_only=True)
class ResourceConfigRecord:
    """A setting of a resource; `resource_type` is a number of `ResourceKind`, `value` None removes the setting."""

    resource_type: int
    resource_name: str
    name: str
    value: str | None = field(repr=False)


@frozen
class RemoveTopicRecord:
    topic_id: bytes


@frozen
class DelegationTokenRecord:
    token_id: str


@frozen
class RemoveDelegationTokenRecord:
    token_id: str


@frozen(kw_only=True)
class UserScramCredentialRecord:
    """A credential of a user; None: it was removed."""

    user: str
    mechanism: str
    credential: ScramCredential | None = field(repr=False)


@frozen(kw_only=True)
class FeatureLevelRecord:
    name: str
    level: int


@frozen(kw_only=True)
class ClientQuotaRecord:
    """A limit of an entity; None removes it."""

    entity: Mapping[str, str | None]
    key: str
    value: float | None


@frozen
class ProducerIdsRecord:
    next_producer_id: int


@frozen(kw_only=True)
class AccessControlEntryRecord:
    acl_id: bytes
    acl: AclBinding


@frozen
class RemoveAccessControlEntryRecord:
    acl_id: bytes


@frozen
class BeginTransactionRecord:
    """The following records count once the transaction has ended (KIP-868)."""


@frozen
class EndTransactionRecord:
    """The records since the begin of the transaction count."""


@frozen
class AbortTransactionRecord:
    """The records since the begin of the transaction do not count."""


@frozen(kw_only=True)
class OtherRecord:
    """A record of a type that says nothing of topics, configs or security, or that this version does not know."""

    record_type: int
    known: bool


MetadataRecord = (
    TopicRecord
    | PartitionRecord
    | PartitionChangeRecord
    | ResourceConfigRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | RemoveDelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | OtherRecord
)

_OF_NODES_ONLY = frozenset({0, 1, 7, 8, 17, 20, 21, 27, 28, 29})
"""Registrations of brokers and controllers, the state of a migration, no-ops: of no use in another cluster."""


def decode_metadata_record(value: bytes) -> MetadataRecord:
    """Decode the value of a record. Raises `ApiError`: CORRUPT_MESSAGE, UNSUPPORTED_VERSION for another frame."""
    frame_version, at = _unsigned_varint(value, 0)
    if frame_version != FRAME_VERSION:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"a metadata record with the frame version {frame_version}")
    record_type, at = _unsigned_varint(value, at)
    _, at = _unsigned_varint(value, at)  # later versions of the bodies add tagged fields and fields at the end
    decode = _DECODERS.get(record_type)
    if decode is None:
        return OtherRecord(record_type=record_type, known=record_type in _OF_NODES_ONLY)
    return decode(FlexibleReader(value[at:]))


def _unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[at : at + 5]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise ApiError(ErrorCode.CORRUPT_MESSAGE, "a metadata record ends within its frame")


def _topic(reader: FlexibleReader) -> MetadataRecord:
    return TopicRecord(name=reader.text(), topic_id=reader.uuid())


def _partition(reader: FlexibleReader) -> MetadataRecord:
    partition, topic_id, replicas, isr = reader.i32(), reader.uuid(), reader.numbers(), reader.numbers()
    reader.numbers()  # removing replicas
    reader.numbers()  # adding replicas
    leader, leader_epoch = reader.i32(), reader.i32()
    return PartitionRecord(
        topic_id=topic_id, partition=partition, replicas=replicas, isr=isr, leader=leader, leader_epoch=leader_epoch
    )


def _partition_change(reader: FlexibleReader) -> MetadataRecord:
    partition, topic_id, tags = reader.i32(), reader.uuid(), reader.tags()
    leader = NO_LEADER_CHANGE if _LEADER_TAG not in tags else FlexibleReader(tags[_LEADER_TAG]).i32()
    return PartitionChangeRecord(
        topic_id=topic_id,
        partition=partition,
        isr=_optional_numbers(tags.get(0)),
        leader=leader,
        replicas=_optional_numbers(tags.get(_REPLICAS_TAG)),
    )


def _optional_numbers(data: bytes | None) -> tuple[int, ...] | None:
    if data is None:
        return None
    reader = FlexibleReader(data)
    count = reader.optional_count()
    return None if count is None else tuple(reader.i32() for _ in range(count))


def _config(reader: FlexibleReader) -> MetadataRecord:
    kind, resource, name, value = reader.i8(), reader.text(), reader.text(), reader.optional_text()
    return ResourceConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def _token(reader: FlexibleReader) -> MetadataRecord:
    reader.text()  # owner
    reader.text()  # requester
    reader.texts()  # renewers
    for _ in range(3):
        reader.i64()  # times of issue, latest expiration and expiration
    return DelegationTokenRecord(reader.text())


def _scram(reader: FlexibleReader) -> MetadataRecord:
    user, mechanism, salt = reader.text(), reader.i8(), reader.data()
    stored_key, server_key, iterations = reader.data(), reader.data(), reader.i32()
    return UserScramCredentialRecord(
        user=user,
        mechanism=_mechanism(mechanism),
        credential=ScramCredential(
            salt=salt, stored_key=Secret(stored_key), server_key=Secret(server_key), iterations=iterations
        ),
    )


def _remove_scram(reader: FlexibleReader) -> MetadataRecord:
    return UserScramCredentialRecord(user=reader.text(), mechanism=_mechanism(reader.i8()), credential=None)


def _mechanism(number: int) -> str:
    if number not in SCRAM_MECHANISMS:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"a SCRAM mechanism with the number {number}")
    return SCRAM_MECHANISMS[number]


def _feature(reader: FlexibleReader) -> MetadataRecord:
    return FeatureLevelRecord(name=reader.text(), level=reader.i16())


def _quota(reader: FlexibleReader) -> MetadataRecord:
    entity: dict[str, str | None] = {}
    for _ in range(reader.count()):
        kind = reader.text()
        entity[kind] = reader.optional_text()
        reader.skip_tags()
    key, bits, remove = reader.text(), reader.i64(), reader.i8()
    (limit,) = unpack(">d", pack(">q", bits))
    return ClientQuotaRecord(entity=entity, key=key, value=None if remove else float(limit))


def _producer_ids(reader: FlexibleReader) -> MetadataRecord:
    reader.i32()  # broker
    reader.i64()  # broker epoch
    return ProducerIdsRecord(reader.i64())


def _acl(reader: FlexibleReader) -> MetadataRecord:
    acl_id, resource_type, resource, pattern = reader.uuid(), reader.i8(), reader.text(), reader.i8()
    principal, host, operation, permission = reader.text(), reader.text(), reader.i8(), reader.i8()
    try:
        acl = AclBinding(
            resource_type=ResourceType(resource_type),
            resource_name=resource,
            pattern_type=PatternType(pattern),
            principal=principal,
            host=host,
            operation=Operation(operation),
            permission=PermissionType(permission),
        )
    except ValueError as error:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"an ACL of {principal}: {error}") from error
    return AccessControlEntryRecord(acl_id=acl_id, acl=acl)


_DECODERS: dict[int, Callable[[FlexibleReader], MetadataRecord]] = {
    2: _topic,
    3: _partition,
    4: _config,
    5: _partition_change,
    9: lambda reader: RemoveTopicRecord(reader.uuid()),
    10: _token,
    11: _scram,
    12: _feature,
    14: _quota,
    15: _producer_ids,
    18: _acl,
    19: lambda reader: RemoveAccessControlEntryRecord(reader.uuid()),
    22: _remove_scram,
    23: lambda _: BeginTransactionRecord(),
    24: lambda _: EndTransactionRecord(),
    25: lambda _: AbortTransactionRecord(),
    26: lambda reader: RemoveDelegationTokenRecord(reader.text()),
}
