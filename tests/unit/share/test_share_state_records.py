"""The records of `__share_group_state`, byte by byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.coordinator.record_fields import UnknownVersion
from barnabas.core.coordinator.share.loading import ShareStateLoading
from barnabas.core.coordinator.share.records import (
    SNAPSHOT,
    UPDATE,
    ShareSnapshot,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    encode_update,
)
from barnabas.core.share.persister import SharePartitionKey
from barnabas.core.share.share_group_offset import ShareGroupOffset
from barnabas.ports.broker_api.share_state import StateBatch
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

TOPIC = bytes(range(16))
KEY = SharePartitionKey("g", TOPIC, 258)
STORED = ShareSnapshot(
    snapshot_epoch=1,
    offset=ShareGroupOffset(
        state_epoch=2,
        leader_epoch=3,
        start_offset=4,
        delivery_complete_count=7,
        state_batches=(StateBatch(5, 6, 2, 1),),
    ),
    created_ms=8,
    written_ms=9,
)
STORED_BYTES = bytes.fromhex(
    "0000"  # version 0
    "00000001 00000002 00000003 0000000000000004 0000000000000008 0000000000000009"
    "02 0000000000000005 0000000000000006 02 0001 00"
    "01 00 04 00000007"  # the delivery complete count is a tagged field
)
CHANGED = ShareUpdate(
    snapshot_epoch=1, leader_epoch=3, start_offset=-1, state_batches=(StateBatch(5, 6, 0, 1), StateBatch(9, 9, 4, 5))
)
CHANGED_BYTES = bytes.fromhex(
    "0000 00000001 00000003 ffffffffffffffff"
    "03 0000000000000005 0000000000000006 00 0001 00 0000000000000009 0000000000000009 04 0005 00"
    "00"
)

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
batches = st.lists(
    st.builds(StateBatch, longs, longs, st.integers(-128, 127), st.integers(-(2**15), 2**15 - 1)), max_size=5
).map(tuple)


def test_records_are_as_kafka_writes_them() -> None:
    key = b"\x00\x01g" + TOPIC + b"\x00\x00\x01\x02"
    assert encode_key(SNAPSHOT, KEY) == b"\x00\x00" + key
    assert encode_key(UPDATE, KEY) == b"\x00\x01" + key
    assert decode_key(b"\x00\x01" + key) == (UPDATE, KEY)
    assert (encode_snapshot(STORED), decode_snapshot(STORED_BYTES)) == (STORED_BYTES, STORED)
    assert (encode_update(CHANGED), decode_update(CHANGED_BYTES)) == (CHANGED_BYTES, CHANGED)


@given(ints, ints, ints, longs, ints, batches, longs)
def test_what_is_written_is_read(
    epoch: int, state: int, leader: int, start: int, complete: int, some: tuple[StateBatch, ...], time_ms: int
) -> None:
    offset = ShareGroupOffset(
        state_epoch=state,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=some,
    )
    snapshot = ShareSnapshot(snapshot_epoch=epoch, offset=offset, created_ms=time_ms, written_ms=start)
    assert decode_snapshot(encode_snapshot(snapshot)) == snapshot
    update = ShareUpdate(
        snapshot_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=complete,
        state_batches=some,
    )
    assert decode_update(encode_update(update)) == update


@given(st.binary(max_size=60))
def test_nonsense_is_refused(data: bytes) -> None:
    for decode in (decode_key, decode_snapshot, decode_update):
        try:
            decode(data)
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION)


def test_other_versions_are_named() -> None:
    with pytest.raises(UnknownVersion, match="a key of version 7"):
        decode_key(b"\x00\x07")
    with pytest.raises(UnknownVersion, match="a share snapshot of version 1"):
        decode_snapshot(b"\x00\x01" + STORED_BYTES[2:])
    with pytest.raises(ApiError, match="a delivery complete count of 2 bytes"):
        decode_update(CHANGED_BYTES[:-1] + b"\x01\x00\x02ab")


# --- loading


def test_updates_count_after_their_snapshot() -> None:
    loading = ShareStateLoading(3)
    loading.begin_batches(10)
    loading.add(encode_key(SNAPSHOT, KEY), STORED_BYTES)
    loading.begin_batches(20)
    loading.add(encode_key(UPDATE, KEY), CHANGED_BYTES)
    loading.add(encode_key(UPDATE, KEY), CHANGED_BYTES)
    (loaded,) = loading.stored.values()
    assert (loaded.updates, loaded.first_offset) == (2, 10)
    offset = loaded.snapshot.offset
    assert (offset.state_epoch, offset.start_offset, offset.delivery_complete_count) == (2, 4, -1)
    assert offset.state_batches == (StateBatch(5, 6, 2, 1), StateBatch(9, 9, 4, 5))
    loading.add(encode_key(SNAPSHOT, KEY), STORED_BYTES)
    (loaded,) = loading.stored.values()
    assert (loaded.updates, loaded.first_offset, loaded.snapshot) == (0, 20, STORED)
    loading.add(encode_key(SNAPSHOT, KEY), None)
    assert loading.stored == {}
    assert loading.report() is None


def test_an_update_without_snapshot_begins_a_state_as_in_kafka() -> None:
    loading = ShareStateLoading(3)
    loading.add(encode_key(UPDATE, KEY), CHANGED_BYTES)
    (loaded,) = loading.stored.values()
    assert (loaded.snapshot.offset.state_epoch, loaded.snapshot.offset.leader_epoch) == (0, 3)


def test_records_that_cannot_be_read_are_counted() -> None:
    loading = ShareStateLoading(3)
    loading.add(None, b"")
    loading.add(encode_key(SNAPSHOT, KEY), b"\x00\x09")
    loading.add(b"\x00\x09", b"")
    loading.add(encode_key(SNAPSHOT, KEY), STORED_BYTES)
    report = loading.report()
    assert report is not None
    assert "__share_group_state-3: 3 records were left out" in report
    assert len(loading.stored) == 1
