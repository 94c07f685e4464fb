"""Opens the logs that a crash has left, as a broker that starts, and looks whether they keep what was promised."""

from pathlib import Path

from crashes.log_promises import Promises
from crashes.log_story import CLASSIC, LogStory, RetentionStory, manager_of
from crashes.written import Broken, Written, serve
from support.classic_frames import message_set

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import LifeNote
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.report import Level, Line
from barnabas.ports.types import TopicPartition
from barnabas.testing.crashes import Crash, Left, crashes

_Served = dict[TopicPartition, list[Written]]


def memory_disk(left: Left) -> MemoryDisk:
    """Return the disk as a disk in memory: there are too many for files."""
    disk = MemoryDisk(now_ms=lambda: 0)
    log_dir = MemoryLogDir(disk)
    for folder in left.folders:
        log_dir.folder(folder)
    for path, content in left.files.items():
        folder, _, name = path.rpartition("/")
        file = (log_dir.folder(folder) if folder else log_dir.root).open(name)
        file.append(content)
        file.close()
    log_dir.close()
    return disk


class Opened:
    """A broker's logs on a disk of before."""

    def __init__(
        self, disk: MemoryDisk, promises: Promises, *, follows: bool, alarms: bool = True, check: bool = True
    ) -> None:
        self.reports: list[str] = []
        self._disk = disk
        self._promises = promises
        self._clock = ManualClock()
        self.scheduler = ManualScheduler(self._clock)
        ids = {tp: book.topic_id for tp, book in promises.books.items()}
        self.manager: LogManager = manager_of(
            MemoryLogDir(disk), self._clock, self.scheduler, ids.get, self.reports, follows=follows
        )
        self.manager.load()
        self.served: _Served = promises.check(self.manager.logs(), alarms=alarms) if check else {}
        cutting = any(book.cutting for book in promises.books.values())
        for line in self.reports if alarms else ():
            expected = "consumers may have read them" in line or (cutting and "are lost" in line)
            if isinstance(line, Line) and line.level >= Level.ERROR and not expected:
                raise Broken(f"false alarm: {line}")

    def kill(self) -> None:
        for log in self.manager.logs().values():
            log.abandon()
        self._disk.in_use = False

    def append(self) -> _Served:
        """Append to each log, as a broker that has registered; return what they have then."""
        self.manager.note_life(LifeNote(broker_epoch=1))
        for tp, log in self.manager.logs().items():
            found = self.served.setdefault(tp, serve(log))
            value = b"after the crash"
            message = Message(value, key=b"after")
            batch = encode_batch([message], now_ms=0, producer_id=99, producer_epoch=0, base_sequence=0)
            data = memoryview(message_set(value) if tp == CLASSIC else batch)
            added = log.append(data, leader_epoch=max(0, log.epochs.latest), now_ms=0)
            log.flushes.now(0)
            found.append(Written(added.base_offset, added.last_offset + 1, bytes(data)))
            if serve(log)[-1] != found[-1]:
                raise Broken(f"appends: {tp} does not serve what it has taken")
        return self.served

    def stop(self) -> None:
        self.scheduler.run_pending()
        self.manager.close()


def examine(crash: Crash, promises: Promises, *, follows: bool) -> None:
    """Raises `Broken`. Opened twice it is the same; it takes appends; after an orderly stop all of it is there."""
    disk = memory_disk(crash.left)
    first = Opened(disk, promises, follows=follows)
    first.kill()
    again = Opened(disk, promises, follows=follows)
    if again.served != first.served:
        raise Broken("opened twice: another content the second time")
    served = again.append()
    again.stop()
    last = Opened(disk, promises, follows=follows, alarms=False, check=False)
    if not last.manager.had_clean_shutdown:
        raise Broken(f"appends: not stopped in order: {last.reports}")
    for tp, log in last.manager.logs().items():
        if serve(log) != served[tp]:
            raise Broken(f"appends: {tp} has another content after an orderly stop")
    last.stop()


def try_crashes(seed: int, folder: Path, points: int, *, more: int = 4, loose: bool = True) -> int:
    """Play a scenario and check at most `points` of its crashes; return their number. Raises `Broken`."""
    return _try_crashes(LogStory(seed, folder), seed, points, more=more, loose=loose)


def try_retention_crashes(seed: int, folder: Path, points: int) -> int:
    """See `try_crashes`."""
    return _try_crashes(RetentionStory(seed, folder), seed, points, more=4, loose=True)


def _try_crashes(story: LogStory, seed: int, points: int, *, more: int, loose: bool) -> int:
    story.play()
    tried = 0
    for life, recording in enumerate(story.recordings):
        entropy = SeededEntropy(f"left/{seed}/{life}")
        promises = Promises()
        for crash in crashes(recording.operations, entropy, first=story.firsts[life], more=more, loose=loose):
            if tried >= points:
                return tried
            tried += 1
            promises.take(crash.noted)
            try:
                examine(crash, promises, follows=story.follows)
            except Exception as error:
                error.add_note(
                    f"seed {seed}, life {life}, after {crash.operations} operations, what is left: {crash.number}"
                )
                raise
    return tried
