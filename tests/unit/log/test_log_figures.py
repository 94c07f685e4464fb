"""The figures of `barnabas log stats`."""

import random
from html.parser import HTMLParser

import pytest
from support.classic_frames import gzip_wrapper, message_set

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.app.cli.log.stats import SegmentRow, fields, gather, page, short
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.logtools.stats.log_stats import (
    EXACT_MAX,
    DistinctCount,
    LogStats,
    Throughput,
    batch_figures,
    classic_figures,
)
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.storage import File
from barnabas.testing.logs import batch, numbered, open_log

CODECS = builtin_codecs()


def segment() -> File:
    folder = MemoryLogDir().folder("t-0")
    log = open_log(folder, codecs=CODECS)
    for number in range(10):
        keys = [b"k%d" % (number % 3), None]
        records = batch(
            b"x" * 100, None, keys=keys, at=1_000_000 + number * 1000, codec=CODECS.by_id(1) if number % 2 else None
        )
        log.append(records, leader_epoch=0, now_ms=0)
    records = numbered(b"y", producer=1, transactional=True, at=1_000_000)
    log.append(records, leader_epoch=0, now_ms=0, origin=AppendOrigin.TRANSACTION)
    log.append_marker(1, 0, False, 0, leader_epoch=0, now_ms=1_000_000)
    log.close()
    return folder.open(f"{0:020d}.log", create=False)


def test_a_segment_of_batches() -> None:
    file = segment()
    found = batch_figures(file, 0, CODECS, records=True)
    assert (found.bytes, found.batches, found.messages, found.markers) == (file.size, 12, 21, 1)
    assert found.codecs == {"none": 11, "gzip": 10}
    assert sum(found.codec_bytes.values()) < file.size, "the marker has no codec"
    assert (found.keys.estimate(), found.keys.is_exact, found.without_key, found.without_value) == (3, True, 11, 10)
    assert (found.transactional, found.largest, found.damaged_bytes) == (1, 102, 0)
    assert sum(found.sizes.values()) == found.opened == 21
    assert (found.first_ms, found.last_ms) == (1_000_000, 1_009_000)
    assert found.per_second(found.messages) == pytest.approx(21 / 9)
    assert sum(messages for _, messages, _ in found.rates.series()) == 21
    quick = batch_figures(file, 0, CODECS, records=False)
    assert (quick.messages, quick.opened, quick.keys.estimate()) == (21, 0, 0)


def test_damage_is_not_counted() -> None:
    folder = MemoryLogDir().folder("t-0")
    content = bytearray(segment().read(0, 1 << 20))
    content[70] ^= 1
    folder.open("x").append(content)
    found = batch_figures(folder.open("x"), 0, CODECS, records=True)
    assert found.damaged_bytes > 0
    assert found.opened == 19


def test_a_classic_segment() -> None:
    folder = MemoryLogDir().folder("t-0")
    folder.open("x").append(message_set(b"one", b"three") + gzip_wrapper(b"a", b"b", b"c") + b"torn")
    found = classic_figures(folder.open("x"), 5000, CODECS, records=True)
    assert (found.batches, found.messages, found.opened, found.damaged_bytes) == (3, 5, 5, 4)
    assert found.codecs == {"none": 2, "gzip": 3}
    assert classic_figures(folder.open("x"), 5000, CODECS, records=False).messages == 3


@pytest.mark.parametrize("count", [0, 1, EXACT_MAX, EXACT_MAX + 1, 5_000, 60_000])
def test_distinct_keys_are_counted_approximately(count: int) -> None:
    keys = [b"key-%d" % number for number in range(count)]
    random.Random(count).shuffle(keys)
    whole, parts = DistinctCount(), [DistinctCount() for _ in range(3)]
    for number, key in enumerate(keys):
        parts[number % 3].add([key, keys[0]])
    whole.add(keys)
    whole.add(keys)
    merged = DistinctCount()
    for part in parts:
        merged.merge(part)
    assert merged.estimate() == whole.estimate()
    assert whole.is_exact is (count <= EXACT_MAX)
    assert whole.estimate() == (count if whole.is_exact else pytest.approx(count, rel=0.05))


def test_rates_become_wider_and_lose_nothing() -> None:
    one, other = Throughput(), Throughput()
    for number in range(1000):
        one.add(number * 700, 2, 10)
        other.add(10**12 + number, 1, 1)
    one.merge(other)
    assert len(one.series()) <= 240
    assert sum(messages for _, messages, _ in one.series()) == 3000
    assert sum(size for _, _, size in one.series()) == 11_000
    one.add(2**62, 1, 1)
    assert len(one.series()) <= 240


class Tags(HTMLParser):
    """Whether every tag is closed, and nothing comes from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href", "onload"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Closed at once."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_escapes_what_comes_from_the_logs() -> None:
    figures = batch_figures(segment(), 0, CODECS, records=True)
    rows = [SegmentRow(topic="<b>&co", partition=0, segment="0.log", figures=figures)]
    gathered = gather([*rows, SegmentRow(topic="empty", partition=0, segment="0.log", figures=LogStats())])
    observed = page(gathered)
    assert "<b>&co" not in observed
    tags = Tags()
    tags.feed(observed)
    assert tags.open == []
    assert "<b>&co" in tags.text
    assert "prefers-color-scheme: dark" in observed
    assert [fields(row)["messages"] for row in gathered.topics] == [21, 0]


def test_short_numbers_have_three_digits_and_a_unit() -> None:
    assert [short(0), short(999, "B"), short(1_234_567, "B"), short(2.5, "/s")] == ["0", "999 B", "1.23 MB", "2.5 /s"]
