"""Measures where the CPU time of our clients goes, by message and by request, against the system calls of the requests.

`make bench ARGS=where_time_goes`; alone it prints the tables of docs/performance.md. All is of one run, in one process,
by turns, best of the rounds: messages of 200 bytes, one partition. "User" is the thread that calls the client (for
asyncio the one of the event loop), "client" all other threads of the process. The floor is a bare socket that sends
requests of the same size made before, and receives the answers; parts are measured alone, in loops.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import classic_wire
from attrs import frozen
from harness import MESSAGE_BYTES, BareClient, Result, RunningBroker, broker, fetch_frame, next_offset, produce_frame
from harness import records_of as records_in

from barnabas import Admin, AsyncConsumer, AsyncProducer, Consumer, ConsumerConnector, Producer, SimpleConsumer
from barnabas.adapters.coord_memory import MemoryTree
from barnabas.adapters.wire_classic.client import ClassicLink
from barnabas.adapters.wire_kafka.client import KafkaLink
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.shared.delivery import DeliveryHandle
from barnabas.core.classic.registry.layout import ClassicBroker, broker_path, encode_broker, topic_broker_path
from barnabas.core.client.producer.hashing import murmur2_partition
from barnabas.core.client.producer.producer_batch import ProducerBatch
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator
from barnabas.core.message.batch_header import parse_header, verify_crc
from barnabas.core.message.batch_reader import decode_messages
from barnabas.core.message.batch_writer import encode_columns
from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.message.record_parser import parse_records
from barnabas.core.message.varint import COMPILED
from barnabas.ports.types import TopicPartition

TOPIC = "bench"
MESSAGES = 200_000
CLASSIC_SINGLES = 10_000
ROUNDS = 3
BATCH = 1000
VALUE = bytes(MESSAGE_BYTES)
KEYS = [b"user-%d" % number for number in range(1000)]
CLASSIC_FETCH_BYTES = 1000 * (MESSAGE_BYTES + 10)
WAIT_MS = 60_000

_requests: Counter[str] = Counter()
"""The requests that our clients in this process have sent, by their types."""


@frozen
class Cost:
    """CPU time of one way, in µs per message."""

    user: float
    client: float
    messages_per_request: float

    @property
    def total(self) -> float:
        return self.user + self.client


def _count_requests(link: Any) -> None:
    submit = link.submit

    def counting(self: Any, request: Any, *rest: Any) -> None:
        _requests[type(request).__name__] += 1
        submit(self, request, *rest)

    link.submit = counting


class Meter:
    """CPU time between `start` and `stop`, of the calling thread and of all others."""

    def __init__(self) -> None:
        self._process = self._thread = 0.0
        self.cost = Cost(0.0, 0.0, 0.0)

    def start(self) -> None:
        """Begin, when a client is connected and has done its first work."""
        _requests.clear()
        self._process, self._thread = time.process_time(), time.thread_time()

    def stop(self, messages: int) -> None:
        """End after this number of messages."""
        thread = time.thread_time() - self._thread
        process = time.process_time() - self._process
        requests = sum(_requests[kind] for kind in _KINDS) or messages
        others = max(0.0, process - thread)
        self.cost = Cost(thread / messages * 1e6, others / messages * 1e6, messages / requests)


_KINDS = ("Produce", "Fetch", "ClassicProduce", "ClassicFetch", "ClassicMultiFetch")

# --- the ways of the current generation


def _produce(bootstrap: str, meter: Meter, work: Callable[[Producer], None]) -> None:
    with Producer(bootstrap) as producer:
        producer.send(TOPIC, VALUE).result()
        meter.start()
        work(producer)
        producer.flush()
        meter.stop(MESSAGES)


def _send(bootstrap: str, meter: Meter) -> None:
    def work(producer: Producer) -> None:
        for _ in range(MESSAGES):
            producer.send(TOPIC, VALUE)

    _produce(bootstrap, meter, work)


def _send_keys(bootstrap: str, meter: Meter) -> None:
    def work(producer: Producer) -> None:
        for number in range(MESSAGES):
            producer.send(TOPIC, VALUE, KEYS[number % len(KEYS)])

    _produce(bootstrap, meter, work)


def _send_many(bootstrap: str, meter: Meter) -> None:
    values = [VALUE] * BATCH

    def work(producer: Producer) -> None:
        for _ in range(MESSAGES // BATCH):
            producer.send_many(TOPIC, values)

    _produce(bootstrap, meter, work)


def _measured(messages: Iterator[object], meter: Meter) -> None:
    """Take the messages; the first one comes when all is connected."""
    next(messages)
    meter.start()
    for _ in islice(messages, MESSAGES):
        pass
    meter.stop(MESSAGES)


def _iterate(bootstrap: str, meter: Meter) -> None:
    with Consumer(bootstrap) as consumer:
        consumer.assign(TOPIC, position="earliest")
        _measured(iter(consumer), meter)


def _poll_many(bootstrap: str, meter: Meter) -> None:
    come = 0
    with Consumer(bootstrap) as consumer:
        consumer.assign(TOPIC, position="earliest")
        while not consumer.poll_many(1, 1.0):
            pass
        meter.start()
        while come < MESSAGES:
            come += len(consumer.poll_many(BATCH, 1.0))
        meter.stop(come)


def _async_send(bootstrap: str, meter: Meter) -> None:
    async def send() -> None:
        async with AsyncProducer(bootstrap) as producer:
            await producer.send_and_wait(TOPIC, VALUE)
            meter.start()
            for _ in range(MESSAGES):
                await producer.send(TOPIC, VALUE)
            await producer.flush()
            meter.stop(MESSAGES)

    asyncio.run(send())


def _async_iterate(bootstrap: str, meter: Meter) -> None:
    async def receive() -> None:
        come = -1
        async with AsyncConsumer(bootstrap) as consumer:
            await consumer.assign(TOPIC, position="earliest")
            async for _ in consumer:
                come += 1
                if not come:
                    meter.start()
                elif come == MESSAGES:
                    break
            meter.stop(MESSAGES)

    asyncio.run(receive())


# --- the ways of the classic generation


def _classic_single(bootstrap: str, meter: Meter) -> None:
    with ClassicProducer(f"classic://{bootstrap}") as producer:
        producer.send(TOPIC, VALUE, partition=0)
        producer.confirm()
        meter.start()
        for _ in range(CLASSIC_SINGLES):
            producer.send(TOPIC, VALUE, partition=0)
        producer.confirm()
        meter.stop(CLASSIC_SINGLES)


def _classic_many(bootstrap: str, meter: Meter) -> None:
    values = [VALUE] * 50
    with ClassicProducer(f"classic://{bootstrap}") as producer:
        producer.send(TOPIC, VALUE, partition=0)
        producer.confirm()
        meter.start()
        for _ in range(MESSAGES // 50):
            producer.send_many(TOPIC, values, partition=0)
        producer.confirm()
        meter.stop(MESSAGES)


def _classic_async(bootstrap: str, meter: Meter) -> None:
    with ClassicProducer(
        f"classic://{bootstrap}", producer_type="async", batch_size=200, queue_enqueue_timeout_ms=-1
    ) as producer:
        producer.send(TOPIC, VALUE, partition=0)
        producer.confirm()
        meter.start()
        for _ in range(MESSAGES):
            producer.send(TOPIC, VALUE, partition=0)
        producer.confirm()
        meter.stop(MESSAGES)


def _classic_fetch(bootstrap: str, meter: Meter) -> None:
    offset = come = 0
    with SimpleConsumer(f"classic://{bootstrap}") as consumer:
        consumer.fetch(TOPIC, 0, 0, 1000)
        meter.start()
        while come < MESSAGES:
            for message in consumer.fetch(TOPIC, 0, offset, CLASSIC_FETCH_BYTES):
                offset = message.offset
                come += 1
        meter.stop(come)


def _classic_stream(bootstrap: str, meter: Meter) -> None:
    host, _, port = bootstrap.rpartition(":")
    tree = MemoryTree()
    session = tree.session()
    node = ClassicBroker(broker_id=0, creator_id="bench", host=host, port=int(port))
    session.create(broker_path(0), encode_broker(node))
    session.create(topic_broker_path(TOPIC, 0), b"1")
    with ConsumerConnector(
        coordination=tree.session,
        groupid=f"bench-{time.monotonic_ns()}",
        fetch_size=CLASSIC_FETCH_BYTES,
        consumer_timeout_ms=WAIT_MS,
        autooffset_reset="smallest",
    ) as connector:
        _measured(iter(connector.create_message_streams({TOPIC: 1})[TOPIC][0]), meter)


# --- the floors: the same requests by a bare socket


def _bare_produce(client: BareClient, batch: int, requests: int) -> None:
    frame = produce_frame(TOPIC, 0, bytes(encode_columns([VALUE] * batch, now_ms=1_700_000_000_000)), acks=-1)
    for _ in range(requests):
        client.exchange(frame)


def _bare_fetch(client: BareClient) -> None:
    offset = 0
    while offset < MESSAGES:
        offset = next_offset(records_in(client.exchange(fetch_frame(TOPIC, 0, offset, 1_048_576)), TOPIC))


def _bare_classic_produce(client: BareClient, batch: int, requests: int) -> None:
    frame = classic_wire.produce_frame(encode_set([VALUE] * batch))
    for _ in range(requests):
        client.socket.sendall(frame)
    classic_wire.log_end(client)


def _bare_classic_fetch(client: BareClient) -> None:
    for number in range(MESSAGES // 1000):
        client.exchange(classic_wire.fetch_frame(number * CLASSIC_FETCH_BYTES, CLASSIC_FETCH_BYTES))


def _floor(work: Callable[[], object], messages: int) -> float:
    started = time.thread_time()
    work()
    return (time.thread_time() - started) / messages * 1e6


# --- parts, each alone


def _alone(work: Callable[[], object], messages: int = BATCH) -> float:
    """Return the least time of a message, in µs."""
    least = float("inf")
    for _ in range(60):
        started = time.thread_time_ns()
        work()
        least = min(least, time.thread_time_ns() - started)
    return least / messages / 1000


class _Clock:
    def monotonic_ms(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return 1_700_000_000_000


def _exhaust(things: Any) -> None:
    for _ in things:
        pass


def _parts() -> dict[str, dict[str, float]]:
    """Return per way the parts, in µs per message: on the user's thread, then ("client: ...") on the client's."""
    tp, lock = TopicPartition(TOPIC, 0), Lock()
    values: list[bytes | None] = [VALUE] * BATCH
    keys: list[bytes | None] = list(KEYS)

    def locked() -> None:
        for _ in repeat(None, BATCH):
            with lock:
                pass

    def fill(keyed: bool) -> None:
        accumulator = RecordAccumulator(AccumulatorSettings(batch_size=2**30), _Clock(), lambda _: None)
        batch = accumulator.append(tp, (VALUE, KEYS[0] if keyed else None, (), None), MESSAGE_BYTES)
        if keyed:
            accumulator.begin_keyed_run(batch, 2**30)
            for key in KEYS:
                accumulator.append_keyed(batch, key, VALUE)
        else:
            accumulator.begin_run(batch, 2**30)
            for _ in range(BATCH):
                accumulator.append_plain(batch, VALUE)

    def handles() -> None:
        batch, shell = ProducerBatch(tp, 0.0, 0), None
        for number in range(BATCH):
            DeliveryHandle(batch, number, shell)  # type: ignore[arg-type]  # no one asks for the outcome

    def decode(data: bytes, *, make: bool) -> None:
        found = decode_messages(
            data,
            NO_CODECS,
            topic=TOPIC,
            partition=0,
            from_offset=0,
            max_bytes=2**30,
            check_crc=False,
            header=None,
        )
        if make:
            _exhaust(chain.from_iterable([found.iterate(iter(found.offsets))]))

    plain = bytes(encode_columns(values, now_ms=1))
    header, records = parse_header(plain), plain[61:]
    loop = _alone(lambda: _exhaust(repeat(None, BATCH)))
    handle, lock_time = _alone(handles) - loop, _alone(locked) - loop
    crc = _alone(lambda: verify_crc(plain, header))
    encode = _alone(lambda: encode_columns(values, now_ms=1)) - crc
    parse = _alone(lambda: parse_records(records, 0, len(records), BATCH, with_headers=True))
    message = _alone(lambda: decode(plain, make=True)) - _alone(lambda: decode(plain, make=False))
    sending = {"lock": lock_time, "append": _alone(lambda: fill(False)) - loop, "handle": handle}
    encoding = {"client: encode": encode, "client: CRC": crc}
    reading = {"parse": parse, "make the messages": message, "client: CRC": crc}
    classic = encode_set([VALUE] * BATCH)
    classic_decode = _alone(lambda: _exhaust(decode_set(classic)))
    classic_encode = _alone(lambda: encode_set([VALUE] * BATCH))
    found = {
        "send": {**sending, **encoding},
        "send with keys": {
            **sending,
            "append": _alone(lambda: fill(True)) - loop,
            "murmur2": _alone(lambda: [murmur2_partition(key, 7) for key in KEYS]) - loop,
            "client: encode": _alone(lambda: encode_columns(values, keys=keys, now_ms=1)) - crc,
            "client: CRC": crc,
        },
        "send_many of 1,000": dict(encoding),
        "iteration": reading,
        "poll_many(1000)": reading,
        "asyncio send": {**sending, **encoding},
        "asyncio iteration": reading,
        "classic send, sync, 1 a request": {"encode": _alone(lambda: [encode_set([VALUE]) for _ in range(BATCH)])},
        "classic send_many, sync, 50 a request": {
            "encode": _alone(lambda: [encode_set([VALUE] * 50) for _ in range(20)]),
        },
        "classic send, async, 200 a request": {"client: encode": classic_encode},
        "classic SimpleConsumer": {"decode": classic_decode},
        "classic stream": {"decode": classic_decode},
    }
    return {way: {name: max(0.0, value) for name, value in parts.items()} for way, parts in found.items()}


# --- the run


@contextmanager
def _brokers() -> Iterator[tuple[RunningBroker, RunningBroker]]:
    with (
        TemporaryDirectory(prefix="barnabas-bench-") as folder,
        broker(None, "num.partitions=1") as running,
        broker(Path(folder), *classic_wire.FLUSHING, scheme="classic") as classic,
    ):
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        yield running, classic


WAYS: dict[str, Callable[[str, Meter], None]] = {
    "send": _send,
    "send with keys": _send_keys,
    "send_many of 1,000": _send_many,
    "asyncio send": _async_send,
    "iteration": _iterate,
    "poll_many(1000)": _poll_many,
    "asyncio iteration": _async_iterate,
    "classic send, sync, 1 a request": _classic_single,
    "classic send_many, sync, 50 a request": _classic_many,
    "classic send, async, 200 a request": _classic_async,
    "classic SimpleConsumer": _classic_fetch,
    "classic stream": _classic_stream,
}
_RECEIVING = ("iteration", "poll_many(1000)", "asyncio iteration", "classic SimpleConsumer", "classic stream")


def _least_floor(way: str, cost: Cost, bare: BareClient, bare_classic: BareClient) -> float:
    """Return what the bare socket takes for a message in requests like those of the way."""
    is_classic = way.startswith("classic")
    if way in _RECEIVING:
        fetch = partial(_bare_classic_fetch, bare_classic) if is_classic else partial(_bare_fetch, bare)
        return _floor(fetch, MESSAGES)
    batch = max(1, round(cost.messages_per_request))
    requests = max(1, (CLASSIC_SINGLES if batch == 1 else MESSAGES) // batch)
    work, client = (_bare_classic_produce, bare_classic) if is_classic else (_bare_produce, bare)
    return _floor(partial(work, client, batch, requests), batch * requests)


def costs() -> tuple[dict[str, Cost], dict[str, float]]:
    """Return the least cost of each way, and its floor, in µs per message."""
    _count_requests(KafkaLink)
    _count_requests(ClassicLink)
    best: dict[str, Cost] = {}
    floors: dict[str, float] = {}
    with _brokers() as (running, classic):
        bare, bare_classic = BareClient(running.host, running.port), BareClient(classic.host, classic.port)
        for _ in range(ROUNDS):
            for way, work in WAYS.items():
                meter = Meter()
                work((classic if way.startswith("classic") else running).bootstrap, meter)
                if way not in best or meter.cost.total < best[way].total:
                    best[way] = meter.cost
                floor = _least_floor(way, best[way], bare, bare_classic)
                floors[way] = min(floor, floors.get(way, floor))
        bare.close()
        bare_classic.close()
    return best, floors


def measure() -> list[Result]:
    best, floors = costs()
    kind = "compiled" if COMPILED else "pure"
    return [
        Result(
            f"{way} ({kind}) / its system calls",
            cost.total / floors[way],
            details={
                "µs user": cost.user,
                "client": cost.client,
                "floor": floors[way],
                "messages a request": cost.messages_per_request,
                "µs a request": cost.total * cost.messages_per_request,
            },
        )
        for way, cost in best.items()
    ]


def tables() -> Iterator[str]:
    """Yield the lines of the table."""
    best, floors = costs()
    parts = _parts()
    yield f"{'compiled' if COMPILED else 'pure'}, load {os.getloadavg()[0]:.0f}"
    yield "| | user's thread | client's threads | system calls alone | messages a request | a request, all | parts |"
    yield "|---|---|---|---|---|---|---|"
    for way, cost in best.items():
        named = dict(parts[way])
        client = sum(time_us for name, time_us in named.items() if name.startswith("client: "))
        user = sum(named.values()) - client
        text = ", ".join(f"{name} {1000 * time_us:.0f}" for name, time_us in named.items())
        rest = f"rest {1000 * (cost.user - user):.0f} and {1000 * (cost.client - client):.0f}"
        each = f"{cost.messages_per_request:,.0f} | {cost.total * cost.messages_per_request:,.0f} µs"
        yield f"| {way} | {cost.user:.2f} | {cost.client:.2f} | {floors[way]:.2f} | {each} | {text}; {rest} |"


if __name__ == "__main__":
    for line in tables():
        print(line, flush=True)
