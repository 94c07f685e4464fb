"""Hashes that other clients know."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.client.producer.hashing import (
    classic_partition,
    crc32_partition,
    java_string_hash,
    murmur2,
    murmur2_by_bytes,
    murmur2_partition,
)


@pytest.mark.parametrize(
    ("key", "signed"),
    [  # from the tests of Kafka's Java client
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=300))
def test_murmur2_byte_by_byte_is_murmur2(key: bytes) -> None:
    assert murmur2_by_bytes(key) == murmur2(key)


def test_partitions_of_known_keys() -> None:
    assert murmur2_partition(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert crc32_partition(b"123456789", 1000) == 0xCBF43926 % 1000


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"", 0),
        (b"a", 97),
        (b"hello", 99162322),
        (b"polygenelubricants", -(2**31)),
        ("ä".encode(), 228),
        ("😀".encode(), 1772899),
        (b"\xff", 255),
    ],
)
def test_strings_hash_as_in_java(key: bytes, expected: int) -> None:
    assert java_string_hash(key) == expected


def test_the_classic_partition_is_never_negative() -> None:
    assert classic_partition(b"polygenelubricants", 3) == 2**31 % 3
    assert classic_partition(b"hello", 7) == 99162322 % 7
