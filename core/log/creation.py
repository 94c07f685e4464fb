"""Opening logs where it may take its time: what has to be known is gathered before, the disk works on any thread."""

from collections.abc import Callable, Collection, Sequence

from attrs import evolve

from ...ports.entropy import Entropy
from ...ports.errors import BarnabasError
from ...ports.storage import FileMissing, Folder, StorageError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from ..message.codec import Codecs
from .checkpoints import PARTITION_METADATA, Sealed, format_partition_metadata, parse_partition_metadata
from .config import LogConfig
from .data_folder import DataFolder
from .formats import format_of_files
from .log import Log
from .retention import DeletionPolicy


@frozen(kw_only=True)
class Opening:
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
    sealed: Collection[Sealed]
    may_end_early: bool = False

    def open(self) -> Log:
        """Any thread that has the folder for itself. A log that is there stays in its format. Raises `StorageError`."""
        folder = self.home.log_dir.folder(str(self.partition))
        path = f"{self.home.log_dir.path}/{self.partition}"
        found, wanted = format_of_files(path, folder.files()), self.config.message_format
        if found is not None and found != wanted:
            text = f"{path} holds segments of the format {found} and stays in it"
            self.report(f"{text}; message.format = {wanted} counts for new logs only")
        return Log.open(
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


class Creation:
    """Logs to be begun, made by `LogManager.begin_create`. Call it on any thread, then give it to its `end_create`."""

    def __init__(self, openings: Sequence[tuple[Opening, bytes | None]]) -> None:
        """Each with the id of its topic, None where it has none."""
        self.openings = openings
        self.logs: dict[TopicPartition, Log] = {}
        self.errors: dict[TopicPartition, BarnabasError] = {}

    def __call__(self) -> None:
        """Do it: the names of all of a data folder become durable together. What fails is in `errors`."""
        for opening, topic_id in self.openings:
            try:
                log = opening.open()
                self.logs[opening.partition] = log
                if topic_id is not None:
                    label(opening.home.log_dir.folder(str(opening.partition)), topic_id)
                    log.flushes.names_are_durable()
            except BarnabasError as error:
                self._failed(opening.partition, error)
        for home in {id(opening.home): opening.home for opening, _ in self.openings}.values():
            try:
                home.log_dir.root.flush()
            except StorageError as error:
                for opening, _ in self.openings:
                    if opening.home is home:
                        self._failed(opening.partition, error)

    def _failed(self, partition: TopicPartition, error: BarnabasError) -> None:
        self.errors.setdefault(partition, error)
        log = self.logs.pop(partition, None)
        if log is not None:
            log.abandon()


def label(folder: Folder, topic_id: bytes) -> None:
    """Note in the folder of a partition whose it is; durable then, as all names in it. Any thread.

    Raises `StorageError`.
    """
    folder.write_small(PARTITION_METADATA, format_partition_metadata(topic_id))


def read_label(folder: Folder, report: Callable[[str], None]) -> bytes | None:
    """The id of the topic that the folder belongs to; None where that is not noted, or damaged, which is reported.

    Raises `StorageError`.
    """
    try:
        return parse_partition_metadata(folder.read_small(PARTITION_METADATA))
    except FileMissing:
        return None
    except ValueError as error:
        report(f"{folder.name}/{PARTITION_METADATA} is damaged and left aside: {error}")
        return None
