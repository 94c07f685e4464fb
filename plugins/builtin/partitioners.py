"""The built-in partitioners."""
# ruff: noqa: ARG002  # a partitioner gets all arguments and uses what it needs

from collections.abc import Callable, Sequence

from ...core.client.producer.hashing import classic_partition, crc32_partition, murmur2_partition
from ...core.client.producer.partitioner import Partitioner
from ...ports.entropy import Entropy


class RandomPartitioner(Partitioner):
    """A partition with a leader, at random, for each message."""

    _entropy: Entropy

    def start(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        return available[self._entropy.below(len(available))]


class RoundRobinPartitioner(Partitioner):
    """The partitions with a leader in turn, per topic, beginning at a random one."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def start(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        turn = self._next.get(topic)
        if turn is None:
            turn = self._entropy.below(len(available))
        self._next[topic] = turn + 1
        return available[turn % len(available)]


class StickyPartitioner(Partitioner):
    """One partition until its turn ends or its batch is sent, then another (KIP-480, KIP-794).

    Every partition has its turn before one has the next; their order is random, and another one in each round.
    """

    def __init__(self) -> None:
        self._current: dict[str, int] = {}
        self._round: dict[str, list[int]] = {}
        """Topic → the partitions that have not had their turn."""

    @property
    def sticky(self) -> bool:
        return True

    def start(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        current = self._current.get(topic, -1)
        if current in available:
            return current
        waiting = self._round.setdefault(topic, [])
        while waiting:
            chosen = waiting.pop()
            if chosen in available:
                break
        else:
            waiting += self._shuffled(available)
            chosen = waiting.pop()
            if chosen == ~current and waiting:
                waiting.insert(0, chosen)  # not twice in a row
                chosen = waiting.pop()
        self._current[topic] = chosen
        return chosen

    def _shuffled(self, available: Sequence[int]) -> list[int]:
        shuffled = list(available)
        for last in range(len(shuffled) - 1, 0, -1):
            other = self._entropy.below(last + 1)
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled

    def next_batch(self, topic: str, partition: int) -> None:
        if self._current.get(topic) == partition:
            self._current[topic] = ~partition  # a negative number: the one to avoid next time


class KeyedPartitioner(Partitioner):
    """A hash of the key; what has no key goes through another partitioner."""

    def __init__(
        self, hashed: Callable[[bytes, int], int], without_key: Partitioner | None, *, empty_is_none: bool = False
    ) -> None:
        """`without_key` None hashes a missing key like an empty one; `empty_is_none` treats an empty key as missing."""
        self.hashed = hashed
        self.without_key = without_key
        self.empty_is_none = empty_is_none

    @property
    def sticky(self) -> bool:
        return self.without_key is not None and self.without_key.sticky

    def start(self, entropy: Entropy) -> None:
        if self.without_key is not None:
            self.without_key.start(entropy)

    def partition(
        self, topic: str, key: bytes | None, value: bytes | None, partitions: int, available: Sequence[int]
    ) -> int:
        if self.without_key is not None and (key is None or (self.empty_is_none and not key)):
            return self.without_key.partition(topic, key, value, partitions, available)
        return self.hashed(key or b"", partitions)

    def next_batch(self, topic: str, partition: int) -> None:
        if self.without_key is not None:
            self.without_key.next_batch(topic, partition)


_MAKERS: dict[str, Callable[[], Partitioner]] = {
    # As Java's client: murmur2 of the key; sticky without one.
    "murmur2": lambda: KeyedPartitioner(murmur2_partition, StickyPartitioner()),
    # As librdkafka's partitioner of the same name.
    "murmur2_random": lambda: KeyedPartitioner(murmur2_partition, RandomPartitioner()),
    "crc32": lambda: KeyedPartitioner(crc32_partition, None),
    "consistent": lambda: KeyedPartitioner(crc32_partition, None),
    "consistent_random": lambda: KeyedPartitioner(crc32_partition, RandomPartitioner(), empty_is_none=True),
    # As Kafka 0.7 with string keys; random without one.
    "classic": lambda: KeyedPartitioner(classic_partition, RandomPartitioner()),
    "random": RandomPartitioner,
    "round_robin": RoundRobinPartitioner,
    "sticky": StickyPartitioner,
}

PARTITIONER_NAMES = tuple(_MAKERS)


def builtin_partitioner(name: str) -> Partitioner | None:
    """Return a new partitioner of that name, or None."""
    maker = _MAKERS.get(name)
    return None if maker is None else maker()
