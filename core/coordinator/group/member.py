"""The members of a group, and what they have in common."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.groups import GroupProtocol, JoinGroup
from ....ports.values import define
from .effects import To
from .records import StoredMember

MEMBER_BYTES = 4096
"""The memory of a member beyond its names and data, roughly, if it has a group to itself."""
_PROTOCOL_BYTES = 32


@define(kw_only=True, eq=False)
class Member:
    """One member. `joining` and `syncing` are where its answers go when it waits for them."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: dict[str, bytes]
    """Metadata by protocol, in the order of preference."""
    assignment: bytes = b""
    is_new: bool = True
    """It has not received the answer to its first join yet."""
    joining: To | None = None
    syncing: To | None = None

    @property
    def name(self) -> str:
        """The name of the member in the broker's log."""
        static = f" ({self.group_instance_id})" if self.group_instance_id is not None else ""
        return f"{self.member_id}{static} at {self.client_host.lstrip('/')}"

    @property
    def size_bytes(self) -> int:
        """The memory of the member, roughly. Every change of it goes through the roster."""
        names = len(self.member_id) + len(self.client_id) + len(self.group_instance_id or "")
        return MEMBER_BYTES + names + metadata_bytes(self.protocols) + len(self.assignment)

    @classmethod
    def joined(cls, member_id: str, request: JoinGroup, caller: Caller) -> "Member":
        """Return the member that the request describes."""
        return cls(
            member_id=member_id,
            group_instance_id=request.group_instance_id,
            client_id=caller.client_id or "",
            client_host=f"/{caller.host}",  # as Java shows addresses, and with it Kafka's tools
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms(request),
            protocols=protocols_by_name(request.protocols),
        )

    @classmethod
    def restored(cls, stored: StoredMember, protocol: str) -> "Member":
        """Return a member read from the log: it has only the metadata of the generation's protocol."""
        return cls(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols={protocol: stored.subscription},
            assignment=stored.assignment,
            is_new=False,
        )

    def stored(self, protocol: str, assignment: bytes) -> StoredMember:
        return StoredMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.protocols[protocol],
            assignment=assignment,
        )


def protocols_by_name(protocols: Sequence[GroupProtocol]) -> dict[str, bytes]:
    """In their order; of two with one name the first counts."""
    by_name: dict[str, bytes] = {}
    for protocol in protocols:
        by_name.setdefault(protocol.name, protocol.metadata)
    return by_name


def metadata_bytes(protocols: dict[str, bytes]) -> int:
    """Roughly what they take in memory."""
    return sum(len(name) + len(metadata) + _PROTOCOL_BYTES for name, metadata in protocols.items())


def rebalance_timeout_ms(request: JoinGroup) -> int:
    """Version 0 of the request has only the session timeout."""
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


class Roster:
    """All members, in the order in which they came. Each step costs the same however many there are, where not said."""

    __slots__ = ("_members", "_static", "_support", "size_bytes", "waiting")

    def __init__(self) -> None:
        self._members: OrderedDict[str, Member] = OrderedDict()
        """A plain dict looks for its first entry among all that were removed before it: members that all leave, one
        after the other, would cost the square of their number."""
        self._static: dict[str, str] = {}
        self._support: Counter[str] = Counter()
        self.waiting = 0
        """The number of members that wait for the answer to their join."""
        self.size_bytes = 0

    def clear(self) -> None:
        """Remove all members."""
        for each in (self._members, self._static, self._support):
            each.clear()
        self.waiting = self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str | None) -> Member | None:
        return None if member_id is None else self._members.get(member_id)

    def static_id(self, instance_id: str | None) -> str | None:
        """Return the member id that a static member has now; None when there is none."""
        return None if instance_id is None else self._static.get(instance_id)

    def first(self) -> Member | None:
        return next(iter(self._members.values()), None)

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        if member.group_instance_id is not None:
            self._static[member.group_instance_id] = member.member_id
        self._support.update(member.protocols.keys())
        self.size_bytes += member.size_bytes
        self.waiting += member.joining is not None

    def remove(self, member: Member) -> None:
        del self._members[member.member_id]
        if member.group_instance_id is not None:
            del self._static[member.group_instance_id]
        self._withdraw(member)
        self.size_bytes -= member.size_bytes
        self.waiting -= member.joining is not None

    def replace(self, member: Member, by: Member) -> None:
        """Replace a member by its new description; with another id it comes last in the order."""
        if by.member_id != member.member_id:
            del self._members[member.member_id]
        self._withdraw(member)
        self.size_bytes -= member.size_bytes
        self.waiting -= member.joining is not None
        self.add(by)

    def assign(self, member: Member, assignment: bytes) -> None:
        self.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def wait(self, member: Member, to: To) -> To | None:
        """Have the member wait for the answer to its join; return where an earlier one waited."""
        earlier, member.joining = member.joining, to
        self.waiting += earlier is None
        return earlier

    def stop_waiting(self, member: Member) -> To | None:
        """Return the callback for the answer to the member's join, which is given now; None when it does not wait."""
        to, member.joining = member.joining, None
        self.waiting -= to is not None
        return to

    def supports(self, names: Iterable[str], excluded: Member | None = None) -> bool:
        """Return True if one of the protocols is supported by every member except `excluded`."""
        if excluded is None:
            return any(self._support[name] == len(self._members) for name in names)
        others = len(self._members) - 1
        return any(self._support[name] - (name in excluded.protocols) == others for name in names)

    def elected_protocol(self) -> str:
        """Among those that all members know, the first choice of most; a step per member. There is at least one."""
        votes: Counter[str] = Counter()
        everyone = len(self._members)
        for member in self:
            votes[next(name for name in member.protocols if self._support[name] == everyone)] += 1
        return votes.most_common(1)[0][0]

    def longest_rebalance_ms(self) -> int:
        """Return the largest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def _withdraw(self, member: Member) -> None:
        support = self._support
        for name in member.protocols:
            support[name] -= 1
            if not support[name]:
                del support[name]
