"""The partitions that live on one broker: looked up, and complained about."""

from collections.abc import Callable

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.storage import StorageError, StorageFull, StorageReadOnly
from ...ports.words import TopicPartition
from .partition import Partition


class LocalPartitions:
    """Owner thread only.

    `unknown` tells why a partition is not here, for whoever asks for it; `report` takes lines for the broker's log.
    `lease_valid` tells if the broker may still act as leader: nobody can have elected another one. `broken` is told of
    a partition whose disk has failed; a full disk has not, and where there is no `broken` nothing comes of it.
    """

    def __init__(
        self,
        unknown: Callable[[str, int], ApiError],
        report: Callable[[str], None],
        lease_valid: Callable[[], bool] | None = None,
    ) -> None:
        self.by_key: dict[tuple[str, int], Partition] = {}
        self.unknown = unknown
        self.broken: Callable[[Partition], None] | None = None
        self._lease_valid = lease_valid
        self.has_lease = lease_valid is not None
        """Others could lead in place of this broker, once its lease is over."""
        self._report = report
        self._failing: set[TopicPartition] = set()

    def led(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """A partition that this broker leads. Raises `ApiError`: why it is not here, or as `check_led`."""
        partition = self.by_key.get((topic, number))
        if partition is None:
            raise self.unknown(topic, number)
        if partition.leader != partition.broker_id or current_leader_epoch >= 0 or self.has_lease:
            self.check_led(partition, current_leader_epoch)
        return partition

    def leads(self, topic: str, number: int) -> bool:
        """True where `led` finds it."""
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
        """Raises `ApiError` as `Partition.check_leader`, and NOT_LEADER_OR_FOLLOWER when the lease is over."""
        partition.check_leader(current_leader_epoch)
        if self._lease_valid is not None and not self._lease_valid():
            text = f"{partition.topic_partition} may have another leader: this broker has lost touch with the cluster"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def check_followed(self, partition: Partition, current_leader_epoch: int = -1) -> None:
        """Raises `ApiError` as `Partition.check_replica`, and NOT_LEADER_OR_FOLLOWER when the lease is over: who is cut
        off would have its readers wait for messages that come to others."""
        partition.check_replica(current_leader_epoch)
        if not self.may_lead():
            text = f"{partition.topic_partition} is not followed here: this broker has lost touch with the cluster"
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)

    def may_lead(self) -> bool:
        """False when the lease is over."""
        return self._lease_valid is None or self._lease_valid()

    def failed(self, what: str, error: BaseException) -> None:
        """Report something that should not have happened."""
        self._report(f"{what} failed: {type(error).__name__}: {error}")

    def tell(self, line: str) -> None:
        """Report something that a person should know."""
        self._report(line)

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        """Report that the disk of a log failed: once, as long as the log is here."""
        if key not in self._failing:
            self._failing.add(key)
            self._report(f"{key}: {error}")
        partition = self.by_key.get(key)
        if partition is not None and self.broken is not None and not isinstance(error, StorageFull | StorageReadOnly):
            self.broken(partition)

    def remove(self, key: TopicPartition) -> Partition | None:
        """Forget a partition, and that it failed."""
        self._failing.discard(key)
        return self.by_key.pop(key, None)
