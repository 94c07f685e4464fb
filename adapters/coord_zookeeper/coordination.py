"""One ZooKeeper session as a `Coordination`."""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from socket import SHUT_RDWR, socket
from threading import Event, Lock
from traceback import format_exception
from typing import Any, ClassVar, NoReturn

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import EXCEPTIONS, AuthFailedError, ConnectionDropped
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import (
    CHANGED_EVENT,
    CLOSE_RESPONSE,
    CREATED_EVENT,
    DELETED_EVENT,
    ConnectionHandler,
)
from kazoo.protocol.serialization import SASL, Connect, Watch, int_struct, write_string
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent

from ...core.security.sasl.exchange import SaslAuthenticationError
from ...core.tree.service_url import ServiceUrl, parse_service_url
from ...core.tree.tree import check_commit, check_data, check_path, is_at_or_below, is_path, parent_of
from ...ports.coordination import (
    BadVersion,
    Cancel,
    CoordinationError,
    CreateNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
    SetNode,
)
from ...ports.errors import ClosedError
from ...ports.values import frozen
from ..repeated_failure import RepeatedFailure
from ..session_heartbeat import SessionHeartbeat
from ..watch_delivery import WatchDelivery, write_to_stderr
from .security import TlsHandler, ZookeeperSecurity

DEFAULT_PORT = 2181
KEEP_TIMEOUT_MIN_S = 0.5
REQUESTS_AT_ONCE = 1000
"""The requests sent before the wait for the first answer; about as many as a server takes in at once."""
CREATE_ATTEMPTS = 20
"""The attempts of a creation while other sessions delete its parents."""
_VERSION_MAX = 2**31 - 1
_ANY_VERSION = -1
_NO_SECURITY = ZookeeperSecurity()
_NOT_TO_BLAME = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
"""The answers to the other operations of a refused transaction."""
_RECONNECT = {"max_tries": -1, "delay": 0.05, "backoff": 2, "max_jitter": 0.4, "max_delay": 1.0}
"""Seconds. kazoo's own pause grows to a minute, far beyond a session."""

_log = logging.getLogger("barnabas.coord_zookeeper")
_log.addHandler(logging.NullHandler())


# kazoo's lines for the log: each attempt to connect is one or two of them, which would fill a disk.


def logger_for(servers: str, failure: RepeatedFailure, log: logging.Logger) -> logging.Logger:
    """Return the logger of one client: what fails goes to `failure`, the rest is only of interest to debug; errors
    stay."""
    logger = logging.Logger(log.name)
    logger.parent = log
    logger.addFilter(_Summed(servers, failure, log))
    return logger


class _Summed(logging.Filter):
    def __init__(self, servers: str, failure: RepeatedFailure, log: logging.Logger) -> None:
        super().__init__()
        self._servers = servers
        self._failure = failure
        self._log = log

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR or record.levelno <= logging.DEBUG:
            return True
        if record.levelno == logging.WARNING and record.getMessage() != "Transition to CONNECTING":
            self._failure.failed(f"ZooKeeper at {self._servers}: {record.getMessage()}; it is tried again")
        record.levelno, record.levelname = logging.DEBUG, logging.getLevelName(logging.DEBUG)
        return self._log.isEnabledFor(logging.DEBUG)


_LOST = (kazoo.ConnectionLoss, kazoo.ConnectionClosedError, kazoo.SessionExpiredError)
"""The errors after which a new connection or session arms everything again."""
_HARMLESS = (kazoo.NoNodeError, *_LOST)
"""A missing node has no children to watch."""


@frozen
class _Fired:
    """Called when something happens to a path. Two of one path are equal: kazoo remembers each that differs until the
    path fires, and it may be watched again and again before that."""

    path: str
    on_event: Callable[[str, WatchedEvent], None]

    def __call__(self, event: WatchedEvent) -> None:
        self.on_event(self.path, event)


# A kazoo client with persistent recursive watches (ZooKeeper 3.6), the negotiated session timeout, and security.

_PERSISTENT_RECURSIVE = 1

NodeTouched = Callable[[str, bool], None]
"""Called with the path of a node, and True if it was created or deleted."""


@frozen
class AddWatch:
    """A request of kazoo's kind: OpCode.addWatch of ZooKeeper."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        return bytes(write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE))

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> int:
        """Return the error of the answer, always 0: another one would stand in the header."""
        (error,) = int_struct.unpack_from(buffer, offset)
        return int(error)


class WatchingClient(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """`touched` is called for every event of a node, on the thread of the connection; set it before the start.

    `on_login_refused` gets the reason when the service refuses the login; the login is tried again all the same, as
    long as the session may last: its user may come back.
    """

    touched: NodeTouched
    on_login_refused: Callable[[str], None]

    def __init__(self, *, timeout: float, security: ZookeeperSecurity, **options: Any) -> None:
        if security.encrypt is not None:
            options["handler"] = TlsHandler(security.encrypt)
        super().__init__(timeout=timeout, **options)
        self.security = security
        self.last_failure = ""
        """The reason of the last connection that could not be made."""
        self.negotiated_timeout_ms = timeout * 1000
        self.heartbeat = SessionHeartbeat(self.negotiated_timeout_ms)
        self._connection = _Connection(self, self._conn_retry.copy(), logger=self.logger)

    def watch_below_async(self, path: str) -> Any:
        """Events of the node and all below it, until the connection ends; kazoo's result, to wait for."""
        result = self.handler.async_result()
        self._call(AddWatch(path), result)
        return result

    def drop_connection(self) -> None:
        """Leave a server that does not answer, and continue the session on another one. Any thread may call."""
        self._connection.drop()


# kazoo's exceptions and answers as ours.

FAILURES = (kazoo.KazooException, KazooTimeoutError)
"""The exceptions that a call of kazoo may raise."""

_REFUSALS: dict[type[kazoo.KazooException], type[CoordinationError]] = {
    kazoo.NodeExistsError: NodeExists,
    kazoo.NoNodeError: NoNode,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.BadVersionError: BadVersion,
}
_OUTCOME = "; whether the service has done it is not known"


def to_coordination_error(error: Exception, path: str, where: ServiceUrl) -> CoordinationError:
    """Return the port's error for a failed call on `path`."""
    refusal = _REFUSALS.get(type(error))
    if refusal is not None:
        return refusal(path)
    if isinstance(error, kazoo.NoChildrenForEphemeralsError):
        return CoordinationError(f"{path}: its parent is ephemeral and cannot have children")
    if isinstance(error, kazoo.NoAuthError):
        text = f"{path}: ZooKeeper at {where.servers} refused: the ACL of the node does not allow it"
        return CoordinationError(f"{text}; see zookeeper.sasl.jaas.config and zookeeper.set.acl")
    if isinstance(error, kazoo.InvalidACLError):
        text = f"{path}: ZooKeeper at {where.servers} refused its ACL: the session has no identity"
        return CoordinationError(f"{text}; zookeeper.set.acl=true needs a login or a client certificate")
    if isinstance(error, KazooTimeoutError):
        return CoordinationError(f"{path}: no answer from ZooKeeper at {where.servers} in time{_OUTCOME}")
    if isinstance(error, kazoo.ConnectionClosedError | kazoo.ConnectionLoss):
        return CoordinationError(f"{path}: lost the connection to ZooKeeper at {where.servers}{_OUTCOME}")
    if isinstance(error, kazoo.UnimplementedError):
        text = f"{path}: ZooKeeper at {where.servers} does not know this request"
        return CoordinationError(f"{text}; every server of the ensemble has to be 3.6 or newer")
    if isinstance(error, kazoo.SessionExpiredError):
        return SessionExpired(f"{path}: the session with ZooKeeper at {where.servers} expired")
    if not isinstance(error, kazoo.KazooException):
        return CoordinationError(
            f"{path}: ZooKeeper at {where.servers} answered what makes no sense: {error}{_OUTCOME}"
        )
    return CoordinationError(f"{path}: ZooKeeper at {where.servers} refused: {type(error).__name__} {error}".rstrip())


def to_node(answer: Any) -> Node:
    """Return kazoo's pair (data, stat)."""
    data, stat = answer
    return Node(data=bytes(data), version=stat.version, ephemeral=stat.ephemeralOwner != 0)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    def drop(self) -> None:
        """Shut the socket down; the thread of the connection then reads the end of the stream."""
        connection = self._socket
        if connection is not None:
            with suppress(OSError):  # it is closed already
                # An SSLSocket's own method would make the other thread read without TLS.
                socket.shutdown(connection, SHUT_RDWR)

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._host = host
        try:
            return super()._connect(host, hostip, port)
        except Exception as error:
            self.client.last_failure = str(error)
            raise

    def _read_socket(self, read_timeout: float) -> Any:
        """Read an answer, and all that TLS has decrypted with it: the poller does not know of them."""
        while True:
            answer = self._read_answer(read_timeout)
            pending = getattr(self._socket, "pending", None)
            if answer == CLOSE_RESPONSE or pending is None or not pending():
                return answer

    def _read_answer(self, read_timeout: float) -> Any:
        try:
            return super()._read_socket(read_timeout)
        except FAILURES:
            raise
        except Exception as error:
            # kazoo would give up, and the session with it. One answer is known to be left out now and then, as a server
            # loses its leader ("xids do not match"): on a new connection all is in order.
            raise ConnectionDropped(f"a malformed response: {error}") from error

    def _send_ping(self, connect_timeout: float) -> None:
        """Send a ping unless the user hangs: the service then ends the session."""
        if not self.client.heartbeat.is_overdue:
            super()._send_ping(connect_timeout)

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect):
            self.client.negotiated_timeout_ms = float(answer[0].time_out)
            if answer[0].time_out > 0 and self.client.security.login is not None:
                self._log_in(timeout)  # before kazoo says that it is connected
        return answer

    def _log_in(self, timeout: float) -> None:
        """Raises `ConnectionDropped` when the service refuses the login, so that it is tried again."""
        exchange = self.client.security.login(self._host)
        try:
            token, number = exchange.first(), 0
            while token is not None:
                number += 1
                self._submit(SASL(token), timeout, number)
                header, buffer, offset = self._read_header(timeout)
                if header.err:
                    raise EXCEPTIONS[header.err]()
                challenge, _ = SASL.deserialize(buffer, offset)
                token = exchange.next(challenge or b"")
        except (AuthFailedError, SaslAuthenticationError) as error:
            reason = f"the login of {self.client.security.user} is refused"
            if isinstance(error, SaslAuthenticationError):
                reason = f"the login of {self.client.security.user} failed: {error.message}"
            self.client.on_login_refused(reason)
            raise ConnectionDropped(reason) from error

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        if event.type in (CREATED_EVENT, DELETED_EVENT, CHANGED_EVENT):
            self.client.touched(event.path, event.type != CHANGED_EVENT)
        super()._read_watch_event(buffer, offset)


class Watches:
    """The watches of each wanted path: one on the node and one on its children (two kinds in ZooKeeper).

    A watch is set again before the callback of its path runs, so a callback that reads misses no later change.
    Watches die with their connection: call `arm_all` after each new one.

    Paths below which all is watched are roots. Only the watch of a root reports changes at and below it: before
    ZooKeeper 3.9 a one-shot watch would take the place of a recursive one at the same path (ZOOKEEPER-4466).
    """

    def __init__(
        self, client: WatchingClient, prefix: str, delivery: WatchDelivery, report: Callable[[str], None]
    ) -> None:
        self._client = client
        client.touched = self._on_event
        self._prefix = prefix
        self._delivery = delivery
        self._report = report
        self._lock = Lock()
        self._wanted: Counter[str] = Counter()
        self._fired: dict[str, _Fired] = {}
        self._roots: Counter[str] = Counter()
        self._refused: set[str] = set()

    def add(self, path: str) -> None:
        """Want changes of `path`, from the next `arm` or `arm_all` on."""
        with self._lock:
            self._wanted[path] += 1
            self._fired.setdefault(path, _Fired(path, self._on_fired))

    def remove(self, path: str) -> None:
        """Undo one `add`. The last watch on the server stays until it fires."""
        with self._lock:
            self._wanted[path] -= 1
            if not self._wanted[path]:
                del self._wanted[path], self._fired[path]

    def add_below(self, root: str) -> None:
        """Want changes of `root` and all below, from the next `arm_below` or `arm_all` on."""
        with self._lock:
            self._roots[root] += 1

    def remove_below(self, root: str) -> None:
        """Undo one `add_below`. The last watch on the server stays with the connection."""
        with self._lock:
            self._roots[root] -= 1
            if self._roots[root]:
                return
            del self._roots[root]
            self._refused.discard(root)
        self._arm_those_at_or_below(root)

    def arm(self, path: str) -> Any:
        """Set the watches of one path that was added; returns kazoo's result to wait for: later changes are reported.

        None for a path below a root.
        """
        with self._lock:
            fired = self._fired[path]
            if self._is_covered(path):
                return None
        return self._arm(path, fired, notify=False)

    def arm_below(self, root: str, *, notify: bool = True) -> Any:
        """Set the watch of a root; returns kazoo's result to wait for. `notify`: report all as changed."""
        result = self._client.watch_below_async(self._prefix + root)
        result.rawlink(partial(self._on_armed_below, root, notify))
        return result

    def arm_all(self) -> None:
        """Set all watches on a new connection; each path and root is reported once it is watched."""
        with self._lock:
            self._refused.clear()
            roots = list(self._roots)
            wanted = [(path, fired) for path, fired in self._fired.items() if not self._is_covered(path)]
        for root in roots:
            self.arm_below(root)
        for path, fired in wanted:
            self._arm(path, fired)

    def _on_event(self, path: str, came_or_went: bool) -> None:
        """Deliver an event on the thread of the connection, so that changes come in their order."""
        if not path.startswith(f"{self._prefix}/"):
            return
        path = path[len(self._prefix) :]
        with self._lock:
            covered = self._is_covered(path)
        if covered and is_path(path):  # else its one-shot watch reports it
            self._delivery.touch({path: came_or_went})

    def _is_covered(self, path: str) -> bool:
        return any(is_at_or_below(path, root) for root in self._roots if root not in self._refused)

    def _on_fired(self, path: str, event: WatchedEvent) -> None:
        with self._lock:
            fired = self._fired.get(path)
            covered = self._is_covered(path)
        if event.type == EventType.NONE or fired is None:  # NONE: kazoo forgets its watches with the connection
            return
        if covered:
            self._delivery.touch_path(path)
        else:
            self._arm(path, fired)

    def _arm(self, path: str, fired: _Fired, *, notify: bool = True) -> Any:
        full = self._prefix + path
        node = self._client.exists_async(full, watch=fired)
        node.rawlink(partial(self._check, path))
        children = self._client.get_children_async(full, watch=fired)
        # Answers come in the order of the requests: with the second, both watches stand.
        children.rawlink(partial(self._on_armed, path, notify))
        return children

    def _arm_those_at_or_below(self, root: str) -> None:
        """Each path for itself, as the watch of the root reports no changes."""
        with self._lock:
            bare = [each for each in self._fired.items() if is_at_or_below(each[0], root)]
            bare = [(path, fired) for path, fired in bare if not self._is_covered(path)]
        for path, fired in bare:
            self._arm(path, fired)

    def _on_armed(self, path: str, notify: bool, result: Any) -> None:
        self._check(path, result)
        if notify:
            self._delivery.touch_path(path)

    def _on_armed_below(self, root: str, notify: bool, result: Any) -> None:
        if isinstance(result.exception, _LOST):
            return
        if result.exception is not None:
            with self._lock:
                if root in self._roots:
                    self._refused.add(root)
            if notify:  # else the caller gets the error
                self._check(root, result)
            self._arm_those_at_or_below(root)
        if notify:
            self._delivery.touch_below(root)
        with self._lock:
            below = [path for path in self._fired if is_at_or_below(path, root)]
        for path in below:  # they may have been added while the watch of the root was on its way
            self._delivery.touch_path(path)

    def _check(self, path: str, result: Any) -> None:
        error = result.exception
        if error is not None and not isinstance(error, _HARMLESS):
            self._report(f"changes of {path} cannot be watched: ZooKeeper refused: {type(error).__name__} {error}")


class ZookeeperCoordination:
    """Fulfils `ports.coordination.Coordination`.

    While the connection is lost, calls raise `CoordinationError` at once. A call that fails as it is lost may still
    have been done. The service's `jute.maxbuffer` (1 MiB less one byte, unless raised) bounds data and path
    together; larger requests make it cut the connection. `report` gets a line for a callback that raised, for refused
    watches, and for a lost connection (`RepeatedFailure`).
    """

    blocking = True

    def __init__(
        self,
        url: str,
        *,
        session_timeout_ms: int = 6000,
        connect_timeout_ms: int = 6000,
        security: ZookeeperSecurity = _NO_SECURITY,
        report: Callable[[str], None] = write_to_stderr,
    ) -> None:
        """Connect to `zookeeper://host:port,host2:port/chroot`; the chroot is made with the first node.

        Raises `ConfigError` for the URL, `CoordinationError` when no server answers in time, or one refuses the login.
        The service may negotiate another session time.
        """
        self._where = parse_service_url(url, scheme="zookeeper", default_port=DEFAULT_PORT)
        self._report = report
        self._request_timeout_s = session_timeout_ms / 1000
        self._failure = RepeatedFailure(report)
        self._acls = security.acls
        self._client = WatchingClient(
            security=security,
            hosts=self._where.servers,
            timeout=session_timeout_ms / 1000,
            connection_retry=_RECONNECT,
            logger=logger_for(self._where.servers, self._failure, _log),
        )
        self._callbacks = ThreadPoolExecutor(1, "coordination-callbacks")
        self._delivery = WatchDelivery(Lock(), self._deliver, self._callback_failed)
        self._watches = Watches(self._client, self._where.prefix, self._delivery, report)
        self._life = Lock()
        self._closing = Event()
        self._connected = Event()
        self._expired = False
        self._refusal = ""
        self._is_settled = Event()
        """Set once the first connection is made, or its login is refused."""
        self._client.on_login_refused = self._on_login_refused
        self._client.add_listener(self._state_changed)
        self._client.start_async()
        try:
            self._is_settled.wait(connect_timeout_ms / 1000)
        except BaseException:  # the process ends while it waits
            self._client.drop_connection()  # its thread may wait for a server that does not answer
            self.close()
            raise
        if self._refusal:
            self.close()
            text = f"ZooKeeper at {self._where.servers}: {self._refusal}"
            raise CoordinationError(f"{text}; see zookeeper.sasl.jaas.config")
        if not self._is_settled.is_set():
            why = f"; last: {self._client.last_failure}" if self._client.last_failure else ""
            self.close()
            text = f"no ZooKeeper answers at {self._where.servers} within {connect_timeout_ms} ms"
            raise CoordinationError(text + why)

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        check_path(path)
        check_data(data)
        for _ in range(CREATE_ATTEMPTS):
            try:
                self._create_one(path, data, ephemeral)
                return
            except NoNode:
                self._create_parents(path)
        raise CoordinationError(f"{path}: its parents are deleted as often as they are made")

    def get(self, path: str) -> Node:
        check_path(path)
        return to_node(self._call(path, self._client.get_async))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        self._check_connected("many nodes")
        found: list[Node | None] = []
        for start in range(0, len(paths), REQUESTS_AT_ONCE):
            asked = paths[start : start + REQUESTS_AT_ONCE]
            results = [self._client.get_async(self._where.prefix + path) for path in asked]
            for path, result in zip(asked, results, strict=True):
                try:
                    found.append(to_node(self._ask(path, result)))
                except NoNode:
                    found.append(None)
        return found

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        check_path(path)
        check_data(data)
        self._check_version(path, version)
        stat = self._call(path, self._client.set_async, data, _ANY_VERSION if version is None else version)
        return int(stat.version)

    def delete(self, path: str, *, version: int | None = None) -> None:
        check_path(path)
        self._check_version(path, version)
        self._call(path, self._client.delete_async, _ANY_VERSION if version is None else version)

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        guards = guards or {}
        check_commit(changes, guards)
        for path, version in (
            *guards.items(),
            *((c.path, c.version) for c in changes if not isinstance(c, CreateNode)),
        ):
            self._check_version(path, version)
        for _ in range(CREATE_ATTEMPTS):
            orphan = self._commit_once(changes, guards)
            if orphan is None:
                return
            for change in changes:  # the answer names only the first node without a parent
                if isinstance(change, CreateNode):
                    self._create_parents(change.path)
        raise CoordinationError(f"{orphan}: its parents are deleted as often as they are made")

    def _commit_once(self, changes: Sequence[NodeChange], guards: Mapping[str, int]) -> str | None:
        """Commit; return None, or the path of a node to create whose parent is missing. Raises the first refusal."""
        self._check_connected("a commit")
        request, prefix = self._client.transaction(), self._where.prefix
        for path, version in guards.items():
            request.check(prefix + path, version)
        for change in changes:
            if isinstance(change, CreateNode):
                request.create(prefix + change.path, change.data, self._acl_of(change.path))
            elif isinstance(change, SetNode):
                request.set_data(
                    prefix + change.path, change.data, _ANY_VERSION if change.version is None else change.version
                )
            else:
                request.delete(prefix + change.path, _ANY_VERSION if change.version is None else change.version)
        answers = self._ask("a commit", request.commit_async())
        for subject, answer in zip((*guards, *changes), answers, strict=True):
            if not isinstance(answer, Exception) or isinstance(answer, _NOT_TO_BLAME):
                continue
            if isinstance(subject, CreateNode) and isinstance(answer, kazoo.NoNodeError):
                return subject.path
            self._fail(answer, subject if isinstance(subject, str) else subject.path)
        return None

    def children(self, path: str) -> list[str]:
        check_path(path)
        names: list[str] = self._call(path, self._client.get_children_async)
        return sorted(name for name in names if is_path(f"/{name}"))

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        self._check_open()
        token = self._delivery.watch(path, changed)
        self._watches.add(path)
        if self._connected.is_set():  # otherwise the next connection arms it
            armed = self._watches.arm(path)
            if armed is not None:
                armed.wait(self._request_timeout_s)
        return partial(self._cancel_watch, token, Event(), partial(self._watches.remove, path))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        self._check_open()
        token = self._delivery.watch_below(path, changed)
        cancel = partial(self._cancel_watch, token, Event(), partial(self._watches.remove_below, path))
        self._watches.add_below(path)
        if self._connected.is_set():  # otherwise the next connection arms it
            try:
                self._ask(path, self._watches.arm_below(path, notify=False))
            except CoordinationError:
                cancel()
                raise
        return cancel

    def heartbeat(self) -> float:
        self._client.heartbeat.beat()
        self._check_connected("the session")
        # A server that lost the others still answers what is read for a while; a transaction comes back from the
        # leader and a quorum, who refuse it once the session has ended. That "/" is there changes nothing.
        request = self._client.transaction()
        request.check("/", _ANY_VERSION)
        answer = request.commit_async()
        if not answer.wait(max(KEEP_TIMEOUT_MIN_S, self._request_timeout_s / 3)):
            # kazoo leaves a server that stands still after two thirds of the session time.
            self._client.drop_connection()
            raise CoordinationError(f"the session: no answer from ZooKeeper at {self._where.servers} in time")
        self._ask("the session", answer)
        if self._expired or self._delivery.owes_an_end:  # asked last: by now it may be the session after
            raise SessionExpired(f"the session with ZooKeeper at {self._where.servers} expired")
        return self._client.negotiated_timeout_ms

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        self._check_open()
        return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        """See the port. When the connection is lost, ephemeral nodes go once the session times out."""
        with self._life:
            if self._closing.is_set():
                return
            self._closing.set()
            self._delivery.close()
            try:
                self._client.stop()
                self._client.close()
            except FAILURES as error:
                self._report(f"the session with ZooKeeper at {self._where.servers} did not end in order: {error}")
        self._callbacks.shutdown(wait=False)

    def _create_one(self, path: str, data: bytes, ephemeral: bool) -> None:
        self._call(path, self._client.create_async, data, self._acl_of(path), ephemeral)

    def _acl_of(self, path: str) -> list[Any] | None:
        return None if self._acls is None else self._acls.of(path)

    def _create_parents(self, path: str) -> None:
        missing = []
        parent = parent_of(self._where.prefix + path)
        while parent and self._ask(parent, self._client.exists_async(parent)) is None:
            missing.append(parent)
            parent = parent_of(parent)
        for parent in reversed(missing):
            try:
                prefix = self._where.prefix
                acl = self._acl_of(parent[len(prefix) :] if is_at_or_below(parent, prefix) else "")
                self._client.create_async(parent, b"", acl).get(timeout=self._request_timeout_s)
            except (kazoo.NodeExistsError, kazoo.NoNodeError):
                continue  # someone else was quicker, or deleted its parent: the next attempt sees
            except FAILURES as error:
                self._fail(error, path)

    def _check_version(self, path: str, version: int | None) -> None:
        """ZooKeeper's versions have 31 bits, and -1 means any: what cannot be sent cannot be right."""
        if version is not None and not 0 <= version <= _VERSION_MAX:
            raise BadVersion(f"{path} has version {self.get(path).version}, not {version}")

    def _check_connected(self, path: str) -> None:
        self._check_open()
        if not self._connected.is_set():
            raise CoordinationError(f"{path}: not connected to ZooKeeper at {self._where.servers}")

    def _call(self, path: str, request: Callable[..., Any], *arguments: object) -> Any:
        self._check_connected(path)
        return self._ask(path, request(self._where.prefix + path, *arguments))

    def _ask(self, path: str, result: Any) -> Any:
        try:
            return result.get(timeout=self._request_timeout_s)
        except Exception as error:  # noqa: BLE001  an answer that cannot be read comes as whatever it caused
            self._fail(error, path)

    def _fail(self, error: Exception, path: str) -> NoReturn:
        self._check_open()
        raise to_coordination_error(error, path, self._where) from error

    def _cancel_watch(self, token: int, done: Event, remove: Callable[[], None]) -> None:
        self._delivery.cancel(token)
        with self._life:
            if done.is_set():
                return
            done.set()
        remove()

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ClosedError("this coordination session is closed")

    def _on_login_refused(self, reason: str) -> None:
        """Runs on kazoo's connection thread."""
        if not self._is_settled.is_set():  # later ones are logged as failures of the connection
            self._refusal = reason
            self._is_settled.set()

    def _callback_failed(self, error: Exception) -> None:
        self._report(f"a coordination callback failed: {''.join(format_exception(error))}")

    def _deliver(self, deliver: Callable[[], None]) -> None:
        try:
            self._callbacks.submit(deliver)
        except RuntimeError as error:  # the executor was shut down
            raise ClosedError("this coordination session is closed") from error

    def _state_changed(self, state: str) -> None:
        """Handle a state; runs on kazoo's connection thread, which must not wait."""
        if self._closing.is_set():
            return
        if state == KazooState.CONNECTED:
            self._failure.succeeded(f"connected to ZooKeeper at {self._where.servers}")
            new_state = SessionState.EXPIRED if self._expired else SessionState.CONNECTED
            # A new session may come to a server that lags behind; requests are answered in order, so a sync goes first.
            self._client.sync_async(self._where.prefix or "/")
            self._connected.set()
            self._is_settled.set()
            self._delivery.touch_all(new_state, watches=False)
            self._expired = False  # only now: `keep` fails until who listens knows
            self._watches.arm_all()
            return
        if self._connected.is_set():
            self._connected.clear()
            self._delivery.touch_all(SessionState.SUSPENDED, watches=False)
        if state == KazooState.LOST:
            self._expired = True
            if self._client.client_state == KeeperState.CLOSED:
                self._callbacks.submit(self._start_again)

    def _start_again(self) -> None:
        """kazoo's connection thread gave up (a fault of its own or of ours): begin a new session.

        The old session was not ended, so its ephemeral nodes stand until the service gives up too: wait for that first.
        """
        self._report(f"the connection to ZooKeeper at {self._where.servers} failed; a new session begins")
        self._closing.wait(1.5 * self._request_timeout_s)
        with self._life:
            if not self._closing.is_set():
                self._client.start_async()
