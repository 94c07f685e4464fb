"""Acknowledgements of the records of one partition, on their way to its leader (Kafka: `Acknowledgements`)."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from attrs import field

from ....ports.broker_api.share_groups import AcknowledgementBatch, AcknowledgeType
from ....ports.errors import BarnabasError
from ....ports.types import TopicPartition
from ....ports.values import define

TopicIdPartition = tuple[bytes, int]
"""A partition by the id of its topic: a topic that is made again with its name is another one."""


CompletionListener = Callable[["PartitionAcknowledgements", BarnabasError | None], None]


@define(eq=False)
class PartitionAcknowledgements:
    """Offset → type of the acknowledgement. The last one for an offset counts, until they are sent."""

    tp: TopicPartition
    types: dict[int, int] = field(factory=dict)
    since_ms: float = 0.0
    """The time at which the first one was added."""
    listeners: list[CompletionListener] = field(factory=list)
    """Called with the result: None, or the error for which none of them had an effect."""
    failures: int = 0
    """The number of times that they were sent without a final answer."""

    @property
    def offsets(self) -> frozenset[int]:
        """The offsets of records; those of gaps, which the user has never seen, are left out."""
        if AcknowledgeType.GAP not in self.types.values():
            return frozenset(self.types)
        return frozenset(offset for offset, kind in self.types.items() if kind != AcknowledgeType.GAP)

    @property
    def has_renewals(self) -> bool:
        return AcknowledgeType.RENEW in self.types.values()

    def add(self, offsets: Iterable[int], kind: int) -> None:
        self.types.update(dict.fromkeys(offsets, kind))

    def prepend(self, earlier: Mapping[int, int]) -> None:
        """Take back acknowledgements that were sent before; those that were added since replace them."""
        self.types = {**earlier, **self.types}

    def drop_renewals(self) -> None:
        """Leave the renewals out, because the session ends."""
        self.types = {offset: kind for offset, kind in self.types.items() if kind != AcknowledgeType.RENEW}

    def batches(self) -> list[AcknowledgementBatch]:
        """Return them in the order of their offsets, one batch for each run without a hole."""
        return [self._batch(run) for run in _runs(sorted(self.types))] if self.types else []

    def _batch(self, run: range) -> AcknowledgementBatch:
        kinds = bytes(map(self.types.__getitem__, run))
        if kinds.count(kinds[0]) == len(kinds):
            kinds = kinds[:1]
        return AcknowledgementBatch(run.start, run.stop - 1, kinds)


def _runs(offsets: list[int]) -> Iterator[range]:
    """Yield the runs of consecutive numbers in a sorted list."""
    start = 0
    while start < len(offsets):
        if offsets[-1] - offsets[start] == len(offsets) - 1 - start:  # the usual case: nothing is missing
            yield range(offsets[start], offsets[-1] + 1)
            return
        end = start + 1
        while offsets[end] == offsets[end - 1] + 1:
            end += 1
        yield range(offsets[start], offsets[end - 1] + 1)
        start = end
