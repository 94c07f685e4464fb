"""New partitions whose partition.metadata is not durable yet: a file of the data folder has their topic ids."""

from collections.abc import Mapping

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import LifeNote
from barnabas.core.log.checkpoints import (
    NEW_PARTITIONS,
    PARTITION_METADATA,
    format_partition_metadata,
    format_topic_ids,
    parse_topic_ids,
)
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.folder_ownership import METADATA_AFTER_MS
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import put, read_all

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, NEXT, LAST = b"of the first one", b"of the next one.", b"of the last one."


class Harness:
    """A broker's logs on one disk; `ids` is what the cluster knows."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.others: list[MemoryDisk] = []
        self.ids: dict[TopicPartition, bytes] = {}
        self.reports: list[str] = []
        self.start()

    def start(self) -> None:
        self.scheduler = ManualScheduler(self.clock)
        self.reports.clear()
        self.manager = LogManager(
            [
                MemoryLogDir(self.disk, path="/data"),
                *(MemoryLogDir(disk, path=f"/data{number}") for number, disk in enumerate(self.others, 2)),
            ],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: LogConfig(retention_ms=-1),
            codecs=NO_CODECS,
            policy_for=lambda _config, _partition: KeepAll(),
            report=self.reports.append,
            entropy=SeededEntropy(1),
            topic_id_of=self.topic_id_of,
        )
        self.manager.load()
        self.manager.start()

    def topic_id_of(self, partition: TopicPartition) -> bytes | None:
        return self.ids.get(partition)

    def create(self, ids: Mapping[TopicPartition, bytes]) -> None:
        self.ids |= ids
        creation = self.manager.begin_create(dict(ids))
        for part in creation.parts:
            part()
        creation()
        assert not self.manager.complete_create(creation)

    def write(self, partition: TopicPartition, value: bytes) -> None:
        log = self.manager.get(partition)
        assert log is not None
        put(log, value)
        log.flushes.now()

    def crash(self) -> None:
        """Cut the power: the disk has what was made durable."""
        self.disk = self.disk.after_crash(power_cut=True)

    def stop(self) -> None:
        self.manager.close()
        for disk in (self.disk, *self.others):
            disk.in_use = False

    def metadata(self, partition: TopicPartition) -> bytes:
        return bytes(self.disk.folders[str(partition)][PARTITION_METADATA].data)

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        log = self.manager.get(partition)
        assert log is not None
        return [value for _, value in read_all(log)]

    def noted(self) -> dict[TopicPartition, bytes]:
        return parse_topic_ids(bytes(self.disk.root[NEW_PARTITIONS].data)) if NEW_PARTITIONS in self.disk.root else {}


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_topic_ids_of_new_partitions_survive_a_power_cut_before_their_own_files_do(harness: Harness) -> None:
    harness.manager.note_life(LifeNote(broker_epoch=7))
    harness.create({ONE: FIRST, TWO: FIRST})
    harness.write(ONE, b"kept")
    harness.crash()
    assert harness.metadata(ONE) != format_partition_metadata(FIRST), "this test shows nothing"
    harness.start()
    assert harness.values(ONE) == [b"kept"]
    harness.scheduler.run_pending()
    assert harness.metadata(ONE) == harness.metadata(TWO) == format_partition_metadata(FIRST)
    assert harness.manager.has_complete_log(TWO, 7), "a new empty log replaces no lost one"


def test_partition_metadata_is_durable_in_a_moment(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.create({TWO: FIRST})
    assert harness.noted() == {ONE: FIRST, TWO: FIRST}
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.crash()
    assert harness.metadata(ONE) == harness.metadata(TWO) == format_partition_metadata(FIRST)


def test_only_partitions_that_are_not_labelled_durably_stay_in_the_file(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.create({TWO: FIRST})
    assert harness.noted() == {TWO: FIRST}
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.stop()
    assert NEW_PARTITIONS not in harness.disk.root


def test_partitions_not_labelled_durably_at_a_clean_shutdown_are_labelled_after_the_start(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.write(ONE, b"kept")
    harness.stop()
    assert harness.noted() == {ONE: FIRST}
    harness.disk.folders["t-0"][PARTITION_METADATA].data[:] = b""
    harness.start()
    harness.scheduler.run_pending()
    assert harness.values(ONE) == [b"kept"]
    assert harness.metadata(ONE) == format_partition_metadata(FIRST)


def test_records_of_an_earlier_topic_are_not_served_for_the_next_one_of_its_name(harness: Harness) -> None:
    """The topic was deleted and created again while the broker was down."""
    harness.create({ONE: FIRST})
    harness.write(ONE, b"of the first")
    harness.crash()
    harness.ids[ONE] = NEXT
    harness.start()
    assert harness.manager.get(ONE) is None
    assert any("belongs to another topic of that name" in line for line in harness.reports)
    assert [name[-6:] for name in harness.disk.folders] == ["-stray"]


def test_topic_id_of_a_deleted_topic_does_not_count_for_the_next_one_of_its_name(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.manager.delete(ONE)
    harness.create({ONE: NEXT})
    assert harness.noted() == {ONE: NEXT}
    harness.write(ONE, b"of the next")
    harness.crash()
    harness.start()
    assert harness.values(ONE) == [b"of the next"]


def test_creation_that_a_power_cut_interrupts_is_repeated(harness: Harness) -> None:
    """The folder is there, and the file has the id of the topic before."""
    harness.create({ONE: FIRST})
    harness.manager.delete(ONE)
    harness.ids[ONE] = NEXT
    creation = harness.manager.begin_create({ONE: NEXT})
    for part in creation.parts:
        part()
    harness.crash()
    harness.disk.folders["t-0"].pop(PARTITION_METADATA, None)
    harness.start()
    harness.scheduler.run_pending()
    assert harness.values(ONE) == []
    assert harness.metadata(ONE) == format_partition_metadata(NEXT)
    assert not [name for name in harness.disk.folders if name.endswith("-stray")]


def test_old_entry_of_the_file_does_not_replace_a_readable_topic_id(harness: Harness) -> None:
    harness.create({ONE: NEXT})
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.stop()
    MemoryLogDir(harness.disk).root.write_small(NEW_PARTITIONS, format_topic_ids({ONE: FIRST, TWO: FIRST}))
    harness.disk.in_use = False
    harness.start()
    harness.scheduler.run_pending()
    assert harness.manager.get(ONE) is not None
    assert harness.metadata(ONE) == format_partition_metadata(NEXT)
    assert "t-1" not in harness.disk.folders


def test_folder_of_an_unknown_topic_keeps_its_topic_id(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.write(ONE, b"kept")
    harness.crash()
    harness.ids.clear()
    harness.start()
    assert harness.manager.orphans[ONE].topic_id == FIRST


def test_damaged_topic_id_file_is_reported_and_its_partitions_are_opened(harness: Harness) -> None:
    harness.create({ONE: FIRST})
    harness.crash()
    harness.disk.root[NEW_PARTITIONS].data[:] = b"0\n1\nt 0 c2hvcnQ="
    harness.start()
    assert any(NEW_PARTITIONS in line and "corrupt" in line for line in harness.reports)
    assert harness.manager.get(ONE) is not None


def test_creation_fails_where_the_topic_ids_cannot_be_made_durable(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    creation = harness.manager.begin_create({ONE: FIRST})
    for part in creation.parts:
        part()

    def fail(*_: object) -> None:
        raise StorageError("no")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.adapters.storage_memory.MemoryFolder.write_small", fail)
        creation()
    assert set(harness.manager.complete_create(creation)) == {ONE}
    assert "t-0" not in harness.disk.folders
    harness.create({TWO: FIRST})
    assert harness.noted() == {TWO: FIRST}


def _has_folders_of_two_topics(harness: Harness) -> None:
    """The first topic is on a disk that was out of use while it was deleted, and while the next one was created."""
    harness.create({ONE: FIRST})
    harness.write(ONE, b"of the first")
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.stop()
    out_of_use = harness.disk
    harness.disk = MemoryDisk(now_ms=harness.clock.now_ms)
    harness.start()
    harness.create({ONE: NEXT})
    harness.write(ONE, b"of the next")
    harness.create({TWO: NEXT})
    harness.stop()
    harness.others = [out_of_use]
    harness.start()
    assert harness.values(ONE) == [b"of the next"]


def test_new_log_does_not_take_over_the_folder_of_a_deleted_topic_in_another_data_folder(harness: Harness) -> None:
    _has_folders_of_two_topics(harness)
    harness.manager.delete(ONE)
    harness.create({ONE: LAST})
    assert harness.manager.dir_of(ONE).path == "/data2", "this test shows nothing"
    assert harness.values(ONE) == []
    assert sorted(name[-6:] for name in harness.others[0].folders) == ["-stray", "t-0"]
    assert any("t-0 has another topic's partition.metadata" in line for line in harness.reports)


def test_new_log_does_not_take_over_records_without_a_readable_topic_id(harness: Harness) -> None:
    _has_folders_of_two_topics(harness)
    del harness.others[0].folders["t-0"][PARTITION_METADATA]
    harness.manager.delete(ONE)
    harness.create({ONE: LAST})
    assert harness.values(ONE) == []


def test_empty_folder_that_an_interrupted_creation_left_is_used(harness: Harness) -> None:
    harness.disk.folders["t-0"] = {}
    harness.create({ONE: FIRST})
    assert harness.values(ONE) == []
    assert list(harness.disk.folders) == ["t-0"]


@pytest.mark.parametrize("known", [FIRST, NEXT])
def test_folder_that_could_not_be_read_at_the_start_is_opened_only_for_its_own_topic(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, known: bytes
) -> None:
    harness.create({ONE: FIRST})
    harness.write(ONE, b"of the first")
    harness.scheduler.advance(METADATA_AFTER_MS)
    harness.stop()
    harness.ids[ONE] = known

    def fail(_log_dir: MemoryLogDir, name: str) -> None:
        raise StorageError(f"{name} does not answer")

    with monkeypatch.context() as failing:
        failing.setattr(MemoryLogDir, "folder", fail)
        harness.start()
    assert harness.manager.get(ONE) is None
    harness.create({ONE: known})
    assert harness.values(ONE) == ([b"of the first"] if known == FIRST else [])
