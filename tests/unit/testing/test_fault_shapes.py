"""Errors on demand stand where each API has a place for them, in every version of the protocol."""

from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
from support.kafka_pair import joined, normal
from support.kafka_samples import SAMPLES

from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.table import BY_KEY
from barnabas.ports.broker_api.classic import ClassicOffsets, ClassicProduce, ClassicProducePartition
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.configs import (
    AlterConfigsResult,
    ConfigAlteration,
    ConfigResource,
    IncrementalAlterConfigs,
    ResourceKind,
    ResourceOutcome,
)
from barnabas.ports.broker_api.envelope import Caller, Reply, Request
from barnabas.ports.broker_api.fetch import Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    JoinGroup,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
)
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, PartitionMetadata, TopicMetadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult, ProduceResultPartition
from barnabas.ports.broker_api.producers import DescribeProducers, DescribeProducersResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing.faults import Fault, Faults, known_requests, request_type, shape_of
from barnabas.testing.faulty_api import FaultyApi

CODE = ErrorCode.REQUEST_TIMED_OUT
ME = Caller(client_id="me")
WITHOUT_A_PLACE = {("DescribeLogDirs", 0), ("DescribeLogDirs", 1), ("DescribeLogDirs", 2), ("ElectLeaders", 0)}
"""Answers that cannot have an error when they have no entries."""


class Behind:
    """A broker with fixed answers, behind faults."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self.requests: list[Any] = []
        self.faults = Faults(lambda callback: callback())

    def submit(self, request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
        self.requests.append(request)
        reply(self._answer(request))

    def ask(self, request: Request[Any], caller: Caller = ME) -> Any:
        answers: list[Any] = []
        FaultyApi(self, self.faults, None).submit(request, caller, answers.append)  # type: ignore[arg-type]  # nothing is late here
        (answer,) = answers
        return answer


def errors_in(tree: Any) -> set[ErrorCode]:
    """Return every error code anywhere in a normalised value."""
    if isinstance(tree, ErrorCode):
        return {tree}
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return {code for part in parts for code in errors_in(part)}


def _first(result: Any, _: object) -> Any:
    return result


def as_observed(api: Api, version: int, result: Any) -> Any:
    writer = api.writer(version)
    api.result.write(writer, version, result)
    return api.result.read(api.reader(version, memoryview(joined(writer.pieces())), 0, 1000), version)


@pytest.mark.parametrize("key", sorted(BY_KEY))
def test_every_api_says_an_error_in_every_version(key: int) -> None:
    api = BY_KEY[key]
    for version in range(api.versions[0], api.versions[1] + 1):
        sample = SAMPLES[key].at(version)
        behind = Behind(partial(_first, sample.result))
        fault = behind.faults.error(key, CODE)
        answer = behind.ask(sample.request)
        assert fault.hits == 1
        if (api.name, version) in WITHOUT_A_PLACE:
            continue
        observed = as_observed(api, version, answer)
        assert CODE in errors_in(normal(observed)), (api.name, version, observed)


@pytest.mark.parametrize("name", sorted(known_requests()))
def test_a_shape_for_every_request(name: str) -> None:
    shape = shape_of(known_requests()[name])
    assert shape.has_error or shape.outcomes_field is not None
    assert not shape.has_partitions or shape.has_topics


def test_only_the_partition_that_is_meant() -> None:
    records = memoryview(b"records")
    behind = Behind(
        lambda request: ProduceResult(
            partitions=[
                ProduceResultPartition(each.topic, each.partition, base_offset=7) for each in request.partitions
            ]
        )
    )
    fault = behind.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", topic="a", partition=1)
    asked = [ProducePartition(topic, number, records) for topic in ("a", "b") for number in (0, 1)]
    result = behind.ask(Produce(partitions=asked))
    assert [(each.topic, each.partition, each.error, each.base_offset) for each in result.partitions] == [
        ("a", 0, ErrorCode.NONE, 7),
        ("a", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        ("b", 0, ErrorCode.NONE, 7),
        ("b", 1, ErrorCode.NONE, 7),
    ]
    assert [(each.topic, each.partition) for each in behind.requests[0].partitions] == [("a", 0), ("b", 0), ("b", 1)]
    behind.ask(Produce(partitions=asked[2:]))
    assert behind.requests[1].partitions == asked[2:]
    assert fault.hits == 1


def test_a_fetch_with_an_error_waits_for_nothing() -> None:
    behind = Behind(lambda request: FetchResult(partitions=[FetchResultPartition("b", 0)]))
    behind.faults.error("fetch", 9, topic="a")
    asked = [FetchPartition("a", 0, 5, 100), FetchPartition("b", 0, 5, 100)]
    result = behind.ask(Fetch(partitions=asked, max_wait_ms=500))
    assert [each.error for each in result.partitions] == [ErrorCode.REPLICA_NOT_AVAILABLE, ErrorCode.NONE]
    assert behind.requests[0].max_wait_ms == 0


def test_an_error_of_a_fetch_session_is_one_of_the_whole_answer() -> None:
    behind = Behind(lambda request: None)
    behind.faults.error(Fetch, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    result = behind.ask(Fetch(partitions=[FetchPartition("a", 0, 5, 100)]))
    assert result == FetchResult(partitions=(), error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


def _metadata() -> MetadataResult:
    partitions = [
        PartitionMetadata(partition=number, leader=1, leader_epoch=3, replicas=[1], isr=[1]) for number in (0, 1)
    ]
    topics = [TopicMetadata(name=name, topic_id=bytes(range(16)), partitions=partitions) for name in ("a", "b")]
    nodes = [BrokerNode(node_id=1, host="h", port=1)]
    return MetadataResult(brokers=nodes, cluster_id="c", controller_id=1, topics=topics)


def test_metadata_fault_preserves_brokers_and_other_topics() -> None:
    behind = Behind(lambda request: _metadata())
    with behind.faults.error("Metadata", "UNKNOWN_TOPIC_OR_PARTITION", topic="a"):
        result = behind.ask(Metadata())
        assert result.topics[0] == TopicMetadata(name="a", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert result.topics[1] == _metadata().topics[1]
        assert result.brokers == _metadata().brokers
    with behind.faults.error("Metadata", "LEADER_NOT_AVAILABLE", topic="b", partition=1):
        result = behind.ask(Metadata(topics=["a", "b"]))
        errors = [[each.error.value for each in topic.partitions] for topic in result.topics]
        assert errors == [[0, 0], [0, 5]]
        assert result.topics[1].partitions[1].leader == -1
    with behind.faults.error("Metadata", CODE) as fault:
        behind.ask(Metadata(topics=[]))
        assert fault.hits == 0


def test_positions_of_a_group() -> None:
    def answer(request: OffsetFetch) -> OffsetFetchResult:
        places = [FetchedOffset("a", 0, 5), FetchedOffset("b", 0, 6)]
        return OffsetFetchResult(
            groups=[FetchedGroup(group_id=each.group_id, partitions=places) for each in request.groups]
        )

    behind = Behind(answer)
    asked = [TopicPartition("a", 0), TopicPartition("b", 0)]
    request = OffsetFetch(groups=[OffsetFetchGroup(group_id=name, partitions=asked) for name in ("g", "h")])
    with behind.faults.error("OffsetFetch", "NOT_COORDINATOR", group="h"):
        one, other = behind.ask(request).groups
        assert one == answer(request).groups[0]
        assert (other.group_id, other.error) == ("h", ErrorCode.NOT_COORDINATOR)
        assert [each.error for each in other.partitions] == [ErrorCode.NOT_COORDINATOR] * 2  # for old versions
    with behind.faults.error("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", group="g", topic="a") as fault:
        one, other = behind.ask(request).groups
        assert [each.error.value for each in one.partitions] == [88, 0]
        assert other == answer(request).groups[1]
        behind.ask(OffsetFetch(groups=[OffsetFetchGroup(group_id="g", partitions=asked[1:])]))
        assert fault.hits == 1
        behind.ask(OffsetFetch(groups=[OffsetFetchGroup(group_id="g")]))  # all there are
        assert fault.hits == 2
    with behind.faults.error("OffsetFetch", "UNSTABLE_OFFSET_COMMIT", group="g"):
        one, other = behind.ask(request).groups
        assert (one.error, [each.error.value for each in one.partitions]) == (ErrorCode.NONE, [88, 88])
        assert other == answer(request).groups[1]


def test_refused_alteration_is_not_passed_on() -> None:
    topics = [ConfigResource(kind=ResourceKind.TOPIC, name=name) for name in ("a", "b")]
    behind = Behind(lambda r: AlterConfigsResult(resources=[ResourceOutcome(resource=each) for each in r.resources]))
    behind.faults.error("IncrementalAlterConfigs", "POLICY_VIOLATION", topic="a")
    changes = [ConfigAlteration(resource=each, name="retention.ms", value="1") for each in topics]
    result = behind.ask(IncrementalAlterConfigs(resources=topics, alterations=changes))
    assert [(each.resource, each.error.name) for each in result.resources] == [
        (topics[0], "POLICY_VIOLATION"),
        (topics[1], "NONE"),
    ]
    assert behind.requests[0].alterations == changes[1:]


def test_topics_with_numbers() -> None:
    behind = Behind(lambda request: DescribeProducersResult(partitions=()))
    behind.faults.error("DescribeProducers", CODE, topic="a", partition=1)
    result = behind.ask(DescribeProducers(topics={"a": [0, 1], "b": [1]}))
    assert [(each.topic, each.partition, each.error) for each in result.partitions] == [("a", 1, CODE)]
    assert behind.requests[0].topics == {"a": [0], "b": [1]}


def test_join_group_fault_returns_member_id() -> None:
    behind = Behind(lambda request: None)
    behind.faults.error("JoinGroup", "FENCED_INSTANCE_ID", group="g")
    request = JoinGroup(group_id="g", session_timeout_ms=1, protocol_type="consumer", protocols=[], member_id="m")
    result = behind.ask(request)
    assert (result.error, result.member_id) == (ErrorCode.FENCED_INSTANCE_ID, "m")
    assert behind.ask(attrs.evolve(request, group_id="other")) is None


def test_the_classic_requests() -> None:
    behind = Behind(lambda request: None)
    behind.faults.error("ClassicOffsets", 3, topic="a")
    behind.faults.error("ClassicProduce", 3)
    assert behind.ask(ClassicOffsets(topic="a", partition=0, time_ms=-1, max_offsets=1)).error.value == 3
    assert behind.ask(ClassicOffsets(topic="b", partition=0, time_ms=-1, max_offsets=1)) is None
    produced = behind.ask(ClassicProduce(partitions=[ClassicProducePartition("a", 0, memoryview(b""))]))
    assert produced.partitions[0].error.value == 3


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda faults: faults.error("Prodce", 6), r"unknown API 'Prodce'; did you mean Produce"),
        (lambda faults: faults.error("describegrop", 6), r"did you mean DescribeGroups"),
        (lambda faults: faults.error("Qqq", 6), "unknown API 'Qqq'; known: .*Fetch.*Produce"),
        (lambda faults: faults.error("Request", 6), "unknown API"),
        (lambda faults: faults.drop(999), "no API has the key 999; known: 0 Produce, 1 Fetch"),
        (lambda faults: faults.error("Produce", "NOT_LEADER"), "did you mean NOT_LEADER_OR_FOLLOWER"),
        (lambda faults: faults.error("Produce", 4711), "there is no error code 4711"),
        (lambda faults: faults.error("Produce", 0), "NONE is not an error"),
        (lambda faults: faults.error("Heartbeat", 25, topic="a"), "Heartbeat is not about topics"),
        (lambda faults: faults.error("CreateTopics", 36, partition=0), "CreateTopics is not about partitions"),
        (lambda faults: faults.delay("Produce", 10, group="g"), "Produce is not about groups"),
        (lambda faults: faults.delay("Produce", -1), "a delay of -1 ms"),
        (lambda faults: faults.drop("Produce", times=0), "times=0"),
        (lambda faults: faults.drop("Produce", times="2"), "times='2'"),
        (lambda faults: faults.drop("Produce", topic=7), "topic=7"),
        (lambda faults: faults.drop("Produce", partition="0"), "partition='0'"),
        (lambda faults: faults.delay("Produce", "soon"), "'soon'"),
        (lambda faults: faults.drop("Produce", when="now"), "when='now'"),
    ],
)
def test_invalid_fault_shape_is_an_error(make: Callable[[Faults], Fault], text: str) -> None:
    faults = Faults(lambda callback: callback())
    with pytest.raises(ConfigError, match=text):
        make(faults)
    assert faults.active == ()


def test_ways_to_name_an_api() -> None:
    assert {request_type(each) for each in ("Produce", "produce", "PRODUCE", "ProduceRequest", 0, Produce)} == {Produce}
    assert request_type("incremental_alter_configs") is IncrementalAlterConfigs
