"""Transaction markers in the partitions that a broker leads, and listeners for completed transactions (facts C6)."""

from collections.abc import Callable, Hashable, Sequence

from ....ports.broker_api.groups import PartitionOutcome
from ....ports.broker_api.transactions import TxnMarker, WrittenTxnMarker
from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, broker_failed
from ....ports.storage import StorageError
from ....ports.types import Offset, TopicPartition
from ..partition.local_partitions import LocalPartitions
from ..purgatory import DelayedOperation, Purgatory
from .delayed_produce import NONE, ProducePartitionStatus
from .durable_flushes import DurableFlushes

MarkerResults = Callable[[Sequence[WrittenTxnMarker]], None]
"""Called with the results, in the order of the markers and of the partitions of each."""
OnTxnCompleted = Callable[[TopicPartition, int, int, bool], None]
"""Called with (partition, producer id, producer epoch, committed) when the in-sync replicas have the marker."""

_WATCH_MS = 3_600_000.0
"""The interval at which the watch of a marker is renewed after its request, while this broker leads the partition."""


class _AppendedMarker:
    """A marker in one partition: the offsets that it must reach, or the error of its append."""

    __slots__ = ("code", "key", "marker", "required")

    def __init__(self, key: TopicPartition, marker: TxnMarker) -> None:
        self.key = key
        self.marker = marker
        self.code = ErrorCode.NONE
        self.required: ProducePartitionStatus | None = None

    @property
    def is_waiting(self) -> bool:
        """True while not all in-sync replicas have it, and it may yet count."""
        return self.required is not None and not self.required.reached()

    @property
    def counts(self) -> bool:
        required = self.required
        return required is not None and required.reached() and not (required.lost() or required.failed())

    def outcome(self) -> PartitionOutcome:
        """Return the outcome for the response now."""
        code, required = self.code, self.required
        if required is not None and required.lost():
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif required is not None and required.failed():
            code = ErrorCode.KAFKA_STORAGE_ERROR
        elif self.is_waiting:
            code = ErrorCode.REQUEST_TIMED_OUT
        elif required is not None and required.partition.under_min_isr:
            code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return PartitionOutcome(self.key.topic, self.key.partition, code)


class _DelayedMarkers(DelayedOperation):
    """Markers that not all in-sync replicas have yet; `reached` is called with each marker that they have."""

    __slots__ = ("_reached", "waiting")

    def __init__(
        self,
        placed: Sequence[_AppendedMarker],
        reached: Callable[[_AppendedMarker], None],
        finish: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        super().__init__(finish, failed)
        self._reached = reached
        self.waiting: dict[Hashable, list[_AppendedMarker]] = {}
        for each in placed:
            self.waiting.setdefault(each.key, []).append(each)

    def check(self, key: Hashable) -> bool:
        some = self.waiting.pop(key, [])
        left = [each for each in some if each.is_waiting]
        if left:
            self.waiting[key] = left
        for each in some:
            if each.counts:
                self._reached(each)
        return not self.waiting


class TxnMarkerWriter:
    """Writes transaction markers. Owner thread only."""

    def __init__(self, local: LocalPartitions, purgatory: Purgatory, flushes: DurableFlushes, clock: Clock) -> None:
        self._local = local
        self._purgatory = purgatory
        self._flushes = flushes
        self._clock = clock
        self._when_ended: list[OnTxnCompleted] = []

    def when_ended(self, listener: OnTxnCompleted) -> None:
        """Add a listener for each transaction that completes in a partition which this broker leads."""
        self._when_ended.append(listener)

    def write(self, markers: Sequence[TxnMarker], done: MarkerResults, timeout_ms: float) -> None:
        """Write markers into partitions that this broker leads.

        `done` is called once, when the in-sync replicas have them, and after a flush where the topic asks for one, at
        the latest after `timeout_ms` (REQUEST_TIMED_OUT: the marker is in the log, and may yet count).
        INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED for a late marker, NOT_ENOUGH_REPLICAS where too few
        replicas are in sync.
        """
        now_ms = self._clock.now_ms()
        placed = [[self._place(key, marker, now_ms) for key in marker.partitions] for marker in markers]
        written = [each for some in placed for each in some if each.required is not None]

        def finish() -> None:
            done(
                [
                    WrittenTxnMarker(producer_id=marker.producer_id, partitions=[each.outcome() for each in some])
                    for marker, some in zip(markers, placed, strict=True)
                ]
            )
            self._watch_on(written)

        waiting = _DelayedMarkers(written, self._reached, finish, lambda: done(_all_failed(markers)))
        for key in tuple(waiting.waiting):
            waiting.check(key)
        if waiting.waiting and timeout_ms > 0:
            self._purgatory.watch(waiting, tuple(waiting.waiting), timeout_ms)
        else:
            finish()
        for key in {each.key: None for each in written}:
            self._purgatory.check(key)

    def _place(self, key: TopicPartition, marker: TxnMarker, now_ms: int) -> _AppendedMarker:
        placed = _AppendedMarker(key, marker)
        try:
            partition = self._local.led(*key)
            if partition.under_min_isr:
                text = f"{len(partition.isr)} in sync, {partition.min_isr} are needed"
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
            appended = partition.append_marker(
                marker.producer_id, marker.producer_epoch, marker.committed, marker.coordinator_epoch, now_ms=now_ms
            )
            end = Offset(appended.last_offset + 1)
            flushing = self._flushes.begin_if_due(partition, now_ms)
            placed.required = ProducePartitionStatus(partition, end, recovery_point=end if flushing else NONE)
        except ApiError as error:
            placed.code = error.code
        except StorageError as error:
            self._local.storage_failed(key, error)
            placed.code = ErrorCode.KAFKA_STORAGE_ERROR
        except Exception as error:  # noqa: BLE001  reported; the other partitions are answered
            self._local.failed(f"ending a transaction in {key}", error)
            placed.code = broker_failed().code
        return placed

    def _reached(self, placed: _AppendedMarker) -> None:
        marker = placed.marker
        for listener in self._when_ended:
            try:
                listener(placed.key, marker.producer_id, marker.producer_epoch, marker.committed)
            except Exception as error:  # noqa: BLE001  reported; the other listeners are still called
                self._local.failed(f"taking the end of a transaction in {placed.key}", error)

    def _watch_on(self, placed: Sequence[_AppendedMarker]) -> None:
        """Watch the markers whose request has timed out, so that the listeners are called when they count."""
        late = [each for each in placed if each.is_waiting]
        if late and self._when_ended:
            waiting = _DelayedMarkers(late, self._reached, lambda: self._watch_on(late), lambda: None)
            self._purgatory.watch(waiting, tuple(waiting.waiting), _WATCH_MS)


def _all_failed(markers: Sequence[TxnMarker]) -> list[WrittenTxnMarker]:
    code = broker_failed().code
    return [
        WrittenTxnMarker(
            producer_id=each.producer_id,
            partitions=[PartitionOutcome(key.topic, key.partition, code) for key in each.partitions],
        )
        for each in markers
    ]
