"""The assignment of partitions: pure functions that every group member computes for itself (facts A8, steps 2-5)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from ...ports.errors import ConfigError
from .registry.group import GroupView
from .registry.layout import BrokerPartition, thread_id


class Rebalancer(Protocol):
    """A way to share out the partitions of a topic.

    Stateless and without chance: every member of the group must get the same answer from the same input, whatever its
    order. So all members of a group need the same one. The registries do not hold which one a member has; members that
    differ find partitions owned that they want, and fail to rebalance.
    """

    def assign(
        self, threads: Sequence[str], places: Sequence[BrokerPartition]
    ) -> Mapping[str, Sequence[BrokerPartition]]:
        """Thread → its partitions, of one topic: each goes to exactly one of `threads`; who is left out gets none.

        It runs on a worker thread, at each rebalance. What it raises makes that attempt fail.
        """
        ...


class RangeRebalancer:
    """The rebalancer of 0.7: threads and partitions are sorted as strings, and cut into one range for each thread.

    Guaranteed:

    - Every partition has one owner, shares differ by one partition at most, and the order of the input does not matter.
    - Brokers. The partitions of a broker stand side by side, so with T threads that own something and B brokers there
      are at most T + B - 1 pairs of a thread and a broker it reads from (at least max(T, B) whatever the algorithm).
      Where each broker has n partitions or more, a thread with k ≥ 2 of them reads from at most 2 + (k - 2) div n
      brokers.
    - Moves. When one thread joins, a partition stays or moves to the neighbour in the direction of the newcomer; when
      it leaves, the other way. Of P partitions at most P / 2 + (T + 1)² / 8 move, T counting the threads without the
      one that comes or goes. That is more than the newcomer's share: the price of ranges that need no memory of the
      last ones.
    """

    def assign(self, threads: Sequence[str], places: Sequence[BrokerPartition]) -> dict[str, list[BrokerPartition]]:
        """Return the sorted partitions of each thread; an empty list for a thread that gets none."""
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


def own_share(
    view: GroupView, consumer_id: str, rebalancer: Rebalancer
) -> dict[str, dict[str, Sequence[BrokerPartition]]]:
    """Return the partitions of each thread of this consumer, by topic; {} if the consumer is not registered.

    Raises `ConfigError` for an answer that does not share out each partition once, among the threads.
    """
    shares = {}
    for topic, streams in view.consumers.get(consumer_id, {}).items():
        threads, places = view.threads(topic), view.places(topic)
        everyone = rebalancer.assign(threads, places)
        if threads:
            _check(topic, rebalancer, everyone, threads, places)
        own = (thread_id(consumer_id, number) for number in range(streams))
        shares[topic] = {thread: everyone.get(thread, []) for thread in own}
    return shares


def _check(
    topic: str,
    rebalancer: Rebalancer,
    shares: Mapping[str, Sequence[BrokerPartition]],
    threads: Sequence[str],
    places: Sequence[BrokerPartition],
) -> None:
    given, wanted = Counter(place for found in shares.values() for place in found), set(places)
    strangers = sorted(shares.keys() - set(threads))
    wrong = sorted(place for place in given.keys() | wanted if given[place] != 1 or place not in wanted)
    if strangers or wrong:
        what = f"a thread {strangers[0]!r:.100}" if strangers else f"partition {wrong[0]} {given[wrong[0]]} times"
        raise ConfigError(
            f"rebalance.strategy {type(rebalancer).__name__} answers for topic {topic} with {what}: "
            "it is to give each partition to one thread of the group"
        )


def _utf16(text: str) -> bytes:
    """Sorts as Java does, so that members of both kinds agree also on names beyond the first 65,536 characters."""
    return text.encode("utf-16-be", "surrogatepass")
