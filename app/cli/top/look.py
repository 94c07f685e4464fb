"""A snapshot of a cluster: `top` requests only what the open tab shows."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..cluster.status import NO_NODE, ClusterAnswers, ClusterStatus, ask_cluster

if TYPE_CHECKING:
    from ....ports.broker_api.groups import ListedGroup
    from ...clients.admin.admin import Admin

Tab = Literal["brokers", "topics", "groups"]
GROUPS_MAX = 20
"""Maximum number of groups whose lag one snapshot requests, the oldest lags first."""


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
    """`members` and `lag` (messages, approximate) are None until they are known, or when a request failed."""

    name: str
    state: str
    members: int | None = None
    topics: Sequence[str] = ()
    lag: int | None = None


@frozen(kw_only=True)
class Look:
    """`topics` and `groups` are None when they were not requested. `problem`: a partial failure.

    at_s: seconds of a monotonic clock.
    """

    at_s: float
    status: ClusterStatus
    topics: Sequence[TopicFigures] | None = None
    groups: Sequence[GroupFigures] | None = None
    problem: str = ""
    shows_internal: bool = False


class Looker:
    """Takes snapshots; remembers the groups of earlier ones."""

    def __init__(self, admin: Admin, *, internal: bool) -> None:
        self._admin = admin
        self._internal = internal
        self._known: dict[str, GroupFigures] = {}
        """Known groups, the oldest first."""

    def take_snapshot(self, tabs: Iterable[Tab]) -> Look:
        """Request what the tabs show. Raises `BarnabasError` when the cluster does not answer."""
        wanted = set(tabs)
        answers = ask_cluster(self._admin)
        at_s = time.monotonic()
        problem, ends = "", dict[TopicPartition, int]()
        if wanted & {"topics", "groups"}:
            try:
                ends = self._admin.list_offsets(dict.fromkeys(_led(answers), "latest"))
            except BarnabasError as error:  # a leader moves, a topic is deleted: the rest is still useful
                problem = str(error)
        groups = None
        if "groups" in wanted:
            try:
                groups = self._groups(ends)
            except BarnabasError as error:  # the coordinator is down
                problem = str(error)
        return Look(
            at_s=at_s,
            status=answers.status,
            topics=figures_of(answers, ends, internal=self._internal) if "topics" in wanted else None,
            groups=groups,
            problem=problem,
            shows_internal=self._internal,
        )

    def _groups(self, ends: Mapping[TopicPartition, int]) -> list[GroupFigures]:
        listed = {group.group_id: group for group in self._admin.list_groups()}
        for name in self._known.keys() - listed.keys():
            del self._known[name]
        news = [name for name in listed if name not in self._known]
        for name in [*news, *self._known][:GROUPS_MAX]:
            self._known.pop(name, None)
            self._known[name] = self._group(listed[name], ends)
        return [self._known.get(name) or _only_listed(group) for name, group in listed.items()]

    def _group(self, group: ListedGroup, ends: Mapping[TopicPartition, int]) -> GroupFigures:
        try:
            committed = self._admin.group_offsets(group.group_id)
            (details,) = self._admin.describe_groups([group.group_id])
        except BarnabasError:  # shown as unknown; the next snapshot retries
            return _only_listed(group)
        return GroupFigures(
            name=group.group_id,
            state=details.state,
            members=len(details.members),
            topics=sorted({place.topic for place in committed}),
            lag=lag_of({place: each.offset for place, each in committed.items()}, ends),
        )


def lag_of(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the total lag in messages; None when that of a partition is unknown."""
    if any(place not in ends for place in committed):
        return None
    return sum(max(0, ends[place] - offset) for place, offset in committed.items())


def figures_of(answers: ClusterAnswers, ends: Mapping[TopicPartition, int], *, internal: bool) -> list[TopicFigures]:
    """Return the figures of each topic, by name. `ends`: end offsets of partitions, as far as known."""
    sizes = {
        (broker, replica.topic, replica.partition): replica.size_bytes
        for broker, folders in answers.folders.items()
        for folder in folders
        for replica in folder.replicas
        if not replica.is_future
    }
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


def _only_listed(group: ListedGroup) -> GroupFigures:
    return GroupFigures(name=group.group_id, state=group.state or "-")
