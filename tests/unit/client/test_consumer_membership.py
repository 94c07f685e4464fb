"""A member by KIP-848 against a coordinator that follows a script: heartbeats, reconciliation, commits."""

import re
from typing import Any

import pytest
from support.group_world import POLL_INTERVAL_MS, Consumer, World
from support.plain_cluster import id_of

from barnabas.core.client.group.consumer_protocol import PROTOCOL_TYPE
from barnabas.core.client.group.events import Assigned, Failed, Lost, Revoke
from barnabas.core.client.group.subscribed_topics import broker_regex
from barnabas.ports.broker_api.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    TopicIdPartitions,
)
from barnabas.ports.broker_api.groups import (
    FetchedGroup,
    FetchedOffset,
    JoinGroup,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    PartitionOutcome,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition

T = [TopicPartition("t", number) for number in range(8)]
INTERVAL_MS = 5_000


class Group:
    """The coordinator of one group, which gives each member what the test says, and takes every epoch."""

    def __init__(self, world: World) -> None:
        self.epoch = 1
        self.given: dict[str, list[TopicPartition]] = {}
        self.ids = {name: id_of(name) for name in world.harness.topics}
        self.beats: list[ConsumerGroupHeartbeat] = []
        self.errors: list[ErrorCode] = []
        self._observed: dict[str, list[TopicPartition]] = {}
        world.scripts.append(self._answer)

    def give(self, name: str, *partitions: TopicPartition) -> None:
        self.epoch += 1
        self._observed.pop(name, None)
        self.given[name] = list(partitions)

    def _answer(self, consumer: Consumer, request: Any) -> Any:
        if isinstance(request, OffsetFetch):
            (group,) = request.groups
            found = [FetchedOffset(*each) for each in group.partitions or ()]
            return OffsetFetchResult(groups=[FetchedGroup(group_id=group.group_id, partitions=found)])
        if not isinstance(request, ConsumerGroupHeartbeat):
            return None
        self.beats.append(request)
        if request.member_epoch < 0:
            return ConsumerGroupHeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)
        if self.errors:
            return ConsumerGroupHeartbeatResult(error=self.errors.pop(0), error_message="it is so")
        given = self.given.get(consumer.name, [])
        is_full = request.rebalance_timeout_ms >= 0 and request.topic_partitions is not None
        says_it = is_full or self._observed.get(consumer.name) != given
        self._observed[consumer.name] = list(given)
        return ConsumerGroupHeartbeatResult(
            member_id=request.member_id,
            member_epoch=self.epoch,
            heartbeat_interval_ms=INTERVAL_MS,
            assignment=self.by_id(given) if says_it else None,
        )

    def by_id(self, partitions: list[TopicPartition]) -> list[TopicIdPartitions]:
        topics: dict[bytes, list[int]] = {}
        for tp in partitions:
            topics.setdefault(self.ids[tp.topic], []).append(tp.partition)
        return [TopicIdPartitions(*each) for each in topics.items()]


def member(
    world: World, group: Group, *topics: str, given: list[TopicPartition] | None = None, **settings: Any
) -> Consumer:
    """Return a member with its assignment, T[0] and T[1] unless the test names another."""
    group.give("a", *(T[:2] if given is None else given))
    consumer = world.join("a", *(topics or ("t",)), **{"group_protocol": "consumer", **settings})
    world.until(lambda: consumer.membership.settled and not consumer.membership.has_event)
    return consumer


def commits(code: ErrorCode) -> Any:
    return lambda request: OffsetCommitResult(
        partitions=[PartitionOutcome(each.topic, each.partition, code) for each in request.partitions]
    )


# --- heartbeats


def test_joining_heartbeat_says_everything_and_later_ones_only_what_changed() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group, max_poll_interval_ms=7_000, client_rack="r1", group_remote_assignor="range")
    first = group.beats[0]
    assert first == ConsumerGroupHeartbeat(
        group_id="g",
        member_id=a.membership.member_id,
        member_epoch=0,
        rack_id="r1",
        rebalance_timeout_ms=7_000,
        subscribed_topic_names=("t",),
        server_assignor="range",
        topic_partitions=[],
    )
    assert re.fullmatch("[A-Za-z0-9_-]{22}", first.member_id)
    assert a.reads == dict.fromkeys(T[:2])
    world.pass_time(2 * INTERVAL_MS)
    observed, *others = group.beats[1:]
    assert observed.topic_partitions == group.by_id(T[:2])
    assert (observed.member_epoch, observed.rebalance_timeout_ms, observed.subscribed_topic_names) == (
        group.epoch,
        -1,
        None,
    )
    plain = ConsumerGroupHeartbeat(group_id="g", member_id=first.member_id, member_epoch=group.epoch)
    assert others == [plain] * len(others)
    assert 1 <= len(others) <= 2


def test_member_without_partitions_asks_again_soon_but_not_for_ever() -> None:
    world = World(t=4)
    group = Group(world)
    a = world.join("a", "t", group_protocol="consumer")
    world.pass_time(500)
    assert [len(a.of(Assigned)), a.reads, a.membership.settled] == [1, {}, False]
    world.pass_time(4_000)
    assert len(group.beats) == 4
    assert a.membership.settled
    world.pass_time(INTERVAL_MS)
    assert len(group.beats) == 5


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode(69)])
def test_fenced_member_loses_its_partitions_and_joins_again_with_its_id(code: ErrorCode) -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    group.errors.append(code)
    count = len(group.beats)
    world.until(lambda: len(a.of(Assigned)) == 2)
    assert [event.partitions for event in a.of(Lost)] == [T[:2]]
    assert a.reads == dict.fromkeys(T[:2])
    again = next(beat for beat in group.beats[count:] if beat.member_epoch == 0)
    assert (again.member_id, again.topic_partitions) == (group.beats[0].member_id, [])
    assert again.subscribed_topic_names == ("t",)


@pytest.mark.parametrize("code", [14, 15, 16])
def test_coordinator_that_moves_or_loads_gets_everything_again(code: int) -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    group.errors.append(ErrorCode(code))
    world.pass_time(2 * INTERVAL_MS)
    assert not a.of(Lost)
    full = [beat for beat in group.beats[1:] if beat.rebalance_timeout_ms >= 0]
    assert [(beat.member_epoch, beat.topic_partitions) for beat in full] == [(group.epoch, group.by_id(T[:2]))]


def test_broken_connection_costs_no_partition() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    world.once(ConsumerGroupHeartbeat, TransportError("the connection was cut"))
    world.pass_time(3 * INTERVAL_MS)
    assert a.events == a.of(Assigned)
    full = [beat for beat in group.beats[1:] if beat.rebalance_timeout_ms >= 0]
    assert [(beat.member_epoch, beat.topic_partitions) for beat in full] == [(group.epoch, group.by_id(T[:2]))]


# --- reconciliation


def test_revoked_partitions_are_acknowledged_at_once_and_not_before_the_user_gave_them_up() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group, given=T[:4])
    a.holds_revocations = True
    group.give("a", *T[:2])
    world.until(lambda: bool(a.of(Revoke)))
    assert a.of(Revoke)[0].partitions == T[2:4]
    world.pass_time(3 * INTERVAL_MS)
    held = [beat.topic_partitions for beat in group.beats if beat.topic_partitions]
    assert held == [group.by_id(T[:4])]
    a.membership.revoked_done()
    a.wake()
    world.pass_time(10)
    assert group.beats[-1].topic_partitions == group.by_id(T[:2])
    world.pass_time(10)
    assert [list(event.positions) for event in a.of(Assigned)] == [T[:4], []]


def test_larger_assignment_adds_only_the_new_partitions() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    group.give("a", *T[:4])
    world.until(lambda: len(a.of(Assigned)) == 2)
    assert list(a.of(Assigned)[1].positions) == T[2:4]
    assert a.of(Assigned)[1].generation_id == group.epoch == a.membership.generation_id
    assert not a.of(Revoke)


def test_topic_made_again_with_the_same_name_is_revoked_and_assigned() -> None:
    world = World(t=2, u=2)
    group = Group(world)
    a = member(world, group)
    group.ids["t"] = world.harness.topic_ids["t"] = other = b"another-topic-id"
    world.cluster.other_ids["t"] = other
    group.give("a", *T[:2])
    world.until(lambda: len(a.of(Assigned)) == 2)
    assert a.of(Revoke)[0].partitions == T[:2] == list(a.of(Assigned)[1].positions)


def test_assigned_topic_without_metadata_is_requested_by_id() -> None:
    world = World(t=4, u=2)
    group = Group(world)
    group.give("a", TopicPartition("u", 1))
    a = world.join("a", group_protocol="consumer")
    a.subscribe_matching("u|v")
    world.until(lambda: a.membership.settled and not a.membership.has_event)
    assert list(a.reads) == [TopicPartition("u", 1)]
    assert [request.topic_ids for request in world.of(Metadata) if request.topic_ids] == [(id_of("u"),)]
    assert a.membership.topics == {"u"}


def test_assignment_is_acknowledged_though_the_member_had_given_it_up_before() -> None:
    world = World(t=4, u=1)
    group = Group(world)
    a = member(world, group)
    a.subscribe("u")
    world.until(lambda: not a.reads)
    world.pass_time(20)
    assert group.beats[-1].topic_partitions == []
    count = len(group.beats)
    group.give("a")
    world.pass_time(INTERVAL_MS + 20)
    assert [beat.topic_partitions for beat in group.beats[count:]][-1] == []


# --- subscriptions


def test_changed_subscription_is_sent_at_once_and_revokes_unsubscribed_topics() -> None:
    world = World(t=4, u=1)
    group = Group(world)
    a = member(world, group)
    group.give("a", TopicPartition("u", 0))
    a.subscribe("u")
    world.pass_time(30)
    names = [beat.subscribed_topic_names for beat in group.beats if beat.subscribed_topic_names is not None]
    assert names == [("t",), ("u",)]
    world.until(lambda: list(a.reads) == [TopicPartition("u", 0)])
    assert a.of(Revoke)[0].partitions == T[:2]


def test_pattern_goes_to_the_coordinator_and_is_taken_back() -> None:
    world = World(t=4, u=1)
    group = Group(world)
    group.give("a", *T[:2])
    a = world.join("a", group_protocol="consumer")
    a.subscribe_matching("[st]")
    world.until(lambda: a.membership.settled and not a.membership.has_event)
    first = group.beats[0]
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == ((), "[st]")
    assert a.membership.topics == {"t"}
    a.subscribe("t")
    world.pass_time(30)
    regexes = [(beat.subscribed_topic_regex, beat.subscribed_topic_names) for beat in group.beats[1:]]
    assert ("", ("t",)) in regexes
    assert list(a.reads) == T[:2]


@pytest.mark.parametrize("pattern", ["(?!u).", "t|__.*", "(t)\\1?"])
def test_pattern_that_means_something_else_to_brokers_is_matched_here(pattern: str) -> None:
    world = World(t=4, u=1, v=1)
    group = Group(world)
    a = world.join("a", group_protocol="consumer")
    a.subscribe_matching(pattern)
    world.until(lambda: bool(group.beats))
    assert group.beats[0].subscribed_topic_regex is None
    assert "t" in (group.beats[0].subscribed_topic_names or ())


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REGULAR_EXPRESSION, ErrorCode.UNSUPPORTED_VERSION])
def test_pattern_that_the_coordinator_refuses_is_matched_here(code: ErrorCode) -> None:
    world = World(t=4, u=1)
    group = Group(world)
    group.give("a", *T[:2])
    group.errors.append(code)
    a = world.join("a", group_protocol="consumer")
    a.subscribe_matching("[st]")
    world.until(lambda: a.membership.settled and not a.membership.has_event)
    assert not a.errors
    assert group.beats[-1].subscribed_topic_regex is None
    assert group.beats[1].subscribed_topic_names == ("t",)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("t.*", "t.*"),
        ("^a-(b|c)[0-9]{1,3}$", "^a-(b|c)[0-9]{1,3}$"),
        ("(?P<name>x+?)\\.y", "(?P<name>x+?)\\.y"),
        (re.compile("T", re.IGNORECASE), "(?i)T"),
        (re.compile("t", re.VERBOSE), None),
        ("(?=a)a", None),
        ("(?<!a)a", None),
        ("(a)\\1", None),
        ("a{,3}", None),
        ("a{2000}", None),
        ("a\\Z", None),
        ("\\u0061", None),
    ],
)
def test_pattern_reaches_brokers_only_if_re2_reads_it_alike(
    pattern: str | re.Pattern[str], expected: str | None
) -> None:
    assert broker_regex(re.compile(pattern)) == expected


# --- being out


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i1", -2)])
def test_leaving_member_says_so_and_a_static_one_that_it_returns(instance: str | None, epoch: int) -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group, instance=instance)
    done = a.leave()
    world.pass_time(20)
    assert done == [True]
    last = group.beats[-1]
    assert (last.member_epoch, last.instance_id, last.topic_partitions) == (epoch, instance, ())
    world.pass_time(3 * INTERVAL_MS)
    assert group.beats[-1] is last


def test_member_whose_user_does_not_poll_leaves_and_joins_again_when_it_does() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    a.busy = True
    world.pass_time(POLL_INTERVAL_MS + INTERVAL_MS)
    assert group.beats[-1].member_epoch == -1
    a.busy = False
    world.until(lambda: len(a.of(Assigned)) == 2)
    (lost,) = a.of(Lost)
    assert lost.partitions == T[:2]
    assert "max.poll.interval.ms" in lost.reason


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.UNRELEASED_INSTANCE_ID, "has group.instance.id 'i1', and has not left"),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, "group.consumer.assignors"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, "group.consumer.max.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "no permission"),
        (ErrorCode.UNSUPPORTED_VERSION, "set group.protocol=classic"),
        (ErrorCode.GROUP_ID_NOT_FOUND, "cannot become one"),
    ],
)
def test_refused_member_raises_the_reason_and_joins_at_the_next_poll(code: ErrorCode, text: str) -> None:
    world = World(t=4)
    group = Group(world)
    group.errors.append(code)
    a = member(world, group, instance="i1")
    (event,) = a.of(Failed)
    assert isinstance(event.error, ApiError)
    assert event.error.code is code
    assert text in str(event.error)
    assert a.reads == dict.fromkeys(T[:2])


def test_fenced_instance_fails_for_good() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group, instance="i1")
    group.errors.append(ErrorCode.FENCED_INSTANCE_ID)
    world.until(lambda: bool(a.errors))
    count = len(group.beats)
    world.pass_time(3 * INTERVAL_MS)
    assert a.of(Failed)[0].final
    assert len(group.beats) == count


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND])
def test_auto_joins_by_the_classic_protocol_where_the_new_one_is_refused(code: ErrorCode) -> None:
    world = World(t=2)
    group = Group(world)
    group.errors.append(code)
    a = world.join("a", "t", group_protocol="auto")
    world.run_until_idle()
    assert not a.errors
    assert a.membership.group_protocol == "classic"
    assert world.of(JoinGroup)[0].protocol_type == PROTOCOL_TYPE
    assert len(group.beats) == 1


# --- commits


def test_commit_names_the_member_epoch_and_follows_it() -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    world.once(OffsetCommit, commits(ErrorCode.STALE_MEMBER_EPOCH))
    world.scripts.append(lambda _, request: commits(ErrorCode.NONE)(request) if type(request) is OffsetCommit else None)
    group.epoch = old = group.epoch + 1
    done = a.commit({T[0]: 7})
    world.pass_time(2_000)
    assert done == [None]
    first, second = world.of(OffsetCommit)
    assert (first.member_id, first.knows_group_id_not_found) == (a.membership.member_id, True)
    assert (first.generation_id, second.generation_id) == (old - 1, old)
    assert not a.of(Lost)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND])
def test_commit_of_a_member_that_was_removed_fails_and_partitions_are_lost(code: ErrorCode) -> None:
    world = World(t=4)
    group = Group(world)
    a = member(world, group)
    world.once(OffsetCommit, commits(code))
    done = a.commit({T[0]: 7})
    world.until(lambda: len(a.of(Assigned)) == 2)
    assert isinstance(done[0], ApiError)
    assert done[0].code is code
    assert a.of(Lost)[0].partitions == T[:2]


def test_fetch_of_offsets_names_the_member_and_is_repeated_with_its_new_epoch() -> None:
    world = World(t=4)
    group = Group(world)
    stale = OffsetFetchResult(groups=[FetchedGroup(group_id="g", error=ErrorCode.STALE_MEMBER_EPOCH)])
    world.once(OffsetFetch, stale)
    a = member(world, group)
    asked = [request.groups[0] for request in world.of(OffsetFetch)]
    assert [each.member_id for each in asked] == [a.membership.member_id] * 2
    assert [each.member_epoch for each in asked] == [group.epoch] * 2
    assert a.reads == dict.fromkeys(T[:2])
