"""ShareFetch and ShareAcknowledge at a whole broker (facts D3, D4)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.memory_persister import MemoryPersister

from barnabas.app.broker.handlers.share_fetch import ShareFetchService
from barnabas.app.broker.handlers.share_group_dlq_manager import ShareGroupDLQManager
from barnabas.core.coordinator.group.group_config import GroupConfig, GroupConfigManager
from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareAcknowledgePartition,
    ShareAcquireMode,
    ShareFetch,
    ShareFetchPartition,
)
from barnabas.ports.broker_api.share_partitions import (
    DeliveredRecords,
    DescribeSharePartitions,
    DescribeSharePartitionsResult,
    HeldRecords,
    SharePartitionDescription,
)
from barnabas.ports.broker_api.share_state import InitializePartition, InitializeShareGroupState
from barnabas.ports.broker_api.topics import DeleteRecords, DeleteRecordsPartition
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.errors import ApiError
from barnabas.ports.storage import size_of
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import ManualBroker

ACCEPT, RELEASE, REJECT, RENEW = b"\x01", b"\x02", b"\x03", b"\x04"


class Shares:
    """A broker with one topic, whose share partitions of group g begin at offset 0."""

    def __init__(self, partitions: int = 1, start_offset: int = 0, **config: Any) -> None:
        self.broker = ManualBroker()
        self.broker.create("t", partitions)
        self.topic_id = self.broker.node.state.image.topic("t").topic_id
        self.persister = MemoryPersister()
        entries = [InitializePartition(self.topic_id, each, 1, start_offset) for each in range(partitions)]
        self.persister.initialize_state(InitializeShareGroupState(group_id="g", partitions=entries), lambda _: None)
        self.configs = GroupConfigManager(GroupConfig(**config))
        self.service = self.serve()
        self.epochs: dict[str, int] = {}

    def serve(self) -> ShareFetchService:
        send = ShareGroupDLQManager(self.broker.node.state, self.broker.node.api.topics, self.configs).send
        return ShareFetchService(self.broker.node.state, self.persister, self.configs, None, lambda: 2, send)

    def submit(self, handle: Callable[..., None], request: Any, connection: int) -> list[Any]:
        answers: list[Any] = []
        caller = Caller(connection=connection)
        handle(request, caller, answers.append)
        return answers

    def fetch(
        self,
        member: str = "m",
        *acks: tuple[int, int, bytes],
        epoch: int | None = None,
        connection: int = 1,
        **options: Any,
    ) -> list[Any]:
        epoch = self.epochs.get(member, 0) if epoch is None else epoch
        self.epochs[member] = epoch + 1
        options = {"max_wait_ms": 0, **options}
        partition = ShareFetchPartition(self.topic_id, 0, [AcknowledgementBatch(*each) for each in acks], "t")
        request = ShareFetch(
            group_id="g", member_id=member, share_session_epoch=epoch, partitions=[partition], **options
        )
        return self.submit(self.service.fetch, request, connection)

    def ranges(self, *arguments: Any, **options: Any) -> list[tuple[int, int, int]]:
        (answer,) = self.fetch(*arguments, **options)
        return ranges_of(answer)

    def acknowledge(self, member: str, *acks: tuple[int, int, bytes], epoch: int | None = None) -> Any:
        epoch = self.epochs[member] if epoch is None else epoch
        self.epochs[member] = epoch + 1
        partition = ShareAcknowledgePartition(self.topic_id, 0, [AcknowledgementBatch(*each) for each in acks], "t")
        request = ShareAcknowledge(group_id="g", member_id=member, share_session_epoch=epoch, partitions=[partition])
        (answer,) = self.submit(self.service.acknowledge, request, 1)
        return answer

    @property
    def stored(self) -> Any:
        return self.persister.offsets[SharePartitionKey("g", self.topic_id, 0)]


def ranges_of(answer: Any) -> list[tuple[int, int, int]]:
    assert answer.error is E.NONE
    assert all(each.error is E.NONE for each in answer.partitions)
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for partition in answer.partitions
        for each in partition.acquired_records
    ]


@pytest.fixture
def shares() -> Iterator[Shares]:
    made = Shares()
    yield made
    made.broker.stop()


def test_acknowledged_records_do_not_come_again_and_released_ones_do(shares: Shares) -> None:
    shares.broker.produce("t", *[b"x"] * 10)
    assert shares.ranges() == [(0, 9, 1)]
    answer = shares.acknowledge("m", (0, 3, b"\x01\x02\x03\x01"))
    assert [each.error for each in answer.partitions] == [E.NONE]
    assert (shares.stored.start_offset, shares.stored.delivery_complete_count) == (1, 2)
    assert shares.ranges() == [(1, 1, 2)]
    assert shares.ranges("m", (4, 9, RELEASE)) == [(4, 9, 2)]


def test_fetch_returns_only_the_batches_with_acquired_records(shares: Shares) -> None:
    for _ in range(3):
        shares.broker.produce("t", *[b"x"] * 5)
    (answer,) = shares.fetch(max_records=5)
    assert ranges_of(answer) == [(0, 4, 1)]
    whole = size_of(shares.broker.fetch("t").partitions[0].records)
    assert size_of(answer.partitions[0].records) == whole // 3
    assert shares.ranges(max_records=3, share_acquire_mode=ShareAcquireMode.RECORD_LIMIT) == [(5, 7, 1)]
    assert shares.ranges("n", max_records=100) == [(8, 14, 1)]


def test_waiting_fetch_ends_when_records_arrive(shares: Shares) -> None:
    answers = shares.fetch(max_wait_ms=500)
    assert answers == []
    shares.broker.produce("t", b"x")
    assert [ranges_of(each) for each in answers] == [[(0, 0, 1)]]


def test_waiting_fetch_ends_empty_after_its_time(shares: Shares) -> None:
    answers = shares.fetch(max_wait_ms=500)
    shares.broker.wait(499)
    assert answers == []
    shares.broker.wait(1)
    assert [each.partitions for each in answers] == [[]]


def test_waiting_fetch_gets_released_records_at_once(shares: Shares) -> None:
    shares.broker.produce("t", b"x", b"y")
    shares.ranges("a")
    answers = shares.fetch("b", max_wait_ms=500)
    shares.acknowledge("a", (0, 0, ACCEPT), (1, 1, RELEASE))
    assert [ranges_of(each) for each in answers] == [[(1, 1, 2)]]


def test_waiting_fetch_gets_records_whose_locks_lapse(shares: Shares) -> None:
    shares.broker.produce("t", b"x")
    shares.ranges("a")
    answers = shares.fetch("b", max_wait_ms=60_000)
    shares.broker.wait(29_000)
    shares.acknowledge("a", (0, 0, RENEW))
    shares.broker.wait(29_000)
    assert answers == []
    shares.broker.wait(1_000)
    assert [ranges_of(each) for each in answers] == [[(0, 0, 2)]]
    (outcome,) = shares.acknowledge("a", (0, 0, ACCEPT)).partitions
    assert outcome.error is E.INVALID_RECORD_STATE


def test_final_epoch_acknowledges_and_releases_the_rest(shares: Shares) -> None:
    shares.broker.produce("t", *[b"x"] * 4)
    shares.ranges("a")
    shares.fetch("a", (0, 1, ACCEPT), epoch=-1)
    assert shares.stored.start_offset == 2
    assert shares.ranges("b") == [(2, 3, 2)]


def test_lost_connection_releases_its_records_and_its_wait(shares: Shares) -> None:
    shares.broker.produce("t", b"x")
    shares.ranges("a", connection=7)
    waits = shares.fetch("a", connection=7, max_wait_ms=60_000)
    answers = shares.fetch("b", max_wait_ms=60_000, connection=8)
    shares.broker.node.state.gone(7)
    assert [each.partitions for each in waits] == [[]]
    assert [ranges_of(each) for each in answers] == [[(0, 0, 2)]]


def test_wrong_sessions_are_refused(shares: Shares) -> None:
    def code(answers: list[Any]) -> E:
        assert isinstance(answers[0], ApiError)
        return answers[0].code

    assert code(shares.fetch(epoch=1)) is E.SHARE_SESSION_NOT_FOUND
    assert code(shares.fetch("m", (0, 0, ACCEPT), epoch=0)) is E.INVALID_REQUEST
    assert shares.ranges(epoch=0) == []
    assert code(shares.fetch(epoch=2)) is E.INVALID_SHARE_SESSION_EPOCH
    assert code(shares.fetch(epoch=1, is_renew_ack=True)) is E.INVALID_REQUEST
    shares.ranges("n")
    answers = shares.fetch("o", max_wait_ms=100)
    assert answers == []
    shares.broker.wait(100)
    assert code(answers) is E.SHARE_SESSION_LIMIT_REACHED


def test_unknown_partitions_have_errors_of_their_own(shares: Shares) -> None:
    partitions = [
        ShareFetchPartition(b"nobody has this!", 0),
        ShareFetchPartition(shares.topic_id, 9, (), "t"),
        ShareFetchPartition(shares.topic_id, 0, (), "t"),
    ]
    shares.broker.produce("t", b"x")
    request = ShareFetch(group_id="g", member_id="m", share_session_epoch=0, partitions=partitions, max_wait_ms=500)
    (answer,) = shares.submit(shares.service.fetch, request, 1)
    errors = {(each.topic_id, each.partition): each.error for each in answer.partitions}
    assert errors == {
        (b"nobody has this!", 0): E.UNKNOWN_TOPIC_ID,
        (shares.topic_id, 9): E.UNKNOWN_TOPIC_OR_PARTITION,
        (shares.topic_id, 0): E.NONE,
    }


def test_share_partition_without_state_is_refused_until_it_has_some(shares: Shares) -> None:
    shares.broker.produce("t", b"x")
    state = shares.persister.offsets.copy()
    shares.persister.offsets.clear()
    (answer,) = shares.fetch()
    assert [each.error for each in answer.partitions] == [E.INVALID_REQUEST]
    shares.persister.offsets.update(state)
    shares.broker.wait(1)
    assert shares.ranges() == [(0, 0, 1)]


def test_leader_with_an_earlier_state_is_fenced_and_reads_again(shares: Shares) -> None:
    shares.broker.produce("t", b"x", b"y")
    shares.ranges()
    entry = InitializePartition(shares.topic_id, 0, 2, 1)
    shares.persister.initialize_state(InitializeShareGroupState(group_id="g", partitions=[entry]), lambda _: None)
    (outcome,) = shares.acknowledge("m", (0, 1, ACCEPT)).partitions
    assert outcome.error is E.NOT_LEADER_OR_FOLLOWER
    assert shares.ranges() == [(1, 1, 1)]


@pytest.mark.parametrize(("reset", "first"), [("latest", 3), ("earliest", 0), ("by_duration:PT1M", 2)])
def test_new_group_begins_where_its_reset_rule_says(reset: str, first: int) -> None:
    shares = Shares(start_offset=-1, share_auto_offset_reset=reset)
    shares.broker.produce("t", b"old", b"old")
    shares.broker.wait(120_000)
    shares.broker.produce("t", b"new")
    shares.ranges()
    assert shares.stored.start_offset == first
    shares.broker.stop()


def test_deleted_records_are_passed_over(shares: Shares) -> None:
    for _ in range(2):
        shares.broker.produce("t", b"x", b"y")
    shares.broker.ask(
        DeleteRecords(partitions=[DeleteRecordsPartition(topic="t", partition=0, offset=2)], timeout_ms=1000)
    )
    assert shares.ranges() == [(2, 3, 1)]


def test_state_survives_the_end_of_the_leadership(shares: Shares) -> None:
    shares.broker.produce("t", *[b"x"] * 4)
    shares.ranges()
    shares.acknowledge("m", (0, 0, ACCEPT), (1, 1, RELEASE), (3, 3, ACCEPT))
    partition = shares.broker.node.state.replicas.partitions["t", 0]
    shares.service.share_partitions.on_leadership_ended(partition)
    assert shares.ranges() == [(1, 1, 2), (2, 2, 1)]


def test_metrics_count_sessions_and_acknowledgements(shares: Shares) -> None:
    shares.broker.produce("t", *[b"x"] * 4)
    shares.ranges()
    shares.acknowledge("m", (0, 2, ACCEPT), (3, 3, REJECT))
    value = shares.broker.metrics.value
    assert value("kafka_server_sharegroupmetrics_recordacknowledgement_total", ack_type="accept") == 3
    assert value("kafka_server_sharegroupmetrics_recordacknowledgement_total", ack_type="reject") == 1
    assert value("kafka_server_sharesessioncache_sharesessionscount") == 1
    assert value("kafka_server_sharesessioncache_sharepartitionscount") == 1
    assert value("kafka_server_sharepartitionmetrics_inflightmessagecount") == 0


def append_in_transaction(shares: Shares, *values: bytes, sequence: int = 0) -> None:
    records = numbered(*values, producer=9, epoch=0, sequence=sequence, transactional=True)
    partition = shares.broker.node.state.replicas.partitions["t", 0]
    now_ms = shares.broker.clock.now_ms()
    partition.append_as_leader(records, now_ms=now_ms, origin=AppendOrigin.TRANSACTION)


@pytest.mark.parametrize("committed", [True, False])
def test_read_committed_group_waits_for_the_marker_and_skips_aborted_records(committed: bool) -> None:
    shares = Shares(share_isolation_level="read_committed")
    shares.broker.produce("t", b"x")
    append_in_transaction(shares, b"a", b"b")
    assert shares.ranges() == [(0, 0, 1)]
    marker = TxnMarker(
        producer_id=9, producer_epoch=0, committed=committed, partitions=[TopicPartition("t", 0)], coordinator_epoch=0
    )
    shares.broker.ask(WriteTxnMarkers(markers=[marker]))
    shares.broker.produce("t", b"y")
    shares.acknowledge("m", (0, 0, ACCEPT))
    expected = [(1, 2, 1), (4, 4, 1)] if committed else [(4, 4, 1)]
    assert shares.ranges() == expected
    shares.acknowledge("m", *((first, last, ACCEPT) for first, last, _ in expected))
    assert shares.stored.start_offset == 5
    shares.broker.stop()


def test_group_that_reads_uncommitted_gets_no_control_records(shares: Shares) -> None:
    append_in_transaction(shares, b"a")
    assert shares.ranges() == [(0, 0, 1)]
    marker = TxnMarker(
        producer_id=9, producer_epoch=0, committed=False, partitions=[TopicPartition("t", 0)], coordinator_epoch=0
    )
    shares.broker.ask(WriteTxnMarkers(markers=[marker]))
    assert shares.ranges("m", (0, 0, ACCEPT)) == []
    led = shares.service.share_partitions.share_partitions[SharePartitionKey("g", shares.topic_id, 0)]
    assert led.share is not None
    assert led.share.start_offset == 2


def test_fetch_waits_for_min_bytes(shares: Shares) -> None:
    answers = shares.fetch(max_wait_ms=500, min_bytes=150)
    shares.broker.produce("t", b"x")
    assert answers == []
    shares.broker.produce("t", b"x" * 100)
    assert [ranges_of(each) for each in answers] == [[(0, 1, 1)]]


def test_renewal_is_refused_where_the_group_does_not_allow_it() -> None:
    shares = Shares(share_renew_acknowledge_enable=False)
    shares.broker.produce("t", b"x")
    shares.ranges()
    (outcome,) = shares.acknowledge("m", (0, 0, RENEW)).partitions
    assert outcome.error is E.INVALID_REQUEST
    shares.broker.stop()


def test_fetch_passes_over_many_aborted_batches_without_waiting_for_its_time() -> None:
    shares = Shares(share_isolation_level="read_committed")
    for number in range(40):
        append_in_transaction(shares, b"a", sequence=number)
    marker = TxnMarker(
        producer_id=9, producer_epoch=0, committed=False, partitions=[TopicPartition("t", 0)], coordinator_epoch=0
    )
    shares.broker.ask(WriteTxnMarkers(markers=[marker]))
    shares.broker.produce("t", b"x")
    answers = shares.fetch(max_bytes=1, max_wait_ms=60_000)
    shares.broker.scheduler.run_pending()
    shares.broker.wait(10)
    assert [ranges_of(each) for each in answers] == [[(41, 41, 1)]]
    shares.broker.stop()


class Readers:
    """Allows the topics that it has."""

    def __init__(self) -> None:
        self.topics = {"t"}

    def allows(self, _caller: Caller, _operation: object, _kind: object, name: str, *, request: str = "") -> bool:
        return name in self.topics


def test_right_to_read_is_asked_for_in_each_fetch_of_a_session(shares: Shares) -> None:
    shares.broker.produce("t", b"x", b"y")
    readers: Any = Readers()
    shares.service = ShareFetchService(
        shares.broker.node.state, shares.persister, shares.configs, readers, lambda: 9, lambda *_: None
    )
    assert shares.ranges(max_records=1, share_acquire_mode=ShareAcquireMode.RECORD_LIMIT) == [(0, 0, 1)]
    readers.topics.clear()
    (answer,) = shares.fetch("m", (0, 0, ACCEPT))
    (partition,) = answer.partitions
    assert (partition.error, partition.acknowledge_error) == (
        E.TOPIC_AUTHORIZATION_FAILED,
        E.TOPIC_AUTHORIZATION_FAILED,
    )
    assert partition.acquired_records == ()
    assert shares.stored.start_offset == 0


def test_description_counts_what_is_in_flight_by_state_delivery_and_member(shares: Shares) -> None:
    shares.broker.produce("t", *[b"x"] * 12)
    shares.ranges("a")
    shares.acknowledge("a", (1, 3, b"\x01\x03\x02"), (4, 5, RELEASE))
    shares.broker.wait(1_000)
    shares.ranges("b", max_records=2, share_acquire_mode=ShareAcquireMode.RECORD_LIMIT)
    (answer,) = shares.submit(shares.service.describe, DescribeSharePartitions(group_id="g"), 1)
    assert answer == DescribeSharePartitionsResult(
        partitions=[
            SharePartitionDescription(
                topic="t",
                partition=0,
                start_offset=0,
                acquired=9,
                available=1,
                acknowledged=1,
                archived=1,
                deliveries=[DeliveredRecords(1, 8), DeliveredRecords(2, 2)],
                holders=[HeldRecords("a", 7, 29_000), HeldRecords("b", 2, 30_000)],
            )
        ]
    )
    (other,) = shares.submit(shares.service.describe, DescribeSharePartitions(group_id="other"), 1)
    assert other.partitions == []
