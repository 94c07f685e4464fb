"""Broker processes that meet a taken id, or registries that are not there (yet)."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.classic_frames import fetch, fetched, message_set, produce
from support.etcd_server import EtcdServer
from support.process import BrokerProcess, barnabas, broker_process
from support.raw import RawConnection
from support.waiting import wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas.app.compose.coordination import client_coordination
from barnabas.core.classic.registry import layout, registries

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("reliability")]

HELLO = message_set(b"hello")
SESSION_MS = 2000
LISTEN = "classic://127.0.0.1:0"
Make = Callable[[Path], ZookeeperServer | EtcdServer]


@pytest.fixture(params=[ZookeeperServer, EtcdServer], ids=["zookeeper", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ZookeeperServer | EtcdServer]:
    """Not started yet."""
    make: Make = request.param
    server = make(tmp_path / "server")
    try:
        yield server
    finally:
        server.stop()


def settings(server: ZookeeperServer | EtcdServer, **more: object) -> list[str]:
    keys: dict[str, object] = {
        "coordination": f"{'etcd' if isinstance(server, EtcdServer) else 'zookeeper'}://127.0.0.1:{server.port}/kafka",
        "broker.id": 7,
        "zookeeper.session.timeout.ms": SESSION_MS,
        "log.flush.interval.messages": 1,
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return [f"{key}={value}" for key, value in keys.items()]


def serve_in_vain(folder: Path, chosen: list[str]) -> str:
    """Have a broker fail; returns the last line that it wrote."""
    options = [option for setting in chosen for option in ("--set", setting)]
    done = barnabas("serve", "--data", folder, "--listen", LISTEN, *options, expect=1)
    assert not done.stdout
    text = done.stderr.decode()
    assert "Traceback" not in text
    return text.splitlines()[-1]


@pytest.mark.slow
def test_second_broker_with_same_id_exits_and_first_keeps_serving(
    server: ZookeeperServer | EtcdServer, tmp_path: Path
) -> None:
    server.start()
    server.wait_ready()
    chosen = settings(server)
    with broker_process(tmp_path / "first", *chosen, listen=[LISTEN]) as first:
        where = chosen[0].partition("=")[2]
        eyes = client_coordination(where)
        try:
            before = registries.get(eyes, layout.broker_path(7))
            line = serve_in_vain(tmp_path / "second", chosen)
            assert line.startswith("barnabas: ")
            assert "broker.id 7 is taken" in line
            assert first.bootstrap in line, "it has the address of the other one"
            assert registries.get(eyes, layout.broker_path(7)) == before
            with RawConnection(first.bootstrap) as connection:
                connection.send(produce("t", HELLO))
                wait_for(lambda: registries.get(eyes, layout.topic_broker_path("t", 7)))
                wait_for(lambda: fetched(connection.exchange(fetch("t"))) == (0, HELLO))
        finally:
            eyes.close()
        assert first.stop() == 0
    with broker_process(tmp_path / "second", *chosen, listen=[LISTEN]) as second:
        assert second.stop() == 0, "nothing was left locked"


def test_a_broker_without_registries_says_so(server: ZookeeperServer | EtcdServer, tmp_path: Path) -> None:
    line = serve_in_vain(tmp_path / "data", settings(server, zookeeper_connection_timeout_ms=500))
    assert line.startswith("barnabas: no ")
    assert f"answers at 127.0.0.1:{server.port} within 500 ms" in line


@pytest.mark.slow
def test_a_broker_waits_for_registries_that_start_after_it(
    server: ZookeeperServer | EtcdServer, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    chosen = settings(server, zookeeper_connection_timeout_ms=300_000)
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(BrokerProcess, folder, *chosen, listen=[LISTEN])
        try:
            wait_for(folder.exists)  # its logs are opened before it asks the registries
            assert not starting.done()
            server.start()
        finally:
            code = starting.result().stop()
    assert code == 0
