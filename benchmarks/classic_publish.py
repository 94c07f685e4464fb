"""The producer experiment of the 2011 paper (its section 5): 200-byte messages in batches of 1, 50 and 1,000.

Per batch size, in one run and by turns: our `Producer` (sync: each batch is a request, and handed to the network before
the next), requests that were made before and come over a bare socket (what the broker alone takes), the same bytes into
a loopback server that throws them away, and encoding alone. A round ends when the broker has answered a question that
came after the messages. Goal: batches of 50 go at least 8 times as fast as single messages.
"""

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import define, field
from classic_wire import BATCH_SIZES, FLUSHING, MB, TOPIC, bare_sink, log_end, payloads, produce_frame
from harness import MESSAGE_BYTES, BareClient, Result, RunningBroker, broker

from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.core.message.classic.writer import encode_set

MESSAGES = {1: 15_000, 50: 200_000, 1000: 400_000}
"""The number of messages per round, by batch size."""
ASYNC_MESSAGES = 50_000
ROUNDS = 3
RATIO_GOAL = 8
OVERHEAD_BYTES_GOAL = 10


@define
class Best:
    """The best round of each way, in messages per second, and the least CPU that the broker took per message."""

    rates: dict[tuple[str, int], float] = field(factory=dict)
    cpu_us: dict[tuple[str, int], float] = field(factory=dict)

    def take(self, way: str, batch: int, count: int, work: Callable[[], None], running: RunningBroker) -> None:
        cpu, started = running.cpu_seconds(), time.perf_counter()
        work()
        rate = count / (time.perf_counter() - started)
        spent = (running.cpu_seconds() - cpu) / count * 1e6
        key = way, batch
        self.rates[key] = max(rate, self.rates.get(key, 0.0))
        self.cpu_us[key] = min(spent, self.cpu_us.get(key, spent))


class Experiment:
    """One broker, and the ways to publish to it."""

    def __init__(self, running: RunningBroker, sink: BareClient) -> None:
        self._running = running
        self._bare = BareClient(running.host, running.port)
        self._sink = sink
        self._producer = ClassicProducer(f"classic://{running.bootstrap}")
        self.best = Best()
        self.sent_messages = 0

    def close(self) -> None:
        self._producer.close()
        self._bare.close()

    def round(self, batch: int) -> None:
        count = MESSAGES[batch]
        values = payloads(batch)
        frame = produce_frame(encode_set(values))
        ways: dict[str, Callable[[], None]] = {
            "producer": lambda: self._by_producer(values, count),
            "bare client": lambda: self._by_bare_client(frame, count // batch),
            "loopback": lambda: self._into_the_sink(frame, count // batch),
            "codec": lambda: _encode(values, count // batch),
        }
        for way, work in ways.items():
            self.best.take(way, batch, count, work, self._running)
        self.sent_messages += 2 * count

    def one_by_one(self) -> None:
        """An asynchronous producer that collects single messages into batches of 50."""
        with ClassicProducer(
            f"classic://{self._running.bootstrap}", producer_type="async", batch_size=50, queue_enqueue_timeout_ms=-1
        ) as producer:
            values = payloads(ASYNC_MESSAGES)

            def work() -> None:
                for value in values:
                    producer.send(TOPIC, value, partition=0)
                producer.confirm()

            self.best.take("send one by one", 50, ASYNC_MESSAGES, work, self._running)
        self.sent_messages += ASYNC_MESSAGES

    def _by_producer(self, values: list[bytes], count: int) -> None:
        producer = self._producer
        if len(values) == 1:
            for _ in range(count):
                producer.send(TOPIC, values[0], partition=0)
        else:
            for _ in range(count // len(values)):
                producer.send_many(TOPIC, values, partition=0)
        producer.confirm()

    def _by_bare_client(self, frame: bytes, requests: int) -> None:
        send = self._bare.socket.sendall
        for _ in range(requests):
            send(frame)
        log_end(self._bare)

    def _into_the_sink(self, frame: bytes, requests: int) -> None:
        send = self._sink.socket.sendall
        send((len(frame) * requests).to_bytes(8, "big"))
        for _ in range(requests):
            send(frame)
        assert self._sink.socket.recv(4)


def _encode(values: list[bytes], batches: int) -> None:
    for _ in range(batches):
        encode_set(values)


def stored_bytes(data: Path) -> int:
    """Return the bytes of all files of the topic, by their sizes."""
    return sum(file.stat().st_size for folder in data.glob(f"{TOPIC}-*") for file in folder.iterdir())


def measure() -> Iterable[Result]:
    with TemporaryDirectory(prefix="barnabas-bench-") as folder, bare_sink() as sink:
        data = Path(folder)
        with broker(data, *FLUSHING, scheme="classic") as running:
            before = running.resident_bytes()
            experiment = Experiment(running, sink)
            try:
                for _ in range(ROUNDS):
                    for batch in BATCH_SIZES:
                        experiment.round(batch)
                    experiment.one_by_one()
            finally:
                experiment.close()
            after = running.resident_bytes()
        os.sync()
        stored = stored_bytes(data)
    yield from _results(experiment.best)
    overhead = stored / experiment.sent_messages - MESSAGE_BYTES
    yield Result("classic bytes on the disk added to a message", overhead, "bytes", OVERHEAD_BYTES_GOAL, at_least=False)
    details = {"MB after the start": before / MB, "messages taken": experiment.sent_messages}
    yield Result("classic broker's memory after all of them", after / MB, "MB", details=details)


def _results(best: Best) -> Iterable[Result]:
    rates = best.rates
    for way in ("producer", "bare client"):
        ratio = rates[way, 50] / rates[way, 1]
        details = {f"batch {batch} msg/s": rates[way, batch] for batch in BATCH_SIZES}
        yield Result(f"classic publish by {way}: batch 50 / batch 1", ratio, "", RATIO_GOAL, details=details)
    for batch in BATCH_SIZES:
        for way in ("producer", "bare client"):
            rate = rates[way, batch]
            details = {"msg/s": rate, "MB/s": rate * MESSAGE_BYTES / MB, "broker us/msg": best.cpu_us[way, batch]}
            name = f"classic publish, {way}, batch {batch}"
            yield Result(f"{name} / loopback", rate / rates["loopback", batch], details=details)
        yield Result(
            f"classic publish, producer, batch {batch} / codec",
            rates["producer", batch] / rates["codec", batch],
            details={"codec msg/s": rates["codec", batch], "loopback msg/s": rates["loopback", batch]},
        )
    one_by_one = rates["send one by one", 50]
    details = {"msg/s": one_by_one, "MB/s": one_by_one * MESSAGE_BYTES / MB}
    yield Result("classic publish, async send / sync batch 50", one_by_one / rates["producer", 50], details=details)


if __name__ == "__main__":
    for result in measure():
        print(result)
