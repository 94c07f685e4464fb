"""The stamp of an audited message: its time, its producer's instance, and its sequence number.

It is a single header, since each costs a name: `barnabas-audit` = version (1 byte, 1), time (8 bytes, ms since 1970),
instance (UTF-8), sequence (8 bytes); numbers are big-endian. An instance is one producer from its start to its end; its
name begins with the server's. The sequence counts from 0, per instance and topic, without gaps.
"""

from struct import Struct
from typing import NamedTuple

HEADER = "barnabas-audit"
SEQUENCE_SIZE = 8
INSTANCE_BYTES_MAX = 200
MAGIC = b"\xfeaud"
"""Prefix of a value with a stamp in front; no UTF-8 text has it."""
_VERSION = 1
_HEAD = Struct(">Bq")


class Head(NamedTuple):
    """A stamp without its sequence, which the messages of a batch share."""

    instance: str
    time_ms: int


def encode_head(instance: str, time_ms: int) -> bytes:
    """Encode the header up to the sequence. Raises `ValueError` for a name that is too long."""
    name = instance.encode()
    if not 0 < len(name) <= INSTANCE_BYTES_MAX:
        raise ValueError(f"the name of an instance has 1 to {INSTANCE_BYTES_MAX} bytes, not {len(name)}: {instance!r}")
    return _HEAD.pack(_VERSION, time_ms) + name


def decode_head(head: bytes) -> Head | None:
    """Decode a head; return None for an invalid one, since anyone may add a header of that name."""
    if not _HEAD.size < len(head) <= _HEAD.size + INSTANCE_BYTES_MAX:
        return None
    version, time_ms = _HEAD.unpack_from(head)
    if version != _VERSION or not 0 <= time_ms < 2**53:
        return None
    try:
        return Head(head[_HEAD.size :].decode(), time_ms)
    except UnicodeDecodeError:
        return None


def enveloped(value: bytes | None) -> bytes | None:
    """Return the stamp in front of a value of the classic generation, sequence included; None without one."""
    if value is None or value[: len(MAGIC)] != MAGIC or len(value) <= len(MAGIC):
        return None
    start = len(MAGIC) + 1
    stamp = value[start : start + value[len(MAGIC)] + SEQUENCE_SIZE]
    whole = len(stamp) == value[len(MAGIC)] + SEQUENCE_SIZE
    return stamp if whole and decode_head(stamp[:-SEQUENCE_SIZE]) is not None else None
