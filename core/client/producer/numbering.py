"""What the sender asks of who numbers its batches: an idempotent producer's identity, or a transaction."""

from typing import NamedTuple, Protocol

from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ..effects import Poll
from .producer_batch import ProducerBatch


class Refusal(NamedTuple):
    """Why batches that are not in flight will not be sent; `tried`: those that were sent before neither."""

    error: BarnabasError
    tried: bool = True


class SequenceAssigner(Protocol):
    """Used by the sender, on the reactor's thread only; all but `number` under the lock, if there is one."""

    def poll(self, now_ms: float) -> Poll: ...

    def prepare(self) -> bool:
        """True if batches can be sent this turn."""
        ...

    def admits(self, place: TopicPartition) -> bool:
        """True if batches of that partition can be sent now; where not, the way there is opened if that is possible."""
        ...

    def number(self, batch: ProducerBatch) -> None:
        """Give the batch its numbers, unless it has them. After `prepare` has said yes, and for that turn only."""
        ...

    def take_back(self, batch: ProducerBatch) -> None:
        """The batch has certainly not been appended and will not be sent as it is: its numbers are free again."""
        ...

    def give_up(self, batch: ProducerBatch) -> None:
        """The batch is not sent again, and nobody knows if it was appended."""
        ...

    def lost_count(self, batch: ProducerBatch) -> bool:
        """The broker knows other numbers than we do. True if the batch is to be sent again, with new ones."""
        ...

    def failed(self, error: BarnabasError) -> None:
        """Messages have failed with this."""
        ...

    def take_refusal(self) -> Refusal | None:
        """Why sending is no use now; asked each turn."""
        ...
