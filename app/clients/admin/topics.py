"""`Admin`: topics, their records and their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....core.client.calls import Target
from ....core.client.errors import topic_error
from ....ports.broker_api.metadata import Metadata, MetadataResult, TopicMetadata
from ....ports.broker_api.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from ....ports.broker_api.topics import (
    CreatedTopic,
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteRecordsResult,
    DeleteTopics,
    DeleteTopicsResult,
    NewPartitions,
    NewTopic,
    TopicOutcomes,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError, ConfigError
from ....ports.types import TopicPartition
from ..shared.connect import first_error
from ..shared.list_offsets import list_offsets
from ..shared.settings import isolation_level_of
from .asker import AdminRequests, TopicPartitionLike, TopicPartitionLikeT, check
from .consumer_lag import LagReader

_TIMES = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}


def _new_topic(given: Any) -> NewTopic:
    """Return the topic to create: a name alone, or another library's class of this name, as ours."""
    if isinstance(given, str):
        return NewTopic(name=given)
    name = getattr(given, "topic", None) or getattr(given, "name", None)  # confluent-kafka's, kafka-python's
    if isinstance(given, NewTopic) or not hasattr(given, "num_partitions") or not isinstance(name, str):
        return given  # type: ignore[no-any-return]  # the check of the request names a wrong type
    assignments = getattr(given, "replica_assignment", None) or getattr(given, "replica_assignments", None)
    if isinstance(assignments, list):
        assignments = dict(enumerate(assignments))
    configs = getattr(given, "config", None) or getattr(given, "topic_configs", None)
    return NewTopic(
        name=name,
        partitions=-1 if given.num_partitions is None else given.num_partitions,
        replication_factor=-1 if given.replication_factor is None else given.replication_factor,
        assignments=assignments or None,
        configs={key: None if value is None else str(value) for key, value in (configs or {}).items()},
    )


class TopicAdmin:
    """Makes, changes, describes and deletes topics."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Create one topic; -1 means the broker's default. Raises `ApiError` (TOPIC_ALREADY_EXISTS, ...)."""
        topic = NewTopic(
            name=name, partitions=partitions, replication_factor=replication_factor, configs=dict(configs or {})
        )
        return self.create_topics([topic], validate_only=validate_only)[0]

    def create_topics(self, topics: Sequence[NewTopic | str], *, validate_only: bool = False) -> Sequence[CreatedTopic]:
        """Create topics, each independently of the others; a name has the broker's defaults.

        The classes `NewTopic` of kafka-python and confluent-kafka are accepted, too. Raises the first `ApiError`.
        """
        request = CreateTopics(
            topics=[_new_topic(each) for each in topics],
            timeout_ms=self._asker.settings.request_timeout_ms,
            validate_only=validate_only,
        )
        result: CreateTopicsResult = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            check(topic.error, topic.error_message, f"topic {topic.name}")
        return result.topics

    def delete_topics(self, names: Sequence[str] = (), *, topic_ids: Sequence[bytes] = ()) -> None:
        """Delete topics with all their messages. Raises the first `ApiError`.

        Topics among `topic_ids` are never mistaken for a later topic of their name (UNKNOWN_TOPIC_ID once deleted).
        Brokers before Kafka 2.8 know no topic ids.
        """
        timeout_ms = self._asker.settings.request_timeout_ms
        request = DeleteTopics(names=names, topic_ids=topic_ids, timeout_ms=timeout_ms)
        result: DeleteTopicsResult = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            what = f"the topic with the id {topic.topic_id.hex()}" if topic.name is None else f"topic {topic.name}"
            check(topic.error, topic.error_message, what)

    def delete_topic(self, name: str) -> None:
        """Delete one topic with all its messages. Raises `ApiError` (UNKNOWN_TOPIC_OR_PARTITION, ...)."""
        self.delete_topics([name])

    def create_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Extend a topic to `count` partitions in all. Raises `ApiError` (INVALID_PARTITIONS unless it grows)."""
        request = CreatePartitions(
            topics=[NewPartitions(topic=name, count=count)],
            timeout_ms=self._asker.settings.request_timeout_ms,
            validate_only=validate_only,
        )
        result: TopicOutcomes = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        for topic in result.topics:
            check(topic.error, topic.error_message, f"topic {topic.name}")

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """Return the sorted names of all topics; with `internal`, including internal ones. Raises `ApiError`."""
        return sorted(topic.name for topic in self.describe_topics() if topic.name and (internal or not topic.internal))

    def describe_topics(self, names: Sequence[str] | None = None) -> list[TopicMetadata]:
        """Return partitions, leaders and replicas of topics, in the order of `names` (None: all, sorted by name).

        Raises `ApiError`.
        """
        request = Metadata(topics=names, allow_auto_topic_creation=False)
        result: MetadataResult = self._asker.shell.ask(request, retriable=_no_leader_yet)
        found = {topic.name: topic for topic in result.topics}
        if names is None:
            return sorted(result.topics, key=lambda topic: topic.name or "")
        for name in names:
            topic = found.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if error is not ErrorCode.NONE:
                raise topic_error(error, name)
        return [found[name] for name in names]

    def describe_topic(self, name: str) -> TopicMetadata:
        """Return partitions, leaders and replicas of one topic. Raises `ApiError` (UNKNOWN_TOPIC_OR_PARTITION, ...)."""
        return self.describe_topics([name])[0]

    def delete_records(self, offsets: Mapping[TopicPartitionLike, int]) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (-1: all); return the new log start offsets.

        Raises the first `ApiError` (OFFSET_OUT_OF_RANGE beyond the high watermark).
        """
        asked = [DeleteRecordsPartition(topic=p[0], partition=p[1], offset=offset) for p, offset in offsets.items()]

        def build(group: Sequence[DeleteRecordsPartition]) -> DeleteRecords:
            return DeleteRecords(partitions=group, timeout_ms=self._asker.settings.request_timeout_ms)

        def outcomes(result: DeleteRecordsResult) -> list[tuple[ErrorCode, Any]]:
            return [(partition.error, partition.low_watermark) for partition in result.partitions]

        answers = self._asker.shell.ask_leaders(asked, lambda p: TopicPartition(p.topic, p.partition), build, outcomes)
        first_error(answers)
        return {TopicPartition(p.topic, p.partition): low for p, low in zip(asked, answers, strict=True)}

    def list_offsets(
        self,
        asked: Mapping[TopicPartitionLike, int | str],
        *,
        isolation_level: str | int = "read_uncommitted",
        skip_errors: bool = False,
    ) -> dict[TopicPartition, int]:
        """Return per partition the offset for a time in ms, "earliest", "latest" or "max_timestamp"; -1: there is none.

        `asked`: partition → time. With `isolation_level` "read_committed", the latest offset is the last stable
        offset. Raises the first `ApiError`, `ConfigError`; with `skip_errors` partitions with an error are missing in
        the answer instead.
        """
        pairs = [(TopicPartition(*tp), _time(time)) for tp, time in asked.items()]
        try:
            level = isolation_level_of(isolation_level)
        except ValueError as error:
            raise ConfigError(f"isolation_level {isolation_level!r}: {error}") from error
        answers = list_offsets(self._asker.shell, pairs, level)
        if not skip_errors:
            first_error(answers)
        found = zip(pairs, answers, strict=True)
        return {tp: answer.offset for (tp, _), answer in found if not isinstance(answer, BarnabasError)}

    def record_timestamps(self, offsets: Mapping[TopicPartitionLikeT, int]) -> dict[TopicPartition, int]:
        """Return per partition the timestamp of the first record from an offset on, in ms.

        `offsets`: partition → offset. A partition is left out if nothing can be read there: without a leader or the
        right to read, or from its end on. Raises `BarnabasError` if the cluster does not answer.
        """
        wanted = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        return {tp: found for (tp, _), found in LagReader(self._asker).timestamps(wanted.items()).items()}


def _time(time: int | str) -> int:
    if isinstance(time, int):
        return time
    if time not in _TIMES:
        raise ConfigError(f"{time!r}: give milliseconds, earliest, latest or max_timestamp")
    return _TIMES[time]


def _not_controller(result: Any) -> ErrorCode:
    errors = {topic.error for topic in result.topics}
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in errors else ErrorCode.NONE


def _no_leader_yet(result: MetadataResult) -> ErrorCode:
    errors = {topic.error for topic in result.topics}
    return ErrorCode.LEADER_NOT_AVAILABLE if ErrorCode.LEADER_NOT_AVAILABLE in errors else ErrorCode.NONE
