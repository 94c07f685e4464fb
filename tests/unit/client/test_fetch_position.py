"""A reader's way through a partition: damage is reported or skipped, never returned, and never fetched for ever."""

from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
from support.flipped_log import FlippedLog
from support.kafka_folder import legacy_messages, segment_batch
from support.long_tests import first_is_quick

from barnabas.core.client.consumer.fetch_position import (
    BEYOND_END_MAX,
    EMPTY_FETCHES_MAX,
    CorruptionProbe,
    FetchPosition,
    PartitionFetchSettings,
)
from barnabas.core.message.batch_header import HEADER_SIZE
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.corrupt_record import CorruptRecord, Damage
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.fetch import FetchResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

ASKED_MAX = 300
BASE_OFFSET, LENGTH, LEADER_EPOCH = range(8), range(8, 12), range(12, 16)


class Reader:
    """Reads a log to its end; counts what it asks for."""

    def __init__(self, log: Any, start: int = 0, max_bytes: int = 400, **rules: Any) -> None:
        self.log = log
        self.asked = 0
        self.damaged: list[Damage] = []
        self.local_start = 0
        self.fetch_position = FetchPosition(
            TopicPartition("t", 0), PartitionFetchSettings(max_bytes=max_bytes, **rules)
        )
        self.fetch_position.jump(start)

    def step(self) -> list[tuple[int, bytes | None]]:
        offset, max_bytes = self.fetch_position.ask()
        self.asked += 1
        assert self.asked <= ASKED_MAX, "it repeats for ever"
        found = self.log.fetch(offset, max_bytes)
        if found.error is ErrorCode.CORRUPT_MESSAGE:
            piece = self.fetch_position.refused("the broker cannot read it")
        elif found.error is ErrorCode.OFFSET_OUT_OF_RANGE and self.fetch_position.exploring:
            piece = self.fetch_position.refused("", out_of_range=True)
        else:
            assert found.error is ErrorCode.NONE, (offset, found)
            piece = self.fetch_position.answered(found)
        if piece is None and self.fetch_position.awaits_local_start((-1, -1)):
            self.asked += 1
            piece = self.fetch_position.on_local_start(self.local_start)
        if piece is None:
            return []
        if piece.damage is not None:
            self.damaged.append(piece.damage)
        messages = MessageSet(
            piece.records,
            NO_CODECS,
            from_offset=piece.from_offset,
            batches=piece.batches,
            next_offset=piece.next_offset,
        )
        return [(message.offset, message.value) for message in messages]

    def rows(self, end: int | None = None) -> Iterator[tuple[int, bytes | None]]:
        while self.fetch_position.position < (self.log.end if end is None else end):
            yield from self.step()


def right(offsets: Any) -> list[tuple[int, bytes | None]]:
    return [(n, b"%d" % n) for n in offsets]


_LOGS = {"ones": FlippedLog([1] * 8, [1] * 8), "tens": FlippedLog([10] * 8, [10] * 8)}


def log_of(layout: str) -> FlippedLog:
    return deepcopy(_LOGS[layout])


def flips(segment: int, batch: int) -> Iterator[tuple[int, int]]:
    """(byte, bit) of the header and the first record.

    Not the leader epoch, which nothing vouches for, and which harms nothing. And not the base offset of the first batch
    of a segment: where it sinks, a broker passes over the batch, and no answer shows it beside the one before.
    """
    for byte, bit in [*product([*BASE_OFFSET, *LENGTH], (0, 1, 4, 7)), *((n, 2) for n in range(12, HEADER_SIZE + 3))]:
        if byte not in LEADER_EPOCH and not (byte in BASE_OFFSET and segment > 0 and batch == 0):
            yield byte, bit


@pytest.mark.parametrize("max_bytes", first_is_quick([400, 1, 100_000]))
@pytest.mark.parametrize(("segment", "batch"), first_is_quick([(0, 4), (1, 7), (0, 0), (0, 7), (1, 0), (1, 5)], 2))
@pytest.mark.parametrize("layout", ["ones", "tens"])
def test_flipped_bit_raises_at_its_batch_or_is_skipped_on_request(
    layout: str, segment: int, batch: int, max_bytes: int
) -> None:
    for byte, bit in flips(segment, batch):
        log = log_of(layout)
        first, _, count = log.places[segment][batch]
        log.flip(segment, batch, byte, bit)
        read: list[tuple[int, bytes | None]] = []
        with pytest.raises(CorruptRecord) as observed:
            read.extend(Reader(log, max_bytes=max_bytes).rows())
        assert (observed.value.topic, observed.value.partition) == ("t", 0)
        assert observed.value.offset == first, (byte, bit, observed.value)
        reader = Reader(log, max_bytes=max_bytes, skip_damaged=True)
        rows, damaged = list(reader.rows()), set(range(first, first + count))
        left_out = {n for damage in reader.damaged for n in range(damage.start, damage.end)}
        assert rows == right(n for n in range(log.end) if n not in left_out), (byte, bit)
        assert damaged <= left_out, (byte, bit)
        if not log.refused and byte not in LENGTH:  # else the broker does not find some of what is right, either
            assert damaged == left_out, (byte, bit)


def test_the_leader_epoch_of_a_batch_harms_nothing() -> None:
    log = log_of("tens")
    log.flip(0, 4, LEADER_EPOCH[0], 3)
    assert list(Reader(log).rows()) == right(range(log.end))


def test_gaps_of_compaction_are_legal() -> None:
    everything = set(range(160))
    for gone in ([0], [40], [40, 50], [70], [80], [150], [30, 70, 80, 110], [10 * n for n in range(15)]):
        for max_bytes in (1, 200, 400, 100_000):
            log = log_of("tens")
            log.leave_out(*gone)
            remaining = sorted(everything - {base + n for base in gone for n in range(10)})
            reader = Reader(log, max_bytes=max_bytes)
            if 150 in gone:
                assert list(reader.rows(end=150)) == right(remaining)
            else:
                assert list(reader.rows()) == right(remaining), (gone, max_bytes)
            assert reader.asked <= 60


@pytest.mark.parametrize("max_bytes", [200, 400, 100_000])
@pytest.mark.parametrize("layout", ["ones", "tens"])
def test_batch_that_is_compacted_away_before_it_is_confirmed_is_no_damage(layout: str, max_bytes: int) -> None:
    log = log_of(layout)
    size = log.end // 16
    log.leave_out(5 * size, 6 * size)  # so that the last batch of a segment follows a gap
    reader = Reader(log, max_bytes=max_bytes)
    rows: list[tuple[int, bytes | None]] = []
    compacted = False
    while reader.fetch_position.position < log.end:
        asked, _ = reader.fetch_position.ask()
        if asked == 8 * size - 1 and reader.fetch_position.exploring:
            log.leave_out(7 * size)
            compacted = True
        rows += reader.step()
    assert compacted
    assert rows == right([*range(5 * size), *range(8 * size, log.end)])


def test_a_log_with_gaps_is_looked_back_at_once_not_at_each_gap() -> None:
    log = FlippedLog([10] * 40)
    log.leave_out(*range(10, 400, 20))
    reader = Reader(log, max_bytes=1)
    assert len(list(reader.rows(end=380))) == 200
    assert reader.asked <= 20 + 3


def test_reading_begins_within_a_batch_and_within_a_gap() -> None:
    log = log_of("tens")
    log.leave_out(50)
    assert list(Reader(log, start=45).rows()) == right([*range(45, 50), *range(60, 160)])
    assert list(Reader(log, start=55).rows()) == right(range(60, 160))


def test_a_damaged_log_that_begins_in_the_middle() -> None:
    log = FlippedLog([10] * 4, start=1000)
    log.flip(0, 0, 30, 1)
    with pytest.raises(CorruptRecord, match=r"t-0 is damaged at offset 1000: .*CRC"):
        list(Reader(log, start=1000).rows())


def test_batch_beyond_reported_end_is_fetched_again() -> None:
    """Kafka reports the end as of before its read."""
    log = log_of("tens")

    class Behind:
        end = log.end
        times = 0

        def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
            found = log.fetch(offset, max_bytes)
            if offset == 150 and self.times < BEYOND_END_MAX:
                self.times += 1
                return FetchResultPartition("t", 0, ErrorCode.NONE, 155, 155, 0, found.records)
            return found

    assert list(Reader(Behind()).rows()) == right(range(160))


def test_a_broker_that_brings_nothing_is_not_asked_for_ever() -> None:
    log = log_of("tens")

    class Silent:
        end = log.end

        def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
            if 60 <= offset < 90:
                return FetchResultPartition("t", 0, ErrorCode.NONE, log.end, log.end, 0)
            return log.fetch(offset, max_bytes)

    reader = Reader(Silent())
    with pytest.raises(CorruptRecord, match=r"offset 60: the broker returns nothing, although .* 160 are readable"):
        list(reader.rows())
    assert reader.asked <= 5 + EMPTY_FETCHES_MAX
    skipping = Reader(Silent(), skip_damaged=True)
    assert list(skipping.rows()) == right([*range(60), *range(90, 160)])
    assert [(d.start, d.end) for d in skipping.damaged] == [(60, 90)]


def test_at_the_end_nothing_is_wrong_however_often_nothing_comes() -> None:
    reader = Reader(log_of("tens"), start=160)
    for _ in range(3 * EMPTY_FETCHES_MAX):
        assert reader.step() == []
        assert reader.fetch_position.at_end


def test_the_rest_of_the_log_may_be_unreadable() -> None:
    log = log_of("tens")

    class Refusing:
        end = log.end

        def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
            if offset >= 120 and offset < log.end:
                return FetchResultPartition("t", 0, ErrorCode.CORRUPT_MESSAGE)
            return log.fetch(offset, max_bytes)

    reader = Reader(Refusing(), skip_damaged=True)
    assert list(reader.rows()) == right(range(120))
    assert [(d.start, d.end) for d in reader.damaged] == [(120, 160)]
    with pytest.raises(CorruptRecord, match="offset 120"):
        list(Reader(Refusing()).rows())


@pytest.mark.parametrize("behind", [1, 2, 3, 64, 999, 1000])
def test_corruption_probe_finds_end_of_damage_in_few_requests(behind: int) -> None:
    start, end = 10**6, 10**6 + 1000
    probe = CorruptionProbe(start, end, "why")
    asked = 0
    while probe.found is None:
        asked += 1
        offset = probe.offset
        assert start < offset < end
        probe.on_result(offset, None if offset < start + behind else offset - offset % 7 if offset % 2 else offset)
    assert asked <= 2 * 11
    if behind < 1000:
        assert probe.found is not None
        assert start < probe.found <= start + behind


class LegacyLog:
    """Entries of magic 1 at these offsets, and batches with an offset each."""

    start = 0

    def __init__(self, *offsets: int, batches: Sequence[int] = (), damaged: int = -1) -> None:
        self.entries: list[tuple[int, bytes]] = []
        for offset in offsets:
            entry = segment_batch([b"%d" % offset], offset) if offset in batches else legacy_messages([offset])
            self.entries.append((offset, entry[:-1] + b"?" if offset == damaged else entry))
        self.end = offsets[-1] + 1

    def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
        found = [entry for last, entry in self.entries if last >= offset]
        size = max(max_bytes, len(found[0]) if found else 0)
        return FetchResultPartition(
            "t", 0, ErrorCode.NONE, self.end, self.end, self.start, records=b"".join(found)[:size]
        )


@pytest.mark.parametrize("max_bytes", [1, 60, 100, 1000])
@pytest.mark.parametrize("batches", [(), (0, 1), (3, 4), (9,)])
def test_messages_from_before_batches_are_read(max_bytes: int, batches: Sequence[int]) -> None:
    assert list(Reader(LegacyLog(*range(10), batches=batches), max_bytes=max_bytes).rows()) == right(range(10))
    compacted = [0, 3, 4, 9]
    for start in range(10):
        wanted = [offset for offset in compacted if offset >= start]
        log = LegacyLog(*compacted, batches=batches)
        assert list(Reader(log, start=start, max_bytes=max_bytes).rows()) == right(wanted)


@pytest.mark.parametrize("max_bytes", [60, 1000])
def test_damaged_message_from_before_batches_is_reported_or_skipped(max_bytes: int) -> None:
    log = LegacyLog(*range(5), batches=(4,), damaged=2)
    read: list[tuple[int, bytes | None]] = []
    with pytest.raises(CorruptRecord) as raised:
        read.extend(Reader(log, max_bytes=max_bytes).rows())
    assert raised.value.offset == 2
    assert read == right(range(2))
    reader = Reader(log, max_bytes=max_bytes, skip_damaged=True)
    assert list(reader.rows()) == right([0, 1, 4])
    assert [(damage.start, damage.end) for damage in reader.damaged] == [(2, 4)]  # up to the next batch


class Slow:
    """A log whose remote storage brings nothing in its first `patience` answers to each offset below `local_start`."""

    def __init__(self, name: str, local_start: int, patience: int = 3 * EMPTY_FETCHES_MAX) -> None:
        self.log = log_of(name)
        self.end = self.log.end
        self.local_start, self.patience = local_start, patience
        self.asked: Counter[int] = Counter()

    def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
        self.asked[offset] += 1
        if offset < self.local_start and self.asked[offset] <= self.patience:
            return FetchResultPartition("t", 0, ErrorCode.NONE, self.end, self.end, 0)
        return self.log.fetch(offset, max_bytes)


@pytest.mark.parametrize("skip_damaged", [False, True])
def test_slow_remote_storage_is_not_taken_for_damage(skip_damaged: bool) -> None:
    log = Slow("tens", local_start=130)
    reader = Reader(log, skip_damaged=skip_damaged)
    reader.local_start = 130
    assert list(reader.rows()) == right(range(160))
    assert not reader.damaged


def test_records_behind_damage_are_not_skipped_while_remote_storage_is_slow() -> None:
    class Damaged(Slow):
        def fetch(self, offset: int, max_bytes: int) -> FetchResultPartition:
            found = super().fetch(offset, max_bytes)
            is_damaged = 60 <= offset < 70 and self.asked[offset] > self.patience
            return FetchResultPartition("t", 0, ErrorCode.CORRUPT_MESSAGE) if is_damaged else found

    reader = Reader(Damaged("tens", local_start=160, patience=EMPTY_FETCHES_MAX + 1), skip_damaged=True)
    reader.local_start = 160
    assert list(reader.rows()) == right([*range(60), *range(70, 160)])
    assert [(d.start, d.end) for d in reader.damaged] == [(60, 70)]


def test_empty_answers_of_an_earlier_leader_show_no_damage() -> None:
    reader = Reader(Slow("tens", local_start=160))
    position = reader.fetch_position
    silent = FetchResultPartition("t", 0, ErrorCode.NONE, 160, 160, 0)
    for _ in range(EMPTY_FETCHES_MAX):
        assert not position.awaits_local_start((1, 5))
        position.ask((1, 5))
        assert position.answered(silent) is None
    assert position.awaits_local_start((1, 5))
    assert not position.awaits_local_start((2, 6)), "the new leader has the whole log, the earlier one had a part"
    position.ask((2, 6))
    assert position.answered(silent) is None
    assert not position.awaits_local_start((2, 6))
