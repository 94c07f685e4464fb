"""Members of a group in the simulation, and the record of the answers that they got."""

import re
from collections.abc import Callable
from typing import Any

from attrs import define, field
from simulation.actors import Actor
from simulation.client import TOPIC, Client

from barnabas.core.client.cluster_view import ViewSettings
from barnabas.core.client.group.builtin_assignors import builtin_assignor
from barnabas.core.client.group.consumer_coordinator import ConsumerCoordinator
from barnabas.core.client.group.events import Assigned, CommittedOffset, Failed, GroupEvent, GroupSettings, Lost, Revoke
from barnabas.ports.broker_api.groups import OffsetFetch, OffsetFetchGroup, OffsetFetchResult
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.simulation import World

GROUP = "crew"
SESSION_MS = 1500
REBALANCE_MS = 1500

_LATER = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@define
class GroupBook:
    """The guarantees of a group: owners by generation, and committed offsets. The numbers of a partition's commits only
    grow, since one member at a time commits, one request after the other."""

    owners: dict[tuple[int, int, TopicPartition], str] = field(factory=dict)
    acknowledged: dict[TopicPartition, int] = field(factory=dict)
    seen: dict[TopicPartition, int] = field(factory=dict)
    submitted: dict[TopicPartition, int] = field(factory=dict)
    holders: dict[TopicPartition, tuple[str, float]] = field(factory=dict)
    """The member that got each partition last, and when."""
    gone: set[str] = field(factory=set)
    """Topics that are being deleted, or were: nothing is promised of them."""
    life: Callable[[], int] = field(default=lambda: 0, eq=False)
    """Settable: twice how often a group without members was replaced by one of another type, which counts from 0;
    one less while answers of the former group may still arrive."""
    generation: int = 0

    def own(self, life: int, generation: int, partition: TopicPartition, member: str) -> None:
        self.generation = max(self.generation, generation)
        owner = self.owners.setdefault((life, generation, partition), member)
        assert owner == member, (
            f"two: partition {partition} has the owners {owner} and {member} in generation {generation}"
        )

    def hold(self, partition: TopicPartition, member: str, now_ms: float) -> None:
        self.holders[partition] = member, now_ms

    def lose(self, partition: TopicPartition, member: str) -> None:
        if self.holders.get(partition, ("", 0.0))[0] == member:
            del self.holders[partition]

    def check_holder(self, partition: TopicPartition, member: str, submitted_ms: float) -> None:
        """Check a commit that was acknowledged: at `submitted_ms`, no other member had got the partition."""
        holder, since_ms = self.holders.get(partition, (member, 0.0))
        assert holder == member or since_ms >= submitted_ms, (
            f"two: {member} commits for partition {partition}, which {holder} has got"
        )

    def next_number(self, partition: TopicPartition) -> int:
        self.submitted[partition] = self.submitted.get(partition, 0) + 1
        return self.submitted[partition]

    def acknowledge(self, partition: TopicPartition, number: int) -> None:
        self.acknowledged[partition] = max(number, self.acknowledged.get(partition, 0))

    def observe(self, partition: TopicPartition, number: int, lower_bound: int, text: str) -> None:
        """`promised`: what was acknowledged when the question was asked."""
        if partition.topic not in self.gone:
            assert number >= lower_bound, (
                f"lost: {lower_bound} was acknowledged for partition {partition}, {number} is returned"
            )
        assert number <= self.submitted.get(partition, 0), f"{number} of partition {partition} was never committed"
        assert text == (f"no. {number}" if number else ""), text
        self.seen[partition] = number


def _refuse(member: "GroupMember", error: BarnabasError) -> None:
    raise AssertionError(f"{member.name}: {error}")


class GroupMember(Client):
    """Is in the group as a consumer is, reads nothing, and commits for what it owns."""

    def __init__(
        self,
        world: World,
        name: str,
        book: GroupBook,
        assignor: str,
        *,
        pattern: str = "",
        metadata: ViewSettings | None = None,
        **own: Any,
    ) -> None:
        """`pattern`: it reads the topics that match; empty: it reads the topic. `own`: settings of `GroupSettings`."""
        super().__init__(world, name, metadata)
        self.book = book
        self.pattern = pattern
        self.owned: set[TopicPartition] = set()
        self.left = False
        self.is_quick = False
        """Settable: it gives partitions up at once."""
        self.is_slow = False
        """Settable: it takes its time."""
        self.on_fenced: Callable[[GroupMember, BarnabasError], None] = _refuse
        """Settable: what happens when another member has taken its place."""
        self.losses = 0
        """The number of its removals from the group."""
        self.instance_id: str | None = own.get("group_instance_id")
        self._observed = -1, -1
        """The group's incarnation and generation as last reported; the next two: at the end of its last rebalance."""
        self._life = self._generation = -1
        self._late: dict[TopicPartition, int] = {}
        """The acknowledged offset of a partition before a commit of this member that was acknowledged after it had lost
        the partition. The partition may return with the offset that was fetched in between."""
        self._committing = False
        self._revoking: Revoke | None = None
        """The event that the member is handling; until `_revoked_ms` it works with the partitions as before."""
        self._revoked_ms = 0.0
        settings = GroupSettings(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            max_poll_interval_ms=REBALANCE_MS,
            heartbeat_interval_ms=200,
            retry_backoff_ms=50,
            retry_backoff_max_ms=200,
            **own,
        )
        self.membership = ConsumerCoordinator(self.view, self.entropy, settings, [builtin_assignor(assignor)])
        now_ms = world.clock.monotonic_ms()
        if pattern:
            self.membership.subscribe_matching(re.compile(pattern), now_ms)
        else:
            self.membership.subscribe([TOPIC], now_ms)
        self.drive(self.membership)

    @property
    def agreed(self) -> bool:
        """True when it knows what is its own."""
        return self.membership.settled and self._revoking is None

    def leave(self) -> None:
        """Leave the group, as a closing consumer does."""
        self.left = True
        self.membership.leave(self.world.clock.monotonic_ms(), self.vanish)

    def act(self) -> float:
        now_ms = self.world.clock.monotonic_ms()
        if not self.left:
            self.membership.polled(now_ms)
            if self._revoking is not None and now_ms >= self._revoked_ms:
                self._finish_revocation(self._revoking)
            while self.active and self._revoking is None and (event := self.membership.take_event()) is not None:
                self._carry_out(event)
            generation = self.membership.generation_id
            if generation != self._observed[1]:
                self._observed = self.book.life(), generation
            if self.membership.settled and self._revoking is None:
                if generation != self._generation:
                    self._check_generation(generation)
                for partition in self.owned:
                    self.book.own(self._life, generation, partition, self.instance_id or self.name)
            reads = self.owned and (self.membership.settled or self._revoking is not None)
            if reads and not self._committing and self.entropy.below(4) == 0:
                self._commit()
        return 10 + self.entropy.below(50)

    def _check_generation(self, generation: int) -> None:
        """Check that the coordinator knows a generation that it has announced, even after a failover."""
        life, _ = self._observed
        is_back = life == self._life and life % 2 == 0 and generation < self._generation and self.book.acknowledged
        assert not is_back, f"back: {self.name} is in generation {generation}, and was in {self._generation} before"
        self._generation, self._life = generation, life

    def _carry_out(self, event: GroupEvent) -> None:
        if isinstance(event, Assigned):
            for partition, committed in event.positions.items():
                lower_bound = self._late.pop(partition, self.book.acknowledged.get(partition, 0))
                number, text = (committed.offset, committed.metadata) if committed is not None else (0, "")
                self.book.observe(partition, number, lower_bound, text)
                self.book.hold(partition, self.name, self.world.clock.monotonic_ms())
                self.owned.add(partition)
        elif isinstance(event, Failed):
            if event.final:
                self.on_fenced(self, event.error)
        elif isinstance(event, Revoke):
            self._revoking = event
            self._revoked_ms = self.world.clock.monotonic_ms()
            if not self.is_quick and (
                self.is_slow or self.entropy.below(3) == 0
            ):  # the user's program is in the middle of something
                self._revoked_ms += self.entropy.below(REBALANCE_MS * 3 // 2)
            else:
                self._finish_revocation(event)
        else:
            self.losses += isinstance(event, Lost)
            self.owned -= set(event.partitions)
            for partition in event.partitions:
                self.book.lose(partition, self.name)

    def _finish_revocation(self, event: Revoke) -> None:
        self._revoking = None
        self.owned -= set(event.partitions)
        self.membership.revoked_done()

    def _commit(self) -> None:
        numbers = {partition: self.book.next_number(partition) for partition in sorted(self.owned)}
        self._committing = True
        submitted_ms = self.world.clock.monotonic_ms()

        def done(error: BarnabasError | None) -> None:
            self._committing = False
            if error is None:
                for partition, number in numbers.items():
                    self.book.check_holder(partition, self.name, submitted_ms)
                    if partition not in self.owned:
                        self._late.setdefault(partition, self.book.acknowledged.get(partition, 0))
                    self.book.acknowledge(partition, number)

        self.membership.commit(
            {partition: CommittedOffset(number, -1, f"no. {number}") for partition, number in numbers.items()},
            done,
            deadline_ms=self.world.clock.monotonic_ms() + 2_000,
        )


class Onlooker(Actor):
    """Asks a broker for the positions, over and over."""

    def __init__(self, world: World, name: str, book: GroupBook, broker_id: int = 1) -> None:
        self.book = book
        self.entropy = world.entropy.child(name)
        self.rounds = 0
        super().__init__(world, name, broker_id)

    def act(self) -> None:
        lower_bound = dict(self.book.acknowledged)
        self.ask(
            OffsetFetch(groups=[OffsetFetchGroup(group_id=GROUP)]), lambda result: self._observed(result, lower_bound)
        )

    def _observed(self, result: OffsetFetchResult, lower_bound: dict[TopicPartition, int]) -> None:
        (group,) = result.groups
        if group.error is ErrorCode.NONE:
            observed = {TopicPartition(each.topic, each.partition): each for each in group.partitions}
            for partition in lower_bound.keys() | observed.keys():
                each = observed.get(partition)
                number, text = (each.offset, each.metadata or "") if each is not None else (0, "")
                self.book.observe(partition, number, lower_bound.get(partition, 0), text)
            self.rounds += 1
        else:
            assert group.error in _LATER, group.error
        self.later(self.entropy.below(100))
