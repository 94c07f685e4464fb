"""The common part of consumer groups (KIP-848) and share groups (KIP-932): Kafka's `ModernGroup`.

Every change of the members, of their subscriptions or of the subscribed topics raises the group epoch. A target
assignment is computed for the newest group epoch, at most once in the assignment interval, and each member moves to it
with its own heartbeats. A heartbeat that changes nothing takes the same short time however large the group is.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import IntEnum
from math import inf
from struct import pack
from typing import Generic, Protocol, TypeVar

from attrs import field

from ....ports.broker_api.consumer_groups import DescribedTopicPartitions, TopicIdPartitions
from ....ports.broker_api.envelope import Caller
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.values import define
from ..log import Record
from .assignors import (
    GroupSpec,
    MemberSubscriptionAndAssignment,
    PartitionAssignor,
    Partitions,
    SubscribedTopicDescriber,
)
from .classic_group import Causes
from .config import GroupCoordinatorConfig
from .deadlines import Deadlines
from .effects import Answer, Effects, WriteRecords
from .group import GroupType
from .group_config import GroupConfig, GroupConfigManager
from .member import MEMBER_BYTES
from .states import GroupState

NO_PARTITIONS: Partitions = {}


class TopicsView(SubscribedTopicDescriber, Protocol):
    """The topics of the cluster, as this broker knows them now."""

    @property
    def version(self) -> int:
        """A number that grows when a topic is created, deleted or gets partitions."""
        ...

    def topic_id(self, name: str) -> bytes | None:
        """Return the id of the topic with this name, or None."""
        ...

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id, or None."""
        ...

    def names(self) -> AbstractSet[str]:
        """Return the names of all topics that are not internal; the same object until `version` grows."""
        ...


@define(kw_only=True)
class GroupContext:
    """The settings of all modern groups of a coordinator, and the topics, which classic groups look at, too."""

    config: GroupCoordinatorConfig
    configs: GroupConfigManager
    topics: TopicsView
    assignors: Mapping[str, PartitionAssignor]
    """By name, the default one first."""

    def num_partitions(self, topic: str) -> int:
        """Return the number of partitions of the topic with this name, -1 without one."""
        topic_id = self.topics.topic_id(topic)
        return -1 if topic_id is None else self.topics.num_partitions(topic_id)


class MemberState(IntEnum):
    """The state of a member; the numbers are those of its record (Kafka's `MemberState`)."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """The member has not confirmed yet that it has given up partitions; its epoch stays meanwhile."""
    UNRELEASED_PARTITIONS = 2
    """Partitions of the member's target still belong to other members."""
    UNKNOWN = 127


class RecordKind(IntEnum):
    """The kinds of a group's records. The numbers are of no type of group: see `ModernGroup.record`."""

    MEMBER = 0
    EPOCH = 1
    TARGET = 2
    TARGET_EPOCH = 3
    CURRENT = 4
    OTHER = 5
    EXPRESSION = 6


RecordKey = tuple[int, str]
"""The kind and, for records of one member or expression, the member id or the expression."""


class Timeout(IntEnum):
    """The purpose of a deadline."""

    SESSION = 0
    REBALANCE = 1
    """The member must have given up its partitions by then."""
    WRITE = 2
    """Records whose append failed are written again."""
    STATE = 3
    """Calls of the share coordinator that failed are tried again."""


_WRITE_AGAIN = (Timeout.WRITE, "")
_WRITE_AGAIN_MS = 1000.0


@define(kw_only=True, eq=False)
class ModernMember:
    """One member; its changes go through the group."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    size_bytes: int = field(default=0, init=False)
    """The memory of the member, as counted so far."""
    knows_assignment: bool = field(default=True, init=False)
    """False while the member has not been sent its present assignment."""

    @property
    def name(self) -> str:
        """The name of the member in the broker's log."""
        return f"{self.member_id} at {self.client_host.lstrip('/')}"

    @property
    def instance_id(self) -> str | None:
        """The name of a static member; only consumer groups have such."""
        return None

    def take_client(self, caller: Caller) -> bool:
        """Note the client; return True if it is another one."""
        client = caller.client_id or "", f"/{caller.host}"
        if client == (self.client_id, self.client_host):
            return False
        self.client_id, self.client_host = client
        return True


MemberT = TypeVar("MemberT", bound=ModernMember)


class ModernGroup(ABC, Generic[MemberT]):
    """The members, epochs and target assignment of one group. Owner thread only.

    Changes note the records to write in `_unwritten`, and an event ends with `_finish`, which makes one write of them.
    """

    def __init__(self, group_id: str, context: GroupContext) -> None:
        self.group_id = group_id
        self.config = context.config
        self.group_epoch = 0
        self.target_epoch = 0
        """The group epoch for which the target assignment was computed; Kafka's assignment epoch."""
        self.target: dict[str, Partitions] = {}
        """The target of each member, by member id."""
        self.target_timestamp_ms = 0
        """The wall-clock time of the target assignment; 0 = none was computed."""
        self.members: dict[str, MemberT] = {}
        self.metadata_hash = 0
        self.causes = Causes()
        self._context = context
        self._subscribers: Counter[str] = Counter()
        self._deadlines = Deadlines()
        self._unreconciled: set[str] = set()
        """The members that have not reached the target of `target_epoch`."""
        self._unwritten: dict[RecordKey, None] = {}
        self._topics_version = -1
        self._assigned_ms = -inf
        self._is_dead = False
        self._size_bytes = 0

    # --- for each type

    @property
    @abstractmethod
    def group_type(self) -> GroupType: ...

    @property
    @abstractmethod
    def _assignment_interval_ms(self) -> int: ...

    @property
    @abstractmethod
    def _session_timeout_ms(self) -> int: ...

    @abstractmethod
    def _assignor(self) -> PartitionAssignor:
        """Return the assignor for the present members."""

    @abstractmethod
    def _record(self, key: RecordKey) -> Record:
        """Encode the record as the group is now; a tombstone where it has no such member."""

    @abstractmethod
    def _on_due(self, kind: int, member_id: str) -> None:
        """Handle a deadline of a member."""

    def _subscription_of(self, member: MemberT) -> AbstractSet[str]:
        """Return the names of the member's topics."""
        return member.subscribed_topic_names

    def _assignable(self) -> Partitions | None:
        """Return the partitions that may be assigned; None: all."""
        return None

    # --- what others may know

    @property
    def settings(self) -> GroupConfig:
        """The settings of this group."""
        return self._context.configs.get(self.group_id)

    @property
    def state(self) -> GroupState:
        if self._is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.target_epoch:
            return GroupState.ASSIGNING
        return GroupState.RECONCILING if self._unreconciled else GroupState.STABLE

    @property
    def generation(self) -> int:
        return self.target_epoch

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def size_bytes(self) -> int:
        """Return roughly how much memory the members take."""
        return self._size_bytes if self.members else 0

    @property
    def is_unused(self) -> bool:
        return not self.members and not self._is_dead

    @property
    def is_stored(self) -> bool:
        return self.group_epoch > 0

    @property
    def has_unwritten(self) -> bool:
        """True if records are to be written, or to be written once more."""
        return bool(self._unwritten)

    @property
    def next_due_ms(self) -> float | None:
        return self._deadlines.next_ms()

    def subscribed_topics(self) -> AbstractSet[str] | None:
        """Return the topics of all members together."""
        return self._subscribers.keys()

    def _described(self, partitions: Mapping[bytes, Collection[int]]) -> list[DescribedTopicPartitions]:
        """Return partitions as descriptions of groups show them, without topics that are gone."""
        names = ((topic_id, self._context.topics.topic_name(topic_id)) for topic_id in partitions)
        return [
            DescribedTopicPartitions(topic_id, name, sorted(partitions[topic_id]))
            for topic_id, name in names
            if name is not None
        ]

    # --- events

    def tick(self, now_ms: float) -> Effects:
        """Handle the deadlines that are due."""
        for kind, member_id in self._deadlines.due(now_ms):
            if kind != Timeout.WRITE:
                self._on_due(kind, member_id)
        return self._finish()

    def restart_sessions(self, now_ms: float) -> None:
        """Give each member a whole session from now on."""
        for member_id in self.members:
            self._refresh_session(member_id, now_ms)

    def written(self, keys: Iterable[RecordKey], error: ErrorCode, now_ms: float) -> None:
        """Handle the end of an append. Records that may not be in the log are written with the next change, or soon."""
        if error is not ErrorCode.NONE and not self._is_dead:
            self._unwritten = dict.fromkeys([*keys, *self._unwritten])
            self._deadlines.set(_WRITE_AGAIN, now_ms + _WRITE_AGAIN_MS)

    def die(self, error: ErrorCode) -> Effects:  # noqa: ARG002
        """End the group. No request waits here: answers wait for writes, whose end comes."""
        self._is_dead = True
        self.members.clear()
        self._deadlines.clear()
        return []

    # --- the group epoch

    def _raise_epoch(self) -> None:
        self.group_epoch += 1
        self._write(RecordKind.EPOCH)

    def _refresh_metadata(self) -> bool:
        """Compute the metadata hash if topics have changed; return True if it is another one."""
        version = self._context.topics.version
        if version == self._topics_version:
            return False
        self._topics_version = version
        return self._update_metadata_hash()

    def _update_metadata_hash(self) -> bool:
        before, self.metadata_hash = self.metadata_hash, metadata_hash(self._subscribers, self._context.topics)
        return before != self.metadata_hash

    # --- the target assignment

    def _update_target(self, now_ms: float, wall_ms: int) -> None:
        """Compute the target assignment of the group epoch, unless the last one was computed a moment ago."""
        if self.target_epoch >= self.group_epoch or now_ms < self._assigned_ms + self._assignment_interval_ms:
            return
        self.target_timestamp_ms = wall_ms
        if self._subscribers:  # the first topics are assigned at once, also if an expression has to be resolved before
            self._assigned_ms = now_ms
        topics, ids_of = self._context.topics, dict[AbstractSet[str], frozenset[bytes]]()
        specs = {}
        for member in self.members.values():
            names = self._subscription_of(member)
            ids = ids_of.get(names)
            if ids is None:
                found = (topics.topic_id(name) for name in names)
                ids = ids_of[names] = frozenset(topic_id for topic_id in found if topic_id is not None)
            former = self.target.get(member.member_id, NO_PARTITIONS)
            specs[member.member_id] = MemberSubscriptionAndAssignment(ids, former, member.instance_id)
        assigned = self._assignor().assign(GroupSpec(specs, self._assignable()), topics)
        for member_id in specs:
            target = assigned.members.get(member_id, NO_PARTITIONS)
            if self.target.get(member_id) != target:
                self.target[member_id] = target
                self._write(RecordKind.TARGET, member_id)
        self.target_epoch = self.group_epoch
        self._write(RecordKind.TARGET_EPOCH)
        self._unreconciled = set(self.members)

    def _target_of(self, member_id: str) -> Partitions:
        return self.target.get(member_id, NO_PARTITIONS)

    def _note_progress(self, member: MemberT) -> None:
        """Call this after each change of a member's epoch or state."""
        if member.member_epoch == self.target_epoch and member.state is MemberState.STABLE:
            self._unreconciled.discard(member.member_id)
        else:
            self._unreconciled.add(member.member_id)

    # --- members

    def _add_member(self, member: MemberT) -> None:
        self.members[member.member_id] = member
        self._count_size(member)
        self._count_topics(self._subscription_of(member), 1)
        self._note_progress(member)

    def _remove_member(self, member: MemberT) -> None:
        """Take a member out, and its records; the order of the tombstones is Kafka's."""
        member_id = member.member_id
        del self.members[member_id]
        self._size_bytes -= member.size_bytes
        self._count_topics(self._subscription_of(member), -1)
        self._unreconciled.discard(member_id)
        self.target.pop(member_id, None)
        for due in (Timeout.SESSION, Timeout.REBALANCE):
            self._deadlines.drop((due, member_id))
        for kind in (RecordKind.CURRENT, RecordKind.TARGET, RecordKind.MEMBER):
            self._write(kind, member_id)

    def _count_size(self, member: MemberT) -> None:
        """Call this after each change of a member's topics."""
        size_bytes = self._size_of(member)
        self._size_bytes += size_bytes - member.size_bytes
        member.size_bytes = size_bytes

    def _size_of(self, member: MemberT) -> int:
        return MEMBER_BYTES + len(member.member_id) + sum(map(len, member.subscribed_topic_names))

    def _count_topics(self, names: Iterable[str], by: int) -> None:
        subscribers = self._subscribers
        for name in names:
            subscribers[name] += by
            if not subscribers[name]:
                del subscribers[name]

    def _refresh_session(self, member_id: str, now_ms: float) -> None:
        self._deadlines.set((Timeout.SESSION, member_id), now_ms + self._session_timeout_ms)

    # --- records

    def _write(self, kind: RecordKind, name: str = "") -> None:
        """Note that this record has changed."""
        self._unwritten.pop((kind, name), None)
        self._unwritten[kind, name] = None

    def _finish(self, answer: Answer | None = None) -> Effects:
        """Return the effects of an event: one write of all changes, and the answer."""
        if self._unwritten:
            keys, self._unwritten = self._unwritten, {}
            self._deadlines.drop(_WRITE_AGAIN)
            return [WriteRecords([self._record(key) for key in keys], tuple(keys), answer)]
        return [] if answer is None else [answer]


def metadata_hash(names: Iterable[str], topics: TopicsView) -> int:
    """Return a hash of the topics with these names: it changes when one is created, deleted or gets partitions.

    It is 0 if there are none.
    """
    from hashlib import blake2b  # OpenSSL comes with it, 3.5 MB, for the first group

    found = blake2b(digest_size=8)
    known = [(name, topics.topic_id(name)) for name in sorted(names)]
    if not any(topic_id for _, topic_id in known):
        return 0
    for name, topic_id in known:
        if topic_id is not None:
            found.update(name.encode() + b"\x00" + topic_id + pack(">i", topics.num_partitions(topic_id)))
    return int.from_bytes(found.digest(), "big", signed=True)


def by_topic(partitions: Mapping[bytes, Iterable[int]]) -> list[TopicIdPartitions]:
    """Return partitions in the form of requests and answers."""
    return [TopicIdPartitions(topic_id, sorted(numbers)) for topic_id, numbers in partitions.items() if numbers]


def partitions_of(topics: Sequence[TopicIdPartitions]) -> dict[bytes, set[int]]:
    """Return the partitions of a request."""
    found: dict[bytes, set[int]] = {}
    for each in topics:
        found.setdefault(each.topic_id, set()).update(each.partitions)
    return found


def heartbeat_error(error: ErrorCode) -> ApiError:
    """Return the error of a heartbeat whose write failed."""
    return ApiError(error, "the group could not be written")
