"""The classic topics of this broker, with the number of partitions of each, and their logs."""

import re
from collections.abc import Callable, Mapping

from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topics import INTERNAL_TOPICS
from ....core.log.manager.log_manager import LogManager
from ....core.log.partition_log.unified_log import UnifiedLog
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ...config import BrokerConfig
from ...config.classic import CLASSIC, PARTITION_COUNTS
from ...config.classic import is_classic as is_classic_topic

# The names of classic topics (facts A3), which allow much more than those of the current generation.

TOPIC_NAME_MAX = 255
_FOLDER_NAME_MAX_BYTES = 255
_ILLEGAL = "[/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]"


def check_classic_topic(name: str, partition: int = 0) -> None:
    """Raise `ApiError(INVALID_TOPIC_EXCEPTION)` for a name that no classic topic may have."""
    fault = _fault(name, partition)
    if fault:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:260]!r} {fault}")


def _fault(name: str, partition: int) -> str:
    if not name:
        return "is empty"
    if name in INTERNAL_TOPICS:
        return "belongs to the broker itself"
    if name in (".", ".."):
        return "is the name of a folder"
    if len(name) > TOPIC_NAME_MAX:
        return f"is longer than {TOPIC_NAME_MAX} characters"
    if re.search(_ILLEGAL, name) or not name.isprintable():  # the latter could not stand in the registries
        return "has '/', or characters that cannot be printed"
    if len(f"{name}-{partition}".encode()) > _FOLDER_NAME_MAX_BYTES:
        return "is too long for the name of its folder"
    return ""


class ClassicTopics:
    """The classic topics of one broker, each with N partitions here (facts A3); logs are created at their first use.

    A created topic has the requested number of partitions, any other that of `topic.partition.count.map` or
    `num.partitions`. Owner thread only.
    """

    def __init__(
        self, config: BrokerConfig, registry: ClusterRegistry, logs: LogManager, report: Callable[[str], None]
    ) -> None:
        self._when_appeared: list[Callable[[str], None]] = []
        self._when_vanished: list[Callable[[str], None]] = []
        self._when_opened: list[Callable[[TopicPartition, UnifiedLog], None]] = []
        self._registry = registry
        self._logs = logs
        self._report = report
        self._num_partitions = config.num_partitions
        self._counts: Mapping[str, int] = config.topic_numbers(PARTITION_COUNTS, report)
        self._auto_create = config.auto_create_topics_enable
        self._shown: set[str] = set()
        self._refused: set[str] = set()

    # --- listeners

    def listen_topics(self, appeared: Callable[[str], None], vanished: Callable[[str], None]) -> None:
        """Add listeners for the names of topics that appear or change, and that vanish."""
        self._when_appeared.append(appeared)
        self._when_vanished.append(vanished)

    def listen_logs(self, opened: Callable[[TopicPartition, UnifiedLog], None]) -> None:
        """Add a listener for each log that is opened from now on."""
        self._when_opened.append(opened)

    def _notify_opened(self, key: TopicPartition, log: UnifiedLog) -> None:
        for callback in self._when_opened:
            callback(key, log)

    # --- topics

    def load(self) -> None:
        """Find the topics after a start: those with a log here, and those that were created."""
        self._shown.update(name for name in self._registry.image.topics if self.is_created_classic(name))
        for key, log in self._logs.logs().items():
            if not is_classic(log) or (key.topic in self._registry.image.topics and key.topic not in self._shown):
                continue
            try:
                check_classic_topic(key.topic)
            except ApiError as error:
                self._report(f"the log of {key} is left alone: {error.message}")
                continue
            self._shown.add(key.topic)
            self._notify_opened(key, log)

    @property
    def names(self) -> list[str]:
        """The classic topics of this broker."""
        return sorted(self._shown)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions that this broker has of a classic topic."""
        created = self._registry.image.topics.get(topic)
        if created is not None:
            return len(created.partitions)
        return self.default_partitions(topic)

    def default_partitions(self, topic: str) -> int:
        """Return the number of partitions of a classic topic that was not created with another one."""
        return self._counts.get(topic, self._num_partitions)

    def has(self, topic: str) -> bool:
        """Return True if this is a classic topic of this broker."""
        return topic in self._shown

    def is_created_classic(self, topic: str) -> bool:
        """Return True if the topic was created, as a classic one."""
        created = self._registry.image.topics.get(topic)
        return created is not None and is_classic_topic(created.configs)

    # --- the logs

    def log(self, topic: str, partition: int) -> UnifiedLog | None:
        """Return the log of a partition; None while nothing was ever written to it.

        Raises `ApiError`: INVALID_TOPIC_EXCEPTION, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_FOR_MESSAGE_FORMAT for a
        topic of the current generation.
        """
        if not 0 <= partition < self.partitions(topic):
            self._check(topic)
            text = f"{topic[:260]!r} has the partitions 0 to {self.partitions(topic) - 1} here, not {partition}"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        if topic not in self._shown:
            self._check(topic)
            return None
        found = self._logs.get(TopicPartition(topic, partition))
        return found if found is not None and is_classic(found) else None

    def log_to_append(self, topic: str, partition: int) -> UnifiedLog:
        """Return the log of a partition as `log` does, and create a missing one. Raises also `StorageError`."""
        found = self.log(topic, partition)
        if found is not None:
            return found
        check_classic_topic(topic, partition)
        key = TopicPartition(topic, partition)
        made = self._logs.create(key)  # a log that could not be opened at the start is opened, not replaced
        if not is_classic(made):  # left by an earlier topic of the current generation
            self._logs.rename_to_stray(key, "a classic topic of that name is written to")
            made = self._logs.create(key)
        self._notify_opened(key, made)
        if topic not in self._shown:
            self.show(topic)
        return made

    def show(self, topic: str) -> None:
        """Announce a topic that is new to this broker, or has another number of partitions."""
        self._shown.add(topic)
        for callback in self._when_appeared:
            callback(topic)

    def dropped(self, topic: str) -> None:
        """Announce a topic that was deleted."""
        if topic in self._shown:
            self._shown.discard(topic)
            for callback in self._when_vanished:
                callback(topic)

    def _check(self, topic: str) -> None:
        """Raise `ApiError` for a name that no classic topic has, or may have."""
        check_classic_topic(topic)
        if topic in self._shown:
            return
        if topic in self._registry.image.topics and not self.is_created_classic(topic):
            text = f"{topic!r} is not a classic topic; read and write it through a kafka:// listener"
            if topic not in self._refused:
                self._refused.add(topic)
                self._report(text)
            raise ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)
        if topic in self._registry.image.deleting:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r} is being deleted")
        if not self._auto_create and topic not in self._counts and topic not in self._registry.image.topics:
            text = f"there is no topic {topic!r}, and auto.create.topics.enable is false"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)

    # --- for the current generation

    def refusal(self, topic: str) -> ApiError | None:
        """Return the error with which the current generation refuses this topic; None when it is not a classic one."""
        if topic not in self._shown:
            return None
        text = f"{topic!r} is a classic topic; read and write it through a classic:// listener"
        return ApiError(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, text)

    def check_free(self, topic: str) -> None:
        """Raise `ApiError(TOPIC_ALREADY_EXISTS)` for the name of a classic topic that was not created."""
        if topic in self._shown and topic not in self._registry.image.topics:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"{topic!r} is a classic topic of this broker")


def is_classic(log: UnifiedLog) -> bool:
    return log.format_name == CLASSIC
