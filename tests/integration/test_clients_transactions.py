"""Transactions through the producer's shell, with its threads, against a cluster of a test."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest
from attrs import evolve
from support.plain_cluster import PlainConnector
from support.transactional_cluster import TransactionalCluster
from support.waiting import PATIENCE_S, wait_for

from barnabas import AbortNeeded, Consumer, Message, Producer, ProducerFenced, TransactionError
from barnabas.app.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.core.client.errors import ClientTimeout, CommitFailed, TransactionAborted
from barnabas.core.client.group.events import GroupMetadata
from barnabas.core.client.producer.handlers import EventHandler, ProducerItem, SendItems
from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.producers import InitProducerId
from barnabas.ports.broker_api.transactions import AddPartitionsToTxn, EndTxn, TxnOffsetCommit, TxnOffsetCommitResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition

QUICK: dict[str, Any] = {"linger_ms": 0, "retry_backoff_ms": 1, "reconnect_backoff_ms": 1}
IN = TopicPartition("in", 0)


def producer_of(cluster: TransactionalCluster, **settings: Any) -> Producer:
    return Producer(PlainConnector(cluster), **{"transactional_id": "txn", **QUICK, **settings})


@pytest.fixture
def cluster() -> TransactionalCluster:
    return TransactionalCluster(t=1)


@pytest.fixture
def producer(cluster: TransactionalCluster) -> Iterator[Producer]:
    with producer_of(cluster) as producer:
        yield producer


def refuse_next(cluster: TransactionalCluster, code: ErrorCode) -> None:
    cluster.once(Produce, ProduceResult(partitions=[ProduceResultPartition("t", 0, code)]))


def busy(cluster: TransactionalCluster, kind: type[Any]) -> threading.Event:
    """Make the coordinator answer requests of this type with a retriable error, until the event is set."""
    free = threading.Event()

    def answer(_: int, request: Any) -> Any:
        if free.is_set() or not isinstance(request, kind):
            return None
        return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "busy")

    cluster.script(answer)
    return free


def test_a_block_is_a_transaction(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction() as same:
        assert same is producer
        handles = [producer.send("t", b"%d" % number) for number in range(3)]
        many = producer.send_many("t", [b"a", b"b"])
        assert cluster.committed == []
    assert all(handle.done for handle in handles)
    assert many.done
    assert sorted(cluster.committed) == [b"0", b"1", b"2", b"a", b"b"]
    with producer.transaction():
        producer.send("t", b"next")
    assert cluster.committed[-1] == b"next"


def test_an_exception_aborts_and_is_raised_on(cluster: TransactionalCluster, producer: Producer) -> None:
    with pytest.raises(ZeroDivisionError), producer.transaction():
        producer.send("t", b"sent").result(PATIENCE_S)
        1 / 0  # noqa: B018  # it is to raise
    assert (cluster.committed, cluster.aborted) == ([], [b"sent"])
    with producer.transaction():
        producer.send("t", b"good")
    assert cluster.committed == [b"good"]


def test_explicit_begin_commit_and_abort_apply(cluster: TransactionalCluster, producer: Producer) -> None:
    producer.init_transactions()
    producer.init_transactions()
    assert len(cluster.of(InitProducerId)) == 1
    producer.begin_transaction()
    producer.send("t", b"a").result(PATIENCE_S)
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"b")
    producer.commit_transaction()
    assert (cluster.committed, cluster.aborted) == ([b"b"], [b"a"])
    with producer.transaction():
        producer.send("t", b"c")
        producer.commit_transaction()  # the end of the block then has nothing to do
    assert cluster.committed == [b"b", b"c"]


def test_outside_a_transaction_nothing_is_sent(producer: Producer) -> None:
    ways: Sequence[Callable[[], object]] = (
        lambda: producer.send("t", b"x"),
        lambda: producer.send("t", b"x", b"key"),
        lambda: producer.send("not there", b"x"),
        lambda: producer.send_many("t", [b"x", b"y"]),
        lambda: producer.send_many("t", [Message(b"x", b"key")]),
        lambda: producer.send_offsets({IN: 1}, "g"),
        producer.commit_transaction,
        producer.abort_transaction,
    )
    for way in ways:
        with pytest.raises(TransactionError, match="not initialized"):
            way()
    with producer.transaction():
        for _ in range(3):
            producer.send("t", b"x")
    for way in ways:
        with pytest.raises(TransactionError, match="between transactions"):
            way()


def test_transactions_do_not_nest(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"x")
        with pytest.raises(TransactionError, match="do not nest"), producer.transaction():
            pytest.fail("it must not begin")
        producer.send("t", b"y")
    assert cluster.committed == [b"x", b"y"]


def test_failed_transaction_cannot_be_committed(cluster: TransactionalCluster, producer: Producer) -> None:
    refuse_next(cluster, ErrorCode.INVALID_RECORD)
    with pytest.raises(AbortNeeded) as refused, producer.transaction():
        handle = producer.send("t", b"bad")
    assert isinstance(refused.value.__cause__, ApiError)
    with pytest.raises(ApiError, match="INVALID_RECORD"):
        handle.result(PATIENCE_S)
    with producer.transaction():
        producer.send("t", b"good")
    assert cluster.committed == [b"good"]


def test_a_topic_that_is_not_there_aborts(cluster: TransactionalCluster) -> None:
    with producer_of(cluster, max_block_ms=50) as producer:
        with pytest.raises(AbortNeeded, match="is not present in metadata"), producer.transaction():
            handle = producer.send("not there", b"x")
        with pytest.raises(ApiError, match="not there"):
            handle.result(PATIENCE_S)
        with pytest.raises(TransactionError), producer.transaction():
            waits = producer.send("not there", b"x")
            producer.abort_transaction()
            producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            waits.result(PATIENCE_S)


def test_a_message_that_waits_for_its_topic_is_committed_too(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("later", b"x")
        cluster.topics["later"] = 1
    assert cluster.committed == [b"x"]


def test_an_abort_drops_what_waits(cluster: TransactionalCluster) -> None:
    with producer_of(cluster, linger_ms=60_000) as producer:
        producer.begin_transaction()
        handle = producer.send("t", b"x")
        many = producer.send_many("t", [b"a"] * 10)
        producer.abort_transaction()
        with pytest.raises(TransactionAborted):
            handle.result(PATIENCE_S)
        assert all(isinstance(each, TransactionAborted) for each in many.deliveries(10))
        assert not cluster.of(Produce)
        with producer.transaction():
            assert producer.send("t", b"y") is not None
        assert cluster.committed == [b"y"]
        assert producer._accumulator.messages == 0
        assert producer._accumulator.bytes == 0


def test_fenced_producer_cannot_send_or_begin_transactions(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"first")
    with producer_of(cluster) as second:
        second.init_transactions()
        with pytest.raises(ProducerFenced), producer.transaction():
            producer.send("t", b"zombie")
        with pytest.raises(ProducerFenced), producer.transaction():
            pytest.fail("it must not begin")
        with second.transaction():
            second.send("t", b"second")
    assert cluster.committed == [b"first", b"second"]


def test_fenced_while_sending(cluster: TransactionalCluster, producer: Producer) -> None:
    """The leader's error is ambiguous; the coordinator's is not."""
    with producer_of(cluster) as second:
        with pytest.raises(ProducerFenced) as fenced, producer.transaction():
            producer.send("t", b"first").result(PATIENCE_S)
            second.init_transactions()
            producer.send("t", b"zombie").result(PATIENCE_S)
        assert isinstance(fenced.value.__cause__, ApiError)
    assert cluster.committed == []


def test_a_commit_without_an_answer_can_be_asked_about_again(cluster: TransactionalCluster, producer: Producer) -> None:
    free = busy(cluster, EndTxn)
    with pytest.raises(ClientTimeout) as caught, producer.transaction(timeout=0.5):
        producer.send("t", b"x").result(PATIENCE_S)
    while "busy" not in str(caught.value):  # on a loaded machine the coordinator has not been asked yet
        with pytest.raises(ClientTimeout) as caught:
            producer.commit_transaction(0.5)
    with pytest.raises(TransactionError):
        producer.begin_transaction()
    with pytest.raises(TransactionError, match="may succeed"):
        producer.abort_transaction()
    free.set()
    producer.commit_transaction(PATIENCE_S)
    assert cluster.committed == [b"x"]


def test_closing_aborts_what_is_under_way(cluster: TransactionalCluster) -> None:
    producer = producer_of(cluster)
    producer.begin_transaction()
    producer.send("t", b"x").result(PATIENCE_S)
    producer.close(10)
    assert cluster.ended == [False]


def test_positions_of_a_consumer_belong_to_the_transaction(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction():
        producer.send("t", b"x")
        producer.send_offsets({("in", 0): 7}, "g")
        producer.send_offsets(Message(b"", topic="in", partition=1, offset=4), GroupMetadata(group_id="h"))
        producer.send_offsets({}, "g")
        assert cluster.positions == {}
    assert cluster.positions == {("g", IN): 7, ("h", TopicPartition("in", 1)): 5}
    refused = TxnOffsetCommitResult(partitions=[PartitionOutcome("in", 0, ErrorCode.ILLEGAL_GENERATION)])
    cluster.once(TxnOffsetCommit, refused)
    with pytest.raises(CommitFailed), producer.transaction():
        producer.send_offsets({("in", 0): 9}, "g")
    assert cluster.positions["g", IN] == 7


def test_positions_that_cannot_belong_to_it(cluster: TransactionalCluster, producer: Producer) -> None:
    with producer.transaction():
        with Consumer(PlainConnector(cluster), group_id="g") as commits:
            for what, group in ((commits, None), ({IN: 1}, commits)):
                with pytest.raises(ConfigError, match="enable_auto_commit=False"):
                    producer.send_offsets(what, group)
        with (
            Consumer(PlainConnector(cluster), enable_auto_commit=False) as alone,
            pytest.raises(ConfigError, match="needs a group"),
        ):
            producer.send_offsets(alone)
        for name in (None, "", 5):
            with pytest.raises(ConfigError, match="name the group"):
                producer.send_offsets({IN: 1}, name)


def test_settings_that_do_not_fit(cluster: TransactionalCluster) -> None:
    def refused(match: str, **settings: Any) -> None:
        with pytest.raises(ConfigError, match=match):
            Producer("127.0.0.1:1", **{"transactional_id": "txn", **settings})

    unfit: Sequence[dict[str, Any]] = (
        {"acks": 1},
        {"acks": 0},
        {"retries": 0},
        {"max_in_flight_requests_per_connection": 6},
    )
    for settings in unfit:
        refused(r"transactional\.id needs acks=all", **settings)
    refused(r"transactional\.id needs enable\.idempotence", enable_idempotence=False)
    refused("expected a name", transactional_id="")
    refused(r"transaction\.timeout\.ms", config={"transaction.timeout.ms": 0})
    with pytest.raises(ConfigError, match="only producers of the current generation"):
        Consumer("127.0.0.1:1", transactional_id="x")  # type: ignore[call-overload]
    with Producer(PlainConnector(cluster)) as plain, pytest.raises(ConfigError, match="has no transactions"):
        plain.begin_transaction()


def test_transaction_timeout_is_sent_to_coordinator(cluster: TransactionalCluster) -> None:
    with producer_of(cluster, config={"transaction.timeout.ms": "1234"}) as producer:
        producer.init_transactions()
    (asked,) = cluster.of(InitProducerId)
    assert (asked.transactional_id, asked.transaction_timeout_ms) == ("txn", 1234)


def test_a_coordinator_that_refuses(cluster: TransactionalCluster, producer: Producer) -> None:
    cluster.script(
        lambda _, request: (
            ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, "too long") if isinstance(request, InitProducerId) else None
        )
    )
    for _ in range(2):
        with pytest.raises(ApiError, match="too long"):
            producer.init_transactions()


class Doubling(EventHandler):
    def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
        send([each for item in items for each in (item, evolve(item, token=None))])


def test_hooks_take_part(cluster: TransactionalCluster) -> None:
    with producer_of(cluster, event_handler=Doubling(), linger_ms=60_000) as producer:
        with pytest.raises(TransactionError):
            producer.send("t", b"x")
        with producer.transaction():
            producer.send("t", b"x")
        assert cluster.committed == [b"x", b"x"]
        producer.begin_transaction()
        left = producer.send("t", b"left in the queue")
        producer.abort_transaction()
        assert left.done
        with producer.transaction():
            producer.send("t", b"y")
        assert cluster.committed == [b"x", b"x", b"y", b"y"]


def test_in_sync_mode(cluster: TransactionalCluster) -> None:
    with producer_of(cluster, producer_type="sync") as producer, producer.transaction():
        assert producer.send("t", b"x").done
    assert cluster.committed == [b"x"]


def test_a_classic_producer_has_none() -> None:
    with pytest.raises(ConfigError, match="only producers of the current generation"):
        Producer(broker_list="0:localhost:1", transactional_id="x")
    with Producer(broker_list="0:localhost:1") as producer:
        for call in (producer.init_transactions, producer.transaction, producer.begin_transaction):
            with pytest.raises(ConfigError, match="classic generation"):
                call()
        for end in (producer.commit_transaction, producer.abort_transaction):
            with pytest.raises(ConfigError, match="classic generation"):
                end()
        with pytest.raises(ConfigError, match="classic generation"):
            producer.send_offsets({}, "g")


# --- asyncio


def asynchronous(test: Callable[[TransactionalCluster], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def run(cluster: TransactionalCluster) -> None:
        asyncio.run(test(cluster))

    return run


@asynchronous
async def test_blocks_with_asyncio(cluster: TransactionalCluster) -> None:
    async with AsyncProducer(PlainConnector(cluster), transactional_id="txn", **QUICK) as producer:
        await producer.init_transactions()
        async with producer.transaction():
            await producer.send("t", b"x")
            await producer.send_offsets({("in", 0): 3}, "g")
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait("t", b"y")
                1 / 0  # noqa: B018  # it is to raise
        await producer.begin_transaction()
        await producer.send("t", b"z")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.abort_transaction()
        async with AsyncConsumer(PlainConnector(cluster), group_id="g") as commits, producer.transaction():
            with pytest.raises(ConfigError, match="enable_auto_commit"):
                await producer.send_offsets(commits)
    assert (cluster.committed, cluster.aborted) == ([b"x", b"z"], [b"y"])
    assert cluster.positions == {("g", IN): 3}


@asynchronous
async def test_a_task_that_is_cancelled_aborts(cluster: TransactionalCluster) -> None:
    async with AsyncProducer(PlainConnector(cluster), transactional_id="txn", **QUICK) as producer:
        sent = asyncio.Event()

        async def work() -> None:
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                sent.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await sent.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.ended == [False]


@asynchronous
async def test_a_commit_that_has_begun_is_waited_for(cluster: TransactionalCluster) -> None:
    free = busy(cluster, AddPartitionsToTxn)
    async with AsyncProducer(PlainConnector(cluster), transactional_id="txn", **QUICK) as producer:

        async def work() -> None:
            async with producer.transaction():
                await producer.send("t", b"x")

        task = asyncio.create_task(work())
        await asyncio.to_thread(wait_for, lambda: bool(cluster.of(AddPartitionsToTxn)))
        task.cancel()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cluster.committed == [b"x"]
