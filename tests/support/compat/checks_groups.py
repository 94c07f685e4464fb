"""The checks of consumer groups."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from support.waiting import wait_for

from .model import PATIENCE_S, Client, Member
from .world import World


def values_of(what: str, count: int = 40) -> list[bytes]:
    return [f"{what} {number}".encode() for number in range(count)]


class MemberGroup:
    """Members of one group of one topic; those that are still there are closed at the end."""

    def __init__(self, world: World, partitions: int, stack: ExitStack) -> None:
        self.world, self.partitions, self._stack = world, partitions, stack
        self.topic, self.group = world.topic(partitions), world.name("group")
        self.members: list[Member] = []

    def join(self, client: Client, assignor: str = "") -> Member:
        return self.enter(client.join(self.group, self.topic, assignor=assignor))

    def enter(self, member: Member) -> Member:
        """Take a member in that has just been made."""
        self.members.append(member)
        self._stack.callback(self.leave, member)
        return member

    def leave(self, member: Member) -> None:
        """Twice is harmless."""
        if member in self.members:
            self.members.remove(member)
            member.close()

    def wait_until_assigned(self) -> None:
        """Until all partitions are assigned, evenly, each to one member."""
        share, rest = divmod(self.partitions, len(self.members))
        wait_for(lambda: self._settled({share, share + 1} if rest else {share}), PATIENCE_S, pause_s=0.02)

    def _settled(self, shares: set[int]) -> bool:
        owned = [member.assignment() for member in self.members]
        together = frozenset().union(*owned)
        return (
            len(together) == sum(map(len, owned)) == self.partitions
            and {topic for topic, _ in together} == {self.topic}
            and {len(partitions) for partitions in owned} <= shares
        )

    def send(self, what: str) -> list[bytes]:
        values = values_of(what)
        self.world.spread(self.topic, values, self.partitions)
        return values

    def expect(self, values: Sequence[bytes]) -> None:
        """Until the members have got these together, each at least its share."""
        wanted = set(values)
        wait_for(lambda: wanted <= {value for m in self.members for value in got(m)}, PATIENCE_S, pause_s=0.02)
        assert all(wanted & set(got(member)) for member in self.members), "a member got nothing"


def got(member: Member) -> list[bytes | None]:
    return [record.value for record in member.received()]


@contextmanager
def member_group(world: World, partitions: int) -> Iterator[MemberGroup]:
    with ExitStack() as stack:
        yield MemberGroup(world, partitions, stack)


def check_group(world: World, client: Client) -> None:
    with member_group(world, 3) as group:
        values = group.send("before")
        member = group.join(client)
        group.wait_until_assigned()
        group.expect(values)
        group.expect(group.send("after"))
        assert len(got(member)) == 80, "something came twice"


def check_commit(world: World, client: Client) -> None:
    """A member continues where the one before it committed."""
    with member_group(world, 2) as group:
        before = group.send("before")
        first = group.join(client)
        group.expect(before)
        first.commit()
        group.leave(first)
        after = group.send("after")
        second = group.join(client)
        group.expect(after)
        assert sorted(v for v in got(second) if v) == sorted(after)


def check_rebalance(world: World, client: Client, assignor: str = "") -> None:
    with member_group(world, 4) as group:
        first = group.join(client, assignor)
        group.wait_until_assigned()
        second = group.join(client, assignor)
        group.wait_until_assigned()
        if assignor:
            wait_for(lambda: world.admin.describe_groups([group.group])[0].protocol == assignor, PATIENCE_S)
        group.expect(group.send("two"))
        group.join(client, assignor)
        group.wait_until_assigned()
        group.expect(group.send("three"))
        group.leave(second)
        group.leave(first)
        group.wait_until_assigned()
        group.expect(group.send("one"))


def check_cooperative(world: World, client: Client) -> None:
    check_rebalance(world, client, "cooperative-sticky")


def check_consumer_protocol(world: World, client: Client) -> None:
    """By KIP-848: a second member joins, the first one commits and leaves, a third one resumes when both are gone."""
    with member_group(world, 4) as group:
        before = group.send("before")
        first = group.enter(client.join_consumer_group(group.group, group.topic))
        group.wait_until_assigned()
        group.expect(before)
        assert world.group_type(group.group) == "consumer"
        second = group.enter(client.join_consumer_group(group.group, group.topic))
        group.wait_until_assigned()
        group.expect(group.send("two"))
        first.commit()
        second.commit()
        group.leave(first)
        group.wait_until_assigned()
        group.expect(group.send("one"))
        second.commit()
        group.leave(second)
        after = group.send("after")
        third = group.enter(client.join_consumer_group(group.group, group.topic))
        group.wait_until_assigned()
        group.expect(after)
        assert sorted(v for v in got(third) if v) == sorted(after)


def check_mixed(world: World, client: Client, others: Sequence[Client]) -> None:
    """One group with members of several libraries; each is there when another one joins or leaves."""
    with member_group(world, 6) as group:
        for other in others:
            group.join(other, "range")
        group.wait_until_assigned()
        ours = group.join(client, "range")
        group.wait_until_assigned()
        group.expect(group.send("together"))
        group.leave(ours)
        group.wait_until_assigned()
        group.expect(group.send("without"))
        group.join(client, "range")
        group.wait_until_assigned()
        for member in group.members[:-1]:
            group.leave(member)
        group.wait_until_assigned()
        group.expect(group.send("alone"))


def check_everybody(world: World, clients: Sequence[Client]) -> None:
    """One group with a member of each; then every other one leaves."""
    with member_group(world, 2 * len(clients)) as group:
        for client in clients:
            group.join(client, "range")
        group.wait_until_assigned()
        group.expect(group.send("all"))
        for member in group.members[::2]:
            group.leave(member)
        group.wait_until_assigned()
        group.expect(group.send("the others"))


def check_describe(world: World, client: Client, other: Client) -> None:
    """Check the state, members and partitions of a group, and that it is listed."""
    with member_group(world, 2) as group:
        group.join(other)
        group.wait_until_assigned()
        assert group.group in client.groups()
        found = client.group(group.group)
        assert (found.state, found.members) == ("Stable", 1)
        if found.partitions is not None:
            assert found.partitions == {(group.topic, 0), (group.topic, 1)}
