"""Copying and expiry of the partitions that a broker leads (Kafka: RemoteLogManager).

Each led partition has a run at a time: a generator that decides on the owner thread, and yields the calls of remote
storage, which other threads make. Whatever a run waits for, it looks afterwards whether it still counts.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from attrs import evolve

from ...ports.clock import Clock
from ...ports.entropy import Entropy
from ...ports.errors import ClosedError
from ...ports.remote_storage import ObjectChanged, ObjectMissing, RemoteStorage, RemoteStorageError
from ...ports.report import counted, info
from ...ports.scheduler import Outcome, Scheduler, Timer
from ...ports.storage import Region, StorageError
from ...ports.types import Offset, TopicPartition
from ...ports.values import frozen
from ..log.checkpoints import format_epochs
from ..log.partition_log.unified_log import UnifiedLog
from ..log.segment.segment import Segment
from .manifest import (
    Change,
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    claim,
    decode_manifest,
    drop_deleted,
    encode_manifest,
    epochs_between,
    expired_start,
    finish_copy,
    give_up_dead_branches,
    indexes_key,
    log_key,
    manifest_key,
    partition_folder,
    raise_log_start,
    start_copy,
    topic_folder,
)
from .remote_reader import Offload, RemoteView
from .segment_objects import CheckedBatches, DamagedSegment, IndexType, encode_parts

CopyRun = Generator[Callable[[], Any], Any, None]
_ATTEMPTS = 5
"""Attempts to store one change against late changes of earlier leaders."""


class _Ended(Exception):
    """This broker no longer leads the partition in that leader epoch."""


class _Fenced(Exception):
    """A later leader has the manifest."""


@frozen(kw_only=True)
class LedLog:
    """A partition that this broker leads, in one leader epoch."""

    key: TopicPartition
    topic_id: bytes
    leader_epoch: int
    log: UnifiedLog
    last_stable_offset: Callable[[], int]
    describe: Callable[[], TieredTopic]
    """Returns the topic as it is now."""
    awaits_producers: Callable[[], bool]
    """Returns True while damage hides batches of producers from the leader, and a repair may bring them back."""


class _Leading:
    """The state of one led partition here."""

    def __init__(self, led: LedLog) -> None:
        self.led = led
        self.folder = partition_folder(led.key, led.topic_id)
        self.manifest: Manifest | None = None
        """The one that this leader has stored last; None before it has."""
        self.version: str | None = None
        self.ended = self.is_running = self.again = self.complained = False

    @property
    def mine(self) -> Manifest:
        assert self.manifest is not None
        return self.manifest


class TierStats:
    """Callbacks for the metrics of copying and deleting. All do nothing here."""

    def copied(self, topic: str, size: int) -> None:
        """Count a segment that was copied."""

    def copy_failed(self, topic: str) -> None:
        """Count a copy that failed."""

    def deleted(self, topic: str) -> None:
        """Count a segment that was deleted."""

    def delete_failed(self, topic: str) -> None:
        """Count a deletion that failed."""


class RemoteLogManager:
    """Owner thread only. `start` it; `close` ends it."""

    def __init__(
        self,
        storage: RemoteStorage,
        offload: Offload,
        *,
        scheduler: Scheduler,
        clock: Clock,
        entropy: Entropy,
        report: Callable[[str], None],
        interval_ms: float,
        copy_wait_ms: Callable[[int], float] = lambda _: 0.0,
        stats: TierStats | None = None,
        changed: Callable[[TopicPartition], None] = lambda _: None,
        suspect: Callable[[UnifiedLog, int], None] = lambda _log, _offset: None,
    ) -> None:
        """Create it.

        interval_ms:  between two runs of a partition.
        copy_wait_ms: is called with the size of a segment that is about to be copied; returns how long to wait first.
        changed:      called with a partition whose log start offset was raised.
        suspect:      called with a log and an offset in a segment that is damaged, and not copied therefore.
        """
        self._storage = storage
        self._offload = offload
        self._scheduler = scheduler
        self._clock = clock
        self._entropy = entropy
        self._report = report
        self._interval_ms = interval_ms
        self._copy_wait_ms = copy_wait_ms
        self._stats = stats or TierStats()
        self._changed = changed
        self._suspect = suspect
        self._leading: dict[TopicPartition, _Leading] = {}
        self._timer: Timer | None = None
        self._closed = False

    def start(self) -> None:
        """Begin the runs at intervals."""
        self._timer = self._scheduler.call_later(self._interval_ms, self._tick)

    def close(self) -> None:
        """End all runs; calls that are under way are not waited for."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for each in self._leading.values():
            each.ended = True
        self._leading.clear()

    def _tick(self) -> None:
        self.start()
        for each in list(self._leading.values()):
            self._begin(each)

    def lead(self, led: LedLog) -> None:
        """Care for a partition from now on, in place of an earlier leader epoch of it."""
        self.resign(led.key)
        leading = self._leading[led.key] = _Leading(led)
        self._begin(leading)

    def resign(self, key: TopicPartition) -> None:
        """Forget a partition: another broker leads it, or it is deleted."""
        leading = self._leading.pop(key, None)
        if leading is not None:
            leading.ended = True

    def run_now(self, key: TopicPartition) -> None:
        """Begin a run of the partition now, as after a change of its configuration."""
        leading = self._leading.get(key)
        if leading is not None:
            self._begin(leading)

    def view(self, key: TopicPartition) -> RemoteView | None:
        """Return what readers use of a led partition; None while this leader does not know it yet."""
        leading = self._leading.get(key)
        if leading is None or leading.manifest is None:
            return None
        return RemoteView(folder=leading.folder, manifest=leading.manifest)

    @property
    def views(self) -> Iterable[tuple[TopicPartition, RemoteView]]:
        """The led partitions whose manifest is known."""
        for key in self._leading:
            view = self.view(key)
            if view is not None:
                yield key, view

    def lag(self, key: TopicPartition) -> tuple[int, int]:
        """Return (bytes, segments) of a led partition that are closed and not copied yet."""
        leading = self._leading.get(key)
        if leading is None or not leading.led.log.config.copies:
            return 0, 0
        log = leading.led.log
        waiting = [each.size for each, after in pairwise(log.segments) if after.base_offset > log.remote_end]
        return sum(waiting), len(waiting)

    # --- runs

    def _begin(self, leading: _Leading) -> None:
        if leading.is_running:
            leading.again = True
        elif not leading.ended:
            leading.is_running = True
            leading.again = False
            self._advance(leading, self._run(leading), None)

    def _advance(self, leading: _Leading, run: CopyRun, outcome: Outcome[Any] | None) -> None:
        try:
            if outcome is None:
                work = next(run)
            elif outcome.error is not None:
                work = run.throw(outcome.error)
            else:
                work = run.send(outcome.value)
        except (StopIteration, _Ended):
            self._done(leading)
            return
        except _Fenced:
            self._report(info(f"{leading.led.key}: a later leader manages its remote storage now"))
            leading.ended = True
            self._done(leading)
            return
        except (RemoteStorageError, StorageError, ClosedError, ValueError) as error:  # closed: the log, or a segment
            if not leading.complained and not leading.ended and not leading.led.log.closed:
                leading.complained = True
                self._report(f"{leading.led.key}: remote storage failed; retrying: {error}")
            self._done(leading)
            return
        except BaseException:
            leading.is_running = False
            raise
        if isinstance(work, _Pause):
            self._scheduler.call_later(work.ms, partial(self._advance, leading, run, Outcome(value=None)))
        else:
            self._offload(work, partial(self._advance, leading, run))

    def _done(self, leading: _Leading) -> None:
        leading.is_running = False
        if leading.again:
            self._begin(leading)

    def _check(self, leading: _Leading) -> None:
        if leading.ended or leading.led.log.closed:
            raise _Ended

    def _run(self, leading: _Leading) -> CopyRun:
        log = leading.led.log
        if not log.config.tiered:
            yield from self._disable(leading)
            return
        if leading.manifest is None:
            yield from self._claim(leading)
        self._adopt(leading)
        yield from self._delete_marked(leading)
        yield from self._expire(leading)
        if log.config.copies:
            yield from self._copy_all(leading)
        leading.complained = False

    def _claim(self, leading: _Leading) -> CopyRun:
        """Read the manifest, and store it with the own leader epoch: an earlier leader can change nothing after it."""
        led, log = leading.led, leading.led.log
        for _ in range(_ATTEMPTS):
            stored, version = yield from self._read_manifest(leading)
            if stored is not None and stored.leader_epoch > led.leader_epoch:
                raise _Fenced
            lineage = merged_lineage(() if stored is None else stored.epochs, log.epochs.entries)
            mine = claim(
                stored,
                led.describe(),
                led.key.partition,
                leader_epoch=led.leader_epoch,
                log_start=log.log_start_offset,
                log_end=log.log_end_offset,
                epochs=_with_own_epoch(lineage, led),
            )
            try:
                yield from self._store(leading, mine, version)
            except ObjectChanged:
                continue
            # This leader may have appended meanwhile.
            lineage = tuple(each for each in lineage_of(leading.mine, led) if each[1] < log.log_end_offset)
            if tuple(log.epochs.entries) != lineage and log.log_start_offset < log.local_log_start_offset:
                log.epochs.replace(lineage)
            self._adopt(leading)
            return
        raise RemoteStorageError("the manifest changes all the time")

    def _adopt(self, leading: _Leading) -> None:
        """Apply the stored manifest to the log."""
        log, manifest = leading.led.log, leading.mine
        start = max(log.log_start_offset, manifest.log_start)
        if start < log.local_log_start_offset and manifest.find(start) is None:
            readable = manifest.first_readable(start)
            local = log.local_log_start_offset
            found = local if readable is None else min(readable, local)
            self._report(f"{leading.led.key}: offsets {start} to {found - 1} are neither here nor in remote storage")
            start = Offset(found)
        if start > log.log_start_offset:
            log.advance_log_start(min(start, log.readable_end))
            self._changed(leading.led.key)
        log.remote_end = Offset(manifest.covered_to(log.local_log_start_offset))

    def _read_manifest(
        self, leading: _Leading
    ) -> Generator[Callable[[], Any], Any, tuple[Manifest | None, str | None]]:
        key = manifest_key(leading.led.key, leading.led.topic_id)
        try:
            found: tuple[Manifest, str] = yield partial(self._read, key)
        except ObjectMissing:
            self._check(leading)
            return None, None
        self._check(leading)
        return found

    def _replace(self, key: str, manifest: Manifest, version: str | None) -> str:
        """Store a manifest, which takes long to encode if it is large. Any thread."""
        return self._storage.replace(key, encode_manifest(manifest), version)

    def _read(self, key: str) -> tuple[Manifest, str]:
        """Read a manifest. Any thread. Raises `RemoteStorageError`, `CorruptManifest`."""
        found = self._storage.read(key)
        return decode_manifest(found.content), found.version

    def _store(self, leading: _Leading, manifest: Manifest, version: str | None) -> CopyRun:
        """Store a manifest in place of the one with that version. Raises `ObjectChanged`, `RemoteStorageError`."""
        manifest = evolve(manifest, changes=manifest.changes + 1)
        key = manifest_key(leading.led.key, leading.led.topic_id)
        try:
            stored: str = yield partial(self._replace, key, manifest, version)
        except RemoteStorageError:
            # The attempt, or an earlier one of its retries, may have had its effect.
            found, present = yield from self._read_manifest(leading)
            if found != manifest or present is None:
                raise
            stored = present
        self._check(leading)
        leading.manifest, leading.version = manifest, stored

    def _update(self, leading: _Leading, change: Change) -> CopyRun:
        """Store a change of the manifest, on top of a late one of this leader, too."""
        for _ in range(_ATTEMPTS):
            try:
                yield from self._store(leading, change(leading.mine), leading.version)
            except ObjectChanged:
                stored, version = yield from self._read_manifest(leading)
                if stored is None or stored.leader_epoch < leading.led.leader_epoch:
                    raise RemoteStorageError("the manifest of this leader was replaced by an older one") from None
                if stored.leader_epoch > leading.led.leader_epoch:
                    raise _Fenced from None
                leading.manifest, leading.version = stored, version
                continue
            self._adopt(leading)
            return
        raise RemoteStorageError("the manifest changes all the time")

    # --- copying

    def _copy_all(self, leading: _Leading) -> CopyRun:
        log = leading.led.log
        while True:
            found = next_to_copy(
                log.segments,
                copied_to=max(leading.mine.covered_to(log.local_log_start_offset), log.log_start_offset),
                below=min(leading.led.last_stable_offset(), log.recovery_point),
                lag_ms=log.config.remote_copy_lag_ms,
                lag_bytes=log.config.remote_copy_lag_bytes,
                now_ms=self._clock.now_ms(),
            )
            if found is None or not log.config.copies:
                return
            segment, next_offset = found
            hidden = log.hidden_producers_at
            if hidden and hidden[0] < next_offset and leading.led.awaits_producers():
                return  # the segment's snapshot of producers would lack them, also after the repair
            wait_ms = self._copy_wait_ms(segment.size)
            if wait_ms > 0:
                yield _Pause(wait_ms)
                self._check(leading)
            try:
                yield from self._copy(leading, segment, next_offset)
            except DamagedSegment as error:
                self._suspect(log, error.offset)  # a repair may follow
                return
            except (RemoteStorageError, StorageError):
                self._stats.copy_failed(leading.led.key.topic)
                raise

    def _copy(self, leading: _Leading, segment: Segment, next_offset: int) -> CopyRun:
        log, epochs = leading.led.log, leading.led.log.epochs
        segment.write_indexes()
        largest = segment.largest_timestamp
        remote = RemoteSegment(
            segment_id=self._entropy.token(16).hex(),
            base_offset=segment.base_offset,
            next_offset=next_offset,
            size=segment.size,
            max_timestamp=largest if largest > 0 else segment.modified_ms,
            epochs=epochs_between(lineage_of(leading.mine, leading.led), segment.base_offset, next_offset),
            leader_epoch=leading.led.leader_epoch,
            has_aborted=bool(segment.aborted),
        )
        batches = segment.region(_BEGINNING, segment.size)
        parts: dict[IndexType, Region | bytes] = {
            IndexType.OFFSET: _whole(segment.index.file()),
            IndexType.TIMESTAMP: _whole(segment.time_index.file()),
            IndexType.LEADER_EPOCH: format_epochs(each for each in epochs.entries if each[1] < next_offset),
        }
        if remote.has_aborted:
            parts[IndexType.TRANSACTION] = _whole(segment.aborted.file())
        parts[IndexType.PRODUCER_SNAPSHOT] = yield log.snapshot_at(next_offset, self._clock.now_ms())
        self._check(leading)
        yield from self._update(leading, lambda manifest: start_copy(manifest, remote))
        yield partial(self._put, leading.folder, remote, batches, parts)
        self._check(leading)
        yield from self._update(
            leading, lambda manifest: finish_copy(manifest, remote.segment_id, lineage_of(manifest, leading.led))
        )
        self._stats.copied(leading.led.key.topic, remote.size)

    def _put(self, folder: str, remote: RemoteSegment, batches: Region, parts: dict[IndexType, Region | bytes]) -> None:
        """Store the objects of a segment. Any thread. Raises `DamagedSegment`, `RemoteStorageError`."""
        checked = CheckedBatches(batches, remote)
        contents = {part: each if isinstance(each, bytes) else each.read() for part, each in parts.items()}
        self._storage.put(indexes_key(folder, remote), encode_parts(contents))
        self._storage.put(log_key(folder, remote), checked)
        checked.finish()

    # --- expiry

    def _expire(self, leading: _Leading) -> CopyRun:
        log, manifest = leading.led.log, leading.mine
        config = log.config
        start = max(
            log.log_start_offset,
            expired_start(
                manifest,
                now_ms=self._clock.now_ms(),
                retention_ms=config.retention_ms,
                retention_bytes=config.retention_bytes,
                bytes_not_copied=sum(each.size for each in log.segments if each.base_offset >= manifest.end),
            ),
        )

        def change(present: Manifest) -> Manifest:
            return give_up_dead_branches(raise_log_start(present, start))

        if change(manifest) != manifest:
            yield from self._update(leading, change)
            yield from self._delete_marked(leading)

    def _delete_marked(self, leading: _Leading) -> CopyRun:
        """Delete the objects of segments that the manifest has as DELETE_STARTED, then drop them from it."""
        marked = leading.mine.in_state(SegmentState.DELETE_STARTED)
        for each in marked:
            try:
                yield partial(self._delete, leading.folder, each)
            except RemoteStorageError:
                self._stats.delete_failed(leading.led.key.topic)
                raise
            self._check(leading)
            self._stats.deleted(leading.led.key.topic)
        if marked:
            ids = [each.segment_id for each in marked]
            yield from self._update(leading, lambda manifest: drop_deleted(manifest, ids))

    def _delete(self, folder: str, segment: RemoteSegment) -> None:
        """Delete the objects of a segment. Any thread."""
        self._storage.delete(log_key(folder, segment))
        self._storage.delete(indexes_key(folder, segment))

    def _disable(self, leading: _Leading) -> CopyRun:
        """Delete all that is in remote storage, after remote.storage.enable was taken back; the manifest last."""
        led, log = leading.led, leading.led.log
        stored, _ = yield from self._read_manifest(leading)
        if log.log_start_offset < log.local_log_start_offset:
            log.advance_log_start(log.local_log_start_offset)
            self._changed(led.key)
        if stored is None:
            return
        if leading.manifest is None:
            yield from self._claim(leading)
        yield from self._update(leading, lambda manifest: raise_log_start(manifest, max(manifest.end, 0)))
        yield from self._delete_marked(leading)
        yield partial(delete_below, self._storage, leading.folder)
        self._check(leading)
        leading.manifest = leading.version = None
        self._report(info(f"{led.key}: remote storage is disabled, and what it had is deleted"))

    def delete_topic(self, name: str, topic_id: bytes, done: Callable[[int], None]) -> None:
        """Delete everything of a deleted topic, again after failures; then call `done` with the number of objects."""
        prefix = topic_folder(name, topic_id)

        def begin() -> None:
            if not self._closed:
                self._offload(partial(delete_below, self._storage, prefix), finished)

        def finished(outcome: Outcome[int]) -> None:
            if outcome.error is None:
                if outcome.value:
                    self._report(info(f"{name}: {counted(outcome.value, 'object')} in remote storage deleted"))
                done(outcome.get())
                return
            self._report(f"{prefix} in remote storage cannot be deleted; retrying: {outcome.error}")
            self._scheduler.call_later(self._interval_ms, begin)

        begin()


class _Pause:
    """A wait in place of a call."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self) -> None:
        """Do nothing: the wait itself is the work."""


_BEGINNING: Any = 0


def _whole(file: Any) -> Region:
    region: Region = file.region(0, file.size)
    return region


def delete_below(storage: RemoteStorage, prefix: str) -> int:
    """Delete all objects with the prefix, manifests first; return their number. Any thread."""
    keys = sorted((each.key for each in storage.list_objects(prefix)), key=lambda key: not key.endswith(".json.gz"))
    for key in keys:
        storage.delete(key)
    return len(keys)


def merged_lineage(stored: Sequence[tuple[int, int]], own: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs of a log, with those of the manifest for what comes before its first one."""
    if not own:
        return tuple(stored)
    epoch, start = own[0]
    before = [(each, first) for each, first in stored if first < start and each <= epoch]
    # The first epoch of a log whose start was raised begins there, but the manifest may not know the new start yet.
    return (*before, *(own[1:] if before and before[-1][0] == epoch else own))


def lineage_of(manifest: Manifest, led: LedLog) -> tuple[tuple[int, int], ...]:
    """Return the leader epochs of a log now, with that of its leader."""
    return _with_own_epoch(merged_lineage(manifest.epochs, led.log.epochs.entries), led)


def _with_own_epoch(lineage: tuple[tuple[int, int], ...], led: LedLog) -> tuple[tuple[int, int], ...]:
    """Return the lineage with the epoch of the leader from the log end on, if it has appended nothing yet: an earlier
    leader may have copied segments from there on, before an unclean election."""
    end = led.log.log_end_offset
    if led.log.epochs.latest >= led.leader_epoch:
        return lineage
    return (*(each for each in lineage if each[1] < end), (led.leader_epoch, end))


def next_to_copy(
    segments: Sequence[Any], *, copied_to: int, below: int, lag_ms: int, lag_bytes: int, now_ms: int
) -> tuple[Segment, int] | None:
    """Return the first closed segment that ends above `copied_to`, with that end, if it may be copied now.

    It must end at `below` or before, which is stable and durable, and be without damage. KIP-1241: it waits while
    its newest record is younger than `lag_ms` and fewer than `lag_bytes` follow it; 0: that bound does not count.
    """
    for number, segment in enumerate(segments[:-1]):
        next_offset = segments[number + 1].base_offset
        if next_offset <= copied_to:
            continue
        if not isinstance(segment, Segment) or next_offset > below or segment.gaps or not segment.size:
            return None
        newest = segment.largest_timestamp if segment.largest_timestamp > 0 else segment.modified_ms
        following = sum(each.size for each in segments[number + 1 :])
        bounds = [newest > now_ms - lag_ms] * (lag_ms > 0) + [following < lag_bytes] * (lag_bytes > 0)
        return None if bounds and all(bounds) else (segment, next_offset)
    return None
