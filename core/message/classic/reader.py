"""From a classic message set to messages: deep, through compressed wrappers, or shallow (facts A2, iteration)."""

from collections.abc import Iterator
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.words import Buffer
from ..codec import DECOMPRESSED_BYTES_MAX, NO_CODECS, Codecs
from ..crc32 import crc32
from ..message import CREATE_TIME, Message
from .entry import CODEC_MASK, DEPTH_MAX, LENGTH, MAGIC_0, MAGIC_1, MESSAGE_BYTES_MIN, plain_run

_FIRST_BYTES: Final = MAGIC_1.size
_LEAST_BYTES: Final = MAGIC_0.size


class ShallowMessage(NamedTuple):
    """An outer entry as it is stored. `offset` is the one to fetch next, after the entry."""

    value: bytes
    """The payload: a message's, or with a codec a compressed message set."""
    codec_id: int = 0
    topic: str = ""
    partition: int = -1
    offset: int = -1


class Entry(NamedTuple):
    """Where an outer entry stands in its set; its CRC is right if it was checked."""

    start: int
    payload_start: int
    end: int
    codec_id: int


def corrupt(position: int, what: str) -> ApiError:
    return ApiError(ErrorCode.CORRUPT_MESSAGE, f"classic message at position {position}: {what}")


def walk(buf: bytes, *, check_crc: bool = True) -> Iterator[Entry]:
    """The whole entries of a set. A part of one at the end is left out.

    Raises `ApiError`: INVALID_FETCH_SIZE when not even the first message is whole, or a size is negative;
    CORRUPT_MESSAGE for a wrong CRC, an unknown magic, or a size that holds no message.
    """
    position, size = 0, len(buf)
    while size - position >= LENGTH.size:
        length = LENGTH.unpack_from(buf, position)[0]
        end = position + LENGTH.size + length
        if length < 0 or (end > size and not position):
            raise _wrong_size(position, length, size)
        if end > size:
            return
        payload_start, codec_id, crc = read_header(buf, position, length)
        if check_crc and crc32(buf[payload_start:end]) != crc:
            raise corrupt(position, "the CRC is wrong")
        yield Entry(position, payload_start, end, codec_id)
        position = end


def read_header(buf: Buffer, position: int, length: int) -> tuple[int, int, int]:
    """(where the payload begins, codec, CRC) of a whole entry. Raises `ApiError` CORRUPT_MESSAGE."""
    if length < MESSAGE_BYTES_MIN:
        raise corrupt(position, f"{length} bytes are too few for a message")
    magic = buf[position + 4]
    if magic == 1 and length > MESSAGE_BYTES_MIN:
        _, _, attributes, crc = MAGIC_1.unpack_from(buf, position)
        return position + _FIRST_BYTES, attributes & CODEC_MASK, crc
    if magic == 0:
        return position + _LEAST_BYTES, 0, MAGIC_0.unpack_from(buf, position)[2]
    raise corrupt(position, f"magic {magic} is not known, or too few bytes for it")


def _wrong_size(position: int, length: int, size: int) -> ApiError:
    if length < 0:
        return ApiError(ErrorCode.INVALID_FETCH_SIZE, f"the message at position {position} claims {length} bytes")
    text = f"one message of {length} bytes does not fit into the {size} bytes fetched; raise the fetch size"
    return ApiError(ErrorCode.INVALID_FETCH_SIZE, text)


class Decoded(NamedTuple):
    """The messages before the first fault, and the fault."""

    messages: list[Message]
    error: ApiError | None


def decode(
    buf: Buffer,
    codecs: Codecs = NO_CODECS,
    *,
    topic: str = "",
    partition: int = -1,
    from_offset: int = 0,
    max_bytes: int = DECOMPRESSED_BYTES_MAX,
    check_crc: bool = True,
) -> Decoded:
    """What `decode_set` gives, with the messages before a fault besides the fault."""
    data = bytes(buf)
    payloads, ends, wrong = plain_run(data, check_crc=check_crc)
    position = ends[-1] if ends else 0
    if wrong >= 0:
        del payloads[wrong:]
    offsets = map(from_offset.__add__, ends)
    fixed = (repeat(None), repeat(()), repeat(None), repeat(topic), repeat(partition))
    fields = zip(payloads, *fixed, offsets, repeat(CREATE_TIME), strict=False)
    messages: list[Message] = list(map(_make_message, fields))
    try:
        if wrong >= 0:
            raise corrupt(ends[wrong - 1] if wrong else 0, "the CRC is wrong")
        if position < len(data):
            rest = data[position:] if position else data
            _decode_rest(rest, codecs, messages, topic, partition, from_offset + position, max_bytes, check_crc)
    except ApiError as error:
        if position and error.code is ErrorCode.INVALID_FETCH_SIZE and not _claims_negative(data, position):
            return Decoded(messages, None)  # a part of a message after whole ones
        return Decoded(messages, error)
    return Decoded(messages, None)


_make_message = partial(tuple.__new__, Message)


def _claims_negative(data: bytes, position: int) -> bool:
    return bool(LENGTH.unpack_from(data, position)[0] < 0)


def _decode_rest(
    data: bytes,
    codecs: Codecs,
    messages: list[Message],
    topic: str,
    partition: int,
    base: int,
    max_bytes: int,
    check_crc: bool,
) -> None:
    """Any entries, one by one. Offsets inside a wrapper: its start, and for its last message its end."""
    for entry in walk(data, check_crc=check_crc):
        payload = data[entry.payload_start : entry.end]
        after = base + entry.end
        if not entry.codec_id:
            messages.append(Message(payload, topic=topic, partition=partition, offset=after))
            continue
        values = unwrap(payload, entry.codec_id, codecs, max_bytes=max_bytes, check_crc=check_crc)
        if not values:
            continue
        before = base + entry.start
        messages += [Message(value, topic=topic, partition=partition, offset=before) for value in values[:-1]]
        messages.append(Message(values[-1], topic=topic, partition=partition, offset=after))


def unwrap(
    payload: Buffer,
    codec_id: int,
    codecs: Codecs,
    *,
    max_bytes: int,
    check_crc: bool = True,
    whole: bool = False,
    depth: int = 1,
) -> list[bytes]:
    """The payloads in a wrapper, those of wrappers inside it among them; `whole`: a part of one at the end is a fault.

    Raises `ApiError`: UNSUPPORTED_COMPRESSION_TYPE, CORRUPT_MESSAGE, MESSAGE_TOO_LARGE above `max_bytes` all told.
    """
    if depth > DEPTH_MAX:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"wrappers stand in wrappers more than {DEPTH_MAX} deep")
    if codec_id == CODEC_MASK:
        raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "codec 3 is not known to classic messages")
    inner = codecs.by_id(codec_id).decompress(payload, max_bytes)
    left = max_bytes - len(inner)
    values: list[bytes] = []
    end = 0
    try:
        for entry in walk(inner, check_crc=check_crc):
            end = entry.end
            content = inner[entry.payload_start : end]
            if not entry.codec_id:
                values.append(content)
                continue
            more = unwrap(
                content,
                entry.codec_id,
                codecs,
                max_bytes=left,
                check_crc=check_crc,
                whole=whole,
                depth=depth + 1,
            )
            left -= sum(map(len, more))
            values += more
    except ApiError as error:
        if error.code is ErrorCode.INVALID_FETCH_SIZE:
            raise corrupt(end, "a wrapper holds a cut message") from error
        raise
    if whole and end < len(inner):
        raise corrupt(end, "a wrapper ends inside a message")
    return values


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
    """The messages of a set that begins at byte `from_offset` of its log, those in wrappers among them.

    `Message.offset` is the one to fetch next when the message is done with; inside a wrapper that is the wrapper's
    start, but for its last message. A part of a message at the end is left out. Raises `ApiError` as `walk` and
    `unwrap`; `max_bytes` bounds what one wrapper decompresses to.
    """
    found = decode(
        buf,
        codecs,
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        max_bytes=max_bytes,
        check_crc=check_crc,
    )
    if found.error is not None:
        raise found.error
    return found.messages


def decode_shallow(
    buf: Buffer, *, topic: str = "", partition: int = -1, from_offset: int = 0, check_crc: bool = True
) -> list[ShallowMessage]:
    """The outer entries, wrappers unopened. Raises `ApiError` as `walk`."""
    data = bytes(buf)
    return [
        ShallowMessage(data[e.payload_start : e.end], e.codec_id, topic, partition, from_offset + e.end)
        for e in walk(data, check_crc=check_crc)
    ]
