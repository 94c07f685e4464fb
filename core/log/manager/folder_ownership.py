"""The owners of partition folders: only folders of known topics are opened, and each gets a partition.metadata."""

from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice

from ....ports.scheduler import Outcome, Scheduler
from ....ports.storage import FileMissing, Folder, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..formats.registry import CLASSIC, detect_format
from ..names import DELETE_FOLDER_SUFFIX, STRAY_FOLDER_SUFFIX, transient_folder_name
from .creation import read_partition_metadata, was_never_used, write_partition_metadata, write_unflushed_metadata
from .data_folder import DataFolder

_LABELS_AT_A_TIME = 50
METADATA_AFTER_MS = 1000.0
"""Pause after a creation, so that the work does not compete with further ones."""


@frozen(kw_only=True)
class OrphanFolder:
    """The folder of a partition that the image did not know when the broker started.

    `topic_id` is None without a readable partition.metadata.
    """

    home: DataFolder
    topic_id: bytes | None


class FolderOwnership:
    """Owner thread only. `topic_id_of` returns the topic id of a partition, None for an unknown partition.

    A folder of another topic id is renamed to *-stray. A folder of an unknown partition is an orphan: it is reported
    and left unchanged, unless it is empty as a crash during its creation leaves it. Without `topic_id_of`, and for
    classic logs without a creator, any folder is opened.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        topic_id_of: Callable[[TopicPartition], bytes | None] | None,
        report: Callable[[str], None],
        deleted_ids: Collection[bytes] = (),
    ) -> None:
        """`deleted_ids`: topics that were deleted while this broker was down."""
        self._scheduler = scheduler
        self._deleted_ids = frozenset(deleted_ids)
        self._topic_id_of = topic_id_of
        self._report = report
        self.removable: list[tuple[DataFolder, str]] = []
        """Renamed folders of deleted topics, to be removed."""
        self.orphans: dict[TopicPartition, OrphanFolder] = {}
        self.unlabelled: set[TopicPartition] = set()
        """The partitions whose folders had no readable partition.metadata at the start."""
        self._without_metadata: dict[TopicPartition, tuple[DataFolder, bytes]] = {}
        self._is_due = False
        self.incomplete_until: dict[TopicPartition, int] = {}
        """The incomplete logs, with the last broker epoch in which their replicas had the missing messages."""

    def may_open(self, home: DataFolder, partition: TopicPartition, unique: Callable[[], str]) -> bool:
        """Return True if the folder belongs to this partition. Raises `StorageError`."""
        if self._topic_id_of is None:
            return True
        folder = home.log_dir.folder(str(partition))
        known, (noted, incomplete_until) = self._topic_id_of(partition), read_partition_metadata(folder, self._report)
        is_new = partition in home.new_topic_ids and noted in (None, home.new_topic_ids[partition])
        if is_new and (noted is not None or known is None or not was_never_used(folder.files())):
            noted = home.new_topic_ids[partition]
        if noted in self._deleted_ids and noted != known:
            self._begin_removal(home, partition, unique)
            return False
        if known is None:
            files = folder.files()
            found = detect_format(f"{home.log_dir.path}/{partition}", files)
            if found not in (CLASSIC, None) and not home.is_checkpointed(partition) and was_never_used(files):
                path = f"{home.log_dir.path}/{partition}"
                self._report(f"{path} was created for a deleted topic and never used: removing it")
                self._begin_removal(home, partition, unique)
                return False
            if found not in (CLASSIC, None):
                self.orphans[partition] = OrphanFolder(home=home, topic_id=noted)
                self._report(
                    f"{home.log_dir.path}/{partition} belongs to no topic in the coordination tree; it is left "
                    "alone ('barnabas topics recover' takes it back)"
                )
            return found == CLASSIC
        if noted is None:
            self._without_metadata[partition] = home, known
            self.unlabelled.add(partition)
        elif noted != known:
            name = transient_folder_name(partition, unique(), STRAY_FOLDER_SUFFIX)
            home.log_dir.rename_folder(str(partition), name)
            home.forget(partition)
            self._report(
                f"{home.log_dir.path}/{partition} belongs to another topic of that name by its partition.metadata; "
                f"renamed to {name}"
            )
            return False
        elif is_new:
            self._without_metadata[partition] = home, known
        if incomplete_until is not None:
            self.incomplete_until[partition] = incomplete_until
        return True

    def _begin_removal(self, home: DataFolder, partition: TopicPartition, unique: Callable[[], str]) -> None:
        """Rename a folder whose files are to be removed. Raises `StorageError`."""
        name = transient_folder_name(partition, unique(), DELETE_FOLDER_SUFFIX)
        home.log_dir.rename_folder(str(partition), name)
        home.forget(partition)
        self.removable.append((home, name))

    def orphans_of(self, topic: str) -> list[str]:
        """Return the existing folders. Raises `StorageError`."""
        found = [(key, each.home) for key, each in self.orphans.items() if key.topic == topic]
        return [f"{home.log_dir.path}/{key}" for key, home in found if str(key) in home.log_dir.folders()]

    def rename_orphan(self, partition: TopicPartition, unique: str) -> tuple[DataFolder, str] | None:
        """Rename the folder of an orphan to *-stray; return its place. None if it is missing by now.

        Raises `StorageError`; the folder is an orphan still.
        """
        orphan = self.orphans.get(partition)
        if orphan is None:
            return None
        log_dir, name = orphan.home.log_dir, transient_folder_name(partition, unique, STRAY_FOLDER_SUFFIX)
        exists = str(partition) in log_dir.folders()
        if exists:
            log_dir.rename_folder(str(partition), name)
            orphan.home.forget(partition)
        del self.orphans[partition]
        return (orphan.home, name) if exists else None

    def note_empty_log(self, home: DataFolder, partition: TopicPartition) -> None:
        """Handle an empty log. Without partition.metadata an interrupted start may have created it in place of a
        missing one."""
        if partition in self.unlabelled and home.broker_epochs.epochs:
            self.incomplete_until[partition] = home.broker_epochs.latest

    def note_incomplete_log(self, home: DataFolder, partition: TopicPartition) -> None:
        """Handle a log without data that the checkpoints have: its partition.metadata will say so."""
        known = None if self._topic_id_of is None else self._topic_id_of(partition)
        if home.broker_epochs.epochs:
            self.incomplete_until[partition] = home.broker_epochs.latest
            if known is not None:
                self._without_metadata[partition] = home, known

    def note_created_log(self, home: DataFolder, partition: TopicPartition, incomplete_until: int | None) -> None:
        """Handle a new folder in place of a missing one: it gets a partition.metadata if the topic is known.
        `incomplete_until`: the last broker epoch in which it may have existed; None: the partition is new."""
        known = None if self._topic_id_of is None else self._topic_id_of(partition)
        if incomplete_until is not None:
            self.incomplete_until[partition] = incomplete_until
        if known is not None:
            self._without_metadata[partition] = home, known
            self._write_unflushed(home, partition, known)

    def write_unflushed_metadata(self) -> None:
        """Write the missing partition.metadata files now, before they are made durable in the background.

        After a kill in between, the next start would not know whose logs these are.
        """
        for partition, (home, topic_id) in self._without_metadata.items():
            self._write_unflushed(home, partition, topic_id)

    def _write_unflushed(self, home: DataFolder, partition: TopicPartition, topic_id: bytes) -> None:
        try:
            folder = home.log_dir.folder(str(partition))
            write_unflushed_metadata(folder, topic_id, self.incomplete_until.get(partition))
        except StorageError as error:  # `write_missing_metadata` tries again
            self._report(f"partition.metadata of {partition} could not be written: {error}")

    def forget(self, partition: TopicPartition) -> None:
        """Drop what is known of a closed log, so that it does not apply to another one of its name, which may be in
        another data folder."""
        self.incomplete_until.pop(partition, None)
        self.unlabelled.discard(partition)
        self._without_metadata.pop(partition, None)

    def note_created_logs(
        self, created: Iterable[tuple[DataFolder, TopicPartition]], still_wanted: Callable[[TopicPartition], bool]
    ) -> None:
        """Have the partition.metadata of new logs made durable, in a moment: until then `DataFolder.new_topic_ids` and
        its file have their topic ids."""
        for home, partition in created:
            topic_id = home.new_topic_ids.get(partition)
            if topic_id is not None:
                self._without_metadata[partition] = home, topic_id
        if self._without_metadata and not self._is_due:
            self._is_due = True

            def due() -> None:
                self._is_due = False
                self.write_missing_metadata(still_wanted)

            self._scheduler.call_later(METADATA_AFTER_MS, due)

    def write_missing_metadata(self, still_wanted: Callable[[TopicPartition], bool]) -> None:
        """Write the missing partition.metadata files in the background, some at a time."""
        some: list[tuple[DataFolder, TopicPartition, bytes, Folder, int | None]] = []
        while self._without_metadata and not some:
            for partition in list(islice(self._without_metadata, _LABELS_AT_A_TIME)):
                home, topic_id = self._without_metadata.pop(partition)
                if still_wanted(partition):
                    try:
                        folder = home.log_dir.folder(str(partition))
                    except StorageError as error:  # the next start tries again
                        self._report(f"partition.metadata of {partition} could not be written: {error}")
                        continue
                    some.append((home, partition, topic_id, folder, self.incomplete_until.get(partition)))
        if not some:
            return

        def work() -> Mapping[TopicPartition, str]:
            failures = {}
            for _, partition, topic_id, folder, incomplete_until in some:
                try:
                    write_partition_metadata(folder, topic_id, incomplete_until)
                except FileMissing:
                    continue  # deleted meanwhile
                except StorageError as error:
                    failures[partition] = f"partition.metadata of {partition} could not be written: {error}"
            return failures

        def done(outcome: Outcome[Mapping[TopicPartition, str]]) -> None:
            failures = outcome.get()
            for home, partition, topic_id, _, _ in some:
                if partition not in failures and home.new_topic_ids.get(partition) == topic_id:
                    del home.new_topic_ids[partition]
            if failures:
                self._report(f"{next(iter(failures.values()))} ({len(failures)} in total)")
                return  # the next start tries again
            self.write_missing_metadata(still_wanted)

        self._scheduler.offload(work, done)
