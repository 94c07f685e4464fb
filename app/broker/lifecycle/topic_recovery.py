"""Recovery of topics from the partition folders, for a coordination tree that has lost them."""

from collections.abc import Callable, Mapping, Sequence

from attrs import evolve

from ....core.cluster import layout, topic_store
from ....core.cluster.brokers import cluster_id, live_brokers
from ....core.cluster.features import newest_levels
from ....core.cluster.producer_ids import BLOCK_SIZE, LEFT_OUT, largest_given_out, skip_to
from ....core.cluster.registry import ClusterRegistry
from ....core.cluster.topic_planning import PARTITIONS_PER_REQUEST_MAX, plan_topic
from ....core.cluster.topics import PartitionState, Topic, first_state
from ....core.log.manager.meta_properties import check_common_cluster
from ....core.log.manager.survey import PartitionOnDisk, find_partitions
from ....ports.broker_api.topics import NewTopic
from ....ports.coordination import Coordination
from ....ports.entropy import Entropy
from ....ports.errors import ApiError, ConfigError
from ....ports.report import Report, counted
from ....ports.storage import LogDir
from ....ports.values import frozen
from ...config import BrokerConfig
from ...config.classic import CLASSIC, FORMAT_KEY
from ..handlers.internal_topics import as_it_must_be
from .data_folders import known_identities

CREATE, GROW, REFUSE = "create", "grow", "refuse"


@frozen(kw_only=True)
class FoundTopic:
    """The recovery of one topic; `topic` is None where none is possible, for the reason in `note`."""

    name: str
    action: str
    note: str = ""
    topic: Topic | None = None
    states: Mapping[int, PartitionState] = {}


@frozen(kw_only=True)
class Recovery:
    """The data that the tree lacks. `producer_ids_from` is None where no producer id could be assigned twice."""

    broker_id: int
    cluster_id: str | None
    topics: Sequence[FoundTopic]
    producer_ids_from: int | None


def plan_recovery(
    log_dirs: Sequence[LogDir], config: BrokerConfig, registry: ClusterRegistry, entropy: Entropy, report: Report
) -> Recovery:
    """Compare the folders with the tree, and change nothing. Raises `ConfigError`, `StorageError`."""
    identities = known_identities(log_dirs, config.broker_id)
    by_topic: dict[str, list[PartitionOnDisk]] = {}
    seen = set()
    for log_dir in log_dirs:
        for found in find_partitions(log_dir, report):
            if found.partition in seen:
                report(f"{found.path} is in another data folder as well; this one does not count")
                continue
            seen.add(found.partition)
            by_topic.setdefault(found.partition.topic, []).append(found)
    planner = _Planner(config, registry, entropy, report)
    planned = [planner.plan(name, folders) for name, folders in sorted(by_topic.items())]
    topics = [each for each in planned if each is not None]
    largest = max((found.largest_producer_id() for folders in by_topic.values() for found in folders), default=-1)
    given_out = largest_given_out(registry.coordination)
    is_behind = bool(topics) and (given_out is None or given_out < largest)
    return Recovery(
        broker_id=config.broker_id,
        cluster_id=check_common_cluster(identities),
        topics=topics,
        producer_ids_from=(largest // BLOCK_SIZE + 1) * BLOCK_SIZE + LEFT_OUT if is_behind else None,
    )


class _Planner:
    def __init__(self, config: BrokerConfig, registry: ClusterRegistry, entropy: Entropy, report: Report) -> None:
        self._config = config
        self._broker_id = config.broker_id
        self._image = registry.image
        self._entropy = entropy
        self._report = report

    def plan(self, name: str, folders: Sequence[PartitionOnDisk]) -> FoundTopic | None:
        """Return the recovery of a topic; None where the tree is complete, or the folders cannot show otherwise."""
        labels = {found.topic_id for found in folders if found.topic_id is not None}
        formats = {found.format_name for found in folders}
        known = self._image.topics.get(name)
        if name in self._image.deleting or (known is None and formats == {CLASSIC} and not labels):
            return None
        if len(formats) > 1:
            return FoundTopic(name=name, action=REFUSE, note="its folders hold logs of both generations")
        if len(labels) > 1:
            topic_ids = ", ".join(f"{found.partition.partition}: {_shown(found.topic_id)}" for found in folders)
            return FoundTopic(name=name, action=REFUSE, note=f"its folders are of different topics ({topic_ids})")
        count = max(found.partition.partition for found in folders) + 1
        if count > PARTITIONS_PER_REQUEST_MAX:
            return FoundTopic(name=name, action=REFUSE, note=f"a partition {count - 1} is more than is possible")
        label = next(iter(labels), None)
        return self._grown(known, count, label) if known is not None else self._made(name, folders, count, label)

    def _grown(self, known: Topic, count: int, label: bytes | None) -> FoundTopic | None:
        present = len(known.partitions)
        if label is not None and label != known.topic_id:
            note = (
                f"the tree has another topic of this name, {_shown(known.topic_id)}; the folders are of {_shown(label)}"
            )
            return FoundTopic(name=known.name, action=REFUSE, note=note)
        if count <= present:
            return None
        grown = known.with_partitions(dict.fromkeys(range(present, count), (self._broker_id,)))
        return FoundTopic(
            name=known.name, action=GROW, note=f"the tree has {counted(present, 'partition')} of it", topic=grown
        )

    def _made(self, name: str, folders: Sequence[PartitionOnDisk], count: int, label: bytes | None) -> FoundTopic:
        is_classic = folders[0].format_name == CLASSIC
        new = NewTopic(
            name=name,
            assignments={number: [self._broker_id] for number in range(count)},
            configs={FORMAT_KEY: CLASSIC} if is_classic else {},
        )
        new = as_it_must_be(new, self._config, 1)
        try:
            topic = plan_topic(
                self._image,
                new,
                {self._broker_id: self._config.broker_rack},
                self._entropy,
                default_partitions=1,
                default_replication_factor=1,
                configs={key: value for key, value in new.configs.items() if value is not None},
            )
        except ApiError as error:
            return FoundTopic(name=name, action=REFUSE, note=error.message)
        notes = [] if label is not None else ["no folder has its topic id; it gets a new one"]
        missing = sorted(set(range(count)) - {found.partition.partition for found in folders})
        if missing and not is_classic:
            notes.append(f"no folder of {', '.join(map(str, missing[:10]))}{', ...' if len(missing) > 10 else ''}")
        return FoundTopic(
            name=name,
            action=CREATE,
            note="; ".join(notes),
            topic=topic if label is None else evolve(topic, topic_id=label),
            states=self._states(folders),
        )

    def _states(self, folders: Sequence[PartitionOnDisk]) -> dict[int, PartitionState]:
        """Return the states of partitions that had another leader before: a leader epoch never decreases."""
        epochs = {found.partition.partition: found.latest_epoch(self._report) for found in folders}
        return {
            number: evolve(first_state((self._broker_id,)), leader_epoch=epoch + 1)
            for number, epoch in epochs.items()
            if epoch > 0
        }


def check_no_live_brokers(coordination: Coordination, report: Callable[[str], None]) -> None:
    """Raise `ConfigError` while a broker uses the tree, which knows its topics then."""
    live = live_brokers(coordination, report)
    if live:
        broker_ids = ", ".join(str(broker.broker_id) for broker in live)
        text = f"the coordination tree is in use by the brokers {broker_ids}; stop them first"
        raise ConfigError(f"{text} (if one died, wait for its session to end)")


def carry_out(plan: Recovery, registry: ClusterRegistry, entropy: Entropy) -> None:
    """Write the missing data into the tree; this can be repeated after an interruption.

    Raises `CoordinationError`, `ApiError`.
    """
    coordination = registry.coordination
    if plan.cluster_id is not None:
        cluster_id(coordination, entropy, plan.cluster_id, newest_levels())
    if plan.producer_ids_from is not None:
        skip_to(coordination, plan.broker_id, plan.producer_ids_from)
    for found in plan.topics:
        if found.topic is None:
            continue
        if found.action == CREATE:
            topic_store.create_topic(coordination, found.topic, found.states)
        else:
            topic_store.write_topic(coordination, found.topic)


def _shown(topic_id: bytes | None) -> str:
    return "-" if topic_id is None else layout.encode_id(topic_id)
