"""Every interleaving of small scopes over a consumer group (KIP-848): the product's `ConsumerGroup`, its records and
their loader, with two or three clients that behave as Java's or librdkafka's, or have the classic protocol.

What is checked are promises to users, by what the clients know:

- no partition has two owners. A client owns a partition from the answer that assigns it until it has given it up; a
  client whose session or rebalance timeout has ended does not count until it hears of that;
- the epoch of a client never goes back;
- a client with the consumer protocol may commit offsets of the partitions that it owns, with the epoch that it knows;
- once all is calm (every answer arrives, no session ends, heartbeats come), after a few heartbeats every partition has
  one owner, the coordinator describes each client with the partitions that it has, and another coordinator that takes
  over then takes nothing from any of them.

A state is the group, its records and what the clients know. `search` explores states breadth first, and returns how
many it has found. Equal states have equal keys, in which epochs are numbered in their order, since nothing but their
order counts. An action is a method of `World`, which returns False where the action cannot happen. Those in `STEPS`
always may happen, the others as often as a scope says.

A write ends before the next heartbeat is handled: a coordinator that dies meanwhile has either written it or not, and
each answer that waits for it is lost.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from functools import cache
from io import BytesIO
from pickle import HIGHEST_PROTOCOL, Pickler, loads
from typing import Any, NamedTuple

from attrs import define, field, frozen

from barnabas.core.client.group.consumer_protocol import Subscription, encode_subscription
from barnabas.core.coordinator.group.config import GroupCoordinatorConfig
from barnabas.core.coordinator.group.consumer_group import ConsumerGroup
from barnabas.core.coordinator.group.consumer_records import StoredConsumerGroup
from barnabas.core.coordinator.group.coordinator import ASSIGNORS
from barnabas.core.coordinator.group.effects import Effects, Store, WriteRecords
from barnabas.core.coordinator.group.group_config import GroupConfig, GroupConfigManager
from barnabas.core.coordinator.group.loading import Loading
from barnabas.core.coordinator.group.modern_group import GroupContext, Timeout
from barnabas.core.coordinator.group.shard import modern_error
from barnabas.core.coordinator.group.subscription import CONSUMER_PROTOCOL, decode_assignment
from barnabas.ports.broker_api.consumer_groups import (
    LEAVE_GROUP_MEMBER_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartitions,
)
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    GroupProtocol,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeavingMember,
    OffsetCommit,
    SyncGroup,
    SyncGroupResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

GROUP_ID, TOPIC, TOPIC_ID = "g", "t", b"t" * 16
PARTITIONS = 2
ASSIGNMENT_INTERVAL_MS = 1_000
STEPS = ("beat", "receive", "give_up", "pass_time")
"""The actions that always may happen."""
CLASSIC = "ce"
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)
FENCED_CLASSIC = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
Action = tuple[str, int]
"""A name, and the number of the client that it concerns; 0 where it concerns none."""
_NEVER_MS = 10**9
_CALM_ROUNDS = 20
_CONFIG = GroupCoordinatorConfig(group_consumer_migration_policy="upgrade")
_GROUP_CONFIG = GroupConfig(
    consumer_session_timeout_ms=_NEVER_MS, consumer_assignment_interval_ms=ASSIGNMENT_INTERVAL_MS
)
_OF_ALL = ("pass_time", "add_partition", "move", "refuse", "time_out")
"""The actions that concern no single client."""


class BrokenPromise(AssertionError):
    """A history after which a user has not got what was promised."""


@frozen
class Scope:
    """The possible histories."""

    clients: str
    """Each client by a letter. f: it sends everything after a lost answer, as Java's. t: it is terse, as librdkafka,
    and sends only what has changed. c and e: it has the classic protocol, with a cooperative or an eager assignor; one
    with the consumer protocol must have joined before."""
    most: Mapping[str, int]
    """The most times that each action but the steps may happen."""
    joined: int = 0
    """The number of clients that are at rest in the group at the beginning."""


class Topics:
    """The topic of the group, as the coordinator knows it."""

    def __init__(self, count: int) -> None:
        self.count = count

    @property
    def version(self) -> int:
        return self.count

    def topic_id(self, name: str) -> bytes | None:
        return TOPIC_ID if name == TOPIC else None

    def topic_name(self, topic_id: bytes) -> str | None:
        return TOPIC if topic_id == TOPIC_ID else None

    def names(self) -> frozenset[str]:
        return frozenset({TOPIC})

    def num_partitions(self, topic_id: bytes) -> int:
        return self.count if topic_id == TOPIC_ID else -1


class _Context(GroupContext):
    """The context of the group; only the topics are part of a state."""

    def __reduce__(self) -> Any:
        return _context, (self.topics,)


def _context(topics: Topics) -> _Context:
    return _Context(
        config=_CONFIG,
        configs=_CONFIGS,
        topics=topics,
        assignors={each.name: each for each in ASSIGNORS if each.name in _CONFIG.group_consumer_assignors},
    )


_CONFIGS = GroupConfigManager(_GROUP_CONFIG)


@cache
def _loaded(records: tuple[tuple[bytes, bytes], ...]) -> StoredConsumerGroup:
    """Return the group that is loaded from the records; nothing changes it."""
    loading = Loading(0)
    for key, value in records:
        loading.add(key, value)
    loaded = loading.groups.get(GROUP_ID)
    return StoredConsumerGroup() if loaded is None or loaded.consumer is None else loaded.consumer


def _config() -> GroupCoordinatorConfig:
    return _CONFIG


class _StatePickler(Pickler):
    dispatch_table = {GroupCoordinatorConfig: lambda _: (_config, ())}  # noqa: RUF012  # as `Pickler` has it


class Reply(NamedTuple):
    """An answer on its way to a client."""

    error: ErrorCode
    epoch: int
    assignment: frozenset[int] | None
    said: frozenset[int] | None
    """The partitions that the heartbeat named."""
    is_current: bool
    """False after the client's session ended behind the heartbeat."""


class Late(NamedTuple):
    """A heartbeat that its client has given up, and that still may arrive."""

    request: ConsumerGroupHeartbeat
    connection: int


class Phase(Enum):
    """The next request of a client with the classic protocol."""

    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    STABLE = "Heartbeat"


@define(slots=False)
class Client:
    """A member, and what it knows."""

    member_id: str
    kind: str
    connection: int
    phase: Phase | None
    """None with the consumer protocol."""
    epoch: int = 0
    last_epoch: int = 0
    """The epoch before the client joined again."""
    assigned: frozenset[int] = frozenset()
    """The partitions that it has, as it says to the coordinator."""
    wanted: frozenset[int] = frozenset()
    """The last assignment; the client gives up what it has beyond that, and then takes what is new."""
    said: frozenset[int] | None = None
    """The partitions in the last heartbeat with any that was answered."""
    is_full: bool = True
    """The next heartbeat says everything."""
    reply: Reply | None = None
    late: Late | None = None
    is_lapsed: bool = False
    """The coordinator has removed the client, which has not heard of that."""
    is_gone: bool = False

    @property
    def is_terse(self) -> bool:
        return self.kind == "t"

    @property
    def owned(self) -> frozenset[int]:
        return self.assigned | self.wanted

    @property
    def must_give_up(self) -> bool:
        """True until the client has given up what is not in its last assignment."""
        return not self.assigned <= self.wanted

    def heartbeat(self) -> ConsumerGroupHeartbeat:
        is_full = self.is_full or self.epoch == 0
        says_assigned = is_full or self.assigned != self.said
        return ConsumerGroupHeartbeat(
            group_id=GROUP_ID,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=_NEVER_MS if is_full else -1,
            subscribed_topic_names=(TOPIC,) if is_full else None,
            topic_partitions=_by_topic(self.assigned) if says_assigned else None,
        )

    def lose(self) -> None:
        """Wait for an answer in vain, and continue over another connection."""
        self.is_full = self.is_full or not self.is_terse
        if self.phase is Phase.SYNC:
            self.phase = Phase.JOIN
        self.connect()

    def connect(self) -> None:
        """Continue over another connection."""
        self.connection += 1

    def take(self, reply: Reply) -> None:
        """Take an answer. Raises `BrokenPromise` if it sets the epoch back."""
        if reply.error in (FENCED if self.phase is None else FENCED_CLASSIC):
            self.last_epoch = max(self.last_epoch, self.epoch)
            self.epoch, self.assigned, self.wanted, self.said = 0, frozenset(), frozenset(), None
            self.is_full, self.is_lapsed = True, self.is_lapsed and not reply.is_current
            if self.phase is not None:
                self.phase = Phase.JOIN
            return
        if reply.error is not ErrorCode.NONE:
            self.is_full = self.is_full or not self.is_terse
            if reply.error is ErrorCode.REBALANCE_IN_PROGRESS or self.phase is Phase.SYNC:
                self._rejoin()
            return
        if reply.epoch < max(self.epoch, self.last_epoch):
            raise BrokenPromise(f"the epoch of {self.member_id} goes back to {reply.epoch} from {self.epoch}")
        self.epoch, self.is_full = reply.epoch, False
        self.is_lapsed = self.is_lapsed and not reply.is_current
        if reply.said is not None:
            self.said = reply.said
        if reply.assignment is not None:
            self.wanted = reply.assignment
            if not self.must_give_up:
                self.assigned = self.wanted
        if self.phase is not None:
            self.phase = Phase.SYNC if self.phase is Phase.JOIN else Phase.STABLE

    def give_up(self) -> None:
        """Give up what is not in the last assignment; with the classic protocol, join again to say so."""
        self.assigned = self.wanted
        if self.phase is not None:
            self.phase = Phase.JOIN

    def _rejoin(self) -> None:
        self.phase = Phase.JOIN
        if self.kind == "e":
            self.assigned = self.wanted = frozenset()


class World:
    """The coordinator with the group, and its clients."""

    def __init__(self, scope: Scope) -> None:
        self.context = _context(Topics(PARTITIONS))
        self.group = ConsumerGroup(GROUP_ID, self.context)
        self.records: dict[bytes, bytes] = {}
        """The last value of each key, as in a compacted log."""
        self.now_ms = float(ASSIGNMENT_INTERVAL_MS)
        self.clients = [
            Client(
                member_id=f"m{number}",
                kind=kind,
                connection=number * 1_000,
                phase=Phase.JOIN if kind in CLASSIC else None,
            )
            for number, kind in enumerate(scope.clients, 1)
        ]
        self.used: dict[str, int] = dict.fromkeys(scope.most, 0)
        self.fails: ErrorCode | None = None
        """The outcome of the next write; None: it succeeds."""
        if scope.joined:
            others = self.clients[scope.joined :]
            for client in others:
                client.is_gone = True
            self.calm()
            for client in others:
                client.is_gone = False

    @property
    def topics(self) -> Topics:
        topics = self.context.topics
        assert isinstance(topics, Topics)
        return topics

    # --- the coordinator

    def _handle(self, request: ConsumerGroupHeartbeat, connection: int) -> ConsumerGroupHeartbeatResult:
        caller = _caller(connection)
        steady = self.group.steady_heartbeat(request, caller, self.now_ms)
        if steady is not None:
            return steady
        results: list[Any] = []
        self._carry_out(self.group.heartbeat(request, caller, results.append, self.now_ms, 1))
        (result,) = results
        assert isinstance(result, ConsumerGroupHeartbeatResult)
        return result

    def _handle_classic(self, client: Client) -> Reply:
        results: list[Any] = []
        group, member_id, now_ms = self.group, client.member_id, self.now_ms
        if client.phase is Phase.JOIN:
            owned = [TopicPartition(TOPIC, number) for number in sorted(client.assigned)]
            metadata = encode_subscription(Subscription(topics=(TOPIC,), owned=owned))
            join = JoinGroup(
                group_id=GROUP_ID,
                session_timeout_ms=_NEVER_MS,
                rebalance_timeout_ms=_NEVER_MS,
                member_id=member_id,
                protocol_type=CONSUMER_PROTOCOL,
                protocols=[GroupProtocol("a", metadata)],
            )
            self._carry_out(group.join_classic(join, _caller(client.connection), results.append, now_ms, 1, member_id))
        elif client.phase is Phase.SYNC:
            sync = SyncGroup(group_id=GROUP_ID, generation_id=client.epoch, member_id=member_id)
            self._carry_out(group.sync_classic(sync, results.append, now_ms))
        else:
            heartbeat = Heartbeat(group_id=GROUP_ID, generation_id=client.epoch, member_id=member_id)
            error, effects = group.heartbeat_classic(heartbeat, now_ms, 1)
            self._carry_out(effects)
            results.append(HeartbeatResult(error=error))
        (result,) = results
        assignment = None
        if isinstance(result, SyncGroupResult) and result.error is ErrorCode.NONE:
            assignment = frozenset(decode_assignment(result.assignment).partitions.get(TOPIC, ()))
        epoch = result.generation_id if isinstance(result, JoinGroupResult) else client.epoch
        return Reply(result.error, epoch, assignment, said=None, is_current=True)

    def _carry_out(self, effects: Effects) -> None:
        for effect in effects:
            assert not isinstance(effect, Store), "only classic groups have those"
            error = ErrorCode.NONE
            answer = effect.answer if isinstance(effect, WriteRecords) else effect
            if isinstance(effect, WriteRecords):
                error, self.fails = self.fails or ErrorCode.NONE, None
                if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                    for key, value in effect.records:
                        if value is None:
                            self.records.pop(key, None)
                        else:
                            self.records[key] = value
                self.group.written(effect.keys, error, self.now_ms)
            if answer is not None:
                failed = answer.on_written and answer.on_written(modern_error(error))
                answer.to(failed or answer.result)

    @property
    def _stored(self) -> StoredConsumerGroup:
        return _loaded(tuple(self.records.items()))

    # --- steps

    def beat(self, client: Client) -> bool:
        """Let the coordinator handle a heartbeat; its answer is under way then."""
        if client.is_gone or client.reply is not None:
            return False
        if client.phase is not None:
            if client.phase is not Phase.STABLE and client.must_give_up:
                return False
            client.reply = self._handle_classic(client)
            return True
        request = client.heartbeat()
        result = self._handle(request, client.connection)
        client.reply = Reply(
            error=result.error,
            epoch=result.member_epoch,
            assignment=None if result.assignment is None else _numbers(result.assignment),
            said=None if request.topic_partitions is None else _numbers(request.topic_partitions),
            is_current=True,
        )
        return True

    def receive(self, client: Client) -> bool:
        """Let the client take the answer."""
        reply, client.reply = client.reply, None
        if reply is None:
            return False
        client.take(reply)
        return True

    def give_up(self, client: Client) -> bool:
        """Let the client finish to give up the partitions that it lost, and take the new ones."""
        if client.assigned == client.wanted:
            return False
        client.give_up()
        return True

    def pass_time(self, _: Client) -> bool:
        """Let the assignment interval pass: the next target may be computed, and failed writes are repeated."""
        group = self.group
        is_early = self.now_ms < group._assigned_ms + ASSIGNMENT_INTERVAL_MS
        if not is_early and (Timeout.WRITE, "") not in group._deadlines:
            return False
        self.now_ms += ASSIGNMENT_INTERVAL_MS
        self._carry_out(group.tick(self.now_ms))
        return True

    # --- faults

    def lose(self, client: Client) -> bool:
        """Lose the answer: the client waits in vain, and connects again."""
        if client.reply is None:
            return False
        client.reply = None
        client.lose()
        return True

    def delay(self, client: Client) -> bool:
        """Hold a heartbeat back, which perhaps arrives later; the client connects again."""
        if client.is_gone or client.reply is not None or client.late is not None or client.phase is not None:
            return False
        client.late = Late(client.heartbeat(), client.connection)
        client.lose()
        return True

    def arrive(self, client: Client) -> bool:
        """Let a late heartbeat arrive; no client receives the answer."""
        late, client.late = client.late, None
        if late is None:
            return False
        self._handle(late.request, late.connection)
        return True

    def connect(self, client: Client) -> bool:
        """Let the client connect again between two heartbeats."""
        if client.is_gone or client.reply is not None:
            return False
        client.connect()
        return True

    def leave(self, client: Client) -> bool:
        """Let the client give everything up and leave; the coordinator hears of it."""
        if client.is_gone or client.reply is not None or client.epoch == 0:
            return False
        if client.phase is not None:
            leave = LeaveGroup(group_id=GROUP_ID, members=[LeavingMember(member_id=client.member_id)])
            self._carry_out(self.group.leave_classic(leave, lambda _: None))
        else:
            request = ConsumerGroupHeartbeat(
                group_id=GROUP_ID, member_id=client.member_id, member_epoch=LEAVE_GROUP_MEMBER_EPOCH
            )
            self._handle(request, client.connection)
        self._remove(client)
        return True

    def die(self, client: Client) -> bool:
        """End the client; the coordinator does not hear of it."""
        if client.is_gone:
            return False
        self._remove(client)
        return True

    def _remove(self, client: Client) -> None:
        client.is_gone, client.reply = True, None
        client.assigned = client.wanted = frozenset()

    def expire(self, client: Client) -> bool:
        """End the session of a client, of which the coordinator has not heard in time."""
        return self._end(client, Timeout.SESSION)

    def overrun(self, client: Client) -> bool:
        """End the rebalance timeout of a client that has not given up its partitions."""
        return self._end(client, Timeout.REBALANCE)

    def _end(self, client: Client, timeout: Timeout) -> bool:
        deadlines = self.group._deadlines
        if (timeout, client.member_id) not in deadlines:
            return False
        deadlines.set((timeout, client.member_id), 0.0)
        client.is_lapsed = True
        if client.reply is not None:
            client.reply = client.reply._replace(is_current=False)
        self._carry_out(self.group.tick(self.now_ms))
        return True

    def add_partition(self, _: Client) -> bool:
        """Add a partition to the topic."""
        self.topics.count += 1
        return True

    def move(self, _: Client) -> bool:
        """Let another coordinator read the records. Answers of the former one may still arrive."""
        self.group = ConsumerGroup.restored(GROUP_ID, self.context, self._stored, self.now_ms)
        self.fails = None
        for client in self.clients:
            client.late = None
            client.connect()
        return True

    def refuse(self, _: Client) -> bool:
        """Let the next write fail."""
        return self._fail(ErrorCode.NOT_ENOUGH_REPLICAS)

    def time_out(self, _: Client) -> bool:
        """Let the next write succeed, and time out: the coordinator does not know that it did."""
        return self._fail(ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, error: ErrorCode) -> bool:
        if self.fails is not None:
            return False
        self.fails = error
        return True

    # --- promises

    def check(self) -> None:
        """Check what holds always. Raises `BrokenPromise`."""
        owners: dict[int, Client] = {}
        for client in self.clients:
            if client.is_lapsed:
                continue
            for number in client.owned:
                if number in owners:
                    raise BrokenPromise(f"{owners[number].member_id} and {client.member_id} own partition {number}")
                owners[number] = client
            if client.epoch and client.assigned and client.phase is None:
                self._check_commit(client)

    def _check_commit(self, client: Client) -> None:
        request = OffsetCommit(
            group_id=GROUP_ID,
            partitions=(),
            generation_id=client.epoch,
            member_id=client.member_id,
            knows_group_id_not_found=True,
        )
        error = self.group.check_commit(request, self.now_ms)
        validate = self.group.commit_validator(client.member_id, client.epoch)
        errors = [error, *(validate(TOPIC_ID, number) for number in client.assigned if validate is not None)]
        refused = [each for each in errors if each is not ErrorCode.NONE]
        if refused:
            raise BrokenPromise(f"{client.member_id} owns {set(client.assigned)}, and a commit gets {refused[0].name}")

    def calm(self, settled: set[Any] | None = None) -> None:
        """Let everything end that is under way; raise `BrokenPromise` unless the group comes to rest. The keys of
        states on the way are added to `settled`; those there already are known to come to rest."""
        way: list[Any] = []
        self.fails = None
        for client in self.clients:
            client.late = None
            self.receive(client)
            if client.is_gone:
                self.expire(client)
        for _ in range(_CALM_ROUNDS):
            if settled is not None:
                key = self.key()
                if key in settled:
                    settled.update(way)
                    return
                way.append(key)
            if not self._unsettled():
                self._check_move()
                if settled is not None:
                    settled.update(way)
                return
            self._round()
        raise BrokenPromise(f"in calm, {self._unsettled()}")

    def _round(self) -> None:
        for client in self.clients:
            self.give_up(client)
            if self.beat(client):
                self.receive(client)
            self.check()
        self.now_ms += ASSIGNMENT_INTERVAL_MS
        self._carry_out(self.group.tick(self.now_ms))

    def _unsettled(self) -> str:
        """Return what is missing for the group to be at rest."""
        clients = [client for client in self.clients if not client.is_gone]
        description = self.group.describe()
        if description.group_state != ("Stable" if clients else "Empty"):
            return f"the group is {description.group_state}"
        described = {each.member_id: each for each in description.members}
        if described.keys() != {client.member_id for client in clients}:
            return f"the group has the members {sorted(described)}"
        for client in clients:
            member = described[client.member_id]
            has = frozenset(number for each in member.assignment for number in each.partitions)
            if (client.epoch, client.assigned, client.wanted) != (member.member_epoch, has, has):
                return (
                    f"{client.member_id} has {set(client.assigned)} in epoch {client.epoch}, and the coordinator "
                    f"believes {set(has)} in epoch {member.member_epoch}"
                )
        unowned = set(range(self.topics.count)).difference(*(client.assigned for client in clients))
        return f"the partitions {unowned} have no owner" if unowned and clients else ""

    def _check_move(self) -> None:
        """A coordinator that takes over from one at rest changes nothing for the clients."""
        before = [(client.epoch, client.assigned) for client in self.clients]
        self.move(self.clients[0])
        self._round()
        if [(client.epoch, client.assigned) for client in self.clients] != before:
            raise BrokenPromise("another coordinator changes what the clients of a group at rest have")
        if self._unsettled():
            raise BrokenPromise(f"with another coordinator, {self._unsettled()}")

    # --- states

    def key(self) -> tuple[Any, ...]:
        """Return the state: what behaves equally from here on has an equal key."""
        group, stored, clients = self.group, self._stored, self.clients
        members = [group.members.get(client.member_id) for client in clients]
        current = [stored.current.get(client.member_id) for client in clients]
        epochs = {group.group_epoch, group.target_epoch, stored.epoch, stored.target_epoch}
        for each in (*members, *current):
            if each is not None:
                epochs |= {each.member_epoch, each.previous_member_epoch}
                for partitions in (each.assigned, each.revoking):
                    epochs.update(partitions.get(TOPIC_ID, {}).values())
        for client in clients:
            epochs |= {client.epoch, client.last_epoch}
            if client.reply is not None:
                epochs.add(client.reply.epoch)
            if client.late is not None:
                epochs.add(client.late.request.member_epoch)
        rank = {epoch: number for number, epoch in enumerate(sorted(epochs | {0}))}
        return (
            (self.topics.count, self.fails, rank[group.group_epoch], rank[group.target_epoch]),
            (group.metadata_hash, group._topics_version, tuple(sorted(group._unwritten))),
            min(self.now_ms - group._assigned_ms, ASSIGNMENT_INTERVAL_MS),
            tuple(sorted(group._owners.get(TOPIC_ID, {}).items())),
            tuple(
                (
                    _of_current(member, rank),
                    None
                    if member is None
                    else (
                        member.knows_assignment,
                        None if member.unconfirmed_on is None else member.unconfirmed_on - client.connection,
                        member.heard_on - client.connection,
                        bool(member.subscribed_topic_names),
                        member.classic is None,
                        (Timeout.REBALANCE, member.member_id) in group._deadlines,
                    ),
                    _numbers_of(group.target.get(client.member_id)),
                    _of_current(record, rank),
                    _numbers_of(stored.target.get(client.member_id)),
                    client.member_id in stored.members,
                )
                for client, member, record in zip(clients, members, current, strict=True)
            ),
            (rank[stored.epoch], rank[stored.target_epoch], stored.metadata_hash),
            tuple(_of_client(client, rank) for client in clients),
        )

    def pickled(self) -> bytes:
        out = BytesIO()
        _StatePickler(out, HIGHEST_PROTOCOL).dump(self)
        return out.getvalue()


def _of_current(member: Any, rank: Mapping[int, int]) -> tuple[Any, ...] | None:
    if member is None:
        return None
    partitions = tuple(
        tuple(sorted((number, rank[epoch]) for number, epoch in each.get(TOPIC_ID, {}).items()))
        for each in (member.assigned, member.revoking)
    )
    return rank[member.member_epoch], rank[member.previous_member_epoch], int(member.state), partitions


def _of_client(client: Client, rank: Mapping[int, int]) -> tuple[Any, ...]:
    reply, late = client.reply, client.late
    return (
        (rank[client.epoch], rank[client.last_epoch], client.assigned, client.wanted, client.said),
        (client.is_full, client.is_lapsed, client.is_gone, client.phase),
        reply and (reply.error, rank[reply.epoch], *reply[2:]),
        late
        and (
            rank[late.request.member_epoch],
            late.request.rebalance_timeout_ms,
            late.request.topic_partitions is not None and _numbers(late.request.topic_partitions),
            late.connection - client.connection,
        ),
    )


def _caller(connection: int) -> Caller:
    return Caller(client_id="app", host="127.0.0.1", connection=connection)


def _by_topic(numbers: Collection[int]) -> list[TopicIdPartitions]:
    return [TopicIdPartitions(TOPIC_ID, sorted(numbers))] if numbers else []


def _numbers(topics: Iterable[TopicIdPartitions]) -> frozenset[int]:
    return frozenset(number for each in topics for number in each.partitions)


def _numbers_of(target: Mapping[bytes, Iterable[int]] | None) -> frozenset[int] | None:
    return None if target is None else frozenset(target.get(TOPIC_ID, ()))


@define
class _Found:
    """The states of a search, and how each was reached."""

    number_of: dict[Any, int] = field(factory=dict)
    reached_by: list[tuple[int, Action]] = field(factory=list)

    def history(self, number: int) -> list[Action]:
        actions = []
        while number:
            number, action = self.reached_by[number]
            actions.append(action)
        return actions[::-1]


def search(scope: Scope) -> int:
    """Explore all states; return their number. Raises `BrokenPromise` with the shortest history that breaks a
    promise."""
    first = World(scope)
    found = _Found({first.key(): 0}, [(0, ("", 0))])
    queue = deque([(0, first.pickled())])
    settled: set[Any] = set()
    while queue:
        number, state = queue.popleft()
        history: list[Action] = []
        try:
            world = loads(state)
            possible = _possible(scope, world)
            world.calm(settled)
            world = loads(state)
            for action in possible:
                if not _do(world, action):
                    continue
                history = [action]
                world.check()
                key = world.key(), tuple(world.used.values())
                if key not in found.number_of:
                    found.number_of[key] = len(found.reached_by)
                    queue.append((len(found.reached_by), world.pickled()))
                    found.reached_by.append((number, action))
                history, world = [], loads(state)
        except BrokenPromise as broken:
            done = ", ".join(_line(each) for each in (*found.history(number), *history)) or "nothing"
            raise BrokenPromise(f"{broken}, after {done}") from None
    return len(found.reached_by)


def play(scope: Scope, history: Iterable[Action]) -> World:
    """Play one history, then calm. Raises `BrokenPromise`."""
    world = World(scope)
    for action in history:
        assert _do(world, action), action
        world.check()
    world.calm()
    return world


def _possible(scope: Scope, world: World) -> list[Action]:
    names = [*STEPS, *(name for name, most in scope.most.items() if world.used[name] < most)]
    numbers = range(1, len(world.clients) + 1)
    return [(name, number) for name in names for number in ((0,) if name in _OF_ALL else numbers)]


def _do(world: World, action: Action) -> bool:
    name, number = action
    if not getattr(world, name)(world.clients[number - 1]):
        return False
    if name in world.used:
        world.used[name] += 1
    return True


def _line(action: Action) -> str:
    name, number = action
    return f"{name} {number}" if number else name
