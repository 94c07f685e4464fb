"""An orderly stop: the logs are closed by the workers side by side, and only what became durable counts as closed."""

from collections.abc import Callable

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryFile, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.core.log.checkpoints import CLEAN_SHUTDOWN
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.errors import ClosedError
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import put, read_all


class Harness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.disks = [MemoryDisk(), MemoryDisk()]
        self.reports: list[str] = []
        self.manager = self.start()

    def start(self) -> LogManager:
        self.manager = LogManager(
            [MemoryLogDir(disk, path=f"/data/{number}") for number, disk in enumerate(self.disks)],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: LogConfig(),
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KafkaDeletionPolicy(),
            report=self.reports.append,
        )
        self.manager.load()
        self.manager.start()
        return self.manager

    def stop(self) -> list[bool]:
        """Stop the manager; return the list that gets an entry when it has stopped."""
        stopped: list[bool] = []
        self.manager.stop(lambda: stopped.append(True))
        return stopped

    def clean(self) -> list[bool]:
        return [CLEAN_SHUTDOWN in disk.root for disk in self.disks]


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_all_logs_are_handed_to_the_workers_before_the_first_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    for number in range(10):
        put(harness.manager.create(tp(number)), b"x")
    harness.scheduler.run_pending()
    given: list[Callable[[], object]] = []
    original = harness.scheduler.offload

    def offload(work: Callable[[], object], done: Callable[..., None]) -> None:
        given.append(work)
        original(work, done)

    monkeypatch.setattr(harness.scheduler, "offload", offload)
    stopped = harness.stop()
    assert len(given) == 10
    assert not stopped
    harness.scheduler.run_pending()
    assert (stopped, harness.clean()) == ([True], [True, True])
    assert not any(disk.in_use for disk in harness.disks)
    manager = harness.start()
    assert {partition.partition for partition in manager.logs()} == set(range(10))
    assert all(read_all(log) == [(0, b"x")] for log in manager.logs().values())
    assert not harness.reports


def test_a_flush_under_way_is_waited_for_and_its_failure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    log = harness.manager.create(tp(0))
    put(log, b"x")
    harness.scheduler.run_pending()

    def refuse(_: MemoryFile) -> None:
        raise StorageError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "flush", refuse)
        harness.manager.flush(log)
        stopped = harness.stop()
        harness.scheduler.run_until(lambda: log.failure is not None)
    harness.scheduler.run_pending()  # the end of the failure did not make it durable
    assert stopped == [True]
    assert harness.clean() == [False, True]
    assert any("closing t-0 failed" in line for line in harness.reports)


def test_one_log_that_cannot_be_closed_costs_its_folder_the_marker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    for number in range(4):
        put(harness.manager.create(tp(number)), b"x")
    broken = harness.manager.get(tp(1))
    original = UnifiedLog.close

    def close(log: UnifiedLog, now_ms: int = 0) -> None:
        original(log, now_ms)
        if log is broken:
            raise StorageError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "close", close)
        stopped = harness.stop()
        harness.scheduler.run_pending()
    assert (stopped, harness.clean()) == ([True], [True, False])
    manager = harness.start()
    assert all(read_all(log) == [(0, b"x")] for log in manager.logs().values())


def test_no_log_is_created_after_a_stop() -> None:
    harness = Harness()
    creation = harness.manager.begin_create({tp(0): b"i" * 16})
    stopped = harness.stop()
    with pytest.raises(ClosedError):
        harness.manager.begin_create({tp(1): b"i" * 16})
    harness.scheduler.run_pending()
    assert not stopped, "what is begun is waited for"
    for part in creation.parts:
        part()
    creation()
    assert harness.manager.complete_create(creation) == {}
    harness.scheduler.run_pending()
    assert (stopped, harness.clean()) == ([True], [True, True])
    again = harness.stop()
    assert again == [True]


def test_stop_without_logs_completes() -> None:
    harness = Harness()
    stopped = harness.stop()
    harness.scheduler.run_pending()
    assert (stopped, harness.clean()) == ([True], [True, True])


def test_unchanged_log_is_not_flushed_again_at_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    for number in range(3):
        put(harness.manager.create(tp(number)), b"x")
    harness.stop()
    harness.scheduler.run_pending()
    manager = harness.start()
    changed = manager.get(tp(1))
    assert changed is not None
    put(changed, b"y")
    flushed: list[str] = []
    monkeypatch.setattr(MemoryFile, "flush", lambda self: flushed.append(self.name))
    stopped = harness.stop()
    harness.scheduler.run_pending()
    assert (stopped, harness.clean()) == ([True], [True, True])
    assert flushed.count("00000000000000000000.log") == 1
    assert [len(read_all(log)) for _, log in sorted(harness.start().logs().items())] == [1, 2, 1]


# --- what the next life may say of the one before


def stopped(harness: Harness) -> None:
    for number in range(4):
        log = harness.manager.create(tp(number))
        for value in (b"a", b"b", b"c"):
            put(log, value)
    observed = harness.stop()
    harness.scheduler.run_pending()
    assert observed == [True]


def test_a_life_that_ended_in_order_is_known_for_it() -> None:
    harness = Harness()
    assert not harness.manager.had_clean_shutdown, "there was none"
    stopped(harness)
    assert harness.start().had_clean_shutdown


def test_a_log_that_lost_its_end_since_is_not_taken_for_whole() -> None:
    harness = Harness()
    stopped(harness)
    (contents,) = [disk.folders["t-0"] for disk in harness.disks if "t-0" in disk.folders]
    content = contents["00000000000000000000.log"]
    del content.data[-10:]
    assert not harness.start().had_clean_shutdown
    assert any("are lost" in line for line in harness.reports)


def test_a_folder_that_is_gone_is_not_taken_for_whole() -> None:
    harness = Harness()
    stopped(harness)
    (disk,) = [disk for disk in harness.disks if "t-0" in disk.folders]
    del disk.folders["t-0"]
    assert not harness.start().had_clean_shutdown
