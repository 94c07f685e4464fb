"""Every short history of one topic name on one data folder, depth first, over the log manager that runs in a broker.

The topic is created, written, committed, deleted and created again, while the broker is up or down; the broker is
stopped, killed, or loses its power between any two of its writes to the disk. What is checked after every start are
promises, not rules:

- no log begins with a high watermark that its topic never had (its next leader would show uncommitted messages);
- a broker that was only killed has lost nothing, so it counts as complete, and has all messages (an empty log without
  partition.metadata may count as incomplete: an interrupted start may have made it in place of a lost one);
- after a power cut, a log without messages that were flushed, or that were below a noted high watermark, is never
  called complete.

To add an action, write a method of `History` that returns False where it cannot happen, and name it in `ACTIONS`.
"""

from collections.abc import Iterator, Sequence

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import LifeNote
from barnabas.core.log.checkpoints import HIGH_WATERMARK, PARTITION_METADATA, RECOVERY_POINT
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import put, read_all

KEY = TopicPartition("t", 0)
RECORDS_MAX = 2
HIGH_WATERMARK_MS, CHECKPOINT_MS = 10, 25


class BrokenPromise(AssertionError):
    """A history after which the broker says something that is not true."""


class History:
    """One topic name, one data folder and the lives of one broker."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = MemoryDisk(now_ms=lambda: 0)
        self.incarnation = 0
        """The number of the topic of the name in the tree; the first is 1."""
        self.exists = False
        self.deleted_ids: set[bytes] = set()
        self.assigned_epoch = -1
        """The broker epoch in which the topic was created: its replica is a member of the ISR since then."""
        self.high_watermark = self.highest = self.appended = self.flushed = 0
        self.may_be_incomplete = False
        """True once a power cut took messages, or may have."""
        self.epoch = 0
        self._start(may_have_lost=False)

    @property
    def topic_id(self) -> bytes:
        return bytes([self.incarnation]) * 16

    @property
    def log(self) -> UnifiedLog | None:
        return self.logs.get(KEY)

    # --- the broker's lives

    def _start(self, *, may_have_lost: bool) -> None:
        self.epoch += 1
        is_labelled = PARTITION_METADATA in self.disk.folders.get(str(KEY), {})
        self.disk.in_use = False
        self.scheduler = ManualScheduler(self.clock)
        self.logs = LogManager(
            [MemoryLogDir(self.disk, path="/data")],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: LogConfig(),
            codecs=NO_CODECS,
            policy_for=lambda *_: KeepAll(),
            report=lambda _: None,
            entropy=SeededEntropy(self.epoch),
            topic_id_of=lambda key: self.topic_id if key == KEY and self.exists else None,
            deleted_ids=frozenset(self.deleted_ids),
            may_end_early=True,
            checkpoint_ms=CHECKPOINT_MS,
            high_watermark_checkpoint_ms=HIGH_WATERMARK_MS,
        )
        self.logs.high_watermark_of = lambda key: self.high_watermark if key == KEY and self.log is not None else None
        self.logs.load()
        if self.exists and self.log is None and self.assigned_epoch < self.epoch:
            self.logs.create(KEY, is_new=False)
        self.logs.start()
        self.logs.note_life(LifeNote(broker_epoch=self.epoch))
        self._check(may_have_lost=may_have_lost, is_labelled=is_labelled)

    def _check(self, *, may_have_lost: bool, is_labelled: bool) -> None:
        if not self.exists or self.log is None:
            return
        begins_at = self.logs.high_watermark(KEY)
        if begins_at > self.highest:
            raise BrokenPromise(f"high watermark {begins_at}, which was {self.highest} at most")
        found = len(read_all(self.log))
        is_complete = self.logs.has_complete_log(KEY, self.assigned_epoch)
        self.may_be_incomplete |= found < self.appended or not (found or is_labelled)
        if not may_have_lost:
            if found != self.appended:
                raise BrokenPromise(f"{found} of {self.appended} messages after a kill")
            if not is_complete and not self.may_be_incomplete:
                raise BrokenPromise("a log that lost nothing counts as incomplete")
        elif found < self.flushed and is_complete:
            raise BrokenPromise(f"{found} of {self.flushed} flushed messages, and the log counts as complete")
        self.appended, self.flushed = found, min(self.flushed, found)
        self.high_watermark = min(begins_at, found)

    # --- actions

    def create(self) -> bool:
        """Create the topic in the tree."""
        if self.exists:
            return False
        self._assign()
        return True

    def _assign(self) -> None:
        self.incarnation += 1
        self.exists, self.may_be_incomplete, self.assigned_epoch = True, False, self.epoch
        self.high_watermark = self.highest = self.appended = self.flushed = 0

    def make(self) -> bool:
        """Let the broker open the log of a topic that was created in this broker epoch."""
        if not self.exists or self.log is not None:
            return False
        self.logs.rename_to_stray(KEY, "it was left by an earlier replica of this name")
        creation = self.logs.begin_create({KEY: self.topic_id})
        for part in creation.parts:
            part()
        creation()
        errors = self.logs.complete_create(creation)
        assert not errors, errors
        return True

    def append(self) -> bool:
        if self.log is None or self.appended >= RECORDS_MAX:
            return False
        put(self.log, b"x")
        self.appended += 1
        return True

    def commit(self) -> bool:
        if self.log is None or self.high_watermark == self.appended:
            return False
        self.high_watermark = self.appended
        self.highest = max(self.highest, self.high_watermark)
        return True

    def work(self) -> bool:
        """Let the broker do its next due task: a checkpoint, a flush, a removal."""
        due = self.scheduler.next_due_ms()
        if due is None:
            return False
        self.clock.advance_to(max(due, self.clock.monotonic_ms()))
        self.scheduler._run_one()
        if self.log is not None:
            self.flushed = max(self.flushed, self.log.recovery_point)
        return True

    def delete(self) -> bool:
        if not self.exists:
            return False
        self.exists = False
        self.logs.delete(KEY)
        return True

    def kill(self) -> bool:
        self.disk = self.disk.after_crash()
        self._start(may_have_lost=False)
        return True

    def cut_power(self) -> bool:
        if self.log is None or self.flushed == self.appended:
            return False  # as a kill
        self.disk = self.disk.after_crash(power_cut=True)
        self._start(may_have_lost=True)
        return True

    def kill_and_lose_folder(self) -> bool:
        """Kill the broker, and remove the folder of a log that a checkpoint names.

        Not during the removal of another folder: then lines of that name may be of the earlier topic.
        """
        checkpoints = (self.disk.root.get(name) for name in (RECOVERY_POINT, HIGH_WATERMARK))
        if self.log is None or list(self.disk.folders) != [str(KEY)]:
            return False
        if not any(file is not None and b"\nt 0 " in file.data for file in checkpoints):
            return False
        self.flushed = self.appended
        self.disk = self.disk.after_crash()
        del self.disk.folders[str(KEY)]
        self._start(may_have_lost=True)
        return True

    def stop(self) -> bool:
        self._stop()
        self._start(may_have_lost=False)
        return True

    def _stop(self) -> None:
        self.logs.close()
        self.flushed = self.appended

    def kill_and_replace_topic(self) -> bool:
        """Delete and recreate the topic while the broker is down."""
        return self._replace_topic(self.disk.after_crash())

    def stop_and_replace_topic(self) -> bool:
        if not self.exists:
            return False
        self._stop()
        return self._replace_topic(self.disk)

    def _replace_topic(self, disk: MemoryDisk) -> bool:
        if not self.exists:
            return False
        self.deleted_ids.add(self.topic_id)
        self.disk = disk
        self._assign()
        self.assigned_epoch = self.epoch + 1  # it is in the ISR from its first registration on
        self._start(may_have_lost=False)
        return True


ACTIONS = (
    "create",
    "make",
    "append",
    "commit",
    "work",
    "delete",
    "kill",
    "cut_power",
    "kill_and_lose_folder",
    "stop",
    "kill_and_replace_topic",
    "stop_and_replace_topic",
)


BEGINNINGS = (
    (),
    ("create", "make", "append", "commit", *["work"] * 3),  # the checkpoint of high watermarks has it
    ("create", "make", "append", "commit", "stop"),
    ("create", "make", "append", "commit", "stop_and_replace_topic"),
)
"""A search begins after one of these histories, which are too long to be found by a search."""


def search(depth: int, beginning: Sequence[str] = (), *, knows_deleted: bool) -> int:
    """Play every history of `depth` actions after the beginning; return their number.

    knows_deleted: the tree still has the ids of the deleted topics when the broker starts.

    Raises `BrokenPromise` with the history.
    """
    return sum(1 for _ in _histories(beginning, len(beginning) + depth, knows_deleted))


def _histories(actions: Sequence[str], length: int, knows_deleted: bool) -> Iterator[None]:
    for name in ACTIONS:
        now = (*actions, name)
        if not _play(now, knows_deleted):
            continue
        yield None
        if len(now) < length:
            yield from _histories(now, length, knows_deleted)


def _play(actions: Sequence[str], knows_deleted: bool) -> bool:
    """Return False if the last action cannot happen there."""
    history = History()
    try:
        for action in actions:
            if not knows_deleted:
                history.deleted_ids.clear()
            if not getattr(history, action)():
                return False
    except BrokenPromise as broken:
        raise BrokenPromise(f"{', '.join(actions)}: {broken}") from None
    return True
