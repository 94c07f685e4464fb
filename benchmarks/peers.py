"""`make bench-peers`: the paper's two experiments with RabbitMQ and ActiveMQ, where they are installed, next to ours.

200-byte persistent messages; all servers run at once on this machine, each is measured by turns while the others rest,
the best round counts. No server waits for the disk: ours flushes every 10,000 messages or every second in the
background, ActiveMQ's journal every second, RabbitMQ when it likes (with confirms: before each of those). Both peers
publish single messages only, as they have no batches. "bare" sends bytes that were made before, and opens no message it
gets.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter, sleep
from typing import Protocol

from attrs import define, field
from classic_wire import FLUSHING, MB, fetch_frame, log_end, produce_frame, records_of
from harness import MESSAGE_BYTES, BareClient, RunningBroker, broker
from peer_clients import AmqpClient, PikaClient, StompClient
from peer_servers import Peer, activemq, rabbitmq

from barnabas import SimpleConsumer
from barnabas.app.cli.bench.servers import NotInstalledError
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.core.message.classic.writer import encode_set

MESSAGES = 20_000
"""The number of messages per round of a client that sends single messages."""
BATCHED_MESSAGES = 200_000
CONFIRMED_SINGLY = 2_000
ROUNDS = 3
WARM_UP = 5_000
ENTRY_BYTES = MESSAGE_BYTES + 10
FETCH_MESSAGES = 1000
VISIBLE_SECONDS = 60.0

_BODY = b"m" * MESSAGE_BYTES


class Client(Protocol):
    """Publishes messages, and takes as many again."""

    def publish(self, body: bytes, count: int) -> None: ...
    def consume(self, count: int) -> None: ...
    def close(self) -> None: ...


class Ours:
    """The common part: one topic of our broker, and how far it was read."""

    def __init__(self, running: RunningBroker, topic: str) -> None:
        self._bare = BareClient(running.host, running.port)
        self._topic = topic
        self._read = 0

    def wait_until_visible(self, count: int) -> None:
        """A classic log shows what is flushed."""
        deadline = monotonic() + VISIBLE_SECONDS
        while log_end(self._bare, self._topic) < self._read + count * ENTRY_BYTES:
            if monotonic() > deadline:
                raise RuntimeError("the broker does not make visible what was published")
            sleep(0.01)

    def close(self) -> None:
        self._bare.close()


class OurBare(Ours):
    """Bytes that were made before."""

    def __init__(self, running: RunningBroker, batch: int) -> None:
        super().__init__(running, f"bare-{batch}")
        self._batch = batch

    def publish(self, body: bytes, count: int) -> None:
        frame, send = produce_frame(encode_set([body] * self._batch), self._topic), self._bare.socket.sendall
        for _ in range(count // self._batch):
            send(frame)
        log_end(self._bare, self._topic)

    def consume(self, count: int) -> None:
        end = self._read + count * ENTRY_BYTES
        while self._read < end:
            request = fetch_frame(self._read, FETCH_MESSAGES * ENTRY_BYTES, self._topic)
            self._read += len(records_of(self._bare.exchange(request)))


class OurClients(Ours):
    """`Producer` and `SimpleConsumer`. `confirms`: each message is confirmed before the next one."""

    def __init__(self, running: RunningBroker, batch: int, *, confirms: bool = False) -> None:
        super().__init__(running, f"clients-{batch}-{confirms}")
        self._batch = batch
        self._confirms = confirms
        self._producer = ClassicProducer(f"classic://{running.bootstrap}")
        self._consumer = SimpleConsumer(f"classic://{running.bootstrap}")

    def publish(self, body: bytes, count: int) -> None:
        if self._batch == 1:
            for _ in range(count):
                self._producer.send(self._topic, body, partition=0)
                if self._confirms:
                    self._producer.confirm()
        else:
            values = [body] * self._batch
            for _ in range(count // self._batch):
                self._producer.send_many(self._topic, values, partition=0)
        self._producer.confirm()

    def consume(self, count: int) -> None:
        taken = 0
        while taken < count:
            for message in self._consumer.fetch(self._topic, 0, self._read, FETCH_MESSAGES * ENTRY_BYTES):
                self._read = message.offset
                taken += 1

    def close(self) -> None:
        self._producer.close()
        self._consumer.close()
        super().close()


@define
class Way:
    """One line of the table. The best of the rounds."""

    name: str
    client: Client
    count: int
    cpu_seconds: Callable[[], float]
    publish_rate: float = field(default=0.0)
    consume_rate: float = field(default=0.0)
    publish_cpu_us: float = field(default=float("inf"))
    consume_cpu_us: float = field(default=float("inf"))

    def round(self) -> None:
        rate, cpu_us = self._timed(lambda: self.client.publish(_BODY, self.count))
        self.publish_rate, self.publish_cpu_us = max(rate, self.publish_rate), min(cpu_us, self.publish_cpu_us)
        if isinstance(self.client, Ours):
            self.client.wait_until_visible(self.count)
        rate, cpu_us = self._timed(lambda: self.client.consume(self.count))
        self.consume_rate, self.consume_cpu_us = max(rate, self.consume_rate), min(cpu_us, self.consume_cpu_us)

    def _timed(self, work: Callable[[], None]) -> tuple[float, float]:
        cpu, started = self.cpu_seconds(), perf_counter()
        work()
        rate = self.count / (perf_counter() - started)
        return rate, (self.cpu_seconds() - cpu) / self.count * 1e6


@contextmanager
def _our_ways(folder: Path) -> Iterator[tuple[RunningBroker, list[Way]]]:
    with broker(folder, *FLUSHING, scheme="classic") as running, ExitStack() as stack:
        ways = []
        for batch in (1, 50):
            count = MESSAGES if batch == 1 else BATCHED_MESSAGES
            bare, clients = OurBare(running, batch), OurClients(running, batch)
            stack.callback(bare.close)
            stack.callback(clients.close)
            ways.append(Way(f"Barnabas, bare, batch {batch}", bare, count, running.cpu_seconds))
            ways.append(Way(f"Barnabas, its clients, batch {batch}", clients, count, running.cpu_seconds))
        confirmed = OurClients(running, 1, confirms=True)
        stack.callback(confirmed.close)
        ways.append(Way("Barnabas, its clients, confirms one by one", confirmed, CONFIRMED_SINGLY, running.cpu_seconds))
        yield running, ways


def _rabbitmq_ways(stack: ExitStack) -> tuple[Peer, list[Way]]:
    peer = stack.enter_context(rabbitmq())
    ways = [
        Way("RabbitMQ, bare", AmqpClient(peer.port), MESSAGES, peer.cpu_seconds),
        Way("RabbitMQ, bare, confirms", AmqpClient(peer.port, confirms=True), MESSAGES, peer.cpu_seconds),
    ]
    if find_spec("pika") is None:
        print("pika is not installed: pip install pika, and it is measured, too", flush=True)
    else:
        ways.append(Way("RabbitMQ, pika", PikaClient(peer.port), MESSAGES, peer.cpu_seconds))
        confirmed = PikaClient(peer.port, confirms=True)
        ways.append(Way("RabbitMQ, pika, confirms one by one", confirmed, CONFIRMED_SINGLY, peer.cpu_seconds))
        transient = PikaClient(peer.port, confirms=True, persistent=False)
        name = "RabbitMQ, pika, not persistent, confirms"
        ways.append(Way(name, transient, CONFIRMED_SINGLY, peer.cpu_seconds))
    return peer, ways


def _activemq_ways(stack: ExitStack) -> tuple[Peer, list[Way]]:
    peer = stack.enter_context(activemq())
    return peer, [Way("ActiveMQ, bare STOMP", StompClient(peer.port), MESSAGES, peer.cpu_seconds)]


def _start_peers(stack: ExitStack) -> tuple[dict[str, Peer], list[Way]]:
    peers, ways = {}, []
    for name, start in (("RabbitMQ", _rabbitmq_ways), ("ActiveMQ", _activemq_ways)):
        try:
            peers[name], found = start(stack)
        except NotInstalledError as missing:
            print(f"left out: {missing}", flush=True)
            continue
        ways += found
        for way in found:
            stack.callback(way.client.close)
            warm_up = min(WARM_UP, way.count)
            way.client.publish(_BODY, warm_up)
            way.client.consume(warm_up)
    return peers, ways


def _stored_per_message(peer: Peer, way: Way) -> float:
    """Bytes of the disk that a message takes while it waits in the queue, by the growth of what the server stores."""
    before = peer.stored_bytes()
    way.client.publish(_BODY, MESSAGES)
    sleep(2.0)  # both write later: the longest of their intervals is a second
    taken = (peer.stored_bytes() - before) / MESSAGES
    way.client.consume(MESSAGES)
    return taken


def _print_table(ways: list[Way]) -> None:
    head = f"{'':<42} {'publish/s':>12} {'MB/s':>7} {'CPU us':>7} {'consume/s':>12} {'MB/s':>7} {'CPU us':>7}"
    print(f"{head}\n{'-' * len(head)}")
    for way in ways:
        line = f"{way.name:<42} {way.publish_rate:>12,.0f} {way.publish_rate * MESSAGE_BYTES / MB:>7.1f}"
        line += f" {way.publish_cpu_us:>7.1f} {way.consume_rate:>12,.0f}"
        print(f"{line} {way.consume_rate * MESSAGE_BYTES / MB:>7.1f} {way.consume_cpu_us:>7.1f}")
    print("CPU: of the server, microseconds per message", flush=True)


def main() -> None:
    with TemporaryDirectory(prefix="barnabas-bench-") as scratch, ExitStack() as stack:
        folder = Path(scratch)
        running, ours = stack.enter_context(_our_ways(folder))
        peers, others = _start_peers(stack)
        ways = ours + others
        for number in range(ROUNDS):
            if sys.stderr.isatty():
                print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
            for way in ways:
                way.round()
        _print_table(ways)
        sent = ROUNDS * sum(way.count for way in ours)
        stored = sum(file.stat().st_size for file in folder.glob("*/*.kafka"))
        print(
            f"Barnabas: {stored / sent:.0f} bytes stored per message, {running.resident_bytes() / MB:.0f} MB of memory"
        )
        for name, peer in peers.items():
            first = next(way for way in others if way.name.startswith(name))
            taken = _stored_per_message(peer, first)
            print(f"{name}: {taken:.0f} bytes stored per message, {peer.resident_bytes() / MB:.0f} MB of memory")


if __name__ == "__main__":
    main()
