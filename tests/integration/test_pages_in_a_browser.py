"""The pages of report and audit in a headless browser: wide and phone, light and dark. Facts of layout, pictures."""

import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.waiting import PATIENCE_S

from barnabas.audit.reconcile import Reconciliation, TierFigures, Which, WindowFigures
from barnabas.audit.view import render
from barnabas.pipeline.report import page
from barnabas.pipeline.report.page import AccessFigures, FieldFigures, RecordFigures, SampleRecord, TopEntry, TopicAudit
from barnabas.pipeline.tables.upkeep.describe import TopicDescription

HOUR = 1_431_856_800
LONG = "a-name.of.some-length-" * 6 + "<script>alert(1)</script>"
WIDTHS = {"phone": 360, "wide": 1200}
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium here: apt-get install chromium"),
]

# The page forbids scripts, so it is looked at from outside: within frames as wide as a screen.
LOOK = """
function look(frame) {
  const page = frame.contentDocument, width = frame.clientWidth, facts = {charts: [], rows: []};
  const style = element => frame.contentWindow.getComputedStyle(element);
  const shown = element => element.checkVisibility() && element.getClientRects().length > 0;
  facts.title = page.title;
  facts.scrolls = page.documentElement.scrollWidth - width;
  facts.outside = [...page.querySelectorAll('body *')].filter(shown).filter(e => !e.closest('.wide, svg'))
    .filter(e => e.getBoundingClientRect().right > width + 0.5).map(e => e.outerHTML.slice(0, 80));
  for (const svg of [...page.querySelectorAll('svg')].filter(shown)) {
    const box = svg.getBoundingClientRect(), texts = [...svg.querySelectorAll('text')];
    const shapes = [...svg.querySelectorAll('g:not(.spots) > rect, g > polygon, polygon, polyline')];
    const boxes = texts.map(t => t.getBoundingClientRect());
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    const drawn = shapes.map(s => s.getBoundingClientRect()).filter(b => b.width > 0 && b.height > 0);
    facts.charts.push({
      width: box.width, height: box.height,
      type: 12 * box.width / svg.viewBox.baseVal.width,
      shapes: drawn.length,
      fill: shapes.length ? style(shapes[0]).fill : '', paper: style(svg.parentElement).backgroundColor,
      overlaps: boxes.some((a, i) => boxes.some((b, j) => i < j && meet(a, b))),
    });
  }
  for (const cards of [...page.querySelectorAll('.cards')].filter(shown)) {
    const ends = {};
    for (const card of cards.children) {
      const box = card.getBoundingClientRect();
      ends[box.top] = Math.max(ends[box.top] || 0, box.right);
    }
    facts.rows.push(...Object.values(ends).map(end => cards.getBoundingClientRect().right - end));
  }
  facts.ink = style(page.body).color; facts.background = style(page.body).backgroundColor;
  return facts;
}
onload = () => {
  const found = {};
  for (const frame of document.querySelectorAll('iframe')) found[frame.id] = look(frame);
  document.getElementById('facts').textContent = JSON.stringify(found);
};
"""


def a_page(topics: int) -> str:
    hours = range(HOUR, HOUR + 150 * 3600, 3600)
    found = RecordFigures(
        lines=1_234_567,
        size_bytes=10**9,
        median_bytes=200,
        largest_bytes=10**6,
        tombstones=3,
        bucket_s=3600,
        rows_per_bucket={hour: hour % 977 for hour in hours},
        bytes_per_bucket={hour: hour % 97_777 for hour in hours},
        partitions={str(n): 100 + n for n in range(8)},
        keyed=9,
        distinct_keys=9,
        key_counts={LONG: 5, "b": 4},
        newest=[
            SampleRecord(partition="0", offset=10**12, time_ms=HOUR * 1000, key=LONG, value='{"a": ' + "9" * 400 + "}")
        ],
        fields=[FieldFigures(path=LONG, rows=7, types=["number", "text"], example="9" * 80)],
        field_rows=9,
    )
    entries = [TopEntry(name="/" + LONG, count=3, size_bytes=1)]
    access = AccessFigures(
        lines=10_000,
        parsed=9_999,
        malformed=1,
        malformed_samples=["x" * 300],
        addresses=1753,
        views=2000,
        failed=2,
        size_bytes=10**9,
        crawler_requests=1,
        crawler_addresses=1,
        views_per_hour={hour: hour % 93 for hour in hours},
        crawler_per_hour={hour: hour % 17 for hour in hours},
        bytes_per_hour={hour: hour % 97_777 for hour in hours},
        statuses={"2xx": 8, "4xx": 2},
        top=dict.fromkeys(("page", "referrer", "failed", "crawler"), entries),
    )
    about = TopicDescription(
        topic="t",
        topic_id="",
        rows=1,
        files=3,
        size_bytes=10**8,
        oldest_ms=HOUR * 1000,
        newest_ms=HOUR * 1000,
        next_offsets={},
    )
    audit = TopicAudit(windows=9, agreeing=8, expected=100, arrived=99, lost=1, doubled=0, pending=0)
    records = page.record_part(found)
    sections = [
        {**page.lines_section(LONG, found), "records": records, "about": about, "audit": audit},
        {**page.access_section("access", access), "records": records, "about": about},
    ]
    return page.render(Path("lake"), sections[:topics], datetime(2026, 1, 2, tzinfo=UTC))


def an_audit() -> str:
    lost = [Which(instance="web-1/" + LONG, first=number, last=number + 4) for number in range(0, 90, 9)]
    producer = TierFigures(tier="producer", after="", count=10**6, unstamped=0, expected=0, arrived=0)
    tiers = [
        TierFigures(
            tier=f"tier-{number}",
            after="producer",
            count=10**6,
            unstamped=1,
            expected=10**6,
            arrived=999_000,
            lost=lost,
            pending=9,
            unconfirmed=9,
            delay_median_ms=870,
            delay_p99_ms=125_000,
        )
        for number in range(6)
    ]
    windows = [
        WindowFigures(topic=LONG, start_ms=HOUR * 1000 + n, width_ms=1, state="wrong", tiers=[producer, *tiers])
        for n in range(9)
    ]
    return render(Reconciliation(windows=windows, unclosed=[LONG]), HOUR * 1000)


def browse(tmp_path: Path, scheme: str, size: str, *what: str, file: Path) -> str:
    assert BROWSER is not None
    quiet = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage"]
    colours = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    command = [BROWSER, *quiet, colours, f"--user-data-dir={tmp_path / scheme}", f"--window-size={size}", *what]
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, timeout=5 * PATIENCE_S, check=True)
    return done.stdout


def facts_of(tmp_path: Path, scheme: str, **pages: str) -> dict[str, Any]:
    """By page and name of the width."""
    frames = "".join(
        f'<iframe id="{page} {name}" width="{width}" height="800" style="border: 0" srcdoc="{html.escape(text)}">'
        "</iframe>"
        for name, width in WIDTHS.items()
        for page, text in pages.items()
    )
    outer = tmp_path / "outer.html"
    outer.write_text(f"<!doctype html><meta charset=utf-8>{frames}<pre id=facts></pre><script>{LOOK}</script>")
    dumped = browse(tmp_path, scheme, "1400,900", "--dump-dom", file=outer)
    found = re.search(r'<pre id="facts">(.+?)</pre>', dumped, re.DOTALL)
    assert found is not None, dumped[-500:]
    facts: dict[str, Any] = json.loads(html.unescape(found[1]))
    return facts


def brightness(colour: str) -> float:
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def colours_in(picture: Path) -> int:
    """Return the number of different lines of pixels in a PNG; a blank one has one."""
    data, at, packed = picture.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + size] if kind == b"IDAT" else b""
        at += 12 + size
    width, _ = struct.unpack(">II", data[16:24])
    lines = zlib.decompress(packed)
    step = 1 + width * 3
    return len({lines[start : start + step] for start in range(0, len(lines), step)})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_their_screens(tmp_path: Path, scheme: str) -> None:
    facts = facts_of(tmp_path, scheme, report=a_page(2), audit=an_audit())
    assert {each["title"] for each in facts.values()} == {"lake · Barnabas report", "Audit · Barnabas"}
    assert len(facts) == 2 * len(WIDTHS)
    for name, found in facts.items():
        assert (found["scrolls"], found["outside"]) == (0, []), name
        assert len(found["charts"]) == (4 if "report" in name else 0), "the records of an access log are folded away"
        for chart in found["charts"]:
            assert chart["shapes"] > 0
            assert chart["type"] >= 10, f"type of {chart['type']} pixels"
            assert chart["height"] >= 120
            assert not chart["overlaps"]
            assert abs(brightness(chart["fill"]) - brightness(chart["paper"])) > 0.15
        assert all(abs(gap) < 1 for gap in found["rows"]), "cards fill their rows"
        assert (brightness(found["background"]) < 0.3) == (scheme == "dark")
        assert abs(brightness(found["ink"]) - brightness(found["background"])) > 0.6


def test_a_screenshot_of_one_topic(tmp_path: Path) -> None:
    one = tmp_path / "one.html"
    one.write_text(a_page(1))
    assert f"<title>{html.escape(LONG)} · Barnabas report</title>".replace("&#x27;", "'") in one.read_text()
    browse(tmp_path, "dark", "500,1600", f"--screenshot={tmp_path / 'one.png'}", file=one)
    assert colours_in(tmp_path / "one.png") > 200
