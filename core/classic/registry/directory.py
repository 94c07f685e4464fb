"""The metadata of a classic producer: the live brokers, and the partitions of a topic on each of them (facts A6)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from attrs import field

from ....ports.broker_api.classic import RANDOM_PARTITION
from ....ports.coordination import Cancel, Coordination, CoordinationError, SessionState
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.transport import Address
from ....ports.values import define, frozen
from . import layout, offload, registries
from .layout import BrokerPartition, ClassicBroker

Learnt = Callable[[BarnabasError | None], None]
"""Called once: with None when the metadata has been read, or with the reason why it could not be."""

RETRY_MS = 1000.0
"""The wait between a failed reading and the next one, unless a watch reports a new connection before."""
_ENTRY = re.compile(r"\s*(?P<id>\d{1,10}):(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@\s]+):(?P<port>\d{1,5})\s*")
_REPORTS_MAX = 1000


class NoBrokersForPartition(BarnabasError):
    """No live broker has the partition that a message is for, also after the registries were read again."""


class Directory(Protocol):
    """Brokers and partitions. Owner thread only."""

    def address(self, broker_id: int) -> Address | None:
        """Return the address of the broker; None for one that is not alive."""
        ...

    def places(self, topic: str) -> Sequence[BrokerPartition] | None:
        """Return the partitions on live brokers, sorted by broker, then partition; None before `learn` has read them.

        A topic that no broker has is taken to have partition 0 on every live broker. Empty: there is no live broker.
        """
        ...

    def learn(self, topic: str, done: Learnt) -> None:
        """Read everything again, with this topic from now on; `done` is called later. A name that no topic can have is
        a `ConfigError`."""
        ...

    def close(self) -> None:
        """End all watches. Waiting `learn` callbacks get `ClosedError`."""
        ...


class StaticDirectory:
    """A fixed list of brokers, each with one pseudo-partition: which real one it is, the broker says."""

    def __init__(self, brokers: Mapping[int, Address]) -> None:
        self._brokers = dict(brokers)
        self._places = tuple(BrokerPartition(broker_id, RANDOM_PARTITION) for broker_id in sorted(brokers))

    def address(self, broker_id: int) -> Address | None:
        return self._brokers.get(broker_id)

    def places(self, topic: str) -> Sequence[BrokerPartition]:  # noqa: ARG002  the same for every topic
        return self._places

    def learn(self, topic: str, done: Learnt) -> None:  # noqa: ARG002
        done(None)

    def close(self) -> None:
        pass


def parse_broker_list(text: str) -> dict[int, Address]:
    """Broker id → address, of `id:host:port,id2:host:port`. Raises `ConfigError` naming the entry that is wrong."""
    brokers: dict[int, Address] = {}
    for entry in text.split(","):
        match = _ENTRY.fullmatch(entry)
        if match is None:
            raise ConfigError(
                f"broker.list: {entry.strip()!r} is not of the form id:host:port, such as 0:localhost:9092"
            )
        broker_id, port = int(match["id"]), int(match["port"])
        if not 0 < port <= 65_535 or broker_id >= 2**31:
            raise ConfigError(f"broker.list: {entry.strip()!r} has an id or a port that is out of range")
        if broker_id in brokers:
            raise ConfigError(f"broker.list: {entry.strip()!r} has the id of another entry")
        brokers[broker_id] = (match["host"].strip("[]"), port)
    return brokers


@frozen(kw_only=True)
class _Plan:
    """The topics and callbacks of one reading."""

    topics: Sequence[str]
    first: bool
    waiting: Sequence[Learnt]


@define(kw_only=True)
class _Found:
    """The result of one reading, as far as it got."""

    brokers: dict[int, ClassicBroker] = field(factory=dict)
    counts: dict[str, dict[int, int]] = field(factory=dict)
    cancels: dict[str, Cancel] = field(factory=dict)
    error: BarnabasError | None = None


class RegistryDirectory:
    """Brokers and topics from the registries, kept up to date by watches.

    Watched are the live brokers and every topic that was asked for, whether a broker has it yet or not; what stands
    below a topic is watched too, since it holds the number of partitions. Each change, and each new session, has all of
    it read again; until that succeeds the last that was read stands. Readings never overlap.
    """

    def __init__(
        self,
        coordination: Coordination,
        scheduler: Scheduler,
        *,
        report: Callable[[str], None],
        retry_ms: float = RETRY_MS,
    ) -> None:
        """`report` gets a line for each unreadable node of another process, from any thread, each text once."""
        self._coordination = coordination
        self._scheduler = scheduler
        self._report = report
        self._reported: set[str] = set()
        self._retry_ms = retry_ms
        self._brokers: dict[int, ClassicBroker] = {}
        self._counts: dict[str, dict[int, int]] = {}
        self._places: dict[str, tuple[BrokerPartition, ...]] = {}
        self._topics: dict[str, None] = {}
        self._cancels: dict[str, Cancel] = {}
        self._waiting: list[Learnt] = []
        self._stale = False
        self._reading = False
        self._failing = False
        self._retry: Timer | None = None
        self._closed = False

    def address(self, broker_id: int) -> Address | None:
        broker = self._brokers.get(broker_id)
        return None if broker is None else (broker.host, broker.port)

    def places(self, topic: str) -> Sequence[BrokerPartition] | None:
        known = self._places.get(topic)
        if known is None and topic in self._counts:
            known = self._places[topic] = places_of(self._counts[topic], self._brokers)
        return known

    def learn(self, topic: str, done: Learnt) -> None:
        if self._closed:
            self._scheduler.call_soon(lambda: done(ClosedError("the directory is closed")))
            return
        try:
            layout.check_name("topic", topic)
        except ConfigError as error:
            refusal = error  # it would be in the way of all readings to come
            self._scheduler.call_soon(lambda: done(refusal))
            return
        self._topics[topic] = None
        self._waiting.append(done)
        self._read_again()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._retry is not None:
            self._retry.cancel()
        waiting, self._waiting = self._waiting, []
        _complete_all(waiting, ClosedError("the directory is closed"))
        self._cancel(self._cancels)
        self._cancels = {}

    # --- reading

    def _read_again(self) -> None:
        """Something may have changed. Owner thread."""
        self._stale = True
        if self._reading or self._closed:
            return
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._stale = False
        self._reading = True
        waiting, self._waiting = self._waiting, []
        plan = _Plan(topics=tuple(self._topics), first=not self._cancels, waiting=waiting)
        watched = frozenset(self._cancels)
        offload.run(
            self._scheduler,
            self._coordination,
            lambda: self._read_nodes(plan, watched),
            lambda outcome: self._read(plan, outcome),
        )

    def _read_nodes(self, plan: _Plan, watched: frozenset[str]) -> _Found:
        """Watch first, then read: so no change is missed. Off the owner thread, where calls may block."""
        found = _Found()

        def watch(path: str) -> None:
            if path not in watched and path not in found.cancels:
                found.cancels[path] = self._coordination.watch(path, self._changed)

        try:
            if plan.first:
                found.cancels[""] = self._coordination.add_session_listener(self._session_changed)
            watch(layout.BROKER_IDS)
            for topic in plan.topics:
                watch(layout.topic_path(topic))
                for name in registries.children(self._coordination, layout.topic_path(topic)):
                    watch(f"{layout.topic_path(topic)}/{name}")
            found.brokers = registries.read_brokers(self._coordination, self._report_once)
            found.counts = dict(registries.read_topics(self._coordination, plan.topics, self._report_once))
        except BarnabasError as error:
            found.error = error
        return found

    def _read(self, plan: _Plan, outcome: Outcome[_Found]) -> None:
        self._reading = False
        found = outcome.value or _Found()
        error: BarnabasError | None = found.error
        if outcome.error is not None:
            error = CoordinationError(f"the registries could not be read: {outcome.error!r}")
        if self._closed:
            self._cancel(found.cancels)
            _complete_all(plan.waiting, ClosedError("the directory is closed"))
            return
        self._cancels |= found.cancels
        if error is None:
            self._brokers, self._counts = found.brokers, self._counts | found.counts
            self._places = {}
        elif not self._failing:
            self._report(f"brokers and topics cannot be read now, what was read last stands: {error}")
        self._failing = error is not None
        _complete_all(plan.waiting, error)
        if self._stale:
            self._read_again()
        elif error is not None and self._retry is None:
            self._retry = self._scheduler.call_later(self._retry_ms, self._read_again)

    def _changed(self) -> None:
        """Have the registries read again; runs on a thread of the adapter."""
        try:
            self._scheduler.call_soon(self._read_again)
        except ClosedError:
            return  # the producer has gone

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._changed()

    def _report_once(self, text: str) -> None:
        if text not in self._reported and len(self._reported) < _REPORTS_MAX:
            self._reported.add(text)
            self._report(text)

    def _cancel(self, cancels: Mapping[str, Cancel]) -> None:
        def work() -> None:
            for cancel in cancels.values():
                cancel()

        try:
            offload.run(self._scheduler, self._coordination, work, self._cancelled)
        except ClosedError:
            return  # the scheduler is gone, and so is every caller

    def _cancelled(self, outcome: Outcome[None]) -> None:
        if outcome.error is not None and not isinstance(outcome.error, BarnabasError):
            self._report_once(f"a watch could not be ended: {outcome.error!r}")


def places_of(counts: Mapping[int, int], live: Iterable[int]) -> tuple[BrokerPartition, ...]:
    """Return the sorted partitions on live brokers, or partition 0 of each if no live broker has the topic."""
    alive = sorted(live)
    pairs = tuple(BrokerPartition(b, partition) for b in alive for partition in range(counts.get(b, 0)))
    return pairs or tuple(BrokerPartition(b, 0) for b in alive)


def _complete_all(waiting: Iterable[Learnt], error: BarnabasError | None) -> None:
    for done in waiting:
        done(error)
