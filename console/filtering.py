"""Filters of messages: a text in key, header or value, a JSON path, an SQL condition."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from threading import Timer
from typing import Any

from .. import ConfigError
from ..app.extras import require
from ..ports.values import frozen
from .decoding import Decoded, Decoders, plain_json
from .reading import FoundMessage, Matches

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
