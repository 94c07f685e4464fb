"""Leaders of one partition after each other, over a store that fails: what was copied stays readable, unchanged.

Each seed plays a partition with changing leaders. A leader appends, copies, expires and deletes; it dies at any moment,
or is deposed and does not know it; its successor has a log of its own, rebuilt from remote storage where needed. After
each step the checker looks through the manifest in the store, as the next leader would.
"""

import os
from collections.abc import Callable
from functools import partial

import pytest
from attrs import evolve
from support.long_tests import first_is_quick

from barnabas.adapters.remote_memory import MemoryRemoteStorage
from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.app.broker.state.tiering import read_aux_state, read_manifest
from barnabas.core.log.config import LogConfig
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.tiering import manifest as manifests
from barnabas.core.tiering import remote_log_manager
from barnabas.core.tiering.manifest import Manifest, TieredTopic, log_key, partition_folder
from barnabas.core.tiering.remote_log_manager import LedLog, RemoteLogManager
from barnabas.core.tiering.remote_reader import RemoteLogReader, RemoteRecords, RemoteView
from barnabas.core.traffic.steps import complete
from barnabas.ports.errors import BarnabasError
from barnabas.ports.remote_storage import ObjectMissing, RemoteStorageError
from barnabas.ports.scheduler import Outcome
from barnabas.ports.types import TopicPartition
from barnabas.testing.faulty_remote_storage import FaultyRemoteStorage
from barnabas.testing.logs import batch, open_log

KEY, TOPIC_ID = TopicPartition("t", 0), b"topic-id-of-16-b"
FOLDER = partition_folder(KEY, TOPIC_ID)
CONFIG = LogConfig(
    segment_bytes=400,
    remote_storage_enable=True,
    local_retention_bytes=0,
    retention_bytes=3000,
    retention_ms=-1,
    index_interval_bytes=100,
)
SEEDS = int(os.environ.get("TIERING_SEEDS", "40"))


class Leader:
    """A broker that leads the partition, or believes so."""

    def __init__(self, world: "World", epoch: int, log: UnifiedLog) -> None:
        self.epoch = epoch
        self.log = log
        self.manager = RemoteLogManager(
            world.store,
            world.scheduler.offload,
            scheduler=world.scheduler,
            clock=world.clock,
            entropy=world.entropy,
            report=lambda _: None,
            interval_ms=50,
        )
        self.manager.start()
        self.manager.lead(
            LedLog(
                key=KEY,
                topic_id=TOPIC_ID,
                leader_epoch=epoch,
                log=log,
                last_stable_offset=lambda: log.log_end_offset,
                describe=lambda: TieredTopic(name="t", topic_id=TOPIC_ID, partitions=1),
                awaits_producers=lambda: False,
            )
        )


class World:
    def __init__(self, seed: int) -> None:
        self.entropy = SeededEntropy(seed)
        self.clock = ManualClock()
        self.scheduler = ManualScheduler(self.clock, self.entropy)
        self.memory = MemoryRemoteStorage()
        self.store = FaultyRemoteStorage(self.memory, self.entropy, failures=0.15)
        self.written: dict[int, bytes] = {}
        """Every batch, by its offset: it has one record."""
        self.start = 0
        """The highest log start offset that a leader has had."""
        self.epoch = 0
        self.lost = ""
        self.deposed: list[Leader] = []
        self.leader = Leader(self, 0, self.new_log())

    def new_log(self) -> UnifiedLog:
        folder = MemoryLogDir(MemoryDisk(now_ms=self.clock.now_ms)).folder("t-0")
        return open_log(folder, config=CONFIG)

    # --- what happens

    def append(self) -> None:
        log = self.leader.log
        for _ in range(1 + self.entropy.below(6)):
            content = bytearray(batch(b"%06d" % log.log_end_offset * 4))
            offset = log.append(
                memoryview(content), leader_epoch=self.leader.epoch, now_ms=self.clock.now_ms()
            ).base_offset
            self.written[offset] = bytes(content)
        log.flushes.now()

    def retain(self) -> None:
        for each in (self.leader, *self.deposed):
            for segment in complete(each.log.retain(self.clock.now_ms(), each.log.log_end_offset)):
                segment.delete()

    def delete_records(self) -> None:
        log = self.leader.log
        log.advance_log_start(min(log.log_start_offset + self.entropy.below(8), log.log_end_offset))

    def wait(self) -> None:
        self.scheduler.advance(self.entropy.below(120))

    def elect(self) -> None:
        """Another broker becomes the leader, with a log of its own; the earlier one dies, or has not heard of it."""
        before = self.leader
        log = self.new_log()
        self.follow(before.log, log)  # raises if the follower cannot get into the ISR for now
        if self.entropy.below(2):
            self.deposed.append(before)
        else:
            before.manager.close()
        self.epoch += 1
        self.leader = Leader(self, self.epoch, log)

    def restart(self) -> None:
        """The leader dies, and leads again with the log that it has."""
        self.leader.manager.close()
        self.epoch += 1
        self.leader = Leader(self, self.epoch, self.leader.log)

    def follow(self, source: UnifiedLog, log: UnifiedLog) -> None:
        """Copy a leader's log as a follower does; where it begins in remote storage only, rebuild from that."""
        local, start = source.local_log_start_offset, source.log_start_offset
        if start < local:
            aux = read_aux_state(self.memory, KEY, TOPIC_ID, local)
            if aux is None:
                present = self.present()
                assert present is not None and present.log_start >= local, f"the store lacks what is below {local}"
                raise RemoteStorageError("the leader does not know yet that these records have expired")
            log.restart_at(aux.offset, log_start=aux.log_start, epochs=aux.epochs, snapshot=aux.snapshot, now_ms=0)
            log.advance_log_start(min(start, log.log_end_offset))
        elif local > 0:
            log.truncate_fully_and_start_at(local)
        while log.log_end_offset < source.log_end_offset:
            found = source.read(log.log_end_offset, max_bytes=300, limit=source.log_end_offset).records
            content = found if isinstance(found, bytes) else found.read()
            assert log.append_replicated(memoryview(content), now_ms=self.clock.now_ms()).size
        log.flushes.now()
        log.advance_log_start(min(start, log.log_end_offset))

    # --- what must hold

    def check(self) -> None:
        log = self.leader.log
        self.start = max(self.start, log.log_start_offset)
        present = self.present()
        for offset in range(self.start, log.local_log_start_offset):
            assert present is not None
            self.check_readable(present, offset)
        for offset in range(log.local_log_start_offset, log.log_end_offset, 3):
            assert self.local(log, offset) == self.written[offset]
        view = self.leader.manager.view(KEY)
        if view is not None:
            for segment in view.manifest.readable:
                self.check_objects(segment)

    def present(self) -> Manifest | None:
        try:
            return read_manifest(self.memory, FOLDER)
        except ObjectMissing:
            return None

    def check_readable(self, present: Manifest, offset: int) -> None:
        segment = present.find(offset)
        if segment is None and offset < present.log_start:
            return  # it expires, and the leader does not know yet that the store has it
        assert segment is not None, f"offset {offset} is nowhere"
        self.check_objects(segment)

    def check_objects(self, segment: manifests.RemoteSegment) -> None:
        content = self.memory.read(log_key(FOLDER, segment)).content
        expected = b"".join(self.written[offset] for offset in range(segment.base_offset, segment.next_offset))
        assert content == expected, f"{segment} is not what was written"

    def local(self, log: UnifiedLog, offset: int) -> bytes:
        found = log.read(offset, max_bytes=1, limit=offset + 1).records
        return found if isinstance(found, bytes) else found.read()

    def check_read_through(self) -> None:
        """Read everything from the log start on, as a consumer does; at the end the store works again."""
        self.store.failures = 0.0
        self.scheduler.advance(2000)
        self.store.settle()
        self.scheduler.advance(2000)
        log = self.leader.log
        reader = RemoteLogReader(self.store, self.scheduler.offload, NO_CODECS, pending_max=10, index_bytes_max=1000)
        offset: int = log.log_start_offset
        assert offset >= self.start or not self.written
        while offset < log.log_end_offset:
            if offset < log.local_log_start_offset:
                content = self.remote(reader, offset)
            else:
                content = self.local(log, offset)
            assert content[: len(self.written[offset])] == self.written[offset]
            offset += 1
        view = self.leader.manager.view(KEY)
        assert view is not None, "the leader never got the manifest"
        named = {log_key(FOLDER, each) for each in view.manifest.segments}
        stray = [each.key for each in self.memory.list_objects(FOLDER) if each.key.endswith(".log")]
        assert named <= set(stray)

    def remote(self, reader: RemoteLogReader, offset: int) -> bytes:
        view = self.leader.manager.view(KEY)
        assert view is not None
        came: list[Outcome[RemoteRecords | None]] = []
        reader.read(
            RemoteView(folder=FOLDER, manifest=view.manifest), offset, max_bytes=1, committed=True, done=came.append
        )
        self.scheduler.advance(200)
        found = came[0].get()
        assert found is not None, f"remote storage lacks {offset}"
        records = found.records
        return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else records.read()


def play(seed: int, steps: int = 60) -> World:
    world = World(seed)
    acts: list[Callable[[], None]] = [
        *[world.append] * 5,
        *[world.wait] * 6,
        *[world.retain] * 2,
        world.delete_records,
        world.elect,
        world.restart,
    ]
    for _ in range(steps):
        try:
            acts[world.entropy.below(len(acts))]()
        except RemoteStorageError:
            continue
        world.check()
    world.check_read_through()
    return world


@pytest.mark.parametrize("seed", first_is_quick(range(SEEDS), 12))
def test_leaders_over_a_failing_store_lose_nothing(seed: int) -> None:
    play(seed)


def _without_fencing(patch: pytest.MonkeyPatch) -> None:
    def replace(self: FaultyRemoteStorage, key: str, content: bytes, _version: str | None) -> str:
        self._inner.put(key, content)
        return self._inner.read(key).version

    patch.setattr(FaultyRemoteStorage, "replace", replace)


def _readable_before_it_is_stored(patch: pytest.MonkeyPatch) -> None:
    def start(manifest: Manifest, segment: manifests.RemoteSegment) -> Manifest:
        begun = manifests.start_copy(manifest, segment)
        return manifests.finish_copy(begun, segment.segment_id, begun.epochs)

    patch.setattr(remote_log_manager, "start_copy", start)


def _deleted_too_early(patch: pytest.MonkeyPatch) -> None:
    inner = RemoteLogManager._expire

    def expire(self: RemoteLogManager, leading: object) -> object:
        manifest = leading.mine  # type: ignore[attr-defined]
        if sum(each.size for each in manifest.readable) > CONFIG.retention_bytes // 2:
            yield partial(self._delete, FOLDER, manifest.readable[0])
        yield from inner(self, leading)  # type: ignore[arg-type]

    patch.setattr(RemoteLogManager, "_expire", expire)


def _claim_believes_an_unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    def given_up(segment: manifests.RemoteSegment) -> manifests.RemoteSegment:
        started = segment.state is manifests.SegmentState.COPY_STARTED
        return evolve(segment, state=manifests.SegmentState.COPY_FINISHED) if started else segment

    patch.setattr(manifests, "_given_up", given_up)


def _lineage_of_the_log_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(remote_log_manager, "merged_lineage", lambda _, own: tuple(own[-1:]))


def _local_deletion_of_what_is_not_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Manifest, "covered_to", lambda self, offset: offset + 20)


MUTATIONS = [
    _without_fencing,
    _readable_before_it_is_stored,
    _deleted_too_early,
    _claim_believes_an_unfinished_copy,
    _lineage_of_the_log_alone,
    _local_deletion_of_what_is_not_copied,
]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__.strip("_"))
def test_mutation_is_found(mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    mutation(monkeypatch)
    for seed in range(200):
        try:
            play(seed)
        except (AssertionError, BarnabasError, ValueError):
            return
    pytest.fail("no seed has found it")
