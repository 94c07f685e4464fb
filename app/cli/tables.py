"""Tables with titles: framed on a terminal, plain in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer

from ...ports.values import frozen
from .options import print_table

if TYPE_CHECKING:
    from rich.console import Group


@frozen
class Section:
    """A title line, and a table unless it has no rows. `alarm`: the line reports a problem."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    alarm: bool = False


def show(sections: Sequence[Section]) -> None:
    """Print the sections on standard output."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(framed(sections))
        return
    for number, section in enumerate(sections):
        typer.echo(f"{chr(10) if number and section.rows else ''}{section.title}")
        if section.rows:
            print_table(section.columns, section.rows)


def framed(sections: Sequence[Section]) -> Group:
    """Return the sections for a terminal."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[Text | Table] = []
    for section in sections:
        parts.append(Text(section.title, style="bold red" if section.alarm else "bold"))
        if section.rows:
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
            for column in section.columns:
                table.add_column(column.upper(), overflow="fold", no_wrap=column != section.columns[-1])
            for row in section.rows:
                table.add_row(*(Text(str(cell)) for cell in row))
            parts.append(table)
    return Group(*parts)


def size_text(size: int | None) -> str:
    """Format a size like `1.5GiB`; a dash for None."""
    if size is None or size < 0:
        return "-"
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f}B" if unit == "B" else f"{value:.1f}{unit}"


def list_text(items: Sequence[object]) -> str:
    """Join items without spaces, for `awk`; a dash for nothing."""
    return ",".join(map(str, items)) or "-"


def clean(text: str) -> str:
    """Remove control characters, since clients may write them to topics and names."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
