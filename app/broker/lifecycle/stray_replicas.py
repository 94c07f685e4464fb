"""The search for stray replicas after a broker has registered; they are renamed, never deleted."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from ....core.cluster.change_queue import elsewhere, on_disk
from ....core.cluster.stray_replicas import has_all_records, why_orphan_is_stray, why_stray
from ....core.cluster.topic_store import read_live_topics
from ....core.cluster.topics import Topic
from ....core.log.manager.creation import read_topic_id
from ....ports.broker_api.epochs import (
    OffsetForLeaderEpoch,
    OffsetForLeaderEpochResult,
    OffsetForLeaderPartition,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import BarnabasError
from ....ports.storage import Folder, StorageError
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState

CHECK_AGAIN_MS = 30_000.0
"""The interval at which logs are looked at again that are assigned to others, and that these may still need."""


class StrayReplicas:
    """Renames the folders of stray replicas to *-stray. Owner thread only.

    `is_registered` returns True while the broker is registered; `report` takes lines for the broker's log.
    """

    def __init__(
        self,
        state: BrokerState,
        *,
        is_registered: Callable[[], bool],
        report: Callable[[str], None],
    ) -> None:
        self._state = state
        self._report = report
        self._needed: set[TopicPartition] = set()
        """Logs that are left alone, and were reported."""
        self._is_registered = is_registered
        self._is_due = self._is_closed = False

    def close(self) -> None:
        """Stop looking."""
        self._is_closed = True

    def check(self) -> None:
        """Look for stray replicas after a registration. Requires a tree that was not restored from a backup."""
        if self._is_due or self._is_closed or not (self._assigned_elsewhere() or self._state.logs.orphans):
            return
        self._is_due = True
        self._state.changes.submit("looking for stray replicas", self._checking, self._checked)

    def _assigned_elsewhere(self) -> list[TopicPartition]:
        """Return the partitions whose logs are open here and that belong to other brokers."""
        image, own = self._state.image, self._state.node_id
        return [
            key
            for key in self._state.logs.logs()
            if key not in self._state.replicas.partitions
            and (topic := image.topics.get(key.topic)) is not None
            and own not in topic.partitions.get(key.partition, (own,))
            and not self._state.classic.has(key.topic)
            and self._state.logs.is_labelled(key)
            and key not in self._needed
        ]

    async def _checking(self) -> None:
        state = self._state
        if not self._is_registered():
            return  # the next registration checks again
        folders = {key: state.logs.dir_of(key).folder(str(key)) for key in self._assigned_elsewhere()}
        orphans = {key: each for key, each in state.logs.orphans.items() if each.topic_id is not None}
        names = sorted({key.topic for key in (*folders, *orphans)})
        # It reads the tree as of now, which is after the registration.
        live = await elsewhere(partial(read_live_topics, state.registry.coordination, names))
        await state.registry.reread_states(sorted({key.topic for key in folders}))
        topic_ids = await on_disk(partial(_read_topic_ids, folders))
        if not self._is_registered():
            return
        for key, topic_id in topic_ids.items():
            if self._is_current(key.topic, live) and self._why_stray(key, topic_id) is not None:
                self._ask_leader(key, topic_id)
        for key, orphan in orphans.items():
            cause = why_orphan_is_stray(live.get(key.topic), orphan.topic_id)
            if cause is not None:
                state.logs.rename_orphan_to_stray(key, cause)

    def _why_stray(self, key: TopicPartition, topic_id: bytes) -> str | None:
        """Return why a log is stray by the image, if its leader has all records of it; None: it is not, or in doubt."""
        state, topic = self._state, self._state.image.topics.get(key.topic)
        if topic is None or state.logs.get(key) is None or key in state.replicas.partitions:
            return None
        return why_stray(state.image, key, topic_id, state.node_id, state.election_rules(topic))

    def _ask_leader(self, key: TopicPartition, topic_id: bytes) -> None:
        """Rename a log if the leader of its partition has all records of it."""
        state, log = self._state, self._state.logs.get(key)
        if log is None or state.ask is None:
            return
        known, latest = state.image.state(key), log.epochs.latest
        asked = OffsetForLeaderPartition(
            topic=key.topic,
            partition=key.partition,
            leader_epoch=max(0, latest),
            current_leader_epoch=known.leader_epoch,
        )

        def answered(result: object) -> None:
            cause = self._why_stray(key, topic_id)
            if self._is_closed or cause is None or not isinstance(result, OffsetForLeaderEpochResult):
                return
            (end,) = result.partitions
            if end.error is not ErrorCode.NONE or state.image.state(key).leader_epoch != known.leader_epoch:
                return
            if has_all_records(latest, log.log_end_offset, end):
                try:
                    state.logs.rename_to_stray(key, cause)
                except StorageError as error:
                    state.failed(f"renaming the folder of {key}, which is stray,", error)
            elif key not in self._needed:
                self._needed.add(key)
                path = f"{state.logs.dir_of(key).path}/{key}"
                self._report(
                    f"{path} is left alone: {cause}, but it has records that the leader, broker {known.leader}, has"
                    " not, or no longer. Delete the folder when they are not needed, while the broker is stopped"
                )

        state.ask(known.leader, OffsetForLeaderEpoch(partitions=[asked], replica_id=state.node_id), answered)

    def _is_current(self, name: str, live: Mapping[str, Topic | None]) -> bool:
        """Return True if the image has the topic as the tree has it."""
        known, stored = self._state.image.topics.get(name), live.get(name)
        return known is not None and stored is not None and known == stored.with_configs(known.configs)

    def _checked(self, error: BarnabasError | None) -> None:
        self._is_due = False
        if not self._is_closed and (error is not None or self._assigned_elsewhere()):
            self._state.scheduler.call_later(CHECK_AGAIN_MS, self.check)


def _read_topic_ids(folders: Mapping[TopicPartition, Folder]) -> Mapping[TopicPartition, bytes]:
    found: dict[TopicPartition, bytes] = {}
    for key, folder in folders.items():
        with suppress(StorageError):  # it is in doubt then, and stays
            topic_id = read_topic_id(folder, lambda _: None)
            if topic_id is not None:
                found[key] = topic_id
    return found
