"""Share groups: the requests to their group coordinator (KIP-932)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ....core.cluster.features import SHARE_VERSION
from ....core.coordinator.group.coordinator import GroupCoordinator
from ....core.coordinator.group.group import GroupType
from ....core.coordinator.group.states import SHARE_STATES
from ....ports.broker_api.envelope import Caller, Reply, Request
from ....ports.broker_api.offsets import LATEST, ListOffsets, ListOffsetsPartition
from ....ports.broker_api.share_group_offsets import (
    AlterShareGroupOffsets,
    DeleteShareGroupOffsets,
    DescribeShareGroupOffsets,
)
from ....ports.broker_api.share_groups import ShareGroupDescribe, ShareGroupHeartbeat
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..state.broker_state import BrokerState

_NOT_ENABLED = "The share group protocol is not enabled (share.version)."

Ends = dict[TopicPartition, int]


def share_group_handlers(
    state: BrokerState, coordinator: GroupCoordinator
) -> Mapping[type[Request[Any]], Callable[[Any, Caller, Any], None]]:
    """Return the handlers of share groups by the type of the request."""
    groups = coordinator.share_groups
    if groups is None:
        return {}
    _register_gauges(state, coordinator)
    handlers: dict[type[Request[Any]], Callable[[Any, Caller, Any], None]] = {
        ShareGroupHeartbeat: groups.heartbeat,
        ShareGroupDescribe: groups.describe,
        DescribeShareGroupOffsets: groups.describe_offsets,
        AlterShareGroupOffsets: groups.alter_offsets,
        DeleteShareGroupOffsets: groups.delete_offsets,
    }
    return {kind: _offered(state, handle) for kind, handle in handlers.items()}


def _offered(state: BrokerState, handle: Callable[[Any, Caller, Any], None]) -> Callable[[Any, Caller, Any], None]:
    """Return the handler of a request that is offered where the cluster has share groups."""

    def handle_if_offered(request: Request[Any], caller: Caller, reply: Reply[Any]) -> None:
        if state.image.features.level(SHARE_VERSION) < 1:
            reply(request.failed(ApiError(ErrorCode.UNSUPPORTED_VERSION, _NOT_ENABLED)))
        else:
            handle(request, caller, reply)

    return handle_if_offered


def _register_gauges(state: BrokerState, coordinator: GroupCoordinator) -> None:
    """Register the gauges by Kafka's names (group-coordinator-metrics)."""
    for group_state in SHARE_STATES:
        state.metrics.gauge(
            "kafka_server_group_coordinator_metrics_share_group_count",
            "Share groups, by their state.",
            partial(coordinator.group_count, group_state, GroupType.SHARE),
            state=group_state.value.lower(),
        )


class PartitionEnds:
    """Finds the ends of partitions, here or at the brokers that lead them. Owner thread only."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state

    def find(self, topic_partitions: Sequence[TopicPartition], done: Callable[[Ends], None]) -> None:
        """Call `done` with the ends that are known, once all asked leaders have answered."""
        ends: Ends = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for tp in topic_partitions:
            leader = self._state.image.state(tp).leader
            replica = self._state.replicas.partitions.get(tp)
            if leader == self._state.node_id and replica is not None:
                ends[tp] = replica.high_watermark
            elif leader >= 0 and self._state.ask is not None:
                elsewhere.setdefault(leader, []).append(tp)
        left = len(elsewhere)
        if not left:
            done(ends)

        def answered(result: Any) -> None:
            nonlocal left
            left -= 1
            for each in getattr(result, "partitions", ()):
                if each.error is ErrorCode.NONE:
                    ends[TopicPartition(each.topic, each.partition)] = each.offset
            if not left:
                done(ends)

        for leader, some in elsewhere.items():
            assert self._state.ask is not None
            request = ListOffsets(
                partitions=[ListOffsetsPartition(topic=t, partition=p, timestamp=LATEST) for t, p in some]
            )
            self._state.ask(leader, request, answered)
