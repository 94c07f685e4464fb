"""The partitions stay what they are: target topics have as many as those of a source, messages keep their numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ...core.client.errors import ClientTimeout
from ...core.message.message import Message
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ..clients.admin.admin import Admin
from ..clients.shared.blocking_shell import logger
from ..clients.shared.bootstrap import Bootstrap
from ..clients.shared.connect import secured
from .taken import Taken, TopicMaker, current_message

if TYPE_CHECKING:
    from ...core.classic.registry.topic_filter import TopicFilter
    from ..clients.producer.producer import Producer
    from ..clients.shared.delivery import ManyHandle

NUMBER, KEY = "number", "key"
LOOK_S = 5.0
"""The interval of requests for new topics and partitions of a source."""
PATIENCE_MS = 5000
CHECK_WAIT_S = 1.0
"""The wait before a check whether the target still has the topics."""
AS_LAID_OUT: dict[str, Any] = {"allow.auto.create.topics": False}
"""The settings of producers: topics that brokers make have another number of partitions."""
_ANOTHER_WAS_QUICKER = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)
_PARTITIONERS = ("partitioner", "partitioner.class")


def keeps_numbers(partition_by: str | None, target: Mapping[str, Any]) -> bool:
    """Return True if messages keep their partition numbers.

    Without `partition_by` they do unless the target's configuration names a partitioner. Raises `ConfigError` for
    an unknown value, and for `number` with a partitioner.
    """
    named = next((name for name in _PARTITIONERS if target.get(name)), None)
    if partition_by not in (None, NUMBER, KEY):
        raise ConfigError(f"partition-by {partition_by!r} is neither {NUMBER!r} nor {KEY!r}")
    if partition_by == NUMBER and not target.get("bootstrap.servers"):
        raise ConfigError(f"partition-by {NUMBER} needs a target with bootstrap.servers (the current generation)")
    if partition_by == NUMBER and named is not None:
        raise ConfigError(f"partition-by {NUMBER} leaves nothing to choose for {named}={target[named]}; drop one")
    return named is None if partition_by is None else partition_by == NUMBER


def _patience_ms(target: Mapping[str, Any]) -> int:
    """Return the time that the target's producer would wait for it, up to `PATIENCE_MS`."""
    text = str(target.get("max.block.ms", ""))
    return min(int(text), PATIENCE_MS) if text.isdecimal() and int(text) else PATIENCE_MS


class TopicLayout:
    """Lets the target have the topics of one source, with at least as many partitions. Any thread."""

    def __init__(self, source: Bootstrap, target: Mapping[str, Any], topics: TopicFilter) -> None:
        """`source`: addresses, with the security of the cluster; `target`: a producer's configuration."""
        self._source = Admin(source, default_api_timeout_ms=PATIENCE_MS)
        self._target = Admin(secured(target["bootstrap.servers"], target), default_api_timeout_ms=_patience_ms(target))
        self._topics = topics
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        self._looked_s = -LOOK_S

    def refresh_topics(self) -> None:
        """Follow the topics of the source, at most once in `LOOK_S`. Raises `BarnabasError`."""
        with self._lock:
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._looked_s = time.monotonic()
                self._follow()

    def make_room(self, partitions: Iterable[object]) -> None:
        """Have the target get partitions for messages of these partitions of the source. Raises `BarnabasError`."""
        with self._lock:
            if any(isinstance(p, TopicPartition) and p.partition >= self._counts.get(p.topic, 0) for p in partitions):
                self._follow()

    def provide(self, counts: Mapping[str, int]) -> None:
        """Have the target get at least these numbers of partitions. Raises `BarnabasError`."""
        with self._lock:
            self._provide(counts)

    def make_again(self, topics: Iterable[str]) -> None:
        """See whether the target has these topics still, and make those that it has not. Raises `BarnabasError`."""
        with self._lock:
            known = [topic for topic in topics if topic in self._counts]
            there = {topic.name for topic in self._target.describe_topics()} if known else set()
            gone = {topic: self._counts.pop(topic) for topic in known if topic not in there}
            for topic in gone:
                logger.warning(
                    "mirror: topic %s no longer exists at the target; it is created again, for new messages", topic
                )
            self._provide(gone)

    def forget(self) -> None:
        """Check the target again at the next copy: it may have lost the topics that were made."""
        with self._lock:
            self._counts.clear()

    def close(self) -> None:
        self._source.close()
        self._target.close()

    def _follow(self) -> None:
        found = {topic.name or "": topic for topic in self._source.describe_topics() if not topic.internal}
        self._provide({name: len(topic.partitions) for name, topic in found.items() if self._topics.allows(name)})

    def _provide(self, counts: Mapping[str, int]) -> None:
        lacking = {topic: count for topic, count in counts.items() if self._counts.get(topic, 0) < count}
        if not lacking:
            return
        there = {topic.name: len(topic.partitions) for topic in self._target.describe_topics()}
        for topic, count in lacking.items():
            try:
                if topic not in there:
                    self._target.create_topic(topic, partitions=count)
                elif there[topic] < count:
                    self._target.create_partitions(topic, count)
            except ApiError as error:
                if error.code not in _ANOTHER_WAS_QUICKER:
                    raise
            else:
                self._counts[topic] = count


class PlacingSender:
    """Gives messages to a producer: for the partition of their number, or wherever its partitioner says."""

    def __init__(self, producer: Producer, *, by_number: bool) -> None:
        self._producer = producer
        self._by_number = by_number
        self._counts: dict[str, int] = {}
        self._sent: set[str] = set()
        """Topics of what was sent, and may be under way."""

    def send(self, batch: Sequence[Taken]) -> list[ManyHandle]:
        """Raises what `Producer.send_many` raises; `ApiError` if the target lacks the partition of one of them: then
        nothing is sent."""
        self._sent |= {taken.topic for taken in batch}
        if not self._by_number:
            return [
                self._producer.send_many(topic, [current_message(taken.message) for taken in run])
                for topic, run in groupby(batch, lambda taken: taken.topic)
            ]
        runs = [
            (topic, partition, [current_message(taken.message) for taken in run])
            for (topic, partition), run in groupby(batch, _where)
        ]
        for topic, partition, _ in runs:
            self._expect(topic, partition)
        return [self._producer.send_many(topic, run, partition=partition) for topic, partition, run in runs]

    def report(self, reports: Sequence[Message]) -> list[ManyHandle]:
        """Send messages that were not read from the source, such as the reports of an audit."""
        return [self._producer.send_many(report.topic, [current_message(report)]) for report in reports]

    def await_sends(self, layout: TopicMaker | None, limit_s: float | None = None) -> None:
        """Wait until the outcome of what was sent is known. Meanwhile make topics again that the target has lost;
        otherwise there would be no outcome for long. Raises `ClientTimeout` after the limit, `BarnabasError`.
        """
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            left = CHECK_WAIT_S if deadline is None else min(CHECK_WAIT_S, max(0.0, deadline - time.monotonic()))
            try:
                self._producer.flush(left if layout is not None or deadline is not None else None)
                break
            except ClientTimeout:
                if deadline is not None and time.monotonic() >= deadline:
                    raise
            if layout is not None:
                self._make_again(layout)
        self._sent.clear()

    def _make_again(self, layout: TopicMaker) -> None:
        try:
            layout.make_again(topic for topic in self._sent if self._is_missing(topic))
        except BarnabasError as error:
            logger.warning("mirror: cannot create missing topics on the target; retrying: %s", error)

    def _is_missing(self, topic: str) -> bool:
        """Return True if the target has no topic of this name."""
        try:
            self._producer.partitions(topic, 0.0)
        except ApiError as error:
            return error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        except ClientTimeout:
            pass  # it has not heard of it yet
        return False

    def forget(self) -> None:
        """Ask again what there is: something has failed."""
        self._counts.clear()

    def _expect(self, topic: str, partition: int | None) -> None:
        """The producer may not have heard yet of what was just made."""
        if partition is None or partition < self._counts.get(topic, 0):
            return
        count = self._producer.partitions(topic, PATIENCE_MS / 1000, at_least=partition + 1)
        if partition >= count:
            text = f"the target has {counted(count, 'partition')} of {topic} so far"
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        self._counts[topic] = count


def _where(taken: Taken) -> tuple[str, int | None]:
    """Return the topic of a record and its partition number, None for a record of a classic cluster."""
    return taken.topic, taken.source_partition.partition if isinstance(taken.source_partition, TopicPartition) else None
