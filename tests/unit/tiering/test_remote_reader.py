"""The loads of readers of remote storage, and their times."""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.core.log.segment.offset_index import OFFSET_ENTRY
from barnabas.core.message.batch_header import assign_offset, parse_header
from barnabas.core.message.codec import Codecs
from barnabas.core.tiering.manifest import Manifest, RemoteSegment, SegmentState, TieredTopic, indexes_key, log_key
from barnabas.core.tiering.remote_reader import (
    RemoteLogReader,
    RemoteRecords,
    RemoteView,
)
from barnabas.core.tiering.segment_objects import IndexType, encode_parts
from barnabas.ports.scheduler import Outcome
from barnabas.ports.storage import JoinedBuffers
from barnabas.testing.logs import batch

KB = 1 << 10
PIECE = 64 * KB
BATCHES = 190
Work = tuple[Callable[[], Any], Callable[[Outcome[Any]], None]]


def _segment() -> bytes:
    found = bytearray()
    for offset in range(BATCHES):
        records = bytearray(batch(b"x" * 1_000))
        assign_offset(records, offset, 0)
        found += records
    return bytes(found)


CONTENT = _segment()
SIZE = len(CONTENT) // BATCHES
INDEX = b"".join(OFFSET_ENTRY.pack(offset, offset * SIZE) for offset in range(BATCHES))
SEGMENT = RemoteSegment(
    segment_id="s",
    base_offset=0,
    next_offset=BATCHES,
    size=len(CONTENT),
    max_timestamp=0,
    epochs=((0, 0),),
    leader_epoch=0,
    state=SegmentState.COPY_FINISHED,
)
MANIFEST = Manifest(
    topic=TieredTopic(name="t", topic_id=bytes(16), partitions=1),
    partition=0,
    leader_epoch=0,
    epochs=((0, 0),),
    segments=(SEGMENT,),
)


def storage_with(*folders: str) -> MemoryRemoteStorage:
    storage = MemoryRemoteStorage()
    for folder in folders:
        storage.put(log_key(folder, SEGMENT), CONTENT)
        storage.put(indexes_key(folder, SEGMENT), encode_parts({IndexType.OFFSET: INDEX}))
    return storage


def content_of(found: RemoteRecords) -> bytes:
    records = found.records
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()


class World:
    """A reader whose loads wait until `work`."""

    def __init__(
        self, *folders: str, pending_max: int = 100, resume: Callable[[Callable[[], None]], None] = lambda work: work()
    ) -> None:
        self.waiting: list[Work] = []
        self.loaded = 0
        self.sizes: deque[int] = deque(maxlen=30)
        self.storage = storage_with(*folders)
        self.reader = RemoteLogReader(
            self.storage,
            lambda work, done: self.waiting.append((work, done)),
            Codecs([]),
            pending_max=pending_max,
            index_bytes_max=1 << 20,
            piece_bytes=PIECE,
            resume=resume,
            delayed=self.count,
        )

    def count(self, size: int, begin: Callable[[], None]) -> None:
        begin()
        self.loaded += size
        self.sizes.append(size)

    def work(self) -> None:
        while self.waiting:
            work, done = self.waiting.pop(0)
            done(Outcome.of(work))

    def begin(self, folder: str, offset: int, size: int = 16 * KB) -> list[Outcome[RemoteRecords | None]]:
        came: list[Outcome[RemoteRecords | None]] = []
        view = RemoteView(folder=folder, manifest=MANIFEST)
        self.reader.read(view, offset, max_bytes=size, committed=False, done=came.append)
        return came

    def read(self, folder: str, offset: int, size: int = 16 * KB) -> tuple[bytes, int]:
        """Return the whole batches, and the offset behind them."""
        came = self.begin(folder, offset, size)
        self.work()
        found = came[0].get()
        assert found is not None
        records, at = content_of(found), 0
        while at + 61 <= len(records) and at + (header := parse_header(records, at)).size <= len(records):
            at += header.size
            offset = header.next_offset
        return records[:at], offset


@pytest.mark.parametrize("size", [1, 1_500, 16 * KB, 9 * 16 * KB])
def test_sequential_reader_gets_every_byte_and_loads_it_once(size: int) -> None:
    world = World("t/0")
    found, offset = b"", 0
    while offset < BATCHES:
        records, offset = world.read("t/0", offset, size)
        found += records
    assert found == CONTENT
    assert world.loaded <= len(CONTENT) + 8 * BATCHES + 100


def test_readers_that_wait_for_one_piece_are_resumed_one_by_one() -> None:
    later: deque[Callable[[], None]] = deque()
    world = World("t/0", resume=later.append)
    came = [world.begin("t/0", offset) for offset in (0, 3, 7)]
    while world.waiting or later:
        before = sum(map(len, came))
        while world.waiting:
            work, done = world.waiting.pop(0)
            done(Outcome.of(work))
        assert sum(map(len, came)) == before, "a load answers readers"
        if later:
            later.popleft()()
        assert sum(map(len, came)) <= before + 1
    assert [len(each) for each in came] == [1, 1, 1]
    assert world.loaded <= len(CONTENT)


def test_sequential_reader_does_not_wait_behind_its_first_read() -> None:
    world = World("t/0")
    _, offset = world.read("t/0", 0)
    while offset < BATCHES:
        came = world.begin("t/0", offset)
        assert came, f"the read of {offset} waits"
        _, offset = world.read("t/0", offset)


def test_large_read_loads_its_pieces_at_the_same_time() -> None:
    world = World("t/0")
    world.begin("t/0", 0, 160 * KB)
    for _ in range(2):  # the indexes, the piece with the first batch
        work, done = world.waiting.pop(0)
        done(Outcome.of(work))
    assert len(world.waiting) == len(CONTENT[: 160 * KB]) // PIECE


@pytest.mark.parametrize(("readers", "most"), [(8, 1.1), (12, 1.1), (40, 1.8), (100, 1.8)])
def test_many_readers_load_little_more_than_they_read(readers: int, most: float) -> None:
    """A cache that is too small for all of them must not load each piece for every read."""
    folders = [f"t/{number}" for number in range(readers)]
    world = World(*folders)
    offsets = dict.fromkeys(folders, 0)
    while min(offsets.values()) < BATCHES:
        for folder in folders:
            if offsets[folder] < BATCHES:
                _, offsets[folder] = world.read(folder, offsets[folder])
    assert world.loaded < most * readers * len(CONTENT)


def test_pieces_become_large_again_when_most_readers_have_gone() -> None:
    folders = [f"t/{number}" for number in range(60)]
    world = World(*folders)
    for offset in (0, 15, 30):
        for folder in folders:
            world.read(folder, offset)
    assert max(world.sizes) < PIECE
    for folder in folders * 3:
        offset = 0
        while offset < BATCHES:
            _, offset = world.read(folder, offset)
    assert max(world.sizes) == PIECE


def test_reading_ahead_leaves_room_for_those_who_wait() -> None:
    world = World("t/0", "t/1", pending_max=2)
    world.read("t/0", 0)
    world.begin("t/0", 20)
    came = world.begin("t/1", 0)
    world.work()
    assert came[0].error is None


def test_object_that_is_too_short_is_an_error() -> None:
    world = World("t/0")
    world.storage.put(log_key("t/0", SEGMENT), CONTENT[: 16 * KB])
    view = RemoteView(folder="t/0", manifest=MANIFEST)
    came: list[Outcome[RemoteRecords | None]] = []
    world.reader.read(view, 0, max_bytes=16 * KB, committed=False, done=came.append)
    world.work()
    assert isinstance(came[0].error, ValueError)


def test_read_across_pieces_hands_out_the_pieces_themselves() -> None:
    world = World("t/0")
    came = world.begin("t/0", 0, 2 * PIECE + 10)
    world.work()
    found = came[0].get()
    assert found is not None
    assert isinstance(found.records, JoinedBuffers)
    assert [len(each) for each in found.records.parts] == [PIECE, PIECE, 10]
    assert content_of(found) == CONTENT[: 2 * PIECE + 10]
    assert all(isinstance(each, memoryview) for each in found.records.parts)
