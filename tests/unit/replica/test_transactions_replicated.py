"""Transactions on several replicas: when their ends count, what followers know of them, what a new leader goes by."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.replica_cluster import KEY, Member, ReplicaCluster

from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.ports.broker_api.fetch import AbortedTransaction
from barnabas.ports.broker_api.produce import ProducePartition
from barnabas.ports.broker_api.transactions import TxnMarker, WrittenTxnMarker
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.logs import numbered

E = ErrorCode
COMMITTED = FetchIsolation.TXN_COMMITTED


@pytest.fixture
def cluster() -> ReplicaCluster:
    return ReplicaCluster()


def send(member: Member, *values: bytes, producer: int = 1, sequence: int = 0) -> list[ErrorCode]:
    """Send values; return the list that gets the outcome, now or later."""
    observed: list[ErrorCode] = []

    def done(results: Any) -> None:
        observed.extend(each.error for each in results)

    entry = ProducePartition("t", 0, numbered(*values, producer=producer, sequence=sequence, transactional=True))
    member.replicas.append([entry], done, acks=-1, timeout_ms=10_000, origin=AppendOrigin.TRANSACTION)
    return observed


def end(
    member: Member,
    committed: bool,
    *,
    producer: int = 1,
    epoch: int = 0,
    coordinator: int = 0,
    timeout_ms: int = 10_000,
) -> list[ErrorCode]:
    observed: list[ErrorCode] = []

    def done(markers: Sequence[WrittenTxnMarker]) -> None:
        observed.extend(each.error for marker in markers for each in marker.partitions)

    marker = TxnMarker(
        producer_id=producer,
        producer_epoch=epoch,
        committed=committed,
        partitions=[KEY],
        coordinator_epoch=coordinator,
    )
    member.replicas.markers.write([marker], done, timeout_ms)
    return observed


def ends_heard(member: Member) -> list[tuple[int, bool]]:
    heard: list[tuple[int, bool]] = []
    member.replicas.markers.add_txn_completed_listener(
        lambda _key, producer, _epoch, committed: heard.append((producer, committed))
    )
    return heard


def stable(cluster: ReplicaCluster) -> list[int]:
    return [member.partition.last_stable_offset for member in cluster.live]


def test_an_end_counts_when_all_in_sync_have_it(cluster: ReplicaCluster) -> None:
    heard = ends_heard(cluster[1])
    sent = send(cluster[1], b"a", b"b")
    cluster.run()
    assert (sent, stable(cluster)) == ([E.NONE], [0, 0, 0])
    observed = end(cluster[1], True)
    assert (observed, heard, stable(cluster)) == ([], [], [0, 0, 0])
    cluster.run()
    assert (observed, heard, stable(cluster)) == ([E.NONE], [(1, True)], [3, 3, 3])


def test_read_committed_fetch_is_completed_on_every_replica(cluster: ReplicaCluster) -> None:
    send(cluster[1], b"a")
    send(cluster[1], b"b", producer=2)
    cluster.run()
    end(cluster[1], False, producer=1)
    cluster.run()
    waiting = [cluster[number].consume(1, isolation=COMMITTED, max_wait_ms=60_000, anywhere=True) for number in (1, 2)]
    cluster.run(1_000)
    assert waiting == [[], []]
    end(cluster[1], True, producer=2)
    cluster.run(200)
    for (found,) in waiting:
        assert (found.last_stable_offset, found.aborted) == (4, [AbortedTransaction(1, 0)])


def test_too_few_in_sync_get_no_marker() -> None:
    cluster = ReplicaCluster(config=LogConfig(min_insync_replicas=2))
    send(cluster[1], b"a")
    cluster.run()
    cluster.isolate(2)
    cluster.isolate(3)
    cluster[1].produce(b"x")
    cluster.until(lambda: cluster.state.isr == (1,))
    cluster.run()
    before = cluster[1].log.log_end_offset
    assert end(cluster[1], True) == [E.NOT_ENOUGH_REPLICAS]
    assert cluster[1].log.log_end_offset == before


def test_an_end_that_comes_late_is_heard_of_all_the_same(cluster: ReplicaCluster) -> None:
    heard = ends_heard(cluster[1])
    send(cluster[1], b"a")
    cluster.run()
    cluster.isolate(2)
    cluster.isolate(3)
    observed = end(cluster[1], False, timeout_ms=500)
    cluster.run(600)
    assert (observed, heard) == ([E.REQUEST_TIMED_OUT], [])
    cluster.heal()
    cluster.until(lambda: bool(heard))
    assert heard == [(1, False)]
    assert cluster[1].partition.last_stable_offset == 2


def test_an_end_that_a_new_leader_does_not_have_is_none(cluster: ReplicaCluster) -> None:
    heard = ends_heard(cluster[1])
    send(cluster[1], b"a")
    cluster.run()
    cluster.isolate(1)
    observed = end(cluster[1], True)
    cluster.run(100)
    assert cluster[1].log.transactions.first_unstable_offset(99) is None
    cluster.lead(2)
    cluster.heal()
    cluster.run(500)
    assert (observed, heard) == ([E.NOT_LEADER_OR_FOLLOWER], [])
    assert stable(cluster) == [0, 0, 0], "the marker is cut off again"
    assert end(cluster[2], False) == []
    cluster.run(500)
    assert stable(cluster) == [2, 2, 2]
    indexes = [member.log.transactions.aborted(0, 9) for member in cluster.live]
    aborted = [[(each.first_offset, each.last_offset) for each in entries] for entries in indexes]
    assert aborted == [[(0, 1)]] * 3


def test_a_new_leader_knows_what_the_former_did(cluster: ReplicaCluster) -> None:
    send(cluster[1], b"a", producer=1)
    end(cluster[1], False, producer=1, epoch=0, coordinator=7)
    send(cluster[1], b"b", producer=2)
    cluster.run()
    cluster.kill(1)
    cluster.lead(2, isr=(2, 3))
    cluster.run()
    assert cluster[2].partition.last_stable_offset == 2
    assert end(cluster[2], True, producer=1, coordinator=6) == [E.TRANSACTION_COORDINATOR_FENCED]
    send(cluster[2], b"c", producer=2, sequence=1)
    cluster.run()
    observed = end(cluster[2], True, producer=2)
    cluster.run()
    assert (observed, cluster[2].partition.last_stable_offset) == ([E.NONE], 5)
    cluster.start(1)
    cluster.run(2_000)
    assert stable(cluster) == [5, 5, 5]
    (found,) = cluster[1].consume(isolation=COMMITTED, anywhere=True)
    assert found.aborted == [AbortedTransaction(1, 0)]


def test_an_unclean_election_takes_the_transaction_with_its_records() -> None:
    cluster = ReplicaCluster(2, unclean=True)
    cluster[1].produce(b"plain")
    cluster.run()
    cluster.kill(2)
    cluster.run_until_idle()
    cluster.until(lambda: cluster.state.isr == (1,))
    send(cluster[1], b"a")
    cluster.run()
    assert cluster[1].partition.last_stable_offset == 1
    cluster.kill(1)
    cluster.start(2)
    cluster.run_until_idle()
    cluster.until(lambda: cluster[2].partition.is_leader)
    assert end(cluster[2], True) == [E.NONE], "it was not begun here"
    cluster[2].produce(b"x", b"y")
    cluster.start(1)
    cluster.until(lambda: cluster[1].log.log_end_offset == 4)
    cluster.run(500)
    assert cluster[1].values == cluster[2].values == [b"plain", b"x", b"y"]
    assert stable(cluster) == [4, 4]


def test_power_cuts_leave_replicas_that_know_the_same(cluster: ReplicaCluster) -> None:
    for number in range(6):
        send(cluster[1], b"a", producer=number)
        end(cluster[1], bool(number % 2), producer=number)
    send(cluster[1], b"open", producer=9)
    cluster.run()
    for number in (2, 3):
        cluster.kill(number, power=True)
        cluster.start(number)
    cluster.run(5_000)
    states = [
        {key: (each.epoch, each.txn_first_offset) for key, each in member.log.producers.producers.items()}
        for member in cluster.live
    ]
    assert states[0] == states[1] == states[2]
    aborted = [list(member.log.transactions.aborted(0, 99)) for member in cluster.live]
    assert aborted[0] == aborted[1] == aborted[2]
    assert [each.first_offset for each in aborted[0]] == [0, 4, 8]
    assert stable(cluster) == [12, 12, 12]
