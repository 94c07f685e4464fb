"""The server of the Kafka protocol under quotas: delays in answers, muted connections, exempt requests."""

from typing import Any

import pytest
from attrs import evolve
from support.kafka_frames import ServerEnd, correlation_id_of, request_frame, result_of
from support.kafka_samples import SAMPLES

from barnabas.adapters.system import ManualClock, ManualScheduler
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.core.security.quotas.request_quotas import BETWEEN_BROKERS, RequestQuotas
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.quotas import QuotaEntry
from barnabas.ports.broker_api.topics import CreateTopicsResult

PRODUCE, FETCH, METADATA, CREATE_TOPICS = 0, 1, 3, 19
RECORDS = bytes(100_000)
METADATA_RESULT = evolve(SAMPLES[METADATA].result, throttle_ms=0)


class Harness:
    """A server whose clients have limits, on a clock of its own."""

    def __init__(self, entity: dict[str, str | None] | None = None, **limits: float) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.quotas = RequestQuotas(self.clock)
        self.quotas.update([QuotaEntry(entity=entity or {"client-id": None}, limits=limits)])
        self.handler_ms = 0.0
        self.end = self.connect()

    def connect(self) -> ServerEnd:
        return ServerEnd(self._answer, quotas=self.quotas, scheduler=self.scheduler)

    def _answer(self, request: Any) -> Any:
        self.clock.advance(self.handler_ms)
        if isinstance(request, Produce):
            return ProduceResult(partitions=[ProduceResultPartition(p.topic, p.partition) for p in request.partitions])
        if isinstance(request, Fetch):
            parts = [FetchResultPartition(p.topic, p.partition, records=RECORDS) for p in request.partitions]
            return FetchResult(partitions=parts)
        return METADATA_RESULT if isinstance(request, Metadata) else CreateTopicsResult(topics=[])

    def pass_time(self, ms: float) -> None:
        self.scheduler.advance(ms)
        while self.end.connection.step():
            pass


def produce(size: int, acks: int = 1, client_id: str = "c1") -> bytes:
    request = Produce(partitions=[ProducePartition("t", 0, memoryview(bytearray(size)))], acks=acks)
    return request_frame(PRODUCE, 9, 7, request, client_id)


def fetch(replica_id: int = -1) -> bytes:
    request = Fetch(partitions=[FetchPartition("t", 0, 0, 1_000_000)], replica_id=replica_id)
    return request_frame(FETCH, 11, 8, request)


def test_produce_beyond_its_rate_is_answered_at_once_and_its_connection_is_muted() -> None:
    harness = Harness(producer_byte_rate=1000.0)
    frame = produce(6000)
    harness.end.send(frame)
    assert result_of(PRODUCE, 9, harness.end.answers[0]).throttle_ms == 0
    harness.end.send(frame)
    delay_ms = result_of(PRODUCE, 9, harness.end.answers[1]).throttle_ms
    assert delay_ms == 2 * len(frame) - 10_000
    assert harness.end.connection.paused
    harness.end.send(frame)
    harness.pass_time(delay_ms - 1)
    assert len(harness.end.answers) == 2
    harness.pass_time(1)
    assert len(harness.end.answers) == 3
    assert harness.end.connection.paused


def test_muted_connection_disturbs_no_other_one() -> None:
    harness = Harness(producer_byte_rate=1000.0)
    harness.end.send(produce(20_000))
    other = harness.connect()
    other.send(request_frame(METADATA, 9, 1, SAMPLES[METADATA].request))
    assert harness.end.connection.paused
    assert result_of(METADATA, 9, other.answers[0]).throttle_ms == 0
    other.send(produce(100, client_id="another"))
    assert result_of(PRODUCE, 9, other.answers[1]).throttle_ms == 0


def test_produce_without_acknowledgement_mutes_the_connection() -> None:
    harness = Harness(producer_byte_rate=1000.0)
    harness.end.send(produce(20_000, acks=0))
    assert (harness.end.answers, harness.end.connection.paused) == ([], True)
    harness.pass_time(30_000)
    assert not harness.end.connection.paused


def test_fetch_beyond_its_rate_gets_an_empty_answer_that_does_not_count() -> None:
    harness = Harness(consumer_byte_rate=8000.0)
    harness.end.send(fetch())
    first = result_of(FETCH, 11, harness.end.answers[0])
    assert (first.partitions, harness.end.connection.paused) == ([], True)
    assert first.throttle_ms == pytest.approx(100_000 / 8 - 10_000, abs=50)
    harness.quotas.update([QuotaEntry(entity={"client-id": None}, limits={"consumer_byte_rate": 11_000.0})])
    harness.pass_time(first.throttle_ms)
    harness.end.send(fetch())
    second = result_of(FETCH, 11, harness.end.answers[1])
    assert (second.throttle_ms, len(second.partitions[0].records)) == (0, len(RECORDS))


def test_fetch_of_a_follower_is_exempt() -> None:
    harness = Harness(consumer_byte_rate=1.0, request_percentage=0.0001)
    harness.handler_ms = 50.0
    harness.end.send(fetch(replica_id=3))
    result = result_of(FETCH, 11, harness.end.answers[0])
    assert (result.throttle_ms, len(result.partitions)) == (0, 1)


def test_time_of_the_thread_beyond_its_share_delays_at_most_one_window() -> None:
    harness = Harness(request_percentage=1.0)
    harness.handler_ms = 90.0
    frame = request_frame(METADATA, 9, 1, SAMPLES[METADATA].request)
    harness.end.send(frame)
    assert result_of(METADATA, 9, harness.end.answers[0]).throttle_ms == 0
    harness.handler_ms = 900.0
    harness.end.send(frame)
    assert result_of(METADATA, 9, harness.end.answers[1]).throttle_ms == 1000
    assert harness.end.connection.paused


def test_delay_of_one_client_is_not_in_the_cached_answer_of_another() -> None:
    harness = Harness({"client-id": "greedy"}, request_percentage=0.0001)
    cached = evolve(METADATA_RESULT, encoded={})

    def answer(_request: Any) -> Any:
        harness.clock.advance(50)
        return cached

    for client_id, expected_ms in (("modest", 0), ("greedy", 1000), ("modest", 0)):
        end = harness.connect()
        end.broker.script = answer
        end.send(request_frame(METADATA, 9, 1, SAMPLES[METADATA].request, client_id))
        assert result_of(METADATA, 9, end.answers[0]).throttle_ms == expected_ms


def test_larger_delay_of_two_quotas_is_applied() -> None:
    harness = Harness(request_percentage=1.0, producer_byte_rate=1000.0)
    harness.handler_ms = 900.0
    harness.end.send(produce(20_000))
    assert result_of(PRODUCE, 9, harness.end.answers[0]).throttle_ms > 9_000


def test_delay_that_a_handler_demands_mutes_the_connection() -> None:
    harness = Harness(controller_mutation_rate=1.0)
    harness.end.broker.script = lambda request: CreateTopicsResult(topics=[], throttle_ms=400)
    harness.end.send(request_frame(CREATE_TOPICS, 5, 1, SAMPLES[CREATE_TOPICS].request))
    assert harness.end.connection.paused
    harness.pass_time(400)
    assert not harness.end.connection.paused


def test_pipelined_request_of_a_client_with_a_quota_waits_for_the_delay_of_the_one_before() -> None:
    harness = Harness(producer_byte_rate=1000.0)
    harness.end.broker.script = None
    harness.end.send(produce(20_000))
    harness.end.send(request_frame(METADATA, 9, 99, SAMPLES[METADATA].request))
    assert len(harness.end.broker.replies) == 1
    harness.end.broker.replies[0](ProduceResult(partitions=[ProduceResultPartition("t", 0)]))
    delay_ms = result_of(PRODUCE, 9, harness.end.answers[0]).throttle_ms
    harness.pass_time(delay_ms - 1)
    assert len(harness.end.broker.replies) == 1
    harness.pass_time(1)
    harness.end.broker.replies[1](METADATA_RESULT)
    assert [correlation_id_of(answer) for answer in harness.end.answers] == [7, 99]


def test_pipelined_requests_are_handled_together_without_a_quota_of_the_client() -> None:
    harness = Harness({"client-id": "limited"}, producer_byte_rate=1e9)
    harness.end.broker.script = None
    for _ in range(3):
        harness.end.send(produce(100, client_id="limited"))
    assert len(harness.end.broker.replies) == 1
    free = harness.connect()
    free.broker.script = None
    for _ in range(3):
        free.send(produce(100, client_id="free"))
    assert len(free.broker.replies) == 3
    harness.quotas.update([])
    for number in range(3):
        harness.end.broker.replies[number](ProduceResult(partitions=[ProduceResultPartition("t", 0)]))
        harness.pass_time(0)
    for _ in range(3):
        harness.end.send(produce(100, client_id="limited"))
    assert len(harness.end.broker.replies) == 6


def test_closed_connection_is_never_unmuted() -> None:
    harness = Harness(producer_byte_rate=1000.0)
    harness.end.send(produce(20_000))
    handler = harness.end.connection.handler
    assert handler is not None
    handler.on_closed(None)
    harness.scheduler.advance(60_000)
    assert harness.end.connection.paused


def test_every_result_of_a_metered_api_has_a_place_for_its_delay() -> None:
    for key, api in BY_KEY.items():
        if api.request_type not in BETWEEN_BROKERS:
            result = SAMPLES[key].result
            assert evolve(result, throttle_ms=5).throttle_ms == 5, api.name


def test_larger_fetch_than_all_windows_allow_is_cut() -> None:
    harness = Harness(consumer_byte_rate=1000.0)
    harness.end.send(fetch())
    caller = harness.end.broker.callers[0]
    assert harness.quotas.fetch_max_bytes(caller, 50_000_000) == 10_000
    assert harness.quotas.fetch_max_bytes(evolve(caller, client_id="c1"), 500) == 500
    harness.quotas.update([])
    assert harness.quotas.fetch_max_bytes(caller, 50_000_000) == 50_000_000


@pytest.mark.parametrize(("key", "since"), [(CREATE_TOPICS, 6), (20, 5), (37, 3)])
def test_only_versions_of_kip_599_are_refused_with_throttling_quota_exceeded(key: int, since: int) -> None:
    api, seen = BY_KEY[key], {}
    for version in range(api.versions[0], api.versions[1] + 1):
        end = ServerEnd()
        end.send(request_frame(key, version, 1, SAMPLES[key].at(version).request))
        seen[version] = end.broker.requests[0].allows_throttling
    assert seen == {version: version >= since for version in seen}
