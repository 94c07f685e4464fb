"""The built-in rebalance strategies."""

from collections.abc import Mapping, Sequence

from ...core.client.rebalance import RebalanceStrategy
from ...ports.words import TopicPartition


class RangeStrategy:
    """Per topic: members in order of their ids get consecutive ranges, the first ones one more (facts A8, step 5)."""

    def assign(
        self, members: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
    ) -> dict[str, list[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
        for topic in sorted(partitions):
            takers = [member for member in shares if topic in members[member]]
            if not takers:
                continue
            owned = sorted(partitions[topic])
            each, over = divmod(len(owned), len(takers))
            start = 0
            for place, member in enumerate(takers):
                end = start + each + (place < over)
                shares[member] += [TopicPartition(topic, p) for p in owned[start:end]]
                start = end
        return shares


class RoundRobinStrategy:
    """All partitions of all topics in turn to the members that subscribed to them."""

    def assign(
        self, members: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
    ) -> dict[str, list[TopicPartition]]:
        shares: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
        order = list(shares)
        turn = 0
        for topic in sorted(partitions):
            if not any(topic in topics for topics in members.values()):
                continue
            for partition in sorted(partitions[topic]):
                while topic not in members[order[turn % len(order)]]:
                    turn += 1
                shares[order[turn % len(order)]].append(TopicPartition(topic, partition))
                turn += 1
        return shares


_STRATEGIES: dict[str, type[RangeStrategy] | type[RoundRobinStrategy]] = {
    "range": RangeStrategy,
    "roundrobin": RoundRobinStrategy,
}

REBALANCE_NAMES = tuple(_STRATEGIES)


def builtin_rebalance_strategy(name: str) -> RebalanceStrategy | None:
    """The strategy of that name, or None."""
    made = _STRATEGIES.get(name)
    return None if made is None else made()
