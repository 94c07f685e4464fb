"""The common interfaces of the clients of both generations, for code that takes either."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, Self

from ....ports.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from pyarrow import Table

    from ....core.client.producer.producer_batch import DeliveryCallback
    from ....core.message.message import Message
    from .delivery import DeliveryHandle, ManyHandle


class AnyProducer(Protocol):
    """A producer: `Producer`, or `ClassicProducer`. Those classes document the methods."""

    delivered: int
    failed: int

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryHandle: ...

    def send_many(
        self, topic: str, values: Sequence[Any], *, partition: int | None = None, key: Any = None
    ) -> ManyHandle: ...

    def send_arrow(self, table: object, topic: str, *, partition: int | None = None) -> ManyHandle:  # noqa: ARG002
        raise _no_arrow("producer")

    @property
    def would_block(self) -> bool: ...

    def flush(self, timeout: float | None = None) -> None: ...

    def confirm(self, timeout: float | None = 30.0) -> None: ...

    def partitions(self, topic: str, timeout: float = 30.0) -> int: ...

    def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ARG002  # `Producer` has them
        raise _no_transactions()

    def transaction(self, timeout: float | None = None) -> AbstractContextManager[Self]:  # noqa: ARG002
        raise _no_transactions()

    def begin_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        raise _no_transactions()

    def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        raise _no_transactions()

    def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ARG002
        raise _no_transactions()

    def send_offsets(self, offsets: Any, group: Any = None, *, timeout: float | None = None) -> None:  # noqa: ARG002
        raise _no_transactions()

    def close(self, timeout: float | None = None) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def _no_transactions() -> ConfigError:
    return ConfigError("a producer of the classic generation has no transactions: give it brokers at kafka://")


def _no_arrow(what: str) -> ConfigError:
    return ConfigError(f"a {what} of the classic generation knows no Arrow: give it brokers at kafka://")


class FetchedMessages(Protocol):
    """Messages of one partition, and the offset at which to continue."""

    @property
    def next_offset(self) -> int: ...

    def __iter__(self) -> Iterator[Message]: ...


class AnySimpleConsumer(Protocol):
    """A simple consumer: `SimpleConsumer`, or `ClassicSimpleConsumer`. Those classes document the methods."""

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> FetchedMessages: ...

    def multifetch(
        self,
        asked: Sequence[tuple[str, int, int]],
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> Sequence[FetchedMessages]: ...

    def read(
        self, topic: str, partition: int, start: int, end: int | None = None, max_bytes: int | None = None
    ) -> Iterator[FetchedMessages]: ...

    def fetch_arrow(
        self,
        topic: str,  # noqa: ARG002  # `SimpleConsumer` has it
        partition: int,  # noqa: ARG002
        offset: int,  # noqa: ARG002
        max_bytes: int | None = None,  # noqa: ARG002
        *,
        max_wait_ms: int = 0,  # noqa: ARG002
        min_bytes: int = 1,  # noqa: ARG002
        headers: bool = False,  # noqa: ARG002
    ) -> tuple[Table, int]:
        raise _no_arrow("consumer")

    def read_arrow(
        self,
        topic: str,  # noqa: ARG002
        partition: int,  # noqa: ARG002
        start: int,  # noqa: ARG002
        end: int | None = None,  # noqa: ARG002
        *,
        headers: bool = False,  # noqa: ARG002
    ) -> Iterator[Table]:
        raise _no_arrow("consumer")

    def offset_at(self, topic: str, partition: int, time: int) -> int: ...

    def offsets_before(self, topic: str, partition: int, time: int, max_offsets: int = 1) -> Sequence[int]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
