"""The interface through which tests use any client library."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import attrs

from .logins import Login

PATIENCE_S = 120.0
HEARTBEAT_MS = 200
SESSION_MS = 6000


@attrs.frozen(kw_only=True)
class Record:
    """A message, as sent or as received; `partition` and `offset` are -1 on those to send.

    delivery_count: the number of this delivery; 0 outside of share groups.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int = -1
    offset: int = -1
    delivery_count: int = 0

    @property
    def content(self) -> tuple[object, ...]:
        """Return the fields that a producer decides."""
        return self.key, self.value, self.headers


@attrs.frozen(kw_only=True)
class GroupView:
    """A group as an administrator sees it."""

    state: str
    members: int
    partitions: frozenset[tuple[str, int]] | None
    """All partitions that its members have; None where the client does not show them."""


@attrs.frozen(kw_only=True)
class Sending:
    """Options of a producer; `max_bytes` bounds a message."""

    codec: str = "none"
    acks: str = "all"
    idempotent: bool = False
    max_bytes: int = 1_000_000


@attrs.frozen(kw_only=True)
class Start:
    """The start of a read: an offset, or the first record of a time. `max_bytes` bounds a fetch, `rack` is the rack
    of the reader, `committed` leaves out messages of open and aborted transactions."""

    partition: int = 0
    offset: int = 0
    timestamp_ms: int | None = None
    max_bytes: int = 1_000_000
    rack: str = ""
    committed: bool = False


PLAINLY, EARLIEST = Sending(), Start()


class Unavailable(Exception):
    """The library is not on this machine and cannot be fetched; the message says why."""


class Member(Protocol):
    """A consumer in a group that polls by itself, until it is closed."""

    def assignment(self) -> frozenset[tuple[str, int]]:
        """Return the current assignment."""

    def received(self) -> list[Record]:
        """Return all received records."""

    def commit(self) -> None:
        """Commit what was received; it is done when `close` has returned, at the latest."""

    def close(self) -> None:
        """Leave the group."""


class Client(Protocol):
    """One library. Every call waits for its answer and raises what the library raises."""

    version: str

    def log_in(self, login: Login) -> None:
        """Connect producers and consumers by this login from now on."""

    def produce(self, topic: str, records: Sequence[Record], how: Sending = PLAINLY) -> None:
        """Send to partition 0 in this order and wait until all is delivered (acks=0: sent)."""

    def read(self, topic: str, count: int, start: Start = EARLIEST) -> list[Record]:
        """`count` records from an offset, or from the first of a time, as a consumer without a group."""

    def transact(self, name: str, topic: str, records: Sequence[Record], *, commit: bool) -> None:
        """Send the values to partition 0 in one transaction, and commit or abort it."""

    def zombie(self, name: str, topic: str, first: Record, second: Record) -> str:
        """Start a second producer of a name after the first has sent; return the first one's error at its commit."""

    def transform(self, name: str, group: str, source: str, topic: str, count: int, *, commit: bool) -> None:
        """In one transaction, read `count` messages as a member, send their values, and commit the group's offsets."""

    def join(self, group: str, topic: str, *, assignor: str = "") -> Member:
        """Return a new member that begins at the committed offset, else at the earliest, before it has joined.

        assignor: "range" or "cooperative-sticky"; "": the library's default.
        """

    def join_consumer_group(self, group: str, topic: str) -> Member:
        """Return a new member by KIP-848 (`group.protocol=consumer`), otherwise as `join` makes it."""

    def join_share_group(self, group: str, topic: str, released: Collection[bytes]) -> Member:
        """Return a new member of a share group that acknowledges each message: it releases the first delivery of those
        whose value is in `released`, and accepts the others. It has no assignment and commits as it polls."""

    def offsets(self, topic: str) -> tuple[int, int]:
        """Return the first offset of partition 0 and its end."""

    def offset_for_time(self, topic: str, timestamp_ms: int) -> int | None:
        """Return the offset of the first record of partition 0 of that time or later."""

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None: ...

    def partitions(self, topic: str) -> int | None:
        """Return the number of partitions, or None for an unknown topic."""

    def add_partitions(self, topic: str, count: int) -> None:
        """Let it have `count` in all."""

    def set_config(self, topic: str, key: str, value: str) -> None: ...

    def topic_config(self, topic: str, key: str) -> str | None: ...

    def delete_topic(self, topic: str) -> None: ...

    def groups(self) -> list[str]: ...

    def group(self, group: str) -> GroupView: ...

    def close(self) -> None: ...


class Absent:
    """The calls that a library does not have: a client names them in `lacks` of the matrix and inherits these."""

    def _missing(self, *_: object, **__: object) -> None:
        raise NotImplementedError("the matrix asks for what this client does not have")
