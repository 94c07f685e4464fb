"""One session with etcd as a `Coordination`."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from traceback import format_exception
from typing import Any, TypeVar

from ...core.tree.service_url import parse_service_url
from ...core.tree.tree import check_data, check_path
from ...ports.coordination import (
    BadVersion,
    Cancel,
    CoordinationError,
    Node,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
    SessionState,
)
from ...ports.errors import ClosedError
from ..watch_delivery import WatchDelivery
from .commit import CommitTxn
from .keeper import SessionKeeper
from .link import Link
from .security import EtcdSecurity
from .tree_requests import (
    KeySpace,
    absent,
    ancestors,
    at_version,
    key_range,
    pairs,
    persistent,
    present,
    put,
    read,
    reads,
    remove,
    replace,
    to_node,
    transaction,
)

DEFAULT_PORT = 2379
OPERATIONS_MAX = 128
"""The operations that fit into one transaction, unless the server's `--max-txn-ops` says otherwise."""
_OPEN = EtcdSecurity()
ATTEMPTS = 50
"""The attempts of a change while other sessions change the nodes around it."""


T = TypeVar("T")


def _node(path: str, found: Sequence[Any]) -> Node:
    """Return what a reading of one key has found. Raises `NoNode`."""
    if not found:
        raise NoNode(path)
    return to_node(found[0])


def _to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")


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
        report: Callable[[str], None] = _to_stderr,
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
