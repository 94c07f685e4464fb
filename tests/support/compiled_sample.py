"""Digests of what the codecs and the accumulator make of random messages and of damaged bytes: a program, for two
installations.

The program prints one JSON object. Both generations, all kinds of messages, and batches with flipped bytes.
"""

import json
import random
from collections.abc import Callable
from hashlib import sha256
from itertools import chain

from barnabas import Message
from barnabas.core.client.producer.hashing import murmur2_partition
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.message.batch_header import check_batch, parse_header
from barnabas.core.message.batch_reader import decode_batch, decode_columns
from barnabas.core.message.batch_writer import append_records, encode_batch, encode_columns
from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.numbered_header import NumberedHeader
from barnabas.core.message.record_parser import parse_records
from barnabas.core.message.varint import COMPILED, encode_varint, read_raw, undo_zigzag
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition

SEEDS = 300
NOW_MS = 1_700_000_000_000
SIZES = (0, 1, 5, 63, 64, 65, 200, 2047, 2048, 8191, 8192, 20_000)
COUNTS = (1, 2, 3, 4, 5, 63, 64, 65, 130, 300)


def _bytes_or_none(chance: random.Random, null: float, sizes: tuple[int, ...] = SIZES) -> bytes | None:
    return None if chance.random() < null else chance.randbytes(chance.choice(sizes))


def _message(chance: random.Random, kind: int) -> Message:
    if kind == 0:
        return Message(chance.randbytes(chance.choice((64, 200))))
    headers: tuple[tuple[str, bytes | None], ...] = ()
    if kind > 1:
        names = ("", "a", "trace", "é" * 40)
        headers = tuple(
            (chance.choice(names), _bytes_or_none(chance, 0.2, (0, 8, 90))) for _ in range(chance.randint(0, 3))
        )
    key = _bytes_or_none(chance, 0.3, (0, 3, 70))
    timestamp = chance.choice((None, NOW_MS, NOW_MS + chance.randint(-90_000, 90_000), 0))
    return Message(_bytes_or_none(chance, 0.1), key, headers, timestamp)


def _outcome(work: Callable[[], object]) -> object:
    """Return the result, or the kind and text of the error."""
    try:
        return work()
    except (BarnabasError, IndexError, ValueError) as error:
        return type(error).__name__, str(error)


def _decoded(batch: bytes, from_offset: int) -> object:
    columns = decode_columns(batch, NO_CODECS, from_offset=from_offset, with_headers=True)
    parts = (
        columns.values,
        columns.keys,
        columns.headers,
        columns.offsets,
        columns.timestamps,
        columns.log_append_time,
    )
    return decode_batch(batch, NO_CODECS, topic="t", from_offset=from_offset), parts, columns.next_offset


def _batches(chance: random.Random, kind: int) -> list[object]:
    messages = [_message(chance, kind) for _ in range(chance.choice(COUNTS))]
    batch = bytes(encode_batch(messages, now_ms=NOW_MS, base_offset=chance.choice((0, 7, 2**40)), producer_id=kind))
    numbered = NumberedHeader("n", b"head", chance.randint(0, 2**40))
    values = [message.value for message in messages]
    made: list[object] = [batch, bytes(encode_columns(values, now_ms=NOW_MS, numbered=numbered))]
    base = parse_header(batch).base_offset
    made.append(_outcome(lambda: _decoded(batch, base + chance.randint(0, 3))))
    made.append(_outcome(lambda: check_batch(batch)))
    damaged = bytearray(batch)
    for _ in range(chance.randint(1, 3)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    made.append(_outcome(lambda: _decoded(bytes(damaged), 0)))
    made.append(_outcome(lambda: decode_batch(bytes(damaged), NO_CODECS, check_crc=False)))
    records, count = bytes(damaged[61:]), len(messages)
    made.append(_outcome(lambda: parse_records(records, 0, len(records), count, with_headers=True)))
    made.append(_outcome(lambda: parse_records(records, 0, max(0, len(records) - 3), count)))
    plain = [message.key for message in messages]
    made.append(append_records(values, plain, [b"\0"] * count, range(count)))
    return made


def _classic(chance: random.Random) -> list[object]:
    payloads = [chance.randbytes(chance.choice(SIZES)) for _ in range(chance.choice(COUNTS))]
    made = encode_set(payloads, magic=chance.choice((0, 1)))
    damaged = bytearray(made)
    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)

    def decode(data: bytes) -> object:
        return list(decode_set(data, NO_CODECS, topic="t", partition=1, from_offset=5))

    return [made, _outcome(lambda: decode(made)), _outcome(lambda: decode(bytes(damaged)))]


def _varints(chance: random.Random) -> list[object]:
    numbers = [0, -1, 63, 64, -65, 8191, 8192, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    numbers += [chance.getrandbits(chance.randint(1, 63)) * chance.choice((1, -1)) for _ in range(20)]
    fields = [encode_varint(number) for number in numbers]
    read = [_outcome(lambda field=field: read_raw(field, 0, chance.choice((5, 10)))) for field in fields]  # type: ignore[misc]
    return [fields, read, [undo_zigzag(abs(number)) for number in numbers]]


class _Clock:
    """A clock that moves by a millisecond with each look."""

    def __init__(self) -> None:
        self.now = NOW_MS

    def now_ms(self) -> int:
        self.now += 1
        return self.now

    def monotonic_ms(self) -> float:
        return float(self.now_ms())


def _accumulated(chance: random.Random, kind: int) -> list[object]:
    """Return batches that an accumulator fills with random messages, encoded, and the partitions of their keys."""
    ended: list[TopicPartition] = []
    settings = AccumulatorSettings(
        batch_size=chance.choice((200, 5_000, 262_144)), batch_messages=chance.choice((3, 1000))
    )
    accumulator = RecordAccumulator(settings, _Clock(), ended.append)
    made: list[object] = []
    for _ in range(chance.choice(COUNTS)):
        message = _message(chance, kind)
        key, size = message.key, message_bytes(message.value, message.key, message.headers)
        tp = TopicPartition("t", murmur2_partition(key, 3) if key is not None else chance.randrange(3))
        batch = accumulator.append(tp, (message.value, key, message.headers, message.timestamp_ms), size)
        if kind == 0:
            accumulator.begin_run(batch, settings.batch_size)
            made.append([accumulator.append_plain(batch, chance.randbytes(90)) for _ in range(3)])
        accumulator.begin_keyed_run(batch, settings.batch_size)
        made.append([accumulator.append_keyed(batch, chance.randbytes(9), chance.randbytes(50)) for _ in range(2)])
        made.append((batch.count, batch.bytes, accumulator.bytes, accumulator.messages))
    accumulator.hurry = 1
    while batches := accumulator.drain_ready(NOW_MS, lambda _: True)[0]:
        for batch in batches:
            made.append((batch.tp, bytes(batch.encode(None)), [batch.find(index)[1] for index in range(batch.count)]))
            if batch.count > 1 and chance.random() < 0.2:
                accumulator.split(batch)
                continue
            batch.base_offset = chance.randrange(1000)
            made.append([batch.delivery(index) for index in range(batch.count)])
            accumulator.complete_batch(batch)
    return [*made, ended, accumulator.bytes, accumulator.messages]


def sample_digests() -> dict[str, object]:
    """Return a digest of all results for each seed, and whether the modules are compiled."""
    found: dict[str, object] = {"compiled": COMPILED}
    for seed in range(SEEDS):
        chance = random.Random(seed)
        results = chain(_batches(chance, seed % 3), _classic(chance), _varints(chance), _accumulated(chance, seed % 3))
        found[str(seed)] = sha256("\n".join(map(repr, results)).encode()).hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(sample_digests()))
