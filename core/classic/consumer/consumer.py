"""The consumer of the classic generation, as a machine: member of a group, streams, fetchers, offsets (facts A8).

Its membership in the group starts rebalances and repeats failed ones.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, Protocol

from ....ports.broker_api.classic import (
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResult,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
)
from ....ports.broker_api.envelope import Caller
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.clock import Clock
from ....ports.coordination import Coordination, SessionState
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ....ports.scheduler import Outcome, Scheduler, Timer
from ....ports.storage import Region
from ....ports.transport import TransportError
from ....ports.types import Buffer
from ....ports.values import frozen
from ...client.errors import NoOffset
from ...client.network.connection import Connect
from ...client.network.links import LinkDependencies, NodeLink
from ...client.serde import Decoder
from ...message.classic.message_set import ClassicMessageSet
from ...message.codec import Codecs
from ..rebalancer import RangeRebalancer, Rebalancer
from ..registry.group import Owned, OwnershipConflict
from ..registry.layout import BrokerPartition, ClassicBroker, thread_id
from ..registry.offload import Lane
from ..registry.subscription import ClassicSubscription
from .registry import ConsumerRegistry, PartitionClaim, StartOffsets, Survey
from .settings import ConnectorSettings, ConsumerRebalanceFailed
from .streams import FetchedDataChunk, OwnedPartition, StreamFeed, StreamQueue, StreamReader

_EARLY = 0.05
"""The part of the back-off to wait when a claim's conflict has gone. The other owner may have more to release."""


FirstEnded = Callable[[ConsumerRebalanceFailed | None], None]


class PartitionReader(Protocol):
    """The reader of the partitions that a membership claims."""

    def give_up(self, owned: Collection[Owned]) -> dict[Owned, int]:
        """Hand out nothing more of these, now; returns the offsets consumed up to, where they are known."""
        ...

    def add_partitions(
        self, gained: Mapping[Owned, str], starts: Mapping[Owned, int], brokers: Mapping[int, ClassicBroker]
    ) -> None:
        """Read these too, by those threads; continue to read the earlier ones, from these brokers."""
        ...

    def rebalance_failed(self, error: ConsumerRebalanceFailed) -> None: ...

    def hold(self, held: bool) -> None:
        """Hand out nothing for now, or (False) continue."""
        ...


class ClassicMembership:
    """One consumer among those of its group. Owner thread only.

    A change of what is watched sets a flag; rebalances run one at a time. Each looks around first: if our share is what
    we have, nothing happens. Otherwise what is no longer ours is given up and committed, and what is new is claimed; as
    0.7 does, except that what stays ours is read on meanwhile, so that nothing of it is handed out twice. A failed
    attempt is repeated after `rebalance.backoff.ms`, from looking around on. A new member finds its partitions owned
    for the moment that the others need to release them: it tries again as soon as they have, which is no new attempt.

    When the session expires, everything is given up at once; the consumer registers again and starts over. While the
    connection is only suspended, it reads on what it owns for `zk.suspended.stop.ms`, and no attempt is made until the
    connection is back.
    """

    def __init__(
        self,
        registry: ConsumerRegistry,
        reading: PartitionReader,
        lane: Lane,
        scheduler: Scheduler,
        settings: ConnectorSettings,
        report: Callable[[str], None],
    ) -> None:
        self._registry = registry
        self._reading = reading
        self._lane = lane
        self._scheduler = scheduler
        self._settings = settings
        self._report = report
        self.claims: dict[Owned, str] = {}
        """The partitions that we own and read."""
        self.unsaved: dict[Owned, int] = {}
        """Consumed offsets of what was given up, still to be committed."""
        self.exchanges = 0
        """The number of times that partitions came or went."""
        self._doubtful: dict[PartitionClaim, None] = {}
        """Owner nodes of ours that may stand without our reading the partition."""
        self._session = 0
        self._registered = 0
        """The session in which our id was registered."""
        self._wanted = False
        self._running = False
        self._failures = 0
        self._early = 0
        """The number of early retries, each after a release, since the last rebalance that ended."""
        self._freed = False
        self._timer: Timer | None = None
        self._suspended = False
        self._holding: Timer | None = None
        self._open = False
        self._closed = False
        self._idle: tuple[str, ...] = ()
        self._first: FirstEnded | None = None

    def open(self, opened: Callable[[BaseException | None], None], first: FirstEnded) -> None:
        """Register; `opened` gets the outcome of that, `first` the failure, or None, of the first rebalance."""

        def done(outcome: Outcome[None]) -> None:
            opened(outcome.error)
            if outcome.error is None and not self._closed:
                self._first = first
                self._open = True
                self.trigger()

        triggered, freed = partial(self._hop, self.trigger), partial(self._hop, self._conflict_gone)
        self._lane.run(lambda: self._registry.open(triggered, freed, self._state_changed), done)

    def trigger(self) -> None:
        """Something changed: look around soon."""
        self._wanted = True
        self._rebalance_if_wanted()

    @property
    def held(self) -> set[PartitionClaim]:
        """Whatever may have an owner node of ours."""
        return {*self.claims.items(), *self._doubtful}

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True
        self._cancel_timer()
        if self._holding is not None:
            self._holding.cancel()

    # --- the session

    def _hop(self, call: Callable[[], None]) -> None:
        with suppress(ClosedError):  # the scheduler has stopped, and with it the consumer
            self._scheduler.call_soon(call)

    def _state_changed(self, state: SessionState) -> None:
        self._hop(partial(self._in_session, state))

    def _in_session(self, state: SessionState) -> None:
        if self._closed:
            return
        was_suspended, self._suspended = self._suspended, state is SessionState.SUSPENDED
        if self._suspended:
            if not was_suspended and self._settings.zk_suspended_stop_ms >= 0:
                self._holding = self._scheduler.call_later(self._settings.zk_suspended_stop_ms, self._hold)
            return
        if state is SessionState.EXPIRED:
            self._session += 1
            self._report("the session expired: giving up all partitions, registering again")
            self.unsaved |= self._reading.give_up(list(self.claims))
            self._doubtful |= dict.fromkeys(self.claims.items())
            self.claims = {}
            self._failures = 0
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None
            self._reading.hold(False)
        if self._timer is not None:
            self._cancel_timer()
            self._running = False
        self.trigger()

    def _hold(self) -> None:
        self._report("no connection to the registries: handing out nothing until it is back")
        self._reading.hold(True)

    # --- one rebalance

    def _rebalance_if_wanted(self) -> None:
        if self._running or not self._wanted or self._suspended or self._closed or not self._open:
            return
        self._wanted = False
        self._running = True
        session, register = self._session, self._registered != self._session
        claims = dict(self.claims)
        self._lane.run(
            lambda: self._registry.survey(claims, register=register), lambda outcome: self._surveyed(session, outcome)
        )

    def _surveyed(self, session: int, outcome: Outcome[Survey]) -> None:
        if self._overtaken(session):
            return
        if outcome.error is not None:
            self._failed(outcome.error)
            return
        survey = outcome.get()
        self._registered = session
        self._report_idle(survey.idle)
        retained = {owned: thread for owned, thread in self.claims.items() if survey.share.get(owned) == thread}
        if not survey.still_owned:
            retained = {}  # as after an expired session: nothing is known of who reads them now
        lost = {owned: thread for owned, thread in self.claims.items() if owned not in retained}
        claimed = {owned: thread for owned, thread in survey.share.items() if owned not in retained}
        if not (lost or claimed or self._doubtful or self.unsaved):
            self._reading.add_partitions({}, {}, survey.brokers)
            self._settled()
            return
        given_up = self._reading.give_up(list(lost))
        self.claims = retained
        self.unsaved |= given_up
        self._doubtful |= dict.fromkeys(lost.items())
        self._give_back(session, survey, claimed, given_up if survey.still_owned else {})

    def _give_back(
        self, session: int, survey: Survey, claimed: Mapping[Owned, str], starts: Mapping[Owned, int]
    ) -> None:
        saving = self._settings.autocommit_enable
        unsaved = dict(self.unsaved) if saving else {}
        released = dict(self._doubtful)

        def done(outcome: Outcome[None]) -> None:
            if self._overtaken(session):
                return
            if outcome.error is not None:
                self._failed(outcome.error)
                return
            self.unsaved = {}
            self._doubtful = {}
            self._claim(session, survey, claimed, starts)

        self._lane.run(lambda: self._registry.give_back(unsaved, released), done)

    def _claim(self, session: int, survey: Survey, claimed: Mapping[Owned, str], starts: Mapping[Owned, int]) -> None:
        self._doubtful = dict.fromkeys(claimed.items())
        self._freed = False

        def done(outcome: Outcome[dict[Owned, int]]) -> None:
            if self._overtaken(session):
                return
            if outcome.error is not None:
                self._failed(outcome.error)
                return
            self._doubtful = {}
            self.claims |= claimed
            self.exchanges += 1
            self._reading.add_partitions(claimed, outcome.get(), survey.brokers)
            self._settled()

        self._lane.run(lambda: self._registry.claim(claimed, starts), done)

    def _overtaken(self, session: int) -> bool:
        """Return True if the work is obsolete, because its session has expired or the member is closed."""
        if self._closed:
            return True
        if session == self._session:
            return False
        self._running = False
        self._wanted = True
        self._rebalance_if_wanted()
        return True

    def _settled(self) -> None:
        self._failures = self._early = 0
        self._ended()

    def _failed(self, error: BaseException) -> None:
        self._failures += 1
        attempts = self._settings.rebalance_retries_max
        if self._failures > 1 or not isinstance(error, OwnershipConflict):
            self._report(f"rebalance failed, attempt {self._failures} of {attempts}: {error or type(error).__name__}")
        if self._failures < attempts or (self._freed and self._early < attempts):
            self._wanted = True
            self._timer = self._scheduler.call_later(self._settings.rebalance_backoff_ms, self._try_again)
            if self._freed:
                self._conflict_gone()
            return
        self._failures = self._early = 0
        self._wanted |= self._freed
        self._freed = False
        failure = ConsumerRebalanceFailed(f"no share of the topics after {attempts} attempts; the last: {error}")
        failure.__cause__ = error
        self._reading.rebalance_failed(failure)
        self._ended(failure)

    def _conflict_gone(self) -> None:
        self._freed = True
        if not self._running:
            self.trigger()  # the attempts were over
        if self._timer is None or self._early >= self._settings.rebalance_retries_max:
            return
        self._early += 1
        self._failures -= 1
        self._freed = False
        self._timer.cancel()
        self._timer = self._scheduler.call_later(self._settings.rebalance_backoff_ms * _EARLY, self._try_again)

    def _try_again(self) -> None:
        self._timer = None
        self._running = False
        self._rebalance_if_wanted()

    def _ended(self, failure: ConsumerRebalanceFailed | None = None) -> None:
        self._running = False
        first, self._first = self._first, None
        if first is not None:
            first(failure)
        self._rebalance_if_wanted()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report_idle(self, idle: tuple[str, ...]) -> None:
        for thread in idle:
            if thread not in self._idle:
                self._report(f"no partition is left for {thread}: it waits")
        self._idle = idle


Committed = Callable[[Outcome[dict[Owned, int]]], None]


@frozen(kw_only=True)
class ConsumerOutside:
    """The dependencies of a consumer. The coordination session is the consumer's own: it closes it."""

    scheduler: Scheduler
    clock: Clock
    entropy: Entropy
    coordination: Coordination
    connect: Connect
    codecs: Codecs
    report: Callable[[str], None]


def make_consumer_id(group: str, host: str, clock: Clock, entropy: Entropy, fixed: str = "") -> str:
    """`<group>_<host>-<millis>-<8 hex>`, or `<group>_<fixed>` (facts A7)."""
    return f"{group}_{fixed or f'{host}-{clock.now_ms()}-{entropy.token(4).hex()}'}"


class _Stream(NamedTuple):
    """The reader's end of a queue, and the owner's."""

    reader: StreamReader
    feed: StreamFeed


def _unguarded(queue: StreamQueue) -> StreamFeed:
    return queue


# One fetcher per broker: keeps the streams filled with what its partitions have (facts A8).

_ENTRY_SIZE_BYTES = 4
_MESSAGE_BYTES_MIN = 5
"""The header of magic 0 (facts A2)."""


@frozen(kw_only=True)
class FetchOutside:
    """The dependencies of one consumer's fetchers."""

    scheduler: Scheduler
    links: LinkDependencies
    codecs: Codecs
    report: Callable[[str], None]
    write_reset: Callable[[OwnedPartition], None]
    """Gets a partition that continues elsewhere since its offset was out of range, and has to write `consumed`."""


class BrokerFetcher:
    """Reads the partitions that are ours on one broker. Owner thread only.

    One request at a time. A round asks for all partitions whose stream has room, a full one does not hold up the
    others; what exceeds `fetch.max.bytes` comes first in the next round. When every partition had nothing, it rests for
    `fetcher.backoff.ms`. A lost connection is opened again, for as long as the fetcher has partitions: only the
    registry shows that a broker is gone for good.
    """

    def __init__(self, broker: ClassicBroker, outside: FetchOutside, settings: ConnectorSettings) -> None:
        self.broker = broker
        self._outside = outside
        self._settings = settings
        self._partitions: list[OwnedPartition] = []
        """The next to be asked for first."""
        self._link = NodeLink((broker.host, broker.port), outside.links)
        self._lost = False
        """True if nothing was fetched since the connection was lost, which has been reported."""
        self._awaited = 0
        """Answers on their way."""
        self._quiet = 0
        """The number of successive partitions that had nothing."""
        self._turning = False
        self._timer: Timer | None = None
        self._stopped = False

    def assign(self, partitions: Iterable[OwnedPartition]) -> None:
        """Read these from now on, and no others."""
        wanted = list(partitions)
        known = set(self._partitions)
        retained = [partition for partition in self._partitions if partition in wanted]
        self._partitions = retained + [partition for partition in wanted if partition not in known]
        self.poke()

    def poke(self) -> None:
        """Look at once: a queue has room again, or a partition has a new position."""
        self._cancel_rest()
        self._soon()

    def stop(self) -> None:
        """Hang up; answers that come later are forgotten."""
        self._stopped = True
        self._cancel_rest()
        self._link.close()

    # --- turns

    def _soon(self) -> None:
        if not self._turning and not self._stopped:
            self._turning = True
            self._outside.scheduler.call_soon(self._turn)

    def _rest(self) -> None:
        self._timer = self._outside.scheduler.call_later(self._settings.fetcher_backoff_ms, self._rested)

    def _rested(self) -> None:
        self._timer = None
        self._turn()

    def _cancel_rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self._turning = False
        if self._stopped or self._awaited or self._timer is not None:
            return
        lookups = [p for p in self._partitions if p.lookup is not None and not p.stopped]
        if lookups:
            self._awaited = len(lookups)
            for partition in lookups:
                self._look_up(partition)
            return
        asked = self._next_round()
        if asked:
            self._awaited = 1
            self._fetch(asked)

    def _next_round(self) -> list[OwnedPartition]:
        left = self._settings.fetch_max_bytes
        asked: list[OwnedPartition] = []
        for partition in self._partitions:
            if not _wants(partition):
                continue
            if asked and partition.max_bytes > left:
                break
            asked.append(partition)
            left -= partition.max_bytes
        taken = set(asked)
        self._partitions = [p for p in self._partitions if p not in taken] + asked
        return asked

    def _failed(self, error: BarnabasError) -> None:
        """The connection was lost, or there was none; the link knows when to try again."""
        if not self._lost:
            self._lost = True
            broker = self.broker
            self._outside.report(
                f"broker {broker.broker_id} at {broker.host}:{broker.port}: {error}; connecting again until it "
                "answers, or is gone from the registry"
            )

    # --- where to begin

    def _look_up(self, partition: OwnedPartition) -> None:
        version, time_ms = partition.version, partition.lookup
        assert time_ms is not None
        request = ClassicOffsets(
            topic=partition.topic, partition=partition.place.partition, time_ms=time_ms, max_offsets=1
        )

        def answered(result: ClassicOffsetsResult | BarnabasError) -> None:
            self._awaited -= 1
            if self._stopped:
                return
            if isinstance(result, TransportError | ClosedError):
                self._failed(result)
            elif partition.version == version:
                self._found(partition, result)
            if not self._awaited:
                self._soon()

        self._link.submit(request, answered)

    def _found(self, partition: OwnedPartition, result: ClassicOffsetsResult | BarnabasError) -> None:
        error: BarnabasError
        if isinstance(result, BarnabasError):
            error = result
        elif result.error is ErrorCode.NONE and result.offsets:
            self._begin_at(partition, result.offsets[0])
            return
        else:
            code = result.error or ErrorCode.UNKNOWN_SERVER_ERROR
            error = ApiError(code, f"broker {self.broker.broker_id} returned no start offset for {partition}")
        self._surface(partition, error)

    def _begin_at(self, partition: OwnedPartition, offset: int) -> None:
        partition.lookup = None
        partition.fetch_offset = offset
        if partition.feed.jump(partition, offset) and partition.out_of_range:
            self._outside.write_reset(partition)

    # --- fetching

    def _fetch(self, asked: Sequence[OwnedPartition]) -> None:
        expected = [(partition, partition.version) for partition in asked]
        request = ClassicFetch(
            partitions=[ClassicFetchPartition(p.topic, p.place.partition, p.fetch_offset, p.max_bytes) for p in asked]
        )

        def answered(result: ClassicFetchResult | BarnabasError) -> None:
            self._awaited = 0
            if self._stopped:
                return
            if isinstance(result, TransportError | ClosedError):
                self._failed(result)
                self._soon()
                return
            self._lost = False
            self._fetched(expected, result)

        self._link.submit(request, answered)

    def _fetched(
        self, expected: Sequence[tuple[OwnedPartition, int]], result: ClassicFetchResult | BarnabasError
    ) -> None:
        got_on = False
        outcomes: Sequence[Any] = (
            result.partitions if isinstance(result, ClassicFetchResult) else [result] * len(expected)
        )
        for (partition, version), outcome in zip(expected, outcomes, strict=True):
            if partition.version == version:
                got_on |= self._keep(partition, outcome)
        self._quiet = 0 if got_on else self._quiet + len(expected)
        if got_on or self._quiet < sum(map(_wants, self._partitions)):
            self._soon()
        else:
            self._quiet = 0
            self._rest()

    def _keep(self, partition: OwnedPartition, outcome: ClassicFetchResultPartition | BarnabasError) -> bool:
        """Queue what a fetch returned; return True if the partition advanced and can be fetched again at once."""
        if isinstance(outcome, BarnabasError):
            self._surface(partition, outcome)
            return False
        if outcome.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return self._out_of_range(partition)
        if outcome.error is not ErrorCode.NONE:
            text = f"fetch of {partition} from {partition.fetch_offset} at broker {self.broker.broker_id}"
            self._surface(partition, ApiError(outcome.error, text))
            return False
        partition.out_of_range = False
        messages = self._set(partition, outcome.records)
        if not messages.size:
            return False
        try:
            valid_bytes = messages.valid_bytes
        except BarnabasError as error:
            self._surface(partition, error)
            return False
        if not valid_bytes:
            return self._grow(partition, outcome.records, messages.size)
        next_offset = partition.fetch_offset + valid_bytes
        partition.feed.put(FetchedDataChunk(partition, messages, partition.fetch_offset, next_offset))
        partition.fetch_offset = next_offset
        partition.max_bytes = self._settings.fetch_size
        return True

    def _set(self, partition: OwnedPartition, records: Buffer | Region) -> ClassicMessageSet:
        return ClassicMessageSet(
            records,
            self._outside.codecs,
            topic=partition.topic,
            partition=partition.place.partition,
            from_offset=partition.fetch_offset,
            check_crc=self._settings.check_crcs,
        )

    def _grow(self, partition: OwnedPartition, records: Buffer | Region, size: int) -> bool:
        """Enlarge the next fetch for a message that did not fit; return False if it cannot. (0.7 hung; facts A2.)"""
        head = records.read(0, _ENTRY_SIZE_BYTES) if not isinstance(records, Buffer) else records[:_ENTRY_SIZE_BYTES]
        declared = int.from_bytes(head, "big", signed=True) if size >= _ENTRY_SIZE_BYTES else _MESSAGE_BYTES_MIN
        needed, at = declared + _ENTRY_SIZE_BYTES, f"{partition} offset {partition.fetch_offset}"
        largest = self._settings.fetch_size_max
        if declared < _MESSAGE_BYTES_MIN or size < partition.max_bytes:
            text = f"{at}: there is no whole message ({declared} bytes declared); seek to where one begins"
        elif needed > largest:
            text = f"{at}: one message takes {needed} bytes; raise fetch.size.max ({largest}), or seek past it"
        else:
            while partition.max_bytes < needed:
                partition.max_bytes = min(largest, 2 * partition.max_bytes)
            return True
        self._surface(partition, ApiError(ErrorCode.INVALID_FETCH_SIZE, text))
        return False

    def _out_of_range(self, partition: OwnedPartition) -> bool:
        time_ms = self._settings.reset_time_ms
        if time_ms is None:
            text = f"{partition} has no offset {partition.fetch_offset}, and autooffset.reset is none: seek"
            self._surface(partition, NoOffset(text))
            return False
        again, partition.out_of_range = partition.out_of_range, True
        partition.lookup = time_ms
        self._outside.report(
            f"{partition} has no offset {partition.fetch_offset}, it is out of range: autooffset.reset"
        )
        return not again  # else at rest first: the broker contradicts itself

    def _surface(self, partition: OwnedPartition, error: BarnabasError) -> None:
        """Let the reader raise the error when it gets there, once; the partition then waits for a seek."""
        at = partition.fetch_offset
        partition.feed.put(FetchedDataChunk(partition, ClassicMessageSet(b"", from_offset=max(0, at)), at, at, error))


def _wants(partition: OwnedPartition) -> bool:
    return not (partition.stopped or partition.lookup is not None or partition.fetch_offset < 0 or partition.feed.full)


class ClassicConsumer:
    """One consumer of a group. Owner thread only, but for its readers: each belongs to a thread of the user.

    It starts once and stops once. Where readers are on threads of their own, `guard` makes of each queue what the owner
    puts into, in the order of `readers`.
    """

    def __init__(
        self,
        outside: ConsumerOutside,
        settings: ConnectorSettings,
        *,
        group_id: str,
        consumer_id: str,
        subscription: ClassicSubscription,
        rebalancer: Rebalancer | None = None,
        decoder: Decoder | None = None,
        start_offsets: StartOffsets | None = None,
        guard: Callable[[StreamQueue], StreamFeed] = _unguarded,
    ) -> None:
        self.settings = settings
        self.group_id = group_id
        self.consumer_id = consumer_id
        self._outside = outside
        self._scheduler = outside.scheduler
        self._lane = Lane(outside.scheduler, outside.coordination)
        self._decoder = decoder
        self._streams_of: dict[str, list[_Stream]] = {}
        self._streams_of_all: list[_Stream] = []
        self._make_streams(subscription, guard)
        self._registry = ConsumerRegistry(
            outside.coordination,
            group_id=group_id,
            consumer_id=consumer_id,
            subscription=subscription,
            rebalancer=rebalancer or RangeRebalancer(),
            report=self._report,
            start_offsets=start_offsets,
        )
        self._membership = ClassicMembership(
            self._registry, self, self._lane, outside.scheduler, settings, self._report
        )
        self._writes_resets = start_offsets is None
        self._partitions: dict[Owned, OwnedPartition] = {}
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._brokers: Mapping[int, ClassicBroker] = {}
        self._fetch_outside = FetchOutside(
            scheduler=outside.scheduler,
            links=LinkDependencies(
                scheduler=outside.scheduler,
                clock=outside.clock,
                entropy=outside.entropy,
                connect=outside.connect,
                caller=Caller(client_id=settings.client_id),
                reconnect_backoff_ms=settings.reconnect_backoff_ms,
                reconnect_backoff_max_ms=settings.reconnect_backoff_max_ms,
            ),
            codecs=outside.codecs,
            report=self._report,
            write_reset=self._write_reset,
        )
        self._commit_timer: Timer | None = None
        self._has_reported = False
        self._poking = False
        self._started = False
        self._stopped = False

    # --- life

    @property
    def readers(self) -> Sequence[StreamReader]:
        """All of them: of a filter, each gets its part of every topic that is allowed."""
        return [stream.reader for stream in self._streams]

    def readers_of(self, topic: str) -> Sequence[StreamReader]:
        """Return the readers of a topic that was subscribed to by name."""
        return tuple(stream.reader for stream in self._streams_of[topic])

    def start(self, started: Callable[[BaseException | None], None]) -> None:
        """Join the group, and call `started` when the first rebalance has ended, or when the consumer cannot register.

        After a failed rebalance it gets `ConsumerRebalanceFailed`: the readers raise that too, and each further change
        makes the consumer try again until it is stopped. If the consumer cannot register, it gets `ConfigError` or
        `CoordinationError`: the consumer is of no use then, and the coordination session stays open.
        """
        if self._started:
            raise ClosedError("a consumer starts once")
        self._started = True

        def opened(error: BaseException | None) -> None:
            if error is not None or self._stopped:
                started(error or ClosedError("the consumer was closed"))
            elif self.settings.autocommit_enable:
                self._commit_later()

        self._membership.open(opened, started)

    def stop(self, stopped: Callable[[BaseException | None], None]) -> None:
        """Stop fetching, end the streams, commit if that is automatic, leave the group, close the session.

        `stopped` gets the error of the commit, or of leaving, if there was one.
        """
        if self._stopped:
            raise ClosedError("a consumer stops once")
        self._stopped = True
        self._membership.close()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for stream in self._streams:
            stream.feed.end()
        offsets = self._membership.unsaved | self._consumed() if self.settings.autocommit_enable else {}
        held = self._membership.held
        self._partitions.clear()

        def leave() -> None:
            try:
                self._registry.commit_last(offsets, held)
            finally:
                self._registry.close()

        self._lane.run(leave, lambda outcome: stopped(outcome.error))

    # --- what users ask for

    def owned(self) -> dict[Owned, int | None]:
        """Return the next offset of each owned partition, None while the broker is being asked for it."""
        return {owned: partition.consumed for owned, partition in self._partitions.items()}

    @property
    def exchanges(self) -> int:
        """The number of times that partitions came or went."""
        return self._membership.exchanges

    def commit(self, done: Committed, offsets: Mapping[Owned, int] | None = None) -> None:
        """Commit what was consumed, or these `offsets`, of the partitions that are ours now; `done` gets those written.

        A user that commits before processing looks for the partition there: a missing one was taken away, and another
        consumer will get the message. `CoordinationError` means that some may be written.
        """
        consumed = self._consumed()
        chosen = consumed if offsets is None else {o: offset for o, offset in offsets.items() if o in self._partitions}
        claims = {owned: self._membership.claims[owned] for owned in chosen}
        self._lane.run(lambda: self._registry.commit_owned(chosen, claims), done)

    def seek(self, topic: str, place: BrokerPartition, offset: int) -> None:
        """Continue at an offset that the broker has given (the log is not searched for the next message), or at the one
        that it gives for EARLIEST or LATEST. A seek also continues after an error of the partition.

        Raises `ConfigError` for a partition that is not ours, and for what is no offset.
        """
        if offset < 0 and offset not in (EARLIEST, LATEST):
            raise ConfigError(f"{offset} is not an offset; give 0 or more, EARLIEST or LATEST")
        partition = self._partitions.get((topic, place))
        if partition is None:
            raise ConfigError(f"{topic} {place} is not owned by this consumer now")
        self._jump(partition, offset)
        fetcher = self._fetchers.get(place.broker_id)
        if fetcher is not None:
            fetcher.poke()

    # --- Reading, for the membership

    def give_up(self, owned: Collection[Owned]) -> dict[Owned, int]:
        offsets = {}
        for each in owned:
            partition = self._partitions.pop(each)
            partition.version += 1
            partition.feed.drop((partition,))
            if partition.consumed is not None:
                offsets[each] = partition.consumed
        if owned:
            self._assign()
        return offsets

    def add_partitions(
        self, gained: Mapping[Owned, str], starts: Mapping[Owned, int], brokers: Mapping[int, ClassicBroker]
    ) -> None:
        self._brokers = brokers
        for owned, thread in gained.items():
            topic, place = owned
            partition = OwnedPartition(topic, place, self._feed_of(topic, thread), self.settings.fetch_size)
            self._partitions[owned] = partition
            self._begin(partition, starts.get(owned))
        self._assign()

    def hold(self, held: bool) -> None:
        for stream in self._streams:
            stream.feed.hold(held)

    def rebalance_failed(self, error: ConsumerRebalanceFailed) -> None:
        for stream in self._streams:
            stream.feed.fail(error)

    # --- inside

    @property
    def _streams(self) -> list[_Stream]:
        return [*self._streams_of_all, *(stream for several in self._streams_of.values() for stream in several)]

    def _make_streams(self, subscription: ClassicSubscription, guard: Callable[[StreamQueue], StreamFeed]) -> None:
        def made(count: int) -> list[_Stream]:
            queues = [StreamQueue(self.settings.queuedchunks_max) for _ in range(count)]
            return [_Stream(self._make_reader(queue), guard(queue)) for queue in queues]

        if subscription.topic_filter is not None:
            self._streams_of_all = made(subscription.streams)
        for topic, streams in (subscription.streams_by_topic or {}).items():
            self._streams_of[topic] = made(streams)
        most = max([len(self._streams_of_all), *map(len, self._streams_of.values())])
        self._numbers = {thread_id(self.consumer_id, number): number for number in range(most)}

    def _make_reader(self, queue: StreamQueue) -> StreamReader:
        return StreamReader(queue, self._room, self._decoder, shallow=self.settings.shallowiterator_enable)

    def _feed_of(self, topic: str, thread: str) -> StreamFeed:
        return self._streams_of.get(topic, self._streams_of_all)[self._numbers[thread]].feed

    def _begin(self, partition: OwnedPartition, offset: int | None) -> None:
        if offset is None:
            offset = self.settings.reset_time_ms
        if offset is not None:
            self._jump(partition, offset)
            return
        error = NoOffset(f"{partition} has no committed offset, and autooffset.reset is none: seek")
        partition.feed.put(FetchedDataChunk(partition, ClassicMessageSet(b""), -1, -1, error))

    def _jump(self, partition: OwnedPartition, offset: int) -> None:
        partition.version += 1
        partition.lookup = offset if offset < 0 else None
        partition.fetch_offset = max(offset, -1)
        partition.out_of_range = False
        partition.max_bytes = self.settings.fetch_size
        partition.feed.restart(partition, offset if offset >= 0 else None)

    def _assign(self) -> None:
        """Every partition is read by the fetcher of its broker."""
        wanted: dict[int, list[OwnedPartition]] = {}
        for partition in self._partitions.values():
            if partition.place.broker_id in self._brokers:
                wanted.setdefault(partition.place.broker_id, []).append(partition)
        for broker_id, fetcher in list(self._fetchers.items()):
            if broker_id not in wanted or fetcher.broker != self._brokers[broker_id]:
                fetcher.stop()
                del self._fetchers[broker_id]
        for broker_id, partitions in wanted.items():
            if broker_id not in self._fetchers:
                broker = self._brokers[broker_id]
                self._fetchers[broker_id] = BrokerFetcher(broker, self._fetch_outside, self.settings)
            self._fetchers[broker_id].assign(partitions)

    def _room(self) -> None:
        """A full queue has room again. From the thread that reads it."""
        with suppress(ClosedError):
            if not self._poking:
                self._poking = True
                self._scheduler.call_soon(self._poke)

    def _poke(self) -> None:
        self._poking = False
        for fetcher in self._fetchers.values():
            fetcher.poke()

    def _consumed(self) -> dict[Owned, int]:
        return {owned: p.consumed for owned, p in self._partitions.items() if p.consumed is not None}

    def _commit_later(self) -> None:
        self._commit_timer = self._scheduler.call_later(self.settings.autocommit_interval_ms, self._auto_commit)

    def _auto_commit(self) -> None:
        def done(outcome: Outcome[dict[Owned, int]]) -> None:
            if outcome.error is not None and not self._has_reported:  # once each time the registries are away
                self._report(f"offsets are not committed; retrying: {outcome.error}")
            self._has_reported = outcome.error is not None
            if not self._stopped:
                self._commit_later()

        self.commit(done)

    def _write_reset(self, partition: OwnedPartition) -> None:
        if not self._writes_resets or partition.consumed is None:
            return
        offsets = {partition.key: partition.consumed}
        self._lane.run(partial(self._registry.commit, offsets), self._reset_written)

    def _reset_written(self, outcome: Outcome[None]) -> None:
        if outcome.error is not None:
            self._report(f"the offset after a reset is not committed: {outcome.error}")

    def _report(self, text: str) -> None:
        self._outside.report(f"consumer {self.consumer_id}: {text}")
