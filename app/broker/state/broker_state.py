"""The state that the broker's services share: replicas, cluster image, topics and configuration."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ....core.client.driver import Submit
from ....core.cluster.assignment import machine_key
from ....core.cluster.change_queue import ChangeQueue
from ....core.cluster.deltas import BrokersChanged, ConfigsChanged, Delta, LeadershipEnded, StatesChanged, TopicSet
from ....core.cluster.election import ElectionRules, may_join
from ....core.cluster.image import ClusterImage
from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topics import ALONE_EPOCH, UNKNOWN_EPOCH, Topic
from ....core.log.manager.log_manager import LogManager
from ....core.log.partition_log.unified_log import UnifiedLog
from ....core.replica.alter_partition_manager import AlterPartitionManager
from ....core.replica.partition.partition import Partition
from ....core.replica.replica_manager import AssignedReplica, ReplicaManager
from ....core.replica.settings import ReplicationSettings
from ....core.security.quotas.rate import QuotaWindows
from ....core.security.quotas.request_quotas import RequestQuotas
from ....core.traffic.steps import StepRunner, Steps
from ....ports.broker_api.envelope import Caller, Reply
from ....ports.clock import Clock
from ....ports.entropy import Entropy
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, broker_failed
from ....ports.metrics import Metrics
from ....ports.report import counted
from ....ports.scheduler import Outcome, Scheduler
from ....ports.types import TopicPartition
from ...config.classic import CLASSIC, FORMAT_KEY
from .changes import Changes, EntityStore, as_api_error
from .classic_topics import ClassicTopics
from .endpoints import Endpoints
from .settings import MIN_ISR_KEY, BrokerSettings

if TYPE_CHECKING:
    from .tiering import Tiering

T = TypeVar("T")
_PLACEMENT_ERRORS = (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICA_ASSIGNMENT)


class BrokerState:
    """The state of one broker. Not frozen: it is the state itself. Owner thread only."""

    def __init__(
        self,
        *,
        cluster_id: str,
        owns_topics: bool,
        settings: BrokerSettings,
        endpoints: Endpoints,
        clock: Clock,
        entropy: Entropy,
        scheduler: Scheduler,
        registry: ClusterRegistry,
        logs: LogManager,
        metrics: Metrics,
        report: Callable[[str], None],
        lease_valid: Callable[[], bool] | None = None,
        isr_clock: Clock | None = None,
        fetch_from: Submit | None = None,
        ask: Submit | None = None,
    ) -> None:
        """Create the state; without the last four a broker has no others in its cluster.

        `lease_valid` returns True if this broker may lead, where others share the tree. `isr_clock` measures how long
        followers lag; None: `clock` does. `fetch_from` sends the others fetches. `ask` sends them all other requests,
        over connections on which no fetch waits.
        """
        self.node_id = settings.static.broker_id
        self.is_alone = lease_valid is None
        self.ask = ask
        self.cluster_id = cluster_id
        self.owns_topics = owns_topics
        """True if this broker may change topics and configs in the tree.

        That is the case if it serves the current generation, or if no other broker can reach the tree.
        """
        self.settings = settings
        self.endpoints = endpoints
        self.clock = clock
        self._request_clock = isr_clock or clock
        self.entropy = entropy
        self.scheduler = scheduler
        self.registry = registry
        self.logs = logs
        self.metrics = metrics
        self.report = report
        self.quotas = _request_quotas(settings, clock)
        self.quotas.register_metrics(metrics)
        self.steps = StepRunner(scheduler, clock, lambda error: self.failed("a response in steps", error))
        self.replicas_changed: set[str] = set()
        """The names of topics whose replicas here have changed since the owner of this set last emptied it."""
        self._awaiting_logs: set[bytes] = set()
        """The ids of topics in the tree whose logs are about to be created."""
        self.changes = Changes(scheduler, registry.coordination, report)
        self.tiering: Tiering | None = None
        """Tiered storage; None: this broker has none."""
        self._when_offline: list[Callable[[TopicPartition], None]] = []
        self._when_disconnected: list[Callable[[int], None]] = []
        self.classic = ClassicTopics(settings.static, registry, logs, report)
        self.leader_changes = ChangeQueue(scheduler, registry.coordination)
        """The changes of leaders and ISRs, which do not wait behind the creation of topics, which takes long."""
        self.entities = EntityStore(registry, self.changes, self.leader_changes)
        """Changes ACLs, SCRAM credentials, client quotas and delegation tokens."""
        self.alter_partition_manager = AlterPartitionManager(
            registry,
            scheduler,
            own=lambda: self.replicas.own,
            rules=self.election_rules,
            submit_change=lambda what, change, done: self.changes.submit(what, change, done, self.leader_changes),
        )
        self.replicas = ReplicaManager(
            broker_id=self.node_id,
            logs=logs,
            clock=clock,
            scheduler=scheduler,
            metrics=metrics,
            unknown=self.unknown_partition,
            report=report,
            broker_epoch=ALONE_EPOCH if self.is_alone else UNKNOWN_EPOCH,
            settings=_replication_settings(settings),
            lease_valid=lease_valid,
            fetch_from=fetch_from,
            alter_partition=None if self.is_alone else self.alter_partition_manager.submit,
            may_join=lambda replica: may_join(replica, self.image.brokers),
            is_alive=lambda broker_id: broker_id in self.image.brokers,
            went_offline=None if self.is_alone else self._went_offline,
            isr_clock=isr_clock,
        )
        self.replicas.listen(self._opened, self._dropped)
        self.classic.listen_logs(lambda key, log: self._show(key, log, lambda: log.readable_end))
        registry.listen(self._cluster_changed)
        metrics.gauge("kafka_brokers", "Live brokers.", lambda: len(self.image.brokers))

    def in_time(
        self, timeout_ms: int, make: Callable[[], Coroutine[Any, Any, T]]
    ) -> Callable[[], Coroutine[Any, Any, T]]:
        """Return a change that is not made later than `timeout_ms` from now (0: any time), as by Kafka's controller.

        The client of a broker that was suspended has asked another one by then, and much may have changed since. Raises
        `ApiError(REQUEST_TIMED_OUT)`.
        """
        until_ms = self._request_clock.monotonic_ms() + timeout_ms

        async def made_in_time() -> T:
            if timeout_ms > 0 and until_ms < self._request_clock.monotonic_ms():
                raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the change had no turn within {timeout_ms} ms")
            return await make()

        return made_in_time

    # --- the cluster

    def creates_topic(self, name: str) -> bool:
        """Return True if a Metadata request that names this topic creates it."""
        is_known = name in self.image.topics or self.classic.has(name)
        return not is_known and self.settings.static.auto_create_topics_enable

    @property
    def image(self) -> ClusterImage:
        """The cluster image of this broker."""
        return self.registry.image

    def topic_name(self, topic_id: bytes) -> str:
        """Return the name of the topic with this id; empty if there is none."""
        return self.image.name_of(topic_id)

    def _cluster_changed(self, delta: Delta, before: ClusterImage) -> None:
        """Apply a change of the cluster to the logs and partitions here."""
        match delta:
            case TopicSet(topic=topic):
                known = before.topics.get(topic.name)
                if known is not None and known.configs != topic.configs:
                    self.apply_log_configs([topic.name])
                self.apply_states(topic)
            case StatesChanged(topic=name):
                if name in self.image.topics:
                    self.apply_states(self.image.topics[name])
            case LeadershipEnded(topic=topic):
                if not self.is_alone:
                    self.replicas.end_leadership(topic)
            case BrokersChanged():
                self.replicas.brokers_changed()
            case ConfigsChanged():
                self.apply_broker_configs()

    def listen_offline(self, callback: Callable[[TopicPartition], None]) -> None:
        """Add a listener for partitions whose log goes out of use here."""
        self._when_offline.append(callback)

    def _went_offline(self, key: TopicPartition) -> None:
        for callback in self._when_offline:
            callback(key)

    def apply_states(self, topic: Topic) -> None:
        """Let the open partitions of a topic lead, follow, or neither, by the image."""
        if not self.is_alone:
            partitions = self.replicas.partitions
            states = self.image.states_in(topic, [n for n in topic.partitions if (topic.name, n) in partitions])
            if states:
                self.replicas.apply(topic, states)

    def election_rules(self, topic: Topic) -> ElectionRules:
        """Return the election rules of a topic, by its configuration."""
        config = self.settings.log_config(topic.configs, topic.name)
        return ElectionRules(
            min_isr=config.min_insync_replicas,
            unclean=config.unclean_leader_election_enable,
            is_common=MIN_ISR_KEY in topic.configs or MIN_ISR_KEY in self.image.configs.get(None, {}),
        )

    def differing_min_isr(self) -> Mapping[int, list[int]]:
        """Return the values of `min.insync.replicas` in the files of the live brokers, with the brokers that have each.

        Returns nothing where that does not matter: the values are equal, or one is set for all brokers.
        """
        if MIN_ISR_KEY in self.image.configs.get(None, {}):
            return {}
        found: dict[int, list[int]] = {}
        for number, broker in sorted(self.image.brokers.items()):
            if broker.min_isr is not None:
                found.setdefault(broker.min_isr, []).append(number)
        return found if len(found) > 1 else {}

    @property
    def controller_id(self) -> int:
        """The broker to which administrators send their requests, although any broker would do. -1: unknown."""
        if self.is_alone:
            return self.node_id
        controller = self.image.controller
        return controller.broker_id if controller is not None and controller.broker_id in self.image.brokers else -1

    def check_owns_topics(self) -> None:
        """Raise `ApiError(NOT_CONTROLLER)` where the topics in the tree belong to another broker."""
        if not self.owns_topics:
            text = "a broker without a kafka:// listener does not change the topics that it shares with others"
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"{text}; ask the one that has it, or give it one")

    def racks(self) -> dict[int, str | None]:
        """Return the racks of the live brokers that may get new replicas."""
        return self.image.racks_for_new_replicas()

    def live_machines(self) -> int:
        """Return the number of machines whose brokers may get new replicas."""
        machines = self.image.machines()
        return len({machine_key(machines, broker) for broker in self.racks()})

    @contextmanager
    def explaining_cordoned(self) -> Iterator[None]:
        """Let the error of a placement name the live brokers that get no new replicas."""
        try:
            yield
        except ApiError as error:
            cordoned = sorted(number for number in self.image.brokers if self.image.is_cordoned(number))
            if error.code not in _PLACEMENT_ERRORS or not cordoned:
                raise
            text = f"{counted(len(cordoned), 'broker is', 'brokers are')} cordoned (cordoned.log.dirs): {cordoned}"
            raise ApiError(error.code, f"{error.message}; {text}") from error

    def has_replica(self, topic: str, partition: int, broker_id: int) -> bool:
        """Return True if the broker is alive and, if it is this one, its log is open."""
        if broker_id == self.node_id:
            return (topic, partition) in self.replicas.partitions or self.classic.has(topic)
        return broker_id in self.image.brokers

    def add_disconnection_listener(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with each connection that is closed, before its waiting requests are finished."""
        self._when_disconnected.append(listener)

    def gone(self, connection: int) -> None:
        """Finish the waiting requests of a closed connection, and cancel those that run in steps."""
        for listener in self._when_disconnected:
            listener(connection)
        self.replicas.purgatory.finish_all(connection)
        self.steps.cancel_owner(connection)

    def answer_in_steps(self, what: str, steps: Steps[T], caller: Caller, reply: Reply[T]) -> None:
        """Answer a request with the result of `steps`, which run in turns with other work where they take long."""

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

    # --- partitions

    def unknown_partition(self, topic: str, partition: int) -> ApiError:
        """Return the error for a partition that is not here for the current generation."""
        if (refused := self.classic.refusal(topic)) is not None:
            return refused
        known = self.image.topics.get(topic)
        if known is None or partition not in known.partitions:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic[:260]}-{partition}")
        if known.topic_id in self._awaiting_logs or self.replicas.is_beginning(TopicPartition(topic, partition)):
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} is being made")
        if self.node_id in known.partitions[partition]:
            if not (self.is_alone or self.logs.is_unopened(TopicPartition(topic, partition))):
                return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the log of {topic}-{partition} is being made")
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{partition} cannot be opened")
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on this broker")

    def await_logs(self, topics: Iterable[Topic]) -> None:
        """Record topics whose logs are about to be created: their partitions are answered as being made."""
        self._awaiting_logs.update(topic.topic_id for topic in topics)

    def end_awaiting_logs(self, topics: Iterable[Topic]) -> None:
        """Record that the logs of these topics were created, or could not be."""
        self._awaiting_logs.difference_update(topic.topic_id for topic in topics)

    async def open_topics(self, topics: Sequence[Topic]) -> Mapping[str, BarnabasError]:
        """Create the logs of new topics and partitions that belong here: a part of a change.

        Returns the errors of topics whose logs are incomplete, by name. Logs of a classic topic are created at their
        first use.
        """
        assigned: list[AssignedReplica] = []
        for topic in topics:
            self.replicas_changed.add(topic.name)
            if self.classic.is_created_classic(topic.name):
                self.classic.show(topic.name)
            else:
                assigned += self._assigned(topic)
        failures = await self.replicas.open(assigned)
        if not self.is_alone:
            for each in assigned:
                if each.key.topic in failures and each.key not in self.replicas.partitions:
                    self._went_offline(each.key)  # so that others can lead it
        for topic in topics:
            if (known := self.image.topics.get(topic.name)) is not None:
                self.apply_states(known)  # they may have changed while the logs were created
        return failures

    def not_opened(self) -> list[TopicPartition]:
        """Return the partitions that belong here and are not open, since their logs or data folders cannot be used."""
        return [
            key
            for topic in self.image.topics.values()
            if not self.classic.is_created_classic(topic.name)
            for number, replicas in topic.partitions.items()
            if self.node_id in replicas and (key := TopicPartition(topic.name, number)) not in self.replicas.partitions
        ]

    def not_open_yet(self, topic: Topic) -> list[int]:
        """Return the partitions of a topic that belong here and are not open, without those whose logs cannot be, or
        are about to be created."""
        if (
            topic.topic_id in self._awaiting_logs
            or self.classic.is_created_classic(topic.name)
            or self.logs.orphans_of(topic.name)
        ):
            return []
        keys = (TopicPartition(topic.name, each) for each, on in topic.partitions.items() if self.node_id in on)
        return [key.partition for key in keys if key not in self.replicas.partitions and not self.logs.is_unopened(key)]

    def moved_away(self, topic: Topic) -> list[int]:
        """Return the partitions of a topic that are open here and belong to other brokers now."""
        return [
            number
            for number, replicas in topic.partitions.items()
            if self.node_id not in replicas and (topic.name, number) in self.replicas.partitions
        ]

    def has_replicas_of(self, topic: Topic) -> bool:
        """Return True if logs of this topic are here, or belong here."""
        return self.classic.has(topic.name) or any(
            self.node_id in replicas or (topic.name, number) in self.replicas.partitions
            for number, replicas in topic.partitions.items()
        )

    def reopen_topic(self, topic: Topic) -> None:
        """Open the logs of a topic after a start. A failure is reported, and its requests get an error."""
        if self.classic.is_created_classic(topic.name):
            return
        self.replicas.reopen(self._assigned(topic))

    def _assigned(self, topic: Topic) -> list[AssignedReplica]:
        """Return the partitions of a topic that belong to this broker."""
        assigned = []
        for number, replicas in topic.partitions.items():
            if self.node_id in replicas:
                key = TopicPartition(topic.name, number)
                state = self.image.state(key)
                assigned.append(AssignedReplica(key=key, topic_id=topic.topic_id, replicas=replicas, state=state))
        return assigned

    def _opened(self, partition: Partition) -> None:
        key = partition.topic_partition
        self.replicas_changed.add(key.topic)
        self._show(key, partition.log, lambda: partition.high_watermark)

    def _dropped(self, partitions: Sequence[TopicPartition]) -> None:
        self.replicas_changed.update(key.topic for key in partitions)

    def _show(self, key: TopicPartition, log: UnifiedLog, readable_end: Callable[[], int]) -> None:
        """Register the offsets and the size of a partition as metrics (the names of kafka_exporter and of Kafka)."""
        gauge = self.metrics.gauge
        labels = {"topic": key.topic, "partition": str(key.partition)}
        gauge("kafka_topic_partition_current_offset", "High watermark.", readable_end, **labels)
        gauge("kafka_topic_partition_oldest_offset", "Log start offset.", lambda: log.log_start_offset, **labels)
        gauge("kafka_log_log_size", "Bytes in the segments of a log.", lambda: log.size_bytes, **labels)

    def drop_topic(self, topic: Topic) -> bool:
        """Forget a topic, remove its logs, and answer requests that wait.

        Returns False if some logs are still there.
        """
        had_replicas = self.has_replicas_of(topic)
        dropped = self.replicas.drop([TopicPartition(topic.name, number) for number in topic.partitions])
        if self.tiering is not None and had_replicas:
            self.tiering.topic_deleted(topic)
        self.replicas.stats.forget(topic.name)
        self.classic.dropped(topic.name)
        return dropped

    def drop_partitions(self, topic: str, numbers: Iterable[int]) -> None:
        """Forget some partitions of a topic and remove their logs."""
        keys = [TopicPartition(topic, number) for number in numbers]
        self.replicas.drop(keys)
        for key in keys:
            self.metrics.forget(topic=topic, partition=str(key.partition))

    def apply_log_configs(self, topics: Iterable[str]) -> None:
        """Apply the present configuration to the logs of these topics."""
        for name in topics:
            topic = self.image.topics[name]
            config = self.settings.log_config(topic.configs, topic.name)
            for number in topic.partitions:
                log = self.logs.get(TopicPartition(name, number))
                if log is not None:
                    log.update_config(config)
            if self.tiering is not None:
                self.tiering.configs_changed(topic)

    def apply_broker_configs(self) -> None:
        """Apply the present configuration to every log, including those of classic topics that were not created."""
        self.apply_log_configs(self.image.topics)
        for key, log in self.logs.logs().items():
            if key.topic not in self.image.topics and self.classic.has(key.topic):
                log.update_config(self.settings.log_config({FORMAT_KEY: CLASSIC}, key.topic))

    # --- reports

    def failed(self, what: str, error: BaseException) -> None:
        """Report an unexpected error."""
        self.report(f"{what} failed: {type(error).__name__}: {error}")


def _request_quotas(settings: BrokerSettings, clock: Clock) -> RequestQuotas:
    static = settings.static
    return RequestQuotas(
        clock,
        QuotaWindows(samples=static.quota_window_num, window_ms=static.quota_window_size_seconds * 1000.0),
        QuotaWindows(
            samples=static.controller_quota_window_num,
            window_ms=static.controller_quota_window_size_seconds * 1000.0,
        ),
    )


def _replication_settings(settings: BrokerSettings) -> ReplicationSettings:
    static = settings.static
    return ReplicationSettings(
        lag_time_max_ms=static.replica_lag_time_max_ms,
        fetch_wait_max_ms=static.replica_fetch_wait_max_ms,
        fetch_min_bytes=static.replica_fetch_min_bytes,
        fetch_max_bytes=static.replica_fetch_max_bytes,
        fetch_response_max_bytes=static.replica_fetch_response_max_bytes,
        fetch_backoff_ms=static.replica_fetch_backoff_ms,
        hastens_high_watermark=static.replica_selector_class is not None,
        leader_rate=lambda: settings.throttled_rate(leader=True),
        follower_rate=lambda: settings.throttled_rate(leader=False),
        begins_in_tier=lambda: settings.begins_in_tier,
    )
