"""Lines for the log, from whoever has no logger: text that may say how much it matters and which room it is from."""

from collections.abc import Callable, Mapping
from enum import IntEnum

Report = Callable[[str], None]
"""Takes one line. A plain text is a warning; a `Line` may be more or less than that. Any thread, never raises."""


class Level(IntEnum):
    """How much a line matters; the numbers are those of Python's logging."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Line(str):
    """A text with a level, the room that it is from ("core.log"), and what it says once more as named values."""

    __slots__ = ("fields", "level", "room")

    level: Level
    room: str
    fields: Mapping[str, object]

    def __new__(cls, text: str, level: Level, room: str = "", fields: Mapping[str, object] | None = None) -> "Line":
        line = super().__new__(cls, text)
        line.level, line.room, line.fields = level, room, fields or {}
        return line


def counted(count: int, thing: str, things: str = "") -> str:
    """As a person says it: 1 message, 2 messages; `things` where it is not `thing` with an s."""
    return f"{count} {thing if count == 1 else things or f'{thing}s'}"


def info(text: str, **fields: object) -> Line:
    """What an operator wants to know on a normal day."""
    return Line(text, Level.INFO, fields=fields)


def debug(text: str, **fields: object) -> Line:
    """What only a search for something needs."""
    return Line(text, Level.DEBUG, fields=fields)


def warning(text: str, **fields: object) -> Line:
    """What somebody should look at, with named values; without these a plain text does."""
    return Line(text, Level.WARNING, fields=fields)


def error(text: str, **fields: object) -> Line:
    """What keeps the broker from doing its work."""
    return Line(text, Level.ERROR, fields=fields)


def in_room(report: Report, room: str) -> Report:
    """`report` for one room: a line that does not say where it is from is from there."""

    def told(text: str) -> None:
        if not isinstance(text, Line):
            report(Line(text, Level.WARNING, room))
        elif not text.room:
            report(Line(text, text.level, room, text.fields))
        else:
            report(text)

    return told
