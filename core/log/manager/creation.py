"""Opening and creation of logs: the input is collected first, the disk is used on any thread."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import evolve

from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError
from ....ports.storage import FileInfo, FileMissing, Folder, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...message.codec import Codecs
from ..checkpoints import (
    NEW_PARTITIONS,
    PARTITION_METADATA,
    SealedSegment,
    format_partition_metadata,
    format_topic_ids,
    parse_incomplete_until,
    parse_partition_metadata,
)
from ..config import LogConfig
from ..formats.registry import detect_format
from ..names import SEGMENT_FILE, STRAY_FOLDER_SUFFIX, transient_folder_name
from ..partition_log.unified_log import UnifiedLog
from ..retention import DeletionPolicy
from .data_folder import DataFolder

PARTS_MAX = 3
"""Number of threads that create logs concurrently; the others of `background.threads` (4) stay free."""
PART_MIN = 4
"""Minimum number of partitions for a thread of its own."""


@frozen(kw_only=True)
class LogOpening:
    """The input to open or create the log of one partition."""

    home: DataFolder
    partition: TopicPartition
    config: LogConfig
    policy: DeletionPolicy
    codecs: Codecs
    entropy: Entropy | None
    report: Callable[[str], None]
    now_ms: int
    recover: bool
    recovery_point: int
    log_start: int
    sealed: Collection[SealedSegment]
    may_end_early: bool = False
    is_retried: bool = False
    """True for a log that could not be opened at the start: without a topic id its folder is the partition's."""

    def create(self, topic_id: bytes | None = None) -> tuple[UnifiedLog, Folder, bool]:
        """Create the log as `open` does, and return it with its folder, and whether the folder is new.

        A folder that has records of another topic than `topic_id` is renamed to *-stray: it was in a data folder that
        was out of use while the topic was deleted, and is not among the opened logs.
        """
        folder = self.home.log_dir.folder(str(self.partition))
        files = folder.files()
        if topic_id is not None and files and self._is_of_another(folder, files, topic_id):
            name = transient_folder_name(self.partition, topic_id.hex(), STRAY_FOLDER_SUFFIX)
            self.home.log_dir.rename_folder(str(self.partition), name)
            self.report(
                f"{self.home.log_dir.path}/{self.partition} has another topic's partition.metadata, or none, and "
                f"records; renamed to {name}, which can be deleted when nothing in it is needed"
            )
            return evolve(self, recovery_point=0, log_start=0, sealed=()).create(topic_id)
        if files or self.recovery_point or self.log_start:
            return self._open(folder, files), folder, not files
        log = UnifiedLog.create(
            folder,
            topic_partition=self.partition,
            config=self.config,
            now_ms=self.now_ms,
            codecs=self.codecs,
            deletion_policy=self.policy,
            report=self.report,
            entropy=self.entropy,
        )
        return log, folder, True

    def _is_of_another(self, folder: Folder, files: Mapping[str, FileInfo], topic_id: bytes) -> bool:
        noted = read_topic_id(folder, self.report)
        if noted is None:
            return not self.is_retried and not was_never_used(files)
        return noted != topic_id

    def open(self) -> UnifiedLog:
        """Open the log on any thread that owns the folder; an existing log retains its format. Raises
        `StorageError`."""
        folder = self.home.log_dir.folder(str(self.partition))
        return self._open(folder, folder.files())

    def _open(self, folder: Folder, files: Mapping[str, FileInfo]) -> UnifiedLog:
        path = f"{self.home.log_dir.path}/{self.partition}"
        found, wanted = detect_format(path, files), self.config.message_format
        if found is not None and found != wanted:
            text = f"{path} holds segments of the format {found} and stays in it"
            self.report(f"{text}; message.format={wanted} applies to new logs only")
        return UnifiedLog.open(
            folder,
            topic_partition=self.partition,
            config=self.config if found in (None, wanted) else evolve(self.config, message_format=found),
            now_ms=self.now_ms,
            recover=self.recover,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start,
            sealed=self.sealed,
            may_end_early=self.may_end_early,
            codecs=self.codecs,
            deletion_policy=self.policy,
            report=self.report,
            entropy=self.entropy,
        )


class LogCreation:
    """Creation of logs, made by `LogManager.begin_create`.

    Call all its `parts` and then itself, on any threads, and pass it to `complete_create`. Failures are in `errors`.

    Only the last call waits for the disk: it makes durable the names of all new folders together with their topic ids,
    which one file per data folder holds until each partition.metadata is durable (`FolderOwnership.note_created_logs`).
    """

    def __init__(self, openings: Sequence[tuple[LogOpening, bytes | None]]) -> None:
        """`openings` with their topic ids, None for a topic without one."""
        self.openings = openings
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.errors: dict[TopicPartition, BarnabasError] = {}
        self._new_folders: dict[TopicPartition, LogOpening] = {}
        """The creations that have made a folder, which a failure removes again."""
        homes = list({id(opening.home): opening.home for opening, _ in openings}.values())
        for home in homes:
            home.new_topic_ids.update(self._ids_in(home))
        self._topic_ids = [(home, dict(home.new_topic_ids)) for home in homes]
        size = max(PART_MIN, -(-len(openings) // PARTS_MAX))
        self.parts: Sequence[Callable[[], None]] = [
            partial(self._begin_logs, openings[start : start + size]) for start in range(0, len(openings), size)
        ]
        """They may run concurrently, each on its own thread."""

    def _ids_in(self, home: DataFolder) -> dict[TopicPartition, bytes]:
        return {opening.partition: each for opening, each in self.openings if opening.home is home and each is not None}

    def __call__(self) -> None:
        """Call after the parts: make the names and the topic ids of all new logs durable."""
        for home, topic_ids in self._topic_ids:
            try:
                if topic_ids:
                    home.log_dir.root.write_small(NEW_PARTITIONS, format_topic_ids(topic_ids))
                home.log_dir.root.flush()
            except StorageError as error:
                for opening, _ in self.openings:
                    if opening.home is home:
                        self._failed(opening.partition, error)

    def abandon(self) -> None:
        """Cancel the creation before it runs: no log is created."""
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()

    def _begin_logs(self, openings: Sequence[tuple[LogOpening, bytes | None]]) -> None:
        for opening, topic_id in openings:
            try:
                log, folder, is_new = opening.create(topic_id)
                self.logs[opening.partition] = log
                if is_new:
                    self._new_folders[opening.partition] = opening
                if topic_id is not None:
                    write_unflushed_metadata(folder, topic_id)
            except BarnabasError as error:
                self._failed(opening.partition, error)

    def _failed(self, partition: TopicPartition, error: BarnabasError) -> None:
        self.errors.setdefault(partition, error)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon()
        opening = self._new_folders.pop(partition, None)
        if opening is not None:
            try:
                opening.home.log_dir.delete_folder(str(partition))
            except StorageError as left:
                opening.report(f"{opening.home.log_dir.path}/{partition} could not be removed: {left}")


def write_unflushed_metadata(folder: Folder, topic_id: bytes, incomplete_until: int | None = None) -> None:
    """Write the partition.metadata of a new folder, which a power cut may lose. Raises `StorageError`."""
    file = folder.open(PARTITION_METADATA)
    try:
        file.truncate(0)
        file.append(format_partition_metadata(topic_id, incomplete_until))
    finally:
        file.close()


def write_partition_metadata(folder: Folder, topic_id: bytes, incomplete_until: int | None = None) -> None:
    """Write the partition.metadata of a folder; it and all names in the folder are durable on return. Any thread.

    `incomplete_until`: see `format_partition_metadata`. Raises `StorageError`.
    """
    folder.write_small(PARTITION_METADATA, format_partition_metadata(topic_id, incomplete_until))


def read_topic_id(folder: Folder, report: Callable[[str], None]) -> bytes | None:
    """Return the topic id of a folder; None if partition.metadata is missing, or corrupt, which is reported.

    Raises `StorageError`.
    """
    return read_partition_metadata(folder, report)[0]


def read_partition_metadata(folder: Folder, report: Callable[[str], None]) -> tuple[bytes | None, int | None]:
    """Return (topic id of `read_topic_id`, broker epoch of `parse_incomplete_until`). Raises `StorageError`."""
    try:
        content = folder.read_small(PARTITION_METADATA)
        return parse_partition_metadata(content), parse_incomplete_until(content)
    except FileMissing:
        return None, None
    except ValueError as error:
        report(f"{folder.name}/{PARTITION_METADATA} is corrupt and is ignored: {error}")
        return None, None


def was_never_used(files: Mapping[str, FileInfo]) -> bool:
    """Return True for the files of a log that begins at offset 0 and has neither records nor a partition.metadata."""
    segments = {name: match for name in files if (match := SEGMENT_FILE.fullmatch(name)) is not None}
    is_empty = all(int(match["base"]) == 0 and files[name].size == 0 for name, match in segments.items())
    return is_empty and PARTITION_METADATA not in files
