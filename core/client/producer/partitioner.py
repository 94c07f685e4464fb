"""The interface that chooses a partition for a message whose sender names none."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from ....ports.entropy import Entropy


class Partitioner(ABC):
    """Chooses partitions for one producer. Calls come one at a time; an exception fails the message in question."""

    @property
    def sticky(self) -> bool:
        """True if messages without a key keep to one partition until `next_batch`: runs of them need one call."""
        return False

    def start(self, entropy: Entropy) -> None:  # noqa: B027  # not every partitioner rolls dice
        """Called once before anything else, with the producer's randomness (`entropy`)."""

    @abstractmethod
    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        """Return a number in [0, `partitions`). `available` are the partitions with a leader; it is never empty."""

    def next_batch(self, topic: str, partition: int) -> None:  # noqa: B027  # only sticky partitioners care
        """A batch of that partition has just been completed, or has had its turn of 16 KiB or more, up to `batch.size`:
        the next message without a key may go to another partition."""
