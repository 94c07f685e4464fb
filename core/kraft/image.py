"""The state of a Kafka cluster after its metadata records (Kafka: MetadataImage)."""

from collections import Counter
from collections.abc import Mapping, Sequence

from attrs import define, evolve, field

from ...ports.broker_api.acls import AclBinding
from ...ports.broker_api.configs import ResourceKind
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen
from ..message.batch_header import BatchHeader, is_crc_valid
from ..message.batch_reader import decode_columns, whole_batches
from ..message.codec import Codecs
from ..security.sasl.scram import ScramCredential
from . import records


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

    def apply(self, record: records.MetadataRecord) -> None:
        """Change the state by one record."""
        match record:
            case records.TopicRecord():
                self.topics[record.topic_id] = KraftTopic(record.name, record.topic_id)
            case records.PartitionRecord() | records.PartitionChangeRecord():
                self._apply_partition(record)
            case records.RemoveTopicRecord():
                topic = self.topics.pop(record.topic_id, None)
                if topic is not None:
                    self.configs.pop((int(ResourceKind.TOPIC), topic.name), None)
            case records.ResourceConfigRecord():
                self._apply_config(record)
            case records.FeatureLevelRecord():
                self.features[record.name] = record.level
            case records.ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case records.OtherRecord():
                if not record.known:
                    self.skipped[f"type {record.record_type}"] += 1
            case _:
                self._apply_security(record)

    def _apply_partition(self, record: records.PartitionRecord | records.PartitionChangeRecord) -> None:
        topic = self.topics.get(record.topic_id)
        if topic is None:
            return  # of a topic that was removed
        if isinstance(record, records.PartitionRecord):
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
        if record.leader != records.NO_LEADER_CHANGE:
            after = evolve(after, leader=record.leader, leader_epoch=before.leader_epoch + 1)
        topic.partitions[record.partition] = after

    def _apply_config(self, record: records.ResourceConfigRecord) -> None:
        settings = self.configs.setdefault((record.resource_type, record.resource_name), {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def _apply_security(self, record: records.MetadataRecord) -> None:
        match record:
            case records.AccessControlEntryRecord():
                self.acls[record.acl_id] = record.acl
            case records.RemoveAccessControlEntryRecord():
                self.acls.pop(record.acl_id, None)
            case records.DelegationTokenRecord():
                self.tokens.add(record.token_id)
            case records.RemoveDelegationTokenRecord():
                self.tokens.discard(record.token_id)
            case records.UserScramCredentialRecord():
                known = self.users.setdefault(record.user, {})
                if record.credential is None:
                    known.pop(record.mechanism, None)
                else:
                    known[record.mechanism] = record.credential
            case records.ClientQuotaRecord():
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
        self._held: list[records.MetadataRecord] | None = None

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
            record = records.decode_metadata_record(value or b"")
        except ApiError as error:
            self.image.skipped[error.message] += 1
            return
        match record:
            case records.BeginTransactionRecord():
                self._held = []
            case records.EndTransactionRecord():
                held, self._held = self._held or (), None
                self._apply_all(held)
            case records.AbortTransactionRecord():
                self._held = None
            case _ if self._held is not None:
                self._held.append(record)
            case _:
                self._apply_all([record])

    def _apply_all(self, found: Sequence[records.MetadataRecord]) -> None:
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
