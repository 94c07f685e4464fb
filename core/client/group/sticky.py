"""Assignors that leave with each member what it has, as far as that is fair (KIP-54, KIP-429)."""

from collections.abc import Mapping, Sequence

from ....ports.words import TopicPartition
from .assignor import Shares
from .protocol import Subscription


class StickyAssignor:
    """Balanced, with as few moves as possible."""

    name = "sticky"
    cooperative = False

    def user_data(self, owned: Sequence[TopicPartition], generation_id: int) -> bytes | None:
        raise NotImplementedError

    def assign(self, members: Mapping[str, Subscription], partitions: Mapping[str, int]) -> Shares:
        raise NotImplementedError


class CooperativeStickyAssignor(StickyAssignor):
    """The same in two steps: what moves is first given up, and assigned in the next round."""

    name = "cooperative-sticky"
    cooperative = True
