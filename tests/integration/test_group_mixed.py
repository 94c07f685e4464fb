"""Groups with members of ours and of other libraries, by the assignors that both know; either leads."""

import gc
from collections.abc import Iterator

import pytest
from support.compat.checks_groups import got, member_group
from support.compat.matrix import CLIENTS
from support.compat.world import World
from support.long_tests import first_is_quick
from support.waiting import wait_for

pytestmark = [
    pytest.mark.xdist_group("mixed-groups"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World({key: entry.make for key, entry in CLIENTS.items()})
    try:
        yield made
    finally:
        made.close()
        gc.collect()  # some of these libraries leave sockets to the garbage collector


@pytest.mark.parametrize(
    ("assignor", "keys"),
    first_is_quick(
        [
            ("roundrobin", ["librdkafka", "aiokafka", "barnabas", "kafka-python"]),
            ("cooperative-sticky", ["librdkafka", "barnabas", "kafka-python"]),
            ("cooperative-sticky", ["barnabas", "librdkafka"]),
            ("sticky", ["aiokafka", "barnabas", "kafka-python"]),
            ("sticky", ["barnabas", "aiokafka", "kafka-python"]),
        ],
        2,
    ),
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_members_of_several_libraries_share_a_group(world: World, assignor: str, keys: list[str]) -> None:
    """The first one leads, then it leaves. (Range: see the compatibility tests.)

    kafka-python is the last: as a leader that joins twice version 3.0.12 may stop its heartbeats and not notice.
    """
    with member_group(world, 2 * len(keys)) as group:
        for key in keys:
            group.join(world.client(key), assignor)
            group.wait_until_assigned()
        wait_for(lambda: world.admin.describe_groups([group.group])[0].protocol == assignor)
        group.expect(group.send("all"))
        first = group.members[0]
        group.leave(first)
        group.wait_until_assigned()
        sent = group.send("the others")
        group.expect(sent)
        assert not set(sent) & set(got(first))
