"""Further duties of replicas: pending deletions, readers nearby, failed disks."""

import pytest
from support.replica_cluster import KEY, ReplicaCluster

from barnabas.ports.broker_api.fetch import FetchResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import StorageError, StorageFull
from barnabas.testing.logs import messages_in


@pytest.fixture
def cluster() -> ReplicaCluster:
    return ReplicaCluster(3)


def values(result: FetchResultPartition) -> list[bytes | None]:
    records = result.records
    content = bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()
    return [value for _, value in messages_in(content)]


# --- DeleteRecords


def test_delete_records_is_answered_when_all_replicas_have_deleted(cluster: ReplicaCluster) -> None:
    for number in range(5):
        cluster[1].produce(b"%d" % number)
    cluster.run()
    observed = cluster[1].delete(3)
    assert (observed, cluster[1].log.log_start_offset) == ([], 3)
    cluster.run()
    assert [(each.error, each.low_watermark) for each in observed] == [(ErrorCode.NONE, 3)]
    assert [member.log.log_start_offset for member in cluster.live] == [3, 3, 3]


def test_a_deletion_waits_for_live_replicas_only(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster.cut = {frozenset((1, 3))}
    cluster.run(200)
    late, too_late = cluster[1].delete(1), cluster[1].delete(1, timeout_ms=300)
    cluster.run(300)
    assert late == []
    assert [(each.error, each.low_watermark) for each in too_late] == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    cluster.kill(3)
    cluster[1].replicas.brokers_changed()
    assert [(each.error, each.low_watermark) for each in late] == [(ErrorCode.NONE, 1)]


def test_a_deletion_ends_with_the_leadership(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster.cut = {frozenset((1, 3)), frozenset((1, 2))}
    observed = cluster[1].delete(1)
    cluster.lead(2)
    assert [(each.error, each.low_watermark) for each in observed] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert cluster[2].delete(9)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster[1].delete(1)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- readers nearby


def test_a_follower_serves_what_is_committed_as_far_as_it_knows(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    assert values(cluster[2].consume(anywhere=True)[0]) == [b"a"]
    assert cluster[2].consume()[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER, "older clients ask the leader alone"
    cluster.cut = {frozenset((1, 3))}
    cluster[1].produce(b"b")
    cluster.run(50)
    assert cluster[2].values == [b"a", b"b"]
    assert values(cluster[2].consume(anywhere=True)[0]) == [b"a"], "broker 3 does not have it"
    observed = cluster[2].consume(1, anywhere=True)[0]
    assert (observed.error, observed.high_watermark, values(observed)) == (ErrorCode.NONE, 1, [])
    assert cluster[2].consume(3, anywhere=True)[0].error is ErrorCode.OFFSET_NOT_AVAILABLE, "the leader may have it"


def test_a_reader_that_waits_at_a_follower_is_answered_with_the_high_watermark(cluster: ReplicaCluster) -> None:
    waiting = cluster[2].consume(0, anywhere=True, max_wait_ms=5000)
    moved = cluster[3].consume(0, anywhere=True, max_wait_ms=5000)
    cluster.run(100)
    assert waiting == []
    cluster[1].produce(b"a")
    cluster.run()
    assert [values(each) for each in waiting] == [[b"a"]]
    assert [values(each) for each in moved] == [[b"a"]]
    again = cluster[2].consume(1, epoch=0, anywhere=True, max_wait_ms=5000)
    cluster.lead(3)
    assert [each.error for each in again] == [ErrorCode.FENCED_LEADER_EPOCH]


def test_a_leader_sends_a_reader_to_the_replica_that_is_chosen_for_it(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    asked: list[tuple[int, int]] = []

    def nearest(partition: object, offset: int) -> int:
        assert partition is cluster[1].partition
        asked.append((len(asked), offset))
        return (3, 1, -1)[len(asked) - 1]

    away, here, nowhere = (cluster[1].consume(nearest=nearest, max_wait_ms=5000, anywhere=True)[0] for _ in range(3))
    assert (away.error, away.preferred_read_replica, values(away)) == (ErrorCode.NONE, 3, [])
    assert [(each.preferred_read_replica, values(each)) for each in (here, nowhere)] == [(-1, [b"a"])] * 2
    assert asked == [(0, 0), (1, 0), (2, 0)]


# --- disks


def test_failed_flush_takes_only_its_own_partition_offline(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 3)), frozenset((1, 2))}
    waiting = cluster[1].produce(b"a")
    cluster[1].disk.flush_errors_per_million = 1_000_000
    cluster[1].logs.flush(cluster[1].log)
    cluster.run(1)
    assert cluster[1].offline == [KEY]
    assert [each.error for each in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert cluster[1].events == ["led 0", "resigned 0"]
    for observed in (cluster[1].produce(b"b"), cluster[1].consume(), cluster[1].consume(anywhere=True)):
        assert [each.error for each in observed] == [ErrorCode.KAFKA_STORAGE_ERROR]
    cluster.cut.clear()
    cluster.lead(2, isr=[2, 3])
    observed = cluster[2].produce(b"c")
    cluster.run(300)
    assert observed[0].error is ErrorCode.NONE
    assert (cluster[1].values, cluster[1].fetches) == ([b"a"], []), "it does not follow either"
    assert cluster[1].offline == [KEY], "it is reported once"


def test_a_disk_that_cannot_be_written_takes_the_partition_with_it(cluster: ReplicaCluster) -> None:
    for broker_id in (3, 1):
        cluster[broker_id].disk.errors_per_million = 1_000_000
        observed = cluster[1].produce(b"a")
        cluster.run(300)
        assert cluster[broker_id].offline == [KEY]
    assert [each.error for each in observed] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert cluster[2].offline == []


def test_a_full_disk_is_no_failure(cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    full: list[bool] = [True]
    write = type(cluster[3].log.segments[-1].file).append

    def append(file: object, *buffers: bytes) -> int:
        if full[0] and file is cluster[3].log.segments[-1].file:
            raise StorageFull("no space is left")
        return write(file, *buffers)  # type: ignore[arg-type]

    monkeypatch.setattr(type(cluster[3].log.segments[-1].file), "append", append)
    observed = cluster[1].produce(b"a")
    cluster.run(1500)
    assert (cluster[3].offline, cluster[3].values, observed) == ([], [], [])
    assert sum("no space is left" in line for line in cluster[3].reports) == 1
    full[0] = False
    cluster.run(1500)
    assert observed[0].error is ErrorCode.NONE
    assert cluster[3].values == [b"a"]


def test_a_cut_that_fails_takes_the_partition_with_it(cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.cut = {frozenset((1, 3)), frozenset((1, 2))}
    cluster[1].produce(b"a")

    def truncate(_file: object, _size: int) -> None:
        raise StorageError("it cannot be cut")

    monkeypatch.setattr(type(cluster[1].log.segments[-1].file), "truncate", truncate)
    cluster.lead(2)
    cluster.cut.clear()
    cluster.run(500)
    assert cluster[1].offline == [KEY]
    assert any("it cannot be cut" in line for line in cluster[1].reports)
