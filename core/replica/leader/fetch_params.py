"""The parameters of a fetch: the reader, and the rules for each partition that it reads (facts C6, D4)."""

from collections.abc import Callable

from ....ports.broker_api.fetch import DivergingEpoch, FetchPartition, FetchResultPartition
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import size_of
from ....ports.types import Offset
from ...cluster.topics import ReplicaId
from ..partition.fetch_isolation import FetchIsolation
from ..partition.followers import UNKNOWN, FollowerProgress
from ..partition.isr_manager import IsrManager
from ..partition.local_partitions import LocalPartitions
from ..partition.partition import Partition
from ..partition.replication_quota import ReplicationQuotaManager

HEADERS_MAX = 2000
"""The number of batch headers that a fetch reads for a client without zstd, which takes a few milliseconds.

The response ends there, and the client continues from there with the next fetch.
"""

FindPreferredReadReplica = Callable[[Partition, int], int]
"""Returns the replica from which a consumer should read a partition at this offset; -1, or this broker: from here."""


class FetchParams:
    """The parameters of a consumer's fetch. Not frozen: it counts the headers that are left."""

    __slots__ = ("anywhere", "headers_left", "is_plain", "isolation", "nearest")

    def __init__(
        self,
        isolation: FetchIsolation,
        *,
        allows_zstd: bool,
        anywhere: bool = False,
        nearest: FindPreferredReadReplica | None = None,
    ) -> None:
        self.isolation = isolation
        self.headers_left: int | None = None if allows_zstd else HEADERS_MAX
        """The number of headers that may still be read for it; None: the client knows zstd."""
        self.anywhere = anywhere
        """True if the consumer may read from a follower."""
        self.nearest = nearest
        self.is_plain = nearest is None
        """True if only `check_readable` can refuse it the records of a leader."""

    def again(self) -> None:
        """Prepare for a second read, after a wait."""
        if self.headers_left is not None:
            self.headers_left = HEADERS_MAX

    def check(self, local: LocalPartitions, partition: Partition, entry: FetchPartition) -> None:
        """Raise `ApiError` where it may not read here: see `LocalPartitions.check_readable` and `check_followed`."""
        if self.anywhere and not partition.is_leader:
            local.check_followed(partition, entry.current_leader_epoch)
        else:
            local.check_readable(partition, entry.current_leader_epoch)

    def without_records(self, partition: Partition, entry: FetchPartition) -> FetchResultPartition | None:
        """Return the response of a partition from which it gets no records here; None: it gets records."""
        if entry.last_fetched_epoch >= 0 and partition.is_leader:  # a follower that lacks records is behind
            diverging = partition.diverging(entry.offset, entry.last_fetched_epoch)
            if diverging is not None and entry.offset >= partition.log.log_start_offset:
                return empty(partition, entry, diverging=diverging)
        if self.nearest is not None and partition.is_leader:
            chosen = self.nearest(partition, entry.offset)
            if chosen not in (-1, partition.broker_id):
                return empty(partition, entry, preferred_read_replica=chosen)
        return None

    def refused(self, partition: Partition | None, entry: FetchPartition, error: ApiError) -> FetchResultPartition:
        """Return the response of a partition whose read has failed.

        A follower whose log ends before the offset is behind, which passes, and answers OFFSET_NOT_AVAILABLE. At
        OFFSET_OUT_OF_RANGE a consumer that takes it for the leader would reset its offset. A consumer that finds damage
        on a follower is sent to the leader, whose copy may be intact.
        """
        code = error.code
        is_behind = partition is not None and not partition.is_leader and entry.offset > partition.log.log_end_offset
        if is_behind and code is ErrorCode.OFFSET_OUT_OF_RANGE:
            code = ErrorCode.OFFSET_NOT_AVAILABLE
        if code is ErrorCode.CORRUPT_MESSAGE and self.anywhere and partition is not None and not partition.is_leader:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return FetchResultPartition(entry.topic, entry.partition, code, topic_id=entry.topic_id)

    def held_back(self, partition: Partition) -> bool:  # noqa: ARG002
        """Return True if it gets no records of the partition for now."""
        return False

    def needs_news(self, partition: Partition) -> bool:  # noqa: ARG002
        """Return True if it must be answered at once, with or without records."""
        return False


class FollowerFetchParams(FetchParams):
    """The parameters of a follower's fetch, whose fetch offsets show its progress."""

    __slots__ = (
        "_isr_manager",
        "_noted",
        "_replica",
        "_throttle",
        "changed",
        "hastens_high_watermark",
        "now_ms",
        "refused_records",
    )

    def __init__(
        self,
        replica: ReplicaId,
        isr_manager: IsrManager,
        throttle: ReplicationQuotaManager,
        now_ms: float,
        *,
        hastens_high_watermark: bool,
    ) -> None:
        super().__init__(FetchIsolation.LOG_END, allows_zstd=True)
        self.is_plain = False
        self._replica = replica
        self._isr_manager = isr_manager
        self._throttle = throttle
        self.now_ms = now_ms
        """The monotonic time of the request."""
        self.hastens_high_watermark = hastens_high_watermark
        """See `ReplicationSettings`."""
        self._noted = False
        self.changed: list[Partition] = []
        """The partitions in which the follower has made progress that requests may wait for."""
        self.refused_records: list[tuple[Partition, int]] = []
        """The offsets at which it fetches the same records again: it may have found them damaged."""

    def again(self) -> None:
        self._noted = True

    def check(self, local: LocalPartitions, partition: Partition, entry: FetchPartition) -> None:  # noqa: ARG002
        """Raise `ApiError` where this broker is not the leader as far as it knows, with or without the lease.

        A follower that knows of a later leader does not fetch here. See docs/design/replication.md, 'Without the
        coordination service'.
        """
        partition.check_leader(entry.current_leader_epoch)

    def without_records(self, partition: Partition, entry: FetchPartition) -> FetchResultPartition | None:
        # A follower whose broker epoch is unknown may read; its progress is not counted.
        follower = self._follower(partition) if self._replica.broker_epoch >= 0 else None
        result = super().without_records(partition, entry)
        if result is None and not self._noted and follower is not None:
            self.note(partition, follower, entry)
        if result is None and self.held_back(partition):
            return empty(partition, entry)
        return result

    def is_of(self, follower: FollowerProgress) -> bool:
        """Return True if this is the progress of the follower that fetches, in its present broker epoch."""
        return follower.broker_epoch == self._replica.broker_epoch

    def note(self, partition: Partition, follower: FollowerProgress, entry: FetchPartition) -> None:
        """Count the progress that the follower shows with this fetch."""
        before = follower.log_start
        if entry.offset == follower.given_at:
            self.refused_records.append((partition, entry.offset))
        risen = partition.follower_fetched(follower, entry.offset, entry.log_start_offset, self.now_ms)
        risen = self._isr_manager.maybe_expand_isr(partition, follower, self.now_ms) or risen
        if risen or before != follower.log_start:
            self.changed.append(partition)

    def _follower(self, partition: Partition) -> FollowerProgress:
        if partition.followers is None:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition.topic_partition} has no followers")
        return partition.followers.of(self._replica)

    def refused(self, partition: Partition | None, entry: FetchPartition, error: ApiError) -> FetchResultPartition:
        """Return the response of a failed read; OFFSET_OUT_OF_RANGE includes the range, to save a second request."""
        if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or partition is None:
            return super().refused(partition, entry, error)
        log = partition.log
        return FetchResultPartition(
            entry.topic,
            entry.partition,
            error.code,
            log_start_offset=log.log_start_offset,
            diverging=DivergingEpoch(log.epochs.latest, log.log_end_offset),
            topic_id=entry.topic_id,
        )

    def answered(self, partition: Partition, result: FetchResultPartition, *, is_taken: bool = True) -> None:
        """Record the response for the partition; `is_taken` off: the follower is sure to skip it."""
        follower = self._known(partition)
        if follower is not None:
            if is_taken:
                follower.sent_high_watermark = Offset(result.high_watermark)
                follower.sent_log_start = Offset(result.log_start_offset)
            follower.given_at = follower.log_end if is_taken and size_of(result.records) else UNKNOWN
            if not partition.is_in_sync(follower):
                self._throttle.spend(partition, size_of(result.records))

    def held_back(self, partition: Partition) -> bool:
        if not self._throttle.holds(partition):
            return False
        follower = self._known(partition)
        return follower is not None and not partition.is_in_sync(follower)

    def needs_news(self, partition: Partition) -> bool:
        """Return True if the follower lacks a log start, or a high watermark that it must have at once, or if it
        follows no longer and must learn that.
        """
        if self._replica.broker_epoch < 0:
            return False
        follower, start = self._known(partition), partition.log.log_start_offset
        if follower is None:
            return True
        if self.hastens_high_watermark and follower.sent_high_watermark < partition.high_watermark:
            return True
        return follower.sent_log_start < start

    def _known(self, partition: Partition) -> FollowerProgress | None:
        """Return what the leader knows of the follower; None if it follows no longer, or its broker epoch is over or
        unknown."""
        return None if partition.followers is None else partition.followers.known(self._replica)


def empty(
    partition: Partition,
    entry: FetchPartition,
    *,
    diverging: DivergingEpoch | None = None,
    preferred_read_replica: int = -1,
) -> FetchResultPartition:
    return FetchResultPartition(
        entry.topic,
        entry.partition,
        ErrorCode.NONE,
        partition.high_watermark,
        partition.last_stable_offset,
        partition.log.log_start_offset,
        diverging=diverging,
        preferred_read_replica=preferred_read_replica,
        topic_id=entry.topic_id,
    )
