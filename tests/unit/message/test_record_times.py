"""The first record at a time, as decoding the whole batch finds it."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.log.segment.segment_list import find_first_record
from barnabas.core.message.batch_header import set_max_timestamp, write_crc
from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()


@given(
    times=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    wanted=st.integers(0, 310),
    start=st.integers(0, 130),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    log_append_time=st.booleans(),
)
def test_time_lookup_equals_decoding(
    times: list[int], wanted: int, start: int, codec: str, log_append_time: bool
) -> None:
    messages = [Message(value=b"v" * time, key=b"k", timestamp_ms=time, headers=(("h", b""),)) for time in times]
    batch = encode_batch(messages, now_ms=0, codec=CODECS.by_name(codec), base_offset=100)
    if log_append_time:
        set_max_timestamp(batch, 200, log_append_time=True)
    decoded = decode_batch(bytes(batch), CODECS, from_offset=start)
    late = [(each.timestamp_ms, each.offset) for each in decoded if (each.timestamp_ms or 0) >= wanted]
    assert find_first_record(bytes(batch), wanted, CODECS, from_offset=start) == (late[0] if late else None)


def _cut_record(batch: bytearray) -> None:
    batch[61] = 0x7E


def _negative_record(batch: bytearray) -> None:
    batch[61] = 1


def _offset_beyond(batch: bytearray) -> None:
    batch[64] = 0x20


@pytest.mark.parametrize("spoil", [_cut_record, _negative_record, _offset_beyond])
def test_timestamp_lookup_in_malformed_record_raises_corrupt_message(spoil: Callable[[bytearray], None]) -> None:
    batch = encode_batch([Message(value=b"v", timestamp_ms=5)], now_ms=0)
    spoil(batch)
    write_crc(batch, 0, len(batch))
    with pytest.raises(ApiError) as raised:
        find_first_record(bytes(batch), 0, CODECS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_timestamp_lookup_with_wrong_crc_raises_corrupt_message() -> None:
    batch = encode_batch([Message(value=b"v", timestamp_ms=5)], now_ms=0)
    batch[-1] ^= 1
    with pytest.raises(ApiError) as raised:
        find_first_record(bytes(batch), 0, CODECS)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
