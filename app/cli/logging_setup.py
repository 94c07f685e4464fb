"""Logging of `barnabas serve` to standard error: format and levels."""

import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any, TextIO

from ...ports.errors import ConfigError
from ..logs import FIELDS, ROOT

LEVELS = ("debug", "info", "warning", "error", "critical")


def set_up(levels: Sequence[str], form: str, stream: TextIO | None = None) -> None:
    """Log to standard error, or to `stream`. For broker processes; a library leaves this to its user.

    levels: "LEVEL" for all of Barnabas, "LOGGER=LEVEL" for one; later ones win. Raises `ConfigError`.
    """
    chosen = [_level(text) for text in levels]
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(ROOT).setLevel(logging.INFO)
    for name, level in chosen:
        logging.getLogger(name).setLevel(level)


def _level(text: str) -> tuple[str, int]:
    name, equals, level = text.rpartition("=")
    name, level = name.strip() if equals else ROOT, level.strip().lower()
    if level == "warn":
        level = "warning"
    if not name or level not in LEVELS:
        allowed = f"one of {', '.join(LEVELS)}, or LOGGER=LEVEL such as {ROOT}.core.log=debug"
        raise ConfigError(f"logging.level={text!r} is invalid; expected {allowed}")
    return name, logging.getLevelNamesMapping()[level.upper()]


class TextFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO barnabas.core.log: text`."""

    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname} {record.name}: {record.getMessage()}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message; then the fields of the line."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in getattr(record, FIELDS, {}).items():
            said.setdefault(name, value)
        trace = _trace(self, record)
        if trace:
            said["exception"] = trace
        return json.dumps(said, ensure_ascii=False, default=str)


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.created % 1 * 1000):03d}Z"


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return formatter.formatException(record.exc_info) if record.exc_info else ""
