"""Logs of both generations in one broker: which is which, background work, checkpoints, odd names (facts A4)."""

import pytest
from attrs import evolve
from support.classic_frames import message_set
from support.classic_logs import put as put_classic
from support.classic_logs import visible

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.log.checkpoints import CLEAN_SHUTDOWN, RECOVERY_POINT, parse_offsets
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import bytes_of, put, read_all

CONFIG = LogConfig(message_format="classic", segment_bytes=14, retention_ms=-1)
FIRST = f"{0:020d}.kafka"
OLD = TopicPartition("old", 0)
NEW = TopicPartition("new", 0)


class Broker:
    """A manager and its outside. Topics whose names begin with "new" are of the current generation."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.config = CONFIG
        self.reports: list[str] = []
        self.flushed: list[UnifiedLog] = []
        self.manager: LogManager

    def config_for(self, topic: str) -> LogConfig:
        return LogConfig(retention_ms=-1) if topic.startswith("new") else self.config

    def start(self) -> LogManager:
        self.scheduler = ManualScheduler(self.clock)
        self.reports.clear()
        self.disk.in_use = False
        self.manager = LogManager(
            [MemoryLogDir(self.disk, path="/data")],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=self.config_for,
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KafkaDeletionPolicy(),
            report=self.reports.append,
        )
        self.manager.add_flush_listener(self.flushed.append)
        self.manager.load()
        self.manager.start()
        return self.manager

    def restart(self) -> LogManager:
        self.manager.close()
        return self.start()

    def log(self, tp: TopicPartition) -> UnifiedLog:
        found = self.manager.get(tp)
        assert found is not None
        return found

    def run(self, ms: int = 0) -> None:
        self.scheduler.advance(ms)

    def files(self, tp: TopicPartition) -> list[str]:
        return sorted(self.disk.folders[str(tp)])

    def leave(self, folder: str, name: str, data: bytes = b"") -> None:
        """Put a file there, as another program would."""
        self.disk.in_use = False
        log_dir = MemoryLogDir(self.disk)
        log_dir.folder(folder).open(name).append(data)
        log_dir.close()


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_both_generations_side_by_side(broker: Broker) -> None:
    broker.start()
    old, new = broker.manager.create(OLD), broker.manager.create(NEW)
    put_classic(old, b"classic")
    put(new, b"current")
    assert broker.files(OLD) == [FIRST]
    assert f"{0:020d}.log" in broker.files(NEW)
    broker.restart()
    assert broker.reports == []
    assert visible(broker.log(OLD)) == message_set(b"classic")
    assert read_all(broker.log(NEW)) == [(0, b"current")]
    assert broker.files(OLD) == [FIRST]
    broker.start()  # as after a crash
    assert visible(broker.log(OLD)) == message_set(b"classic")
    assert read_all(broker.log(NEW)) == [(0, b"current")]


def test_the_format_comes_from_the_files_not_the_configuration(broker: Broker) -> None:
    broker.leave("new-0", FIRST, message_set(b"classic"))
    broker.leave("old-0", "leader-epoch-checkpoint", b"0\n0\n")
    broker.leave("old-0", f"{0:020d}.log")
    broker.start()
    assert [broker.log(tp).format_name for tp in (NEW, OLD)] == ["classic", "v2"]
    assert visible(broker.log(NEW)) == message_set(b"classic")
    observed = [line for line in broker.reports if "stays in it" in line]
    assert len(observed) == 2
    assert any("/data/new-0 holds segments of the format classic" in line for line in observed)


def test_a_folder_of_both_is_reported_and_left_alone(broker: Broker) -> None:
    broker.leave("old-0", FIRST, message_set(b"classic"))
    broker.leave("old-0", f"{0:020d}.log")
    broker.leave("page views-0", FIRST)
    broker.leave("page views-0", f"{0:020d}.log")
    broker.leave("old-1", FIRST, message_set(b"fine"))
    broker.start()
    assert set(broker.manager.logs()) == {TopicPartition("old", 1)}
    for name in ("old-0", "page views-0"):
        assert any(f"/data/{name} contains segments of both generations" in line for line in broker.reports)
    assert broker.files(OLD) == [FIRST, f"{0:020d}.log"]
    with pytest.raises(StorageError, match="both generations"):
        broker.manager.create(OLD)


def test_a_log_with_a_gap_is_reported_and_the_others_work(broker: Broker) -> None:
    broker.leave("old-0", FIRST, message_set(b"a"))
    broker.leave("old-0", f"{12:020d}.kafka", message_set(b"b"))
    broker.leave("old-1", FIRST, message_set(b"fine"))
    broker.start()
    assert set(broker.manager.logs()) == {TopicPartition("old", 1)}
    assert any(FIRST in line and f"{12:020d}.kafka" in line for line in broker.reports)
    broker.manager.close()
    assert CLEAN_SHUTDOWN not in broker.disk.root, "the next start looks again"


def test_a_flush_by_messages_makes_them_visible(broker: Broker) -> None:
    broker.config = evolve(CONFIG, flush_messages=2, segment_bytes=1000)
    broker.start()
    log = broker.manager.create(OLD)
    put_classic(log, b"a")
    assert not broker.manager.flush_if_due(log, 0)
    put_classic(log, b"b")
    assert broker.manager.flush_if_due(log, 0)
    broker.run()
    assert broker.flushed == [log]
    assert visible(log) == message_set(b"a", b"b")


def test_a_flush_by_time_makes_them_visible(broker: Broker) -> None:
    broker.config = evolve(CONFIG, flush_ms=3000)
    broker.start()
    log = broker.manager.create(OLD)
    put_classic(log, b"a")
    broker.run(2500)
    assert log.readable_end == 0
    broker.run(1500)
    assert visible(log) == message_set(b"a")
    assert broker.flushed == [log]
    broker.run(60_000)
    assert broker.flushed == [log], "there was nothing more"


def test_a_roll_leaves_nothing_to_flush_behind_it(broker: Broker) -> None:
    broker.start()
    log = broker.manager.create(OLD)
    put_classic(log, b"12345")
    put_classic(log, b"67")
    broker.run()
    assert visible(log) == message_set(b"12345")
    assert bytes_of(log, 15, limit=10**9) == b""


def test_old_segments_go_after_their_delay(broker: Broker) -> None:
    broker.config = evolve(CONFIG, retention_ms=1000, file_delete_delay_ms=10, flush_messages=1)
    broker.start()
    log = broker.manager.create(OLD)
    for payload in (b"12345", b"67890"):
        put_classic(log, payload, now_ms=broker.clock.now_ms())
        broker.manager.flush_if_due(log, broker.clock.now_ms())
        broker.run()
    broker.run(300_000)
    assert broker.files(OLD) == [FIRST + ".deleted", f"{15:020d}.kafka.deleted", f"{30:020d}.kafka"]
    broker.run(20)
    assert broker.files(OLD) == [f"{30:020d}.kafka"]
    assert log.log_start_offset == 30


def test_recovery_points_and_starts_are_noted(broker: Broker) -> None:
    broker.start()
    log = broker.manager.create(OLD)
    put_classic(log, b"a")
    put_classic(log, b"b")
    broker.manager.flush(log)
    broker.run()
    log.advance_log_start(4)
    broker.manager.checkpoint()
    broker.run()
    assert parse_offsets(bytes(broker.disk.root[RECOVERY_POINT].data)) == {OLD: 22}
    broker.start()
    assert (broker.log(OLD).log_start_offset, broker.log(OLD).readable_end) == (4, 22)


ODD = [TopicPartition(name, 12) for name in ("page views", "Ünïcode-日本", "a:b", "x" * 252, "-", "t 0 5", "*?")]


@pytest.mark.parametrize("tp", ODD, ids=lambda tp: tp.topic[:12])
def test_topics_of_any_name_come_back(broker: Broker, tp: TopicPartition) -> None:
    broker.start()
    put_classic(broker.manager.create(tp), b"a")
    broker.restart()
    assert broker.reports == []
    assert visible(broker.log(tp)) == message_set(b"a")
    assert broker.log(tp).recovery_point == 11
    broker.manager.delete(tp)
    assert all(len(name.encode()) <= 255 for name in broker.disk.folders)
    broker.run()
    assert not broker.disk.folders
    assert broker.reports == []


def test_long_names_of_many_bytes_can_be_deleted(broker: Broker) -> None:
    tp = TopicPartition("日" * 80, 0)
    broker.start()
    broker.manager.create(tp)
    broker.manager.rename_to_stray(tp, "a test wants it")
    (name,) = broker.disk.folders
    assert len(name.encode()) <= 255
    assert name.endswith("-stray")
    assert broker.restart().logs() == {}


@pytest.mark.parametrize("name", ["no number-x", "page views", "a b-01", "a\x85b-0", "bad\udcff-0", "lost+found"])
def test_folders_of_no_partition_are_left_alone(broker: Broker, name: str) -> None:
    broker.leave(name, FIRST, message_set(b"a"))
    assert broker.start().logs() == {}
    assert any("is not a partition folder" in line for line in broker.reports)


def test_an_odd_folder_without_classic_segments_is_none_of_ours(broker: Broker) -> None:
    broker.leave("page views-0", "holiday.jpg")
    assert broker.start().logs() == {}
    assert any("is not a partition folder" in line for line in broker.reports)
