"""A current cluster to copy from without a group there: all partitions of the topics that are allowed."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.classic.registry.topic_filter import TopicFilter
from ...ports.words import TopicPartition
from ..clients.admin import Admin
from ..clients.consumer import Consumer
from .taken import MirrorReader, Taken

TOPICS_REFRESH_S = 5.0
"""How often the cluster is asked for new topics."""


class AssignedSource(ABC):
    """Reads from where `start_of` says. Part of a `MirrorSource`; whoever derives from it keeps the positions."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        self.bootstrap = str(settings.pop("bootstrap.servers"))
        settings.pop("client.id", None)
        self._settings = settings
        self._topics = topics
        self._admin = Admin(self.bootstrap)
        self._readers: list[AssignedReader] = []
        self.name = self.bootstrap

    def open(self, streams: int) -> list[MirrorReader]:
        self._readers = [AssignedReader(self, number, streams) for number in range(streams)]
        return list(self._readers)

    @abstractmethod
    def start_of(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Where to begin; at the earliest message of those that are left out. Raises `BarnabasError`."""

    def consumer(self) -> Consumer:
        return Consumer(self.bootstrap, config={"auto.offset.reset": "earliest", **self._settings})

    def partitions(self) -> list[TopicPartition]:
        """Of the topics that are allowed now, in order."""
        topics = [(t.name or "", t) for t in self._admin.describe_topics() if not t.internal]
        allowed = [(name, topic) for name, topic in topics if self._topics.allows(name)]
        return sorted(TopicPartition(name, p.partition) for name, topic in allowed for p in topic.partitions)

    def close(self) -> None:
        for reader in self._readers:
            reader.close()
        self._admin.close()


class AssignedReader:
    """Every n-th partition."""

    def __init__(self, source: AssignedSource, number: int, of: int) -> None:
        self._source = source
        self._number = number
        self._of = of
        self.consumer = self._consumer = source.consumer()
        self._looked_s = -TOPICS_REFRESH_S
        self.ended = False

    def take(self, max_messages: int, timeout: float) -> list[Taken]:
        if time.monotonic() - self._looked_s >= TOPICS_REFRESH_S:
            self._look_for_topics()
        if not self._consumer.assignment:
            threading.Event().wait(timeout)  # for a topic to appear
            return []
        messages = self._consumer.poll_many(max_messages, timeout)
        return [Taken(m.topic, m, TopicPartition(m.topic, m.partition), m.offset + 1) for m in messages]

    def _look_for_topics(self) -> None:
        own = [place for index, place in enumerate(self._source.partitions()) if index % self._of == self._number]
        known = set(self._consumer.assignment)
        if set(own) != known:
            kept = {place: self._consumer.position(place) for place in own if place in known}
            starts = {**self._source.start_of([place for place in own if place not in known]), **kept}
            self._consumer.assign(own, position="earliest")
            for place in own:
                self._consumer.seek(place, starts.get(place, "earliest"))
        self._looked_s = time.monotonic()

    def close(self) -> None:
        self.ended = True
        self._consumer.close()
