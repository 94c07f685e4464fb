"""Logs that have parted come together: the cases of KIP-101 and KIP-279, and ends and beginnings that do not fit."""

from collections.abc import Callable

import pytest
from attrs import evolve
from support.replica_cluster import ReplicaCluster

from barnabas.core.cluster.topics import ReplicaId
from barnabas.core.log.leader_epoch_cache import LeaderEpochCache
from barnabas.core.replica.follower.partition_fetch_state import truncation_offset
from barnabas.ports.broker_api.fetch import DivergingEpoch
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.logs import put


@pytest.fixture
def cluster() -> ReplicaCluster:
    return ReplicaCluster(2)


def agree(cluster: ReplicaCluster) -> None:
    """All that live come to have the leader's log, to the byte."""

    def same() -> bool:
        logs = [member.log for member in cluster.live]
        return len({(log.log_start_offset, log.log_end_offset) for log in logs}) == 1

    cluster.until(same)
    cluster.run(300)
    assert len({tuple(member.values) for member in cluster.live}) == 1
    assert len({tuple(member.log.epochs.entries) for member in cluster.live}) == 1


def test_a_follower_that_comes_back_keeps_what_is_above_its_high_watermark(cluster: ReplicaCluster) -> None:
    """KIP-101, scenario 1: it used to cut itself there, and then it was elected."""
    cluster[1].produce(b"m1")
    cluster.run()
    cluster.cut = {frozenset((1, 2))}
    cluster.run(200)
    put(cluster[2].log, b"m2")  # it has come, but the next answer, with the high watermark, has not
    assert cluster[2].partition.high_watermark == 1
    cluster.kill(2)
    cluster.start(2)
    cluster.kill(1)
    cluster.lead(2, isr=[2])
    assert cluster[2].visible == [b"m1", b"m2"]


def test_two_that_lost_different_ends_agree_again(cluster: ReplicaCluster) -> None:
    """KIP-101, scenario 2: messages of two leaders at the same offset."""
    cluster[1].produce(b"m1")
    cluster.run()
    cluster.cut = {frozenset((1, 2))}
    cluster[1].produce(b"m2")
    cluster.kill(1)
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"m3")
    assert cluster[2].visible == [b"m1", b"m3"]
    cluster.cut.clear()
    cluster.start(1)
    assert cluster[1].values == [b"m1", b"m2"]
    agree(cluster)
    assert cluster[1].values == [b"m1", b"m3"]
    assert cluster[1].log.epochs.entries == [(0, 0), (1, 1)]


def test_an_epoch_that_the_other_never_saw(cluster: ReplicaCluster) -> None:
    """KIP-279: leaders change fast, and each log has an epoch that the other has not."""
    cluster[1].produce(b"both")
    cluster.run()
    cluster.cut = {frozenset((1, 2))}
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"b1")
    cluster[2].produce(b"b2")
    cluster.lead(1, isr=[1])
    cluster[1].produce(b"a")
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"b3")
    assert cluster[1].log.epochs.entries == [(0, 0), (2, 1)]
    assert cluster[2].log.epochs.entries == [(0, 0), (1, 1), (3, 3)]
    cluster.cut.clear()
    agree(cluster)
    assert cluster[1].values == [b"both", b"b1", b"b2", b"b3"]


@pytest.mark.parametrize("restarts", [False, True], ids=["runs", "killed meanwhile"])
def test_replica_that_deleted_a_whole_epoch_agrees_with_its_leader(cluster: ReplicaCluster, restarts: bool) -> None:
    """Both logs end at the same offset, so that there is nowhere to cut."""
    cluster[1].produce(b"both")
    cluster.run()
    cluster.cut = {frozenset((1, 2))}
    cluster[1].produce(b"a")
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"b")
    cluster[2].partition.delete_records(-1)
    assert (cluster[2].log.log_start_offset, cluster[2].log.log_end_offset) == (2, 2)
    if restarts:
        cluster.kill(2)
        cluster.start(2)
    cluster.lead(1, isr=[1])
    cluster.cut.clear()
    agree(cluster)
    assert cluster[2].values == [b"both", b"a"]


def test_many_epochs_that_the_other_never_saw(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 2))}
    for number in range(8):
        leader = 1 + number % 2
        cluster.lead(leader, isr=[leader])
        cluster[leader].produce(b"%d" % number)
        cluster[leader].produce(b"%d again" % number)
    cluster.cut.clear()
    agree(cluster)
    assert cluster[1].values == [b"1", b"1 again", b"3", b"3 again", b"5", b"5 again", b"7", b"7 again"]


def test_a_longer_log_of_an_older_epoch_is_cut(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 2))}
    for number in range(9):
        cluster[1].produce(b"%d" % number)
    cluster.lead(2, isr=[2])
    cluster.cut.clear()
    cluster.until(lambda: cluster[1].log.log_end_offset == 0)
    observed = cluster[2].produce(b"x")
    cluster.until(lambda: bool(observed))
    agree(cluster)
    assert cluster[1].values == [b"x"]


def test_unclean_election_truncates_committed_records_and_reports_it(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 2))}
    cluster.lead(1, isr=[1])
    cluster[1].produce(b"seen")
    assert cluster[1].visible == [b"seen"]
    cluster.lead(2, isr=[2])
    cluster.cut.clear()
    cluster.run(500)
    assert (cluster[1].values, cluster[1].partition.high_watermark) == ([], 0)
    assert "is cut at 0, below the high watermark 1" in "\n".join(cluster[1].reports)


def test_a_cut_is_noted_before_anything_is_appended_behind_it(cluster: ReplicaCluster) -> None:
    """Else a power cut would leave a recovery point above what is new, and damage there would count as damage of
    something durable."""
    cluster[1].produce(b"m1")
    cluster.run()
    cluster.cut = {frozenset((1, 2))}
    for number in range(5):
        cluster[1].produce(b"%d" % number)
    cluster[1].log.flushes.now()
    cluster[1].logs.checkpoint()
    cluster.run()
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"m2")
    cluster.cut.clear()
    checkpoint = cluster[1].disk.folders[""]["recovery-point-offset-checkpoint"]
    assert bytes(checkpoint.data) == b"0\n1\nt 0 6\n"
    seen: list[tuple[int, bytes]] = []
    for _ in range(300):
        cluster.run(0.5)
        checkpoint = cluster[1].disk.folders[""]["recovery-point-offset-checkpoint"]
        seen.append((cluster[1].log.log_end_offset, bytes(checkpoint.durable)))
    assert seen[-1] == (2, b"0\n1\nt 0 1\n")
    assert {point for end, point in seen if end == 2} == {b"0\n1\nt 0 1\n"}


def test_a_cut_is_on_the_disk_before_the_next_append(cluster: ReplicaCluster) -> None:
    """Else a power cut could bring back what was cut, in place of what was committed there since."""
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    for number in range(5):
        cluster[1].produce(b"%d" % number)
    cluster[1].log.flushes.now()
    cluster.run()
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"m2")
    cluster.cut.clear()
    for _ in range(300):
        cluster.run(0.5)
        segment = cluster[1].disk.folders["t-0"][f"{0:020}.log"]
        if cluster[1].values[-1:] == [b"m2"]:
            assert bytes(segment.data).startswith(segment.durable)
    assert cluster[1].values[-1:] == [b"m2"]


def test_a_cut_is_noted_even_if_the_leader_changes_meanwhile() -> None:
    cluster = ReplicaCluster(3)
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    for number in range(5):
        cluster[1].produce(b"%d" % number)
    noted: list[Callable[[], None]] = []
    cluster[1].logs.checkpoint_of = lambda log, then: noted.append(then)  # type: ignore[method-assign]
    cluster.lead(2, isr=[2, 3])
    cluster[2].produce(b"m2")
    cluster.cut.clear()
    cluster.until(lambda: bool(noted))
    assert cluster[1].values == []
    cluster.lead(3)
    observed = cluster[3].produce(b"m3")
    cluster.run(500)
    assert (observed[0].error, cluster[1].values) == (ErrorCode.NONE, []), "the checkpoint is not there yet"
    for then in noted:
        then()
    agree(cluster)
    assert cluster[1].values == [b"m2", b"m3"]


def test_a_follower_of_an_emptied_leader_begins_where_that_begins(cluster: ReplicaCluster) -> None:
    cluster.kill(2)
    cluster.lead(1, isr=[1])
    for number in range(6):
        cluster[1].produce(b"%d" % number)
    (observed,) = cluster[1].delete(4)
    assert (observed.error, observed.low_watermark) == (ErrorCode.NONE, 4)
    cluster[2].disk.lose_all()
    cluster.start(2)
    agree(cluster)
    assert (cluster[2].log.log_start_offset, cluster[2].values) == (4, [b"4", b"5"])
    assert cluster[2].partition.high_watermark == 6


def test_follower_behind_the_log_start_of_the_leader_is_fully_truncated(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"0")
    cluster.run()
    cluster.kill(2)
    cluster.lead(1, isr=[1])
    for number in range(1, 6):
        cluster[1].produce(b"%d" % number)
    cluster[1].delete(4)
    cluster.start(2)
    agree(cluster)
    assert cluster[2].values == [b"4", b"5"]
    assert "its leader begins at 4; what is here, up to 1, is given up" in "\n".join(cluster[2].reports)


def test_a_log_without_epochs_that_is_longer_is_cut_by_the_range(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 2))}
    cluster.run(200)
    cluster[2].log.truncate_fully_and_start_at(7)
    cluster.cut.clear()
    cluster[1].produce(b"a")
    agree(cluster)
    assert cluster[2].values == [b"a"]


def test_consumer_gets_the_diverging_epoch_of_truncated_records(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 2))}
    cluster.lead(1, isr=[1])
    cluster[1].produce(b"a")
    cluster[1].produce(b"b")
    cluster.lead(2, isr=[2])
    cluster[2].produce(b"c")
    (observed,) = cluster[2].consume(2, last_epoch=1)
    assert (observed.error, observed.diverging, observed.records) == (ErrorCode.NONE, DivergingEpoch(2, 1), b"") or (
        observed.diverging == DivergingEpoch(1, 0)
    )
    (observed,) = cluster[2].consume(1, last_epoch=2)
    assert observed.diverging is None
    (observed,) = cluster[2].consume(5)
    assert (observed.error, observed.diverging) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)
    own = ReplicaId(1, cluster.epoch_of(1))
    (observed,) = cluster[2].consume(5, replica=own)
    assert (observed.error, observed.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert observed.diverging == DivergingEpoch(2, 1)


@pytest.mark.parametrize(
    ("observed", "cut"),
    [
        ((5, 30), 30),  # both know the epoch, the leader ends it earlier
        ((5, 60), 50),  # we end it earlier
        ((4, 25), 20),  # we have no epoch 4: to the end of 3, and ask again
        ((3, 15), 15),
        ((1, 5), 0),  # we have nothing so old
        ((9, 90), 60),  # newer than all here
        ((-1, 40), 40),
        ((5, -1), 60),  # the leader does not know
    ],
)
def test_where_to_cut(observed: tuple[int, int], cut: int) -> None:
    epochs = LeaderEpochCache([(3, 0), (5, 20), (7, 50)])
    assert truncation_offset(epochs, 60, DivergingEpoch(*observed)) == cut


def test_follower_that_truncates_still_gets_the_high_watermark() -> None:
    cluster = ReplicaCluster()
    cluster[1].produce(b"a")
    cluster.run()
    cluster.isolate(1)
    cluster[1].produce(b"never copied")
    cluster.kill(1)
    cluster.lead(2, isr=(2, 3))
    cluster.heal()
    cluster.start(1)
    cluster.until(lambda: cluster[1].values == [b"a"])
    cluster.until(lambda: cluster[1].partition.high_watermark == 1, ms=2_000)


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_replica_with_a_later_epoch_than_the_state_neither_leads_nor_follows(
    cluster: ReplicaCluster, epoch: int
) -> None:
    """The coordination service was restored from a backup: the states in it are older than the logs."""
    cluster[1].produce(b"a")
    cluster.run()
    for leader in (2, 1):
        cluster.lead(leader)
        cluster[leader].produce(b"b")
        cluster.run()
    assert cluster[1].log.epochs.latest == cluster[2].log.epochs.latest == 2
    for member in cluster.live:
        partition, own = member.partition, ReplicaId(member.broker_id, member.epoch + 10)
        epochs = {1: cluster[1].epoch + 10, 2: cluster[2].epoch + 10}
        state = evolve(cluster.state, leader=1, leader_epoch=epoch, broker_epochs=epochs)
        partition.apply_state(state, (1, 2), own, 0)
        is_ahead = epoch < 2 or member.broker_id == 1
        assert (partition.is_ahead, partition.leader) == (is_ahead, -1 if is_ahead else 1)
        partition.apply_state(evolve(state, leader_epoch=3), (1, 2), own, 0)
        assert (partition.is_ahead, partition.leader) == (False, 1)
