"""Classic consumers share the partitions of their topics through any event in the group."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from support.classic_world import GROUP, ClassicWorld, Member
from support.long_tests import first_is_quick

from barnabas.core.classic.consumer.registry import ConsumerRegistry
from barnabas.core.classic.consumer.settings import ConsumerRebalanceFailed
from barnabas.core.classic.rebalancer import RangeRebalancer
from barnabas.core.classic.registry import layout
from barnabas.core.classic.registry.group import Owned, OwnershipConflict
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.classic.registry.topic_filter import TopicFilter
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.errors import ClosedError, ConfigError


@pytest.fixture
def world() -> ClassicWorld:
    return ClassicWorld()


def numbered(start: int, stop: int) -> list[bytes]:
    return [b"%05d" % number for number in range(start, stop)]


def settled(world: ClassicWorld, members: list[Member], topic: str, count: int) -> Callable[[], bool]:
    """Return True when the members own every partition, by the registries and by their own state."""

    def check() -> bool:
        owners = world.owners(topic)
        held = [place for member in members for place in member.places]
        return len(owners) == count and sorted(held) == sorted(owners)

    return check


def fill(world: ClassicWorld, topic: str, count: int) -> None:
    """Append `count` messages to each partition; the text has the partition and a number."""
    for broker in world.brokers.values():
        for (name, partition), log in broker.logs.items():
            if name == topic:
                log.append([b"%d-%d %04d" % (broker.broker_id, partition, number) for number in range(count)])


def by_partition(members: list[Member]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for member in members:
        for value in member.values:
            found.setdefault(value.split()[0], []).append(value)
    return found


def test_registers_as_the_registries_want_it(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    Member(world, "a", {"t": 2})
    assert world.onlooker.get(layout.consumer_path(GROUP, "g_a")).data == b'{ "t": 2 }'
    assert world.owners("t") == {BrokerPartition(0, 0): "g_a-0", BrokerPartition(0, 1): "g_a-1"}


def test_a_newcomer_gets_its_share_and_nothing_is_lost_or_out_of_order(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 4})
    fill(world, "t", 50)
    first = Member(world, "a", {"t": 1}, fetch_size=100)
    first.run_until_got(60)
    second = Member(world, "b", {"t": 1}, fetch_size=100)
    world.run_until(settled(world, [first, second], "t", 4))
    assert (len(first.places), len(second.places)) == (2, 2)

    def all_read() -> bool:
        first.drain()
        second.drain()
        return len(first.got) + len(second.got) >= 200

    world.run_until(all_read)
    found = by_partition([first, second])
    # The offsets were committed when the partitions moved: nothing comes twice.
    assert {len(values) for values in found.values()} == {50}
    assert all(a < b for values in found.values() for a, b in pairwise(values))


def test_rebalance_leaves_retained_partitions_undisturbed(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 4})
    first = Member(world, "a", {"t": 1}, autocommit_enable=False)
    fill(world, "t", 10)
    first.run_until_got(40)
    links = list(broker.links)
    second = Member(world, "b", {"t": 1}, autocommit_enable=False)
    world.run_until(settled(world, [first, second], "t", 4))
    world.advance(500)
    assert first.drain() == []
    assert first.consumer.owned() == {("t", BrokerPartition(0, n)): 180 for n in (0, 1)}
    assert links[0] in broker.links


def test_a_member_that_leaves_or_dies_leaves_its_share(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 6})
    members = [Member(world, name, {"t": 1}) for name in "abc"]
    world.run_until(settled(world, members, "t", 6))
    assert [len(member.places) for member in members] == [2, 2, 2]
    members.pop().stop()
    world.run_until(settled(world, members, "t", 6))
    members.pop(0).crash()
    world.run_until(settled(world, members, "t", 6))
    assert len(members[0].places) == 6


def test_more_threads_than_partitions_leaves_some_idle_with_a_word(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 3})
    assert len(member.places) == 1
    assert sum("no partition is left for t g_a-" in text for text in world.reports) == 2


def test_a_topic_that_comes_later_and_a_broker_that_brings_more(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {})
    member = Member(world, "a", {"t": 1})
    assert member.places == set()
    broker.add_topics({"t": 1})
    fill(world, "t", 5)
    member.run_until_got(5)
    world.add_broker(1, {"t": 2})
    world.run_until(lambda: len(member.places) == 3)


def test_a_broker_that_has_more_partitions_of_a_topic_than_before(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1})
    world.onlooker.set(layout.topic_broker_path("t", 0), b"3")
    world.run_until(lambda: len(member.places) == 3)


def test_a_broker_that_dies_and_comes_back_elsewhere(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    other = world.add_broker(1, {"t": 1})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(10)
    broker.die()
    world.run_until(lambda: member.places == {BrokerPartition(1, 0)})
    assert world.committed("t")[BrokerPartition(0, 0)] == 90
    other.log("t").append([b"meanwhile"])
    member.run_until_got(11)
    broker.running = True
    broker.register({"t": 1})
    broker.log("t").append([b"again"])
    member.run_until_got(12)
    assert member.values[10:] == [b"meanwhile", b"again"]


def test_a_filter_picks_up_topics_and_has_one_stream_for_all(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"red.a": 1, "blue": 1})
    member = Member(world, "a", ClassicSubscription.filter(TopicFilter.whitelist("red.*"), 2))
    assert world.onlooker.get(layout.consumer_path(GROUP, "g_a")).data == b"*2*red.*"
    assert {topic for topic, _ in member.consumer.owned()} == {"red.a"}
    broker.add_topics({"red.b": 2, "green": 1})
    world.run_until(lambda: len(member.consumer.owned()) == 3)
    broker.log("red.a").append([b"one"])
    broker.log("red.b", 0).append([b"two"])
    broker.log("blue").append([b"other"])
    member.run_until_got(2)
    assert sorted((m.topic, m.value) for m in member.got) == [("red.a", b"one"), ("red.b", b"two")]


def test_a_trivial_filter_and_a_blacklist_pick_up_topics_too(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"x": 1})
    white = Member(world, "a", ClassicSubscription.filter(TopicFilter.whitelist("new,newer"), 1))
    black = Member(world, "b", ClassicSubscription.filter(TopicFilter.blacklist("new.*"), 1))
    broker.add_topics({"new": 1, "y": 1})
    world.run_until(lambda: len(white.places) == 1 and len(black.consumer.owned()) == 2)
    assert {topic for topic, _ in white.consumer.owned()} == {"new"}


def test_groups_do_not_know_each_other(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1})
    world.onlooker.create("/consumers/other/ids/x", b'{ "t": 1 }', ephemeral=True)
    world.onlooker.create("/consumers/other/owners/t/0-0", b"x-0", ephemeral=True)
    member.run_until_got(10)


def test_garbage_in_the_registries_is_skipped_with_its_path(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    broker.log("t").append(numbered(0, 3))
    world.onlooker.create(f"/consumers/{GROUP}/ids/junk", b"\xff\xfe{")
    world.onlooker.create(f"/consumers/{GROUP}/offsets/t/0-0", b"NaN")
    world.onlooker.create("/brokers/topics/t/9", b"many")
    member = Member(world, "a", {"t": 1})
    member.run_until_got(3)
    for path in (f"/consumers/{GROUP}/ids/junk", f"/consumers/{GROUP}/offsets/t/0-0", "/brokers/topics/t/9"):
        assert any(path in text for text in world.reports)


def test_nothing_happens_when_the_share_stays(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 2})
    member = Member(world, "a", {"t": 1})
    world.advance(100)
    before = member.consumer.exchanges
    broker.add_topics({"other": 1})
    Member(world, "b", {"other": 1})
    world.advance(2000)
    assert member.consumer.exchanges == before


# --- conflicts


def test_a_conflict_is_tried_again_until_it_is_gone(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    path = layout.owner_path(GROUP, "t", BrokerPartition(0, 1))
    world.onlooker.create(path, b"somebody-0", ephemeral=True)
    member = Member(world, "a", {"t": 1}, wait=False)
    world.advance(150)
    assert world.owners("t") == {BrokerPartition(0, 1): "somebody-0"}  # all or nothing
    assert member.places == set()
    world.onlooker.delete(path)
    world.run_until(settled(world, [member], "t", 2), 200)


@pytest.mark.parametrize("healed_by_release", [True, False])
def test_persistent_ownership_conflict_fails_all_streams_until_group_changes(
    world: ClassicWorld, healed_by_release: bool
) -> None:
    world.add_broker(0, {"t": 2})
    path = layout.owner_path(GROUP, "t", BrokerPartition(0, 0))
    world.onlooker.create(path, b"somebody-0", ephemeral=True)
    member = Member(world, "a", {"t": 2}, rebalance_retries_max=3, wait=False)
    began = world.clock.monotonic_ms()
    world.run_until(lambda: bool(member.started))
    assert 200 <= world.clock.monotonic_ms() - began < 300
    assert isinstance(member.started[0], ConsumerRebalanceFailed)
    for number in range(2):
        with pytest.raises(ConsumerRebalanceFailed, match="somebody-0"):
            member.poll(number)
        assert member.poll(number) is None
    world.advance(60_000)
    assert member.places == set()
    if healed_by_release:
        world.onlooker.delete(path)
    else:
        world.onlooker.create(f"/consumers/{GROUP}/ids/A", b'{ "t": 1 }', ephemeral=True)  # now that one is its
    world.run_until(lambda: len(member.places) == (2 if healed_by_release else 1), 1000)


def test_a_conflict_that_goes_away_while_the_last_attempt_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClassicWorld(slow_registries=True)
    world.add_broker(0, {"t": 2})
    path = layout.owner_path(GROUP, "t", BrokerPartition(0, 1))
    world.onlooker.create(path, b"somebody-0", ephemeral=True)
    claim = ConsumerRegistry.claim

    def claim_and_release(registry: ConsumerRegistry, *arguments: Any) -> dict[Owned, int]:
        try:
            return claim(registry, *arguments)
        except OwnershipConflict:
            world.onlooker.delete(path)
            raise

    monkeypatch.setattr(ConsumerRegistry, "claim", claim_and_release)
    member = Member(world, "a", {"t": 1}, rebalance_retries_max=1, wait=False)
    world.run_until(settled(world, [member], "t", 2), 500)


def test_a_newcomer_does_not_wait_the_whole_back_off(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 4})
    members = [Member(world, name, {"t": 1}, rebalance_backoff_ms=2000) for name in "ab"]
    world.run_until(settled(world, members, "t", 4), 300)
    assert not [text for text in world.reports if "failed" in text]


def test_owned_partitions_are_read_during_failed_rebalances(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1})
    world.onlooker.create(layout.owner_path(GROUP, "t", BrokerPartition(1, 0)), b"somebody-0", ephemeral=True)
    world.add_broker(1, {"t": 1})
    world.run_until(lambda: "attempt 2 of 4" in str(world.reports))
    fill(world, "t", 5)
    member.run_until_got(5)


def test_start_offsets_that_fail_are_a_failed_rebalance(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})

    def start(topic: str, place: BrokerPartition) -> int | None:
        raise ValueError("the database is down")

    member = Member(world, "a", {"t": 1}, start_offsets=start, rebalance_retries_max=1, wait=False)
    world.run_until(lambda: bool(member.started))
    with pytest.raises(ConsumerRebalanceFailed, match="the database is down"):
        member.poll()


# --- sessions


def test_an_expired_session_gives_up_everything_and_joins_again(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1}, fetch_size=60)
    world.run_until(lambda: member.poll() is not None)
    world.advance(100)
    world.tree.expire(member.session)
    world.run_until(lambda: not member.places)
    assert member.poll() is None  # nothing of what was fetched before goes out now
    world.run_until(settled(world, [member], "t", 2))
    assert world.onlooker.get(layout.consumer_path(GROUP, "g_a")).data == b'{ "t": 1 }'
    member.run_until_got(10)
    assert sorted(member.values) == sorted(set(member.values))  # what was consumed has been committed


def test_after_an_expired_session_another_owner_s_offset_is_left_alone(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    fill(world, "t", 10)
    place = BrokerPartition(0, 0)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(10)
    world.tree.disconnect(member.session)
    world.advance(10)
    world.tree.expire(member.session)  # unseen
    world.onlooker.create(layout.owner_path(GROUP, "t", place), b"somebody-0", ephemeral=True)
    world.commit("t", place, 400)
    world.tree.reconnect(member.session)
    world.advance(5000)
    assert world.committed("t") == {place: 400}


def test_the_last_commit_leaves_another_owner_s_offset_alone(world: ClassicWorld) -> None:
    """The process was stopped for longer than its session, and ends before it learns that."""
    world.add_broker(0, {"t": 1})
    fill(world, "t", 10)
    place = BrokerPartition(0, 0)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(10)
    world.tree.expire(member.session)
    world.onlooker.create(layout.owner_path(GROUP, "t", place), b"somebody-0", ephemeral=True)
    world.commit("t", place, 400)
    member.stop()
    assert world.committed("t") == {place: 400}


def test_a_giving_back_that_is_repeated_leaves_another_owner_s_offset_alone(world: ClassicWorld) -> None:
    """The first time it came to an end after one of the partitions was released."""
    place = BrokerPartition(0, 0)
    registry = ConsumerRegistry(
        world.tree.session(),
        group_id=GROUP,
        consumer_id="g_a",
        subscription=ClassicSubscription.topics({"t": 1}),
        rebalancer=RangeRebalancer(),
        report=world.reports.append,
    )
    world.onlooker.create(layout.owner_path(GROUP, "t", place), b"somebody-0", ephemeral=True)
    world.commit("t", place, 400)
    registry.give_back({("t", place): 180}, [(("t", place), "g_a-0")])
    assert world.committed("t") == {place: 400}


def test_two_members_and_an_expired_session_never_share_a_partition(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 4})
    members = [Member(world, "a", {"t": 1}), Member(world, "b", {"t": 1})]
    world.run_until(settled(world, members, "t", 4))
    world.tree.disconnect(members[0].session)
    world.advance(10)
    world.tree.expire(members[0].session)
    world.run_until(lambda: len(members[1].places) == 4)
    assert len(members[0].places) == 2  # it cannot know
    world.tree.reconnect(members[0].session)
    world.run_until(lambda: [len(member.places) for member in members] == [2, 2])
    assert settled(world, members, "t", 4)()


def test_a_suspended_session_reads_on_and_rebalances_afterwards(world: ClassicWorld) -> None:
    broker = world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1})
    world.tree.disconnect(member.session)
    world.advance(10)
    broker.add_topics({})
    world.add_broker(1, {"t": 1})
    fill(world, "t", 5)
    member.run_until_got(5)
    world.advance(10_000)
    assert member.drain() == []
    assert not member.errors
    world.tree.reconnect(member.session)
    member.run_until_got(10)


def test_a_consumer_cut_off_hands_out_nothing_by_the_time_that_another_owns_its_partitions(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1}, zk_sessiontimeout_ms=6000)
    member.run_until_got(5)
    world.tree.disconnect(member.session)
    fill(world, "t", 5)
    member.run_until_got(10)  # soon after the cut it continues
    world.advance(2000)
    fill(world, "t", 5)
    world.advance(10_000)
    assert member.drain() == []
    world.tree.reconnect(member.session)
    member.run_until_got(15)
    assert not member.errors


def test_reading_through_any_cut_as_in_0_7(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1}, zk_suspended_stop_ms=-1)
    world.tree.disconnect(member.session)
    world.advance(60_000)
    fill(world, "t", 5)
    member.run_until_got(5)


def test_owner_nodes_that_vanish_are_made_again(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(10)
    world.onlooker.delete(layout.owner_path(GROUP, "t", BrokerPartition(0, 0)))
    world.onlooker.delete(layout.consumer_path(GROUP, "g_a"))  # as when an earlier life's session ends
    world.run_until(settled(world, [member], "t", 2))
    assert world.onlooker.get(layout.consumer_path(GROUP, "g_a")).ephemeral
    world.advance(500)
    assert member.drain() == []


def test_an_expiry_in_the_middle_of_a_rebalance_begins_it_again(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 2})
    world.onlooker.create(layout.owner_path(GROUP, "t", BrokerPartition(0, 1)), b"somebody-0", ephemeral=True)
    member = Member(world, "a", {"t": 1}, rebalance_backoff_ms=10_000, wait=False)
    world.advance(50)
    world.onlooker.delete(layout.owner_path(GROUP, "t", BrokerPartition(0, 1)))
    world.tree.expire(member.session)
    world.run_until(settled(world, [member], "t", 2), 1000)  # at once, not after the back-off


# --- the beginning and the end


def test_start_fails_when_consumer_node_is_taken(world: ClassicWorld) -> None:
    world.onlooker.create(layout.consumer_path(GROUP, "g_b"), b"something else", ephemeral=True)
    member = Member(world, "b", {"t": 1}, wait=False)
    world.run_until(lambda: bool(member.started))
    assert isinstance(member.started[0], CoordinationError)
    with pytest.raises(ClosedError):
        member.consumer.start(lambda _: None)


def test_a_consumer_id_with_a_slash_is_refused(world: ClassicWorld) -> None:
    member = Member(world, "a/b", {"t": 1}, wait=False)
    world.run_until(lambda: bool(member.started))
    assert isinstance(member.started[0], ConfigError)


def test_stop_reports_failed_commit_and_leaves_group(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    fill(world, "t", 5)
    member = Member(world, "a", {"t": 1})
    member.run_until_got(5)
    world.tree.disconnect(member.session)
    member.consumer.stop(member.stopped.append)
    world.run_until(lambda: bool(member.stopped))
    assert isinstance(member.stopped[0], CoordinationError)
    assert world.onlooker.children(layout.consumer_ids_path(GROUP)) == []
    with pytest.raises(ClosedError):
        member.consumer.stop(member.stopped.append)


def test_stop_leaves_no_timer_behind(world: ClassicWorld) -> None:
    world.add_broker(0, {"t": 1})
    member = Member(world, "a", {"t": 1})
    member.stop()
    world.advance(60_000)
    assert world.scheduler.waiting == 0


# --- at random


@pytest.mark.parametrize("seed", first_is_quick(range(20), 6))
def test_a_restless_group_delivers_everything_in_order_of_each_partition(seed: int) -> None:
    """Members join, stop, crash and lose sessions, brokers break connections; at the end everybody agrees."""
    world = ClassicWorld(seed, slow_registries=bool(seed % 2))
    for broker_id in range(2):
        world.add_broker(broker_id, {"t": 3})
    chance = world.entropy.below
    everybody: list[Member] = []
    alive: list[Member] = []
    written = 0
    for step in range(25):
        if written < 200:
            for broker in world.brokers.values():
                for (_, partition), log in broker.logs.items():
                    log.append([b"%d-%d %04d" % (broker.broker_id, partition, n) for n in range(written, written + 10)])
            written += 10
        what = chance(6)
        if what <= 1 or not alive:
            member = Member(world, f"m{step}", {"t": 1 + chance(2)}, fetch_size=150, autocommit_interval_ms=300)
            everybody.append(member)
            alive.append(member)
        elif what == 2:
            alive.pop(chance(len(alive))).stop()
        elif what == 3:
            alive.pop(chance(len(alive))).crash()
        elif what == 4:
            world.tree.expire(alive[chance(len(alive))].session)
        else:
            world.brokers[chance(2)].cut()
        for _ in range(chance(8)):
            world.advance(50)
            for member in alive:
                member.drain()
            places = [place for member in alive for place in member.places]
            assert len(places) == len(set(places)), "two members read one partition"
    if not alive:
        alive.append(Member(world, "last", {"t": 1}))
        everybody.append(alive[0])
    world.run_until(settled(world, alive, "t", 6))

    def complete() -> bool:
        for member in alive:
            member.drain()
        found = by_partition(everybody)
        return len(found) == 6 and all(len(set(values)) == written for values in found.values())

    world.run_until(complete)
    for member in everybody:
        assert not [error for error in member.errors if not isinstance(error, ConsumerRebalanceFailed)]
        for values in by_partition([member]).values():
            # Within one time of ownership the order holds; a partition that comes back may begin earlier.
            backwards = sum(a >= b for a, b in pairwise(values))
            assert backwards <= member.consumer.exchanges
