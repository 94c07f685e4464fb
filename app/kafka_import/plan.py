"""The plan of an import: the topics, the replica of each partition, and the settings. Nothing is written."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from attrs import evolve, field

from ...core.cluster import layout
from ...core.cluster.brokers import random_uuid
from ...core.cluster.features import SUPPORTED, newest_levels
from ...core.cluster.topics import INTERNAL_TOPICS, check_topic_name
from ...core.kraft.image import KraftImage
from ...core.security.acl import ResourcePattern, check_acl, encode_acls, is_concrete
from ...core.security.quotas.entities import check_alteration, entity_name
from ...core.security.scram_users import encode_credential
from ...ports.broker_api.acls import AclBinding
from ...ports.broker_api.configs import ConfigAlteration, ConfigResource, ResourceKind
from ...ports.broker_api.quotas import QuotaAlteration, QuotaOp
from ...ports.entropy import Entropy
from ...ports.errors import ApiError, ConfigError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ...ports.values import frozen
from ..config import BrokerConfig
from ..config.classic import CLASSIC, FORMAT_KEY
from ..config.dynamic_config import alter_broker_configs, alter_group_configs
from ..config.topic_config import check_topic_configs, layers_of
from .source import KafkaFolder, Replica

_ALL_BROKERS = ConfigResource(kind=ResourceKind.BROKER, name="")
_METADATA_VERSION = "metadata.version"


@frozen(kw_only=True)
class PlannedTopic:
    """A topic, and where the data of each partition comes from; a partition without a replica begins empty.

    `refused` says why the topic cannot be imported; empty: it can.
    """

    name: str
    topic_id: bytes
    partition_count: int
    configs: Mapping[str, str] = {}
    replicas: Mapping[int, Replica] = {}
    placement: Mapping[int, tuple[int, ...]] = {}
    """The brokers here that get each partition; the first one leads it."""
    leader_epochs: Mapping[int, int] = {}
    """The leader epoch of each partition here, larger than any before."""
    legacy: Mapping[int, Collection[int]] = {}
    """The base offsets of the segments, by partition, with messages from before Kafka 0.11, which are converted."""
    refused: str = ""

    @property
    def legacy_count(self) -> int:
        """The number of segments that are converted."""
        return sum(map(len, self.legacy.values()))

    @property
    def is_classic(self) -> bool:
        """True for a topic of Kafka 0.7, which the coordination tree does not know."""
        return self.configs.get(FORMAT_KEY) == CLASSIC

    @property
    def missing(self) -> Sequence[int]:
        """The partitions whose folder is not among those given. Kafka 0.7 makes a folder with the first message."""
        if self.is_classic:
            return []
        return [number for number in range(self.partition_count) if number not in self.replicas]


@frozen(kw_only=True)
class ImportPlan:
    """`entities` are nodes of security and group settings by kind and name; `notes` say what is left out, and why."""

    cluster_id: str | None
    topics: Sequence[PlannedTopic]
    broker_configs: Mapping[str, str]
    entities: Mapping[tuple[layout.EntityKind, str], Mapping[str, object]] = field(repr=False)
    features: Mapping[str, int]
    next_producer_id: int | None
    """None: no metadata log says which producer ids were given out."""
    notes: Sequence[str]

    @property
    def refusals(self) -> Sequence[PlannedTopic]:
        """The topics that cannot be imported."""
        return [topic for topic in self.topics if topic.refused]

    def without_refused(self) -> "ImportPlan":
        """Return the plan without the topics that cannot be imported."""
        return evolve(self, topics=[topic for topic in self.topics if not topic.refused])


def plan_import(
    folders: Sequence[KafkaFolder],
    image: KraftImage | None,
    config: BrokerConfig,
    entropy: Entropy,
    report: Callable[[str], None],
    brokers: Sequence[int],
    known_ids: Mapping[str, bytes],
) -> ImportPlan:
    """Decide what these brokers import. Raises `ConfigError` for folders of several clusters, `StorageError`.

    `known_ids` has ids that an interrupted import has made for topics.
    """
    cluster_id = _common_cluster(folders)
    found: dict[TopicPartition, list[Replica]] = {}
    for folder in folders:
        for replica in folder.replicas(report):
            found.setdefault(replica.partition, []).append(replica)
    planner = _Planner(config, entropy, brokers, known_ids)
    topics = planner.topics_of(image, found) if image is not None else planner.topics_of_folders(found)
    next_producer_id = None if image is None else image.next_producer_id
    if image is None:
        planner.notes.append(
            "no folder has a metadata log (__cluster_metadata-0): settings of topics, ACLs, SCRAM credentials and "
            "quotas are in ZooKeeper; give --zookeeper, or set them again"
        )
        image = KraftImage()
    return ImportPlan(
        cluster_id=cluster_id,
        topics=topics,
        broker_configs=planner.broker_configs_of(image),
        entities=planner.entities_of(image),
        features=planner.features_of(image) if image.features else newest_levels(),
        next_producer_id=next_producer_id,
        notes=[*planner.notes, *_legacy_notes(topics), *_skipped_notes(image)],
    )


def topic_ids_of(
    folders: Sequence[KafkaFolder], entropy: Entropy, known_ids: Mapping[str, bytes]
) -> Callable[[str], bytes]:
    """Return a function that finds the topic id in the folders of a topic, or among those known, or makes one."""
    known = dict(known_ids) | {
        found.partition.topic: found.topic_id
        for folder in folders
        for found in folder.partitions
        if found.topic_id is not None
    }
    return lambda name: known.get(name) or random_uuid(entropy)


def _common_cluster(folders: Iterable[KafkaFolder]) -> str | None:
    """Return the cluster id; None where no folder has one that Barnabas can have, too."""
    known = {folder.cluster_id: folder.path for folder in folders if folder.cluster_id is not None}
    if len(known) > 1:
        which = ", ".join(f"{path} to {name}" for name, path in known.items())
        raise ConfigError(f"the folders belong to several clusters: {which}; import each into a folder of its own")
    for cluster_id in known:
        try:
            layout.decode_id(cluster_id)
        except ValueError:
            return None
        return cluster_id
    return None


def _legacy_notes(topics: Sequence[PlannedTopic]) -> list[str]:
    converted = [topic for topic in topics if topic.legacy]
    if not converted:
        return []
    count = counted(sum(topic.legacy_count for topic in converted), "segment")
    return [
        f"{count} of {counted(len(converted), 'topic')} with messages from before Kafka 0.11 (formats 0 and 1): "
        "the copy has record batches with the same offsets, timestamps, keys, values and codecs; it is never a hard "
        "link"
    ]


def _skipped_notes(image: KraftImage) -> list[str]:
    notes = [f"{counted(count, 'metadata record')} left out: {what}" for what, count in sorted(image.skipped.items())]
    if image.tokens:
        notes.append(
            f"{counted(len(image.tokens), 'delegation token')} left out: they are made from a secret that no folder "
            "has; clients ask for new ones"
        )
    return notes


class _Planner:
    def __init__(
        self, config: BrokerConfig, entropy: Entropy, brokers: Sequence[int], known_ids: Mapping[str, bytes]
    ) -> None:
        self._config = config
        self._known_ids = known_ids
        self._brokers = brokers
        self._placed = 0
        self._entropy = entropy
        self.notes: list[str] = []

    # --- topics

    def topics_of(self, image: KraftImage, found: Mapping[TopicPartition, Sequence[Replica]]) -> list[PlannedTopic]:
        """Return the topics of the metadata log."""
        planned = []
        used: set[TopicPartition] = set()
        for topic in sorted(image.topics.values(), key=lambda each: each.name):
            replicas: dict[int, Replica] = {}
            epochs: dict[int, int] = {}
            for number, state in sorted(topic.partitions.items()):
                key = TopicPartition(topic.name, number)
                used.add(key)
                own = [each for each in found.get(key, ()) if each.found.topic_id in (None, topic.topic_id)]
                chosen = _best(own, state.leader)
                if chosen is not None:
                    replicas[number] = chosen
                epochs[number] = max(state.leader_epoch, chosen.epoch if chosen is not None else -1) + 1
            configs = self._topic_configs(topic.name, image.configs_of(ResourceKind.TOPIC, topic.name))
            wanted = {number: state.replicas for number, state in topic.partitions.items()}
            planned.append(self._planned(topic.name, topic.topic_id, wanted, configs, replicas, epochs))
        strays = sorted(str(each.path) for key, some in found.items() if key not in used for each in some)
        if strays:
            self.notes.append(
                f"{counted(len(strays), 'folder')} of partitions that the metadata log does not know left out, such as "
                f"{strays[0]}"
            )
        return planned

    def topics_of_folders(self, found: Mapping[TopicPartition, Sequence[Replica]]) -> list[PlannedTopic]:
        """Return the topics that have folders, for a cluster whose metadata is in ZooKeeper."""
        by_topic: dict[str, dict[int, Replica]] = {}
        shared = {key.topic for key, some in found.items() if len(some) > 1}
        for key, some in sorted(found.items()):
            chosen = some[0] if some[0].found.format_name == CLASSIC else _best(some, -1)
            if chosen is not None:
                by_topic.setdefault(key.topic, {})[key.partition] = chosen
        planned = []
        for name, replicas in by_topic.items():
            labels = {each.found.topic_id for each in replicas.values()} - {None}
            topic_id = labels.pop() if len(labels) == 1 else None
            formats = {each.found.format_name for each in replicas.values()}
            configs = {FORMAT_KEY: CLASSIC} if formats == {CLASSIC} else self._internal_configs(name)
            epochs = {number: each.epoch + 1 for number, each in replicas.items()}
            made = topic_id or self._known_ids.get(name) or random_uuid(self._entropy)
            holders = {number: _holders(found.get(TopicPartition(name, number), ())) for number in replicas}
            wanted = {number: holders.get(number, ()) for number in range(max(replicas) + 1)}
            topic = self._planned(name, made, wanted, configs, replicas, epochs)
            if labels:
                topic = evolve(topic, refused="its folders are of different topics of this name")
            elif topic.is_classic and name in shared:
                text = "each broker of Kafka 0.7 has partitions of its own: import each into a folder of its own"
                topic = evolve(topic, refused=text)
            planned.append(topic)
        return planned

    def _planned(
        self,
        name: str,
        topic_id: bytes,
        wanted: Mapping[int, Sequence[int]],
        configs: Mapping[str, str],
        replicas: Mapping[int, Replica],
        epochs: Mapping[int, int],
    ) -> PlannedTopic:
        return PlannedTopic(
            name=name,
            topic_id=topic_id,
            partition_count=len(wanted),
            configs=configs,
            replicas=replicas,
            placement={number: self._place(by) for number, by in wanted.items()},
            leader_epochs=epochs,
            legacy={
                number: found
                for number, each in replicas.items()
                if each.found.format_name != CLASSIC and (found := each.legacy_segments())
            },
            refused=_why_refused(name, replicas.values()),
        )

    def _place(self, kafkas: Sequence[int]) -> tuple[int, ...]:
        """Return one broker for each of Kafka's replicas, or all brokers if they are fewer: first those with the ids of
        Kafka's, then others in turn."""
        count = min(max(1, len(kafkas)), len(self._brokers))
        chosen = [each for each in kafkas if each in self._brokers][:count]
        if len(chosen) < count:
            first = self._placed % len(self._brokers)
            self._placed += 1
            others = [*self._brokers[first:], *self._brokers[:first]]
            chosen += [each for each in others if each not in chosen][: count - len(chosen)]
        return tuple(chosen)

    def _internal_configs(self, name: str) -> Mapping[str, str]:
        return {"cleanup.policy": "compact"} if name in INTERNAL_TOPICS else {}

    def _topic_configs(self, topic: str, configs: Mapping[str, str]) -> dict[str, str]:
        usable: dict[str, str] = {}
        for key, value in sorted(configs.items()):
            try:
                usable |= check_topic_configs({key: value})
            except ApiError as error:
                self.notes.append(f"topic {topic}: {key}={value} left out: {error.message}")
        if usable.get("remote.storage.enable") == "true":
            self.notes.append(f"topic {topic}: segments in the remote tier of Kafka are not imported, only local ones")
        return usable

    # --- settings

    def features_of(self, image: KraftImage) -> dict[str, int]:
        """Return the finalized levels, as far as this version supports the features; Kafka's is not raised."""
        levels = {}
        for name, level in sorted(image.features.items()):
            supported = SUPPORTED.get(name)
            if supported is None:
                if name not in (_METADATA_VERSION, "kraft.version") and level:
                    self.notes.append(f"feature {name} at level {level} left out: Barnabas has no such feature")
                continue
            levels[name] = min(level, supported.max_version)
        return {name: level for name, level in levels.items() if level > 0}

    def broker_configs_of(self, image: KraftImage) -> dict[str, str]:
        """Return the settings of all brokers; those of single brokers are of their machines."""
        usable: dict[str, str] = {}
        for key, value in sorted(image.configs_of(ResourceKind.BROKER, "").items()):
            change = ConfigAlteration(resource=_ALL_BROKERS, name=key, value=value)
            try:
                usable = alter_broker_configs(usable, [change], self._config, everywhere=True)
            except (ApiError, ConfigError) as error:
                self.notes.append(f"setting {key} of all brokers left out: {error}")
        own = sorted(name for kind, name in image.configs if kind == ResourceKind.BROKER and name)
        if own:
            self.notes.append(f"settings of single brokers ({', '.join(own)}) left out: set them again where needed")
        others = sum(1 for kind, _ in image.configs if kind == ResourceKind.CLIENT_METRICS)
        if others:
            self.notes.append(f"{counted(others, 'subscription')} to client metrics left out")
        return usable

    def entities_of(self, image: KraftImage) -> dict[tuple[layout.EntityKind, str], Mapping[str, object]]:
        """Return the nodes of users, ACLs, quotas and settings of groups."""
        entities: dict[tuple[layout.EntityKind, str], Mapping[str, object]] = {}
        for user, credentials in image.users.items():
            if credentials:
                encoded = {mechanism: encode_credential(each) for mechanism, each in credentials.items()}
                entities[layout.EntityKind.USERS, user] = encoded
        for pattern, acls in self._usable_acls(image.acls.values()).items():
            entities[layout.EntityKind.ACLS, str(pattern)] = encode_acls(acls)
        for key, limits in image.quotas.items():
            usable = self._usable_limits(dict(key), limits)
            if usable:
                entities[layout.EntityKind.QUOTAS, entity_name(dict(key))] = {"entity": dict(key), "limits": usable}
        for kind, name in image.configs:
            if kind == ResourceKind.GROUP and name:
                configs = self._group_configs(name, image.configs_of(ResourceKind.GROUP, name))
                if configs:
                    entities[layout.EntityKind.GROUP_CONFIGS, name] = {"configs": configs}
        return entities

    def _usable_acls(self, acls: Collection[AclBinding]) -> dict[ResourcePattern, list[AclBinding]]:
        by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
        for acl in acls:
            try:
                check_acl(acl)
            except ApiError as error:
                self.notes.append(f"an ACL of {acl.principal} left out: {error.message}")
                continue
            if not is_concrete(acl):
                self.notes.append(f"an ACL of {acl.principal} left out: it is a filter")
                continue
            by_pattern.setdefault(ResourcePattern.of(acl), []).append(acl)
        return by_pattern

    def _usable_limits(self, entity: Mapping[str, str | None], limits: Mapping[str, float]) -> dict[str, float]:
        usable = {}
        for key, value in limits.items():
            try:
                check_alteration(QuotaAlteration(entity=entity, ops=[QuotaOp(key=key, value=value)]))
                usable[key] = value
            except ApiError as error:
                self.notes.append(f"quota {key}={value:g} of {entity} left out: {error.message}")
        return usable

    def _group_configs(self, group: str, configs: Mapping[str, str]) -> dict[str, str]:
        usable: dict[str, str] = {}
        for key, value in sorted(configs.items()):
            change = ConfigAlteration(
                resource=ConfigResource(kind=ResourceKind.GROUP, name=group), name=key, value=value
            )
            try:
                usable = alter_group_configs(usable, [change], layers_of(self._config))
            except (ApiError, ConfigError) as error:
                self.notes.append(f"group {group}: {key}={value} left out: {error}")
        return usable


def _holders(replicas: Sequence[Replica]) -> Sequence[int]:
    """Return the brokers of Kafka that have these folders, -1 for one without a number."""
    numbers = (each.source.broker_id for each in replicas)
    return [-1 if each is None else each for each in numbers]


def _best(replicas: Sequence[Replica], leader: int) -> Replica | None:
    """Return the replica with the highest leader epoch, then the highest end offset, then the one on the leader.

    Replicas that are behind lack what the others have; one with an older epoch may have what was never committed.
    """
    if len(replicas) < 2:
        return replicas[0] if replicas else None
    newest = max(each.epoch for each in replicas)
    current = [each for each in replicas if each.epoch == newest]
    return max(current, key=lambda each: (each.log_end(), each.source.broker_id == leader))


def _why_refused(name: str, replicas: Iterable[Replica]) -> str:
    formats = {each.found.format_name for each in replicas}
    try:
        if formats != {CLASSIC}:
            check_topic_name(name)
    except ApiError as error:
        return error.message
    if len(formats) > 1:
        return "its folders hold logs of both generations"
    return ""
