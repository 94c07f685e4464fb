"""Memberships with the real coordinator: members come, go and vanish; who reads what, and what they are told."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.group_world import SESSION_MS, Consumer, World

from barnabas.core.client.group.events import Lost
from barnabas.ports.words import TopicPartition

KINDS = ("range", "roundrobin", "sticky", "cooperative-sticky")


def crowd(world: World, names: str, *topics: str, kind: str = "range") -> list[Consumer]:
    consumers = [world.join(name, *topics, assignors=[kind]) for name in names]
    world.settle()
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
    world.settle()
    assert (len(a.reads), len(b.reads), len(c.reads)) == (3, 0, 3)
    since = world.now
    c.vanish()
    world.until(lambda: len(a.reads) == 6)
    assert world.now - since < SESSION_MS + 3_000
    assert not a.of(Lost)


@given(st.lists(st.tuples(st.sampled_from(["join", "leave", "vanish", "cut", "wait"]), st.integers(0, 4)), max_size=14),
       st.sampled_from(KINDS), st.integers(0, 100))  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_whatever_happens_every_partition_is_read_once_in_the_end(
    steps: list[tuple[str, int]], kind: str, seed: int
) -> None:
    world = World(seed=seed, t=5, u=3)
    for number, (step, which) in enumerate(steps):
        live = world.live
        if step == "join" or not live:
            topics = [["t"], ["u"], ["t", "u"]][which % 3]
            world.join(f"c{number}", *topics, assignors=[kind])
        elif step == "leave":
            live[which % len(live)].leave()
        elif step == "vanish":
            live[which % len(live)].vanish()
        elif step == "cut":
            live[which % len(live)].cut()
        world.pass_time((7, 40, 400, 3000, 12_000)[which])
    world.settle()
    assert all(not consumer.errors for consumer in world.consumers)
