"""A segment with damage is not offered: it is checked while a store reads it."""

import os
from pathlib import Path
from typing import Any

import pytest
from crashes.tier_check import KEY, Leading

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.storage_fs import open_log_dir
from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.adapters.system import SeededEntropy
from barnabas.core.log.config import LogConfig
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.tiering.manifest import RemoteSegment
from barnabas.core.tiering.segment_objects import CheckedBatches, DamagedSegment
from barnabas.ports.storage import Region
from barnabas.testing.logs import batch, open_log

SIZE = len(batch(b"x" * 50))


def region_of(content: bytes | bytearray) -> Region:
    file = MemoryLogDir().folder("t-0").open("segment")
    file.append(content)
    return file.region(0, file.size)


def three_batches() -> bytearray:
    found = bytearray()
    for offset, epoch in ((5, 1), (6, 1), (7, 2)):
        records = bytearray(batch(b"x" * 50))
        assign_offset(records, offset, epoch)
        found += records
    return found


def described(size: int, *epochs: tuple[int, int]) -> RemoteSegment:
    return RemoteSegment(
        segment_id="s",
        base_offset=5,
        next_offset=8,
        size=size,
        max_timestamp=0,
        epochs=epochs or ((1, 5), (2, 7)),
        leader_epoch=2,
    )


def check(content: bytes | bytearray, *epochs: tuple[int, int], piece: int | None = None) -> None:
    """Let a store read the segment in pieces of this size; None: the system copies it."""
    checked = CheckedBatches(region_of(content), described(len(content), *epochs))
    read = b""
    if piece is not None:
        read = b"".join(checked.read(start, piece) for start in range(0, checked.size, piece))
        assert content.startswith(read)
    checked.finish()
    assert piece is None or read == content


PIECES = [None, 1, 7, 61, 64, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE + 30, 3 * SIZE, 1000]


@pytest.mark.parametrize("piece", PIECES)
def test_intact_segment_passes(piece: int | None) -> None:
    check(three_batches(), piece=piece)
    check(three_batches(), (1, 6), (2, 7), piece=piece)  # the log start was raised into the segment


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("at", [0, 7, 12, 15, 17, 30, 57, 70])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_changed_byte_is_found(at: int, number: int, piece: int | None) -> None:
    """Also in the offset and the leader epoch, which the CRC does not cover."""
    content = three_batches()
    content[number * SIZE + at] ^= 0x41
    with pytest.raises(DamagedSegment) as raised:
        check(content, piece=piece)
    assert raised.value.offset == 5 + number


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("cut", [1, 20, SIZE - 1])
def test_cut_segment_is_found(cut: int, piece: int | None) -> None:
    with pytest.raises(DamagedSegment):
        check(three_batches()[:-cut], piece=piece)


class Changing:
    """A region whose second byte from the end changes between two attempts of a store."""

    def __init__(self, content: bytearray) -> None:
        self.content, self.position, self.size = content, 0, len(content)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        return bytes(self.content[start:][:size])


def test_what_a_store_reads_again_is_checked_again() -> None:
    region: Any = Changing(three_batches())
    checked = CheckedBatches(region, described(region.size))
    assert checked.read() == region.content
    checked.finish()
    region.content[-2] ^= 1
    checked.read()
    with pytest.raises(DamagedSegment):
        checked.finish()


@pytest.mark.parametrize("changed", [None, 30, 2 * SIZE + 30])
def test_what_is_read_out_of_order_is_checked_at_the_end(changed: int | None) -> None:
    content = three_batches()
    if changed is not None:
        content[changed] ^= 1
    for order in (range(0, 3 * SIZE, 7)[::-1], [0, 2 * SIZE, SIZE], [SIZE, 0, 2 * SIZE]):
        checked = CheckedBatches(region_of(content), described(len(content)))
        for start in order:
            checked.read(start, SIZE)
        if changed is None:
            checked.finish()
        else:
            with pytest.raises(DamagedSegment):
                checked.finish()


def test_two_threads_that_read_at_the_same_time_do_not_check_at_the_same_time() -> None:
    content = three_batches()
    checked = CheckedBatches(region_of(content), described(len(content)))
    first = checked._turn.pop()  # another thread checks
    assert checked.read(0, SIZE) == content[:SIZE]
    checked._turn.append(first)
    checked.read(SIZE, SIZE)
    assert checked._read_to == 0
    checked.finish()


def test_store_gets_nothing_from_behind_damage() -> None:
    content = three_batches()
    content[SIZE + 30] ^= 1
    checked = CheckedBatches(region_of(content), described(len(content)))
    assert [len(checked.read(start, SIZE)) for start in range(0, 3 * SIZE, SIZE)] == [SIZE, SIZE, 0]


def test_damaged_segment_is_stored_but_not_offered_and_is_reported(tmp_path: Path) -> None:
    """Local copies of what is not offered stay; the scrubber may repair it, and the next run copies it again."""
    config = LogConfig(segment_bytes=SIZE, remote_storage_enable=True, retention_ms=-1, index_interval_bytes=1)
    log = open_log(open_log_dir(tmp_path).folder("t-0"), config=config)
    for _ in range(3):
        log.append(memoryview(bytearray(batch(b"x" * 50))), leader_epoch=0, now_ms=0)
    log.flushes.now()
    with (tmp_path / "t-0" / f"{1:020}.log").open("r+b") as file:
        file.seek(-2, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-2, os.SEEK_END)
        file.write(bytes([byte ^ 1]))
    storage, found = MemoryRemoteStorage(), []
    leader = Leading(storage, log, 0, SeededEntropy("x"), lambda _, offset: found.append(offset))
    leader.run()
    view = leader.manager.view(KEY)
    assert view is not None
    assert [each.base_offset for each in view.manifest.readable] == [0]
    assert {*found} == {1}
    log.close()


def test_config_is_tiered_only_where_it_can_be() -> None:
    assert LogConfig(remote_storage_enable=True).tiered
    assert not LogConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact"})).tiered
