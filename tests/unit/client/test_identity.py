"""An idempotent producer against brokers that keep count: nothing twice, nothing out of order, whatever fails."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples
from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.producer.identity import EPOCH_MAX, ProducerIdentity
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.core.log.producers.producer_state import ProducerStates
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.codec import Codec
from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.producers import InitProducerId, InitProducerIdResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

Answer = Callable[[Produce], Any]


class CountingCluster(PlainCluster):
    """Checks sequences as a broker does."""

    def __init__(self, **topics: int) -> None:
        super().__init__(**topics)
        self.states: dict[TopicPartition, ProducerStates] = {}
        self.largest = 1000
        """Messages in a batch."""

    def take(self, request: Produce) -> ProduceResult:
        return ProduceResult(partitions=[self._take(part) for part in request.partitions])

    def _take(self, part: ProducePartition) -> ProduceResultPartition:
        tp = TopicPartition(part.topic, part.partition)
        states, header = self.states.setdefault(tp, ProducerStates()), parse_header(part.records)
        assert header.producer_id > 0
        if header.count > self.largest:
            return ProduceResultPartition(*tp, ErrorCode.MESSAGE_TOO_LARGE)
        try:
            known = states.check(header)
        except ApiError as error:
            return ProduceResultPartition(*tp, error.code)
        if known is None:
            base = self.append(tp, part.records)
            states.update(header, base, 0)
        return ProduceResultPartition(*tp, base_offset=base if known is None else known.base_offset)

    def values(self, partition: int = 0) -> list[bytes | None]:
        batches = self.logs.get(TopicPartition("t", partition), [])
        return [message.value for message in MessageSet(b"".join(batches))]


class Bench(ManualDriver):
    def __init__(self, cluster: CountingCluster, *, batch_size: int = 90, **options: Any):
        super().__init__(cluster)
        self.numbered = cluster
        cluster.script(lambda _, request: cluster.take(request) if isinstance(request, Produce) else None)
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        limits = AccumulatorSettings(
            linger_ms=0, batch_size=batch_size, delivery_timeout_ms=options.get("delivery_timeout_ms", 120_000)
        )
        self.accumulator = RecordAccumulator(limits, self.clock, lambda tp: None)
        self.settled: list[ProducerBatch] = []
        self.warnings = 0
        self.identity = ProducerIdentity(
            self.view, self.entropy, retry_backoff_ms=10, retry_backoff_max_ms=100, unsupported=self._warn
        )
        self.codec: Codec | None = None
        self.sender = Sender(
            self.accumulator,
            self.view,
            self.entropy,
            SenderSettings(**options),
            codec_for=lambda topic: self.codec,
            settled=self._observed,
            identity=self.identity,
        )
        self.parts = [self.sender, self.view]
        self.view.add_topics(["t"])
        self.run_until_idle()

    def _warn(self) -> None:
        self.warnings += 1

    def _observed(self, batches: Sequence[ProducerBatch]) -> None:
        self.settled += batches

    def put(self, value: bytes, partition: int = 0) -> ProducerBatch:
        size = message_bytes(value, None, ())
        return self.accumulator.append(TopicPartition("t", partition), (value, None, (), None), size)

    def deliver(self) -> None:
        self.run(lambda: not self.accumulator.messages)

    def next_produce(self, answer: Answer) -> None:
        """Answer one Produce request so."""
        left = [answer]
        self.numbered.script(lambda _, request: left.pop()(request) if isinstance(request, Produce) and left else None)


def refusing(code: ErrorCode) -> Answer:
    return lambda request: ProduceResult(
        partitions=[ProduceResultPartition(part.topic, part.partition, code) for part in request.partitions]
    )


def headers(cluster: PlainCluster) -> list[tuple[int, int, int]]:
    sent = [part.records for request in cluster.of(Produce) for part in request.partitions]
    return [(h.producer_id, h.producer_epoch, h.base_sequence) for h in map(parse_header, sent)]


def test_batches_are_numbered_per_partition() -> None:
    bench = Bench(CountingCluster(t=2), batch_size=150)
    for number in range(6):
        bench.put(b"%d" % number, number % 2)
    bench.deliver()
    assert len(bench.cluster.of(InitProducerId)) == 1
    assert bench.numbered.values(0) == [b"0", b"2", b"4"]
    assert {h[:2] for h in headers(bench.cluster)} == {(1, 0)}
    numbers = [state.producers[1].last_sequence for state in bench.numbered.states.values()]
    assert numbers == [2, 2]


def test_a_lost_answer_is_asked_for_again_with_the_same_numbers() -> None:
    bench = Bench(CountingCluster(t=1))

    def lost(request: Produce) -> TransportError:
        bench.numbered.take(request)
        return TransportError("lost")

    bench.next_produce(lost)
    for number in range(5):
        bench.put(b"%d" % number)
    bench.deliver()
    assert bench.numbered.values() == [b"%d" % n for n in range(5)]
    assert headers(bench.cluster)[:2] == [(1, 0, 0), (1, 0, 0)]
    assert [batch.base_offset for batch in bench.settled] == list(range(5))


def test_refused_batch_leaves_no_sequence_gap() -> None:
    bench = Bench(CountingCluster(t=1))
    bench.next_produce(refusing(ErrorCode.INVALID_RECORD))
    for value in (b"bad", b"a", b"b"):
        bench.put(value)
    bench.deliver()
    assert bench.numbered.values() == [b"a", b"b"]
    assert headers(bench.cluster) == [(1, 0, 0), (1, 0, 0), (1, 0, 1)]


def test_unencodable_batch_leaves_no_sequence_gap() -> None:
    class Broken:
        id, name = 1, "broken"

        def compress(self, data: Any) -> bytes:
            raise RuntimeError(f"{len(data)} bytes")

        def decompress(self, data: Any, max_bytes: int) -> bytes:
            raise NotImplementedError

    bench = Bench(CountingCluster(t=1))
    bench.codec = Broken()
    bench.put(b"bad")
    bench.deliver()
    bench.codec = None
    bench.put(b"a")
    bench.deliver()
    assert bench.numbered.values() == [b"a"]
    assert headers(bench.cluster) == [(1, 0, 0)]


@pytest.mark.parametrize("appended", [True, False])
def test_an_unknown_fate_begins_another_epoch(appended: bool) -> None:
    bench = Bench(CountingCluster(t=2), retries=1)

    def lost(request: Produce) -> TransportError:
        if appended:
            bench.numbered.take(request)
        return TransportError("lost")

    bench.put(b"first")
    bench.put(b"elsewhere", 1)
    bench.deliver()
    bench.next_produce(lost)
    bench.next_produce(lost)
    bench.put(b"unknown")
    bench.deliver()
    for value in (b"a", b"b"):
        bench.put(value)
        bench.put(value, 1)
    bench.deliver()
    unknown = [b"unknown"] if appended else []
    assert bench.numbered.values(0) == [b"first", *unknown, b"a", b"b"]
    assert bench.numbered.values(1) == [b"elsewhere", b"a", b"b"]
    assert bench.identity.epoch == 1
    assert [batch.error is None for batch in bench.settled].count(False) == 1


@pytest.mark.parametrize(
    "code",
    [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH],
)
def test_a_broker_that_counts_otherwise_gets_another_epoch(code: ErrorCode) -> None:
    bench = Bench(CountingCluster(t=1))
    bench.put(b"a")
    bench.deliver()
    bench.next_produce(refusing(code))
    for value in (b"b", b"c"):
        bench.put(value)
    bench.deliver()
    assert bench.numbered.values() == [b"a", b"b", b"c"]
    assert headers(bench.cluster) == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]


def test_a_repeated_batch_that_the_broker_cannot_place_is_delivered() -> None:
    bench = Bench(CountingCluster(t=1))
    bench.next_produce(refusing(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    batch = bench.put(b"a")
    bench.deliver()
    assert (batch.error, batch.base_offset) == (None, -1)


def test_after_the_last_epoch_comes_another_id() -> None:
    bench = Bench(CountingCluster(t=1))
    bench.put(b"a")
    bench.deliver()
    bench.identity.epoch = EPOCH_MAX - 1
    bench.put(b"b")
    bench.deliver()
    bench.next_produce(refusing(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    bench.put(b"c")
    bench.deliver()
    assert headers(bench.cluster) == [(1, 0, 0), (1, 32766, 0), (1, 32766, 1), (2, 0, 0)]
    assert bench.numbered.values() == [b"a", b"b", b"c"]


def test_halves_of_a_batch_that_is_too_large_are_numbered_in_order() -> None:
    bench = Bench(CountingCluster(t=1), batch_size=10_000)
    bench.put(b"before")
    bench.deliver()
    bench.next_produce(refusing(ErrorCode.MESSAGE_TOO_LARGE))
    for number in range(5):
        bench.put(b"%d" % number)
    bench.deliver()
    assert bench.numbered.values() == [b"before", *(b"%d" % n for n in range(5))]
    assert [h[2] for h in headers(bench.cluster)] == [0, 1, 1, 3]


def test_producer_sequence_wraps_to_zero_after_maximum() -> None:
    bench = Bench(CountingCluster(t=1))
    bench.put(b"a")
    bench.deliver()
    tp = TopicPartition("t", 0)
    runs = bench.identity._sequences._runs
    runs[tp] = runs[tp]._replace(next_sequence=2**31 - 1)
    bench.numbered.states[tp].producers[1].last_sequence = 2**31 - 2
    for value in (b"b", b"c"):
        bench.put(value)
        bench.deliver()
    assert [h[2] for h in headers(bench.cluster)] == [0, 2**31 - 1, 0]
    assert bench.numbered.values() == [b"a", b"b", b"c"]


def test_broker_without_idempotence_gets_plain_batches_and_one_warning() -> None:
    cluster = PlainCluster(t=1)
    cluster.script(
        lambda _, request: ApiError(ErrorCode.UNSUPPORTED_VERSION) if isinstance(request, InitProducerId) else None
    )
    bench = Bench(CountingCluster(t=1))
    bench.numbered.scripts = cluster.scripts
    bench.numbered.take = None  # type: ignore[method-assign,assignment]  # it must not be asked
    bench.identity.producer_id = -1
    for value in (b"a", b"b"):
        bench.put(value)
    bench.deliver()
    assert bench.warnings == 1
    assert set(headers(bench.cluster)) == {(-1, -1, -1)}
    assert bench.numbered.values() == [b"a", b"b"]


@pytest.mark.parametrize(
    "failure",
    [
        TransportError("lost"),
        InitProducerIdResult(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        InitProducerIdResult(error=ErrorCode.COORDINATOR_NOT_AVAILABLE),
        ApiError(ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_an_id_is_asked_for_until_there_is_one(failure: Any) -> None:
    cluster = CountingCluster(t=1)
    cluster.once(InitProducerId, failure)
    cluster.once(InitProducerId, failure)
    bench = Bench(cluster)
    bench.put(b"a")
    bench.deliver()
    assert len(cluster.of(InitProducerId)) == 3
    assert bench.numbered.values() == [b"a"]
    assert not bench.warnings


def test_denied_producer_id_fails_batches_with_authorization_error() -> None:
    cluster = CountingCluster(t=1)
    cluster.once(InitProducerId, InitProducerIdResult(error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    bench = Bench(cluster)
    batch = bench.put(b"a")
    bench.identity._error = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")
    bench.deliver()
    assert isinstance(batch.error, ApiError)
    assert batch.error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


_FATES = ["ok", "ok", "ok", "request lost", "answer lost", "late", "timeout", "leader"]


@settings(max_examples=examples(60), deadline=None)
@given(
    fates=st.lists(st.sampled_from(_FATES), max_size=40),
    partitions=st.lists(st.integers(0, 1), min_size=1, max_size=30),
    batch_size=st.sampled_from([90, 150, 400]),
    largest=st.sampled_from([1, 2, 100]),
)
def test_nothing_comes_twice_or_out_of_order(
    fates: list[str], partitions: list[int], batch_size: int, largest: int
) -> None:
    """Also when a request that was thought lost arrives after its repetition."""
    bench = Bench(CountingCluster(t=2), batch_size=batch_size)
    cluster = bench.numbered
    cluster.largest = largest
    left, overdue = list(fates), list[Produce]()

    def answer(_: int, request: Any) -> Any:
        if not isinstance(request, Produce) or not left:
            return None
        fate = left.pop(0)
        if fate == "ok":
            result = cluster.take(request)
            while overdue:
                cluster.take(overdue.pop())
            return result
        if fate == "answer lost":
            cluster.take(request)
        if fate == "late":
            overdue.append(request)
        if fate in ("timeout", "leader"):
            code = ErrorCode.REQUEST_TIMED_OUT if fate == "timeout" else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return refusing(code)(request)
        return TransportError(fate)

    cluster.script(answer)
    for number, partition in enumerate(partitions):
        bench.put(b"%d" % number, partition)
    bench.deliver()
    for request in overdue:
        cluster.take(request)
    for partition in range(2):
        assert cluster.values(partition) == [b"%d" % n for n, at in enumerate(partitions) if at == partition]
    assert all(batch.error is None for batch in bench.settled)
