"""The partitions that live on one broker: looked up, and complained about."""

from collections.abc import Callable

from ...ports.errors import ApiError
from ...ports.storage import StorageError
from ...ports.words import TopicPartition
from .partition import Partition


class LocalPartitions:
    """Owner thread only.

    `unknown` tells why a partition is not here, for whoever asks for it; `report` takes lines for the broker's log.
    """

    def __init__(self, unknown: Callable[[str, int], ApiError], report: Callable[[str], None]) -> None:
        self.by_key: dict[tuple[str, int], Partition] = {}
        self.unknown = unknown
        self._report = report
        self._failing: set[TopicPartition] = set()

    def led(self, topic: str, number: int, current_leader_epoch: int = -1) -> Partition:
        """A partition that this broker leads. Raises `ApiError`: why it is not here, or as `Partition.check_leader`."""
        partition = self.by_key.get((topic, number))
        if partition is None:
            raise self.unknown(topic, number)
        partition.check_leader(current_leader_epoch)
        return partition

    def failed(self, what: str, error: BaseException) -> None:
        """Report something that should not have happened."""
        self._report(f"{what} failed: {type(error).__name__}: {error}")

    def storage_failed(self, key: TopicPartition, error: StorageError) -> None:
        """Report that the disk of a log failed: once, as long as the log is here."""
        if key not in self._failing:
            self._failing.add(key)
            self._report(f"{key}: {error}")

    def remove(self, key: TopicPartition) -> Partition | None:
        """Forget a partition, and that it failed."""
        self._failing.discard(key)
        return self.by_key.pop(key, None)
