"""Pages of panels: whole, closed to the outside, and nothing of the data is markup."""

from html.parser import HTMLParser
from pathlib import Path

from barnabas.pipeline.report import charts
from barnabas.pipeline.report.panels import (
    BarList,
    Cards,
    ChartPanel,
    Heading,
    Panel,
    SideBySide,
    TablePanel,
    write_page,
)

EVIL = "<script>alert(1)</script>"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.opened.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("href", "src")]


def test_a_page_of_all_panels(tmp_path: Path) -> None:
    page = tmp_path / "new" / "page.html"
    chart = charts.line([0, 60, 120], [1, 2, 3], [1, 2, 3], [1, 2, 3], spans=[(30, 90)], marks=[60])
    parts: list[Panel] = [
        Cards([(EVIL, EVIL)]),
        ChartPanel(EVIL, chart, legend=[EVIL], note=EVIL),
        SideBySide([BarList(EVIL, [(EVIL, 3), ("b", 0)]), TablePanel(EVIL, [EVIL, "n"], [[EVIL, 12345]], note=EVIL)]),
        TablePanel("empty", ["a"], []),
        Heading(EVIL, EVIL),
    ]
    write_page(page, EVIL, EVIL, parts)
    html = page.read_text(encoding="utf-8")
    tags = _Tags()
    tags.feed(html)
    assert "script" not in tags.opened
    assert tags.links == []
    assert html.count("&lt;script&gt;") >= 14
    assert "prefers-color-scheme: dark" in html
    assert 'class="span"' in html
    assert html.count('class="mark"') == 2, "one in each drawing"
    assert ">12.3 k<" in html
    assert [each.name for each in page.parent.iterdir()] == ["page.html"]


def test_spans_and_marks_stay_on_the_chart() -> None:
    chart = charts.line([100, 200], [1, 1], [1, 1], [1, 1], spans=[(0, 1000)], marks=[0, 150, 1000])
    assert f'x="{charts._LEFT:.1f}"' in chart
    assert f'cx="{charts._CANVASES[0].right:.1f}"' in chart
