"""Every interleaving of small scopes over the tier of one partition: two brokers that lead it in turn, and a store.

The code that runs is the broker's: `RemoteLogManager` copies, expires and deletes, `UnifiedLog` deletes local segments,
`PartitionDataProcessor` and `Tiering.rebuild` let a follower continue behind the tier. Around it are a controller that
elects, and a store whose calls may have no effect, an effect without an answer, or one that comes later. A call of the
store and the moment at which the broker hears of it are two steps, so that another leader or a kill comes between.

What is checked are promises, by what is in the logs and in the store:

- what was committed and has not expired is read from one tier or the other, unchanged;
- nothing expires before the retention of the topic says so;
- a leader that knows the manifest serves nothing below the start that was stored in it;
- what a manifest offers to readers is there, whole, with the producers of all before;
- a leader knows the producer of each committed batch, but for those that damage hides from it;
- once all is calm, every leader has its manifest, no copy is left half done, the store has no object that no manifest
  names, but for what came after its leader had been deposed, and nothing at all of a deleted topic.

A state is the logs, what the brokers know, the store and how far the runs are. A search returns how many it has found.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from types import FunctionType, GeneratorType, MethodType, SimpleNamespace
from typing import Any

from attrs import define, frozen
from support.history_search import BrokenPromise, search_histories

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock
from barnabas.app.broker.state.tiering import Tiering
from barnabas.core.cluster.topics import NO_LEADER, PartitionState, ReplicaId
from barnabas.core.log.config import LogConfig
from barnabas.core.log.names import LOG_SUFFIX, SNAPSHOT_SUFFIX, segment_file
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.log.producers.snapshot import decode_snapshot
from barnabas.core.log.segment.segment import Segment
from barnabas.core.replica.follower.fetcher import PartitionDataProcessor
from barnabas.core.replica.follower.partition_fetch_state import PartitionFetchState
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.core.replica.partition.local_partitions import LocalPartitions
from barnabas.core.replica.partition.partition import Partition
from barnabas.core.tiering.manifest import (
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    decode_manifest,
    indexes_key,
    log_key,
    manifest_key,
    partition_folder,
    topic_folder,
)
from barnabas.core.tiering.remote_log_manager import LedLog, RemoteLogManager
from barnabas.core.tiering.segment_objects import SegmentIndexes
from barnabas.core.traffic.steps import complete
from barnabas.ports.broker_api.fetch import DivergingEpoch, FetchPartition, FetchResultPartition
from barnabas.ports.broker_api.offsets import EARLIEST, EARLIEST_LOCAL
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.remote_storage import ObjectInfo, ObjectMissing, RemoteStorageError, StoredObject, chunks_of
from barnabas.ports.scheduler import Outcome
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered, open_log

KEY, TOPIC_ID = TopicPartition("t", 0), b"topic-id-of-16-b"
FOLDER, TOPIC_FOLDER = partition_folder(KEY, TOPIC_ID), topic_folder("t", TOPIC_ID)
BROKERS = (1, 2)
RECORD_BYTES = len(numbered(b"%04d" % 0))


def _any(**attributes: Any) -> Any:
    """Return as much of a part of a broker as is needed here."""
    return SimpleNamespace(**attributes)


@frozen
class Scope:
    """The limits of a search. `most`: actions that are counted, and how often each may happen in one history;
    the other steps (`STEPS`) happen at any time.

    appended: how many records there are at first, in both logs. Each is a segment of its own.
    retained: how many records the topic's retention keeps.
    local:    how many of them local retention keeps.
    begins_in_tier: whether a new follower begins at the end of what is copied.
    before:   what has happened when the search begins: actions, and "rest", after which all is calm.
    """

    most: Mapping[str, int]
    appended: int = 2
    retained: int = 100
    local: int = 0
    begins_in_tier: bool = False
    before: tuple[str, ...] = ()


@frozen
class _Damage:
    """A flipped bit in the only batch of a segment."""

    offset: int
    intact: bytes


@define(eq=False)
class _Call:
    """A call of the store, on another thread than the broker's."""

    work: Callable[[], Any]
    done: Callable[[Outcome[Any]], None]
    outcome: Outcome[Any] | None = None


class _Store:
    """Remote storage whose next calls may fail in one way: see `History.fail`."""

    def __init__(self) -> None:
        self.inner = MemoryRemoteStorage()
        self.fault, self.calls_until = "", 0
        self.late: list[Callable[[], Any]] = []
        self.strays: set[str] = set()
        """Objects that were stored after the manifest had given them up."""
        self._known: dict[bytes, Manifest] = {}

    def _write(self, write: Callable[[], Any]) -> Any:
        if not self._is_due():
            return write()
        if self.fault == "lose":
            write()
        elif self.fault == "delay":
            self.late.append(write)
        raise RemoteStorageError("no answer")

    def _is_due(self) -> bool:
        self.calls_until -= 1
        return bool(self.fault) and self.calls_until < 0

    def put(self, key: str, content: Any) -> None:
        self._write(partial(self._put, key, b"".join(chunks_of(content))))

    def _put(self, key: str, content: bytes) -> None:
        named = {
            each
            for segment in getattr(self.manifest(), "segments", ())
            if segment.state is SegmentState.COPY_STARTED
            for each in (log_key(FOLDER, segment), indexes_key(FOLDER, segment))
        }
        if key not in named:
            self.strays.add(key)
        self.inner.put(key, content)

    def replace(self, key: str, content: Any, version: str | None) -> str:
        found: str = self._write(partial(self.inner.replace, key, bytes(content), version))
        return found

    def read(self, key: str) -> StoredObject:
        if self._is_due():
            raise RemoteStorageError("no answer")
        return self.inner.read(key)

    def get_range(self, key: str, start: int, size: int) -> bytes:
        return self.inner.get_range(key, start, size)

    def delete(self, key: str) -> None:
        self._write(partial(self.inner.delete, key))

    def list_objects(self, prefix: str) -> Iterator[ObjectInfo]:
        if self._is_due():
            raise RemoteStorageError("no answer")
        return self.inner.list_objects(prefix)

    def close(self) -> None:
        """Do nothing."""

    def manifest(self) -> Manifest | None:
        stored = self.inner._objects.get(manifest_key(KEY, TOPIC_ID))
        if stored is None:
            return None
        if stored[0] not in self._known:
            self._known[stored[0]] = decode_manifest(stored[0])
        return self._known[stored[0]]


class _Follower(PartitionDataProcessor):
    """The real processing of fetched data, without the clients and the checkpoints of a whole broker."""

    def __init__(self, broker: "_Broker") -> None:
        self._noting: dict[Any, Any] = {}
        self._broker = broker
        self.clock = broker.history.clock
        self.settings = _any(fetch_backoff_ms=100.0, begins_in_tier=lambda: broker.history.scope.begins_in_tier)
        self._purgatory = _any(check=lambda _: None)
        self._local = _any(report=lambda _: None, failed=self._failed, storage_failed=self._failed)
        self._logs = _any(checkpoint_of=self._checkpoint)
        self._flushes = _any(begin_if_due=lambda log, *_: log.flushes.now())
        self._throttle = _any(covers=lambda _: False, holds=lambda _: False)
        self._wake = lambda _: None
        self._rebuild_partition = broker.tier.rebuild
        self.own = lambda: broker.own

    def _failed(self, what: Any, error: BaseException) -> None:
        raise BrokenPromise(f"{what}: {error!r}")

    def _checkpoint(self, log: UnifiedLog, noted: Callable[[], None]) -> None:
        log.flushes.now()
        self._broker.checkpoint()
        noted()


class _Tier(Tiering):
    """The real rebuild of a follower."""

    def __init__(self, broker: "_Broker") -> None:
        self._broker = broker
        self._outside = _any(storage=broker.history.store, offload_read=broker.offload)
        self._replicas = _any(partitions={KEY: broker.partition})
        self._closed = False
        self._begins_in_tier = lambda: broker.history.scope.begins_in_tier
        self._clock = broker.history.clock
        self._report = lambda _: None

    def _ask_offsets(self, leader: int, partitions: Any, timestamp: int, known: Callable[[Any], None]) -> None:
        led = self._broker.history.brokers[leader]
        if not led.live or not led.partition.is_leader:
            known({})
            return
        log = led.partition.log
        starts = {EARLIEST: log.log_start_offset, EARLIEST_LOCAL: log.local_log_start_offset}
        pending = max(log.remote_end, log.log_start_offset)
        known({KEY: starts.get(timestamp, pending - 1 if pending > log.log_start_offset else -1)})


class _Broker:
    def __init__(self, history: "History", number: int) -> None:
        self.history, self.number = history, number
        self.own = ReplicaId(number, number)
        self.disk = MemoryDisk(now_ms=history.clock.now_ms)
        self.log_start = self.recovery_point = 0
        """The values in the checkpoints."""
        self.live = True
        self.damaged: _Damage | None = None
        self.works: list[_Call] = []
        self.timers: list[Callable[[], None]] = []
        self._begin()

    def _begin(self) -> None:
        history = self.history
        log = open_log(
            MemoryLogDir(self.disk).folder("t-0"),
            config=history.config,
            log_start_offset=self.log_start,
            recovery_point=self.recovery_point,
            may_end_early=True,
        )
        self.local = LocalPartitions(
            lambda *_: ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            lambda _: None,
            clock=history.clock,
            isr_silence_max_ms=0.0,
        )
        self.partition = Partition(
            log, KEY, topic_id=TOPIC_ID, own=self.own, replicas=BROKERS, state=history.state, now_ms=0
        )
        self.manager = RemoteLogManager(
            history.store,
            self.offload,
            scheduler=SimpleNamespace(call_later=lambda _, call: self.timers.append(call)),
            clock=history.clock,
            entropy=_any(token=history.token),
            report=lambda _: None,
            interval_ms=50,
        )
        self.tier = _Tier(self)
        self.follower = _Follower(self)
        self.followed = PartitionFetchState(self.partition)
        self.answered: tuple[int, PartitionFetchState, FetchResultPartition] | None = None
        """The offset and the answer of its last fetch."""

    @property
    def log(self) -> UnifiedLog:
        return self.partition.log

    @property
    def leads(self) -> bool:
        return self.live and self.partition.is_leader

    def offload(self, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> None:
        self.works.append(_Call(work, done))

    def checkpoint(self) -> None:
        self.log_start, self.recovery_point = self.log.log_start_offset, self.log.recovery_point

    def lead(self) -> None:
        partition, log = self.partition, self.log
        self.manager.lead(
            LedLog(
                key=KEY,
                topic_id=TOPIC_ID,
                leader_epoch=partition.leader_epoch,
                log=log,
                last_stable_offset=lambda: partition.last_stable_offset,
                describe=lambda: TieredTopic(name="t", topic_id=TOPIC_ID, partitions=1),
                awaits_producers=partial(self.local.awaits_producers, partition),
            )
        )

    def see(self) -> None:
        """Hear of the state in the tree."""
        led = self.partition.leader_epoch if self.partition.is_leader else -1
        self.partition.apply_state(self.history.state, BROKERS, self.own, 0)
        if led >= 0 and not self.partition.is_leader:
            self.manager.resign(KEY)
        self.followed.leader_epoch = self.partition.leader_epoch
        if self.partition.is_leader and self.partition.leader_epoch != led:
            self.lead()

    def die(self) -> None:
        self.live = False
        self.manager.close()
        self.works.clear()
        self.timers.clear()
        self.disk = self.disk.after_crash()

    def start(self, epoch: int) -> None:
        self.live = True
        self.own = ReplicaId(self.number, epoch)
        self._begin()

    def answer(self, asked: FetchPartition) -> FetchResultPartition:
        """Answer a follower's fetch, as `FollowerFetchParams` does."""
        partition, log = self.partition, self.log
        start, end = log.log_start_offset, log.log_end_offset
        common = (partition.high_watermark, partition.last_stable_offset, start)
        if asked.last_fetched_epoch >= 0 and asked.offset >= start:
            diverging = partition.diverging(asked.offset, asked.last_fetched_epoch)
            if diverging is not None:
                return FetchResultPartition("t", 0, ErrorCode.NONE, *common, diverging=diverging)
        try:
            records = partition.read(asked.offset, 1, whole_first_batch=True, isolation=FetchIsolation.LOG_END)
        except ApiError as error:
            outside = DivergingEpoch(log.epochs.latest, end) if error.code is ErrorCode.OFFSET_OUT_OF_RANGE else None
            return FetchResultPartition("t", 0, error.code, log_start_offset=start, diverging=outside)
        return FetchResultPartition("t", 0, ErrorCode.NONE, *common, records)


@cache
def _config(local: int, retained: int) -> LogConfig:
    return LogConfig(
        segment_bytes=RECORD_BYTES,
        remote_storage_enable=True,
        local_retention_bytes=local * RECORD_BYTES,
        retention_bytes=retained * RECORD_BYTES,
        retention_ms=-1,
        index_interval_bytes=1,
    )


@cache
def _record(number: int) -> bytes:
    """Return the only batch of its producer, whose id is `number`."""
    return bytes(numbered(b"%04d" % number, producer=number))


class History:
    """One partition at one moment."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.used: dict[str, int] = {}
        self.clock = ManualClock()
        self.store = _Store()
        self.config = _config(scope.local, scope.retained)
        self.tokens = 0
        self.epochs = len(BROKERS)
        """The last broker epoch that was drawn."""
        self.exists = True
        self.state = PartitionState(
            leader=1, leader_epoch=0, isr=BROKERS, broker_epochs={each: each for each in BROKERS}, min_isr=1
        )
        self.written: dict[tuple[int, int], bytes] = {}
        """By leader epoch and offset: the batch. One leader appends in an epoch."""
        self.producers: dict[tuple[int, int], int] = {}
        """By leader epoch and offset: the id of the producer, which appended nothing else."""
        self.committed: dict[int, int] = {}
        """By offset: the leader epoch of what was committed there."""
        self.appended = 0
        self.deleted_to = self.longest = self.dead_to = 0
        """An operator's deletion offset, the longest log, and the highest start that a manifest has had."""
        self.last_unclean = 0
        """The leader epoch of the last unclean election; starts of earlier manifests count no longer."""
        self.brokers = {each: _Broker(self, each) for each in BROKERS}
        for _ in range(scope.appended):
            self.append()
            while self.follow(2):
                pass
        self.brokers[1].lead()

    def token(self, size: int) -> bytes:
        """Return the segment ids."""
        self.tokens += 1
        return self.tokens.to_bytes(size)

    @property
    def leader(self) -> _Broker | None:
        found = self.brokers.get(self.state.leader)
        return found if found is not None and found.live else None

    def _change(self, leader: int, isr: Sequence[int]) -> None:
        before = self.state
        self.state = PartitionState(
            leader=leader,
            leader_epoch=before.leader_epoch + (leader != before.leader),
            isr=tuple(isr),
            broker_epochs={each: self.brokers[each].own.broker_epoch for each in isr},
            partition_epoch=before.partition_epoch + 1,
            min_isr=1,
        )
        if leader == before.leader and (led := self.leader) is not None:
            led.see()

    # --- steps, which happen without end

    def call(self, broker: int) -> bool:
        """Let a worker of the broker make its call of the store."""
        return self._call(broker)

    def _call(self, broker: int, fault: str = "", after: int = 0) -> bool:
        works = self.brokers[broker].works
        if not works or works[0].outcome is not None:
            return False
        self.store.fault, self.store.calls_until = fault, after
        works[0].outcome = Outcome.of(works[0].work)
        was_due = self.store.calls_until < 0
        self.store.fault = ""
        return was_due or not fault

    def hear(self, broker: int) -> bool:
        """Let the broker get the outcome of a call."""
        works = self.brokers[broker].works
        if not works or works[0].outcome is None:
            return False
        call = works.pop(0)
        assert call.outcome is not None
        call.done(call.outcome)
        return True

    def tick(self, broker: int) -> bool:
        """Run the leader's due copying, or another attempt to delete a topic."""
        it = self.brokers[broker]
        if it.timers:
            it.timers.pop(0)()
            return True
        leading = it.manager._leading.get(KEY)
        if not it.live or leading is None or leading.is_running or leading.ended:
            return False
        it.manager.run_now(KEY)
        return True

    def retain(self, broker: int) -> bool:
        """Retention deletes local segments."""
        it = self.brokers[broker]
        if not it.live or not self.exists:
            return False
        awaits = it.local.awaits_producers(it.partition)
        removed = complete(it.log.retain(self.clock.now_ms(), it.partition.high_watermark, awaits_producers=awaits))
        for segment in removed:
            segment.delete()
        return bool(removed)

    def report_end(self, broker: int) -> bool:
        """Let a follower ask its leader for the state of remote storage."""
        it = self.brokers[broker]
        if not self.exists or not it.live or it.leads or it.partition.leader == NO_LEADER:
            return False
        before = it.log.remote_end
        known = partial(it.tier._tiered_known, {KEY: it.partition.leader_epoch})
        led = self.brokers[it.partition.leader]
        if led.partition.leader_epoch != it.partition.leader_epoch:
            return False
        it.tier._ask_offsets(it.partition.leader, [it.partition], 0, known)
        return it.log.remote_end != before

    def see(self, broker: int) -> bool:
        """Let a broker learn the state in the tree."""
        it = self.brokers[broker]
        if not self.exists or not it.live or it.partition.state == self.state:
            return False
        it.see()
        return True

    def follow(self, broker: int) -> bool:
        """Let a follower fetch until it is at the end, or must wait."""
        it, leader = self.brokers[broker], self.leader
        if not self.exists or not it.live or leader is None or leader is it or not leader.leads:
            return False
        if leader.partition.leader_epoch != it.partition.leader_epoch or it.follower._noting:
            return False
        before = self._followed(it)
        for _ in range(20):
            asked = it.followed.build_fetch(1)
            with suppress(ApiError):
                progress = leader.partition.followers.of(it.own)  # type: ignore[union-attr]
                leader.partition.follower_fetched(progress, asked.offset, asked.log_start_offset, 0)
            result = leader.answer(asked)
            it.answered = asked.offset, it.followed, result
            it.follower.process_partition_data(it.followed, result)
            if it.follower._noting:
                break
            if self._is_at_end(it, leader) and result.error is ErrorCode.NONE and result.diverging is None:
                if broker not in self.state.isr:
                    self._change(leader.number, sorted((*self.state.isr, broker)))
                break
        return self._followed(it) != before

    def follow_again(self, broker: int) -> bool:
        """Deliver a second fetch's answer, sent before the answer to the first, while the log is being rebuilt."""
        it = self.brokers[broker]
        if not it.live or not it.follower._noting or it.answered is None:
            return False
        offset, followed, result = it.answered
        if followed.leader_epoch != it.partition.leader_epoch or it.log.log_end_offset != offset:
            return False
        it.follower.process_partition_data(followed, result)
        return True

    def _followed(self, it: _Broker) -> object:
        leader, log = self.leader, it.log
        high = None if leader is None else leader.partition.high_watermark
        ends = (log.log_start_offset, log.local_log_start_offset, log.log_end_offset, tuple(log.epochs.entries))
        return ends, it.partition.high_watermark, high, self.state.isr, bool(it.follower._noting)

    def _is_at_end(self, it: _Broker, leader: _Broker) -> bool:
        mine, its = it.log, leader.log
        return mine.log_end_offset == its.log_end_offset and mine.epochs.latest == its.epochs.latest

    def arrive(self, _: int) -> bool:
        """Let a delayed effect take place."""
        if not self.store.late:
            return False
        with suppress(RemoteStorageError):
            self.store.late.pop(0)()
        return True

    # --- actions that are counted

    def append(self, _: int = 0) -> bool:
        """Let the leader append a record."""
        leader = self.leader
        if leader is None or not leader.leads or not self.exists:
            return False
        content = bytearray(_record(self.appended))
        offset = leader.partition.append_as_leader(memoryview(content), now_ms=self.clock.now_ms()).base_offset
        leader.log.flushes.now()
        self.written[leader.partition.leader_epoch, offset] = bytes(content)
        self.producers[leader.partition.leader_epoch, offset] = self.appended
        self.appended += 1
        return True

    def delete_records(self, _: int) -> bool:
        """Delete the first record, as an operator."""
        leader = self.leader
        if leader is None or not leader.leads or leader.log.log_start_offset >= leader.partition.high_watermark:
            return False
        self.deleted_to = max(self.deleted_to, leader.log.log_start_offset + 1)
        leader.partition.delete_records(leader.log.log_start_offset + 1)
        return True

    def kill(self, broker: int) -> bool:
        """Kill the process of a broker. The controller elects another leader if it may."""
        it = self.brokers[broker]
        if not it.live:
            return False
        it.die()
        if not self.exists:
            return True
        isr = [each for each in self.state.isr if each != broker]
        if broker != self.state.leader:
            if isr != list(self.state.isr):
                self._change(self.state.leader, isr)
        else:
            self._change(next((each for each in isr if self.brokers[each].live), NO_LEADER), isr or self.state.isr)
        return True

    def start(self, broker: int) -> bool:
        """Restart a broker, which leads if it was in sync last."""
        it = self.brokers[broker]
        if it.live or not self.exists:
            return False
        self.epochs += 1
        was = self.state.leader
        it.start(self.epochs)
        if was == NO_LEADER and broker in self.state.isr:
            self._change(broker, [broker])
        it.see()
        return True

    def lose_disk(self, broker: int) -> bool:
        """Let a broker that is down lose its disk: it starts as a new replica."""
        it = self.brokers[broker]
        if it.live or broker in self.state.isr:
            return False
        it.disk = MemoryDisk(now_ms=self.clock.now_ms)
        it.log_start = it.recovery_point = 0
        return True

    def damage(self, broker: int) -> bool:
        """Let a broker that is down have damage in its first local segment, behind which is no snapshot of the
        producers: it had died before these were flushed."""
        it = self.brokers[broker]
        if it.live or it.damaged is not None:
            return False
        it.recovery_point = it.log.log_end_offset
        files = it.disk.folders["t-0"]
        base = it.log.local_log_start_offset
        for name in [each for each in files if each.endswith(SNAPSHOT_SUFFIX)]:
            if int(name.removesuffix(SNAPSHOT_SUFFIX)) > base:
                del files[name]
        content = files[segment_file(base, LOG_SUFFIX)].data
        it.damaged = _Damage(base, bytes(content))
        content[-1] ^= 1
        return True

    def repair(self, broker: int) -> bool:
        """Repair the damage of a broker, with the batch of another replica."""
        it = self.brokers[broker]
        if not it.live or it.damaged is None:
            return False
        for segment in it.log.segments:
            if segment.base_offset == it.damaged.offset:
                assert isinstance(segment, Segment)
                segment.file.truncate(0)
                segment.file.append(it.damaged.intact)
                segment.gaps = ()
        it.damaged = None
        complete(it.log.reload_producers(self.clock.now_ms()))
        return True

    def elect(self, broker: int) -> bool:
        """Elect this broker, which is in sync; the earlier leader may not know it."""
        if not self.exists or self.state.leader in (broker, NO_LEADER) or not self.brokers[broker].live:
            return False
        if broker not in self.state.isr:
            return False
        self._change(broker, self.state.isr)
        return True

    def elect_uncleanly(self, broker: int) -> bool:
        """Elect a broker that lacks committed records."""
        it = self.brokers[broker]
        if not self.exists or self.state.leader != NO_LEADER or not it.live:
            return False
        self._change(broker, [broker])
        end = it.log.log_end_offset
        self.deleted_to, self.dead_to = min(self.deleted_to, end), min(self.dead_to, end)
        self.last_unclean = self.state.leader_epoch
        self.committed = {
            offset: epoch
            for offset, epoch in self.committed.items()
            if offset < end and it.log.epochs.epoch_at(offset) == epoch
        }
        return True

    def delete_topic(self, _: int) -> bool:
        """Delete the topic, with the knowledge of all brokers."""
        if not self.exists or not any(each.live for each in self.brokers.values()):
            return False
        self.exists = False
        for it in self.brokers.values():
            if it.live:
                it.manager.resign(KEY)
                it.log.close()
                it.manager.delete_topic("t", TOPIC_ID, lambda _: None)
        return True

    def fail(self, broker: int) -> bool:
        """Let the next call of a broker have no effect, and an error."""
        return self._call(broker, "fail")

    def lose(self, broker: int) -> bool:
        """Let the next call of a broker have an effect, and an error."""
        return self._call(broker, "lose")

    def delay(self, broker: int) -> bool:
        """Let the next call of a broker have an error, and its effect later."""
        return self._call(broker, "delay")

    def fail_second(self, broker: int) -> bool:
        """Let only one of two objects of a segment be stored or deleted."""
        return self._call(broker, "fail", 1)

    def delay_second(self, broker: int) -> bool:
        """Let the second of two objects be stored or deleted later."""
        return self._call(broker, "delay", 1)

    # --- promises

    def note(self) -> _Broker | None:
        """Note what is committed now; return the leader, if it knows that it leads."""
        present, leader = self.store.manifest(), self.leader
        if present is not None and present.leader_epoch >= self.last_unclean:
            self.dead_to = max(self.dead_to, present.log_start)
        if leader is None or not leader.leads or leader.partition.leader_epoch != self.state.leader_epoch:
            return None
        log = leader.log
        self.longest = max(self.longest, log.log_end_offset)
        for offset in range(log.log_start_offset, leader.partition.high_watermark):
            self.committed.setdefault(offset, log.epochs.epoch_at(offset))
        return leader

    def check(self) -> None:
        """Check what must be true at any time."""
        present, leader = self.store.manifest(), self.note()
        if not self.exists:
            return
        if present is not None:
            self._check_whole(present)
        if leader is None:
            return
        log = leader.log
        allowed = max(self.deleted_to, self.longest - self.scope.retained)
        start = max(log.log_start_offset, 0 if present is None else present.log_start)
        if start > allowed:
            raise BrokenPromise(f"the log starts at {start}, though retention and operators left all from {allowed} on")
        view = leader.manager.view(KEY)
        if present is not None and present.log_start < min(self.dead_to, log.log_end_offset):
            raise BrokenPromise(f"the manifest starts at {present.log_start}, below {self.dead_to}, as before")
        if view is not None and log.log_start_offset < min(view.manifest.log_start, log.log_end_offset):
            raise BrokenPromise(f"the log starts at {log.log_start_offset}, below its manifest's start")
        is_hidden = bool(log.hidden_producers_at)
        for offset, epoch in self.committed.items():
            if offset < start:
                continue
            if leader.damaged is None or leader.damaged.offset != offset:
                self._check_readable(log, present, offset, epoch)
            if not is_hidden and self.producers[epoch, offset] not in log.producers.producers:
                raise BrokenPromise(f"the leader would append the batch at {offset} again: its producer is unknown")
        if view is not None:
            for offset in range(log.log_start_offset, log.local_log_start_offset):
                segment = view.manifest.find(offset)
                if segment is not None:
                    self._check_segment(segment, log.epochs.epoch_at(offset))

    def _check_readable(self, log: UnifiedLog, present: Manifest | None, offset: int, epoch: int) -> None:
        if offset >= log.local_log_start_offset:
            found = b""
            if offset < log.log_end_offset:
                read = log.read(offset, max_bytes=1, limit=offset + 1).records
                found = read if isinstance(read, bytes) else read.read()
            if found != self.written[epoch, offset]:
                raise BrokenPromise(f"the leader's log has {found!r} at offset {offset}, which is not what it had")
            return
        segment = None if present is None else present.find(offset)
        if segment is None:
            raise BrokenPromise(f"offset {offset} is neither in the leader's log nor in the manifest")
        self._check_segment(segment, epoch)

    def _check_whole(self, present: Manifest) -> None:
        for segment in present.readable:
            self._check_segment(segment, None)

    def _check_segment(self, segment: RemoteSegment, epoch: int | None) -> None:
        """Compare a segment of one record with what was appended, in the epoch or in the one that it has."""
        (its, _), base = segment.epochs[0], segment.base_offset
        try:
            content = self.store.inner.read(log_key(FOLDER, segment)).content
            indexes = SegmentIndexes(self.store.inner.read(indexes_key(FOLDER, segment)).content, base)
        except ObjectMissing as error:
            raise BrokenPromise(f"a segment that is offered to readers is not whole: {error}") from None
        if content != self.written[its if epoch is None else epoch, base]:
            raise BrokenPromise(f"the segment at {base} has another record than the log")
        if indexes.snapshot is None or not indexes.epochs:
            raise BrokenPromise(f"the segment at {base} has no snapshot of producers, or no epochs")
        self._check_producers(segment, indexes)

    def _check_producers(self, segment: RemoteSegment, indexes: SegmentIndexes) -> None:
        """Check that a follower which is rebuilt behind a segment knows who has appended the records up to there."""
        present = self.store.manifest()
        known = decode_snapshot(indexes.snapshot or b"", now_ms=0).producers
        for offset in range(0 if present is None else present.log_start, segment.next_offset):
            epoch = self.committed.get(offset, -1)
            is_below = any(each == epoch and first <= offset for each, first in indexes.epochs)
            if is_below and self.producers[epoch, offset] not in known:
                raise BrokenPromise(f"the segment at {segment.base_offset} has no producer of the batch at {offset}")

    def quiesce(self) -> None:
        """Let everything come to rest, without another fault, and check what must be true then."""
        while self.arrive(0):
            pass
        for broker in BROKERS:
            self.start(broker)
            self.repair(broker)
        if not self.exists and not any(each.live for each in self.brokers.values()):
            self._finish_deletion()
        self.rest()
        if self.leader is not None or not self.exists:
            self._check_calm()

    def _finish_deletion(self) -> None:
        """All brokers have died since the topic was deleted: the first one that comes reads in the tree what is to be
        deleted."""
        it = self.brokers[BROKERS[0]]
        self.epochs += 1
        it.start(self.epochs)
        it.manager.resign(KEY)
        it.manager.delete_topic("t", TOPIC_ID, lambda _: None)

    def rest(self) -> None:
        """Take steps until nothing more happens."""
        quiet = 0
        for _ in range(200):
            moved = [
                act(broker)
                for broker in BROKERS
                for act in (self.see, self.call, self.hear, self.follow, self.report_end, self.retain)
            ]
            self.check()
            if any(moved):
                quiet = 0
                continue
            quiet += 1
            if quiet > 3:
                break
            for broker in BROKERS:
                self.tick(broker)
        else:
            raise BrokenPromise("the brokers do not come to rest")

    def _check_calm(self) -> None:
        keys = {each.key for each in self.store.inner.list_objects(TOPIC_FOLDER)} - self.store.strays
        if not self.exists:
            if keys:
                raise BrokenPromise(f"of a deleted topic there is still {sorted(keys)}")
            return
        leader, present = self.leader, self.store.manifest()
        assert leader is not None
        view = leader.manager.view(KEY)
        if view is None or view.manifest != present or present is None:
            raise BrokenPromise("the leader does not know the manifest")
        unfinished = [each for each in present.segments if each.state is not SegmentState.COPY_FINISHED]
        if unfinished:
            raise BrokenPromise(f"left half done: {unfinished}")
        named = {f(FOLDER, each) for each in present.segments for f in (log_key, indexes_key)}
        named.add(f"{FOLDER}/manifest.json.gz")
        if keys != named:
            raise BrokenPromise(f"objects that no manifest names, or that are missing: {sorted(keys ^ named)}")
        if self.scope.local == 0 and leader.log.segments[0].base_offset < min(
            leader.log.segments[-1].base_offset, leader.log.remote_end
        ):
            raise BrokenPromise("local segments stay that remote storage has")
        closed = leader.log.segments[-1].base_offset
        if self.scope.local == 0 and present.covered_to(leader.log.log_start_offset) < min(
            closed, leader.partition.high_watermark
        ):
            raise BrokenPromise(f"not copied: segments from {present.covered_to(leader.log.log_start_offset)} on")
        for it in self.brokers.values():
            if it.log.log_end_offset != leader.log.log_end_offset:
                raise BrokenPromise(f"broker {it.number} cannot follow")

    # --- the search

    may_quiesce, quiesces_in_motion = True, False

    @staticmethod
    def of(text: str) -> int:
        return int(text or 0)

    def fingerprint(self) -> str:
        text = partial(_text, version=self._version())
        parts = [
            repr((self.state.leader, self.state.leader_epoch, self.state.isr, self.exists, sorted(self.used.items()))),
            repr((sorted(self.committed.items()), self.deleted_to, self.longest, self.dead_to)),
            text(self.store.manifest()),
            repr([each.key for each in self.store.inner.list_objects("")]),
            repr(sorted(self.store.strays)),
            text(self.store.late),
        ]
        for it in self.brokers.values():
            log, partition = it.log, it.partition
            leading = it.manager._leading.get(KEY)
            followers = [(each.log_end, each.log_start) for each in partition.followers or ()]
            in_epoch = self.state.broker_epochs.get(it.number) == it.own.broker_epoch
            parts += [
                repr((it.live, log.log_start_offset, log.local_log_start_offset, log.log_end_offset, log.remote_end)),
                repr((log.hidden_producers_at, None if it.damaged is None else it.damaged.offset)),
                repr((log.epochs.entries, it.log_start, it.recovery_point, log.segments[0].base_offset)),
                repr((partition.leader, partition.leader_epoch, partition.high_watermark, followers, in_epoch)),
                repr((partition.state == self.state, bool(it.follower._noting), len(it.timers))),
                repr(it.followed.looked_in_tier),
                text(None if leading is None else {**vars(leading), "led": leading.led.leader_epoch}),
                text([(each.work, each.done, each.outcome) for each in it.works]),
            ]
        names: dict[str, str] = {}
        return re.sub("[0-9a-f]{32}", lambda found: names.setdefault(found[0], f"#{len(names)}"), "\n".join(parts))

    def _version(self) -> str | None:
        try:
            return self.store.inner.read(f"{FOLDER}/manifest.json.gz").version
        except ObjectMissing:
            return None


def _text(value: object, version: str | None = None, depth: int = 7) -> str:
    """Describe a value, a call that is due or a run, the same way in each replay."""
    if depth == 0:
        return type(value).__name__
    below = partial(_text, version=version, depth=depth - 1)
    if isinstance(value, partial):
        return f"{below(value.func)}({', '.join(map(below, value.args))})"
    if isinstance(value, MethodType):
        return value.__func__.__qualname__
    if isinstance(value, FunctionType):
        cells = [below(cell.cell_contents) for cell in value.__closure__ or ()]
        return f"{value.__qualname__}[{', '.join(cells)}]"
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        if frame is None:
            return "ended"
        names = {name: below(each) for name, each in frame.f_locals.items() if name != "self"}
        return f"{value.__qualname__}@{frame.f_lasti}{names}>{below(value.gi_yieldfrom)}"
    if isinstance(value, Manifest):
        return f"{value.leader_epoch, value.log_start, value.epochs, [below(each) for each in value.segments]}"
    if isinstance(value, RemoteSegment):
        spot = (value.base_offset, value.next_offset, value.epochs, value.leader_epoch, value.state.name)
        return f"{value.segment_id}{spot}"
    if isinstance(value, dict):
        return str({str(key): below(each) for key, each in value.items()})
    if isinstance(value, list | tuple | set | frozenset | deque):
        return str([below(each) for each in value])
    if isinstance(value, Outcome):
        return f"{below(value.value)} or {value.error!r}"
    if isinstance(value, str) and value.isdigit():
        return "present" if value == version else "past"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None or isinstance(value, str | int | float | TopicPartition):
        return repr(value)
    return type(value).__name__


STEPS = ("see", "call", "hear", "follow", "report_end", "retain", "tick")
_OF_NO_BROKER = ("append", "delete_records", "delete_topic", "arrive")


def search(scope: Scope) -> int:
    """Play every history of the scope; return the number of states. Raises `BrokenPromise` with the history."""
    names = [*scope.most, "arrive", *STEPS]
    actions = [(name, broker) for name in names for broker in ((0,) if name in _OF_NO_BROKER else BROKERS)]
    return search_histories(History, scope, actions)
