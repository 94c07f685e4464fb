"""Remote storage: the objects of tiered storage (KIP-405) in an object store or a shared folder.

A key is a path of plain names, `a/b/c`; anything else raises `ValueError`. An object is replaced as a whole. Every
method blocks, and is callable from any thread, by several threads at the same time.

A call that raises `RemoteStorageError` itself may have had its effect, and may even have it later: a request can be on
its way. Errors of a subclass mean that nothing has changed and nothing will.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from .errors import BarnabasError
from .storage import Region
from .types import Buffer
from .values import frozen

PAYLOAD_CHECKSUMS = ("sha256", "crc64nvme", "none")
"""Values of `payload.checksum`, a setting of S3: by what the store checks the payloads that it receives. The table of
configuration keys has them as well."""


class RemoteStorageError(BarnabasError):
    """The remote storage failed, or did not answer in time."""

    __module__ = "barnabas"


class ObjectMissing(RemoteStorageError):
    """There is no object with this key."""


class ObjectChanged(RemoteStorageError):
    """The object has another version than the caller expects; nothing was written."""


@frozen(kw_only=True)
class StoredObject:
    """An object with the version by which `replace` recognizes it."""

    content: bytes
    version: str


@frozen(kw_only=True)
class ObjectInfo:
    """An object in a listing."""

    key: str
    size: int


class RemoteStorage(Protocol):
    """Objects by their keys."""

    def put(self, key: str, content: Buffer | Region) -> None:
        """Store an object, and replace one that exists. Durable on return. The content is not kept."""
        ...

    def replace(self, key: str, content: Buffer, version: str | None) -> str:
        """Store an object if the present one has this version (None: if there is none); return the new version.

        Atomic among all processes, and durable on return. A version never comes back after the object has changed,
        as long as no two contents are equal. Raises `ObjectChanged`.
        """
        ...

    def read(self, key: str) -> StoredObject:
        """Return a whole small object: the newest content that was stored. Raises `ObjectMissing`."""
        ...

    def get_range(self, key: str, start: int, size: int) -> Buffer:
        """Return `size` bytes from `start` on; fewer at the end of the object, none beyond it. Raises `ObjectMissing`.

        They do not change later. A deleted object may be readable for a while.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; a missing one is no error."""
        ...

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects whose keys begin with `prefix`, a path of whole names ("" for all), in order of their keys.

        Complete for what was stored before the call; a deleted object may be listed for a while.
        """
        ...

    def close(self) -> None:
        """Release the connections. Twice is harmless."""
        ...


class RemoteStorageFactory(Protocol):
    """Opens the remote storage of a URL: what a plug-in returns from the hook `barnabas_remote_storage`."""

    def __call__(self, url: str, settings: Mapping[str, str]) -> RemoteStorage:
        """Open it. `settings`: what the configuration has under `rsm.config.`, without that prefix.

        Raises `ConfigError` for a malformed URL or setting. No secret may stand in the text of an error, or in a repr.
        """
        ...


def check_key(key: str) -> str:
    """Return the key. Raises `ValueError` unless it is a path of plain names."""
    if not key or any(name in ("", ".", "..") or "\0" in name or "\\" in name for name in key.split("/")):
        raise ValueError(f"not the key of an object: {key!r}")
    return key


def check_prefix(prefix: str) -> str:
    """Return the prefix of a listing without a final separator. Raises `ValueError` as `check_key`."""
    return check_key(prefix.rstrip("/")) if prefix else ""


CHUNK_BYTES = 8_388_608
"""Bytes of a region that an adapter holds in memory at a time while it stores them."""


def chunks_of(content: Buffer | Region, size: int = CHUNK_BYTES, *, start: int = 0) -> Iterator[Buffer]:
    """Yield the content from `start` on in pieces of this size, which need not be copied."""
    if isinstance(content, bytes | bytearray | memoryview):
        view = memoryview(content)
        for position in range(start, len(view), size):
            yield view[position : position + size]
        return
    read: Callable[[int, int], bytes] = content.read
    for position in range(start, content.size, size):
        yield read(position, size)
