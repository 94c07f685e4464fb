"""A current cluster to copy from: all partitions of the allowed topics without a group, or as members of a group."""

import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, cast

from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.consumer.subscription_state import AtOffset
from ...core.client.errors import CommitFailed
from ...ports.types import TopicPartition
from ..clients.admin.admin import Admin
from ..clients.consumer.consumer import Consumer
from ..clients.shared.blocking_shell import logger
from ..clients.shared.connect import secured
from .taken import MirrorReader, Taken

COMMIT_S = 10.0
"""The longest wait for the coordinator."""


class GroupSource:
    """A stream is a member of the group; several mirrors of one group share the partitions."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        self._bootstrap = str(settings.pop("bootstrap.servers"))
        self._config = {
            "auto.offset.reset": "earliest",
            "metadata.max.age.ms": 5000,  # so soon a new topic is copied
            **settings,
            "enable.auto.commit": False,  # else it is committed what the target has not got
        }
        self._topics = topics
        self._readers: list[_GroupReader] = []
        self.name = f"group {settings.get('group.id') or settings['groupid']} at {self._bootstrap}"

    def open(self, streams: int) -> list[MirrorReader]:
        for _ in range(streams):
            self._readers.append(_GroupReader(Consumer(self._bootstrap, config=self._config), self._topics))
        return list(self._readers)

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Commit offsets of partitions still ours; the next owner of others copies again what is not committed."""
        for reader in self._readers:
            reader.commit(cast("dict[TopicPartition, int]", offsets))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()


class _GroupReader:
    def __init__(self, consumer: Consumer, topics: TopicFilter) -> None:
        self.consumer = self._consumer = consumer
        self._lock = threading.Lock()
        self._own: frozenset[TopicPartition] = frozenset()
        self.ended = False
        consumer.subscribe(
            pattern=topics.pattern, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._gone
        )

    def poll_messages(self, max_messages: int, timeout: float) -> list[Taken]:
        messages = self._consumer.poll_many(max_messages, timeout)
        return [Taken(m.topic, m, TopicPartition(m.topic, m.partition), m.offset + 1) for m in messages]

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit, in any thread. No partition is given up meanwhile: an old offset must not overwrite a newer one."""
        with self._lock:
            own = {tp: offset for tp, offset in offsets.items() if tp in self._own}
            try:
                if own:
                    self._consumer.commit(own, timeout=COMMIT_S)
            except CommitFailed as error:
                logger.info("mirror: what has moved to another member is copied again: %s", error)

    def close(self) -> None:
        self.ended = True
        self._consumer.close()

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        self._own |= frozenset(partitions)

    def _revoked(self, topic_partitions: list[TopicPartition]) -> None:
        """Commit before the partitions are lost: a reader that polls again has delivered what it took before, so that
        its positions are those of the target."""
        with self._lock:
            try:
                if not self.ended:
                    self._consumer.commit(timeout=COMMIT_S)
            finally:
                self._own -= frozenset(topic_partitions)

    def _gone(self, partitions: list[TopicPartition]) -> None:
        with self._lock:
            self._own -= frozenset(partitions)


TOPICS_REFRESH_S = 5.0
"""The interval of requests for new topics of the cluster."""


class AssignedSource(ABC):
    """Reads from the offsets of `start_of`. Part of a `MirrorSource`; subclasses keep the positions."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        self.bootstrap = str(settings.pop("bootstrap.servers"))
        settings.pop("client.id", None)
        self._settings = settings
        self._topics = topics
        self._admin = Admin(secured(self.bootstrap, settings))
        self._readers: list[AssignedReader] = []
        self._seen: set[str] = set()
        self._seeing = threading.Lock()
        self.name = self.bootstrap

    def open(self, streams: int) -> list[MirrorReader]:
        self._readers = [AssignedReader(self, number, streams) for number in range(streams)]
        return list(self._readers)

    @abstractmethod
    def start_of(self, topic_partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
        """Return the start offsets; partitions left out begin at their earliest message. Raises `BarnabasError`."""

    def consumer(self) -> Consumer:
        return Consumer(self.bootstrap, config={"auto.offset.reset": "earliest", **self._settings})

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions of the topics that are allowed now, in order."""
        topics = [(t.name or "", t) for t in self._admin.describe_topics() if not t.internal]
        allowed = [(name, topic) for name, topic in topics if self._topics.allows(name)]
        with self._seeing:
            before, self._seen = self._seen, {name for name, _ in allowed}
            gone = sorted(before - self._seen)
        if gone:
            logger.warning("mirror: deleted at %s: %s; other topics continue", self.bootstrap, ", ".join(gone))
        return sorted(TopicPartition(name, p.partition) for name, topic in allowed for p in topic.partitions)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._admin.close()


class AssignedReader:
    """The partitions that fall to one of several streams: each always to the same one, whatever topics come and go.
    Another stream would continue at the position of the first one, which might still be reading."""

    def __init__(self, source: AssignedSource, number: int, of: int) -> None:
        self._source = source
        self._number = number
        self._of = of
        self.consumer = self._consumer = source.consumer()
        self._looked_s = -TOPICS_REFRESH_S
        self._reached: dict[TopicPartition, tuple[int, bytes]] = {}
        """The next offset and the topic id, also of partitions that are gone: a topic may come back as another one."""
        self.ended = False

    def poll_messages(self, max_messages: int, timeout: float) -> list[Taken]:
        if time.monotonic() - self._looked_s >= TOPICS_REFRESH_S:
            self._look_for_topics()
        if not self._consumer.assignment:
            threading.Event().wait(timeout)  # for a topic to appear
            return []
        taken, reached = [], self._reached
        topic_ids: dict[TopicPartition, bytes] = {}
        for message in self._consumer.poll_many(max_messages, timeout):
            tp, next_offset = TopicPartition(message.topic, message.partition), message.offset + 1
            topic_id = topic_ids.get(tp)
            if topic_id is None:
                topic_id = topic_ids[tp] = self._consumer.topic_id(tp)
            reached[tp] = (next_offset, topic_id)
            taken.append(Taken(message.topic, message, tp, next_offset, topic_id))
        return taken

    def _look_for_topics(self) -> None:
        own = [tp for tp in self._source.partitions() if self._falls_here(tp)]
        if set(own) != set(self._consumer.assignment):
            starts = dict(self._source.start_of([tp for tp in own if tp not in self._reached]))
            starts |= {tp: AtOffset(offset, topic_id=known) for tp, (offset, known) in self._reached.items()}
            if own:
                self._consumer.assign(own, position="earliest")
            else:
                self._consumer.unsubscribe()
            for tp in own:
                self._consumer.seek(tp, starts.get(tp, "earliest"))
        self._looked_s = time.monotonic()

    def _falls_here(self, tp: TopicPartition) -> bool:
        return (zlib.crc32(tp.topic.encode()) + tp.partition) % self._of == self._number

    def close(self) -> None:
        self.ended = True
        self._consumer.close()
