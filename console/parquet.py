"""Writes messages as a Parquet file, in a process of its own: Arrow would stay in the memory of the console.

`python -m barnabas.console.parquet` reads lists of messages from standard input, each after its length, and writes the
file to standard output, a row group for each list.
"""

from __future__ import annotations

import marshal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Any

from .. import BarnabasError
from ..app.extras import require
from .reading import FoundMessage

_LENGTH_BYTES = 8
_ERROR_CHARS = 1_000


def write_parquet(parts: Iterable[Sequence[FoundMessage]]) -> IO[bytes]:
    """Return a temporary file with the messages, at its beginning. Raises `BarnabasError`."""
    require("Parquet files", ("pyarrow",), "query")
    out = TemporaryFile()  # noqa: SIM115  the caller's
    command = [sys.executable, "-m", __name__]
    try:
        with (
            TemporaryFile() as errors,
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors) as process,
        ):
            assert process.stdin is not None
            try:
                for part in parts:
                    _send(process.stdin, part)
                process.stdin.close()
            except BrokenPipeError:  # its end says why
                with suppress(BrokenPipeError):
                    process.stdin.close()  # flushes what is left; the end of the block would raise that error
            except BaseException:
                process.kill()
                raise
            if process.wait() != 0:
                errors.seek(0)
                text = errors.read().decode("utf-8", "replace").strip()
                raise BarnabasError(f"the Parquet file was not written: {text[-_ERROR_CHARS:]}")
        out.seek(0)
    except BaseException:
        out.close()
        raise
    return out


def _send(stream: IO[bytes], part: Sequence[FoundMessage]) -> None:
    rows = [
        (
            message.topic,
            message.partition,
            message.offset,
            message.timestamp_ms,
            message.key,
            message.value,
            [(name, value) for name, value in message.headers],
        )
        for message in (each.message for each in part)
    ]
    data = marshal.dumps(rows)
    stream.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    stream.write(data)


def _parts(stream: IO[bytes]) -> Iterator[list[tuple[Any, ...]]]:
    while length := stream.read(_LENGTH_BYTES):
        yield marshal.loads(stream.read(int.from_bytes(length, "big")))


def main() -> None:
    """Convert standard input to standard output."""
    import pyarrow as pa
    from pyarrow import parquet

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
         ("timestamp", pa.timestamp("ms", "UTC")), ("key", pa.binary()), ("value", pa.binary()),
         ("headers", pa.list_(header))]
    )  # fmt: skip
    with parquet.ParquetWriter(sys.stdout.buffer, schema, compression="zstd") as writer:
        for rows in _parts(sys.stdin.buffer):
            if not rows:
                continue
            columns = dict(zip(schema.names, map(list, zip(*rows, strict=True)), strict=True))
            columns["headers"] = [
                [{"key": name, "value": value} for name, value in each] for each in columns["headers"]
            ]
            writer.write_table(pa.table(columns, schema))


if __name__ == "__main__":
    main()
