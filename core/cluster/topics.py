"""Topics, partition states and brokers as values, and the rules for topic names."""

import re
from collections.abc import Mapping, Sequence

from attrs import evolve

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen

TOPIC_NAME_MAX = 249
NO_LEADER = -1
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `ApiError(INVALID_TOPIC_EXCEPTION)` for a name that no topic may have (facts D7)."""
    reason = _name_fault(name)
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:260]!r} {reason}")


def check_not_internal(name: str, why: str) -> None:
    """Raise `ApiError(INVALID_TOPIC_EXCEPTION)` for a topic that belongs to the broker itself."""
    if name in INTERNAL_TOPICS:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} belongs to the broker itself: {why}")


def _name_fault(name: str) -> str:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "is the name of a folder"
    if len(name) > TOPIC_NAME_MAX:
        return f"is longer than {TOPIC_NAME_MAX} characters"
    if not _LEGAL_NAME.fullmatch(name):
        return "has characters other than letters, digits, '.', '_' and '-'"
    return ""


def metric_name(topic: str) -> str:
    """What the topic is called in metrics; two topics may not share it (facts D7)."""
    return topic.replace(".", "_")


@frozen(kw_only=True)
class Topic:
    """A topic.

    `partitions` maps 0, 1, 2... to broker ids, the preferred leader first; `configs` are the topic's own overrides.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = {}

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0])

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def with_configs(self, configs: Mapping[str, str]) -> "Topic":
        """The topic with these overrides in place of its own."""
        return evolve(self, configs=dict(configs))

    def with_partitions(self, added: Mapping[int, tuple[int, ...]]) -> "Topic":
        """The topic with further partitions."""
        return evolve(self, partitions={**self.partitions, **added})


@frozen(kw_only=True)
class PartitionState:
    """Who leads a partition and who is in sync (facts D1). `version`: of the stored node, None before the first."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int = 0
    version: int | None = None


def first_state(replicas: Sequence[int]) -> PartitionState:
    """The state of a partition whose replicas were all alive when it was made; stored only once it changes."""
    return PartitionState(leader=replicas[0], leader_epoch=0, isr=tuple(replicas))


@frozen(kw_only=True)
class BrokerRegistration:
    """A live broker: the addresses that clients reach it by (`kafka://host:port`), and when it started."""

    broker_id: int
    endpoints: tuple[str, ...]
    rack: str | None = None
    started_ms: int = 0
