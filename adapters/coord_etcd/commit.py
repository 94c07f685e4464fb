"""Several changes as one transaction of etcd."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...core.tree.tree import check_commit, parent_of
from ...ports.coordination import (
    BadVersion,
    CoordinationError,
    CreateNode,
    DeleteNode,
    NodeChange,
    NodeExists,
    NoNode,
    NotEmpty,
)
from .tree_requests import (
    KeySpace,
    absent,
    at_version,
    pairs,
    persistent,
    present,
    put,
    read,
    remove,
    replace,
    to_node,
    transaction,
)


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
