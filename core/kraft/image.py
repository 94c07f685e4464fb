"""The state of a Kafka cluster after its metadata records (Kafka: MetadataImage), and the records that an import reads.

A value in `__cluster_metadata` is a frame: unsigned varints of the frame version, the record type and the version of
its body, then the body, which is always of a flexible version (Kafka: the schemas in `metadata/src/main/resources`).
Records of other types come as `OtherRecord`.

`read_zookeeper` reads the same state from the nodes that brokers of the ZooKeeper era wrote (facts D1).
"""

import json
import re
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import pack, unpack
from typing import Any
from urllib.parse import unquote

from attrs import define, evolve, field

from ...ports.broker_api.acls import AclBinding, PatternType, PermissionType, ResourceType
from ...ports.broker_api.configs import ResourceKind
from ...ports.broker_api.operations import Operation
from ...ports.broker_api.quotas import CLIENT_ID, IP, USER
from ...ports.broker_api.scram import SCRAM_MECHANISMS
from ...ports.coordination import Coordination
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import Secret, frozen
from ..cluster.brokers import children
from ..cluster.layout import decode_id
from ..coordinator.record_fields import FlexibleReader
from ..message.batch_header import BatchHeader, is_crc_valid
from ..message.batch_reader import decode_columns, whole_batches
from ..message.codec import Codecs
from ..security.acl import TYPE_NAMES
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


@frozen(kw_only=True)
class KraftPartition:
    """The replicas and the leader of a partition."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int


@define
class KraftTopic:
    """A topic with its partitions by number."""

    name: str
    topic_id: bytes
    partitions: dict[int, KraftPartition] = field(factory=dict)


@define
class KraftImage:
    """The part of the state that an import needs. `skipped` counts records that this version does not understand."""

    topics: dict[bytes, KraftTopic] = field(factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(factory=dict, repr=False)
    """The settings by (type, name) of their resource; the name "" of a broker stands for all brokers."""
    users: dict[str, dict[str, ScramCredential]] = field(factory=dict, repr=False)
    features: dict[str, int] = field(factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(factory=dict)
    acls: dict[bytes, AclBinding] = field(factory=dict)
    tokens: set[str] = field(factory=set)
    next_producer_id: int = 0
    skipped: Counter[str] = field(factory=Counter)

    def configs_of(self, kind: ResourceKind, name: str) -> Mapping[str, str]:
        """Return the settings of a resource."""
        return self.configs.get((int(kind), name), {})

    def apply(self, record: MetadataRecord) -> None:
        """Change the state by one record."""
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = KraftTopic(record.name, record.topic_id)
            case PartitionRecord() | PartitionChangeRecord():
                self._apply_partition(record)
            case RemoveTopicRecord():
                topic = self.topics.pop(record.topic_id, None)
                if topic is not None:
                    self.configs.pop((int(ResourceKind.TOPIC), topic.name), None)
            case ResourceConfigRecord():
                self._apply_config(record)
            case FeatureLevelRecord():
                self.features[record.name] = record.level
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case OtherRecord():
                if not record.known:
                    self.skipped[f"type {record.record_type}"] += 1
            case _:
                self._apply_security(record)

    def _apply_partition(self, record: PartitionRecord | PartitionChangeRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return  # of a topic that was removed
        if isinstance(record, PartitionRecord):
            topic.partitions[record.partition] = KraftPartition(
                replicas=record.replicas, isr=record.isr, leader=record.leader, leader_epoch=record.leader_epoch
            )
            return
        before = topic.partitions.get(record.partition)
        if before is None:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a change of {topic.name}-{record.partition}, which is unknown")
        after = evolve(
            before,
            isr=before.isr if record.isr is None else record.isr,
            replicas=before.replicas if record.replicas is None else record.replicas,
        )
        if record.leader != NO_LEADER_CHANGE:
            after = evolve(after, leader=record.leader, leader_epoch=before.leader_epoch + 1)
        topic.partitions[record.partition] = after

    def _apply_config(self, record: ResourceConfigRecord) -> None:
        settings = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def _apply_security(self, record: MetadataRecord) -> None:
        match record:
            case AccessControlEntryRecord():
                self.acls[record.acl_id] = record.acl
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.acl_id, None)
            case DelegationTokenRecord():
                self.tokens.add(record.token_id)
            case RemoveDelegationTokenRecord():
                self.tokens.discard(record.token_id)
            case UserScramCredentialRecord():
                known = self.users.setdefault(record.user, {})
                if record.credential is None:
                    known.pop(record.mechanism, None)
                else:
                    known[record.mechanism] = record.credential
            case ClientQuotaRecord():
                limits = self.quotas.setdefault(tuple(sorted(record.entity.items())), {})
                if record.value is None:
                    limits.pop(record.key, None)
                else:
                    limits[record.key] = record.value
            case _:  # begin and end of transactions: see `MetadataReplay`
                pass


class MetadataReplay:
    """Replays snapshots and the log into an image; records of a transaction count once it has ended (KIP-868)."""

    def __init__(self, codecs: Codecs) -> None:
        self.image = KraftImage()
        self._codecs = codecs
        self._held: list[MetadataRecord] | None = None

    def add_batches(self, data: bytes, from_offset: int = 0) -> tuple[int, int]:
        """Replay the batches at `from_offset` and above; return (next offset, leader epoch) of the last one, -1
        without one.

        Stops at the first bytes that are no whole, intact batch: the end of the log was not written.
        """
        reached = epoch = -1
        for position, header in _intact(data):
            reached, epoch = header.next_offset, header.leader_epoch
            if not header.control and header.next_offset > from_offset:
                batch = data[position : position + header.size]
                for value in decode_columns(batch, self._codecs, from_offset=from_offset).values:
                    self._add(value)
        return reached, epoch

    def _add(self, value: bytes | None) -> None:
        try:
            record = decode_metadata_record(value or b"")
        except ApiError as error:
            self.image.skipped[error.message] += 1
            return
        match record:
            case BeginTransactionRecord():
                self._held = []
            case EndTransactionRecord():
                held, self._held = self._held or (), None
                self._apply_all(held)
            case AbortTransactionRecord():
                self._held = None
            case _ if self._held is not None:
                self._held.append(record)
            case _:
                self._apply_all([record])

    def _apply_all(self, found: Sequence[MetadataRecord]) -> None:
        for record in found:
            try:
                self.image.apply(record)
            except ApiError as error:
                self.image.skipped[error.message] += 1


def _intact(data: bytes) -> list[tuple[int, BatchHeader]]:
    found = []
    try:
        for position, header in whole_batches(data):
            if not is_crc_valid(data, header, position):
                break
            found.append((position, header))
    except ApiError:
        pass
    return found


_DEFAULT = "<default>"
_TYPES = {name: kind for kind, name in TYPE_NAMES.items()}
_PREFIXED = "/kafka-acl-extended/PREFIXED"
_CONFIG_KINDS = {"topics": ResourceKind.TOPIC, "brokers": ResourceKind.BROKER}
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
Json = Mapping[str, Any]


def read_zookeeper(coordination: Coordination, new_id: Callable[[str], bytes]) -> KraftImage:
    """Return the state of the cluster; nodes that make no sense are counted in `skipped`.

    `new_id` returns the id of a topic from before Kafka 2.8, which has none. Raises `CoordinationError`.
    """
    reader = _Reader(coordination)
    reader.read_topics(new_id)
    reader.read_configs()
    reader.read_acls()
    block = reader.node("/latest_producer_id_block")
    if block is not None:
        reader.image.next_producer_id = int(block.get("block_end", -1)) + 1
    reader.image.tokens = set(children(coordination, "/delegation_token/tokens"))
    return reader.image


class _Reader:
    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self.image = KraftImage()

    def node(self, path: str) -> Json | None:
        """Return the object in a node; None: there is none, or it makes no sense."""
        (found,) = self._coordination.get_many([path])
        if found is None or not found.data:
            return None
        try:
            value = json.loads(found.data)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            self.image.skipped[f"{path}, which is no JSON object"] += 1
            return None
        return value

    def _children(self, path: str) -> Iterator[tuple[str, Json]]:
        for name in sorted(children(self._coordination, path)):
            found = self.node(f"{path}/{name}")
            if found is not None:
                yield name, found

    def read_topics(self, new_id: Callable[[str], bytes]) -> None:
        for name, found in self._children("/brokers/topics"):
            try:
                topic = self._topic(name, found, new_id)
            except (KeyError, TypeError, ValueError) as error:
                self.image.skipped[f"/brokers/topics/{name}: {error!r}"] += 1
                continue
            self.image.topics[topic.topic_id] = topic

    def _topic(self, name: str, found: Json, new_id: Callable[[str], bytes]) -> KraftTopic:
        listed = found.get("topic_id")
        topic = KraftTopic(name, new_id(name) if listed is None else decode_id(listed))
        for number, replicas in found["partitions"].items():
            state = self.node(f"/brokers/topics/{name}/partitions/{number}/state") or {}
            topic.partitions[int(number)] = KraftPartition(
                replicas=tuple(replicas),
                isr=tuple(state.get("isr", replicas)),
                leader=state.get("leader", -1),
                leader_epoch=state.get("leader_epoch", 0),
            )
        return topic

    def read_configs(self) -> None:
        for folder, kind in _CONFIG_KINDS.items():
            for name, found in self._children(f"/config/{folder}"):
                settings = found.get("config") or {}
                if settings:
                    self.image.configs[int(kind), "" if name == _DEFAULT else name] = dict(settings)
        for name, found in self._children("/config/users"):
            settings = dict(found.get("config") or {})
            for mechanism in SCRAM_MECHANISMS.values():
                if mechanism in settings:
                    self._add_user(_plain(name), mechanism, settings.pop(mechanism))
            self._add_quotas({USER: name}, settings)
        for entity_type, folder in ((CLIENT_ID, "clients"), (IP, "ips")):
            for name, found in self._children(f"/config/{folder}"):
                self._add_quotas({entity_type: name}, found.get("config") or {})
        for user in children(self._coordination, "/config/users"):
            for client, found in self._children(f"/config/users/{user}/clients"):
                self._add_quotas({USER: user, CLIENT_ID: client}, found.get("config") or {})

    def _add_user(self, user: str, mechanism: str, text: str) -> None:
        try:
            parts = dict(part.split("=", 1) for part in text.split(","))
            credential = ScramCredential(
                salt=b64decode(parts["salt"]),
                stored_key=Secret(b64decode(parts["stored_key"])),
                server_key=Secret(b64decode(parts["server_key"])),
                iterations=int(parts["iterations"]),
            )
        except (KeyError, ValueError):
            self.image.skipped[f"the {mechanism} credential of {user}"] += 1
            return
        self.image.users.setdefault(user, {})[mechanism] = credential

    def _add_quotas(self, entity: Mapping[str, str], limits: Json) -> None:
        names = {kind: None if name == _DEFAULT else _plain(name) for kind, name in entity.items()}
        for key, value in limits.items():
            try:
                self.image.quotas.setdefault(tuple(sorted(names.items())), {})[key] = float(value)
            except ValueError:
                self.image.skipped[f"quota {key} of {names}"] += 1

    def read_acls(self) -> None:
        for above, pattern in (("/kafka-acl", PatternType.LITERAL), (_PREFIXED, PatternType.PREFIXED)):
            for type_name in children(self._coordination, above):
                for resource, found in self._children(f"{above}/{type_name}"):
                    for row in found.get("acls", ()):
                        self._add_acl(type_name, resource, pattern, row)

    def _add_acl(self, type_name: str, resource: str, pattern: PatternType, row: Json) -> None:
        try:
            acl = AclBinding(
                resource_type=ResourceType(_TYPES[type_name]),
                resource_name=resource,
                pattern_type=pattern,
                principal=row["principal"],
                host=row["host"],
                operation=Operation[_upper(row["operation"])],
                permission=PermissionType[_upper(row["permissionType"])],
            )
        except (KeyError, TypeError) as error:
            self.image.skipped[f"an ACL of {type_name} {resource}: {error!r}"] += 1
            return
        self.image.acls[len(self.image.acls).to_bytes(16, "big")] = acl


def _upper(name: str) -> str:
    """Return `DescribeConfigs` as `DESCRIBE_CONFIGS`."""
    return _CAPITAL.sub("_", name).upper()


def _plain(name: str) -> str:
    """Undo Kafka's `Sanitizer`."""
    return unquote(name)
