"""A page of panels: a program with figures writes one self-contained HTML file, light and dark, without a template."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar

from attrs import frozen

from .markup import Markup
from .rendering import render_template


@frozen
class Cards:
    """Figures in large type: what they are, ("10,000", "lines")."""

    kind: ClassVar = "cards"
    figures: Sequence[tuple[str, str]]


@frozen
class BarList:
    """Names with numbers, a bar behind each name. `unit` "B" is shown as KiB, MiB, ..."""

    kind: ClassVar = "bars"
    title: str
    rows: Sequence[tuple[str, float]]
    unit: str = ""


@frozen
class ChartPanel:
    """A chart of `charts`; `legend` names its series in their order."""

    kind: ClassVar = "chart"
    title: str
    svg: Markup
    legend: Sequence[str] = ()
    note: str = ""


@frozen
class TablePanel:
    """Rows of text and numbers below the names of their columns."""

    kind: ClassVar = "table"
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""


@frozen
class Heading:
    """A heading, and a sentence below it."""

    kind: ClassVar = "section"
    title: str
    text: str = ""


@frozen
class SideBySide:
    """Panels next to each other where the page is wide enough."""

    kind: ClassVar = "beside"
    parts: Sequence[BarList | ChartPanel | TablePanel]


Panel = Cards | BarList | ChartPanel | TablePanel | Heading | SideBySide


def write_page(path: Path, title: str, subtitle: str, parts: Sequence[Panel]) -> None:
    """Write the page as a whole: who reads `path` meanwhile sees the page before it. All text is escaped."""
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    write_whole(path, render_template("panels.html.j2", title=title, subtitle=subtitle, parts=parts, made=made))


def write_whole(path: Path, html: str) -> None:
    """Write a file in one step, its folder with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(html, encoding="utf-8")
    temporary.replace(path)
