import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from attrs import evolve
from support.elections import elect_again
from support.log_lines import infos_of, warnings_of

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.adapters.system import SeededEntropy
from barnabas.core.cluster import layout, topic_store
from barnabas.core.cluster.assignment import Racks
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.deltas import (
    ConfigsChanged,
    Delta,
    LeadershipEnded,
    StatesChanged,
    TopicDeleting,
    TopicGone,
    TopicSet,
)
from barnabas.core.cluster.image import ClusterImage
from barnabas.core.cluster.registry import ATTEMPTS, ClusterRegistry, CoordinationWentBack, Deposed
from barnabas.core.cluster.topic_planning import plan_partitions, plan_topic
from barnabas.core.cluster.topics import PartitionState, Topic, check_topic_name, first_state
from barnabas.ports.broker_api.topics import NewTopic
from barnabas.ports.coordination import BadVersion, CoordinationError, Node, NodeChange, NoNode
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition


class Harness:
    """A registry over a tree in memory, and what it reported."""

    def __init__(self, brokers: int = 1) -> None:
        self.session: MemorySession = MemoryTree().session()
        self.entropy = SeededEntropy(7)
        self.lines: list[str] = []
        self.racks: dict[int, str | None] = dict.fromkeys(range(1, brokers + 1))
        self.registry = self.reopened()

    @property
    def reports(self) -> list[str]:
        return warnings_of(self.lines)

    def reopened(self) -> ClusterRegistry:
        registry = ClusterRegistry(self.session, self.lines.append)
        complete(registry.load())
        return registry

    def plan(self, new: NewTopic, **configs: str) -> Topic:
        return plan_topic(
            self.registry.image,
            new,
            self.racks,
            self.entropy,
            default_partitions=2,
            default_replication_factor=1,
            configs=configs,
        )

    def plan_partitions(
        self, name: str, count: int, racks: Racks, *, assignments: Sequence[Sequence[int]] | None = None
    ) -> Topic:
        return plan_partitions(self.registry.image, name, count, racks, assignments=assignments)

    def create(self, name: str, partitions: int = -1, **configs: str) -> Topic:
        topic = self.plan(NewTopic(name=name, partitions=partitions), **configs)
        complete(self.registry.create(topic))
        return topic

    def tree(self, path: str = "/barnabas") -> dict[str, bytes]:
        nodes = {path: self.session.get(path).data}
        for name in self.session.children(path):
            nodes.update(self.tree(f"{path}/{name}"))
        return nodes


def refused(code: ErrorCode, call: Callable[[], object], text: str | None = None) -> None:
    with pytest.raises(ApiError, match=text) as error:
        call()
    assert error.value.code == code


@pytest.mark.parametrize("name", ["a", "A-b_c.9", "a" * 249, "...", "__consumer_offsets"])
def test_legal_topic_names(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a/b", "../x", "a b", "ä", "a\n", "a\x00", "a:b"])
def test_illegal_topic_names(name: str) -> None:
    refused(ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: check_topic_name(name))
    harness = Harness()
    refused(ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: harness.create(name))


def test_a_created_topic_survives() -> None:
    harness = Harness()
    made = harness.create("t", 3, **{"retention.ms": "5"})
    assert made.partitions == {0: (1,), 1: (1,), 2: (1,)}
    assert made.replication_factor == 1
    assert any(made.topic_id)
    again = harness.reopened()
    assert again.image.topics == harness.registry.image.topics == {"t": made}
    assert again.image.topic("t") == again.image.topic_by_id(made.topic_id) == made
    assert harness.reports == []


def test_the_nodes_of_a_topic() -> None:
    harness = Harness()
    harness.create("t", 1, **{"retention.ms": "5"})
    topic = json.loads(harness.session.get("/barnabas/topics/t").data)
    assert topic["version"] == 1
    assert topic["partitions"] == {"0": [1]}
    assert len(topic["topic_id"]) == 22
    configs = json.loads(harness.session.get("/barnabas/config/topics/t").data)
    assert configs == {"version": 1, "config": {"retention.ms": "5"}}


def test_planning_stores_nothing() -> None:
    harness = Harness()
    topic = harness.plan(NewTopic(name="t"))
    assert len(topic.partitions) == 2
    with pytest.raises(NoNode):
        harness.session.get("/barnabas")
    assert harness.registry.image.topics == {}


def test_a_name_is_taken_once() -> None:
    harness = Harness()
    planned = harness.plan(NewTopic(name="t"))
    harness.create("t")
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: harness.create("t"))
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: complete(harness.registry.create(planned)))


def test_a_topic_made_by_another_broker_meanwhile() -> None:
    harness = Harness()
    other = harness.reopened()
    harness.create("t")
    planned = plan_topic(
        other.image,
        NewTopic(name="t"),
        harness.racks,
        harness.entropy,
        default_partitions=1,
        default_replication_factor=1,
        configs={},
    )
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: complete(other.create(planned)))


def test_dots_and_underscores_collide() -> None:
    harness = Harness()
    harness.create("a.b_c")
    for name in ("a_b_c", "a.b.c", "a_b.c"):
        refused(ErrorCode.INVALID_TOPIC_EXCEPTION, partial(harness.create, name), "collides with 'a.b_c'")
    harness.create("a-b-c")


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", partitions=10_001), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (NewTopic(name="t", assignments={}), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", assignments={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [1], 2: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [1], 1: [1, 2]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", partitions=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
        (NewTopic(name="t", replication_factor=1, assignments={0: [1]}), ErrorCode.INVALID_REQUEST),
    ],
)
def test_requests_that_cannot_be(new: NewTopic, code: ErrorCode) -> None:
    harness = Harness(brokers=2)
    refused(code, lambda: harness.plan(new))


def test_an_assignment_by_hand() -> None:
    harness = Harness(brokers=3)
    topic = harness.plan(NewTopic(name="t", assignments={1: [3, 1], 0: [2, 3]}))
    assert topic.partitions == {0: (2, 3), 1: (3, 1)}


def test_partitions_are_added() -> None:
    harness = Harness()
    before = harness.create("t", 1, **{"retention.ms": "5"})
    complete(harness.registry.resize(harness.plan_partitions("t", 3, harness.racks)))
    after = harness.reopened().image.topic("t")
    assert after.partitions == {0: (1,), 1: (1,), 2: (1,)}
    assert (after.topic_id, after.configs) == (before.topic_id, before.configs)
    assert harness.registry.image.topic("t") == after


def test_partitions_that_cannot_be_added() -> None:
    harness = Harness()
    harness.create("t", 2)
    plan = harness.plan_partitions
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: plan("other", 3, harness.racks))
    for count in (2, 1, 0, -1):
        refused(ErrorCode.INVALID_PARTITIONS, partial(plan, "t", count, harness.racks))
    refused(ErrorCode.POLICY_VIOLATION, lambda: plan("t", 2**31 - 1, harness.racks))
    wrong: list[list[list[int]]] = [[], [[1], [1]], [[1, 1]], [[2]], [[]]]
    for assignments in wrong:
        refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            partial(plan, "t", 3, harness.racks, assignments=assignments),
        )
    assert plan("t", 3, harness.racks, assignments=[[1]]).partitions[2] == (1,)


def test_configs_are_replaced() -> None:
    harness = Harness()
    harness.create("t", 1, **{"retention.ms": "5"})
    complete(harness.registry.set_configs("t", {"segment.bytes": "100"}))
    assert harness.registry.image.topic("t").configs == {"segment.bytes": "100"}
    assert harness.reopened().image.topic("t").configs == {"segment.bytes": "100"}
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: complete(harness.registry.set_configs("u", {})))
    refused(ErrorCode.INVALID_CONFIG, lambda: complete(harness.registry.set_configs("t", {"k": "x" * 2_000_000})))
    assert harness.registry.image.topic("t").configs == {"segment.bytes": "100"}


def test_a_deleted_topic_leaves_nothing() -> None:
    harness = Harness()
    harness.create("kept", 1)
    before = harness.tree()
    topic = harness.create("t", 2)
    elect_again(harness.registry, "t", 1)
    assert complete(harness.registry.begin_delete("t")) == topic
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: harness.registry.image.topic("t"))
    refused(ErrorCode.UNKNOWN_TOPIC_ID, lambda: harness.registry.image.topic_by_id(topic.topic_id))
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: harness.create("t"), "still being deleted")
    complete(harness.registry.finish_delete(topic))
    complete(harness.registry.finish_delete(topic))
    assert {path for path in harness.tree() if path != layout.STATES} == set(before)
    again = harness.create("t", 1)
    assert again.topic_id != topic.topic_id
    assert harness.registry.image.state(TopicPartition("t", 0)).leader_epoch == 0


def test_topic_deletion_completes_after_a_crash_at_any_write() -> None:
    class PowerCut(Exception):
        pass

    class Failing:
        """A session that dies before its n-th removal."""

        def __init__(self, session: MemorySession, removals: int) -> None:
            self._session = session
            self._left = removals

        def delete(self, path: str, *, version: int | None = None) -> None:
            self._count()
            self._session.delete(path, version=version)

        def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
            self._count()
            self._session.commit(changes, guards=guards)

        def _count(self) -> None:
            if self._left == 0:
                raise PowerCut
            self._left -= 1

        def __getattr__(self, name: str) -> object:
            return getattr(self._session, name)

    for removals in range(10):
        harness = Harness()
        topic = harness.create("t", 2)
        elect_again(harness.registry, "t", 1)
        complete(harness.registry.begin_delete("t"))
        harness.registry._coordination = Failing(harness.session, removals)  # type: ignore[assignment]  # all else delegated
        try:
            complete(harness.registry.finish_delete(topic))
        except PowerCut:
            again = harness.reopened()
            assert again.image.topics == {}
            assert {name: found.topic_id for name, found in again.image.deleting.items()} == {"t": topic.topic_id}
            complete(again.finish_delete(topic))
            assert harness.reopened().image.deleting == {}
            continue
        assert removals == 1  # all nodes at once
        return
    raise AssertionError("the deletion never came to its end")


def test_a_new_topic_does_not_inherit_states() -> None:
    harness = Harness()
    harness.create("t", 1)
    elect_again(harness.registry, "t", 0)
    harness.session.delete("/barnabas/topics/t")
    complete(harness.registry.load())
    harness.create("t", 1)
    assert harness.reopened().image.state(TopicPartition("t", 0)).leader_epoch == 0


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b"[" * 100_000,
        b'{"version":2}',
        b'{"version":1,"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1]}}',
        b'{"version":1,"topic_id":"short","partitions":{"0":[1]}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":[[1]]}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{"1":[1]}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{"0":[]}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{"0":[1,1]}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{"0":["1"]}}',
        b'{"version":1,"topic_id":"x8TeJ3qHRTq1Yq0m0h5yJw","partitions":{"0":"12"}}',
    ],
)
def test_a_node_that_makes_no_sense_is_skipped_and_named(garbage: bytes) -> None:
    harness = Harness()
    good = harness.create("good", 1)
    harness.session.create("/barnabas/topics/bad", garbage)
    complete(harness.registry.load())
    assert harness.registry.image.topics == {"good": good}
    assert len(harness.reports) == 1
    assert "/barnabas/topics/bad" in harness.reports[0]
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: harness.create("bad"), "remove it first")
    assert harness.session.get("/barnabas/topics/bad").data == garbage


def test_other_nodes_that_make_no_sense() -> None:
    harness = Harness()
    made = harness.create("t", 1, **{"retention.ms": "5"})
    harness.session.create("/barnabas/topics/not a topic", b"{}")
    harness.session.set("/barnabas/config/topics/t", b'{"version":1,"config":{"retention.ms":5}}')
    harness.session.create("/barnabas/partitions/t/0/state", b"junk")
    harness.session.create("/barnabas/partitions/t/7/state", b'{"version":1}')
    harness.session.create("/barnabas/partitions/t/x/state", b'{"version":1}')
    complete(harness.registry.load())
    assert harness.registry.image.topics == {"t": made.with_configs({})}
    assert harness.registry.image.state(TopicPartition("t", 0)).leader_epoch == 0
    for path in ("topics/not a topic", "config/topics/t", "t/0/state", "t/7/state", "t/x/state"):
        assert sum(path in report for report in harness.reports) == 1


def test_state_change_needs_the_newest_version() -> None:
    harness = Harness()
    harness.create("t", 2)
    other = harness.reopened()
    assert elect_again(harness.registry, "t", 0).leader_epoch == 1
    assert other.image.state(TopicPartition("t", 0)).leader_epoch == 0
    assert elect_again(other, "t", 1).leader_epoch == 1, "another partition, in the same node"
    assert elect_again(other, "t", 0).leader_epoch == 2, "decided again, of what the first has written"
    assert elect_again(harness.registry, "t", 1).partition_epoch == 2
    assert harness.reopened().image.states_of("t") == harness.registry.image.states_of("t")
    for missing in (TopicPartition("t", 2), TopicPartition("u", 0)):
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partial(harness.registry.image.state, missing))


def test_many_topics_change_in_few_commits() -> None:
    harness = Harness()
    names = [harness.create(f"t{number}", 1).name for number in range(100)]
    complete(harness.registry.change_states(names, all_again))
    assert all(harness.reopened().image.state(TopicPartition(name, 0)).leader_epoch == 1 for name in names)
    assert complete(harness.registry.change_states([*names, "unknown"], lambda topic, image: {})) == []


def test_a_late_controller_changes_nothing() -> None:
    harness = Harness()
    harness.create("t", 1)
    harness.session.create("/barnabas/controller_epoch")
    guards = {"/barnabas/controller_epoch": 0}
    assert complete(harness.registry.change_states(["t"], all_again, guards)) == [TopicPartition("t", 0)]
    harness.session.set("/barnabas/controller_epoch", b"")
    with pytest.raises(Deposed):
        complete(harness.registry.change_states(["t"], all_again, guards))
    assert harness.reopened().image.state(TopicPartition("t", 0)).leader_epoch == 1


def all_again(topic: Topic, image: ClusterImage) -> Mapping[int, PartitionState]:
    states = {number: image.state(TopicPartition(topic.name, number)) for number in topic.partitions}
    return {
        number: evolve(state, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1)
        for number, state in states.items()
    }


def test_broker_with_logs_of_a_deleted_topic_is_asked_to_remove_them() -> None:
    harness = Harness(brokers=3)
    topic = harness.plan(NewTopic(name="t", assignments={0: [2, 3], 1: [3, 1]}))
    complete(harness.registry.create(topic))
    complete(harness.registry.begin_delete("t", {1, 2, 3}))
    complete(harness.registry.finish_delete(topic))
    assert harness.create("t", 1).topic_id != topic.topic_id, "the name is free"
    for broker in (3, 1, 2):
        assert topic_store.deleted_of(harness.session, broker) == {topic.topic_id: "t"}
        topic_store.confirm_deleted(harness.session, topic.topic_id, broker)
        topic_store.confirm_deleted(harness.session, topic.topic_id, broker)
        assert topic_store.deleted_of(harness.session, broker) == {}
    assert harness.session.children("/barnabas/deleted") == []


def test_broker_with_replicas_in_the_tree_is_asked_despite_a_stale_image() -> None:
    harness = Harness(brokers=3)
    topic = harness.plan(NewTopic(name="t", assignments={0: [1]}))
    complete(harness.registry.create(topic))
    late = harness.reopened()
    complete(harness.registry.move(evolve(topic, partitions={0: (1, 3)}), {}))
    state = harness.registry.image.state(TopicPartition("t", 0))
    assert (state.replicas, state.partition_epoch) == ((1, 3), 1), "the state has its assignment with it"
    going = complete(late.begin_delete("t", {1}))
    assert going.partitions == {0: (1, 3)}
    assert [broker for broker in (1, 2, 3) if topic_store.deleted_of(harness.session, broker)] == [1, 3]
    complete(late.finish_delete(going))
    assert harness.reopened().image.is_empty


def test_leadership_in_a_deleted_topic_ends_before_the_topic_is_read_again() -> None:
    harness = Harness(brokers=3)
    topic = harness.plan(NewTopic(name="t", assignments={0: [1]}))
    complete(harness.registry.create(topic))
    harness.create("other", 1)
    late = harness.reopened()
    observed: list[Delta] = []
    late.listen(lambda delta, _: observed.append(delta))
    complete(late.reread_deleted())
    assert observed == []
    complete(harness.registry.finish_delete(complete(harness.registry.begin_delete("t", {1}))))
    complete(late.reread_deleted())
    assert observed == [LeadershipEnded(topic=topic)]
    assert late.image.topic("t") == topic, "its logs are removed when the queue of topics comes to it"
    late.end_deleted([*harness.session.children(layout.DELETED), "of no topic"])
    assert observed == [LeadershipEnded(topic=topic)] * 2


def test_a_late_deletion_leaves_the_next_topic_of_its_name_alone() -> None:
    harness = Harness(brokers=3)
    topic = harness.plan(NewTopic(name="t", assignments={0: [1]}))
    complete(harness.registry.create(topic))
    late = harness.reopened()
    complete(harness.registry.finish_delete(complete(harness.registry.begin_delete("t", {1}))))
    again = harness.create("t", 1)
    with pytest.raises(BadVersion):
        complete(late.begin_delete("t", {1}))
    assert harness.reopened().image.topic("t").topic_id == again.topic_id


@pytest.mark.slow
def test_a_topic_that_fits_into_no_node() -> None:
    harness = Harness(brokers=9)
    big = NewTopic(name="t", partitions=10_000, replication_factor=9)
    complete(harness.registry.create(harness.plan(big)))
    factors = harness.registry.image.topic("t").replication_factor
    assert factors == 9
    with pytest.raises(ApiError) as error:
        topic = harness.registry.image.topic("t")
        for _ in range(10):
            topic = harness.plan_partitions("t", len(topic.partitions) + 10_000, harness.racks)
            complete(harness.registry.resize(topic))
    assert error.value.code == ErrorCode.INVALID_PARTITIONS


def test_the_coordination_failing_is_not_hidden() -> None:
    tree = MemoryTree(deliver=lambda callback: None)
    session = tree.session()
    registry = ClusterRegistry(session, lambda text: None)
    tree.disconnect(session)
    with pytest.raises(CoordinationError):
        complete(registry.load())


def test_each_change_of_a_topic_calls_the_listener() -> None:
    harness = Harness()
    harness.create("t", 1, **{"retention.ms": "5"})
    complete(harness.registry.resize(harness.plan_partitions("t", 3, harness.racks)))
    complete(harness.registry.set_configs("t", {"retention.ms": "6", "segment.bytes": "100"}))
    complete(harness.registry.set_configs("t", {"retention.ms": "6", "segment.bytes": "100"}))
    complete(harness.registry.set_configs("t", {"segment.bytes": "100"}))
    complete(harness.registry.finish_delete(complete(harness.registry.begin_delete("t"))))
    assert infos_of(harness.lines) == [
        "created topic t: 1 partition, replication factor 1, retention.ms=5",
        "topic t has 3 partitions now, 1 before",
        "configuration of topic t: retention.ms=6 (was 5), segment.bytes=100",
        "configuration of topic t: retention.ms is no longer set (was 6)",
        "deleted topic t: 3 partitions",
    ]
    assert harness.reports == []


def test_listeners_are_called_in_order_for_each_change() -> None:
    harness = Harness()
    observed: list[tuple[str, Delta, int, int]] = []

    def listener(name: str) -> Callable[[Delta, ClusterImage], None]:
        return lambda delta, before: observed.append((name, delta, before.version, harness.registry.image.version))

    end = harness.registry.listen(listener("first"))
    harness.registry.listen(listener("second"))
    began = harness.registry.image.version
    topic = harness.create("t", 1)
    made = TopicSet(topic=topic, states={})
    assert observed == [("first", made, began, began + 1), ("second", made, began, began + 1)]
    end()
    del observed[:]
    complete(harness.registry.set_broker_configs(None, {"a": "1"}))
    elect_again(harness.registry, "t", 0)
    complete(harness.registry.begin_delete("t"))
    complete(harness.registry.finish_delete(topic))
    state = evolve(first_state((1,)), leader_epoch=1, partition_epoch=1)
    assert [(name, delta) for name, delta, _, _ in observed] == [
        ("second", ConfigsChanged(broker_id=None, configs={"a": "1"})),
        ("second", StatesChanged(topic="t", topic_id=topic.topic_id, states={0: state}, version=0)),
        ("second", TopicDeleting(topic=topic)),
        ("second", TopicGone(name="t")),
    ]


def test_configs_of_brokers() -> None:
    harness = Harness()
    complete(harness.registry.set_broker_configs(None, {"a": "1"}))
    complete(harness.registry.set_broker_configs(7, {"a": "2"}))
    harness.session.create("/barnabas/config/brokers/x", b"junk")
    harness.session.create("/barnabas/config/brokers/8", b"junk")
    again = harness.reopened()
    assert again.image.configs == {None: {"a": "1"}, 7: {"a": "2"}, 8: {}}
    assert [report.split(",")[0] for report in harness.reports] == [
        "ignored /barnabas/config/brokers/8",
        "ignored /barnabas/config/brokers/x",
    ]
    harness.session.set("/barnabas/config/brokers/7", b'{"version":1,"config":{"a":"3"}}')
    complete(again.reread_configs(7))
    assert again.image.configs[7] == {"a": "3"}


def test_a_topic_with_many_states_comes_back_and_goes() -> None:
    harness = Harness()
    topic = harness.plan(NewTopic(name="t", partitions=100))
    complete(harness.registry.create(topic))
    for number in range(1, 100):  # as an older version has written them
        old = b'{"version":1,"leader":1,"leader_epoch":%d,"controller_epoch":0,"isr":[1]}' % number
        harness.session.create(f"/barnabas/partitions/t/{number}/state", old)
    again = harness.reopened()
    assert [again.image.state(TopicPartition("t", number)).leader_epoch for number in range(100)] == list(range(100))
    assert harness.session.children(layout.OLD_STATES) == [], "they are stored by the id of the topic now"
    assert harness.reopened().image.states_of("t") == again.image.states_of("t")
    complete(again.begin_delete("t"))
    complete(again.finish_delete(topic))
    assert harness.session.children("/barnabas/topics") == harness.session.children(layout.STATES) == []


def test_states_by_topic_name_are_converted_once() -> None:
    harness = Harness()
    for name in ("t", "u", "v"):
        complete(harness.registry.create(harness.plan(NewTopic(name=name, partitions=1200))))
    topics = harness.registry.image.topics
    state = evolve(first_state((1,)), leader_epoch=7)
    states = {number: evolve(state, leader_epoch=number) for number in range(1, 1200)}
    for name, topic_id in (("t", topics["t"].topic_id), ("u", b"another topic id")):
        harness.session.create(layout.old_states_path(name), layout.encode_states(topic_id, states))
    junk = layout.old_states_path("v")
    harness.session.create(junk, b"junk")
    first, second = harness.reopened(), harness.reopened()
    for registry in (first, second):
        assert [registry.image.state(TopicPartition("t", number)).leader_epoch for number in range(1200)] == [
            *range(1200)
        ]
        assert registry.image.states_of("u") == registry.image.states_of("v") == {}
    assert harness.session.children(layout.OLD_STATES) == ["v"] and any(junk in line for line in harness.reports)
    assert len(harness.session.children(layout.STATES)) == 3
    assert elect_again(second, "t", 700).leader_epoch == 701
    assert elect_again(first, "t", 701).leader_epoch == 702
    assert elect_again(first, "t", 700).leader_epoch == 702


def test_conversion_that_was_interrupted_or_overtaken_loses_no_states() -> None:
    harness = Harness()
    topic = harness.plan(NewTopic(name="t", partitions=1200))
    complete(harness.registry.create(topic))
    states = {number: evolve(first_state((1,)), leader_epoch=7) for number in range(1200)}
    old = layout.old_states_path("t")
    harness.session.create(old, layout.encode_states(topic.topic_id, states))
    newer = {number: evolve(states[number], leader_epoch=8) for number in range(500)}
    harness.session.create(layout.states_path(topic.topic_id), layout.encode_states(topic.topic_id, newer))
    commit, interfered = harness.session.commit, list[object]()

    def overtaken(changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        if not interfered:
            interfered.append(harness.session.set(layout.topic_path("t"), layout.encode_topic(topic)))
        commit(changes, guards=guards)

    harness.session.commit = overtaken  # type: ignore[method-assign]
    image = harness.reopened().image
    assert [image.state(TopicPartition("t", number)).leader_epoch for number in (499, 500, 1199)] == [8, 7, 7]
    assert harness.session.children(layout.OLD_STATES) == []


def test_states_of_a_deleted_topic_never_come_into_those_of_its_successor() -> None:
    harness = Harness()
    topic = harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    late = harness.reopened()
    complete(harness.registry.begin_delete("t"))
    complete(harness.registry.finish_delete(topic))
    harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    before = harness.tree()
    assert complete(late.change_states(["t"], all_again)) == []
    complete(late.reread_states(["t"]))
    assert complete(late.change_states(["t"], all_again)) == []
    assert harness.tree() == before


def test_states_that_change_before_their_topic_is_known_are_read_again() -> None:
    harness = Harness()
    other = harness.reopened()
    topic = harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    get_many = harness.session.get_many

    def meanwhile(paths: Sequence[str]) -> list[Node | None]:
        found = get_many(paths)
        if layout.states_path(topic.topic_id) in paths and "t" not in other.image.topics:
            complete(harness.registry.change_states(["t"], all_again))
            complete(other.reread_states_nodes([(topic.topic_id, 0)]))
        return found

    harness.session.get_many = meanwhile  # type: ignore[method-assign]
    complete(other.reread("t"))
    assert other.image.state(TopicPartition("t", 0)).leader_epoch == 2


@pytest.mark.parametrize("is_loaded", [True, False])
def test_states_of_partitions_that_are_not_known_yet_are_written_again(is_loaded: bool) -> None:
    harness = Harness()
    harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    late, get_many = harness.reopened(), harness.session.get_many
    grown = harness.plan_partitions("t", 2, harness.racks)

    def grow() -> None:
        complete(harness.registry.resize(grown, {1: evolve(first_state((1,)), leader_epoch=5)}))

    def meanwhile(paths: Sequence[str]) -> list[Node | None]:
        found = []
        for path in paths:
            found += get_many([path])
            if path == layout.topic_path("t") and len(harness.registry.image.topic("t").partitions) == 1:
                grow()
        return found

    if is_loaded:
        harness.session.get_many = meanwhile  # type: ignore[method-assign]
        late = harness.reopened()
    else:
        grow()
        complete(late.reread_states(["t"]))
    assert len(late.image.topic("t").partitions) == 1
    assert elect_again(late, "t", 0).leader_epoch == 2
    assert harness.reopened().image.state(TopicPartition("t", 1)).leader_epoch == 5
    complete(late.reread("t"))
    assert late.image.state(TopicPartition("t", 1)).leader_epoch == 5


def test_topic_with_more_states_than_one_commit_takes_is_created_and_deleted() -> None:
    harness = Harness(brokers=9)
    topic = harness.plan(NewTopic(name="t", partitions=10_000, replication_factor=5))
    epochs = {broker: 1_000_000_000 + broker for broker in range(10)}
    states = {
        number: PartitionState(leader=replicas[0], leader_epoch=0, isr=replicas, broker_epochs=epochs)
        for number, replicas in topic.partitions.items()
    }
    complete(harness.registry.create(topic, states))
    again = harness.reopened()
    assert len(again.image.states_of("t")) == 10_000
    assert again.image.state(TopicPartition("t", 9_999)).broker_epochs.keys() == set(topic.partitions[9_999])
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: complete(harness.reopened().create(topic, states)))
    assert len(harness.session.children(layout.STATES)) == 20
    complete(again.begin_delete("t"))
    complete(again.finish_delete(topic))
    assert harness.session.children(layout.STATES) == []


def test_partitions_and_configs_are_stored_together_or_refused() -> None:
    harness = Harness(brokers=9)
    new = NewTopic(name="t", partitions=10_000, replication_factor=9)
    refused(ErrorCode.INVALID_CONFIG, lambda: harness.plan(new, k="x" * 900_000), "together")
    complete(harness.registry.create(harness.plan(new, k="x" * 500_000)))
    assert len(harness.reopened().image.topic("t").configs["k"]) == 500_000


def test_a_topic_that_goes_after_the_last_try_is_no_error() -> None:
    harness = Harness()
    topic = harness.create("t", 1)
    other, commit, tries = harness.reopened(), harness.session.commit, list[object]()

    def contended(changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        if any(change.path.startswith(layout.STATES) for change in changes) and len(tries) < ATTEMPTS:
            tries.append(changes)
            if len(tries) == ATTEMPTS:
                complete(other.begin_delete("t"))
                complete(other.finish_delete(topic))
            raise BadVersion("another one was quicker")
        commit(changes, guards=guards)

    harness.session.commit = contended  # type: ignore[method-assign]
    assert complete(harness.registry.change_states(["t"], all_again)) == []
    assert len(tries) == ATTEMPTS


def test_states_of_a_topic_that_is_gone_are_not_made_again() -> None:
    """Another broker has deleted it, and this one has seen that its states are away, but not yet that it is."""
    harness = Harness()
    topic = harness.create("t", 1)
    harness.create("u", 1)
    complete(harness.registry.change_states(["t"], all_again))
    other = harness.reopened()
    complete(other.begin_delete("t"))
    complete(other.finish_delete(topic))
    complete(harness.registry.reread_states(["t"]))
    assert "t" in harness.registry.image.topics
    assert complete(harness.registry.change_states(["t", "u"], all_again)) == [TopicPartition("u", 0)]
    assert len(harness.session.children(layout.STATES)) == 1


@pytest.mark.parametrize("is_writing", [True, False])
def test_states_that_went_back_are_noticed_by_a_running_broker(is_writing: bool) -> None:
    harness = Harness()
    topic = harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    before = harness.session.get(layout.states_path(topic.topic_id)).data
    for _ in range(3):
        complete(harness.registry.change_states(["t"], all_again))
    path, observed = layout.states_path(topic.topic_id), list[CoordinationWentBack]()
    harness.registry.add_went_back_listener(observed.append)
    harness.session.delete(path)
    harness.session.create(path, before)
    for _ in range(2):
        with pytest.raises(CoordinationWentBack, match="Stop all brokers, then start them"):
            if is_writing:
                complete(harness.registry.change_states(["t"], all_again))
            else:
                complete(harness.registry.reread_states(["t"]))
    assert len(observed) == 1
    assert elect_again(harness.reopened(), "t", 0).leader_epoch == 2


@pytest.mark.parametrize("is_junk", [True, False])
def test_states_that_were_removed_by_hand_and_written_again_count(is_junk: bool) -> None:
    harness = Harness()
    topic = harness.create("t", 1)
    for _ in range(4):
        complete(harness.registry.change_states(["t"], all_again))
    other, path = harness.reopened(), layout.states_path(topic.topic_id)
    for registry in (harness.registry, other):
        registry.add_went_back_listener(lambda error: pytest.fail(str(error)))
    harness.session.delete(path)
    if is_junk:
        harness.session.create(path, b"junk")
    complete(harness.registry.reread_states(["t"]))
    assert elect_again(harness.registry, "t", 0).leader_epoch == 5
    complete(other.reread_states(["t"]))
    assert other.image.state(TopicPartition("t", 0)).leader_epoch == 5
    assert elect_again(other, "t", 0).leader_epoch == 6


@pytest.mark.parametrize("late_readings", [1, 2])
def test_states_that_a_late_reading_brings_are_not_taken_for_a_restored_tree(late_readings: int) -> None:
    harness = Harness()
    harness.create("t", 1)
    complete(harness.registry.change_states(["t"], all_again))
    get_many, late = harness.session.get_many, list[list[Node | None]]()

    def slow(paths: Sequence[str]) -> list[Node | None]:
        found = get_many(paths)
        if len(late) < late_readings:
            late.append(found)
            complete(harness.registry.change_states(["t"], all_again))
        return found

    harness.session.get_many = slow  # type: ignore[method-assign]
    complete(harness.registry.reread_states(["t"]))
    assert len(late) == late_readings
    assert harness.registry.image.state(TopicPartition("t", 0)).leader_epoch == 1 + late_readings
