"""A data folder of Apache Kafka, as it lies on the disk. Nothing here writes to it."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import field

from ...core.kraft.image import KraftImage, MetadataReplay
from ...core.log.batch_scan import BadBatch, scan_batches
from ...core.log.checkpoints import CLEAN_SHUTDOWN, CLEANED, HIGH_WATERMARK, LOG_START, RECOVERY_POINT, read_offsets
from ...core.log.manager.meta_properties import META_PROPERTIES, parse_properties
from ...core.log.manager.survey import PartitionOnDisk, find_partitions
from ...core.log.names import LOG_SUFFIX, segment_file
from ...core.message.codec import Codecs
from ...ports.errors import ConfigError
from ...ports.storage import LogDir
from ...ports.types import Position, TopicPartition
from ...ports.values import frozen
from ..compose.log_files import LogPlace, opened_place

METADATA_TOPIC = "__cluster_metadata"
METADATA_FOLDER = f"{METADATA_TOPIC}-0"
_SNAPSHOT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT = re.compile(r"(\d{20})\.log")
NEWEST_MAGIC = 2
_SIZE_END, _MAGIC_END = 12, 17
"""The size of the part of an entry's header that ends with its magic byte, which is in the same place in all versions
of the format since 0.8."""


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

    def oldest_magic(self) -> int:
        """Return the smallest magic byte with which one of its segments begins, or of the newest one; 2 without any
        record."""
        segments = self.segments()
        begins = min((_first_magic(path) for _, path in segments), default=2)
        return min(begins, _least_magic(segments[-1][1])) if segments else begins

    def log_end(self) -> int:
        """Return the offset after the last intact batch of its newest segment. Raises `StorageError`."""
        segments = self.segments()
        end = segments[-1][0] if segments else 0
        file = self.source.log_dir.folder(str(self.partition)).open(segment_file(end, LOG_SUFFIX), create=False)
        try:
            for _, header in scan_batches(file, Position(0), Position(file.size), check_crc=True):
                end = header.next_offset
        except BadBatch:
            pass  # the log ends here
        finally:
            file.close()
        return end


def _first_magic(path: Path) -> int:
    with path.open("rb") as file:
        head = file.read(_MAGIC_END)
    return head[-1] if len(head) == _MAGIC_END and any(head) else 2


def _least_magic(path: Path) -> int:
    """Return the smallest magic byte of all entries; the rest after a damaged one does not count."""
    least = NEWEST_MAGIC
    with path.open("rb") as file:
        while len(head := file.read(_MAGIC_END)) == _MAGIC_END:
            size = int.from_bytes(head[8:_SIZE_END], "big", signed=True)
            if size < _MAGIC_END - _SIZE_END or not 0 <= head[-1] <= NEWEST_MAGIC:
                break
            least = min(least, head[-1])
            file.seek(size - (_MAGIC_END - _SIZE_END), os.SEEK_CUR)
    return least


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
                yield Replica(source=self, found=found, epoch=found.latest_epoch(report))


@contextmanager
def opened_source(path: Path, report: Callable[[str], None]) -> Iterator[KafkaFolder]:
    """Yield a folder of a stopped broker, read only. Raises `ConfigError`, `StorageError`."""
    if not path.is_dir():
        raise ConfigError(f"{path} is no folder: name a folder of Kafka's log.dirs")
    place = LogPlace(path=path.absolute())
    if place.in_use:
        raise ConfigError(
            f"{path} is in use by a broker: stop it first. A cluster that must not stop is moved by "
            "'barnabas mirror --identical'"
        )
    if place.coordination_file is not None:
        raise ConfigError(f"{path} is a data folder of Barnabas already: 'barnabas serve --data {path}' starts it")
    with opened_place(place, to_write=False) as log_dir:
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
