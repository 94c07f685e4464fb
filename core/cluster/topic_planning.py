"""Planning of topic changes: rules for names, sizes, replicas and leaders. Nothing is stored here.

Topics are created in two steps, so that a request can be checked without effect (validate_only).
"""

from collections.abc import Mapping, Sequence

from ...ports.broker_api.topics import NewTopic
from ...ports.entropy import Entropy
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.report import counted
from ..tree.tree import DATA_BYTES_MAX
from . import layout
from .assignment import Racks, ReplicaList, assign_added, assign_new_topic, check_counts, check_manual
from .brokers import random_uuid
from .image import ClusterImage
from .topics import Topic, check_topic_name

PARTITIONS_PER_REQUEST_MAX = 10_000


def plan_topic(
    image: ClusterImage,
    new: NewTopic,
    racks: Racks,
    entropy: Entropy,
    *,
    default_partitions: int,
    default_replication_factor: int,
    configs: Mapping[str, str],
) -> Topic:
    """Plan the topic that a request asks for, with a new id. The caller has checked `configs`.

    Raises `ApiError`: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_CONFIG,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION.
    """
    check_new_name(image, new.name)
    if new.assignments is not None:
        if new.partitions != -1 or new.replication_factor != -1:
            text = "an assignment by hand excludes numbers of partitions and replicas; leave them at -1"
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
        partitions = _from_zero(new.assignments, racks)
    else:
        count = default_partitions if new.partitions == -1 else new.partitions
        replicas = default_replication_factor if new.replication_factor == -1 else new.replication_factor
        _check_request_size(count)
        partitions = assign_new_topic(racks, count, replicas, entropy, image.machines())
    topic = Topic(name=new.name, topic_id=_new_id(image, entropy), partitions=partitions, configs=dict(configs))
    node_bytes = _check_fits(topic)
    config_bytes = check_configs_fit(configs)
    if node_bytes + config_bytes > DATA_BYTES_MAX:
        text = f"partitions and configs of topic {topic.name!r} are too large to be stored together"
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{text} ({node_bytes + config_bytes} bytes)")
    return topic


def plan_partitions(
    image: ClusterImage, name: str, count: int, racks: Racks, *, assignments: Sequence[Sequence[int]] | None = None
) -> Topic:
    """Plan the topic with `count` partitions.

    Raises `ApiError`: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, POLICY_VIOLATION.
    """
    topic = image.topic(name)
    present = len(topic.partitions)
    if count <= present:
        text = f"topic {name!r} has {counted(present, 'partition')} already; {count} would not be more"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
    _check_request_size(count - present)
    if assignments is None:
        added = assign_added(racks, topic.partitions, count - present, image.machines())
    else:
        if len(assignments) != count - present:
            text = f"{counted(count - present, 'partition')} to be added, but {len(assignments)} assigned"
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
        checked = check_manual(assignments, racks, replication_factor=topic.replication_factor)
        added = dict(enumerate(checked, present))
    grown = topic.with_partitions(added)
    _check_fits(grown)
    return grown


def check_new_name(image: ClusterImage, name: str) -> None:
    """Raise `ApiError` unless a topic may get this name: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS."""
    check_topic_name(name)
    if name in image.deleting:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} is still being deleted")
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists")
    if name in image.unreadable:
        text = f"{layout.topic_path(name)} in the coordination tree does not describe a topic; remove it first"
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, text)
    other = image.same_in_metrics(name)
    if other is not None:
        text = f"topic name {name!r} collides with {other!r}: '.' and '_' are the same in metrics"
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)


def check_configs_fit(configs: Mapping[str, str]) -> int:
    """Return the encoded size of these configs. Raises `ApiError(INVALID_CONFIG)` for more than a node holds."""
    size = len(layout.encode_configs(configs))
    if size > DATA_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"the configs do not fit into one node ({size} bytes)")
    return size


def _new_id(image: ClusterImage, entropy: Entropy) -> bytes:
    while image.has_id(topic_id := random_uuid(entropy)):
        continue
    return topic_id


def _from_zero(assignments: Mapping[int, Sequence[int]], racks: Racks) -> dict[int, ReplicaList]:
    check_counts(len(assignments), 1, max(1, len(racks)))
    _check_request_size(len(assignments))
    if sorted(assignments) != list(range(len(assignments))):
        text = f"partitions are numbered 0, 1, 2...; the assignment has {sorted(assignments)[:20]}"
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)
    ordered = [assignments[partition] for partition in range(len(assignments))]
    return dict(enumerate(check_manual(ordered, racks)))


def _check_request_size(partitions: int) -> None:
    if partitions > PARTITIONS_PER_REQUEST_MAX:
        text = f"{partitions} partitions at once are too many; at most {PARTITIONS_PER_REQUEST_MAX}"
        raise ApiError(ErrorCode.POLICY_VIOLATION, text)


def _check_fits(topic: Topic) -> int:
    size = len(layout.encode_topic(topic, deleting=True))
    if size > DATA_BYTES_MAX:
        text = f"the partitions and replicas of topic {topic.name!r} do not fit into one node ({size} bytes)"
        raise ApiError(ErrorCode.INVALID_PARTITIONS, text)
    return size
