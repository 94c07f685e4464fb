"""Partitions fetched ahead of their reader."""

from typing import Any

import pytest
from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.consumer.fetcher import FULL_BUFFERS_WAIT_MS, Fetcher
from barnabas.core.client.consumer.subscription_state import AtTime, CompletedFetch, FetcherSettings, Reset
from barnabas.core.client.errors import NoOffset
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.fetch import Fetch, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    ListOffsets,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

TP = TopicPartition("t", 0)


class Bench(ManualDriver):
    def __init__(self, cluster: PlainCluster, **settings: Any) -> None:
        super().__init__(cluster)
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        self.fetcher = Fetcher(self.view, self.entropy, FetcherSettings(**settings), NO_CODECS)
        self.parts = [self.fetcher, self.view]
        self.late: BaseException | None = None
        """The last reason why a partition makes no progress."""

    def next_fetch(self) -> CompletedFetch:
        found: list[CompletedFetch] = []

        def came() -> bool:
            completed_fetch = self.fetcher.next_completed_fetch()
            if completed_fetch is not None:
                found.append(completed_fetch)
            return bool(found)

        for _ in range(200):
            if came():
                return found[0]
            self.poll()
            self.late = next((each.last_error for each in self.fetcher.partitions.values()), None) or self.late
            if not self.answer():
                self.clock.advance(50)
        raise AssertionError("no completed fetch")

    def read(self, count: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        while len(values) < count:
            completed_fetch = self.next_fetch()
            if completed_fetch.error is not None:
                raise completed_fetch.error
            values += [message.value for message in completed_fetch.messages]
        return values


def filled(cluster: PlainCluster, *batches: int, tp: TopicPartition = TP) -> list[bytes]:
    """Append batches of these sizes to the log; return the values."""
    values, number = [], cluster.end(tp)
    for count in batches:
        messages = [Message(b"%d" % n) for n in range(number, number + count)]
        cluster.append(tp, encode_batch(messages, now_ms=1000 * (number + 1)))
        values += [b"%d" % n for n in range(number, number + count)]
        number += count
    return values


def test_fetch_starts_at_offset_inside_batch() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 10, 10)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 5})
    assert bench.read(15) == values[5:]


@pytest.mark.parametrize(("position", "first"), [(AtTime(EARLIEST), 0), (AtTime(5500), 5)])
def test_positions_are_looked_up(position: AtTime, first: int) -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, *([1] * 10))
    bench = Bench(cluster)
    bench.fetcher.assign({TP: position})
    assert bench.read(10 - first) == values[first:]


def test_latest_and_a_time_in_the_future_begin_at_the_end() -> None:
    for position in (AtTime(LATEST), AtTime(10**9)):
        cluster = PlainCluster(t=1)
        filled(cluster, 3)
        bench = Bench(cluster)
        bench.fetcher.assign({TP: position})
        bench.run(lambda: bench.fetcher.partitions[TP].read_offset >= 0)  # noqa: B023
        new = filled(cluster, 2)
        assert bench.read(2) == new


def test_partitions_take_turns() -> None:
    cluster = PlainCluster(t=2)
    other = TopicPartition("t", 1)
    for _ in range(3):
        filled(cluster, 1)
        filled(cluster, 1, tp=other)
    bench = Bench(cluster, max_partition_bytes=1)
    bench.fetcher.assign({TP: 0, other: 0})
    assert [bench.next_fetch().tp for _ in range(4)] == [TP, other, TP, other]


def test_throttled_fetch_without_partitions_is_repeated() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 3)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    answer = cluster.answer
    throttled: list[Fetch] = []

    def answer_empty_once(broker: int, request: Any) -> Any:
        if isinstance(request, Fetch) and not throttled:
            throttled.append(request)
            return FetchResult(partitions=(), throttle_ms=500)
        return answer(broker, request)

    cluster.answer = answer_empty_once  # type: ignore[method-assign]
    assert bench.read(3) == values
    assert len(throttled) == 1


def test_one_fetch_per_broker_with_all_its_partitions() -> None:
    cluster = PlainCluster(brokers=2, t=4)
    bench = Bench(cluster)
    bench.fetcher.assign({TopicPartition("t", p): 0 for p in range(4)})
    bench.poll()
    bench.answer()
    bench.poll()
    requests = [send.request for send in bench.open if isinstance(send.request, Fetch)]
    assert sorted([p.partition for p in request.partitions] for request in requests) == [[0, 2], [1, 3]]
    bench.poll()
    assert len(bench.open) == 2


def test_a_partition_with_full_buffers_is_left_out_and_the_others_do_not_wait_long() -> None:
    cluster = PlainCluster(t=2)
    filled(cluster, 1, 1, 1, 1)
    bench = Bench(cluster, max_partition_bytes=1)
    bench.fetcher.assign({TP: 0, TopicPartition("t", 1): 0})
    for _ in range(6):
        bench.poll()
        bench.answer()
    last = cluster.of(Fetch)[-1]
    assert [p.partition for p in last.partitions] == [1]
    assert last.max_wait_ms == FULL_BUFFERS_WAIT_MS
    assert cluster.of(Fetch)[0].max_wait_ms == 500
    assert len(bench.fetcher.partitions[TP].completed_fetches) == 2


def test_all_buffers_together_are_bounded() -> None:
    cluster = PlainCluster(t=4)
    places = [TopicPartition("t", p) for p in range(4)]
    for tp in places:
        filled(cluster, 1, 1, 1, tp=tp)
    size = len(cluster.logs[TP][0])
    bench = Bench(cluster, max_partition_bytes=1, max_bytes=4 * size)
    bench.fetcher.assign(dict.fromkeys(places, 0))
    bench.run_until_idle()
    assert sum(len(state.completed_fetches) for state in bench.fetcher.partitions.values()) == 4
    assert len(bench.read(12)) == 12


def test_paused_partitions_are_neither_fetched_nor_handed_out() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 3)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    bench.run(lambda: bool(bench.fetcher.partitions[TP].completed_fetches))
    bench.fetcher.pause([TP], True)
    assert bench.fetcher.next_completed_fetch() is None
    bench.fetcher.pause([TP], False)
    assert bench.read(3) == values


def test_a_seek_forgets_what_was_fetched_and_what_is_under_way() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 1, 1, 1, 1, 1)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    bench.poll()
    bench.answer()
    bench.poll()
    assert isinstance(bench.open[0].request, Fetch)
    bench.fetcher.seek(TP, 3)
    bench.answer()
    assert bench.read(2) == values[3:]


@pytest.mark.parametrize(("reset", "first"), [(Reset.EARLIEST, 2), (Reset.LATEST, 5)])
def test_out_of_range_goes_where_the_policy_says(reset: Reset, first: int) -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 1, 1, 1, 1, 1)
    cluster.starts[TP] = 2
    bench = Bench(cluster, reset=reset)
    bench.fetcher.assign({TP: 0})
    bench.run(lambda: bench.fetcher.partitions[TP].read_offset == first)
    assert bench.read(5 - first) == values[first:]


def test_out_of_range_without_reset_policy_raises_once_and_waits_for_seek() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 1)
    bench = Bench(cluster, reset=Reset.NONE)
    bench.fetcher.assign({TP: 99})
    with pytest.raises(NoOffset, match="99"):
        bench.read(1)
    bench.run_until_idle()
    assert len(cluster.of(Fetch)) == 1
    bench.fetcher.seek(TP, 0)
    assert bench.read(1) == values


def test_fetched_records_are_returned_before_an_offset_reset() -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 1, 1)
    bench = Bench(cluster, max_partition_bytes=1, reset=Reset.EARLIEST)
    bench.fetcher.assign({TP: 0})
    while not bench.fetcher.partitions[TP].completed_fetches:
        bench.poll()
        bench.answer()
    cluster.once(Fetch, FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE)]))
    bench.run_until_idle()
    assert bench.read(3) == [values[0], *values]


@pytest.mark.parametrize(
    "failure",
    [
        TransportError("lost"),
        FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)]),
        FetchResult(partitions=[], error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ],
    ids=["connection", "leader", "session"],
)
def test_retriable_fetch_error_is_retried(failure: Any) -> None:
    cluster = PlainCluster(t=1)
    values = filled(cluster, 3)
    bench = Bench(cluster)
    cluster.once(Fetch, failure)
    cluster.once(ListOffsets, TransportError("lost"))
    bench.fetcher.assign({TP: AtTime(EARLIEST)})
    assert bench.read(3) == values


def test_missing_end_offset_is_requested_again_after_backoff() -> None:
    cluster = PlainCluster(t=1)
    bench = Bench(cluster)
    unknown = ListOffsetsResult(partitions=[ListOffsetsResultPartition(topic="t", partition=0, offset=-1)])
    cluster.script(lambda _, request: unknown if isinstance(request, ListOffsets) and bench.now < 3000 else None)
    bench.fetcher.assign({TP: AtTime(LATEST)})
    bench.run_until_idle()
    assert "returned no end offset" in bench.fetcher.why(bench.fetcher.partitions[TP])
    bench.run(lambda: bench.fetcher.partitions[TP].read_offset >= 0)
    assert len(cluster.of(ListOffsets)) < 20


def test_fatal_fetch_error_is_raised_and_partition_can_resume() -> None:
    cluster = PlainCluster(t=1)
    refusal = FetchResult(partitions=[FetchResultPartition("t", 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    cluster.once(Fetch, refusal)
    values = filled(cluster, 1)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED"):
        bench.read(1)
    bench.fetcher.pause([TP], False)
    assert bench.read(1) == values


def test_a_batch_that_is_cut_is_asked_for_with_more_bytes() -> None:
    cluster = PlainCluster(t=1)
    filled(cluster, 50)
    whole = cluster.logs[TP][0]

    def old_broker(_: int, request: Any) -> Any:
        if not isinstance(request, Fetch):
            return None
        size = request.partitions[0].max_bytes
        return FetchResult(partitions=[FetchResultPartition("t", 0, high_watermark=50, records=whole[:size])])

    cluster.script(old_broker)
    bench = Bench(cluster, max_partition_bytes=100)
    bench.fetcher.assign({TP: 0})
    assert len(bench.read(50)) == 50
    assert [r.partitions[0].max_bytes for r in cluster.of(Fetch)] == [100, len(whole), 100][: len(cluster.of(Fetch))]


def test_damaged_batch_header_raises_corrupt_message() -> None:
    cluster = PlainCluster(t=1)
    damaged = FetchResult(partitions=[FetchResultPartition("t", 0, high_watermark=5, records=bytes(100))])
    cluster.once(Fetch, damaged)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        bench.read(1)


def silent_cluster(local_start: Any, silent_fetches: int = 1000) -> PlainCluster:
    """Return a cluster that answers fetches without records, and reports its local log start."""
    cluster = PlainCluster(t=1)
    filled(cluster, 50)
    left = iter(range(silent_fetches))

    def play(_: int, request: Any) -> Any:
        if isinstance(request, Fetch) and next(left, None) is not None:
            return FetchResult(partitions=[FetchResultPartition("t", 0, high_watermark=50)])
        if isinstance(request, ListOffsets) and request.partitions[0].timestamp == EARLIEST_LOCAL:
            if isinstance(local_start, int):
                found = ListOffsetsResultPartition(topic="t", partition=0, offset=local_start)
                return ListOffsetsResult(partitions=[found])
            return local_start
        return None

    cluster.script(play)
    return cluster


def test_fetches_without_records_are_repeated_while_only_remote_storage_has_the_offset() -> None:
    cluster = silent_cluster(local_start=50, silent_fetches=20)
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    assert len(bench.read(50)) == 50
    assert len(cluster.of(ListOffsets)) == 2
    assert "remote storage does not bring offset 0" in str(bench.late)


@pytest.mark.parametrize("local_start", [0, ApiError(ErrorCode.UNSUPPORTED_VERSION, "ListOffsets needs version 8")])
def test_fetches_without_records_of_the_local_log_show_damage(local_start: Any) -> None:
    bench = Bench(silent_cluster(local_start))
    bench.fetcher.assign({TP: 0})
    with pytest.raises(ApiError, match=r"CORRUPT_MESSAGE.*although records up to offset 50 are readable"):
        bench.read(1)


def test_local_log_start_is_looked_up_again_after_an_error() -> None:
    cluster = silent_cluster(local_start=0)
    cluster.once(ListOffsets, TransportError("lost"))
    bench = Bench(cluster)
    bench.fetcher.assign({TP: 0})
    with pytest.raises(ApiError, match="CORRUPT_MESSAGE"):
        bench.read(1)
    assert len(cluster.of(ListOffsets)) == 2
