"""What the broker's services share: the partitions that live here, the topics of the cluster, the configuration."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ...core.cluster.change_queue import on_disk
from ...core.cluster.deltas import ConfigsChanged, Delta, TopicSet
from ...core.cluster.image import ClusterImage
from ...core.cluster.registry import ClusterRegistry
from ...core.cluster.topics import INTERNAL_TOPICS, NO_LEADER, Topic
from ...core.log.log import Log
from ...core.log.manager import LogManager
from ...core.replica.partition import Partition
from ...core.replica.purgatory import Purgatory
from ...core.traffic.steps import StepRunner, Steps
from ...ports.broker_api import Caller, Reply
from ...ports.clock import Clock
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.metrics import Counter, Metrics
from ...ports.scheduler import Outcome, Scheduler
from ...ports.storage import StorageError
from ...ports.values import frozen
from ...ports.words import TopicPartition
from ..config.classic import CLASSIC, FORMAT_KEY
from .changes import Changes, as_api_error
from .classic.topics import ClassicTopics
from .endpoints import Endpoints
from .failures import broker_failed
from .settings import BrokerSettings

T = TypeVar("T")
PARTITIONS_AT_A_TIME = 100
"""So many logs are begun by one piece of work off the owner thread, and taken over in one turn of it."""


@frozen
class TopicStats:
    """What goes in and out of one topic."""

    messages_in: Counter
    bytes_in: Counter
    bytes_out: Counter


def _ignore(_: object) -> None:
    """For whoever does not want to know."""


class BrokerState:
    """The state of one broker. Not frozen: it is the state itself. Owner thread only."""

    def __init__(
        self,
        *,
        cluster_id: str,
        settings: BrokerSettings,
        endpoints: Endpoints,
        clock: Clock,
        entropy: Entropy,
        scheduler: Scheduler,
        registry: ClusterRegistry,
        logs: LogManager,
        metrics: Metrics,
        report: Callable[[str], None],
    ) -> None:
        self.node_id = settings.static.broker_id
        self.cluster_id = cluster_id
        self.settings = settings
        self.endpoints = endpoints
        self.clock = clock
        self.entropy = entropy
        self.scheduler = scheduler
        self.registry = registry
        self.logs = logs
        self.metrics = metrics
        self.report = report
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.purgatory = Purgatory(scheduler, lambda error: self.failed("an answer that waited", error))
        self.steps = StepRunner(scheduler, clock, lambda error: self.failed("an answer that took long", error))
        self.replicas_changed: set[str] = set()
        """Names of topics of which replicas have come to this broker or gone, since their owner emptied this."""
        self._stats: dict[str, TopicStats] = {}
        self._beginning: set[TopicPartition] = set()
        self._failing: set[TopicPartition] = set()
        self._durable_wanted: dict[TopicPartition, int] = {}
        self.changes = Changes(scheduler, registry.coordination, report)
        self.classic = ClassicTopics(settings.static, registry, logs, report)
        self.opened: Callable[[Partition], None] = _ignore
        """Told (settable) of each partition of the current generation that has come to this broker."""
        self.dropped: Callable[[Sequence[TopicPartition]], None] = _ignore
        """Told (settable) of the partitions that are no more; nothing of them is left but what others know of them."""
        self.classic.opened = lambda key, log: self._show(key, log, lambda: log.readable_end)
        registry.listen(self._cluster_changed)
        logs.flushed = self._flushed
        logs.high_watermark_of = self._high_watermark_of
        metrics.gauge("kafka_brokers", "Live brokers.", lambda: len(self.image.brokers))
        metrics.gauge(
            "kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", lambda: len(self.purgatory)
        )

    # --- the cluster

    @property
    def image(self) -> ClusterImage:
        """What this broker knows of the cluster."""
        return self.registry.image

    def _cluster_changed(self, delta: Delta, before: ClusterImage) -> None:
        """Let the logs go by what is configured now."""
        match delta:
            case TopicSet(topic=topic):
                known = before.topics.get(topic.name)
                if known is not None and known.configs != topic.configs:
                    self.apply_log_configs([topic.name])
            case ConfigsChanged():
                self.apply_broker_configs()

    @property
    def controller_id(self) -> int:
        """Where administrators send their requests; any broker here."""
        return self.node_id

    def check_owns_topics(self) -> None:
        """Raise `ApiError(NOT_CONTROLLER)` where the topics in the tree belong to another broker."""
        if not self.settings.static.owns_topics:
            text = "a broker without a kafka:// listener does not change the topics that it shares with others"
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"{text}; ask the one that has it, or give it one")

    def racks(self) -> dict[int, str | None]:
        """The live brokers, each with its rack."""
        return {broker.broker_id: broker.rack for broker in self.image.brokers.values()}

    def has_replica(self, topic: str, partition: int, broker_id: int) -> bool:
        """True if the broker is alive and, if it is this one, its log is open."""
        if broker_id == self.node_id:
            return (topic, partition) in self.partitions or self.classic.has(topic)
        return broker_id in self.image.brokers

    def gone(self, connection: int) -> None:
        """A connection is closed: nobody waits for its answers any more."""
        self.purgatory.finish_all(connection)
        self.steps.drop(connection)

    def answer_in_steps(self, what: str, steps: Steps[T], caller: Caller, reply: Reply[T]) -> None:
        """Answer a request with what `steps` return, in turns with others where they take long."""

        def done(outcome: Outcome[T]) -> None:
            error = outcome.error
            if error is None:
                reply(outcome.get())
            elif isinstance(error, BarnabasError):
                reply(as_api_error(error))
            else:
                self.failed(what, error)
                reply(broker_failed())

        self.steps.run(steps, done, caller.connection or None)

    def caller_keys(self, caller: Caller) -> tuple[int, ...]:
        """What an operation of this caller is watched under besides its partitions."""
        return (caller.connection,) if caller.connection else ()

    # --- partitions

    def unknown_partition(self, topic: str, partition: int) -> ApiError:
        """Why there is no such partition here for the current generation."""
        if (refused := self.classic.refusal(topic)) is not None:
            return refused
        known = self.image.topics.get(topic)
        if known is None or partition not in known.partitions:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic[:260]}-{partition}")
        if (topic, partition) in self._beginning:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} is being made")
        if self.node_id in known.partitions[partition]:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} cannot be opened")
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on this broker")

    async def open_topics(self, topics: Sequence[Topic]) -> Mapping[str, BarnabasError]:
        """Begin the logs of new topics that belong here, and those that topics have grown by: a part of a change.

        Returns why topics have not got their logs, by name. Those of a classic topic are made on first use.
        """
        failures: dict[str, BarnabasError] = {}
        missing: list[tuple[Topic, TopicPartition]] = []
        for topic in topics:
            self.replicas_changed.add(topic.name)
            if self.classic.is_created_classic(topic.name):
                self.classic.show(topic.name)
            else:
                missing += [(topic, key) for key in self._missing(topic)]
        self._beginning = {key for _, key in missing}
        try:
            for start in range(0, len(missing), PARTITIONS_AT_A_TIME):
                some = missing[start : start + PARTITIONS_AT_A_TIME]
                await self._begin_logs([entry for entry in some if entry[0].name not in failures], failures)
        finally:
            self._beginning = set()
        return failures

    async def _begin_logs(
        self, wanted: Sequence[tuple[Topic, TopicPartition]], failures: dict[str, BarnabasError]
    ) -> None:
        for topic, key in wanted:
            try:
                self.logs.set_aside(key)  # what is left of an earlier topic of this name is not part of the new one
            except StorageError as error:
                failures.setdefault(topic.name, error)
        creation = self.logs.begin_create({key: topic.topic_id for topic, key in wanted if topic.name not in failures})
        try:
            await on_disk(creation)
        finally:
            errors = self.logs.end_create(creation)
        for key, failure in errors.items():
            failures.setdefault(key.topic, failure)
        for topic, key in wanted:
            log = self.logs.get(key)
            if log is not None and key not in errors:
                self._take(topic, key, log)

    def reopen_topic(self, topic: Topic) -> None:
        """Open the logs of a topic after a start. What cannot be opened is reported, and answered with an error."""
        if self.classic.is_created_classic(topic.name):
            return
        if topic.name not in INTERNAL_TOPICS and self.settings.log_config(topic.configs, topic.name).compacted:
            self.report(f"topic {topic.name} is to be compacted, which this broker does not do yet: it only grows")
        for key in self._missing(topic):
            try:
                self._take(topic, key, self.logs.get(key) or self.logs.create(key, is_new=False))
            except StorageError as error:
                self.failed(f"opening {key}", error)

    def _missing(self, topic: Topic) -> list[TopicPartition]:
        keys = [TopicPartition(topic.name, number) for number, at in topic.partitions.items() if self.node_id in at]
        return [key for key in keys if key not in self.partitions]

    def _take(self, topic: Topic, key: TopicPartition, log: Log) -> None:
        self.replicas_changed.add(topic.name)
        known = self.image.state(key)
        partition = self.partitions[key] = Partition(
            log,
            key,
            topic_id=topic.topic_id,
            broker_id=self.node_id,
            leader=known.leader,
            leader_epoch=known.leader_epoch,
            replicas=topic.partitions[key.partition],
            isr=known.isr,
            high_watermark=self.logs.high_watermark(key),
        )
        self._show(key, log, lambda: partition.high_watermark)
        self.opened(partition)

    def _show(self, key: TopicPartition, log: Log, readable_end: Callable[[], int]) -> None:
        """Let the offsets and the size of a partition be seen (the names of kafka_exporter and of Kafka)."""
        gauge = self.metrics.gauge
        labels = {"topic": key.topic, "partition": str(key.partition)}
        gauge("kafka_topic_partition_current_offset", "High watermark.", readable_end, **labels)
        gauge("kafka_topic_partition_oldest_offset", "Log start offset.", lambda: log.log_start_offset, **labels)
        gauge("kafka_log_log_size", "Bytes in the segments of a log.", lambda: log.size_bytes, **labels)

    def drop_topic(self, topic: Topic) -> bool:
        """Forget a topic and remove its logs; whoever waits for it is answered. False: some logs are still there."""
        keys = [TopicPartition(topic.name, number) for number in topic.partitions]
        dropped = [self._drop(key) for key in keys]
        self.dropped(keys)
        self._stats.pop(topic.name, None)
        self.metrics.forget(topic=topic.name)
        self.classic.dropped(topic.name)
        return all(dropped)

    def drop_partitions(self, topic: str, numbers: Iterable[int]) -> None:
        """Forget some partitions of a topic and remove their logs."""
        keys = [TopicPartition(topic, number) for number in numbers]
        for key in keys:
            self._drop(key)
            self.metrics.forget(topic=topic, partition=str(key.partition))
        self.dropped(keys)

    def _drop(self, key: TopicPartition) -> bool:
        """False: the log could not be removed, which is reported."""
        self.replicas_changed.add(key.topic)
        partition = self.partitions.pop(key, None)
        if partition is not None:
            partition.leader = NO_LEADER
            self.purgatory.check(key)
        self._failing.discard(key)
        self._durable_wanted.pop(key, None)
        try:
            self.logs.delete(key)
        except StorageError as error:
            self.failed(f"removing the log of {key}", error)
            return False
        return True

    def apply_log_configs(self, topics: Iterable[str]) -> None:
        """Let the logs of these topics go by what is configured now."""
        for name in topics:
            topic = self.image.topics[name]
            config = self.settings.log_config(topic.configs, topic.name)
            for number in topic.partitions:
                log = self.logs.get(TopicPartition(name, number))
                if log is not None:
                    log.update_config(config)

    def apply_broker_configs(self) -> None:
        """The same for every log, those of classic topics that nobody created included."""
        self.apply_log_configs(self.image.topics)
        for key, log in self.logs.logs().items():
            if key.topic not in self.image.topics and self.classic.has(key.topic):
                log.update_config(self.settings.log_config({FORMAT_KEY: CLASSIC}, key.topic))

    # --- durability

    def flush_if_due(self, partition: Partition, now_ms: int) -> bool:
        """True if what was appended asks for a flush, which is under way then; answers wait for it."""
        log = partition.log
        if not self.logs.flush_if_due(log, now_ms):
            return False
        self._durable_wanted[partition.topic_partition] = log.log_end_offset
        return True

    def _flushed(self, log: Log) -> None:
        """A flush is over. One that was under way when more was appended is followed by another."""
        key = log.topic_partition
        self.purgatory.check(key)
        wanted = self._durable_wanted.get(key)
        if wanted is not None and log.recovery_point < wanted and log.failure is None:
            self.logs.flush(log)
        else:
            self._durable_wanted.pop(key, None)

    def _high_watermark_of(self, key: TopicPartition) -> int | None:
        partition = self.partitions.get(key)
        return None if partition is None else partition.high_watermark

    # --- what goes on

    def topic_stats(self, topic: str) -> TopicStats:
        """The counters of a topic, made when first asked for."""
        stats = self._stats.get(topic)
        if stats is None:
            counter = self.metrics.counter
            stats = self._stats[topic] = TopicStats(
                counter("kafka_server_brokertopicmetrics_messagesin_total", "Messages appended.", topic=topic),
                counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes appended.", topic=topic),
                counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes read by consumers.", topic=topic),
            )
        return stats

    def failed(self, what: str, error: BaseException) -> None:
        """Report something that should not have happened."""
        self.report(f"{what} failed: {type(error).__name__}: {error}")

    def storage_failed(self, partition: Partition | None, error: StorageError) -> None:
        """Report a storage failure of a partition: once, until it has worked again."""
        if partition is not None:
            self.log_failed(partition.topic_partition, error)

    def log_failed(self, key: TopicPartition, error: StorageError) -> None:
        """The same for a log that belongs to no `Partition`, or could not be opened."""
        if key not in self._failing:
            self._failing.add(key)
            self.report(f"{key}: {error}")


def unwritable(topic: str, number: int) -> str:
    """What a client is told of a log whose disk failed; where it lies is for the broker's log."""
    return f"the log of {topic[:260]}-{number} cannot be written; the broker's log says why"
