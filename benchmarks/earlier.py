"""CPU time of the brokers compared with an earlier version of the project: what did the work since then cost?

    python benchmarks/earlier.py OTHER/.venv/bin/barnabas [one] [three]

`OTHER` is a checkout of the earlier version that is installed in a `.venv` of its own. Brokers of both versions run at
once, and librdkafka uses them in turns, so that other work on the machine meets both alike. A ratio above 1 means that
this version needs more. The brokers are started six times, since two processes of one version differ, too. The last
column is the range of the ratios of the starts.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from attrs import frozen
from cluster import cluster, cpu_seconds
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import PROGRAM, broker

PAYLOAD = bytes(100)
PATIENCE_S = 60
READ_TOPIC, WRITE_TOPIC = "read", "written"
FETCHED = 2_000_000
FETCHED_OF_THREE = 500_000
STARTS = 6
"""Number of times that the brokers are started: one process may take a sixth more than another of its version."""


@frozen
class Side:
    """The brokers of one version."""

    bootstrap: str
    cpu: Callable[[], float]


@frozen
class Work:
    """The work of a client in one round."""

    name: str
    run: Callable[[Side], None]
    rounds: int


def produce(side: Side, topic: str, messages: int, *, batch: int, in_flight: int) -> None:
    """Produce with acks=all; `batch`: messages of a batch; `in_flight`: the number of messages between two flushes."""
    failed = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal failed
        failed += error is not None

    producer = Producer(
        {"bootstrap.servers": side.bootstrap, "acks": "all", "linger.ms": 5 if in_flight > batch else 0}
        | {"batch.num.messages": batch, "queue.buffering.max.messages": 500_000, "on_delivery": delivered}
    )
    for number in range(messages):
        while True:
            try:
                producer.produce(topic, PAYLOAD, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % in_flight == in_flight - 1 and producer.flush(PATIENCE_S):
            raise RuntimeError("messages were not sent")
    if producer.flush(PATIENCE_S) or failed:
        raise RuntimeError(f"{failed} messages failed")


def consume(side: Side, messages: int, *, connections: int = 1) -> None:
    """Fetch `messages` messages from the beginning, `connections` times, each time with a new client."""
    for _ in range(connections):
        consumer = Consumer({"bootstrap.servers": side.bootstrap, "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition(READ_TOPIC, 0, 0)])
        seen = 0
        while seen < messages:
            found = consumer.consume(10_000, PATIENCE_S)
            if not found:
                raise RuntimeError(f"no message within {PATIENCE_S} s")
            seen += len(found)
        consumer.close()


def works(fetched: int, scale: int) -> Iterator[Work]:
    """`scale`: by how much a round of one broker is longer than a round of three."""
    yield Work(
        "produce in full batches",
        lambda side: produce(side, WRITE_TOPIC, 250_000 * scale, batch=10_000, in_flight=400_000),
        12,
    )
    yield Work(
        "produce in batches of 10",
        lambda side: produce(side, WRITE_TOPIC, 20_000 * scale, batch=10, in_flight=1_000),
        12,
    )
    yield Work(
        "produce one at a time",
        lambda side: produce(side, WRITE_TOPIC, 1_500 * scale, batch=1, in_flight=1),
        12,
    )
    yield Work(f"fetch {fetched:,}", lambda side: consume(side, fetched), 6)
    yield Work("connect, fetch 20,000, disconnect, 5 times", lambda side: consume(side, 20_000, connections=5), 12)


@contextmanager
def one(program: Path) -> Iterator[Side]:
    with broker(program=program) as running:
        yield Side(running.bootstrap, lambda: cpu_seconds([running.process]))


@contextmanager
def three(program: Path) -> Iterator[Side]:
    with cluster(program=program) as running:
        yield Side(running.bootstrap, lambda: cpu_seconds(list(running.brokers().values())))


def prepare(side: Side, fetched: int, replicas: int) -> None:
    """Create the topics, and fill the one that is read."""
    admin = AdminClient({"bootstrap.servers": side.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, replicas) for name in (READ_TOPIC, WRITE_TOPIC)]).values():
        future.result(PATIENCE_S)
    produce(side, READ_TOPIC, fetched, batch=10_000, in_flight=400_000)


def compare(what: str, earlier: Path) -> None:
    start, replicas, fetched, scale = (one, 1, FETCHED, 4) if what == "one" else (three, 3, FETCHED_OF_THREE, 1)
    print(f"{what}: CPU time of this version / of {earlier}: sums; medians; smallest rounds", flush=True)
    spent: dict[str, tuple[list[float], list[float]]] = {}
    of_starts: dict[str, list[float]] = {}
    for _ in range(STARTS):
        with ExitStack() as stack:
            sides = [stack.enter_context(start(program)) for program in (PROGRAM, earlier)]
            for side in sides:
                prepare(side, fetched, replicas)
            for work in works(fetched, scale):
                both = spent.setdefault(work.name, ([], []))
                done = len(both[0])
                for number in range(1 + work.rounds // STARTS):
                    for which in (0, 1) if number % 2 else (1, 0):
                        before = sides[which].cpu()
                        work.run(sides[which])
                        if number:  # the first round warms up
                            both[which].append(sides[which].cpu() - before)
                of_starts.setdefault(work.name, []).append(sum(both[0][done:]) / sum(both[1][done:]))
    for name, (new, old) in spent.items():
        ratios = sum(new) / sum(old), median(new) / median(old), min(new) / min(old)
        shown = "; ".join(f"{ratio:.2f}" for ratio in ratios)
        spread = f"{min(of_starts[name]):.2f} to {max(of_starts[name]):.2f}"
        print(f"  {name:<45} {shown}   ({sum(new):.2f} and {sum(old):.2f} s)   {spread}", flush=True)


def main() -> None:
    if len(sys.argv) < 2 or not Path(sys.argv[1]).exists():
        sys.exit(__doc__)
    for what in sys.argv[2:] or ("one", "three"):
        compare(what, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
