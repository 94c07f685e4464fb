"""Contract suite for assignors: the plug-in with which the leader of a group assigns partitions."""

from collections.abc import Mapping
from random import Random

from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.client.group.assignor import Assignor, Shares
from ...core.client.group.consumer_protocol import Subscription
from ...ports.types import TopicPartition

inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow], deadline=None)
topics = st.sampled_from("abcdef")
clusters = st.dictionaries(topics, st.integers(0, 7))
groups = st.dictionaries(
    st.text("mno012", min_size=1, max_size=4),
    st.builds(Subscription, topics=st.lists(topics, max_size=6).map(tuple), group_instance_id=st.none()),
    min_size=1,
    max_size=8,
)
Subscriptions = dict[str, Subscription]


def having(
    assignor: Assignor, members: Mapping[str, Subscription], shares: Shares, generation: int = 3
) -> Subscriptions:
    """Return the subscriptions that the members send in their next join if they own these shares."""
    return {
        member: evolve(
            subscription,
            owned=tuple(shares.get(member, ())) if assignor.cooperative else (),
            generation_id=generation if member in shares else -1,
            user_data=assignor.user_data(shares.get(member, ()), generation if member in shares else -1),
        )
        for member, subscription in members.items()
    }


def in_the_end(assignor: Assignor, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
    """Return the shares once what moves has been given up."""
    for round_ in range(3):
        shares = assignor.assign(members, partitions)
        given_up = {m: [p for p in each.owned if p not in shares[m]] for m, each in members.items()}
        if not any(given_up.values()):
            return shares
        assert assignor.cooperative
        assert round_ < 2, "it does not come to rest"
        members = having(assignor, members, shares, 10 + round_)
    raise AssertionError


def check(members: Mapping[str, Subscription], partitions: Mapping[str, int], shares: Shares) -> None:
    """Check that each partition of a wanted topic has exactly one reader, which subscribes to the topic."""
    assert shares.keys() == members.keys()
    wanted = {topic for each in members.values() for topic in each.topics}
    everything = [TopicPartition(topic, number) for topic in wanted for number in range(partitions.get(topic, 0))]
    assert sorted(place for share in shares.values() for place in share) == sorted(everything)
    assert all(place.topic in members[member].topics for member, share in shares.items() for place in share)
    assert all(share == sorted(share) for share in shares.values())


class AssignorContract:
    """Inherit, and give `make`."""

    def make(self) -> Assignor:
        raise NotImplementedError

    @inherited
    @given(groups, clusters, st.integers(0, 1000))
    def test_everything_goes_to_one_who_wants_it_whatever_the_order(
        self, members: Subscriptions, partitions: dict[str, int], seed: int
    ) -> None:
        shares = self.make().assign(members, partitions)
        check(members, partitions, shares)
        shuffled = list(members.items())
        Random(seed).shuffle(shuffled)
        again = {m: evolve(each, topics=tuple(reversed(each.topics))) for m, each in shuffled}
        assert self.make().assign(again, dict(reversed(partitions.items()))) == shares

    @inherited
    @given(groups, clusters, groups, clusters)
    def test_cooperative_assignment_settles_from_any_state(
        self, members: Subscriptions, partitions: dict[str, int], others: Subscriptions, grown: dict[str, int]
    ) -> None:
        """A cooperative assignor gives no member a partition that another one still owns; in the end every partition
        has its reader.
        """
        assignor = self.make()
        before = {member: share for member, share in assignor.assign(others, grown).items() if member in members}
        shares = in_the_end(assignor, having(assignor, members, before), partitions)
        check(members, partitions, shares)

    @inherited
    @given(groups, clusters, st.binary(max_size=40))
    def test_what_members_say_of_themselves_may_be_garbage(
        self, members: Subscriptions, partitions: dict[str, int], data: bytes
    ) -> None:
        claimed = [TopicPartition("a", 99), TopicPartition("gone", 0)]
        said = {m: evolve(each, user_data=data, owned=claimed, generation_id=7) for m, each in members.items()}
        shares = self.make().assign(said, partitions)
        assert shares.keys() == members.keys()

    def test_assignor_has_constant_name(self) -> None:
        name = self.make().name
        assert name
        assert name == self.make().name
