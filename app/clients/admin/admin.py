"""`Admin`, the client for operators: topics, configurations, groups, transactions, security and the
cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from ....core.client.calls import CoordinatorOf, Target
from ....core.cluster.topics import ALL_LOG_DIRS, CORDONED_KEY
from ....ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    CreateAcls,
    CreateAclsResult,
    DeleteAcls,
    DeleteAclsResult,
    DescribeAcls,
    DescribeAclsResult,
)
from ....ports.broker_api.cluster import (
    ConnectionDescription,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConnections,
    DescribeConnectionsResult,
    DescribeLogDirs,
    LogDirDescription,
    UnregisterBroker,
    UnregisterBrokerResult,
)
from ....ports.broker_api.configs import (
    AlterConfigs,
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigReplacement,
    ConfigResource,
    ConfigSource,
    DescribeConfigs,
    DescribeConfigsResult,
    IncrementalAlterConfigs,
    ListConfigResources,
    ListConfigResourcesResult,
    ResourceKind,
)
from ....ports.broker_api.features import (
    DescribeFeatures,
    DescribeFeaturesResult,
    FeatureMetadata,
    FeatureUpdate,
    UpdateFeatures,
    UpdateFeaturesResult,
    UpgradeType,
)
from ....ports.broker_api.groups import TRANSACTION_COORDINATOR, Coordinator
from ....ports.broker_api.metadata import Metadata, MetadataResult
from ....ports.broker_api.producers import ActiveProducer, DescribeProducers, DescribeProducersResult
from ....ports.broker_api.replicas import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    OngoingReassignment,
    Reassignment,
)
from ....ports.broker_api.transactions import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResult,
    ListTransactions,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...config.security_settings import SecuritySettings
from ..shared.client_arguments import ClientArguments
from ..shared.connect import first_error, open_shell
from ..shared.foreign_methods import ADMIN, explain_foreign_names
from ..shared.process import check_process_in_methods
from ..shared.settings import CommonSettings, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from ..shared.typed_settings import ClientKeywords
from .asker import AdminRequests, TopicPartitionLike, TopicPartitionLikeT, check, passing
from .groups import GroupAdmin
from .quotas import QuotaAdmin
from .topics import TopicAdmin
from .users import UserAdmin

if TYPE_CHECKING:
    from types import TracebackType

    from ..shared.bootstrap import Bootstrap

_CONNECTIONS_PAGE = 500
_RESOURCES_MAX = 1000
"""The topics whose settings one request asks for."""
"""The number of connections that one request asks for."""
P = ParamSpec("P")
ResultT = TypeVar("ResultT")
PartT = TypeVar("PartT")


def _of(
    part: Callable[[Admin], PartT], call: Callable[Concatenate[PartT, P], ResultT]
) -> Callable[Concatenate[Admin, P], ResultT]:
    """Return a method of a part as a method of `Admin`, with the same signature and documentation."""

    @wraps(call)
    def of_admin(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> ResultT:
        return call(part(self), *args, **kwargs)

    of_admin.__qualname__ = f"Admin.{call.__name__}"
    return of_admin


def _topics(admin: Admin) -> TopicAdmin:
    return admin._topics


# `Admin`: the settings of topics and brokers.


class ConfigAdmin:
    """Describes and changes settings."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_configs(
        self,
        kind: ResourceKind,
        name: str | int,
        keys: Sequence[str] | None = None,
        *,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """Return the settings of a topic, or of a broker by its id; `keys` None: all.

        `documentation`: also the text that explains each.

        Raises `ApiError`, `ConfigError` for a broker that does not exist.
        """
        resource = ConfigResource(kind=kind, name=str(name))
        request = DescribeConfigs(
            resources=[ConfigDescription(resource=resource, keys=keys)],
            include_synonyms=True,
            include_documentation=documentation,
        )
        result: DescribeConfigsResult = self._asker.shell.ask(request, self._home(resource))
        outcome = result.resources[0]
        check(outcome.error, outcome.error_message, str(resource.name))
        return list(outcome.entries)

    def describe_configs_of(
        self, kind: ResourceKind, names: Sequence[str], keys: Sequence[str]
    ) -> dict[str, dict[str, str | None]]:
        """Return the values of the settings `keys` of many topics or groups, by name, without those with an error.

        A secret is None. Raises `BarnabasError`.
        """
        found: dict[str, dict[str, str | None]] = {}
        for first in range(0, len(names), _RESOURCES_MAX):
            resources = [ConfigResource(kind=kind, name=name) for name in names[first : first + _RESOURCES_MAX]]
            request = DescribeConfigs(resources=[ConfigDescription(resource=each, keys=keys) for each in resources])
            result: DescribeConfigsResult = self._asker.shell.ask(request)
            for outcome in result.resources:
                if outcome.error is ErrorCode.NONE:
                    found[outcome.resource.name] = {entry.name: entry.value for entry in outcome.entries}
        return found

    def list_config_resources(self, kinds: Iterable[int] = ()) -> list[ConfigResource]:
        """Return the topics, brokers and groups that have, or may have, configs: those of `kinds`, each a
        `ResourceKind`, or all. Raises `ApiError`."""
        request = ListConfigResources(kinds=list(kinds))
        result: ListConfigResourcesResult = self._asker.shell.ask(request)
        check(result.error, None, "config resources")
        return list(result.resources)

    def describe_topic_configs(self, name: str) -> dict[str, str | None]:
        """Return all settings of a topic. Raises `ApiError`."""
        return {entry.name: entry.value for entry in self.describe_configs(ResourceKind.TOPIC, name)}

    def topic_overrides(self, name: str) -> dict[str, str | None]:
        """Return the settings that this topic itself overrides. Raises `ApiError`."""
        entries = self.describe_configs(ResourceKind.TOPIC, name)
        return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.TOPIC}

    def alter_configs(
        self,
        kind: ResourceKind,
        name: str | int,
        changes: Mapping[str, str | None] | Iterable[tuple[str, ConfigOp, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change settings, all of them or none: key → value (None: back to the default), or (key, operation, value).

        Other settings stay as they are. Raises `ApiError` (INVALID_CONFIG, ...).
        """
        resource = ConfigResource(kind=kind, name=str(name))
        operations = (
            [(key, ConfigOp.DELETE if value is None else ConfigOp.SET, value) for key, value in changes.items()]
            if isinstance(changes, Mapping)
            else list(changes)
        )
        request = IncrementalAlterConfigs(
            resources=[resource],
            alterations=[
                ConfigAlteration(resource=resource, name=key, value=value, op=op) for key, op, value in operations
            ],
            validate_only=validate_only,
        )
        self._alter(request, resource)

    def replace_configs(
        self, kind: ResourceKind, name: str | int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> None:
        """Set these keys, and reset all others to their defaults. Raises `ApiError` (INVALID_CONFIG, ...)."""
        resource = ConfigResource(kind=kind, name=str(name))
        wanted = ConfigReplacement(resource=resource, configs=configs)
        self._alter(AlterConfigs(resources=[wanted], validate_only=validate_only), resource)

    def _alter(self, request: AlterConfigs | IncrementalAlterConfigs, resource: ConfigResource) -> None:
        target = Target.CONTROLLER if resource.kind == ResourceKind.TOPIC else self._home(resource)
        result: AlterConfigsResult = self._asker.shell.ask(request, target)
        for outcome in result.resources:
            check(outcome.error, outcome.error_message, outcome.resource.name)

    def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None resets a key to its default. Raises `ApiError`."""
        self.alter_configs(ResourceKind.TOPIC, name, changes)

    def _home(self, resource: ConfigResource) -> Target | int:
        """Return the broker to ask: only a broker itself knows its settings (facts C6). Raises `ConfigError`."""
        if resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and resource.name.isdigit():
            node = int(resource.name)
            self._asker.check_broker(node)
            return node
        return Target.ANY


def _configs(admin: Admin) -> ConfigAdmin:
    return admin._configs


def _groups(admin: Admin) -> GroupAdmin:
    return admin._groups


@frozen(kw_only=True)
class TransactionListing:
    """A transactional id with its producer and state; `coordinator`: the id of the broker that coordinates it."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@frozen(kw_only=True)
class OpenTransaction:
    """An open transaction in a partition; `read_committed` consumers get no messages from `start_offset` on."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int
    """The time of the producer's last append."""


class TransactionAdmin:
    """Lists and describes transactions; finds hanging ones, and aborts them."""

    def __init__(self, asker: AdminRequests, topics: TopicAdmin) -> None:
        self._asker = asker
        self._topics = topics

    def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = (), duration_ms: int = -1
    ) -> list[TransactionListing]:
        """Return the transactional ids of all brokers, sorted by name.

        Filters restrict them to these states ("Ongoing", ...), to these producers, and to transactions that last longer
        than `duration_ms`. Raises `ApiError`, `ConfigError` for an unknown state.
        """
        request = ListTransactions(states=states, producer_ids=producer_ids, duration_ms=duration_ms)
        found: dict[str, TransactionListing] = {}
        for node, result in self._asker.ask_brokers(request):
            check(result.error, None, f"the transactions of broker {node}")
            if result.unknown_states:
                raise ConfigError(f"{', '.join(result.unknown_states)}: no state of transactions")
            for each in result.transactions:
                found[each.transactional_id] = TransactionListing(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    state=each.state,
                    coordinator=node,
                )
        return [found[name] for name in sorted(found)]

    def transaction_coordinator(self, transactional_id: str) -> Coordinator:
        """Return the broker that coordinates a transactional id. Raises `ApiError`."""
        return self._asker.coordinator(_coordinator_of(transactional_id), f"transactional id {transactional_id}")

    def describe_transactions(self, transactional_ids: Sequence[str]) -> list[DescribedTransaction]:
        """Return state, producer and partitions of transactions, in the order of the ids.

        Raises `ApiError` (TRANSACTIONAL_ID_NOT_FOUND).
        """

        def describe(name: str) -> DescribedTransaction:
            def errors(result: DescribeTransactionsResult) -> Iterable[ErrorCode]:
                return [each.error for each in result.transactions]

            request = DescribeTransactions(transactional_ids=[name])
            result = self._asker.shell.ask(request, _coordinator_of(name), retriable=passing(errors))
            check(result.transactions[0].error, None, f"transactional id {name}")
            return result.transactions[0]

        return [describe(name) for name in transactional_ids]

    def describe_transaction(self, transactional_id: str) -> DescribedTransaction:
        """Return state, producer and partitions of one transaction.

        Raises `ApiError` (TRANSACTIONAL_ID_NOT_FOUND).
        """
        return self.describe_transactions([transactional_id])[0]

    def describe_producers(
        self, places: Iterable[TopicPartitionLike]
    ) -> dict[TopicPartition, Sequence[ActiveProducer]]:
        """Return the idempotent and transactional producers of these partitions, as their leaders know them.

        Raises `ApiError`.
        """
        asked = sorted({TopicPartition(*tp) for tp in places})

        def build(group: Sequence[TopicPartition]) -> DescribeProducers:
            topics: dict[str, list[int]] = {}
            for topic, partition in group:
                topics.setdefault(topic, []).append(partition)
            return DescribeProducers(topics=topics)

        def outcomes(result: DescribeProducersResult) -> list[tuple[ErrorCode, Any]]:
            described = sorted(result.partitions, key=lambda each: (each.topic, each.partition))
            return [(each.error, each.producers) for each in described]

        answers = self._asker.shell.ask_leaders(asked, lambda tp: tp, build, outcomes)
        first_error(answers)
        return dict(zip(asked, answers, strict=True))

    def find_hanging_transactions(
        self, *, max_timeout_ms: int = 900_000, topics: Sequence[str] | None = None, now_ms: int | None = None
    ) -> list[OpenTransaction]:
        """Return the hanging transactions: open in a partition for too long, and unknown to their coordinator.

        `max_timeout_ms`: the longest time without an append, the brokers' `transaction.max.timeout.ms`. A hanging
        transaction blocks `read_committed` consumers for ever: see `abort_transaction`. Raises `ApiError`.
        """
        now = self._asker.shell.connector.clock.now_ms() if now_ms is None else now_ms
        described = self._topics.describe_topics(topics)
        partitions = [TopicPartition(topic.name or "", p.partition) for topic in described for p in topic.partitions]
        old = [
            (tp, producer)
            for tp, producers in self.describe_producers(partitions).items()
            for producer in producers
            if producer.current_txn_start_offset >= 0 and producer.last_timestamp_ms + max_timeout_ms < now
        ]
        known = self._partitions_of({producer.producer_id for _, producer in old}) if old else {}
        return [_open(tp, producer) for tp, producer in old if tp not in known.get(producer.producer_id, ())]

    def abort_transaction(
        self, place: TopicPartitionLike, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = -1
    ) -> None:
        """Abort a transaction in one partition, in place of its coordinator; only for hanging transactions.

        producer_epoch:    the epoch of the producer that holds the transaction open (`describe_producers`).
        coordinator_epoch: the epoch of the coordinator that the marker is to have.

        The leader writes an ABORT marker, whatever state the coordinator has. Raises `ApiError`: INVALID_PRODUCER_EPOCH
        or TRANSACTION_COORDINATOR_FENCED if the partition knows a later epoch.
        """
        asked = TopicPartition(*place)
        marker = TxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=False,
            partitions=[asked],
            coordinator_epoch=max(0, coordinator_epoch),
        )

        def outcomes(result: WriteTxnMarkersResult) -> list[tuple[ErrorCode, Any]]:
            return [(each.error, None) for written in result.markers for each in written.partitions]

        build = WriteTxnMarkers(markers=[marker])
        first_error(self._asker.shell.ask_leaders([asked], lambda each: each, lambda _: build, outcomes))

    def _partitions_of(self, producer_ids: Iterable[int]) -> Mapping[int, set[TopicPartition]]:
        """Return the partitions in the transactions of these producers, as their coordinators know them."""
        listed = self.list_transactions(producer_ids=sorted(producer_ids))
        known: dict[int, set[TopicPartition]] = {}
        for found in self.describe_transactions([each.transactional_id for each in listed]):
            partitions = {
                TopicPartition(topic, number) for topic, numbers in found.topics.items() for number in numbers
            }
            known.setdefault(found.producer_id, set()).update(partitions)
        return known


def _coordinator_of(transactional_id: str) -> CoordinatorOf:
    return CoordinatorOf(transactional_id, TRANSACTION_COORDINATOR)


def _open(tp: TopicPartition, producer: ActiveProducer) -> OpenTransaction:
    return OpenTransaction(
        topic=tp.topic,
        partition=tp.partition,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        coordinator_epoch=producer.coordinator_epoch,
        start_offset=producer.current_txn_start_offset,
        last_timestamp_ms=producer.last_timestamp_ms,
    )


def _transactions(admin: Admin) -> TransactionAdmin:
    return admin._transactions


# `Admin`: the cluster, its brokers, and the placement of partitions.


class ClusterAdmin:
    """Describes brokers and log folders; requests elections and reassignments."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_cluster(self) -> DescribeClusterResult:
        """Return cluster id, controller and brokers. Raises `ApiError`."""
        try:
            result: DescribeClusterResult = self._asker.shell.ask(DescribeCluster())
        except ApiError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
            return self._described_by_metadata()
        check(result.error, result.error_message, "cluster")
        return result

    def _described_by_metadata(self) -> DescribeClusterResult:
        """Ask a broker from before Kafka 2.8."""
        found: MetadataResult = self._asker.shell.ask(Metadata(topics=[], allow_auto_topic_creation=False))
        return DescribeClusterResult(
            cluster_id=found.cluster_id or "", controller_id=found.controller_id, brokers=found.brokers
        )

    def cordon_broker(self, broker: int, *, cordoned: bool = True) -> None:
        """Give a broker no new replicas from now on, or again (`cordoned.log.dirs`); it keeps those that it has, and
        may be down. Raises `ApiError`."""
        resource = ConfigResource(kind=ResourceKind.BROKER, name=str(broker))
        change = ConfigAlteration(
            resource=resource,
            name=CORDONED_KEY,
            value=ALL_LOG_DIRS if cordoned else None,
            op=ConfigOp.SET if cordoned else ConfigOp.DELETE,
        )
        is_alive = broker in {each.node_id for each in self._asker.brokers()}
        request = IncrementalAlterConfigs(resources=[resource], alterations=[change])
        result: AlterConfigsResult = self._asker.shell.ask(request, broker if is_alive else Target.ANY)
        for outcome in result.resources:
            check(outcome.error, outcome.error_message, f"broker {broker}")

    def unregister_broker(self, broker: int) -> None:
        """Forget a broker that has left for good: one that is down and has no replicas.

        Raises `ApiError`: INVALID_REQUEST for one that is alive or has replicas, BROKER_ID_NOT_REGISTERED.
        """
        result: UnregisterBrokerResult = self._asker.shell.ask(UnregisterBroker(broker_id=broker), Target.CONTROLLER)
        check(result.error, result.error_message, f"broker {broker}")

    def describe_features(self, broker: int | None = None) -> FeatureMetadata:
        """Return the levels of features that a broker (None: any) supports, and those that the cluster has finalized.

        Raises `ApiError`, `ConfigError` for a broker that does not exist.
        """
        if broker is not None:
            self._asker.check_broker(broker)
        target = Target.ANY if broker is None else broker
        result: DescribeFeaturesResult = self._asker.shell.ask(DescribeFeatures(), target)
        check(result.error, None, "features")
        return result.features

    def update_features(
        self,
        levels: Mapping[str, int],
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        *,
        validate_only: bool = False,
    ) -> None:
        """Change the finalized levels of features: all of them, or none. The level 0 removes a feature.

        Lower levels need the `upgrade_type` SAFE_DOWNGRADE, or UNSAFE_DOWNGRADE, which may lose metadata. With
        `validate_only` nothing changes. Raises `ApiError`: INVALID_UPDATE_VERSION for a level that some brokers do not
        support.
        """
        updates = [
            FeatureUpdate(feature=name, max_version_level=level, upgrade_type=upgrade_type)
            for name, level in levels.items()
        ]
        timeout_ms = self._asker.settings.request_timeout_ms
        request = UpdateFeatures(updates=updates, validate_only=validate_only, timeout_ms=timeout_ms)
        result: UpdateFeaturesResult = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        check(result.error, result.error_message, "features")
        for each in result.results:
            check(each.error, each.error_message, f"feature {each.feature}")

    def describe_log_dirs(
        self,
        brokers: Sequence[int] | None = None,
        topics: Mapping[str, Sequence[int]] | None = None,
    ) -> dict[int, Sequence[LogDirDescription]]:
        """Return broker id → its data folders with their replicas (None: all brokers, all topics).

        Raises `ApiError`, `ConfigError` for a broker that does not exist.
        """
        ids = sorted(broker.node_id for broker in self._asker.brokers()) if brokers is None else brokers
        described = {}
        for node in ids:
            self._asker.check_broker(node)
            result = self._asker.shell.ask(DescribeLogDirs(topics=topics), node)
            check(result.error, None, f"broker {node}")
            described[node] = result.log_dirs
        return described

    def describe_connections(
        self, brokers: Sequence[int] | None = None, *, limit: int | None = None
    ) -> dict[int, list[ConnectionDescription]]:
        """Return broker id → its connections, the oldest first: client id, software, address, principal, requests,
        bytes (None: all brokers). `limit`: the most connections of each broker, the newest ones are left out.

        Only brokers of Barnabas know this; those of Kafka do not. Raises `ApiError` (UNSUPPORTED_VERSION there,
        CLUSTER_AUTHORIZATION_FAILED without the right to describe the cluster), `ConfigError` for a broker that does
        not exist.
        """
        ids = sorted(broker.node_id for broker in self._asker.brokers()) if brokers is None else brokers
        return {node: self._connections_of(node, limit) for node in ids}

    def _connections_of(self, node: int, limit: int | None) -> list[ConnectionDescription]:
        self._asker.check_broker(node)
        found: list[ConnectionDescription] = []
        while limit is None or len(found) < limit:
            after = found[-1].connection_id if found else 0
            asked = _CONNECTIONS_PAGE if limit is None else min(_CONNECTIONS_PAGE, limit - len(found))
            try:
                result: DescribeConnectionsResult = self._asker.shell.ask(
                    DescribeConnections(after=after, limit=asked), node
                )
            except ApiError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                    raise
                text = f"broker {node} does not describe its connections: it is one of Kafka, or of an older Barnabas"
                raise ApiError(error.code, text) from error
            check(result.error, result.error_message, f"broker {node}")
            found += result.connections
            if len(result.connections) < asked:
                break
        return found

    def elect_leaders(
        self, places: Iterable[TopicPartitionLike] | None = None, kind: ElectionType = ElectionType.PREFERRED
    ) -> list[TopicPartition]:
        """Elect the preferred leaders of partitions (None: all that need it), or any replicas (UNCLEAN: may lose data).

        Returns the partitions with a new leader; the others needed no election. Raises the first `ApiError`.
        """
        topics = None if places is None else _by_topic(places)
        request = ElectLeaders(topics=topics, election_type=kind, timeout_ms=self._asker.settings.request_timeout_ms)
        result: ElectLeadersResult = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        check(result.error, None, "an election")
        elected = [change for change in result.partitions if change.error is not ErrorCode.ELECTION_NOT_NEEDED]
        for change in elected:
            check(change.error, change.error_message, f"{change.topic}-{change.partition}")
        return [TopicPartition(change.topic, change.partition) for change in elected]

    def reassign_partitions(self, replicas: Mapping[TopicPartitionLikeT, Sequence[int] | None]) -> None:
        """Begin to move partitions; `replicas`: partition → brokers, the preferred leader first, or None to cancel a
        move.

        Raises the first `ApiError` (INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, ...).
        """
        wanted = [Reassignment(topic=p[0], partition=p[1], replicas=brokers) for p, brokers in replicas.items()]
        request = AlterPartitionReassignments(partitions=wanted, timeout_ms=self._asker.settings.request_timeout_ms)
        result: AlterPartitionReassignmentsResult = self._asker.shell.ask(
            request, Target.CONTROLLER, retriable=_not_controller
        )
        check(result.error, result.error_message, "a reassignment")
        for change in result.partitions:
            check(change.error, change.error_message, f"{change.topic}-{change.partition}")

    def list_reassignments(self, places: Iterable[TopicPartitionLike] | None = None) -> list[OngoingReassignment]:
        """Return the ongoing reassignments of these partitions, or of all (None). Raises `ApiError`."""
        topics = None if places is None else _by_topic(places)
        request = ListPartitionReassignments(topics=topics, timeout_ms=self._asker.settings.request_timeout_ms)
        result: ListPartitionReassignmentsResult = self._asker.shell.ask(
            request, Target.CONTROLLER, retriable=_not_controller
        )
        check(result.error, result.error_message, "reassignments")
        return list(result.partitions)


def _by_topic(partitions: Iterable[TopicPartitionLike]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _not_controller(result: Any) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if result.error is ErrorCode.NOT_CONTROLLER else ErrorCode.NONE


def _cluster(admin: Admin) -> ClusterAdmin:
    return admin._cluster


# `Admin`: access control lists.


class AclAdmin:
    """Describes, creates and deletes ACLs."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_acls(self, selected: AclBindingFilter | None = None) -> list[AclBinding]:
        """Return the ACLs that the filter `selected` matches; None: all.

        Raises `ApiError` (SECURITY_DISABLED where the brokers have no authorizer, ...).
        """
        request = DescribeAcls(filter=selected or AclBindingFilter())
        result: DescribeAclsResult = self._asker.shell.ask(request)
        check(result.error, result.error_message, "the ACLs")
        return list(result.acls)

    def create_acl(self, acl: AclBinding) -> None:
        """Add one ACL (`acl`); one that exists already is a success. Raises `ApiError`."""
        self.create_acls([acl])

    def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Add `acls`; one that exists already is a success. Raises `ApiError`."""
        wanted = list(acls)
        result: CreateAclsResult = self._asker.shell.ask(CreateAcls(acls=wanted), Target.CONTROLLER)
        for acl, outcome in zip(wanted, result.results, strict=True):
            check(outcome.error, outcome.error_message, str(acl))

    def delete_acls(self, filters: Iterable[AclBindingFilter]) -> list[AclBinding]:
        """Delete the ACLs that one of the filters selects, and return them. Raises `ApiError`."""
        wanted = list(filters)
        result: DeleteAclsResult = self._asker.shell.ask(DeleteAcls(filters=wanted), Target.CONTROLLER)
        for selected, outcome in zip(wanted, result.results, strict=True):
            check(outcome.error, outcome.error_message, str(selected))
        return list(dict.fromkeys(acl for outcome in result.results for acl in outcome.acls))


def _acls(admin: Admin) -> AclAdmin:
    return admin._acls


def _users(admin: Admin) -> UserAdmin:
    return admin._users


def _quotas(admin: Admin) -> QuotaAdmin:
    return admin._quotas


@explain_foreign_names(ADMIN)
@check_process_in_methods("_shell")
class Admin:
    """The admin client. Every call waits for its answer, up to `default.api.timeout.ms`; callable from any thread.

    with Admin("localhost:9092") as admin:
        admin.create_topic("views", partitions=3, configs={"retention.ms": "86400000"})

    A call about several things raises the first error only after all requests; the other changes take effect.

    Settings of every client: `client_id`, `request_timeout_ms`, `socket_connection_setup_timeout_ms`,
    `retry_backoff_ms`, `retry_backoff_max_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `metadata_max_age_ms`, `default_api_timeout_ms`; and those of its connections, `security_protocol`, `ssl_...` and
    `sasl_...`.
    The signature has the default of each, docs/configuration.md explains them.
    """

    __signature__ = SettingsSignature(ClientKeywords, lambda: defaults_of(CommonSettings, SecuritySettings))

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        """`bootstrap`: "host:port,host:port", a running `Broker`, or a mapping of settings with `bootstrap.servers`.

        Raises `ConfigError`, `TransportError`.
        """
        arguments = ClientArguments(bootstrap, config, settings)
        self.settings = read_settings(CommonSettings, arguments.config, arguments.settings)
        self._shell = open_shell(arguments.bootstrap, self.settings)
        asker = AdminRequests(self._shell, self.settings)
        self._topics = TopicAdmin(asker)
        self._configs = ConfigAdmin(asker)
        self._groups = GroupAdmin(asker, self._topics)
        self._transactions = TransactionAdmin(asker, self._topics)
        self._cluster = ClusterAdmin(asker)
        self._acls = AclAdmin(asker)
        self._users = UserAdmin(asker)
        self._quotas = QuotaAdmin(asker)

    create_topic = _of(_topics, TopicAdmin.create_topic)
    create_topics = _of(_topics, TopicAdmin.create_topics)
    delete_topic = _of(_topics, TopicAdmin.delete_topic)
    delete_topics = _of(_topics, TopicAdmin.delete_topics)
    create_partitions = _of(_topics, TopicAdmin.create_partitions)
    list_topics = _of(_topics, TopicAdmin.list_topics)
    describe_topic = _of(_topics, TopicAdmin.describe_topic)
    describe_topics = _of(_topics, TopicAdmin.describe_topics)
    delete_records = _of(_topics, TopicAdmin.delete_records)
    list_offsets = _of(_topics, TopicAdmin.list_offsets)
    record_timestamps = _of(_topics, TopicAdmin.record_timestamps)

    describe_configs = _of(_configs, ConfigAdmin.describe_configs)
    describe_configs_of = _of(_configs, ConfigAdmin.describe_configs_of)
    list_config_resources = _of(_configs, ConfigAdmin.list_config_resources)
    describe_topic_configs = _of(_configs, ConfigAdmin.describe_topic_configs)
    topic_overrides = _of(_configs, ConfigAdmin.topic_overrides)
    alter_configs = _of(_configs, ConfigAdmin.alter_configs)
    replace_configs = _of(_configs, ConfigAdmin.replace_configs)
    alter_topic_configs = _of(_configs, ConfigAdmin.alter_topic_configs)

    list_groups = _of(_groups, GroupAdmin.list_groups)
    coordinator = _of(_groups, GroupAdmin.coordinator)
    describe_group = _of(_groups, GroupAdmin.describe_group)
    describe_groups = _of(_groups, GroupAdmin.describe_groups)
    describe_consumer_groups = _of(_groups, GroupAdmin.describe_consumer_groups)
    describe_share_groups = _of(_groups, GroupAdmin.describe_share_groups)
    delete_group = _of(_groups, GroupAdmin.delete_group)
    delete_groups = _of(_groups, GroupAdmin.delete_groups)
    group_offsets = _of(_groups, GroupAdmin.group_offsets)
    group_lag = _of(_groups, GroupAdmin.group_lag)
    list_group_lags = _of(_groups, GroupAdmin.list_group_lags)
    alter_group_offsets = _of(_groups, GroupAdmin.alter_group_offsets)
    reset_group_offsets = _of(_groups, GroupAdmin.reset_group_offsets)
    delete_group_offsets = _of(_groups, GroupAdmin.delete_group_offsets)
    describe_share_partitions = _of(_groups, GroupAdmin.describe_share_partitions)
    share_group_offsets = _of(_groups, GroupAdmin.share_group_offsets)
    alter_share_group_offsets = _of(_groups, GroupAdmin.alter_share_group_offsets)
    reset_share_group_offsets = _of(_groups, GroupAdmin.reset_share_group_offsets)
    delete_share_group_offsets = _of(_groups, GroupAdmin.delete_share_group_offsets)

    list_transactions = _of(_transactions, TransactionAdmin.list_transactions)
    transaction_coordinator = _of(_transactions, TransactionAdmin.transaction_coordinator)
    describe_transaction = _of(_transactions, TransactionAdmin.describe_transaction)
    describe_transactions = _of(_transactions, TransactionAdmin.describe_transactions)
    describe_producers = _of(_transactions, TransactionAdmin.describe_producers)
    find_hanging_transactions = _of(_transactions, TransactionAdmin.find_hanging_transactions)
    abort_transaction = _of(_transactions, TransactionAdmin.abort_transaction)

    describe_cluster = _of(_cluster, ClusterAdmin.describe_cluster)
    describe_features = _of(_cluster, ClusterAdmin.describe_features)
    update_features = _of(_cluster, ClusterAdmin.update_features)
    cordon_broker = _of(_cluster, ClusterAdmin.cordon_broker)
    unregister_broker = _of(_cluster, ClusterAdmin.unregister_broker)
    describe_log_dirs = _of(_cluster, ClusterAdmin.describe_log_dirs)
    describe_connections = _of(_cluster, ClusterAdmin.describe_connections)
    elect_leaders = _of(_cluster, ClusterAdmin.elect_leaders)
    reassign_partitions = _of(_cluster, ClusterAdmin.reassign_partitions)
    list_reassignments = _of(_cluster, ClusterAdmin.list_reassignments)

    describe_acls = _of(_acls, AclAdmin.describe_acls)
    create_acl = _of(_acls, AclAdmin.create_acl)
    create_acls = _of(_acls, AclAdmin.create_acls)
    delete_acls = _of(_acls, AclAdmin.delete_acls)

    describe_user_scram_credentials = _of(_users, UserAdmin.describe_user_scram_credentials)
    alter_user_scram_credentials = _of(_users, UserAdmin.alter_user_scram_credentials)
    create_delegation_token = _of(_users, UserAdmin.create_delegation_token)
    renew_delegation_token = _of(_users, UserAdmin.renew_delegation_token)
    expire_delegation_token = _of(_users, UserAdmin.expire_delegation_token)
    describe_delegation_token = _of(_users, UserAdmin.describe_delegation_token)

    describe_client_quotas = _of(_quotas, QuotaAdmin.describe_client_quotas)
    alter_client_quotas = _of(_quotas, QuotaAdmin.alter_client_quotas)

    def close(self) -> None:
        """Close the connections. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.close()
