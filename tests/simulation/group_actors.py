"""Members of a group in the simulation, and the book of what they were told."""

from collections.abc import Sequence

from attrs import define, field
from simulation.actors import Actor
from simulation.world import PARTITIONS, TOPIC, World

from barnabas.ports.broker_api import (
    FindCoordinator,
    FindCoordinatorResult,
    GroupProtocol,
    Heartbeat,
    HeartbeatResult,
    JoinedMember,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    MemberAssignment,
    OffsetCommit,
    OffsetCommitPartition,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
)
from barnabas.ports.error_codes import ErrorCode

GROUP = "crew"
SESSION_MS = 1500
REBALANCE_MS = 1500

_ELSEWHERE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_JOIN_AGAIN = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})


@define
class GroupBook:
    """What the group has promised: owners by generation, and positions. The numbers of a partition's commits only
    grow, since one member at a time commits, one request after the other."""

    owners: dict[tuple[int, int], str] = field(factory=dict)
    acknowledged: dict[int, int] = field(factory=dict)
    seen: dict[int, int] = field(factory=dict)
    submitted: dict[int, int] = field(factory=dict)
    generation: int = 0

    def own(self, generation: int, partition: int, member: str) -> None:
        self.generation = max(self.generation, generation)
        owner = self.owners.setdefault((generation, partition), member)
        assert owner == member, f"partition {partition} is both {owner}'s and {member}'s in generation {generation}"

    def next_number(self, partition: int) -> int:
        self.submitted[partition] = self.submitted.get(partition, 0) + 1
        return self.submitted[partition]

    def acknowledge(self, partition: int, number: int) -> None:
        self.acknowledged[partition] = max(number, self.acknowledged.get(partition, 0))

    def observe(self, partition: int, number: int, promised: int, text: str) -> None:
        """`promised`: what was acknowledged when the question was asked."""
        assert number >= promised, f"lost: {promised} was acknowledged for partition {partition}, {number} is told"
        assert number <= self.submitted.get(partition, 0), f"{number} of partition {partition} was never committed"
        assert text == (f"no. {number}" if number else ""), text
        self.seen[partition] = number


class GroupActor(Actor):
    """Asks for the coordinator first, and again when it is told to."""

    def __init__(self, world: World, name: str, book: GroupBook) -> None:
        self.book = book
        self.entropy = world.entropy.child(name)
        self.found = False
        super().__init__(world, name)

    def act(self) -> None:
        if self.found:
            self.work()
        else:
            self.ask(FindCoordinator(keys=[GROUP]), self._found)

    def work(self) -> None:
        raise NotImplementedError

    def _found(self, result: FindCoordinatorResult) -> None:
        (coordinator,) = result.coordinators
        self.found = coordinator.error is ErrorCode.NONE
        assert self.found or coordinator.error is ErrorCode.COORDINATOR_NOT_AVAILABLE, coordinator
        self.later(self.entropy.below(20))


class GroupMember(GroupActor):
    """Joins, reads nothing, and commits for what it owns. The leader deals the partitions out in turn."""

    def __init__(self, world: World, name: str, book: GroupBook) -> None:
        self.member_id = ""
        self.generation = -1
        self.members: Sequence[JoinedMember] = ()
        self.owned: frozenset[int] | None = None
        self.leaving = False
        super().__init__(world, name, book)

    def work(self) -> None:
        if self.leaving:
            self.ask(LeaveGroup(group_id=GROUP, members=[LeavingMember(member_id=self.member_id)]), self._left)
        elif self.generation < 0:
            self._join()
        elif self.owned is None:
            self._sync()
        elif self.owned and self.entropy.below(2):
            self._commit(self.owned)
        else:
            beat = Heartbeat(group_id=GROUP, generation_id=self.generation, member_id=self.member_id)
            self.ask(beat, self._beaten)

    def vanish(self) -> None:
        """Without a word."""
        self.active = False

    def _join(self) -> None:
        request = JoinGroup(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[GroupProtocol("range", b"")],
        )
        self.ask(request, self._joined)

    def _joined(self, result: JoinGroupResult) -> None:
        if result.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = result.member_id
        elif result.error is ErrorCode.NONE:
            self.member_id, self.generation = result.member_id, result.generation_id
            self.members = result.members
        else:
            self._refused(result.error)
        self.later(self.entropy.below(30))

    def _sync(self) -> None:
        ids = sorted(member.member_id for member in self.members)
        shares = [[str(p) for p in range(PARTITIONS) if p % len(ids) == number] for number in range(len(ids))]
        request = SyncGroup(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[
                MemberAssignment(name, ",".join(share).encode()) for name, share in zip(ids, shares, strict=True)
            ],
        )
        self.ask(request, self._synchronized)

    def _synchronized(self, result: SyncGroupResult) -> None:
        if result.error is ErrorCode.NONE:
            self.owned = frozenset(int(number) for number in result.assignment.decode().split(",") if number)
            for partition in self.owned:
                self.book.own(self.generation, partition, self.member_id)
        else:
            self._refused(result.error)
        self.later(self.entropy.below(30))

    def _beaten(self, result: HeartbeatResult) -> None:
        self._refused(result.error)
        self.later(20 + self.entropy.below(200))

    def _commit(self, owned: frozenset[int]) -> None:
        numbers = {partition: self.book.next_number(partition) for partition in sorted(owned)}
        request = OffsetCommit(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            partitions=[
                OffsetCommitPartition(TOPIC, partition, number, -1, f"no. {number}")
                for partition, number in numbers.items()
            ],
        )

        def answered(result: OffsetCommitResult) -> None:
            for each in result.partitions:
                if each.error is ErrorCode.NONE:
                    self.book.acknowledge(each.partition, numbers[each.partition])
                else:
                    self._refused(each.error)
            self.later(self.entropy.below(100))

        self.ask(request, answered)

    def _left(self, result: LeaveGroupResult) -> None:
        errors = {result.error, *(each.error for each in result.members)}
        if errors & _ELSEWHERE:
            self.found = False
            self.later()
        else:
            assert errors <= {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID}, errors
            self.active = False

    def _refused(self, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            return
        if error in _ELSEWHERE:
            self.found = False
            if self.owned is None:
                self.generation = -1
            return
        self.generation, self.owned = -1, None
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        else:
            assert error in _JOIN_AGAIN, error


class Onlooker(GroupActor):
    """Asks for the positions, over and over."""

    def __init__(self, world: World, name: str, book: GroupBook) -> None:
        self.rounds = 0
        super().__init__(world, name, book)

    def work(self) -> None:
        promised = dict(self.book.acknowledged)
        self.ask(OffsetFetch(groups=[OffsetFetchGroup(group_id=GROUP)]), lambda result: self._told(result, promised))

    def _told(self, result: OffsetFetchResult, promised: dict[int, int]) -> None:
        (group,) = result.groups
        if group.error is ErrorCode.NONE:
            told = {each.partition: each for each in group.partitions}
            for partition in promised.keys() | told.keys():
                each = told.get(partition)
                number, text = (each.offset, each.metadata or "") if each is not None else (0, "")
                self.book.observe(partition, number, promised.get(partition, 0), text)
            self.rounds += 1
        else:
            assert group.error in _ELSEWHERE, group.error
            self.found = False
        self.later(self.entropy.below(100))
