"""The quick reader of records with one header each agrees with the general one, about damaged records too."""

from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples

from barnabas.core.message.batch_header import HEADER_SIZE
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.message import Headers
from barnabas.core.message.numbered_header import NumberedHeader
from barnabas.core.message.record_parser import Records, parse_records, read_records
from barnabas.ports.errors import ApiError

heads = st.binary(max_size=70)
sizes = st.integers(0, 70) | st.integers(60, 130) | st.integers(0, 3000)


def generally(data: bytes, count: int, with_headers: bool) -> tuple[Records, int] | None:
    records = Records([], [], [], [], [])
    try:
        return records, read_records(data, 0, count, records, with_headers)
    except (ApiError, IndexError):
        return None


def check(data: bytes, count: int, with_headers: bool) -> None:
    wanted = generally(data, count, with_headers)
    try:
        found = parse_records(data, 0, len(data), count, with_headers=with_headers)
    except ApiError:
        assert wanted is None or wanted[1] != len(data)
    else:
        assert wanted == (found, len(data))


@given(
    st.lists(sizes, min_size=1, max_size=90),
    heads,
    st.sampled_from(["n", "barnabas-audit", "ü"]),
    st.booleans(),
    st.data(),
)
def test_stamped_records_are_read_as_generally(
    lengths: list[int], head: bytes, name: str, with_headers: bool, data: st.DataObject
) -> None:
    values = [bytes(length) for length in lengths]
    own: list[Headers] | None = None
    if data.draw(st.booleans()):  # somewhere another kind of record
        own = [()] * len(values)
        own[data.draw(st.integers(0, len(values) - 1))] = (("own", b"x"),)
    times = [5 + (n % 3) for n in range(len(values))] if data.draw(st.booleans()) else None
    batch = encode_columns(values, now_ms=5, headers=own, timestamps=times, numbered=NumberedHeader(name, head, 2**40))
    check(bytes(batch[HEADER_SIZE:]), len(values), with_headers)


@settings(max_examples=examples(300))
@given(st.lists(sizes, min_size=1, max_size=10), heads, st.booleans(), st.data())
def test_damaged_records_are_judged_as_generally(
    lengths: list[int], head: bytes, with_headers: bool, data: st.DataObject
) -> None:
    batch = encode_columns([bytes(n) for n in lengths], now_ms=5, numbered=NumberedHeader("n", head, 7))
    records = bytearray(batch[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(records[: data.draw(st.integers(1, len(records)))]), len(lengths), with_headers)
    check(bytes(records), len(lengths), with_headers)


def test_long_runs_go_beyond_one_byte_of_an_offset() -> None:
    for size in (10, 200):
        batch = encode_columns([bytes(size)] * 300, now_ms=5, numbered=NumberedHeader("barnabas-audit", bytes(30), 1))
        check(bytes(batch[HEADER_SIZE:]), 300, True)
