"""A current cluster to copy from without a group there: all partitions of the topics that are allowed."""

import threading
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.consumer.subscription_state import AtOffset
from ...ports.types import TopicPartition
from ..clients.admin.admin import Admin
from ..clients.consumer.consumer import Consumer
from ..clients.shared.blocking_shell import logger
from ..clients.shared.connect import secured
from .taken import MirrorReader, Taken

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
    def start_of(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
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
            place, next_offset = TopicPartition(message.topic, message.partition), message.offset + 1
            topic_id = topic_ids.get(place)
            if topic_id is None:
                topic_id = topic_ids[place] = self._consumer.topic_id(place)
            reached[place] = (next_offset, topic_id)
            taken.append(Taken(message.topic, message, place, next_offset, topic_id))
        return taken

    def _look_for_topics(self) -> None:
        own = [place for place in self._source.partitions() if self._falls_here(place)]
        if set(own) != set(self._consumer.assignment):
            starts = dict(self._source.start_of([place for place in own if place not in self._reached]))
            starts |= {place: AtOffset(offset, topic_id=known) for place, (offset, known) in self._reached.items()}
            if own:
                self._consumer.assign(own, position="earliest")
            else:
                self._consumer.unsubscribe()
            for place in own:
                self._consumer.seek(place, starts.get(place, "earliest"))
        self._looked_s = time.monotonic()

    def _falls_here(self, place: TopicPartition) -> bool:
        return (zlib.crc32(place.topic.encode()) + place.partition) % self._of == self._number

    def close(self) -> None:
        self.ended = True
        self._consumer.close()
