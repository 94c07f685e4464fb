"""Batches of short keys and values are written at once, with the bytes of the general way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.message.batch_reader import decode_columns
from barnabas.core.message.batch_writer import _keyed_records, append_records, encode_columns
from barnabas.plugins.builtin.codecs import builtin_codecs

_sizes = st.sampled_from([0, 1, 62, 63, 64, 65, 200, 8000, 8111, 8112, 9000])
_keys = st.integers(0, 70).map(bytes)


def generally(values: list[bytes], keys: list[bytes]) -> bytes:
    return append_records(values, keys, [b"\0"] * len(values), [0] * len(values))


@given(st.lists(st.tuples(_sizes.map(bytes), _keys), min_size=1, max_size=5), st.sampled_from([1, 20, 40]))
def test_records_with_keys_are_those_of_the_general_way(messages: list[tuple[bytes, bytes]], times: int) -> None:
    values, keys = map(list, zip(*messages * times, strict=True))
    quick = _keyed_records(values, keys)
    assert quick is None or quick == generally(values, keys)


@pytest.mark.parametrize("value_size", [0, 63, 64, 200, 8000])
@pytest.mark.parametrize("count", [1, 64, 65, 300])
def test_keys_of_up_to_63_bytes_are_written_at_once(count: int, value_size: int) -> None:
    keys = [b"k" * (number % 64) for number in range(count)]
    values = [bytes(value_size)] * count
    assert _keyed_records(values, keys) == generally(values, keys)


def test_none_among_keys_or_values_is_written_the_general_way() -> None:
    for keys, values in (([b"a", None], [b"x", b"y"]), ([b"a", b"b"], [b"x", None])):
        read = decode_columns(encode_columns(values, keys=keys, now_ms=1), builtin_codecs())
        assert (read.keys, read.values) == (keys, values)
