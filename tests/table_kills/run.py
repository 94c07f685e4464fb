"""Rounds of kill -9 at everything that takes part in a load, over tables of each format."""

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from attrs import define, field, frozen
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from table_kills.foreign import READERS
from table_kills.loading import Loader
from table_kills.source import Source
from table_kills.verdict import faults

from barnabas import Admin

TOPICS = {"a": 3, "b": 1}
CALL_S = 120.0
SETTLED_S = 300.0
PER_ROUND = 300
"""Messages of each partition."""


@define
class Outcome:
    rounds: int = 0
    kills: Counter[str] = field(factory=Counter)
    """By format and what was killed."""
    steps: Counter[str] = field(factory=Counter)
    """By the step that the driver was killed at."""
    errors: Counter[str] = field(factory=Counter)
    """The errors of loads that were not killed themselves."""
    faults: list[str] = field(factory=list)
    rows: int = 0
    reads: int = 0
    """By readers that are not ours, meanwhile."""


@frozen
class Round:
    number: int
    format: str
    target: str


def play(
    folder: Path,
    source: Callable[[Path], Source],
    *,
    rounds: int,
    seed: int,
    formats: Sequence[str] = tuple(READERS),
    say: Callable[[str], None],
) -> Outcome:
    """Kill loads, one a round; after each, one load copies the remaining messages, and the table is checked."""
    with ExitStack() as stack:
        harness = Harness(folder, source, random.Random(seed), stack)
        for number in range(rounds):
            target = harness.source.targets[number // len(formats) % len(harness.source.targets)]
            harness.play(Round(number, formats[number % len(formats)], target))
            if not (number + 1) % 5:
                done = harness.outcome
                say(f"{done.rounds} rounds, {done.kills.total()} kills, {len(done.faults)} faults")
        harness.end()
        return harness.outcome


class Harness:
    """Source, producer, loader and reader."""

    def __init__(self, folder: Path, source: Callable[[Path], Source], chance: random.Random, stack: ExitStack) -> None:
        self.outcome = Outcome()
        self._folder = folder
        self._chance = chance
        self._sent = 0
        """Messages of each partition."""
        self.source = source(folder)
        stack.callback(self.source.stop)
        with Admin(self.source.bootstrap) as admin:
            for topic, partitions in TOPICS.items():
                admin.create_topic(topic, partitions=partitions)
        self._loader = Loader(self.source.bootstrap, folder)
        stack.callback(lambda: self._loader.end())  # noqa: PLW0108  the one that is there then
        self._last_steps: dict[str, int] = {}
        reader = [sys.executable, "-P", "-m", "table_kills.reader", str(folder), json.dumps(TOPICS)]
        self._reader = subprocess.Popen(
            reader, stdin=subprocess.PIPE, stdout=(folder / "reader.out").open("w"), stderr=None, text=True
        )
        stack.callback(self._reader.kill)

    def play(self, this: Round) -> None:
        self._produce()
        before = self.outcome.kills.total()
        if (self._folder / this.format).exists():  # the first commit of a table is made in peace, and once by a kill
            self._kill_something(this)
        elif this.target == "a step":
            self._order(this.format, kill_at=self._chance.randrange(6))
            self._await(this)
        if self.outcome.kills.total() == before:
            self.outcome.errors["nothing was killed: it was done before"] += 1
        self._await_all_messages(this)
        self._load_all(this)
        self._examine(this)
        self.outcome.rounds += 1

    def end(self) -> None:
        assert self._reader.stdin is not None
        self._reader.stdin.close()
        self._reader.wait(60)
        for line in (self._folder / "reader.out").read_text().splitlines():
            said = json.loads(line)
            self.outcome.reads += said.get("reads", 0)
            self.outcome.faults += [f"seen meanwhile: {said['fault']}"] if "fault" in said else []

    def _kill_something(self, this: Round) -> None:
        if this.target.startswith("a step"):
            what = this.target.rpartition(" ")[2].lstrip("-")
            steps = self._last_steps.get(f"{this.format} {what}", 12)
            self._order(this.format, what, kill_at=self._chance.randrange(steps))
            self._await(this)
            return
        self._order(this.format)
        if self._loader.answer("step", "done", "failed")["event"] != "step":
            return
        time.sleep(self._chance.uniform(0, 2.5))
        killed = True
        if this.target == "driver":
            self._loader.kill_driver()
        elif this.target == "java":
            killed = self._loader.kill_java()
        elif this.target == "worker":
            killed = self._loader.kill_worker()
        elif this.target in ("broker", "leader"):
            self.source.kill(self._chance, self._chance.choice(sorted(TOPICS)))
        else:
            self._loader.end()
        self.outcome.kills[f"{this.format}: {this.target}"] += killed
        self._await(this)

    def _order(self, named: str, what: str = "load", *, kill_at: int = -1) -> None:
        since_ms = None
        if what == "since":
            since_ms = int(time.time() * 1000) - self._chance.randrange(1, 60_000)
        self._loader.order(
            work="compact" if what == "compact" else "load",
            format=named,
            folder=str(self._folder / named),
            topics=list(TOPICS),
            since_ms=since_ms,
            kill_at=kill_at,
        )

    def _await(self, this: Round) -> None:
        """Wait for the end of the disturbed load, and note how it ended."""
        ended = self._loader.answer("done", "failed", "killed")
        if ended["event"] in ("killed", "dead"):
            self._loader.process.wait()
        if ended["event"] == "killed":
            self.outcome.kills[f"{this.format}: {this.target}"] += 1
            self.outcome.steps[f"{this.format}: {ended['step']}"] += 1
        elif ended["event"] == "failed":
            self.outcome.errors[f"{this.target}: {ended['kind']}: {ended['error'][:150]}"] += 1

    def _load_all(self, this: Round) -> None:
        """Repeat the load, as a user does who finds it dead. A remaining Java process is not waited for."""
        left = None
        until = time.monotonic() + 240
        while True:
            if not self._loader.alive:
                left = self._loader
                self._loader = Loader(self.source.bootstrap, self._folder)
            self._order(this.format)
            ended = self._loader.answer("done", "failed")
            if ended["event"] == "done":
                break
            text = ended.get("error", "the loader died")
            self.outcome.errors[f"after {this.target}: {text[:150]}"] += 1
            if this.target not in ("java", "driver", "worker", "everything") and ended["event"] == "dead":
                self.outcome.faults.append(f"round {this.number}: the load died by itself")
            if time.monotonic() > until:
                raise TimeoutError(f"round {this.number}: no load comes through: {text}")
        self._last_steps[f"{this.format} step"] = max(
            6, ended.get("steps", 0), self._last_steps.get(f"{this.format} step", 0)
        )
        if left is not None:
            left.end()

    def _examine(self, this: Round) -> None:
        ends = self._ends()
        seen, reached = READERS[this.format](self._folder / this.format, TOPICS)
        self.outcome.rows = max(self.outcome.rows, seen.total())
        found = faults(seen, reached)
        if dict(reached) != ends:
            found.append(f"the table is at {dict(reached)}, the topics end at {ends}")
        left = self._folder / this.format / "_barnabas" / "staging"
        if left.is_dir() and list(left.iterdir()):
            found.append(f"{list(left.iterdir())} was left")
        self.outcome.faults += [f"round {this.number}, {this.format}, {this.target} killed: {text}" for text in found]

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.source.bootstrap, "enable.idempotence": True, "log_level": 0})
        for topic, partitions in TOPICS.items():
            for number in range(partitions * PER_ROUND):
                producer.produce(topic, b"value %d" % number, b"key", partition=number % partitions)
        assert producer.flush(CALL_S) == 0
        self._sent += PER_ROUND

    def _await_all_messages(self, this: Round) -> None:
        """A new leader does not know at once that all has all that it has."""
        until, ends = time.monotonic() + SETTLED_S, dict[tuple[str, int], int]()
        while set(ends.values()) != {self._sent}:
            if time.monotonic() > until:
                self.outcome.faults.append(f"round {this.number}: {self._sent} were sent, the topics end at {ends}")
                return
            time.sleep(0.1)
            with suppress(KafkaException):  # a partition without a leader
                ends = self._ends()

    def _ends(self) -> dict[tuple[str, int], int]:
        consumer = Consumer({"bootstrap.servers": self.source.bootstrap, "group.id": "nobody", "log_level": 0})
        try:
            places = [TopicPartition(topic, number) for topic, count in TOPICS.items() for number in range(count)]
            return {(at.topic, at.partition): consumer.get_watermark_offsets(at, CALL_S)[1] for at in places}
        finally:
            consumer.close()
