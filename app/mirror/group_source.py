"""A current cluster to copy from, as members of a consumer group."""

import threading
from collections.abc import Hashable, Mapping
from typing import Any, cast

from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.errors import CommitFailed
from ...ports.types import TopicPartition
from ..clients.consumer.consumer import Consumer
from ..clients.shared.blocking_shell import logger
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
            own = {place: offset for place, offset in offsets.items() if place in self._own}
            try:
                if own:
                    self._consumer.commit(own, timeout=COMMIT_S)
            except CommitFailed as error:
                logger.info("mirror: what has moved to another member is copied again: %s", error)

    def close(self) -> None:
        self.ended = True
        self._consumer.close()

    def _assigned(self, places: list[TopicPartition]) -> None:
        self._own |= frozenset(places)

    def _revoked(self, places: list[TopicPartition]) -> None:
        """Commit before the partitions are lost: a reader that polls again has delivered what it took before, so that
        its positions are those of the target."""
        with self._lock:
            try:
                if not self.ended:
                    self._consumer.commit(timeout=COMMIT_S)
            finally:
                self._own -= frozenset(places)

    def _gone(self, places: list[TopicPartition]) -> None:
        with self._lock:
            self._own -= frozenset(places)
