"""Appending (facts B2) and rolling (facts B3)."""

from collections.abc import Sequence

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.segment.segment import Segment
from barnabas.core.message.batch_header import assign_offset, is_crc_valid, parse_header, set_max_timestamp, write_crc
from barnabas.core.message.codec import Codec, Codecs
from barnabas.core.message.record_validation import InvalidRecords
from barnabas.core.traffic.steps import complete
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import Folder, StorageError, StorageFull, StorageReadOnly
from barnabas.testing.logs import batch, bytes_of, messages_in, open_log, put, read_all


@pytest.fixture
def folder() -> Folder:
    return MemoryLogDir().folder("t-0")


@pytest.fixture(scope="module")
def codecs() -> Codecs:
    return builtin_codecs()


def _refused(log: UnifiedLog, records: memoryview, now_ms: int = 1000) -> ApiError:
    end, size = log.log_end_offset, log.size_bytes
    with pytest.raises(ApiError) as caught:
        log.append(records, leader_epoch=0, now_ms=now_ms)
    assert (log.log_end_offset, log.size_bytes) == (end, size)
    return caught.value


def test_offsets_and_epoch_are_set_in_place(folder: Folder) -> None:
    log = open_log(folder)
    first = log.append(batch(b"a", b"b"), leader_epoch=3, now_ms=5)
    records = batch(b"c")
    second = log.append(records, leader_epoch=4, now_ms=5)
    assert first == (0, 1, -1, 0, 2)
    assert second == (2, 2, -1, 0, 1)
    header = parse_header(records)
    assert (header.base_offset, header.leader_epoch) == (2, 4)
    assert bytes_of(log, 2) == bytes(records)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert log.epochs.entries == [(3, 0), (4, 2)]
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)


def test_a_new_log_may_begin_anywhere(folder: Folder) -> None:
    log = open_log(folder, log_start_offset=77)
    assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (77, 77, 77)
    assert put(log, b"a") == 77
    assert sorted(folder.files())[0] == f"{77:020d}.index"


def test_invalid_batch_is_refused_and_changes_nothing(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(max_message_bytes=300, segment_bytes=250))
    put(log, b"first")
    damaged = batch(b"x")
    damaged[-1] ^= 1
    assert _refused(log, damaged).code is ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, batch(b"x")[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert _refused(log, memoryview(bytearray())).code is ErrorCode.INVALID_RECORD
    assert _refused(log, batch(b"x" * 300)).code is ErrorCode.MESSAGE_TOO_LARGE
    assert _refused(log, batch(b"x" * 190)).code is ErrorCode.RECORD_LIST_TOO_LARGE
    two = memoryview(bytearray(bytes(batch(b"x")) * 2))
    assert _refused(log, two).code is ErrorCode.INVALID_RECORD
    assert read_all(log) == [(0, b"first")]


def test_zstd_for_an_old_client(folder: Folder, codecs: Codecs) -> None:
    log = open_log(folder, codecs=codecs)
    records = batch(b"x", codec=codecs.by_name("zstd"))
    with pytest.raises(ApiError) as caught:
        log.append(records, leader_epoch=0, now_ms=1, allows_zstd=False)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    log.append(records, leader_epoch=0, now_ms=1)
    assert read_all(log, codecs=codecs) == [(0, b"x")]


def test_compacted_topics_need_keys(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(cleanup_policy=frozenset({"compact"})))
    error = _refused(log, batch(b"a", b"b", b"c", keys=[b"k", None, None]))
    assert isinstance(error, InvalidRecords)
    assert [refused.index for refused in error.record_errors] == [1, 2]
    log.append(batch(b"a", keys=[b"k"]), leader_epoch=0, now_ms=1)


def test_records_are_opened_only_where_asked(folder: Folder) -> None:
    """The largest timestamp of a header is trusted, unless record.validation corrects it."""
    for validated, expected in ((False, 9999), (True, 1000)):
        log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(record_validation=validated))
        records = batch(b"x", at=1000)
        set_max_timestamp(records, 9999, log_append_time=False)
        log.append(records, leader_epoch=0, now_ms=1)
        header = parse_header(bytes_of(log, 0))
        assert header.max_timestamp == expected
        assert is_crc_valid(bytes_of(log, 0), header)


def test_timestamps_outside_the_window_are_rejected(folder: Folder) -> None:
    window = LogConfig(message_timestamp_before_max_ms=100, message_timestamp_after_max_ms=10)
    log = open_log(folder, config=window)
    for at in (899, 1011):
        assert _refused(log, batch(b"x", at=at), now_ms=1000).code is ErrorCode.INVALID_TIMESTAMP
    for at in (900, 1010, -1):
        put(log, b"x", at=at, now_ms=1000)


def untimed(*values: bytes, claims: int = 0, codec: Codec | None = None, times: Sequence[int] = ()) -> memoryview:
    """Return batches as librdkafka sends them without timestamps: base -1, and a largest one that no record has."""
    records = batch(*values, timestamps=times or [-1] * len(values), codec=codec)
    set_max_timestamp(records, claims, log_append_time=False)
    return records


@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("validated", [False, True])
def test_the_largest_timestamp_of_a_batch_that_begins_without_one(
    folder: Folder, codecs: Codecs, codec: str, validated: bool
) -> None:
    window = LogConfig(message_timestamp_before_max_ms=100, record_validation=validated)
    log = open_log(folder, codecs=codecs, config=window)
    packed = codecs.by_name(codec)
    for claims, times, expected in ((0, [-1, -1], -1), (7777, [-1, -1], -1), (0, [-1, 950], 950), (-5, [-1, -1], -1)):
        records = untimed(b"a", b"b", claims=claims, codec=packed, times=times)
        at = log.append(records, leader_epoch=3, now_ms=1000).base_offset
        header = parse_header(bytes_of(log, at))
        assert (header.base_timestamp, header.max_timestamp) == (-1, expected)
        assert is_crc_valid(bytes_of(log, at), header)
    assert log.segments[0].largest_timestamp == 950
    found = complete(log.times.find_first_at(0))
    assert found is not None
    assert found[:2] == (950, 5)
    too_old = untimed(b"a", b"b", times=[-1, 800])
    assert _refused(log, too_old, now_ms=1000).code is ErrorCode.INVALID_TIMESTAMP


def test_a_batch_that_unpacks_to_much_is_opened_for_its_largest_timestamp(folder: Folder, codecs: Codecs) -> None:
    log = open_log(folder, codecs=codecs)
    packed = codecs.by_name("zstd")
    large = untimed(*[bytes(1_000_000)] * 9, claims=0, codec=packed)
    many = untimed(*[b""] * 10_001, claims=500, codec=packed, times=[-1] * 10_000 + [600])
    for records, expected in ((large, -1), (many, 600)):
        at = log.append(records, leader_epoch=0, now_ms=1000).base_offset
        assert parse_header(bytes_of(log, at)).max_timestamp == expected


def test_records_that_cannot_be_read_are_refused_where_their_timestamps_are_wanted(folder: Folder) -> None:
    log = open_log(folder)
    records = untimed(b"a", b"b")
    records[61] = 2  # the length of the first record
    write_crc(records, 0, len(records))
    assert _refused(log, records).code is ErrorCode.INVALID_RECORD


def test_log_append_time(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0))
    appended = log.append(batch(b"a", b"b", timestamps=[1, 10**14]), leader_epoch=0, now_ms=5555)
    assert appended.log_append_time_ms == 5555
    records = bytes_of(log, 0)
    header = parse_header(records)
    assert header.log_append_time
    assert header.max_timestamp == 5555
    assert is_crc_valid(records, header)
    found = complete(log.times.find_first_at(5000))
    assert found is not None
    assert found[:2] == (5555, 0)


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("sent", ["gzip", "none"])
def test_batches_are_recompressed_by_the_topics_codec(folder: Folder, codecs: Codecs, sent: str, wanted: str) -> None:
    log = open_log(folder, codecs=codecs, config=LogConfig(compression_type=wanted))
    values = [b"value" * 50] * 5
    log.append(batch(*values, codec=codecs.by_name(sent)), leader_epoch=7, now_ms=1)
    records = bytes_of(log, 0)
    header = parse_header(records)
    codec = codecs.by_name(wanted)
    assert header.codec_id == (codec.id if codec is not None else 0)
    assert (header.base_offset, header.leader_epoch) == (0, 7)
    assert messages_in(records, codecs) == list(enumerate(values))


def test_recompressed_beyond_the_limit(folder: Folder, codecs: Codecs) -> None:
    config = LogConfig(compression_type="uncompressed", max_message_bytes=500)
    log = open_log(folder, codecs=codecs, config=config)
    error = _refused(log, batch(b"x" * 10_000, codec=codecs.by_name("gzip")))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


# --- rolling


def _bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_roll_by_size(folder: Folder) -> None:
    size = len(batch(b"x" * 50))
    log = open_log(folder, config=LogConfig(segment_bytes=2 * size))
    for _ in range(5):
        put(log, b"x" * 50)
    assert _bases(log) == [0, 2, 4]
    assert [segment.size for segment in log.segments] == [2 * size, 2 * size, size]
    assert [value for _, value in read_all(log)] == [b"x" * 50] * 5


def test_roll_by_age_of_the_first_record(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(segment_ms=100))
    for at in (1000, 1100, 900, 1101, 1150):
        put(log, b"x", at=at, now_ms=0)
    assert _bases(log) == [0, 3]


def test_roll_by_age_after_a_restart(folder: Folder) -> None:
    config = LogConfig(segment_ms=100)
    log = open_log(folder, config=config)
    put(log, b"x", at=1000)
    log.close()
    log = open_log(folder, config=config, recover=False)
    put(log, b"x", at=1100)
    put(log, b"x", at=1101)
    assert _bases(log) == [0, 2]


def test_roll_by_age_since_creation_without_timestamps(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(segment_ms=100), now_ms=1000)
    for now_ms in (1500, 1100, 1101):
        put(log, b"x", at=-1, now_ms=now_ms)
    assert _bases(log) == [0, 2]  # an empty segment never rolls


def test_roll_with_jitter(folder: Folder) -> None:
    class Fixed:
        def below(self, bound: int) -> int:
            assert bound == 50
            return 30

        def fraction(self) -> float:
            return 0.0

        def token(self, size: int) -> bytes:
            return bytes(size)

    from barnabas.core.message.codec import NO_CODECS
    from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
    from barnabas.testing.logs import TP

    log = UnifiedLog.open(
        folder,
        topic_partition=TP,
        config=LogConfig(segment_ms=100, segment_jitter_ms=50),
        now_ms=0,
        recover=True,
        codecs=NO_CODECS,
        deletion_policy=KafkaDeletionPolicy(),
        entropy=Fixed(),
    )
    for at in (1000, 1070, 1071):
        put(log, b"x", at=at)
    assert _bases(log) == [0, 2]


def test_roll_when_an_index_is_full(folder: Folder) -> None:
    log = open_log(folder, config=LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(9):
        put(log, b"x", at=1000)  # the time index stays short, since the time does
    assert _bases(log) == [0, 4, 8]
    log = open_log(MemoryLogDir().folder("t-0"), config=LogConfig(segment_index_bytes=24, index_interval_bytes=0))
    for number in range(8):
        put(log, b"x", at=1000 + number)
    assert _bases(log) == [0, 3, 6]


def test_roll_when_the_offsets_no_longer_fit(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"x")
    far = batch(b"x")
    assign_offset(far, 2**31 - 2, 0)
    log.append_replicated(far, now_ms=1000)
    put(log, b"x")
    assert _bases(log) == [0]
    put(log, b"x")
    assert _bases(log) == [0, 2**31]


def test_an_index_entry_comes_with_the_first_batch_after_each_interval(folder: Folder) -> None:
    size = len(batch(b"x"))
    log = open_log(folder, config=LogConfig(index_interval_bytes=2 * size))
    for number in range(8):
        put(log, b"x", at=1000 + number)
    segment = log.segments[0]
    assert isinstance(segment, Segment)
    segment.write_indexes()
    entries = [segment.index.find(0, offset) for offset in range(8)]
    assert entries == [None, None, None, *[(3, 3 * size)] * 3, *[(6, 6 * size)] * 2]
    assert [segment.time_index.find(0, 1000 + number) for number in (2, 3, 6, 7)] == [
        None,
        (1003, 3),
        (1006, 6),
        (1007, 7),  # the closing entry
    ]


# --- the storage fails


def test_full_disk_refuses_and_recovers(folder: Folder) -> None:
    disk = MemoryDisk()
    folder = MemoryLogDir(disk).folder("t-0")
    log = open_log(folder)
    put(log, b"first")
    used = disk.used
    disk.capacity = used + 50
    with pytest.raises(StorageFull):
        put(log, b"second")
    assert (log.log_end_offset, log.size_bytes, disk.used) == (1, used, used)
    assert read_all(log) == [(0, b"first")]
    disk.capacity = None
    assert put(log, b"second") == 1
    assert read_all(log) == [(0, b"first"), (1, b"second")]


def test_full_disk_at_a_roll(folder: Folder) -> None:
    disk = MemoryDisk()
    log = open_log(MemoryLogDir(disk).folder("t-0"), config=LogConfig(segment_bytes=100))
    put(log, b"x" * 30)
    disk.capacity = disk.used
    for _ in range(2):
        with pytest.raises(StorageFull):
            put(log, b"y" * 30)
        assert read_all(log) == [(0, b"x" * 30)]
    disk.capacity = None
    assert put(log, b"y" * 30) == 1
    assert _bases(log) == [0, 1]
    assert read_all(log) == [(0, b"x" * 30), (1, b"y" * 30)]


def test_read_only_storage_stays_readable() -> None:
    disk = MemoryDisk()
    log = open_log(MemoryLogDir(disk).folder("t-0"))
    put(log, b"first")
    disk.read_only = True
    with pytest.raises(StorageReadOnly):
        put(log, b"second")
    assert read_all(log) == [(0, b"first")]


def test_a_failed_log_takes_nothing_but_is_read(folder: Folder) -> None:
    log = open_log(folder)
    put(log, b"first")
    log.fail(StorageError("the disk is gone"))
    with pytest.raises(StorageError, match="the disk is gone"):
        put(log, b"second")
    assert read_all(log) == [(0, b"first")]
    assert log.flushes.begin_flush() is None
    with pytest.raises(StorageError):
        log.close()
