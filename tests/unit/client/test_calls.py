"""Requests that are asked until there is an answer."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.plain_cluster import ManualDriver, PlainCluster

from barnabas.core.client.calls import Calls, CoordinatorOf, Destination, LeaderCall, NodeCall, Target
from barnabas.core.client.cluster_view import COORDINATORS, ClusterView, ViewSettings
from barnabas.core.client.errors import ClientTimeout
from barnabas.ports.broker_api.groups import Coordinator, FindCoordinator, FindCoordinatorResult
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult
from barnabas.ports.broker_api.offsets import (
    LATEST,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ClosedError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

ASK = Metadata(topics=[], allow_auto_topic_creation=False)


class Bench(ManualDriver):
    def __init__(self, cluster: PlainCluster) -> None:
        super().__init__(cluster)
        self.view = ClusterView([("bootstrap", 1)], self.entropy, ViewSettings())
        self.calls = Calls(self.view, self.entropy, retry_backoff_ms=100, retry_backoff_max_ms=1000)
        self.parts = [self.calls, self.view]

    def ask(self, target: Destination, timeout_ms: float = 10_000, **more: Any) -> Any:
        box: list[Any] = []
        self.calls.add(NodeCall(request=ASK, target=target, done=box.append, deadline_ms=self.now + timeout_ms, **more))
        self.run(lambda: bool(box))
        return box[0]

    def ends(self, *topic_partitions: TopicPartition, timeout_ms: float = 10_000, **more: Any) -> list[Any]:
        box: list[Any] = []

        def build(group: Sequence[TopicPartition]) -> ListOffsets:
            return ListOffsets(
                partitions=[ListOffsetsPartition(topic=t, partition=p, timestamp=LATEST) for t, p in group]
            )

        def outcomes(result: ListOffsetsResult) -> list[tuple[ErrorCode, Any]]:
            return [(p.error, p.offset) for p in result.partitions]

        call = LeaderCall(
            items=topic_partitions,
            partition_of=lambda tp: tp,
            build=build,
            outcomes=outcomes,
            done=box.append,
            deadline_ms=self.now + timeout_ms,
            **more,
        )
        self.calls.add(call)
        self.run(lambda: bool(box))
        return [box[0][index] for index in range(len(topic_partitions))]


def test_any_broker_the_controller_and_one_by_number() -> None:
    bench = Bench(PlainCluster(brokers=3))
    for target in (Target.ANY, Target.CONTROLLER, 3):
        assert isinstance(bench.ask(target), MetadataResult)
    assert bench.cluster.requests[-1] == (3, ASK)


def test_a_lost_connection_is_tried_again_elsewhere() -> None:
    bench = Bench(PlainCluster())
    bench.cluster.once(Metadata, TransportError("lost"))
    assert isinstance(bench.ask(Target.ANY), MetadataResult)


def test_a_refusal_of_the_whole_request_is_the_answer() -> None:
    bench = Bench(PlainCluster())
    bench.cluster.once(Metadata, ApiError(ErrorCode.UNSUPPORTED_VERSION, "old"))
    assert isinstance(bench.ask(Target.ANY), ApiError)
    assert len(bench.cluster.requests) == 1


def test_call_to_unreachable_cluster_times_out_with_reason() -> None:
    bench = Bench(PlainCluster())
    bench.cluster.script(lambda broker, request: TransportError("refused"))
    answer = bench.ask(Target.CONTROLLER, timeout_ms=2000)
    assert isinstance(answer, ClientTimeout)
    assert "refused" in str(answer)
    assert bench.now == 2000


def test_a_result_that_may_pass_is_asked_for_again() -> None:
    bench = Bench(PlainCluster())
    seen: list[Any] = []

    def retriable(result: Any) -> ErrorCode:
        seen.append(result)
        return ErrorCode.NOT_CONTROLLER if len(seen) < 3 else ErrorCode.NONE

    bench.ask(Target.ANY, retriable=retriable)
    assert len(seen) == 3


def test_a_result_that_stays_bad_is_handed_over_at_the_deadline() -> None:
    bench = Bench(PlainCluster())
    assert isinstance(bench.ask(Target.ANY, 500, retriable=lambda _: ErrorCode.NOT_CONTROLLER), MetadataResult)


def test_each_leader_is_asked_for_its_partitions() -> None:
    bench = Bench(PlainCluster(brokers=2, t=3))
    bench.cluster.starts = {TopicPartition("t", p): 10 + p for p in range(3)}
    partitions = [TopicPartition("t", p) for p in (2, 0, 1)]
    assert bench.ends(*partitions) == [12, 10, 11]
    assert sorted(len(r.partitions) for r in bench.cluster.of(ListOffsets)) == [1, 2]


def test_only_what_failed_is_asked_again() -> None:
    bench = Bench(PlainCluster(t=2))
    first = ListOffsetsResult(
        partitions=[
            ListOffsetsResultPartition(topic="t", partition=0, offset=7),
            ListOffsetsResultPartition(topic="t", partition=1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ]
    )
    bench.cluster.once(ListOffsets, first)
    assert bench.ends(TopicPartition("t", 0), TopicPartition("t", 1)) == [7, 0]
    assert [p.partition for p in bench.cluster.of(ListOffsets)[-1].partitions] == [1]


def test_a_partition_beyond_the_last_fails_alone() -> None:
    bench = Bench(PlainCluster(t=1))
    good, bad = bench.ends(TopicPartition("t", 0), TopicPartition("t", 5))
    assert good == 0
    assert isinstance(bad, ApiError)
    assert bad.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_was_added_since_is_found() -> None:
    bench = Bench(PlainCluster(t=1))
    assert bench.ends(TopicPartition("t", 0)) == [0]
    bench.cluster.topics["t"] = 2
    assert bench.ends(TopicPartition("t", 1)) == [0]


def test_call_for_unknown_topic_waits_for_timeout_then_fails() -> None:
    bench = Bench(PlainCluster())
    (answer,) = bench.ends(TopicPartition("nowhere", 0), timeout_ms=1500)
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.now == 1500


def test_retries_can_be_bounded() -> None:
    bench = Bench(PlainCluster(t=1))
    bench.cluster.script(lambda b, r: TransportError("lost") if isinstance(r, ListOffsets) else None)
    (answer,) = bench.ends(TopicPartition("t", 0), retries_max=1)
    assert len(bench.cluster.of(ListOffsets)) == 2
    assert "lost" in str(answer)


def test_answer_without_items_to_a_throttled_client_is_asked_for_again() -> None:
    bench = Bench(PlainCluster(t=1))
    found: list[Any] = [[], [(ErrorCode.NONE, "fetched")]]
    box: list[Any] = []
    call = LeaderCall(
        items=[TopicPartition("t", 0)],
        partition_of=lambda item: item,
        build=lambda items: Metadata(topics=None),
        outcomes=lambda result: found.pop(0),
        done=box.append,
        deadline_ms=bench.now + 60_000,
        retries_max=5,
    )
    bench.calls.add(call)
    bench.run(lambda: bool(box))
    assert box == [{0: "fetched"}]


def test_closing_fails_what_is_open() -> None:
    bench = Bench(PlainCluster())
    box: list[Any] = []
    bench.calls.add(NodeCall(request=ASK, target=Target.ANY, done=box.append, deadline_ms=1000))
    bench.calls.fail_all(ClosedError("closed"))
    assert isinstance(box[0], ClosedError)


def coordinated(bench: Bench, *brokers: int) -> None:
    """Let the broker of each FindCoordinator in turn be the coordinator; the last one for good."""
    left = list(brokers)

    def answer(_: int, request: Any) -> Any:
        if not isinstance(request, FindCoordinator):
            return None
        broker = left.pop(0) if len(left) > 1 else left[0]
        found = Coordinator(key=request.keys[0], node_id=broker, host=f"broker-{broker}", port=9092)
        return FindCoordinatorResult(coordinators=[found])

    bench.cluster.script(answer)


def test_the_coordinator_of_a_group_is_looked_for_once() -> None:
    bench = Bench(PlainCluster(brokers=3))
    coordinated(bench, 2)
    for _ in range(2):
        assert isinstance(bench.ask(CoordinatorOf("g")), MetadataResult)
    assert [broker for broker, request in bench.cluster.requests if request is ASK] == [COORDINATORS + 2] * 2
    assert [request.keys for request in bench.cluster.of(FindCoordinator)] == [["g"]]


def test_moved_coordinator_is_looked_up_again() -> None:
    bench = Bench(PlainCluster(brokers=3))
    coordinated(bench, 2, 3, 1)
    moved = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    bench.ask(CoordinatorOf("g"), retriable=lambda _: moved.pop() if moved else ErrorCode.NONE)
    asked = [broker for broker, request in bench.cluster.requests if request is ASK]
    assert asked == [COORDINATORS + 2, COORDINATORS + 3, COORDINATORS + 1]


def test_a_coordinator_that_cannot_be_reached_is_looked_for_again() -> None:
    bench = Bench(PlainCluster(brokers=3))
    coordinated(bench, 2, 3)
    bench.cluster.script(lambda broker, _: TransportError("lost") if broker == COORDINATORS + 2 else None)
    assert isinstance(bench.ask(CoordinatorOf("g")), MetadataResult)


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    bench = Bench(PlainCluster())
    coordinated(bench, 1)
    absent = Coordinator(key="g", error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.cluster.once(FindCoordinator, FindCoordinatorResult(coordinators=[absent]))
    assert isinstance(bench.ask(CoordinatorOf("g")), MetadataResult)
    bench.cluster.once(FindCoordinator, FindCoordinatorResult(coordinators=[]))
    assert isinstance(bench.ask(CoordinatorOf("i")), MetadataResult)
    forbidden = Coordinator(key="h", error=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="not you")
    bench.cluster.once(FindCoordinator, FindCoordinatorResult(coordinators=[forbidden]))
    answer = bench.ask(CoordinatorOf("h"))
    assert isinstance(answer, ApiError)
    assert (answer.code, answer.message) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, "not you")


def test_coordinator_cache_evicts_oldest_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.core.client.calls.COORDINATORS_MAX", 3)
    bench = Bench(PlainCluster())
    coordinated(bench, 1)
    for number in range(10):
        assert isinstance(bench.ask(CoordinatorOf(f"g{number}")), MetadataResult)
    asked = len(bench.cluster.of(FindCoordinator))
    assert isinstance(bench.ask(CoordinatorOf("g9")), MetadataResult)
    assert len(bench.cluster.of(FindCoordinator)) == asked, "the newest are"
    assert len(bench.calls._coordinators) == 3


def test_a_coordinator_that_never_comes() -> None:
    bench = Bench(PlainCluster())
    absent = Coordinator(key="g", error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.cluster.script(
        lambda _, request: (
            FindCoordinatorResult(coordinators=[absent]) if isinstance(request, FindCoordinator) else None
        )
    )
    answer = bench.ask(CoordinatorOf("g"), 500)
    assert isinstance(answer, ApiError)
    assert answer.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
