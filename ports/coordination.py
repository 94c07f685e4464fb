"""A tree of small nodes that brokers and consumers agree through (ZooKeeper, etcd, an embedded file, or memory).

Paths are absolute, parts separated by '/', no trailing slash; `ValueError` otherwise. Data is at most 1 MiB.
Methods may block on the network: callers on the reactor go through `Scheduler.offload`, except with adapters that say
`blocking = False`. Every method is callable from any thread. No exception of the technology behind escapes.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Protocol

from .errors import BarnabasError
from .report import Report
from .values import frozen


class CoordinationError(BarnabasError):
    """The coordination service failed or cannot be reached."""

    __module__ = "barnabas"


class NodeExists(CoordinationError):
    """There is already a node of this path."""


class NoNode(CoordinationError):
    """There is no node of this path."""


class BadVersion(CoordinationError):
    """The node has changed since the version that the caller expected."""


class NotEmpty(CoordinationError):
    """A node with children cannot be deleted."""


class SessionExpired(CoordinationError):
    """The session ended; its ephemeral nodes are gone and must be created again."""


class SessionState(Enum):
    """The state of a session, as its listeners receive it."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """The connection is lost; ephemeral nodes exist until the session expires."""
    EXPIRED = "expired"
    """The session ended and a new one began: create the ephemeral nodes again, and read the watched nodes again."""


@frozen(kw_only=True)
class Node:
    """The content of a node. `version` is 0 when created and grows by 1 with each `set`."""

    data: bytes
    version: int
    ephemeral: bool = False


@frozen
class CreateNode:
    """Create a persistent node, and its missing parents."""

    path: str
    data: bytes = b""


@frozen
class SetNode:
    """Replace the data of a node; `version` None: at any version."""

    path: str
    data: bytes
    version: int | None = None


@frozen
class DeleteNode:
    """Delete a node without children; `version` as in `SetNode`."""

    path: str
    version: int | None = None


NodeChange = CreateNode | SetNode | DeleteNode

CHANGES_MAX = 40
"""The most changes and guards of one `commit`."""

Cancel = Callable[[], None]


class Coordination(Protocol):
    """One session with the tree."""

    @property
    def blocking(self) -> bool:
        """True if calls may wait for a network, so that they do not belong on a reactor thread."""
        ...

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node, and missing parents as persistent nodes. Durable on return. Raises `NodeExists`.

        An ephemeral node disappears when the session that made it ends, and only then; it cannot have children.
        """
        ...

    def get(self, path: str) -> Node:
        """Return the node as of now or a moment ago, never older than this session has seen. Raises `NoNode`."""
        ...

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """Return the nodes of these paths, in their order, each as `get` returns it; None where no node exists.

        It is quicker than calls of `get`, but no snapshot: others may change nodes between the reads.
        """
        ...

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        """Replace the data, and return the new version.

        Raises `NoNode`, and `BadVersion` unless `version` is None or the current one.
        """
        ...

    def delete(self, path: str, *, version: int | None = None) -> None:
        """Remove the node. Raises `NoNode`, `NotEmpty`, and `BadVersion` as `set` does."""
        ...

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        """Apply all of these changes, or none. Durable on return.

        `guards`: nodes with the versions that they must have. Raises `ValueError` if two guards or changes concern one
        node, a change concerns a node above that of another change, all data together exceed the size of one node, or
        there are more than `CHANGES_MAX`.

        Raises for the first guard, then the first change, that fails: `NoNode`, `BadVersion`, `NodeExists`, `NotEmpty`
        as the single calls do. Nothing has changed then, but created parents may stay.
        """
        ...

    def children(self, path: str) -> list[str]:
        """Return the names (not paths) of the direct children, sorted; empty if there are none. Raises `NoNode`."""
        ...

    def watch(self, path: str, on_change: Callable[[], None]) -> Cancel:
        """Call `on_change` after every change of the node itself or of its set of children, also creation and deletion.

        The node need not exist. Calls come from a thread of the adapter, one at a time. One call may stand for several
        changes, but the last change is never missed: read again what you need. A new connection or session causes a
        call, too.
        """
        ...

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        """Call `changed` with the paths, at `path` or below, of the nodes that were created, set or deleted.

        `path` need not exist. Each call has the changes since the last one, every path once, in the order of the first
        changes. None comes after a new connection or session: anything may have changed, read all again. Calls come
        from a thread of the adapter, one at a time, and none is missed. Raises `CoordinationError` when the service
        does not report such changes.
        """
        ...

    def heartbeat(self) -> float:
        """Contact the service; return for how many milliseconds after the start of this call the session lasts.

        Returns `math.inf` if no one can end the session. Raises `CoordinationError` when the service does not answer,
        and `SessionExpired` after the session has ended, until every listener has received that: a user that acts only
        while its session lasts first learns that its ephemeral nodes are gone.

        After the first call the adapter renews the session only while calls arrive. If the user, such as a process that
        hangs, makes none for the session time, the adapter lets the session end, so that others can take its place.
        """
        ...

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        """Call the listener with every change of the session state, from a thread of the adapter."""
        ...

    def close(self) -> None:
        """End the session; its ephemeral nodes are removed at once.

        Twice is harmless; other calls then raise `ClosedError`.
        """
        ...


@frozen(kw_only=True)
class SessionRequest:
    """The parameters of a session, for a coordination back end."""

    url: str
    """The URL as the user configured it, scheme included. Behind the scheme the back end defines the form."""
    session_timeout_ms: int
    connect_timeout_ms: int | None
    """The longest wait for the first connection; None if it is not configured."""
    settings: Mapping[str, object] = {}
    """The settings of the connection's security by name, all `zookeeper.*` and `etcd.*`; a secret is a `Secret`."""
    data_dir: str | None = None
    """The first data folder of the broker; None for clients and for brokers with `storage=memory`."""
    report: Report


def _accept_url(_url: str) -> None: ...


@frozen(kw_only=True)
class CoordinationBackend:
    """The coordination service of a URL scheme: what a plug-in returns from the hook `barnabas_coordination`."""

    open: Callable[[SessionRequest], Coordination]
    """Open a session. Raises `ConfigError` for the URL, `CoordinationError` if the service does not answer in time."""
    check_url: Callable[[str], None] = _accept_url
    """Raise `ConfigError` for a malformed URL. Called when a broker is composed, before the broker opens anything."""
    shared: bool = True
    """True if several processes can have sessions with one tree, so brokers can form a cluster over the service."""
    runs_server: bool = False
    """True if `open` starts a server as a child process, so a process opens one session and shares it."""
    exists: Callable[[SessionRequest], bool] = lambda _request: True
    """False if `open` would create the tree as a new file."""
