"""The consumer experiment of the 2011 paper (its section 5): 200-byte messages, about 200 KB (1,000 messages) a fetch.

In one run and by turns, over the same messages: our `SimpleConsumer`, one stream of a `ConsumerConnector`, requests
over a bare socket that open no message (what the broker alone gives), the same bytes from a loopback server that only
calls sendfile, decoding alone, and our `Producer` with batches of 50. The page cache has the messages, as in the paper.
"""

import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, field
from classic_wire import FLUSHING, MB, TOPIC, bare_source, fetch_frame, log_end, payloads, produce_frame, records_of
from harness import MESSAGE_BYTES, BareClient, Result, RunningBroker, broker

from barnabas import ConsumerConnector, SimpleConsumer
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.core.classic.registry.layout import ClassicBroker, broker_path, encode_broker, topic_broker_path
from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.writer import encode_set

FETCH_MESSAGES = 1000
FETCH_BYTES = FETCH_MESSAGES * (MESSAGE_BYTES + 10)
"""The fetch size: a multiple of the message size, as no message is to be cut."""
FETCHES = 400
MESSAGES = FETCHES * FETCH_MESSAGES
BATCH = 50
ROUNDS = 3
WAIT_SECONDS = 60.0


def fill(client: BareClient, topic: str = TOPIC) -> None:
    """Publish the messages, and wait until readers see them all."""
    frame = produce_frame(encode_set(payloads(FETCH_MESSAGES)), topic)
    for _ in range(FETCHES):
        client.socket.sendall(frame)
    deadline = time.monotonic() + WAIT_SECONDS
    while log_end(client, topic) < FETCHES * FETCH_BYTES:
        if time.monotonic() > deadline:
            raise RuntimeError("the broker does not make visible what was published")
        time.sleep(0.01)


def registries(running: RunningBroker) -> MemoryTree:
    """Return a tree in this process that names the broker, as ZooKeeper would."""
    tree = MemoryTree()
    session = tree.session()
    node = ClassicBroker(broker_id=0, creator_id="bench", host=running.host, port=running.port)
    session.create(broker_path(0), encode_broker(node))
    session.create(topic_broker_path(TOPIC, 0), b"1")
    return tree


def fetch_all(client: BareClient) -> None:
    """Every message from the beginning on, none opened."""
    for number in range(FETCHES):
        records = records_of(client.exchange(fetch_frame(number * FETCH_BYTES, FETCH_BYTES)))
        if len(records) != FETCH_BYTES:
            raise RuntimeError(f"{len(records)} bytes came instead of {FETCH_BYTES}")


@define
class Best:
    """The best round of each way in messages per second, and the least CPU of the broker per message."""

    rates: dict[str, float] = field(factory=dict)
    cpu_us: dict[str, float] = field(factory=dict)

    def take(self, way: str, work: Callable[[], None], running: RunningBroker) -> None:
        cpu, started = running.cpu_seconds(), time.perf_counter()
        work()
        rate = MESSAGES / (time.perf_counter() - started)
        spent = (running.cpu_seconds() - cpu) / MESSAGES * 1e6
        self.rates[way] = max(rate, self.rates.get(way, 0.0))
        self.cpu_us[way] = min(spent, self.cpu_us.get(way, spent))


class Experiment:
    def __init__(self, running: RunningBroker, client: BareClient, source: BareClient) -> None:
        self._running = running
        self._client = client
        self._source = source
        self._tree = registries(running)
        self._groups = 0
        self._records = encode_set(payloads(FETCH_MESSAGES))
        self.best = Best()

    def round(self) -> None:
        ways: dict[str, Callable[[], None]] = {
            "bare client": lambda: fetch_all(self._client),
            "sendfile": lambda: fetch_all(self._source),
            "codec": self._decode,
            "SimpleConsumer": self._simple,
            "producer": self._produce,
        }
        for way, work in ways.items():
            self.best.take(way, work, self._running)
        self._groups += 1
        with ConsumerConnector(
            coordination=self._tree.session,
            groupid=f"bench-{self._groups}",
            fetch_size=FETCH_BYTES,
            consumer_timeout_ms=WAIT_SECONDS * 1000,
        ) as connector:
            stream = connector.create_message_streams({TOPIC: 1})[TOPIC][0]
            self.best.take("stream", lambda: _exhaust(islice(stream, MESSAGES)), self._running)

    def _decode(self) -> None:
        for _ in range(FETCHES):
            _exhaust(decode_set(self._records))

    def _simple(self) -> None:
        with SimpleConsumer(f"classic://{self._running.bootstrap}") as consumer:
            offset, count = 0, 0
            while count < MESSAGES:
                found = consumer.fetch(TOPIC, 0, offset, FETCH_BYTES)
                for message in found:
                    offset = message.offset
                    count += 1

    def _produce(self) -> None:
        values = payloads(BATCH)
        with ClassicProducer(f"classic://{self._running.bootstrap}") as producer:
            for _ in range(MESSAGES // BATCH):
                producer.send_many("other", values, partition=0)
            producer.confirm()


def _exhaust(messages: Iterable[object]) -> None:
    for _ in messages:
        pass


def measure() -> Iterable[Result]:
    with TemporaryDirectory(prefix="barnabas-bench-") as folder:
        data = Path(folder)
        with broker(data, *FLUSHING, scheme="classic") as running:
            client = BareClient(running.host, running.port)
            try:
                fill(client)
                segment = next((data / f"{TOPIC}-0").glob("*.kafka"))
                with bare_source(segment) as source:
                    experiment = Experiment(running, client, source)
                    for _ in range(ROUNDS):
                        experiment.round()
            finally:
                client.close()
            resident = running.resident_bytes()
    yield from _results(experiment.best)
    yield Result("classic broker's memory after the fetches", resident / MB, "MB")


def _results(best: Best) -> Iterable[Result]:
    rates = best.rates

    def details(way: str) -> dict[str, float]:
        return {"msg/s": rates[way], "MB/s": rates[way] * MESSAGE_BYTES / MB, "broker us/msg": best.cpu_us[way]}

    name = "classic consume, bare client / sendfile"
    more = {"sendfile MB/s": rates["sendfile"] * MESSAGE_BYTES / MB}
    yield Result(name, rates["bare client"] / rates["sendfile"], details=details("bare client") | more)
    for way in ("SimpleConsumer", "stream"):
        more = {"codec msg/s": rates["codec"]}
        yield Result(f"classic consume, {way} / codec", rates[way] / rates["codec"], details=details(way) | more)
        more = {"producer msg/s": rates["producer"]}
        yield Result(
            f"classic consume, {way} / producer of batch {BATCH}", rates[way] / rates["producer"], details=more
        )


if __name__ == "__main__":
    for result in measure():
        print(result)
