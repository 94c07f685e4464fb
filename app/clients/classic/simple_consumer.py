"""The consumer of the 2011 paper, on its own wire: ask one broker for what you want, keep your own offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ....core.client.network.links import LinkDependencies, NodeLink
from ....core.message.classic.message_set import ClassicMessageSet
from ....ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResultPartition,
    ClassicOffsets,
)
from ....ports.broker_api.envelope import Caller, Reply, Request
from ....ports.broker_api.offsets import LATEST
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ....ports.transport import TransportError
from ..shared.client_arguments import ClientArguments
from ..shared.connect import plugin_host
from ..shared.process import check_process_in_methods
from ..shared.protocols import AnySimpleConsumer
from ..shared.settings import read_settings
from .choice import classic_addresses
from .opening import classic_connector
from .producer_settings import ClassicConsumerSettings
from .shell import ClassicShell

if TYPE_CHECKING:
    from types import TracebackType

    from ...connector import Connector

ResultT = TypeVar("ResultT")
_LENGTH = Struct(">i")


# One broker, asked one thing after the other: what a simple consumer does (facts A8).


class OneBroker:
    """Requests to one broker: after an I/O error it connects again and asks once more. Owner thread only."""

    def __init__(self, link: NodeLink) -> None:
        """The link is this object's own, and waits for nothing before it connects again."""
        self._link = link
        self._closed = False

    def ask(self, request: Request[Any], answer: Reply[Any]) -> None:
        """`answer` gets the result, or the `BarnabasError` for which there is none."""
        if self._closed:
            answer(ClosedError("the consumer is closed"))
            return

        def reply(result: Any) -> None:
            if isinstance(result, TransportError) and not self._closed:
                self._link.submit(request, answer)
            else:
                answer(result)

        self._link.submit(request, reply)

    def close(self) -> None:
        """Hang up; what is under way fails."""
        self._closed = True
        self._link.close()


@check_process_in_methods("shell")
class ClassicSimpleConsumer(AnySimpleConsumer):
    """Fetches from one classic broker; offsets are byte positions. Callable from any thread.

    with SimpleConsumer("classic://localhost:9093") as consumer:
        for message in consumer.fetch("views", 0, offset=0):
            print(message.offset, message.value)   # the offset is the one to fetch next
    """

    def __init__(
        self,
        bootstrap: object = None,
        *,
        connector: Connector | None = None,
        plugins: Sequence[object] = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        """`bootstrap`: "classic://host:port", one broker; `connector`: in place of TCP, for tests.

        Raises `ConfigError`.
        """
        arguments = ClientArguments(bootstrap, config, settings)
        bootstrap = arguments.bootstrap
        self.settings = read_settings(ClassicConsumerSettings, arguments.config, arguments.settings)
        self._codecs = plugin_host(plugins).codecs()
        addresses = classic_addresses(bootstrap)
        if len(addresses) != 1:
            raise ConfigError(f"bootstrap {bootstrap!r}: a simple consumer asks one broker, give one address")
        self.shell = ClassicShell(connector or classic_connector((), self.settings))
        outside = LinkDependencies(
            scheduler=self.shell.scheduler,
            clock=self.shell.clock,
            entropy=self.shell.connector.entropy,
            connect=self.shell.connector.connect,
            caller=Caller(),
            reconnect_backoff_ms=0,
            reconnect_backoff_max_ms=0,
        )
        self._broker = OneBroker(NodeLink(addresses[0], outside))
        self.shell.hanging_up.append(self._broker.close)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> ClassicMessageSet:
        """Return messages from `offset` on, about `max_bytes` of them; at least one if there is one, whatever its size.

        The next fetch begins at the set's `next_offset`; the set may end in a part of a message. A classic broker
        answers at once, so there is nothing to wait for. Raises `ApiError` (OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION for a partition that the broker does not have, ...), `TransportError`.
        """
        asked = [(topic, partition, offset)]
        found = self.multifetch(asked, max_bytes, max_wait_ms=max_wait_ms, min_bytes=min_bytes)[0]
        if found.error is not ErrorCode.NONE:
            raise ApiError(found.error, f"{topic}-{partition} at offset {offset}")
        return found

    def multifetch(
        self,
        asked: Sequence[tuple[str, int, int]],
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> list[ClassicMessageSet]:
        """Fetch like `fetch`, from several (topic, partition, offset) at once.

        Each set has its own `error`, which iterating it raises. Raises `TransportError`.
        """
        del max_wait_ms, min_bytes
        size = self.settings.fetch_size if max_bytes is None else max_bytes
        parts = [ClassicFetchPartition(topic, partition, offset, size) for topic, partition, offset in asked]
        if not parts:
            return []
        answers = self._ask(ClassicFetch(partitions=parts)).partitions
        return [self._grown(part, answer) for part, answer in zip(parts, answers, strict=True)]

    def read(
        self, topic: str, partition: int, start: int, end: int | None = None, max_bytes: int | None = None
    ) -> Iterator[ClassicMessageSet]:
        """Yield the messages from `start` up to `end` (exclusive; None: where the log ends now), in pieces.

        The last piece may go beyond `end`. Raises `ApiError` OFFSET_OUT_OF_RANGE when the log no longer has `start`, or
        ends before `end`.
        """
        if end is None:
            end = self.offset_at(topic, partition, LATEST)
        while start < end:
            piece = self.fetch(topic, partition, start, max_bytes)
            if piece.next_offset <= start:
                text = f"{topic}-{partition} ends at {start}, before offset {end}"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)
            yield piece
            start = piece.next_offset

    def get_offsets_before(self, topic: str, partition: int, time: int, max_number: int = 1) -> list[int]:
        """Return start offsets of segments last written before `time` (ms; LATEST -1, EARLIEST -2), newest first.

        Raises `ApiError`, `TransportError` (a broker closes the connection for a partition that it does not have).
        """
        request = ClassicOffsets(topic=topic, partition=partition, time_ms=time, max_offsets=max_number)
        result = self._ask(request)
        if result.error is not ErrorCode.NONE:
            raise ApiError(result.error, f"offsets of {topic}-{partition}")
        return list(result.offsets)

    def offsets_before(self, topic: str, partition: int, time: int, max_offsets: int = 1) -> list[int]:
        """Call `get_offsets_before`, by the other generation's name."""
        return self.get_offsets_before(topic, partition, time, max_offsets)

    def offset_at(self, topic: str, partition: int, time: int) -> int:
        """Return the newest offset of `get_offsets_before`, or -1 if there is none."""
        return next(iter(self.get_offsets_before(topic, partition, time)), -1)

    def close(self) -> None:
        """Hang up. Twice is harmless."""
        self.shell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.shell.is_foreign:
            self.close()

    def _grown(self, asked: ClassicFetchPartition, answer: ClassicFetchResultPartition) -> ClassicMessageSet:
        """Return the message set of an answer, fetched again with more room if its first message did not fit."""
        found = self._set(asked, answer)
        size = asked.max_bytes
        while found.error is ErrorCode.NONE and found.size > 0 and not found.valid_bytes:
            records = answer.records
            head = records[:4] if isinstance(records, bytes | bytearray | memoryview) else records.read(0, 4)
            needed = 4 + _LENGTH.unpack(head)[0] if len(head) == 4 else max(2 * size, self.settings.fetch_size)
            if not size < needed <= self.settings.fetch_size_max or found.size < size:
                break  # it says nonsense, or the log ends here
            size = needed
            larger = ClassicFetchPartition(asked.topic, asked.partition, asked.offset, size)
            answer = self._ask(ClassicFetch(partitions=[larger])).partitions[0]
            found = self._set(asked, answer)
        return found

    def _set(self, asked: ClassicFetchPartition, answer: ClassicFetchResultPartition) -> ClassicMessageSet:
        return ClassicMessageSet(
            answer.records,
            self._codecs,
            topic=asked.topic,
            partition=asked.partition,
            from_offset=asked.offset,
            error=answer.error,
            check_crc=self.settings.check_crcs,
        )

    def _ask(self, request: Request[ResultT]) -> ResultT:
        box: list[ResultT | BarnabasError] = []

        def answer(result: ResultT | BarnabasError) -> None:
            with self.shell.lock:
                box.append(result)
                self.shell.changed.notify_all()

        with self.shell.lock:
            self.shell.post(lambda: self._broker.ask(request, answer))
            self.shell.wait(lambda: bool(box))
        if isinstance(box[0], BarnabasError):
            raise box[0]
        return box[0]
