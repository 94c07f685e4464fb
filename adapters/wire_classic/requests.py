"""The five requests as bytes (facts A1), read by the server and written by the client."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ...ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicOffsets,
    ClassicProduce,
    ClassicProducePartition,
)
from ...ports.broker_api.envelope import Request
from ...ports.errors import Malformed
from ...ports.transport import Piece
from .fields import (
    FETCH,
    FETCH_BYTES_MIN,
    FETCH_TAIL,
    I16,
    MULTI_FETCH,
    MULTI_PRODUCE,
    OFFSETS,
    PRODUCE,
    PRODUCE_BYTES_MIN,
    PRODUCE_TAIL,
    TWO_I16,
    pack_text,
    unpack_count,
    unpack_text,
)

PartT = TypeVar("PartT")
_BODY = I16.size


def read_request(content: memoryview) -> tuple[int, Request[Any]]:
    """Return the request id and the request. Message sets share the memory of the frame.

    Raises `Malformed`, or one of `DECODE_ERRORS`, for an unknown id and for bytes that are not exactly one request.
    """
    (request_id,) = I16.unpack_from(content)
    read = _READERS.get(request_id)
    if read is None:
        raise Malformed(f"request id {request_id} is not known, 0 to 4 are")
    request, end = read(content)
    if end != len(content):
        raise Malformed(f"{len(content) - end} bytes follow the end of the request")
    return request_id, request


def write_request(request: Request[Any]) -> list[Piece] | None:
    """Return the frame of a request; None for one that is not of this protocol. Raises one of `ENCODE_ERRORS`."""
    write = _WRITERS.get(type(request))
    return write(request) if write is not None else None


def _produce_part(content: memoryview, position: int) -> tuple[ClassicProducePartition, int]:
    topic, position = unpack_text(content, position)
    partition, size = PRODUCE_TAIL.unpack_from(content, position)
    start = position + PRODUCE_TAIL.size
    end = start + size
    if size < 0 or end > len(content):
        raise Malformed(f"a message set of {size} bytes is claimed, {len(content) - start} are there")
    return ClassicProducePartition(topic, partition, content[start:end]), end


def _fetch_part(content: memoryview, position: int) -> tuple[ClassicFetchPartition, int]:
    topic, position = unpack_text(content, position)
    partition, offset, max_bytes = FETCH_TAIL.unpack_from(content, position)
    return ClassicFetchPartition(topic, partition, offset, max_bytes), position + FETCH_TAIL.size


def _parts(
    content: memoryview, read: Callable[[memoryview, int], tuple[PartT, int]], bytes_min: int
) -> tuple[list[PartT], int]:
    parts, position = [], _BODY + I16.size
    for _ in range(unpack_count(content, _BODY, bytes_min)):
        part, position = read(content, position)
        parts.append(part)
    return parts, position


def _read_produce(content: memoryview) -> tuple[ClassicProduce, int]:
    part, end = _produce_part(content, _BODY)
    return ClassicProduce(partitions=(part,)), end


def _read_fetch(content: memoryview) -> tuple[ClassicFetch, int]:
    part, end = _fetch_part(content, _BODY)
    return ClassicFetch(partitions=(part,)), end


def _read_multi_fetch(content: memoryview) -> tuple[ClassicFetch, int]:
    parts, end = _parts(content, _fetch_part, FETCH_BYTES_MIN)
    return ClassicFetch(partitions=parts), end


def _read_multi_produce(content: memoryview) -> tuple[ClassicProduce, int]:
    parts, end = _parts(content, _produce_part, PRODUCE_BYTES_MIN)
    return ClassicProduce(partitions=parts), end


def _read_offsets(content: memoryview) -> tuple[ClassicOffsets, int]:
    topic, position = unpack_text(content, _BODY)
    partition, time_ms, max_offsets = FETCH_TAIL.unpack_from(content, position)
    request = ClassicOffsets(topic=topic, partition=partition, time_ms=time_ms, max_offsets=max_offsets)
    return request, position + FETCH_TAIL.size


def _head(one: int, several: int, parts: Sequence[object]) -> bytes:
    return I16.pack(one) if len(parts) == 1 else TWO_I16.pack(several, len(parts))


def _write_produce(request: ClassicProduce) -> list[Piece]:
    head, pieces = _head(PRODUCE, MULTI_PRODUCE, request.partitions), list[Piece]()
    for part in request.partitions:
        records = part.records
        pieces.append(head + pack_text(part.topic) + PRODUCE_TAIL.pack(part.partition, len(records)))
        # The caller may write to its writable memory once `submit` has returned.
        pieces.append(records if records.readonly else bytes(records))
        head = b""
    return pieces or [head]


def _write_fetch(request: ClassicFetch) -> list[Piece]:
    frame = bytearray(_head(FETCH, MULTI_FETCH, request.partitions))
    for part in request.partitions:
        frame += pack_text(part.topic)
        frame += FETCH_TAIL.pack(part.partition, part.offset, part.max_bytes)
    return [frame]


def _write_offsets(request: ClassicOffsets) -> list[Piece]:
    tail = FETCH_TAIL.pack(request.partition, request.time_ms, request.max_offsets)
    return [I16.pack(OFFSETS) + pack_text(request.topic) + tail]


_READERS: Mapping[int, Callable[[memoryview], tuple[Request[Any], int]]] = {
    PRODUCE: _read_produce,
    FETCH: _read_fetch,
    MULTI_FETCH: _read_multi_fetch,
    MULTI_PRODUCE: _read_multi_produce,
    OFFSETS: _read_offsets,
}
_WRITERS: Mapping[type, Callable[[Any], list[Piece]]] = {
    ClassicProduce: _write_produce,
    ClassicFetch: _write_fetch,
    ClassicOffsets: _write_offsets,
}
