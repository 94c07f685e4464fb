"""The status of a cluster: its brokers, and the partitions that are not healthy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from ....ports.errors import BarnabasError
from ....ports.values import frozen

if TYPE_CHECKING:
    from ....ports.broker_api.cluster import DescribeClusterResult, LogDirDescription
    from ....ports.broker_api.metadata import PartitionMetadata, TopicMetadata
    from ....ports.broker_api.replicas import OngoingReassignment
    from ...clients.admin.admin import Admin

NO_NODE = -1
"""The broker id where there is no leader or controller (Kafka: Node.noNode)."""
DOWN = "down"
"""The problem of a broker that is not registered in the cluster."""


@frozen(kw_only=True)
class BrokerStatus:
    """`lag`: total number of messages that its replicas lack; None like `bytes` if it does not answer (`problem`)."""

    id: int
    address: str | None
    rack: str | None
    controller: bool
    leaders: int
    replicas: int
    in_sync: int
    bytes: int | None
    lag: int | None
    problem: str | None = None
    cordoned: bool = False
    """True if it gets no new replicas (`barnabas brokers drain`)."""

    @property
    def state(self) -> str:
        """The state for a person."""
        return self.problem or ("up, cordoned" if self.cordoned else "up")


@frozen(kw_only=True)
class PartitionStatus:
    """An unhealthy partition. `lags`: number of messages that each replica lacks, if its broker answers."""

    topic: str
    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    lags: Mapping[int, int]


@frozen(kw_only=True)
class ClusterStatus:
    cluster_id: str
    controller: int
    brokers: Sequence[BrokerStatus]
    topics: int
    partitions: int
    offline: Sequence[PartitionStatus]
    """Partitions without a leader: they accept and return no messages."""
    under_replicated: Sequence[PartitionStatus]
    """Partitions with a replica out of sync."""
    reassignments: Sequence[OngoingReassignment]
    internal: Mapping[str, int] = attrs.field(factory=dict)
    """The number of partitions of each internal topic."""

    @property
    def healthy(self) -> bool:
        """Return True if every partition has a leader and all its replicas in sync, and every broker answers."""
        absent = any(broker.problem for broker in self.brokers)
        return not (self.offline or self.under_replicated or absent) and self.controller != NO_NODE


@frozen(kw_only=True)
class ClusterAnswers:
    """The answers of the brokers: `folders` of each that answered; `problems` of the others."""

    cluster: DescribeClusterResult
    topics: Sequence[TopicMetadata]
    folders: Mapping[int, Sequence[LogDirDescription]]
    problems: Mapping[int, str]
    reassignments: Sequence[OngoingReassignment]

    @property
    def status(self) -> ClusterStatus:
        return status_of(self.cluster, self.topics, self.folders, self.problems, self.reassignments)


def ask_status(admin: Admin) -> ClusterStatus:
    """Ask the cluster, and return its status. Raises as `ask_cluster`."""
    return ask_cluster(admin).status


def ask_cluster(admin: Admin) -> ClusterAnswers:
    """Ask the cluster, and each of its brokers. Raises `BarnabasError` when the cluster itself cannot be asked."""
    cluster = admin.describe_cluster()
    topics = admin.describe_topics()
    folders: dict[int, Sequence[LogDirDescription]] = {}
    problems: dict[int, str] = {}
    for broker in cluster.brokers:
        try:
            folders[broker.node_id] = admin.describe_log_dirs([broker.node_id])[broker.node_id]
        except BarnabasError as error:
            problems[broker.node_id] = str(error)
    return ClusterAnswers(
        cluster=cluster,
        topics=topics,
        folders=folders,
        problems=problems,
        reassignments=admin.list_reassignments(),
    )


def status_of(
    cluster: DescribeClusterResult,
    topics: Sequence[TopicMetadata],
    folders: Mapping[int, Sequence[LogDirDescription]],
    problems: Mapping[int, str],
    reassignments: Sequence[OngoingReassignment],
) -> ClusterStatus:
    """Compute the status. `folders`: data folders of each broker that answered; `problems`: errors of the others."""
    lags = _lags(folders)
    partitions = [(str(topic.name), partition) for topic in topics for partition in topic.partitions]
    return ClusterStatus(
        cluster_id=cluster.cluster_id,
        controller=cluster.controller_id,
        brokers=_brokers(cluster, [partition for _, partition in partitions], folders, problems),
        topics=len(topics),
        partitions=len(partitions),
        offline=[_partition(name, p, lags) for name, p in partitions if p.leader == NO_NODE],
        under_replicated=[_partition(name, p, lags) for name, p in partitions if len(p.isr) < len(p.replicas)],
        reassignments=reassignments,
        internal={str(topic.name): len(topic.partitions) for topic in topics if topic.internal},
    )


def _lags(folders: Mapping[int, Sequence[LogDirDescription]]) -> dict[tuple[str, int], dict[int, int]]:
    lags: dict[tuple[str, int], dict[int, int]] = {}
    for broker, described in sorted(folders.items()):
        for replica in (replica for folder in described for replica in folder.replicas if not replica.is_future):
            lags.setdefault((replica.topic, replica.partition), {})[broker] = replica.lag
    return lags


def _partition(
    name: str, partition: PartitionMetadata, lags: Mapping[tuple[str, int], dict[int, int]]
) -> PartitionStatus:
    return PartitionStatus(
        topic=name,
        partition=partition.partition,
        leader=partition.leader,
        replicas=tuple(partition.replicas),
        isr=tuple(partition.isr),
        lags=lags.get((name, partition.partition), {}),
    )


def _brokers(
    cluster: DescribeClusterResult,
    partitions: Sequence[PartitionMetadata],
    folders: Mapping[int, Sequence[LogDirDescription]],
    problems: Mapping[int, str],
) -> list[BrokerStatus]:
    """Return the live brokers, and those that are only known from replicas."""
    leaders = Counter(partition.leader for partition in partitions)
    replicas = Counter(broker for partition in partitions for broker in partition.replicas)
    in_sync = Counter(broker for partition in partitions for broker in partition.isr)
    there = {broker.node_id: broker for broker in cluster.brokers}
    found = []
    for broker in sorted({*there, *replicas}):
        node = there.get(broker)
        held = [replica for folder in folders.get(broker, ()) for replica in folder.replicas]
        broken = [folder for folder in folders.get(broker, ()) if folder.error]
        problem = problems.get(broker) if node is not None else DOWN
        if problem is None and broken:
            problem = ", ".join(f"{folder.path}: {folder.error.name}" for folder in broken)
        found.append(
            BrokerStatus(
                id=broker,
                address=f"{node.host}:{node.port}" if node is not None else None,
                rack=node.rack if node is not None else None,
                controller=broker == cluster.controller_id,
                leaders=leaders[broker],
                replicas=replicas[broker],
                in_sync=in_sync[broker],
                bytes=sum(replica.size_bytes for replica in held) if broker in folders else None,
                lag=sum(replica.lag for replica in held) if broker in folders else None,
                problem=problem,
                cordoned=broker in folders and all(folder.is_cordoned for folder in folders[broker]),
            )
        )
    return found
