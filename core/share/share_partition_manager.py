"""The share partitions of a broker: loaded when a group begins to fetch, dropped when the leadership ends (KIP-932)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from struct import Struct
from typing import Protocol

from ...ports.broker_api.offsets import EARLIEST, LATEST
from ...ports.broker_api.share_groups import AcknowledgementBatch, AcquiredRecords
from ...ports.broker_api.share_state import (
    NO_START_OFFSET,
    ReadPartition,
    ReadShareGroupState,
    ReadShareGroupStateResult,
    WritePartition,
    WriteShareGroupState,
    WriteShareGroupStateResult,
)
from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.metrics import Metrics
from ...ports.scheduler import Scheduler, Timer
from ...ports.storage import Region, size_of
from ...ports.types import Buffer, TopicPartition
from ..log.segment.transaction_index import AbortedTxn
from ..message.batch_header import BATCH_LENGTH_MIN, CONTROL_BIT, LENGTH_OVERHEAD, TRANSACTIONAL_BIT
from ..replica.partition.fetch_isolation import FetchIsolation
from ..replica.partition.partition import Partition
from ..replica.purgatory import Purgatory
from .persister import Persister, SharePartitionKey
from .share_partition import NO_DEADLINE, DeadLetters, LogBatch, SharePartition, SharePartitionSettings

_READS_MAX = 16
"""A fetch that finds only records that no member gets reads on, at most so often."""
_HEADERS_AT_A_TIME = 16_384
_RETRY_MS = 100
"""The delay until the state is read again after an error that may pass."""
_HEADER = Struct(">qi4xb4xhi16xq")
"""Base offset, batch length, magic byte, attributes, last offset delta and producer id."""

_FENCED = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_LOST = _FENCED | {ErrorCode.INVALID_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""After these errors of a write, the state is read again."""
_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)

Acknowledged = Callable[[ApiError | None], None]
FindOffset = Callable[[Partition, int, FetchIsolation, Callable[[int | ApiError], None]], None]
"""Calls back with the offset of the first record that is not older than a timestamp, or of EARLIEST or LATEST; -1:
there is none."""

SendLetters = Callable[["LedSharePartition", DeadLetters, Callable[[], None]], None]
"""Writes the dead letters of records, and calls back once, at once or later, when they are written, or cannot be."""


class ShareGroupConfig(Protocol):
    """A part of `GroupConfig`, which belongs to the coordinators."""

    @property
    def share_record_lock_duration_ms(self) -> int: ...
    @property
    def share_delivery_count_limit(self) -> int: ...
    @property
    def share_partition_max_record_locks(self) -> int: ...
    @property
    def share_auto_offset_reset(self) -> str: ...
    @property
    def share_renew_acknowledge_enable(self) -> bool: ...
    @property
    def share_reset_age_ms(self) -> int | None:
        """The age of the first record of a group that begins; None: see `share_auto_offset_reset`."""
        ...

    @property
    def reads_committed(self) -> bool: ...
    @property
    def errors_deadletterqueue_topic_name(self) -> str: ...


class LedSharePartition:
    """A share partition whose topic partition this broker leads. Not frozen: it is the state itself.

    `share` is None until the state is read. `error`: it could not be read.
    """

    __slots__ = ("error", "is_dropped", "key", "leader_epoch", "partition", "share", "state_epoch", "timer", "waiting")

    def __init__(self, key: SharePartitionKey, partition: Partition) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.state_epoch = 0
        self.share: SharePartition | None = None
        self.error: ApiError | None = None
        self.is_dropped = False
        self.timer: Timer | None = None
        self.waiting: dict[int, list[Acknowledged]] = {}


class SharePartitionManager:
    """The share partitions of one broker. Owner thread only.

    purgatory:   its operations under a `SharePartitionKey` are checked when records become available again, or when
                 the state was read.
    config_of:   returns the settings of a group.
    find_offset: finds the first offset of a group that begins.
    send_letters: writes dead letters (KIP-1191), if the group has a topic for them; None: no group has.
    """

    def __init__(
        self,
        *,
        persister: Persister,
        purgatory: Purgatory,
        scheduler: Scheduler,
        clock: Clock,
        config_of: Callable[[str], ShareGroupConfig],
        find_offset: FindOffset,
        metrics: Metrics,
        report: Callable[[str], None],
        send_letters: Callable[[], SendLetters | None] = lambda: None,
    ) -> None:
        self._persister = persister
        self._send_letters = send_letters
        self._purgatory = purgatory
        self._scheduler = scheduler
        self._clock = clock
        self._config_of = config_of
        self._find_offset = find_offset
        self._report = report
        self._led: dict[SharePartitionKey, LedSharePartition] = {}
        self._by_partition: dict[TopicPartition, dict[SharePartitionKey, LedSharePartition]] = {}
        self._lapsed = metrics.counter(
            "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total", "Records whose acquisition lock lapsed."
        )
        metrics.gauge(
            "kafka_server_sharepartitionmetrics_inflightmessagecount",
            "Records in flight in share partitions.",
            lambda: sum(each.share.in_flight_count for each in self._led.values() if each.share is not None),
        )

    def __len__(self) -> int:
        """Return the number of share partitions."""
        return len(self._led)

    @property
    def share_partitions(self) -> Mapping[SharePartitionKey, LedSharePartition]:
        return self._led

    # --- coming and going

    def get(self, group_id: str, partition: Partition) -> LedSharePartition | None:
        """Return the share partition; None while its state is being read, which the first call begins.

        `partition` is led by this broker. Raises the `ApiError` of a read that has failed.
        """
        key = SharePartitionKey(group_id, partition.topic_id, partition.topic_partition.partition)
        led = self._led.get(key)
        if led is not None and (led.partition is not partition or led.leader_epoch != partition.leader_epoch):
            self._drop(led)
            led = None
        if led is None:
            led = self._led[key] = LedSharePartition(key, partition)
            self._by_partition.setdefault(partition.topic_partition, {})[key] = led
            self._read_state(led)
        if led.error is not None:
            if led.error.code in _PASSING:
                return None
            raise led.error
        return None if led.share is None else led

    def known(self, group_id: str, partition: Partition) -> LedSharePartition | None:
        """Return the share partition if a member has fetched from it in this leadership."""
        led = self._led.get(SharePartitionKey(group_id, partition.topic_id, partition.topic_partition.partition))
        if led is None or led.share is None or led.leader_epoch != partition.leader_epoch:
            return None
        return led

    def read_again(self, group_id: str) -> None:
        """Read the states of a group without sessions once more: its offsets may have been altered or deleted, which is
        possible only in a group without members."""
        for led in list(self._led.values()):
            if led.key.group_id == group_id and led.share is not None and not led.share.is_writing:
                self._drop(led)

    def on_leadership_ended(self, partition: Partition) -> None:
        """Drop the share partitions of a partition. Its next leader reads their state."""
        for led in list(self._by_partition.get(partition.topic_partition, {}).values()):
            self._drop(led)

    def _drop(self, led: LedSharePartition) -> None:
        if led.is_dropped:
            return
        led.is_dropped = True
        self._led.pop(led.key, None)
        topic_partition = led.partition.topic_partition
        of_partition = self._by_partition.get(topic_partition, {})
        of_partition.pop(led.key, None)
        if not of_partition:
            self._by_partition.pop(topic_partition, None)
        if led.timer is not None:
            led.timer.cancel()
        waiting, led.waiting = led.waiting, {}
        error = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic_partition} is not led here any longer.")
        for some in waiting.values():
            for each in some:
                each(error)
        self._purgatory.check(led.key)

    def _read_state(self, led: LedSharePartition) -> None:
        group_id, topic_id, number = led.key

        def done(result: ReadShareGroupStateResult) -> None:
            if led.is_dropped:
                return
            state = result.partitions[0]
            if state.error is not ErrorCode.NONE:
                self._read_failed(led, _as_client_error(state.error, state.error_message))
                return
            led.state_epoch = state.state_epoch
            if state.start_offset != NO_START_OFFSET:
                share = SharePartition(state.start_offset, state.state_batches, self._settings(group_id))
                self._loaded(led, share)
                return

            def found(offset: int | ApiError) -> None:
                if led.is_dropped:
                    return
                if isinstance(offset, ApiError):
                    self._read_failed(led, offset)
                    return
                share = SharePartition(offset, (), self._settings(group_id), stored_start_offset=NO_START_OFFSET)
                self._loaded(led, share)

            self._find_start(led, found)

        request = ReadShareGroupState(group_id=group_id, partitions=[ReadPartition(topic_id, number, led.leader_epoch)])
        self._persister.read_state(request, done)

    def _find_start(self, led: LedSharePartition, found: Callable[[int | ApiError], None]) -> None:
        config = self._config_of(led.key.group_id)
        isolation = _isolation(config)
        try:
            age_ms = config.share_reset_age_ms
        except ValueError as error:
            found(ApiError(ErrorCode.INVALID_CONFIG, f"share.auto.offset.reset: {error}"))
            return
        if age_ms is None:
            timestamp = EARLIEST if config.share_auto_offset_reset == "earliest" else LATEST
        else:
            timestamp = max(0, self._clock.now_ms() - age_ms)

        def done(offset: int | ApiError) -> None:
            found(led.partition.end_for(isolation) if offset == -1 else offset)

        self._find_offset(led.partition, timestamp, isolation, done)

    def _loaded(self, led: LedSharePartition, share: SharePartition) -> None:
        led.share = share
        self._write(led)
        self._purgatory.check(led.key)

    def _read_failed(self, led: LedSharePartition, error: ApiError) -> None:
        """Let the fetches that wait see the error; the next one after them reads the state again."""
        led.error = error
        self._purgatory.check(led.key)
        delay_ms = _RETRY_MS if error.code in _PASSING else 0
        self._scheduler.call_later(delay_ms, lambda: self._drop(led))

    def _settings(self, group_id: str) -> SharePartitionSettings:
        config = self._config_of(group_id)
        return SharePartitionSettings(
            lock_duration_ms=config.share_record_lock_duration_ms,
            delivery_count_limit=config.share_delivery_count_limit,
            max_in_flight_records=config.share_partition_max_record_locks,
            has_dead_letters=bool(config.errors_deadletterqueue_topic_name) and self._send_letters() is not None,
        )

    # --- acquiring

    def acquire(
        self,
        led: LedSharePartition,
        member_id: str,
        *,
        max_bytes: int,
        max_records: int,
        batch_size: int,
        is_strict: bool,
        is_first: bool,
    ) -> tuple[Buffer | Region, Sequence[AcquiredRecords], int]:
        """Acquire records for a member: return the batches that contain them, their ranges and their number.

        `is_first`: the first batch comes whole even if it is larger than `max_bytes`. Raises `ApiError` and
        `StorageError` as a read of the partition.
        """
        share, partition = led.share, led.partition
        if share is None:
            return b"", (), 0
        config = self._config_of(led.key.group_id)
        share.settings = self._settings(led.key.group_id)
        isolation = _isolation(config)
        now_ms = self._clock.monotonic_ms()
        if share.next_deadline_ms <= now_ms:
            self._lapsed.add(share.release_lapsed(now_ms))
        share.on_log_start_changed(partition.log.log_start_offset)
        result: tuple[Buffer | Region, Sequence[AcquiredRecords], int] = (b"", (), 0)
        for _ in range(_READS_MAX):
            offset = share.next_fetch_offset()
            if offset is None or offset >= partition.end_for(isolation):
                break
            records = partition.read(offset, max_bytes, whole_first_batch=is_first, isolation=isolation)
            size = size_of(records)
            if not size:
                break
            acquired = share.acquire(
                member_id,
                offset,
                read_batches(records, partition.log.transactions.aborted if config.reads_committed else None),
                max_records=max_records,
                batch_size=batch_size,
                is_strict=is_strict,
                now_ms=now_ms,
            )
            if acquired.ranges:
                if acquired.end_position < size:
                    records = partition.read(
                        offset, acquired.end_position, whole_first_batch=False, isolation=isolation
                    )
                result = records, acquired.ranges, acquired.record_count
                break
            if share.next_fetch_offset() == offset:
                break
        else:
            self._scheduler.call_later(0, lambda: self._purgatory.check(led.key))  # there is more to read
        self._write(led)
        self._set_timer(led)
        return result

    def ready_bytes(self, led: LedSharePartition, max_bytes: int) -> int:
        """Return about how many bytes `acquire` could return now, at most `max_bytes`."""
        share, partition = led.share, led.partition
        isolation = _isolation(self._config_of(led.key.group_id))
        offset = None if share is None else share.next_fetch_offset()
        if offset is None or not partition.log.log_start_offset <= offset < partition.end_for(isolation):
            return 0
        return partition.ready_bytes(offset, max_bytes, isolation)

    # --- acknowledging and releasing

    def acknowledge(
        self,
        led: LedSharePartition,
        member_id: str,
        batches: Sequence[AcknowledgementBatch],
        done: Acknowledged,
        *,
        allows_renew: bool,
    ) -> None:
        """Apply acknowledgements; `done` is called once, when they are stored, or with the error."""
        share = led.share
        if share is None:
            done(ApiError(ErrorCode.INVALID_RECORD_STATE, "The member has acquired no records here."))
            return
        share.settings = self._settings(led.key.group_id)
        now_ms = self._clock.monotonic_ms()
        try:
            number = share.acknowledge(member_id, batches, allows_renew=allows_renew, now_ms=now_ms)
        except ApiError as error:
            done(error)
            return
        self._set_timer(led)
        if not number:
            done(None)
            return
        led.waiting.setdefault(number, []).append(done)
        self._write(led)

    def release_acquired(self, led: LedSharePartition, member_id: str) -> None:
        """Release what a member that has closed its session has acquired."""
        if led.share is not None and led.share.release_acquired(member_id):
            self._write(led)
            self._purgatory.check(led.key)

    def _write_letters(self, led: LedSharePartition, share: SharePartition) -> None:
        """Write the dead letters of records that are given up, and archive them then."""
        send = self._send_letters()
        for letters in share.take_dead_letters():

            def written(letters: DeadLetters = letters) -> None:
                share.archive(letters)
                self._write(led)

            if send is None:
                share.archive(letters)
            else:
                send(led, letters, written)

    def _write(self, led: LedSharePartition) -> None:
        share = led.share
        if share is not None and not led.is_dropped:
            self._write_letters(led, share)
        write = None if share is None or led.is_dropped else share.take_write()
        if share is None or write is None:
            return
        group_id, topic_id, number = led.key

        def done(result: WriteShareGroupStateResult) -> None:
            outcome = result.partitions[0]
            error = None
            if outcome.error is not ErrorCode.NONE:
                error = _as_client_error(outcome.error, outcome.error_message)
            has_available = share.complete_write(is_stored=error is None)
            for each in led.waiting.pop(write.number, ()):
                each(error)
            if outcome.error in _LOST:
                self._drop(led)
                return
            if error is not None:
                self._report(f"storing the state of share partition {led.key} failed: {error.message}")
                self._set_timer(led)
                return
            if has_available:
                self._purgatory.check(led.key)
            self._write(led)

        change = WritePartition(
            topic_id,
            number,
            led.state_epoch,
            led.leader_epoch,
            write.start_offset,
            write.state_batches,
            write.delivery_complete_count,
        )
        self._persister.write_state(WriteShareGroupState(group_id=group_id, partitions=[change]), done)

    def _set_timer(self, led: LedSharePartition) -> None:
        share = led.share
        if share is None or led.timer is not None or share.next_deadline_ms == NO_DEADLINE or led.is_dropped:
            return

        def lapsed() -> None:
            led.timer = None
            if led.is_dropped:
                return
            released = share.release_lapsed(self._clock.monotonic_ms())
            self._set_timer(led)
            if released:
                self._lapsed.add(released)
                self._write(led)
                self._purgatory.check(led.key)

        delay_ms = max(1, share.next_deadline_ms - self._clock.monotonic_ms())
        led.timer = self._scheduler.call_later(delay_ms, lapsed)


def _isolation(config: ShareGroupConfig) -> FetchIsolation:
    return FetchIsolation.TXN_COMMITTED if config.reads_committed else FetchIsolation.HIGH_WATERMARK


def _as_client_error(code: ErrorCode, message: str | None) -> ApiError:
    """Return the error of the persister as members get it (Kafka's `fetchPersisterError`)."""
    if code in _FENCED:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS):
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ApiError(code, message or "The share coordinator has refused the state of the share partition.")


FindAborted = Callable[[int, int], Sequence[AbortedTxn]]
"""Returns the aborted transactions with records from one offset up to another one, which it excludes."""


def read_batches(records: Buffer | Region, find_aborted: FindAborted | None = None) -> Iterator[LogBatch]:
    """Yield the whole batches in `records`, by their headers alone. Those of aborted transactions are hidden if
    `find_aborted` finds them."""
    position, size = 0, size_of(records)
    is_region = not isinstance(records, bytes | bytearray | memoryview)
    head: Buffer = b"" if is_region else records  # type: ignore[assignment]
    head_start = 0
    while size - position >= _HEADER.size:
        if is_region and position + _HEADER.size > head_start + len(head):
            head, head_start = records.read(position, _HEADERS_AT_A_TIME), position  # type: ignore[union-attr]
            if len(head) < _HEADER.size:
                return
        base, length, _magic, attributes, delta, producer_id = _HEADER.unpack_from(head, position - head_start)
        position += LENGTH_OVERHEAD + length
        if length < BATCH_LENGTH_MIN or position > size:
            return
        is_hidden = bool(attributes & CONTROL_BIT)
        if find_aborted is not None and attributes & TRANSACTIONAL_BIT and not is_hidden:
            is_hidden = any(each.producer_id == producer_id for each in find_aborted(base, base + delta + 1))
        yield LogBatch(base, base + delta, is_hidden, position)
