"""Carries out an import: copies the partitions, checks each log, then writes the coordination tree.

The tree comes last. Brokers refuse folders with the mark of an import; by it the same command continues (`resuming`).

Files are copied out of Kafka's data folders, which do not change. Segments with messages from before Kafka 0.11 are
converted: the copy has record batches with the same offsets.
"""

import errno
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from attrs import define, evolve, field

from ...core.cluster import entity_store, layout, topic_store
from ...core.cluster.brokers import children, cluster_id, random_uuid, set_broker_configs
from ...core.cluster.producer_ids import BLOCK_SIZE, LEFT_OUT, skip_to
from ...core.cluster.topics import PartitionState, Topic, first_state
from ...core.log.batch_scan import BadBatch, scan_batches
from ...core.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LEADER_EPOCHS,
    LOG_START,
    PARTITION_METADATA,
    RECOVERY_POINT,
    format_offsets,
    format_partition_metadata,
)
from ...core.log.leader_epoch_cache import LeaderEpochCache
from ...core.log.manager.broker_epoch_file import BrokerEpochs, write_broker_epochs
from ...core.log.manager.meta_properties import IMPORT_INCOMPLETE, MetaProperties, write_meta_properties
from ...core.log.names import (
    ABORTED_SUFFIX,
    CLASSIC_SEGMENT_FILE,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_FILE,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ...core.log.partition_log.unified_log import UnifiedLog
from ...core.log.segment.segment import Segment, SegmentFiles
from ...core.message.codec import Codecs
from ...core.message.legacy_records import GROUP_BYTES, HEAD_SIZE, convert_records, entry_size
from ...core.tree.service_url import redact_url
from ...plugins.host import PluginHost
from ...ports.clock import Clock
from ...ports.coordination import Coordination
from ...ports.entropy import Entropy
from ...ports.errors import ApiError, BarnabasError, ConfigError
from ...ports.storage import Folder, LogDir
from ...ports.types import Offset, Position, TopicPartition
from ..compose.broker import plugin_host, system_clock
from ..config import BrokerConfig
from ..config.topic_config import log_config_for
from .plan import ImportPlan, PlannedTopic
from .resuming import Claim, Command, ImportMark, WholePartition, prepare_target, release_claim, sync_folder
from .source import Replica, read_epochs_of

_PIECE = 1 << 26
_CONVERTED_PIECE = 1 << 22
_INDEXES = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, ABORTED_SUFFIX)
_NO_RANGE_COPY = {errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP}


def partition_bytes(source: Path) -> int:
    """Return the size of the files that `copy_partition` takes."""
    return sum(found.st_size for _, found in wanted_files(source))


def wanted_files(source: Path) -> list[tuple[Path, os.stat_result]]:
    """Return the files that `copy_partition` takes, with the size and time by which a changed one is noticed."""
    return [(path, path.stat()) for path, _ in _wanted(source, 0)]


def copy_partition(
    source: Path,
    target: Path,
    *,
    recovery_point: int,
    link: bool,
    legacy: Collection[int],
    convert: Callable[[Path, Path], None],
    copied: Callable[[int], None],
) -> None:
    """Copy the files of a partition into a new folder, and make them durable.

    With `link`, segments that end below the recovery point become hard links, where the volume allows it: neither
    Kafka nor Barnabas writes to them. Their indexes are copied; those of the other segments are rebuilt when the log is
    opened. Segments with the base offsets `legacy` go through `convert`, and their indexes are left out. `copied` is
    called with each number of bytes that were copied. Raises `BarnabasError`.
    """
    try:
        target.mkdir()
        for path, is_sealed in _wanted(source, recovery_point):
            size = path.stat().st_size
            found = SEGMENT_FILE.fullmatch(path.name)
            is_legacy = found is not None and (int(found["base"]) in legacy or (found["state"] and legacy))
            if found is not None and is_legacy and found["kind"] == LOG_SUFFIX:
                convert(path, target / path.name)
            elif found is not None and is_legacy and found["kind"] in _INDEXES:
                pass
            elif not (link and is_sealed and path.suffix == LOG_SUFFIX and _linked(path, target / path.name)):
                _copy(path, target / path.name)
            copied(size)
        sync_folder(target)
    except OSError as error:
        raise BarnabasError(f"{source} cannot be copied to {target}: {error}") from error


def copy_folder(source: Path, target: Path, *, copied: Callable[[int], None]) -> None:
    """Copy all files of a finished partition for another replica, and make them durable. Raises `BarnabasError`."""
    try:
        target.mkdir()
        for path in sorted(source.iterdir()):
            _copy(path, target / path.name)
            copied(path.stat().st_size)
        sync_folder(target)
    except OSError as error:
        raise BarnabasError(f"{source} cannot be copied to {target}: {error}") from error


def _wanted(source: Path, recovery_point: int) -> Iterator[tuple[Path, bool]]:
    """Yield the files to copy, and whether each belongs to a segment that ends below the recovery point."""
    bases = sorted(
        int(found["base"])
        for found in (SEGMENT_FILE.fullmatch(each.name) for each in source.iterdir())
        if found is not None and found["kind"] == LOG_SUFFIX and not found["state"]
    )
    ends = dict(pairwise(bases))
    for path in sorted(source.iterdir()):
        found = SEGMENT_FILE.fullmatch(path.name)
        if found is None:
            is_classic = CLASSIC_SEGMENT_FILE.fullmatch(path.name) is not None and path.suffix != ".deleted"
            if is_classic or (path.name == LEADER_EPOCHS and path.stat().st_size):  # Kafka 1.1 makes it empty
                yield path, False
            continue
        base = int(found["base"])
        is_sealed = base in ends and ends[base] <= recovery_point
        is_swap = found["state"] == SWAP_SUFFIX  # a compaction that was interrupted at its end: a start completes it
        is_current = not found["state"] and (
            found["kind"] in (LOG_SUFFIX, SNAPSHOT_SUFFIX) or (is_sealed and found["kind"] in _INDEXES)
        )
        if is_swap or is_current:
            yield path, is_sealed and not is_swap


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            return False
        raise
    return True


def _copy(source: Path, target: Path) -> None:
    """Copy the content and the modification time, by which retention judges segments without timestamps.

    Volumes that can share blocks between files do so.
    """
    with source.open("rb") as reader, target.open("xb") as writer:
        left = os.fstat(reader.fileno()).st_size
        while left > 0:
            try:
                done = os.copy_file_range(reader.fileno(), writer.fileno(), min(left, _PIECE))
            except OSError as error:
                if error.errno not in _NO_RANGE_COPY:
                    raise
                shutil.copyfileobj(reader, writer, _PIECE)
                break
            if not done:
                break
            left -= done
        writer.flush()
        os.fsync(writer.fileno())
    found = source.stat()
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


class SegmentConverter:
    """Converts segments of a partition, in order."""

    def __init__(self, codecs: Codecs, epochs: LeaderEpochCache, report: Callable[[str], None]) -> None:
        """`epochs` are those of the partition's checkpoint."""
        self._codecs = codecs
        self._epochs = epochs
        self._report = report
        self._leader_epoch = -1

    def convert(self, source: Path, target: Path) -> None:
        """Write a converted copy of a segment file, durable and with the same modification time.

        It ends before the first entry that cannot be read, which is reported. Raises `OSError`.
        """
        with source.open("rb") as reader, target.open("xb") as writer:
            left, position, unread = b"", 0, os.fstat(reader.fileno()).st_size
            while unread:
                needed = entry_size(left) - len(left) if len(left) >= HEAD_SIZE else 0
                if needed > unread:
                    break
                piece = reader.read(max(_CONVERTED_PIECE, needed))
                unread = unread - len(piece) if piece else 0
                left += piece
                try:
                    done = convert_records(
                        left,
                        self._codecs,
                        group_bytes=GROUP_BYTES,
                        leader_epoch=self._leader_epoch,
                        epoch_at=self._epochs.epoch_at,
                    )
                except ApiError as error:
                    self._report(
                        f"{source} is damaged at position {position}: {error.message}; what follows is left out"
                    )
                    left = b""
                    break
                self._leader_epoch = done.leader_epoch
                writer.write(done.records)
                position, left = position + done.consumed, left[done.consumed :]
            if left:
                self._report(f"{source} ends within an entry at position {position}, which is left out")
            writer.flush()
            os.fsync(writer.fileno())
        found = source.stat()
        os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


def write_indexes(
    folder: Folder,
    base_offset: int,
    *,
    log_bytes: int,
    index_interval_bytes: int,
    now_ms: int,
    report: Callable[[str], None],
) -> None:
    """Write the indexes of a converted segment. Raises `StorageError`."""
    segment = Segment(
        folder,
        Offset(base_offset),
        files=SegmentFiles(log_bytes, -1, -1, now_ms),
        now_ms=now_ms,
        index_interval_bytes=index_interval_bytes,
        report=report,
    )
    segment.rebuild_indexes()
    segment.write_indexes()
    segment.close()


@define
class Imported:
    """The counts of an import, for its report."""

    partitions: int = 0
    copied_before: int = 0
    """The number of partitions that an interrupted import has copied."""
    segments: int = 0
    linked: int = 0
    converted: int = 0
    bytes: int = 0
    next_producer_id: int = 0
    ends: dict[TopicPartition, int] = field(factory=dict)
    """The log end offset of each partition."""


def size_of(plan: ImportPlan) -> int:
    """Return the number of bytes that the import copies or links."""
    return sum(
        partition_bytes(each.path) * len(topic.placement[number])
        for topic in plan.topics
        for number, each in topic.replicas.items()
    )


def is_of(topic: PlannedTopic, number: int) -> str:
    """Return a name of all that the copy of a partition is made from, as it is now. Raises `OSError`."""
    replica = topic.replicas[number]
    partition, source = replica.partition, replica.source
    files = [(path.name, found.st_size, found.st_mtime_ns) for path, found in wanted_files(replica.path)]
    known = (source.recovery_points, source.log_starts, source.high_watermarks, source.cleaned_to)
    offsets = [each.get(partition) for each in known]
    of = (
        str(replica.path),
        topic.topic_id,
        sorted(topic.legacy.get(number, ())),
        files,
        offsets,
        sorted(topic.configs),
    )
    return hashlib.sha256(repr(of).encode()).hexdigest()


def whole_of(plan: ImportPlan, broker: int, mark: ImportMark) -> dict[str, WholePartition]:
    """Return the partitions of this broker that an interrupted import has copied from what still is in the source."""
    whole = {}
    for topic in plan.topics:
        for number, replica in topic.replicas.items():
            name = str(replica.partition)
            found = mark.whole.get(name) if broker in topic.placement[number] else None
            if found is not None and (mark.path / name).is_dir() and found.of == is_of(topic, number):
                whole[name] = found
    return whole


def prepare_targets(
    plan: ImportPlan,
    command: Command,
    targets: Mapping[int, Path],
    entropy: Entropy,
    report: Callable[[str], None],
) -> dict[int, ImportMark]:
    """Return the marks of these data folders, which are locked; what is whole in them stays."""
    own = command.marks_in(targets)
    import_id = own[min(own)].import_id if own else layout.encode_id(random_uuid(entropy))
    marks = {}
    for broker, path in targets.items():
        marks[broker] = ImportMark(
            path=path,
            command=command.digest,
            sources=command.sources,
            import_id=import_id,
            topic_ids={topic.name: topic.topic_id for topic in plan.topics},
            whole=whole_of(plan, broker, own[broker]) if broker in own else {},
        )
        prepare_target(ImportMark.read(path), marks[broker], report)
    return marks


class Importer:
    """Writes what a plan says into open data folders with a mark, one of each broker, and their coordination tree."""

    def __init__(
        self,
        plan: ImportPlan,
        config: BrokerConfig,
        log_dirs: Mapping[int, LogDir],
        marks: Mapping[int, ImportMark],
        *,
        link: bool,
        report: Callable[[str], None],
        advance: Callable[[float], None],
    ) -> None:
        """`log_dirs`, `marks`: the data folder of each broker, and what is whole in it. `advance` is called with the
        number of bytes that are copied so far."""
        self._plan = plan
        self._config = config
        self._log_dirs = log_dirs
        self._marks = marks
        self._link = link
        self._report = report
        self._advance = advance
        self._bytes_there = 0
        self._clock: Clock = system_clock()
        self._plugins: PluginHost = plugin_host(config)
        self._largest_producer_id = -1
        self.done = Imported()

    def copy_logs(self) -> None:
        """Copy and check the logs of all topics that are not whole. Raises `BarnabasError`."""
        for topic in self._plan.topics:
            for number in topic.replicas:
                self._import_log(topic, number)
        for broker, log_dir in self._log_dirs.items():
            whole = {_partition_of(name): each for name, each in self._marks[broker].whole.items()}
            ends = format_offsets({key: each.end for key, each in whole.items()})
            starts = format_offsets({key: each.start for key, each in whole.items() if each.start > 0})
            cleaned = format_offsets({key: each.cleaned for key, each in whole.items() if each.cleaned is not None})
            log_dir.root.write_all_small(
                {RECOVERY_POINT: ends, HIGH_WATERMARK: ends, LOG_START: starts, CLEANED: cleaned}
            )
            log_dir.root.flush()

    def _import_log(self, topic: PlannedTopic, number: int) -> None:
        """Copy the log of a partition for each broker that has none; one that was copied before is the source then."""
        replica = topic.replicas[number]
        name = str(replica.partition)
        holders = topic.placement[number]
        there = [broker for broker in holders if name in self._marks[broker].whole]
        first = there[0] if there else holders[0]
        target = Path(self._log_dirs[first].path) / name
        if there:
            self.done.copied_before += 1
            self._bytes_there += len(there) * partition_bytes(replica.path)
            self._note_copied(0)
        else:
            before = is_of(topic, number)
            found = self._copy_log(topic, number, replica, self._log_dirs[first], before)
            for path in target.iterdir():
                _sync_file(path)
            sync_folder(target)
            self._marks[first].note_whole(name, found)
        found = self._marks[first].whole[name]
        self.done.partitions += 1
        self.done.segments += found.segments
        self.done.converted += found.converted
        self.done.ends[replica.partition] = found.end
        self._largest_producer_id = max(self._largest_producer_id, found.largest_producer_id)
        for broker in holders:
            if name not in self._marks[broker].whole:
                copy_folder(target, Path(self._log_dirs[broker].path) / name, copied=self._note_copied)
                self._marks[broker].note_whole(name, found)
        if self._link:
            logs = (path for path in target.iterdir() if path.suffix == LOG_SUFFIX)
            self.done.linked += sum(1 for path in logs if path.stat().st_nlink > 1)

    def _copy_log(
        self, topic: PlannedTopic, number: int, replica: Replica, log_dir: LogDir, before: str
    ) -> WholePartition:
        partition, source = replica.partition, replica.source
        bases = [base for base, _ in replica.segments()]
        recovery_point = _trusted_below(bases, topic.configs, source.recovery_points.get(partition))
        target = Path(log_dir.path) / str(partition)
        legacy = topic.legacy.get(number, frozenset())
        codecs = self._plugins.codecs()
        epochs = LeaderEpochCache(read_epochs_of(source.log_dir, partition, self._report))
        converter = SegmentConverter(codecs, epochs, self._report)
        copy_partition(
            replica.path,
            target,
            recovery_point=recovery_point,
            link=self._link,
            legacy=legacy,
            convert=converter.convert,
            copied=self._note_copied,
        )
        folder = log_dir.folder(str(partition))
        if not topic.is_classic:
            folder.write_small(PARTITION_METADATA, format_partition_metadata(topic.topic_id))
        settings = log_config_for(self._config, topic.configs)
        now_ms = self._clock.now_ms()
        for base in legacy:
            write_indexes(
                folder,
                base,
                log_bytes=(target / segment_file(base, LOG_SUFFIX)).stat().st_size,
                index_interval_bytes=settings.index_interval_bytes,
                now_ms=now_ms,
                report=self._report,
            )
        log = UnifiedLog.open(
            folder,
            topic_partition=partition,
            config=evolve(settings, message_format=replica.found.format_name),
            now_ms=now_ms,
            recover=True,
            recovery_point=recovery_point,
            log_start_offset=source.log_starts.get(partition, 0),
            codecs=codecs,
            deletion_policy=self._plugins.deletion_policy(settings.deletion_policy, partition),
            may_end_early=True,
            report=self._report,
        )
        try:
            self._check_sealed(log, replica)
            visible = source.high_watermarks.get(partition, 0)
            if log.log_end_offset < visible:
                self._report(
                    f"{replica.path} ends at offset {log.log_end_offset}, but its high watermark was {visible}: "
                    "the offsets between are lost"
                )
            cleaned = source.cleaned_to.get(partition)
            return WholePartition(
                of=before,
                end=log.log_end_offset,
                start=max(log.log_start_offset, 0),
                cleaned=None if cleaned is None else min(cleaned, log.log_end_offset),
                largest_producer_id=max(log.producers.producers, default=-1),
                segments=sum(1 for each in log.segments if isinstance(each, Segment)),
                converted=len(legacy),
            )
        finally:
            log.close(now_ms)

    def _check_sealed(self, log: UnifiedLog, replica: Replica) -> None:
        """Walk the headers of the segments that the log has not read when it was opened. Raises `BarnabasError` for
        messages of an old format that the plan has not found: between two changes of the format in one segment."""
        for segment in log.segments[:-1]:
            if not isinstance(segment, Segment):
                continue
            try:
                deque(scan_batches(segment.file, Position(0), Position(segment.size)), maxlen=0)
            except BadBatch as error:
                self._report(f"{replica.path}/{segment_file(segment.base_offset, LOG_SUFFIX)} is damaged {error}")
                if "magic" in str(error):
                    text = f"{replica.path} has messages from before Kafka 0.11 between record batches of one segment"
                    raise BarnabasError(f"{text}; move it away, and copy the topic with 'barnabas mirror'") from error

    def _note_copied(self, size: int) -> None:
        self.done.bytes += size
        self._advance(self._bytes_there + self.done.bytes)

    def write_tree(self, coordination: Coordination, entropy: Entropy, claim: Claim, *, shared: bool) -> None:
        """Write the cluster, its topics and its settings into the tree, which this import has claimed.

        What the same import has written before stays, or is replaced where it differs. In a tree that is `shared`, all
        replicas are in sync in a broker epoch that every broker finds in its folder. Raises `ConfigError` for topics of
        others, `CoordinationError`, `ApiError`.
        """
        plan = self._plan
        topics = [each for each in plan.topics if not each.is_classic]
        where = redact_url(self._config.coordination)
        if not claim.is_held(coordination):
            raise ConfigError(f"another import has begun in {where}")
        self._check_topics(coordination, topics, where)
        if shared:
            for log_dir in self._log_dirs.values():
                write_broker_epochs(log_dir, BrokerEpochs().with_epoch(claim.broker_epoch, 1))
        found = cluster_id(coordination, entropy, claim.cluster_id, plan.features)
        if found != claim.cluster_id:
            raise ConfigError(f"{where} has got a cluster while this import ran: {found}")
        first = self._first_producer_id()
        skip_to(coordination, min(self._log_dirs), first)
        self.done.next_producer_id = first
        for topic in topics:
            states = {
                number: evolve(
                    first_state(replicas),
                    leader_epoch=topic.leader_epochs.get(number, 0),
                    broker_epochs=dict.fromkeys(replicas, claim.broker_epoch),
                )
                for number, replicas in topic.placement.items()
            }
            made = Topic(
                name=topic.name, topic_id=topic.topic_id, partitions=topic.placement, configs=dict(topic.configs)
            )
            if not self._has_topic(coordination, made, states):
                topic_store.create_topic(coordination, made, states)
        if plan.broker_configs:
            set_broker_configs(coordination, None, plan.broker_configs)
        for (kind, name), value in plan.entities.items():
            entity_store.change_entities(coordination, kind, {name: partial(_as_planned, value)}, False)

    def _check_topics(self, coordination: Coordination, topics: Sequence[PlannedTopic], where: str) -> None:
        """Raise `ConfigError` for a topic in the tree that is none of this import's."""
        ids = {topic.name: topic.topic_id for topic in topics}
        names = children(coordination, layout.TOPICS)
        for name, (own, _) in topic_store.read_own_nodes(coordination, names).items():
            if own is not None and not (name in ids and topic_store.is_topic_node(own, name, ids[name])):
                raise ConfigError(
                    f"{where} already has topic {name}, which this import did not create; import into an empty cluster"
                )

    def _has_topic(self, coordination: Coordination, topic: Topic, states: Mapping[int, PartitionState]) -> bool:
        """Return True if the tree has this topic. One with its id that differs, as Kafka has changed it between two
        runs of the import, is removed."""
        stored = topic_store.read_topics(coordination, [topic.name], self._report).get(topic.name)
        if stored is None or stored.topic is None:
            return False
        if (stored.topic, stored.states) == (topic, states):
            return True
        self._report(f"topic {topic.name} has changed since the import was interrupted: it is written again")
        topic_store.mark_deleting(coordination, stored.topic, ())
        topic_store.remove_topic(coordination, stored.topic)
        return False

    def _first_producer_id(self) -> int:
        """Return the first id for new producers: no producer of Kafka has it, or a larger one."""
        above_logs = self._largest_producer_id + 1
        known = self._plan.next_producer_id
        least = above_logs + LEFT_OUT if known is None else max(known, above_logs)
        return max(-(-least // BLOCK_SIZE), 1) * BLOCK_SIZE


def finish(found: str, log_dirs: Mapping[int, LogDir], marks: Mapping[int, ImportMark], tree: Coordination) -> None:
    """Mark the folders as ones that brokers have left in order, now that the tree is complete."""
    for mark in marks.values():
        if mark.cluster_id is None:
            mark.note_tree(found)
    release_claim(tree)
    for broker, log_dir in log_dirs.items():
        write_meta_properties(log_dir, MetaProperties(cluster_id=found, broker_id=broker))
        log_dir.root.write_small(CLEAN_SHUTDOWN, b"")
        log_dir.root.delete(IMPORT_INCOMPLETE)
        log_dir.root.flush()


def _partition_of(folder: str) -> TopicPartition:
    topic, _, number = folder.rpartition("-")
    return TopicPartition(topic, int(number))


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _trusted_below(bases: list[int], configs: Mapping[str, str], checkpoint: int | None) -> int:
    """Return the offset below which batches are not read again.

    Compaction leaves gaps between segments, which a recovery would take for the end of the log; Kafka flushes what it
    has compacted.
    """
    active = bases[-1] if bases else 0
    if "compact" in configs.get("cleanup.policy", ""):
        return max(active, checkpoint or 0)
    return checkpoint or 0


def _as_planned(value: Mapping[str, object], _before: Mapping[str, object] | None) -> Mapping[str, object]:
    return value
