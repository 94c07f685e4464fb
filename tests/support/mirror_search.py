"""Every interleaving of small scopes over an identical mirror of one partition: two clusters, and what copies between.

The code that runs is the product's: `IdenticalMirror` decides, `MirrorService` and `Partition` change the target's
log, its followers cut theirs by `truncation_offset`. A call of a mirror is one step, so that an election, another
mirror or a promotion comes between any two of them; its process may be killed before each, and an answer may be lost,
or the request may arrive long after its sender has given up. Brokers hear of leaders and of settings late, and of each
on its own.

What is checked are promises, by what is in the logs:

- each log is at any time the beginning of what a log was that took records of producers, byte by byte;
- what the cluster that counts has acknowledged stays: the source, until its topic is promoted elsewhere;
- a promotion leaves nothing behind that the source had committed when it began;
- a promoted topic is not a mirror again unless an operator says so, after the other side was promoted;
- no log has a later leader epoch than the partition;
- once all is calm, a mirror has what its source has.

A state is the logs, what brokers know, the mirrors and the requests under way. A search returns how many it has found.
"""

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from attrs import astuple, define, evolve, frozen
from support.history_search import BrokenPromise, search_histories

from barnabas.adapters.storage_memory import MemoryLogDir
from barnabas.app.broker.handlers.mirroring import MirrorService
from barnabas.app.mirror import identical
from barnabas.app.mirror.identical import SOURCE_KEY, IdenticalMirror, MirroredPartition, MirrorTotals
from barnabas.core.cluster.change_queue import complete
from barnabas.core.cluster.topics import PartitionState, ReplicaId
from barnabas.core.log.config import LogConfig
from barnabas.core.message.batch_header import parse_header
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.replica.follower.partition_fetch_state import PartitionFetchState, records_of, truncation_offset
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.core.replica.partition.partition import Partition
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.epochs import EpochEndOffset, OffsetForLeaderEpoch, OffsetForLeaderEpochResult
from barnabas.ports.broker_api.fetch import DivergingEpoch, Fetch, FetchPartition, FetchResult, FetchResultPartition
from barnabas.ports.broker_api.mirroring import MirrorRecords
from barnabas.ports.broker_api.offsets import (
    EARLIEST,
    ListOffsets,
    ListOffsetsResult,
    ListOffsetsResultPartition,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import batch, open_log

KEY, TOPIC_ID = TopicPartition("t", 0), b"topic-id-of-16-b"
SOURCE, TARGET = "x", "y"
_ROUNDS = 2
"""The number of looks of a promotion until it gives up."""
_Contents = frozenset[tuple[int, bytes]]
"""The offsets and batches of a log."""


def _any(**attributes: Any) -> Any:
    """Return as much of a part as is needed here."""
    return SimpleNamespace(**attributes)


@frozen
class Scope:
    """The limits of a search. `most`: actions that are counted, and how often each may happen in one history;
    the other steps (`STEPS`) happen at any time.

    appended:  how many records the source has at first.
    followers: whether the target has a second broker.
    mirrors:   how many mirrors from the source to the target run.
    overwrite: whether they make mirrors of topics that are none.
    before:    what has happened when the search begins: actions, and "rest", after which all is calm.
    """

    most: Mapping[str, int]
    appended: int = 2
    followers: bool = False
    mirrors: int = 1
    overwrite: bool = False
    before: tuple[str, ...] = ()

    @property
    def brokers(self) -> tuple[str, ...]:
        return ("x1", "y1", "y2") if self.followers else ("x1", "y1")


class _Paused(BaseException):
    """A process has come to its next call."""


class _Refused(BaseException):
    """A call was refused for now; the client makes it again."""


@cache
def _name(content: bytes) -> str:
    header = parse_header(content)
    return f"{header.base_offset}@{header.leader_epoch}:{content[-6:-1].decode(errors='replace')}"


def _contents(partition: Partition) -> _Contents:
    log = partition.log
    found: set[tuple[int, bytes]] = set()
    offset: int = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes=1 << 20, limit=log.log_end_offset).records
        content = read if isinstance(read, bytes) else read.read()
        batches, offset = _batches(bytes(content))
        found.update(batches)
    return frozenset(found)


@cache
def _leader_epoch(content: bytes) -> int:
    return parse_header(content).leader_epoch


@cache
def _batches(content: bytes) -> tuple[_Contents, int]:
    """Return the batches, and the offset after them. A search reads the same few logs again and again."""
    found, offset = set(), -1
    for at, header in whole_batches(content):
        found.add((header.base_offset, content[at : at + header.size]))
        offset = header.next_offset
    return frozenset(found), offset


class _Broker:
    """A replica of the partition, and the real handler of mirrored records."""

    def __init__(self, cluster: "_Cluster", number: int) -> None:
        self.cluster, self.number = cluster, number
        self.own = ReplicaId(number, number)
        self.mirrors = cluster.mirrors
        """The setting as this broker knows it."""
        log = open_log(MemoryLogDir().folder("t-0"), config=_config(self.mirrors))
        self.partition = Partition(
            log, KEY, topic_id=TOPIC_ID, own=self.own, replicas=cluster.numbers, state=cluster.state
        )
        self.service = MirrorService(
            _any(
                replicas=_any(led_for_append=self._led, purgatory=_any(check=lambda _: None)),
                clock=_any(now_ms=lambda: 0, monotonic_ms=lambda: 0),
                report=lambda _: None,
                is_alone=False,
                registry=_any(
                    change_states=cluster.change_states,
                    reread=self._reread,
                    coordination=_any(heartbeat=lambda: None),
                ),
                changes=_any(submit=self._change),
            )
        )

    def _led(self, *_: object, **__: object) -> Partition:
        self.partition.check_leader()
        return self.partition

    def _change(self, _what: str, change: Callable[[], Coroutine[Any, Any, Any]], reply: Callable[[Any], None]) -> None:
        reply(complete(change()))

    async def _reread(self, _topic: str) -> None:
        self.configure()

    @property
    def leads(self) -> bool:
        return self.partition.is_leader

    def knows(self) -> bool:
        return self.partition.state == self.cluster.state

    def see(self) -> None:
        self.partition.apply_state(self.cluster.state, self.cluster.numbers, self.own, 0)

    def configure(self) -> None:
        self.mirrors = self.cluster.mirrors
        self.partition.log.update_config(_config(self.mirrors))

    # --- requests

    def mirror(self, request: MirrorRecords) -> Any:
        box: list[Any] = []
        self.service.append(request, Caller(), box.append)
        return request.failed(box[0]) if isinstance(box[0], ApiError) else box[0]

    def fetch(self, item: FetchPartition) -> FetchResultPartition:
        partition = self.partition
        partition.check_leader()
        log = partition.log
        common = (partition.high_watermark, partition.last_stable_offset, log.log_start_offset)
        if item.last_fetched_epoch >= 0 and item.offset >= log.log_start_offset:
            diverging = partition.diverging(item.offset, item.last_fetched_epoch)
            if diverging is not None:
                return FetchResultPartition("t", 0, ErrorCode.NONE, *common, diverging=diverging)
        if not log.log_start_offset <= item.offset <= partition.high_watermark:
            return FetchResultPartition("t", 0, ErrorCode.OFFSET_OUT_OF_RANGE)
        records = b""
        if item.offset < partition.high_watermark:
            found = partition.read(
                item.offset, 1 << 20, whole_first_batch=True, isolation=FetchIsolation.HIGH_WATERMARK
            )
            records = bytes(records_of(FetchResultPartition("t", 0, records=found)))
        return FetchResultPartition("t", 0, ErrorCode.NONE, *common, records)


@cache
def _config(mirrors: str) -> LogConfig:
    return LogConfig(mirror_source=mirrors)


@cache
def _record(number: int) -> bytes:
    return bytes(batch(b"%04d" % number))


class _Cluster:
    """A topic of one partition: what the tree says of it, and the brokers."""

    def __init__(self, name: str, numbers: tuple[int, ...], mirrors: str) -> None:
        self.name, self.numbers = name, numbers
        self.mirrors = mirrors
        """The setting `mirror.source` in the tree."""
        self.state = PartitionState(
            leader=1, leader_epoch=0, isr=numbers, broker_epochs={each: each for each in numbers}, min_isr=1
        )
        self.brokers = {each: _Broker(self, each) for each in numbers}

    @property
    def leader(self) -> _Broker:
        return self.brokers[self.state.leader]

    async def change_states(self, _topics: Sequence[str], decide: Callable[[Any, Any], Mapping[int, Any]]) -> None:
        changed = decide(_any(partitions=[0]), _any(state=lambda _: self.state))
        self.state = changed.get(0, self.state)

    def elect(self, leader: int) -> None:
        self.state = evolve(
            self.state,
            leader=leader,
            leader_epoch=self.state.leader_epoch + 1,
            partition_epoch=self.state.partition_epoch + 1,
        )


@frozen
class _Answer:
    value: Any
    error: BarnabasError | None = None

    def take(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


@define
class _Line:
    """A connection of a process to a cluster, with as much of `Admin` and `ClientShell` as a mirror uses."""

    process: "_Process"
    cluster: str

    def _call(self, effect: Callable[[_Cluster], Any], request: MirrorRecords | None = None) -> Any:
        return self.process.call(self.cluster, effect, request)

    def list_topics(self) -> list[str]:
        return ["t"]

    def describe_topics(self, _names: object = None) -> list[Any]:
        return self._call(_described)  # type: ignore[no-any-return]

    def topic_overrides(self, _name: str) -> dict[str, str]:
        return self._call(_overrides)  # type: ignore[no-any-return]

    def alter_configs(self, _kind: object, _name: str, changes: Mapping[str, str | None]) -> None:
        self._call(partial(_alter, source=changes[SOURCE_KEY] or "", history=self.process.history))

    def list_groups(self) -> list[Any]:
        return []

    def describe_producers(self, _places: object) -> dict[Any, Any]:
        return {}

    def ask_leaders(
        self,
        items: Sequence[Any],
        _place: object,
        build: Callable[[Sequence[Any]], Any],
        outcomes: Callable[[Any], Sequence[tuple[ErrorCode, Any]]],
    ) -> list[Any]:
        request = build(items)
        try:
            return [self._call(partial(_asked, request, outcomes), request if type(request) is MirrorRecords else None)]
        except BarnabasError as error:
            return [error]


def _described(cluster: _Cluster) -> list[Any]:
    known = cluster.brokers[cluster.numbers[-1]]
    return [_any(name="t", partitions=[_any(partition=0, leader_epoch=known.partition.leader_epoch)])]


def _overrides(cluster: _Cluster) -> dict[str, str]:
    """Any broker answers, by what it knows."""
    known = cluster.brokers[cluster.numbers[-1]]
    return {SOURCE_KEY: known.mirrors} if known.mirrors else {}


def _alter(cluster: _Cluster, source: str, history: "History") -> None:
    if cluster.mirrors != source:
        cluster.mirrors = source
        history.changed_role(cluster)


def _asked(request: Any, outcomes: Callable[[Any], Sequence[tuple[ErrorCode, Any]]], cluster: _Cluster) -> Any:
    leader = cluster.leader
    try:
        result = _result(leader, request)
    except ApiError as error:
        code, answer = error.code, None
    else:
        ((code, answer),) = outcomes(result)
    if code.retriable and code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        raise _Refused
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{cluster.name}: {code.name}")
    return answer


def _result(leader: _Broker, request: Any) -> Any:
    if isinstance(request, MirrorRecords):
        return leader.mirror(request)
    leader.partition.check_leader()
    if isinstance(request, Fetch):
        return FetchResult(partitions=[leader.fetch(request.partitions[0])])
    if isinstance(request, OffsetForLeaderEpoch):
        epoch, end = leader.partition.end_of_epoch(request.partitions[0].leader_epoch)
        found = EpochEndOffset(topic="t", partition=0, leader_epoch=epoch, end_offset=end)
        return OffsetForLeaderEpochResult(partitions=[found])
    assert isinstance(request, ListOffsets)
    is_start = request.partitions[0].timestamp == EARLIEST
    offset = leader.partition.log.log_start_offset if is_start else leader.partition.high_watermark
    listed = ListOffsetsResultPartition(
        topic="t", partition=0, offset=offset, leader_epoch=leader.partition.leader_epoch
    )
    return ListOffsetsResult(partitions=[listed])


class _Process:
    """A process with an `IdenticalMirror`. What it is doing is repeated from its begin for each call, with the answers
    that it has had."""

    def __init__(self, history: "History", source: str, target: str, *, overwrite: bool) -> None:
        self.history, self.source, self.target, self.overwrite = history, source, target, overwrite
        self.work = ""
        self.answers: list[_Answer] = []
        self.fault = ""
        self.promotes = False
        self.begin()

    def begin(self) -> None:
        """Start, or start again."""
        self.live = True
        self.saved: tuple[Any, ...] = ((), False, False, False)

    def die(self) -> None:
        self.live, self.promotes = False, False
        self.work = ""
        self.answers.clear()
        self.saved = ((), False, False, False)

    @property
    def works(self) -> tuple[str, ...]:
        """Return what it can do now."""
        return (self.work,) if self.work else ("promote",) if self.promotes else ("begin", "copy_once")

    def _made(self) -> IdenticalMirror:
        made = IdenticalMirror.__new__(IdenticalMirror)
        partitions, copies, begun, ended = self.saved
        made._wanted = _any(fullmatch=lambda _: True)
        made._overwrite = self.overwrite
        made._stopped = _any(wait=lambda _: None)
        made.partitions = {KEY: MirroredPartition(KEY, *partitions)} if partitions else {}
        made.copied = MirrorTotals(topics={"t"} if copies else set())
        made._notes = set()
        made._begun = {"t"} if begun else set()
        made._ended = {"t"} if ended else set()
        made._source, made._target = _Line(self, self.source), _Line(self, self.target)  # type: ignore[assignment]
        made._from, made._to = _Line(self, self.source), _Line(self, self.target)  # type: ignore[assignment]
        made._cluster_id = self.source
        return made

    def run(self, work: str, fault: str = "") -> bool:
        """Make the next call of this work."""
        if not self.live or (self.work and self.work != work):
            return False
        made = self._made()
        self.position, self.is_called, self.fault = 0, False, fault
        try:
            if work == "promote":
                made.promote("t", timeout_s=_ROUNDS)
            else:
                getattr(made, work)()
        except _Paused:
            self.work = work
            return True
        except _Refused:
            return not fault
        except BarnabasError:
            pass  # it begins again
        known = made.partitions.get(KEY)
        self.saved = (
            () if known is None else astuple(known)[1:],
            "t" in made.copied.topics,
            "t" in made._begun,
            "t" in made._ended,
        )
        self.work = ""
        self.answers.clear()
        if work == "promote":
            self.die()
        return self.is_called

    def call(self, cluster: str, effect: Callable[[_Cluster], Any], request: MirrorRecords | None) -> Any:
        if self.position < len(self.answers):
            self.position += 1
            return self.answers[self.position - 1].take()
        if self.is_called:
            raise _Paused
        answer = self._answer(self.history.clusters[cluster], effect, request)
        self.is_called = True
        self.answers.append(answer)
        self.position += 1
        return answer.take()

    def _answer(self, at: _Cluster, effect: Callable[[_Cluster], Any], request: MirrorRecords | None) -> _Answer:
        if self.fault in ("late", "lose"):
            if request is None or request.log_end < 0:
                raise _Refused  # nothing that changes anything
            if self.fault == "late":
                self.history.late.append((at.leader, request))
            else:
                with suppress(BarnabasError):
                    effect(at)
            return _Answer(None, BarnabasError("no answer"))
        try:
            answer = _Answer(effect(at))
        except BarnabasError as error:
            return _Answer(None, error)
        if self.fault == "cut":
            found = answer.value
            if not isinstance(found, FetchResultPartition) or not found.records:
                raise _Refused
            return _Answer(evolve(found, records=records_of(found)[:-3]))
        return answer

    def describe(self) -> str:
        return repr((self.live, self.promotes, self.work, self.saved, self.answers))


class History:
    """The two clusters and the mirrors at one moment."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.used: dict[str, int] = {}
        self.appended = 0
        self.branches: set[_Contents] = {frozenset()}
        """The logs after a producer's record."""
        self.counts = SOURCE
        """The cluster whose records count."""
        self.acked: dict[int, bytes] = {}
        """By offset: what that cluster has acknowledged."""
        self.wanted: _Contents = frozenset()
        """The records that the promoted topic must have: committed when the promotion began, and not lost since."""
        self.sent: dict[int, bytes] = {}
        """The records that a promoted topic keeps from its source, once its leader knows the promotion."""
        self.late: list[tuple[_Broker, MirrorRecords]] = []
        self.clusters = {
            SOURCE: _Cluster(SOURCE, (1,), ""),
            TARGET: _Cluster(TARGET, (1, 2) if scope.followers else (1,), SOURCE),
        }
        self.mirrors = [_Process(self, SOURCE, TARGET, overwrite=scope.overwrite) for _ in range(scope.mirrors)]
        self.promoter = _Process(self, SOURCE, TARGET, overwrite=False)
        self.promoter.die()
        self.back = _Process(self, TARGET, SOURCE, overwrite=True)
        self.back.die()
        for _ in range(scope.appended):
            self.append(SOURCE)

    @property
    def processes(self) -> dict[str, _Process]:
        numbered = {str(number): each for number, each in enumerate(self.mirrors, 1)}
        return {**numbered, "promoter": self.promoter, "back": self.back}

    # --- steps, which happen without end

    def look(self, of: str) -> bool:
        """Let a mirror look at topics, or make its next call for that."""
        it = self.processes[of]
        return not it.promotes and it.run("begin")

    def copy(self, of: str) -> bool:
        """Let a mirror copy, or make its next call for that."""
        it = self.processes[of]
        return not it.promotes and it.run("copy_once")

    def continue_copy(self, of: str) -> bool:
        """Let a promotion make its next call."""
        it = self.processes[of]
        return it.promotes and it.run("promote")

    def _broker(self, name: str) -> _Broker:
        return self.clusters[name[0]].brokers[int(name[1])]

    def see(self, broker: str) -> bool:
        """Let a broker learn the partition's state."""
        it = self._broker(broker)
        if it.knows():
            return False
        it.see()
        return True

    def configure(self, broker: str) -> bool:
        """Let a broker learn the topic's settings."""
        it = self._broker(broker)
        if it.mirrors == it.cluster.mirrors:
            return False
        it.configure()
        return True

    def follow(self, broker: str) -> bool:
        """Let a follower fetch once."""
        it = self._broker(broker)
        leader = it.cluster.leader
        if it is leader or not leader.leads or it.leads:
            return False
        if it.partition.leader_epoch != leader.partition.leader_epoch:
            return False
        mine, its = it.partition, leader.partition
        before = self._followed(mine, its)
        asked = PartitionFetchState(mine).build_fetch(1 << 20)
        with suppress(ApiError):
            progress = its.followers.of(it.own)  # type: ignore[union-attr]
            its.follower_fetched(progress, asked.offset, asked.log_start_offset, 0)
        diverging = its.diverging(asked.offset, asked.last_fetched_epoch) if asked.last_fetched_epoch >= 0 else None
        if diverging is None and asked.offset > its.log.log_end_offset:
            diverging = DivergingEpoch(its.log.epochs.latest, its.log.log_end_offset)
        if diverging is not None:
            mine.truncate_to(truncation_offset(mine.log.epochs, mine.log.log_end_offset, diverging), 0)
        else:
            found = its.read(asked.offset, 1 << 20, whole_first_batch=True, isolation=FetchIsolation.LOG_END)
            records = records_of(FetchResultPartition("t", 0, records=found))
            mine.append_as_follower(
                records, high_watermark=its.high_watermark, log_start=its.log.log_start_offset, now_ms=0
            )
        return self._followed(mine, its) != before

    def _followed(self, mine: Partition, its: Partition) -> object:
        followers = [each.log_end for each in its.followers or ()]
        return mine.log.log_end_offset, mine.log.epochs.latest, mine.high_watermark, its.high_watermark, followers

    def arrive(self, _: object) -> bool:
        """Deliver a request whose sender has given up."""
        if not self.late:
            return False
        broker, request = self.late.pop(0)
        broker.mirror(request)
        return True

    # --- actions that are counted

    def append(self, name: str) -> bool:
        """Let a cluster append a record of a producer, if it does not mirror."""
        cluster = self.clusters[name]
        leader = cluster.leader
        if leader.mirrors or not leader.leads:
            return False
        content = bytearray(_record(self.appended))
        self.appended += 1
        leader.partition.append_as_leader(memoryview(content), now_ms=0)
        present = _contents(leader.partition)
        self.branches.add(present)
        self.note()
        return True

    def append_source(self, _: object) -> bool:
        """Append a record at the source."""
        return self.append(SOURCE)

    def append_target(self, _: object) -> bool:
        """Append a record at the target, once it is promoted."""
        return self.append(TARGET)

    def truncate(self, _: object) -> bool:
        """Let the source elect a leader that lacks the last record."""
        source = self.clusters[SOURCE]
        partition, log = source.leader.partition, source.leader.partition.log
        if log.log_end_offset == log.log_start_offset:
            return False
        partition.truncate_to(log.log_end_offset - 1, 0)
        source.elect(1)
        source.leader.see()
        left = _contents(partition)
        self.sent = {offset: each for offset, each in self.sent.items() if (offset, each) in left}
        if self.counts == SOURCE:
            self.acked = {offset: each for offset, each in self.acked.items() if (offset, each) in left}
            self.wanted &= left
        return True

    def elect_source(self, _: object) -> bool:
        """Let the source elect a leader that has all records."""
        source = self.clusters[SOURCE]
        source.elect(1)
        return True

    def elect(self, _: object) -> bool:
        """Let the target elect the other broker, which has at least the committed records."""
        target = self.clusters[TARGET]
        if len(target.numbers) == 1:
            target.elect(1)
        else:
            target.elect(3 - target.state.leader)
        return True

    def kill(self, of: str) -> bool:
        """Kill the process of a mirror."""
        it = self.processes[of]
        if not it.live:
            return False
        it.die()
        return True

    def start(self, of: str) -> bool:
        """Restart a mirror."""
        it = self.processes[of]
        if it.live or it is self.promoter or (it is self.back and self.counts == SOURCE):
            return False
        it.begin()
        return True

    def promote(self, _: object) -> bool:
        """Promote the topic of the target, as an operator."""
        if self.counts != SOURCE or self.promoter.live:
            return False
        return self._begin_promotion(self.promoter)

    def promote_unheard(self, of: str) -> bool:
        """Promote the topic of the target; one broker does not know the promotion at its end."""
        if not self.promote(0):
            return False
        while self.promoter.promotes:
            for broker in self.scope.brokers:
                self.see(broker)
                self.follow(broker)
                if broker != of:
                    self.configure(broker)
                self.check()
            self.promoter.run("promote")
        return True

    def promote_back(self, _: object) -> bool:
        """Promote the topic of the source, as an operator, after the copy back."""
        if self.counts != TARGET or self.back.live or self.clusters[SOURCE].mirrors != TARGET:
            return False
        return self._begin_promotion(self.back)

    def _begin_promotion(self, it: _Process) -> bool:
        it.begin()
        it.promotes = True
        partition = self.clusters[self.counts].leader.partition
        self.wanted = frozenset(each for each in _contents(partition) if each[0] < partition.high_watermark)
        return True

    def _next_call(self, of: str, fault: str) -> bool:
        it = self.processes[of]
        return bool(it.work) and it.run(it.work, fault)

    def lose(self, of: str) -> bool:
        """Let the next call of a mirror have its effect, and no answer."""
        return self._next_call(of, "lose")

    def late_call(self, of: str) -> bool:
        """Let the next call of a mirror have no answer, and its effect later."""
        return self._next_call(of, "late")

    def cut(self, of: str) -> bool:
        """Truncate the next answer within a batch."""
        return self._next_call(of, "cut")

    # --- promises

    def changed_role(self, cluster: _Cluster) -> None:
        """The setting of a topic has changed: it was promoted, or made a mirror."""
        if cluster.name == self.counts:
            if cluster.mirrors:
                raise BrokenPromise(f"{cluster.name} mirrors {cluster.mirrors}, although it is what counts")
            return
        if not cluster.mirrors:
            there = _contents(cluster.leader.partition)
            if not self.wanted <= there:
                lost = sorted(offset for offset, _ in self.wanted - there)
                raise BrokenPromise(f"{cluster.name} was promoted without the offsets {lost}")
            self.counts, self.acked = cluster.name, {}
            self.sent = dict(self.wanted)

    def note(self) -> None:
        """Note what is acknowledged now."""
        cluster = self.clusters[self.counts]
        leader = cluster.leader
        if leader.mirrors or not leader.leads or not leader.knows():
            return
        self.acked.update(self.sent)
        self.sent = {}
        for offset, content in _contents(leader.partition):
            if offset < leader.partition.high_watermark and content[-5:-1].isdigit():
                self.acked.setdefault(offset, content)

    def check(self) -> None:
        """Check what must be true at any time."""
        self.note()
        contents = {it: _contents(it.partition) for each in self.clusters.values() for it in each.brokers.values()}
        for cluster in self.clusters.values():
            for it in cluster.brokers.values():
                present = contents[it]
                if present not in self.branches and not any(
                    {each for each in branch if each[0] < it.partition.log.log_end_offset} == present
                    for branch in self.branches
                ):
                    raise BrokenPromise(f"broker {it.number} of {cluster.name} has {_names(present)}, which never was")
                if it.partition.is_ahead or it.partition.log.epochs.latest > it.partition.leader_epoch:
                    raise BrokenPromise(f"the log of {cluster.name} is ahead of its leader epoch")
                wrong = [
                    offset
                    for offset, content in present
                    if it.partition.log.epochs.epoch_at(offset) != _leader_epoch(content)
                ]
                if wrong:
                    raise BrokenPromise(f"{cluster.name} has other epochs than its batches, at {wrong}")
        counting = self.clusters[self.counts]
        if counting.leader.knows() and counting.leader.leads:
            there = dict(contents[counting.leader])
            lost = [offset for offset, content in self.acked.items() if there.get(offset) != content]
            if lost:
                raise BrokenPromise(f"{self.counts} has lost what it had acknowledged, at {lost}")

    quiesces_in_motion = True

    @property
    def may_quiesce(self) -> bool:
        return not any(each.work or each.promotes for each in self.processes.values())

    @staticmethod
    def of(text: str) -> str:
        return text

    def rest(self) -> None:
        """Take steps until nothing more happens."""
        before = ""
        for _ in range(60):
            while self.arrive(0):
                self.check()
            for broker in self.scope.brokers:
                for act in (self.see, self.configure, self.follow):
                    act(broker)
                    self.check()
            for it in self.processes.values():
                for work in it.works:
                    for _ in range(30):
                        it.run(work)
                        self.check()
                        if not it.work:
                            break
            mark = self.fingerprint()
            if mark == before:
                return
            before = mark
        raise BrokenPromise("it does not come to rest")

    def quiesce(self) -> None:
        """Let everything come to rest, without another fault, and check what must be true then."""
        for each in self.mirrors:
            if not each.live:
                each.begin()
        self.rest()
        self.append(self.counts)  # what came late is noticed with the next record
        self.rest()
        source, target = self.clusters[SOURCE], self.clusters[TARGET]
        its = [_contents(each.partition) for each in target.brokers.values()]
        if any(each != its[0] for each in its):
            raise BrokenPromise(f"the replicas of {TARGET} differ: {[_names(each) for each in its]}")
        ours = _contents(source.leader.partition)
        follows = target.mirrors == SOURCE and self.mirrors
        if (follows or (source.mirrors == TARGET and self.back.live)) and its[0] != ours:
            raise BrokenPromise(f"the mirror has {_names(its[0])}, the source {_names(ours)}")

    def fingerprint(self) -> str:
        parts = [
            repr((sorted(self.used.items()), self.counts, self.appended, self.late and self.late[0][1])),
            repr([_names(frozenset(self.acked.items())), _names(self.wanted), sorted(self.sent)]),
            repr(sorted(_names(each) for each in self.branches)),
            *(each.describe() for each in self.processes.values()),
        ]
        for cluster in self.clusters.values():
            parts.append(repr((cluster.mirrors, cluster.state.leader, cluster.state.leader_epoch)))
            for it in cluster.brokers.values():
                mine = it.partition
                followers = [each.log_end for each in mine.followers or ()]
                known = (it.mirrors, mine.leader, mine.leader_epoch, mine.high_watermark, followers)
                parts.append(repr((_names(_contents(mine)), known)))
        return "\n".join(parts)


def _names(contents: _Contents) -> str:
    return ", ".join(_name(content) for _, content in sorted(contents))


STEPS = ("look", "copy", "continue_copy", "see", "configure", "follow", "arrive")
_OF_BROKERS = ("see", "configure", "follow")
_OF_PROCESSES = ("look", "copy", "continue_copy", "kill", "start", "lose", "late_call", "cut")


@contextmanager
def _in_place() -> Iterator[None]:
    """Let a promotion look `_ROUNDS` times, and mirrors report nothing."""
    module: Any = identical
    known = module.time, module.log_report
    ticks: list[int] = []

    def monotonic() -> int:
        ticks.append(0)
        return len(ticks)

    module.time = _any(monotonic=monotonic)
    module.log_report = lambda _: None
    try:
        yield
    finally:
        module.time, module.log_report = known


def _actions(scope: Scope) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    processes = [str(number) for number in range(1, scope.mirrors + 1)]
    if "promote" in (*scope.most, *scope.before):
        processes.append("promoter")
    if "promote" in scope.before:
        processes.append("back")
    for name in (*scope.most, *STEPS):
        if name in _OF_BROKERS:
            found += [(name, broker) for broker in scope.brokers]
        elif name in _OF_PROCESSES:
            found += [(name, of) for of in processes]
        else:
            found.append((name, 0))
    return found


def search(scope: Scope) -> int:
    """Play every history of the scope; return the number of states. Raises `BrokenPromise` with the history."""
    with _in_place():
        return search_histories(History, scope, _actions(scope))
