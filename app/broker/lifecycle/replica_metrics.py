"""The metrics of a broker's replicas, by Kafka's names (ReplicaManager)."""

from collections.abc import Callable, Collection, Iterable

from ....core.cluster.features import offered
from ....core.cluster.topics import NO_LEADER
from ....core.replica.partition.partition import Partition
from ....ports.metrics import Metrics
from ..state.broker_state import BrokerState

_PREFIX = "kafka_server_replicamanager"
_LATE_MS = 300_000
"""The time beyond the longest transaction timeout after which a transaction is late, as in Kafka."""


def under_replicated(partitions: Collection[Partition]) -> int:
    """Return the number of partitions led here of which a replica is not in sync."""
    return _count(partitions, lambda each: each.is_leader and len(each.isr) < len(each.replicas))


def show_replicas(state: BrokerState) -> None:
    """Register the metrics; their values are computed when they are read."""
    partitions = state.replicas.partitions

    def count(name: str, text: str, counts: Callable[[Partition], bool]) -> None:
        state.metrics.gauge(f"{_PREFIX}_{name}", text, lambda: _count(partitions.values(), counts))

    count("partitioncount", "Partitions that are on this broker.", lambda _: True)
    count("leadercount", "Partitions that this broker leads.", lambda each: each.is_leader)
    state.metrics.gauge(
        f"{_PREFIX}_underreplicatedpartitions",
        "Partitions led here of which a replica is not in sync.",
        lambda: under_replicated(partitions.values()),
    )
    count(
        "underminisrpartitioncount",
        "Partitions led here with fewer replicas in sync than min.insync.replicas.",
        lambda each: each.is_leader and each.under_min_isr,
    )
    count(
        "atminisrpartitioncount",
        "Partitions led here with as many replicas in sync as min.insync.replicas.",
        lambda each: each.is_leader and len(each.isr) == each.min_isr,
    )
    late_ms = state.settings.static.transaction_max_timeout_ms + _LATE_MS
    count(
        "partitionswithlatetransactionscount",
        "Partitions led here with a transaction that its coordinator should have ended.",
        lambda each: each.is_leader and _is_late(each, state.clock.now_ms() - late_ms),
    )
    count("offlinereplicacount", "Partitions here whose leader is unknown.", _has_no_leader)
    if state.is_alone:
        show_controller(state.metrics, lambda: True, lambda: _count(partitions.values(), _has_no_leader))
    state.metrics.gauges(
        "kafka_server_metadataloader_finalizedlevel",
        "Finalized levels of features (KIP-1180).",
        ("featureName",),
        lambda: [((name,), float(state.image.features.level(name))) for name in sorted(offered())],
    )
    state.metrics.gauge(
        "kafka_server_replicafetchermanager_maxlag",
        "The most messages that a follower is behind a leader here.",
        lambda: max((_lag(each) for each in partitions.values()), default=0),
    )


def show_controller(metrics: Metrics, is_active: Callable[[], bool], offline: Callable[[], int]) -> None:
    """Register the metrics of the controller; a broker without others is the controller."""
    prefix = "kafka_controller_kafkacontroller"
    text = "1 where this broker is the controller."
    metrics.gauge(f"{prefix}_activecontrollercount", text, lambda: float(is_active()))
    text = "Partitions without a leader, as the controller counts them."
    metrics.gauge(f"{prefix}_offlinepartitionscount", text, lambda: float(offline() if is_active() else 0))


def _has_no_leader(partition: Partition) -> bool:
    return partition.leader == NO_LEADER


def _count(partitions: Iterable[Partition], counts: Callable[[Partition], bool]) -> int:
    return sum(1 for each in partitions if counts(each))


def _is_late(partition: Partition, before_ms: int) -> bool:
    silent_since = partition.log.producers.oldest_open_seen_ms()
    return silent_since is not None and silent_since < before_ms


def _lag(partition: Partition) -> int:
    end = partition.log.log_end_offset
    return max((end - max(0, each.log_end) for each in partition.followers or ()), default=0)
