"""The registries of a group in a real ZooKeeper: paths and contents as another client finds them."""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from support.zookeeper_server import ZookeeperServer

from barnabas.adapters.coord_zookeeper import ZookeeperCoordination
from barnabas.core.classic.rebalancer import RangeRebalancer, own_share
from barnabas.core.classic.registry import group
from barnabas.core.classic.registry.group import OwnershipConflict
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.classic.registry.subscription import ClassicSubscription
from barnabas.core.classic.registry.topic_filter import TopicFilter

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("zookeeper")]


@pytest.fixture
def root() -> str:
    return uuid4().hex


@pytest.fixture
def foreign(zookeeper_server: ZookeeperServer, root: str) -> Iterator[KazooClient]:
    """Yield another client, in a tree of this test."""
    client = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    client.start()
    client.ensure_path(f"/{root}")
    client.chroot = f"/{root}"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def session(zookeeper_server: ZookeeperServer, root: str) -> Iterator[ZookeeperCoordination]:
    url = f"zookeeper://127.0.0.1:{zookeeper_server.port}/{root}/kafka"
    session = ZookeeperCoordination(url, session_timeout_ms=6000)
    yield session
    session.close()


def _tree(client: KazooClient, path: str) -> dict[str, tuple[bytes, bool]]:
    """Return each leaf below: its content, and whether it is ephemeral."""
    data, stat = client.get(path)
    names = client.get_children(path)
    if not names:
        return {path: (data, stat.ephemeralOwner != 0)}
    return {leaf: found for name in sorted(names) for leaf, found in _tree(client, f"{path}/{name}").items()}


def test_group_nodes_in_zookeeper_have_the_classic_layout(session: ZookeeperCoordination, foreign: KazooClient) -> None:
    observed: list[str] = []
    foreign.create("/kafka/brokers/ids/0", b"h-1322090000000:h:9092", ephemeral=True, makepath=True)
    foreign.create("/kafka/brokers/topics/t/0", b"11", ephemeral=True, makepath=True)
    # A valid node of another implementation, and invalid ones.
    foreign.create("/kafka/consumers/g/ids/g_other-1", b'{ "t": 1 }', ephemeral=True, makepath=True)
    foreign.create("/kafka/consumers/g/ids/g_mad-1", b"\x00\xff", makepath=True)
    foreign.create("/kafka/brokers/topics/odd\u200bname")  # no path of ours: it is not listed
    group.register_consumer(session, "g", "g_me-1", ClassicSubscription.filter(TopicFilter.whitelist("t, u.*"), 1))
    group.register_consumer(session, "g", "g_me-2", ClassicSubscription.topics({"t": 1, "v": 2}))

    view = group.read_group(session, "g", "g_me-1", observed.append)
    assert view.consumers == {"g_me-1": {"t": 1}, "g_me-2": {"t": 1, "v": 2}, "g_other-1": {"t": 1}}
    assert [text.split()[1].strip(",:") for text in observed] == ["/consumers/g/ids/g_mad-1"]
    share = own_share(view, "g_me-1", RangeRebalancer())["t"]
    assert {thread: [*map(str, places)] for thread, places in share.items()} == {
        "g_me-1-0": ["0-0", "0-1", "0-10", "0-2"]
    }
    claims = {("t", place): thread for thread, places in share.items() for place in places}
    group.claim(session, "g", claims)
    group.claim(session, "g", claims)
    group.write_offsets(session, "g", {("t", BrokerPartition(0, 10)): 4_294_967_296})
    foreign.create("/kafka/consumers/g/owners/t/0-3", b"g_other-1-0", ephemeral=True)
    with pytest.raises(OwnershipConflict, match="/consumers/g/owners/t/0-3 is owned by 'g_other-1-0'"):
        group.claim(session, "g", {("t", BrokerPartition(0, number)): "g_me-2-0" for number in (7, 3)})

    owners = {f"/kafka/consumers/g/owners/t/{name}": (b"g_me-1-0", True) for name in ("0-0", "0-1", "0-10", "0-2")}
    assert _tree(foreign, "/kafka/consumers") == {
        "/kafka/consumers/g/ids/g_mad-1": (b"\x00\xff", False),
        "/kafka/consumers/g/ids/g_me-1": (b"*1*t|u.*", True),
        "/kafka/consumers/g/ids/g_me-2": (b'{ "t": 1,"v": 2 }', True),
        "/kafka/consumers/g/ids/g_other-1": (b'{ "t": 1 }', True),
        "/kafka/consumers/g/offsets/t/0-10": (b"4294967296", False),
        **owners,
        "/kafka/consumers/g/owners/t/0-3": (b"g_other-1-0", True),
    }
    session.close()
    assert foreign.get_children("/kafka/consumers/g/owners/t") == ["0-3"]
    assert sorted(foreign.get_children("/kafka/consumers/g/ids")) == ["g_mad-1", "g_other-1"]
