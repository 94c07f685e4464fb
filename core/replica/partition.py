"""One partition as a broker holds it: a log with a leader epoch, a high watermark and an in-sync set (facts D4, D5)."""

from collections.abc import Iterable

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import Region
from ...ports.words import Buffer, TopicPartition
from ..log.log import Appended, Log
from .isolation import FetchIsolation

_HIGH_WATERMARK = FetchIsolation.HIGH_WATERMARK  # a member costs a tenth of a microsecond to look up


class Partition:
    """The log of one replica, and what the replicas have agreed on about it. Not frozen: it is the state itself.

    The high watermark is the smallest log end offset of the in-sync set; with one replica it follows each append at
    once. All offsets are exclusive ends except `log_start_offset`. Owner thread only.
    """

    __slots__ = (
        "_replica_ends",
        "broker_id",
        "high_watermark",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        topic_partition: TopicPartition,
        *,
        topic_id: bytes,
        broker_id: int,
        leader: int,
        leader_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        high_watermark: int = 0,
    ) -> None:
        self.log = log
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.broker_id = broker_id
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = tuple(replicas)
        self.isr = tuple(isr)
        self.high_watermark = max(log.log_start_offset, min(high_watermark, log.readable_end))
        self._replica_ends: dict[int, int] = {}
        self._raise_high_watermark()

    @property
    def is_leader(self) -> bool:
        return self.leader == self.broker_id

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed readers stop; the high watermark while nothing is in a transaction."""
        return self.high_watermark

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < self.log.config.min_insync_replicas

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Refuse what only the leader of that epoch may answer; -1 = any epoch (facts D6).

        Raises `ApiError` NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH (the caller is behind) or UNKNOWN_LEADER_EPOCH
        (the caller knows more than we do).
        """
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.leader_epoch}")
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"the leader epoch here is still {self.leader_epoch}")
        if self.leader != self.broker_id:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by broker {self.leader}")

    def append_as_leader(self, records: memoryview, *, now_ms: int, allows_zstd: bool = True) -> Appended:
        """Append one record batch, in place (the log sets offset and epoch in `records`).

        Raises `ApiError` for what the log refuses and `StorageError` when it cannot be written.
        """
        appended = self.log.append(records, leader_epoch=self.leader_epoch, now_ms=now_ms, allows_zstd=allows_zstd)
        self._raise_high_watermark()
        return appended

    def replica_reached(self, broker_id: int, log_end_offset: int) -> bool:
        """A follower has everything below `log_end_offset`; True if that raised the high watermark."""
        self._replica_ends[broker_id] = log_end_offset
        return self._raise_high_watermark()

    def set_in_sync(self, isr: Iterable[int]) -> bool:
        """Replace the in-sync set; True if that raised the high watermark."""
        self.isr = tuple(isr)
        return self._raise_high_watermark()

    def _raise_high_watermark(self) -> bool:
        if self.leader != self.broker_id:
            return False
        end = self.log.readable_end
        if len(self.isr) > 1:
            ends = self._replica_ends
            end = min(end, *(ends.get(replica, 0) for replica in self.isr if replica != self.broker_id))
        if end <= self.high_watermark:
            return False
        self.high_watermark = end
        return True

    def end_for(self, isolation: FetchIsolation) -> int:
        """The offset below which such a reader sees the log."""
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
        """Record batches from the one that holds `offset` up to where such a reader sees, about `max_bytes` of them.

        Empty at that end. With `whole_first_batch` the first batch comes whole even if larger. Raises
        `ApiError` OFFSET_OUT_OF_RANGE below the log start and above the log end.
        """
        self._check_range(offset)
        end = self.end_for(isolation)
        if offset >= end:
            return b""
        return self.log.read(offset, max_bytes=max_bytes, limit=end, whole_first_batch=whole_first_batch).records

    def ready_bytes(self, offset: int, max_bytes: int, isolation: FetchIsolation) -> int:
        """How much `read` could give now, at most `max_bytes`. Raises as `read` does."""
        self._check_range(offset)
        end = self.end_for(isolation)
        return 0 if offset >= end else self.log.available_bytes(offset, end, max_bytes)

    def rolled_past(self, offset: int, isolation: FetchIsolation) -> bool:
        """True if the reader's end is in a newer segment than `offset`: waiting adds nothing to what a read gives."""
        return offset < self.log.segments[-1].base_offset < self.end_for(isolation)

    def _check_range(self, offset: int) -> None:
        log = self.log
        if not log.log_start_offset <= offset <= log.readable_end:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition} has offsets {log.log_start_offset} to {log.readable_end}, not {offset}",
            )

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest leader epoch up to this one, the offset at which it ends); -1 and -1 when unknown (facts B4).

        The epoch of now reaches to the log end even before its first message.
        """
        epochs, end = self.log.epochs, self.log.log_end_offset
        if epoch == self.leader_epoch:
            return epoch, end
        if epochs.latest < epoch < self.leader_epoch:
            return epochs.latest if epochs.entries else epoch, end
        return epochs.end_offset_for(epoch, end)

    def delete_records(self, offset: int) -> int:
        """Drop the records below `offset` (-1 = below the high watermark); returns the new log start offset.

        Raises `ApiError` OFFSET_OUT_OF_RANGE above the high watermark.
        """
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the high watermark is {self.high_watermark}")
        if target > self.log.log_start_offset:
            self.log.advance_start(target)
        return self.log.log_start_offset
