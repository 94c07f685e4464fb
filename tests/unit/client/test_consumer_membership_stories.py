"""Members by KIP-848 that come, go, stall and lose connections: nothing is read twice, and in the end everything is."""

import random

import pytest
from support.consumer_group_model import SESSION_MS, ModelGroup
from support.group_world import Consumer, World
from support.long_tests import first_is_quick

from barnabas.core.client.group.events import Lost

STEPS = 25


@pytest.mark.parametrize("seed", first_is_quick(range(300), 3))
def test_members_read_every_partition_and_none_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = World(seed=seed + 1, t=6, u=3)
    group = ModelGroup(world)
    slow: Consumer | None = None
    for step in range(STEPS):
        living = [consumer for consumer in world.live if consumer.membership.subscribed]
        what = chance.choice(["join", "join", "leave", "vanish", "cut", "subscribe", "stall", "grow", "rejoin", "wait"])
        if what == "join" or not living:
            topics = chance.choice([("t",), ("u",), ("t", "u")])
            world.join(f"c{step}", *topics, group_protocol="consumer")
        elif what == "leave":
            chance.choice(living).leave()
        elif what == "vanish" and len(living) > 1:
            chance.choice(living).vanish()
        elif what == "cut":
            chance.choice(living).cut()
        elif what == "subscribe":
            chance.choice(living).subscribe(*chance.choice([("t",), ("u",), ("t", "u")]))
        elif what == "stall":
            if slow is not None:
                slow.busy = False
            slow = chance.choice(living)
            slow.busy = True
        elif what == "grow":
            world.topic("t", min(12, world.cluster.topics["t"] + 1))
        elif what == "rejoin":
            chance.choice(living).membership.rejoin("the test")
        for _ in range(chance.choice([1, 5, 40])):
            world.pass_time(chance.choice([1, 50, 250]))
            world.check_nothing_is_read_twice()
    for consumer in world.live:
        consumer.busy = False
    world.pass_time(SESSION_MS)

    def is_over() -> bool:
        members = [consumer.membership for consumer in world.live if consumer.membership.subscribed]
        group.expire()
        known = {member.member_id for member in members}
        epochs = {member.generation_id for member in members}
        calm = all(member.settled and not member.has_event for member in members)
        return calm and group.is_stable and known == set(group.members) and epochs <= {group.epoch}

    world.until(is_over)
    world.check_nothing_is_read_twice()
    world.check_everything_is_read()
    assert not [event for consumer in world.live for event in consumer.of(Lost)]
    assert not [error for consumer in world.consumers for error in consumer.errors]
