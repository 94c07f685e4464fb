"""The tree as keys of etcd, and the transactions that keep its rules.

A node is the key `<prefix><path>`; its version is etcd's less one, an ephemeral node is one with a lease.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from aetcd import rpc

from ...core.tree.tree import is_path, parent_of
from ...ports.coordination import Node

_VERSION_MAX = 2**62


class KeySpace:
    """Paths to keys and back."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()

    def key(self, path: str) -> bytes:
        return self._prefix + path.encode()

    def below(self, path: str) -> tuple[bytes, bytes]:
        """The range (first, end) of everything below `path`; "" for the whole tree."""
        key = self.key(path)
        return key + b"/", key + b"0"  # "0" follows "/"

    def path(self, key: bytes) -> str | None:
        """Return the path of a key; None if it is no path of ours (another program wrote it)."""
        try:
            return key[len(self._prefix) :].decode()
        except UnicodeDecodeError:
            return None

    def child_names(self, path: str, keys: Iterable[bytes]) -> list[str]:
        """The sorted names of the direct children among the keys below `path`."""
        start = len(self.key(path)) + 1
        names = {key[start:] for key in keys if b"/" not in key[start:] and len(key) > start}
        return sorted(name for name in map(_text, names) if is_path(f"/{name}"))


def _text(name: bytes) -> str:
    """Decode a name; one that is no text becomes unprintable, hence no path."""
    return name.decode(errors="surrogateescape")


def ancestors(path: str) -> list[str]:
    """The parent, its parent and so on, the nearest first."""
    found = []
    while path := parent_of(path):
        found.append(path)
    return found


def to_node(pair: Any) -> Node:
    """etcd's KeyValue."""
    return Node(data=pair.value, version=pair.version - 1, ephemeral=pair.lease != 0)


def touched_nodes(keys: KeySpace, events: Iterable[Any]) -> dict[str, bool]:
    """The paths of the nodes that changed; True for those that were made or deleted."""
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
    """The key has no lease (also when it is absent)."""
    equal, lease = rpc.Compare.CompareResult.EQUAL, rpc.Compare.CompareTarget.LEASE
    return rpc.Compare(key=key, result=equal, target=lease, lease=0)


def at_version(key: bytes, version: int | None) -> list[Any]:
    """The key is there, and in this version unless it is None."""
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
    """The KeyValues of one `read` in the answer of a transaction."""
    return list(response.response_range.kvs)
