"""Every crash of `barnabas topics restore` at small scope: the command dies after each of its steps, and again in the
second attempt.

A whole broker, the clients of the command and the store are in memory and in one thread. The partitions of the command
come back side by side, so a first crash is at each pair of how far two of them have come.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from threading import Condition, Lock
from typing import Any
from unittest import mock

from attrs import define, field, frozen

from barnabas import Admin
from barnabas.adapters.remote_memory import MemoryRemoteStorage, open_memory_remote_storage
from barnabas.app.cli.tier import topics_in
from barnabas.app.connector import Opened
from barnabas.app.mirror import restoring
from barnabas.app.mirror.identical import SOURCE_KEY
from barnabas.app.mirror.restoring import RestoredTopic, TierRestore
from barnabas.core.message.batch_reader import whole_batches
from barnabas.core.tiering.group_offsets import CopiedOffsets, GroupOffset, group_offsets_key, store_group_offsets
from barnabas.core.tiering.manifest import (
    Epochs,
    Manifest,
    RemoteSegment,
    SegmentState,
    TieredTopic,
    encode_manifest,
    epochs_between,
    indexes_key,
    log_key,
    manifest_key,
    partition_folder,
    topic_folder,
)
from barnabas.core.tiering.segment_objects import IndexType, encode_parts
from barnabas.ports.broker_api.envelope import Caller, Request
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import Buffer, TopicPartition
from barnabas.testing.by_hand import ManualScheduler, SeededEntropy
from barnabas.testing.manual_broker import HERE, ManualBroker, batch

TOPIC_IDS = {"t": bytes(range(16)), "u": bytes(range(16, 32))}
TIERED = {"remote.storage.enable": "true", "segment.bytes": "400", "retention.ms": "-1"}
SETTINGS: dict[str, Any] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "1000",
    "offsets.topic.num.partitions": "1",
}
COMMITTED = {("late", "t", 0): 7, ("late", "t", 1): 2, ("early", "t", 0): 4, ("late", "u", 0): 1}
"""The offsets of groups, by group and partition."""
_numbers = count(1)


class Killed(BaseException):
    """The command has died."""


class _HandCondition(Condition):
    """Lets the broker work while its client waits."""

    def __init__(self, lock: Lock, scheduler: ManualScheduler) -> None:
        super().__init__(lock)
        self._scheduler = scheduler

    def wait(self, timeout: float | None = None) -> bool:
        self.release()
        try:
            self._scheduler.run_pending()
            self._scheduler.advance(1)
        finally:
            self.acquire()
        return True


class _Link:
    """Fulfils `BrokerLink` without a wire."""

    def __init__(self, broker: ManualBroker) -> None:
        self._broker = broker

    def submit(self, request: Request[Any], caller: Caller, reply: Callable[[Any], None]) -> None:
        self._broker.node.api.submit(request, HERE, reply)

    def close(self) -> None:
        """Do nothing: the broker knows of no connection."""


class HandConnector:
    """Fulfils `Connector`, and makes one for each client: the broker's scheduler is the reactor of its clients."""

    bootstrap: Sequence[tuple[str, int]] = (("broker", 9092),)

    def __init__(self, broker: ManualBroker) -> None:
        self._broker = broker
        self.clock = broker.clock
        self.entropy = SeededEntropy(1)

    def connector_for(self, **_: object) -> "HandConnector":
        return self

    def start(self) -> ManualScheduler:
        return self._broker.scheduler

    def condition(self, lock: Lock) -> Condition:
        return _HandCondition(lock, self._broker.scheduler)

    def owns_thread(self) -> bool:
        return False

    def connect(self, address: tuple[str, int], opened: Opened) -> None:
        opened(_Link(self._broker))

    def stop(self) -> None:
        """Do nothing: the scheduler is the broker's."""


@define
class _Task:
    """The work on one partition, in the thread of the command."""

    work: Callable[[Any], None]
    part: Any
    error: BaseException | None = None
    has_begun: bool = False

    def run(self) -> None:
        if not self.has_begun:
            self.has_begun = True
            try:
                self.work(self.part)
            except BaseException as error:  # noqa: BLE001  # `result` raises it, as that of a future
                self.error = error

    def result(self) -> None:
        self.run()
        if self.error is not None:
            raise self.error


class _InTurns:
    """Stands for the pool of threads: `Death` says when another partition has its turn."""

    def __init__(self, death: "Death") -> None:
        self._death = death

    def __call__(self, *_: object, **__: object) -> "_InTurns":
        return self

    def __enter__(self) -> "_InTurns":
        self._death.tasks = []
        return self

    def __exit__(self, *_: object) -> None:
        self._death.tasks = None

    def submit(self, work: Callable[[Any], None], part: Any) -> _Task:
        assert self._death.tasks is not None
        self._death.tasks.append(_Task(work, part))
        return self._death.tasks[-1]

    def shutdown(self, **_: object) -> None:
        """Do nothing: what has not begun never will."""


@frozen
class Crash:
    """The step before which the command dies: `sent` requests of each partition while they come back side by side; or,
    if None, `others` other steps. Both None: it lives."""

    sent: Mapping[tuple[str, int], int] | None = None
    others: int | None = None


@define
class Death:
    """Counts the steps of a command, and kills it."""

    crash: Crash
    sent: dict[tuple[str, int], int] = field(factory=dict)
    others: int = 0
    tasks: list[_Task] | None = None

    def step(self, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.tasks is None:
            if self.crash.others == self.others:
                raise Killed
            self.others += 1
            return real(*args, **kwargs)
        tp = args[0].topic, args[0].partition
        used = self.sent.setdefault(tp, 0)
        if self.crash.sent is not None and used == self.crash.sent.get(tp, -1):
            for task in self.tasks:
                task.run()  # as far as it may come
            raise Killed
        self.sent[tp] += 1
        return real(*args, **kwargs)


class _HandTime:
    """Stands for the module `time`: the broker works while the command sleeps."""

    def __init__(self, broker: ManualBroker) -> None:
        self._broker = broker

    def monotonic(self) -> float:
        return self._broker.clock.monotonic_ms() / 1000

    def sleep(self, seconds: float) -> None:
        self._broker.wait(seconds * 1000)


class Restored:
    """A cluster, and the store that it has in common with the lost one."""

    def __init__(self, lost: MemoryRemoteStorage) -> None:
        name = f"restore-search-{next(_numbers)}"
        self.storage = open_memory_remote_storage(f"memory://{name}", {})
        self.before = {each.key: lost.read(each.key).content for each in lost.list_objects("")}
        for key, content in self.before.items():
            self.storage.put(key, content)
        self.broker = ManualBroker(**{**SETTINGS, "remote.log.storage.manager.class.name": f"memory://{name}"})

    def close(self) -> None:
        self.broker.stop()

    def run(self, crash: Crash) -> tuple[Death, list[RestoredTopic] | None]:
        """Run `barnabas topics restore` without names; return its steps, and its outcome, or None if it died."""
        death = Death(crash)
        connector: Any = HandConnector(self.broker)
        command = TierRestore(self.storage, {"bootstrap.servers": connector})
        command._send = partial(death.step, command._send)  # type: ignore[method-assign]
        for name in ("create_topic", "alter_configs", "alter_group_offsets"):
            setattr(command._admin, name, partial(death.step, getattr(command._admin, name)))
        try:
            with (
                mock.patch.object(restoring, "ThreadPoolExecutor", _InTurns(death)),
                mock.patch.object(restoring, "time", _HandTime(self.broker)),
                mock.patch.object(restoring, "_SENT_BYTES", 1),  # a batch for each request
            ):
                topics = topics_in(self.storage, "memory://", [], None, command.topic_ids)
                return death, [command.restore(name, parts, lambda _: None) for name, parts in sorted(topics.items())]
        except Killed:
            return death, None
        finally:
            command.close()

    def check(self, lost: "LostCluster", *, is_whole: bool) -> None:
        """Raise `AssertionError` unless the store is as it was, and each topic is whole or says that it is not."""
        stored = {each.key: self.storage.read(each.key).content for each in self.storage.list_objects("")}
        assert {key: stored.get(key) for key in self.before} == self.before, "the bucket has changed"
        with Admin(HandConnector(self.broker)) as admin:
            there = {each.name: each for each in admin.describe_topics()}
            assert not is_whole or there.keys() >= TOPIC_IDS.keys(), "a topic is missing"
            for topic in TOPIC_IDS.keys() & there.keys():
                overrides = dict(admin.topic_overrides(topic))
                source = overrides.pop(SOURCE_KEY, None)
                assert source is None or not is_whole, f"{topic} is half restored"
                places = [TopicPartition(*tp) for tp in lost.batches if tp[0] == topic]
                starts = admin.list_offsets(dict.fromkeys(places, "earliest"))
                contents = {each: self._content(each, starts[each]) for each in places}
                if source is None:
                    self._check_whole(admin, topic, overrides, contents, lost)
                    continue
                folder = topic_folder(topic, there[topic].topic_id)
                assert not any(key.startswith(folder) for key in stored), f"{topic} is copied before it is whole"
                for tp, content in contents.items():
                    assert lost.batches[tp].startswith(content), f"{tp} has other batches"
                    error = self.broker.produce(topic, b"x", partition=tp.partition).error
                    assert error is not ErrorCode.NONE, f"{tp} takes records before it is whole"

    def _check_whole(
        self,
        admin: Admin,
        topic: str,
        overrides: Mapping[str, str | None],
        contents: Mapping[TopicPartition, bytes],
        lost: "LostCluster",
    ) -> None:
        assert contents == {tp: each for tp, each in lost.batches.items() if tp.topic == topic}, topic
        assert overrides == TIERED, topic
        starts, ends = (admin.list_offsets(dict.fromkeys(contents, when)) for when in ("earliest", "latest"))
        assert {tp: (starts[tp], ends[tp]) for tp in contents} == {tp: lost.ranges[tp] for tp in contents}, topic
        for (group, name, partition), offset in COMMITTED.items():
            if name == topic:
                found = admin.group_offsets(group).get(TopicPartition(name, partition))
                assert found is not None and found.offset == offset, (group, name, partition)

    def _content(self, tp: TopicPartition, offset: int) -> bytes:
        """Return all batches of a partition from `offset` on."""
        found = bytearray()
        while True:
            result = self.broker.fetch(tp.topic, offset, tp.partition).partitions[0]
            assert result.error is ErrorCode.NONE, (tp, offset, result.error)
            records = result.records if isinstance(result.records, Buffer) else result.records.read()
            if not records:
                return bytes(found)
            found += records
            offset = max(header.next_offset for _, header in whole_batches(records))


def _batch(offset: int, epoch: int) -> bytes:
    """Return a batch of two records; its CRC covers neither offset nor leader epoch."""
    content = bytearray(batch(b"%d" % offset * 20, b"%d" % (offset + 1) * 20))
    content[:8], content[12:16] = offset.to_bytes(8, "big"), epoch.to_bytes(4, "big")
    return bytes(content)


@define
class LostCluster:
    """Two topics that a lost cluster has left in the store.

    Partition 0 of "t" begins within a batch, and has two leader epochs; partition 2 had no closed segment.
    """

    storage: MemoryRemoteStorage = field(factory=MemoryRemoteStorage)
    batches: dict[TopicPartition, bytes] = field(factory=dict)
    """The readable batches of each partition."""
    ranges: dict[TopicPartition, tuple[int, int]] = field(factory=dict)
    """The first offset and the end of each partition."""

    def __attrs_post_init__(self) -> None:
        self._store("t", 0, log_start=3, epochs=((0, 3), (3, 6)), ends=(4, 8))
        self._store("t", 1, log_start=0, epochs=((1, 0),), ends=(2, 4))
        self._store("t", 2, log_start=0, epochs=(), ends=())
        self._store("u", 0, log_start=0, epochs=((0, 0),), ends=(2,))
        committed = tuple(
            GroupOffset(group=group, topic=topic, topic_id=TOPIC_IDS[topic].hex(), partition=partition, offset=offset)
            for (group, topic, partition), offset in COMMITTED.items()
        )
        copied = CopiedOffsets(partition=0, leader_epoch=0, copied_ms=0, offsets=committed)
        store_group_offsets(self.storage, group_offsets_key("lost", 0), copied)

    def _store(self, topic: str, partition: int, *, log_start: int, epochs: Epochs, ends: Sequence[int]) -> None:
        key, topic_id = TopicPartition(topic, partition), TOPIC_IDS[topic]
        folder, segments, base, readable = partition_folder(key, topic_id), [], 0, bytearray()
        for end in ends:
            whole = bytearray()
            for offset in range(base, end, 2):
                one = _batch(offset, max(epoch for epoch, first in epochs if first <= max(offset, log_start)))
                whole += one
                readable += one if offset + 2 > log_start else b""
            segment = RemoteSegment(
                segment_id=f"{end:032x}",
                base_offset=base,
                next_offset=end,
                size=len(whole),
                max_timestamp=1_700_000_000_000,
                epochs=epochs_between(epochs, base, end),
                leader_epoch=3,
                state=SegmentState.COPY_FINISHED,
            )
            self.storage.put(log_key(folder, segment), whole)
            self.storage.put(indexes_key(folder, segment), encode_parts({IndexType.OFFSET: b""}))
            segments.append(segment)
            base = end
        manifest = Manifest(
            topic=TieredTopic(name=topic, topic_id=topic_id, partitions=1 if topic == "u" else 3, configs=TIERED),
            partition=partition,
            leader_epoch=3,
            changes=len(ends),
            log_start=log_start,
            epochs=epochs,
            segments=tuple(segments),
        )
        self.storage.replace(manifest_key(key, topic_id), encode_manifest(manifest), None)
        self.batches[key] = bytes(readable)
        self.ranges[key] = (log_start, base)


def crashes(whole: Death, *, in_turn: bool = False) -> Iterator[Crash]:
    """Yield a crash before each step of a command, by the steps of one that lives. `in_turn`: the second partition
    comes after the first one, not beside it."""
    sent = [whole.sent.get(("t", partition), 0) for partition in (0, 1)]
    for first in range(sent[0] + 1):
        for second in range(sent[1] + 1):
            if (first, second) != tuple(sent) and not (in_turn and second and first < sent[0]):
                yield Crash(sent={("t", 0): first, ("t", 1): second})
    for number in range(whole.sent.get(("u", 0), 0)):
        yield Crash(sent={("u", 0): number})
    for number in range(whole.others):
        yield Crash(others=number)


def search(*, twice: bool) -> int:
    """Try all crashes, with `twice` also a second one in the next attempt; return their number."""
    lost, tried = LostCluster(), 0

    def attempt(crashes_before: Sequence[Crash]) -> Death:
        """Let the command die so, then live."""
        restored = Restored(lost.storage)
        try:
            for crash in crashes_before:
                assert restored.run(crash)[1] is None, "it lives"
                restored.check(lost, is_whole=False)
            death, outcome = restored.run(Crash())
            assert outcome is not None
            restored.check(lost, is_whole=True)
            if not crashes_before:
                again = restored.run(Crash())[1]
                assert again is not None
                assert all(each.was_complete for each in again), "a restore of what is there did something"
                restored.check(lost, is_whole=True)
            for tp, (_, end) in lost.ranges.items():
                result = restored.broker.produce(tp.topic, b"x", partition=tp.partition)
                assert (result.error, result.base_offset) == (ErrorCode.NONE, end), tp
            return death
        except Exception as error:
            error.add_note(f"after {', then '.join(map(str, crashes_before))}")
            raise
        finally:
            restored.close()

    for first in crashes(attempt(())):
        tried += 1
        left = attempt((first,))
        for second in crashes(left, in_turn=True) if twice else ():
            attempt((first, second))
            tried += 1
    return tried
