"""A header with a number for each message of a batch, laid out at once."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.message.batch_reader import decode_batch
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message import Headers
from barnabas.core.message.numbered_header import NumberedHeader

numbered_headers = st.builds(NumberedHeader, st.text(max_size=20), st.binary(max_size=40), st.integers(0, 2**63))
sizes = st.integers(0, 70) | st.integers(0, 9000)


@given(numbered_headers, st.lists(sizes, min_size=1, max_size=80), st.booleans())
def test_numbered_header_has_layout_of_other_headers(
    numbered: NumberedHeader, lengths: list[int], with_null: bool
) -> None:
    values = [bytes(length) for length in lengths] + ([None] if with_null else [])
    plain = encode_columns(values, now_ms=5, headers=numbered.headers(len(values)))
    assert encode_columns(values, now_ms=5, numbered=numbered) == plain


def test_numbered_header_follows_other_headers() -> None:
    own: list[Headers] = [(("a", b"1"),), (), (("b", None),)]
    batch = encode_columns([b"x", b"y", b"z"], now_ms=5, headers=own, numbered=NumberedHeader("n", b"%h", 7))
    read = [message.headers for message in decode_batch(bytes(batch), NO_CODECS)]
    assert read == [(*given, ("n", b"%h" + bytes(7) + bytes([7 + i]))) for i, given in enumerate(own)]
