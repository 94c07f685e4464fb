"""The targets of runs and their bytes on the wire, without threads, on the network in memory."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.classic_fake import produced

from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.adapters.transport_memory import MemoryNetwork
from barnabas.adapters.wire_classic.client import connect_classic
from barnabas.core.classic.producer.pool import BrokerPool, PoolSettings
from barnabas.core.classic.producer.run import Run, Wish
from barnabas.core.classic.producer.sender import ProducerSender, SendingSettings
from barnabas.core.classic.registry.directory import Learnt, NoBrokersForPartition
from barnabas.core.classic.registry.layout import BrokerPartition
from barnabas.core.client.errors import EncodeError
from barnabas.core.message.classic.reader import ShallowMessage
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import Codec
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.coordination import CoordinationError
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError
from barnabas.ports.transport import Address, Connection, Limits, TransportError


class PlainDirectory:
    """A directory with fixed contents."""

    def __init__(self, **topics: list[tuple[int, int]]) -> None:
        self.topics = {name: [BrokerPartition(*pair) for pair in pairs] for name, pairs in topics.items()}
        self.live = {0, 1, 2}
        self.asked: list[tuple[str, Learnt]] = []

    def address(self, broker_id: int) -> Address | None:
        return (f"b{broker_id}", 9092) if broker_id in self.live else None

    def places(self, topic: str) -> Sequence[BrokerPartition] | None:
        return self.topics.get(topic)

    def learn(self, topic: str, done: Learnt) -> None:
        self.asked.append((topic, done))

    def close(self) -> None:
        pass


class Node:
    """A broker that keeps the frames of produces, and answers questions about offsets."""

    def __init__(self, bench: "Bench", number: int) -> None:
        self.frames: list[bytes] = []
        self.questions = 0
        self.answers = True
        self.connections: list[Connection] = []
        self.bench = bench
        self.address = (f"b{number}", 9092)
        self.transport = bench.network.transport(f"node-{number}")
        self.listen()

    def listen(self) -> None:
        self.listener = self.transport.listen(self.address, self._accept, Limits())

    def _accept(self, connection: Connection) -> "Node":
        self.connections.append(connection)
        return self

    def on_frame(self, content: memoryview) -> None:
        if bytes(content[:2]) == b"\x00\x04":
            self.questions += 1
            if self.answers:
                self.connections[-1].send([b"\x00\x00" + b"\x00\x00\x00\x01" + bytes(8)])
        else:
            self.frames.append(bytes(content))

    def on_closed(self, error: TransportError | None) -> None:
        pass

    @property
    def shown(self) -> list[tuple[str, int, list[bytes | None]]]:
        return [(s.topic, s.partition, s.values) for frame in self.frames for s in produced(frame)]


class Bench:
    def __init__(
        self,
        directory: PlainDirectory,
        *,
        pool: PoolSettings | None = None,
        settings: SendingSettings | None = None,
        codec: Codec | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock)
        self.network = MemoryNetwork(self.scheduler)
        self.nodes = [Node(self, number) for number in range(3)]
        self.settled: list[tuple[list[Run], BarnabasError | None]] = []
        self.index = 0
        self.attempts = 0
        transport = self.network.transport("producer")

        def connect(address: Address, opened: Any) -> None:
            self.attempts += 1
            connect_classic(
                transport, self.scheduler, address, request_timeout_ms=1000, connect_timeout_ms=1000, opened=opened
            )

        self.pool = BrokerPool(self.scheduler, self.clock, SeededEntropy(1), connect, pool or PoolSettings())
        self.sender = ProducerSender(
            directory,
            self.pool,
            self.scheduler,
            SeededEntropy(2),
            settings or SendingSettings(),
            choose=self._choose,
            codec_for=lambda topic: codec,
            settled=self._settled,
        )

    def _choose(self, run: Run, count: int) -> int:
        if self.index < 0:
            raise EncodeError("the partitioner failed")
        return self.index % count

    def _settled(self, runs: Sequence[Run], error: BarnabasError | None) -> None:
        self.settled.append((list(runs), error))
        for run in runs:
            run.finish(error)

    def send(self, *runs: Run, ms: float = 50) -> None:
        self.sender.dispatch(runs)
        self.scheduler.advance(ms)

    @property
    def errors(self) -> list[type[BaseException] | None]:
        return [None if error is None else type(error) for _, error in self.settled]


def run(topic: str, *values: bytes, key: bytes | None = None, wish: Wish = None) -> Run:
    return Run(topic, list(values), key, wish, sum(map(len, values)))


def test_one_set_is_a_produce_several_for_a_broker_a_multi_produce() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0), (0, 1), (1, 0)], u=[(0, 3)]))
    bench.send(run("t", b"hello"))
    assert bench.nodes[0].frames == [bytes.fromhex("0000 0001 74 00000000 0000000f 0000000b 01 00 3610a686") + b"hello"]
    bench.send(
        run("t", b"a", wish=1), run("u", b"b"), run("t", b"c", wish=BrokerPartition(1, 0)), run("t", b"d", wish=1)
    )
    (frame,) = bench.nodes[0].frames[1:]
    assert frame[:4] == bytes.fromhex("0003 0002")
    assert bench.nodes[0].shown[1:] == [("t", 1, [b"a", b"d"]), ("u", 3, [b"b"])]
    assert bench.nodes[1].frames[0][:2] == b"\0\0"
    assert bench.nodes[1].shown == [("t", 0, [b"c"])]
    assert bench.errors == [None] * 3
    assert bench.sender.messages == 0


def test_the_chosen_index_counts_in_the_sorted_list() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0), (0, 1), (1, 0)]))
    for bench.index in range(3):
        bench.send(run("t", b"%d" % bench.index))
    assert bench.nodes[0].shown == [("t", 0, [b"0"]), ("t", 1, [b"1"])]
    assert bench.nodes[1].shown == [("t", 0, [b"2"])]


def test_the_broker_may_choose_and_a_listed_broker_takes_any_partition() -> None:
    bench = Bench(PlainDirectory(t=[(0, -1)]))
    bench.send(run("t", b"a"), run("t", b"b", wish=4))
    assert bench.nodes[0].shown == [("t", -1, [b"a"]), ("t", 4, [b"b"])]


def test_a_partitioner_that_fails_fails_its_run_only() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0), (1, 0)]))
    bench.index = -1
    bench.send(run("t", b"a"), run("t", b"b", wish=0))
    assert sorted(map(str, bench.errors)) == sorted(map(str, [EncodeError, None]))


def test_runs_wait_in_order_until_their_topic_is_known() -> None:
    directory = PlainDirectory()
    bench = Bench(directory)
    bench.send(run("t", b"1"))
    bench.send(run("t", b"2"))
    assert [topic for topic, _ in directory.asked] == ["t"]
    directory.topics["t"] = [BrokerPartition(0, 0)]
    directory.asked[0][1](None)
    bench.send(run("t", b"3"))
    assert bench.nodes[0].shown == [("t", 0, [b"1", b"2"]), ("t", 0, [b"3"])]


def test_without_a_broker_the_registries_are_read_again_and_then_it_fails() -> None:
    directory = PlainDirectory(t=[])
    bench = Bench(directory, settings=SendingSettings(zk_read_num_retries=2))
    bench.send(run("t", b"1"))
    for count in (1, 2, 3):
        assert len(directory.asked) == count
        assert not bench.settled
        directory.asked[-1][1](None)
        bench.scheduler.advance(1)
    assert len(directory.asked) == 3
    assert bench.errors == [NoBrokersForPartition]
    bench.send(run("t", b"2"))
    assert len(directory.asked) == 4


def test_a_reading_that_fails_is_tried_again_after_a_while() -> None:
    directory = PlainDirectory()
    bench = Bench(directory, settings=SendingSettings(zk_read_num_retries=1))
    bench.send(run("t", b"1"))
    directory.asked[0][1](CoordinationError("away"))
    bench.scheduler.advance(50)
    assert len(directory.asked) == 1
    bench.scheduler.advance(60)
    directory.asked[1][1](CoordinationError("away"))
    assert bench.errors == [CoordinationError]


def test_send_to_unavailable_partition_fails_and_others_are_delivered() -> None:
    directory = PlainDirectory(t=[(0, 0)])
    bench = Bench(directory, settings=SendingSettings(zk_read_num_retries=0))
    bench.send(run("t", b"1", wish=BrokerPartition(9, 0)), run("t", b"2"), run("t", b"3", wish=5))
    directory.asked[0][1](None)
    bench.scheduler.advance(50)
    assert bench.nodes[0].shown == [("t", 0, [b"2"])]
    assert sorted(map(str, bench.errors)) == sorted(map(str, [NoBrokersForPartition, NoBrokersForPartition, None]))


# --- sets


@pytest.mark.parametrize("name", ["gzip", "snappy"])
def test_a_codec_makes_one_wrapper_of_each_partition(name: str) -> None:
    codec = builtin_codecs().by_name(name)
    assert codec is not None
    bench = Bench(PlainDirectory(t=[(0, 0)]), codec=codec)
    bench.send(run("t", b"a", b"b"), run("t", b"c"))
    (only,) = produced(bench.nodes[0].frames[0])
    assert only.codecs == {codec.id}
    assert only.values == [b"a", b"b", b"c"]
    assert len(only.records) == 4 + int.from_bytes(only.records[:4], "big"), "one outer message"


def test_a_wrapper_that_is_too_large_is_divided_and_a_message_that_is_fails() -> None:
    codec = builtin_codecs().by_name("gzip")
    bench = Bench(PlainDirectory(t=[(0, 0)]), codec=codec, settings=SendingSettings(max_message_bytes=200))
    noise = [SeededEntropy(number).token(100) for number in range(4)]
    giant = SeededEntropy(9).token(300)
    bench.send(run("t", *noise), run("t", giant), run("t", b"end"))
    (only,) = produced(bench.nodes[0].frames[0])
    assert only.values == [*noise, b"end"]
    assert [type(error) for _, error in bench.settled] == [ApiError, type(None)]
    assert "MESSAGE_TOO_LARGE" in str(bench.settled[0][1])


def test_compressed_message_is_sent_without_decompression() -> None:
    codec = builtin_codecs().by_name("gzip")
    assert codec is not None
    inner = codec.compress(encode_set([b"x", b"y"]))
    shallow = [
        ShallowMessage(inner, 1, offset=0, topic="", partition=-1),
        ShallowMessage(b"plain", 0, offset=0, topic="", partition=-1),
    ]
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    bench.send(run("t", b"before"), Run("t", shallow, None, None, 50, True), run("t", b"after"))
    (only,) = produced(bench.nodes[0].frames[0])
    assert only.values == [b"before", b"x", b"y", b"plain", b"after"]
    assert inner in only.records


def test_a_request_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.core.classic.producer.sender.REQUEST_BYTES_MAX", 1000)
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    bench.send(*(run("t", bytes([n]) * 400) for n in range(5)))
    assert [len(values) for _, _, values in bench.nodes[0].shown] == [2, 2, 1]


# --- connections


def test_one_connection_per_broker() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0), (1, 0)]))
    for bench.index in (0, 1, 0, 1):
        bench.send(run("t", b"m"))
    assert bench.attempts == 2


def test_sender_reconnects_after_reconnect_interval_requests() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]), pool=PoolSettings(reconnect_interval=2))
    for number in range(5):
        bench.send(run("t", b"%d" % number))
    assert len(bench.nodes[0].connections) == 3
    assert [values for _, _, values in bench.nodes[0].shown] == [[b"%d" % n] for n in range(5)]


def test_sent_requests_are_confirmed_before_a_new_connection_is_used() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]), pool=PoolSettings(reconnect_interval=2))
    node, proofs = bench.nodes[0], list[BarnabasError | None]()
    node.answers = False
    for number in range(3):
        bench.send(run("t", b"%d" % number))
    assert (len(node.connections), node.questions, len(node.shown)) == (1, 1, 2), "the third waits for the answer"
    node.connections[0].send([b"\x00\x00" + b"\x00\x00\x00\x01" + bytes(8)])
    bench.scheduler.run_pending()
    bench.scheduler.advance(10)
    assert (len(node.connections), len(node.shown)) == (2, 3)
    node.answers = True
    bench.pool.prove(proofs.append)
    bench.scheduler.advance(10)
    assert proofs == [None]


def test_a_broker_that_proves_nothing_before_a_reconnect_leaves_an_unknown_outcome() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]), pool=PoolSettings(reconnect_interval=2))
    node, proofs = bench.nodes[0], list[BarnabasError | None]()
    node.answers = False
    for number in range(3):
        bench.send(run("t", b"%d" % number), ms=1000)
    bench.scheduler.advance(2000)
    assert len(node.shown) == 3, "it continues with another connection"
    bench.pool.prove(proofs.append)
    bench.scheduler.advance(10)
    assert [type(proof) for proof in proofs] == [TransportError]


@pytest.mark.parametrize(("interval_ms", "connections"), [(1000, 3), (-1, 1)])
def test_producer_reconnects_after_interval(interval_ms: float, connections: int) -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]), pool=PoolSettings(reconnect_time_interval_ms=interval_ms))
    bench.send(run("t", b"m"))
    for _ in range(2):
        bench.send(run("t", b"m"), ms=1100)
        bench.send(run("t", b"m"))
    assert abs(len(bench.nodes[0].connections) - connections) <= (interval_ms > 0), "the first time is left to chance"


def test_connecting_is_tried_with_back_off_until_the_time_is_over() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    bench.nodes[0].listener.close()
    bench.send(run("t", b"m"), ms=1000)
    assert not bench.settled
    bench.scheduler.advance(2000)
    assert bench.errors == [TransportError]
    assert bench.attempts == 5, "at 0, 1, 11, 111 and 1111 ms; the next would be beyond 5000"


def test_a_broker_that_comes_back_meanwhile_gets_what_waits() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    bench.nodes[0].listener.close()
    bench.send(run("t", b"1"), run("t", b"2"), ms=100)
    bench.nodes[0].listen()
    bench.scheduler.advance(1100)
    assert bench.nodes[0].shown == [("t", 0, [b"1", b"2"])]
    assert bench.errors == [None]


def test_a_connection_that_was_lost_before_is_made_again_unnoticed() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    bench.send(run("t", b"1"))
    bench.network.lose_connections("producer")
    bench.scheduler.advance(1)
    bench.send(run("t", b"2"))
    assert bench.errors == [None, None]
    assert bench.nodes[0].shown == [("t", 0, [b"1"]), ("t", 0, [b"2"])]


def stuck(bench: Bench) -> None:
    """The first broker takes nothing from now on."""
    bench.send(run("t", b"first"))
    bench.nodes[0].connections[-1].pause()


def test_a_request_that_was_under_way_when_the_connection_broke_fails() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]))
    stuck(bench)
    bench.send(run("t", b"lost"), ms=10)
    assert len(bench.settled) == 1
    bench.network.lose_connections("producer")
    bench.scheduler.advance(100)
    assert bench.errors == [None, TransportError]


def test_num_retries_sends_it_again_to_the_same_broker() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0)]), settings=SendingSettings(num_retries=1))
    stuck(bench)
    bench.send(run("t", b"again"), ms=10)
    bench.network.lose_connections("producer")
    bench.scheduler.advance(100)
    assert bench.errors == [None, None]
    assert bench.nodes[0].shown == [("t", 0, [b"first"]), ("t", 0, [b"again"])]


def test_a_broker_that_takes_nothing_holds_requests_back_and_is_given_up() -> None:
    bench = Bench(PlainDirectory(t=[(0, 0), (1, 0)]), pool=PoolSettings(buffer_bytes=1000))
    stuck(bench)
    for number in range(4):
        bench.send(run("t", bytes([number]) * 600), ms=1)
    bench.index = 1
    bench.send(run("t", b"another broker"))
    assert bench.nodes[1].shown == [("t", 0, [b"another broker"])]
    assert bench.errors == [None, None], "the others wait"
    bench.nodes[0].connections[-1].resume()
    bench.scheduler.advance(100)
    assert [values[0][:1] for _, _, values in bench.nodes[0].shown[1:] if values[0]] == [b"\0", b"\1", b"\2", b"\3"]
    stuck(bench)
    bench.index = 0
    bench.send(run("t", b"never"), ms=2000)
    assert bench.errors[-1] is TransportError


def test_a_broker_that_came_back_elsewhere() -> None:
    directory = PlainDirectory(t=[(0, 0)])
    bench = Bench(directory)
    bench.send(run("t", b"1"))
    directory.address = lambda broker_id: ("b2", 9092)  # type: ignore[method-assign]  # it moved
    bench.send(run("t", b"2"))
    assert bench.nodes[2].shown == [("t", 0, [b"2"])]
    assert not [c for c in bench.network.connections if c.node == "producer" and c.peer[0] == "b0"]


def test_closing_fails_what_waits_for_where_a_broker_was_before() -> None:
    directory = PlainDirectory(t=[(0, 0)])
    bench = Bench(directory)
    for node in bench.nodes:
        node.listener.close()
    bench.send(run("t", b"1"))
    directory.address = lambda broker_id: ("b2", 9092)  # type: ignore[method-assign]  # it moved
    bench.send(run("t", b"2"))
    bench.pool.close()
    assert bench.errors == [ClosedError] * 2
    attempts = bench.attempts
    bench.scheduler.advance(60_000)
    assert bench.attempts == attempts


def test_a_broker_that_dies_before_another_attempt() -> None:
    directory = PlainDirectory(t=[(0, 0)])
    bench = Bench(directory, settings=SendingSettings(num_retries=5))
    stuck(bench)
    bench.send(run("t", b"x"), ms=10)
    directory.live = set()
    bench.network.lose_connections("producer")
    bench.scheduler.advance(100)
    assert bench.errors == [None, NoBrokersForPartition]


def test_closing_fails_what_is_left() -> None:
    directory = PlainDirectory(t=[(0, 0)])
    bench = Bench(directory)
    bench.nodes[0].listener.close()
    bench.send(run("t", b"waits"), run("u", b"unplaced"))
    bench.sender.fail_unplaced(ClosedError("closed"))
    bench.pool.close()
    bench.send(run("t", b"late"))
    assert bench.errors == [ClosedError] * 3
    assert bench.sender.messages == 0
