"""A follower that is rebuilt from remote storage knows the producers of what it does not have itself."""

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.app.broker.state.tiering import read_aux_state
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.tiering.manifest import TieredTopic
from barnabas.core.tiering.remote_log_manager import LedLog, RemoteLogManager
from barnabas.core.traffic.steps import complete
from barnabas.ports.errors import BarnabasError, ClosedError
from barnabas.ports.scheduler import Outcome
from barnabas.ports.storage import Folder
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import batch, numbered, open_log

KEY, TOPIC_ID = TopicPartition("t", 0), b"topic-id-of-16-b"
CONFIG = LogConfig(segment_bytes=300, remote_storage_enable=True, local_retention_bytes=0, retention_ms=-1)


def folder(disk: MemoryDisk | None = None) -> Folder:
    return MemoryLogDir(disk or MemoryDisk(now_ms=lambda: 0)).folder("t-0")


def append(log: UnifiedLog, records: memoryview, epoch: int = 0) -> int:
    return log.append(records, leader_epoch=epoch, now_ms=0).base_offset


def copied(
    log: UnifiedLog,
    store: MemoryRemoteStorage,
    offload: Callable[..., None] | None = None,
    awaits_producers: Callable[[], bool] = lambda: False,
) -> None:
    """Let the leader of this log copy what it can, and delete it locally."""
    scheduler = ManualScheduler(ManualClock(), SeededEntropy(1))
    manager = RemoteLogManager(
        store,
        offload or scheduler.offload,
        scheduler=scheduler,
        clock=ManualClock(),
        entropy=SeededEntropy(len([*store.list_objects("")])),  # another segment id each time
        report=pytest.fail,
        interval_ms=50,
    )
    manager.lead(
        LedLog(
            key=KEY,
            topic_id=TOPIC_ID,
            leader_epoch=0,
            log=log,
            last_stable_offset=lambda: log.log_end_offset,
            describe=lambda: TieredTopic(name="t", topic_id=TOPIC_ID, partitions=1),
            awaits_producers=awaits_producers,
        )
    )
    scheduler.advance(1000)
    manager.close()
    if log.closed:
        return
    for segment in complete(log.retain(0, log.log_end_offset)):
        segment.delete()


def rebuilt(source: UnifiedLog, store: MemoryRemoteStorage) -> UnifiedLog:
    """Return a follower with an empty disk that begins after the records only the store has, and copies the rest."""
    aux = read_aux_state(store, KEY, TOPIC_ID, source.local_log_start_offset)
    assert aux is not None
    log = open_log(folder(), config=CONFIG)
    log.restart_at(aux.offset, log_start=aux.log_start, epochs=aux.epochs, snapshot=aux.snapshot, now_ms=0)
    while log.log_end_offset < source.log_end_offset:
        found = source.read(log.log_end_offset, max_bytes=300, limit=source.log_end_offset).records
        content = found if isinstance(found, bytes) else found.read()
        log.append_replicated(memoryview(content), now_ms=0)
    return log


def as_it_is(log: UnifiedLog, at: Folder) -> UnifiedLog:
    return log


def opened_again(log: UnifiedLog, at: Folder, *, config: LogConfig = CONFIG, recovery_point: int = 0) -> UnifiedLog:
    """Return the log after a kill that came before snapshots of closed segments were written."""
    log.abandon()
    for name in at.files():
        if name.endswith(".snapshot"):
            at.delete(name)
    return open_log(at, config=config, recovery_point=recovery_point, may_end_early=recovery_point > 0)


@pytest.mark.parametrize("since", [as_it_is, opened_again])
def test_duplicate_is_known_by_a_rebuilt_follower_that_leads(since: Callable[[UnifiedLog, Folder], UnifiedLog]) -> None:
    store, at = MemoryRemoteStorage(), folder()
    log = open_log(at, config=CONFIG)
    assert append(log, numbered(b"a" * 50, producer=7, sequence=0)) == 0
    assert append(log, numbered(b"b" * 50, producer=7, sequence=1)) == 1
    for _ in range(12):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    log = since(log, at)
    append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store)
    assert log.local_log_start_offset > 4
    follower = rebuilt(log, store)
    assert follower.log_end_offset == log.log_end_offset
    assert append(follower, numbered(b"b" * 50, producer=7, sequence=1), 1) == 1, "it is recognised, and not appended"
    assert append(follower, numbered(b"d" * 50, producer=7, sequence=2), 1) == 15


@pytest.mark.parametrize("is_over", [False, True], ids=["wait", "bound of the wait has passed"])
def test_segment_behind_damage_that_hides_producers_is_copied_after_the_repair(is_over: bool) -> None:
    """The damaged segment is in remote storage already. The snapshots of later ones would lack its producers for ever:
    a follower rebuilt from there, and leading, would append again what such a producer sends again."""
    store, disk = MemoryRemoteStorage(), MemoryDisk(now_ms=lambda: 0)
    at, config = folder(disk), evolve(CONFIG, local_retention_bytes=-1)
    log = open_log(at, config=config)
    append(log, numbered(b"a" * 50, producer=7, sequence=0))
    append(log, numbered(b"b" * 50, producer=7, sequence=1))
    for _ in range(2):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store)
    assert log.remote_end == log.segments[1].base_offset == 2

    log.abandon()
    file = disk.folders["t-0"]["00000000000000000000.log"]
    whole = bytes(file.data)
    file.data[len(whole) - 1] ^= 1
    log = opened_again(log, at, config=config, recovery_point=4)
    assert log.hidden_producers_at == (1,)
    for _ in range(7):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store, awaits_producers=lambda: not is_over)
    if is_over:
        assert log.remote_end > 2
        return
    assert log.remote_end == 2

    file.data[:] = whole
    log = opened_again(log, at)
    append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store)
    assert log.local_log_start_offset > 4
    follower = rebuilt(log, store)
    assert append(follower, numbered(b"b" * 50, producer=7, sequence=1), 1) == 1, "it is recognised, and not appended"


@pytest.mark.parametrize("waits", [True, False])
def test_repeated_batch_is_known_after_local_retention_only_if_it_waited_for_the_repair(*, waits: bool) -> None:
    """Local retention deletes the damaged segment, and leaves a snapshot of the producers that were readable: then no
    later start knows that some are hidden."""
    store, disk = MemoryRemoteStorage(), MemoryDisk(now_ms=lambda: 0)
    at, on_both = folder(disk), evolve(CONFIG, local_retention_bytes=-1)
    log = open_log(at, config=on_both)
    append(log, numbered(b"a" * 50, producer=7, sequence=0))
    append(log, numbered(b"b" * 50, producer=7, sequence=1))
    for _ in range(4):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store)
    end = log.remote_end
    assert end >= 4
    log.abandon()
    file = disk.folders["t-0"]["00000000000000000000.log"]
    whole = bytes(file.data)
    file.data[len(whole) - 1] ^= 1
    log = opened_again(log, at, recovery_point=6)
    log.remote_end = end
    assert log.hidden_producers_at == (1,)
    complete(log.retain(0, log.log_end_offset, awaits_producers=waits))
    assert log.local_log_start_offset == (0 if waits else end)
    log.abandon()
    if waits:
        file.data[:] = whole
    log = open_log(at, config=CONFIG, recovery_point=6)
    assert not log.hidden_producers_at
    assert append(log, numbered(b"b" * 50, producer=7, sequence=1)) == (1 if waits else 6)


@pytest.mark.parametrize("call", range(4))
def test_log_that_is_closed_during_a_call_ends_the_copying(call: int) -> None:
    """A partition moves away, or its broker stops, while another thread reads its files."""
    at = folder()
    log = open_log(at, config=CONFIG)
    append(log, numbered(b"a" * 50, producer=7, sequence=0))
    for _ in range(12):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    log = opened_again(log, at)  # no snapshot of producers is on the disk, so that it is made from batches
    append(log, batch(b"c" * 50))
    log.flushes.now()
    calls: list[BaseException | None] = []

    def offload(work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        if len(calls) == call:
            log.close()
        try:
            outcome = Outcome(value=work())
        except BarnabasError as error:
            outcome = Outcome(error=error)
        calls.append(outcome.error)
        done(outcome)

    copied(log, MemoryRemoteStorage(), offload)
    assert len(calls) == call + 1
    if call == 2:
        assert isinstance(calls[-1], ClosedError)


def test_transaction_over_the_edge_of_the_tier_is_open_and_aborted_by_a_rebuilt_follower() -> None:
    store = MemoryRemoteStorage()
    log = open_log(folder(), config=CONFIG)
    records = numbered(b"a" * 50, producer=7, sequence=0, transactional=True)
    log.append(records, leader_epoch=0, now_ms=0, origin=AppendOrigin.TRANSACTION)
    for _ in range(9):
        append(log, batch(b"c" * 50))
    log.flushes.now()
    copied(log, store)
    assert log.local_log_start_offset > 4
    follower = rebuilt(log, store)
    assert follower.transactions.first_unstable_offset(follower.log_end_offset) == 0, "it is open there, too"
    follower.append_marker(7, 0, False, 0, leader_epoch=1, now_ms=0)
    append(follower, batch(b"c" * 50), 1)
    found = follower.transactions.aborted(follower.local_log_start_offset, follower.log_end_offset)
    assert [(each.producer_id, each.first_offset) for each in found] == [(7, 0)]
