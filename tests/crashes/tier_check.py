"""Copying to remote storage in a folder, recorded; then the leader that follows after a power cut at every moment."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attrs import frozen
from crashes.examine_crashes import examine_crashes
from crashes.written import Broken

from barnabas.adapters.remote_folder import FolderRemoteStorage
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.adapters.system import ManualClock, SeededEntropy
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.tiering.manifest import (
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    decode_manifest,
    indexes_key,
    log_key,
    manifest_key,
    partition_folder,
)
from barnabas.core.tiering.remote_log_manager import LedLog, RemoteLogManager
from barnabas.core.tiering.segment_objects import SegmentIndexes
from barnabas.core.traffic.steps import complete
from barnabas.ports.remote_storage import ObjectMissing, RemoteStorage
from barnabas.ports.scheduler import Outcome
from barnabas.ports.types import TopicPartition
from barnabas.testing.crashes import Crash, Recording
from barnabas.testing.logs import batch, open_log

KEY, TOPIC_ID = TopicPartition("t", 0), b"topic-id-of-16-b"
FOLDER = partition_folder(KEY, TOPIC_ID)
RECORD_BYTES = len(batch(b"%04d" % 0))
RETAINED = 4
"""The records that the topic's retention keeps."""


@frozen
class Appended:
    """A record is committed; it is a segment of its own."""

    offset: int
    leader_epoch: int
    content: bytes


@frozen
class DeletedHere:
    """The leader's log begins at this offset now: below it, only remote storage has the records."""

    local_start: int


class Leading:
    """A leader, whose calls of the store are made one at a time."""

    def __init__(
        self,
        storage: RemoteStorage,
        log: UnifiedLog,
        leader_epoch: int,
        entropy: Any,
        suspect: Callable[[UnifiedLog, int], None] = lambda _log, _offset: None,
    ) -> None:
        self.storage, self.log, self.leader_epoch = storage, log, leader_epoch
        self.works: list[tuple[Callable[[], Any], Callable[[Outcome[Any]], None]]] = []
        self.manager = RemoteLogManager(
            self.storage,
            lambda work, done: self.works.append((work, done)),
            scheduler=SimpleNamespace(call_later=lambda _, _call: None),
            clock=ManualClock(),
            entropy=entropy,
            report=lambda _: None,
            interval_ms=50,
            suspect=suspect,
        )
        self.manager.lead(
            LedLog(
                key=KEY,
                topic_id=TOPIC_ID,
                leader_epoch=self.leader_epoch,
                log=self.log,
                last_stable_offset=lambda: self.log.log_end_offset,
                describe=lambda: TieredTopic(name="t", topic_id=TOPIC_ID, partitions=1),
                awaits_producers=lambda: False,
            )
        )

    def call(self) -> bool:
        """Make the next call of the store; False: there is none."""
        if not self.works:
            return False
        work, done = self.works.pop(0)
        done(Outcome.of(work))
        return True

    def run(self) -> None:
        """Copy, expire and delete all that is due."""
        for _ in range(4):
            while self.call():
                pass
            self.manager.run_now(KEY)
        while self.call():
            pass


def _log(*, local: int) -> UnifiedLog:
    config = LogConfig(
        segment_bytes=RECORD_BYTES,
        remote_storage_enable=True,
        local_retention_bytes=local * RECORD_BYTES,
        retention_bytes=RETAINED * RECORD_BYTES,
        retention_ms=-1,
        index_interval_bytes=1,
    )
    return open_log(MemoryLogDir().folder("t-0"), config=config)


class TierStory:
    """One seed, played."""

    def __init__(self, seed: int, folder: Path, *, steps: int = 30) -> None:
        self._entropy = SeededEntropy(f"tier/{seed}")
        self._steps = steps
        folder.mkdir()
        self.recording = Recording(folder)

    def play(self) -> None:
        with self.recording as recording:
            leader = Leading(FolderRemoteStorage(recording.folder / "store"), _log(local=0), 0, self._entropy)
            for _ in range(self._steps):
                chosen = self._entropy.below(8)
                if chosen < 2:
                    self._append(leader)
                elif chosen < 6:
                    if not leader.call():
                        leader.manager.run_now(KEY)
                elif chosen == 6:
                    self._retain(leader)
                else:
                    leader = self._succeed(leader)
            leader.run()
            self._retain(leader)

    def _append(self, leader: Leading) -> None:
        content = bytearray(batch(self._entropy.token(4)))
        offset = leader.log.append(memoryview(content), leader_epoch=leader.leader_epoch, now_ms=0).base_offset
        leader.log.flushes.now()
        self.recording.note(Appended(offset, leader.leader_epoch, bytes(content)))

    def _retain(self, leader: Leading) -> None:
        for segment in complete(leader.log.retain(0, leader.log.log_end_offset)):
            segment.delete()
        self.recording.note(DeletedHere(leader.log.local_log_start_offset))

    def _succeed(self, leader: Leading) -> Leading:
        """Let the leader die between two calls, and lead again."""
        leader.manager.close()
        return Leading(leader.storage, leader.log, leader.leader_epoch + 1, self._entropy)


def try_tier_crashes(seed: int, folder: Path, points: int) -> int:
    """Play a story and examine at most `points` crashes of it; return how many there were."""
    story = TierStory(seed, folder / "recorded")
    story.play()
    return examine_crashes(story.recording, seed, folder / "left", points, _examine)


def _examine(place: Path, crash: Crash) -> None:
    storage = FolderRemoteStorage(place / "store")
    appended = [each for each in crash.noted if isinstance(each, Appended)]
    local = max((each.local_start for each in crash.noted if isinstance(each, DeletedHere)), default=0)
    _check(storage, _manifest(storage), appended, local)
    log = _log(local=100)
    for each in appended:  # another replica, which still has all
        log.append_replicated(memoryview(each.content), now_ms=0)
    log.flushes.now()
    latest = max((each.leader_epoch for each in appended), default=0)
    leader = Leading(storage, log, latest + 100, SeededEntropy("next"))
    leader.run()
    found = _manifest(storage)
    _check(storage, found, appended, local)
    if found is None:
        raise Broken("the next leader has no manifest")
    unfinished = [each for each in found.segments if each.state is not SegmentState.COPY_FINISHED]
    if unfinished:
        raise Broken(f"left half done: {unfinished}")
    named = {f(FOLDER, each) for each in found.segments for f in (log_key, indexes_key)}
    there = {each.key for each in storage.list_objects("")} - {manifest_key(KEY, TOPIC_ID)}
    if there != named:
        raise Broken(f"objects that no manifest names, or that are missing: {sorted(there ^ named)}")
    if appended and found.covered_to(found.log_start) < len(appended) - 1:
        raise Broken(f"not copied: from {found.covered_to(found.log_start)} on")


def _manifest(storage: FolderRemoteStorage) -> Manifest | None:
    try:
        return decode_manifest(storage.read(manifest_key(KEY, TOPIC_ID)).content)
    except ObjectMissing:
        return None
    except ValueError as error:
        raise Broken(f"torn: the manifest cannot be read: {error}") from None


def _check(storage: FolderRemoteStorage, found: Manifest | None, appended: Sequence[Appended], local: int) -> None:
    start = 0 if found is None else found.log_start
    if start > max(0, len(appended) - RETAINED):
        raise Broken(f"expired too early: the manifest starts at {start}, and {len(appended)} were appended")
    for offset in range(start, local):
        if found is None or found.find(offset) is None:
            raise Broken(f"lost: offset {offset} was deleted from the log, and the manifest does not have it")
    for segment in () if found is None else found.readable:
        _check_segment(storage, segment, appended)


def _check_segment(storage: FolderRemoteStorage, segment: RemoteSegment, appended: Sequence[Appended]) -> None:
    try:
        content = storage.read(log_key(FOLDER, segment)).content
        indexes = SegmentIndexes(storage.read(indexes_key(FOLDER, segment)).content, segment.base_offset)
    except (ObjectMissing, ValueError) as error:
        raise Broken(f"torn: a segment that readers are offered is not whole: {error}") from None
    if content != appended[segment.base_offset].content or indexes.snapshot is None:
        raise Broken(f"torn: the segment at {segment.base_offset} is not what was appended")
