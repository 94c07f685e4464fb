"""Writing exactly once: a batch is committed as a whole, with all its tasks, and a repeated one is not written again.

Each task writes in a transaction of its own (`NAME-0`, `NAME-1`, ...), and leaves it open. The driver then commits the
transaction of task 0 with a note in it: which batch this is, and which transactions belong to it. That is the decision.
The others are committed after it, by the driver or by the next one, which first finishes what was decided. The note is
among the positions of the group NAME: the offset is the number of the batch, the metadata names the transactions.

A driver that was replaced and does not know it cannot decide: tasks of the new one have fenced its transactions.
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence

from attrs import evolve, frozen

from ... import Admin, CommittedOffset, PreparedTransaction, Producer, ProducerFenced
from ...ports.errors import BarnabasError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ..topics.connect import RowProducer, common_settings

_log = logging.getLogger("barnabas.pipeline")

TIMEOUT_MS = 900_000
"""The timeout of the tasks' transactions: the most that brokers allow by default. A batch must commit within it."""
_NOTE_BYTES_MAX = 4000  # and a few for what stands before the tasks
"""`offset.metadata.max.bytes` is 4096."""
_NOTE = re.compile(r"(?P<part>\d+)/(?P<parts>\d+) (?P<state>decided|done)(?P<tasks>( \d+:\d+:\d+)*)")


@frozen
class TaskTransaction:
    """The transaction that a task has written and left open."""

    task: int
    prepared: PreparedTransaction
    topics: frozenset[str] = frozenset()


@frozen
class Decision:
    """A batch, by its number, and the transactions of its tasks. With `done` all of them are committed."""

    version: int
    done: bool
    tasks: Mapping[int, tuple[int, int]]
    """Task → producer id and epoch."""
    partitions: Sequence[TopicPartition]
    """The partitions whose positions hold the note."""


@frozen(kw_only=True)
class WriteTarget:
    """The cluster of a write, the name of its writer, and the producer's settings."""

    bootstrap: str
    name: str
    producer: Mapping[str, str]

    def open(self, task: int) -> Producer:
        """Return a producer with the transactional id of a task. Raises `BarnabasError`."""
        config = {"transaction.timeout.ms": TIMEOUT_MS, **self.producer}
        return Producer(self.bootstrap, transactional_id=self._id(task), config=config)

    def prepared(self, task: int, identity: tuple[int, int]) -> PreparedTransaction:
        return PreparedTransaction(
            transactional_id=self._id(task), producer_id=identity[0], producer_epoch=identity[1], begun=True
        )

    def _id(self, task: int) -> str:
        return f"{self.name}-{task}"

    def task_of(self, transactional_id: str) -> int | None:
        """Return the reverse; None for an id that is none of ours."""
        number = transactional_id.removeprefix(f"{self.name}-")
        return int(number) if number != transactional_id and re.fullmatch(r"\d{1,9}", number) else None

    def admin(self) -> Admin:
        return Admin(self.bootstrap, config=common_settings(self.producer))


def write_task(target: WriteTarget, task: int, send: Callable[[RowProducer], int]) -> tuple[int, TaskTransaction]:
    """Have `send` write the rows of a task, and leave their transaction open; returns what it returns. What an earlier
    attempt at this task has left is aborted. Raises `BarnabasError`; then nothing is left."""
    with target.open(task) as producer:
        rows = RowProducer(producer)
        producer.begin_transaction()
        count = send(rows)
        rows.finish()
        return count, TaskTransaction(task, producer.prepare_transaction(), rows.topics)


def finish_decided(target: WriteTarget) -> int:
    """Finish what was decided; returns the number of the last batch that is written, -1 for none. On the driver, before
    tasks begin. Raises `BarnabasError`."""
    with target.admin() as admin:
        decision = _read(admin, target.name)
    if decision is None:
        return -1
    if not decision.done:
        _finish(target, decision)
        with target.open(0) as producer:  # fences a driver that is still at it
            producer.init_transactions()
            _note(target, producer, evolve(decision, done=True))
    return decision.version


def commit(target: WriteTarget, written: Sequence[TaskTransaction], version: int | None) -> bool:
    """Commit a batch; False if it is written already: then what the tasks have written is aborted.

    `version` None: the number after the last. Raises `BarnabasError`; after a decision the next driver finishes it.
    """
    last = finish_decided(target)
    wrote = {each.task: each.prepared for each in written if each.prepared.begun}
    if not wrote:
        return True
    if version is not None and version <= last:
        _log.info("batch %d of %s is written already: what was written again is aborted", version, target.name)
        abort(target, written)
        return False
    first = next(each for each in written if each.task == 0)
    tasks = {task: _identity(prepared) for task, prepared in {0: first.prepared, **wrote}.items()}
    partitions = _partitions_for(target, frozenset().union(*(each.topics for each in written)), tasks)
    decision = Decision(last + 1 if version is None else version, False, tasks, partitions)
    with target.open(0) as producer:
        producer.resume_transaction(first.prepared)
        _note(target, producer, decision, begun=first.prepared.begun)
    _finish(target, decision)
    with target.open(0) as producer:
        producer.resume_transaction(evolve(first.prepared, begun=False))
        _note(target, producer, evolve(decision, done=True))
    _abort_strays(target, wrote)
    return True


def abort(target: WriteTarget, written: Sequence[TaskTransaction]) -> None:
    """Abort what the tasks have left open, unless it is decided to be committed. A fenced one is aborted already.

    Raises the first `BarnabasError` when all of them have been tried: each that stays open holds up readers.
    """
    with target.admin() as admin:
        decision = _read(admin, target.name)
    decided = decision.tasks if decision is not None else {}
    failures: list[BarnabasError] = []
    for each in written:
        if each.prepared.begun and decided.get(each.task) != _identity(each.prepared):
            try:
                _abort_one(target, each)
            except BarnabasError as error:
                failures.append(error)
    if failures:
        raise failures[0]


def _abort_one(target: WriteTarget, each: TaskTransaction) -> None:
    with target.open(each.task) as producer:
        producer.resume_transaction(each.prepared)
        try:
            producer.abort_transaction()
        except ProducerFenced:
            _log.debug("%s was fenced before it was aborted", each.prepared.transactional_id)


def _identity(prepared: PreparedTransaction) -> tuple[int, int]:
    return prepared.producer_id, prepared.producer_epoch


def _finish(target: WriteTarget, decision: Decision) -> None:
    for task, identity in decision.tasks.items():
        if task == 0:
            continue  # it is committed: the note is in it
        with target.open(task) as producer:
            producer.resume_transaction(target.prepared(task, identity))
            try:
                producer.commit_transaction()
            except ProducerFenced as error:
                text = (
                    f"batch {decision.version} of {target.name} is decided, but the rows of task {task} are lost: "
                    "its transaction was aborted before, since it took longer than its timeout (option "
                    "kafka.transaction.timeout.ms), or since its id was used by another program"
                )
                raise BarnabasError(text) from error


def _abort_strays(target: WriteTarget, wrote: Collection[int]) -> None:
    """Abort what tasks of a larger batch have left, whose driver has ended: until then it would hold up readers."""
    try:
        with target.admin() as admin:
            listed = admin.list_transactions(states=["Ongoing"])
        tasks = (target.task_of(each.transactional_id) for each in listed)
        for task in (task for task in tasks if task is not None and task not in wrote):
            with target.open(task) as producer:
                producer.init_transactions()
    except BarnabasError as error:
        _log.warning("the transaction of an earlier batch is not aborted yet; its timeout will abort it: %s", error)


# --- the note


def _note(target: WriteTarget, producer: Producer, decision: Decision, *, begun: bool = False) -> None:
    """Commit the transaction that the producer has begun, or another one, with the note in it."""
    texts = note_texts(decision)
    notes = {
        tp: CommittedOffset(decision.version, -1, text) for tp, text in zip(decision.partitions, texts, strict=True)
    }
    if not begun:
        producer.begin_transaction()
    producer.send_offsets(notes, target.name)
    producer.commit_transaction()


def note_texts(decision: Decision) -> list[str]:
    """Return the texts of the note: as few as its length allows, each for one partition."""
    runs: list[str] = [""]
    for task, (producer_id, epoch) in decision.tasks.items():
        text = f" {task}:{producer_id}:{epoch}"
        if len(runs[-1]) + len(text) > _NOTE_BYTES_MAX:
            runs.append("")
        runs[-1] += text
    state = "done" if decision.done else "decided"
    return [f"{part}/{len(runs)} {state}{run}" for part, run in enumerate(runs, 1)]


def parse_notes(noted: Mapping[TopicPartition, tuple[int, str]]) -> Decision | None:
    """Return the last decision of those in (offset, metadata) of the group's positions. Raises `BarnabasError` for
    positions that are no notes."""
    if not noted:
        return None
    version = max(offset for offset, _ in noted.values())
    parts = {tp: text for tp, (offset, text) in noted.items() if offset == version}
    found = {tp: _NOTE.fullmatch(text) for tp, text in parts.items()}
    matches = {tp: match for tp, match in found.items() if match is not None}
    numbers = sorted((int(match["part"]), int(match["parts"])) for match in matches.values())
    if numbers != [(part, len(found)) for part in range(1, len(found) + 1)]:
        raise BarnabasError("the group of that name has positions that are no notes of batches: take another txnAppId")
    tasks: dict[int, tuple[int, int]] = {}
    for match in matches.values():
        for entry in match["tasks"].split():
            task, producer_id, epoch = map(int, entry.split(":"))
            tasks[task] = (producer_id, epoch)
    done = all(match["state"] == "done" for match in matches.values())
    return Decision(version, done, dict(sorted(tasks.items())), sorted(matches))


def _read(admin: Admin, name: str) -> Decision | None:
    offsets = admin.group_offsets(name, require_stable=True)
    return parse_notes({tp: (each.offset, each.metadata or "") for tp, each in offsets.items()})


def _partitions_for(
    target: WriteTarget, topics: Collection[str], tasks: Mapping[int, tuple[int, int]]
) -> list[TopicPartition]:
    """Partitions whose positions can hold the note. Raises `BarnabasError` for more tasks than fit in."""
    needed = len(note_texts(Decision(2**63 - 1, False, tasks, ())))
    with target.admin() as admin:
        described = admin.describe_topics(sorted(topics))
    partitions = [TopicPartition(topic.name or "", part.partition) for topic in described for part in topic.partitions]
    if len(partitions) < needed:
        there = counted(len(partitions), "partition")
        raise BarnabasError(f"{len(tasks)} tasks are too many for a note in {there}: coalesce() the rows first")
    return sorted(partitions)[:needed]
