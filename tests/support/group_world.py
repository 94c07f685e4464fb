"""Consumers of groups without threads: memberships against a real coordinator, over links that take their time."""

import re
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

from support.group_harness import Harness
from support.plain_cluster import PlainCluster, id_of

from barnabas.adapters.system import SeededEntropy
from barnabas.core.client.cluster_view import COORDINATORS, ClusterView, ViewSettings
from barnabas.core.client.effects import NEVER, Send
from barnabas.core.client.group.builtin_assignors import builtin_assignor
from barnabas.core.client.group.consumer_coordinator import ConsumerCoordinator
from barnabas.core.client.group.events import (
    Assigned,
    CommittedOffset,
    Failed,
    GroupEvent,
    GroupSettings,
    Lost,
    Revoke,
)
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    Coordinator,
    FetchedGroup,
    FindCoordinator,
    FindCoordinatorResult,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    PartitionOutcome,
    SyncGroup,
    SyncGroupResult,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.scheduler import Timer
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

Script = Callable[["Consumer", Any], Any]
SESSION_MS = 10_000
HEARTBEAT_MS = 1_000
POLL_INTERVAL_MS = 60_000


class World:
    """A cluster of plain brokers, one of which coordinates; consumers; a clock that the test moves."""

    def __init__(self, *, brokers: int = 2, seed: int = 1, **topics: int) -> None:
        self.harness = Harness(group_min_session_timeout_ms=100, group_max_session_timeout_ms=600_000)
        self.harness.topics = dict(topics)
        self.harness.topic_ids = {name: id_of(name) for name in topics}
        self.cluster = PlainCluster(brokers, **topics)
        self.entropy = SeededEntropy(seed)
        self.scheduler = self.harness.scheduler
        self.home = 1
        self.consumers: list[Consumer] = []
        self.scripts: list[Script] = []
        self.requests: list[tuple[str, int, Any]] = []
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self._handlers = {
            JoinGroup: self.harness.coordinator.join,
            SyncGroup: self.harness.coordinator.sync,
            Heartbeat: self.harness.coordinator.heartbeat,
            LeaveGroup: self.harness.coordinator.leave,
            OffsetCommit: self.harness.coordinator.commit_offsets,
            OffsetFetch: self.harness.coordinator.fetch_offsets,
        }

    @property
    def now(self) -> float:
        return self.harness.clock.monotonic_ms()

    @property
    def live(self) -> list["Consumer"]:
        return [consumer for consumer in self.consumers if not consumer.dead]

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic, or give it more partitions."""
        self.cluster.topics[name] = self.harness.topics[name] = partitions

    def join(self, name: str, *topics: str, **given: Any) -> "Consumer":
        consumer = Consumer(self, name, **given)
        self.consumers.append(consumer)
        if topics:
            consumer.subscribe(*topics)
        return consumer

    def once(self, kind: type[Any], result: Any, *, of: str = "") -> None:
        """Answer the next request of that kind (of that consumer) with this, or with what it makes of the request."""
        left = [result]

        def answer(consumer: Consumer, request: Any) -> Any:
            if isinstance(request, kind) and left and of in ("", consumer.name):
                made = left.pop()
                return made(request) if callable(made) else made
            return None

        self.scripts.insert(0, answer)

    def of(self, kind: type[Any], name: str = "") -> list[Any]:
        return [request for who, _, request in self.requests if isinstance(request, kind) and name in ("", who)]

    def ask(self, consumer: "Consumer", node: int, request: Any, reply: Callable[[Any], None]) -> None:
        self.requests.append((consumer.name, node, request))
        for script in self.scripts:
            result = script(consumer, request)
            if result is not None:
                reply(result)
                return
        if isinstance(request, FindCoordinator):
            found = Coordinator(key=request.keys[0], node_id=self.home, host=f"broker-{self.home}", port=9092)
            reply(FindCoordinatorResult(coordinators=[found]))
        elif type(request) in self._handlers and node != self.home:
            reply(_not_here(request))
        elif type(request) in self._handlers:
            handler: Any = self._handlers[type(request)]
            handler(request, Caller(client_id=consumer.name), reply)
        else:
            reply(self.cluster.answer(node, request))

    def pass_time(self, ms: float) -> None:
        self.scheduler.advance(ms)

    def until(self, true: Callable[[], bool], limit_ms: float = 120_000) -> None:
        self.scheduler.run_until(true, limit_ms)

    def run_until_idle(self, limit_ms: float = 300_000) -> None:
        """Until every consumer that lives has all that it gets, in one generation."""
        self.until(lambda: self.is_settled, limit_ms)
        self.check_everything_is_read()

    @property
    def is_settled(self) -> bool:
        members = [consumer.membership for consumer in self.live if consumer.membership.subscribed]
        if not all(member.settled and not member.has_event for member in members):
            return False
        group = self.harness.describe()
        known = {member.member_id for member in group.members}
        at_rest = group.state == ("Stable" if members else "Empty") or not (members or known)
        return at_rest and known == {m.member_id for m in members} and len({m.generation_id for m in members}) <= 1

    def check_everything_is_read(self) -> None:
        wanted = {
            TopicPartition(topic, number)
            for consumer in self.live
            for topic in consumer.membership.topics
            for number in range(self.cluster.topics.get(topic, 0))
        }
        read = [tp for consumer in self.live for tp in consumer.reads]
        assert sorted(read) == sorted(wanted)

    def check_nothing_is_read_twice(self) -> None:
        """Check that no message is read twice; valid while no member is removed whose user reads on."""
        read = [tp for consumer in self.live for tp in consumer.reads]
        assert len(read) == len(set(read)), sorted(read)

    def note_owners(self, consumer: "Consumer") -> None:
        """In one generation a partition is never assigned to two."""
        member = consumer.membership._member
        if member.generation.generation_id >= 0 and member._phase.name == "STABLE":
            for tp in member.owned.assigned:
                key = (member.generation.generation_id, tp)
                assert self.owners.setdefault(key, consumer.owner) == consumer.owner, key


class Consumer:
    """A membership, its links, and a user who polls every `poll_ms` and does what the events say."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        assignors: Sequence[str] = ("range",),
        group: str = "g",
        instance: str | None = None,
        poll_ms: float = 20,
        **settings: Any,
    ) -> None:
        self.world = world
        self.name = name
        self.owner = instance or name
        self.entropy = SeededEntropy(hash_of(name))
        self.view = ClusterView(
            [("bootstrap", 1)],
            self.entropy,
            ViewSettings(metadata_max_age_ms=2_000),
        )
        chosen = {
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
            "max_poll_interval_ms": POLL_INTERVAL_MS,
            **settings,
        }
        self.membership = ConsumerCoordinator(
            self.view,
            self.entropy,
            GroupSettings(group_id=group, group_instance_id=instance, **chosen),
            [builtin_assignor(each) for each in assignors],
            self._notified,
        )
        self.reads: dict[TopicPartition, CommittedOffset | None] = {}
        self.events: list[GroupEvent] = []
        self.dead = False
        self.busy = False
        self.holds_revocations = False
        self.poll_ms = poll_ms
        self.notified = 0
        self._links = 0
        self._free_ms: dict[int, float] = {}
        self._timer: Timer | None = None
        self._user()

    def subscribe(self, *topics: str) -> None:
        self.membership.subscribe(topics, self.world.now)
        self.wake()

    def subscribe_matching(self, pattern: str) -> None:
        self.membership.subscribe_matching(re.compile(pattern), self.world.now)
        self.wake()

    def leave(self) -> list[bool]:
        """Close the member; the list gets an item when it is done."""
        self.reads.clear()
        done: list[bool] = []
        self.membership.leave(self.world.now, lambda: done.append(True))
        self.wake()
        return done

    def vanish(self) -> None:
        self.dead = True
        self.reads.clear()

    def cut(self) -> None:
        """Every connection breaks; what is under way fails."""
        self._links += 1

    def commit(self, positions: dict[TopicPartition, int], *, retry: bool = True, limit_ms: float = 5_000) -> list[Any]:
        done: list[Any] = []
        offsets = {tp: CommittedOffset(offset, 7, f"by {self.name}") for tp, offset in positions.items()}
        self.membership.commit(offsets, done.append, deadline_ms=self.world.now + limit_ms, retry=retry)
        self.wake()
        return done

    def committed(self, *partitions: TopicPartition) -> list[Any]:
        done: list[Any] = []
        self.membership.committed(partitions, done.append, deadline_ms=self.world.now + 5_000)
        self.wake()
        return done

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def errors(self) -> list[BarnabasError]:
        return [event.error for event in self.of(Failed)]

    # --- the reactor

    def wake(self) -> None:
        self._wake_in(0)

    def _wake_in(self, ms: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.world.scheduler.call_later(ms, self._turn)

    def _turn(self) -> None:
        if self.dead:
            return
        now = self.world.now
        wake = NEVER
        for part in (self.membership, self.view):
            poll = part.poll(now)
            wake = min(wake, poll.wake_ms)
            for send in poll.sends:
                self._submit(send)
        self.world.note_owners(self)
        if wake < NEVER:
            self._wake_in(max(0.0, wake - now))

    def _submit(self, send: Send) -> None:
        """Requests on one connection arrive in their order, after some time."""
        world, link = self.world, self._links
        assert self.view.address(send.node) is not None
        node = send.node - COORDINATORS if send.node >= COORDINATORS else send.node
        arrives = max(self._free_ms.get(send.node, 0.0), world.now + self._latency())
        self._free_ms[send.node] = arrives

        def answered(result: Any) -> None:
            world.scheduler.call_later(self._latency(), lambda: back(result))

        def back(result: Any) -> None:
            if not self.dead:
                broken = TransportError("the connection was cut")
                send.answer(broken if link != self._links else result, world.now)
                self.wake()

        def arrive() -> None:
            if link == self._links and not self.dead:
                world.ask(self, node, send.request, answered)
            else:
                answered(None)

        world.scheduler.call_later(arrives - world.now, arrive)

    def _latency(self) -> float:
        return 0.2 + 3 * self.world.entropy.fraction()

    def _notified(self) -> None:
        self.notified += 1

    # --- the user

    def _user(self) -> None:
        if self.dead:
            return
        if not self.busy:
            self.poll()
        self.world.scheduler.call_later(self.poll_ms, self._user)

    def poll(self) -> None:
        if self.membership.polled(self.world.now):
            self.wake()
        while (event := self.membership.take_event()) is not None:
            self.events.append(event)
            if isinstance(event, Assigned):
                assert not event.positions.keys() & self.reads.keys()
                self.reads |= event.positions
            elif isinstance(event, Revoke | Lost):
                for tp in event.partitions:
                    del self.reads[tp]
                if isinstance(event, Revoke) and not self.holds_revocations:
                    self.membership.revoked_done()
            elif event.final:
                break
        self.wake()


def _not_here(request: Any) -> Any:
    code = ErrorCode.NOT_COORDINATOR
    if isinstance(request, OffsetCommit):
        return OffsetCommitResult(partitions=[PartitionOutcome(p.topic, p.partition, code) for p in request.partitions])
    if isinstance(request, OffsetFetch):
        return OffsetFetchResult(groups=[FetchedGroup(group_id=each.group_id, error=code) for each in request.groups])
    kinds = {JoinGroup: JoinGroupResult, SyncGroup: SyncGroupResult, Heartbeat: HeartbeatResult}
    return kinds.get(type(request), LeaveGroupResult)(error=code)


def hash_of(name: str) -> int:
    """Return a hash that is equal in every process."""
    return crc32(name.encode())
