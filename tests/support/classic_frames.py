"""Classic messages and requests as raw bytes, written from the protocol's description alone (facts A1, A2)."""

import gzip
import struct
import zlib
from collections.abc import Iterable


def entry(payload: bytes, *, codec: int = 0, magic: int = 1) -> bytes:
    """Return one message with its size before it."""
    head = struct.pack(">BB", 1, codec) if magic == 1 else b"\0"
    body = head + struct.pack(">I", zlib.crc32(payload)) + payload
    return struct.pack(">i", len(body)) + body


def message_set(*payloads: bytes) -> bytes:
    return b"".join(entry(payload) for payload in payloads)


def gzip_wrapper(*payloads: bytes) -> bytes:
    """Return all payloads in one compressed message."""
    return entry(gzip.compress(message_set(*payloads), mtime=0), codec=1)


def payloads(records: bytes) -> list[bytes]:
    """Return the payloads of the whole magic-1 messages in a set, as they are stored."""
    found, at = [], 0
    while at + 4 <= len(records):
        size = int.from_bytes(records[at : at + 4], "big")
        if at + 4 + size > len(records):
            break
        found.append(records[at + 10 : at + 4 + size])
        at += 4 + size
    return found


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def request(number: int, body: bytes) -> bytes:
    return struct.pack(">ih", 2 + len(body), number) + body


def _produce_body(topic: str, records: bytes, partition: int) -> bytes:
    return text(topic) + struct.pack(">ii", partition, len(records)) + records


def _fetch_body(topic: str, offset: int, partition: int, max_bytes: int) -> bytes:
    return text(topic) + struct.pack(">iqi", partition, offset, max_bytes)


def produce(topic: str, records: bytes, partition: int = 0) -> bytes:
    return request(0, _produce_body(topic, records, partition))


def fetch(topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20) -> bytes:
    return request(1, _fetch_body(topic, offset, partition, max_bytes))


def multi_fetch(places: Iterable[tuple[str, int, int]], max_bytes: int = 1 << 20) -> bytes:
    """`places` are (topic, partition, offset)."""
    bodies = [_fetch_body(topic, offset, partition, max_bytes) for topic, partition, offset in places]
    return request(2, struct.pack(">h", len(bodies)) + b"".join(bodies))


def multi_produce(sets: Iterable[tuple[str, int, bytes]]) -> bytes:
    """`sets` are (topic, partition, records)."""
    bodies = [_produce_body(topic, records, partition) for topic, partition, records in sets]
    return request(3, struct.pack(">h", len(bodies)) + b"".join(bodies))


def offsets(topic: str, time_ms: int, max_offsets: int = 10, partition: int = 0) -> bytes:
    return request(4, text(topic) + struct.pack(">iqi", partition, time_ms, max_offsets))


def fetched(answer: bytes) -> tuple[int, bytes]:
    """(error code, records) of a Fetch answer without its size."""
    return struct.unpack(">h", answer[:2])[0], answer[2:]


def multi_fetched(answer: bytes) -> list[tuple[int, bytes]]:
    """Return error code and records of each block of a MultiFetch answer."""
    assert answer[:2] == b"\0\0"
    found, at = [], 2
    while at < len(answer):
        size, error = struct.unpack_from(">ih", answer, at)
        found.append((error, answer[at + 6 : at + 4 + size]))
        at += 4 + size
    return found


def offset_list(answer: bytes) -> tuple[int, list[int]]:
    """(error code, offsets) of an Offsets answer."""
    error, count = struct.unpack_from(">hi", answer)
    return error, list(struct.unpack(f">{count}q", answer[6:]))
