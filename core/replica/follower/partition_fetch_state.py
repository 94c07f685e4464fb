"""The fetch state of one partition that this broker follows (facts D6)."""

from ....ports.broker_api.fetch import DivergingEpoch, FetchPartition, FetchResultPartition
from ....ports.types import Buffer
from ...log.leader_epoch_cache import LeaderEpochCache
from ..partition.partition import Partition

FIRST_BACKOFF_MS = 20.0
"""The back-off after an error. It doubles with each, up to `replica.fetch.backoff.ms`.

The first ones are short: a leader may learn of its leadership a little later than its followers.
"""


class PartitionFetchState:
    """The fetch offset, delay and failures of one partition. Not frozen. Owner thread only; times in ms, monotonic.

    waiting: True while nothing is fetched, since the leader knows a newer epoch. looked_in_tier: True after an attempt
    to begin behind what is in remote storage.
    """

    __slots__ = ("_failures", "leader_epoch", "looked_in_tier", "not_before_ms", "partition", "place", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.place = (partition.topic_id, partition.topic_partition.partition)
        self.leader_epoch = partition.leader_epoch
        self.not_before_ms = float("-inf")
        self.waiting = self.looked_in_tier = False
        self._failures = 0

    def build_fetch(self, max_bytes: int) -> FetchPartition:
        """Return the fetch of the next records."""
        partition = self.partition
        log = partition.log
        return FetchPartition(
            partition.topic_partition.topic,
            partition.topic_partition.partition,
            log.log_end_offset,
            max_bytes,
            self.leader_epoch,
            log.log_start_offset,
            log.epochs.latest,
            partition.topic_id,
        )

    def is_same_fetch(self, asked: FetchPartition) -> bool:
        """Return True if `build_fetch` would return the same fetch."""
        log = self.partition.log
        return (
            asked.offset == log.log_end_offset
            and asked.log_start_offset == log.log_start_offset
            and asked.last_fetched_epoch == log.epochs.latest
        )

    def back_off(self, now_ms: float, longest_ms: float) -> bool:
        """Delay the next fetch after a failure; return True if it is the first since a success."""
        self.not_before_ms = now_ms + min(longest_ms, FIRST_BACKOFF_MS * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return self._failures == 1

    def reset_back_off(self) -> None:
        self._failures = 0


def truncation_offset(epochs: LeaderEpochCache, log_end: int, diverging: DivergingEpoch) -> int:
    """Return the offset up to which a log surely equals the leader's, by the leader's diverging epoch (facts D6).

    Where the leader's epoch is not known here, another round may follow.
    """
    if diverging.end_offset < 0:
        return log_end
    epoch, end = epochs.end_offset_for(diverging.epoch, log_end)
    if end < 0:
        return min(diverging.end_offset, log_end)
    if epoch != diverging.epoch:
        return min(end, log_end)
    return min(end, diverging.end_offset, log_end)


def records_of(result: FetchResultPartition) -> memoryview:
    """Return the record batches of a response, in memory."""
    records: Buffer = (
        result.records if isinstance(result.records, bytes | bytearray | memoryview) else result.records.read()
    )
    return memoryview(records)
