"""One replica of a partition: a log with a leader epoch, a high watermark and an ISR (facts D4, D5)."""

from collections.abc import Callable, Sequence

from ....ports.broker_api.fetch import AbortedTransaction, DivergingEpoch
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import Region
from ....ports.types import Buffer, Offset, TopicPartition
from ...cluster.topics import ALONE_EPOCH, NO_LEADER, PartitionState, ReplicaId
from ...log.append_origin import AppendOrigin
from ...log.check_budget import CheckBudget
from ...log.log_format import ValidatedBatch
from ...log.partition_log.unified_log import AppendResult, UnifiedLog
from ...log.producers.producer_state import ProducerStates
from ...log.producers.snapshot import encode_snapshot
from .fetch_isolation import FetchIsolation
from .followers import NO_BOUND, FollowerProgress, Followers
from .isr_state import CommittedIsr, IsrState, with_partition_state

_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK  # a member costs a tenth of a microsecond to look up
_BEGINNING = Offset(0)


class Partition:
    """The log of one replica, with the partition state. Not frozen: it is the state itself.

    The high watermark is the smallest log end offset of the in-sync set; with one replica it follows each append at
    once. All offsets are exclusive ends except `log_start_offset`. An `int` in place of an `Offset` comes from a
    request, and need not be an offset of this log. Owner thread only.

    leader:             the leader by the state in the tree; -1 if that is an earlier broker epoch of this broker.
    led_since:          the leader epoch in which this broker began to lead. The epoch of a leader that stays rises by
                        one when a replica goes.
    assigned:           the replicas of the topic as it is known; `replicas`: those of the state.
    epoch_start_offset: the log end offset at which this broker began to lead in this leader epoch.
    followers:          the followers' progress where this broker leads; None where it does not, or there are none.
    isr_state:          the ISR of the tree, with the change that the leader has asked for; `IsrManager` changes it.
    offline:            the disk of this replica has failed: it neither leads nor follows.
    is_ahead:           the log has a later leader epoch than the state, or, where this broker is to lead, the same one:
                        the coordination service has lost states. The replica neither leads nor follows then.
    """

    __slots__ = (
        "_epochs_in_sync",
        "_led",
        "_lowest_log_end",
        "_maximal_isr",
        "assigned",
        "broker_id",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "is_ahead",
        "isr",
        "isr_state",
        "leader",
        "leader_epoch",
        "led_since",
        "log",
        "offline",
        "replicas",
        "state",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log: UnifiedLog,
        topic_partition: TopicPartition,
        *,
        topic_id: bytes,
        own: ReplicaId,
        replicas: Sequence[int],
        state: PartitionState,
        high_watermark: Offset = _BEGINNING,
        now_ms: float = 0,
    ) -> None:
        self.log = log
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = own.broker_id
        self.leader, self.leader_epoch, self.led_since = NO_LEADER, -1, -1
        self.epoch_start_offset = Offset(0)
        self.followers: Followers | None = None
        self.isr_state: IsrState = CommittedIsr()
        self._maximal_isr: tuple[ReplicaId, ...] = ()  # without the leader
        self._epochs_in_sync: dict[int, int] = {}
        self._lowest_log_end = NO_BOUND  # over the maximal ISR and the followers that are about to join it
        self.offline = self.is_ahead = False
        self._led = -1, -1  # the leader epoch, and the broker epoch, in which this broker has led last
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.readable_end))
        self.apply_state(state, replicas, own, now_ms)

    def apply_state(self, state: PartitionState, replicas: Sequence[int], own: ReplicaId, now_ms: float) -> bool:
        """Apply a partition state of the tree, as this broker epoch sees it; True if that raised the high watermark.

        `now_ms`: monotonic.
        """
        before = self.leader_epoch if self.leader == own.broker_id else -1
        self.state, self.assigned, self.isr = state, tuple(replicas), state.isr
        self.replicas = tuple(state.replicas_in(replicas))
        self.leader, self.leader_epoch = state.leader, state.leader_epoch
        epochs = state.broker_epochs
        if self.leader == own.broker_id and (
            self.offline or own.broker_epoch < 0 or epochs.get(own.broker_id, ALONE_EPOCH) != own.broker_epoch
        ):
            self.leader = NO_LEADER
        self.is_ahead = own.broker_epoch != ALONE_EPOCH and self._is_ahead(own)
        if self.is_ahead:
            self.leader = NO_LEADER
        elif self.leader == own.broker_id:
            self._led = self.leader_epoch, own.broker_epoch
        if self.leader != own.broker_id or before < 0 or self.leader_epoch - before not in (0, 1):
            self.led_since = self.leader_epoch
        isr = tuple(ReplicaId(each, epochs.get(each, ALONE_EPOCH)) for each in state.isr)
        if self.leader != own.broker_id or before != self.leader_epoch:
            self.followers = None
            self.epoch_start_offset = self.log.log_end_offset
        catching_up: list[ReplicaId] = []
        if self.leader == own.broker_id and {own.broker_id} != {*state.isr, *self.replicas}:
            if self.followers is None:
                self.followers = Followers()
            else:
                catching_up = [each for each in self.isr_state.catching_up if each.broker_id in self.replicas]
            self.followers.update([each for each in self.replicas if each != own.broker_id], isr, now_ms)
        else:
            self.followers = None
        return self.set_isr_state(with_partition_state(self.isr_state, state, isr, catching_up))

    def set_isr_state(self, isr_state: IsrState) -> bool:
        """Compute the high watermark by this ISR from now on; return True if that raised it."""
        self.isr_state = isr_state
        self._maximal_isr = tuple(each for each in isr_state.maximal_isr if each.broker_id != self.broker_id)
        self._epochs_in_sync = {
            each.broker_id: each.broker_epoch for each in isr_state.isr if each.broker_id != self.broker_id
        }
        return self._on_log_ends_changed()

    def is_in_sync(self, follower: FollowerProgress) -> bool:
        """Return True if the tree has the follower in the ISR, in its present broker epoch."""
        return self._epochs_in_sync.get(follower.broker_id) == follower.broker_epoch

    def _is_ahead(self, own: ReplicaId) -> bool:
        """Return True if the log has a later epoch than the state allows.

        No two leaders have the same epoch. So a log has no records of an epoch in which this broker begins to lead, and
        records of later epochs were written by leaders that are missing in the state.
        """
        latest = self.log.epochs.latest
        if self.leader == self.broker_id:
            return latest >= self.leader_epoch and self._led != (self.leader_epoch, own.broker_epoch)
        return self.leader != NO_LEADER and latest > self.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    @property
    def may_follow(self) -> bool:
        """True if the topic and the state both have a replica here, which are read apart.

        One that goes deletes its log. What it fetched until then, in the leader epoch in which it is none, would count
        for the empty log with which it may come again.
        """
        return self.broker_id in self.assigned and self.broker_id in self.replicas

    @property
    def last_stable_offset(self) -> Offset:
        """The end for read_committed readers; the high watermark while no transaction is open (facts B2)."""
        end, transactions = self.high_watermark, self.log.transactions
        first = transactions.first_unstable_offset(end)
        hidden = transactions.undecided_from
        if hidden is not None and len(self.replicas) > 1:  # a repair brings the marker back
            first = hidden if first is None else min(first, hidden)
        return end if first is None or first >= end else max(first, self.log.log_start_offset)

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas` of the state, or the number of replicas if that is smaller (KIP-966)."""
        return self.state.enough_in_sync(self.replicas, self.log.config.min_insync_replicas)

    @property
    def under_min_isr(self) -> bool:
        in_sync = len(self.isr)
        return in_sync < len(self.replicas) and in_sync < self.min_isr  # it is never more than the replicas

    def isr_fetched_since(self, since_ms: float) -> bool:
        """Return True if every follower in the ISR has fetched in this leader epoch since then.

        True also where the leader is the only member.
        """
        followers = self.followers
        if followers is None:
            return True
        members = (followers.known(each) for each in self.isr_state.isr if each.broker_id != self.broker_id)
        return all(each is not None and each.fetched_ms >= since_ms for each in members)

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Refuse requests that only the leader of that epoch may answer; -1 = any epoch (facts D6).

        Raises `ApiError` NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH (the caller is behind) or UNKNOWN_LEADER_EPOCH
        (the caller knows a later epoch than this broker); KAFKA_STORAGE_ERROR when the disk has failed.
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._refuse_epoch(current_leader_epoch)
        if self.leader != self.broker_id:
            self._refuse_offline()
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by broker {self.leader}")

    def check_replica(self, current_leader_epoch: int = -1) -> None:
        """Refuse requests that neither the leader nor a follower may answer. Raises as `check_leader`."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            self._refuse_epoch(current_leader_epoch)
        self._refuse_offline()
        if self.leader == NO_LEADER:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no leader")

    def _refuse_epoch(self, current_leader_epoch: int) -> None:
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"the current leader epoch is {self.leader_epoch}")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the current leader epoch is still {self.leader_epoch}")

    def _refuse_offline(self) -> None:
        if self.offline:
            text = f"the log of {self.topic_partition} is offline; see the broker's log"
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, text)

    # --- as the leader

    def append_as_leader(
        self,
        records: memoryview,
        *,
        now_ms: int,
        allows_zstd: bool = True,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        admitted: ValidatedBatch | None = None,
        bounded: bool = False,
        budget: CheckBudget | None = None,
    ) -> AppendResult:
        """Append one record batch, in place (the log sets offset and epoch in `records`).

        `admitted`, `bounded` and `budget` as for `UnifiedLog.append`. Raises `ApiError` for what the log refuses,
        `StorageError` when it cannot be written, and with `bounded` `AdmissionTakesLong`.
        """
        appended = self.log.append(
            records,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            allows_zstd=allows_zstd,
            origin=origin,
            admitted=admitted,
            bounded=bounded,
            budget=budget,
        )
        self._raise_high_watermark()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        *,
        now_ms: int,
        bumps_epoch: bool = False,
    ) -> AppendResult:
        """End a producer's transaction. Raises as `UnifiedLog.append_marker`."""
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            committed,
            coordinator_epoch,
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            bumps_epoch=bumps_epoch,
        )
        self._raise_high_watermark()
        return appended

    def follower_fetched(self, follower: FollowerProgress, offset: int, log_start: int, now_ms: float) -> bool:
        """Update a follower that has everything below `offset`; return True if that raised the high watermark.

        Raises `ApiError` OFFSET_OUT_OF_RANGE. `now_ms`: monotonic.
        """
        self._check_range(offset)
        follower.fetched(Offset(offset), Offset(log_start), self.log.log_end_offset, now_ms)
        return self._on_log_ends_changed()

    def _on_log_ends_changed(self) -> bool:
        followers = self.followers
        if followers is not None:
            self._lowest_log_end = followers.lowest_log_end(self._maximal_isr, self.isr_state.catching_up)
        return self._raise_high_watermark()

    def _raise_high_watermark(self) -> bool:
        if self.leader != self.broker_id:
            return False
        end = self.log.readable_end
        followers = self.followers
        if followers is not None:
            if self.under_min_isr:
                return False  # replicas that leave the ISR now have everything committed (KIP-966)
            end = min(end, self._lowest_log_end)
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest leader epoch up to this one and the offset at which it ends; -1 and -1 when unknown (facts
        B4).

        The present epoch ends at the log end, even before its first message.
        """
        epochs, end = self.log.epochs, self.log.log_end_offset
        if epoch == self.leader_epoch:
            return epoch, end
        if epochs.latest < epoch < self.leader_epoch:
            return epochs.latest if epochs.entries else epoch, end
        return epochs.end_offset_for(epoch, end)

    def diverging(self, offset: int, last_epoch: int) -> DivergingEpoch | None:
        """Return the point at which a reader's log diverges from this one; None if it does not (KIP-595).

        The reader's log ends at `offset` with a batch of `last_epoch`.
        """
        epoch, end = self.end_of_epoch(last_epoch)
        if end < 0:  # later than all epochs of this log
            epoch, end = self.log.epochs.latest, self.log.log_end_offset
        return DivergingEpoch(epoch, end) if epoch < last_epoch or end < offset else None

    def delete_records(self, offset: int) -> Offset:
        """Delete the records below `offset` (-1 = below the high watermark); return the resulting offset.

        Raises `ApiError` OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if self.log.config.remote_storage_source:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION, f"{self.topic_partition} is read-only: it belongs to another cluster"
            )
        target = self.high_watermark if offset == -1 else Offset(offset)
        if not 0 <= target <= self.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the high watermark is {self.high_watermark}")
        if target > self.log.log_start_offset:
            self.log.advance_log_start(target)
        return target

    def low_watermark(self, is_alive: Callable[[int], bool]) -> Offset:
        """Return the offset below which no live replica has a record."""
        starts = [each.log_start for each in self.followers or () if is_alive(each.broker_id)]
        return min([self.log.log_start_offset, *starts])

    # --- as the leader of a partition that mirrors one of another cluster

    def append_mirrored(self, records: memoryview, log_start: int, now_ms: int) -> None:
        """Append batches of the source as they are, and delete the records below its log start.

        Raises as `UnifiedLog.append_replicated`, and `ApiError` CORRUPT_MESSAGE where that appends nothing.
        """
        log, before = self.log, self.log.log_end_offset
        if records:
            log.append_replicated(records, now_ms=now_ms)
            if log.log_end_offset == before:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"not one whole batch came for offset {before}")
        self._raise_high_watermark()
        below = min(log_start, self.high_watermark)
        if below > log.log_start_offset:
            log.advance_log_start(Offset(below))

    def truncate_mirror(self, offset: int, log_start: int, now_ms: int) -> None:
        """Truncate what the source does not have; the followers do the same. Raises `StorageError`."""
        if offset < self.log.log_start_offset or log_start > self.log.log_end_offset:
            self.truncate_fully_and_start_at(max(offset, log_start, 0), now_ms)
        else:
            self.truncate_to(offset, now_ms)

    # --- where the records are in remote storage, and of another cluster

    def continue_read_only(self, offset: int, *, log_start: int, now_ms: int) -> None:
        """Continue at `offset`, with nothing here below it. The high watermark of the leader rises as that of any.

        Raises `StorageError`.
        """
        empty = encode_snapshot(ProducerStates())
        self.log.restart_at(offset, log_start=log_start, epochs=(), snapshot=empty, now_ms=now_ms)
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)
        self._raise_high_watermark()

    # --- as a follower

    def append_as_follower(self, records: memoryview, *, high_watermark: int, log_start: int, now_ms: int) -> bool:
        """Append the leader's records, and apply its high watermark and log start; True if the high watermark here
        rose.

        Raises as `UnifiedLog.append_replicated`.
        """
        log = self.log
        if records:
            log.append_replicated(records, now_ms=now_ms)
        if log_start > log.log_start_offset:
            log.advance_log_start(min(log_start, log.log_end_offset))
        reached = max(min(Offset(high_watermark), log.log_end_offset), log.log_start_offset)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Truncate the end of the log, which the leader does not have. Raises `StorageError`."""
        self.log.truncate_to(offset, now_ms)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Delete all records, since the leader has none below `offset`. Raises `StorageError`."""
        self.log.truncate_fully_and_start_at(offset, now_ms)
        self.high_watermark = Offset(offset)

    def restart_from_tier(
        self, offset: int, *, log_start: int, epochs: Sequence[tuple[int, int]], snapshot: bytes, now_ms: int
    ) -> None:
        """Delete all records here, and continue at `offset`, below which remote storage has them.

        Raises as `UnifiedLog.restart_at`.
        """
        self.log.restart_at(offset, log_start=log_start, epochs=epochs, snapshot=snapshot, now_ms=now_ms)
        self.high_watermark = Offset(offset)

    # --- read

    def end_for(self, isolation: FetchIsolation) -> Offset:
        """Return the end of the log for such a reader."""
        if isolation is _HIGH_WATERMARK:
            return self.high_watermark
        return self.log.readable_end if isolation is FetchIsolation.LOG_END else self.last_stable_offset

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        whole_first_batch: bool,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
    ) -> Buffer | Region:
        """Return record batches from the one that contains `offset` up to the reader's end, about `max_bytes` of them.

        Returns nothing at that end. With `whole_first_batch` the first batch comes whole even if larger. Raises
        `ApiError` OFFSET_OUT_OF_RANGE below the log start and above the log end.
        """
        end = self.end_for(isolation)
        if offset >= end:
            self._check_range(offset)
            return b""
        return self.log.read(offset, max_bytes=max_bytes, limit=end, whole_first_batch=whole_first_batch).records

    def read_committed(
        self, offset: int, max_bytes: int, *, whole_first_batch: bool
    ) -> tuple[Buffer | Region, Sequence[AbortedTransaction]]:
        """Return record batches up to the last stable offset, and the aborted transactions among them. Raises as
        `read`.
        """
        end = self.last_stable_offset
        if offset >= end:
            self._check_range(offset)
            return b"", ()
        found = self.log.read(offset, max_bytes=max_bytes, limit=end, whole_first_batch=whole_first_batch)
        aborted = self.log.transactions.aborted_in(offset, found) if found.size else ()
        transactions = sorted([(each.first_offset, each.producer_id) for each in aborted]) if aborted else ()
        return found.records, [AbortedTransaction(producer, first) for first, producer in transactions]

    def ready_bytes(self, offset: int, max_bytes: int, isolation: FetchIsolation) -> int:
        """Return the number of bytes that `read` could return now, at most `max_bytes`. Raises as `read` does."""
        self._check_range(offset)
        end = self.end_for(isolation)
        if offset < self.log.local_log_start_offset:
            return 0 if offset >= end else max_bytes  # remote storage has them
        return 0 if offset >= end else self.log.available_bytes(offset, end, max_bytes)

    def rolled_past(self, offset: int, isolation: FetchIsolation) -> bool:
        """Return True if the reader's end is in a newer segment than `offset`: waiting adds nothing to a read's
        result.
        """
        return offset < self.log.segments[-1].base_offset < self.end_for(isolation)

    def _check_range(self, offset: int) -> None:
        log = self.log
        if not log.log_start_offset <= offset <= log.readable_end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has offsets {log.log_start_offset} to {log.readable_end}, not {offset}",
            )
