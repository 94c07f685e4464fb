"""The logs of a broker on a real file system, used as a broker does, while all that happens on it is recorded."""

from collections.abc import Callable
from pathlib import Path

from attrs import evolve
from crashes.log_promises import (
    Appended,
    Began,
    CutNoted,
    Cutting,
    Durable,
    Found,
    Gone,
    Promises,
    StartMoved,
)
from crashes.written import Written, serve
from support.classic_frames import message_set

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.log.compaction.log_cleaner import LogCleaner
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.storage import LogDir
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.crashes import Disk, Note, Recording

CONFIG = LogConfig(segment_bytes=1_500, index_interval_bytes=200, retention_ms=-1, file_delete_delay_ms=50)
CLASSIC = TopicPartition("old", 0)
UNCHANGED = TopicPartition("kept", 0)
"""Compacted."""
PARTITIONS = (TopicPartition("new", 0), TopicPartition("new", 1), CLASSIC, UNCHANGED)
CODECS = builtin_codecs()
COMPACTED = evolve(
    CONFIG,
    segment_bytes=700,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.01,
    delete_retention_ms=100,
)
KEYS = 6
TRANSACTIONAL = (11, 12)
"""Producers that write in transactions only."""


def config_for(topic: str) -> LogConfig:
    if topic == UNCHANGED.topic:
        return COMPACTED
    return evolve(CONFIG, message_format="classic") if topic == CLASSIC.topic else CONFIG


def manager_of(
    log_dir: LogDir,
    clock: ManualClock,
    scheduler: ManualScheduler,
    ids: Callable[[TopicPartition], bytes | None],
    reports: list[str],
    *,
    follows: bool,
) -> LogManager:
    """Return a log manager as a broker makes it: alone, or in a cluster, where it `follows` others."""
    return LogManager(
        [log_dir],
        clock=clock,
        scheduler=scheduler,
        config_for=config_for,
        codecs=CODECS,
        policy_for=lambda *_: KafkaDeletionPolicy(),
        report=reports.append,
        entropy=SeededEntropy(1),
        topic_id_of=ids,
        may_end_early=follows,
        checkpoint_ms=300,
        high_watermark_checkpoint_ms=200,
        producer_expiration_ms=10**9,
    )


class LogStory:
    """One seed, played. `recordings`: one for each time between two power cuts."""

    def __init__(self, seed: int, folder: Path, *, steps: int = 40) -> None:
        self.entropy = SeededEntropy(f"crashes/{seed}")
        self.follows = seed % 2 == 1
        self._favourite = (None, None, UNCHANGED, UNCHANGED, PARTITIONS[0], PARTITIONS[0])[seed % 6]
        """Most of it happens there."""
        self.recordings: list[Recording] = []
        self.firsts: list[int] = []
        """For each recording, the number of its first operations, which describe the initial state."""
        self._folder = folder
        self._steps = steps
        self._clock = ManualClock()
        self._ids: dict[TopicPartition, bytes] = {}
        self._held: set[TopicPartition] = set()
        self._epoch = 1
        self._cuts = 0
        self._reports: list[str] = []

    def play(self) -> None:
        left = None
        while True:
            place = self._folder / f"disk-{self._cuts}"
            if left is None:
                place.mkdir()
            else:
                left.write_to(place)
            with Recording(place) as recording:
                for what in self._known:
                    recording.note(what)
                self.recordings.append(recording)
                self.firsts.append(len(recording.operations))
                ended = self._live(recording)
            if ended:
                return
            disk = Disk()
            for operation in recording.operations:
                disk.play(operation)
            states = list(disk.left(self.entropy, 4))
            left = states[self.entropy.below(len(states))]
            self._cuts += 1

    @property
    def _known(self) -> list[object]:
        """Return the promises on the disk before the power failure."""
        if not self.recordings:
            return []
        return [operation.what for operation in self.recordings[-1].operations if isinstance(operation, Note)]

    def _live(self, recording: Recording) -> bool:
        """Until the power is cut; True at the end of the story."""
        self._recording = recording
        first = self._cuts > 0
        self._start(after_a_cut=first)
        while self._steps > 0:
            self._steps -= 1
            if self.entropy.below(22) == 0:
                self._abandon()
                return False
            self._step()
        self._stop()
        return True

    def _step(self) -> None:
        acts: list[Callable[[], None]] = [
            *[self._append] * 14,
            *[self._end_transaction] * 4,
            *[self._pass_time] * 5,
            *[self._flush] * 3,
            self._flush_now,
            self._checkpoint,
            self._retain,
            self._advance_start,
            *([self._truncate] * 2 if self.follows else []),
            *([self._truncate_fully] if self.follows else []),
            self._delete,
            self._lead,
            self._restart,
            self._kill,
        ]
        acts[self.entropy.below(len(acts))]()

    # --- the broker

    def _start(self, *, after_a_cut: bool = False) -> None:
        self._scheduler = ManualScheduler(self._clock, self.entropy.child(f"time-{self._steps}"), offload_ms_max=30)
        self._dir = open_log_dir(self._recording.folder)
        self.manager = manager_of(
            self._dir, self._clock, self._scheduler, self._ids.get, self._reports, follows=self.follows
        )
        self.manager.high_watermark_of = self._high_watermark
        self.manager.add_flush_listener(self._flushed)
        self._held.clear()
        self.manager.load()
        if after_a_cut:
            self._find()
        self.manager.start()
        self._cleaner = LogCleaner(
            self.manager.homes,
            settings=lambda: CleanerSettings(backoff_ms=60, dedupe_buffer_bytes=24 * 100),
            decided_to=self._decided_to,
            clock=self._clock,
            scheduler=self._scheduler,
            codecs=CODECS,
            entropy=self.entropy,
            report=self._reports.append,
        )
        self._cleaner.start()
        for tp in PARTITIONS:
            if self.manager.get(tp) is None:
                self._create(tp)

    def _find(self) -> None:
        """The broker continues with what was there."""
        promises = Promises()
        promises.take(self._known)
        served = promises.check(self.manager.logs())
        for tp in list(promises.books):
            log = self.manager.get(tp)
            if log is None:
                self._recording.note(Gone(tp))
                self._ids.pop(tp, None)
            else:
                found = served[tp]
                self._recording.note(Found(tp, log.log_start_offset, found, log.recovery_point))

    def _high_watermark(self, tp: TopicPartition) -> int | None:
        log = self.manager.get(tp)
        return log.recovery_point if log is not None else None

    def _decided_to(self, tp: TopicPartition) -> Offset | None:
        log = self.manager.get(tp)
        if log is None:
            return None
        unstable = log.transactions.first_unstable_offset(log.log_end_offset)
        return log.log_end_offset if unstable is None else unstable

    def _flushed(self, log: UnifiedLog) -> None:
        if self.manager.get(log.topic_partition) is log:
            self._recording.note(Durable(log.topic_partition, log.recovery_point))

    def _create(self, tp: TopicPartition) -> None:
        topic_id = self._ids[tp] = self.entropy.token(16)
        self._recording.note(Began(tp, topic_id))
        creation = self.manager.begin_create({tp: topic_id})
        for part in creation.parts:
            part()
        creation()
        errors = self.manager.complete_create(creation)
        assert not errors, errors

    def _restart(self) -> None:
        self._stop()
        self._start()

    def _stop(self) -> None:
        stopped: list[bool] = []
        self._cleaner.stop(lambda: self.manager.stop(lambda: stopped.append(True)))
        self._scheduler.run_until(lambda: bool(stopped))

    def _kill(self) -> None:
        """kill -9: the disk has all writes, and no log is closed."""
        self._abandon()
        self._start()
        for tp, log in self.manager.logs().items():
            found = serve(log)
            if found or tp != CLASSIC:
                self._recording.note(Found(tp, log.log_start_offset, found, log.recovery_point))

    def _abandon(self) -> None:
        for log in self.manager.logs().values():
            log.abandon()
        self._dir.close()

    # --- what happens to logs

    def _some(self) -> UnifiedLog | None:
        """Return a random log, or None while an operation holds it."""
        place = PARTITIONS[self.entropy.below(len(PARTITIONS))]
        if self._favourite is not None and self.entropy.below(3):
            place = self._favourite
        return None if place in self._held else self.manager.get(place)

    def _pass_time(self) -> None:
        self._scheduler.advance(self.entropy.below(120))

    def _append(self) -> None:
        log = self._some()
        if log is None:
            return
        before = len(self._recording.operations)
        value = self.entropy.token(self.entropy.below(150)) + b"%d" % before
        origin = AppendOrigin.CLIENT
        if log.topic_partition == CLASSIC:
            data = memoryview(message_set(value))
        else:
            producer = (1, 2, *TRANSACTIONAL)[self.entropy.below(4)]
            data = self._batch(log, producer, value)
            origin = AppendOrigin.TRANSACTION if producer in TRANSACTIONAL else origin
        added = log.append(data, leader_epoch=self._epoch, now_ms=self._clock.now_ms(), origin=origin)
        written = Written(added.base_offset, added.last_offset + 1, bytes(data))
        self._recording.note(Appended(log.topic_partition, written), at=before)

    def _batch(self, log: UnifiedLog, producer: int, value: bytes) -> memoryview:
        known = log.producers.producers.get(producer)
        sequence = known.last_sequence + 1 if known is not None else 0
        now_ms = self._clock.now_ms()
        messages = [self._message(log, value) for _ in range(1 + self.entropy.below(3))]
        batch = encode_batch(
            messages,
            now_ms=now_ms,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=producer in TRANSACTIONAL,
        )
        return memoryview(batch)

    def _message(self, log: UnifiedLog, value: bytes) -> Message:
        if log.topic_partition != UNCHANGED:
            return Message(value)
        key = b"key %d" % self.entropy.below(KEYS)
        return Message(None if self.entropy.below(5) == 0 else value, key=key)

    def _end_transaction(self) -> None:
        log = self._some()
        if log is None or log.topic_partition == CLASSIC:
            return
        known = [number for number in TRANSACTIONAL if number in log.producers.producers]
        if not known:
            return
        producer = known[self.entropy.below(len(known))]
        before = len(self._recording.operations)
        added = log.append_marker(
            producer, 0, self.entropy.below(2) == 0, 0, leader_epoch=self._epoch, now_ms=self._clock.now_ms()
        )
        written = serve(log)[-1]
        assert written.base == added.base_offset
        self._recording.note(Appended(log.topic_partition, written), at=before)

    def _flush(self) -> None:
        log = self._some()
        if log is not None:
            self.manager.flush(log)

    def _flush_now(self) -> None:
        log = self._some()
        if log is not None and not log.flushes.under_way:
            log.flushes.now(self._clock.now_ms())
            self._recording.note(Durable(log.topic_partition, log.recovery_point))

    def _checkpoint(self) -> None:
        self.manager.checkpoint()

    def _retain(self) -> None:
        log = self._some()
        if log is not None:
            log.update_config(evolve(log.config, retention_bytes=self.entropy.below(4_000)))
            self._retain_all()

    def _retain_all(self) -> None:
        """Deleted segments are no longer required; a worker may have to write the producer state first."""
        now_ms = self._clock.now_ms()
        for tp, log in self.manager.logs().items():
            count = log._count_removable(now_ms, self._high_watermark(tp) or 0, awaits_producers=False)
            bases = [*[segment.base_offset for segment in log.segments], log.log_end_offset]
            self._recording.note(StartMoved(tp, bases[count]))
        self.manager.retain()

    def _advance_start(self) -> None:
        log = self._some()
        if log is None or log.topic_partition == CLASSIC:
            return
        ends = [each.end for each in serve(log)]
        if ends:
            offset = ends[self.entropy.below(len(ends))]
            self._recording.note(StartMoved(log.topic_partition, offset))
            log.advance_log_start(offset)

    def _truncate(self) -> None:
        log = self._some()
        if log is None or log.topic_partition == CLASSIC:
            return
        start, end = log.log_start_offset, log.log_end_offset
        offset = start + self.entropy.below(end - start + 1)
        if offset < end:
            self._recording.note(Cutting(log.topic_partition, offset))
            log.truncate_to(offset, self._clock.now_ms())
            self._hold(log)

    def _truncate_fully(self) -> None:
        log = self._some()
        if log is None or log.topic_partition == CLASSIC or self.entropy.below(2):
            return
        offset = log.log_end_offset + self.entropy.below(20)
        self._recording.note(Began(log.topic_partition, self._ids[log.topic_partition], offset))
        log.truncate_fully_and_start_at(offset, self._clock.now_ms())
        self._hold(log)

    def _hold(self, log: UnifiedLog) -> None:
        """Nothing more comes until the checkpoints say so, too, as a follower does it."""
        place = log.topic_partition
        self._held.add(place)
        recording, manager = self._recording, self.manager

        def noted() -> None:
            if manager.get(place) is log:
                self._held.discard(place)
                recording.note(CutNoted(place))

        self.manager.checkpoint_of(log, noted)

    def _delete(self) -> None:
        log = self._some()
        if log is None or self.entropy.below(3):
            return
        place = log.topic_partition
        self._recording.note(Gone(place))
        del self._ids[place]
        self.manager.delete(place)
        if self.entropy.below(2):
            self._scheduler.advance(self.entropy.below(60))
        self._create(place)

    def _lead(self) -> None:
        self._epoch += 1


class RetentionStory(LogStory):
    """Retention removes all records of early producers, while their snapshot is not written, or not known: on one of
    several replicas, where the high watermark does not wait for the disk."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(2 * seed, folder)

    def _high_watermark(self, tp: TopicPartition) -> int | None:
        log = self.manager.get(tp)
        return log.log_end_offset if log is not None else None

    def _live(self, recording: Recording) -> bool:
        self._recording = recording
        self._start()
        for producer, most in ((1, 2), (2, 20)):
            for _ in range(1 + self.entropy.below(most)):
                self._write(producer)
        for act in ((self._flush, self._flush_now), (self._pass_time, self._kill)):
            if self.entropy.below(3):
                act[self.entropy.below(2)]()
        for tp in PARTITIONS[:2]:
            self._log(tp).update_config(evolve(config_for(tp.topic), retention_bytes=0))
        for _ in range(2):
            self._retain_all()
            self._scheduler.advance(self.entropy.below(40))
            self._write(3)
        self._flush_now()
        self._scheduler.advance(100)
        return True

    def _log(self, tp: TopicPartition) -> UnifiedLog:
        log = self.manager.get(tp)
        assert log is not None
        return log

    def _some(self) -> UnifiedLog | None:
        return self._log(PARTITIONS[0])

    def _write(self, producer: int) -> None:
        log, before = self._log(PARTITIONS[0]), len(self._recording.operations)
        data = self._batch(log, producer, self.entropy.token(self.entropy.below(300)))
        added = log.append(data, leader_epoch=self._epoch, now_ms=self._clock.now_ms())
        written = Written(added.base_offset, added.last_offset + 1, bytes(data))
        self._recording.note(Appended(log.topic_partition, written), at=before)
