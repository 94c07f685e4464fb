"""Fetch sessions of followers: what has not changed is not repeated, and nothing is lost by that (KIP-227)."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from attrs import evolve
from support.replica_cluster import KEY, TOPIC_ID, Member, ReplicaCluster
from support.replica_harness import ME, OTHER, ReplicaHarness

from barnabas.core.cluster.topics import ReplicaId
from barnabas.core.replica.follower.fetcher import ReplicaFetcherManager
from barnabas.core.replica.leader.fetch_params import FollowerFetchParams
from barnabas.core.replica.leader.fetch_sessions import EPOCH_MAX, FetchSessionResult, _CachedPartition, next_epoch
from barnabas.core.replica.leader.reader import ReplicaReader
from barnabas.core.replica.partition.followers import UNKNOWN
from barnabas.core.replica.settings import ReplicationSettings
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import size_of
from barnabas.ports.types import Offset


@pytest.fixture
def cluster() -> ReplicaCluster:
    """Broker 2 is asked for by hand."""
    made = ReplicaCluster(2)
    made.kill(2)
    made.brokers = {**made.brokers, 2: evolve(made.brokers[1], broker_id=2, broker_epoch=made[2].epoch)}
    return made


def entry(offset: int = 0, **others: Any) -> FetchPartition:
    known = {"current_leader_epoch": 0, "log_start_offset": 0, "topic_id": TOPIC_ID, **others}
    return FetchPartition("t", 0, offset, 1 << 20, **known)


def ask(
    member: Member, epoch: int, session: int, entries: Sequence[FetchPartition] = (), **others: Any
) -> list[FetchSessionResult]:
    observed: list[FetchSessionResult] = []

    def done(answer: FetchSessionResult | ApiError) -> None:
        assert not isinstance(answer, ApiError)
        observed.append(answer)

    how = {"replica_id": 2, "replica_epoch": member.cluster[2].epoch, "max_wait_ms": 0, **others}
    request = Fetch(partitions=entries, session_id=session, session_epoch=epoch, **how)
    member.replicas.read_in_session(request, done, max_bytes=1 << 20, reader=None)
    return observed


def begun(cluster: ReplicaCluster) -> int:
    (observed,) = ask(cluster[1], 0, 0, [entry()])
    assert observed.session_id > 0
    assert [each.partition for each in observed.results] == [0], "the first answer has all"
    return observed.session_id


def test_unchanged_partition_is_left_out_of_the_next_answer(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    assert ask(cluster[1], 1, session) == [FetchSessionResult([], session)]
    cluster[1].produce(b"a", acks=1)
    (observed,) = ask(cluster[1], 2, session)
    assert [bytes(each.records.read()) for each in observed.results] == [  # type: ignore[union-attr]
        bytes(cluster[1].log.read(0, max_bytes=1 << 20, limit=1).records.read())  # type: ignore[union-attr]
    ]
    (observed,) = ask(cluster[1], 3, session)
    assert len(observed.results) == 1, "it has not said that it has it"
    (observed,) = ask(cluster[1], 4, session, [entry(1)])
    assert [each.high_watermark for each in observed.results] == [1], "the high watermark is news"
    assert cluster[1].partition.high_watermark == 1
    (observed,) = ask(cluster[1], 5, session)
    assert observed.results == []


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_followers_of_the_next_topic_of_that_name_ask_again_whatever_the_leader_epoch(
    cluster: ReplicaCluster, epoch: int
) -> None:
    cluster.lead(1)
    assert cluster[1].partition.leader_epoch == 1
    (observed,) = ask(cluster[1], 0, 0, [entry(current_leader_epoch=epoch, topic_id=b"the next topic's")])
    assert [each.error for each in observed.results] == [ErrorCode.UNKNOWN_TOPIC_ID], (
        "FENCED_LEADER_EPOCH is not retried"
    )


def test_a_follower_that_says_nothing_new_is_still_caught_up(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    for number in range(1, 60):
        cluster.run(100)
        ask(cluster[1], number, session)
    assert cluster.clock.monotonic_ms() > 2 * cluster.settings.lag_time_max_ms
    cluster[1].produce(b"a", acks=1)
    cluster.run(1500)
    assert list(cluster.state.isr) == [1, 2], "it had everything not long ago"
    cluster.run(3000)
    assert list(cluster.state.isr) == [1], "and stops when it is silent"


@pytest.fixture
def patient() -> ReplicaCluster:
    """Broker 2 is asked for by hand; the high watermark comes with the next records."""
    made = ReplicaCluster(2, settings=ReplicationSettings(lag_time_max_ms=2000, fetch_wait_max_ms=100))
    made.kill(2)
    made.brokers = {**made.brokers, 2: evolve(made.brokers[1], broker_id=2, broker_epoch=made[2].epoch)}
    return made


def test_high_watermark_alone_does_not_end_the_wait_of_a_follower(patient: ReplicaCluster) -> None:
    patient[1].produce(b"a", acks=1)
    (observed,) = ask(patient[1], 0, 0, [entry(1)])
    waiting = ask(patient[1], 1, observed.session_id, max_wait_ms=500)
    patient[1].partition.high_watermark = Offset(0)
    patient[1].replicas.purgatory.check(KEY)
    assert waiting == []
    patient.run(500)
    assert [each.high_watermark for each in waiting[0].results] == [0]


def test_high_watermark_alone_does_not_answer_a_fetch_at_once(patient: ReplicaCluster) -> None:
    patient[1].produce(b"a", acks=1)
    (observed,) = ask(patient[1], 0, 0, [entry(1)])
    patient[1].partition.high_watermark = Offset(0)
    waiting = ask(patient[1], 1, observed.session_id, max_wait_ms=500)
    assert waiting == []
    patient[1].produce(b"b", acks=1)
    assert [(each.high_watermark, size_of(each.records) > 0) for each in waiting[0].results] == [(1, True)]


def test_followers_fetch_once_for_a_record_and_learn_of_the_high_watermark_in_the_end() -> None:
    cluster = ReplicaCluster(settings=ReplicationSettings(lag_time_max_ms=2000, fetch_wait_max_ms=100))
    cluster.run(200)
    counted = Counter[int]()
    read = cluster[1].replicas.read_in_session

    def read_and_count(request: Fetch, *arguments: Any, **named: Any) -> None:
        counted[request.replica_id] += 1
        read(request, *arguments, **named)

    cluster[1].replicas.read_in_session = read_and_count
    answers = cluster[1].produce(b"x")
    cluster.run(20)
    assert [each.error for each in answers] == [ErrorCode.NONE]
    assert counted == {2: 1, 3: 1}
    cluster.run(200)
    assert [cluster[number].partition.high_watermark for number in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("cause", ["append", "log start", "high watermark", "leadership", "dropped"])
def test_a_session_that_waits_is_answered_when_there_is_news(cluster: ReplicaCluster, cause: str) -> None:
    cluster[1].produce(b"a", acks=1)
    (observed,) = ask(cluster[1], 0, 0, [entry(1)])
    waiting = ask(cluster[1], 1, observed.session_id, max_wait_ms=500)
    assert waiting == []
    if cause == "append":
        cluster[1].produce(b"b", acks=1)
    elif cause == "log start":
        cluster[1].delete(1)
    elif cause == "high watermark":
        cluster[1].partition.high_watermark = Offset(0)
        cluster[1].replicas.purgatory.check(KEY)
    elif cause == "leadership":
        cluster.lead(2)
    else:
        cluster[1].replicas.drop([KEY])
    (observed,) = waiting
    (result,) = observed.results
    expected = {"leadership": ErrorCode.FENCED_LEADER_EPOCH, "dropped": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert result.error is expected.get(cause, ErrorCode.NONE)


def test_append_wakes_a_fetch_whose_topic_was_unknown_at_first(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a", acks=1)
    nameless = FetchPartition("", 0, 1, 1 << 20, 0, 0, -1, TOPIC_ID)
    (observed,) = ask(cluster[1], 0, 0, [nameless])
    assert observed.results[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (first,) = ask(cluster[1], 1, observed.session_id, [entry(1)])
    assert len(first.results) == 1
    waiting = ask(cluster[1], 2, observed.session_id, max_wait_ms=500)
    assert waiting == []
    cluster[1].produce(b"b", acks=1)
    assert [size_of(each.records) > 0 for each in waiting[0].results] == [True]


def test_a_quiet_partition_is_looked_at_ten_times_a_second(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = begun(cluster)
    looks = Counter[bool]()
    is_quiet = _CachedPartition.is_quiet

    def is_quiet_and_counted(self: _CachedPartition, reading: FollowerFetchParams) -> bool:
        found = is_quiet(self, reading)
        looks[found] += 1
        return found

    monkeypatch.setattr(_CachedPartition, "is_quiet", is_quiet_and_counted)
    for number in range(1, 101):
        assert ask(cluster[1], number, session) == [FetchSessionResult([], session)]
        cluster.run(10)
    assert looks == {True: 10, False: 1}, "the first look finds out"


def test_what_no_event_reports_is_found_soon(cluster: ReplicaCluster) -> None:
    cluster[1].produce(b"a", acks=1)
    (observed,) = ask(cluster[1], 0, 0, [entry(1)])
    answers = ask(cluster[1], 1, observed.session_id) + ask(cluster[1], 2, observed.session_id)
    assert [each for answer in answers for each in answer.results] == []
    cluster[1].log.advance_log_start(Offset(1))
    assert [each.results for each in ask(cluster[1], 3, observed.session_id)] == [[]]
    cluster.run(100)
    (observed,) = ask(cluster[1], 4, observed.session_id)
    assert [each.log_start_offset for each in observed.results] == [1]


def test_fetch_of_an_earlier_life_shows_no_progress_of_the_next(patient: ReplicaCluster) -> None:
    leader, old = patient[1], patient[2].epoch
    leader.produce(b"a", acks=1)
    (observed,) = ask(leader, 0, 0, [entry(1)])
    ask(leader, 1, observed.session_id, max_wait_ms=1)
    leader.produce(b"b", acks=1)
    (answer,) = ask(leader, 2, observed.session_id)
    assert len(answer.results) == 1
    assert leader.partition.followers is not None
    follower = leader.partition.followers.of(ReplicaId(2, old + 1))
    follower.sent_log_start = Offset(0)
    leader.partition._epochs_in_sync[2] = old + 1
    ask(leader, 3, observed.session_id, [entry(2, last_fetched_epoch=0)], max_wait_ms=500)
    assert follower.log_end == UNKNOWN


def test_fetch_after_the_last_records_counts_without_a_response(
    patient: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = patient[1]
    leader.produce(b"a", acks=1)
    (observed,) = ask(leader, 0, 0, [entry(1)])
    ask(leader, 1, observed.session_id, max_wait_ms=1)
    answers = leader.produce(b"b")
    (answer,) = ask(leader, 2, observed.session_id, max_wait_ms=500)
    assert size_of(answer.results[0].records) > 0
    assert answers == []
    monkeypatch.setattr(ReplicaReader, "read_one", lambda *_, **__: pytest.fail("nothing is to be read"))
    waiting = ask(leader, 3, observed.session_id, [entry(2, last_fetched_epoch=0)], max_wait_ms=500)
    assert [each.error for each in answers] == [ErrorCode.NONE]
    assert waiting == []


def test_diverging_follower_is_never_taken_for_caught_up(patient: ReplicaCluster) -> None:
    leader = patient[1]
    leader.produce(b"a", acks=1)
    (observed,) = ask(leader, 0, 0, [entry(1)])
    ask(leader, 1, observed.session_id, max_wait_ms=1)
    leader.produce(b"b", acks=1)
    ask(leader, 2, observed.session_id)
    (answer,) = ask(leader, 3, observed.session_id, [entry(2, last_fetched_epoch=7)], max_wait_ms=500)
    assert answer.results[0].diverging is not None
    assert leader.partition.high_watermark == 1


def test_ended_sessions_leave_no_listeners(cluster: ReplicaCluster) -> None:
    for _ in range(3):
        begun(cluster)
    assert len(cluster[1].replicas.purgatory._listeners[KEY]) == 1
    ask(cluster[1], 1, begun(cluster), forgotten=[(TOPIC_ID, 0)])
    assert not cluster[1].replicas.purgatory._listeners
    begun(cluster)
    cluster[1].replicas.fetch_sessions.remove_all()
    assert not cluster[1].replicas.purgatory._listeners


def test_a_session_that_waits_ends_with_its_time(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    waiting = ask(cluster[1], 1, session, max_wait_ms=500)
    cluster.run(499)
    assert waiting == []
    cluster.run(1)
    assert waiting == [FetchSessionResult([], session)]


def test_forgotten_partition_is_left_out_of_the_answer(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    cluster[1].produce(b"a", acks=1)
    (observed,) = ask(cluster[1], 1, session, forgotten=[(TOPIC_ID, 0)])
    assert observed.results == []
    (observed,) = ask(cluster[1], 2, session, [entry()])
    assert len(observed.results) == 1


def test_request_with_a_wrong_session_epoch_is_refused(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    assert ask(cluster[1], 1, session + 1)[0].error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(cluster[1], 7, session)[0].error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    later = ask(cluster[1], 1, session, replica_epoch=cluster[2].epoch + 1)
    assert later[0].error is ErrorCode.INVALID_FETCH_SESSION_EPOCH, "of another life"
    assert ask(cluster[1], 1, session, replica_id=9)[0].error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert ask(cluster[1], 1, session)[0].error is ErrorCode.NONE
    assert begun(cluster) != session
    assert ask(cluster[1], 2, session)[0].error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "one for each follower"


def test_fetch_without_a_session_answers_every_partition(cluster: ReplicaCluster) -> None:
    for _ in range(2):
        (observed,) = ask(cluster[1], -1, 0, [entry()])
        assert (observed.session_id, len(observed.results)) == (0, 1)


def test_a_leader_without_the_lease_answers_its_followers(cluster: ReplicaCluster) -> None:
    """Their fetches are what it may continue by."""
    session = begun(cluster)
    cluster[1].lease_valid = False
    (observed,) = ask(cluster[1], 1, session)
    assert (observed.error, list(observed.results)) == (ErrorCode.NONE, [])


def test_session_epoch_wraps_to_one_after_the_largest() -> None:
    assert (next_epoch(0), next_epoch(1), next_epoch(EPOCH_MAX)) == (1, 2, 1)


# --- both sides


def test_high_watermark_that_the_follower_ignored_is_sent_again() -> None:
    """Two questions are under way; the answer to the second is of an offset that the first answer has moved on."""
    cluster = ReplicaCluster(3)
    cluster.isolate(3)
    cluster[1].produce(b"a")
    cluster.until(lambda: cluster.state.isr == (1, 2))
    cluster.brokers = {number: broker for number, broker in cluster.brokers.items() if number != 3}
    cluster.heal()
    cluster.until(lambda: cluster[3].visible == [b"a"])
    cluster.hop_ms[3] = 20
    cluster.run(300)
    cluster[1].produce(b"b")
    cluster.run(10)
    fetchers = cast(ReplicaFetcherManager, cluster[3].replicas.fetchers)
    fetchers._wake(KEY)
    cluster.run(3000)
    assert cluster.state.isr == (1, 2), "else the high watermark would have waited for it"
    assert (cluster[1].visible, cluster[3].values) == ([b"a", b"b"], [b"a", b"b"])
    assert cluster[3].visible == [b"a", b"b"], "readers there would wait for it until there is something new"


def test_partition_requested_again_in_a_session_is_answered_without_news(cluster: ReplicaCluster) -> None:
    """The follower may have failed to apply the answer before it left the partition out."""
    session = begun(cluster)
    ask(cluster[1], 1, session, forgotten=[(TOPIC_ID, 0)])
    (observed,) = ask(cluster[1], 2, session, [entry()])
    assert [each.high_watermark for each in observed.results] == [0]
    (observed,) = ask(cluster[1], 3, session)
    assert observed.results == []


def test_followers_ask_for_what_has_changed_only() -> None:
    cluster = ReplicaCluster(3)
    cluster[1].produce(b"a")
    cluster.run(1000)
    first, *others = cluster[2].fetches
    assert (first.session_epoch, len(first.partitions)) == (0, 1)
    assert [each.session_epoch for each in others] == [*range(1, len(others) + 1)]
    assert sum(len(each.partitions) for each in others) == 1, "the offset behind the message"
    assert cluster[2].visible == [b"a"]


def test_a_leader_that_was_restarted_gets_a_new_session() -> None:
    cluster = ReplicaCluster(2)
    cluster[1].produce(b"a")
    cluster.run()
    cluster.kill(1)
    cluster.start(1)
    cluster.run_until_idle()
    cluster.run()
    observed = cluster.leader.produce(b"b")
    cluster.until(lambda: bool(observed))
    cluster.until(lambda: len(cluster.state.isr) == 2)
    assert observed[0].error is ErrorCode.NONE
    for member in cluster.live:
        assert member.values == [b"a", b"b"]


def test_an_answer_that_was_lost_is_asked_for_again() -> None:
    cluster = ReplicaCluster(2)
    cluster[1].produce(b"a")
    cluster.run()
    for number in range(5):
        cluster[1].produce(b"%d" % number)
        cluster.run(1.5)  # the answer is on its way
        cluster.cut = {frozenset((1, 2))}
        cluster.run(300)
        cluster.heal()
        cluster.until(lambda: cluster[2].log.log_end_offset == cluster[1].log.log_end_offset)
    cluster.run(300)
    assert cluster[2].visible == [b"a", b"0", b"1", b"2", b"3", b"4"]


def test_a_second_question_ends_the_wait_of_the_first(cluster: ReplicaCluster) -> None:
    session = begun(cluster)
    waiting = ask(cluster[1], 1, session, max_wait_ms=500)
    assert waiting == []
    assert ask(cluster[1], 2, session, max_wait_ms=500) == []
    assert waiting == [FetchSessionResult([], session)]


def test_a_partition_that_comes_is_asked_for_at_once() -> None:
    """Though a question waits for news of another one: else nothing would be acknowledged for as long."""
    asked: list[tuple[Fetch, Callable[[Any], None]]] = []
    harness = ReplicaHarness(fetch_from=lambda _node, request, reply: asked.append((request, reply)))

    def opened(topic: str) -> FetchResultPartition:
        partition = harness.open(topic, replicas=(OTHER, ME), leader=OTHER)
        harness.scheduler.run_pending()
        return FetchResultPartition(topic, 0, high_watermark=0, log_start_offset=0, topic_id=partition.topic_id)

    first = opened("a")
    (request, reply), *none = asked
    assert (request.session_epoch, request.max_wait_ms, none) == (0, 0, [])
    opened("b")
    assert len(asked) == 1, "there is no session yet"
    reply(FetchResult(partitions=[first], session_id=7))
    harness.scheduler.run_pending()
    assert [(each.session_epoch, len(each.partitions)) for each, _ in asked] == [(0, 1), (1, 1)]
    assert asked[1][0].max_wait_ms == 500
    opened("c")
    assert [each.topic for each in asked[2][0].partitions] == ["c"]
    opened("d")
    assert len(asked) == 3, "no more than two at a time"
    asked[1][1](FetchResult(partitions=[], session_id=7))
    asked[2][1](FetchResult(partitions=[], session_id=7))
    harness.scheduler.run_pending()
    assert [each.topic for each in asked[3][0].partitions] == ["d"]
    assert [each.session_epoch for each, _ in asked] == [0, 1, 2, 3]


def test_response_of_an_ended_session_is_ignored() -> None:
    asked: list[tuple[Fetch, Callable[[Any], None]]] = []
    harness = ReplicaHarness(fetch_from=lambda _node, request, reply: asked.append((request, reply)))
    for topic in ("a", "b"):
        harness.open(topic, replicas=(OTHER, ME), leader=OTHER)
        harness.scheduler.run_pending()
    asked[0][1](FetchResult(partitions=[], session_id=7))
    harness.scheduler.advance(20)
    harness.open("c", replicas=(OTHER, ME), leader=OTHER)
    harness.scheduler.run_pending()
    assert len(asked) == 3
    asked[1][1](FetchResult(partitions=[], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    asked[2][1](FetchResult(partitions=[], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    harness.scheduler.run_pending()
    last, _ = asked[3]
    assert (len(asked), last.session_id, last.session_epoch, len(last.partitions)) == (4, 0, 0, 3)


@pytest.mark.parametrize("in_session", [True, False])
def test_removed_follower_gets_the_error_while_its_fetch_waits(cluster: ReplicaCluster, in_session: bool) -> None:
    session = begun(cluster)
    how = (1, session, ()) if in_session else (-1, 0, [entry()])
    waiting = ask(cluster[1], *how, max_wait_ms=500)
    assert waiting == []
    cluster.topic = evolve(cluster.topic, partitions={0: (1, 3)})
    cluster.state = evolve(cluster.state, isr=(1,), broker_epochs={1: 1}, partition_epoch=1)
    cluster[1].replicas.apply(cluster.topic, {0: cluster.state})
    cluster[1].produce(b"a", acks=1)
    cluster.run(500)
    (observed,) = waiting
    assert [each.error for each in observed.results] == [ErrorCode.REPLICA_NOT_AVAILABLE]
    assert not any("failed" in line for line in cluster[1].reports)
