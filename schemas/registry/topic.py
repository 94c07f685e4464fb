"""The topic `_schemas`: made when it is missing, refused when it would lose schemas."""

from __future__ import annotations

from ...app.clients.admin.admin import Admin
from ...ports.broker_api.configs import ResourceKind
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError

REPLICAS = 3


def prepare_topic(admin: Admin, topic: str) -> bytes:
    """Have the topic: one partition, compacted; returns its id, empty where brokers tell none.

    Raises `ConfigError` when there is another one of that name.
    """
    if not _is_there(admin, topic):
        replicas = min(REPLICAS, len(admin.describe_cluster().brokers))
        try:
            admin.create_topic(topic, partitions=1, replication_factor=replicas, configs={"cleanup.policy": "compact"})
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:  # another registry was quicker
                raise
    return _check(admin, topic)


def _is_there(admin: Admin, topic: str) -> bool:
    try:
        admin.describe_topics([topic])
    except ApiError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        raise
    return True


def _check(admin: Admin, topic: str) -> bytes:
    found = admin.describe_topics([topic])[0]
    partitions = len(found.partitions)
    if partitions != 1:
        raise ConfigError(f"topic {topic} has {partitions} partitions, and schemas need one: give another topic")
    (policy,) = admin.describe_configs(ResourceKind.TOPIC, topic, ["cleanup.policy"])
    if policy.value != "compact":
        why = f"topic {topic} has cleanup.policy={policy.value}, which would delete schemas"
        raise ConfigError(f"{why}: barnabas configs set cleanup.policy=compact --topic {topic}")
    return found.topic_id if any(found.topic_id) else b""
