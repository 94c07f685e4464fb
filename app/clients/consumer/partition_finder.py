"""The parsing of the topics, partitions and start positions that users name."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ....core.client.arguments import as_topic_partition, check_offset, check_topic, checked_partition_number
from ....core.client.consumer.subscription_state import AtTime
from ....core.client.errors import ClientTimeout, no_partition, topic_error
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.error_codes import ErrorCode
from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ..shared.client_shell import ClientShell

_NAMED = {"earliest": EARLIEST, "beginning": EARLIEST, "latest": LATEST, "end": LATEST}

StartOffset = str | int
"""An offset, or "earliest" or "latest"."""
TopicPartitionLike = TopicPartition | tuple[str, int]


def start_at(position: StartOffset | None, timestamp_ms: int | None) -> AtTime | int | None:
    """Return the start position; None if neither argument names one. Raises `ConfigError`."""
    if position is not None and timestamp_ms is not None:
        raise ConfigError("give a position or a timestamp_ms, not both")
    if timestamp_ms is not None:
        check_offset(timestamp_ms, "timestamp_ms")
        return AtTime(timestamp_ms)
    if position is None:
        return None
    if isinstance(position, str):
        if position not in _NAMED:
            raise ConfigError(f"position {position!r}: give an offset, earliest or latest")
        return AtTime(_NAMED[position])
    check_offset(position, "position")
    if position < 0:
        raise ConfigError(f"position {position}: an offset is 0 or more")
    return position


def subscription_of(
    topics: str | Iterable[str] | None, pattern: str | re.Pattern[str] | None
) -> list[str] | re.Pattern[str]:
    """Return the topics, or the compiled pattern. Raises `ConfigError`."""
    if (topics is None) == (pattern is None):
        raise ConfigError("subscribe to topics, or to a pattern")
    if pattern is not None:
        try:
            return re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"pattern {pattern!r:.200} is not a valid regular expression: {error}") from error
    assert topics is not None
    several = [topics] if isinstance(topics, str) or not isinstance(topics, Iterable) else list(topics)
    several = list(dict.fromkeys(several))
    if not several or not all(isinstance(topic, str) and topic for topic in several):
        raise ConfigError("subscribe to at least one topic, by its name")
    for topic in several:
        if topic.startswith("^"):
            raise ConfigError(f"subscribe to the pattern {topic!r} by pattern=, not as the name of a topic")
        check_topic(topic)
    return several


class PartitionFinder:
    """Finds the partitions of topics in the cluster's metadata."""

    def __init__(self, shell: ClientShell, *, timeout_ms: int, auto_create: bool) -> None:
        self._shell = shell
        self._timeout_s = timeout_ms / 1000
        self._auto_create = auto_create

    def topic_partitions(
        self, what: str | TopicPartitionLike | Iterable[str | TopicPartitionLike], partitions: Iterable[int] | None
    ) -> list[TopicPartition]:
        """Return the named partitions, and those of named topics.

        Raises `ApiError`, `ClientTimeout`, `ConfigError`.
        """
        chosen = None if partitions is None else [checked_partition_number(each) for each in partitions]
        several: Iterable[str | TopicPartitionLike] = [what] if isinstance(what, str) or _is_place(what) else what  # type: ignore[list-item, assignment]  # _is_place checks
        topic_partitions: list[TopicPartition] = []
        for each in several:
            if not isinstance(each, str):
                topic_partitions.append(as_topic_partition(each))
                self._count(topic_partitions[-1].topic, topic_partitions[-1].partition)
                continue
            count = self._count(each, max(chosen) if chosen else 0)
            topic_partitions += [TopicPartition(each, p) for p in (range(count) if chosen is None else chosen)]
        if not topic_partitions:
            raise ConfigError("assign at least one partition")
        return list(dict.fromkeys(topic_partitions))

    def _count(self, topic: str, largest: int) -> int:
        """Return the number of partitions of the topic. Raises `ApiError` if `largest` is not one; `ClientTimeout`.

        An error or a partition count of earlier metadata may be outdated: newer metadata decide.
        """
        view, shell = self._shell.view, self._shell
        with shell.lock:
            was_wanted, known = view.wants(topic), view.updates
            view.add_topics([topic])
            known_view = view.topic(topic)
            if known_view is None or largest >= len(known_view.leaders):
                view.request_refresh()

            def is_decided() -> bool:
                found, error = view.topic(topic), view.topic_errors.get(topic)
                if view.authentication_error is not None or (found is not None and largest < len(found.leaders)):
                    return True
                missing = error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not self._auto_create
                return view.updates > known and (
                    found is not None or (error is not None and (missing or not error.retriable))
                )

            shell.wake()
            decided = shell.wait(is_decided, self._timeout_s)
            found, error = view.topic(topic), view.topic_errors.get(topic)
            if found is None and not was_wanted:  # otherwise the consumer reads it, as soon as it exists again
                view.forget(topic)
        if found is None:
            if error is not None:
                raise topic_error(error, topic)
            if view.authentication_error is not None:
                raise view.authentication_error
            why = "" if decided else view.why
            raise ClientTimeout(f"no metadata of topic {topic} within {self._timeout_s} s{why}")
        count = len(found.leaders)
        if not 0 <= largest < count:
            raise no_partition(topic, count, largest)
        return count


def _is_place(what: object) -> bool:
    return isinstance(what, tuple) and len(what) == 2 and isinstance(what[0], str) and isinstance(what[1], int)
