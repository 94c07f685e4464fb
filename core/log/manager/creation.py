"""Opening logs where it may take its time: what has to be known is gathered before, the disk works on any thread."""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from attrs import evolve

from ....ports.entropy import Entropy
from ....ports.errors import BarnabasError
from ....ports.storage import FileMissing, Folder, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...message.codec import Codecs
from ..checkpoints import (
    PARTITION_METADATA,
    SealedSegment,
    format_partition_metadata,
    parse_incomplete_until,
    parse_partition_metadata,
)
from ..config import LogConfig
from ..formats.registry import detect_format
from ..partition_log.unified_log import UnifiedLog
from ..retention import DeletionPolicy
from .data_folder import DataFolder

PARTS_MAX = 3
"""So many threads begin logs side by side; the others of `background.threads` (4) are for those who wait meanwhile."""
PART_MIN = 4
"""Fewer partitions are not worth a thread."""


@frozen(kw_only=True)
class LogOpening:
    """All that it takes to open the log of one partition, or to begin one."""

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

    def open(self) -> UnifiedLog:
        """Any thread that has the folder for itself. A log that is there stays in its format. Raises `StorageError`."""
        folder = self.home.log_dir.folder(str(self.partition))
        path = f"{self.home.log_dir.path}/{self.partition}"
        found, wanted = detect_format(path, folder.files()), self.config.message_format
        if found is not None and found != wanted:
            text = f"{path} holds segments of the format {found} and stays in it"
            self.report(f"{text}; message.format = {wanted} counts for new logs only")
        return UnifiedLog.open(
            folder,
            topic_partition=self.partition,
            config=evolve(self.config, message_format=found or wanted),
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
    """Logs to be begun, made by `LogManager.begin_create`.

    Call all its `parts` and then itself, on any threads, and pass it to `complete_create`. Failures are in `errors`.
    """

    def __init__(self, openings: Sequence[tuple[LogOpening, bytes | None]]) -> None:
        """Each with the id of its topic, None where it has none."""
        self.openings = openings
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        self.errors: dict[TopicPartition, BarnabasError] = {}
        size = max(PART_MIN, -(-len(openings) // PARTS_MAX))
        self.parts: Sequence[Callable[[], None]] = [
            partial(self._begin_logs, openings[start : start + size]) for start in range(0, len(openings), size)
        ]
        """They may run side by side, each on its own thread: file systems join syncs that come at the same time."""

    def __call__(self) -> None:
        """After the parts: the names of all of a data folder become durable together."""
        for home in {id(opening.home): opening.home for opening, _ in self.openings}.values():
            try:
                home.log_dir.root.flush()
            except StorageError as error:
                for opening, _ in self.openings:
                    if opening.home is home:
                        self._failed(opening.partition, error)

    def abandon(self) -> None:
        """It is not called any more: no log is begun."""
        for log in self.logs.values():
            log.abandon()
        self.logs.clear()

    def _begin_logs(self, openings: Sequence[tuple[LogOpening, bytes | None]]) -> None:
        for opening, topic_id in openings:
            try:
                log = opening.open()
                self.logs[opening.partition] = log
                if topic_id is not None:
                    write_partition_metadata(opening.home.log_dir.folder(str(opening.partition)), topic_id)
                    log.flushes.mark_names_durable()
            except BarnabasError as error:
                self._failed(opening.partition, error)

    def _failed(self, partition: TopicPartition, error: BarnabasError) -> None:
        self.errors.setdefault(partition, error)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon()


def write_partition_metadata(folder: Folder, topic_id: bytes, incomplete_until: int | None = None) -> None:
    """Note in the folder of a partition whose it is; durable then, as all names in it. Any thread.

    `incomplete_until`: as `format_partition_metadata` has it. Raises `StorageError`.
    """
    folder.write_small(PARTITION_METADATA, format_partition_metadata(topic_id, incomplete_until))


def read_topic_id(folder: Folder, report: Callable[[str], None]) -> bytes | None:
    """The id of the topic that the folder belongs to; None where that is not noted, or damaged, which is reported.

    Raises `StorageError`.
    """
    return read_partition_metadata(folder, report)[0]


def read_partition_metadata(folder: Folder, report: Callable[[str], None]) -> tuple[bytes | None, int | None]:
    """The id of the topic, as `read_topic_id` has it, and until which life of the broker the log is incomplete, as
    `parse_incomplete_until` has it. Raises `StorageError`."""
    try:
        content = folder.read_small(PARTITION_METADATA)
        return parse_partition_metadata(content), parse_incomplete_until(content)
    except FileMissing:
        return None, None
    except ValueError as error:
        report(f"{folder.name}/{PARTITION_METADATA} is damaged and left aside: {error}")
        return None, None
