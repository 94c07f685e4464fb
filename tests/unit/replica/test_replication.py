"""Leaders and followers: what is copied, what counts as committed, and who is in sync."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from attrs import evolve
from support.replica_cluster import KEY, ReplicaCluster

from barnabas.core.cluster.topics import ReplicaId
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.replica.follower.fetcher import ReplicaFetcherManager
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.fetch import FetchResultPartition
from barnabas.ports.broker_api.produce import ProduceResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing.logs import numbered


@pytest.fixture
def cluster() -> ReplicaCluster:
    return ReplicaCluster()


def test_followers_copy_and_the_high_watermark_follows(cluster: ReplicaCluster) -> None:
    observed = cluster[1].produce(b"a", b"b")
    assert (observed, cluster[1].partition.high_watermark) == ([], 0)
    cluster.run()
    assert [(each.error, each.base_offset) for each in observed] == [(ErrorCode.NONE, 0)]
    for member in cluster.live:
        assert member.visible == [b"a", b"b"], "followers learn at once what is committed"
        assert member.log.epochs.entries == [(0, 0)]
    assert not cluster.isr_requests
    assert not any(member.reports for member in cluster.live)


def test_replicated_log_is_identical_to_the_byte(cluster: ReplicaCluster) -> None:
    for number in range(20):
        cluster[1].produce(b"%d" % number, b"x" * number)
    cluster.run()
    logs = [member.log.read(0, max_bytes=1 << 20, limit=40).records for member in cluster.live]
    assert len({log if isinstance(log, bytes) else log.read() for log in logs}) == 1


def test_slow_follower_leaves_the_isr_and_returns(cluster: ReplicaCluster) -> None:
    cluster.isolate(3)
    observed = cluster[1].produce(b"a")
    cluster.run(1900)
    assert (observed, cluster.state.isr) == ([], (1, 2, 3))
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.run()
    assert [each.error for each in observed] == [ErrorCode.NONE]
    assert cluster[3].values == []
    cluster.heal()
    cluster.until(lambda: cluster.state.isr == (1, 2, 3))
    assert cluster[3].values == [b"a"]
    shrink, expand = cluster.isr_requests
    assert [each.broker_id for each in shrink.new_isr] == [1, 2]
    assert [each.broker_id for each in expand.new_isr] == [1, 2, 3]


def test_a_lease_that_is_lost_for_a_moment_lets_nothing_pass_what_it_has_refused(cluster: ReplicaCluster) -> None:
    first, second = numbered(b"a", sequence=0), numbered(b"b", sequence=1)
    leader = cluster[1]
    leader.lease_valid = False
    assert [each.error for each in leader.produce_batch(first, acks=1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    leader.lease_valid = True
    assert [each.error for each in leader.produce_batch(second, acks=1)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    for records in (first, second):
        assert [each.error for each in leader.produce_batch(records, acks=1)] == [ErrorCode.NONE]
    assert leader.values == [b"a", b"b"]


def test_a_leader_that_hears_of_it_late_lets_nothing_pass_what_it_has_refused(cluster: ReplicaCluster) -> None:
    """The producer learned of the change before; else the second batch would get OUT_OF_ORDER_SEQUENCE_NUMBER."""

    def send(broker: int, sequence: int) -> list[ErrorCode]:
        observed = cluster[broker].produce_batch(numbered(b"%d" % sequence, sequence=sequence), acks=1)
        cluster.run()
        return [each.error for each in observed]

    assert send(1, 0) == [ErrorCode.NONE]
    assert send(2, 1) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster.lead(2)
    cluster.run()
    assert send(2, 2) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [send(2, 1), send(2, 2)] == [[ErrorCode.NONE]] * 2
    assert cluster[2].values == [b"0", b"1", b"2"]


def test_failed_append_at_a_follower_is_reported_and_retried(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fetches of one leader continue with its other partitions, when one of them fails."""
    take_in = Partition.append_as_follower
    faults = [KeyError("a fault")]

    def faulty(partition: Partition, records: memoryview, **observed: Any) -> bool:
        if partition is cluster[2].partition and faults:
            raise faults.pop()
        return take_in(partition, records, **observed)

    monkeypatch.setattr(Partition, "append_as_follower", faulty)
    observed = cluster[1].produce(b"a")
    cluster.run(2000)
    assert [each.error for each in observed] == [ErrorCode.NONE]
    assert cluster[2].visible == [b"a"]
    assert cluster[2].reports == ["following t-0 failed: KeyError: 'a fault'"]


def test_an_idle_follower_that_reads_everything_stays(cluster: ReplicaCluster) -> None:
    cluster.run(30_000)
    assert (cluster.state.isr, cluster.isr_requests) == ((1, 2, 3), [])
    assert len(cluster[2].fetches) == pytest.approx(30_000 / 102, abs=3), "one question at a time, each waits"


def test_a_follower_comes_back_under_a_load_that_never_stops(cluster: ReplicaCluster) -> None:
    """With itself alone in the ISR the leader's high watermark would run away from everyone."""
    cluster.isolate(3)
    cluster.isolate(2)
    cluster.until(lambda: cluster.state.isr == (1,))
    cluster.heal()
    for number in range(3000):
        cluster[1].produce(b"%d" % number)
        cluster.run(0.5)
        if cluster.state.isr == (1, 2, 3):
            break
    assert set(cluster.state.isr) == {1, 2, 3}


# --- min.insync.replicas


def test_too_small_isr_refuses_appends_before_and_after_the_write() -> None:
    cluster = ReplicaCluster(config=LogConfig(min_insync_replicas=2))
    cluster.isolate(2)
    cluster.isolate(3)
    late = cluster[1].produce(b"a", timeout_ms=60_000)
    cluster.until(lambda: cluster.state.isr == (1,))
    cluster.run()
    assert (late, cluster[1].partition.high_watermark) == ([], 0), "nothing is committed by too few (KIP-966)"
    assert cluster.state.elr == (2, 3)
    assert [each.error for each in cluster[1].produce(b"b")] == [ErrorCode.NOT_ENOUGH_REPLICAS]
    assert [each.error for each in cluster[1].produce(b"c", acks=1)] == [ErrorCode.NONE]
    cluster.heal()
    cluster.until(lambda: set(cluster.state.isr) == {1, 2, 3})
    cluster.run()
    assert [each.error for each in late] == [ErrorCode.NONE]
    assert cluster[2].visible == [b"a", b"c"]


def test_batch_behind_one_refused_for_a_small_isr_is_refused_with_it() -> None:
    cluster = ReplicaCluster(config=LogConfig(min_insync_replicas=2))

    def send(sequence: int) -> list[ErrorCode]:
        observed = cluster[1].produce_batch(numbered(b"%d" % sequence, producer=7, sequence=sequence))
        cluster.run()
        return [each.error for each in observed]

    assert send(0) == [ErrorCode.NONE]
    cluster.isolate(2)
    cluster.isolate(3)
    cluster[1].produce(b"x")
    cluster.until(lambda: cluster.state.isr == (1,))
    assert send(1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
    cluster.heal()
    cluster.until(lambda: set(cluster.state.isr) == {1, 2, 3})
    assert send(2) == [ErrorCode.NOT_ENOUGH_REPLICAS], "it was sent before the producer knew"
    assert [send(1), send(2)] == [[ErrorCode.NONE]] * 2
    assert cluster[3].visible == [b"0", b"x", b"1", b"2"]


def test_batch_behind_one_refused_for_a_full_disk_is_refused_with_it() -> None:
    cluster = ReplicaCluster()

    def send(value: bytes, sequence: int) -> list[ErrorCode]:
        observed = cluster[1].produce_batch(numbered(value, producer=7, sequence=sequence))
        cluster.run()
        return [each.error for each in observed]

    assert send(b"0", 0) == [ErrorCode.NONE]
    disk = cluster[1].disk
    disk.bytes_max = disk.used_bytes + 100
    assert [send(b"1" * 100, 1), send(b"2", 2)] == [[ErrorCode.KAFKA_STORAGE_ERROR]] * 2, "though there is room for it"
    disk.bytes_max = -1
    assert [send(b"1" * 100, 1), send(b"2", 2)] == [[ErrorCode.NONE]] * 2
    assert cluster[3].visible == [b"0", b"1" * 100, b"2"]


def test_timeout_with_a_small_isr_answers_not_enough_replicas() -> None:
    cluster = ReplicaCluster(config=LogConfig(min_insync_replicas=2))
    cluster.isolate(2)
    cluster.isolate(3)
    observed = cluster[1].produce(b"a", timeout_ms=500)
    cluster.run(500)
    assert [each.error for each in observed] == [ErrorCode.REQUEST_TIMED_OUT]


# --- the ISR in the tree


def test_a_shrink_counts_only_once_it_is_stored(cluster: ReplicaCluster) -> None:
    cluster.isolate(3)
    observed = cluster[1].produce(b"a")
    cluster.refuse_isr = True
    cluster.run(5000)
    assert cluster.isr_requests
    assert (observed, cluster[1].partition.high_watermark) == ([], 0)
    cluster.refuse_isr = False
    cluster.until(lambda: bool(observed))
    assert observed[0].error is ErrorCode.NONE


def test_pending_isr_member_counts_for_the_high_watermark(cluster: ReplicaCluster) -> None:
    cluster.isolate(3)
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.cut = {frozenset((1, 0))}  # the leader's wish may or may not have come there
    cluster.until(lambda: len(cluster.isr_requests) == 2)
    cluster.cut |= {frozenset((1, 3)), frozenset((2, 3))}
    observed = cluster[1].produce(b"a", timeout_ms=60_000)
    cluster.run(5000)
    assert (observed, cluster[1].partition.high_watermark) == ([], 0)
    assert len(cluster.isr_requests) == 2, "one wish at a time"


def test_a_wish_counts_though_the_partition_gets_other_replicas_meanwhile(cluster: ReplicaCluster) -> None:
    """A move takes the broker away while it is on its way into the ISR."""
    cluster.isolate(3)
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.cut = {frozenset((1, 0))}
    cluster.until(lambda: len(cluster.isr_requests) == 2)
    cluster.cut |= {frozenset((1, 3)), frozenset((2, 3))}
    cluster.topic = evolve(cluster.topic, partitions={0: (1, 2)})
    cluster[1].replicas.apply(cluster.topic, {0: cluster.state})
    assert cluster[1].partition.replicas == (1, 2)
    observed = cluster[1].produce(b"a", timeout_ms=60_000)
    cluster.run(500)
    assert (observed, cluster[1].partition.high_watermark) == ([], 0), "broker 3 may be in the ISR by now"
    cluster.isr_rejections[0]()
    cluster.run(500)
    assert observed == [], "that was another wish"
    cluster.isr_rejections[1]()
    cluster.run(500)
    assert [each.error for each in observed] == [ErrorCode.NONE]


@pytest.mark.parametrize("reports_to_leader", [True, False], ids=["leader_hears", "leader_stands_still"])
def test_fetch_for_a_deleted_log_does_not_count_for_the_replica_that_comes_again(reports_to_leader: bool) -> None:
    """Broker 2 is moved away and back, in one broker epoch, while a fetch of it is on its way."""
    cluster = ReplicaCluster(brokers=2)
    observed = cluster[1].produce(b"a")
    cluster.run(500)
    assert [each.error for each in observed] == [ErrorCode.NONE]
    cluster.hop_ms[2] = 400
    sent = len(cluster[2].fetches)
    cluster.until(lambda: len(cluster[2].fetches) > sent)
    if not reports_to_leader:
        cluster.cut = {frozenset((0, 1))}
    cluster.move((1,))
    cluster.run(5)
    cluster[2].replicas.drop([KEY])
    cluster.move((1, 2))
    cluster[2].open(cluster.state)
    cluster.run(5)
    assert cluster[2].values == []
    assert cluster[1].partition.state.isr == ((1,) if reports_to_leader else (1, 2))
    cluster.cut.clear()
    cluster.announce()
    cluster.hop_ms[2] = 10_000  # what it fetches next
    cluster.run(1000)
    assert (cluster.state.isr, cluster.isr_requests) == ((1,), [])
    cluster.hop_ms.clear()
    cluster.until(lambda: cluster.state.isr == (1, 2))
    assert cluster[2].values == [b"a"]


def test_an_append_waits_on_while_the_epoch_of_its_leader_rises(cluster: ReplicaCluster) -> None:
    cluster.isolate(2)
    observed = cluster[1].produce(b"a")
    cluster.run(50)
    cluster.cut.clear()
    cluster.move((1, 2))
    assert cluster.state.leader_epoch == 1
    cluster.run(500)
    assert [(each.error, each.base_offset) for each in observed] == [(ErrorCode.NONE, 0)]
    assert (cluster[1].partition.led_since, cluster[1].partition.leader_epoch) == (0, 1)
    cluster.lead(2)
    cluster.lead(1)
    assert cluster[1].partition.led_since == cluster.state.leader_epoch == 3


def test_follower_outside_replicas_of_state_fetches_nothing_until_it_returns(cluster: ReplicaCluster) -> None:
    """The topic, which is read apart, has it still; both have it again later."""
    topic = cluster.topic
    cluster.move((1, 2))
    member = cluster[3].replicas
    cluster.run(500)
    fetches = len(cluster[3].fetches)
    cluster.run(2000)
    assert len(cluster[3].fetches) == fetches
    cluster.move(topic.partitions[0])
    member.apply(evolve(topic, partitions={0: (1, 2)}), {0: cluster.state})  # the topic comes later than the state
    cluster.run(0.5)
    before = cluster[3].partition.may_follow
    cluster.run(2000)
    assert (before, cluster[3].partition.may_follow) == (False, True)
    assert set(cluster.state.isr) == {1, 2, 3}


def test_one_wish_at_a_time(cluster: ReplicaCluster) -> None:
    cluster.cut = {frozenset((1, 0)), frozenset((1, 3)), frozenset((1, 2))}
    cluster[1].produce(b"a")
    cluster.run(30_000)
    assert len(cluster.isr_requests) == 1


# --- lives of brokers


def test_log_end_of_an_earlier_broker_epoch_does_not_count(cluster: ReplicaCluster) -> None:
    cluster.kill(3, power=True)
    cluster.start(3)  # before its session expired
    observed = cluster[1].produce(b"a")
    cluster.refuse_isr = True
    cluster.run(500)
    assert cluster[3].values == [b"a"], "it follows"
    assert observed == [], "but it is not the one that is in sync"
    cluster.refuse_isr = False
    cluster.until(lambda: bool(observed))
    assert cluster.state.isr == (1, 2, 3)
    assert cluster.state.broker_epochs[3] == cluster[3].epoch
    assert observed[0].error is ErrorCode.NONE


def test_an_old_life_that_still_asks_is_refused(cluster: ReplicaCluster) -> None:
    partition = cluster[1].partition
    assert partition.followers is not None
    old = cluster[3].epoch
    cluster.kill(3)
    cluster.start(3)
    cluster.run()
    (observed,) = cluster[1].consume(replica=ReplicaId(3, old), epoch=0)
    assert observed.error is ErrorCode.STALE_BROKER_EPOCH
    (observed,) = cluster[1].consume(replica=ReplicaId(9, 100), epoch=0)
    assert observed.error is ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_broker_of_unknown_life_leads_nothing(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster[1].replicas.broker_epoch = -1
    assert cluster[1].events == ["led 0", "resigned 0"]
    assert [each.error for each in cluster[1].produce(b"b")] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster[1].replicas.broker_epoch = cluster[1].epoch
    assert cluster[1].events == ["led 0", "resigned 0", "led 0"]
    observed = cluster[1].produce(b"c")
    cluster.until(lambda: bool(observed))
    assert observed[0].error is ErrorCode.NONE


# --- without the lease

REFUSED = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
ACCEPTED = [ErrorCode.NONE]


def errors(observed: Sequence[ProduceResultPartition | FetchResultPartition]) -> list[ErrorCode]:
    return [each.error for each in observed]


def test_without_the_lease_the_isr_commits_acks_all_and_acks_1_is_refused(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster[1].lease_valid = False
    assert errors(cluster[1].produce(b"refused", acks=1)) == REFUSED
    assert errors(cluster[1].produce(b"refused", acks=0)) == REFUSED
    for value in (b"b", b"c"):
        observed = cluster[1].produce(value)
        cluster.until(lambda observed=observed: bool(observed))  # type: ignore[misc]
        assert errors(observed) == ACCEPTED
    assert [member.visible for member in cluster.live] == [[b"a", b"b", b"c"]] * 3
    (read,) = cluster[1].consume()
    assert (read.error, read.high_watermark) == (ErrorCode.NONE, 3)


def test_without_the_lease_and_the_isr_nothing_is_committed_or_read(cluster: ReplicaCluster) -> None:
    """Both followers know of another leader, or cannot be reached; which of them, the old leader cannot know."""
    cluster[1].produce(b"a")
    cluster.run()
    cluster.isolate(1)
    cluster.expire(1)
    cluster.lead(2, isr=(2, 3))
    waiting = cluster[1].produce(b"lost", timeout_ms=5000)
    cluster.run(cluster.settings.isr_silence_max_ms + 500)
    assert cluster[1].partition.is_leader, "it does not know better"
    assert errors(cluster[1].produce(b"lost")) == REFUSED
    assert errors(cluster[1].consume()) == REFUSED
    cluster.run(5000)
    assert errors(waiting) == [ErrorCode.REQUEST_TIMED_OUT]
    observed = cluster[2].produce(b"b")
    cluster.run()
    assert errors(observed) == ACCEPTED
    assert cluster[1].partition.high_watermark == 1


def test_one_follower_that_knows_of_another_leader_stops_all_commits_of_the_old_one(cluster: ReplicaCluster) -> None:
    """The other follower, which is late, continues fetching from the old leader: that is not enough."""
    cluster[1].produce(b"a")
    cluster.run()
    cluster.cut = {frozenset((0, 1)), frozenset((0, 3))}
    cluster.expire(1)
    cluster.lead(2, isr=(2, 3))
    lost = cluster[1].produce(b"lost", timeout_ms=1000)
    cluster.run(1200)
    assert cluster[3].values == [b"a", b"lost"], "it has copied from the leader that it knows"
    assert (errors(lost), cluster[1].partition.high_watermark) == ([ErrorCode.REQUEST_TIMED_OUT], 1)
    assert cluster[2].values == [b"a"]
    cluster.heal()
    observed = cluster[2].produce(b"b")
    cluster.until(lambda: bool(observed))
    cluster.run(500)
    assert errors(observed) == ACCEPTED
    assert [member.visible for member in cluster.live] == [[b"a", b"b"]] * 3


def test_without_the_lease_a_restarted_follower_does_not_count_as_the_one_in_the_isr(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster.cut = {frozenset((0, 1))}
    cluster.expire(1)
    cluster.kill(2)
    cluster.start(2)
    observed = cluster[1].produce(b"b", timeout_ms=1000)
    cluster.run(1200)
    assert (errors(observed), cluster[1].partition.high_watermark) == ([ErrorCode.REQUEST_TIMED_OUT], 1)


def test_a_leader_alone_in_the_isr_writes_nothing_without_the_lease(cluster: ReplicaCluster) -> None:
    cluster.kill(2)
    cluster.kill(3)
    cluster.until(lambda: cluster.state.isr == (1,))
    cluster.run()
    assert errors(cluster[1].produce(b"a")) == ACCEPTED
    cluster[1].lease_valid = False
    assert errors(cluster[1].produce(b"b")) == REFUSED
    assert errors(cluster[1].consume()) == ACCEPTED, "what is committed may be read: only this broker can lead"


def test_where_elections_may_be_unclean_the_lease_is_required() -> None:
    cluster = ReplicaCluster(config=LogConfig(unclean_leader_election_enable=True), unclean=True)
    cluster[1].produce(b"a")
    cluster.run()
    cluster[1].lease_valid = False
    assert errors(cluster[1].produce(b"b")) == REFUSED
    assert errors(cluster[1].consume()) == REFUSED


def test_without_the_lease_the_isr_is_not_asked_to_change(cluster: ReplicaCluster) -> None:
    cluster.isolate(3)
    cluster[1].produce(b"a")
    cluster.until(lambda: cluster.state.isr == (1, 2))
    asked = len(cluster.isr_requests)
    cluster[1].lease_valid = False
    cluster.cut = {frozenset((0, 1))}
    cluster.until(lambda: cluster[3].values == [b"a"])
    cluster.run(5000)
    assert len(cluster.isr_requests) == asked
    cluster[1].lease_valid = True
    cluster.heal()
    cluster.until(lambda: cluster.state.isr == (1, 2, 3))


def test_without_the_lease_what_only_a_producers_state_speaks_against_is_not_final(cluster: ReplicaCluster) -> None:
    """Another leader may have what came between."""
    cluster[1].produce_batch(numbered(b"a", sequence=0))
    cluster.run()
    cluster[1].lease_valid = False
    ahead = numbered(b"c", sequence=2)
    assert errors(cluster[1].produce_batch(ahead)) == REFUSED
    cluster[1].lease_valid = True
    assert errors(cluster[1].produce_batch(ahead)) != ACCEPTED


def test_a_reader_that_has_seen_more_is_not_sent_back_by_a_leader_without_the_lease(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    (result,) = cluster[1].consume(5)
    assert result.error is ErrorCode.OFFSET_OUT_OF_RANGE
    cluster[1].lease_valid = False
    (result,) = cluster[1].consume(5)
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[1].replicas.readable("t", 0) is cluster[1].partition
    with pytest.raises(ApiError):
        cluster[1].replicas.led("t", 0)
    (result,) = cluster[1].consume(0, nearest=lambda _partition, _offset: 2)
    assert result.preferred_read_replica == -1, "a follower without the lease would send it back here"


# --- leadership


def test_deposed_leader_answers_waiting_producers_and_follows(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a")
    cluster.run()
    cluster.cut = {frozenset((1, 2)), frozenset((1, 3))}
    waiting = cluster[1].produce(b"lost")
    reading = cluster[1].consume(1, max_wait_ms=5000, min_bytes=1)
    cluster.lead(2)
    assert [each.error for each in waiting] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [each.error for each in reading] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert cluster[1].events == ["led 0", "resigned 1"]
    assert cluster[2].events == ["led 1"]
    cluster.heal()
    observed = cluster[2].produce(b"b")
    cluster.until(lambda: bool(observed))
    cluster.run(1000)
    assert [member.visible for member in cluster.live] == [[b"a", b"b"]] * 3, "what it had alone is cut off"
    assert cluster[2].partition.epoch_start_offset == 1
    assert cluster[1].log.epochs.entries == [(0, 0), (1, 1)]


def test_older_news_change_nothing(cluster: ReplicaCluster) -> None:
    first = cluster.state
    cluster.lead(2)
    later = cluster.state
    cluster[2].replicas.apply(cluster.topic, {0: first})
    cluster[1].replicas.apply(cluster.topic, {0: first})
    assert (cluster[2].partition.is_leader, cluster[1].partition.leader_epoch) == (True, 1)
    events = list(cluster[2].events)
    cluster[2].replicas.apply(cluster.topic, {0: later})
    assert cluster[2].events == events, "nor does what is known"
    assert KEY in cluster[2].replicas.partitions


def test_partition_without_a_leader_refuses_requests(cluster: ReplicaCluster) -> None:
    cluster.lead(-1)
    for member in cluster.live:
        assert member.consume(anywhere=True)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetched = [len(member.fetches) for member in cluster.live]
    cluster.run(1000)
    assert [len(member.fetches) for member in cluster.live] == fetched, "and follows no leader"


# --- flushes


def test_a_follower_counts_once_its_disk_has_what_is_to_be_flushed() -> None:
    cluster = ReplicaCluster(config=LogConfig(flush_messages=1))
    observed: list[ProduceResultPartition] = []
    for number in range(5):
        observed = cluster[1].produce(b"%d" % number)
        while not observed:
            for member in cluster.live:
                assert cluster[1].partition.high_watermark <= member.log.log_end_offset
            for follower in cluster[1].partition.followers or ():
                assert follower.log_end <= cluster[follower.broker_id].log.recovery_point
            cluster.run(0.5)
    for broker_id in (1, 2, 3):
        cluster.kill(broker_id, power=True)
    for broker_id in (1, 2, 3):
        cluster.start(broker_id)
    for _ in range(5):  # what each has, the election, the followers
        cluster.run_until_idle()
        cluster.run(500)
    assert set(cluster.state.isr) == {1, 2, 3}
    assert cluster.leader.visible == [b"0", b"1", b"2", b"3", b"4"], "all of them lost power at once"


def test_nothing_stays_of_a_log_that_is_deleted_while_its_follower_flushes_or_cuts_it() -> None:
    cluster = ReplicaCluster(config=LogConfig(flush_messages=1))
    copying = cast(ReplicaFetcherManager, cluster[3].replicas.fetchers)._copying
    begin, dropped = copying._flushes.begin_if_due, list[bool]()

    def drop(held: bool) -> None:
        copying._noting[KEY] = cluster[3].log
        dropped.append(held and cluster[3].replicas.drop([KEY]))

    def begin_and_drop(log: UnifiedLog, now_ms: int, resume: Callable[[], None]) -> None:
        begin(log, now_ms, resume)
        held = copying._flushes.holds(log)
        if not dropped:
            cluster.scheduler.call_soon(lambda: drop(held))

    copying._flushes.begin_if_due = begin_and_drop  # type: ignore[method-assign]
    cluster[1].produce(b"a")
    cluster.run(1000)
    assert dropped == [True], "the flush was under way"
    assert not copying._flushes._waiting and not copying._noting


def test_failed_flush_answers_producers_and_takes_the_partition_offline() -> None:
    cluster = ReplicaCluster(config=LogConfig(flush_messages=1))
    cluster[3].disk.flush_errors_per_million = 1_000_000
    observed = cluster[1].produce(b"a", timeout_ms=60_000)
    cluster.until(lambda: bool(observed))
    assert (cluster[3].offline, cluster.state.isr) == ([KEY], (1, 2))
