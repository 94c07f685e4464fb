"""All logs of a broker: data folders, checkpoints, markers, background work, failures (facts B3)."""

from collections.abc import Sequence

import pytest
from attrs import evolve
from support.log_lines import infos_of

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import LifeNote
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.checkpoints import CLEAN_SHUTDOWN, LOG_START, RECOVERY_POINT
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.creation import read_topic_id
from barnabas.core.log.manager.data_folder import DataFolder
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.retention import DeletionPolicy, SegmentInfo
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy, KeepAll
from barnabas.ports.errors import ConfigError
from barnabas.ports.storage import FolderLocked, LogDir, StorageError, StorageFull
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered, put, read_all

CONFIG = LogConfig(segment_bytes=200, retention_ms=-1)


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


class Broker:
    """The outside of a manager; `start` and `stop`, or `kill`, as often as wanted."""

    def __init__(self, disks: int = 1) -> None:
        self.clock = ManualClock()
        self.disks = [MemoryDisk(now_ms=self.clock.now_ms) for _ in range(disks)]
        self.config = CONFIG
        self.policy: DeletionPolicy = KafkaDeletionPolicy()
        self.reports: list[str] = []
        self.manager: LogManager

    def start(self, config: LogConfig | None = None) -> LogManager:
        self.config = config or self.config
        self.scheduler = ManualScheduler(self.clock)
        self.reports.clear()
        for disk in self.disks:
            disk.in_use = False
        dirs = [MemoryLogDir(disk, path=f"/data/{number}") for number, disk in enumerate(self.disks)]
        self.manager = LogManager(
            dirs,
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: self.config,
            codecs=NO_CODECS,
            policy_for=self._policy_for,
            report=self.reports.append,
            entropy=SeededEntropy(1),
        )
        self.manager.load()
        self.manager.start()
        return self.manager

    def _policy_for(self, config: LogConfig, _partition: TopicPartition) -> DeletionPolicy:
        if config.deletion_policy == "unknown":
            raise ConfigError("no deletion policy is named unknown")
        return KeepAll() if config.deletion_policy == "none" else self.policy

    def restart(self) -> LogManager:
        """Stop in order, start."""
        self.manager.close()
        return self.start()

    def root(self, number: int = 0) -> dict[str, bytes]:
        return {name: bytes(content.data) for name, content in self.disks[number].root.items()}


@pytest.fixture
def broker() -> Broker:
    return Broker()


def _put_two(log: UnifiedLog) -> None:
    put(log, b"x")
    put(log, b"y")


def test_a_broker_without_folders_is_a_mistake(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="names no folder"):
        LogManager(
            [],
            clock=broker.clock,
            scheduler=ManualScheduler(broker.clock),
            config_for=lambda _: CONFIG,
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KeepAll(),
            report=print,
        )


def test_orderly_stop_and_start(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("a-b", 3))
    assert manager.create(tp("a-b", 3)) is log
    for number in range(4):
        put(log, b"%d" % number * 20)
    manager.create(tp("empty"))
    log.advance_log_start(1)
    manager.high_watermark_of = {tp("a-b", 3): 4, tp("empty"): 0}.get
    manager.close()
    manager.close()
    assert broker.root() == {
        "recovery-point-offset-checkpoint": b"0\n2\na-b 3 4\nempty 0 0\n",
        "log-start-offset-checkpoint": b"0\n1\na-b 3 1\n",
        "replication-offset-checkpoint": b"0\n2\na-b 3 4\nempty 0 0\n",
        "segment-checkpoint": b"0\n1\na-b 3 0 2 176\n",
        CLEAN_SHUTDOWN: b"",
    }
    manager = broker.start()
    assert CLEAN_SHUTDOWN not in broker.root()
    found = manager.get(tp("a-b", 3))
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset, found.recovery_point) == (1, 4, 4)
    assert manager.high_watermark(tp("a-b", 3)) == 4
    assert set(manager.logs()) == {tp("a-b", 3), tp("empty")}
    assert manager.get(tp("other")) is None
    assert not broker.reports


def test_killed_broker_recovers_from_its_checkpoints(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("t"))
    put(log, b"x" * 100)
    manager.flush(log)
    broker.scheduler.run_pending()
    broker.scheduler.advance(60_000)
    assert broker.root()["recovery-point-offset-checkpoint"] == b"0\n1\nt 0 1\n"
    put(log, b"y" * 100)
    broker.disks[0].folders["t-0"][f"{1:020d}.log"].data[-1] ^= 1
    manager = broker.start()
    found = manager.get(tp("t"))
    assert found is not None
    assert read_all(found) == [(0, b"x" * 100)]
    assert any("no clean shutdown" in line for line in broker.reports)
    assert any("first corrupt batch" in line for line in broker.reports)


def test_garbage_in_checkpoints_is_reported_and_survived(broker: Broker) -> None:
    manager = broker.start()
    put(manager.create(tp("t")), b"x")
    manager.high_watermark_of = {tp("t"): 1}.get
    manager.close()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"):
        broker.disks[0].root[name].data[:] = b"\xffgarbage"
    manager = broker.start()
    log = manager.get(tp("t"))
    assert log is not None
    assert log.log_end_offset == 1
    assert len(broker.reports) == 3


def test_new_partitions_go_where_the_fewest_are() -> None:
    broker = Broker(disks=3)
    manager = broker.start()
    for number in range(7):
        manager.create(tp("t", number))
    counts = [len(disk.folders) for disk in broker.disks]
    assert sorted(counts) == [2, 2, 3]
    manager.delete(tp("t", 1))
    broker.scheduler.run_pending()
    home = manager.dir_of(tp("t", 1 + 3)).path
    manager.create(tp("new"))
    assert manager.dir_of(tp("new")).path == home
    manager = broker.restart()
    assert len(manager.logs()) == 7
    assert [log_dir.path for log_dir in manager.dirs] == ["/data/0", "/data/1", "/data/2"]


def test_delete_renames_at_once_and_removes_later(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("t"))
    put(log, b"x")
    broker.scheduler.run_pending()
    region = log.read(0, max_bytes=100, limit=1).records
    manager.delete(tp("t"))
    manager.delete(tp("t"))
    manager.delete(tp("never"))
    assert manager.get(tp("t")) is None
    (name,) = broker.disks[0].folders
    assert name.startswith("t-0.")
    assert name.endswith("-delete")
    again = manager.create(tp("t"))
    assert again.log_end_offset == 0
    broker.scheduler.run_pending()
    assert list(broker.disks[0].folders) == ["t-0"]
    assert not isinstance(region, bytes)
    assert region.read()


def test_high_watermark_of_a_deleted_topic_is_not_read_for_the_next_one_after_a_kill(broker: Broker) -> None:
    """The next leader would start with it, and show messages that are not committed."""
    manager = broker.start()
    manager.high_watermark_of = {tp("t"): 2}.get
    _put_two(manager.create(tp("t")))
    broker.scheduler.advance(60_000)
    assert broker.root()["replication-offset-checkpoint"] == b"0\n1\nt 0 2\n"
    manager.high_watermark_of = lambda _: None
    manager.delete(tp("t"))
    broker.scheduler.run_pending()
    assert not broker.disks[0].folders
    assert broker.root()["replication-offset-checkpoint"] == b"0\n0\n"
    _put_two(manager.create(tp("t")))
    broker.scheduler.run_pending()
    manager = broker.start()
    assert manager.high_watermark(tp("t")) == 0


def test_log_that_a_killed_broker_never_made_is_complete_though_the_deleted_topic_had_one(broker: Broker) -> None:
    manager = broker.start()
    manager.note_life(LifeNote(broker_epoch=7))
    manager.high_watermark_of = {tp("t"): 2}.get
    _put_two(manager.create(tp("t")))
    broker.scheduler.advance(60_000)
    manager.high_watermark_of = lambda _: None
    manager.delete(tp("t"))
    broker.scheduler.run_pending()
    manager = broker.start()
    manager.create(tp("t"), is_new=False)
    assert manager.has_complete_log(tp("t"), 7)


def test_a_folder_that_could_not_be_removed_is_tried_again(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flush under way has put a file into it while it was being emptied."""
    manager = broker.start()
    manager.create(tp("t"))
    broker.scheduler.run_pending()

    def not_empty(_log_dir: MemoryLogDir, name: str) -> None:
        raise StorageError(f"cannot delete {name}: Directory not empty")

    with monkeypatch.context() as failing:
        failing.setattr(MemoryLogDir, "delete_folder", not_empty)
        manager.delete(tp("t"))
        broker.scheduler.run_pending()
    assert "could not be removed; retrying in 60 s" in broker.reports[-1]
    assert len(broker.disks[0].folders) == 1
    broker.scheduler.advance(60_000)
    assert not broker.disks[0].folders


@pytest.mark.parametrize("together", [False, True])
def test_log_of_a_topic_made_again_is_empty_if_the_folder_of_the_deleted_one_could_not_be_renamed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    manager = broker.start()
    put(manager.create(tp("t")), b"of the deleted topic")

    def fail(_log_dir: MemoryLogDir, old: str, _new: str) -> None:
        raise StorageError(f"cannot rename {old}")

    with monkeypatch.context() as failing:
        failing.setattr(MemoryLogDir, "rename_folder", fail)
        with pytest.raises(StorageError, match="cannot rename t-0"):
            manager.delete(tp("t"))
        with pytest.raises(StorageError, match="cannot rename t-0"):
            manager.create(tp("t"))
    if together:
        create_together(manager, tp("t"), bytes(range(16)))
    else:
        manager.create(tp("t"))
    log = manager.get(tp("t"))
    assert log is not None
    assert log.log_end_offset == 0
    broker.scheduler.run_pending()
    assert list(broker.disks[0].folders) == ["t-0"]


def create_together(manager: LogManager, partition: TopicPartition, topic_id: bytes) -> None:
    creation = manager.begin_create({partition: topic_id})
    for part in creation.parts:
        part()
    creation()
    assert not manager.complete_create(creation)


def test_topic_id_of_a_deleted_topic_is_not_written_for_the_next_one_of_its_name() -> None:
    """The first log is in one data folder, the second one in another, and metadata are written a second later."""
    broker = Broker(2)
    manager = broker.start()
    create_together(manager, tp("t"), b"a" * 16)
    manager.delete(tp("t"))
    manager.create(tp("other"))
    create_together(manager, tp("t"), b"b" * 16)
    broker.scheduler.advance(5_000)
    assert [sorted(disk.folders) for disk in broker.disks] == [["other-0"], ["t-0"]]
    folder = manager.dirs[1].folder("t-0")
    assert read_topic_id(folder, broker.reports.append) == b"b" * 16


def test_topic_id_that_a_failing_disk_does_not_take_is_reported_and_read_by_the_next_start(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = broker.start()
    create_together(manager, tp("t"), b"a" * 16)

    def fail(_log_dir: MemoryLogDir, name: str) -> None:
        raise StorageError(f"{name} does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(MemoryLogDir, "folder", fail)
        broker.scheduler.advance(1_500)
    assert "partition.metadata of t-0 could not be written: t-0 does not answer" in broker.reports
    found = broker.start().get(tp("t"))
    assert found is not None


def test_interrupted_deletion_is_finished_at_the_start(broker: Broker) -> None:
    manager = broker.start()
    manager.create(tp("t"))
    manager.delete(tp("t"))
    manager = broker.start()  # killed before the folder was removed
    assert not manager.logs()
    broker.scheduler.run_pending()
    assert not broker.disks[0].folders


@pytest.mark.parametrize("removed", [False, True])
def test_checkpoint_of_a_deleted_log_is_not_used_for_its_successor(broker: Broker, removed: bool) -> None:
    """Killed right after it was made again, before the folder of the first one was removed and after."""
    manager = broker.start()
    log = manager.create(tp("t"))
    for _ in range(3):
        put(log, b"x" * 100)
    log.flushes.now()
    manager.checkpoint()
    broker.scheduler.run_pending()
    assert b"t 0 3" in broker.root()["recovery-point-offset-checkpoint"]
    manager.delete(tp("t"))
    put(manager.create(tp("t")), b"y")
    if removed:
        broker.scheduler.run_pending()
        assert list(broker.disks[0].folders) == ["t-0"]
    manager = broker.start()
    found = manager.get(tp("t"))
    assert found is not None
    assert (read_all(found), found.log_end_offset, found.recovery_point) == ([(0, b"y")], 1, 0)
    assert not [line for line in broker.reports if "lost" in line]


def test_a_start_above_what_is_durable_is_noted_before_the_recovery_point(broker: Broker) -> None:
    """The small files change one after the other: recovery points must not stand there without the starts."""
    log = broker.start().create(tp("t"))
    put(log, b"x", b"y")
    log.advance_log_start(2)
    assert log.recovery_point == 0
    names = list(DataFolder.checkpoint_contents(broker.manager.homes[tp("t")]))
    assert names.index(LOG_START) < names.index(RECOVERY_POINT)


def test_foreign_folders_are_left_alone(broker: Broker) -> None:
    manager = broker.start()
    manager.create(tp("t"))
    manager.close()
    foreign = ["lost+found", "notes", "t-x", f"u-0.{'a' * 32}-stray", f"u-1.{'a' * 32}-future"]
    for name in foreign:
        broker.disks[0].folders[name] = {}
    manager = broker.start()
    assert set(manager.logs()) == {tp("t")}
    assert len(broker.reports) == len(foreign)
    assert set(broker.disks[0].folders) == {"t-0", *foreign}


def test_a_partition_in_two_folders_is_opened_once() -> None:
    broker = Broker(disks=2)
    manager = broker.start()
    put(manager.create(tp("t")), b"x")
    manager.close()
    broker.disks[1].folders["t-0"] = {}
    manager = broker.start()
    log = manager.get(tp("t"))
    assert log is not None
    assert log.log_end_offset == 1
    assert any("as well" in line for line in broker.reports)
    assert "t-0" in broker.disks[1].folders


def test_retention_logs_one_line_for_each_topic(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, retention_bytes=200))
    for partition in (tp("t", 0), tp("t", 1), tp("u")):
        log = manager.create(partition)
        for _ in range(6):
            put(log, b"x" * 60)  # a segment holds one
    broker.scheduler.run_pending()
    size = sum(segment.size for segment in log.segments)
    manager.retain()
    gone = size - sum(segment.size for segment in log.segments)
    assert infos_of(broker.reports) == [
        f"topic t: retention deletes 8 segments ({2 * gone / 1024:.1f} KiB) from 2 partitions",
        f"topic u: retention deletes 4 segments ({gone} bytes) from 1 partition",
    ]
    manager.retain()
    assert len(broker.reports) == 2, "nothing was appended, nothing is reported"


# --- flushing


def test_flush_messages_starts_a_flush_at_its_count(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, flush_messages=3))
    flushed: list[int] = []
    manager.add_flush_listener(lambda log: flushed.append(log.recovery_point))
    log = manager.create(tp("t"))
    put(log, b"a", b"b")
    assert not manager.flush_if_due(log, 0)
    put(log, b"c")
    assert manager.flush_if_due(log, 0)
    put(log, b"d", b"e", b"f")
    assert manager.flush_if_due(log, 0)  # follows the one under way
    broker.scheduler.run_pending()
    assert flushed == [3, 6]
    assert log.recovery_point == 6


def test_a_flush_that_had_no_room_for_an_index_is_tried_again(broker: Broker) -> None:
    """A follower may wait for it: it asks its leader for nothing until then."""
    manager = broker.start(evolve(CONFIG, flush_messages=1))
    flushed: list[int] = []
    manager.add_flush_listener(lambda log: flushed.append(log.recovery_point))
    log = manager.create(tp("t"))
    records = numbered(b"a", transactional=True)
    log.append(records, leader_epoch=0, now_ms=0, origin=AppendOrigin.TRANSACTION)
    disk = broker.disks[0]
    disk.capacity = disk.used + 78  # for the marker alone
    log.append_marker(1, 0, False, 0, leader_epoch=0, now_ms=0)
    assert manager.flush_if_due(log, 0)
    broker.scheduler.run_pending()
    assert flushed == []
    disk.capacity += 1_000
    broker.scheduler.advance(2_000)
    assert flushed == [2]


def test_flush_ms_starts_a_flush_after_its_time(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, flush_ms=10_000))
    log = manager.create(tp("t"))
    put(log, b"a", now_ms=broker.clock.now_ms())
    broker.scheduler.advance(8_000)
    assert log.recovery_point == 0
    broker.scheduler.advance(3_000)
    assert log.recovery_point == 1


def test_sealed_segments_are_flushed_soon(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("t"))
    for _ in range(5):
        put(log, b"x" * 60)  # a segment holds one
    broker.scheduler.run_pending()
    assert log.recovery_point == log.segments[-1].base_offset == 4


class _BadFlush(StorageError):
    pass


def test_failed_flush_takes_the_folder_out_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(disks=2)
    manager = broker.start()
    logs = [manager.create(tp("t", number)) for number in range(4)]
    for log in logs:
        put(log, b"x")
    broker.scheduler.run_pending()
    work = logs[0].flushes.begin_flush()
    assert work is not None
    logs[0].flushes.end_flush(work)
    put(logs[0], b"y")
    failed = manager.dir_of(tp("t", 0))

    def bad(_self: object) -> None:
        raise _BadFlush("I/O error")

    with monkeypatch.context() as patch:
        from barnabas.adapters.storage_memory import MemoryFile

        patch.setattr(MemoryFile, "flush", bad)
        manager.flush(logs[0])
        broker.scheduler.run_pending()
    assert isinstance(manager.failure_of(failed), _BadFlush)
    broken = [log for log in logs if manager.dir_of(log.topic_partition) is failed]
    for log in logs:
        if log in broken:
            with pytest.raises(StorageError):
                put(log, b"z")
            assert read_all(log)[0] == (0, b"x")
        else:
            put(log, b"z")
    assert manager.dir_of(manager.create(tp("new")).topic_partition) is not failed
    with pytest.raises(StorageError, match="offline log directory"):
        manager.create(tp("old"), is_new=False)
    assert sum("is offline" in line for line in broker.reports) == 1
    manager.close()
    marked = [CLEAN_SHUTDOWN in broker.root(number) for number in (0, 1)]
    assert sorted(marked) == [False, True]


def test_deleted_while_flushing(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("t"))
    put(log, b"x")
    manager.flush(log)
    manager.delete(tp("t"))
    broker.scheduler.run_pending()
    assert not broker.reports


# --- retention


def test_retention_runs_periodically_without_a_call(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, retention_ms=1000, file_delete_delay_ms=5000))
    log = manager.create(tp("t"))
    for number in range(3):
        put(log, b"%d" % number * 60, at=broker.clock.now_ms(), now_ms=broker.clock.now_ms())
    manager.high_watermark_of = {tp("t"): 2}.get
    broker.scheduler.advance(300_000)
    assert log.log_start_offset == 2
    folder = broker.disks[0].folders["t-0"]
    assert sum(name.endswith(".deleted") for name in folder) == 6
    broker.scheduler.advance(5_000)
    assert not any(name.endswith(".deleted") for name in folder)
    manager.close()
    assert broker.root()["log-start-offset-checkpoint"] == b"0\n0\n"


def test_another_policy_after_the_configuration_changed(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, retention_ms=0))
    log = manager.create(tp("t"))
    put(log, b"x", at=0)
    log.update_config(evolve(log.config, deletion_policy="none"))
    broker.clock.advance_to(broker.clock.monotonic_ms() + 10_000)
    manager.retain()
    assert log.log_start_offset == 0
    log.update_config(evolve(log.config, deletion_policy="unknown"))
    manager.retain()
    assert log.log_start_offset == 0
    assert any("unknown" in line for line in broker.reports)
    log.update_config(evolve(log.config, deletion_policy="kafka"))
    manager.retain()
    assert log.log_start_offset == 1


def test_one_bad_policy_does_not_stop_the_others(broker: Broker) -> None:
    class Bad:
        def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
            raise RuntimeError("oh")

    broker.policy = Bad()
    manager = broker.start(evolve(CONFIG, retention_ms=0))
    logs = [manager.create(tp("t", number)) for number in range(2)]
    for log in logs:
        put(log, b"x", at=0)
    broker.clock.advance_to(broker.clock.monotonic_ms() + 10_000)
    manager.retain()
    assert [log.log_start_offset for log in logs] == [0, 0]
    assert len(broker.reports) == 2


def test_retention_takes_turns_and_a_stop_ends_it(broker: Broker) -> None:
    class Slow(KafkaDeletionPolicy):
        def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
            broker.clock.advance_to(broker.clock.monotonic_ms() + 10)
            return super().deletable(segments, now_ms=now_ms, config=config)

    broker.policy = Slow()
    manager = broker.start(evolve(CONFIG, retention_ms=0))
    logs = [manager.create(tp("t", number)) for number in range(5)]
    for log in logs:
        put(log, b"x", at=0)
    broker.clock.advance_to(broker.clock.monotonic_ms() + 10_000)
    manager.retain()
    assert [log.log_start_offset for log in logs] == [1, 0, 0, 0, 0], "others have their turn now"
    manager.retain()
    stopped: list[bool] = []
    manager.stop(lambda: stopped.append(True))
    assert not stopped
    broker.scheduler.run_until(lambda: bool(stopped))
    assert [log.log_start_offset for log in logs][2:] == [0, 0, 0]


def test_retention_with_producers_is_complete_after_a_worker_has_written_them(broker: Broker) -> None:
    manager = broker.start(evolve(CONFIG, retention_ms=0))
    logs = [manager.create(tp("t", number)) for number in range(3)]
    for log in logs:
        log.append(numbered(b"x", at=0), leader_epoch=0, now_ms=0)
    broker.clock.advance_to(broker.clock.monotonic_ms() + 10_000)
    manager.retain()
    assert [log.log_start_offset for log in logs] == [0, 0, 0]
    broker.scheduler.run_pending()
    assert [log.log_start_offset for log in logs] == [1, 1, 1]
    assert all(f"{1:020}.snapshot" in broker.disks[0].folders[f"t-{number}"] for number in range(3))


# --- folders that fail


def test_a_folder_that_cannot_be_read_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(disks=2)
    manager = broker.start()
    for number in range(4):
        put(manager.create(tp("t", number)), b"x")
    manager.close()
    original = MemoryLogDir.folders

    def folders(self: MemoryLogDir) -> list[str]:
        if self.path == "/data/1":
            raise StorageError("input/output error")
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryLogDir, "folders", folders)
        manager = broker.start()
    assert len(manager.logs()) == 2
    assert sum("cannot be used" in line for line in broker.reports) == 1
    manager.close()
    with monkeypatch.context() as patch:
        patch.setattr(MemoryLogDir, "folders", lambda _: (_ for _ in ()).throw(StorageError("gone")))
        with pytest.raises(StorageError, match="no data folder"):
            broker.start()
    manager = broker.start()
    assert all(log.log_end_offset == 1 for log in manager.logs().values())
    assert len(manager.logs()) == 4


def test_a_log_that_cannot_be_opened_is_left_out_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    manager = broker.start()
    for number in range(2):
        put(manager.create(tp("t", number)), b"x")
    manager.close()
    original = UnifiedLog.open

    def refuse(*args: object, **settings: object) -> UnifiedLog:
        if settings["topic_partition"] == tp("t", 1):
            raise StorageError("input/output error")
        return original(*args, **settings)  # type: ignore[arg-type]  # passed on as they came

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "open", refuse)
        manager = broker.start()
        assert set(manager.logs()) == {tp("t", 0)}
        with pytest.raises(StorageError):
            manager.create(tp("t", 1))
    assert manager.create(tp("t", 1)).log_end_offset == 1
    manager.close()
    assert CLEAN_SHUTDOWN not in broker.root()


def test_disk_full_at_the_checkpoints_and_at_the_end(broker: Broker) -> None:
    manager = broker.start()
    log = manager.create(tp("t"))
    put(log, b"x")
    broker.disks[0].capacity = broker.disks[0].used
    broker.scheduler.advance(130_000)
    assert len(broker.reports) == 1  # once, not at every try
    put_works = True
    try:
        put(log, b"y")
    except StorageError:
        put_works = False
    assert not put_works
    assert read_all(log) == [(0, b"x")]
    manager.close()
    assert CLEAN_SHUTDOWN not in broker.root()
    broker.disks[0].capacity = None
    manager = broker.start()
    found = manager.get(tp("t"))
    assert found is not None
    assert read_all(found) == [(0, b"x")]


def test_a_creation_without_room_leaves_no_folder_behind(broker: Broker) -> None:
    manager = broker.start()
    disk = broker.disks[0]
    disk.capacity = disk.used
    creation = manager.begin_create({tp("new"): b"i" * 16})
    for part in creation.parts:
        part()
    creation()
    assert isinstance(manager.complete_create(creation)[tp("new")], StorageFull)
    assert manager.get(tp("new")) is None
    assert "new-0" not in disk.folders


def test_folders_are_locked_and_given_back(broker: Broker) -> None:
    manager = broker.start()
    with pytest.raises(FolderLocked):
        MemoryLogDir(broker.disks[0])
    manager.close()
    opened: LogDir = MemoryLogDir(broker.disks[0])
    opened.close()
