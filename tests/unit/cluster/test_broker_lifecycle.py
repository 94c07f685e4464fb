"""Registrations, leases, the controller and the follower of several brokers over one tree, under a simulated clock."""

from collections.abc import Mapping, Sequence
from math import inf

import pytest

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster import layout
from barnabas.core.cluster.broker_lifecycle import BrokerLifecycleManager, LastLife
from barnabas.core.cluster.change_queue import ChangeQueue, complete
from barnabas.core.cluster.controller import Controller, without_leader
from barnabas.core.cluster.deltas import Delta, StatesChanged, TopicDeleting
from barnabas.core.cluster.election import ElectionRules, new_state
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.lease import RATE_ERROR_MAX, Lease
from barnabas.core.cluster.metadata_listener import MetadataListener, Refresh
from barnabas.core.cluster.registry import ClusterRegistry, CoordinationWentBack
from barnabas.core.cluster.topics import (
    BrokerRegistration,
    LastRegistration,
    LifeNote,
    PartitionState,
    ReplicaId,
    Topic,
)
from barnabas.ports.broker_api.envelope import Reply
from barnabas.ports.coordination import CoordinationError, NodeChange, SessionState
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.report import Level, Line
from barnabas.ports.scheduler import Outcome
from barnabas.ports.types import TopicPartition

SESSION_MS = 9000


class World:
    """A tree, and the brokers that share it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock, SeededEntropy(1))
        self.tree = MemoryTree(deliver=self.scheduler.call_soon, clock=self.clock, session_timeout_ms=SESSION_MS)
        self._expire()

    def _expire(self) -> None:
        self.scheduler.call_later(min(self.tree.expire_overdue(), 500.0), self._expire)

    def advance(self, ms: float = 100) -> None:
        self.scheduler.advance(ms)


class Member:
    """A broker's view of the cluster, without logs."""

    def __init__(self, world: World, number: int, *, last: LastLife | None = None, port: int | None = None) -> None:
        self.world = world
        self.number = number
        self.lines: list[str] = []
        self.notes: list[LifeNote] = []
        self.distrusts = 0
        self.failures: list[BarnabasError] = []
        self.applied: list[str] = []
        self.failures_left = 0
        """The number of times that the tree fails after a topic was read, so that no action follows."""
        self.always_failing: set[str] = set()
        self.applied_together: list[int] = []
        self.losses = 0
        self.elections: list[tuple[TopicPartition, int]] = []
        self.session: MemorySession = world.tree.session()
        self.registry = ClusterRegistry(self.session, self.lines.append)
        complete(self.registry.load())
        queue = ChangeQueue(world.scheduler, self.session)
        self.lease = Lease(world.scheduler, world.clock, self.session, self.lines.append)
        self.controller = Controller(
            self.registry,
            queue,
            world.scheduler,
            rules=lambda topic: ElectionRules(min_isr=2),
            elected=self._elected,
            report=self.lines.append,
        )
        self.membership = BrokerLifecycleManager(
            world.scheduler,
            self.session,
            queue,
            self.lease,
            own=BrokerRegistration(broker_id=number, endpoints=(f"kafka://b:{port or number}",)),
            last=last or LastLife(),
            note=self._note,
            distrust=self._distrust,
            registered=self.controller.registered,
            lost=self._lost,
            failed=self.failures.append,
            predecessor_ms=20_000,
            report=self.lines.append,
        )

        def submit(what: str, reading: Refresh, reply: Reply[None]) -> None:
            queue.run(reading, lambda outcome: reply(_error_of(outcome)))

        self.follower = MetadataListener(
            self.registry,
            world.scheduler,
            submit_leaders=submit,
            submit_topics=submit,
            apply_topics=self._apply_topics,
        )
        self.follower.start_watching()
        self.membership.start()

    async def _apply_topics(self, names: Sequence[str]) -> None:
        self.applied_together.append(len(names))
        await self.registry.reread(*names)
        if not self.always_failing.isdisjoint(names):
            raise CoordinationError("never")
        if self.failures_left:
            self.failures_left -= 1
            raise CoordinationError("gone")
        self.applied.extend(names)

    def _elected(self, key: TopicPartition, before: PartitionState, after: PartitionState) -> None:
        self.elections.append((key, after.leader))

    @property
    def noted(self) -> list[int]:
        return [each.broker_epoch for each in self.notes]

    def _note(self, note: LifeNote) -> None:
        self.notes.append(note)

    def _distrust(self) -> None:
        self.distrusts += 1

    def _lost(self) -> None:
        self.losses += 1
        self.controller.lost()

    @property
    def epoch(self) -> int:
        assert self.membership.registration is not None
        return self.membership.registration.broker_epoch

    def state(self, name: str = "t", number: int = 0) -> PartitionState:
        return self.registry.image.state(TopicPartition(name, number))

    def create(self, name: str, *replicas: int, partitions: int = 1) -> None:
        topic = Topic(
            name=name,
            topic_id=name.encode().rjust(16, b"\1"),
            partitions=dict.fromkeys(range(partitions), replicas),
        )
        states = {number: new_state(replicas, self.registry.image.brokers, min_isr=2) for number in range(partitions)}
        complete(self.registry.create(topic, states))

    def kill(self) -> None:
        """End the process as kill -9 does: its session expires in time."""
        self.membership.close()
        self.controller.close()
        self.follower.close()


def _error_of(outcome: Outcome[None]) -> BarnabasError | None:
    assert outcome.error is None or isinstance(outcome.error, BarnabasError), outcome.error
    return outcome.error


def cluster(world: World, count: int = 3) -> list[Member]:
    members = []
    for number in range(1, count + 1):
        members.append(Member(world, number))
        world.advance()
    return members


def test_brokers_come_and_one_of_them_is_the_controller() -> None:
    world = World()
    members = cluster(world)
    assert [member.epoch for member in members] == [1, 2, 3]
    assert [member.noted for member in members] == [[1], [2], [3]]
    assert all(member.lease.is_valid for member in members)
    for member in members:
        assert {number: each.broker_epoch for number, each in member.registry.image.brokers.items()} == {
            1: 1,
            2: 2,
            3: 3,
        }
        assert member.registry.image.controller is not None and member.registry.image.controller.broker_id == 1
    assert [member.controller.is_active for member in members] == [True, False, False]


def test_a_dead_leader_is_followed_by_the_next_in_sync() -> None:
    world = World()
    one, two, three = cluster(world)
    one.create("t", 1, 2, 3)
    world.advance()
    assert three.state() == one.state() and three.state().leader == 1
    one.kill()
    world.advance(SESSION_MS - 1000)
    assert three.state().leader == 1
    world.advance(3000)
    for member in (two, three):
        assert (member.state().leader, member.state().isr, member.state().leader_epoch) == (2, (2, 3), 1)
    assert (two.controller.is_active, three.controller.is_active) in ((True, False), (False, True))
    assert (two.controller.epoch or three.controller.epoch) == 2
    two.kill()
    world.advance(SESSION_MS + 2000)
    assert (three.state().leader, three.state().isr, three.state().elr) == (3, (3,), (2,))
    assert without_leader(three.registry.image) == 0
    three.kill()


def test_a_quick_restart_is_a_new_life() -> None:
    world = World()
    one, two, three = cluster(world)
    three.create("t", 1, 2, 3)
    one.kill()
    again = Member(world, 1, last=LastLife(broker_epoch=one.epoch, in_order=True))
    world.advance(1000)
    assert again.epoch == 4 and again.lease.is_valid
    assert again.membership.registration is not None and again.membership.registration.previous_epoch == 1
    assert (three.state().leader, three.state().isr) == (2, (2, 3)), "it has left the ISR"
    assert two.controller.is_active or three.controller.is_active or again.controller.is_active, "the dead one is none"
    assert again.failures == []


@pytest.mark.parametrize("last", [LastLife(broker_epoch=30, in_order=True), LastLife(largest_epoch=30)])
def test_counter_of_broker_epochs_that_went_back_is_raised(last: LastLife) -> None:
    world = World()
    one, two, _ = cluster(world)
    one.kill()
    world.advance(SESSION_MS + 1000)
    again = Member(world, 1, last=last)
    world.advance(1000)
    assert again.epoch == 31 and again.membership.went_back and again.failures == []
    assert again.membership.registration is not None
    assert again.membership.registration.previous_epoch == -1, "what the tree says of its lives is out of date"
    (line,) = [line for line in again.lines if "counts broker epochs from" in line]
    assert isinstance(line, Line) and line.level is Level.ERROR and "start all brokers" in line
    assert not two.membership.went_back


OWN_PATH = layout.last_registration_path(1)


def last_life(*seen: LastRegistration) -> LastLife:
    return LastLife(broker_epoch=1, in_order=True, largest_epoch=1, seen=seen)


@pytest.mark.parametrize("forgets", ["own", "own_end", "others", "none_there", "counter"])
def test_restored_tree_is_noticed_though_others_have_registered_in_it_first(
    monkeypatch: pytest.MonkeyPatch, forgets: str
) -> None:
    """At each step the data folders or the tree still show it, so a start after kill -9 finds it, too."""
    world = World()
    one, _, three = cluster(world)
    one.kill()
    world.advance(SESSION_MS + 1000)
    session = world.tree.session()
    seen = {
        "own": last_life(LastRegistration(1, 2)),
        "own_end": last_life(LastRegistration(1, 1, ended=True)),
        "others": last_life(LastRegistration(1, 1), LastRegistration(3, 4)),
        "none_there": last_life(LastRegistration(1, 1)),
        "counter": LastLife(broker_epoch=30),
    }[forgets]
    if forgets == "none_there":
        session.delete(OWN_PATH)
    before, steps, distrust, note = tree_of(session), [], Member._distrust, Member._note

    def distrusting(member: Member) -> None:
        assert {**tree_of(session), layout.BROKER_EPOCHS: b""} == before, "nothing hides it yet"
        steps.append("distrust")
        distrust(member)

    def noting(member: Member, noted: LifeNote) -> None:
        assert noted.seen[-1] == layout.decode_last_registration(1, session.get(OWN_PATH).data), "it is in the tree"
        steps.append("note")
        note(member, noted)

    monkeypatch.setattr(Member, "_distrust", distrusting)
    monkeypatch.setattr(Member, "_note", noting)
    again = Member(world, 1, last=seen)
    world.advance(1000)
    assert steps == ["distrust", "note"] and again.membership.went_back and again.failures == []
    assert again.membership.registration is not None and again.membership.registration.previous_epoch == -1
    assert again.notes[-1].seen == (LastRegistration(1, again.epoch),), "another restore is found by this one"
    (line,) = [line for line in again.lines if "restored from a backup" in line]
    assert isinstance(line, Line) and line.level is Level.ERROR and "start all brokers" in line
    assert three.membership.registration is not None and not three.membership.went_back


def tree_of(session: MemorySession) -> Mapping[str, bytes]:
    """Return the nodes that remain of the brokers after their end."""
    names = session.children(layout.LAST_REGISTRATIONS)
    paths = [layout.BROKER_EPOCHS, *(f"{layout.LAST_REGISTRATIONS}/{name}" for name in names)]
    return {path: session.get(path).data for path in paths}


@pytest.mark.parametrize(
    "last",
    [
        LastLife(),
        LastLife(broker_epoch=1, in_order=True, largest_epoch=1),
        last_life(LastRegistration(1, 1)),
        last_life(LastRegistration(1, 1), LastRegistration(3, 3)),
    ],
    ids=["new_disk", "note_of_an_earlier_version", "own", "others"],
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_tree_that_was_not_restored_is_trusted(last: LastLife, is_stored: bool) -> None:
    world = World()
    one, _, _ = cluster(world)
    one.kill()
    world.advance(SESSION_MS + 1000)
    session = world.tree.session()
    if not (is_stored or last.seen):
        session.delete(OWN_PATH)  # all brokers were of an earlier version
    again = Member(world, 1, last=last)
    world.advance(1000)
    assert (again.epoch, again.distrusts, again.membership.went_back) == (4, 0, False)
    assert again.notes[-1].seen[0] == LastRegistration(1, 4)


def test_epoch_of_a_broker_with_a_new_disk_is_above_what_the_tree_says_of_it() -> None:
    world = World()
    session = world.tree.session()
    session.create(OWN_PATH, layout.encode_last_registration(LastRegistration(1, 7)))
    assert cluster(world, 1)[0].epoch == 8
    session.set(OWN_PATH, b"written by another program")
    assert Member(world, 2).failures == []


def test_last_registration_whose_answer_is_lost_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    one, _, _ = cluster(world)
    put, answers = MemorySession.set, [False]

    def lossy(self: MemorySession, path: str, data: bytes, *, version: int | None = None) -> int:
        stored = put(self, path, data, version=version)
        if path == OWN_PATH and answers:
            answers.pop()
            raise CoordinationError("the connection was lost, and the answer with it")
        return stored

    monkeypatch.setattr(MemorySession, "set", lossy)
    world.tree.expire(one.session)
    world.advance(2000)
    assert (one.epoch, one.noted, one.failures, answers) == (5, [1, 5], [], [])


def test_latest_registration_of_others_is_noted_as_the_tree_has_it() -> None:
    world = World()
    one, _, three = cluster(world)
    brokers = one.registry.image.brokers
    one.membership.see(brokers.values())
    world.advance()
    assert one.notes[-1] == LifeNote(broker_epoch=1, seen=(LastRegistration(1, 1), LastRegistration(3, 3)))
    one.membership.see(brokers.values())
    three.membership.see(brokers.values())
    world.advance()
    assert len(one.notes) == 2 and len(three.notes) == 1, "they know it"
    old = BrokerRegistration(broker_id=4, endpoints=(), broker_epoch=9)
    one.membership.see([*brokers.values(), old])
    world.advance()
    assert len(one.notes) == 2, "a broker of an earlier version writes no node"


@pytest.mark.parametrize("is_away", [False, True])
def test_orderly_end_is_noted_where_the_service_answers(monkeypatch: pytest.MonkeyPatch, is_away: bool) -> None:
    world = World()
    one, _, _ = cluster(world)
    ended: list[bool] = []
    if is_away:
        monkeypatch.setattr(MemorySession, "get", _unreachable)
    one.membership.end(lambda: ended.append(True))
    world.advance(2000)
    monkeypatch.undo()
    assert ended == [True]
    stored = layout.decode_last_registration(1, world.tree.session().get(OWN_PATH).data)
    assert (stored.ended, one.notes[-1].seen[0].ended) == (not is_away, not is_away)


def _unreachable(*_: object, **__: object) -> None:
    raise CoordinationError("no answer")


@pytest.mark.parametrize("path", [layout.BROKER_EPOCHS, OWN_PATH])
def test_running_broker_stops_where_the_coordination_service_went_back(path: str) -> None:
    world = World()
    one, _, _ = cluster(world)
    session = world.tree.session()
    session.delete(path)
    world.tree.expire(one.session)
    world.advance(2000)
    (failure,) = one.failures
    assert isinstance(failure, CoordinationWentBack) and "Start this broker again" in str(failure)
    assert one.membership.registration is None and not one.lease.is_valid


@pytest.mark.parametrize("lost", [1, 3])
def test_registration_whose_answer_is_lost_is_the_brokers_own(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    world = World()
    one, two, _ = cluster(world)
    two.create("t", 1, 2, 3)
    create, answers = MemorySession.create, [False] * lost

    def lossy(self: MemorySession, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        create(self, path, data, ephemeral=ephemeral)
        if path == layout.broker_path(1) and answers:
            answers.pop()
            one.membership.update_registration(offline=[TopicPartition("t", 0)])
            raise CoordinationError("the connection was lost, and the answer with it")

    monkeypatch.setattr(MemorySession, "create", lossy)
    world.tree.expire(one.session)
    world.advance(2000)
    stored = two.registry.image.brokers[1]
    assert (one.failures, one.membership.registration, one.losses) == ([], stored, 1)
    assert (stored.broker_epoch, one.noted[-1], len(answers)) == (4, 4, lost - 1)
    assert stored.offline == {("t", 0)}, "what changed while the answer was awaited is registered, too"
    assert one.lease.is_valid


def test_lost_registration_of_an_earlier_session_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    one, two, _ = cluster(world)
    create, answers = MemorySession.create, [False]

    def lossy(self: MemorySession, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        create(self, path, data, ephemeral=ephemeral)
        if path == layout.broker_path(1) and answers:
            answers.pop()
            world.scheduler.call_later(50, lambda: one.membership._in_session(SessionState.EXPIRED))
            raise CoordinationError("the connection was lost, and the answer with it")

    monkeypatch.setattr(MemorySession, "create", lossy)
    world.tree.expire(one.session)
    world.advance(2000)
    assert one.failures == [] and one.epoch == 5 == two.registry.image.brokers[1].broker_epoch


def test_the_number_of_a_broker_that_lives_is_taken() -> None:
    world = World()
    one, _ = cluster(world, 2)
    other = Member(world, 1, port=77)
    world.advance(1000)
    assert isinstance(other.failures[0], ApiError)
    assert other.failures[0].code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    same_place = Member(world, 1)
    world.advance(10_000)
    assert same_place.failures == [] and same_place.membership.registration is None
    one.kill()
    world.advance(SESSION_MS + 3000)
    assert same_place.epoch > 2, "it was a broker that died at the same address"


def test_a_clock_that_runs_slowly_ends_the_lease_before_the_service_ends_the_session() -> None:
    """One second in a hundred is missing: at the session's end by the service's clock, so much of it is left here."""
    world = World()
    one = Member(world, 1)
    world.advance(2000)
    assert 0 < one.lease.left_ms <= SESSION_MS * (1 - RATE_ERROR_MAX)


def test_a_broker_that_stood_still_is_fenced_and_joins_again() -> None:
    world = World()
    one, two, _ = cluster(world)
    two.create("t", 1, 2, 3)
    world.tree.disconnect(one.session)
    world.advance(SESSION_MS - 500)
    world.advance(600)
    assert one.lease.left_ms < 0, "by its own clock, before it has heard anything"
    world.advance(2000)
    assert two.state().leader == 2
    world.tree.reconnect(one.session)
    world.advance(3000)
    assert one.losses == 1 and one.epoch == 4 and one.lease.is_valid
    observed = [line for line in one.lines if "this broker's session" in line]
    assert ["did not renew" in line for line in observed] == [True, False], "once, and once that all is well again"
    assert one.membership.registration is not None and one.membership.registration.previous_epoch == 1
    assert one.state() == two.state() and not one.controller.is_active


def test_a_session_that_ends_while_its_broker_becomes_the_controller_leaves_none_behind() -> None:
    world = World()
    one, two = cluster(world, 2)
    create, ended = two.session.create, list[str]()

    def late(path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        if path == layout.CONTROLLER and not ended:
            ended.append(path)
            world.tree.expire(two.session)  # what comes now is of the next session already
        create(path, data, ephemeral=ephemeral)

    two.session.create = late  # type: ignore[method-assign]
    one.kill()
    world.advance(SESSION_MS + 3000)
    assert ended and two.losses == 1 and two.epoch == 3
    assert layout.decode_controller(two.session.get(layout.CONTROLLER).data) == ReplicaId(2, 3), (
        "not the life before, for ever"
    )
    assert two.controller.is_active


def test_everybody_dies_and_the_last_in_sync_comes_back() -> None:
    world = World()
    members = cluster(world)
    members[0].create("t", 1, 2, 3)
    for member in members:
        member.kill()
        world.advance(SESSION_MS + 2000)
    three = Member(world, 3, last=LastLife(broker_epoch=3, in_order=True))
    world.advance(1000)
    assert (three.state().leader, three.state().isr) == (3, (3,))
    assert three.lease.left_ms < inf


def test_controlled_shutdown_moves_leaders_at_once() -> None:
    world = World()
    one, two, _ = cluster(world)
    one.create("t", 1, 2, 3, partitions=3)
    one.membership.update_registration(leaving=True)
    world.advance(500)
    assert [two.state("t", number).leader for number in range(3)] == [2, 2, 2]
    assert two.state().isr == (2, 3)


def test_a_log_that_is_out_of_use_has_no_leader_there() -> None:
    world = World()
    one, two, three = cluster(world)
    one.create("t", 1, 2, 3, partitions=2)
    one.membership.update_registration(offline=[TopicPartition("t", 0)])
    world.advance(500)
    assert [(three.state("t", each).leader, three.state("t", each).isr) for each in (0, 1)] == [
        (2, (2, 3)),
        (1, (1, 2, 3)),
    ]
    assert two.registry.image.brokers[1].offline == {TopicPartition("t", 0)}
    one.membership.update_registration(gone=[TopicPartition("t", 0), TopicPartition("u", 0)])
    world.advance(500)
    assert two.registry.image.brokers[1].offline == frozenset()


def test_a_topic_is_settled_until_that_has_worked_though_the_image_is_right_before() -> None:
    world = World()
    one, two = cluster(world, 2)
    two.failures_left = 2
    one.create("t", 1, 2)
    world.advance(200)
    assert "t" in two.registry.image.topics and not two.applied
    world.advance(5000)
    assert two.applied == ["t"]


def test_a_topic_that_goes_while_leaders_are_elected_is_passed_over() -> None:
    """Another queue deletes it, between two commits of the controller."""
    world = World()
    one, two, _ = cluster(world)
    names = [f"t{number:02}" for number in range(60)]
    for name in names:
        one.create(name, 2, 1)
    world.advance()

    def goes(delta: Delta, before: ClusterImage) -> None:
        first = before.topics.get(names[0])
        if isinstance(delta, StatesChanged) and delta.topic == names[-1] and first is not None:
            one.registry.apply(TopicDeleting(topic=first))

    one.registry.listen(goes)
    two.kill()
    world.advance(SESSION_MS + 3000)
    assert [key.topic for key, leader in one.elections if leader == 1] == names[1:]
    assert [line for line in one.lines if "failed" in line] == []


def test_stored_elections_are_reported_when_later_writes_fail() -> None:
    world = World()
    one, two, _ = cluster(world)
    names = [f"t{number:02}" for number in range(60)]
    for name in names:
        one.create(name, 2, 1)
    world.advance()
    commit, calls = one.session.commit, list[object]()

    def faulty(changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        calls.append(changes)
        if len(calls) == 2:
            raise CoordinationError("gone for a moment")
        commit(changes, guards=guards)

    one.session.commit = faulty  # type: ignore[method-assign]
    two.kill()
    world.advance(SESSION_MS + 3000)
    assert sorted(one.elections) == [(TopicPartition(name, 0), 1) for name in names]


@pytest.mark.parametrize("error", [CoordinationError("not today"), ValueError("a node holds at most 1048576 bytes")])
def test_a_topic_whose_states_cannot_be_written_does_not_keep_the_others_without_leaders(error: Exception) -> None:
    world = World()
    one, two, _ = cluster(world)
    for name in ("a", "b", "c"):
        one.create(name, 2, 1)
    world.advance()
    commit, tried = one.session.commit, list[object]()

    def faulty(changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        if any(change.path == layout.states_path(b"b".rjust(16, b"\1")) for change in changes):
            tried.append(changes)
            raise error
        commit(changes, guards=guards)

    one.session.commit = faulty  # type: ignore[method-assign]
    two.kill()
    world.advance(SESSION_MS + 3000)
    assert [one.state(name).leader for name in ("a", "b", "c")] == [1, 2, 1]
    observed = sum(str(error) in line for line in one.lines)
    assert 2 <= len(tried) < 20 and observed == isinstance(error, ValueError), "once, however often it is tried"
    one.session.commit = commit  # type: ignore[method-assign]
    world.advance(2000)
    assert one.state("b").leader == 1


def test_a_topic_that_cannot_be_settled_does_not_hold_up_the_others() -> None:
    world = World()
    one, two, _ = cluster(world)
    one.always_failing = {"a"}
    two.create("a", 2)
    world.advance(100)
    one.failures_left = 1
    two.create("b", 2)
    world.advance(100)
    assert one.applied == []
    world.advance(5000)
    assert one.applied == ["b"]
    one.always_failing.clear()
    world.advance(5000)
    assert one.applied == ["b", "a"]


def test_topics_that_are_new_are_settled_together() -> None:
    world = World()
    one, two, _ = cluster(world)
    for number in range(30):
        two.create(f"t{number}", 2)
    world.advance(1000)
    assert sorted(one.applied) == sorted(f"t{number}" for number in range(30))
    assert max(one.applied_together) > 1
    assert len(one.applied_together) < 15


def test_many_topics_of_a_dead_broker() -> None:
    world = World()
    one, two, three = cluster(world)
    for number in range(200):
        two.create(f"t{number}", 1, 2, 3)
    one.kill()
    world.advance(SESSION_MS + 2000)
    assert all(three.state(f"t{number}").leader == 2 for number in range(200))
    assert all(two.state(f"t{number}") == three.state(f"t{number}") for number in range(200))


def test_a_tree_that_was_changed_by_something_else() -> None:
    world = World()
    one, two, three = cluster(world)
    one.create("t", 1, 2, 3)
    world.advance()
    before = one.state()
    for garbage in (b"junk", b"{}", b'{"version":1,"topic_id":"x","states":{}}', b'{"version":9}'):
        one.session.set(layout.states_path(b"t".rjust(16, b"\1")), garbage)
        world.advance()
    assert two.state() == before
    lines = [line for each in (one, two, three) for line in each.lines]
    assert any("does not hold the states" in line for line in lines)
    assert sum("this broker wrote those that it knows" in line for line in lines) == 4
    one.session.set(layout.CONTROLLER_EPOCH, b"")
    two.kill()
    world.advance(SESSION_MS + 3000)
    assert sum(each.controller.is_active for each in (one,)) == 1
    _no_failures(one.lines)


def _no_failures(lines: list[str]) -> None:
    assert not [line for line in lines if "failed" in line]
