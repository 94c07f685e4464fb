"""A snapshot of a cluster: `top` requests only what the open tab shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..cluster.status import NO_NODE, ClusterAnswers, ClusterStatus, ask_cluster

if TYPE_CHECKING:
    from ....ports.broker_api.cluster import ConnectionDescription
    from ....ports.broker_api.share_partitions import SharePartitionDescription
    from ...clients.admin.admin import Admin
    from ...clients.admin.consumer_lag import GroupSummary
    from ...clients.admin.group_details import GroupLag, MemberDetails

Tab = Literal["brokers", "topics", "groups"]
CONNECTIONS_MAX = 500
"""The most connections of an open broker that are shown, the oldest ones."""


@frozen(kw_only=True)
class PartitionFigures:
    """`end`: the end offset; `bytes`: the size of the leader's log. None: unknown."""

    topic: str
    partition: int
    leader: int
    replicas: Sequence[int]
    isr: Sequence[int]
    end: int | None
    bytes: int | None

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@frozen(kw_only=True)
class TopicFigures:
    """`end`: sum of the end offsets of its partitions; `bytes`: size of their leaders' logs. None: unknown."""

    name: str
    partitions: int
    end: int | None
    bytes: int | None
    trouble: str = ""


@frozen(kw_only=True)
class GroupFigures:
    """`members` and `lag` (messages, approximate) are None if they are unknown."""

    name: str
    state: str
    type: str = "classic"
    members: int | None = None
    topics: Sequence[str] = ()
    lag: int | None = None


@frozen(kw_only=True)
class GroupDetail:
    """An open group: its members, its lag in each partition, and what a share group has in flight, if it is known."""

    name: str
    exists: bool
    type: str = "classic"
    members: Sequence[MemberDetails] = ()
    partitions: Mapping[TopicPartition, GroupLag] = attrs.field(factory=dict)
    in_flight: Mapping[TopicPartition, SharePartitionDescription] = attrs.field(factory=dict)


@frozen(kw_only=True)
class BrokerDetail:
    """An open broker: its connections."""

    name: str
    connections: Sequence[ConnectionDescription] = ()


@frozen(kw_only=True)
class Look:
    """`topics`, `partitions` and `groups` are None when they were not requested, `detail` without an open group or
    broker. `problem`: a partial failure.

    at_s: seconds of a monotonic clock; at_ms: milliseconds since 1970.
    """

    at_s: float
    status: ClusterStatus
    topics: Sequence[TopicFigures] | None = None
    partitions: Sequence[PartitionFigures] | None = None
    groups: Sequence[GroupFigures] | None = None
    detail: GroupDetail | BrokerDetail | None = None
    problem: str = ""
    shows_internal: bool = False
    at_ms: int = 0


class Looker:
    """Takes snapshots."""

    def __init__(self, admin: Admin, *, internal: bool) -> None:
        self._admin = admin
        self._internal = internal

    def take_snapshot(self, tabs: Iterable[Tab], opened: str | None = None) -> Look:
        """Request what the tabs show, and the details of the open group or broker.

        Raises `BarnabasError` when the cluster does not answer.
        """
        wanted = set(tabs)
        answers = ask_cluster(self._admin)
        at_s, at_ms = time.monotonic(), time.time_ns() // 1_000_000
        problem, ends = "", dict[TopicPartition, int]()
        if "topics" in wanted:
            try:
                ends = self._admin.list_offsets(dict.fromkeys(_led(answers), "latest"))
            except BarnabasError as error:  # a leader moves, a topic is deleted: the rest is still useful
                problem = str(error)
        groups: list[GroupFigures] | None = None
        detail: GroupDetail | BrokerDetail | None = None
        try:
            if "groups" in wanted:
                groups = [_group_figures(group) for group in self._admin.list_group_lags(times=False)]
                detail = None if opened is None else self._group_detail(opened)
            if wanted == {"brokers"} and opened is not None:
                detail = self._broker_detail(opened)
        except BarnabasError as error:  # the coordinator is down, Kafka describes no connections
            problem = str(error)
        with_topics = "topics" in wanted
        return Look(
            at_s=at_s,
            status=answers.status,
            topics=figures_of(answers, ends, internal=self._internal) if with_topics else None,
            partitions=partitions_of(answers, ends, internal=self._internal) if with_topics else None,
            groups=groups,
            detail=detail,
            problem=problem,
            shows_internal=self._internal,
            at_ms=at_ms,
        )

    def _group_detail(self, name: str) -> GroupDetail:
        (group,) = self._admin.describe_groups([name])
        if not group.exists:
            return GroupDetail(name=name, exists=False)
        lags = self._admin.group_lag(name, times=True)
        in_flight: Mapping[TopicPartition, SharePartitionDescription] = {}
        if group.type == "share":
            try:
                in_flight = self._admin.describe_share_partitions(name)
            except ApiError as error:
                if error.code is not ErrorCode.UNSUPPORTED_VERSION:  # the answer of Kafka's brokers
                    raise
        return GroupDetail(
            name=name, exists=True, type=group.type, members=group.members, partitions=lags, in_flight=in_flight
        )

    def _broker_detail(self, name: str) -> BrokerDetail:
        connections = self._admin.describe_connections([int(name)], limit=CONNECTIONS_MAX)[int(name)]
        return BrokerDetail(name=name, connections=connections)


def partitions_of(
    answers: ClusterAnswers, ends: Mapping[TopicPartition, int], *, internal: bool
) -> list[PartitionFigures]:
    """Return the figures of each partition, by topic and number. `ends`: end offsets, as far as known."""
    sizes = _sizes(answers)
    return [
        PartitionFigures(
            topic=str(topic.name),
            partition=p.partition,
            leader=p.leader,
            replicas=tuple(p.replicas),
            isr=tuple(p.isr),
            end=ends.get(TopicPartition(str(topic.name), p.partition)),
            bytes=sizes.get((p.leader, str(topic.name), p.partition)),
        )
        for topic in sorted(answers.topics, key=lambda topic: str(topic.name))
        if internal or not topic.internal
        for p in sorted(topic.partitions, key=lambda p: p.partition)
    ]


def _sizes(answers: ClusterAnswers) -> dict[tuple[int, str, int], int]:
    """Return the bytes of each replica by (broker, topic, partition)."""
    return {
        (broker, replica.topic, replica.partition): replica.size_bytes
        for broker, folders in answers.folders.items()
        for folder in folders
        for replica in folder.replicas
        if not replica.is_future
    }


def figures_of(answers: ClusterAnswers, ends: Mapping[TopicPartition, int], *, internal: bool) -> list[TopicFigures]:
    """Return the figures of each topic, by name. `ends`: end offsets of partitions, as far as known."""
    sizes = _sizes(answers)
    found = []
    for topic in sorted(answers.topics, key=lambda topic: str(topic.name)):
        if topic.internal and not internal:
            continue
        name = str(topic.name)
        offline = sum(p.leader == NO_NODE for p in topic.partitions)
        behind = sum(len(p.isr) < len(p.replicas) for p in topic.partitions) - offline
        words = ((offline, "offline"), (behind, "under-replicated"))
        found.append(
            TopicFigures(
                name=name,
                partitions=len(topic.partitions),
                end=_sum(ends.get(TopicPartition(name, p.partition)) for p in topic.partitions),
                bytes=_sum(sizes.get((p.leader, name, p.partition)) for p in topic.partitions),
                trouble=", ".join(f"{number} {word}" for number, word in words if number > 0),
            )
        )
    return found


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _led(answers: ClusterAnswers) -> list[TopicPartition]:
    return [
        TopicPartition(str(topic.name), p.partition)
        for topic in answers.topics
        for p in topic.partitions
        if p.leader != NO_NODE
    ]


def _group_figures(group: GroupSummary) -> GroupFigures:
    return GroupFigures(
        name=group.group_id,
        state=group.state or "-",
        type=group.type,
        members=group.members,
        topics=group.topics,
        lag=group.lag,
    )
