"""`Admin`: the cluster, its brokers, and the placement of partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ....core.client.calls import Target
from ....ports.broker_api.cluster import DescribeCluster, DescribeClusterResult, DescribeLogDirs, LogDirDescription
from ....ports.broker_api.replicas import (
    AlterPartitionReassignments,
    AlterPartitionReassignmentsResult,
    ElectionType,
    ElectLeaders,
    ElectLeadersResult,
    ListPartitionReassignments,
    ListPartitionReassignmentsResult,
    OngoingReassignment,
    Reassignment,
)
from ....ports.error_codes import ErrorCode
from ....ports.types import TopicPartition
from .asker import AdminRequests, Place, check

PlaceT = TypeVar("PlaceT", bound=Place)


class ClusterAdmin:
    """Describes brokers and log folders; requests elections and reassignments."""

    def __init__(self, asker: AdminRequests) -> None:
        self._asker = asker

    def describe_cluster(self) -> DescribeClusterResult:
        """Return cluster id, controller and brokers. Raises `ApiError`."""
        result: DescribeClusterResult = self._asker.shell.ask(DescribeCluster())
        check(result.error, result.error_message, "cluster")
        return result

    def describe_log_dirs(
        self,
        brokers: Sequence[int] | None = None,
        topics: Mapping[str, Sequence[int]] | None = None,
    ) -> dict[int, Sequence[LogDirDescription]]:
        """Return broker id → its data folders with their replicas (None: all brokers, all topics).

        Raises `ApiError`, `ConfigError` for a broker that does not exist.
        """
        ids = [broker.node_id for broker in self._asker.brokers()] if brokers is None else brokers
        described = {}
        for node in ids:
            self._asker.know(node)
            result = self._asker.shell.ask(DescribeLogDirs(topics=topics), node)
            check(result.error, None, f"broker {node}")
            described[node] = result.log_dirs
        return described

    def elect_leaders(
        self, places: Iterable[Place] | None = None, kind: ElectionType = ElectionType.PREFERRED
    ) -> list[TopicPartition]:
        """Elect the preferred leaders of partitions (None: all that need it), or any replicas (UNCLEAN: may lose data).

        Returns the partitions with a new leader; the others needed no election. Raises the first `ApiError`.
        """
        topics = None if places is None else _by_topic(places)
        request = ElectLeaders(topics=topics, election_type=kind, timeout_ms=self._asker.settings.request_timeout_ms)
        result: ElectLeadersResult = self._asker.shell.ask(request, Target.CONTROLLER, retriable=_not_controller)
        check(result.error, None, "an election")
        elected = [change for change in result.partitions if change.error is not ErrorCode.ELECTION_NOT_NEEDED]
        for change in elected:
            check(change.error, change.error_message, f"{change.topic}-{change.partition}")
        return [TopicPartition(change.topic, change.partition) for change in elected]

    def reassign_partitions(self, replicas: Mapping[PlaceT, Sequence[int] | None]) -> None:
        """Begin to move partitions to these brokers, the preferred leader first; None cancels an ongoing reassignment.

        Raises the first `ApiError` (INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, ...).
        """
        wanted = [Reassignment(topic=p[0], partition=p[1], replicas=brokers) for p, brokers in replicas.items()]
        request = AlterPartitionReassignments(partitions=wanted, timeout_ms=self._asker.settings.request_timeout_ms)
        result: AlterPartitionReassignmentsResult = self._asker.shell.ask(
            request, Target.CONTROLLER, retriable=_not_controller
        )
        check(result.error, result.error_message, "a reassignment")
        for change in result.partitions:
            check(change.error, change.error_message, f"{change.topic}-{change.partition}")

    def list_reassignments(self, places: Iterable[Place] | None = None) -> list[OngoingReassignment]:
        """Return the ongoing reassignments of these partitions, or of all (None). Raises `ApiError`."""
        topics = None if places is None else _by_topic(places)
        request = ListPartitionReassignments(topics=topics, timeout_ms=self._asker.settings.request_timeout_ms)
        result: ListPartitionReassignmentsResult = self._asker.shell.ask(
            request, Target.CONTROLLER, retriable=_not_controller
        )
        check(result.error, result.error_message, "reassignments")
        return list(result.partitions)


def _by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics


def _not_controller(result: Any) -> ErrorCode:
    return ErrorCode.NOT_CONTROLLER if result.error is ErrorCode.NOT_CONTROLLER else ErrorCode.NONE
