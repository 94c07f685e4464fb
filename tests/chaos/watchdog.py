"""Readers that stand still: which of them are a client's fault, and are replaced.

librdkafka 2.16 can deadlock when a leader is gone while it validates a position: its main thread holds the lock of a
partition and waits for that of the client, a broker's thread the other way round (its issue 5476). Such a client never
does anything again. A reader is replaced by a fresh process only if all of this holds:

1. It was given nothing for `STILL_S`, though other clients were given messages behind its positions.
2. It does not react: a call that librdkafka's main thread answers without any broker has no answer within `REACT_S`.
   A broker that withholds messages, answers or the group cannot cause that, so that a reader that waits for a broker
   always reacts.
3. Our own consumer and a fresh process of librdkafka both read the same partitions, from the reader's positions to the
   end, within `WITNESS_S` each, and the reader was given nothing meanwhile.

Anything else is left as it is. What such a reader was not given is an anomaly (`group-skip`), or the run fails because
the topic cannot be read to its end: a stand-still that the brokers cause fails the run. A reader that has been replaced
`MOST` times is not replaced again.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import confluent_kafka
from attrs import define, field
from chaos.child import Report
from chaos.clients import TOPIC
from chaos.history import History, Replacement
from chaos.librdkafka import main_thread_answers
from chaos.processes import REACT_S, Child, Program, ReaderProcess
from support.waiting import PATIENCE_S

from barnabas import Consumer
from barnabas.ports.errors import BarnabasError

STILL_S = 30.0
WITNESS_S = PATIENCE_S / 2
LOOK_S = 1.0
MOST = 5
ATTEMPTS = 3
"""Fresh processes for one reading of a topic."""

Spans = Mapping[int, tuple[int, int]]
"""Partition → the first offset that is wanted, and the one after the last."""
Found = dict[int, list[tuple[int, str]]]


# --- reading a span, and the witnesses


class SpanRole:
    """Reads spans of a topic to their ends, in a process (`chaos.child`)."""

    def __init__(self, bootstrap: str, topic: str, spans: Sequence[Sequence[int]], isolation: str) -> None:
        """`spans`: partition, first offset, end."""
        self._topic = topic
        self._spans = spans
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "checker", "auto.offset.reset": "error", "log_level": 0}
            | {"enable.auto.commit": False, "enable.partition.eof": True, "isolation.level": isolation}
        )

    def run(self, report: Report, stopping: threading.Event) -> None:
        left = {partition: end for partition, first, end in self._spans if first < end}
        begin = [confluent_kafka.TopicPartition(self._topic, p, first) for p, first, _ in self._spans if p in left]
        self._consumer.assign(begin)
        while left and not stopping.is_set():
            found = []
            for message in self._consumer.consume(1000, 0.2):
                partition, offset = message.partition(), message.offset()
                error = message.error()
                if error is None:
                    found.append([partition, offset, (message.value() or b"").decode()])
                    is_end = (offset or 0) + 1 >= left.get(partition or 0, 0)
                else:  # markers of transactions may stand before the end
                    is_end = error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                    is_end = is_end and (offset or 0) >= left.get(partition or 0, 0)
                if is_end:
                    left.pop(partition or 0, None)
            if found:
                report("messages", found)
        report("complete", not left)
        self._consumer.close()

    def react(self) -> str:
        return main_thread_answers(self._consumer)


@define
class Reading:
    """One process that reads spans of a topic."""

    child: Child
    found: list[tuple[int, int, str]]
    complete: threading.Event

    @classmethod
    def begin(cls, bootstrap: str, topic: str, spans: Spans, isolation: str, role: str) -> "Reading":
        found: list[tuple[int, int, str]] = []
        complete = threading.Event()

        def on_report(kind: str, value: Any) -> None:
            if kind == "messages":
                found.extend((p, offset, text) for p, offset, text in value)
            elif kind == "complete" and value:
                complete.set()

        settings = {
            "bootstrap": bootstrap,
            "topic": topic,
            "spans": [[partition, first, end] for partition, (first, end) in spans.items()],
            "isolation": isolation,
        }
        return cls(Child(Program(role, settings), on_report), found, complete)


def read_by_librdkafka(bootstrap: str, topic: str, spans: Spans, isolation: str = "read_uncommitted") -> str:
    """Return what is wrong; nothing if a fresh process reads the spans to their ends in time."""
    reading = Reading.begin(bootstrap, topic, spans, isolation, "chaos.watchdog:SpanRole")
    try:
        return "" if reading.complete.wait(WITNESS_S) else "a fresh process of librdkafka cannot read it to the end"
    finally:
        reading.child.kill()


def read_by_ours(bootstrap: str, topic: str, spans: Spans, isolation: str = "read_uncommitted") -> str:
    """Return what is wrong; nothing if our consumer reads the spans to their ends in time."""
    left = {partition: end for partition, (first, end) in spans.items() if first < end}
    until = time.monotonic() + WITNESS_S
    try:
        with Consumer(bootstrap, auto_offset_reset="none", isolation_level=isolation) as consumer:
            consumer.assign([(topic, partition) for partition in left], position=0)
            for partition in left:
                consumer.seek((topic, partition), spans[partition][0])
            while left and time.monotonic() < until:
                consumer.poll_many(1000, timeout=0.2)
                at = {partition: consumer.position((topic, partition)) for partition in left}
                left = {partition: end for partition, end in left.items() if at[partition] < end}
    except BarnabasError as error:
        return f"our consumer: {error}"
    return f"our consumer did not read partitions {sorted(left)} to the end" if left else ""


def read_by_both(bootstrap: str, topic: str, spans: Spans, isolation: str = "read_uncommitted") -> str:
    """Return what is wrong; nothing if both witnesses read the spans to their ends in time."""
    return read_by_ours(bootstrap, topic, spans, isolation) or read_by_librdkafka(bootstrap, topic, spans, isolation)


def read_spans(
    history: History,
    bootstrap: str,
    topic: str,
    spans: Spans,
    now: Callable[[], float],
    *,
    isolation: str = "read_uncommitted",
    patience_s: float = PATIENCE_S,
    role: str = "chaos.watchdog:SpanRole",
) -> Found:
    """Read the spans by fresh processes of librdkafka; one that stands still is replaced by the rule of this module.

    Raises `TimeoutError` if one that reacts does not come to the end, or if our consumer does not either.
    """
    for attempt in range(ATTEMPTS):
        reading = Reading.begin(bootstrap, topic, spans, isolation, role)
        try:
            if reading.complete.wait(patience_s):
                found: Found = {partition: [] for partition in spans}
                for partition, offset, value in list(reading.found):
                    found[partition].append((offset, value))
                return found
            why = "it reacts" if reading.child.reacts() else read_by_ours(bootstrap, topic, spans, isolation)
            if reading.child.failure:
                why = reading.child.failure
            if why or attempt + 1 == ATTEMPTS:
                raise TimeoutError(f"{topic} cannot be read to its end by librdkafka: {why or 'in no attempt'}")
            history.replaced.append(
                Replacement(f"checker of {topic}", now(), "it stood still, and did not react", reading.child.stacks())
            )
        finally:
            reading.child.kill()
    raise AssertionError


# --- the watchdog


@define
class _Seen:
    """The last observation of a reader."""

    given: int
    since_s: float


@define
class Watchdog:
    """Looks at readers, and replaces those that stood still by their own fault (see above)."""

    history: History
    now: Callable[[], float]
    witness: Callable[[Spans], str]
    """Returns what is wrong; nothing if the spans can be read to their ends."""
    still_s: float = STILL_S
    react_s: float = REACT_S
    _seen: dict[str, _Seen] = field(factory=dict)
    _furthest: dict[str, dict[int, int]] = field(factory=dict)
    """Client → partition → the offset after the last that it was given."""
    _ends: dict[int, int] = field(factory=dict)
    """Partition → the offset after the last one that any reader got."""
    _polls: int = 0
    _stopping: threading.Event = field(factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, readers: Sequence[ReaderProcess]) -> None:
        self._thread = threading.Thread(target=self._run, args=(readers,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, readers: Sequence[ReaderProcess]) -> None:
        while not self._stopping.wait(LOOK_S):
            for reader in readers:
                self.look(reader)

    def look(self, reader: ReaderProcess) -> None:
        """Replace the reader if the rule says so."""
        self._note_polls()
        seen = self._seen.setdefault(reader.name, _Seen(reader.given, self.now()))
        spans = self._missing(reader)
        if reader.given != seen.given or not spans or reader.child is None:
            seen.given, seen.since_s = reader.given, self.now()
            return
        still_s = self.now() - seen.since_s
        if still_s < self.still_s or self._stopping.is_set():
            return
        if reader.child.reacts(self.react_s):
            seen.since_s = self.now()  # it waits for another component
            return
        why = f"it was given nothing for {still_s:.0f} s, and did not react"
        reason = self.witness(spans)
        if not reason and self._times(reader.name) >= MOST:
            reason = f"it was replaced {MOST} times before"
        if reader.given != seen.given or reader.child.has_ended:
            return
        if reason:
            self.history.not_replaced.append(
                f"{reader.name} at {self.now():.1f} s: {why}; it is not replaced: {reason}"
            )
            seen.since_s = self.now()
            return
        stacks = reader.child.stacks()
        self.history.replaced.append(Replacement(reader.name, self.now(), why, stacks))
        self._furthest.pop(reader.name, None)
        reader.replace()
        seen.given, seen.since_s = reader.given, self.now()

    def _times(self, name: str) -> int:
        return sum(each.client == name for each in self.history.replaced)

    def _note_polls(self) -> None:
        polls = self.history.polls
        new = polls[self._polls :]
        self._polls += len(new)
        for poll in new:
            mine = self._furthest.setdefault(poll.client, {})
            mine[poll.partition] = max(poll.offset + 1, mine.get(poll.partition, 0))
            self._ends[poll.partition] = max(poll.offset + 1, self._ends.get(poll.partition, 0))
        for partition, messages in self.history.final.items():
            if messages:
                self._ends[partition] = max(messages[-1][0] + 1, self._ends.get(partition, 0))

    def _missing(self, reader: ReaderProcess) -> Spans:
        """Return the offsets that other readers got and this one did not, also those of its group."""
        mine = self._furthest.get(reader.name, {})
        return {p: (mine.get(p, 0), end) for p, end in self._ends.items() if mine.get(p, 0) < end}


def watchdog_of(history: History, bootstrap: str, now: Callable[[], float]) -> Watchdog:
    """Return one for the readers of the topic of a run."""
    return Watchdog(history, now, lambda spans: read_by_both(bootstrap, TOPIC, spans))
