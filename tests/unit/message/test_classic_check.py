"""The validation of classic message sets by a broker and by the recovery of a log."""

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.message.classic.validation import ValidatedSet, ValidPrefix, find_valid_prefix, validate_set
from barnabas.core.message.classic.writer import encode_set, encode_shallow
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import GzipCodec, SnappyCodec, builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

CODECS = builtin_codecs()
GZIP = GzipCodec()
HELLO = encode_set([b"hello"])
HELLO_MAGIC_0 = encode_set([b"hello"], magic=0)
BAD_CRC = HELLO[:-1] + b"?"
WRAPPER = encode_set([b"one", b"two", b"three"], codec=GZIP)


def check(records: bytes, max_message_bytes: int = 1000) -> ValidatedSet:
    return complete(validate_set(memoryview(bytearray(records)), CODECS, max_message_bytes=max_message_bytes))


def refused(records: bytes, max_message_bytes: int = 1000) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(records, max_message_bytes)
    return caught.value


def test_messages_are_counted_through_wrappers() -> None:
    records = HELLO + WRAPPER + HELLO_MAGIC_0 + HELLO
    assert check(records) == ValidatedSet(len(records), 6)
    twice = encode_shallow(SnappyCodec().compress(WRAPPER + HELLO), 2)
    assert check(twice) == ValidatedSet(len(twice), 4)
    assert check(b"") == ValidatedSet(0, 0)


@pytest.mark.parametrize("cut", [1, 3, 4, 9, 14])
def test_a_part_of_a_message_at_the_end_is_cut_off(cut: int) -> None:
    assert check(HELLO + WRAPPER + HELLO[:cut]) == ValidatedSet(len(HELLO + WRAPPER), 4)


def test_a_set_without_one_whole_message_is_refused() -> None:
    assert refused(HELLO[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert check(HELLO[:3]) == ValidatedSet(0, 0)  # facts A2: fewer than four bytes are the end of a set


@pytest.mark.parametrize("magic", [0, 1])
def test_the_limit_is_of_payload_bytes(magic: int) -> None:
    assert check(encode_set([bytes(50), bytes(50)], magic=magic), 50).messages == 2
    error = refused(encode_set([bytes(50), bytes(51)], magic=magic), 50)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert "51 bytes" in error.message
    assert "allows 50" in error.message


def test_the_limit_is_of_the_wrapper_and_not_of_what_is_in_it() -> None:
    wrapper = encode_set([bytes(5000)] * 3, codec=GZIP)
    assert check(wrapper, len(wrapper) - 10).messages == 3
    assert refused(wrapper, len(wrapper) - 11).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("fault", [BAD_CRC, encode_shallow(b"no gzip", 1), HELLO[:5] + b"\3" + HELLO[6:]])
@pytest.mark.parametrize("magic", [0, 1])
def test_sizes_come_before_contents(fault: bytes, magic: int) -> None:
    """A broker that sees a message too large keeps the connection; one that sees a wrong CRC closes it."""
    too_large = encode_set([bytes(51)], magic=magic)
    assert refused(HELLO + fault + HELLO + too_large, 50).code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused(HELLO + fault + HELLO, 50).code is not ErrorCode.MESSAGE_TOO_LARGE


def test_a_wrapper_that_ends_inside_a_message_is_refused() -> None:
    """It would be stored, and its last message never seen again."""
    for cut in (1, 4, 9):
        assert refused(encode_shallow(GZIP.compress(HELLO + HELLO[:cut]), 1)).code is ErrorCode.CORRUPT_MESSAGE


def test_recovery_takes_wrappers_as_they_are() -> None:
    records = HELLO + encode_shallow(b"no gzip", 1) + HELLO_MAGIC_0
    assert find_valid_prefix(records) == ValidPrefix(len(records), None, 0)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (BAD_CRC, "CRC"),
        (HELLO_MAGIC_0[:-1] + b"?", "CRC"),
        (HELLO[:4] + b"\x07" + HELLO[5:], "magic 7"),
        (pack(">ib", 4, 0) + bytes(30), "4 bytes"),
        (bytes(100), "0 bytes"),
        (b"\xff" * 100, "-1 bytes"),
    ],
)
def test_recovery_names_a_bad_entry(entry: bytes, problem: str) -> None:
    for after in (b"", HELLO):
        found = find_valid_prefix(HELLO + WRAPPER + entry + after)
        assert found.bytes == len(HELLO + WRAPPER)
        assert found.problem is not None
        assert problem in found.problem


def test_recovery_reports_cut_entry_as_incomplete_not_corrupt() -> None:
    for cut in range(len(WRAPPER)):
        expected = 0 if cut < 4 else len(WRAPPER)
        assert find_valid_prefix(HELLO + WRAPPER[:cut]) == ValidPrefix(len(HELLO), None, expected)


@given(
    st.lists(st.sampled_from((HELLO, HELLO_MAGIC_0, WRAPPER, encode_set([bytes(70)]))), max_size=12),
    st.integers(4, 64),
    st.none() | st.integers(0, 2000),
)
def test_walking_in_pieces_ends_where_walking_at_once_ends(
    entries: list[bytes], chunk: int, damage: int | None
) -> None:
    records = bytearray(b"".join(entries))
    if damage is not None and records:
        records[damage % len(records)] ^= 0x41
    position, size = 0, chunk
    while True:
        found = find_valid_prefix(memoryview(records)[position : position + size])
        position += found.bytes
        last = position + size >= len(records)
        if found.problem is not None or (last and not found.bytes):
            break
        size = max(chunk, found.needs)
    assert position == find_valid_prefix(records).bytes


@given(st.lists(st.binary(max_size=80), max_size=30))
def test_written_message_set_passes_validation(payloads: list[bytes]) -> None:
    for magic in (0, 1):
        records = encode_set(payloads, magic=magic)
        assert complete(validate_set(records, NO_CODECS, max_message_bytes=80)) == ValidatedSet(
            len(records), len(payloads)
        )
