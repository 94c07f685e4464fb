"""How the partitions of topics are shared out among the members of a group."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ...ports.words import TopicPartition


class RebalanceStrategy(Protocol):
    """A pure function of what every member knows, so that all come to the same result."""

    def assign(
        self, members: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Sequence[TopicPartition]]:
        """Member → its partitions; `members`: member id → topics subscribed to, `partitions`: topic → its partitions.

        Every member is in the answer. Every partition of a topic that someone subscribed to goes to exactly one member.
        """
        ...
