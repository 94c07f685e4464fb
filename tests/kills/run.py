"""Rounds of kill -9 at a broker under transactional load."""

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from attrs import frozen
from confluent_kafka import Consumer, TopicPartition
from kills.verdict import faults
from kills.work import CALL_S, GROUP, PARTITIONS, QUICK, SOURCE, TARGET, Source, Transformer, Witness, reader, taken
from support.ports import free_port
from support.process import BrokerProcess

from barnabas import Admin

SETTINGS = (
    "offsets.topic.num.partitions=2",
    "transaction.state.log.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
    "auto.create.topics.enable=false",
)
PATIENCE_S = 120.0


@frozen
class Outcome:
    faults: list[str]
    messages: int
    committed: int
    aborted: int
    lives: int
    """The number of transactional producers that were started."""
    down_s: float
    """From a kill until the broker served again, all in all."""


def play(folder: Path, *, rounds: int, seed: int, transformers: int = 1, say: Callable[[str], None]) -> Outcome:
    """Kill the broker `rounds` times, let all work end, and check the result."""
    chance = random.Random(seed)
    port = free_port()
    data, address = folder / "data", f"kafka://127.0.0.1:{port}"
    down_s = 0.0
    with ExitStack() as stack:
        broker = BrokerProcess(data, *SETTINGS, listen=[address])
        stack.callback(lambda: broker.process.poll() is None and broker.stop())
        where = broker.bootstrap
        with Admin(where) as admin:
            for topic in (SOURCE, TARGET):
                admin.create_topic(topic, partitions=PARTITIONS)
        source = Source(where, per_second=400)
        working = [Transformer(where, f"t{number}", seed + number) for number in range(transformers)]
        witness = Witness(where)
        everybody = [source, *working, witness]
        for each in everybody:
            stack.callback(each.stopping.set)
        wait_until(lambda: sum(each.committed for each in working) > 0, "no transaction was committed")
        for number in range(rounds):
            time.sleep(chance.uniform(0.05, 1.0))
            began = time.monotonic()
            broker.kill()
            broker = BrokerProcess(data, *SETTINGS, listen=[address])
            down_s += time.monotonic() - began
            before = sum(each.committed for each in working)
            wait_until(lambda: sum(each.committed for each in working) > before, "no commits follow")  # noqa: B023
            if not (number + 1) % 10:
                say(f"{number + 1} rounds, {sum(each.committed for each in working)} transactions")
        source.stop()
        ends = watermarks(where)
        wait_until(lambda: positions(where) == ends, "the group does not come to the end")
        for each in working:
            each.stop()
        target = everything(where)
        wait_until(lambda: len(witness.seen) >= len(target), "the witness does not come to the end")
        witness.stop()
        return Outcome(
            faults=faults(ends, target, witness.seen, positions(where)),
            messages=source.sent,
            committed=sum(each.committed for each in working),
            aborted=sum(each.aborted for each in working),
            lives=sum(each.lives for each in working),
            down_s=down_s,
        )


def wait_until(true: Callable[[], bool], text: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(text)
        time.sleep(0.05)


def watermarks(where: str) -> dict[int, int]:
    """Return the end offsets of the source."""
    consumer = Consumer({"bootstrap.servers": where, "group.id": "nobody", **QUICK})
    try:
        partitions = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
        return {tp.partition: consumer.get_watermark_offsets(tp, CALL_S)[1] for tp in partitions}
    finally:
        consumer.close()


def positions(where: str) -> dict[int, int]:
    """Return the committed offsets of the group, when none of them is about to change."""
    consumer = Consumer({"bootstrap.servers": where, "group.id": GROUP, **QUICK})
    try:
        partitions = [TopicPartition(SOURCE, number) for number in range(PARTITIONS)]
        return {place.partition: place.offset for place in consumer.committed(partitions, CALL_S)}
    finally:
        consumer.close()


def everything(where: str) -> list[tuple[int, int, str]]:
    """Return all committed messages of the target, for a reader that starts now."""
    with reader(where) as consumer:
        partitions = [TopicPartition(TARGET, number) for number in range(PARTITIONS)]
        found: list[tuple[int, int, str]] = []
        ends = {place.partition: consumer.get_watermark_offsets(place, CALL_S)[1] for place in partitions}

        def is_readable() -> bool:
            found.extend(taken(consumer))
            at = {place.partition: place.offset for place in consumer.position(partitions)}
            return all(at[number] >= end for number, end in ends.items() if end)

        wait_until(is_readable, f"the target cannot be read up to {ends}")
        return found
