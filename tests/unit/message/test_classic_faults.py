"""Classic sets that are wrong: an `ApiError`, the messages before it, bounded memory; never another exception."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.long_tests import first_is_quick

from barnabas.core.message.classic.message_set import ClassicMessageSet
from barnabas.core.message.classic.reader import decode_set, decode_shallow
from barnabas.core.message.classic.validation import find_valid_prefix, validate_set
from barnabas.core.message.classic.writer import encode_set, encode_shallow
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import GzipCodec, SnappyCodec, builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
GZIP, SNAPPY = GzipCodec(), SnappyCodec()
LIMIT = 1_000_000
HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")
HELLO_MAGIC_0 = bytes.fromhex("0000000a003610a68668656c6c6f")
BAD_CRC = HELLO[:-1] + b"?"
WRAPPER = encode_set([b"one", b"two"], codec=GZIP)
NEGATIVE = pack(">i", -1) + bytes(20)


def wrap(inner: bytes) -> bytes:
    return encode_shallow(GZIP.compress(inner), GZIP.id)


def code_of(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        work()
    return caught.value.code


FAULTS = {
    "wrong CRC": (BAD_CRC, ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC of magic 0": (HELLO_MAGIC_0[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    "wrong CRC of a wrapper": (WRAPPER[:-1] + b"?", ErrorCode.CORRUPT_MESSAGE),
    "unknown magic": (HELLO[:4] + b"\x02" + HELLO[5:], ErrorCode.CORRUPT_MESSAGE),
    "negative magic": (HELLO[:4] + b"\xff" + HELLO[5:], ErrorCode.CORRUPT_MESSAGE),
    "magic 1 without room for a CRC": (pack(">ibI", 5, 1, 0), ErrorCode.CORRUPT_MESSAGE),
    "no room for a header": (pack(">i", 4) + bytes(4), ErrorCode.CORRUPT_MESSAGE),
    "no bytes": (pack(">i", 0), ErrorCode.CORRUPT_MESSAGE),
    "codec 3": (HELLO[:5] + b"\x03" + HELLO[6:], ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "negative size": (NEGATIVE, ErrorCode.INVALID_FETCH_SIZE),
}
DEEP_FAULTS = {
    "wrong CRC in a wrapper": (wrap(HELLO + BAD_CRC), ErrorCode.CORRUPT_MESSAGE),
    "first message in a wrapper is cut": (wrap(HELLO[:9]), ErrorCode.CORRUPT_MESSAGE),
    "negative size in a wrapper": (wrap(HELLO + NEGATIVE), ErrorCode.CORRUPT_MESSAGE),
    "codec 3 in a wrapper": (wrap(FAULTS["codec 3"][0]), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "not gzip": (encode_shallow(b"no gzip", 1), ErrorCode.CORRUPT_MESSAGE),
    "cut gzip": (encode_shallow(GZIP.compress(HELLO)[:-9], 1), ErrorCode.CORRUPT_MESSAGE),
    "not snappy": (encode_shallow(b"\x05no snappy", 2), ErrorCode.CORRUPT_MESSAGE),
}


@pytest.mark.parametrize(("entry", "code"), [*FAULTS.values(), *DEEP_FAULTS.values()], ids=[*FAULTS, *DEEP_FAULTS])
@pytest.mark.parametrize(
    "before", [b"", HELLO, HELLO + HELLO_MAGIC_0, WRAPPER], ids=["first", "plain", "old", "wrapper"]
)
def test_corrupt_entry_raises_after_preceding_messages_are_returned(
    before: bytes, entry: bytes, code: ErrorCode
) -> None:
    found: list[bytes | None] = []
    expected = [message.value for message in decode_set(before, CODECS)]
    assert code_of(lambda: decode_set(before + entry + HELLO, CODECS)) is code
    with pytest.raises(ApiError) as caught:
        for message in ClassicMessageSet(before + entry + HELLO, CODECS):
            found.append(message.value)
    assert caught.value.code is code
    assert found[: len(expected)] == expected
    checked = ErrorCode.CORRUPT_MESSAGE if code is ErrorCode.INVALID_FETCH_SIZE else code
    assert code_of(lambda: complete(validate_set(before + entry + HELLO, CODECS, max_message_bytes=LIMIT))) is checked


def test_messages_of_a_wrapper_before_a_fault_lead_back_to_its_start() -> None:
    found = []
    with suppress(ApiError):
        for message in ClassicMessageSet(HELLO + wrap(HELLO + HELLO + BAD_CRC), CODECS):
            found.append(message.offset)
    assert found == [15, 15, 15]


@pytest.mark.parametrize("entry", [entry for entry, _ in FAULTS.values()], ids=FAULTS)
def test_shallow_decode_raises_on_corrupt_entry(entry: bytes) -> None:
    code = next(code for known, code in FAULTS.values() if known == entry)
    assert code_of(lambda: decode_shallow(HELLO + entry)) is code


def test_a_message_larger_than_the_fetch_says_what_to_do() -> None:
    for records in (HELLO[:-1], HELLO[:4], pack(">i", 2**31 - 1) + bytes(100)):
        with pytest.raises(ApiError, match="raise the fetch size") as caught:
            decode_set(records)
        assert caught.value.code is ErrorCode.INVALID_FETCH_SIZE
    assert decode_set(HELLO[:3]) == []


def test_without_the_check_of_crcs_the_bytes_are_taken_as_they_are() -> None:
    records = BAD_CRC + HELLO_MAGIC_0[:-1] + b"?"
    assert [message.value for message in decode_set(records, check_crc=False)] == [b"hell?"] * 2
    assert [message.value for message in decode_shallow(records, check_crc=False)] == [b"hell?"] * 2


def test_unknown_codec_raises_unsupported_compression_type() -> None:
    assert code_of(lambda: decode_set(WRAPPER, NO_CODECS)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    checked = code_of(lambda: complete(validate_set(WRAPPER, NO_CODECS, max_message_bytes=LIMIT)))
    assert checked is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert [message.codec_id for message in decode_shallow(WRAPPER)] == [1]


def nested(depth: int) -> bytes:
    records = HELLO
    for _ in range(depth):
        records = wrap(records)
    return records


def test_wrappers_nest_three_deep_and_no_deeper() -> None:
    assert len(decode_set(nested(3), CODECS)) == 1
    assert complete(validate_set(nested(3), CODECS, max_message_bytes=LIMIT)).messages == 1
    for depth in (4, 50):
        assert code_of(lambda: decode_set(nested(depth), CODECS)) is ErrorCode.CORRUPT_MESSAGE  # noqa: B023  at once
        checked = code_of(lambda: complete(validate_set(nested(depth), CODECS, max_message_bytes=LIMIT)))  # noqa: B023  at once
        assert checked is ErrorCode.CORRUPT_MESSAGE


BOMBS = {
    "one": wrap(encode_set([bytes(8_000_000)])),
    "many beside each other": 8 * wrap(encode_set([bytes(500_000)])),
    "many in a wrapper": wrap(8 * wrap(encode_set([bytes(500_000)]))),
    "snappy": encode_shallow(SNAPPY.compress(encode_set([bytes(8_000_000)])), SNAPPY.id),
    "of messages without payload": 4 * wrap(100_000 * encode_set([b""])),  # by far the slowest
}


@pytest.mark.parametrize("records", first_is_quick(BOMBS.values(), 4), ids=BOMBS)
def test_a_bomb_is_an_error_and_memory_stays_bounded(records: bytes) -> None:
    bound = 2_000_000

    def check() -> object:
        return complete(validate_set(records, CODECS, max_message_bytes=LIMIT, max_bytes=bound))

    for work in (lambda: decode_set(records, CODECS, max_bytes=bound), check):
        with suppress(ApiError):
            work()  # libraries are imported at first use
        tracemalloc.start()
        try:
            assert code_of(work) is ErrorCode.MESSAGE_TOO_LARGE
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # Messages without payload are the worst case of a list: 10 bytes become a tuple of eight fields.
        assert peak < 30 * bound if work is not check else peak < 6 * bound


def test_a_set_is_iterated_a_wrapper_at_a_time() -> None:
    records = BOMBS["many beside each other"]
    assert sum(1 for _ in ClassicMessageSet(records, CODECS, max_bytes=1_000_000)) == 8


@given(st.binary(max_size=200))
def test_any_bytes_are_messages_or_a_protocol_error(records: bytes) -> None:
    _only_api_errors(records)


@given(
    st.lists(st.sampled_from((HELLO, HELLO_MAGIC_0, WRAPPER, encode_set([b"x" * 99], codec=SNAPPY))), min_size=1),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 40),
)
def test_damaged_sets_are_messages_or_a_protocol_error(
    entries: list[bytes], damages: list[tuple[int, int]], cut: int
) -> None:
    records = bytearray(b"".join(entries))
    for place, value in damages:
        records[place % len(records)] = value
    _only_api_errors(bytes(records[: max(0, len(records) - cut)]))


@given(st.binary(max_size=100), st.sampled_from((1, 2, 3)))
def test_any_bytes_in_a_wrapper_are_messages_or_a_protocol_error(content: bytes, codec_id: int) -> None:
    inner = encode_shallow(content, 0)[:5] + bytes([codec_id]) + encode_shallow(content, 0)[6:]
    _only_api_errors(inner)
    _only_api_errors(wrap(content))


def _only_api_errors(records: bytes) -> None:
    """All readers agree about the whole of a set, and none raises anything but `ApiError`."""
    found = None
    with suppress(ApiError):
        found = decode_set(records, CODECS)
    with suppress(ApiError):
        list(decode_shallow(memoryview(records)))
    lazily = ClassicMessageSet(bytearray(records), CODECS)
    assert 0 <= lazily.valid_bytes <= len(records)
    assert decode_set(records, CODECS, check_crc=False) is not None if found is not None else True
    if found is not None:
        assert list(lazily) == found
    checked = None
    with suppress(ApiError):
        checked = complete(validate_set(memoryview(records), CODECS, max_message_bytes=LIMIT))
    if checked is not None:
        assert found is not None
        assert (checked.valid_bytes, checked.messages) == (lazily.valid_bytes, len(found))
    prefix = find_valid_prefix(memoryview(records))
    assert prefix.bytes <= lazily.valid_bytes
    if checked is not None:
        assert (prefix.bytes, prefix.problem) == (checked.valid_bytes, None)
