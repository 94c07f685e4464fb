"""The choice of a coordination back end by the scheme of its URL."""

from typing import Any

import pytest

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.app.compose.coordination import (
    BUILT_IN,
    broker_backend,
    broker_session_request,
    client_coordination,
    cluster_coordination,
)
from barnabas.app.config import BrokerConfig
from barnabas.plugins import hookimpl
from barnabas.plugins.host import PluginHost
from barnabas.ports.coordination import CoordinationBackend, SessionRequest
from barnabas.ports.errors import ConfigError


class Toy:
    """A plug-in with the scheme `toy`, and a replacement of the built-in scheme `etcd`."""

    def __init__(self) -> None:
        self.requests: list[SessionRequest] = []
        self.tree = MemoryTree()

    @hookimpl
    def barnabas_coordination(self, scheme: str) -> CoordinationBackend | None:
        return CoordinationBackend(open=self._open) if scheme in ("toy", "etcd") else None

    @hookimpl
    def barnabas_names(self, kind: str) -> list[str]:
        return ["toy"] if kind == "coordination" else []

    def _open(self, request: SessionRequest) -> Any:
        self.requests.append(request)
        return self.tree.session()


def host(*plugins: object) -> PluginHost:
    return PluginHost(plugins, load_entry_points=False)


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("embedded", "embedded"),
        ("memory", "memory"),
        ("embedded:///var/x.db", "embedded"),
        ("zookeeper://a:2181,b/chroot", "zookeeper"),
        ("etcd://[::1]:2379", "etcd"),
        ("etcd+managed://a:1,b/x", "etcd+managed"),
    ],
)
def test_scheme_of_the_url_chooses_a_built_in_back_end(url: str, scheme: str) -> None:
    assert broker_backend(BrokerConfig(coordination=url), host()) is BUILT_IN[scheme]


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("zookeeper://", "'' is not a host and port"),
        ("zookeeper://a:2181,b:x/chroot", "'b:x' is not a host and port"),
        ("zookeeper://a:99999", "the port 99999"),
        ("etcd://a:2379/a//b", "no empty part"),
        ("etcd+managed://", "'' is not a host and port"),
        ("memory://x", "write memory"),
        ("embedded://", "the file is missing"),
    ],
)
def test_malformed_url_is_refused_before_anything_is_opened(url: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        broker_backend(BrokerConfig(coordination=url), host())
    assert str(caught.value).startswith(f"coordination={url}: ")
    assert fault in str(caught.value)


@pytest.mark.parametrize("url", ["", "embeded", "redis://a", "zookeeper+managed://a"])
def test_unknown_scheme_is_an_error_that_lists_the_known_ones(url: str) -> None:
    known = "known: embedded, etcd, etcd+managed, memory, toy, zookeeper"
    with pytest.raises(ConfigError, match="unknown coordination scheme") as caught:
        broker_backend(BrokerConfig(coordination=url), host(Toy()))
    assert str(caught.value).endswith(known)


def test_plugin_opens_the_session_of_a_broker_with_its_settings() -> None:
    toy = Toy()
    config = BrokerConfig(coordination="toy://x", log_dirs=("d", "e"), zookeeper_session_timeout_ms=700)
    backend = broker_backend(config, host(toy))
    backend.open(broker_session_request(config, print)).close()
    (request,) = toy.requests
    assert (request.url, request.session_timeout_ms, request.connect_timeout_ms) == ("toy://x", 700, None)
    assert request.data_dir == "d"
    assert backend.shared


def test_plugin_is_asked_before_the_built_in_back_end_of_the_same_scheme() -> None:
    toy = Toy()
    client_coordination("etcd://nowhere:1", plugins=host(toy)).close()
    assert [request.url for request in toy.requests] == ["etcd://nowhere:1"]


def test_client_opens_the_session_of_a_plugin() -> None:
    toy = Toy()
    with pytest.raises(ConfigError, match="unknown coordination scheme 'toy'"):
        client_coordination("toy://x", plugins=host())
    session = client_coordination("toy://x", session_timeout_ms=900, plugins=host(toy))
    session.create("/a")
    assert toy.requests[0].session_timeout_ms == 900
    assert toy.requests[0].data_dir is None


@pytest.mark.parametrize("url", ["embedded://x.db", "etcd+managed://a:1"])
def test_client_cannot_open_a_back_end_of_one_process(url: str) -> None:
    with pytest.raises(ConfigError, match="belongs to one process"):
        client_coordination(url, plugins=host())


@pytest.mark.parametrize("where", ["memory", "localhost:2181"])
def test_client_refuses_a_text_that_is_no_url(where: str) -> None:
    with pytest.raises(ConfigError, match="is not a URL such as zookeeper://HOST:PORT/CHROOT"):
        client_coordination(where, plugins=host())


def test_cluster_on_one_machine_needs_a_shared_back_end(tmp_path: Any) -> None:
    with cluster_coordination("toy://x", 3, tmp_path, host(Toy())) as urls:
        assert urls == ["toy://x"] * 3
    with pytest.raises(ConfigError, match="belongs to one broker"):
        cluster_coordination("embedded", 3, tmp_path, host()).__enter__()


def test_object_that_is_no_back_end_is_refused() -> None:
    class Wrong:
        @hookimpl
        def barnabas_coordination(self, scheme: str) -> object:
            return MemoryTree()

    with pytest.raises(ConfigError, match=r"coordination 'toy': .* has no open, see docs/plugins.md"):
        broker_backend(BrokerConfig(coordination="toy://x"), host(Wrong()))
