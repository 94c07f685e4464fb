"""Consume-transform-produce in transactions on a cluster under faults.

The load and its verdict are those of `kills`; here several transformers run, and brokers and coordinators come and go.
The clients that read are processes, and those that stood still by their own fault are replaced (`chaos.watchdog`).
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from chaos.child import Report
from chaos.history import History, Replacement
from chaos.librdkafka import main_thread_answers
from chaos.processes import Child, Program
from chaos.watchdog import MOST, STILL_S, Spans, read_by_both, read_spans
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kills.run import positions, watermarks
from kills.verdict import aborted_reads, lost_or_doubled, offsets_apart, partial_transactions
from kills.work import CALL_S, PARTITIONS, SOURCE, TARGET, Source, Transformer, Witness

PATIENCE_S = 180.0
"""Longer than any fault, and than the clients' own delivery timeouts."""
TURN_S = 0.2
STOP_S = 3 * CALL_S + 30
COUNTS = ("committed", "aborted", "lives")
COMMITTED = "read_committed"


# --- in the processes


class TransformerRole:
    """A transformer of `kills` that reports its counts."""

    def __init__(self, bootstrap: str, name: str, seed: int) -> None:
        self._work = Transformer(bootstrap, name, seed)

    def run(self, report: Report, stopping: threading.Event) -> None:
        before: list[Any] = []
        while not stopping.wait(TURN_S):
            self._work.check()
            before = self._report_new(report, before)
        self._work.stop()
        self._report_new(report, before)

    def _report_new(self, report: Report, before: list[Any]) -> list[Any]:
        now = [*(getattr(self._work, name) for name in COUNTS), self._work.doing]
        if now != before:
            report("counts", now)
        return now

    def react(self) -> str:
        return main_thread_answers(self._work.consumer)


class TargetRole:
    """The witness of `kills` that reports what it reads of the target."""

    def __init__(self, bootstrap: str) -> None:
        self._work = Witness(bootstrap)

    def run(self, report: Report, stopping: threading.Event) -> None:
        reported = 0
        while not stopping.wait(TURN_S):
            self._work.check()
            new = self._work.seen[reported:]
            reported += len(new)
            if new:
                report("seen", new)
        self._work.stop()

    def react(self) -> str:
        return main_thread_answers(self._work.consumer)


# --- and here


class WorkProcess:
    """A transformer, or the reader of the target, in a process. A fresh one has the same transactional id."""

    def __init__(self, name: str, program: Program) -> None:
        self.name = name
        self._program = program
        self._before = dict.fromkeys(COUNTS, 0)
        self._counts = dict(self._before)
        self.doing = "nothing yet"
        self.seen: list[tuple[int, int, str]] = []
        self.child = Child(program, self._on_report)

    def count(self, name: str) -> int:
        """Return the number for all processes that this one had."""
        return self._before[name] + self._counts[name]

    def replace(self) -> None:
        """Kill the process, and start a fresh one."""
        self.child.kill()
        self._before = {name: self.count(name) for name in COUNTS}
        self._counts = dict.fromkeys(COUNTS, 0)
        self.seen = []
        self.child = Child(self._program, self._on_report)

    def stop(self) -> None:
        """Raise what it died of, or `TimeoutError`."""
        self.child.ask_to_stop()
        if not self.child.wait(STOP_S):
            raise TimeoutError(f"{self.name} does not stop")
        if self.child.failure:
            raise RuntimeError(f"{self.name} died: {self.child.failure}")

    def _on_report(self, kind: str, value: Any) -> None:
        if kind == "counts":
            self._counts = dict(zip(COUNTS, value, strict=False))
            self.doing = value[-1]
        elif kind == "seen":
            self.seen += [(partition, offset, text) for partition, offset, text in value]


class TransactionalLoad:
    """A producer, transformers and a read_committed reader. Start it on a healthy cluster that has both topics."""

    def __init__(self, bootstrap: str, *, seed: int, transformers: int = 2, per_second: float = 50) -> None:
        self._bootstrap = bootstrap
        self._source = Source(bootstrap, per_second)
        self._transformers = [
            WorkProcess(
                f"transformer-{n}",
                Program(
                    "chaos.transactions:TransformerRole",
                    {"bootstrap": bootstrap, "name": f"transformer-{n}", "seed": seed + n},
                ),
            )
            for n in range(transformers)
        ]
        self._reader = WorkProcess("witness", Program("chaos.transactions:TargetRole", {"bootstrap": bootstrap}))

    def _count(self, name: str) -> int:
        return sum(each.count(name) for each in self._transformers)

    def close(self) -> None:
        """End the work without waiting for its end."""
        self._source.stopping.set()
        for each in (*self._transformers, self._reader):
            each.child.kill()

    def finish(self, history: History, now: Callable[[], float]) -> dict[str, Any]:
        """Let the load come to its end on a healthy cluster, note every anomaly, and return figures."""
        try:
            self._source.stop()
        except (RuntimeError, TimeoutError) as error:
            history.transactional.append(("client-stuck", f"{error}: {error.__cause__}"))
        ends = _retried(lambda: watermarks(self._bootstrap))

        def unread() -> Spans:
            at = positions(self._bootstrap)
            return {number: (max(0, at[number]), end) for number, end in ends.items() if at[number] < end}

        def look_at_transformers() -> bool:
            replaced = [self._look(each, SOURCE, unread, history, now) for each in self._transformers]
            return any(replaced)

        try:
            _wait_until(lambda: not unread(), lambda: self._count("committed"), look_at_transformers)
        except TimeoutError:  # `offsets_apart` says where the group stands
            doing = ", ".join(f"{each.name}: {each.doing}" for each in self._transformers)
            try:
                others = read_by_both(self._bootstrap, SOURCE, unread(), COMMITTED) or "others read what they lack"
            except KafkaException as error:  # the run still ends with its report
                others = f"where the group stands is not known: {error}"
            history.transactional.append(("offsets-apart", f"the transformers are in {doing}; {others}"))
        for each in self._transformers:
            self._stop(each, SOURCE, ends, history, now)
        target_ends = _retried(lambda: _ends_of(TARGET, self._bootstrap))
        spans = {number: (0, end) for number, end in target_ends.items()}
        found = read_spans(history, self._bootstrap, TARGET, spans, now, isolation=COMMITTED, patience_s=PATIENCE_S)
        target = [(number, offset, text) for number, messages in found.items() for offset, text in messages]

        def look_at_reader() -> bool:
            return self._look(self._reader, TARGET, lambda: spans, history, now)

        try:
            _wait_until(lambda: len(self._reader.seen) >= len(target), lambda: len(self._reader.seen), look_at_reader)
        except TimeoutError:
            text = f"the reader has {len(self._reader.seen)} of {len(target)}"
            history.transactional.append(("aborted-read", text))
        self._stop(self._reader, TARGET, target_ends, history, now)
        faults = {
            "partial-transaction": partial_transactions(target),
            "output-wrong": lost_or_doubled(ends, target),
            "aborted-read": aborted_reads(target, self._reader.seen),
            "offsets-apart": offsets_apart(ends, _retried(lambda: positions(self._bootstrap))),
        }
        history.transactional += [(kind, text) for kind, texts in faults.items() for text in texts]
        return {
            "transactions committed": self._count("committed"),
            "transactions aborted": self._count("aborted"),
            "lives of transactional producers": self._count("lives"),
            "messages transformed once": len(target),
        }

    def _look(
        self, each: WorkProcess, topic: str, unread: Callable[[], Spans], history: History, now: Callable[[], float]
    ) -> bool:
        """Replace a client that stood still, by the rule of `chaos.watchdog`; return True if it was replaced."""
        if each.child.reacts():
            return False
        why = f"it made no progress for {STILL_S:.0f} s, and did not react"
        reason = read_by_both(self._bootstrap, topic, unread(), COMMITTED)
        if not reason and sum(past.client == each.name for past in history.replaced) >= MOST:
            reason = f"it was replaced {MOST} times before"
        if reason:
            history.not_replaced.append(f"{each.name} at {now():.1f} s: {why}; it is not replaced: {reason}")
            return False
        history.replaced.append(Replacement(each.name, now(), why, each.child.stacks()))
        each.replace()
        return True

    def _stop(
        self, each: WorkProcess, topic: str, ends: dict[int, int], history: History, now: Callable[[], float]
    ) -> None:
        """Stop a client; one that stood still by its own fault is named, and its process killed."""
        each.child.ask_to_stop()
        try:
            if not each.child.wait(STILL_S) and not each.child.reacts():
                reason = read_by_both(self._bootstrap, topic, {p: (0, end) for p, end in ends.items()}, COMMITTED)
                why = f"it did not react when it was stopped{f'; {reason}' if reason else ''}"
                if reason:
                    history.transactional.append(("client-stuck", f"{each.name}: {why}"))
                else:
                    history.replaced.append(Replacement(each.name, now(), why, each.child.stacks()))
                return
            each.stop()
        except (RuntimeError, TimeoutError) as error:
            history.transactional.append(("client-stuck", f"{error}, in {each.doing}"))
        finally:
            each.child.kill()


def _ends_of(topic: str, bootstrap: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "isolation.level": COMMITTED})
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return {tp.partition: consumer.get_watermark_offsets(tp, CALL_S)[1] for tp in partitions}
    finally:
        consumer.close()


def _retried(call: Callable[[], dict[int, int]]) -> dict[int, int]:
    """Ask again after an error: leaders and coordinators may have moved a moment ago."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except KafkaException:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def _wait_until(condition: Callable[[], bool], progress: Callable[[], int], look: Callable[[], bool]) -> None:
    """Ask again while the answer is no, or an error: a coordinator may have moved a moment ago.

    `look` is called when there was no progress for a while; where it replaced a client, all the time begins again.
    """
    until = time.monotonic() + PATIENCE_S
    before, still_from = progress(), time.monotonic()
    while True:
        with suppress(KafkaException):
            if condition():
                return
            if progress() != before:
                before, still_from = progress(), time.monotonic()
            elif time.monotonic() - still_from > STILL_S:
                if look():
                    until = time.monotonic() + PATIENCE_S
                before, still_from = progress(), time.monotonic()
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)
