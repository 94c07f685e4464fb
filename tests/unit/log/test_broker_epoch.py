"""broker-epoch and partition.metadata: is a log the one that the broker had in an earlier life?"""

import pytest

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.cluster.topics import LastRegistration, LifeNote
from barnabas.core.log.checkpoints import (
    HIGH_WATERMARK,
    PARTITION_METADATA,
    format_offsets,
    format_partition_metadata,
    parse_incomplete_until,
)
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.broker_epoch_file import (
    BROKER_EPOCH,
    EPOCHS_MAX,
    UNKNOWN,
    BrokerEpochs,
    format_broker_epochs,
    noted_distrusted,
    noted_registrations,
    read_broker_epochs,
    recorded_epoch,
    write_broker_epochs,
)
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.deletion import KeepAll
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import put

KEY = TopicPartition("t", 0)
TOPIC_ID = bytes(range(16))


def log_dir(content: bytes | None) -> MemoryLogDir:
    found = MemoryLogDir(MemoryDisk(now_ms=lambda: 0))
    if content is not None:
        found.root.write_small(BROKER_EPOCH, content)
    return found


def test_the_lives_of_a_folder_are_read_as_they_were_written() -> None:
    folder, lives = log_dir(None), BrokerEpochs()
    assert (lives.latest, lives.includes(3)) == (UNKNOWN, False)
    for epoch in (3, 7, 8):
        lives = lives.with_epoch(epoch)
    write_broker_epochs(folder, lives)
    assert read_broker_epochs(folder, is_new=False) == lives
    assert recorded_epoch([folder]) == 8
    assert [lives.includes(epoch) for epoch in (2, 3, 5, 7, 8, 9)] == [False, True, False, True, True, False]


def test_lives_before_the_first_known_one_may_have_been() -> None:
    of_an_older_version = read_broker_epochs(log_dir(b"0\n5\n"), is_new=False)
    assert of_an_older_version == BrokerEpochs(epochs=(5,), is_complete=False)
    assert [of_an_older_version.includes(epoch) for epoch in (0, 4, 5, 6)] == [True, True, True, False]
    assert read_broker_epochs(log_dir(None), is_new=True) == BrokerEpochs()
    assert read_broker_epochs(log_dir(None), is_new=False).includes(1), "its logs were there before the file was"


def test_only_the_latest_lives_are_listed() -> None:
    lives = BrokerEpochs()
    for epoch in range(EPOCHS_MAX + 5):
        lives = lives.with_epoch(epoch)
    folder = log_dir(None)
    write_broker_epochs(folder, lives)
    found = read_broker_epochs(folder, is_new=False)
    assert found == lives and not found.is_complete
    assert len(found.epochs) == EPOCHS_MAX and found.includes(2)


@pytest.mark.parametrize("content", [b"", b"1\n5\n", b"0\nx\n", b"0\n5\nlives:\n", b"0\n5\nlives: 4\n", b"\xff"])
def test_damaged_content_says_nothing(content: bytes) -> None:
    assert read_broker_epochs(log_dir(content), is_new=True).includes(4)
    assert recorded_epoch([log_dir(content)]) == UNKNOWN


def test_broker_epoch_file_is_read_as_written() -> None:
    partitions = frozenset({TopicPartition("a-b", 1), KEY})
    seen = LastRegistration(1, 3), LastRegistration(4, 2, ended=True)
    for distrusted in (frozenset[TopicPartition](), partitions, None):
        folder, lives = log_dir(None), BrokerEpochs(seen=seen, distrusted=distrusted).with_epoch(3)
        write_broker_epochs(folder, lives)
        assert read_broker_epochs(folder, is_new=False) == lives
        assert (noted_registrations([folder]), noted_distrusted([folder])) == (seen, distrusted)
    lines = format_broker_epochs(lives).split(b"\n")
    assert lines[:4] == [b"0", b"3", b"lives: 3", b"folders: 0"], "as an earlier version reads it"


def test_states_that_a_life_was_about_to_distrust_are_known_to_the_next_one() -> None:
    broker = Broker(2)
    logs = broker.start(3)
    logs.note_distrusted(None)
    logs.note_life(LifeNote(broker_epoch=5, seen=(LastRegistration(1, 5),)))
    assert (recorded_epoch(broker.dirs), noted_distrusted(broker.dirs)) == (5, None)
    logs.note_distrusted(frozenset({KEY}))
    assert noted_distrusted(broker.dirs) == frozenset({KEY})
    away, broker.disks = broker.disks[1], broker.disks[:1]
    broker.start(6).note_distrusted(frozenset())
    broker.disks.append(away)
    assert noted_distrusted(broker.dirs) == frozenset(), "that of a disk that was away is settled"
    broker.start(7)
    assert (noted_distrusted(broker.dirs), noted_registrations(broker.dirs)) == (frozenset(), ())


class Broker:
    """The disks of a broker, and its logs in its present life."""

    def __init__(self, disks: int = 1) -> None:
        self.disks = [MemoryDisk(now_ms=lambda: 0) for _ in range(disks)]
        self.reports: list[str] = []

    @property
    def dirs(self) -> list[MemoryLogDir]:
        for disk in self.disks:
            disk.in_use = False
        return [MemoryLogDir(disk, path=f"/data/{number}") for number, disk in enumerate(self.disks)]

    def start(self, epoch: int | None, *, works: bool = True, is_member: bool = False) -> LogManager:
        """Load, open what is missing, register (unless `epoch` is None); `works`: continue until the folder of the
        partition has its label."""
        clock = ManualClock()
        self.scheduler = ManualScheduler(clock)
        logs = LogManager(
            self.dirs,
            clock=clock,
            scheduler=self.scheduler,
            config_for=lambda _: LogConfig(),
            codecs=NO_CODECS,
            policy_for=lambda *_: KeepAll(),
            report=self.reports.append,
            entropy=SeededEntropy(1),
            topic_id_of=lambda key: TOPIC_ID if key == KEY else None,
            may_end_early=is_member,
        )
        logs.load()
        if logs.get(KEY) is None:
            logs.create(KEY, is_new=False)
        logs.start()
        if epoch is not None:
            logs.note_life(LifeNote(broker_epoch=epoch))
        if works:
            self.scheduler.run_until(lambda: bool(labels(self)))
        return logs


def _stop(broker: Broker, logs: LogManager) -> None:
    stopped: list[bool] = []
    logs.stop(lambda: stopped.append(True))
    broker.scheduler.run_until(lambda: bool(stopped))


def test_orderly_end_of_run_that_never_registered_does_not_hide_the_crash_before() -> None:
    """Otherwise the replica counts as complete in the life that crashed, and leads without messages that it lost."""
    broker = Broker()
    put(broker.start(3, is_member=True).create(KEY), b"a")
    again = broker.start(None, is_member=True)  # after a crash
    assert not again.had_clean_shutdown
    _stop(broker, again)
    assert not broker.start(None, is_member=True).had_clean_shutdown


def test_orderly_end_counts_for_the_run_that_registered_and_for_runs_after_it() -> None:
    broker = Broker()
    _stop(broker, broker.start(3, is_member=True))
    unregistered = broker.start(None, is_member=True)
    assert unregistered.had_clean_shutdown
    _stop(broker, unregistered)
    assert broker.start(None, is_member=True).had_clean_shutdown


def test_a_log_stays_the_one_of_each_life_of_its_disk() -> None:
    broker = Broker()
    put(broker.start(3).create(KEY), b"a")
    assert broker.start(5).has_complete_log(KEY, 3)
    logs = broker.start(6)
    assert [logs.has_complete_log(KEY, epoch) for epoch in (2, 3, 4, 5, 6)] == [False, True, False, True, True]


def test_a_log_on_a_new_disk_is_another_one() -> None:
    broker = Broker()
    put(broker.start(3).create(KEY), b"a")
    broker.disks = Broker().disks
    assert not broker.start(5).has_complete_log(KEY, 3)
    logs = broker.start(6)
    assert not logs.has_complete_log(KEY, 3)
    assert logs.has_complete_log(KEY, 5), "it came back into the ISR since"


def test_an_old_copy_of_a_disk_has_not_seen_what_came_later() -> None:
    broker = Broker()
    put(broker.start(3).create(KEY), b"a")
    copy = {name: bytes(content.data) for name, content in broker.disks[0].root.items()}
    broker.start(5)
    broker.disks[0].root[BROKER_EPOCH].data[:] = copy[BROKER_EPOCH]
    logs = broker.start(7)
    assert logs.has_complete_log(KEY, 3) and not logs.has_complete_log(KEY, 5)
    assert not broker.start(8).has_complete_log(KEY, 5)


@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_log_begun_in_place_of_a_missing_one_is_another_one(is_labelled: bool) -> None:
    """The folder was on a disk that is no longer there; the other disks have all broker epochs."""
    broker = Broker(3)
    put(broker.start(3).create(KEY), b"a")
    broker.disks = [disk for disk in broker.disks if str(KEY) not in disk.folders]
    assert len(broker.disks) == 2
    logs = broker.start(5, works=is_labelled)
    assert not logs.has_complete_log(KEY, 3)
    if is_labelled:
        assert labels(broker) == [format_partition_metadata(TOPIC_ID, 3)]
        assert parse_incomplete_until(labels(broker)[0]) == 3
    logs = broker.start(6)
    assert not logs.has_complete_log(KEY, 3), "nor after another start, even if it came before the label was written"
    assert logs.has_complete_log(KEY, 6)


def test_log_that_was_never_made_is_not_a_lost_one() -> None:
    """The broker was killed before it had opened the log of a new topic."""
    broker = Broker()
    broker.start(3)
    broker.disks[0].folders.pop(str(KEY))
    logs = broker.start(5)
    assert logs.has_complete_log(KEY, 3)


def test_log_that_was_never_made_in_any_of_two_data_folders_is_not_a_lost_one() -> None:
    broker = Broker(2)
    broker.start(3)
    for disk in broker.disks:
        disk.folders.pop(str(KEY), None)
    assert broker.start(5).has_complete_log(KEY, 3)


def test_log_may_have_been_lost_with_a_data_folder_that_was_replaced() -> None:
    broker = Broker(2)
    put(broker.start(3).create(KEY), b"a")
    disk = next(disk for disk in broker.disks if str(KEY) in disk.folders)
    disk.folders.clear()
    disk.root.clear()
    assert not broker.start(5).has_complete_log(KEY, 3)


def test_log_that_a_checkpoint_names_is_lost_without_its_folder() -> None:
    broker = Broker()
    logs = broker.start(3)
    put(logs.create(KEY), b"a")
    logs.folders[0].write(logs.folders[0].checkpoint_contents())
    broker.disks[0].folders.pop(str(KEY))
    assert not broker.start(5).has_complete_log(KEY, 3)


@pytest.mark.parametrize("is_labelled", [True, False])
def test_a_log_that_was_cut_below_the_high_watermark_lacks_something(is_labelled: bool) -> None:
    broker = Broker()
    log = broker.start(3).create(KEY)
    put(log, b"a")
    put(log, b"b")
    checkpoint(broker, 2)
    broker.start(5)
    del broker.disks[0].folders[str(KEY)][f"{0:020}.log"].data[-1:]
    logs = broker.start(6, works=is_labelled)
    assert [logs.has_complete_log(KEY, epoch) for epoch in (3, 5, 6)] == [False, False, True]
    if is_labelled:
        broker.scheduler.run_until(lambda: labels(broker) == [format_partition_metadata(TOPIC_ID, 5)])
        checkpoint(broker, 1)
    logs = broker.start(7)
    found = [logs.has_complete_log(KEY, epoch) for epoch in (3, 5, 6, 7)]
    assert found == [False, False, is_labelled, True], "it is noticed again where it was not written down"


def checkpoint(broker: Broker, high_watermark: int) -> None:
    broker.disks[0].in_use = False
    MemoryLogDir(broker.disks[0]).root.write_small(HIGH_WATERMARK, format_offsets({KEY: high_watermark}))


def labels(broker: Broker) -> list[bytes]:
    folders = [disk.folders[str(KEY)] for disk in broker.disks if str(KEY) in disk.folders]
    return [bytes(folder[PARTITION_METADATA].data) for folder in folders if PARTITION_METADATA in folder]
