"""Lines for the log, sorted by how much they matter."""

from collections.abc import Sequence

from barnabas.ports.report import Level, Line


def level_of(line: str) -> Level:
    return line.level if isinstance(line, Line) else Level.WARNING


def warnings_of(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if level_of(line) >= Level.WARNING]


def infos_of(lines: Sequence[str]) -> list[str]:
    return [line for line in lines if level_of(line) == Level.INFO]
