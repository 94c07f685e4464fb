"""Carries out an import: copies the partitions, checks each log, then writes the coordination tree.

The tree comes last: an interrupted import has a folder without topics, which a broker refuses, and the mark of the
import, by which the next import begins again.
"""

import shutil
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from attrs import define, evolve, field

from ...core.cluster import entity_store, topic_store
from ...core.cluster.brokers import cluster_id, next_broker_epoch, set_broker_configs
from ...core.cluster.producer_ids import BLOCK_SIZE, LEFT_OUT, skip_to
from ...core.cluster.topics import ALONE_EPOCH, Topic, first_state
from ...core.log.batch_scan import BadBatch, scan_batches
from ...core.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    PARTITION_METADATA,
    RECOVERY_POINT,
    format_offsets,
    format_partition_metadata,
)
from ...core.log.leader_epoch_cache import LeaderEpochCache
from ...core.log.manager.broker_epoch_file import BrokerEpochs, write_broker_epochs
from ...core.log.manager.meta_properties import MetaProperties, write_meta_properties
from ...core.log.names import LOG_SUFFIX, segment_file
from ...core.log.partition_log.unified_log import UnifiedLog
from ...core.log.segment.segment import Segment
from ...plugins.host import PluginHost
from ...ports.clock import Clock
from ...ports.coordination import Coordination
from ...ports.entropy import Entropy
from ...ports.errors import BarnabasError, ConfigError
from ...ports.storage import LogDir
from ...ports.types import Position, TopicPartition
from ..compose.broker import plugin_host, system_clock
from ..config import BrokerConfig
from ..config.topic_config import log_config_for
from .copying import SegmentConverter, copy_folder, copy_partition, partition_bytes, write_indexes
from .plan import ImportPlan, PlannedTopic
from .source import Replica, read_epochs_of

INCOMPLETE = "import-incomplete"
"""The mark of an import that has not ended."""


@define
class Imported:
    """The counts of an import, for its report."""

    partitions: int = 0
    segments: int = 0
    linked: int = 0
    converted: int = 0
    bytes: int = 0
    next_producer_id: int = 0
    ends: dict[TopicPartition, int] = field(factory=dict)
    """The log end offset of each partition."""


def prepare_target(into: Path) -> None:
    """Make the data folder, or empty it after an import that was interrupted. Raises `ConfigError` for one in use."""
    if into.exists():
        if not into.is_dir():
            raise ConfigError(f"{into} is no folder")
        names = [each.name for each in into.iterdir()]
        if names and INCOMPLETE not in names:
            raise ConfigError(f"{into} is not empty: an import makes a data folder of its own")
        for each in into.iterdir():
            if each.name != INCOMPLETE:
                shutil.rmtree(each) if each.is_dir() else each.unlink()
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    (into / INCOMPLETE).touch()


def size_of(plan: ImportPlan) -> int:
    """Return the number of bytes that the import copies or links."""
    return sum(
        partition_bytes(each.path) * len(topic.placement[number])
        for topic in plan.topics
        for number, each in topic.replicas.items()
    )


class Importer:
    """Writes what a plan says into open, empty data folders, one of each broker, and their coordination tree."""

    def __init__(
        self,
        plan: ImportPlan,
        config: BrokerConfig,
        log_dirs: Mapping[int, LogDir],
        *,
        link: bool,
        report: Callable[[str], None],
        advance: Callable[[float], None],
    ) -> None:
        """`log_dirs`: the data folder of each broker. `advance` is called with the number of bytes that are copied so
        far."""
        self._plan = plan
        self._config = config
        self._log_dirs = log_dirs
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in log_dirs}
        self._link = link
        self._report = report
        self._advance = advance
        self._clock: Clock = system_clock()
        self._plugins: PluginHost = plugin_host(config)
        self._starts: dict[TopicPartition, int] = {}
        self._cleaned: dict[TopicPartition, int] = {}
        self._largest_producer_id = -1
        self.done = Imported()

    def copy_logs(self) -> None:
        """Copy and check the logs of all topics. Raises `BarnabasError`."""
        for topic in self._plan.topics:
            for number, replica in topic.replicas.items():
                self._copy_log(topic, number, replica)
        for broker, log_dir in self._log_dirs.items():
            held = self._held[broker]
            ends, starts, cleaned = (
                format_offsets({key: offset for key, offset in known.items() if key in held})
                for known in (self.done.ends, self._starts, self._cleaned)
            )
            log_dir.root.write_all_small(
                {RECOVERY_POINT: ends, HIGH_WATERMARK: ends, LOG_START: starts, CLEANED: cleaned}
            )
            log_dir.root.flush()

    def _copy_log(self, topic: PlannedTopic, number: int, replica: Replica) -> None:
        partition, source = TopicPartition(topic.name, number), replica.source
        bases = [base for base, _ in replica.segments()]
        recovery_point = _trusted_below(bases, topic.configs, source.recovery_points.get(partition))
        first, *others = topic.placement[number]
        log_dir = self._log_dirs[first]
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
        self.done.converted += len(legacy)
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
            self.done.ends[partition] = log.log_end_offset
            if log.log_start_offset > 0:
                self._starts[partition] = log.log_start_offset
            if partition in source.cleaned_to:
                self._cleaned[partition] = min(source.cleaned_to[partition], log.log_end_offset)
            visible = source.high_watermarks.get(partition, 0)
            if log.log_end_offset < visible:
                self._report(
                    f"{replica.path} ends at offset {log.log_end_offset}, but its high watermark was {visible}: "
                    "the offsets between are lost"
                )
            self._largest_producer_id = max(self._largest_producer_id, *log.producers.producers, -1)
            self.done.segments += sum(1 for each in log.segments if isinstance(each, Segment))
        finally:
            log.close(now_ms)
        self.done.partitions += 1
        self._held[first].add(partition)
        for broker in others:
            copy_folder(target, Path(self._log_dirs[broker].path) / str(partition), copied=self._note_copied)
            self._held[broker].add(partition)
        if self._link:
            logs = (path for path in target.iterdir() if path.suffix == LOG_SUFFIX)
            self.done.linked += sum(1 for path in logs if path.stat().st_nlink > 1)

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
        self._advance(self.done.bytes)

    def write_tree(self, coordination: Coordination, entropy: Entropy, *, shared: bool) -> str:
        """Write the cluster, its topics and its settings into the tree; return the cluster id.

        In a tree that is `shared`, all replicas are in sync in a broker epoch that every broker finds in its folder.
        Raises `CoordinationError`, `ApiError`.
        """
        plan = self._plan
        found = cluster_id(coordination, entropy, plan.cluster_id, plan.features)
        first = self._first_producer_id()
        skip_to(coordination, min(self._log_dirs), first)
        epoch = ALONE_EPOCH
        if shared:
            epoch = next_broker_epoch(coordination)
            for log_dir in self._log_dirs.values():
                write_broker_epochs(log_dir, BrokerEpochs().with_epoch(epoch, 1))
        self.done.next_producer_id = first
        for topic in (each for each in plan.topics if not each.is_classic):
            states = {
                number: evolve(
                    first_state(replicas),
                    leader_epoch=topic.leader_epochs.get(number, 0),
                    broker_epochs=dict.fromkeys(replicas, epoch),
                )
                for number, replicas in topic.placement.items()
            }
            made = Topic(
                name=topic.name, topic_id=topic.topic_id, partitions=topic.placement, configs=dict(topic.configs)
            )
            topic_store.create_topic(coordination, made, states)
        if plan.broker_configs:
            set_broker_configs(coordination, None, plan.broker_configs)
        for (kind, name), value in plan.entities.items():
            entity_store.change_entities(coordination, kind, {name: partial(_as_planned, value)}, False)
        return found

    def _first_producer_id(self) -> int:
        """Return the first id for new producers: no producer of Kafka has it, or a larger one."""
        above_logs = self._largest_producer_id + 1
        known = self._plan.next_producer_id
        least = above_logs + LEFT_OUT if known is None else max(known, above_logs)
        return max(-(-least // BLOCK_SIZE), 1) * BLOCK_SIZE

    def finish(self, found: str) -> None:
        """Mark the folders as ones that brokers have left in order."""
        for broker, log_dir in self._log_dirs.items():
            write_meta_properties(log_dir, MetaProperties(cluster_id=found, broker_id=broker))
            log_dir.root.write_small(CLEAN_SHUTDOWN, b"")
            log_dir.root.delete(INCOMPLETE)
            log_dir.root.flush()


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
