"""The registries of a group when others act in between, and when the connection is lost."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.coordination_faults import FaultyCoordination

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.core.classic.rebalancer import RangeRebalancer, own_share
from barnabas.core.classic.registry import group
from barnabas.core.classic.registry.group import Owned, OwnershipConflict
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.ports.coordination import CoordinationError

PLACES: list[Owned] = [("t", BrokerPartition(0, number)) for number in range(3)]
CLAIMS = dict.fromkeys(PLACES, "c-0")
TOPIC = ClassicSubscription.topics({"t": 1})


def _quiet(text: str) -> None:
    raise AssertionError(text)


class Pair:
    """Our session, with faults, and another's."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.inner = self.tree.session()
        self.other = self.tree.session()
        self.ours = FaultyCoordination(self.inner)

    def owners(self) -> dict[str, str]:
        return {str(place): thread for place, thread in group.read_owners(self.other, "g", "t", _quiet).items()}

    def close(self) -> None:
        self.inner.close()
        self.other.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.mark.parametrize("done", [True, False])
def test_a_registration_whose_answer_was_lost_is_repeated(pair: Pair, done: bool) -> None:
    pair.ours.fail("create", done=done)
    with pytest.raises(CoordinationError):
        group.register_consumer(pair.ours, "g", "c", TOPIC)
    group.register_consumer(pair.ours, "g", "c", TOPIC)
    assert pair.other.get("/consumers/g/ids/c").ephemeral


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_claim_whose_answer_was_lost_is_released_or_repeated(pair: Pair, number: int, done: bool) -> None:
    for again in (True, False):
        pair.ours.calls.clear()
        pair.ours.fail("create", number, done=done)
        with pytest.raises(CoordinationError):
            group.claim(pair.ours, "g", CLAIMS)
        assert len(pair.owners()) == number - 1 + done
        if again:
            group.claim(pair.ours, "g", CLAIMS)
            assert len(pair.owners()) == 3
        group.release(pair.ours, "g", CLAIMS)
        assert pair.owners() == {}


@pytest.mark.parametrize("name", ["get", "delete"])
@pytest.mark.parametrize("done", [True, False])
def test_a_release_that_was_cut_is_repeated(pair: Pair, name: str, done: bool) -> None:
    group.claim(pair.ours, "g", CLAIMS)
    pair.ours.fail(name, 2, done=done)
    with pytest.raises(CoordinationError):
        group.release(pair.ours, "g", CLAIMS)
    assert len(pair.owners()) in (1, 2)
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == {}


def test_claim_rollback_cut_by_connection_loss_raises_coordination_error(pair: Pair) -> None:
    """The error shows the caller that claims may remain."""
    group.claim(pair.other, "g", {PLACES[2]: "d-0"})
    pair.ours.fail("delete", 2, done=False)
    with pytest.raises(CoordinationError) as raised:
        group.claim(pair.ours, "g", CLAIMS)
    assert not isinstance(raised.value, OwnershipConflict)
    assert pair.owners() == {"0-1": "c-0", "0-2": "d-0"}
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == {"0-2": "d-0"}


def test_disconnected_nothing_is_done(pair: Pair) -> None:
    group.claim(pair.ours, "g", CLAIMS)
    pair.tree.disconnect(pair.inner)
    steps: list[Callable[[], object]] = [
        lambda: group.release(pair.ours, "g", CLAIMS),
        lambda: group.claim(pair.ours, "g", CLAIMS),
        lambda: group.write_offsets(pair.ours, "g", {PLACES[0]: 1}),
        lambda: group.read_offset(pair.ours, "g", *PLACES[0], _quiet),
        lambda: group.read_group(pair.ours, "g", "c", _quiet),
    ]
    for step in steps:
        with pytest.raises(CoordinationError, match="not connected"):
            step()
    assert len(pair.owners()) == 3
    pair.tree.reconnect(pair.inner)
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == {}


def test_a_session_that_expired_while_it_was_cut_has_lost_its_claims_to_others(pair: Pair) -> None:
    group.claim(pair.ours, "g", CLAIMS)
    pair.tree.disconnect(pair.inner)
    pair.tree.expire(pair.inner)
    group.claim(pair.other, "g", {PLACES[0]: "d-0"})
    pair.tree.reconnect(pair.inner)
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == {"0-0": "d-0"}
    with pytest.raises(OwnershipConflict):
        group.claim(pair.ours, "g", CLAIMS)
    assert pair.owners() == {"0-0": "d-0"}


def test_an_owner_that_gives_up_at_the_last_moment_is_no_conflict(pair: Pair) -> None:
    theirs = {PLACES[1]: "d-0"}
    group.claim(pair.other, "g", theirs)
    pair.ours.before("get", 1, lambda: group.release(pair.other, "g", theirs))
    group.claim(pair.ours, "g", CLAIMS)
    assert set(pair.owners().values()) == {"c-0"}


def test_an_owner_that_comes_first_wins(pair: Pair) -> None:
    pair.ours.before("create", 2, lambda: group.claim(pair.other, "g", {PLACES[1]: "d-0"}))
    with pytest.raises(OwnershipConflict, match="d-0"):
        group.claim(pair.ours, "g", CLAIMS)
    assert pair.owners() == {"0-1": "d-0"}


@pytest.mark.parametrize("new", [b"d-0", b"c-0"])
def test_release_looks_again_when_the_node_was_written_in_between(pair: Pair, new: bytes) -> None:
    group.claim(pair.ours, "g", CLAIMS)
    pair.ours.before("delete", 1, lambda: pair.other.set("/consumers/g/owners/t/0-0", new))
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == ({"0-0": "d-0"} if new == b"d-0" else {})


def test_release_does_not_mind_a_node_that_goes_in_between(pair: Pair) -> None:
    group.claim(pair.ours, "g", CLAIMS)
    pair.ours.before("delete", 1, lambda: pair.other.delete("/consumers/g/owners/t/0-0"))
    group.release(pair.ours, "g", CLAIMS)
    assert pair.owners() == {}


@pytest.mark.parametrize("name", ["set", "create"])
@pytest.mark.parametrize("done", [True, False])
def test_a_commit_that_was_cut_is_repeated(pair: Pair, name: str, done: bool) -> None:
    offsets = {place: 10 + number for number, place in enumerate(PLACES)}
    # A `set` of the first commit finds no node; it is done in vain.
    pair.ours.fail(name, done=done and name == "create")
    with pytest.raises(CoordinationError):
        group.write_offsets(pair.ours, "g", offsets)
    group.write_offsets(pair.ours, "g", offsets)
    assert group.read_offsets(pair.other, "g", PLACES, _quiet) == offsets


def test_commits_of_two_at_once_leave_the_last(pair: Pair) -> None:
    pair.ours.before("create", 1, lambda: group.write_offsets(pair.other, "g", {PLACES[0]: 5}))
    group.write_offsets(pair.ours, "g", {PLACES[0]: 7})
    assert group.read_offset(pair.other, "g", *PLACES[0], _quiet) == 7


def test_a_member_that_leaves_while_the_group_is_read_does_not_count(pair: Pair) -> None:
    group.register_consumer(pair.ours, "g", "c", TOPIC)
    group.register_consumer(pair.other, "g", "d", TOPIC)
    pair.ours.before("get", 2, lambda: group.unregister_consumer(pair.other, "g", "d"))
    assert list(group.read_group(pair.ours, "g", "c", _quiet).consumers) == ["c"]


class _Member:
    """A consumer as far as the registries see it: it gives up what it has, and claims its share."""

    def __init__(self, tree: MemoryTree, name: str) -> None:
        self.session: MemorySession = tree.session()
        self.name = name
        self.owned: dict[Owned, str] = {}

    def join(self) -> None:
        group.register_consumer(self.session, "g", self.name, ClassicSubscription.topics({"t": 2}))

    def rebalance(self) -> bool:
        view = group.read_group(self.session, "g", self.name, _quiet)
        group.release(self.session, "g", self.owned)
        shares = own_share(view, self.name, RangeRebalancer())
        wanted = {
            (topic, place): thread
            for topic, threads in shares.items()
            for thread, places in threads.items()
            for place in places
        }
        try:
            group.claim(self.session, "g", wanted)
        except OwnershipConflict:
            self.owned = {}
            return False
        self.owned = wanted
        return True


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "expire", "rebalance"]), st.integers(0, 3)), max_size=25))
def test_no_partition_has_two_owners_and_the_group_becomes_stable(
    steps: list[tuple[str, int]],
) -> None:
    tree = MemoryTree()
    keeper = tree.session()
    for broker in (0, 1):
        keeper.create(f"/brokers/ids/{broker}", b"h-1:h:1", ephemeral=True)
        keeper.create(f"/brokers/topics/t/{broker}", b"5", ephemeral=True)
    members = [_Member(tree, f"c{number}") for number in range(4)]
    joined: set[int] = set()
    for what, number in steps:
        member = members[number]
        if what == "join":
            member.join()
            joined.add(number)
        elif what == "leave":
            group.release(member.session, "g", member.owned)
            group.unregister_consumer(member.session, "g", member.name)
            member.owned = {}
            joined.discard(number)
        elif what == "expire":
            tree.expire(member.session)
            member.owned = {}
            joined.discard(number)
        else:
            member.rebalance()
        owned = [place for each in members for place in each.owned]
        assert len(owned) == len(set(owned))
    # Each attempt may fail on what another has yet to give up; one round after all have tried, none does.
    for _ in range(2):
        settled = [members[number].rebalance() for number in sorted(joined)]
    owned = [place for each in members for place in each.owned]
    if joined:
        assert all(settled)
        assert len(owned) == len(set(owned)) == 10
    for each in members:
        each.session.close()
    keeper.close()
