"""Topics, configurations and the cluster, for those who run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.client.calls import Target
from ...ports.broker_api import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AlterConfigsResult,
    ConfigAlteration,
    ConfigDescription,
    ConfigEntry,
    ConfigOp,
    ConfigResource,
    ConfigSource,
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResult,
    DeleteTopics,
    DeleteTopicsResult,
    DescribeCluster,
    DescribeClusterResult,
    DescribeConfigs,
    DescribeConfigsResult,
    DescribeLogDirs,
    IncrementalAlterConfigs,
    LogDirDescription,
    Metadata,
    MetadataResult,
    NewPartitions,
    NewTopic,
    ResourceKind,
    TopicMetadata,
    TopicOutcomes,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.words import TopicPartition
from .offsets import list_offsets
from .opening import first_error, open_shell
from .settings import CommonSettings, read_settings

if TYPE_CHECKING:
    from types import TracebackType

_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
Place = TopicPartition | tuple[str, int]


class Admin:
    """Asks and changes. Every call waits for its answer, up to `default.api.timeout.ms`; callable from any thread.

    with Admin("localhost:9092") as admin:
        admin.create_topic("views", partitions=3, configs={"retention.ms": "86400000"})

    Calls on several things raise the first error only after everything was asked for; what could be done is done.
    """

    def __init__(self, bootstrap: object, *, config: Mapping[str, Any] | None = None, **settings: Any) -> None:
        """`bootstrap`: "host:port,host:port" or a running `Broker`. Raises `ConfigError`, `TransportError`."""
        self.settings = read_settings(CommonSettings, config, settings)
        self._shell = open_shell(bootstrap, self.settings)

    # --- topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Make one topic; -1 means the broker's default. Raises `ApiError` (TOPIC_ALREADY_EXISTS, ...)."""
        topic = NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=dict(configs or {})
        )
        return self.create_topics([topic], validate_only=validate_only)[0]

    def create_topics(self, topics: Sequence[NewTopic], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Make topics, each by itself. Raises the first `ApiError`."""
        request = CreateTopics(topics=topics, timeout_ms=self.settings.request_timeout_ms, validate_only=validate_only)
        result: CreateTopicsResult = self._shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            _check(topic.error, topic.error_message, f"topic {topic.name}")
        return result.topics

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their messages. Raises the first `ApiError`."""
        request = DeleteTopics(names=names, timeout_ms=self.settings.request_timeout_ms)
        result: DeleteTopicsResult = self._shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            _check(topic.error, topic.error_message, f"topic {topic.name}")

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Let a topic have `count` partitions in all. Raises `ApiError` (INVALID_PARTITIONS unless it grows)."""
        request = CreatePartitions(
            topics=[NewPartitions(topic=name, count=count)],
            timeout_ms=self.settings.request_timeout_ms,
            validate_only=validate_only,
        )
        result: TopicOutcomes = self._shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            _check(topic.error, topic.error_message, f"topic {topic.name}")

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        return sorted(topic.name for topic in self.describe_topics() if topic.name and (internal or not topic.internal))

    def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicMetadata]:
        """Partitions, leaders and replicas of these topics, in their order (None: of all). Raises `ApiError`."""
        request = Metadata(topics=names, allow_auto_topic_creation=False)
        result: MetadataResult = self._shell.ask(request, retriable=_no_leader_yet)
        found = {topic.name: topic for topic in result.topics}
        if names is None:
            return sorted(result.topics, key=lambda topic: topic.name or "")
        for name in names:
            topic = found.get(name)
            _check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error, None, f"topic {name}")
        return [found[name] for name in names]

    def delete_records(self, offsets: Mapping[Place, int]) -> dict[TopicPartition, int]:
        """Drop what is below these offsets (-1: everything); returns the new log start offsets.

        Raises the first `ApiError` (OFFSET_OUT_OF_RANGE beyond the high watermark).
        """
        asked = [DeleteRecordsPartition(topic=p[0], partition=p[1], offset=offset) for p, offset in offsets.items()]

        def build(group: Sequence[DeleteRecordsPartition]) -> DeleteRecords:
            return DeleteRecords(partitions=group, timeout_ms=self.settings.request_timeout_ms)

        def outcomes(result: DeleteRecordsResult) -> list[tuple[ErrorCode, Any]]:
            return [(partition.error, partition.low_watermark) for partition in result.partitions]

        answers = self._shell.ask_leaders(asked, lambda p: TopicPartition(p.topic, p.partition), build, outcomes)
        first_error(answers)
        return {TopicPartition(p.topic, p.partition): low for p, low in zip(asked, answers, strict=True)}

    def list_offsets(self, asked: Mapping[Place, int | str]) -> dict[TopicPartition, int]:
        """Per partition the offset for a time in ms, or for "earliest", "latest" or "max_timestamp"; -1: there is none.

        Raises the first `ApiError`.
        """
        pairs = [(TopicPartition(*place), _time(time)) for place, time in asked.items()]
        answers = list_offsets(self._shell, pairs)
        first_error(answers)
        return {place: answer.offset for (place, _), answer in zip(pairs, answers, strict=True)}

    # --- configurations

    def describe_configs(
        self,
        kind: ResourceKind,
        name: str | int,
        keys: Sequence[str] | None = None,
        *,
        documentation: bool = False,
    ) -> list[ConfigEntry]:
        """The settings of a topic, or of a broker by its id (None: all keys). Raises `ApiError`."""
        resource = ConfigResource(kind=kind, name=str(name))
        request = DescribeConfigs(
            resources=[ConfigDescription(resource=resource, keys=keys)],
            include_synonyms=True,
            include_documentation=documentation,
        )
        result: DescribeConfigsResult = self._shell.ask(request, _broker_of(resource))
        outcome = result.resources[0]
        _check(outcome.error, outcome.error_message, str(resource.name))
        return list(outcome.entries)

    def describe_topic_configs(self, name: str) -> dict[str, str | None]:
        """Every setting of a topic."""
        return {entry.name: entry.value for entry in self.describe_configs(ResourceKind.TOPIC, name)}

    def topic_overrides(self, name: str) -> dict[str, str | None]:
        """The settings that were made for this topic itself."""
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
        target = Target.CONTROLLER if kind is ResourceKind.TOPIC else _broker_of(resource)
        result: AlterConfigsResult = self._shell.ask(request, target)
        for outcome in result.resources:
            _check(outcome.error, outcome.error_message, outcome.resource.name)

    def alter_topic_configs(self, name: str, changes: Mapping[str, str | None]) -> None:
        """Change settings of a topic; None puts a key back to its default. Raises `ApiError`."""
        self.alter_configs(ResourceKind.TOPIC, name, changes)

    # --- the cluster

    def describe_cluster(self) -> DescribeClusterResult:
        """Cluster id, controller and brokers. Raises `ApiError`."""
        result: DescribeClusterResult = self._shell.ask(DescribeCluster())
        _check(result.error, result.error_message, "cluster")
        return result

    def describe_log_dirs(
        self,
        brokers: Sequence[int] | None = None,
        topics: Mapping[str, Sequence[int]] | None = None,
    ) -> dict[int, Sequence[LogDirDescription]]:
        """Broker id → its data folders with what is in them (None: all brokers, all topics). Raises `ApiError`."""
        ids = [broker.node_id for broker in self._brokers()] if brokers is None else brokers
        described = {}
        for node in ids:
            self._know(node)
            result = self._shell.ask(DescribeLogDirs(topics=topics), node)
            _check(result.error, None, f"broker {node}")
            described[node] = result.log_dirs
        return described

    def close(self) -> None:
        """Hang up. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _brokers(self) -> Sequence[Any]:
        result: MetadataResult = self._shell.ask(Metadata(topics=[], allow_auto_topic_creation=False))
        return result.brokers

    def _know(self, node: int) -> None:
        if self._shell.view.address(node) is None and node not in {broker.node_id for broker in self._brokers()}:
            raise ConfigError(f"there is no broker {node}")


def _check(error: ErrorCode, message: str | None, what: str) -> None:
    if error is not ErrorCode.NONE:
        raise ApiError(error, message or what)


def _time(time: int | str) -> int:
    if isinstance(time, int):
        return time
    if time not in _TIMES:
        raise ConfigError(f"{time!r}: give milliseconds, earliest, latest or max_timestamp")
    return _TIMES[time]


def _broker_of(resource: ConfigResource) -> Target | int:
    """Settings of a broker are told by that broker (facts C6)."""
    if resource.kind in (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER) and resource.name.isdigit():
        return int(resource.name)
    return Target.ANY


def _not_controller(result: Any) -> ErrorCode:
    errors = {topic.error for topic in result.topics}
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in errors else ErrorCode.NONE


def _no_leader_yet(result: MetadataResult) -> ErrorCode:
    errors = {topic.error for topic in result.topics}
    return ErrorCode.LEADER_NOT_AVAILABLE if ErrorCode.LEADER_NOT_AVAILABLE in errors else ErrorCode.NONE
