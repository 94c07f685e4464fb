"""Subscriptions and assignments of the classic consumer protocol, as far as the broker reads and writes them.

A classic group only looks at the topics (facts C6, E3). A consumer group with classic members reads what they own, and
makes their assignments.
"""

from collections.abc import Collection, Mapping
from struct import pack
from typing import NamedTuple

from ....ports.errors import ApiError
from ..record_fields import RecordReader, encode_text

CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose metadata have this form."""
_ASSIGNMENT_VERSION = 3
_NULL = b"\xff\xff\xff\xff"

NamedPartitions = Mapping[str, Collection[int]]


class EmbeddedSubscription(NamedTuple):
    """The topics of a member, and the partitions that it still reads while it joins (KIP-429)."""

    topics: tuple[str, ...]
    owned: dict[str, tuple[int, ...]]


class EmbeddedAssignment(NamedTuple):
    """The partitions of a member, and whether its assignor has added data of its own."""

    partitions: dict[str, tuple[int, ...]]
    has_user_data: bool


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a ConsumerProtocolSubscription of any version; None if it cannot be read."""
    reader = RecordReader(metadata)
    try:
        if reader.i16() < 0:
            return None
        return frozenset([reader.text() for _ in range(reader.count())])
    except ApiError:
        return None


def decode_subscription(metadata: bytes) -> EmbeddedSubscription:
    """Raises `ApiError` CORRUPT_MESSAGE."""
    reader = RecordReader(metadata)
    version = reader.i16()
    topics = reader.texts()
    reader.optional_data()
    owned = _partitions(reader) if version >= 1 and reader.has_more else {}
    return EmbeddedSubscription(topics, owned)


def decode_assignment(data: bytes) -> EmbeddedAssignment:
    """Empty bytes assign nothing. Raises `ApiError` CORRUPT_MESSAGE."""
    if not data:
        return EmbeddedAssignment({}, has_user_data=False)
    reader = RecordReader(data)
    reader.i16()
    partitions = _partitions(reader)
    return EmbeddedAssignment(partitions, has_user_data=reader.has_more and bool(reader.optional_data()))


def encode_assignment(partitions: NamedPartitions) -> bytes:
    """Return a ConsumerProtocolAssignment; its versions differ by the number only."""
    out = [pack(">hi", _ASSIGNMENT_VERSION, len(partitions))]
    for topic, numbers in sorted(partitions.items()):
        out += [encode_text(topic), pack(f">i{len(numbers)}i", len(numbers), *sorted(numbers))]
    return b"".join([*out, _NULL])


def _partitions(reader: RecordReader) -> dict[str, tuple[int, ...]]:
    return {reader.text(): reader.numbers() for _ in range(reader.count())}
