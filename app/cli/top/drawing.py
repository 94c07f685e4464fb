"""Draws a view as lines for a terminal of some size."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .view import View

AROUND = 5
"""Number of lines that are not rows: head, tabs, notice, column names, foot."""
_RIGHT = {"partitions", "messages/s", "bytes/s", "end", "size", "members", "lag", "leaders", "replicas", "in_sync"}
KEY_WIDTH = 30
"""Number of shown columns of a key, so that there is room for the value."""


def drawn(view: View, width: int, height: int, color_system: str | None) -> list[str]:
    """Return `height` lines with colour escapes, none wider than `width`."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=True,
        color_system=color_system,  # type: ignore[arg-type]  # one of its own names, or None
        legacy_windows=False,
        highlight=False,
    )
    lines = [
        Text(view.head, style="bold"),
        Text.assemble(*_tabs(view.tabs)),
        Text(view.notice, style="bold red"),
    ]
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    room = max(1, height - AROUND)
    console.print(_table(view, room))
    body = out.getvalue().split("\n")[: height - 1]
    body += [""] * (height - 1 - len(body))
    out.seek(0)
    out.truncate()
    console.print(Text(view.foot, style="dim"), no_wrap=True, overflow="ellipsis", crop=True, end="")
    return [*body, out.getvalue()][-height:]


def _tabs(tabs: Sequence[tuple[str, bool]]) -> list[tuple[str, str]]:
    return [(f" {name} ", "reverse" if active else "") for name, active in tabs]


def first_shown(selected: int, rows: int, room: int) -> int:
    """Return the index of the first shown row, so that the selected one is visible."""
    return max(0, min(selected - room // 2, rows - room))


def _table(view: View, room: int) -> Table:
    """Lay out only the visible rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="bold cyan")
    for column in view.columns:
        table.add_column(
            column.upper(),
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column in _RIGHT else "left",
            max_width=KEY_WIDTH if column == "key" else None,
            ratio=1 if column == view.columns[-1] else None,
        )
    first = first_shown(view.selected, len(view.rows), room)
    for number, row in enumerate(view.rows[first : first + room], first):
        table.add_row(*(Text(cell) for cell in row.cells), style="reverse" if number == view.selected else "")
    return table
