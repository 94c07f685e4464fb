"""Every short history around a CreateTopics that is answered before the logs of its topics exist, over a whole broker.

A request makes two topics. At every step that the broker takes from there on (a callback, or work off its thread that
has ended) one or two other things happen: a topic is deleted or made again, messages arrive, the broker is killed or
stopped and starts again, the controller is deposed, the disk fails for one partition. Then the broker comes to rest,
and once more after a restart with a disk that works, and promises are checked, not rules:

- a topic whose creation was answered, and whose deletion was not asked for, exists, with a leader of each partition,
  but for one whose disk has failed;
- a topic whose deletion was answered is gone, and no log of it is left; no topic is there in part;
- every message that was acknowledged is read from the topic that acknowledged it, and from no other one of its name.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import combinations_with_replacement, product
from typing import Any
from unittest.mock import patch

from support.coordination_faults import BlockingCoordination

from barnabas.core.cluster import layout
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.broker_api.envelope import Request
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.produce import Produce, ProducePartition, ProduceResult
from barnabas.ports.broker_api.topics import CreateTopics, DeleteTopics, NewTopic
from barnabas.ports.coordination import NoNode
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import BarnabasError
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import HERE, ManualBroker, batch

NAMES = ("a", "b")
PARTITIONS = 2
STEP_MS = 1.0


class BrokenPromise(AssertionError):
    """A history after which a topic or a message is missing, or there in part."""


class _Always:
    """Work off the broker's thread takes the same time, so that its end is a step of its own."""

    def fraction(self) -> float:
        return 1.0


class History:
    """One broker, what it was asked, and what it has answered."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self.broker = ManualBroker(wrap_session=BlockingCoordination, shared=shared)
        self._slow()
        self.exists: dict[str, bool | None] = dict.fromkeys(NAMES, False)
        """Whether the topic of the name exists; None: it may."""
        self.deletions = dict.fromkeys(NAMES, 0)
        """The number of deletions of the name that are known to have ended."""
        self.acknowledged: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self.failed: TopicPartition | None = None
        """The partition whose log cannot be created."""
        self._deletion_asked = dict.fromkeys(NAMES, False)
        self._open: dict[str, list[object]] = {name: [] for name in NAMES}
        """The requests to create or delete the topic that are not answered."""
        self._sent = 0

    def _slow(self) -> None:
        self.broker.scheduler._entropy = _Always()  # type: ignore[assignment]  # it has no other use
        self.broker.scheduler._offload_ms_max = STEP_MS

    def step(self) -> bool:
        """Run the next callback, unless the broker is at rest."""
        scheduler = self.broker.scheduler
        due = scheduler.next_due_ms()
        if due is None or due > scheduler.clock.monotonic_ms() + STEP_MS:
            return False
        scheduler.clock.advance_to(due)
        scheduler._run_one()
        return True

    def rest(self) -> None:
        self.broker.wait(5_000)

    # --- actions

    def create(self) -> None:
        """Ask for both topics."""
        topics = [NewTopic(name=name, partitions=PARTITIONS) for name in NAMES]
        self._ask(CreateTopics(topics=topics, timeout_ms=60_000), NAMES, exists_then=True)

    def delete(self) -> None:
        """Ask for the deletion of the second topic."""
        self._ask(DeleteTopics(names=[NAMES[1]]), NAMES[1:], exists_then=False)

    def _ask(self, request: Request[Any], names: Sequence[str], *, exists_then: bool) -> None:
        mark = object()
        for name in names:
            self._open[name].append(mark)
            if not (exists_then and self.exists[name]):
                self.exists[name] = None
            if not exists_then:
                self.acknowledged[name] = []
                self._deletion_asked[name] = True

        def answered(result: Any) -> None:
            for name, topic in zip(names, result.topics, strict=True):
                if mark not in self._open[name]:
                    continue  # the answer of a broker that was killed
                is_alone = self._open[name] == [mark]
                self._open[name].remove(mark)
                if is_alone and topic.error in _DONE:
                    self.exists[name] = exists_then
                    self.deletions[name] += not exists_then

        self.broker.node.api.submit(request, HERE, answered)

    def produce(self) -> None:
        """Send a message to each of the topics."""
        for name in NAMES:
            self._produce(name)

    def _produce(self, name: str) -> None:
        self._sent += 1
        value = b"%d %d" % (self.deletions[name], self._sent)
        existed = self.exists[name]

        def answered(result: Any) -> None:
            error = result.partitions[0].error if isinstance(result, ProduceResult) else None
            must_remain = not self._deletion_asked[name] or (existed and self.exists[name])
            if error is ErrorCode.NONE and must_remain:
                self.acknowledged[name].append(value)

        request = Produce(partitions=[ProducePartition(name, 0, batch(value))], acks=-1)
        self.broker.node.api.submit(request, HERE, answered)

    def kill(self) -> None:
        """kill -9, and another start over the same disk."""
        self._forget_open()
        broker = self.broker
        self.broker = ManualBroker(
            disk=broker.disk.after_crash(), tree=broker.tree, wrap_session=BlockingCoordination, shared=self.shared
        )
        self._slow()

    def stop(self) -> None:
        """Stop the broker in order, and start it again."""
        self.broker.stop()
        self._forget_open()
        self.broker.node = self.broker._started()

    def _forget_open(self) -> None:
        for name, marks in self._open.items():
            if marks:
                self.exists[name] = None
            marks.clear()

    def depose(self) -> None:
        """Another broker takes the node of the controller away."""
        with suppress(NoNode):
            self.broker.tree.session().delete(layout.CONTROLLER)

    def fail(self) -> None:
        """Let the disk fail for the log of the last partition."""
        self.failed = TopicPartition(NAMES[1], PARTITIONS - 1)

    def repair(self) -> None:
        """Let the disk work again; the broker takes it up at its next start."""
        self.failed = None

    # --- promises

    def check(self) -> None:
        """Check all promises. The broker is at rest."""
        found = {topic.name or "": topic for topic in self.broker.ask(Metadata(topics=None)).topics}
        made = {name: topic for name, topic in found.items() if name in NAMES}
        for name, exists in self.exists.items():
            if exists is not None and exists != (name in made):
                raise BrokenPromise(f"topic {name} is {'missing' if exists else 'still there'}")
            if name not in made and self.acknowledged[name]:
                raise BrokenPromise(f"topic {name} is gone with what it acknowledged: {self.acknowledged[name]}")
        for name, topic in made.items():
            leaders = [each.leader for each in topic.partitions if (name, each.partition) != self.failed]
            if topic.error is not ErrorCode.NONE or set(leaders) != {1} or len(topic.partitions) != PARTITIONS:
                raise BrokenPromise(f"topic {name} exists in part: {topic.error.name}, leaders {leaders}")
            values = [value or b"" for value in self.broker.values(name)]
            missing = [value for value in self.acknowledged[name] if value not in values]
            if missing:
                raise BrokenPromise(f"lost, though acknowledged by topic {name}: {missing}")
            former = [value for value in values if int(value.split()[0]) < self.deletions[name]]
            if former:
                raise BrokenPromise(f"topic {name} has messages of an earlier one: {former}")
        logs = {(key.topic, key.partition) for key in self.broker.node.state.logs.logs() if key.topic in NAMES}
        if (logs ^ {(name, number) for name in made for number in range(PARTITIONS)}) - {self.failed}:
            raise BrokenPromise(f"the topics {sorted(made)} have the logs {sorted(logs)}")


_DONE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

ACTIONS = ("delete", "create", "produce", "kill", "stop", "depose", "fail")


def search(actions: int, *, shared: bool, names: Sequence[str] = ACTIONS) -> int:
    """Play every history of `actions` actions after the request, of these `names`; return their number.

    `shared`: the broker is one of a cluster, and its own controller. Raises `BrokenPromise` with the history.
    """
    quiet = _play((), shared=shared)
    possible = [name for name in names if shared or name != "depose"]
    played = 0
    for several in product(possible, repeat=actions):
        for steps in combinations_with_replacement(range(quiet + 1), actions):
            _play(list(zip(steps, several, strict=True)), shared=shared)
            played += 1
    return played


def _play(actions: Sequence[tuple[int, str]], *, shared: bool) -> int:
    """Play these actions, each after its number of steps since the request; return the number of steps."""
    history = History(shared=shared)
    with _failing_disk(history):
        return _played(history, actions)


@contextmanager
def _failing_disk(history: History) -> Iterator[None]:
    create = UnifiedLog.create

    def maybe_create(folder: Any, *, topic_partition: TopicPartition, **others: Any) -> UnifiedLog:
        if topic_partition == history.failed:
            raise StorageError("the disk has failed")
        return create(folder, topic_partition=topic_partition, **others)

    with patch.object(UnifiedLog, "create", maybe_create):
        yield


def _played(history: History, actions: Sequence[tuple[int, str]]) -> int:
    history.create()
    taken = 0
    try:
        for after, name in actions:
            while taken < after and history.step():
                taken += 1
            getattr(history, name)()
        while history.step():
            taken += 1
        history.rest()
        history.check()
        history.produce()
        history.rest()
        history.check()
        history.repair()
        history.stop()
        history.rest()
        history.check()
    except (BrokenPromise, BarnabasError) as broken:
        done = ", ".join(f"{name} after step {after}" for after, name in actions)
        raise BrokenPromise(f"{done}: {broken}") from broken
    return taken
