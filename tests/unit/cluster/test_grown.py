"""More replicas for a topic that has fewer than it should."""

from collections.abc import Mapping

from barnabas.core.cluster.reassignment import begin_move, grown
from barnabas.core.cluster.topics import Topic


def topic(*replicas: tuple[int, ...]) -> Topic:
    return Topic(name="t", topic_id=bytes(16), partitions=dict(enumerate(replicas)))


def racks(*brokers: int) -> Mapping[int, str | None]:
    return dict.fromkeys(brokers)


def test_new_replicas_come_last_and_are_spread() -> None:
    after = grown(topic((1,), (2,), (1,), (2,)), 2, racks(1, 2, 3, 4))
    assert after.partitions == {0: (1, 3), 1: (2, 4), 2: (1, 3), 3: (2, 4)}
    assert after.adding == {0: (3,), 1: (4,), 2: (3,), 3: (4,)}
    assert not after.removing


def test_there_are_as_many_as_there_are_live_brokers_for_them() -> None:
    after = grown(topic((1,)), 3, racks(1, 2))
    assert after.partitions == {0: (1, 2)}
    assert grown(topic((1, 9)), 3, racks(1, 2)).partitions == {0: (1, 9, 2)}, "one that is away keeps its place"


def test_where_nothing_is_to_be_done_nothing_is() -> None:
    enough = topic((1, 2, 3), (1, 2, 3, 4))
    assert grown(enough, 3, racks(1, 2, 3, 4)) is enough
    alone = topic((1,))
    assert grown(alone, 3, racks(1)) is alone
    moving = begin_move(topic((1,)), 0, (2,), {1, 2})
    assert grown(moving, 3, racks(1, 2, 3)) is moving, "once it is there"


def test_racks_without_a_replica_come_first() -> None:
    after = grown(topic((1,)), 3, {1: "a", 2: "a", 3: "b", 4: "a"})
    assert after.partitions == {0: (1, 3, 2)}


def test_machines_count_as_brokers_do() -> None:
    workers = {1: "m", 2: "m", 3: "n", 4: "n"}
    assert grown(topic((1,), (4,)), 3, racks(1, 2, 3, 4), workers).partitions == {0: (1, 3), 1: (4, 2)}
    alone = topic((1,))
    assert grown(alone, 3, racks(1, 2), workers) is alone, "another worker of the machine would fail with it"
