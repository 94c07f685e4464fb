"""One session with etcd as a `Coordination`."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import cycle
from math import ceil
from threading import Event, Lock, Thread
from time import monotonic
from traceback import format_exception
from typing import Any, TypeVar

from aetcd import rpc

from ...core.tree.service_url import ServiceUrl, parse_service_url
from ...core.tree.tree import check_commit, check_data, check_path, is_path, parent_of
from ...ports.coordination import (
    BadVersion,
    Cancel,
    CoordinationError,
    CreateNode,
    DeleteNode,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
)
from ...ports.errors import ClosedError
from ...ports.report import Report
from ..repeated_failure import RepeatedFailure
from ..session_heartbeat import SessionHeartbeat
from ..watch_delivery import WatchDelivery, write_to_stderr
from .link import OUTCOME, Link, NoAnswer
from .security import EtcdSecurity, LoginRefused

DEFAULT_PORT = 2379
OPERATIONS_MAX = 128
"""The operations that fit into one transaction, unless the server's `--max-txn-ops` says otherwise."""
_OPEN = EtcdSecurity()
ATTEMPTS = 50
"""The attempts of a change while other sessions change the nodes around it."""


T = TypeVar("T")


# The tree as keys of etcd, and the transactions that keep its rules.
#
# A node is the key `<prefix><path>`; its version is etcd's less one, an ephemeral node is one with a lease.

_VERSION_MAX = 2**62


class KeySpace:
    """Paths to keys and back."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def key(self, path: str) -> bytes:
        return self._prefix + path.encode()

    def below(self, path: str) -> tuple[bytes, bytes]:
        """Return the range (first, end) of everything below `path`; "" for the whole tree."""
        key = self.key(path)
        return key + b"/", key + b"0"  # "0" follows "/"

    def path(self, key: bytes) -> str | None:
        """Return the path of a key; None if it is no path of ours (another program wrote it)."""
        try:
            return key[len(self._prefix) :].decode()
        except UnicodeDecodeError:
            return None

    def child_names(self, path: str, keys: Iterable[bytes]) -> list[str]:
        """Return the sorted names of the direct children among the keys below `path`."""
        start = len(self.key(path)) + 1
        names = {key[start:] for key in keys if b"/" not in key[start:] and len(key) > start}
        return sorted(name for name in map(_text, names) if is_path(f"/{name}"))


def _text(name: bytes) -> str:
    """Decode a name; one that is no text becomes unprintable, hence no path."""
    return name.decode(errors="surrogateescape")


def ancestors(path: str) -> list[str]:
    """Return the parent, its parent and so on, the nearest first."""
    found = []
    while path := parent_of(path):
        found.append(path)
    return found


def to_node(pair: Any) -> Node:
    """Return etcd's KeyValue."""
    return Node(data=pair.value, version=pair.version - 1, ephemeral=pair.lease != 0)


def touched_nodes(keys: KeySpace, events: Iterable[Any]) -> dict[str, bool]:
    """Return the paths of the nodes that changed; True for those that were made or deleted."""
    touched: dict[str, bool] = {}
    for event in events:
        path = keys.path(event.kv.key)
        if path is None or not is_path(path):
            continue
        came_or_went = event.type == rpc.Event.EventType.DELETE or event.kv.version == 1
        touched[path] = came_or_went or touched.get(path, False)
    return touched


def absent(key: bytes, end: bytes = b"") -> Any:
    """Return the condition that there is no such key, or none from `key` to `end`."""
    equal, create = rpc.Compare.CompareResult.EQUAL, rpc.Compare.CompareTarget.CREATE
    return rpc.Compare(key=key, range_end=end, result=equal, target=create, create_revision=0)


def present(key: bytes) -> Any:
    greater, create = rpc.Compare.CompareResult.GREATER, rpc.Compare.CompareTarget.CREATE
    return rpc.Compare(key=key, result=greater, target=create, create_revision=0)


def persistent(key: bytes) -> Any:
    """Return the condition that the key has no lease; an absent one has none."""
    equal, lease = rpc.Compare.CompareResult.EQUAL, rpc.Compare.CompareTarget.LEASE
    return rpc.Compare(key=key, result=equal, target=lease, lease=0)


def at_version(key: bytes, version: int | None) -> list[Any]:
    """Return the conditions that the key exists, and in this version unless it is None."""
    if version is None:
        return [present(key)]
    equal, target = rpc.Compare.CompareResult.EQUAL, rpc.Compare.CompareTarget.VERSION
    counted = version + 1 if 0 <= version < _VERSION_MAX else 0  # 0: no version of a key that is there
    return [present(key), rpc.Compare(key=key, result=equal, target=target, version=counted)]


def key_range(key: bytes, end: bytes = b"", *, keys_only: bool = False, limit: int = 0) -> Any:
    return rpc.RangeRequest(key=key, range_end=end, keys_only=keys_only, limit=limit)


def read(key: bytes, end: bytes = b"", *, keys_only: bool = False, limit: int = 0) -> Any:
    return rpc.RequestOp(request_range=key_range(key, end, keys_only=keys_only, limit=limit))


def put(key: bytes, value: bytes, lease: int = 0) -> Any:
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, lease=lease))


def replace(key: bytes, value: bytes) -> Any:
    """New data with the lease that the key has; answers with the old pair."""
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=value, ignore_lease=True, prev_kv=True))


def remove(key: bytes) -> Any:
    return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))


def transaction(compare: Sequence[Any], success: Sequence[Any], failure: Sequence[Any] = ()) -> Any:
    return rpc.TxnRequest(compare=compare, success=success, failure=failure)


def reads(looks: Sequence[Any], key: bytes) -> Any:
    """Return a transaction that reads only, and that every member applies from its log.

    Before etcd 3.5.5 a server panics when the client of a read-only transaction gives up (its deadline passes, or its
    process ends) while the server reads (etcd issue 14110). The operation that never runs, as there is nothing to
    compare, makes it a transaction that may write: such ones go through the log and do not end with their client.
    """
    return transaction([], looks, [remove(key)])


def pairs(response: Any) -> list[Any]:
    """Return the KeyValues of one `read` in the answer of a transaction."""
    return list(response.response_range.kvs)


def _node(path: str, found: Sequence[Any]) -> Node:
    """Return what a reading of one key has found. Raises `NoNode`."""
    if not found:
        raise NoNode(path)
    return to_node(found[0])


# Several changes as one transaction of etcd.


class CommitTxn:
    """The transaction of `Coordination.commit`, and the meaning of its answers.

    The service takes at most 128 comparisons and as many operations: `CHANGES_MAX` times the most that a change takes.
    """

    def __init__(self, keys: KeySpace, changes: Sequence[NodeChange], guards: Mapping[str, int]) -> None:
        """Raises `ValueError`."""
        check_commit(changes, guards)
        self._keys = keys
        self._changes = changes
        self._guards = guards

    def request(self) -> Any:
        compare, writes, looks = [], [], []
        for path, version in self._guards.items():
            compare += at_version(self._keys.key(path), version)
            looks.append(read(self._keys.key(path)))
        for change in self._changes:
            key = self._keys.key(change.path)
            looks.append(read(key))
            if isinstance(change, CreateNode):
                compare.append(absent(key))
                writes.append(put(key, change.data))
                if parent := parent_of(change.path):
                    above = self._keys.key(parent)
                    compare += [present(above), persistent(above)]
                    looks.append(read(above))
                continue
            compare += at_version(key, change.version)
            if isinstance(change, DeleteNode):
                below = self._keys.below(change.path)
                compare.append(absent(*below))
                writes.append(remove(key))
                looks.append(read(*below, keys_only=True, limit=1))
            else:
                writes.append(replace(key, change.data))
        return transaction(compare, writes, looks)

    def missing_parents(self, answer: Any) -> list[str]:
        """Return the missing parents after a transaction was refused. Raises the error of the first refusal."""
        looks = iter(answer.responses)
        for path, version in self._guards.items():
            _check(path, version, pairs(next(looks)))
        missing: dict[str, None] = {}
        for change in self._changes:
            found = pairs(next(looks))
            if isinstance(change, CreateNode):
                missing.update(self._orphaned(change.path, found, looks))
                continue
            _check(change.path, change.version, found)
            if isinstance(change, DeleteNode) and pairs(next(looks)):
                raise NotEmpty(change.path)
        return list(missing)

    def _orphaned(self, path: str, found: list[Any], looks: Iterator[Any]) -> dict[str, None]:
        parent = parent_of(path)
        above = pairs(next(looks)) if parent else []
        if found:
            raise NodeExists(path)
        if above and above[0].lease:
            raise CoordinationError(f"{parent} is ephemeral and cannot have children")
        return {parent: None} if parent and not above else {}


def _check(path: str, version: int | None, found: list[Any]) -> None:
    if not found:
        raise NoNode(path)
    node = to_node(found[0])
    if version is not None and version != node.version:
        raise BadVersion(f"{path} has version {node.version}, not {version}")


# The session: a lease that is kept alive, and a watch of the whole tree, over whichever server answers.

RECONNECT_PAUSE_S = 0.2
REQUEST_TIMEOUT_MIN_S = 0.5
SHORT_PATIENCE_S = 1.0
"""The longest wait for the first answer of the next server as the session runs out, and for the last one of a stop."""


class SessionKeeper:
    """Runs in a thread of its own, and passes changes and session states to `delivery`.

    After a new connection every watch is called, once later changes arrive, so none in between is missed.
    """

    def __init__(
        self,
        where: ServiceUrl,
        keys: KeySpace,
        session_timeout_ms: int,
        delivery: WatchDelivery,
        report: Report,
        security: EtcdSecurity,
    ) -> None:
        self._where = where
        self._security = security
        self._refusal: LoginRefused | None = None
        self._keys = keys
        self._delivery = delivery
        self._failure = RepeatedFailure(report)
        self._ttl_s = max(1, ceil(session_timeout_ms / 1000))
        self._heartbeat = SessionHeartbeat(self._ttl_s * 1000)
        self._link: Link | None = None
        self._lease: int | None = None
        self._owes_expiry = False
        self._renewed: tuple[int, float] | None = None
        """The lease that the user's last `heartbeat` has renewed, and when that call began."""
        self._wake = Event()
        self._ready = Event()
        self._closing = Event()
        self._why = "no server was asked yet"
        self._thread = Thread(target=self._run, name="coordination-session", daemon=True)

    def start(self, timeout_ms: int) -> None:
        """Return with a session. Raises `CoordinationError`, then nothing is left running."""
        self._thread.start()
        is_settled = self._ready.wait(timeout_ms / 1000)
        if self._refusal is not None:
            self.close()
            raise self._refusal
        if not is_settled:
            self.close()
            servers = self._where.servers
            raise CoordinationError(f"no etcd answers at {servers} within {timeout_ms} ms; last: {self._why}")

    def ask(self, request: Callable[[Link, float], T]) -> T:
        """Make a request, given the server and the seconds that it may take; one that stands still is left.

        A write that is on its way when etcd's leader dies is answered by no one for 7 s, and done by none: it is better
        asked again.
        """
        link = self.link()
        try:
            return request(link, max(REQUEST_TIMEOUT_MIN_S, self._ttl_s / 3))
        except NoAnswer:
            self._renewed = None
            link.close()  # other calls on it fail, too, and the keeper connects to another server
            raise

    @property
    def lease(self) -> int:
        """The current lease, for a new ephemeral node."""
        return self._lease or 0

    def link(self) -> Link:
        """Return the connection. Raises `CoordinationError` while there is none."""
        link = self._link
        if link is None:
            raise CoordinationError(f"not connected to etcd at {self._where.servers}; last: {self._why}")
        return link

    def heartbeat(self) -> float:
        """Renew the session as `Coordination.keep` promises."""
        self._heartbeat.beat()
        began_s, lease = monotonic(), self.lease
        left_s = self.ask(lambda link, timeout_s: link.keep_alive(lease, timeout_s))
        self._renewed = (lease, began_s) if left_s > 0 else None
        if left_s <= 0:
            self.check_now()
        # Checked last: the lease after an expired one counts only once all listeners know of the expiration.
        if left_s <= 0 or self._owes_expiry or self._delivery.owes_an_end:
            raise SessionExpired(f"the session with etcd at {self._where.servers} expired")
        return left_s * 1000.0

    def check_now(self) -> None:
        """Something says that the lease is gone: look at once."""
        self._wake.set()

    def close(self) -> None:
        """End the session: its lease too, if a server can be reached."""
        self._closing.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        for endpoint in cycle(self._where.endpoints):
            if self._closing.is_set():
                return
            link: Link | None = None
            try:
                link = Link(endpoint, self._security, self._keys.below("")[0])
                self._serve(link)
            except CoordinationError as error:
                self._why = str(error)
                if isinstance(error, LoginRefused) and not self._ready.is_set():
                    self._refusal = error
                    self._ready.set()
                    return
            except Exception as error:  # noqa: BLE001  reported as the reason; without this thread no session comes back
                self._why = f"{endpoint}: {type(error).__name__}: {error}"
            else:
                continue  # it is closing
            finally:
                if self._link is not None:
                    self._link = None
                    self._delivery.touch_all(SessionState.SUSPENDED, watches=False)
                if link is not None:
                    link.close()
            if not self._closing.wait(RECONNECT_PAUSE_S):
                self._failure.failed(f"{self._why.removesuffix(OUTCOME)}; it is tried again")

    def _serve(self, link: Link) -> None:
        self._take_lease(link, min(SHORT_PATIENCE_S, self._ttl_s / 3))
        first, end = self._keys.below("")
        stream = link.watch(first, end, self._on_events, self._wake.set, self._ttl_s / 3)
        try:
            stream.wait_ready(self._ttl_s / 3)
            self._link = link
            self._failure.succeeded(f"connected to etcd at {link.endpoint}")
            self._pass_on_state()
            self._ready.set()
            while not self._closing.is_set():
                is_woken = self._wake.wait(self._ttl_s / 3)
                self._wake.clear()
                if stream.error is not None:
                    raise stream.error
                if self._closing.is_set():
                    break
                if is_woken or not self._was_renewed:
                    self._take_lease(link, self._ttl_s / 3)
                if self._owes_expiry:
                    self._pass_on_state()
            link.revoke(self.lease, min(SHORT_PATIENCE_S, self._ttl_s / 3))
        finally:
            stream.close()

    @property
    def _was_renewed(self) -> bool:
        """True if the user has renewed the lease lately, and no request since then had no answer."""
        lease, began_s = self._renewed or (None, 0.0)
        return lease is not None and lease == self._lease and monotonic() - began_s < self._ttl_s / 3

    def _take_lease(self, link: Link, patience_s: float) -> None:
        """Keep the lease alive, or take a new one; not for a user who hangs."""
        if self._lease is not None:
            if self._heartbeat.is_overdue:
                return
            if link.keep_alive(self._lease, patience_s) > 0:
                return
            self._owes_expiry = True
        self._lease = link.grant(self._ttl_s, self._ttl_s / 3).ID

    def _pass_on_state(self) -> None:
        """Pass on a new connection, or the loss of the lease since the last one that was passed on."""
        state = SessionState.EXPIRED if self._owes_expiry else SessionState.CONNECTED
        self._delivery.touch_all(state, watches=True)
        self._owes_expiry = False

    def _on_events(self, events: Any) -> None:
        self._delivery.touch(touched_nodes(self._keys, events))


class EtcdCoordination:
    """Fulfils `ports.coordination.Coordination`.

    Reads are linearizable: each asks a quorum. While the connection is lost, calls raise `CoordinationError` at once. A
    call that fails as it is lost may still have been done. Every session receives every change below its
    prefix, and `children` reads the keys of all descendants, so the tree should be small, as ours are. `report` gets a
    line for a callback that raised, and for a lost connection (`RepeatedFailure`).
    """

    blocking = True

    def __init__(
        self,
        url: str,
        *,
        session_timeout_ms: int = 6000,
        connect_timeout_ms: int = 6000,
        security: EtcdSecurity = _OPEN,
        report: Callable[[str], None] = write_to_stderr,
    ) -> None:
        """Connect to `etcd://host:port,host2:port/prefix`.

        The session time is rounded up to seconds; the service may give more (2 s at least).
        Raises `ConfigError` for the URL, `CoordinationError` when no server answers in time, or one refuses the user.
        """
        where = parse_service_url(url, scheme="etcd", default_port=DEFAULT_PORT)
        self._report = report
        self._keys = KeySpace(where.prefix)
        self._callbacks = ThreadPoolExecutor(1, "coordination-callbacks")
        self._delivery = WatchDelivery(Lock(), self._deliver, self._callback_failed)
        self._keeper = SessionKeeper(where, self._keys, session_timeout_ms, self._delivery, report, security)
        self._life = Lock()
        self._closed = False
        try:
            self._keeper.start(connect_timeout_ms)
        except CoordinationError:
            self._callbacks.shutdown()
            raise
        except BaseException:  # the process ends while it waits
            self.close()
            raise

    def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        check_path(path)
        check_data(data)
        key = self._keys.key(path)
        above = ancestors(path)
        missing: list[str] = []  # as the last attempt found; the first one takes it that the parent is there
        for _ in range(ATTEMPTS):
            lease = self._keeper.lease if ephemeral else 0
            made = [self._keys.key(each) for each in missing]
            compare = [absent(each) for each in (key, *made)]
            if len(missing) < len(above):
                nearest = self._keys.key(above[len(missing)])
                compare += [present(nearest), persistent(nearest)]
            changes = [*(put(each, b"") for each in made), put(key, data, lease)]
            looks = [read(each) for each in (key, *map(self._keys.key, above))]
            answer = self._transact(path, transaction(compare, changes, looks))
            if answer.succeeded:
                return
            missing = self._missing(path, above, answer)
        raise self._too_busy(path)

    def get(self, path: str) -> Node:
        check_path(path)
        return _node(path, self._range(path, key_range(self._keys.key(path))))

    def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        for path in paths:
            check_path(path)
        self._check_open()
        found: list[Node | None] = []
        for start in range(0, len(paths), OPERATIONS_MAX):
            keys = [self._keys.key(path) for path in paths[start : start + OPERATIONS_MAX]]
            answer = self._transact("many nodes", reads(list(map(read, keys)), keys[0]))
            found += (next(map(to_node, pairs(response)), None) for response in answer.responses)
        return found

    def set(self, path: str, data: bytes, *, version: int | None = None) -> int:
        check_path(path)
        check_data(data)
        key = self._keys.key(path)
        request = transaction(at_version(key, version), [replace(key, data)], [read(key)])
        for _ in range(ATTEMPTS):
            answer = self._transact(path, request)
            if answer.succeeded:
                return int(answer.responses[0].response_put.prev_kv.version)
            self._check_version(path, version, _node(path, pairs(answer.responses[0])))
        raise self._too_busy(path)

    def delete(self, path: str, *, version: int | None = None) -> None:
        check_path(path)
        key = self._keys.key(path)
        first, end = self._keys.below(path)
        compare = [*at_version(key, version), absent(first, end)]
        looks = [read(key), read(first, end, keys_only=True, limit=1)]
        request = transaction(compare, [remove(key)], looks)
        for _ in range(ATTEMPTS):
            answer = self._transact(path, request)
            if answer.succeeded:
                return
            self._check_version(path, version, _node(path, pairs(answer.responses[0])))
            if pairs(answer.responses[1]):
                raise NotEmpty(path)
        raise self._too_busy(path)

    def commit(self, changes: Sequence[NodeChange], *, guards: Mapping[str, int] | None = None) -> None:
        attempt = CommitTxn(self._keys, changes, guards or {})
        for _ in range(ATTEMPTS):
            answer = self._transact("a commit", attempt.request())
            if answer.succeeded:
                return
            for parent in attempt.missing_parents(answer):
                with suppress(NodeExists):
                    self.create(parent)
        raise self._too_busy("a commit")

    def children(self, path: str) -> list[str]:
        check_path(path)
        # The node first: should it go before the second reading, it had no children when it went.
        _node(path, self._range(path, key_range(self._keys.key(path), keys_only=True)))
        below = self._range(path, key_range(*self._keys.below(path), keys_only=True))
        return self._keys.child_names(path, (pair.key for pair in below))

    def watch(self, path: str, changed: Callable[[], None]) -> Cancel:
        check_path(path)
        self._check_open()
        return partial(self._delivery.cancel, self._delivery.watch(path, changed))

    def watch_below(self, path: str, changed: Callable[[Collection[str] | None], None]) -> Cancel:
        check_path(path)
        self._check_open()
        return partial(self._delivery.cancel, self._delivery.watch_below(path, changed))

    def heartbeat(self) -> float:
        self._check_open()
        try:
            return self._keeper.heartbeat()
        except CoordinationError:
            self._check_open()
            raise

    def add_session_listener(self, on_state_changed: Callable[[SessionState], None]) -> Cancel:
        self._check_open()
        return partial(self._delivery.cancel, self._delivery.add_session_listener(on_state_changed))

    def close(self) -> None:
        """See the port. When no server can be reached, ephemeral nodes go once the session times out."""
        with self._life:
            if self._closed:
                return
            self._closed = True
            self._delivery.close()
            self._keeper.close()
        self._callbacks.shutdown(wait=False)

    def _missing(self, path: str, above: list[str], answer: Any) -> list[str]:
        """Return the missing ancestors, the nearest first. Raises the reason why `path` cannot be created."""
        if pairs(answer.responses[0]):
            raise NodeExists(path)
        missing = []
        for ancestor, response in zip(above, answer.responses[1:], strict=True):
            found = pairs(response)
            if found and found[0].lease:
                raise CoordinationError(f"{ancestor} is ephemeral and cannot have children")
            if found:
                break
            missing.append(ancestor)
        return missing

    def _check_version(self, path: str, version: int | None, node: Node) -> None:
        if version is not None and version != node.version:
            raise BadVersion(f"{path} has version {node.version}, not {version}")

    def _too_busy(self, path: str) -> CoordinationError:
        return CoordinationError(f"{path}: others change the nodes around it as often as it is tried")

    def _transact(self, path: str, request: Any) -> Any:
        return self._ask(lambda link, timeout_s: link.transact(path, request, timeout_s))

    def _range(self, path: str, request: Any) -> list[Any]:
        return self._ask(lambda link, timeout_s: link.range(path, request, timeout_s))

    def _ask(self, call: Callable[[Link, float], T]) -> T:
        self._check_open()
        try:
            return self._keeper.ask(call)
        except CoordinationError as error:
            self._check_open()
            if isinstance(error, SessionExpired):
                self._keeper.check_now()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this coordination session is closed")

    def _callback_failed(self, error: Exception) -> None:
        self._report(f"a coordination callback failed: {''.join(format_exception(error))}")

    def _deliver(self, deliver: Callable[[], None]) -> None:
        try:
            self._callbacks.submit(deliver)
        except RuntimeError as error:  # the executor was shut down
            raise ClosedError("this coordination session is closed") from error
