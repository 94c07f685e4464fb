"""File descriptors: each closes with its last user, and a bounded number stays open for idle files."""

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol
from weakref import ReferenceType, ref


class Descriptor:
    """An open descriptor that is closed with its last reference: the file, a region, or a running flush."""

    __slots__ = ("fd", "writable")

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        self.writable = writable

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self.fd)


class Holder(Protocol):
    """A file that keeps a descriptor and can open it again. `used` is set by each use and cleared by the pool, to which
    `listed` belongs."""

    used: bool
    listed: bool

    def release(self) -> None: ...


class DescriptorPool:
    """Bounds how many files keep a descriptor: beyond `limit`, files not used of late give theirs back (CLOCK).

    Callable from any thread.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: deque[ReferenceType[Holder]] = deque()
        self._lock = threading.Lock()

    def opened(self, holder: Holder) -> None:
        """`holder` has just opened its descriptor."""
        with self._lock:
            holder.used = True
            if not holder.listed:  # else it opened again what it had not given back
                holder.listed = True
                self._holders.append(ref(holder))
            second_chances = len(self._holders)
            while len(self._holders) > self._limit:
                oldest = self._holders.popleft()
                file = oldest()
                if file is None:
                    continue
                if file.used and file is not holder and second_chances > 0:
                    second_chances -= 1
                    file.used = False
                    self._holders.append(oldest)
                elif file is holder:
                    self._holders.append(oldest)
                else:
                    file.listed = False
                    file.release()
