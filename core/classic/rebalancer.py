"""Who owns which partition: a pure function that every member of a group computes for itself (facts A8, steps 2-5).

Threads and partitions of a topic are sorted as strings and cut into as many ranges as there are threads. Guaranteed:

- Every partition has one owner, shares differ by one partition at most, and the order of the input does not matter.
- Brokers. The partitions of a broker stand side by side, so with T threads that own something and B brokers there are
  at most T + B - 1 pairs of a thread and a broker it reads from (at least max(T, B) whatever the algorithm). Where
  each broker has n partitions or more, a thread with k ≥ 2 of them reads from at most 2 + (k - 2) div n brokers.
- Moves. When one thread joins, a partition stays or moves to the neighbour in the direction of the newcomer; when it
  leaves, the other way. Of P partitions at most P / 2 + (T + 1)² / 8 move, T counting the threads without the one that
  comes or goes. That is more than the newcomer's share: the price of ranges that need no memory of the last ones.
"""

from collections.abc import Mapping, Sequence

from ...ports.values import frozen
from .registry.layout import BrokerPartition, ClassicBroker


def thread_id(consumer_id: str, number: int) -> str:
    """The name of one stream of a consumer; numbers count from 0 in each topic."""
    return f"{consumer_id}-{number}"


def assign(threads: Sequence[str], places: Sequence[BrokerPartition]) -> dict[str, list[BrokerPartition]]:
    """Every thread's partitions of one topic, as sorted; an empty list for a thread that is left without."""
    takers = sorted(set(threads), key=_utf16)
    if not takers:
        return {}
    ordered = sorted(set(places), key=str)
    each, over = divmod(len(ordered), len(takers))
    shares = {}
    start = 0
    for position, thread in enumerate(takers):
        end = start + each + (position < over)
        shares[thread] = ordered[start:end]
        start = end
    return shares


def _utf16(text: str) -> bytes:
    """Sorts as Java does, so that members of both kinds agree also on names beyond the first 65,536 characters."""
    return text.encode("utf-16-be", "surrogatepass")


@frozen(kw_only=True)
class GroupView:
    """What one member reads from the registries before it rebalances. Only live brokers count."""

    consumers: Mapping[str, Mapping[str, int]]
    """Consumer id → topic → number of streams."""
    partitions: Mapping[str, Mapping[int, int]]
    """Topic → broker id → number of partitions."""
    brokers: Mapping[int, ClassicBroker]

    def threads(self, topic: str) -> list[str]:
        """The ids of all threads in the group that want the topic."""
        return [
            thread_id(consumer_id, number)
            for consumer_id, streams in self.consumers.items()
            for number in range(streams.get(topic, 0))
        ]

    def places(self, topic: str) -> list[BrokerPartition]:
        """The partitions of the topic."""
        counts = self.partitions.get(topic, {})
        return [BrokerPartition(broker_id, number) for broker_id, count in counts.items() for number in range(count)]


def own_share(view: GroupView, consumer_id: str) -> dict[str, dict[str, list[BrokerPartition]]]:
    """Topic → each thread of this consumer → its partitions, maybe none; {} for a consumer that is not registered."""
    shares = {}
    for topic, streams in view.consumers.get(consumer_id, {}).items():
        everyone = assign(view.threads(topic), view.places(topic))
        own = (thread_id(consumer_id, number) for number in range(streams))
        shares[topic] = {thread: everyone[thread] for thread in own}
    return shares
