"""The consumer of the 2011 paper: ask for what you want, keep your own offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from ....core.client.consumer.fetch_position import (
    CheckedRecords,
    FetchPosition,
    PartitionFetchSettings,
    local_start,
)
from ....core.message.batch_header import BatchHeader
from ....core.message.codec import Codecs
from ....core.message.control_records import EndTransactionMarker, read_marker
from ....core.message.message_set import MessageSet
from ....ports.broker_api.fetch import AbortedTransaction, Fetch, FetchPartition, FetchResult, FetchResultPartition
from ....ports.broker_api.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    ListOffsets,
    ListOffsetsPartition,
    ListOffsetsResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ....ports.storage import size_of
from ....ports.types import TopicPartition
from ...config.security_settings import SecuritySettings
from ..arrow import gather
from ..classic.choice import bootstrap_of, is_classic_address
from ..classic.producer_settings import ClassicConsumerSettings
from ..shared.client_arguments import ClientArguments
from ..shared.connect import Plugins, first_error, open_shell, plugin_host
from ..shared.list_offsets import list_offsets
from ..shared.process import check_process_in_methods
from ..shared.protocols import AnySimpleConsumer
from ..shared.settings import FetchSettings, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from ..shared.typed_settings import SimpleConsumerKeywords

if TYPE_CHECKING:
    from types import TracebackType

    from pyarrow import Table

    from ..shared.bootstrap import Bootstrap
    from .remote_ranges import AbortedAt, RemoteRange

_PAUSE_MS = 100


class FetchedSet(MessageSet):
    """A message set with what the broker said about the partition it is from."""

    __slots__ = ("damage", "high_watermark", "log_start_offset")

    def __init__(self, piece: CheckedRecords, codecs: Codecs, outcome: FetchResultPartition) -> None:
        super().__init__(
            piece.records,
            codecs,
            topic=outcome.topic,
            partition=outcome.partition,
            from_offset=piece.from_offset,
            check_crc=False,  # it is checked
            batches=piece.batches,
            next_offset=piece.next_offset,
        )
        self.high_watermark = outcome.high_watermark
        self.log_start_offset = outcome.log_start_offset
        self.damage = piece.damage
        """With `skip.damaged`: the damage that was skipped before `next_offset`."""

    def markers(self) -> Iterator[tuple[BatchHeader, EndTransactionMarker | None]]:
        """Yield the header of each control batch with the marker that ends a transaction; None for another record.

        Iterating over the set leaves these out.
        """
        for position, header in self.positioned_batches():
            if header.control:
                yield header, read_marker(self._read(position, header.size), header)


@check_process_in_methods("_shell")
class SimpleConsumer(AnySimpleConsumer):
    """Fetches from the leaders of partitions. Callable from any thread.

    with SimpleConsumer("localhost:9092") as consumer:
        for message in consumer.fetch("views", 0, offset=0):
            print(message.offset, message.value)

    Settings, as keyword arguments: `fetch_min_bytes`, `fetch_max_wait_ms`, `fetch_max_bytes`,
    `max_partition_fetch_bytes`, `max_poll_records`, `auto_offset_reset`, `isolation_level`, `check_crcs`,
    `skip_damaged`, `consumer_timeout_ms`, `allow_auto_create_topics`. The signature has the default of each,
    docs/configuration.md explains them.

    Settings of every client: `client_id`, `request_timeout_ms`, `socket_connection_setup_timeout_ms`,
    `retry_backoff_ms`, `retry_backoff_max_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `metadata_max_age_ms`, `default_api_timeout_ms`; and those of its connections, `security_protocol`, `ssl_...` and
    `sasl_...`.
    """

    __signature__ = SettingsSignature(
        SimpleConsumerKeywords, lambda: defaults_of(FetchSettings, SecuritySettings, ClassicConsumerSettings)
    )

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Return a `ClassicSimpleConsumer` for `classic://host:port`."""
        if cls is SimpleConsumer and is_classic_address(bootstrap_of(args, kwargs)):
            from ..classic.simple_consumer import ClassicSimpleConsumer

            made: Any = ClassicSimpleConsumer(*args, **kwargs)
            return cast("Self", made)
        return object.__new__(cls)

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """Make the result of `SimpleConsumer(...)` an instance of `SimpleConsumer`, in both generations."""
        return True if cls is SimpleConsumer and AnySimpleConsumer in other.__mro__ else NotImplemented

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[SimpleConsumerKeywords],
    ) -> None:
        """`bootstrap`: "host:port,host:port", a running `Broker`, or a mapping of settings with `bootstrap.servers`.

        Raises `ConfigError`, `TransportError`.
        """
        arguments = ClientArguments(bootstrap, config, settings)
        self.settings = read_settings(FetchSettings, arguments.config, arguments.settings)
        self._codecs = plugin_host(plugins).codecs()
        self._shell = open_shell(arguments.bootstrap, self.settings)

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> FetchedSet:
        """Fetch messages from `offset` on, about `max_bytes` (default `max.partition.fetch.bytes`) of them.

        The set has at least one batch if there is one, whatever its size. The broker waits up to `max_wait_ms` for
        `min_bytes`. The next fetch continues at the set's `next_offset`. Raises `ApiError` (OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION, ...), `CorruptRecord` if the record at `offset` is damaged (with `skip.damaged` the
        set begins after it), `TransportError`, `ClientTimeout`.
        """
        return self.multifetch([(topic, partition, offset)], max_bytes, max_wait_ms=max_wait_ms, min_bytes=min_bytes)[0]

    def multifetch(
        self,
        asked: Sequence[tuple[str, int, int]],
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> list[FetchedSet]:
        """Fetch several (`asked`: topic, partition, offset) at once, like `fetch`; raises the first error of any of
        them.

        `max_bytes` is the limit of each partition.
        """
        size = self.settings.max_partition_fetch_bytes if max_bytes is None else max_bytes
        fetch_positions = [self._fetch_position(topic, partition, offset, size) for topic, partition, offset in asked]
        answers = self._fetch(fetch_positions, size, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        first_error(answers)
        return [
            self._taken(fetch_position, answer, len(fetch_positions))
            for fetch_position, answer in zip(fetch_positions, answers, strict=True)
        ]

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        max_bytes: int | None = None,
        *,
        remote: RemoteRange | None = None,
    ) -> Iterator[FetchedSet]:
        """Read the partition's records from `start` up to `end` (exclusive; None: the present end), in pieces.

        `remote`: what is taken from remote storage instead of from the leader.

        The last set may extend beyond `end`: `decode_columns(..., upto=end)` cuts it. Raises `ApiError`
        OFFSET_OUT_OF_RANGE if the log no longer has `start`, or ends before `end`. Raises `CorruptRecord` for a damaged
        record; with `skip.damaged`, there is a set without messages instead, with its `damage`.
        """
        if end is None:
            end = self.offset_at(topic, partition, LATEST)
        size = self.settings.max_partition_fetch_bytes if max_bytes is None else max_bytes
        fetch_position = self._fetch_position(topic, partition, start, size)
        deadline_ms = self._deadline_ms()
        while fetch_position.position < end:
            answer: FetchResultPartition | BarnabasError | None = None
            if remote is not None:
                answer = remote.fetch(
                    *fetch_position.ask(self._leadership(fetch_position.tp)), self._aborted_of(topic, partition)
                )
            if answer is None:
                answer = self._fetch([fetch_position], size, max_wait_ms=_PAUSE_MS if fetch_position.pause else 0)[0]
            piece, outcome = self._next(fetch_position, answer, deadline_ms)
            if piece is not None:
                yield FetchedSet(piece, self._codecs, outcome)
                deadline_ms = self._deadline_ms()
            elif fetch_position.at_end and self.offset_at(topic, partition, LATEST) < end:
                # otherwise the broker has become the leader in between
                text = f"{topic}-{partition} ends at {outcome.high_watermark}, before offset {end}"
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, text)

    def fetch_arrow(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int | None = None,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        headers: bool = False,
    ) -> tuple[Table, int]:
        """Fetch like `fetch`; return a `pyarrow.Table` (see `Consumer.fetch_arrow`) and the next offset to fetch."""
        gathered = gather(headers)
        found = self.fetch(topic, partition, offset, max_bytes, max_wait_ms=max_wait_ms, min_bytes=min_bytes)
        gathered.add_set(found, skip_damaged=self.settings.skip_damaged)
        return gathered.table(), found.next_offset

    def read_arrow(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        headers: bool = False,
        remote: RemoteRange | None = None,
    ) -> Iterator[Table]:
        """Read like `read` (also `remote`), from `start` exactly up to `end`, with a `pyarrow.Table` per piece."""
        for found in self.read(topic, partition, start, end, remote=remote):
            gathered = gather(headers)
            gathered.add_set(found, upto=end, skip_damaged=self.settings.skip_damaged)
            yield gathered.table()

    def offset_at(self, topic: str, partition: int, time: int) -> int:
        """Return the first offset of that time (ms) or later, or that of LATEST (-1) or EARLIEST (-2); -1 if none."""

        def build(group: Sequence[TopicPartition]) -> ListOffsets:
            return ListOffsets(
                partitions=[ListOffsetsPartition(topic=p.topic, partition=p.partition, timestamp=time) for p in group],
                isolation_level=self.settings.isolation_level,
            )

        answers = self._shell.ask_leaders([TopicPartition(topic, partition)], lambda tp: tp, build, _listed)
        first_error(answers)
        offset: int = answers[0]
        return offset

    def offsets_before(self, topic: str, partition: int, time: int, max_offsets: int = 1) -> list[int]:
        """Return offsets from which to read messages of `time` (ms; LATEST, EARLIEST) or later, newest first.

        The classic call returned the base offsets of segments. The protocol of today has one offset for a time, and the
        beginning of the log; so the list has at most two, and at most `max_offsets`.
        """
        earliest = self.offset_at(topic, partition, EARLIEST)
        if time == EARLIEST:
            return [earliest][:max_offsets]
        offset = self.offset_at(topic, partition, time)
        if offset < 0:
            offset = self.offset_at(topic, partition, LATEST)
        return list(dict.fromkeys((offset, earliest)))[:max_offsets]

    def _aborted_of(self, topic: str, partition: int) -> AbortedAt | None:
        """Return a look-up of aborted transactions for a reader of committed records; None for others."""
        if not self.settings.isolation_level:
            return None

        def look_up(offset: int) -> Sequence[AbortedTransaction] | None:
            # An answer with records has all aborted transactions that begin before them and end behind `offset`.
            (answer,) = self._fetch([self._fetch_position(topic, partition, offset, 1)], 1)
            if isinstance(answer, BarnabasError):
                return None
            is_at_end = 0 <= answer.high_watermark <= offset
            return answer.aborted or () if is_at_end or size_of(answer.records) else None

        return look_up

    def _fetch_position(self, topic: str, partition: int, offset: int, max_bytes: int) -> FetchPosition:
        settings = self.settings
        rules = PartitionFetchSettings(
            max_bytes=max_bytes,
            bytes_max=settings.fetch_max_bytes,
            check_crc=settings.check_crcs,
            skip_damaged=settings.skip_damaged,
            committed_only=settings.isolation_level > 0,
        )
        fetch_position = FetchPosition(TopicPartition(topic, partition), rules, self._codecs)
        fetch_position.jump(offset)
        return fetch_position

    def _fetch(
        self, fetch_positions: Sequence[FetchPosition], max_bytes: int, *, max_wait_ms: int = 0, min_bytes: int = 1
    ) -> list[FetchResultPartition | BarnabasError]:
        partitions = [FetchPartition(*each.tp, *each.ask(self._leadership(each.tp))) for each in fetch_positions]

        def build(group: Sequence[FetchPartition]) -> Fetch:
            return Fetch(
                partitions=group,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max(max_bytes, self.settings.fetch_max_bytes),
                isolation_level=self.settings.isolation_level,
            )

        return self._shell.ask_leaders(
            partitions,
            lambda item: TopicPartition(item.topic, item.partition),
            build,
            _fetched,
            timeout_ms=self.settings.default_api_timeout_ms + max_wait_ms,
        )

    def _taken(
        self, fetch_position: FetchPosition, answer: FetchResultPartition | BarnabasError, asked: int
    ) -> FetchedSet:
        """Return the set of an answer for one of `asked` partitions; fetch again until it is clear.

        The set is empty at the end of the log.
        """
        deadline_ms = self._deadline_ms()
        piece, outcome = self._next(fetch_position, answer, deadline_ms, first=asked == 1)
        while piece is None and not fetch_position.at_end:
            again = self._fetch(
                [fetch_position], fetch_position.rules.max_bytes, max_wait_ms=_PAUSE_MS if fetch_position.pause else 0
            )[0]
            piece, outcome = self._next(fetch_position, again, deadline_ms)
        return FetchedSet(
            piece or CheckedRecords(b"", [], fetch_position.position, fetch_position.position), self._codecs, outcome
        )

    def _next(
        self,
        fetch_position: FetchPosition,
        answer: FetchResultPartition | BarnabasError,
        deadline_ms: float,
        *,
        first: bool = True,
    ) -> tuple[CheckedRecords | None, FetchResultPartition]:
        """Return the records of the answer, and the answer. Raises an error from which reading cannot continue."""
        piece, outcome = _answered(fetch_position, answer, first=first)
        if fetch_position.awaits_local_start(self._leadership(fetch_position.tp)):
            begin = local_start(list_offsets(self._shell, [(fetch_position.tp, EARLIEST_LOCAL)])[0])
            if isinstance(begin, BarnabasError):
                raise begin
            if fetch_position.awaits_local_start(self._leadership(fetch_position.tp)):
                piece = fetch_position.on_local_start(begin)
        if fetch_position.is_remote and self._shell.now_ms() > deadline_ms:
            text = f"remote storage does not bring offset {fetch_position.position} of {fetch_position.tp} in time"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text)
        return piece, outcome

    def _leadership(self, tp: TopicPartition) -> tuple[int, int]:
        with self._shell.lock:
            return self._shell.view.leadership(*tp)

    def _deadline_ms(self) -> float:
        return self._shell.now_ms() + self.settings.default_api_timeout_ms

    def close(self) -> None:
        """Close the connections. Twice is harmless."""
        self._shell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.close()


def _fetched(result: FetchResult) -> list[tuple[ErrorCode, Any]]:
    if result.error is not ErrorCode.NONE:
        raise_later: BarnabasError = ApiError(result.error, "fetch")
        return [(ErrorCode.NONE, raise_later) for _ in result.partitions]
    return [
        (ErrorCode.NONE if outcome.error is ErrorCode.CORRUPT_MESSAGE else outcome.error, outcome)  # no use to repeat
        for outcome in result.partitions
    ]


def _answered(
    fetch_position: FetchPosition, answer: FetchResultPartition | BarnabasError, *, first: bool = True
) -> tuple[CheckedRecords | None, FetchResultPartition]:
    if not isinstance(answer, BarnabasError):
        if answer.error is ErrorCode.CORRUPT_MESSAGE:
            return fetch_position.refused("the broker cannot read it: CORRUPT_MESSAGE"), answer
        return fetch_position.answered(answer, first=first), answer
    if fetch_position.exploring and isinstance(answer, ApiError) and answer.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return fetch_position.refused("", out_of_range=True), FetchResultPartition(*fetch_position.tp)
    raise answer


def _listed(result: ListOffsetsResult) -> list[tuple[ErrorCode, Any]]:
    return [(outcome.error, outcome.offset) for outcome in result.partitions]
