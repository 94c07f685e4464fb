"""A segment with damage is not copied."""

import pytest

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.message.batch_header import assign_offset
from barnabas.core.tiering.manifest import RemoteSegment
from barnabas.core.tiering.remote_log_manager import DamagedSegment, check_batches
from barnabas.ports.storage import Region
from barnabas.testing.logs import batch

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


def check(content: bytes | bytearray, *epochs: tuple[int, int]) -> None:
    remote = RemoteSegment(
        segment_id="s",
        base_offset=5,
        next_offset=8,
        size=len(content),
        max_timestamp=0,
        epochs=epochs or ((1, 5), (2, 7)),
        leader_epoch=2,
    )
    check_batches(region_of(content), remote)


def test_intact_segment_passes() -> None:
    check(three_batches())
    check(three_batches(), (1, 6), (2, 7))  # the log start was raised into the segment


@pytest.mark.parametrize("place", [0, 7, 12, 15, 17, 30, 57, 70])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_changed_byte_is_found(place: int, number: int) -> None:
    """Also in the offset and the leader epoch, which the CRC does not cover."""
    content = three_batches()
    content[number * SIZE + place] ^= 0x41
    with pytest.raises(DamagedSegment) as raised:
        check(content)
    assert raised.value.offset == 5 + number


@pytest.mark.parametrize("cut", [1, 20, SIZE - 1])
def test_cut_segment_is_found(cut: int) -> None:
    with pytest.raises(DamagedSegment):
        check(three_batches()[:-cut])


def test_config_is_tiered_only_where_it_can_be() -> None:
    assert LogConfig(remote_storage_enable=True).tiered
    assert not LogConfig(remote_storage_enable=True, cleanup_policy=frozenset({"compact"})).tiered
