"""`barnabas produce`: sends lines as messages."""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import groupby, islice
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from ...core.message.message import Headers, Message
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.report import counted
from ...ports.values import frozen
from ..clients.producer.producer import Producer
from .classic import ClusterChoice, find_cluster
from .escapes import separator, unescaped
from .options import (
    PATIENCE_MS,
    AnyBootstrap,
    BrokerList,
    ClientConfig,
    Coordination,
    EtcdConnect,
    Settings,
    ZkConnect,
    client_settings,
    progress,
)
from .reaching import check_reachable
from .times import parse_time_ms

if TYPE_CHECKING:
    from ..clients.shared.delivery import ManyHandle
    from ..clients.shared.protocols import AnyProducer

LINES_AT_ONCE = 5_000
LOOK_S, LOOKS_PER_LINE = 0.5, 20
"""The interval of looks for delayed messages, and the number of looks after which the reason is repeated."""


def register(app: typer.Typer) -> None:
    app.command("produce")(produce)


# The lines that `barnabas produce` reads, and the messages that it makes of them.

_CHUNK_BYTES = 65_536
_MESSAGE_BYTES_MAX = 1 << 30
"""Maximum size of a line, so that one without an end does not exhaust the memory."""


@frozen(kw_only=True)
class LineFormat:
    """The format of a line.

    delimiter:     ends a line.
    separator:     separates key and value; None: there are no keys. A line without it has no key.
    key:           the key of messages without one.
    headers:       of every message, before its own.
    timestamp_ms:  the timestamp of messages without one; None: now.
    as_json:       each line is an object as in the output of `consume --json`.
    empty_as_null: an empty value is a tombstone, an empty key none.
    """

    delimiter: bytes = b"\n"
    separator: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    as_json: bool = False
    empty_as_null: bool = False

    def message(self, line: bytes, number: int) -> Message:
        """Return the message of a line. Raises `BarnabasError` with the number of the line."""
        if self.as_json:
            return self._from_json(line, number)
        key, value = self.key, line
        if self.separator is not None:
            first, found, rest = line.partition(self.separator)
            if found:
                key, value = first, rest
        if self.empty_as_null:
            return Message(value or None, key or None, self.headers, self.timestamp_ms)
        return Message(value, key, self.headers, self.timestamp_ms)

    def _from_json(self, line: bytes, number: int) -> Message:
        try:
            found = json.loads(line)
            if not isinstance(found, dict) or "value" not in found:
                raise ValueError('an object with a "value" is expected')
            timestamp = found.get("timestamp")
            if timestamp is not None and (type(timestamp) is not int or timestamp < 0):
                timestamp = None if timestamp == -1 else _refused('"timestamp" must be milliseconds')
            key = _bytes(found.get("key"), "key")
            return Message(
                _bytes(found["value"], "value"),
                self.key if key is None else key,
                self.headers + _headers(found.get("headers") or []),
                self.timestamp_ms if timestamp is None else timestamp,
                partition=_partition(found.get("partition", -1)),
            )
        except ValueError as error:
            raise BarnabasError(f"line {number} is not in the format of `consume --json`: {error}") from error


def open_lines(file: Path | None) -> tuple[BinaryIO, int | None]:
    """Open standard input for None or `-`, or a file, decompressed if `.gz`; return its size too, if known."""
    if file is None or str(file) == "-":
        return sys.stdin.buffer, None
    if file.suffix == ".gz":
        return io.BufferedReader(gzip.open(file)), None
    return file.open("rb"), file.stat().st_size


def split_lines(source: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """Yield the lines without their delimiters as they arrive, and the text after the last one unless it is empty."""
    if delimiter == b"\n":
        for line in source:
            yield line[:-1] if line.endswith(b"\n") else line
        return
    read = getattr(source, "read1", source.read)
    rest = b""
    while chunk := read(_CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(delimiter)
        yield from lines
        if len(rest) > _MESSAGE_BYTES_MAX:
            raise BarnabasError(f"no {delimiter!r} within {_MESSAGE_BYTES_MAX} bytes: is that the delimiter?")
    if rest:
        yield rest


def parse_headers(texts: list[str] | None) -> Headers:
    """Parse headers: `["a=1", "b"]`; one without `=` has a null value. Raises `ConfigError`."""
    found = []
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not name:
            raise ConfigError(f"--header {text!r}: give NAME=VALUE")
        found.append((name, value.encode() if equals else None))
    return tuple(found)


def _refused(text: str) -> Any:
    raise ValueError(text)


def _bytes(found: Any, name: str) -> bytes | None:
    if found is None:
        return None
    if isinstance(found, str):
        return found.encode()
    if isinstance(found, dict) and set(found) == {"base64"} and isinstance(found["base64"], str):
        try:
            return base64.b64decode(found["base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f'"{name}" is not valid base64: {error}') from error
    raise ValueError(f'"{name}" must be text, null or {{"base64": "..."}}')


def _headers(found: Any) -> Headers:
    if not isinstance(found, list) or not all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], str) for each in found
    ):
        raise ValueError('"headers" must be [["name", "value"], ...]')
    return tuple((name, _bytes(value, "headers")) for name, value in found)


def _partition(found: Any) -> int:
    if type(found) is not int or found < -1:
        raise ValueError('"partition" must be a number')
    return found


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="File instead of standard input; .gz is decompressed."),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", help=r"Separator of key and value in a line; \t, \x1f."),
    ] = None,
    delimiter: Annotated[
        str, typer.Option("--delimiter", "-D", help=r"Separator of messages.", show_default=r"\n")
    ] = r"\n",
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of messages without one.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every message; may be repeated."),
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Timestamp of messages without one: 2026-01-31T12:00, -15m, @MILLISECONDS."),
    ] = None,
    empty_as_null: Annotated[
        bool, typer.Option("--empty-as-null", "-Z", help="An empty value is a tombstone (null), an empty key none.")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Each line is an object as `consume --json` writes it: key, value, headers, time."),
    ] = False,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With --json: use the partition of the object.")
    ] = False,
    compression: Annotated[str, typer.Option("--compression", "-z", help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str | None, typer.Option(help="all, 1 or 0.", show_default="all")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Partition of all messages.")] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="All lines in one transaction: readers see all or none."),
    ] = None,
    bootstrap: AnyBootstrap = None,
    broker_list: BrokerList = None,
    zk_connect: ZkConnect = None,
    etcd_connect: EtcdConnect = None,
    coordination: Coordination = None,
    config: ClientConfig = None,
    settings: Settings = None,
) -> None:
    """Send each line as a message; a line without the key separator has no key.

    Failed deliveries are reported, each kind of error once, and the command ends with 1. Classic brokers support gzip
    and snappy; they use a key only to choose the partition.
    """
    cluster = find_cluster(
        context,
        bootstrap,
        broker_list=broker_list,
        zk_connect=zk_connect,
        etcd_connect=etcd_connect,
        coordination=coordination,
    )
    if as_json and key_separator is not None:
        raise ConfigError("--key-separator: not allowed with --json, where the key is in the object")
    if keep_partitions and (not as_json or partition is not None):
        raise ConfigError("--keep-partitions needs --json, and excludes --partition")
    form = LineFormat(
        delimiter=separator(delimiter, "--delimiter") or b"\n",
        separator=separator(key_separator, "--key-separator"),
        key=None if key is None else unescaped(key, "--key"),
        headers=parse_headers(header),
        timestamp_ms=None if timestamp is None else parse_time_ms(timestamp, "--timestamp"),
        as_json=as_json,
        empty_as_null=empty_as_null,
    )
    given = client_settings(config, settings)
    if transactional_id is not None:
        given["transactional.id"] = transactional_id
    source, total = open_lines(file)
    with source, _producer(cluster, compression, acks, given) as producer:
        whole = producer.transaction() if "transactional.id" in given else nullcontext()
        outcomes = _Outcomes()
        with progress(f"to {topic}", total) as advance:
            with _DelayWatch(None if cluster.classic else producer), whole:
                taken = 0
                for batch, size in _batches(split_lines(source, form.delimiter), form):
                    for to, messages in groupby(batch, key=lambda message: message.partition):
                        named = to if keep_partitions and to >= 0 else partition
                        outcomes.add(producer.send_many(topic, list(messages), partition=named))
                    taken += size if total else len(batch)
                    advance(taken, label=f"to {topic}: {outcomes.delivered:,} delivered")
                _finish(producer)
            outcomes.wait_all()
            advance(taken, label=f"to {topic}: {outcomes.delivered:,} delivered")
        _report(topic, outcomes, producer.failed)


class _DelayWatch:
    """Says on standard error why messages are not delivered, while they are not: soon, and then from time to time.

    A thread of its own looks, since the command may wait for room, for the metadata of the topic, or for a commit.
    """

    def __init__(self, producer: AnyProducer | None) -> None:
        """None: a producer of classic brokers, which answer no produce request."""
        self._describe_delay = producer.describe_delay if isinstance(producer, Producer) else None
        self._is_over = Event()
        self._thread = Thread(target=self._watch, name="delivery delays", daemon=True)

    def __enter__(self) -> None:
        if self._describe_delay is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        assert self._describe_delay is not None
        delayed_looks, next_line = 0, 0
        while not self._is_over.wait(LOOK_S):
            delay = self._describe_delay()
            if not delay:
                if next_line:
                    typer.echo("barnabas: delivery continues", err=True)
                delayed_looks = next_line = 0
                continue
            if delayed_looks >= next_line and delayed_looks:  # not for a moment, as when a leader changes
                typer.echo(f"barnabas: {delay}", err=True)
                next_line = delayed_looks + LOOKS_PER_LINE
            delayed_looks += 1


def _batches(lines: Iterator[bytes], form: LineFormat) -> Iterator[tuple[list[Message], int]]:
    """Yield messages to send together, and their size in the source in bytes."""
    numbered = enumerate(lines, start=1)
    while chunk := list(islice(numbered, LINES_AT_ONCE)):
        size = sum(len(line) for _, line in chunk) + len(chunk) * len(form.delimiter)
        yield [form.message(line, number) for number, line in chunk], size


class _Outcomes:
    """The outcomes of the messages: the number sent, and each kind of failure with its count."""

    def __init__(self) -> None:
        self.sent = self.delivered = 0
        self.kinds: Counter[str] = Counter()
        self.first: dict[str, BarnabasError] = {}
        self._waiting: deque[ManyHandle] = deque()

    def add(self, handle: ManyHandle) -> None:
        self.sent += handle.count
        self._waiting.append(handle)
        while self._waiting and self._waiting[0].done:
            self._count_delivery(self._waiting.popleft())

    def wait_all(self) -> None:
        """Wait until all are done."""
        while self._waiting:
            self._count_delivery(self._waiting.popleft())

    def _count_delivery(self, handle: ManyHandle) -> None:
        try:
            handle.result()
            self.delivered += handle.count
        except BarnabasError:
            for outcome in handle.deliveries():
                if not isinstance(outcome, BarnabasError):
                    self.delivered += 1
                else:
                    kind = outcome.code.name if isinstance(outcome, ApiError) else type(outcome).__name__
                    self.kinds[kind] += 1
                    self.first.setdefault(kind, outcome)


def _report(topic: str, outcomes: _Outcomes, failed: int) -> None:
    typer.echo(f"{counted(outcomes.sent - failed, 'message')} to {topic}", err=True)
    if not failed:
        return
    for kind, count in outcomes.kinds.most_common():
        typer.echo(f"barnabas: {_not_delivered(count)}: {outcomes.first[kind]}", err=True)
    others = failed - outcomes.kinds.total()
    if others > 0:
        typer.echo(f"barnabas: {_not_delivered(others)}", err=True)
    raise typer.Exit(1)


def _not_delivered(count: int) -> str:
    return counted(count, "message was not delivered", "messages were not delivered")


def _producer(cluster: ClusterChoice, compression: str, acks: str | None, settings: dict[str, Any]) -> AnyProducer:
    if not cluster.classic:
        check_reachable(str(cluster.bootstrap))
        config = {"max.block.ms": PATIENCE_MS, "compression.type": compression, "acks": acks or "all", **settings}
        return Producer(cluster.bootstrap, config=config)
    if acks is not None:
        raise ConfigError("--acks: not supported by classic brokers, which do not answer a produce request")
    places: dict[str, Any] = dict(cluster.places)
    return Producer(cluster.bootstrap, config={"compression.codec": compression, **settings}, **places)


def _finish(producer: AnyProducer) -> None:
    """Wait for the answers; classic brokers send none, and are asked whether they have received everything."""
    from ..clients.classic.producer import ClassicProducer

    if isinstance(producer, ClassicProducer):
        producer.confirm(PATIENCE_MS / 1000)
    else:
        producer.flush()
