"""A transactional producer against a coordinator: what is committed is all there, once, and nothing else is."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples
from support.plain_cluster import ManualDriver
from support.transactional_cluster import TransactionalCluster, outcomes

from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.errors import AbortNeeded, CommitFailed, ProducerFenced, TransactionAborted, TransactionError
from barnabas.core.client.group.events import CommittedOffset, GroupMetadata
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.core.client.producer.transaction_manager import (
    PreparedTransaction,
    TransactionManager,
    TransactionSettings,
)
from barnabas.core.client.producer.transaction_states import FOLLOWS, TxnState
from barnabas.core.message.batch_header import parse_header
from barnabas.ports.broker_api.features import DescribeFeatures, DescribeFeaturesResult, FeatureMetadata
from barnabas.ports.broker_api.groups import FindCoordinator
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.producers import InitProducerId, InitProducerIdResult
from barnabas.ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    TransactionSupportedOperation,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

GROUP = GroupMetadata(group_id="g", generation_id=3, member_id="m")
LOST = TransportError("lost")


class Bench(ManualDriver):
    """One transactional producer."""

    def __init__(self, cluster: TransactionalCluster, name: str = "txn", **options: Any) -> None:
        super().__init__(cluster)
        self.world = cluster
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        timeout = options.get("delivery_timeout_ms", 120_000)
        limits = AccumulatorSettings(linger_ms=0, batch_size=10_000, delivery_timeout_ms=timeout)
        self.accumulator = RecordAccumulator(limits, self.clock, lambda tp: None)
        self.txn = TransactionManager(
            self.view,
            self.entropy,
            TransactionSettings(transactional_id=name),
            unsettled=lambda: self.accumulator.messages,
        )
        self.sender = Sender(
            self.accumulator,
            self.view,
            self.entropy,
            SenderSettings(transactional_id=name, delivery_timeout_ms=timeout),
            codec_for=lambda topic: None,
            settled=lambda batches: None,
            identity=self.txn,
        )
        self.parts = [self.sender, self.view]
        self.view.add_topics(["t"])
        self.run_until_idle()

    def start(self) -> "Bench":
        self.txn.initialize()
        self.run(lambda: self.txn.state in (TxnState.READY, TxnState.FATAL))
        return self

    def put(self, value: bytes, partition: int = 0) -> ProducerBatch:
        self.txn.check_sending()
        return self.accumulator.append(
            TopicPartition("t", partition), (value, None, (), None), message_bytes(value, None, ())
        )

    def send(self, value: bytes, partition: int = 0) -> ProducerBatch:
        """And wait for the outcome."""
        batch = self.put(value, partition)
        self.run(lambda: batch.done)
        return batch

    def commit(self) -> None:
        self.txn.commit()
        self.run(lambda: self.txn.ended)
        self.txn.take_outcome()

    def abort(self) -> None:
        self.txn.abort()
        self.run(lambda: self.txn.ended)
        self.txn.take_outcome()

    def positions(self, offset: int = 5, group: GroupMetadata = GROUP) -> list[BarnabasError | None]:
        observed: list[BarnabasError | None] = []
        self.txn.send_positions(group, {TopicPartition("in", 0): CommittedOffset(offset)}, observed.append)
        return observed

    def asked(self) -> list[str]:
        kinds = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, Produce)
        return [type(request).__name__ for _, request in self.cluster.requests if isinstance(request, kinds)]


def refusing(code: ErrorCode) -> Callable[[Produce], ProduceResult]:
    return lambda request: ProduceResult(
        partitions=[ProduceResultPartition(part.topic, part.partition, code) for part in request.partitions]
    )


def all_with(code: ErrorCode) -> dict[type[Any], Any]:
    """Return an answer with this error for each request of a transaction."""
    return {
        InitProducerId: InitProducerIdResult(error=code),
        AddPartitionsToTxn: lambda request: AddPartitionsToTxnResult(partitions=outcomes(request.partitions, code)),
        AddOffsetsToTxn: AddOffsetsToTxnResult(error=code),
        DescribeFeatures: DescribeFeaturesResult(features=FeatureMetadata(), error=code),
        TxnOffsetCommit: lambda request: TxnOffsetCommitResult(
            partitions=outcomes([TopicPartition(p.topic, p.partition) for p in request.partitions], code)
        ),
        EndTxn: EndTxnResult(error=code),
    }


REQUESTS = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn)


def test_a_transaction_is_announced_then_sent_then_committed() -> None:
    bench = Bench(TransactionalCluster(t=3)).start()
    bench.txn.begin_transaction()
    bench.put(b"a")
    bench.put(b"b", 1)
    observed = bench.positions()
    bench.commit()
    assert observed == [None]
    assert sorted(bench.world.committed) == [b"a", b"b"]
    assert bench.world.positions == {("g", TopicPartition("in", 0)): 5}
    asked = bench.asked()
    assert asked[0] == "InitProducerId"
    assert asked[-1] == "EndTxn"
    assert asked.index("AddPartitionsToTxn") < asked.index("Produce")
    assert asked.index("AddOffsetsToTxn") < asked.index("TxnOffsetCommit")
    (member,) = bench.cluster.of(TxnOffsetCommit)
    assert (member.generation_id, member.member_id) == (3, "m")
    produced = bench.cluster.of(Produce)
    assert {request.transactional_id for request in produced} == {"txn"}


def test_sequences_continue_across_transactions() -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    for value in (b"a", b"b", b"c"):
        bench.txn.begin_transaction()
        bench.put(value)
        bench.commit()
    assert bench.world.committed == [b"a", b"b", b"c"]
    assert len(bench.cluster.of(InitProducerId)) == 1
    assert len(bench.cluster.of(AddPartitionsToTxn)) == 3


def test_an_abort_drops_what_was_not_sent() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    bench.send(b"sent")
    left = bench.put(b"left", 1)
    bench.abort()
    assert isinstance(left.error, TransactionAborted)
    assert bench.world.aborted == [b"sent"]
    assert bench.world.ended == [False]
    bench.txn.begin_transaction()
    bench.put(b"next")
    bench.commit()
    assert bench.world.committed == [b"next"]
    assert len(bench.cluster.of(InitProducerId)) == 1


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_empty_transaction_sends_no_requests(how: str) -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    bench.txn.begin_transaction()
    getattr(bench, how)()
    assert bench.asked() == ["InitProducerId"]
    assert bench.txn.state is TxnState.READY


def test_calls_that_do_not_fit_are_refused() -> None:
    bench = Bench(TransactionalCluster(t=1))
    txn = bench.txn
    for call in (txn.begin_transaction, txn.commit, txn.abort, txn.check_sending, bench.positions):
        with pytest.raises(TransactionError, match="not initialized"):
            call()
    bench.start()
    for call in (txn.commit, txn.abort, txn.check_sending, bench.positions):
        with pytest.raises(TransactionError, match="between transactions"):
            call()
    txn.begin_transaction()
    with pytest.raises(TransactionError, match="do not nest"):
        txn.begin_transaction()
    bench.put(b"a")
    txn.commit()
    for call in (txn.abort, txn.begin_transaction, txn.check_sending):
        with pytest.raises(TransactionError):
            call()
    txn.commit()  # continues waiting
    bench.run(lambda: txn.ended)
    with pytest.raises(TransactionError, match="call commit_transaction"):
        txn.begin_transaction()
    txn.commit()  # no broker knows the transaction yet
    txn.take_outcome()
    txn.begin_transaction()
    txn.abort()
    txn.abort()
    assert bench.world.committed == [b"a"]


def test_every_state_can_end() -> None:
    reachable = {TxnState.UNINITIALIZED}
    for _ in FOLLOWS:
        reachable |= {after for state in reachable for after in FOLLOWS[state]}
    assert reachable == set(TxnState) == set(FOLLOWS)
    assert [state for state, after in FOLLOWS.items() if not after] == [TxnState.PREPARED, TxnState.FATAL]


def test_concurrent_transactions_are_waited_for_soon() -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    for _ in range(3):
        bench.cluster.once(AddPartitionsToTxn, all_with(ErrorCode.CONCURRENT_TRANSACTIONS)[AddPartitionsToTxn])
    bench.txn.begin_transaction()
    before = bench.now
    bench.put(b"a")
    bench.commit()
    assert bench.world.committed == [b"a"]
    assert 5 < bench.now - before < 50


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_coordinator_that_moves_or_loads_is_waited_for(kind: type[Any], code: ErrorCode) -> None:
    bench = Bench(TransactionalCluster(2, t=1))
    bench.cluster.once(kind, all_with(code)[kind])
    looked = len(bench.cluster.of(FindCoordinator))
    bench.start()
    bench.txn.begin_transaction()
    bench.put(b"a")
    observed = bench.positions()
    bench.commit()
    assert (observed, bench.world.committed) == ([None], [b"a"])
    found = len(bench.cluster.of(FindCoordinator)) - looked
    assert found == (2 if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else 3)


@pytest.mark.parametrize("kind", [*REQUESTS, Produce])
@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("committed", [True, False])
def test_answers_that_are_lost_change_nothing(kind: type[Any], applied: bool, committed: bool) -> None:
    world = TransactionalCluster(2, t=1)
    left = [kind]

    def lose(broker: int, request: Any) -> Any:
        if left and isinstance(request, kind):
            left.pop()
            if applied:
                world.answer(broker, request)
            return LOST
        return None

    world.script(lose)
    bench = Bench(world).start()
    bench.txn.begin_transaction()
    batch = bench.put(b"a")
    bench.positions()
    if committed:
        bench.commit()
        assert (world.committed, world.aborted) == ([b"a"], [])
        assert world.positions
        assert batch.error is None
    else:
        bench.run(lambda: batch.done)
        bench.abort()
        assert (world.committed, world.aborted) == ([], [b"a"])
        assert not world.positions
    bench.txn.begin_transaction()
    bench.put(b"b")
    bench.commit()
    assert world.committed[-1] == b"b"
    assert not any(txn.ongoing for txn in world.ids.values())


def test_one_that_may_have_begun_is_made_certain_before_it_is_aborted() -> None:
    """Left alone, the coordinator would abort it by its timeout, and fence the producer."""
    world = TransactionalCluster(t=1)
    lost: list[bool] = []

    def lose(broker: int, request: Any) -> Any:
        if isinstance(request, AddPartitionsToTxn) and not lost:
            lost.append(True)
            world.answer(broker, request)
            return LOST
        return None

    world.script(lose)
    bench = Bench(world).start()
    bench.txn.begin_transaction()
    bench.put(b"a")
    while not lost:
        bench.poll()
        bench.answer()
    bench.abort()
    assert world.ended == [False]
    assert not world.ids["txn"].ongoing


def _with_a_lost_commit(world: TransactionalCluster) -> tuple[Bench, list[TxnOffsetCommit]]:
    """Return a producer in a transaction, whose TxnOffsetCommit the network has taken, and lost or not."""
    lost: list[TxnOffsetCommit] = []

    def lose(_: int, request: Any) -> Any:
        if isinstance(request, TxnOffsetCommit) and not lost:
            lost.append(request)
            return LOST
        return None

    world.script(lose)
    bench = Bench(world).start()
    bench.txn.begin_transaction()
    bench.positions(5)
    while not lost:
        bench.poll()
        bench.answer()
    return bench, lost


def test_an_abort_waits_for_the_answer_to_positions_and_a_late_one_is_of_an_old_epoch() -> None:
    world = TransactionalCluster(t=1)
    bench, (late,) = _with_a_lost_commit(world)
    epoch = bench.txn.epoch
    bench.abort()
    assert bench.asked()[-4:] == ["TxnOffsetCommit", "TxnOffsetCommit", "EndTxn", "InitProducerId"]
    assert bench.txn.epoch == epoch + 1
    bench.txn.begin_transaction()
    bench.positions(9)
    bench.run(lambda: bool(world.ids["txn"].pending))
    observed = world.answer(1, late)
    assert [each.error for each in observed.partitions] == [ErrorCode.INVALID_PRODUCER_EPOCH]
    bench.commit()
    assert world.positions == {("g", TopicPartition("in", 0)): 9}


def test_positions_that_were_answered_at_the_second_try_cost_no_epoch() -> None:
    world = TransactionalCluster(t=1)
    bench, _ = _with_a_lost_commit(world)
    bench.commit()
    bench.txn.begin_transaction()
    bench.put(b"a")
    bench.abort()
    assert (bench.txn.epoch, world.positions) == (0, {("g", TopicPartition("in", 0)): 5})


def test_an_abort_with_unanswered_positions_ends_where_brokers_give_no_next_epoch() -> None:
    world = TransactionalCluster(t=1)
    bench, _ = _with_a_lost_commit(world)
    bench.cluster.once(InitProducerId, ApiError(ErrorCode.UNSUPPORTED_VERSION, "needs version 3"))
    bench.abort()
    assert world.ended == [False]
    bench.txn.begin_transaction()
    bench.put(b"a")
    bench.commit()
    assert world.committed == [b"a"]


def test_a_second_producer_fences_the_first() -> None:
    world = TransactionalCluster(t=1)
    first = Bench(world).start()
    first.txn.begin_transaction()
    first.send(b"zombie")
    second = Bench(world).start()
    with pytest.raises(ProducerFenced, match="txn has another producer"):
        first.commit()
    second.txn.begin_transaction()
    second.put(b"good")
    second.commit()
    assert (world.committed, world.aborted) == ([b"good"], [b"zombie"])
    for call in (
        first.txn.initialize,
        first.txn.begin_transaction,
        first.txn.commit,
        first.txn.abort,
        first.txn.check_sending,
    ):
        with pytest.raises(ProducerFenced):
            call()


def test_a_leader_that_knows_a_later_epoch_leads_to_the_coordinator() -> None:
    """The leader's answer does not name the cause of the later epoch: the abort does."""
    world = TransactionalCluster(t=1)
    first = Bench(world).start()
    first.txn.begin_transaction()
    first.send(b"before")
    Bench(world).start()
    batch = first.send(b"zombie")
    assert isinstance(batch.error, ApiError)
    assert batch.error.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(AbortNeeded):
        first.commit()
    with pytest.raises(ProducerFenced):
        first.abort()


def test_a_batch_that_fails_leaves_the_abort() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    batch = bench.put(b"bad")
    bench.run(lambda: batch.done)
    other = ProducerBatch(TopicPartition("t", 1), 0, 0)
    with pytest.raises(AbortNeeded, match="TOPIC_AUTHORIZATION_FAILED") as refused:
        bench.put(b"more", 1)
    assert isinstance(refused.value.__cause__, ApiError)
    assert not other.done
    with pytest.raises(AbortNeeded):
        bench.commit()
    bench.abort()
    bench.txn.begin_transaction()
    bench.put(b"good")
    bench.commit()
    assert bench.world.committed == [b"good"]
    assert len(bench.cluster.of(InitProducerId)) == 1, "it has certainly not been appended: its numbers are free"


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_uncertain_sequence_numbers_begin_a_new_epoch_after_the_abort(code: ErrorCode) -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    epoch = bench.txn.epoch
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, refusing(code))
    bench.send(b"bad")
    bench.abort()
    first, again = bench.cluster.of(InitProducerId)
    assert (first.producer_id, first.producer_epoch) == (-1, -1)
    assert (again.producer_id, again.producer_epoch) == (bench.txn.producer_id, epoch)
    assert bench.txn.epoch == epoch + 1
    bench.txn.begin_transaction()
    bench.put(b"good")
    bench.commit()
    assert bench.world.committed == [b"good"]


def test_a_batch_that_is_late_begins_a_new_epoch_too() -> None:
    bench = Bench(TransactionalCluster(t=1), delivery_timeout_ms=2000).start()
    bench.txn.begin_transaction()
    bench.cluster.script(lambda _, request: LOST if isinstance(request, Produce) and bench.now < 3000 else None)
    bench.put(b"late")
    with pytest.raises(AbortNeeded):
        bench.commit()
    bench.abort()
    assert len(bench.cluster.of(InitProducerId)) == 2
    bench.clock.advance_to(4000)
    bench.txn.begin_transaction()
    bench.put(b"good")
    bench.commit()
    assert bench.world.committed == [b"good"]


def test_abort_with_unknown_sequences_is_fatal_without_epoch_bump() -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    bench.send(b"bad")
    bench.cluster.once(InitProducerId, ApiError(ErrorCode.UNSUPPORTED_VERSION, "needs version 3"))
    with pytest.raises(ApiError, match="needs version 3"):
        bench.abort()
    with pytest.raises(ApiError, match="needs version 3"):
        bench.txn.begin_transaction()
    assert bench.world.ended == [False]


def test_partitions_that_may_not_be_added_leave_the_abort() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()

    def refuse(request: AddPartitionsToTxn) -> AddPartitionsToTxnResult:
        codes = [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        parts = [outcomes([tp], code)[0] for tp, code in zip(request.partitions, codes, strict=True)]
        return AddPartitionsToTxnResult(partitions=parts)

    bench.cluster.once(AddPartitionsToTxn, refuse)
    bench.txn.begin_transaction()
    batches = [bench.put(b"a"), bench.put(b"b", 1)]
    with pytest.raises(AbortNeeded, match="TOPIC_AUTHORIZATION_FAILED"):
        bench.commit()
    bench.abort()
    assert all(isinstance(batch.error, TransactionAborted) for batch in batches)
    assert not bench.world.ended, "nothing had begun"


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ErrorCode.ILLEGAL_GENERATION, CommitFailed), (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailed)],
)
def test_transactional_offset_commit_of_former_member_raises_commit_failed(
    code: ErrorCode, kind: type[BarnabasError]
) -> None:
    bench = Bench(TransactionalCluster(t=1)).start()
    bench.cluster.once(TxnOffsetCommit, all_with(code)[TxnOffsetCommit])
    bench.txn.begin_transaction()
    bench.put(b"a")
    observed = bench.positions()
    bench.run(lambda: bool(observed))
    assert isinstance(observed[0], kind)
    with pytest.raises(AbortNeeded):
        bench.commit()
    bench.abort()
    assert (bench.world.committed, bench.world.positions) == ([], {})


@pytest.mark.parametrize("kind", REQUESTS)
@pytest.mark.parametrize(
    "code",
    [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_TXN_STATE],
)
def test_batch_that_cannot_be_sent_ends_the_producer(kind: type[Any], code: ErrorCode) -> None:
    bench = Bench(TransactionalCluster(t=1))
    bench.cluster.script(lambda _, request: ApiError(code, "no") if isinstance(request, kind) else None)
    bench.start()
    if kind is not InitProducerId:
        bench.txn.begin_transaction()
        batch = bench.put(b"a")
        observed = bench.positions()
        with pytest.raises(ApiError, match=code.name):
            bench.commit()
        bench.run_until_idle()
        assert batch.done
        assert len(observed) == 1
    assert bench.txn.state is TxnState.FATAL
    with pytest.raises(ApiError, match=code.name):
        bench.txn.begin_transaction()
    assert bench.world.committed == []


def test_a_coordinator_that_may_not_be_looked_for_ends_the_producer() -> None:
    bench = Bench(TransactionalCluster(t=1))
    refused = ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no")
    bench.cluster.script(lambda _, request: refused if isinstance(request, FindCoordinator) else None)
    bench.start()
    assert bench.txn.error is refused


def test_the_answers_of_an_abort_are_waited_for() -> None:
    """A batch that is sent once more while the transaction is being aborted belongs to it still."""
    bench = Bench(TransactionalCluster(t=1)).start()
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, LOST)
    batch = bench.put(b"tried")
    bench.run(lambda: bool(batch.attempts))
    bench.abort()
    assert batch.error is None
    assert bench.world.aborted == [b"tried"]
    assert bench.asked()[-1] == "EndTxn"


FAULTS = st.lists(st.sampled_from(["", "", "", "lost before", "lost after", "busy", "elsewhere"]), max_size=60)


@settings(max_examples=examples(60), deadline=None)
@given(
    FAULTS,
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2), max_size=4)), max_size=6),
    st.sampled_from((1, 2)),
)
def test_whatever_fails_on_the_way(
    faults: list[str], transactions: Sequence[tuple[bool, list[int]]], level: int
) -> None:
    """`transactions`: whether to commit, and to which partitions to send; `level`: of transaction.version."""
    world = TransactionalCluster(2, t=3)
    world.level = level
    left = list(faults)
    codes = {"busy": ErrorCode.CONCURRENT_TRANSACTIONS, "elsewhere": ErrorCode.NOT_COORDINATOR}

    def fail(broker: int, request: Any) -> Any:
        if isinstance(request, FindCoordinator | Metadata) or not left:
            return None
        fault = left.pop()
        if fault.startswith("lost"):
            if fault == "lost after":
                faults_then, left[:] = list(left), []
                world.answer(broker, request)
                left[:] = faults_then
            return LOST
        if fault and not isinstance(request, Produce):
            made = all_with(codes[fault])[type(request)]
            return made(request) if callable(made) else made
        return None

    world.script(fail)
    bench = Bench(world).start()
    expected: list[bytes] = []
    for number, (committed, partitions) in enumerate(transactions):
        bench.txn.begin_transaction()
        values = [b"%d-%d" % (number, index) for index in range(len(partitions))]
        for value, partition in zip(values, partitions, strict=True):
            bench.put(value, partition)
        if partitions:
            bench.positions(number)
        if committed:
            bench.commit()
            expected += values
        else:
            bench.abort()
    assert sorted(world.committed) == sorted(expected)
    assert not any(txn.ongoing for txn in world.ids.values())
    last = [number for number, (committed, partitions) in enumerate(transactions) if committed and partitions]
    assert world.positions == ({("g", TopicPartition("in", 0)): last[-1]} if last else {})


def prepared(bench: Bench) -> PreparedTransaction:
    bench.txn.hand_over()
    bench.run(lambda: bench.txn.state is not TxnState.PREPARING)
    return bench.txn.prepared


def resumed(bench: Bench, transaction: PreparedTransaction) -> Bench:
    """Another process, with the same cluster."""
    other = Bench(bench.world, transaction.transactional_id)
    other.txn.resume(transaction)
    return other


def test_a_prepared_transaction_is_committed_by_another_producer_with_positions_added_there() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    batch = bench.put(b"a")
    transaction = prepared(bench)
    assert batch.done
    assert transaction.begun
    assert bench.world.committed == []
    other = resumed(bench, transaction)
    with pytest.raises(TransactionError, match="resumed"):
        other.put(b"more")
    observed = other.positions()
    other.commit()
    assert observed == [None]
    assert bench.world.committed == [b"a"]
    assert bench.world.positions == {("g", TopicPartition("in", 0)): 5}
    assert len(bench.cluster.of(InitProducerId)) == 1


def test_a_prepared_transaction_is_aborted_by_another_producer() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    bench.send(b"a")
    other = resumed(bench, prepared(bench))
    other.abort()
    assert bench.world.aborted == [b"a"]
    for call in (bench.txn.begin_transaction, bench.txn.commit, bench.txn.abort, bench.txn.check_sending):
        with pytest.raises(TransactionError, match="another ends"):
            call()


def test_an_identity_is_handed_over_between_transactions() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    transaction = prepared(bench)
    assert not transaction.begun
    other = resumed(bench, transaction)
    other.txn.begin_transaction()
    observed = other.positions()
    other.commit()
    assert observed == [None]
    assert len(bench.cluster.of(InitProducerId)) == 1


def test_prepared_batches_are_fenced_with_their_producer() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    bench.send(b"a")
    transaction = prepared(bench)
    Bench(bench.world).start()
    other = resumed(bench, transaction)
    with pytest.raises(ProducerFenced):
        other.commit()
    assert bench.world.committed == []


def test_nothing_is_prepared_of_a_transaction_that_has_failed() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, refusing(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    bench.put(b"a")
    bench.txn.hand_over()
    bench.run(lambda: bench.txn.state is not TxnState.PREPARING)
    with pytest.raises(AbortNeeded):
        bench.txn.hand_over()


def test_only_a_fresh_producer_of_the_same_id_resumes() -> None:
    bench = Bench(TransactionalCluster(t=2)).start()
    transaction = prepared(bench)
    with pytest.raises(TransactionError, match="another transactional id"):
        Bench(bench.world, "other").txn.resume(transaction)
    started = Bench(bench.world).start()
    with pytest.raises(TransactionError, match="nothing can be resumed"):
        started.txn.resume(transaction)


# --- version 2 (KIP-890)


def version_2(**topics: int) -> Bench:
    world = TransactionalCluster(2, **topics)
    world.level = 2
    return Bench(world).start()


def test_transaction_of_version_2_announces_nothing() -> None:
    bench = version_2(t=3)
    bench.txn.begin_transaction()
    bench.put(b"a")
    bench.put(b"b", 1)
    observed = bench.positions()
    bench.commit()
    assert (observed, sorted(bench.world.committed)) == ([None], [b"a", b"b"])
    assert bench.world.positions == {("g", TopicPartition("in", 0)): 5}
    assert set(bench.asked()) == {"InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"}
    adds = TransactionSupportedOperation.ADD_PARTITION
    assert {each.supported_operation for kind in (Produce, TxnOffsetCommit) for each in bench.cluster.of(kind)} == {
        adds
    }


def test_each_transaction_of_version_2_has_the_next_epoch_and_begins_with_sequence_0() -> None:
    bench = version_2(t=1)
    for value in (b"a", b"b", b"c"):
        bench.txn.begin_transaction()
        bench.put(value)
        bench.commit()
    assert bench.world.committed == [b"a", b"b", b"c"]
    assert len(bench.cluster.of(InitProducerId)) == 1
    headers = [parse_header(each.partitions[0].records) for each in bench.cluster.of(Produce)]
    assert [(each.producer_epoch, each.base_sequence) for each in headers] == [(0, 0), (1, 0), (2, 0)]
    assert bench.txn.epoch == 3


@pytest.mark.parametrize("how", ["commit", "abort"])
def test_empty_transaction_of_version_2_sends_no_requests(how: str) -> None:
    bench = version_2(t=1)
    bench.txn.begin_transaction()
    getattr(bench, how)()
    assert bench.asked() == ["InitProducerId"]


def test_abort_of_version_2_begins_the_next_epoch_without_a_further_request() -> None:
    bench = version_2(t=1)
    bench.txn.begin_transaction()
    bench.cluster.once(Produce, refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    bench.send(b"a")
    bench.abort()
    assert (bench.txn.epoch, bench.asked()[-1]) == (1, "EndTxn")
    assert len(bench.cluster.of(InitProducerId)) == 1
    bench.txn.begin_transaction()
    bench.put(b"b")
    bench.commit()
    assert bench.world.committed == [b"b"]


def test_abort_with_unanswered_offsets_does_not_send_them_again() -> None:
    bench = version_2(t=1)
    bench.txn.begin_transaction()
    bench.cluster.once(TxnOffsetCommit, LOST)
    bench.positions()
    bench.run(lambda: bool(bench.cluster.of(TxnOffsetCommit)))
    bench.abort()
    assert len(bench.cluster.of(TxnOffsetCommit)) == 1
    assert (bench.asked()[-1], bench.txn.epoch) == ("EndTxn", 1)


def test_commit_of_a_transaction_that_was_aborted_for_its_timeout_can_be_tried_again() -> None:
    bench = version_2(t=1)
    bench.txn.begin_transaction()
    bench.send(b"a")
    (txn,) = bench.world.ids.values()
    bench.world._finish(txn, committed=False)
    txn.epoch += 1
    with pytest.raises(AbortNeeded):
        bench.commit()
    bench.abort()
    bench.txn.begin_transaction()
    bench.send(b"again")
    bench.commit()
    assert bench.world.committed == [b"again"]


def test_answer_of_a_commit_that_was_lost_is_asked_for_again() -> None:
    bench = version_2(t=1)
    for value in (b"a", b"b"):
        bench.txn.begin_transaction()
        bench.put(value)
        lost: list[Any] = []

        def lose_answer(broker: int, request: Any, lost: list[Any] = lost) -> Any:
            if not isinstance(request, EndTxn) or lost:
                return None
            lost.append(request)
            bench.world.answer(broker, request)
            return LOST

        bench.cluster.script(lose_answer)
        bench.commit()
    assert bench.world.committed == [b"a", b"b"]
    assert bench.txn.epoch == 2


def test_producer_changes_its_version_with_the_cluster_between_transactions() -> None:
    bench = version_2(t=1)
    asked: list[str] = []
    for level in (2, 0, 2):
        bench.world.level = level
        bench.run(lambda until=bench.now + 11_000: bench.now > until)  # type: ignore[misc]
        bench.txn.begin_transaction()
        bench.put(b"%d" % level)
        bench.commit()
        asked.append("v1" if "AddPartitionsToTxn" in bench.asked() else "v2")
        bench.cluster.requests.clear()
    assert bench.world.committed == [b"2", b"0", b"2"]
    assert asked == ["v2", "v1", "v2"]


def test_features_are_asked_for_rarely() -> None:
    bench = version_2(t=1)
    for _ in range(5):
        bench.txn.begin_transaction()
        bench.put(b"a")
        bench.commit()
    assert len(bench.cluster.of(DescribeFeatures)) == 1


def test_prepared_transaction_of_version_2_is_ended_in_version_1() -> None:
    """The identity stays: several processes may end the transaction, more than once."""
    bench = version_2(t=1)
    bench.txn.begin_transaction()
    bench.put(b"a")
    transaction = prepared(bench)
    for _ in range(2):
        other = resumed(bench, transaction)
        other.commit()
    assert bench.world.committed == [b"a"]
    assert not any(each.supports_epoch_bump for each in bench.cluster.of(EndTxn))
