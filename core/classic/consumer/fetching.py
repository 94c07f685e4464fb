"""One fetcher per broker: keeps the streams filled with what its partitions have (facts A8)."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
)
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.scheduler import Scheduler, Timer
from ....ports.storage import Region
from ....ports.transport import TransportError
from ....ports.types import Buffer
from ....ports.values import frozen
from ...client.errors import NoOffset
from ...client.network.links import LinkDependencies, NodeLink
from ...message.classic.message_set import ClassicMessageSet
from ...message.codec import Codecs
from ..registry.layout import ClassicBroker
from .settings import ConnectorSettings
from .streams import FetchedDataChunk, OwnedPartition

_ENTRY_SIZE_BYTES = 4
_MESSAGE_BYTES_MIN = 5
"""The header of magic 0 (facts A2)."""


@frozen(kw_only=True)
class FetchOutside:
    """The dependencies of one consumer's fetchers."""

    scheduler: Scheduler
    links: LinkDependencies
    codecs: Codecs
    report: Callable[[str], None]
    write_reset: Callable[[OwnedPartition], None]
    """Gets a partition that continues elsewhere since its offset was out of range, and has to write `consumed`."""


class BrokerFetcher:
    """Reads the partitions that are ours on one broker. Owner thread only.

    One request at a time. A round asks for all partitions whose stream has room, a full one does not hold up the
    others; what exceeds `fetch.max.bytes` comes first in the next round. When every partition had nothing, it rests for
    `fetcher.backoff.ms`. A lost connection is opened again, for as long as the fetcher has partitions: only the
    registry shows that a broker is gone for good.
    """

    def __init__(self, broker: ClassicBroker, outside: FetchOutside, settings: ConnectorSettings) -> None:
        self.broker = broker
        self._outside = outside
        self._settings = settings
        self._partitions: list[OwnedPartition] = []
        """The next to be asked for first."""
        self._link = NodeLink((broker.host, broker.port), outside.links)
        self._lost = False
        """True if nothing was fetched since the connection was lost, which has been reported."""
        self._awaited = 0
        """Answers on their way."""
        self._quiet = 0
        """The number of successive partitions that had nothing."""
        self._turning = False
        self._timer: Timer | None = None
        self._stopped = False

    def assign(self, partitions: Iterable[OwnedPartition]) -> None:
        """Read these from now on, and no others."""
        wanted = list(partitions)
        known = set(self._partitions)
        retained = [partition for partition in self._partitions if partition in wanted]
        self._partitions = retained + [partition for partition in wanted if partition not in known]
        self.poke()

    def poke(self) -> None:
        """Look at once: a queue has room again, or a partition has a new position."""
        self._cancel_rest()
        self._soon()

    def stop(self) -> None:
        """Hang up; answers that come later are forgotten."""
        self._stopped = True
        self._cancel_rest()
        self._link.close()

    # --- turns

    def _soon(self) -> None:
        if not self._turning and not self._stopped:
            self._turning = True
            self._outside.scheduler.call_soon(self._turn)

    def _rest(self) -> None:
        self._timer = self._outside.scheduler.call_later(self._settings.fetcher_backoff_ms, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._turn()

    def _cancel_rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._turning = False
        if self._stopped or self._awaited or self._timer is not None:
            return
        lookups = [p for p in self._partitions if p.lookup is not None and not p.stopped]
        if lookups:
            self._awaited = len(lookups)
            for partition in lookups:
                self._look_up(partition)
            return
        asked = self._next_round()
        if asked:
            self._awaited = 1
            self._fetch(asked)

    def _next_round(self) -> list[OwnedPartition]:
        left = self._settings.fetch_max_bytes
        asked: list[OwnedPartition] = []
        for partition in self._partitions:
            if not _wants(partition):
                continue
            if asked and partition.max_bytes > left:
                break
            asked.append(partition)
            left -= partition.max_bytes
        taken = set(asked)
        self._partitions = [p for p in self._partitions if p not in taken] + asked
        return asked

    def _failed(self, error: BarnabasError) -> None:
        """The connection was lost, or there was none; the link knows when to try again."""
        if not self._lost:
            self._lost = True
            broker = self.broker
            self._outside.report(
                f"broker {broker.broker_id} at {broker.host}:{broker.port}: {error}; connecting again until it "
                "answers, or is gone from the registry"
            )

    # --- where to begin

    def _look_up(self, partition: OwnedPartition) -> None:
        version, time_ms = partition.version, partition.lookup
        assert time_ms is not None
        request = ClassicOffsets(
            topic=partition.topic, partition=partition.place.partition, time_ms=time_ms, max_offsets=1
        )

        def answered(result: ClassicOffsetsResult | BarnabasError) -> None:
            self._awaited -= 1
            if self._stopped:
                return
            if isinstance(result, TransportError | ClosedError):
                self._failed(result)
            elif partition.version == version:
                self._found(partition, result)
            if not self._awaited:
                self._soon()

        self._link.submit(request, answered)

    def _found(self, partition: OwnedPartition, result: ClassicOffsetsResult | BarnabasError) -> None:
        error: BarnabasError
        if isinstance(result, BarnabasError):
            error = result
        elif result.error is ErrorCode.NONE and result.offsets:
            self._begin_at(partition, result.offsets[0])
            return
        else:
            code = result.error or ErrorCode.UNKNOWN_SERVER_ERROR
            error = ApiError(code, f"broker {self.broker.broker_id} returned no start offset for {partition}")
        self._surface(partition, error)

    def _begin_at(self, partition: OwnedPartition, offset: int) -> None:
        partition.lookup = None
        partition.fetch_offset = offset
        if partition.feed.jump(partition, offset) and partition.out_of_range:
            self._outside.write_reset(partition)

    # --- fetching

    def _fetch(self, asked: Sequence[OwnedPartition]) -> None:
        expected = [(partition, partition.version) for partition in asked]
        request = ClassicFetch(
            partitions=[ClassicFetchPartition(p.topic, p.place.partition, p.fetch_offset, p.max_bytes) for p in asked]
        )

        def answered(result: ClassicFetchResult | BarnabasError) -> None:
            self._awaited = 0
            if self._stopped:
                return
            if isinstance(result, TransportError | ClosedError):
                self._failed(result)
                self._soon()
                return
            self._lost = False
            self._fetched(expected, result)

        self._link.submit(request, answered)

    def _fetched(
        self, expected: Sequence[tuple[OwnedPartition, int]], result: ClassicFetchResult | BarnabasError
    ) -> None:
        got_on = False
        outcomes: Sequence[Any] = (
            result.partitions if isinstance(result, ClassicFetchResult) else [result] * len(expected)
        )
        for (partition, version), outcome in zip(expected, outcomes, strict=True):
            if partition.version == version:
                got_on |= self._keep(partition, outcome)
        self._quiet = 0 if got_on else self._quiet + len(expected)
        if got_on or self._quiet < sum(map(_wants, self._partitions)):
            self._soon()
        else:
            self._quiet = 0
            self._rest()

    def _keep(self, partition: OwnedPartition, outcome: ClassicFetchResultPartition | BarnabasError) -> bool:
        """True when the partition got on, so that it pays to ask again at once."""
        if isinstance(outcome, BarnabasError):
            self._surface(partition, outcome)
            return False
        if outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(partition)
        if outcome.error is not ErrorCode.NONE:
            text = f"fetch of {partition} from {partition.fetch_offset} at broker {self.broker.broker_id}"
            self._surface(partition, ApiError(outcome.error, text))
            return False
        partition.out_of_range = False
        messages = self._set(partition, outcome.records)
        if not messages.size:
            return False
        try:
            valid_bytes = messages.valid_bytes
        except BarnabasError as error:
            self._surface(partition, error)
            return False
        if not valid_bytes:
            return self._grow(partition, outcome.records, messages.size)
        next_offset = partition.fetch_offset + valid_bytes
        partition.feed.put(FetchedDataChunk(partition, messages, partition.fetch_offset, next_offset))
        partition.fetch_offset = next_offset
        partition.max_bytes = self._settings.fetch_size
        return True

    def _set(self, partition: OwnedPartition, records: Buffer | Region) -> ClassicMessageSet:
        return ClassicMessageSet(
            records,
            self._outside.codecs,
            topic=partition.topic,
            partition=partition.place.partition,
            from_offset=partition.fetch_offset,
            check_crc=self._settings.check_crcs,
        )

    def _grow(self, partition: OwnedPartition, records: Buffer | Region, size: int) -> bool:
        """The first message did not fit. (0.7 stuck there, or raised; facts A2.)"""
        head = records.read(0, _ENTRY_SIZE_BYTES) if not isinstance(records, Buffer) else records[:_ENTRY_SIZE_BYTES]
        declared = int.from_bytes(head, "big", signed=True) if size >= _ENTRY_SIZE_BYTES else _MESSAGE_BYTES_MIN
        needed, at = declared + _ENTRY_SIZE_BYTES, f"{partition} offset {partition.fetch_offset}"
        largest = self._settings.fetch_size_max
        if declared < _MESSAGE_BYTES_MIN or size < partition.max_bytes:
            text = f"{at}: there is no whole message ({declared} bytes declared); seek to where one begins"
        elif needed > largest:
            text = f"{at}: one message takes {needed} bytes; raise fetch.size.max ({largest}), or seek past it"
        else:
            while partition.max_bytes < needed:
                partition.max_bytes = min(largest, 2 * partition.max_bytes)
            return True
        self._surface(partition, ApiError(ErrorCode.INVALID_FETCH_SIZE, text))
        return False

    def _out_of_range(self, partition: OwnedPartition) -> bool:
        time_ms = self._settings.reset_time_ms
        if time_ms is None:
            text = f"{partition} has no offset {partition.fetch_offset}, and autooffset.reset is none: seek"
            self._surface(partition, NoOffset(text))
            return False
        again, partition.out_of_range = partition.out_of_range, True
        partition.lookup = time_ms
        self._outside.report(
            f"{partition} has no offset {partition.fetch_offset}, it is out of range: autooffset.reset"
        )
        return not again  # else at rest first: the broker contradicts itself

    def _surface(self, partition: OwnedPartition, error: BarnabasError) -> None:
        """Let the reader raise the error when it gets there, once; the partition then waits for a seek."""
        at = partition.fetch_offset
        partition.feed.put(FetchedDataChunk(partition, ClassicMessageSet(b"", from_offset=max(0, at)), at, at, error))


def _wants(partition: OwnedPartition) -> bool:
    return not (partition.stopped or partition.lookup is not None or partition.fetch_offset < 0 or partition.feed.full)
