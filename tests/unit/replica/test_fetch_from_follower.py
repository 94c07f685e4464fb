"""Consumers that read from a follower (KIP-392)."""

import pytest
from support.replica_cluster import ReplicaCluster

from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import size_of


@pytest.fixture
def cluster() -> ReplicaCluster:
    cluster = ReplicaCluster()
    cluster[1].produce(b"a")
    cluster.run()
    return cluster


def test_waiting_fetch_at_a_follower_ends_with_its_high_watermark(cluster: ReplicaCluster) -> None:
    observed = cluster[2].consume(1, anywhere=True, max_wait_ms=60_000)
    assert observed == []
    cluster[1].produce(b"b")
    cluster.run(20)
    (result,) = observed
    assert (result.error, result.high_watermark) == (ErrorCode.NONE, 2)
    assert size_of(result.records) > 0


def test_nothing_above_the_high_watermark_is_given(cluster: ReplicaCluster) -> None:
    cluster.isolate(3)
    cluster[1].produce(b"b")
    cluster.run(20)
    assert cluster[2].values == [b"a", b"b"]
    (result,) = cluster[2].consume(1, anywhere=True)
    assert (result.error, result.high_watermark, size_of(result.records)) == (ErrorCode.NONE, 1, 0)


def test_reader_that_knows_a_later_leader_is_refused(cluster: ReplicaCluster) -> None:
    (result,) = cluster[2].consume(0, anywhere=True, epoch=1)
    assert result.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    cluster.lead(3)
    (result,) = cluster[2].consume(0, anywhere=True, epoch=0)
    assert result.error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_follower_that_has_lost_touch_sends_its_readers_away(cluster: ReplicaCluster) -> None:
    waiting = cluster[2].consume(1, anywhere=True, max_wait_ms=500)
    cluster[2].lease_valid = False
    (result,) = cluster[2].consume(0, anywhere=True)
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.run(600)
    assert [each.error for each in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster[2].lease_valid = True
    (result,) = cluster[2].consume(0, anywhere=True)
    assert (result.error, size_of(result.records) > 0) == (ErrorCode.NONE, True)
