"""`Broker`: a broker in the caller's process, in a thread of its own.

Each user of one coordination in the same process, a broker or a client, may have a session of its own.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike, fspath
from threading import Lock
from typing import TYPE_CHECKING, Literal, Unpack

from ..ports.coordination import (
    Cancel,
    Coordination,
    CoordinationError,
    DeleteNode,
    Node,
    NodeChange,
    NoNode,
    SessionState,
)
from ..ports.errors import ClosedError
from .background import ReactorThread, loading
from .clients.shared.signature import SettingsSignature
from .typed_broker_settings import BrokerKeywords

if TYPE_CHECKING:
    from types import TracebackType

    from ..ports.broker_api.envelope import BrokerApi
    from ..ports.coordination import Coordination
    from ..ports.errors import BarnabasError
    from ..ports.scheduler import Scheduler
    from .broker.lifecycle.broker_server import BrokerServer
    from .broker.state.dependencies import MakeOutside
    from .in_process import InProcessLink


class SharedSession:
    """Fulfils `Coordination` through another session, which stays open when this one is closed.

    Closing removes the ephemeral nodes that were made here and ends the watches. The other session's end is the end of
    this one too. `owners` is one mapping for all that share the session: whose each ephemeral node is.
    """

    def __init__(self, session: Coordination, owners: dict[str, SharedSession]) -> None:
        self._session = session
        self._owners = owners
        self._lock = Lock()
        self._cancels: list[Cancel] = []
        self._closed = False

    @property
    def blocking(self) -> bool:
        return self._session.blocking

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        self._check_open()
        self._session.create(path, data, ephemeral=ephemeral)
        if ephemeral:
            self._owners[path] = self

    def get(self, path: str) -> Node:
        self._check_open()
        return self._session.get(path)

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        self._check_open()
        return self._session.get_many(paths)

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        self._check_open()
        return self._session.set(path, data, version=version)

    def delete(self, path: str, *, version: int | None = None) -> None:
        self._check_open()
        self._session.delete(path, version=version)
        self._owners.pop(path, None)

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        self._check_open()
        self._session.commit(changes, guards=guards)
        for change in changes:
            if isinstance(change, DeleteNode):
                self._owners.pop(change.path, None)

    def children(self, path: str) -> list[str]:
        self._check_open()
        return self._session.children(path)

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        self._check_open()
        return self._register_cancel(self._session.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        self._check_open()
        return self._register_cancel(self._session.watch_below(path, changed))

    def heartbeat(self) -> float:
        self._check_open()
        return self._session.heartbeat()

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        self._check_open()

        return self._register_cancel(self._session.add_session_listener(on_state_changed))

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            cancels, self._cancels = self._cancels, []
        for cancel in cancels:
            cancel()
        for path in sorted(path for path, owner in tuple(self._owners.items()) if owner is self):
            self._owners.pop(path, None)
            try:
                if self._session.get(path).ephemeral:
                    self._session.delete(path)
            except (NoNode, ClosedError):
                continue  # it went with the session
            except CoordinationError:
                return  # the session cannot be reached: its end removes them

    def _register_cancel(self, cancel: Cancel) -> Cancel:
        with self._lock:
            self._cancels.append(cancel)
        return cancel

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")


def broker_defaults() -> dict[str, object]:
    """Return the defaults of the settings of a broker."""
    from .config import EFFECTIVE_KEYS

    return {key.attribute: key.default for key in EFFECTIVE_KEYS.values()}


class Broker:
    """A running broker.

        with Broker("data") as broker:
            print(broker.bootstrap)

    data_dir:     where the logs are kept, one folder or several; made if missing.
    listeners:    where to listen; port 0 takes any free one.
    storage:      "fs", or "memory": nothing is written to any disk.
    coordination: "embedded" (a file in the first data folder), "embedded://FILE", "memory",
                  "zookeeper://HOST:PORT/CHROOT", "etcd://HOST:PORT/PREFIX", or the URL of a plug-in's back end.
    plugins:      objects with hooks, modules, or names of modules.
    config:       Kafka's dotted keys, or nested tables as from TOML; `settings` are the same in snake case and win.
    outside:      stands for `compose.outside_of`: what puts something between the broker and the outside.

    The constructor checks the configuration and raises `ConfigError`; `start`, or entering the context, raises every
    `BarnabasError` that keeps the broker from running: a port in use, a folder locked or read-only, a damaged file.
    """

    __signature__ = SettingsSignature(BrokerKeywords, broker_defaults)

    def __init__(
        self,
        data_dir: str | PathLike[str] | Sequence[str | PathLike[str]] | None = None,
        *,
        listeners: str | Sequence[str] = ("kafka://127.0.0.1:0",),
        storage: Literal["fs", "memory"] = "fs",
        coordination: str | None = None,
        plugins: Sequence[object] = (),
        config: Mapping[str, object] | None = None,
        outside: MakeOutside | None = None,
        **settings: Unpack[BrokerKeywords],
    ) -> None:
        from .config import BrokerConfig

        wanted = listeners.split(",") if isinstance(listeners, str) else listeners
        named: dict[str, object] = {"listeners": tuple(each.strip() for each in wanted), "storage": storage}
        if data_dir is not None:
            folders = [data_dir] if isinstance(data_dir, str | PathLike) else list(data_dir)
            named["log.dirs"] = tuple(fspath(folder) for folder in folders)
        if coordination is not None:
            named["coordination"] = coordination
        elif storage == "memory":
            named["coordination"] = "memory"
        self.config = BrokerConfig.from_mapping(named, config or {}, settings)
        self._plugins = tuple(plugins)
        self._outside = outside
        self._node: BrokerServer | None = None
        self._thread: ReactorThread | None = None
        self._links: set[InProcessLink] = set()
        self._session_owners: dict[str, SharedSession] = {}
        self._listeners: list[str] = []
        self._cluster_id = ""

    def start(self) -> Broker:
        """Start the broker; returns when it accepts connections. Twice is harmless."""
        if self._thread is None:
            with loading("a broker"):
                reactor, node = self._begin()
            self._wait_until_ready(reactor, node)
        return self

    def _begin(self) -> tuple[Scheduler, BrokerServer]:
        from .compose.broker import build_broker, make_reactor

        reactor = make_reactor(self.config)
        try:
            node = build_broker(self.config, reactor, plugins=self._plugins, outside=self._outside)
        except BaseException:
            reactor.stop()
            raise
        thread = ReactorThread(reactor, "barnabas-broker", node.start)
        thread.start()
        self._node, self._thread = node, thread
        self._listeners = [str(listener) for listener in node.listeners]
        self._cluster_id = node.state.cluster_id
        atexit.register(self.close)
        return reactor, node

    def _wait_until_ready(self, reactor: Scheduler, node: BrokerServer) -> None:
        """Wait until the broker is ready; over ZooKeeper or etcd its predecessor's session may have to end first."""
        ready: Future[BarnabasError | None] = Future()
        reactor.call_soon(lambda: node.when_ready(ready.set_result))
        error = ready.result()
        if error is not None:
            self.close()
            raise error

    def close(self) -> None:
        """Answer waiting requests, make the logs durable, and stop. Twice is harmless; a process does it at its end."""
        atexit.unregister(self.close)
        thread, node = self._thread, self._node
        if thread is None or node is None:
            return
        reactor = thread.reactor

        def stopped() -> None:
            for link in tuple(self._links):
                link.broken()
            reactor.stop()

        try:
            reactor.call_soon(lambda: node.stop(stopped))
        except ClosedError:
            return  # it has stopped already
        if not thread.owns_caller():
            thread.join()

    def abandon(self) -> None:
        """Stop as if the process had died: without responses, flushes or notifications. For tests of crashes.

        The session is left to time out. Twice is harmless.
        """
        atexit.unregister(self.close)
        thread = self._thread
        if thread is None:
            return
        thread.reactor.abandon()
        if not thread.owns_caller():
            thread.join()

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap or 'not started'}>"

    @property
    def listeners(self) -> list[str]:
        """`kafka://host:port` of each listener, with real ports; empty before `start`."""
        return list(self._listeners)

    @property
    def bootstrap(self) -> str:
        """`host:port` of the first listener, for a client's `bootstrap.servers`; empty before `start`."""
        if not self._listeners:
            return ""
        address = self._listeners[0].partition("://")[2]
        return f"localhost{address}" if address.startswith(":") else address

    @property
    def cluster_id(self) -> str:
        """The id of the cluster; empty before `start`."""
        return self._cluster_id

    # --- for clients in the same process (see `in_process.BrokerHost`)

    @property
    def scheduler(self) -> Scheduler:
        """The broker's reactor. Raises `ClosedError` before `start`."""
        if self._thread is None:
            raise ClosedError("the broker has not been started")
        return self._thread.reactor

    @property
    def node(self) -> BrokerServer:
        """The broker server, which belongs to the broker's own thread. Raises `ClosedError` before `start`."""
        if self._node is None:
            raise ClosedError("the broker has not been started")
        return self._node

    @property
    def api(self) -> BrokerApi:
        """The handler of all requests, on the broker's own thread. Raises `ClosedError` before `start`."""
        return self.node.api

    def open_coordination(self) -> Coordination:
        """Return a coordination session for a client in this process, with the service that the broker uses.

        Raises `ClosedError` before `start`, `CoordinationError`.
        """
        from .compose.coordination import broker_backend, broker_session_request
        from .logs import log_report

        backend = broker_backend(self.config, self.node.plugins)
        if backend.shared and not backend.runs_server:
            return backend.open(broker_session_request(self.config, log_report))
        return SharedSession(self.node.coordination, self._session_owners)

    def attach(self, link: InProcessLink) -> None:
        """Register the link of a client of this process; clients do this themselves."""
        self._links.add(link)

    def detach(self, link: InProcessLink) -> None:
        """Remove the link of a client of this process."""
        self._links.discard(link)
        if self._node is not None:
            self._node.state.gone(link.connection)
