"""The nodes that brokers write into a real ZooKeeper, read by kazoo."""

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from support.classic_frames import fetch, fetched, message_set, produce
from support.etcd_server import EtcdServer
from support.ports import free_port
from support.process import broker_process
from support.raw import RawConnection
from support.waiting import wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas.app.embedded_broker import Broker
from barnabas.core.cluster.layout import decode_broker
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("zookeeper")]

HELLO = message_set(b"hello")
SESSION_MS = 2000


@pytest.fixture
def root() -> str:
    return uuid4().hex


@pytest.fixture
def eyes(zookeeper_server: ZookeeperServer, root: str) -> Iterator[KazooClient]:
    """In a tree of this test, which is empty."""
    client = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    client.start()
    client.ensure_path(f"/{root}")
    client.chroot = f"/{root}"
    yield client
    client.stop()
    client.close()


@pytest.fixture
def where(zookeeper_server: ZookeeperServer, eyes: KazooClient, root: str) -> str:
    return f"zookeeper://127.0.0.1:{zookeeper_server.port}/{root}/kafka"


def broker(folder: Path, where: str, *listeners: str, **config: object) -> Broker:
    dotted = {name.replace("_", "."): value for name, value in config.items()}
    dotted = {"zookeeper.session.timeout.ms": SESSION_MS, "log.flush.interval.messages": 1, **dotted}
    return Broker(folder, listeners=listeners or ("classic://127.0.0.1:0",), coordination=where, config=dotted)


def tree(eyes: KazooClient, path: str) -> dict[str, tuple[bytes, bool]]:
    """Return every node below `path`: its content, and whether it is ephemeral."""
    found = {}
    for name in eyes.get_children(path):
        data, stat = eyes.get(f"{path}/{name}")
        found[f"{path}/{name}"] = (data, stat.ephemeralOwner != 0)
        found |= tree(eyes, f"{path}/{name}")
    return found


def test_exactly_the_paths_and_contents_of_the_original(eyes: KazooClient, where: str, tmp_path: Path) -> None:
    with broker(tmp_path, where, broker_id=3, num_partitions=4) as running:
        address = running.bootstrap
        with RawConnection(address) as connection:
            connection.send(produce("clicks", HELLO, 2))
            wait_for(lambda: eyes.exists("/kafka/brokers/topics/clicks/3"))
        found = tree(eyes, "/kafka/brokers")
        creator_and_address, _ = found["/kafka/brokers/ids/3"]
        assert re.fullmatch(r"127\.0\.0\.1-\d{13}:" + re.escape(address), creator_and_address.decode())
        assert found == {
            "/kafka/brokers/ids": (b"", False),
            "/kafka/brokers/ids/3": (creator_and_address, True),
            "/kafka/brokers/topics": (b"", False),
            "/kafka/brokers/topics/clicks": (b"", False),
            "/kafka/brokers/topics/clicks/3": (b"4", True),
        }
        assert not eyes.exists("/kafka/barnabas/brokers"), "it is no broker of the current generation"
    wait_for(lambda: not eyes.get_children("/kafka/brokers/ids"))
    assert eyes.get_children("/kafka/brokers/topics/clicks") == []
    with broker(tmp_path, where, broker_id=3, num_partitions=4):
        assert eyes.get("/kafka/brokers/topics/clicks/3")[0] == b"4", "a topic that was there before"


def test_two_brokers_register_and_duplicate_broker_id_is_refused(eyes: KazooClient, where: str, tmp_path: Path) -> None:
    with broker(tmp_path / "1", where, broker_id=1), broker(tmp_path / "2", where, broker_id=2) as second:
        assert sorted(eyes.get_children("/kafka/brokers/ids")) == ["1", "2"]
        before = eyes.get("/kafka/brokers/ids/2")[0]
        with pytest.raises(ApiError, match=r"broker\.id 2 is taken") as raised:
            broker(tmp_path / "3", where, broker_id=2).start()
        assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        assert second.bootstrap in str(raised.value)
        assert eyes.get("/kafka/brokers/ids/2")[0] == before
    with broker(tmp_path / "3", where, broker_id=2):
        pass  # nothing was left locked


@contextmanager
def cable(where: str) -> Iterator[tuple[TcpProxy, str]]:
    """A way to the server that can be cut, and the server's name on it."""
    port = where.split(":")[2].partition("/")[0]
    proxy = TcpProxy(("127.0.0.1", int(port)))
    try:
        yield proxy, where.replace(port, str(proxy.port), 1)
    finally:
        proxy.close()


def test_registered_again_after_the_session_expired(eyes: KazooClient, where: str, tmp_path: Path) -> None:
    paths = ("/kafka/brokers/ids/1", "/kafka/barnabas/brokers/ids/1", "/kafka/brokers/topics/t/1")
    listeners = ("classic://127.0.0.1:0", "kafka://127.0.0.1:0")
    with cable(where) as (proxy, through), broker(tmp_path, through, *listeners) as running:
        with RawConnection(running.bootstrap) as connection:
            connection.send(produce("t", HELLO))
            wait_for(lambda: eyes.exists("/kafka/brokers/topics/t/1"))
            before = [eyes.get(path)[0] for path in paths]
            proxy.cut()
            wait_for(lambda: not any(eyes.exists(path) for path in paths))
            assert fetched(connection.exchange(fetch("t"))) == (0, HELLO), "it continues to serve"
            connection.send(produce("meanwhile", HELLO))
            proxy.restore()
            wait_for(lambda: all(eyes.exists(path) for path in (*paths, "/kafka/brokers/topics/meanwhile/1")))
        after = [eyes.get(path)[0] for path in paths]
        assert (after[0], after[2]) == (before[0], before[2])
        epochs = [decode_broker("1", node[1]).broker_epoch for node in (before, after)]
        assert epochs[0] < epochs[1], "another life, for the other brokers of the cluster"


def test_an_id_that_was_taken_meanwhile_stops_the_broker(
    eyes: KazooClient, where: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with cable(where) as (proxy, through), broker(tmp_path / "1", through) as first:
        proxy.cut()
        wait_for(lambda: not eyes.exists("/kafka/brokers/ids/1"))
        with broker(tmp_path / "2", where) as second:
            proxy.restore()
            wait_for(lambda: not accepts(first.bootstrap))
            assert any("taken" in record.message and second.bootstrap in record.message for record in caplog.records)
            assert eyes.get("/kafka/brokers/ids/1")[0].endswith(second.bootstrap.encode())


def accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.slow
def test_a_broker_that_was_killed_comes_back_at_once(eyes: KazooClient, where: str, tmp_path: Path) -> None:
    def data(path: str) -> bytes | None:
        return eyes.get(f"/kafka{path}")[0] if eyes.exists(f"/kafka{path}") else None

    kill_and_start_again(tmp_path, where, data)


@pytest.mark.slow
def test_the_same_with_etcd(etcd_server: EtcdServer, root: str, tmp_path: Path) -> None:
    where = f"etcd://127.0.0.1:{etcd_server.port}/{root}"
    kill_and_start_again(tmp_path, where, lambda path: etcd_server.value(f"/{root}{path}".encode()))


def kill_and_start_again(folder: Path, where: str, data: Callable[[str], bytes | None]) -> None:
    """On a port of its own, so that the next broker finds itself in the registry."""
    port = free_port()
    listen = [f"classic://127.0.0.1:{port}"]
    timeout = f"zookeeper.session.timeout.ms={SESSION_MS}"
    settings = [f"coordination={where}", timeout, "log.flush.interval.messages=1"]
    with broker_process(folder / "data", *settings, listen=listen) as process:
        with RawConnection(process.bootstrap) as connection:
            connection.send(produce("t", HELLO))
            wait_for(lambda: data("/brokers/topics/t/1"))
            wait_for(lambda: fetched(connection.exchange(fetch("t"))) == (0, HELLO))
        before = data("/brokers/ids/1")
        process.kill()
    assert data("/brokers/ids/1") == before, "its session lives on"
    with broker_process(folder / "data", *settings, listen=listen) as process:
        with RawConnection(process.bootstrap) as connection:
            assert fetched(connection.exchange(fetch("t"))) == (0, HELLO), "answered once it is registered"
        after = data("/brokers/ids/1") or b""
        assert after != before
        assert after.endswith(f":127.0.0.1:{port}".encode())
        assert data("/brokers/topics/t/1") == b"1"
        assert process.stop() == 0
