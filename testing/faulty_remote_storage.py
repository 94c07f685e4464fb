"""Remote storage that fails, for tests and the simulation: nothing here waits, the caller's scheduler is slow."""

from collections.abc import Callable, Iterator

from ..ports.entropy import Entropy
from ..ports.remote_storage import (
    ObjectInfo,
    ObjectMissing,
    RemoteStorage,
    RemoteStorageError,
    StoredObject,
    chunks_of,
)
from ..ports.storage import Region
from ..ports.types import Buffer


class FaultyRemoteStorage:
    """Passes calls on to another remote storage, and fails in the ways that the port allows.

    A call fails before its effect or after it; a failed write may also have its effect later, at one of the next calls
    of any caller. A deleted object stays readable and listed for a while.

    failures: the share of calls that fail, from 0 to 1; may be changed at any time.
    """

    def __init__(self, inner: RemoteStorage, entropy: Entropy, *, failures: float = 0.1) -> None:
        self._inner = inner
        self._entropy = entropy
        self.failures = failures
        self.calls = 0
        """Calls so far."""
        self._late: list[Callable[[], object]] = []
        self._deleted: list[str] = []

    def settle(self) -> None:
        """Let everything that is on its way arrive."""
        late, self._late = self._late, []
        for call in late:
            _ignoring(call)
        for key in self._deleted:
            self._inner.delete(key)
        self._deleted.clear()

    def _begin(self) -> None:
        self.calls += 1
        for waiting in (self._late,):
            if waiting and self._entropy.fraction() < _ARRIVES:
                _ignoring(waiting.pop(self._entropy.below(len(waiting))))
        if self._deleted and self._entropy.fraction() < _ARRIVES:
            self._inner.delete(self._deleted.pop(self._entropy.below(len(self._deleted))))

    def _fails(self) -> bool:
        return self._entropy.fraction() < self.failures

    def _write(self, write: Callable[[], str | None]) -> str | None:
        """Make a write that may fail before, after, or long before its effect."""
        self._begin()
        if not self._fails():
            return write()
        moment = self._entropy.below(3)
        if moment == 1:
            _ignoring(write)
        elif moment == _LATER:
            self._late.append(write)
        raise RemoteStorageError("the simulated store does not answer")

    def put(self, key: str, content: Buffer | Region) -> None:
        whole = b"".join(chunks_of(content))

        def write() -> None:
            if key in self._deleted:
                self._deleted.remove(key)
            self._inner.put(key, whole)

        self._write(write)

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        whole = bytes(content)
        if key in self._deleted:
            self._deleted.remove(key)
            self._inner.delete(key)
        stored = self._write(lambda: self._inner.replace(key, whole, version))
        assert stored is not None
        return stored

    def read(self, key: str) -> StoredObject:
        self._begin()
        if self._fails():
            raise RemoteStorageError("the simulated store does not answer")
        if key in self._deleted and key.endswith(".json.gz"):
            raise ObjectMissing(f"there is no object {key}")
        return self._inner.read(key)

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        self._begin()
        if self._fails():
            raise RemoteStorageError("the simulated store does not answer")
        return self._inner.get_range(key, start, size)

    def delete(self, key: str) -> None:
        self._begin()
        if self._fails():
            raise RemoteStorageError("the simulated store does not answer")
        if key not in self._deleted:
            self._deleted.append(key)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        self._begin()
        if self._fails():
            raise RemoteStorageError("the simulated store does not answer")
        return self._inner.list_objects(prefix)

    def close(self) -> None:
        """Do nothing: other brokers use the storage."""


_ARRIVES = 0.3
_LATER = 2


def _ignoring(call: Callable[[], object]) -> None:
    try:
        call()
    except RemoteStorageError:
        return
