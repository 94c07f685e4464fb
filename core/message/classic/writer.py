"""Encoding of payloads to a classic message set (facts A2)."""

from collections.abc import Sequence
from itertools import chain
from struct import Struct

from ....ports.types import Buffer
from ..codec import Codec
from ..crc32 import crc32
from .entry import CODEC_MASK, MAGIC_0, MAGIC_1, MAGIC_1_HEADER_BYTES, MESSAGE_BYTES_MIN

_CRC = Struct(">I")


class _Heads(dict[int, bytes]):
    """Cache of the first six bytes of a plain magic-1 entry by payload length."""

    _CACHED_MAX = 4096
    _HEAD = Struct(">ibB")

    def __missing__(self, length: int) -> bytes:
        head = self._HEAD.pack(length + MAGIC_1_HEADER_BYTES, 1, 0)
        if len(self) < self._CACHED_MAX:
            self[length] = head
        return head


_heads = _Heads()


def encode_set(payloads: Sequence[Buffer], *, codec: Codec | None = None, magic: int = 1) -> bytes:
    """Encode the messages in sequence, or with a codec as one compressed wrapper; no messages yield no bytes.

    Raises `ValueError` for a magic other than 0 and 1, and for a codec id that does not fit the two bits of the format.
    """
    if magic == 1:
        heads = map(_heads.__getitem__, map(len, payloads))
        plain = b"".join(chain.from_iterable(zip(heads, map(_CRC.pack, map(crc32, payloads)), payloads, strict=True)))
    elif magic == 0:
        pack = MAGIC_0.pack
        plain = b"".join([part for p in payloads for part in (pack(len(p) + MESSAGE_BYTES_MIN, 0, crc32(p)), p)])
    else:
        raise ValueError(f"a classic message has magic 0 or 1, not {magic}")
    if codec is None or not plain:
        return plain
    return encode_shallow(codec.compress(plain), codec.id)


def encode_shallow(payload: Buffer, codec_id: int) -> bytes:
    """Encode one entry around its payload: a message (codec 0) or a compressed message set.

    Raises `ValueError` for a codec id other than 0, 1 (gzip) and 2 (snappy).
    """
    if not 0 <= codec_id < CODEC_MASK:
        raise ValueError(f"classic messages are compressed with gzip (1) or snappy (2), not with codec {codec_id}")
    return MAGIC_1.pack(len(payload) + MAGIC_1_HEADER_BYTES, 1, codec_id, crc32(payload)) + bytes(payload)
