"""Clients of a cluster whose brokers fail and whose leaders move."""

from typing import Any

import pytest
from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.cluster_view import COORDINATORS, ClusterView, ViewSettings
from barnabas.core.client.consumer.fetcher import FENCED_MAX, Fetcher
from barnabas.core.client.consumer.subscription_state import AtOffset, AtTime, CompletedFetch, FetcherSettings, Reset
from barnabas.core.client.errors import LogTruncated
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.fetch import CurrentLeader, DivergingEpoch, Fetch, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import EARLIEST, ListOffsets
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

TP = TopicPartition("t", 0)
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Bench(ManualDriver):
    """A view of a cluster of three, topic t known, led by broker 1 in epoch 5."""

    def __init__(self, bootstrap: int = 1) -> None:
        super().__init__(PlainCluster(brokers=3, t=2))
        self.cluster.epochs[TP] = 5
        self.moves = 0
        addresses = [(f"bootstrap{number}", 1) for number in range(bootstrap)]
        self.view = ClusterView(addresses, self.entropy, ViewSettings(), moved=self._moved)
        self.parts = [self.view]
        self.view.add_topics(["t"])
        self.run_until_idle()

    def _moved(self) -> None:
        self.moves += 1

    def elect(self, leader: int, epoch: int) -> None:
        self.cluster.leaders[TP], self.cluster.epochs[TP] = leader, epoch

    def refresh(self) -> None:
        self.clock.advance(1000)
        self.view.request_refresh()
        self.run_until_idle()

    @property
    def asked(self) -> int:
        return len(self.cluster.of(Metadata))


# --- whom to ask


def test_any_broker_that_can_be_reached_is_asked_and_at_last_the_bootstrap_addresses() -> None:
    bench = Bench(bootstrap=2)
    view = bench.view
    seen = []
    for gone in (1, 2, 3, -1):
        seen.append(view.any_node())
        view.on_node_status(gone, False)
    assert [*seen, view.any_node()] == [1, 2, 3, -1, -2]
    view.on_node_status(-2, False)
    assert view.any_node() == 1, "no broker is reachable: each in turn"
    view.try_another()
    assert view.any_node() == 2
    view.on_node_status(COORDINATORS + 3, True)
    assert view.any_node() == 3, "a coordinator is a broker, too"


def test_controller_request_goes_to_another_broker_during_its_outage() -> None:
    bench = Bench()
    assert bench.view.controller_node() == 1
    bench.view.on_node_status(1, False)
    assert bench.view.controller_node() == 2
    bench.view.on_node_status(1, True)
    assert bench.view.controller_node() == 1


def pauses_of(bench: Bench, count: int) -> list[float]:
    pauses = []
    for _ in range(count):
        wake = bench.run_until_idle()
        pauses.append(wake - bench.now)
        bench.clock.advance_to(wake)
    return pauses


def test_while_a_partition_has_no_leader_it_is_asked_often_who_leads_it_and_later_less_often() -> None:
    bench = Bench()
    bench.elect(-1, 6)
    bench.refresh()
    pauses = pauses_of(bench, 60)
    assert max(pauses[:35]) <= 1.2 * 250
    assert min(pauses[50:]) >= 0.8 * 1000


def test_while_a_leader_cannot_be_reached_it_is_asked_often_who_leads_instead() -> None:
    bench = Bench()
    bench.view.on_node_status(1, False)
    bench.view.on_node_status(1, False)
    assert max(pauses_of(bench, 35)) <= 1.2 * 250
    pauses_of(bench, 10)
    assert bench.run_until_idle() - bench.now > 10_000, "who does not need it cannot know whether it is back"
    bench.view.on_node_status(1, False)
    assert max(pauses_of(bench, 35)) <= 1.2 * 250
    bench.elect(2, 6)
    bench.cluster.leaders[TopicPartition("t", 1)] = 3
    bench.run_until_idle()
    assert bench.view.leader("t", 0) == 2
    asked = bench.asked
    bench.clock.advance(10_000)
    bench.run_until_idle()
    assert bench.asked == asked


def test_a_broker_that_hangs_is_not_waited_for_with_the_metadata_either() -> None:
    bench = Bench()
    bench.clock.advance(1000)
    bench.view.request_refresh()
    bench.poll()
    (hangs,), bench.open = bench.open, []
    assert hangs.node == 1
    bench.view.on_request_overdue(1)
    bench.elect(2, 6)
    bench.run_until_idle()
    assert [node for node, request in bench.cluster.requests if isinstance(request, Metadata)][-1] == 2
    assert bench.view.leader("t", 0) == 2
    hangs.answer(TransportError("at last"), bench.now)
    assert bench.view.last_error is None, "no caller waits for it"
    bench.view.on_request_overdue(3)
    assert bench.run_until_idle() - bench.now > 10_000, "others were not asked"


def test_a_broker_that_leads_nothing_of_ours_may_be_away() -> None:
    bench = Bench()
    bench.view.on_node_status(3, False)
    bench.clock.advance(10_000)
    bench.run_until_idle()
    assert bench.asked == 1


def test_metadata_refresh_drops_addresses_of_departed_brokers_and_coordinators() -> None:
    bench = Bench()
    node = bench.view.coordinator(3, ("broker-3", 9092))
    bench.refresh()
    assert (bench.moves, bench.view.address(node)) == (0, ("broker-3", 9092))
    bench.cluster.brokers = 2
    bench.cluster.leaders = {TP: 1, TopicPartition("t", 1): 2}
    bench.refresh()
    assert (bench.moves, bench.view.address(3), bench.view.address(node)) == (1, None, None)


# --- what is believed


def test_current_leader_hint_applies_with_newer_epoch_and_known_address() -> None:
    bench = Bench()
    update = bench.view.update_leader
    assert not update(TP, None, ())
    assert not update(TP, CurrentLeader(2, 5), ())
    assert not update(TP, CurrentLeader(9, 6), ())
    assert not update(TopicPartition("t", 7), CurrentLeader(2, 6), ())
    assert not update(TopicPartition("u", 0), CurrentLeader(2, 6), ())
    assert bench.view.leadership("t", 0) == (1, 5)
    assert update(TP, CurrentLeader(2, 6), ())
    assert bench.view.leadership("t", 0) == (2, 6)
    assert update(TP, CurrentLeader(9, 7), [BrokerNode(node_id=9, host="nine", port=1)])
    assert (bench.view.leader("t", 0), bench.view.address(9)) == (9, ("nine", 1))
    bench.refresh()
    assert bench.view.leadership("t", 0) == (9, 7), "the broker that answered is behind"


def test_a_topic_never_shrinks() -> None:
    bench = Bench()
    bench.cluster.topics["t"] = 1
    bench.refresh()
    assert bench.view.leader("t", 1) == 2


# --- producing


class Producing(Bench):
    def __init__(self) -> None:
        super().__init__()
        self.accumulator = RecordAccumulator(AccumulatorSettings(linger_ms=0), self.clock, lambda _: None)
        self.settled: list[Any] = []
        self.sender = Sender(
            self.accumulator,
            self.view,
            self.entropy,
            SenderSettings(retry_backoff_ms=400),
            codec_for=lambda _: None,
            settled=self.settled.extend,
        )
        self.parts.insert(0, self.sender)

    def put(self) -> None:
        self.accumulator.append(TP, (b"x", None, (), None), message_bytes(b"x", None, ()))


def test_produce_is_resent_at_once_to_leader_named_in_response() -> None:
    bench = Producing()
    bench.elect(2, 6)
    observed = [ProduceResultPartition(*TP, MOVED, current_leader=CurrentLeader(2, 6))]
    bench.cluster.once(Produce, ProduceResult(partitions=observed))
    began = bench.now
    bench.put()
    bench.run(lambda: bool(bench.settled))
    assert (bench.settled[0].error, bench.now - began) == (None, 0)
    assert [node for node, request in bench.cluster.requests if isinstance(request, Produce)] == [1, 2]
    bench.clock.advance(200)
    bench.run_until_idle()
    assert bench.asked == 2, "it asks all the same, without waiting for it"


@pytest.mark.parametrize("failure", [TransportError("refused"), ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_batch_goes_to_a_new_leader_as_soon_as_it_is_known(failure: Any) -> None:
    bench = Producing()

    def answer(node: int, request: Any) -> Any:
        if not isinstance(request, Produce) or node != 1:
            return None
        bench.view.on_node_status(node, not isinstance(failure, TransportError))
        if isinstance(failure, TransportError):
            return failure
        return ProduceResult(partitions=[ProduceResultPartition(*TP, failure)])

    bench.cluster.script(answer)
    bench.put()
    bench.run_until_idle()
    bench.clock.advance(2000)
    bench.run_until_idle()
    assert not bench.settled
    bench.elect(2, 6)
    elected = bench.now
    bench.run(lambda: bool(bench.settled))
    assert bench.settled[0].error is None
    assert bench.now - elected <= (300 if isinstance(failure, TransportError) else 1200)


# --- consuming


class Reading(Bench):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        for number in range(4):
            self.cluster.append(TP, encode_batch([Message(b"%d" % number)], now_ms=0))
        chosen: dict[str, Any] = {"max_partition_bytes": 1, "retry_backoff_ms": 400, **settings}
        self.fetcher = Fetcher(self.view, self.entropy, FetcherSettings(**chosen), NO_CODECS)
        self.parts.insert(0, self.fetcher)

    def next_fetch(self) -> CompletedFetch:
        found: list[CompletedFetch] = []

        def came() -> bool:
            completed_fetch = self.fetcher.next_completed_fetch()
            if completed_fetch is not None:
                found.append(completed_fetch)
            return completed_fetch is not None

        self.run(came)
        return found[0]

    def answers(self, **fields: Any) -> None:
        """The next fetch gets this."""
        self.cluster.once(Fetch, FetchResult(partitions=[FetchResultPartition(*TP, **fields)]))

    @property
    def fetches(self) -> list[tuple[int, int, int, int]]:
        """Broker, offset, leader epoch, and the epoch before the offset."""
        parts = [(node, request.partitions[0]) for node, request in self.cluster.requests if isinstance(request, Fetch)]
        return [(node, part.offset, part.current_leader_epoch, part.last_fetched_epoch) for node, part in parts]


def test_fetch_requests_carry_leader_epoch_and_last_fetched_epoch() -> None:
    bench = Reading()
    bench.fetcher.assign({TP: 0})
    bench.next_fetch()
    bench.next_fetch()
    assert bench.fetches[:2] == [(1, 0, 5, -1), (1, 1, 5, 0)]
    bench.fetcher.seek(TP, AtOffset(3, 4))
    bench.next_fetch()
    assert (1, 3, 5, 4) in bench.fetches
    request = bench.cluster.of(Fetch)[0]
    assert (request.partitions[0].topic_id, request.rack_id) == (b"t".ljust(16, b"\0"), "")


def test_list_offsets_requests_carry_leader_epoch() -> None:
    bench = Reading()
    bench.fetcher.assign({TP: AtTime(EARLIEST)})
    bench.next_fetch()
    assert [each.current_leader_epoch for each in bench.cluster.of(ListOffsets)[0].partitions] == [5]


def test_fetch_is_resent_at_once_to_leader_named_in_response() -> None:
    bench = Reading()
    bench.elect(3, 6)
    bench.answers(error=MOVED, current_leader=CurrentLeader(3, 6))
    began = bench.now
    bench.fetcher.assign({TP: 0})
    bench.next_fetch()
    assert (bench.fetches, bench.now) == ([(1, 0, 5, -1), (3, 0, 6, -1)], began)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
    ids=str,
)
def test_request_after_a_leader_change_is_retried_with_new_metadata(error: ErrorCode) -> None:
    bench = Reading()
    bench.answers(error=error)
    asked = bench.asked
    bench.fetcher.assign({TP: 0})
    assert bench.next_fetch().error is None
    assert bench.asked > asked


def test_a_leader_that_contradicts_its_cluster_for_ever_is_asked_without_an_epoch() -> None:
    bench = Reading()

    def fenced(_: int, request: Any) -> Any:
        if isinstance(request, Fetch) and request.partitions[0].current_leader_epoch == 5:
            return FetchResult(partitions=[FetchResultPartition(*TP, ErrorCode.FENCED_LEADER_EPOCH)])
        return None

    bench.cluster.script(fenced)
    bench.fetcher.assign({TP: 0})
    assert bench.next_fetch().error is None
    assert [epoch for _, _, epoch, _ in bench.fetches[: FENCED_MAX + 2]] == [5] * FENCED_MAX + [-1, 5]


def test_a_log_that_lost_what_was_read_is_read_on_from_where_both_agree() -> None:
    bench = Reading(reset=Reset.LATEST)
    bench.fetcher.assign({TP: AtOffset(4, 4)})
    bench.answers(diverging=DivergingEpoch(3, 2))
    completed_fetch = bench.next_fetch()
    assert completed_fetch.go_back == AtOffset(2, 3)
    assert "was read up to offset 4, and its log has lost what it had from 2 on" in str(completed_fetch.error)
    fetches = len(bench.fetches)
    bench.run_until_idle()
    assert len(bench.fetches) == fetches, "until the reader is there"
    bench.fetcher.seek(TP, completed_fetch.go_back)
    assert [message.value for message in bench.next_fetch().messages] == [b"2"]
    assert bench.fetches[fetches] == (1, 2, 5, 3)


def test_log_truncation_without_reset_policy_raises_log_truncated() -> None:
    bench = Reading(reset=Reset.NONE)
    bench.fetcher.assign({TP: AtOffset(4, 4)})
    bench.answers(diverging=DivergingEpoch(3, 2))
    completed_fetch = bench.next_fetch()
    assert isinstance(completed_fetch.error, LogTruncated)
    assert (completed_fetch.go_back, completed_fetch.error.offset, completed_fetch.error.end_offset) == (None, 4, 2)
    assert "seek" in str(completed_fetch.error)


# --- reading near


def near(bench: Reading) -> None:
    """Broker 3 has a replica, and the leader says so."""

    def answer(node: int, request: Any) -> Any:
        if not isinstance(request, Fetch) or request.rack_id != "here":
            return None
        if node == 1:
            return FetchResult(partitions=[FetchResultPartition(*TP, high_watermark=4, preferred_read_replica=3)])
        batch = bench.cluster.logs[TP][request.partitions[0].offset]
        return FetchResult(partitions=[FetchResultPartition(*TP, high_watermark=4, records=batch)])

    bench.cluster.script(answer)


def test_a_reader_goes_where_the_leader_sends_it_and_comes_back_in_time() -> None:
    bench = Reading(rack="here", near_ms=5000)
    near(bench)
    bench.fetcher.assign({TP: 0})
    bench.next_fetch()
    bench.next_fetch()
    assert [node for node, *_ in bench.fetches][:3] == [1, 3, 3]
    bench.clock.advance(5000)
    bench.next_fetch()
    bench.next_fetch()
    assert [node for node, *_ in bench.fetches].count(1) == 2


@pytest.mark.parametrize(
    "failure",
    [
        TransportError("refused"),
        FetchResult(partitions=[FetchResultPartition(*TP, ErrorCode.OFFSET_OUT_OF_RANGE)]),
        FetchResult(partitions=[FetchResultPartition(*TP, diverging=DivergingEpoch(1, 0))]),
    ],
    ids=["connection", "out of range", "diverging"],
)
def test_whatever_a_near_replica_cannot_give_the_leader_is_asked_for(failure: Any) -> None:
    bench = Reading(rack="here")
    near(bench)
    left = [failure]
    bench.cluster.script(
        lambda node, request: left.pop() if isinstance(request, Fetch) and node == 3 and left else None
    )
    bench.fetcher.assign({TP: 0})
    assert bench.next_fetch().error is None
    assert [node for node, *_ in bench.fetches][:4] == [1, 3, 1, 3]


@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("noticed_by", ["broker", "consumer"])
def test_records_that_are_damaged_on_a_near_replica_come_from_the_leader(noticed_by: str, skips: bool) -> None:
    bench = Reading(rack="here", skip_damaged=skips)
    near(bench)
    rotten = bytearray(bench.cluster.logs[TP][0])
    rotten[-1] ^= 1
    found = FetchResultPartition(*TP, high_watermark=4, records=bytes(rotten))
    damaged = FetchResultPartition(*TP, ErrorCode.CORRUPT_MESSAGE) if noticed_by == "broker" else found
    bench.cluster.script(
        lambda node, request: (
            FetchResult(partitions=[damaged])
            if isinstance(request, Fetch) and node == 3 and request.partitions[0].offset == 0
            else None
        )
    )
    bench.fetcher.assign({TP: 0})
    fetch = bench.next_fetch()
    assert (fetch.error, fetch.damage) == (None, None)
    assert next(iter(fetch.messages)).value == b"0"
    assert [node for node, *_ in bench.fetches][:3] == [1, 3, 1]


def test_a_near_replica_that_has_left_is_not_waited_for() -> None:
    bench = Reading(rack="here")
    near(bench)
    bench.fetcher.assign({TP: 0})
    bench.next_fetch()
    bench.cluster.brokers = 2
    bench.cluster.leaders = {TP: 1, TopicPartition("t", 1): 2}
    bench.cluster.scripts.clear()
    bench.refresh()
    while bench.fetcher.next_completed_fetch() is not None:
        pass
    bench.fetcher.seek(TP, 3)
    assert [message.value for message in bench.next_fetch().messages] == [b"3"]
    assert bench.fetches[-1][0] == 1
