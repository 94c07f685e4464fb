"""Remote storage in memory, for tests: `memory://NAME` names one for all brokers of this process."""

import threading
from collections.abc import Iterator, Mapping

from ..ports.errors import ConfigError
from ..ports.remote_storage import ObjectChanged, ObjectInfo, ObjectMissing, StoredObject, check_key, check_prefix
from ..ports.storage import Region
from ..ports.types import Buffer


class MemoryRemoteStorage:
    """Remote storage in memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int]] = {}
        self._changes = 0

    def __repr__(self) -> str:
        return f"MemoryRemoteStorage({len(self._objects)} objects)"

    def put(self, key: str, content: Buffer | Region) -> None:
        """Store the content under the key; it lives as long as this object."""
        stored = bytes(content) if isinstance(content, bytes | bytearray | memoryview) else content.read()
        with self._lock:
            self._set(check_key(key), stored)

    def _set(self, key: str, content: bytes) -> str:
        self._changes += 1
        self._objects[key] = content, self._changes
        return str(self._changes)

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        """Store the content if the object has this version (None: if there is none); return the new version.

        Raises `ObjectChanged`.
        """
        stored = bytes(content)
        with self._lock:
            present = self._objects.get(check_key(key))
            if (None if present is None else str(present[1])) != version:
                raise ObjectChanged(f"the object {key} has changed")
            return self._set(key, stored)

    def read(self, key: str) -> StoredObject:
        """Return the object of the key. Raises `ObjectMissing`."""
        with self._lock:
            present = self._objects.get(check_key(key))
        if present is None:
            raise ObjectMissing(f"there is no object {key}")
        return StoredObject(content=present[0], version=str(present[1]))

    def get_range(self, key: str, start: int, size: int) -> bytes:
        """Return `size` bytes of the object of the key from `start` on. Raises `ObjectMissing`."""
        if start < 0 or size < 0:
            raise ValueError(f"not a range: {start}, {size}")
        return self.read(key).content[start : start + size]

    def delete(self, key: str) -> None:
        """Remove the object of the key, if there is one."""
        with self._lock:
            self._objects.pop(check_key(key), None)

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with the prefix, in order of their keys."""
        prefix = check_prefix(prefix)
        with self._lock:
            found = [
                ObjectInfo(key=key, size=len(content))
                for key, (content, _) in self._objects.items()
                if not prefix or key.startswith(f"{prefix}/")
            ]
        return iter(sorted(found, key=lambda each: each.key))

    def close(self) -> None:
        """Do nothing: the objects stay for others that use them."""


_named: dict[str, MemoryRemoteStorage] = {}


def open_memory_remote_storage(url: str, settings: Mapping[str, str]) -> MemoryRemoteStorage:
    """Return the storage of this name in this process. Raises `ConfigError`."""
    name = url.partition("://")[2]
    if not name or settings:
        raise ConfigError(f"{url} is not of the form memory://NAME, which has no settings")
    return _named.setdefault(name, MemoryRemoteStorage())
