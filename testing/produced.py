"""Reading what was produced, and waiting for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

from ..core.client.errors import no_partition
from ..core.message.message import Message
from ..ports.broker_api.offsets import EARLIEST
from ..ports.error_codes import ErrorCode
from ..ports.errors import ApiError, ConfigError
from ..ports.report import counted
from ..ports.values import frozen
from .running import RunningBroker, patience_s, running_broker

if TYPE_CHECKING:
    from ..app.clients.shared.bootstrap import Bootstrap
    from ..app.clients.shared.typed_settings import FetchKeywords

_POLL_S = 0.05
_SETTINGS: Mapping[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "socket_connection_setup_timeout_ms": 1000,
}


# Expectations of a test about messages, and how the messages found differ from them.

Mode = Literal["ordered", "any_order", "contains"]
MODES = ("ordered", "any_order", "contains")

_SHOWN_MAX = 20
_HINTS_MAX = 5
_TEXT_MAX = 80
_COMPARED_MAX = 200
"""Beyond this number of messages the difference is found by place alone."""


def bytes_match(expected: Any, actual: bytes | None) -> bool:
    """Return whether a key or value is what is expected.

    Expected: bytes or None as they are; a str as UTF-8; a dict, list, number or bool as JSON; a callable that says
    whether it is; anything else by its `==`.
    """
    if callable(expected):
        return bool(expected(actual))
    if isinstance(expected, str):
        return actual == expected.encode()
    if isinstance(expected, bytearray | memoryview):
        return actual == bytes(expected)
    if isinstance(expected, dict | list | int | float):
        try:
            return actual is not None and bool(json.loads(actual) == expected)
        except ValueError:
            return False
    return bool(expected == actual)


def headers_match(expected: Mapping[str, Any], actual: Sequence[tuple[str, bytes | None]]) -> bool:
    """Return whether every expected header is there; there may be others."""
    return all(
        any(name == there and bytes_match(value, found) for there, found in actual) for name, value in expected.items()
    )


@frozen
class ExpectedMessage:
    """One message; what is not given may be anything."""

    parts: Mapping[str, Any]

    def matches(self, message: Message) -> bool:
        """Return whether this is the message."""
        return (
            ("value" not in self.parts or bytes_match(self.parts["value"], message.value))
            and ("key" not in self.parts or bytes_match(self.parts["key"], message.key))
            and ("headers" not in self.parts or headers_match(self.parts["headers"], message.headers))
        )

    def __str__(self) -> str:
        return " ".join(f"{name}={_shown(part)}" for name, part in self.parts.items()) or "any message"

    def differences(self, message: Message) -> list[str]:
        """Return the differences of this message from the expected one, part by part."""
        found: list[str] = []
        for name, actual in (("value", message.value), ("key", message.key)):
            if name in self.parts and not bytes_match(self.parts[name], actual):
                found += _differences(name, self.parts[name], actual)
        for name, wanted in self.parts.get("headers", {}).items():
            if not headers_match({name: wanted}, message.headers):
                there = [_shown(content) for header, content in message.headers if header == name]
                found.append(f"header {name!r}: expected {_shown(wanted)}, found {', '.join(there) or 'none'}")
        return found


@frozen(kw_only=True)
class Expectation:
    """The expectation of `assert_produced`."""

    messages: Sequence[ExpectedMessage] | None
    count: int | None
    mode: Mode
    where: Callable[[Message], bool] | None
    headers: Mapping[str, Any] | None

    @classmethod
    def of(
        cls,
        *,
        values: Sequence[Any] | None,
        keys: Sequence[Any] | None,
        headers: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None,
        count: int | None,
        mode: Mode,
        where: Callable[[Message], bool] | None,
    ) -> Expectation:
        """Raises `ConfigError` for what cannot be meant."""
        if mode not in MODES:
            raise ConfigError(f"mode={mode!r}: give {', '.join(MODES)}")
        common = headers if isinstance(headers, Mapping) else None
        lists: dict[str, Sequence[Any]] = {}
        for name, given in (("value", values), ("key", keys), ("headers", None if common is not None else headers)):
            if isinstance(given, str | bytes):
                raise ConfigError(f"{name}s={given!r}: give a list")
            if given is not None:
                lists[name] = list(given)
        lengths = {name: len(given) for name, given in lists.items()}
        if len(set(lengths.values())) > 1:
            raise ConfigError(f"lists of different lengths: {lengths}")
        messages = None
        if lists:
            rows = zip(*lists.values(), strict=True)
            messages = [ExpectedMessage(dict(zip(lists, row, strict=True))) for row in rows]
        return cls(messages=messages, count=count, mode=mode, where=where, headers=common)

    def chosen(self, messages: Sequence[Message]) -> list[Message]:
        """Return the messages that the expectation is about."""
        return [message for message in messages if self.where is None or self.where(message)]

    def failure(self, chosen: Sequence[Message]) -> str | None:
        """Say why these messages are not as expected; None if they are."""
        found = len(chosen)
        if self.headers is not None and any(not headers_match(self.headers, message.headers) for message in chosen):
            return f"not every message has the headers {self.headers!r}"
        if self.count is not None and found != self.count and (self.mode != "contains" or found < self.count):
            return f"expected {counted(self.count, 'message')}, found {found}"
        if self.messages is None:
            return None if self.count is not None or found else "expected a message, found none"
        matched = pairs(self.messages, chosen, in_order=self.mode == "ordered")
        missing = len(self.messages) - len(matched)
        if missing:
            return f"{missing} of {counted(len(self.messages), 'expected message is', 'expected messages are')} missing"
        if self.mode != "contains" and found > len(self.messages):
            return f"{counted(found - len(self.messages), 'message')} too many"
        return None

    def in_vain(self, chosen: Sequence[Message]) -> bool:
        """Return whether no further message can make it come true: as many are there as are expected, or more."""
        if self.headers is not None and any(not headers_match(self.headers, message.headers) for message in chosen):
            return True
        limit = self.count if self.count is not None else None if self.messages is None else len(self.messages)
        enough = self.mode != "contains" and limit is not None and len(chosen) >= limit
        return enough and self.failure(chosen) is not None

    def difference(self, chosen: Sequence[Message]) -> list[str]:
        """Lines: ` ` as expected, `-` expected and missing, `+` there and not expected; `?` the parts that differ."""
        if self.messages is None:
            return _cut([f"  {_line(message)}" for message in chosen])
        matched = pairs(self.messages, chosen, in_order=self.mode == "ordered")
        by_actual = {actual: expected for expected, actual in matched.items()}
        extra = " " if self.mode == "contains" else "+"
        lines, next_expected = [], 0
        for index, message in enumerate(chosen):
            if index in by_actual and self.mode == "ordered":
                lines += [f"- {self.messages[each]}" for each in range(next_expected, by_actual[index])]
                next_expected = by_actual[index] + 1
            lines.append(f"{' ' if index in by_actual else extra} {_line(message)}")
        left = range(next_expected, len(self.messages)) if self.mode == "ordered" else range(len(self.messages))
        lines += [f"- {self.messages[each]}" for each in left if each not in matched]
        return _cut(lines) + self._hints(chosen, matched)

    def _hints(self, chosen: Sequence[Message], matched: Mapping[int, int]) -> list[str]:
        """Describe how the missing messages differ from those found in their place."""
        missing = [each for index, each in enumerate(self.messages or ()) if index not in matched][:_HINTS_MAX]
        others = [each for index, each in enumerate(chosen) if index not in matched.values()][:_COMPARED_MAX]
        lines: list[str] = []
        for expected in missing:
            near = min(others, key=lambda message: len(expected.differences(message)), default=None)
            if near is None:
                break
            differences = expected.differences(near)
            says_more = "value" not in expected.parts or any("[" in each.split(":")[0] for each in differences)
            if len(differences) == len(expected.parts) and not says_more:
                continue  # nothing of it is as expected: both lines say that already
            others.remove(near)
            lines += [f"? {near.partition}-{near.offset}: {each}" for each in differences[:_HINTS_MAX]]
        return lines


def pairs(expected: Sequence[ExpectedMessage], actual: Sequence[Message], *, in_order: bool) -> dict[int, int]:
    """Pair as many expected messages as possible with those found (expected index → actual index)."""
    if not in_order:
        return _assigned(expected, actual)
    begin, end = 0, 0
    shorter = min(len(expected), len(actual))
    while begin < shorter and expected[begin].matches(actual[begin]):
        begin += 1
    while end < shorter - begin and expected[-1 - end].matches(actual[-1 - end]):
        end += 1
    found = {index: index for index in range(begin)}
    found |= {len(expected) - each: len(actual) - each for each in range(1, end + 1)}
    some, those = expected[begin : len(expected) - end], actual[begin : len(actual) - end]
    if max(len(some), len(those)) <= _COMPARED_MAX:
        return found | {begin + row: begin + column for row, column in _aligned(some, those).items()}
    both = range(min(len(some), len(those)))
    return found | {begin + each: begin + each for each in both if some[each].matches(those[each])}


def _aligned(expected: Sequence[ExpectedMessage], actual: Sequence[Message]) -> dict[int, int]:
    """Return the longest common subsequence."""
    rows, columns = len(expected), len(actual)
    same = [[each.matches(message) for message in actual] for each in expected]
    longest = [[0] * (columns + 1) for _ in range(rows + 1)]
    for row in reversed(range(rows)):
        for column in reversed(range(columns)):
            longest[row][column] = (
                longest[row + 1][column + 1] + 1
                if same[row][column]
                else max(longest[row + 1][column], longest[row][column + 1])
            )
    found, row, column = {}, 0, 0
    while row < rows and column < columns:
        if same[row][column]:
            found[row] = column
            row, column = row + 1, column + 1
        elif longest[row + 1][column] >= longest[row][column + 1]:
            row += 1
        else:
            column += 1
    return found


def _assigned(expected: Sequence[ExpectedMessage], actual: Sequence[Message]) -> dict[int, int]:
    """Return a largest matching, by augmenting paths: an expectation gives way when it can be another message's."""
    owner: dict[int, int] = {}
    by_value: dict[bytes | None, list[int]] = {}
    for at, message in enumerate(actual):
        by_value.setdefault(message.value, []).append(at)

    def place(index: int, tried: set[int]) -> bool:
        value = expected[index].parts.get("value", ...)
        value = value.encode() if isinstance(value, str) else value
        among = by_value.get(value, ()) if isinstance(value, bytes) else range(len(actual))
        for at in among:
            if at in tried or not expected[index].matches(actual[at]):
                continue
            tried.add(at)
            if at not in owner or place(owner[at], tried):
                owner[at] = index
                return True
        return False

    for index in range(len(expected)):
        place(index, set())
    return {index: at for at, index in owner.items()}


def _line(message: Message) -> str:
    text = f"{message.partition}-{message.offset}: value={_shown(message.value)}"
    if message.key is not None:
        text += f" key={_shown(message.key)}"
    if message.headers:
        text += " headers={" + ", ".join(f"{name!r}: {_shown(content)}" for name, content in message.headers) + "}"
    return text


def _differences(name: str, expected: Any, actual: bytes | None) -> list[str]:
    there = _json_of(actual)
    if isinstance(expected, dict) and isinstance(there, dict):
        keys = [*expected, *(key for key in there if key not in expected)]
        return [
            f"{name}[{json.dumps(key)}]: expected {_field(expected, key)}, found {_field(there, key)}"
            for key in keys
            if key not in expected or key not in there or expected[key] != there[key]
        ]
    return [f"{name}: expected {_shown(expected)}, found {_shown(actual)}"]


def _field(values: Mapping[Any, Any], key: Any) -> str:
    return _short(json.dumps(values[key], default=repr)) if key in values else "none"


def _shown(value: Any) -> str:
    """Return a key or value in one spelling, whether it is expected or there: JSON, text, or else bytes."""
    if callable(value):
        return f"<what {getattr(value, '__name__', 'it')} accepts>"
    if isinstance(value, dict | list | int | float):
        return _short(json.dumps(value, default=repr))
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value)
        structured = _json_of(value)
        if isinstance(structured, dict | list):
            return _short(json.dumps(structured))
        try:
            text = value.decode()
        except UnicodeDecodeError:
            return _short(repr(value))
        value = text if text.isprintable() else value
    return _short(repr(value))


def _json_of(content: bytes | None) -> Any:
    """Return the JSON value; None for content that is no JSON."""
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(text)} characters)"


def _cut(lines: list[str]) -> list[str]:
    """Return the lines around the first difference, when they are too many."""
    if len(lines) <= _SHOWN_MAX:
        return lines
    first = next((index for index, line in enumerate(lines) if line[0] in "+-"), 0)
    start = max(0, min(first - _SHOWN_MAX // 4, len(lines) - _SHOWN_MAX))
    shown = lines[start : start + _SHOWN_MAX]
    before = [f"  … {start} more"] if start else []
    after = [f"  … {len(lines) - start - _SHOWN_MAX} more"] if start + _SHOWN_MAX < len(lines) else []
    return before + shown + after


def assert_produced(
    topic: str,
    values: Sequence[Any] | None = None,
    *,
    keys: Sequence[Any] | None = None,
    headers: Sequence[Mapping[str, Any]] | Mapping[str, Any] | None = None,
    count: int | None = None,
    mode: Mode | None = None,
    where: Callable[[Message], bool] | None = None,
    partition: int | None = None,
    committed: bool = False,
    timeout: float | None = None,
    broker: RunningBroker | str | None = None,
) -> list[Message]:
    """Wait until a topic holds what is expected; returns its messages. Raises `AssertionError` with the difference:
    after the `timeout`, or as soon as no further message can make it come true.

    values, keys: one for each message: bytes or None; a str as UTF-8; a dict, list or number as JSON; a callable.
    headers:      for each message the headers that it must have, or one mapping for all of them.
    count:        how many messages there are; with nothing else given, at least one.
    mode:         "ordered" (all, in this order; the default of one partition), "any_order" (all; the default of several
                  partitions), "contains" (others may be there).
    where:        look only at the messages for which this is true.
    partition:    look only at this partition.
    committed:    leave out what belongs to transactions that are open or were aborted.
    timeout:      seconds to wait; None: 10, or `barnabas_timeout` in the ini file of pytest.
    broker:       a `TestBroker`, a `TestCluster`, or the address of any Kafka broker; None: the one of them that runs.

    Reads from the beginning, past the faults that a test broker has been given.
    """
    __tracebackhide__ = True
    timeout = patience_s() if timeout is None else timeout
    expected = {"values": values, "keys": keys, "headers": headers, "count": count, "where": where}
    expectation, chosen, why = _wait(
        _source(broker), topic, partition, timeout, mode=mode, committed=committed, **expected
    )
    if why is None:
        return chosen
    waited = "no further message can change that" if expectation.in_vain(chosen) else f"waited {timeout:g} s"
    lines = [f"{topic}: {why} ({waited})", *expectation.difference(chosen)]
    raise AssertionError("\n".join(lines))


def read_all(source: Bootstrap, topic: str, partition: int | None = None, *, committed: bool = False) -> list[Message]:
    """Return the messages that a topic holds now, by partition and offset; none if there is no such topic."""
    with _Reader(source, topic, partition, committed=committed) as reader:
        if not reader.open():
            return []
        return reader.sorted(reader.to_the_end())


def _wait(
    source: Bootstrap,
    topic: str,
    partition: int | None,
    timeout: float,
    *,
    mode: Mode | None,
    committed: bool,
    **expected: Any,
) -> tuple[Expectation, list[Message], str | None]:
    """Return the expectation, the messages that it is about, and why they do not fulfil it (None if they do)."""
    deadline = time.monotonic() + timeout
    # What is wrong with the call is to be said before anything is waited for.
    expectation = Expectation.of(mode=mode or "any_order", **expected)
    seen: list[Message] = []
    with _Reader(source, topic, partition, committed=committed) as reader:
        while not reader.open():
            if expectation.failure([]) is None or time.monotonic() >= deadline:
                return expectation, [], _no_topic(expectation, topic)
            time.sleep(_POLL_S / 10)
        if mode is None and reader.partitions == 1:
            expectation = Expectation.of(mode="ordered", **expected)
        if mode == "ordered" and reader.partitions > 1:
            raise ConfigError(f"{topic} has {reader.partitions} partitions without a common order: give partition=")
        seen += reader.to_the_end()
        while True:
            chosen = expectation.chosen(reader.sorted(seen))
            why = expectation.failure(chosen)
            left = deadline - time.monotonic()
            if why is None or left <= 0 or expectation.in_vain(chosen):
                return expectation, chosen, why
            seen += reader.more(min(left, _POLL_S))


def _no_topic(expectation: Expectation, topic: str) -> str | None:
    why = expectation.failure([])
    return why and f"there is no topic {topic}; {why}"


class _Reader:
    """One topic, from the beginning."""

    def __init__(self, source: Bootstrap, topic: str, partition: int | None, *, committed: bool) -> None:
        from ..app.clients.admin.admin import Admin
        from ..app.clients.consumer.simple_consumer import SimpleConsumer

        self._topic = topic
        self._partition = partition
        self._next: dict[int, int] = {}
        self._closing = ExitStack()
        with ExitStack() as opened:
            self._admin = opened.enter_context(Admin(source, **_SETTINGS))
            settings: FetchKeywords = {"isolation_level": "read_committed" if committed else "read_uncommitted"}
            self._consumer = opened.enter_context(SimpleConsumer(source, **settings, **_SETTINGS))
            self._closing = opened.pop_all()

    @property
    def partitions(self) -> int:
        """The number of partitions that are read."""
        return len(self._next)

    def open(self) -> bool:
        """Return False while there is no such topic. Raises `ApiError` for a partition that it does not have."""
        try:
            (found,) = self._admin.describe_topics([self._topic])
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        numbers = sorted(each.partition for each in found.partitions)
        if self._partition is not None:
            if self._partition not in numbers:
                raise no_partition(self._topic, len(numbers), self._partition)
            numbers = [self._partition]
        self._next = {number: self._consumer.offset_at(self._topic, number, EARLIEST) for number in numbers}
        return True

    def to_the_end(self) -> list[Message]:
        """Return all that is there now and was not read yet."""
        return [message for number in self._next for message in self._rest(number)]

    def more(self, timeout: float) -> list[Message]:
        """Return the messages that arrive within `timeout` seconds."""
        asked = [(self._topic, number, offset) for number, offset in self._next.items()]
        try:
            self._consumer.multifetch(asked, 1, max_wait_ms=int(timeout * 1000))
        except ApiError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
        return self.to_the_end()

    def _rest(self, number: int) -> list[Message]:
        found: list[Message] = []
        while True:
            try:
                for piece in self._consumer.read(self._topic, number, self._next[number]):
                    found += piece
                    self._next[number] = piece.next_offset
            except ApiError as error:
                earliest = self._consumer.offset_at(self._topic, number, EARLIEST)
                if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or earliest <= self._next[number]:
                    raise
                self._next[number] = earliest  # what was to be read has expired meanwhile
            else:
                return found

    def sorted(self, messages: Sequence[Message]) -> list[Message]:
        return sorted(messages, key=lambda message: (message.partition, message.offset))

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()


def _source(broker: RunningBroker | str | None) -> Bootstrap:
    if isinstance(broker, str):
        return broker
    return (broker or running_broker()).source
