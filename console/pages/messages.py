"""The messages of a topic: browsed, filtered, followed live, one by one, downloaded.

A filter is a text in key, header or value, a JSON path, or an SQL condition.
"""

from __future__ import annotations

import csv
import io
import json
import operator
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from threading import Timer
from typing import IO, Any

from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse

from ... import ApiError, BarnabasError, ConfigError, ErrorCode, Message, SimpleConsumer, TopicPartition
from ...app.extras import require
from ...ports.broker_api.metadata import TopicMetadata
from ...ports.values import frozen
from ..application import PageCall, PageRoute, render
from ..decoding import FORMS, Decoded, Decoders, plain_json
from ..parquet import write_parquet
from ..reading import FoundMessage, Matches, in_order_of_append, read_backward, read_forward, read_one, records_of
from ..rendering import zone_of
from .topics import describe

_PATH = re.compile(
    r"""\s*\$?\.?(?P<path>[^=!<>~]*?)\s*(?:(?P<sign>==?|!=|<=|>=|<|>|~)\s*(?P<value>.*?))?\s*""", re.DOTALL
)
_STEP = re.compile(r"""\.?([^.\[\]"']+)|\[(\d+|\*)\]|\[(?:"([^"]*)"|'([^']*)')\]""")
_SQL_S = 4.0
_SQL_MEMORY = "64MB"
_QUERY = """
SELECT number FROM (
  SELECT r.number AS number, r.topic AS topic, r.partition AS partition, r."offset" AS "offset",
    epoch_ms(r.ms) AS timestamp, r.key AS key, r.value AS value, r.headers AS headers
  FROM (SELECT unnest(from_json($1, '[{"number": "BIGINT", "topic": "VARCHAR", "partition": "INTEGER",
    "offset": "BIGINT", "ms": "BIGINT", "key": "VARCHAR", "value": "VARCHAR", "headers": "VARCHAR"}]')) AS r)
) AS messages WHERE (%s
)"""
"""The messages come as JSON: Arrow would need 60 MB of memory for its library."""
FIELDS = ("key", "header", "value", "path", "where")


@frozen(kw_only=True)
class MessageFilter:
    """The conditions on messages that a reader gave; all have to hold. Empty ones always hold."""

    key: str = ""
    header: str = ""
    value: str = ""
    path: str = ""
    """A JSON path, alone or compared: `$.user.name = Ann`, `items[0].price > 10`, `user ~ nn` (contains)."""
    where: str = ""
    """An SQL condition over topic, partition, offset, timestamp, key, value, headers (JSON)."""

    @property
    def given(self) -> Mapping[str, str]:
        return {name: value for name in FIELDS if (value := getattr(self, name))}

    def compiled(self, decoders: Decoders, form: str) -> Matches | None:
        """Return the function that says which messages match; None if all do. Raises `ConfigError`."""
        tests: list[Callable[[FoundMessage], bool]] = []
        if self.key:
            key = self.key.lower()
            tests.append(lambda each: key in decoders.key(each.message).text.lower())
        if self.header:
            tests.append(_header_test(self.header, decoders))
        if self.value:
            value = self.value.lower()
            tests.append(lambda each: value in decoders.value(each.message, form).text.lower())
        if self.path:
            test = path_test(self.path)
            tests.append(lambda each: test(decoders.value(each.message, form).plain))
        sql = SqlCondition(self.where, decoders, form) if self.where else None
        if not tests and sql is None:
            return None

        def matches(found: Sequence[FoundMessage]) -> Sequence[bool]:
            results = [not each.marker and all(test(each) for test in tests) for each in found]
            if sql is None or not any(results):
                return results
            chosen = [each for each, is_match in zip(found, results, strict=True) if is_match]
            answers = iter(sql.matches(chosen))
            return [is_match and next(answers) for is_match in results]

        return matches


def _header_test(wanted: str, decoders: Decoders) -> Callable[[FoundMessage], bool]:
    """Return a test for NAME, or NAME=TEXT that its value contains."""
    name, equals, text = wanted.partition("=")
    name, text = name.strip().lower(), text.strip().lower()

    def test(found: FoundMessage) -> bool:
        for own, value in found.message.headers:
            shown = decoders.header(value).text.lower()
            if (own.lower() == name and text in shown) if equals else (name in own.lower() or name in shown):
                return True
        return False

    return test


def path_test(text: str) -> Callable[[Any], bool]:
    """Return the test of a JSON path, perhaps compared with a value. Raises `ConfigError`."""
    found = _PATH.fullmatch(text)
    path = found["path"] if found else ""
    if found is None or (not path and "$" not in text):
        raise ConfigError(f"JSON path {text[:80]!r}: write it as in $.user.name = Ann")
    steps: list[str | int] = []
    position = 0
    while position < len(path):
        step = _STEP.match(path, position)
        if step is None:
            raise ConfigError(f"JSON path {text[:80]!r}: not understood at {path[position:][:20]!r}")
        name, index = step[1], step[2]
        steps.append((int(index) if index.isdigit() else index) if index else (name or step[3] or step[4] or ""))
        position = step.end()
    sign, wanted = found["sign"], found["value"]
    if sign is None:
        return lambda value: any(True for _ in _values(value, steps))
    compare = _comparison(sign, wanted or "")
    return lambda value: any(compare(each) for each in _values(value, steps))


def _values(value: Any, steps: Sequence[str | int]) -> Any:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step == "*":
        children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        for each in children:
            yield from _values(each, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and step < len(value):
            yield from _values(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from _values(value[step], rest)


def _comparison(sign: str, wanted: str) -> Callable[[Any], bool]:
    try:
        constant: Any = json.loads(wanted)
    except ValueError:
        constant = wanted.strip("'")
    if sign == "~":
        part = str(constant).lower()
        return lambda value: (
            part in (value if isinstance(value, str) else json.dumps(value, default=plain_json)).lower()
        )
    compare = {"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<": operator.lt, ">": operator.gt,
               "<=": operator.le, ">=": operator.ge}[sign]  # fmt: skip

    def test(value: Any) -> bool:
        try:
            return bool(compare(value, constant) or (sign in ("=", "==") and str(value) == wanted))
        except TypeError:
            return False

    return test


class SqlCondition:
    """An SQL condition, evaluated by DuckDB over the messages of one read, without access to files and network."""

    def __init__(self, condition: str, decoders: Decoders, form: str) -> None:
        """Raises `ConfigError` for a condition that DuckDB refuses, and without DuckDB."""
        require("SQL conditions", ("duckdb",), "query")
        import duckdb

        self._decoders = decoders
        self._form = form
        self._condition = condition
        self._error = duckdb.Error
        self._database = duckdb.connect(
            config={
                "enable_external_access": "false",
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                "python_enable_replacements": "false",
                "memory_limit": _SQL_MEMORY,
                "threads": "1",
            }
        )
        self._database.execute("SET lock_configuration = true")
        self.matches(())

    def matches(self, found: Sequence[FoundMessage]) -> list[bool]:
        """Return True for each message for which the condition holds. Raises `ConfigError`."""
        rows = [
            {
                "number": number,
                "topic": each.message.topic,
                "partition": each.message.partition,
                "offset": each.message.offset,
                "ms": each.message.timestamp_ms,
                "key": _text(self._decoders.key(each.message)),
                "value": _text(self._decoders.value(each.message, self._form)),
                "headers": json.dumps(
                    {name: _text(self._decoders.header(value)) for name, value in each.message.headers}
                ),
            }
            for number, each in enumerate(found)
        ]
        stop = Timer(_SQL_S, self._database.interrupt)
        stop.daemon = True
        stop.start()
        try:
            answer = self._database.execute(_QUERY % self._condition, [json.dumps(rows)]).fetchall()
        except self._error as error:
            raise ConfigError(f"SQL condition: {str(error).splitlines()[0][:300]}") from None
        finally:
            stop.cancel()
        chosen = {row[0] for row in answer}
        return [number in chosen for number in range(len(rows))]


def _text(decoded: Decoded) -> str | None:
    """Return the text for DuckDB, which refuses lone surrogates."""
    return None if decoded.kind == "null" else decoded.text.encode("utf-8", "replace").decode()


NEWEST, OLDEST, OFFSET, TIME = "newest", "oldest", "offset", "time"
LIMITS = (25, 50, 100, 200, 500)
PARTITIONS_MAX = 500
"""The partitions of a topic that one page reads."""
SHOWN_CHARS = 200_000
"""The characters of a value on its own page; all of it can be downloaded."""
LIVE_WAIT_MS = 100
LIVE_ROWS = 25
"""The messages of a round of the live tail that are shown; of more, the newest."""
_READY = "event: ready\ndata: {}\n\n"
LIVE_MAX = 32
"""The live tails of a console at one time."""
LIVE_S = 3600.0
DOWNLOAD_MAX = 100_000
_PIECE_BYTES = 256 * 1024
_PART = 20_000
"""The messages of a download that are in memory at one time, or fewer large ones."""
_LIVE_PARTITIONS_MAX = 100
_AGES = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_limiter: list[CapacityLimiter] = []


@frozen(kw_only=True)
class MessageQuery:
    """The choice of messages that the address of a page says."""

    start: str
    offset: int
    time_text: str
    time_ms: int
    partition: int | None
    limit: int
    form: str
    control: bool
    filter: MessageFilter
    at: Mapping[int, int] | None
    """The positions where an earlier page ended."""

    @property
    def is_backward(self) -> bool:
        return self.start == NEWEST


def query_of(call: PageCall) -> MessageQuery:
    """Parse the address. Raises `ConfigError` for a time or an offset that is none."""
    start = call.query("from", NEWEST)
    start = start if start in (NEWEST, OLDEST, OFFSET, TIME) else NEWEST
    zone = zone_of(call.request.cookies.get("zone", "")) or UTC
    partition, form, limit = call.query("partition"), call.query("as", "auto"), call.number("limit", 50)
    offset = call.query("offset").replace(",", "").strip()
    if start == OFFSET and not offset.isdigit():
        raise ConfigError(f"offset: {offset[:40]!r} is not a whole number")
    return MessageQuery(
        start=start,
        offset=int(offset) if offset.isdigit() else 0,
        time_text=call.query("time"),
        time_ms=parse_time(call.query("time"), zone) if start == TIME else 0,
        partition=int(partition) if partition.isascii() and partition.isdigit() else None,
        limit=min(max(limit, 1), LIMITS[-1]),
        form=form if form in FORMS else "auto",
        control=call.query("control") == "1",
        filter=MessageFilter(**{name: call.query(name).strip() for name in FIELDS}),
        at=_positions(call.query("at")),
    )


def parse_time(text: str, zone: tzinfo) -> int:
    """Return a time in ms: of 2026-01-31T12:00 in the reader's zone, milliseconds, or an age such as 2h. Raises
    `ConfigError`."""
    given = text.strip()
    age = re.fullmatch(r"(\d+)\s*([smhdw])", given)
    if age:
        return time.time_ns() // 1_000_000 - int(age[1]) * _AGES[age[2]] * 1000
    if re.fullmatch(r"\d{9,15}", given):
        return int(given)
    try:
        moment = datetime.fromisoformat(given)
    except ValueError:
        raise ConfigError(f"time {given[:40]!r}: write 2026-01-31T12:00, an age such as 2h, or milliseconds") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)


def _positions(text: str) -> Mapping[int, int] | None:
    pairs = re.findall(r"(\d{1,9})-(\d{1,18})", text[:20_000])
    return {int(partition): int(offset) for partition, offset in pairs} or None


@frozen(kw_only=True)
class TopicRange:
    """The partitions of a topic that a page reads, with their first and end offsets, and those it cannot read."""

    starts: Mapping[int, int]
    ends: Mapping[int, int]
    unreadable: Sequence[int]


def range_of(call: PageCall, topic: TopicMetadata, partition: int | None, most: int = PARTITIONS_MAX) -> TopicRange:
    """Return the offsets of the topic's partitions, or of one. Raises `BarnabasError`."""
    name = topic.name or ""
    wanted = [each for each in topic.partitions if partition is None or each.partition == partition]
    if partition is not None and not wanted:
        raise HTTPException(404, f"Topic {name} has no partition {partition}.")
    wanted = sorted(wanted, key=lambda each: each.partition)[:most]
    topic_partitions = [TopicPartition(name, each.partition) for each in wanted if each.leader >= 0]
    admin = call.connection.admin
    starts = admin.list_offsets(dict.fromkeys(topic_partitions, "earliest"), skip_errors=True)
    ends = admin.list_offsets(dict.fromkeys(topic_partitions, "latest"), skip_errors=True)
    known = [tp for tp in topic_partitions if tp in starts and tp in ends]
    return TopicRange(
        starts={tp.partition: starts[tp] for tp in known},
        ends={tp.partition: ends[tp] for tp in known},
        unreadable=[each.partition for each in wanted if TopicPartition(name, each.partition) not in known],
    )


def browse(call: PageCall) -> Response:
    """Show messages: the newest, or those from the beginning, an offset or a time on."""
    topic = describe(call)
    problem, found, rows, query = "", None, [], None
    span = TopicRange(starts={}, ends={}, unreadable=())
    try:
        query = query_of(call)
        span = range_of(call, topic, query.partition)
        matches = query.filter.compiled(call.console.decoders, query.form)
        consumer = call.connection.consumer
        if query.is_backward:
            before = _within(query.at or span.ends, span, span.ends)
            found = read_backward(
                consumer, topic.name or "", before, span.starts, query.limit, matches, control=query.control
            )
        else:
            positions = _within(query.at or _begin(call, topic, query, span), span, span.starts)
            found = read_forward(
                consumer, topic.name or "", positions, span.ends, query.limit, matches, control=query.control
            )
        rows = [row_of(each, call.console.decoders, query.form) for each in found.messages]
    except ConfigError as error:
        problem = str(error)
    following = None
    if found is not None and not found.is_complete:
        following = call.url(at="_".join(f"{partition}-{offset}" for partition, offset in found.positions.items()))
    live = "/".join(("/topics", call.path("topic"), "messages", "live")) + "?" + str(call.request.url.query)
    return call.page(
        "topic_messages.html.j2",
        400 if problem else 200,
        topic=topic,
        tab="messages",
        query=query,
        found=found,
        rows=rows,
        span=span,
        following=following,
        problem=problem,
        live=live,
        forms=FORMS,
        limits=LIMITS,
        fields={name: call.query(name) for name in FIELDS},
        raw={name: call.query(name) for name in ("from", "offset", "time", "partition", "as", "limit")},
        count=sum(span.ends.values()) - sum(span.starts.values()),
    )


def _within(positions: Mapping[int, int], span: TopicRange, otherwise: Mapping[int, int]) -> dict[int, int]:
    """Return positions inside of the log for all partitions of the span."""
    return {
        partition: min(max(positions.get(partition, otherwise[partition]), span.starts[partition]), end)
        for partition, end in span.ends.items()
    }


def _begin(call: PageCall, topic: TopicMetadata, query: MessageQuery, span: TopicRange) -> Mapping[int, int]:
    if query.start == OFFSET:
        return dict.fromkeys(span.ends, query.offset)
    if query.start == OLDEST:
        return span.starts
    places: dict[Any, int | str] = {
        TopicPartition(topic.name or "", partition): query.time_ms for partition in span.ends
    }
    found = call.connection.admin.list_offsets(places, skip_errors=True)
    return {tp.partition: found[tp] if found.get(tp, -1) >= 0 else span.ends[tp.partition] for tp in places}


def row_of(found: FoundMessage, decoders: Decoders, form: str = "auto") -> dict[str, Any]:
    """Return what a row of a list shows of a message."""
    message = found.message
    return {
        "message": message,
        "marker": found.marker,
        "outcome": found.outcome,
        "producer_id": found.batch.producer_id if found.batch is not None else -1,
        "key": decoders.key(message),
        "value": decoders.value(message, form),
        "headers": len(message.headers),
    }


def show_message(call: PageCall) -> Response:
    """Show one message with all that is known of it."""
    topic = describe(call)
    partition, offset = int(call.path("partition")), int(call.path("offset"))
    span = range_of(call, topic, partition)
    form = call.query("as", "auto")
    found = None
    if span.starts.get(partition, 0) <= offset < span.ends.get(partition, 0):
        found = read_one(call.connection.consumer, topic.name or "", partition, offset)
    elif partition in span.ends:
        first, end = span.starts[partition], span.ends[partition]
        text = (
            f"Partition {partition} has the offsets from {first} to {end - 1} now." if end > first else "It is empty."
        )
        raise HTTPException(404, f"There is no offset {offset} in {topic.name}. {text}")
    decoders = call.console.decoders
    headers = [] if found is None else [(name, decoders.header(value)) for name, value in found.message.headers]
    return call.page(
        "message.html.j2",
        topic=topic,
        partition=partition,
        offset=offset,
        found=found,
        row=None if found is None else row_of(found, decoders, form if form in FORMS else "auto"),
        headers=headers,
        span=span,
        forms=FORMS,
        form=form,
        most=SHOWN_CHARS,
    )


def raw(call: PageCall) -> Response:
    """Send the bytes of a key or value as a file."""
    partition, offset = int(call.path("partition")), int(call.path("offset"))
    found = read_one(call.connection.consumer, call.path("topic"), partition, offset)
    part = call.path("part")
    data = None if found is None or part not in ("key", "value") else getattr(found.message, part)
    if data is None:
        raise HTTPException(404, f"There is no {part[:20]} at this offset.")
    name = f"{call.path('topic')}-{partition}-{offset}-{part}.bin"
    return Response(
        bytes(data),
        media_type="application/octet-stream",
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )


# Live tail.


class LiveTail:
    """Reads what arrives in a topic, from the end of its partitions on, or from the positions of an earlier tail."""

    def __init__(self, call: PageCall) -> None:
        """Raises `BarnabasError`."""
        self._topic = describe(call)
        self._call = call
        self._query = query_of(call)
        self._matches = self._query.filter.compiled(call.console.decoders, self._query.form)
        span = self._span()
        last = _positions(call.request.headers.get("last-event-id", ""))
        self._positions = _within(last or span.ends, span, span.ends)
        self._consumer = call.connection.consumer

    @property
    def at(self) -> str:
        """The positions, for a tail that continues here."""
        return "_".join(f"{partition}-{offset}" for partition, offset in self._positions.items())

    def poll_messages(self) -> tuple[list[FoundMessage], int]:
        """Wait for messages for a short time; return the newest, and the number of others. Raises `BarnabasError`."""
        try:
            return self._read()
        except ApiError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:  # deleted meanwhile: the tail continues at the end
                self._positions.update(self._span().ends)
            raise

    def _span(self) -> TopicRange:
        return range_of(self._call, self._topic, self._query.partition, _LIVE_PARTITIONS_MAX)

    def _read(self) -> tuple[list[FoundMessage], int]:
        positions, name = self._positions, self._topic.name or ""
        sets = self._consumer.multifetch(
            [(name, partition, offset) for partition, offset in positions.items()], max_wait_ms=LIVE_WAIT_MS
        )
        read: list[FoundMessage] = []
        for partition, fetched in zip(list(positions), sets, strict=True):
            read += [each for each in records_of(fetched) if each.message.offset >= positions[partition]]
            positions[partition] = max(positions[partition], fetched.next_offset)
        if not self._query.control:
            read = [each for each in read if not each.marker]
        if self._matches is not None and read:
            read = [each for each, is_match in zip(read, self._matches(read), strict=True) if is_match]
        read = in_order_of_append(read)
        return read[-LIVE_ROWS:], max(0, len(read) - LIVE_ROWS)

    def rows(self, read: Sequence[FoundMessage]) -> str:
        """Return the HTML of messages, the newest first."""
        call = self._call
        shown = [row_of(each, call.console.decoders, self._query.form) for each in reversed(read)]
        return render(call.request, None, call.console, "message_rows.html.j2", topic=self._topic, rows=shown)


def follow(call: PageCall) -> Response:
    """Send messages as they arrive, as server-sent events; each has rows of the list, and the positions after it."""
    tail = LiveTail(call)
    if not _limiter:
        _limiter.append(CapacityLimiter(LIVE_MAX))
    limiter = _limiter[0]
    if limiter.statistics().borrowed_tokens >= LIVE_MAX:
        raise HTTPException(503, f"There are {LIVE_MAX} live tails already.")

    async def events() -> AsyncIterator[str]:
        yield f"retry: 1000\n{_READY}"
        until, quiet, is_troubled = time.monotonic() + LIVE_S, 0, False
        while time.monotonic() < until and not call.console.is_closing:
            try:
                read, skipped = await to_thread.run_sync(tail.poll_messages, limiter=limiter)
            except BarnabasError as error:
                yield f"event: trouble\ndata: {json.dumps(str(error))}\n\n"
                await _pause()
                is_troubled = True
                continue
            quiet += 1
            if is_troubled:
                yield _READY
                is_troubled = False
            if read:
                html = await to_thread.run_sync(tail.rows, read, limiter=limiter)
                yield f"id: {tail.at}\nevent: rows\ndata: {json.dumps({'html': html, 'skipped': skipped})}\n\n"
                quiet = 0
            elif quiet * LIVE_WAIT_MS > 10_000:
                yield ": still connected\n\n"
                quiet = 0

    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)


async def _pause() -> None:
    from anyio import sleep

    await sleep(1.0)


# Downloads.


def download(call: PageCall) -> Response:
    """Send the chosen messages as NDJSON, CSV or Parquet."""
    topic, query = describe(call), query_of(call)
    name = topic.name or ""
    matches = query.filter.compiled(call.console.decoders, query.form)
    span = range_of(call, topic, query.partition)
    form = call.query("format", "ndjson")
    limit = min(max(1, call.number("limit", 1000)), DOWNLOAD_MAX)
    consumer, decoders = call.connection.consumer, call.console.decoders
    if query.is_backward:
        before = _within(query.at or span.ends, span, span.ends)
        backward = read_backward(consumer, name, before, span.starts, min(limit, 5000), matches)
        parts: Iterator[Sequence[FoundMessage]] = iter([list(reversed(backward.messages))])
    else:
        positions = _within(query.at or _begin(call, topic, query, span), span, span.starts)
        parts = _pages(consumer, name, positions, span, limit, matches)
    if form == "parquet":
        return _file(_pieces(write_parquet(parts)), "application/vnd.apache.parquet", f"{name}.parquet")
    if form == "csv":
        return _file(_csv(parts, decoders, query.form), "text/csv; charset=utf-8", f"{name}.csv")
    return _file(_ndjson(parts, decoders, query.form), "application/x-ndjson", f"{name}.ndjson")


def _pages(
    consumer: SimpleConsumer, topic: str, positions: Mapping[int, int], span: TopicRange, limit: int, matches: Any
) -> Iterator[Sequence[FoundMessage]]:
    left = limit
    while left > 0:
        found = read_forward(consumer, topic, positions, span.ends, min(left, _PART), matches)
        yield found.messages
        left -= len(found.messages)
        positions = found.positions
        if found.is_complete:
            return


def _file(content: Iterator[bytes], media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(content, media_type=media_type, headers=headers)


def _fields(message: Message, decoders: Decoders, form: str) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        "key": decoders.key(message).plain,
        "value": decoders.value(message, form).plain,
        "headers": [[name, decoders.header(value).plain] for name, value in message.headers],
    }


def _ndjson(parts: Iterator[Sequence[FoundMessage]], decoders: Decoders, form: str) -> Iterator[bytes]:
    lines, size = list[bytes](), 0
    for each in (each for part in parts for each in part):
        line = json.dumps(_fields(each.message, decoders, form), ensure_ascii=False, default=plain_json)
        lines.append(f"{line}\n".encode("utf-8", "replace"))
        size += len(lines[-1])
        if size >= _PIECE_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
    yield b"".join(lines)


def _csv(parts: Iterator[Sequence[FoundMessage]], decoders: Decoders, form: str) -> Iterator[bytes]:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"))
    for part in parts:
        for each in part:
            fields = _fields(each.message, decoders, form)
            row = [
                cell if isinstance(cell, str | int) else "" if cell is None else json.dumps(cell, default=plain_json)
                for cell in fields.values()
            ]
            writer.writerow(row)
        yield out.getvalue().encode("utf-8", "replace")
        out.seek(0)
        out.truncate()
    yield out.getvalue().encode("utf-8", "replace")


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


PAGES = (
    PageRoute("/topics/{topic}/messages", browse),
    PageRoute("/topics/{topic}/messages/live", follow),
    PageRoute("/topics/{topic}/messages/download", download),
    PageRoute("/topics/{topic}/messages/{partition:int}/{offset:int}", show_message),
    PageRoute("/topics/{topic}/messages/{partition:int}/{offset:int}/{part}", raw),
)
