"""Groups with members of ours and of other libraries, by the assignors that both know; either leads."""

import gc
from collections.abc import Iterator

import pytest
from support.compat.checks_groups import crew, got
from support.compat.matrix import CLIENTS
from support.compat.world import World
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
    [
        ("roundrobin", ["librdkafka", "kafka-python", "aiokafka", "barnabas"]),
        ("sticky", ["kafka-python", "aiokafka", "barnabas"]),
        ("sticky", ["barnabas", "aiokafka", "kafka-python"]),
        ("cooperative-sticky", ["librdkafka", "kafka-python", "barnabas"]),
        ("cooperative-sticky", ["barnabas", "librdkafka", "kafka-python"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_members_of_several_libraries_share_a_group(world: World, assignor: str, keys: list[str]) -> None:
    """The first one leads; then it leaves, and then ours. (Range: see the compatibility tests.)"""
    with crew(world, 2 * len(keys)) as group:
        for key in keys:
            group.join(world.client(key), assignor)
            group.settle()
        wait_for(lambda: world.admin.describe_groups([group.group])[0].protocol == assignor)
        group.expect(group.send("all"))
        first, ours = group.members[0], group.members[keys.index("barnabas")]
        group.leave(first)  # the leader
        group.settle()
        if ours is not first:
            group.leave(ours)
            group.settle()
        sent = group.send("the others")
        group.expect(sent)
        assert not set(sent) & {*got(first), *got(ours)}
