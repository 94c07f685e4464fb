"""Compaction of a log: what goes, what stays, and where it stands afterwards (facts B5)."""

import pytest
from attrs import evolve
from support.cleaned_log import COMPACT, CleanedLogs, last_values, messages_of

from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.compaction.cleaning_job import CleanerSettings
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.segment.segment import Segment
from barnabas.core.message.batch_header import DELETE_HORIZON_BIT, BatchHeader, parse_header
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import Codecs
from barnabas.core.message.message import Message
from barnabas.core.message.record_validation import InvalidRecords
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import ZstdCodec
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.logs import TP, batch, bytes_of, numbered

DAY_MS = 86_400_000


def batches_of(log: UnifiedLog) -> list[BatchHeader]:
    """Return all batches, the empty ones and markers too."""
    offset, found = log.log_start_offset, list[BatchHeader]()
    while offset < log.log_end_offset and (records := bytes_of(log, offset)):
        found += [header for _, header in whole_batches(records)]
        offset = found[-1].next_offset
    return found


def offsets_of(log: UnifiedLog, key: bytes) -> list[int]:
    return [message.offset for message in messages_of(log) if message.key == key]


def observed(logs: CleanedLogs, text: str) -> list[str]:
    return [line for line in logs.reports if text in line]


def test_the_last_value_of_each_key_stays_where_it_was() -> None:
    logs = CleanedLogs()
    for number in range(40):
        logs.put((b"k%d" % (number % 5), b"v%d" % number), (b"once%d" % number, b"x"))
    before = messages_of(logs.log)
    wanted, size = last_values(logs.log), logs.log.size_bytes
    logs.clean()
    after = [message for message in messages_of(logs.log) if message.key != b"rolled"]
    assert {key: value for key, value in last_values(logs.log).items() if key != b"rolled"} == wanted
    assert [message for message in before if message in after] == after
    assert len(after) == 45
    assert logs.log.size_bytes < size
    (line,) = observed(logs, "is compacted below")
    assert "35 of" in line


def test_small_segments_become_one() -> None:
    logs = CleanedLogs()
    for number in range(40):
        logs.put((b"k", b"%d" % number))
    logs.configure(segment_bytes=100_000)
    assert len(logs.log.segments) > 8
    logs.clean()
    assert len(logs.log.segments) == 2
    assert [header.count for header in batches_of(logs.log)] == [1, 1]
    assert (logs.log.log_start_offset, logs.log.segments[0].base_offset) == (0, 0)


def test_full_segments_without_survivors_become_one_empty_batch() -> None:
    """librdkafka reports MSG_SIZE_TOO_LARGE after eleven responses in a row without a record."""
    logs = CleanedLogs()
    for number in range(40):
        logs.put((b"k", b"%d" % number * 20))
    assert len(logs.log.segments) > 15
    logs.clean()
    counts = [header.count for header in batches_of(logs.log)]
    assert counts.count(0) <= 1
    assert len(logs.log.segments) <= 3
    assert [message.value for message in messages_of(logs.log) if message.key == b"k"] == [b"39" * 20]


def test_a_deletion_stays_for_its_time_and_no_longer() -> None:
    logs = CleanedLogs(evolve(COMPACT, delete_retention_ms=DAY_MS))
    logs.put((b"k", b"v"), (b"other", b"x"))
    stamp = logs.clock.now_ms()
    logs.put((b"k", None), (b"other", b"y"))
    logs.clean()
    horizon = logs.clock.now_ms() + DAY_MS
    (tombstone,) = [message for message in messages_of(logs.log) if message.key == b"k"]
    assert (tombstone.offset, tombstone.value, tombstone.timestamp_ms) == (2, None, stamp)
    (header,) = [header for header in batches_of(logs.log) if header.attributes & DELETE_HORIZON_BIT]
    assert horizon - 3000 < header.base_timestamp <= horizon
    assert header.max_timestamp == stamp
    logs.wait(DAY_MS - 10_000)
    logs.clean()
    assert offsets_of(logs.log, b"k") == [2]
    logs.wait(10_000)
    logs.clean()
    assert offsets_of(logs.log, b"k") == []
    assert offsets_of(logs.log, b"other") == [3]


def test_messages_without_a_key_are_refused_and_old_ones_go() -> None:
    logs = CleanedLogs()
    logs.configure(cleanup_policy=frozenset({"delete"}), retention_ms=-1)
    logs.put((None, b"no key"), (b"k", b"v"))
    logs.configure(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(InvalidRecords) as refused:
        logs.put((b"k", b"w"), (None, b"no key"))
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [error.index for error in refused.value.record_errors] == [1]
    logs.clean()
    assert [message.key for message in messages_of(logs.log)] == [b"k", b"rolled"]


def test_young_undecided_and_active_records_are_retained() -> None:
    logs = CleanedLogs(evolve(COMPACT, min_compaction_lag_ms=60_000))
    for number in range(10):
        logs.put((b"k", b"%d" % number))
    logs.clean()
    assert len(offsets_of(logs.log, b"k")) == 10
    logs.decided_to = {TP: None}
    logs.wait(60_000)
    logs.clean()
    assert len(offsets_of(logs.log, b"k")) == 10
    logs.decided_to = {TP: Offset(5)}
    logs.wait(2000)
    assert len(offsets_of(logs.log, b"k")) >= 6
    logs.decided_to = {}
    logs.wait(2000)
    assert offsets_of(logs.log, b"k") == [9]
    active = logs.log.segments[-1]
    logs.put((b"k", b"x"))
    logs.put((b"k", b"y"))
    logs.wait(120_000)
    assert logs.log.segments[-1] is active
    assert offsets_of(logs.log, b"k") == [9, *range(active.base_offset + 1, logs.log.log_end_offset)]


def test_the_share_that_is_dirty_decides_or_the_age() -> None:
    logs = CleanedLogs(evolve(COMPACT, min_cleanable_dirty_ratio=0.5))
    for number in range(30):
        logs.put((b"k%d" % number, b"v"))
    logs.clean()
    assert len(observed(logs, "is compacted below")) == 1
    for _ in range(5):
        logs.put((b"k1", b"again"))
    logs.clean()
    assert len(observed(logs, "is compacted below")) == 1
    logs.configure(max_compaction_lag_ms=50_000)
    logs.wait(10_000)
    assert len(observed(logs, "is compacted below")) == 1
    logs.wait(40_000)
    assert len(observed(logs, "is compacted below")) == 2
    assert len(offsets_of(logs.log, b"k1")) == 1


def test_segments_are_sealed_at_the_greatest_age_of_what_is_not_compacted() -> None:
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=100_000, max_compaction_lag_ms=5000))
    logs.put((b"k", b"1"))
    logs.wait(6000)
    logs.put((b"k", b"2"))
    logs.wait(6000)
    assert len(logs.log.segments) == 2


def test_the_dirtiest_log_comes_first() -> None:
    logs = CleanedLogs()
    logs.configure(min_cleanable_dirty_ratio=0.01)
    others = [logs.manager.create(TopicPartition("t", number)) for number in (1, 2)]
    for log in (logs.log, *others):
        for number in range(20):
            logs.put((b"k%d" % number, b"v"), log=log)
    logs.clean()
    logs.reports.clear()
    logs.settings = CleanerSettings(threads=0, backoff_ms=10)
    logs.wait(2000)
    for times, log in ((4, logs.log), (20, others[0]), (8, others[1])):
        for _ in range(times):
            logs.put((b"k1", b"v"), log=log)
        logs.put((b"k1", b"v"), at=logs.clock.now_ms() + 2**61, log=log)
    logs.wait(100)
    assert not observed(logs, "is compacted")
    logs.settings = CleanerSettings(backoff_ms=10)
    logs.wait(100)
    assert [line.split()[0] for line in observed(logs, "is compacted")][:3] == ["t-1", "t-2", "t-0"]


def test_compressed_batches_stay_so() -> None:
    codecs = Codecs([ZstdCodec()])
    logs = CleanedLogs(codecs=codecs)
    for number in range(6):
        pairs = [(b"k%d" % key, b"v%d" % number * 20) for key in range(number % 3 + 1)]
        records = batch(*(value for _, value in pairs), keys=[key for key, _ in pairs], codec=ZstdCodec())
        logs.log.append(records, leader_epoch=0, now_ms=logs.clock.now_ms())
    logs.clean()
    found = [(message.offset, message.key) for message in messages_of(logs.log, codecs)]
    assert found[:3] == [(9, b"k0"), (10, b"k1"), (11, b"k2")]
    remaining = [header for header in batches_of(logs.log) if header.count > 1]
    assert all(header.codec_id == ZstdCodec().id for header in remaining)


def test_log_append_time_stays() -> None:
    logs = CleanedLogs(evolve(COMPACT, message_timestamp_type="LogAppendTime", delete_retention_ms=DAY_MS))
    logs.wait(500)
    logs.put((b"a", b"1"), (b"b", None), (b"c", b"3"), at=7)
    stamp = logs.clock.now_ms()
    logs.wait(500)
    logs.put((b"a", b"2"))
    logs.clean()
    times = {message.key: message.timestamp_ms for message in messages_of(logs.log)}
    assert (times[b"b"], times[b"c"]) == (stamp, stamp)


# --- producers


def test_the_last_batch_of_a_producer_stays_if_without_messages() -> None:
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=100_000))

    def send(producer: int, sequence: int) -> None:
        records = encode_batch(
            [Message(b"%d" % sequence, key=b"k", timestamp_ms=1)],
            now_ms=0,
            producer_id=producer,
            producer_epoch=3,
            base_sequence=sequence,
        )
        logs.log.append(memoryview(records), leader_epoch=0, now_ms=logs.clock.now_ms())

    for sequence in range(5):
        send(7, sequence)
    for sequence in range(5):
        send(8, sequence)
    logs.clean()
    assert [(h.producer_id, h.base_sequence, h.count) for h in batches_of(logs.log)][:2] == [(7, 4, 0), (8, 4, 1)]
    logs.kill()
    for name in [name for name in logs.disk.folders[str(TP)] if name.endswith(".snapshot")]:
        del logs.disk.folders[str(TP)][name]
    logs.start()
    send(7, 5)
    send(8, 5)
    logs.manager.expire_producers()
    assert set(logs.log.producers.producers) == {7, 8}
    logs.log.producers.expire(2**62)
    logs.clean()
    assert 4 not in [header.base_sequence for header in batches_of(logs.log)]


# --- transactions


def in_transaction(logs: CleanedLogs, *keys: bytes, committed: bool, producer: int = 1) -> None:
    now_ms = logs.clock.now_ms()
    known = logs.log.producers.producers.get(producer)
    records = encode_batch(
        [Message(b"x", key=key, timestamp_ms=now_ms) for key in keys],
        now_ms=0,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0 if known is None else known.last_sequence + 1,
        transactional=True,
    )
    logs.log.append(memoryview(records), leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.TRANSACTION)
    logs.log.append_marker(producer, 0, committed, 1, leader_epoch=0, now_ms=now_ms)


def markers_in(log: UnifiedLog) -> list[int]:
    return [header.base_offset for header in batches_of(log) if header.control and header.count]


def aborted_in(log: UnifiedLog) -> list[tuple[int, int, int]]:
    found = log.transactions.aborted(0, log.log_end_offset)
    return [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in found]


def test_aborted_data_goes_and_its_marker_later() -> None:
    logs = CleanedLogs(evolve(COMPACT, delete_retention_ms=DAY_MS))
    logs.put((b"a", b"before"), (b"b", b"before"))
    in_transaction(logs, b"a", b"c", committed=False)
    in_transaction(logs, b"b", committed=True, producer=2)
    assert aborted_in(logs.log) == [(1, 2, 4)]
    logs.clean()
    assert [(each.key, each.offset) for each in messages_of(logs.log)][:2] == [(b"a", 0), (b"b", 5)]
    assert markers_in(logs.log) == [4, 6]
    assert aborted_in(logs.log) == [(1, 2, 4)]
    logs.kill()
    logs.start()
    assert aborted_in(logs.log) == [(1, 2, 4)]
    logs.log.producers.expire(2**62)
    logs.clean()  # the empty batches by which the producers were known
    logs.clean()
    assert markers_in(logs.log) == [4, 6]
    assert aborted_in(logs.log) == []
    marks = {int(header.base_offset): header.attributes & DELETE_HORIZON_BIT for header in batches_of(logs.log)}
    assert marks[4]
    assert not marks[6]
    logs.wait(DAY_MS)
    logs.clean()
    assert markers_in(logs.log) == [6]
    assert last_values(logs.log)[b"a"] == b"before"


def test_the_marker_of_a_committed_transaction_goes_when_all_of_it_is_replaced() -> None:
    logs = CleanedLogs(evolve(COMPACT, delete_retention_ms=DAY_MS))
    in_transaction(logs, b"a", b"b", committed=True)
    logs.put((b"a", b"later"), (b"b", b"later"))
    logs.clean()
    assert (markers_in(logs.log), [each.key for each in messages_of(logs.log)][:2]) == ([2], [b"a", b"b"])
    logs.log.producers.expire(2**62)
    logs.clean()  # the empty batch by which the producer was known
    logs.clean()
    assert markers_in(logs.log) == [2]
    logs.wait(DAY_MS)
    logs.clean()
    assert markers_in(logs.log) == []


def test_an_aborted_transaction_before_the_dirty_part_says_nothing_of_what_follows() -> None:
    logs = CleanedLogs(evolve(COMPACT, delete_retention_ms=DAY_MS))
    in_transaction(logs, b"a", committed=False)
    logs.clean()
    in_transaction(logs, b"a", committed=True)
    logs.put((b"b", b"x"))
    logs.clean()
    assert len(offsets_of(logs.log, b"a")) == 1
    in_transaction(logs, b"a", committed=True)
    logs.clean()
    assert len(offsets_of(logs.log, b"a")) == 1


# --- bounds, and what goes wrong


def test_a_map_too_small_for_all_keys_takes_several_passes() -> None:
    logs = CleanedLogs()
    logs.settings = CleanerSettings(dedupe_buffer_bytes=1, backoff_ms=10)
    for number in range(300):
        logs.put((b"k%d" % (number % 120), b"%d" % number))
    wanted = last_values(logs.log)
    logs.clean()
    logs.wait(2000)
    assert len(observed(logs, "is compacted below")) > 2
    assert {key: value for key, value in last_values(logs.log).items() if key != b"rolled"} == wanted
    assert len(messages_of(logs.log)) == 121


def test_a_batch_with_more_keys_than_the_map_takes_is_reported() -> None:
    logs = CleanedLogs()
    logs.configure(segment_bytes=10_000)
    logs.settings = CleanerSettings(dedupe_buffer_bytes=1, backoff_ms=10)
    logs.put(*((b"k%d" % number, b"v") for number in range(100)))
    logs.clean()
    logs.wait(1000)
    (line,) = observed(logs, "cannot be compacted")
    assert "one batch has more keys than the offset map takes" in line
    assert "raise log.cleaner.dedupe.buffer.size" in line
    assert len(messages_of(logs.log)) == 101


def test_a_damaged_log_is_reported_once_and_other_logs_are_cleaned() -> None:
    logs = CleanedLogs()
    other = logs.manager.create(TopicPartition("t", 1))
    for number in range(20):
        logs.put((b"k", b"%d" % number))
        logs.put((b"k", b"%d" % number), log=other)
    content = logs.disk.folders[str(TP)][logs.log.segments[1].names[0]].data
    content[66] ^= 1
    before = {name: bytes(file.data) for name, file in logs.disk.folders[str(TP)].items() if name.endswith(".log")}
    logs.put((b"k", b"x"), at=2**61, log=other)
    logs.clean()
    logs.wait(10_000)
    (line,) = observed(logs, "cannot be compacted")
    assert line.startswith("t-0 cannot be compacted and is left as it is until a restart: the batch at position ")
    assert "is damaged" in line
    left = {name: bytes(file.data) for name, file in logs.disk.folders[str(TP)].items()}
    assert all(left[name] == data for name, data in list(before.items())[:-1])
    assert not any(name.endswith((".cleaned", ".swap")) for name in left)
    assert offsets_of(other, b"k")[0] > 10


def test_a_full_disk_is_reported_and_loses_nothing() -> None:
    logs = CleanedLogs()
    for number in range(20):
        logs.put((b"k", b"%d" % number))
    logs.roll()
    logs.disk.capacity = logs.disk.used + 10
    logs.wait(5000)
    assert len(observed(logs, "cannot be compacted")) == 1
    assert len(offsets_of(logs.log, b"k")) == 20
    logs.disk.capacity = None
    logs.put((b"k", b"more"))
    logs.stop()
    logs.start()
    logs.clean()
    assert len(offsets_of(logs.log, b"k")) == 1


def test_reading_and_writing_are_bounded() -> None:
    logs = CleanedLogs()
    for number in range(100):
        logs.put((b"k%d" % (number % 50), bytes(50)))
    logs.roll()
    logs.settings = CleanerSettings(io_max_bytes_per_second=1000.0, backoff_ms=10)
    began_ms = logs.clock.monotonic_ms()
    logs.scheduler.run_until(lambda: bool(observed(logs, "is compacted below")), 1e9)
    moved = sum(segment.size for segment in logs.log.segments) + 100 * 120
    assert logs.clock.monotonic_ms() - began_ms > moved


def test_a_stop_in_the_midst_leaves_the_log_whole() -> None:
    logs = CleanedLogs()
    for number in range(100):
        logs.put((b"k%d" % (number % 50), bytes(50)))
    wanted = last_values(logs.log)
    logs.roll()
    logs.settings = CleanerSettings(io_max_bytes_per_second=1000.0, backoff_ms=10)
    logs.wait(10_000)
    assert not observed(logs, "is compacted below")
    logs.stop()
    assert not any(name.endswith((".cleaned", ".swap")) for name in logs.disk.folders[str(TP)])
    logs.start()
    logs.settings = CleanerSettings(backoff_ms=10)
    logs.wait(1000)
    assert observed(logs, "is compacted below")
    assert {key: value for key, value in last_values(logs.log).items() if key != b"rolled"} == wanted


# --- what others find


def test_the_checkpoint_is_kafkas() -> None:
    logs = CleanedLogs()
    for number in range(10):
        logs.put((b"k", b"%d" % number))
    logs.clean()
    content = bytes(logs.disk.root["cleaner-offset-checkpoint"].data)
    assert content == b"0\n1\nt 0 %d\n" % logs.log.segments[-1].base_offset
    logs.stop()
    logs.start()
    logs.reports.clear()
    logs.wait(10_000)
    assert not logs.reports
    logs.manager.delete(TP)
    logs.wait(100)
    logs.manager.checkpoint()
    logs.wait(100)
    assert bytes(logs.disk.root["cleaner-offset-checkpoint"].data) == b"0\n0\n"


def test_a_log_that_is_cut_is_dirty_from_there() -> None:
    """It ends where its last batch does: of what compaction took, the leader may have what counts again."""
    logs = CleanedLogs()
    for number in range(20):
        logs.put((b"k%d" % (number % 4), b"%d" % number))
    logs.clean()
    logs.log.truncate_to(10, logs.clock.now_ms())
    end = logs.log.log_end_offset
    assert end <= 10
    for number in range(20):
        logs.put((b"k%d" % (number % 4), b"new %d" % number))
    assert messages_of(logs.log)[0].offset == end
    logs.clean()
    values = {key: value for key, value in last_values(logs.log).items() if key != b"rolled"}
    assert values == {b"k%d" % number: b"new %d" % (16 + number) for number in range(4)}
    assert len(offsets_of(logs.log, b"k1")) == 1


def test_leader_epochs_and_times_are_found_in_what_was_compacted() -> None:
    logs = CleanedLogs()
    for number in range(40):
        logs.wait(10)
        records = batch(b"%d" % number, keys=[b"k%d" % (number % 20)], at=logs.clock.now_ms())
        logs.log.append(records, leader_epoch=number // 10, now_ms=logs.clock.now_ms())
    logs.leader_epoch = 3
    epochs = logs.log.epochs.entries
    before = {message.offset: message.timestamp_ms or 0 for message in messages_of(logs.log)}
    logs.clean()
    assert logs.log.epochs.entries[: len(epochs)] == epochs
    remaining = messages_of(logs.log)
    assert remaining[0].offset == 20
    for offset, time in before.items():
        found = complete(logs.log.times.find_first_at(time))
        assert found is not None
        wanted = next(message for message in remaining if (message.timestamp_ms or 0) >= time)
        assert (found.offset, found.timestamp) == (wanted.offset, wanted.timestamp_ms), offset


def test_a_follower_copies_gaps_as_they_are() -> None:
    logs = CleanedLogs()
    for number in range(60):
        logs.put((b"k%d" % (number % 7 if number % 3 else number), b"%d" % number))
    logs.clean()
    copy = logs.manager.create(TopicPartition("copy", 0))
    while copy.log_end_offset < logs.log.log_end_offset:
        records = bytes_of(logs.log, copy.log_end_offset, max_bytes=500)
        assert copy.append_replicated(memoryview(bytearray(records)), now_ms=logs.clock.now_ms()).messages >= 0
    assert messages_of(copy) == messages_of(logs.log)
    assert copy.log_end_offset == logs.log.log_end_offset


def test_both_policies_together() -> None:
    logs = CleanedLogs(evolve(COMPACT, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=100_000))
    for number in range(20):
        logs.put((b"k%d" % number, b"v"))
    for number in range(20):
        logs.put((b"k%d" % (number % 3), b"w"))
    logs.clean()
    assert len(messages_of(logs.log)) == 21
    logs.wait(200_000)
    logs.put((b"young", b"x"))
    logs.manager.retain()
    assert [message.key for message in messages_of(logs.log)] == [b"rolled", b"young"]


def test_an_idempotent_batch_that_is_sent_again_is_known_after_compaction() -> None:
    logs = CleanedLogs()
    logs.configure(cleanup_policy=frozenset({"delete"}), retention_ms=-1)
    logs.log.append(numbered(b"x", sequence=0), leader_epoch=0, now_ms=1)
    logs.configure(cleanup_policy=frozenset({"compact"}))
    logs.clean()
    again = logs.log.append(
        memoryview(
            encode_batch(
                [Message(b"x", key=b"k", timestamp_ms=1)], now_ms=0, producer_id=1, producer_epoch=0, base_sequence=0
            )
        ),
        leader_epoch=0,
        now_ms=1,
    )
    assert (again.base_offset, again.messages) == (0, 0)


def test_damage_is_found_between_the_holes_of_a_compaction() -> None:
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=10_000, index_interval_bytes=1000))
    for number in range(400):
        logs.put((b"k%d" % (number if number % 7 == 0 else 1), b"%d" % number))
    logs.clean()
    remaining = [header for header in batches_of(logs.log) if header.count]
    for header in remaining[:-1]:
        found = logs.log.read(header.base_offset, max_bytes=100, limit=logs.log.log_end_offset).records
        assert not isinstance(found, bytes)
        assert parse_header(found.read()).base_offset == header.base_offset
    segment = logs.log.segments[0]
    assert isinstance(segment, Segment)
    assert segment.sparse
    position, _ = segment.locate(remaining[5].base_offset) or (0, 0)
    logs.disk.folders[str(TP)][segment.names[0]].data[position + 7] ^= 0x40
    with pytest.raises(ApiError) as refused:
        logs.log.read(remaining[5].base_offset, max_bytes=100, limit=logs.log.log_end_offset)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    further = logs.log.read(remaining[6].base_offset, max_bytes=100, limit=logs.log.log_end_offset).records
    assert not isinstance(further, bytes)
    assert parse_header(further.read()).base_offset == remaining[6].base_offset
