"""An orderly stop: the logs are closed by the workers side by side, and only what became durable counts as closed."""

from collections.abc import Callable

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.storage_memory.memory import MemoryFile
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


class House:
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
        """The list gets an entry once it has stopped."""
        stopped: list[bool] = []
        self.manager.stop(lambda: stopped.append(True))
        return stopped

    def clean(self) -> list[bool]:
        return [CLEAN_SHUTDOWN in disk.root for disk in self.disks]


def tp(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def test_all_logs_are_handed_to_the_workers_before_the_first_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    for number in range(10):
        put(house.manager.create(tp(number)), b"x")
    house.scheduler.run_pending()
    given: list[Callable[[], object]] = []
    original = house.scheduler.offload

    def offload(work: Callable[[], object], done: Callable[..., None]) -> None:
        given.append(work)
        original(work, done)

    monkeypatch.setattr(house.scheduler, "offload", offload)
    stopped = house.stop()
    assert len(given) == 10
    assert not stopped
    house.scheduler.run_pending()
    assert (stopped, house.clean()) == ([True], [True, True])
    assert not any(disk.in_use for disk in house.disks)
    manager = house.start()
    assert {partition.partition for partition in manager.logs()} == set(range(10))
    assert all(read_all(log) == [(0, b"x")] for log in manager.logs().values())
    assert not house.reports


def test_a_flush_under_way_is_waited_for_and_its_failure_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    log = house.manager.create(tp(0))
    put(log, b"x")
    house.scheduler.run_pending()

    def refuse(_: MemoryFile) -> None:
        raise StorageError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "flush", refuse)
        house.manager.flush(log)
        stopped = house.stop()
        house.scheduler.run_until(lambda: log.failure is not None)
    house.scheduler.run_pending()  # what fails no more was not made durable by that
    assert stopped == [True]
    assert house.clean() == [False, True]
    assert any("closing t-0 failed" in line for line in house.reports)


def test_one_log_that_cannot_be_closed_costs_its_folder_the_marker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    for number in range(4):
        put(house.manager.create(tp(number)), b"x")
    broken = house.manager.get(tp(1))
    original = UnifiedLog.close

    def close(log: UnifiedLog, now_ms: int = 0) -> None:
        original(log, now_ms)
        if log is broken:
            raise StorageError("input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "close", close)
        stopped = house.stop()
        house.scheduler.run_pending()
    assert (stopped, house.clean()) == ([True], [True, False])
    manager = house.start()
    assert all(read_all(log) == [(0, b"x")] for log in manager.logs().values())


def test_no_log_is_created_after_a_stop() -> None:
    house = House()
    creation = house.manager.begin_create({tp(0): b"i" * 16})
    stopped = house.stop()
    with pytest.raises(ClosedError):
        house.manager.begin_create({tp(1): b"i" * 16})
    house.scheduler.run_pending()
    assert not stopped, "what is begun is waited for"
    for part in creation.parts:
        part()
    creation()
    assert house.manager.complete_create(creation) == {}
    house.scheduler.run_pending()
    assert (stopped, house.clean()) == ([True], [True, True])
    again = house.stop()
    assert again == [True]


def test_stop_without_logs_completes() -> None:
    house = House()
    stopped = house.stop()
    house.scheduler.run_pending()
    assert (stopped, house.clean()) == ([True], [True, True])


def test_unchanged_log_is_not_flushed_again_at_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    for number in range(3):
        put(house.manager.create(tp(number)), b"x")
    house.stop()
    house.scheduler.run_pending()
    manager = house.start()
    changed = manager.get(tp(1))
    assert changed is not None
    put(changed, b"y")
    flushed: list[str] = []
    monkeypatch.setattr(MemoryFile, "flush", lambda self: flushed.append(self.name))
    stopped = house.stop()
    house.scheduler.run_pending()
    assert (stopped, house.clean()) == ([True], [True, True])
    assert flushed.count("00000000000000000000.log") == 1
    assert [len(read_all(log)) for _, log in sorted(house.start().logs().items())] == [1, 2, 1]


# --- what the next life may say of the one before


def stopped(house: House) -> None:
    for number in range(4):
        log = house.manager.create(tp(number))
        for value in (b"a", b"b", b"c"):
            put(log, value)
    told = house.stop()
    house.scheduler.run_pending()
    assert told == [True]


def test_a_life_that_ended_in_order_is_known_for_it() -> None:
    house = House()
    assert not house.manager.had_clean_shutdown, "there was none"
    stopped(house)
    assert house.start().had_clean_shutdown


def test_a_log_that_lost_its_end_since_is_not_taken_for_whole() -> None:
    house = House()
    stopped(house)
    (contents,) = [disk.folders["t-0"] for disk in house.disks if "t-0" in disk.folders]
    content = contents["00000000000000000000.log"]
    del content.data[-10:]
    assert not house.start().had_clean_shutdown
    assert any("are lost" in line for line in house.reports)


def test_a_folder_that_is_gone_is_not_taken_for_whole() -> None:
    house = House()
    stopped(house)
    (disk,) = [disk for disk in house.disks if "t-0" in disk.folders]
    del disk.folders["t-0"]
    assert not house.start().had_clean_shutdown
