"""All partitions of a broker: they come and go, are appended to and read, and others hear of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...ports.clock import Clock
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.metrics import Metrics
from ...ports.scheduler import Scheduler
from ...ports.storage import StorageError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from ..cluster.change_queue import on_disk
from ..cluster.topics import NO_LEADER, PartitionState
from ..log.log import Log
from ..log.manager import LogManager
from .append import Appends
from .flushes import DurableFlushes
from .local_partitions import LocalPartitions
from .partition import Partition
from .purgatory import Purgatory
from .read import Reads
from .topic_stats import BrokerTopicStats

PARTITIONS_AT_A_TIME = 100
"""So many logs are begun by one piece of work off the owner thread, and taken over in one turn of it."""


@frozen(kw_only=True)
class AssignedReplica:
    """A partition that belongs on this broker, as the cluster has it."""

    key: TopicPartition
    topic_id: bytes
    replicas: Sequence[int]
    state: PartitionState


class Replicas:
    """The replicas of one broker. Owner thread only.

    `unknown` tells why a partition is not here, for whoever asks for it; `report` takes lines for the broker's log.
    """

    def __init__(
        self,
        *,
        broker_id: int,
        logs: LogManager,
        clock: Clock,
        scheduler: Scheduler,
        metrics: Metrics,
        unknown: Callable[[str, int], ApiError],
        report: Callable[[str], None],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._local = LocalPartitions(unknown, report)
        self.partitions: Mapping[tuple[str, int], Partition] = self._local.by_key
        """Those that are open, by topic and number."""
        self.purgatory = Purgatory(scheduler, lambda error: self._local.failed("an answer that waited", error))
        self.stats = BrokerTopicStats(metrics)
        self._flushes = DurableFlushes(logs, self.purgatory)
        self.append = Appends(self._local, self.purgatory, self._flushes, self.stats, clock).append
        self.read = Reads(self._local, self.purgatory, self.stats).read
        self._beginning: set[TopicPartition] = set()
        self._when_opened: list[Callable[[Partition], None]] = []
        self._when_dropped: list[Callable[[Sequence[TopicPartition]], None]] = []
        self._when_led: list[Callable[[Partition], None]] = []
        self._when_resigned: list[Callable[[Partition], None]] = []
        logs.high_watermark_of = self._high_watermark_of
        metrics.gauge(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", lambda: len(self.purgatory)
        )

    # --- finding

    def led(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """A partition that this broker leads. Raises `ApiError`: why it is not here, or as `Partition.check_leader`."""
        return self._local.led(topic, number, current_leader_epoch)

    def is_beginning(self, key: TopicPartition) -> bool:
        """True while the log of a new partition is being made."""
        return key in self._beginning

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        """Report that the disk of a log failed: once, as long as the log is here."""
        self._local.storage_failed(key, error)

    # --- coming and going

    def listen(
        self,
        opened: Callable[[Partition], None],
        dropped: Callable[[Sequence[TopicPartition]], None],
    ) -> None:
        """Have `opened` told of each partition that comes from now on, and `dropped` of those that are no more (some
        of which may never have been open here). Several may listen; they are told in the order in which they came."""
        self._when_opened.append(opened)
        self._when_dropped.append(dropped)

    def listen_leadership(self, led: Callable[[Partition], None], resigned: Callable[[Partition], None]) -> None:
        """Have `led` told of each partition that this broker comes to lead from now on, in each epoch in which it does,
        and `resigned` when it leads one no more."""
        self._when_led.append(led)
        self._when_resigned.append(resigned)

    async def open(self, assigned: Iterable[AssignedReplica]) -> Mapping[str, BarnabasError]:
        """Begin the logs of new partitions, those that are not here yet: a part of a change (`ChangeQueue`).

        Returns why topics have not got all their logs, by name.
        """
        missing = self._missing(assigned)
        failures: dict[str, BarnabasError] = {}
        self._beginning = {each.key for each in missing}
        try:
            for start in range(0, len(missing), PARTITIONS_AT_A_TIME):
                some = missing[start : start + PARTITIONS_AT_A_TIME]
                await self._begin_logs([each for each in some if each.key.topic not in failures], failures)
        finally:
            self._beginning = set()
        return failures

    async def _begin_logs(self, wanted: Sequence[AssignedReplica], failures: dict[str, BarnabasError]) -> None:
        for each in wanted:
            try:
                self._logs.set_aside(each.key)  # what an earlier topic of this name left is not part of the new one
            except StorageError as error:
                failures.setdefault(each.key.topic, error)
        creation = self._logs.begin_create(
            {each.key: each.topic_id for each in wanted if each.key.topic not in failures}
        )
        try:
            await on_disk(creation)
        finally:
            errors = self._logs.end_create(creation)
        for key, failure in errors.items():
            failures.setdefault(key.topic, failure)
        for each in wanted:
            log = self._logs.get(each.key)
            if log is not None and each.key not in errors:
                self._take(each, log)

    def reopen(self, assigned: Iterable[AssignedReplica]) -> None:
        """Open logs after a start. What cannot be opened is reported, and answered with an error."""
        for each in self._missing(assigned):
            try:
                self._take(each, self._logs.get(each.key) or self._logs.create(each.key, is_new=False))
            except StorageError as error:
                self._local.failed(f"opening {each.key}", error)

    def _missing(self, assigned: Iterable[AssignedReplica]) -> list[AssignedReplica]:
        return [each for each in assigned if each.key not in self._local.by_key]

    def _take(self, assigned: AssignedReplica, log: Log) -> None:
        key, state = assigned.key, assigned.state
        partition = self._local.by_key[key] = Partition(
            log,
            key,
            topic_id=assigned.topic_id,
            broker_id=self._broker_id,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            replicas=assigned.replicas,
            isr=state.isr,
            high_watermark=self._logs.high_watermark(key),
        )
        for told in self._when_opened:
            told(partition)
        for told in self._when_led if partition.is_leader else ():
            told(partition)

    def drop(self, keys: Sequence[TopicPartition]) -> bool:
        """Forget partitions and remove their logs; whoever waits for them is answered.

        False: some logs are still there, which is reported.
        """
        removed = [self._drop(key) for key in keys]
        for told in self._when_dropped:
            told(keys)
        return all(removed)

    def _drop(self, key: TopicPartition) -> bool:
        partition = self._local.remove(key)
        if partition is not None:
            was_leader, partition.leader = partition.is_leader, NO_LEADER
            for told in self._when_resigned if was_leader else ():
                told(partition)
            self.purgatory.check(key)
        self._flushes.forget(key)
        try:
            self._logs.delete(key)
        except StorageError as error:
            self._local.failed(f"removing the log of {key}", error)
            return False
        return True

    # --- records

    def delete_records(self, topic: str, number: int, offset: int) -> int:
        """Drop the records below `offset` (-1 = below the high watermark); returns the new log start offset.

        Raises `ApiError`: as `led`, POLICY_VIOLATION for a topic that deletes nothing, OFFSET_OUT_OF_RANGE. Raises
        `StorageError`.
        """
        partition = self.led(topic, number)
        if "delete" not in partition.log.config.cleanup_policy:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "cleanup.policy of the topic does not include delete")
        low_watermark = partition.delete_records(offset)
        self.purgatory.check(partition.topic_partition)
        return low_watermark

    def _high_watermark_of(self, key: TopicPartition) -> int | None:
        partition = self._local.by_key.get(key)
        return None if partition is None else partition.high_watermark
