"""Client quotas of a broker: stored, followed, enforced for fetches and for changes of topics, shown in metrics."""

from collections.abc import Iterator

import pytest

from barnabas.core.security.quotas.request_quotas import RequestQuotas
from barnabas.ports.broker_api.envelope import Caller, Origin, Principal
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.quotas import (
    AlterClientQuotas,
    DescribeClientQuotas,
    QuotaAlteration,
    QuotaEntry,
    QuotaFilter,
    QuotaOp,
)
from barnabas.ports.broker_api.share_groups import ShareFetch
from barnabas.ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

ALL = DescribeClientQuotas(filters=[])
NONE, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker()
    yield simulated
    simulated.stop()


def alter(
    broker: ManualBroker, entity: dict[str, str | None], validate_only: bool = False, **limits: float | None
) -> ErrorCode:
    ops = [QuotaOp(key=key, value=value) for key, value in limits.items()]
    entries = [QuotaAlteration(entity=entity, ops=ops)]
    (outcome,) = broker.ask(AlterClientQuotas(entries=entries, validate_only=validate_only)).entries
    assert dict(outcome.entity) == entity
    return outcome.error


def described(broker: ManualBroker) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    return [(dict(entry.entity), dict(entry.limits)) for entry in broker.ask(ALL).entries or ()]


def test_broker_without_quotas_describes_none_and_measures_nothing(broker: ManualBroker) -> None:
    assert described(broker) == []
    assert not broker.node.state.quotas.is_enabled


def test_altered_quotas_are_described_and_survive_a_restart(broker: ManualBroker) -> None:
    assert alter(broker, {"user": "ann", "client-id": None}, producer_byte_rate=10.0, request_percentage=0.5) is NONE
    assert alter(broker, {"ip": "10.0.0.1"}, connection_creation_rate=3.0) is NONE
    expected = [
        ({"user": "ann", "client-id": None}, {"producer_byte_rate": 10.0, "request_percentage": 0.5}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 3.0}),
    ]
    assert sorted(described(broker), key=str) == sorted(expected, key=str)
    broker.restart()
    assert sorted(described(broker), key=str) == sorted(expected, key=str)
    assert broker.node.state.quotas.is_enabled
    only = DescribeClientQuotas(filters=[QuotaFilter(entity_type="ip", match=0, name="10.0.0.1")])
    assert len(broker.ask(only).entries or ()) == 1


def test_removed_limits_are_gone_and_validation_changes_nothing(broker: ManualBroker) -> None:
    assert alter(broker, {"user": None}, True, producer_byte_rate=10.0) is NONE
    assert described(broker) == []
    alter(broker, {"user": None}, producer_byte_rate=10.0)
    assert alter(broker, {"user": None}, producer_byte_rate=None) is NONE
    assert described(broker) == []
    assert not broker.node.state.quotas.is_enabled


def test_wrong_entity_hinders_no_other_of_the_request(broker: ManualBroker) -> None:
    ops = [QuotaOp(key="producer_byte_rate", value=5.0)]
    entries = [QuotaAlteration(entity=entity, ops=ops) for entity in ({"user": "ann"}, {"user": ""}, {"planet": "x"})]
    outcomes = broker.ask(AlterClientQuotas(entries=entries)).entries
    assert [outcome.error for outcome in outcomes] == [NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]
    assert described(broker) == [({"user": "ann"}, {"producer_byte_rate": 5.0})]


def test_impossible_filter_is_an_error_of_the_whole_answer(broker: ManualBroker) -> None:
    request = DescribeClientQuotas(filters=[QuotaFilter(entity_type="planet", match=2)])
    result = broker.ask(request)
    assert (result.error, result.entries) == (ErrorCode.UNSUPPORTED_VERSION, None)


def test_changes_of_topics_beyond_the_rate_are_refused_with_the_time_to_wait(broker: ManualBroker) -> None:
    alter(broker, {"client-id": None}, controller_mutation_rate=1.0)

    def create(name: str, count: int = 8, strict: bool = True) -> tuple[ErrorCode, int]:
        result = broker.ask(CreateTopics(topics=[NewTopic(name=name, partitions=count)], allows_throttling=strict))
        return result.topics[0].error, result.throttle_ms

    assert create("one") == (NONE, 0)
    assert create("two") == (NONE, 0)
    error, wait_ms = create("three")
    assert (error, 4000 < wait_ms <= 5000) == (EXCEEDED, True)
    error, wait_ms = create("older", strict=False)
    assert (error, 12_000 < wait_ms <= 13_000) == (NONE, True)
    grown = broker.ask(CreatePartitions(topics=[NewPartitions(topic="one", count=9)]))
    assert (grown.topics[0].error, grown.throttle_ms > 0) == (EXCEEDED, True)
    deleted = broker.ask(DeleteTopics(names=["one"]))
    assert (deleted.topics[0].error, deleted.throttle_ms > 0) == (EXCEEDED, True)
    broker.wait(30_000)
    assert broker.ask(DeleteTopics(names=["one"])).topics[0].error is NONE
    assert create("three")[0] is NONE


def test_refused_topic_costs_no_tokens_and_validation_does(broker: ManualBroker) -> None:
    alter(broker, {"client-id": None}, controller_mutation_rate=1.0)
    for _ in range(5):
        bad = broker.ask(CreateTopics(topics=[NewTopic(name="no/slash", partitions=100)]))
        assert (bad.topics[0].error, bad.throttle_ms) == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)
    for error in (NONE, EXCEEDED):
        checked = broker.ask(CreateTopics(topics=[NewTopic(name="t", partitions=20)], validate_only=True))
        assert checked.topics[0].error is error


def test_broker_itself_is_exempt(broker: ManualBroker) -> None:
    quotas = broker.node.state.quotas
    quotas.update([QuotaEntry(entity={"client-id": None}, limits={"controller_mutation_rate": 1.0})])
    own = Caller(origin=Origin.BROKER)
    assert quotas.controller_mutations(own, is_strict=True) is None
    produce = Produce(partitions=[ProducePartition("t", 0, memoryview(b""))])
    assert quotas.start_request(produce, own, 10) is None


def test_rates_and_delays_are_metrics_by_user_and_client(broker: ManualBroker) -> None:
    alter(broker, {"user": "ann"}, producer_byte_rate=100.0)
    quotas: RequestQuotas = broker.node.state.quotas
    caller = Caller(client_id="app", principal=Principal("User", "ann"))
    produce = Produce(partitions=[ProducePartition("t", 0, memoryview(b""))])
    for _ in range(2):
        usage = quotas.start_request(produce, caller, 5000)
        assert usage is not None
        quotas.complete_request(usage)
    labels = {"user": "ann", "client_id": ""}
    assert broker.metrics.value("kafka_server_produce_byte_rate", **labels) == pytest.approx(1000.0)
    assert broker.metrics.value("kafka_server_produce_throttle_time", **labels) == pytest.approx(65_000)


def test_share_fetch_beyond_the_rate_counts_and_delays_the_next_request(broker: ManualBroker) -> None:
    alter(broker, {"user": "ann"}, consumer_byte_rate=100.0)
    quotas: RequestQuotas = broker.node.state.quotas
    caller = Caller(client_id="app", principal=Principal("User", "ann"))
    request = ShareFetch(group_id="g", member_id="m", share_session_epoch=0)
    usage = quotas.start_request(request, caller, 10)
    assert usage is not None
    assert quotas.complete_request(usage, 5000) > 0
    labels = {"user": "ann", "client_id": ""}
    assert broker.metrics.value("kafka_server_fetch_byte_rate", **labels) == pytest.approx(500.0)
