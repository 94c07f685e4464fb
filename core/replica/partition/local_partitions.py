"""The open partitions of one broker, and the checks of leadership and lease."""

from collections.abc import Callable

from ....ports.clock import Clock
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.storage import StorageError, StorageFull, StorageReadOnly
from ....ports.types import TopicPartition
from ...log.partition_log.unified_log import UnifiedLog
from .partition import Partition

_REPAIR_WAIT_MS = 130_000.0
"""Batches of producers are appended after this time without a repair: perhaps no replica has the damaged records. It is
longer than delivery.timeout.ms, after which no batch is sent again."""


class LocalPartitions:
    """The open partitions. Owner thread only.

    `unknown` returns the error for a partition that is not here; `report` takes lines for the broker's log.
    `lease_valid` returns True if the broker may still act as leader: no other one can have been elected. `broken`
    (settable) is called with a partition whose disk has failed, but not for a full or read-only disk.

    A leader checks one of three conditions (docs/design/replication.md, 'Without the coordination service'):

    - `check_led`: the lease is valid. Required by everything that counts as soon as this broker has done it.
    - `check_readable`: the lease is valid, or the ISR still fetches here. Required by reads below the high watermark.
    - `led_for_append`: `check_led` for acks=0 and acks=1; acks=all is also accepted while two or more replicas are in
      sync and the ISR still fetches here. Their fetches decide what is committed, with or without the lease.
    """

    def __init__(
        self,
        unknown: Callable[[str, int], ApiError],
        report: Callable[[str], None],
        lease_valid: Callable[[], bool] | None = None,
        *,
        clock: Clock,
        isr_silence_max_ms: float,
        on_offline: Callable[[Partition], None] | None = None,
    ) -> None:
        """Create it without partitions.

        `isr_silence_max_ms`: without the lease, a member of the ISR that has not fetched for longer may follow another
        leader. `on_offline` is called with a partition whose log can no longer be used; without it, it stays online.
        """
        self._clock = clock
        self._isr_silence_max_ms = isr_silence_max_ms
        self.by_key: dict[tuple[str, int], Partition] = {}
        self.unknown = unknown
        self._on_offline = on_offline
        self._suspicion_listeners: list[Callable[[UnifiedLog, int], None]] = []
        self._hidden_since: dict[TopicPartition, tuple[UnifiedLog, int, float]] = {}
        """Since when a log with damage that hides batches of producers waits for a repair, in a leader epoch: a
        follower's wait, before local retention, does not count for the batches that it refuses as a leader."""
        self._lease_valid = lease_valid
        self.has_lease = lease_valid is not None
        """True if another broker could lead in place of this one after the end of its lease."""
        self._report = report
        self._failing: set[TopicPartition] = set()

    def add_suspicion_listener(self, listener: Callable[[UnifiedLog, int], None]) -> None:
        """Call `listener` with the log and an offset whose records could not be read, here or by a follower."""
        self._suspicion_listeners.append(listener)

    def suspect(self, log: UnifiedLog, offset: int) -> None:
        """Report that the records at an offset of a log could not be read."""
        for listener in self._suspicion_listeners:
            listener(log, offset)

    def check_producers_known(self, partition: Partition) -> None:
        """Refuse what a producer or the coordinator of its transaction sends for a while, if damage hides batches and
        markers from this leader: it could not notice a repetition or a late marker. Raises `ApiError`
        NOT_ENOUGH_REPLICAS."""
        if self.awaits_producers(partition):
            at = partition.log.hidden_producers_at[0]
            text = f"{partition.topic_partition} is damaged at {at}, and may have this batch there"
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, text)

    def awaits_producers(self, partition: Partition) -> bool:
        """Return True if damage hides batches of producers from this replica, and request a repair from another one,
        which brings them back. False without other replicas, or after a time without a repair."""
        log, now_ms = partition.log, self._clock.monotonic_ms()
        hidden = log.hidden_producers_at
        if not hidden or len(partition.replicas) < 2:
            return False
        known = self._hidden_since.get(partition.topic_partition)
        is_known = known is not None and known[0] is log and known[1] == partition.leader_epoch
        since_ms = known[2] if known is not None and is_known else now_ms
        self._hidden_since[partition.topic_partition] = log, partition.leader_epoch, since_ms
        if now_ms - since_ms > _REPAIR_WAIT_MS:
            return False
        for offset in hidden:
            self.suspect(log, offset)
        return True

    def held(self, topic: str, number: int) -> Partition:
        """Return a partition that has a replica here. Raises the `ApiError` of `unknown` if it has none."""
        partition = self.by_key.get((topic, number))
        if partition is None:
            raise self.unknown(topic, number)
        return partition

    def led(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """Return a partition that this broker leads. Raises the `ApiError` of `unknown`, or as `check_led`."""
        partition = self.held(topic, number)
        if partition.leader != partition.broker_id or current_leader_epoch >= 0 or self.has_lease:
            self.check_led(partition, current_leader_epoch)
        return partition

    def leads(self, topic: str, number: int) -> bool:
        """Return True if `led` would return the partition."""
        partition = self.by_key.get((topic, number))
        if partition is None or partition.leader != partition.broker_id:
            return False
        if self.has_lease:
            try:
                self.check_led(partition)
            except ApiError:
                return False
        return True

    def check_led(self, partition: Partition, current_leader_epoch: int = -1) -> None:
        """Raise `ApiError` as `Partition.check_leader`, and NOT_LEADER_OR_FOLLOWER when the lease is over."""
        partition.check_leader(current_leader_epoch)
        if self._lease_valid is not None and not self._lease_valid():
            raise _may_have_another_leader(partition)

    def led_for_append(self, topic: str, number: int, *, all_in_sync: bool) -> Partition:
        """Return a partition that this broker leads, to append to. Raises `ApiError` as `led`.

        `all_in_sync`: the append counts when the in-sync replicas have it.
        """
        partition = self.by_key.get((topic, number))
        if partition is None:
            raise self.unknown(topic, number)
        if partition.leader == partition.broker_id and not self.has_lease:
            return partition
        partition.check_leader()
        if not (self.may_lead() or (all_in_sync and len(partition.isr) > 1 and self._isr_fetches_here(partition))):
            raise _may_have_another_leader(partition)
        return partition

    def readable(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """Return a partition that this broker leads, to read from.

        Raises the `ApiError` of `unknown`, or as `check_readable`.
        """
        partition = self.by_key.get((topic, number))
        if partition is None:
            raise self.unknown(topic, number)
        self.check_readable(partition, current_leader_epoch)
        return partition

    def check_readable(self, partition: Partition, current_leader_epoch: int = -1) -> None:
        """Raise `ApiError` unless the lease is valid or the ISR still fetches here.

        Raises as `Partition.check_leader`, and NOT_LEADER_OR_FOLLOWER where neither holds. Other
        clients may read from another leader then, and readers here would wait for nothing.
        """
        partition.check_leader(current_leader_epoch)
        if not (self.may_lead() or self._isr_fetches_here(partition)):
            raise _may_have_another_leader(partition)

    def _isr_fetches_here(self, partition: Partition) -> bool:
        """Return True if no member of the ISR is known to follow another leader.

        Where elections may be unclean, this returns False: the next leader need not be one of them.
        """
        if partition.log.config.unclean_leader_election_enable:
            return False
        return partition.isr_fetched_since(self._clock.monotonic_ms() - self._isr_silence_max_ms)

    def check_followed(self, partition: Partition, current_leader_epoch: int = -1) -> None:
        """Raise `ApiError` as `Partition.check_replica`, and NOT_LEADER_OR_FOLLOWER when the lease is over.

        A follower that is cut off would have its readers wait for messages that only other replicas get.
        """
        partition.check_replica(current_leader_epoch)
        if not self.may_lead():
            text = f"{partition.topic_partition} is not followed here: this broker has lost touch with the cluster"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def may_lead(self) -> bool:
        """Return False when the lease is over."""
        return self._lease_valid is None or self._lease_valid()

    def failed(self, what: str, error: BaseException) -> None:
        """Report an unexpected error."""
        self._report(f"{what} failed: {type(error).__name__}: {error}")

    def report(self, line: str) -> None:
        """Write a line into the broker's log."""
        self._report(line)

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        """Report the failed disk of a log, once as long as the log is open."""
        if key not in self._failing:
            self._failing.add(key)
            self._report(f"{key}: {error}")
        partition = self.by_key.get(key)
        if (
            partition is not None
            and self._on_offline is not None
            and not isinstance(error, StorageFull | StorageReadOnly)
        ):
            self._on_offline(partition)

    def remove(self, key: TopicPartition) -> Partition | None:
        """Forget a partition and its failure."""
        self._failing.discard(key)
        self._hidden_since.pop(key, None)
        return self.by_key.pop(key, None)


def _may_have_another_leader(partition: Partition) -> ApiError:
    text = f"{partition.topic_partition} may have another leader: this broker has lost touch with the cluster"
    return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
