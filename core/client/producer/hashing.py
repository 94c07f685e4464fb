"""Hashes that clients in other languages use too, so that equal keys meet in the same partition."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import lru_cache, wraps
from struct import iter_unpack
from typing import TYPE_CHECKING

from ...message.varint import COMPILED

if TYPE_CHECKING:
    from mypy_extensions import i64

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
_SHORT_BYTES = 256


def _caches(hash_of: Callable[[bytes], int]) -> tuple[Callable[[bytes], int], Callable[[bytes], int]]:
    """Return the function with a cache of many results, for short keys, and with one of a few, for long keys: to bound
    the memory."""
    return lru_cache(maxsize=4096)(hash_of), lru_cache(maxsize=16)(hash_of)


def _remembered(hash_of: Callable[[bytes], int]) -> Callable[[bytes], int]:
    """Cache the last results."""
    of_short, of_long = _caches(hash_of)

    @wraps(hash_of)
    def remembered(key: bytes) -> int:
        return of_short(key) if len(key) <= _SHORT_BYTES else of_long(key)

    return remembered


def _murmur2_by_words(key: bytes) -> int:
    """Return `murmur2` of a key: the faster way in Python."""
    size = len(key)
    whole = size & ~3
    h = _SEED ^ size
    for (k,) in iter_unpack("<I", key[:whole]):
        k = (k * _M) & _MASK  # noqa: PLW2901
        k = ((k ^ (k >> 24)) * _M) & _MASK  # noqa: PLW2901
        h = ((h * _M) & _MASK) ^ k
    if whole < size:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


_murmur2_of_short, _murmur2_of_long = _caches(_murmur2_by_words)


def murmur2_by_bytes(key: bytes) -> int:
    """Return `murmur2` of a key: the faster way when compiled, where it takes less time than a look into a cache."""
    size, at = len(key), 0
    left: i64 = size
    m: i64 = 0x5BD1E995
    mask: i64 = 0xFFFFFFFF
    h: i64 = 0x9747B28C ^ left
    k: i64 = 0
    while left >= 4:
        k = key[at]
        k |= (key[at + 1] << 8) | (key[at + 2] << 16) | (key[at + 3] << 24)
        k = (k * m) & mask
        k = ((k ^ (k >> 24)) * m) & mask
        h = ((h * m) & mask) ^ k
        at += 4
        left -= 4
    if left:
        k = key[at]
        if left > 1:
            k |= key[at + 1] << 8
        if left > 2:
            k |= key[at + 2] << 16
        h = ((h ^ k) * m) & mask
    h = ((h ^ (h >> 13)) * m) & mask
    return h ^ (h >> 15)


def murmur2(key: bytes) -> int:
    """32-bit MurmurHash2 with the seed of Kafka's Java client, as an unsigned number (facts C6)."""
    if COMPILED:
        return murmur2_by_bytes(key)
    return _murmur2_of_short(key) if len(key) <= _SHORT_BYTES else _murmur2_of_long(key)


def murmur2_partition(key: bytes, partitions: int) -> int:
    """Return the partition of Java's default partitioner: the hash without its sign bit, modulo `partitions`."""
    if COMPILED:
        return (murmur2_by_bytes(key) & 0x7FFFFFFF) % partitions
    # As `murmur2`, without a call for it: there is one for each message that is sent with a key.
    hashed = _murmur2_of_short(key) if len(key) <= _SHORT_BYTES else _murmur2_of_long(key)
    return (hashed & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """Return the partition of librdkafka's `consistent`: CRC-32 (that of zlib) of the key, modulo `partitions`."""
    return zlib.crc32(key) % partitions


@_remembered
def java_string_hash(key: bytes) -> int:
    """Return Java's `String.hashCode` of the key as a signed number; a key that is not UTF-8 is read as Latin-1."""
    try:
        units = key.decode().encode("utf-16-be")
    except UnicodeDecodeError:
        units = key.decode("latin-1").encode("utf-16-be")
    h = 0
    for (unit,) in iter_unpack(">H", units):
        h = (31 * h + unit) & _MASK
    return h - 0x1_0000_0000 if h & 0x8000_0000 else h


def classic_partition(key: bytes, partitions: int) -> int:
    """Return the partition of the 0.7 producer for string keys (facts A6), but never a negative one.

    There `abs` stayed negative for one hash.
    """
    return abs(java_string_hash(key)) % partitions
