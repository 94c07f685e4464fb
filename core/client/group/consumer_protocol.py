"""The subscriptions and assignments that members and their leader exchange; opaque to the broker (facts E3).

Both begin with an i16 version. Newer versions only add fields at the end, so that the known fields can be read.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from struct import Struct, error, unpack_from

from attrs import field

from ....ports.types import TopicPartition
from ....ports.values import frozen

PROTOCOL_TYPE = "consumer"
"""The protocol type of consumer groups."""

SUBSCRIPTION_VERSION = 3
ASSIGNMENT_VERSION = 3

_I16 = Struct(">h")
_I32 = Struct(">i")
_TEXT_MAX = 2**15 - 1


def _size(data: bytes | None) -> str:
    return "None" if data is None else f"<{len(data)} bytes>"


@frozen(kw_only=True)
class Subscription:
    """A member's topics and its present partitions: ConsumerProtocolSubscription."""

    topics: Sequence[str]
    user_data: bytes | None = field(default=None, repr=_size)
    """The data of the assignor; see `Assignor.user_data`."""
    owned: Sequence[TopicPartition] = ()
    """The partitions that it continues to read while it joins (version 1; KIP-429)."""
    generation_id: int = -1
    """The generation in which it got its partitions (version 2; KIP-792)."""
    rack: str | None = None
    """Version 3."""
    group_instance_id: str | None = None
    """Not part of the bytes: the leader gets it in the response to its join."""


@frozen(kw_only=True)
class Assignment:
    """The partitions of a member: ConsumerProtocolAssignment."""

    partitions: Sequence[TopicPartition]
    user_data: bytes | None = field(default=None, repr=_size)


def encode_subscription(subscription: Subscription, version: int = SUBSCRIPTION_VERSION) -> bytes:
    """Return the bytes that members of every client read. Raises `ValueError` for a name that is too long."""
    out = bytearray(_I16.pack(version))
    out += _I32.pack(len(subscription.topics))
    for topic in subscription.topics:
        _put_text(out, topic)
    _put_bytes(out, subscription.user_data)
    if version >= 1:
        out += encode_partitions(subscription.owned)
    if version >= 2:
        out += _I32.pack(subscription.generation_id)
    if version >= 3:
        _put_text(out, subscription.rack)
    return bytes(out)


def decode_subscription(data: bytes) -> Subscription:
    """Decode a subscription. Raises `ValueError` for invalid bytes."""
    reader = ProtocolReader(data)
    version = reader.version()
    topics = reader.texts()
    user_data = reader.optional_bytes()
    owned: Sequence[TopicPartition] = ()
    generation_id, rack = -1, None
    if version >= 1 and reader.has_more:  # early members of version 1 and later left out what they had nothing for
        owned = reader.partitions()
    if version >= 2 and reader.has_more:
        generation_id = reader.i32()
    if version >= 3 and reader.has_more:
        rack = reader.optional_text()
    return Subscription(topics=topics, user_data=user_data, owned=owned, generation_id=generation_id, rack=rack)


def encode_assignment(assignment: Assignment, version: int = ASSIGNMENT_VERSION) -> bytes:
    """Return the bytes; the versions differ by number only. Raises `ValueError` for a name that is too long."""
    out = bytearray(_I16.pack(version))
    out += encode_partitions(assignment.partitions)
    _put_bytes(out, assignment.user_data)
    return bytes(out)


def decode_assignment(data: bytes) -> Assignment:
    """Decode an assignment. Raises `ValueError` for invalid bytes. Empty bytes, for a member that the leader did not
    know, assign nothing."""
    if not data:
        return Assignment(partitions=())
    reader = ProtocolReader(data)
    reader.version()
    partitions = reader.partitions()
    return Assignment(partitions=partitions, user_data=reader.optional_bytes() if reader.has_more else None)


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Return `[topic [partition]]`, topics and partitions in ascending order."""
    topics = [(topic, list(group)) for topic, group in groupby(sorted(partitions), attrgetter("topic"))]
    out = bytearray(_I32.pack(len(topics)))
    for topic, group in topics:
        _put_text(out, topic)
        out += _I32.pack(len(group))
        for tp in group:
            out += _I32.pack(tp.partition)
    return bytes(out)


class ProtocolReader:
    """Reads these bytes from their beginning; every method raises `ValueError` where they do not fit."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._pos = 0

    @property
    def has_more(self) -> bool:
        return self._pos < len(self._data)

    def version(self) -> int:
        version = self._read_int(_I16)
        if version < 0:
            raise ValueError(f"version {version}")
        return version

    def i32(self) -> int:
        return self._read_int(_I32)

    def texts(self) -> tuple[str, ...]:
        return tuple([self.text() for _ in range(self._count(2))])

    def text(self) -> str:
        text = self.optional_text()
        if text is None:
            raise ValueError("a name is null")
        return text

    def optional_text(self) -> str | None:
        size = self._read_int(_I16)
        return None if size < 0 else self._read_bytes(size).decode()  # UnicodeDecodeError is a ValueError

    def optional_bytes(self) -> bytes | None:
        size = self.i32()
        return None if size < 0 else self._read_bytes(size)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self._count(6)):
            topic = self.text()
            count = self._count(4)
            found += [
                TopicPartition(topic, number) for number in unpack_from(f">{count}i", self._read_bytes(4 * count))
            ]
        return tuple(found)

    def _count(self, item_size: int) -> int:
        """Return the number of items that follow; each takes at least `item_size` bytes."""
        count = self.i32()
        if not 0 <= count <= (len(self._data) - self._pos) // item_size:
            raise ValueError(
                f"an array of {count} elements cannot be in the remaining {len(self._data) - self._pos} bytes"
            )
        return count

    def _read_bytes(self, size: int) -> bytes:
        end = self._pos + size
        if end > len(self._data):
            raise ValueError(f"expected {size} bytes, found {len(self._data) - self._pos}")
        part = self._data[self._pos : end]
        self._pos = end
        return part

    def _read_int(self, form: Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._pos)
        except error:
            raise ValueError("the bytes end too soon") from None
        self._pos += form.size
        assert isinstance(value, int)
        return value


def _put_text(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _I16.pack(-1)
        return
    data = text.encode()
    if len(data) > _TEXT_MAX:
        raise ValueError(f"a name of {len(data)} bytes")
    out += _I16.pack(len(data))
    out += data


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    out += _I32.pack(-1 if data is None else len(data))
    out += data or b""
