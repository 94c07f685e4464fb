"""The first batch of a transaction in a partition waits for the coordinator's word, and what comes behind it waits."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from barnabas.core.replica.leader import verified_appends
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.broker_api.transactions import TransactionSupportedOperation, TxnMarker, WriteTxnMarkers
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import batch, numbered
from barnabas.testing.manual_broker import ManualBroker

E = ErrorCode


class Asked(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int
    partition: TopicPartition
    operation: TransactionSupportedOperation
    observed: Callable[[ErrorCode], None]


class Coordinator:
    """Answers when the test says so, or at once."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.at_once: ErrorCode | None = None

    def verify(self, *asked: Any) -> None:
        if self.at_once is not None:
            asked[-1](self.at_once)
        else:
            self.asked.append(Asked(*asked))

    def answer_next(self, error: ErrorCode = E.NONE) -> TopicPartition:
        first = self.asked.pop(0)
        first.observed(error)
        return first.partition


class Harness:
    def __init__(self) -> None:
        self.broker = ManualBroker()
        self.broker.create("t", 3)
        self.appends = self.broker.node.api.verified_appends
        self.coordinator = Coordinator()
        self.appends._verify = self.coordinator.verify

    def send(self, *places: tuple[int, int], producer: int = 1, epoch: int = 0, size: int = 1, **more: Any) -> Any:
        """(partition, sequence) of a batch each; the list gets the answer, now or later."""
        entries = [
            ProducePartition(
                "t",
                number,
                numbered(b"x" * size, producer=producer, epoch=epoch, sequence=sequence, transactional=True),
            )
            for number, sequence in places
        ]
        return self.submit(entries, **more)

    def submit(self, entries: list[ProducePartition], **more: Any) -> list[ProduceResult]:
        request = Produce(partitions=entries, transactional_id="orders", **more)
        answers = self.broker.submit(request)
        for entry in entries:
            entry.records[:] = bytes(len(entry.records))  # the memory is the connection's again
        return answers

    def send_v2(self, *places: tuple[int, int], **more: Any) -> Any:
        return self.send(*places, **more, supported_operation=TransactionSupportedOperation.ADD_PARTITION)

    def end(self, producer: int = 1, epoch: int = 0, version: int = 0) -> ErrorCode:
        tp = TopicPartition("t", 0)
        marker = TxnMarker(
            producer_id=producer, producer_epoch=epoch, committed=False, partitions=[tp], transaction_version=version
        )
        result: Any = self.broker.ask(WriteTxnMarkers(markers=[marker]))
        error: ErrorCode = result.markers[0].partitions[0].error
        return error

    def ends(self) -> list[int]:
        partitions = self.broker.node.state.replicas.partitions
        return [partitions["t", number].log.log_end_offset for number in range(3)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def errors(answers: list[ProduceResult]) -> list[ErrorCode]:
    (answer,) = answers
    return [each.error for each in answer.partitions]


def test_each_partition_is_asked_for_once_in_a_transaction(harness: Harness) -> None:
    answers = harness.send((0, 0), (2, 0))
    assert [each[:4] for each in harness.coordinator.asked] == [
        ("orders", 1, 0, TopicPartition("t", 0)),
        ("orders", 1, 0, TopicPartition("t", 2)),
    ]
    harness.coordinator.answer_next()
    assert (answers, harness.ends()) == ([], [0, 0, 0])
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.NONE, E.NONE], [1, 0, 1])
    assert errors(harness.send((0, 1), (2, 1))) == [E.NONE, E.NONE]
    harness.end()
    harness.send((0, 2))
    assert [each.partition for each in harness.coordinator.asked] == [TopicPartition("t", 0)]
    assert harness.appends.waiting_bytes > 0


def test_immediate_verification_appends_at_once(harness: Harness) -> None:
    harness.coordinator.at_once = E.NONE
    assert errors(harness.send((0, 0), (1, 0))) == [E.NONE, E.NONE]
    harness.coordinator.at_once = E.INVALID_TXN_STATE
    assert errors(harness.send((0, 1), (2, 0))) == [E.NONE, E.INVALID_TXN_STATE]
    assert (harness.ends(), harness.appends.waiting_bytes) == ([2, 1, 0], 0)


def test_the_batches_of_a_producer_stay_in_order(harness: Harness) -> None:
    answers = [harness.send((0, 0)), harness.send((0, 1), (1, 0)), harness.send((1, 1)), harness.send((0, 2))]
    others = harness.send((0, 0), producer=2)
    assert harness.ends() == [0, 0, 0]
    assert len(harness.coordinator.asked) == 2, "of each producer the first"
    harness.coordinator.answer_next()
    assert errors(answers[0]) == [E.NONE]
    assert not answers[1]
    assert harness.ends() == [1, 0, 0]
    harness.coordinator.answer_next()
    assert errors(others) == [E.NONE]
    assert harness.coordinator.answer_next() == TopicPartition("t", 1)
    assert [errors(each) for each in answers] == [[E.NONE], [E.NONE, E.NONE], [E.NONE], [E.NONE]]
    assert (harness.ends(), harness.appends.waiting_bytes) == ([4, 2, 0], 0)


@pytest.mark.parametrize(
    ("said", "observed"),
    [
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH),
        (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS),
        (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS),
        (E.COORDINATOR_NOT_AVAILABLE, E.NOT_ENOUGH_REPLICAS),
    ],
)
def test_batch_refused_by_the_coordinator_is_not_appended(
    harness: Harness, said: ErrorCode, observed: ErrorCode
) -> None:
    answers = harness.send((0, 0), (1, 0))
    harness.coordinator.answer_next(said)
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([observed, E.NONE], [0, 1, 0])
    assert "coordinator" in answers[0].partitions[0].error_message


def test_batch_after_an_unverified_one_does_not_start_the_transaction(harness: Harness) -> None:
    first, second = harness.send((0, 0)), harness.send((0, 1))
    harness.coordinator.answer_next(E.COORDINATOR_NOT_AVAILABLE)
    harness.coordinator.answer_next()
    assert (errors(first), errors(second)) == ([E.NOT_ENOUGH_REPLICAS], [E.NOT_ENOUGH_REPLICAS])
    assert harness.ends() == [0, 0, 0]
    harness.coordinator.at_once = E.NONE
    assert errors(harness.send((0, 0))) == [E.NONE]
    assert errors(harness.send((0, 1))) == [E.NONE]
    assert harness.ends() == [2, 0, 0]


def test_nor_what_comes_behind_one_that_there_was_no_room_for(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified_appends, "WAITING_BYTES_MAX", 4_000)
    harness.send((1, 0), producer=2, size=2_000)
    assert errors(harness.send((0, 0), size=2_000)) == [E.NOT_ENOUGH_REPLICAS]
    harness.coordinator.at_once = E.NONE
    assert errors(harness.send((0, 1))) == [E.NOT_ENOUGH_REPLICAS]
    assert errors(harness.send((0, 0), size=2_000)) == [E.NONE]
    assert errors(harness.send((0, 1))) == [E.NONE]


def test_silent_coordinator_delays_a_producer_only_until_the_timeout(harness: Harness) -> None:
    answers = harness.send((0, 0), (1, 0), timeout_ms=5_000)
    behind = harness.send((0, 1))
    stuck = harness.coordinator.asked.copy()
    harness.coordinator.answer_next()
    harness.broker.scheduler.advance(4_999)
    assert not answers
    harness.broker.scheduler.advance(1)
    assert (errors(answers), harness.ends()) == ([E.NONE, E.NOT_ENOUGH_REPLICAS], [2, 0, 0])
    assert errors(behind) == [E.NONE]
    stuck[1].observed(E.NONE)
    assert (harness.ends(), len(answers)) == ([2, 0, 0], 1)


def test_a_marker_that_comes_meanwhile_has_ended_the_transaction(harness: Harness) -> None:
    answers = harness.send((0, 0))
    harness.end()
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.INVALID_TXN_STATE], [1, 0, 0])


def test_a_log_that_was_cut_meanwhile_is_asked_about_again(harness: Harness) -> None:
    harness.broker.produce("t", b"plain", b"plain")
    answers = harness.send((0, 0))
    harness.broker.node.state.replicas.partitions["t", 0].log.truncate_to(1)
    harness.coordinator.answer_next()
    assert errors(answers) == [E.NOT_ENOUGH_REPLICAS]


def test_two_producers_in_one_request_are_refused(harness: Harness) -> None:
    entries = [
        ProducePartition("t", number, numbered(b"x", producer=number, transactional=True)) for number in range(2)
    ]
    assert errors(harness.submit(entries)) == [E.INVALID_PRODUCER_ID_MAPPING] * 2


def test_batch_outside_a_transaction_is_not_verified(harness: Harness) -> None:
    damaged = memoryview(bytearray(b"\0" * 30))
    entries = [ProducePartition("t", 0, batch(b"plain")), ProducePartition("t", 1, damaged)]
    assert errors(harness.submit(entries)) == [E.NONE, E.INVALID_RECORD]
    answers = harness.submit(
        [
            ProducePartition("t", 1, numbered(b"x", transactional=True)),
            ProducePartition("t", 0, batch(b"plain")),
            ProducePartition("t", 9, numbered(b"x", transactional=True)),
        ]
    )
    assert len(harness.coordinator.asked) == 1
    harness.coordinator.answer_next(E.INVALID_TXN_STATE)
    assert errors(answers) == [E.INVALID_TXN_STATE, E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]


def test_waiting_batches_are_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified_appends, "WAITING_BYTES_MAX", 5_000)
    large = harness.send((0, 0), size=9_000)
    refused = harness.send((0, 0), producer=2)
    behind = harness.send((0, 1))
    assert errors(refused) == errors(behind) == [E.NOT_ENOUGH_REPLICAS]
    harness.coordinator.answer_next()
    assert errors(large) == [E.NONE]
    harness.coordinator.answer_next()
    assert harness.appends.waiting_bytes == 0
    harness.send((0, 0), producer=2)
    assert len(harness.coordinator.asked) == 1


# --- version 2: the leader adds the partition (KIP-890, part 2)


def test_leader_adds_a_partition_that_is_not_in_the_transaction(harness: Harness) -> None:
    answers = harness.send_v2((0, 0))
    assert [each.operation for each in harness.coordinator.asked] == [TransactionSupportedOperation.ADD_PARTITION]
    assert (answers, harness.ends()) == ([], [0, 0, 0])
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.NONE], [1, 0, 0])
    assert errors(harness.send_v2((0, 1))) == [E.NONE]
    assert not harness.coordinator.asked, "it is in the transaction"


def test_transaction_of_the_next_epoch_is_added_though_the_one_before_is_open_in_the_log(harness: Harness) -> None:
    harness.coordinator.at_once = E.NONE
    harness.send_v2((0, 0))
    harness.coordinator.at_once = None
    answers = harness.send_v2((0, 0), epoch=1)
    assert [each.epoch for each in harness.coordinator.asked] == [1]
    assert harness.end(epoch=1, version=2) is E.NONE
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.NONE], [3, 0, 0])


def test_marker_of_the_transaction_itself_refuses_a_batch_that_comes_after_it(harness: Harness) -> None:
    answers = harness.send_v2((0, 0))
    assert harness.end(epoch=1, version=2) is E.NONE
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.INVALID_PRODUCER_EPOCH], [1, 0, 0])


def test_repeated_marker_of_the_transaction_before_does_not_refuse_the_next(harness: Harness) -> None:
    assert harness.end(epoch=1, version=2) is E.NONE
    answers = harness.send_v2((0, 0), epoch=1)
    assert harness.end(epoch=1, version=2) is E.NONE
    harness.coordinator.answer_next()
    assert (errors(answers), harness.ends()) == ([E.NONE], [3, 0, 0])
    assert harness.end(epoch=1, version=2) is E.INVALID_PRODUCER_EPOCH


def test_unknown_producer_of_version_2_begins_with_sequence_0(harness: Harness) -> None:
    harness.coordinator.at_once = E.NONE
    assert errors(harness.send_v2((0, 3))) == [E.OUT_OF_ORDER_SEQUENCE_NUMBER]
    assert errors(harness.send((0, 3))) == [E.NONE], "version 1"


@pytest.mark.parametrize(
    ("said", "default", "generic", "adding"),
    [
        (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
        (E.CONCURRENT_TRANSACTIONS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.CONCURRENT_TRANSACTIONS),
        (E.NOT_COORDINATOR, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
        (E.OPERATION_NOT_ATTEMPTED, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS),
        (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH, E.INVALID_PRODUCER_EPOCH),
    ],
)
def test_error_is_one_that_the_version_of_the_request_knows(
    harness: Harness, said: ErrorCode, default: ErrorCode, generic: ErrorCode, adding: ErrorCode
) -> None:
    harness.coordinator.at_once = said
    for operation, expected in zip(TransactionSupportedOperation, (default, generic, adding), strict=True):
        assert errors(harness.send((0, 0), supported_operation=operation)) == [expected]
    assert harness.ends() == [0, 0, 0]


def test_batch_behind_one_that_is_to_be_sent_again_gets_the_same_error(harness: Harness) -> None:
    harness.coordinator.at_once = E.CONCURRENT_TRANSACTIONS
    assert errors(harness.send_v2((0, 0))) == [E.CONCURRENT_TRANSACTIONS]
    harness.coordinator.at_once = E.NONE
    assert errors(harness.send_v2((0, 1))) == [E.CONCURRENT_TRANSACTIONS]
    assert errors(harness.send_v2((0, 0), (0, 1))) == [E.NONE, E.NONE]
