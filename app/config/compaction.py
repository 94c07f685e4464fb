"""Compaction is not built yet: whoever asks for it is told so, instead of a log that only grows."""

from collections.abc import Mapping

from ...core.cluster.topics import INTERNAL_TOPICS
from ...ports.errors import ConfigError

COMPACT = "compact"
TOPIC_POLICY = "cleanup.policy"
BROKER_POLICY = "log.cleanup.policy"


def check_no_compaction(
    after: Mapping[str, str], before: Mapping[str, str] | None = None, *, key: str = TOPIC_POLICY, topic: str = ""
) -> None:
    """Raise `ConfigError` where settings newly ask for compaction.

    The broker's own topics are compacted ones by name, as with Kafka: nothing of them is ever deleted.
    """
    if topic in INTERNAL_TOPICS or not _compacts(after.get(key)) or _compacts((before or {}).get(key)):
        return
    text = "this broker does not compact logs yet; take delete, with retention.ms=-1 where nothing may be lost"
    raise ConfigError(f"{key}={after[key]}: {text}")


def _compacts(policy: str | None) -> bool:
    return policy is not None and COMPACT in (item.strip() for item in policy.split(","))
