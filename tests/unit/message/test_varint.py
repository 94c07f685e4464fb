"""Zig-zag varints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial.readers import read_signed_varlong

from barnabas.core.message.varint import LONG_BYTES_MAX, SMALL, encode_varint, read_raw, undo_zigzag
from barnabas.ports.errors import ApiError


@pytest.mark.parametrize(
    ("number", "encoding"), [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (64, "8001"), (-65, "8101")]
)
def test_varint_encodes_known_values(number: int, encoding: str) -> None:
    assert encode_varint(number).hex() == encoding


def test_the_table_has_the_small_numbers() -> None:
    assert [encode_varint(number) for number in range(len(SMALL))] == SMALL


@given(st.integers(-(2**63), 2**63 - 1))
def test_written_varint_is_read_by_us_and_by_kio(number: int) -> None:
    encoding = encode_varint(number)
    raw, end = read_raw(b"?" + encoding, 1, LONG_BYTES_MAX)
    assert (undo_zigzag(raw), end) == (number, 1 + len(encoding))
    assert read_signed_varlong(encoding, 0) == (number, len(encoding))


@pytest.mark.parametrize("encoding", ["808080808000", "ffffffff1f", "ffffffffff0f"])
def test_numbers_of_more_than_32_bits_are_refused(encoding: str) -> None:
    with pytest.raises(ApiError):
        read_raw(bytes.fromhex(encoding), 0)
