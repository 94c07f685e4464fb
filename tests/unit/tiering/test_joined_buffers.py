"""Buffers that follow each other, where a region is expected."""

from collections.abc import Sequence

import pytest

from barnabas.adapters.wire_kafka.wire import CompactWriter, Writer
from barnabas.ports.storage import JoinedBuffers, size_of
from barnabas.ports.transport import Piece

WHOLE = b"abcdefghij"


def content_of(pieces: Sequence[Piece]) -> bytes:
    return b"".join(each if isinstance(each, bytes | bytearray | memoryview) else each.read() for each in pieces)


def joined() -> JoinedBuffers:
    return JoinedBuffers([b"abc", memoryview(b"xdefx")[1:4], bytearray(), b"ghij"])


@pytest.mark.parametrize("start", range(12))
def test_joined_buffers_read_as_one(start: int) -> None:
    assert joined().read(start) == WHOLE[start:]
    for size in range(12):
        assert joined().read(start, size) == WHOLE[start : start + size]


def test_joined_buffers_have_no_descriptor() -> None:
    assert (joined().fileno(), joined().position, size_of(joined())) == (-1, 0, 10)


@pytest.mark.parametrize("kind", [Writer, CompactWriter])
def test_joined_buffers_go_to_the_transport_one_by_one(kind: type[Writer]) -> None:
    given, plain, whole = joined(), kind(), kind()
    plain.data(given)
    plain.count(0)
    pieces = plain.pieces()
    assert [each for each in pieces if any(each is part for part in given.parts)] == given.parts
    whole.data(WHOLE)
    whole.count(0)
    assert content_of(pieces) == content_of(whole.pieces())
