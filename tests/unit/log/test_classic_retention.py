"""Retention of classic logs, by age and by size (facts A4)."""

from collections.abc import Sequence

import pytest
from support.classic_frames import message_set
from support.classic_logs import flush, open_classic, put, visible

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.retention import SegmentInfo
from barnabas.core.traffic.steps import complete
from barnabas.ports.storage import Folder
from barnabas.testing.logs import bytes_of

SIZE = 15
"""The size of every segment here."""


class Story:
    """Four segments, the last changes at 1000, 2000, 3000 and 4000."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.folder: Folder = MemoryLogDir(MemoryDisk(now_ms=lambda: self.now_ms)).folder("t-0")

    def open(self, *, retention_ms: int = -1, retention_bytes: int = -1) -> UnifiedLog:
        config = LogConfig(segment_bytes=14, retention_ms=retention_ms, retention_bytes=retention_bytes)
        return open_classic(self.folder, config=config, now_ms=self.now_ms)

    def filled(self, *, retention_ms: int = -1, retention_bytes: int = -1) -> UnifiedLog:
        log = self.open(retention_ms=retention_ms, retention_bytes=retention_bytes)
        for _ in range(4):
            self.now_ms += 1000
            put(log, b"12345", now_ms=self.now_ms)
        flush(log)
        return log


@pytest.fixture
def story() -> Story:
    return Story()


def _retain(log: UnifiedLog, now_ms: int) -> int:
    removed = complete(log.retain(now_ms, log.readable_end))
    for segment in removed:
        segment.delete()
    return len(removed)


def test_segments_go_when_their_file_is_older_than_the_retention(story: Story) -> None:
    log = story.filled(retention_ms=2000)
    assert _retain(log, 3000) == 0
    assert _retain(log, 3001) == 1
    assert log.log_start_offset == SIZE
    assert sorted(story.folder.files()) == [f"{base:020d}.kafka" for base in (15, 30, 45)]
    assert _retain(log, 5001) == 2
    assert visible(log) == message_set(b"12345")


def test_the_age_is_that_of_the_file_after_a_restart_too(story: Story) -> None:
    story.filled().close()
    story.now_ms = 50_000
    log = story.open(retention_ms=2000)
    assert _retain(log, 3001) == 1


def test_segments_go_while_the_log_keeps_its_size_without_them(story: Story) -> None:
    log = story.filled(retention_bytes=2 * SIZE + 1)
    assert _retain(log, 4000) == 1
    assert log.size_bytes == 3 * SIZE
    log = Story().filled(retention_bytes=2 * SIZE)
    assert _retain(log, 4000) == 2
    log = Story().filled(retention_bytes=4 * SIZE + 1)
    assert _retain(log, 4000) == 0
    log = Story().filled(retention_bytes=-1)
    assert _retain(log, 10**15) == 0


@pytest.mark.parametrize("retention", [{"retention_ms": 10}, {"retention_bytes": 0}])
def test_when_all_may_go_a_fresh_one_is_begun_first(story: Story, retention: dict[str, int]) -> None:
    log = story.filled(**retention)
    assert _retain(log, 10_000) == 4
    assert [segment.base_offset for segment in log.segments] == [4 * SIZE]
    assert (log.log_start_offset, log.readable_end, log.size_bytes) == (4 * SIZE, 4 * SIZE, 0)
    assert list(story.folder.files()) == [f"{4 * SIZE:020d}.kafka"]
    assert put(log, b"next") == 4 * SIZE


def test_an_empty_active_segment_is_retained_and_counts_as_new(story: Story) -> None:
    log = story.filled(retention_ms=10)
    _retain(log, 10_000)
    assert log.times.offsets_before(10_000, 1, 99_000) == [4 * SIZE]
    assert _retain(log, 20_000) == 0
    assert len(log.segments) == 1
    assert log.times.offsets_before(10_000, 1, 99_000) == []
    assert log.times.offsets_before(20_000, 1, 99_000) == [4 * SIZE]


def test_unflushed_messages_are_retained(story: Story) -> None:
    log = story.filled(retention_ms=10)
    put(log, b"12345", now_ms=4000)
    put(log, b"67", now_ms=4000)
    assert _retain(log, 10_000) == 5
    assert bytes_of(log, log.log_start_offset, limit=10**9) == b""
    flush(log)
    assert visible(log) == message_set(b"67")


def test_regions_of_removed_segments_stay_readable(story: Story) -> None:
    log = story.filled(retention_ms=10)
    records = log.read(0, max_bytes=100, limit=log.readable_end).records
    _retain(log, 10_000)
    assert not isinstance(records, bytes)
    assert records.read() == message_set(b"12345")


def test_segments_below_an_advanced_start_go(story: Story) -> None:
    log = story.filled()
    log.advance_log_start(SIZE + 3)
    assert _retain(log, 0) == 1
    assert (log.log_start_offset, log.segments[0].base_offset) == (SIZE + 3, SIZE)


def test_the_decision_is_the_plugins(story: Story) -> None:
    log = story.filled(retention_ms=0)

    class OlderThanThree:
        def deletable(self, segments: Sequence[SegmentInfo], *, now_ms: int, config: LogConfig) -> int:
            return sum(segment.largest_timestamp_ms < 3000 for segment in segments)

    log.update_config(log.config, OlderThanThree())
    assert _retain(log, 9000) == 2
