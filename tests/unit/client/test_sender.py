"""Batches on their way to their outcome."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.errors import EncodeError
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.core.message.codec import Codec
from barnabas.core.message.message_set import MessageSet
from barnabas.core.message.numbered_header import NumberedHeader
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProduceResult, ProduceResultPartition, RecordError
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition


class Bench(ManualDriver):
    """A sender against a cluster, topic t known."""

    def __init__(
        self,
        cluster: PlainCluster,
        codec: Codec | None = None,
        batch_size: int = 10_000,
        stamp: Callable[[str, int, int], NumberedHeader | None] | None = None,
        **settings: Any,
    ):
        super().__init__(cluster)
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        timeout = settings.get("delivery_timeout_ms", 120_000)
        limits = AccumulatorSettings(linger_ms=0, batch_size=batch_size, delivery_timeout_ms=timeout)
        self.accumulator = RecordAccumulator(limits, self.clock, lambda tp: None)
        self.settled: list[ProducerBatch] = []
        self.sender = Sender(
            self.accumulator,
            self.view,
            self.entropy,
            SenderSettings(**settings),
            codec_for=lambda topic: codec,
            settled=self._observed,
            stamp=stamp,
        )
        self.parts = [self.sender, self.view]
        self.view.add_topics(["t"])
        self.run_until_idle()

    def _observed(self, batches: Sequence[ProducerBatch]) -> None:
        self.settled += batches

    def put(self, value: bytes, partition: int = 0) -> ProducerBatch:
        return self.accumulator.append(
            TopicPartition("t", partition), (value, None, (), None), message_bytes(value, None, ())
        )

    def until_settled(self, count: int) -> None:
        self.run(lambda: len(self.settled) >= count)

    def log(self, partition: int = 0) -> list[bytes | None]:
        batches = self.cluster.logs.get(TopicPartition("t", partition), [])
        return [message.value for message in MessageSet(b"".join(batches))]


def refusing(code: ErrorCode, text: str | None = None) -> Callable[[Produce], ProduceResult]:
    return lambda request: ProduceResult(
        partitions=[ProduceResultPartition(p.topic, p.partition, code, error_message=text) for p in request.partitions]
    )


def test_batches_reach_the_leaders_of_their_partitions_in_one_request_each() -> None:
    bench = Bench(PlainCluster(brokers=2, t=4))
    for partition in range(4):
        bench.put(b"%d" % partition, partition)
    bench.until_settled(4)
    produced = [(b, [p.partition for p in r.partitions]) for b, r in bench.cluster.requests if isinstance(r, Produce)]
    assert sorted(produced) == [(1, [0, 2]), (2, [1, 3])]
    assert all(batch.error is None and batch.base_offset == 0 for batch in bench.settled)
    assert bench.log(3) == [b"3"]


def test_offsets_of_messages_follow_the_base_offset() -> None:
    bench = Bench(PlainCluster(t=1))
    bench.put(b"before")
    bench.until_settled(1)
    batch = {bench.put(b"%d" % n) for n in range(3)}.pop()
    bench.until_settled(2)
    assert [batch.delivery(n).offset for n in range(3)] == [1, 2, 3]


@pytest.mark.parametrize(
    "failure",
    [
        TransportError("lost"),
        refusing(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refusing(ErrorCode.NOT_ENOUGH_REPLICAS),
        ApiError(ErrorCode.REQUEST_TIMED_OUT, "slow"),
    ],
    ids=["connection", "leader", "replicas", "timeout"],
)
def test_retriable_produce_errors_are_retried_in_order(failure: Any) -> None:
    cluster = PlainCluster(t=1)
    bench = Bench(cluster, batch_size=120)
    cluster.once(Produce, failure)
    cluster.once(Produce, failure)
    for number in range(6):
        bench.put(b"%d" % number)
    bench.run(lambda: not bench.accumulator.messages)
    assert bench.log() == [b"%d" % n for n in range(6)]
    assert all(batch.error is None for batch in bench.settled)
    assert 150 < bench.now < 2000


def test_a_new_leader_is_found() -> None:
    cluster = PlainCluster(brokers=2, t=1)
    bench = Bench(cluster)
    cluster.leaders[TopicPartition("t", 0)] = 2
    cluster.epochs[TopicPartition("t", 0)] = 1
    bench.put(b"x")
    bench.until_settled(1)
    asked = [broker for broker, r in cluster.requests if isinstance(r, Produce)]
    assert (asked[0], asked[-1]) == (1, 2)
    assert bench.log() == [b"x"]


def test_fatal_produce_error_fails_its_batch_and_later_batches_continue() -> None:
    cluster = PlainCluster(t=1)
    bench = Bench(cluster, batch_size=90)
    cluster.once(
        Produce,
        ProduceResult(
            partitions=[
                ProduceResultPartition(
                    "t", 0, ErrorCode.INVALID_RECORD, error_message="no", record_errors=[RecordError(index=0)]
                )
            ]
        ),
    )
    bench.put(b"bad")
    bench.put(b"good")
    bench.until_settled(2)
    assert isinstance(bench.settled[0].error, ApiError)
    assert bench.settled[0].error.code is ErrorCode.INVALID_RECORD
    assert "record 0" in str(bench.settled[0].error)
    assert bench.log() == [b"good"]


def test_retries_are_counted() -> None:
    cluster = PlainCluster(t=1)
    cluster.script(lambda _, r: refusing(ErrorCode.NOT_ENOUGH_REPLICAS, "few")(r) if isinstance(r, Produce) else None)
    bench = Bench(cluster, retries=3)
    bench.put(b"x")
    bench.until_settled(1)
    assert len(cluster.of(Produce)) == 4
    assert str(bench.settled[0].error) == "NOT_ENOUGH_REPLICAS: few"


def test_a_delivery_has_its_time() -> None:
    cluster = PlainCluster(t=1)
    cluster.script(lambda _, r: TransportError("lost") if isinstance(r, Produce) else None)
    bench = Bench(cluster, delivery_timeout_ms=3000)
    bench.put(b"x")
    bench.until_settled(1)
    assert 2000 < bench.now < 5000
    assert bench.settled[0].error is not None


def test_without_a_leader_batches_wait_and_then_expire() -> None:
    cluster = PlainCluster(t=1)
    bench = Bench(cluster, delivery_timeout_ms=5000)
    cluster.leaders[TopicPartition("t", 0)] = -1
    cluster.epochs[TopicPartition("t", 0)] = 1
    bench.view.request_refresh()
    bench.clock.advance(200)
    bench.run_until_idle()
    bench.put(b"x")
    bench.until_settled(1)
    assert bench.now == 5200
    assert isinstance(bench.settled[0].error, ApiError)
    assert bench.settled[0].error.code is ErrorCode.REQUEST_TIMED_OUT
    assert not cluster.of(Produce)
    assert len(cluster.of(Metadata)) > 3


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    cluster = PlainCluster(t=1)

    def small_only(_: int, request: Any) -> Any:
        if isinstance(request, Produce) and len(request.partitions[0].records) > 400:
            return refusing(ErrorCode.MESSAGE_TOO_LARGE)(request)
        return None

    cluster.script(small_only)
    bench = Bench(cluster)
    batch = {bench.put(b"%03d" % n + bytes(97)) for n in range(10)}.pop()
    bench.put(b"999" + bytes(500))
    bench.run(lambda: not bench.accumulator.messages)
    assert [value[:3] for value in bench.log() if value] == [b"%03d" % n for n in range(10)]
    outcomes = [batch.find(n) for n in range(11)]
    assert [home.delivery(n).offset for home, n in outcomes[:10]] == list(range(10))
    with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
        outcomes[10][0].delivery(outcomes[10][1])
    assert bench.accumulator.bytes == 0


def test_requests_are_bounded() -> None:
    bench = Bench(PlainCluster(t=4), max_request_size=450)
    for partition in range(4):
        bench.put(bytes(100), partition)
    bench.until_settled(4)
    assert [len(r.partitions) for r in bench.cluster.of(Produce)] == [2, 2]


def test_requests_in_flight_are_bounded() -> None:
    bench = Bench(PlainCluster(t=4), max_in_flight=2, max_request_size=1)
    for partition in range(4):
        bench.put(b"x", partition)
        bench.poll()
    assert len(bench.open) == 2
    bench.until_settled(4)


def test_acks_go_into_the_request() -> None:
    bench = Bench(PlainCluster(t=1), acks=0, request_timeout_ms=1234)
    bench.put(b"x")
    bench.until_settled(1)
    request = bench.cluster.of(Produce)[0]
    assert (request.acks, request.timeout_ms) == (0, 1234)


def test_a_codec_that_raises_fails_its_batch() -> None:
    class Broken:
        id, name = 4, "broken"

        def compress(self, data: Any) -> bytes:
            raise RuntimeError("no")

        def decompress(self, data: Any, max_bytes: int) -> bytes:
            raise RuntimeError("no")

    bench = Bench(PlainCluster(t=1), codec=Broken())
    bench.put(b"x")
    bench.until_settled(1)
    assert isinstance(bench.settled[0].error, EncodeError)
    assert bench.accumulator.bytes == 0


def test_waiting_batches_can_be_abandoned() -> None:
    bench = Bench(PlainCluster(t=1))
    bench.put(b"x")
    bench.sender.fail_waiting(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "closing"))
    assert bench.settled[0].error is not None
    assert bench.run_until_idle() > 1000
    assert not bench.cluster.of(Produce)


def test_messages_keep_their_numbers_through_retries_and_splits() -> None:
    asked: list[int] = []

    def stamp(topic: str, count: int, time_ms: int) -> NumberedHeader:
        asked.append(count)
        return NumberedHeader("n", topic.encode(), sum(asked) - count)

    bench = Bench(PlainCluster(t=1), stamp=stamp)
    answers = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.MESSAGE_TOO_LARGE]
    bench.cluster.script(
        lambda _, request: refusing(answers.pop(0))(request) if answers and isinstance(request, Produce) else None
    )
    for value in (b"a", b"b", b"c"):
        bench.put(value)
    bench.until_settled(2)
    bench.put(b"d")
    bench.until_settled(3)
    log = bench.cluster.logs[TopicPartition("t", 0)]
    read = [(m.value, m.headers) for m in MessageSet(b"".join(log))]
    assert read == [(value, (("n", b"t" + bytes(7) + bytes([i])),)) for i, value in enumerate((b"a", b"b", b"c", b"d"))]
    assert asked == [3, 1]
    assert [(batch.count, batch.numbered and batch.numbered.first) for batch in bench.settled] == [
        (1, 0),
        (2, 1),
        (1, 3),
    ]
