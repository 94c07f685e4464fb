"""Offsets of groups in remote storage."""

import pytest
from attrs import evolve

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.core.tiering.group_offsets import (
    CopiedOffsets,
    GroupOffset,
    decode_group_offsets,
    encode_group_offsets,
    group_offsets_key,
    newest_offsets,
    store_group_offsets,
)

KEY = group_offsets_key("cluster", 7)


def copied(offset: int, *, epoch: int = 1, at_ms: int = 5) -> CopiedOffsets:
    each = GroupOffset(group="g\u2603", topic="t", topic_id="0a", partition=3, offset=offset)
    return CopiedOffsets(partition=7, leader_epoch=epoch, copied_ms=at_ms, offsets=(each,))


def stored_in(storage: MemoryRemoteStorage) -> CopiedOffsets:
    return decode_group_offsets(storage.read(KEY).content)


def test_what_is_encoded_is_decoded() -> None:
    assert decode_group_offsets(encode_group_offsets(copied(4))) == copied(4)


@pytest.mark.parametrize("content", [b"", b"x", encode_group_offsets(copied(1))[:-3]])
def test_other_objects_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="offsets of groups"):
        decode_group_offsets(content)


def test_later_leader_replaces_and_an_earlier_one_does_not() -> None:
    storage = MemoryRemoteStorage()
    for each in (copied(1), copied(2), copied(3, epoch=2)):
        store_group_offsets(storage, KEY, each)
        assert stored_in(storage) == each
    store_group_offsets(storage, KEY, copied(4, epoch=1))
    assert stored_in(storage) == copied(3, epoch=2)


def test_damaged_object_is_replaced() -> None:
    storage = MemoryRemoteStorage()
    storage.put(KEY, b"damaged")
    store_group_offsets(storage, KEY, copied(1))
    assert stored_in(storage) == copied(1)


def test_newest_copy_of_a_group_counts() -> None:
    found = newest_offsets([copied(9, at_ms=6), copied(5), evolve(copied(8, at_ms=4), partition=2)])
    assert [each.offset for each in found] == [9]
