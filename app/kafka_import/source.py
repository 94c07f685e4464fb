"""A data folder of Apache Kafka, as it lies on the disk. Nothing here writes to it."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import field

from ...core.kraft.image import KraftImage, MetadataReplay
from ...core.log.batch_scan import BadBatch, scan_batches
from ...core.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LEADER_EPOCHS,
    LOG_START,
    RECOVERY_POINT,
    read_epochs,
    read_offsets,
)
from ...core.log.manager.meta_properties import META_PROPERTIES, parse_properties
from ...core.log.manager.survey import PartitionOnDisk, find_partitions
from ...core.log.names import LOG_SUFFIX, segment_file
from ...core.message.batch_header import MAGIC
from ...core.message.codec import Codecs
from ...core.message.legacy_records import HEAD_SIZE, entry_size, is_legacy, read_entry
from ...ports.errors import ApiError, ConfigError
from ...ports.storage import LogDir
from ...ports.types import Position, TopicPartition
from ...ports.values import frozen
from ..compose.log_files import LogDirSelection, open_selection

METADATA_TOPIC = "__cluster_metadata"
METADATA_FOLDER = f"{METADATA_TOPIC}-0"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")


@frozen(kw_only=True)
class Replica:
    """The folder of a partition in a data folder of Kafka."""

    source: "KafkaFolder" = field(repr=False)
    found: PartitionOnDisk
    epoch: int
    """The newest leader epoch of its checkpoint; -1 without one."""

    @property
    def partition(self) -> TopicPartition:
        return self.found.partition

    @property
    def path(self) -> Path:
        return self.source.path / str(self.partition)

    def segments(self) -> list[tuple[int, Path]]:
        """Return the base offsets and the paths of its segments, in order."""
        named = ((_SEGMENT.fullmatch(each.name), each) for each in self.path.iterdir())
        return sorted((int(name[1]), path) for name, path in named if name is not None)

    def legacy_segments(self) -> Collection[int]:
        """Return the base offsets of the segments with messages of magic 0 or 1.

        Segments that begin with a batch are read further only if they are the newest, or if the next one begins with
        such messages: the format of a topic may have been lowered.
        """
        segments = self.segments()
        begins = [_begins_with_legacy(path) for _, path in segments]
        after = [*begins[1:], True]
        return frozenset(
            base
            for (base, path), is_old, is_next_old in zip(segments, begins, after, strict=False)
            if is_old or (is_next_old and _has_legacy(path))
        )

    def log_end(self) -> int:
        """Return the offset after the last intact entry of its newest segment. Raises `StorageError`."""
        segments = self.segments()
        end = segments[-1][0] if segments else 0
        file = self.source.log_dir.folder(str(self.partition)).open(segment_file(end, LOG_SUFFIX), create=False)
        position = Position(0)
        try:
            while position < file.size:
                try:
                    for _, header in scan_batches(file, position, Position(file.size), check_crc=True):
                        end = header.next_offset
                    break
                except BadBatch as bad:
                    head = file.read(bad.position, HEAD_SIZE)
                    if not is_legacy(head) or entry_size(head) > file.size - bad.position:
                        break  # the log ends here
                    entry = read_entry(memoryview(file.read(bad.position, entry_size(head))))
                    end, position = entry.offset + 1, Position(bad.position + entry.size)
        except ApiError:
            pass  # an entry is damaged: the log ends before it
        finally:
            file.close()
        return end


def _begins_with_legacy(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(HEAD_SIZE)
    return any(head) and is_legacy(head)


def _has_legacy(path: Path) -> bool:
    """Return True if there is such a message; the rest after a damaged entry does not count."""
    with path.open("rb") as file:
        while len(head := file.read(HEAD_SIZE)) == HEAD_SIZE:
            if is_legacy(head):
                return any(head)
            if head[-1] != MAGIC or entry_size(head) < HEAD_SIZE:
                break
            file.seek(entry_size(head) - HEAD_SIZE, os.SEEK_CUR)
    return False


@frozen(kw_only=True, eq=False)
class KafkaFolder:
    """One of Kafka's data folders with its checkpoints and partitions."""

    path: Path
    log_dir: LogDir
    cluster_id: str | None
    broker_id: int | None
    was_clean: bool
    """True after an orderly stop."""
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    cleaned_to: Mapping[TopicPartition, int]
    partitions: Sequence[PartitionOnDisk]

    @property
    def has_metadata(self) -> bool:
        """True if the folder has the metadata log of KRaft."""
        return (self.path / METADATA_FOLDER).is_dir()

    def replicas(self, report: Callable[[str], None]) -> Iterator[Replica]:
        """Yield its partitions, without those of the metadata log. Raises `StorageError`."""
        for found in self.partitions:
            if found.partition.topic != METADATA_TOPIC:
                epochs = read_epochs_of(self.log_dir, found.partition, report)
                yield Replica(source=self, found=found, epoch=epochs[-1][0] if epochs else -1)


def read_epochs_of(log_dir: LogDir, partition: TopicPartition, report: Callable[[str], None]) -> list[tuple[int, int]]:
    """Return the leader epochs of a partition's checkpoint, which Kafka 1.1 begins empty. Raises `StorageError`."""
    folder = log_dir.folder(str(partition))
    found = folder.files().get(LEADER_EPOCHS)
    return read_epochs(folder, report) if found is not None and found.size else []


@contextmanager
def opened_source(path: Path, report: Callable[[str], None]) -> Iterator[KafkaFolder]:
    """Yield a folder of a stopped broker, read only. Raises `ConfigError`, `StorageError`."""
    if not path.is_dir():
        raise ConfigError(f"{path} is not a folder: name a folder of Kafka's log.dirs")
    selection = LogDirSelection(path=path.absolute())
    if selection.in_use:
        raise ConfigError(
            f"{path} is in use by a broker: stop it first. A cluster that must not stop is moved by "
            "'barnabas mirror --identical'"
        )
    if selection.coordination_file is not None:
        raise ConfigError(f"{path} is a data folder of Barnabas already: 'barnabas serve --data {path}' starts it")
    with open_selection(selection, to_write=False) as log_dir:
        properties = _properties(path)
        partitions = tuple(find_partitions(log_dir, report))
        if not properties and not partitions:
            raise ConfigError(f"{path} has no {META_PROPERTIES} and no partition: name a folder of Kafka's log.dirs")
        number = properties.get("node.id", properties.get("broker.id"))
        root = log_dir.root
        yield KafkaFolder(
            path=path.absolute(),
            log_dir=log_dir,
            cluster_id=properties.get("cluster.id"),
            broker_id=int(number) if number is not None and number.lstrip("-").isdecimal() else None,
            was_clean=CLEAN_SHUTDOWN in root.files(),
            recovery_points=read_offsets(root, RECOVERY_POINT, report),
            log_starts=read_offsets(root, LOG_START, report),
            high_watermarks=read_offsets(root, HIGH_WATERMARK, report),
            cleaned_to=read_offsets(root, CLEANED, report),
            partitions=partitions,
        )


def _properties(path: Path) -> Mapping[str, str]:
    try:
        return parse_properties((path / META_PROPERTIES).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path / META_PROPERTIES} cannot be read: {error}") from error


def read_metadata(folders: Collection[KafkaFolder], codecs: Codecs) -> KraftImage | None:
    """Return the state of the cluster by the longest metadata log of the folders; None without any."""
    best: tuple[tuple[int, int], KraftImage] | None = None
    for folder in folders:
        if not folder.has_metadata:
            continue
        reached, image = _replayed(folder.path / METADATA_FOLDER, codecs)
        if best is None or reached > best[0]:
            best = reached, image
    return None if best is None else best[1]


def _replayed(path: Path, codecs: Codecs) -> tuple[tuple[int, int], KraftImage]:
    """Replay the newest snapshot and the log above it; return ((epoch, next offset), state)."""
    replay = MetadataReplay(codecs)
    names = [each.name for each in path.iterdir()]
    snapshots = sorted((int(found[1]), int(found[2])) for found in map(_SNAPSHOT.fullmatch, names) if found)
    offset, epoch = snapshots[-1] if snapshots else (0, 0)
    if snapshots:
        replay.add_batches((path / f"{offset:020d}-{epoch:010d}.checkpoint").read_bytes())
    segments = sorted(name for name in names if _SEGMENT.fullmatch(name))
    reached = epoch, offset
    for number, name in enumerate(segments):
        if number + 1 < len(segments) and int(segments[number + 1][:20]) <= offset:
            continue  # all of it is in the snapshot
        end, last_epoch = replay.add_batches((path / name).read_bytes(), from_offset=offset)
        if end >= 0:
            reached = max(reached, (last_epoch, end))
    return reached, replay.image
