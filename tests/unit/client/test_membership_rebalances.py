"""Memberships with the real coordinator: members join, leave and vanish; their partitions, and their errors."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_world import SESSION_MS, Consumer, World
from support.long_tests import examples

from barnabas.core.client.group.events import Lost
from barnabas.ports.types import TopicPartition

KINDS = ("range", "roundrobin", "sticky", "cooperative-sticky")


def crowd(world: World, names: str, *topics: str, kind: str = "range") -> list[Consumer]:
    consumers = [world.join(name, *topics, assignors=[kind]) for name in names]
    world.run_until_idle()
    return consumers


@pytest.mark.parametrize("kind", KINDS)
def test_one_member_gets_everything(kind: str) -> None:
    world = World(t=3, u=2)
    (a,) = crowd(world, "a", "t", "u", kind=kind)
    assert sorted(a.reads) == [*(TopicPartition("t", n) for n in range(3)), *(TopicPartition("u", n) for n in range(2))]
    assert (a.membership.assignment, a.membership.generation_id) == (sorted(a.reads), 1)
    assert a.notified


@pytest.mark.parametrize("kind", KINDS)
def test_members_share_and_take_over(kind: str) -> None:
    world = World(t=6)
    a, b, c = crowd(world, "abc", "t", kind=kind)
    assert [len(each.reads) for each in (a, b, c)] == [2, 2, 2]
    b.leave()
    world.run_until_idle()
    assert (len(a.reads), len(b.reads), len(c.reads)) == (3, 0, 3)
    since = world.now
    c.vanish()
    world.until(lambda: len(a.reads) == 6)
    assert world.now - since < SESSION_MS + 3_000
    assert not a.of(Lost)


STEPS = ["join", "leave", "vanish", "cut", "wait", "other topics", "grow", "commit", "move"]


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=14),
    st.sampled_from(KINDS),
    st.integers(0, 100),
)
@settings(max_examples=examples(25), deadline=None)
def test_whatever_happens_every_partition_is_read_once_in_the_end(
    steps: list[tuple[str, int]], kind: str, seed: int
) -> None:
    world = World(seed=seed, t=5, u=3)
    topics = (["t"], ["u"], ["t", "u"])
    commits: list[tuple[Consumer, list[Any]]] = []
    vanished: list[Consumer] = []
    for number, (step, which) in enumerate(steps):
        live = world.live
        chosen = live[which % len(live)] if live else None
        if step == "join" or chosen is None:
            world.join(f"c{number}", *topics[which % 3], assignors=[kind])
        elif step == "leave":
            chosen.leave()
        elif step == "vanish":
            chosen.vanish()
            vanished.append(chosen)
        elif step == "cut":
            chosen.cut()
        elif step == "other topics":
            chosen.subscribe(*topics[which % 3])
        elif step == "grow":
            world.topic("u", world.cluster.topics["u"] + 1)
        elif step == "commit":
            commits.append((chosen, chosen.commit(dict.fromkeys(chosen.reads, number))))
        elif step == "move":
            world.home = 1 + which % 2
        for _ in range(20):
            world.pass_time((7, 40, 400, 3000, 12_000)[which] / 20)
            world.check_nothing_is_read_twice()
    world.pass_time(5_000)
    world.run_until_idle()
    assert all(not consumer.errors for consumer in world.consumers)
    assert all(len(done) == 1 for who, done in commits if who not in vanished)
