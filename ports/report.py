"""Log lines of parts without a logger: texts with an optional level and source package."""

from collections.abc import Callable, Mapping
from enum import IntEnum

Report = Callable[[str], None]
"""Takes one line. A plain text is a warning; a `Line` has its own level. Callable from any thread, never raises."""


class Level(IntEnum):
    """The level of a line, with the numbers of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Line(str):
    """A text with a level, its logger ("core.log"), and its content as named values."""

    __slots__ = ("fields", "level", "logger")

    level: Level
    logger: str
    fields: Mapping[str, object]

    def __new__(cls, text: str, level: Level, logger: str = "", fields: Mapping[str, object] | None = None) -> "Line":
        line = super().__new__(cls, text)
        line.level, line.logger, line.fields = level, logger, fields or {}
        return line


def counted(count: int, thing: str, things: str = "") -> str:
    """Return a count with its noun: 1 message, 2 messages; `things` if the plural is not `thing` with an s."""
    return f"{count} {thing if count == 1 else things or f'{thing}s'}"


def info(text: str, **fields: object) -> Line:
    """Make a line of level INFO: normal operation."""
    return Line(text, Level.INFO, fields=fields)


def debug(text: str, **fields: object) -> Line:
    """Make a line of level DEBUG."""
    return Line(text, Level.DEBUG, fields=fields)


def warning(text: str, **fields: object) -> Line:
    """Make a line of level WARNING with named values; a plain text is a warning, too."""
    return Line(text, Level.WARNING, fields=fields)


def error(text: str, **fields: object) -> Line:
    """Make a line of level ERROR: the broker cannot do its work."""
    return Line(text, Level.ERROR, fields=fields)


def to_logger(report: Report, logger: str) -> Report:
    """Return a `report` that adds a logger to lines without one."""

    def report_to_logger(text: str) -> None:
        if not isinstance(text, Line):
            report(Line(text, Level.WARNING, logger))
        elif not text.logger:
            report(Line(text, text.level, logger, text.fields))
        else:
            report(text)

    return report_to_logger
