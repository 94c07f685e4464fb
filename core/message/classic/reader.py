"""Decoding of classic message sets: deep, through compressed wrappers, or shallow (facts A2)."""

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

from ....ports.errors import ApiError
from ....ports.types import Buffer
from ..codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ..message import CREATE_TIME, Message
from .entry import Opener, read_entry, read_header, read_inner_entry, read_plain_run

__all__ = ["SetDecoder", "ShallowMessage", "decode_set", "decode_shallow", "read_header", "shallow_messages"]


class ShallowMessage(NamedTuple):
    """An outer entry as stored. `offset` is the next fetch offset, after the entry."""

    value: bytes
    """Payload of a message, or with a codec a compressed message set."""
    codec_id: int = 0
    topic: str = ""
    partition: int = -1
    offset: int = -1


class SetDecoder:
    """Decoder of message sets of one partition that returns some messages at a time, to bound memory."""

    __slots__ = ("_bound_all", "_check_crc", "_codecs", "_max_bytes", "_opener", "_partition", "_topic")

    def __init__(
        self, codecs: Codecs, topic: str, partition: int, max_bytes: int, check_crc: bool, bound_all: bool = False
    ) -> None:
        """`max_bytes` bounds the decompressed size of one outer wrapper, or with `bound_all` of all wrappers."""
        self._codecs = codecs
        self._topic = topic
        self._partition = partition
        self._max_bytes = max_bytes
        self._check_crc = check_crc
        self._bound_all = bound_all
        self._opener: Opener | None = None

    def runs(self, data: bytes, from_offset: int) -> Iterator[list[Message]]:
        """Yield the messages in order, up to a fault. Raises the errors of `decode_set`."""
        position, size, check_crc = 0, len(data), self._check_crc
        while True:
            payloads, ends = read_plain_run(data, position, check_crc)
            if ends:
                position = ends[-1]
                yield self._messages(payloads, map(from_offset.__add__, ends) if from_offset else ends)
                if position == size:
                    return
            entry = read_entry(data, position, check_crc=check_crc)
            if entry is None:
                return
            payload = data[entry.payload_start : entry.end]
            if entry.codec_id:
                if self._opener is None or not self._bound_all:
                    self._opener = Opener(self._codecs, self._max_bytes)
                inner = self._inner_runs(payload, entry.codec_id, self._opener, 1)
                yield from self._in_wrapper(inner, from_offset + position, from_offset + entry.end)
            else:
                yield self._messages([payload], [from_offset + entry.end])
            position = entry.end

    def _messages(self, payloads: Iterable[bytes], offsets: Iterable[int]) -> list[Message]:
        new, topic, partition = tuple.__new__, self._topic, self._partition
        return [
            new(Message, (payload, None, (), None, topic, partition, offset, CREATE_TIME))
            for payload, offset in zip(payloads, offsets, strict=False)
        ]

    def _in_wrapper(self, runs: Iterator[list[bytes]], start: int, end: int) -> Iterator[list[Message]]:
        """Yield the messages of a wrapper: the offset is its start, and for the last message its end."""
        held: list[bytes] = []
        try:
            for payloads in runs:
                if held:
                    yield self._messages(held, repeat(start))
                held = payloads
        except ApiError:
            if held:
                yield self._messages(held, repeat(start))
            raise
        if held:
            yield self._messages(held, [*repeat(start, len(held) - 1), end])

    def _inner_runs(self, payload: bytes, codec_id: int, opener: Opener, depth: int) -> Iterator[list[bytes]]:
        inner = opener.open(payload, codec_id, depth)
        position = 0
        while True:
            payloads, ends = read_plain_run(inner, position, self._check_crc)
            if ends:
                yield payloads
                position = ends[-1]
            entry = read_inner_entry(inner, position, check_crc=self._check_crc)
            if entry is None:
                return
            content = inner[entry.payload_start : entry.end]
            if entry.codec_id:
                yield from self._inner_runs(content, entry.codec_id, opener, depth + 1)
            else:
                yield [content]
            position = entry.end


def decode_set(
    buf: Buffer,
    codecs: Codecs = NO_CODECS,
    *,
    topic: str = "",
    partition: int = -1,
    from_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
) -> list[Message]:
    """Decode the messages, also in wrappers, of a set that begins at byte `from_offset` of its log.

    `Message.offset` is the next fetch offset after the message; in a wrapper that is the start of the wrapper, except
    for its last message. A truncated message at the end and an empty wrapper are left out. Raises `ApiError`:
    INVALID_FETCH_SIZE for a truncated first message; CORRUPT_MESSAGE; UNSUPPORTED_COMPRESSION_TYPE; MESSAGE_TOO_LARGE
    when all wrappers decompress to more than `max_bytes`.
    """
    decoder = SetDecoder(codecs, topic, partition, max_bytes, check_crc, bound_all=True)
    runs = list(decoder.runs(bytes(buf), from_offset))
    return runs[0] if len(runs) == 1 else [message for run in runs for message in run]


def shallow_messages(
    buf: Buffer, *, topic: str = "", partition: int = -1, from_offset: int = 0, check_crc: bool = True
) -> Iterator[ShallowMessage]:
    """Yield the outer entries of a set up to a fault, without opening wrappers."""
    data, position = bytes(buf), 0
    while (entry := read_entry(data, position, check_crc=check_crc)) is not None:
        position = entry.end
        payload = data[entry.payload_start : position]
        yield ShallowMessage(payload, entry.codec_id, topic, partition, from_offset + position)


def decode_shallow(
    buf: Buffer, *, topic: str = "", partition: int = -1, from_offset: int = 0, check_crc: bool = True
) -> list[ShallowMessage]:
    """Return the outer entries without opening wrappers. Raises the errors of `decode_set` except MESSAGE_TOO_LARGE."""
    return list(shallow_messages(buf, topic=topic, partition=partition, from_offset=from_offset, check_crc=check_crc))
