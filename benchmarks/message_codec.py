"""Encoding and decoding record batches of 200-byte messages, against kio doing the same work."""

import io
import timeit
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from harness import MESSAGE_BYTES, Result
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i64

from barnabas import Message
from barnabas.core.message.batch_header import check_batch
from barnabas.core.message.batch_reader import decode_batch, decode_columns
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import NO_CODECS

NOW_MS = 1_700_000_000_000
BATCH_SIZES = (50, 1000)
SECONDS_PER_ROUND = 0.05
ROUNDS = 7


def _rate(work: Callable[[], object], messages: int) -> float:
    """Million messages per second: the best of some rounds, since other work on the machine only makes it slower."""
    once = max(min(timeit.repeat(work, number=1, repeat=3)), 1e-7)
    number = max(1, int(SECONDS_PER_ROUND / once))
    return messages * number / min(timeit.repeat(work, number=number, repeat=ROUNDS)) / 1e6


def _messages(count: int, *, general: bool) -> list[Message]:
    """Return values alone and one timestamp; or keys, and timestamps some milliseconds apart."""
    values = [(b"%d " % n).ljust(MESSAGE_BYTES, b"v") for n in range(count)]
    if not general:
        return [Message(value) for value in values]
    return [Message(value, b"key-%d" % n, (), NOW_MS + n // 10) for n, value in enumerate(values)]


def _kio_rates(count: int) -> tuple[float, float]:
    now = TZAwareMicros.parse(datetime.fromtimestamp(NOW_MS // 1000, UTC))
    records = tuple(
        Record(attributes=i8(0), timestamp=now, offset=i64(n), key=None, value=message.value, headers=())
        for n, message in enumerate(_messages(count, general=False))
    )
    batch = NewRecordBatch(
        producer_id=i64(-1), producer_epoch=i16(-1), base_sequence=i32(-1), attributes=i16(0), records=records
    )
    out = io.BytesIO()
    write_new_batch(out, batch)
    content = out.getvalue()
    return (
        _rate(lambda: write_new_batch(io.BytesIO(), batch), count),
        _rate(lambda: read_batch(content, 0), count),
    )


def _result(name: str, count: int, ours: float, theirs: float) -> Result:
    details = {"M msg/s": ours, "kio M msg/s": theirs}
    return Result(f"{name}, batches of {count}", ours / theirs, "x kio", details=details)


def measure() -> Iterable[Result]:
    for count in BATCH_SIZES:
        kio_encode, kio_decode = _kio_rates(count)
        for label, general in (("values only", False), ("keys and times", True)):
            messages = _messages(count, general=general)
            batch = bytes(encode_batch(messages, now_ms=NOW_MS))

            def encode(messages: list[Message] = messages) -> object:
                return encode_batch(messages, now_ms=NOW_MS)

            def decode(batch: bytes = batch) -> object:
                return decode_batch(batch, NO_CODECS)

            def columns(batch: bytes = batch) -> object:
                return decode_columns(batch, NO_CODECS)

            yield _result(f"encode, {label}", count, _rate(encode, count), kio_encode)
            yield _result(f"decode to messages, {label}", count, _rate(decode, count), kio_decode)
            yield _result(f"decode to columns, {label}", count, _rate(columns, count), kio_decode)
        checks = 1e6 * _rate(lambda batch=batch: check_batch(batch), 1)  # type: ignore[misc]  # bound in the loop
        yield Result(f"the broker's check of a batch of {count}", 1e6 / checks, "µs")


if __name__ == "__main__":
    for result in measure():
        rates = "  ".join(f"{name} {value:.2f}" for name, value in result.details.items())
        print(f"{result.name:<52} {result.ratio:8.2f} {result.unit:<6} {rates}")
