"""The part of a range that clients without a codec can read: by the headers alone."""

import pytest
from support.messages import NOW_MS

from barnabas import Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.replica.leader.reader import bytes_without_codec
from barnabas.plugins.builtin.codecs import builtin_codecs

ZSTD = 4


def batch(codec: str | None = None, base_offset: int = 0) -> bytes:
    named = builtin_codecs().by_name(codec) if codec else None
    return bytes(encode_batch([Message(b"v" * 100)], now_ms=NOW_MS, codec=named, base_offset=base_offset))


PLAIN, GZIP, PACKED = batch(), batch("gzip"), batch("zstd")


@pytest.mark.parametrize(
    ("content", "size", "looked"),
    [
        (b"", 0, 0),
        (PLAIN, len(PLAIN), 1),
        (PLAIN + GZIP + PACKED + PLAIN, len(PLAIN + GZIP), 3),
        (PACKED + PLAIN, 0, 1),
        (PLAIN + GZIP[:50], len(PLAIN) + 50, 1),
        (PLAIN + GZIP[:80], len(PLAIN) + 80, 2),
    ],
)
def test_prefix_ends_before_the_first_batch_with_the_codec(content: bytes, size: int, looked: int) -> None:
    assert bytes_without_codec(content, ZSTD, headers_max=100) == (size, looked)
    assert bytes_without_codec(memoryview(content), ZSTD, headers_max=100) == (size, looked)


def test_prefix_without_codec_stops_at_header_limit() -> None:
    assert bytes_without_codec(PLAIN * 10, ZSTD, headers_max=4) == (4 * len(PLAIN), 4)
    assert bytes_without_codec(PLAIN * 4, ZSTD, headers_max=4) == (4 * len(PLAIN), 4)


@pytest.mark.parametrize("at", [8, 16])
def test_damage_ends_what_is_intact(at: int) -> None:
    damaged = bytearray(PLAIN)
    damaged[at] ^= 0x80
    assert bytes_without_codec(PLAIN + bytes(damaged) + PLAIN, ZSTD, headers_max=9) == (len(PLAIN), 2)
    assert bytes_without_codec(bytes(damaged) + PLAIN, ZSTD, headers_max=9) == (2 * len(PLAIN), 1)
