"""The checks of share groups."""

from collections.abc import Sequence
from contextlib import ExitStack

from support.share_groups import read_from_the_beginning, start_offsets
from support.waiting import wait_for

from .checks_groups import values_of
from .model import PATIENCE_S, Client, Member
from .world import World


def check_share_group(world: World, client: Client) -> None:
    """Check that a released message is delivered twice, with its delivery count, and the others once, to one member."""
    topic, group = world.topic(), world.name("share")
    read_from_the_beginning(world.broker.bootstrap, group)
    before, after = values_of("before", 12), values_of("after", 12)
    released = before[::3]
    world.spread(topic, before, 1)
    with ExitStack() as stack:

        def join(released: Sequence[bytes]) -> Member:
            member = client.join_share_group(group, topic, released)
            stack.callback(member.close)
            return member

        first = join(released)
        expected = [*((value, 1) for value in before), *((value, 2) for value in released)]
        _until_delivered([first], expected)
        second = join(())
        wait_for(lambda: len(world.admin.describe_share_groups([group])[0].members) == 2, PATIENCE_S)
        world.spread(topic, after, 1)
        _until_delivered([first, second], [*expected, *((value, 1) for value in after)])
    wait_for(lambda: start_offsets(world.broker.bootstrap, group) == {0: len(before) + len(after)}, PATIENCE_S)


def _until_delivered(members: Sequence[Member], expected: Sequence[tuple[bytes, int]]) -> None:
    """Exactly these values with these delivery counts, in any order."""

    def delivered() -> list[tuple[bytes, int]]:
        return [(each.value or b"", each.delivery_count) for member in members for each in member.received()]

    wait_for(lambda: len(delivered()) >= len(expected), PATIENCE_S, pause_s=0.02)
    assert sorted(delivered()) == sorted(expected)
