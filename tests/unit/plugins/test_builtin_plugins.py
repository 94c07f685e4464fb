"""The built-in plugins run the suites of their kinds."""

from itertools import pairwise

import pytest

from barnabas.adapters.system import SeededEntropy
from barnabas.core.client.producer.handlers import CallbackHandler, EventHandler
from barnabas.core.client.producer.partitioner import Partitioner
from barnabas.plugins.builtin.encoders import BytesSerde, JsonSerde, StringSerde
from barnabas.plugins.builtin.partitioners import builtin_partitioner
from barnabas.testing.contracts.encoder import SerdeContract
from barnabas.testing.contracts.handlers import CallbackHandlerContract, EventHandlerContract
from barnabas.testing.contracts.partitioner import PartitionerContract


class TestBytes(SerdeContract):
    encoder = decoder = BytesSerde()
    samples = (b"", b"abc", bytes(1000))
    refused = ("text", 1, ["list"])

    def test_other_buffers_become_bytes(self) -> None:
        assert self.encoder.encode("t", bytearray(b"x")) == self.encoder.encode("t", memoryview(b"x")) == b"x"


class TestString(SerdeContract):
    encoder = decoder = StringSerde()
    samples = ("", "abc", "žluťoučký kůň", "😀")
    refused = (b"bytes", 1, "\ud800")


class TestJson(SerdeContract):
    encoder = decoder = JsonSerde()
    samples = ({"a": [1, 2.5, None, "é"]}, [], "text", 0, False)
    refused = (b"bytes", object(), {"at": [object()]}, {(1, 2): 3})

    def test_json_encoder_writes_compact_utf_8(self) -> None:
        assert self.encoder.encode("t", {"a": "é"}) == '{"a":"é"}'.encode()


class TestMurmur2(PartitionerContract):
    by_key = True

    def make(self) -> Partitioner:
        return _builtin("murmur2")


class TestMurmur2Random(PartitionerContract):
    by_key = True

    def make(self) -> Partitioner:
        return _builtin("murmur2_random")


class TestConsistent(PartitionerContract):
    by_key = True
    spreads_none = False

    def make(self) -> Partitioner:
        return _builtin("crc32")


class TestConsistentRandom(PartitionerContract):
    by_key = True

    def make(self) -> Partitioner:
        return _builtin("consistent_random")


class TestRandom(PartitionerContract):
    def make(self) -> Partitioner:
        return _builtin("random")


class TestRoundRobin(PartitionerContract):
    def make(self) -> Partitioner:
        return _builtin("round_robin")

    def test_topics_take_turns_of_their_own(self) -> None:
        partitioner = self._started()
        first = [partitioner.partition("a", None, b"", 3, range(3)) for _ in range(3)]
        for _ in range(2):
            partitioner.partition("b", None, b"", 3, range(3))
        assert [partitioner.partition("a", None, b"", 3, range(3)) for _ in range(3)] == first


class TestSticky(PartitionerContract):
    def make(self) -> Partitioner:
        return _builtin("sticky")

    def test_sticky_partitioner_moves_after_complete_batch(self) -> None:
        partitioner = self._started()
        first = partitioner.partition("t", None, b"", 5, range(5))
        assert {partitioner.partition("t", None, b"", 5, range(5)) for _ in range(50)} == {first}
        partitioner.next_batch("t", (first + 1) % 5)
        assert partitioner.partition("t", None, b"", 5, range(5)) == first
        partitioner.next_batch("t", first)
        assert partitioner.partition("t", None, b"", 5, range(5)) != first

    def test_sticky_partitioner_gives_each_partition_a_turn_in_each_round(self) -> None:
        partitioner = self._started()
        chosen = []
        for _ in range(30):
            chosen.append(partitioner.partition("t", None, b"", 5, range(5)))
            partitioner.next_batch("t", chosen[-1])
        assert all(sorted(chosen[at : at + 5]) == [0, 1, 2, 3, 4] for at in range(0, 30, 5))
        assert len({tuple(chosen[at : at + 5]) for at in range(0, 30, 5)}) > 1, "another order in each round"
        assert all(first != second for first, second in pairwise(chosen))

    def test_sticky_partitioner_leaves_partition_without_leader(self) -> None:
        partitioner = self._started()
        first = partitioner.partition("t", None, b"", 3, range(3))
        others = [p for p in range(3) if p != first]
        assert partitioner.partition("t", None, b"", 3, others) in others


class TestHandlers(CallbackHandlerContract, EventHandlerContract):
    def make_callbacks(self) -> CallbackHandler:
        return CallbackHandler()

    def make_events(self) -> EventHandler:
        return EventHandler()


@pytest.mark.parametrize(
    ("name", "key", "partition"),
    [
        # librdkafka hashes an empty or missing key like any other, except in the partitioners that say random.
        ("crc32", None, 0),
        ("crc32", b"", 0),
        ("crc32", b"foobar", 0x9EF61F95 % 7),
        ("murmur2", b"foobar", (-790332482 & 0x7FFFFFFF) % 7),
    ],
)
def test_builtin_partitioners_match_known_partitions(name: str, key: bytes | None, partition: int) -> None:
    assert _builtin(name).partition("t", key, b"", 7, range(7)) == partition


def test_an_empty_key_counts_as_none_only_for_consistent_random() -> None:
    chosen = {_builtin("consistent_random", seed).partition("t", b"", b"", 50, range(50)) for seed in range(20)}
    assert len(chosen) > 5
    assert len({_builtin("murmur2_random", seed).partition("t", b"", b"", 50, range(50)) for seed in range(20)}) == 1


def _builtin(name: str, seed: int = 1) -> Partitioner:
    made = builtin_partitioner(name)
    assert made is not None
    made.start(SeededEntropy(seed))
    return made
