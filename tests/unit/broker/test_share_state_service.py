"""The share coordinator and the persister in a whole broker."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.app.broker.handlers.topics import TopicService
from barnabas.core.share.persister import SharePartitionKey
from barnabas.ports.broker_api.configs import ConfigDescription, ConfigResource, DescribeConfigs, ResourceKind
from barnabas.ports.broker_api.groups import SHARE_COORDINATOR, Coordinator, FindCoordinator
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareAcknowledgePartition,
    ShareFetch,
    ShareFetchPartition,
)
from barnabas.ports.broker_api.share_state import (
    DeleteShareGroupState,
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateSummary,
    StateBatch,
    StatePartition,
    WritePartition,
    WriteShareGroupState,
)
from barnabas.ports.broker_api.topics import DeleteRecords, DeleteRecordsPartition, DeleteTopics
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered
from barnabas.testing.manual_broker import ManualBroker

LOG = "__share_group_state"


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(share_coordinator_state_topic_num_partitions=4)
    simulated.create("t", 2)
    yield simulated
    simulated.stop()
    assert simulated.reports == []


def topic_id(broker: ManualBroker) -> bytes:
    return broker.node.state.image.topic("t").topic_id


def find(broker: ManualBroker, *keys: str, **more: Any) -> list[Coordinator]:
    return list(broker.ask(FindCoordinator(keys=keys, key_type=SHARE_COORDINATOR, **more)).coordinators)


def persist(broker: ManualBroker, method: str, request: Any) -> list[Any]:
    """Return the answers of the broker's own persister so far."""
    answers: list[Any] = []
    getattr(broker.node.api.share_coordinator.persister, method)(request, answers.append)
    broker.wait(0)
    return [each for answer in answers for each in answer.partitions]


def initialized(broker: ManualBroker, *partitions: int, start: int = 0) -> None:
    some = [InitializePartition(topic_id(broker), each, 1, start) for each in partitions]
    outcomes = persist(broker, "initialize_state", InitializeShareGroupState(group_id="g", partitions=some))
    if not outcomes:
        broker.wait(100)


def written(broker: ManualBroker, first: int, last: int) -> E:
    some = [WritePartition(topic_id(broker), 0, 1, 0, state_batches=[StateBatch(first, last, 2, 1)])]
    (outcome,) = persist(broker, "write_state", WriteShareGroupState(group_id="g", partitions=some))
    error: E = outcome.error
    return error


def read(broker: ManualBroker, partition: int = 0) -> Any:
    request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(topic_id(broker), partition)])
    (outcome,) = persist(broker, "read_state", request)
    return outcome


def test_find_coordinator_creates_the_topic_and_finds_by_key(broker: ManualBroker) -> None:
    key = str(SharePartitionKey("a:b", topic_id(broker), 1))
    (found,) = find(broker, key)
    assert (found.key, found.node_id, found.error) == (key, 1, E.NONE)
    topic = broker.node.state.image.topic(LOG)
    assert len(topic.partitions) == 4
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=LOG)
    (shown,) = broker.ask(DescribeConfigs(resources=[ConfigDescription(resource=resource)])).resources
    values = {entry.name: entry.value for entry in shown.entries}
    assert (values["cleanup.policy"], values["retention.ms"]) == ("delete", "-1")
    config = broker.node.state.replicas.partitions[TopicPartition(LOG, 0)].log.config
    assert (config.cleanup_policy, config.retention_ms, config.retention_bytes) == (frozenset({"delete"}), -1, -1)


def test_topic_that_another_broker_creates_at_the_same_time_is_no_warning(
    broker: ManualBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create_one(*_: object) -> None:
        raise ApiError(E.TOPIC_ALREADY_EXISTS, f"the coordination tree has {LOG} already")

    key = str(SharePartitionKey("a:b", topic_id(broker), 1))
    with monkeypatch.context() as patched:
        patched.setattr(TopicService, "create_one", create_one)
        (found,) = find(broker, key)
    assert (found.node_id, found.error) == (-1, E.COORDINATOR_NOT_AVAILABLE)
    assert LOG in (found.error_message or "")
    assert find(broker, key)[0].error is E.NONE


@pytest.mark.parametrize("key", ["g", "g:0", "g:AAAA:0", "g:AAECAwQFBgcICQoLDA0ODw:x", ":AAECAwQFBgcICQoLDA0ODw:1"])
def test_find_coordinator_refuses_keys_that_are_none(broker: ManualBroker, key: str) -> None:
    (found,) = find(broker, key)
    assert found.error is E.INVALID_REQUEST
    assert LOG not in broker.node.state.image.topics


def test_versions_of_find_coordinator_before_6_have_no_share_partitions(broker: ManualBroker) -> None:
    (found,) = find(broker, "g:AAECAwQFBgcICQoLDA0ODw:1", knows_share=False)
    assert found.error is E.INVALID_REQUEST


def test_the_persister_creates_the_topic_and_a_restart_reads_it(broker: ManualBroker) -> None:
    initialized(broker, 0, 1)
    assert written(broker, 0, 4) is E.NONE
    broker.restart()
    broker.wait(100)
    state = read(broker)
    assert (state.state_epoch, state.start_offset, state.state_batches) == (1, 0, (StateBatch(0, 4, 2, 1),))
    assert read(broker, 1).error is E.NONE
    request = ReadShareGroupStateSummary(group_id="g", partitions=[ReadPartition(topic_id(broker), 0)])
    (summary,) = persist(broker, "read_state_summary", request)
    assert (summary.state_epoch, summary.start_offset) == (1, 0)
    gone = DeleteShareGroupState(group_id="g", partitions=[StatePartition(topic_id(broker), 0)])
    assert [each.error for each in persist(broker, "delete_state", gone)] == [E.NONE]
    assert read(broker).error is E.INVALID_REQUEST


def test_states_of_deleted_topics_are_deleted(broker: ManualBroker) -> None:
    initialized(broker, 0, 1)
    broker.ask(DeleteTopics(names=["t"]))
    broker.wait(600_001)
    assert len(broker.node.api.share_coordinator.coordinator) == 0


def test_clients_can_neither_write_the_topic_nor_delete_its_records(broker: ManualBroker) -> None:
    initialized(broker, 0)
    broker.create("other")
    deleted = [DeleteRecordsPartition(topic=LOG, partition=0, offset=-1)]
    deleted.append(DeleteRecordsPartition(topic="other", partition=0, offset=-1))
    outcomes = broker.ask(DeleteRecords(partitions=deleted, timeout_ms=1000)).partitions
    assert [(each.topic, each.error) for each in outcomes] == [(LOG, E.INVALID_TOPIC_EXCEPTION), ("other", E.NONE)]
    sent = Produce(partitions=[ProducePartition(LOG, 0, numbered(b"v"))], acks=-1)
    assert broker.ask(sent).partitions[0].error is E.INVALID_TOPIC_EXCEPTION


def test_the_log_is_pruned_to_the_snapshots(broker: ManualBroker) -> None:
    initialized(broker, 0)
    for offset in range(20):
        assert written(broker, 2 * offset, 2 * offset) is E.NONE
    logs = [broker.node.state.replicas.partitions[TopicPartition(LOG, each)].log for each in range(4)]
    assert sum(log.log_end_offset for log in logs) == 21
    broker.wait(900_001)
    assert sum(log.log_end_offset - log.log_start_offset for log in logs) <= 1
    broker.restart()
    broker.wait(100)
    assert len(read(broker).state_batches) == 20


def test_acknowledged_records_are_not_delivered_again_after_a_restart(broker: ManualBroker) -> None:
    initialized(broker, 0)
    for number in range(4):
        broker.produce("t", b"%d" % number, partition=0)

    def fetch() -> list[tuple[int, int, int]]:
        entry = ShareFetchPartition(topic_id(broker), 0, topic="t")
        request = ShareFetch(
            group_id="g",
            member_id="m",
            share_session_epoch=0,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=10_000,
            max_records=100,
            batch_size=100,
            partitions=[entry],
        )
        answers = broker.submit(request)
        broker.wait(500)
        (partition,) = answers[0].partitions
        return [(each.first_offset, each.last_offset, each.delivery_count) for each in partition.acquired_records]

    assert fetch() == [(0, 3, 1)]
    batches = [AcknowledgementBatch(0, 1, b"\x01"), AcknowledgementBatch(2, 2, b"\x02")]
    entry = ShareAcknowledgePartition(topic_id(broker), 0, batches, "t")
    request = ShareAcknowledge(group_id="g", member_id="m", share_session_epoch=1, partitions=[entry])
    assert broker.ask(request).partitions[0].error is E.NONE
    broker.restart()
    broker.wait(100)
    assert fetch() == [(2, 2, 2), (3, 3, 1)], "what was acquired and not released counts as not delivered"
