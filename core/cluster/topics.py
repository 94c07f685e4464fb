"""Topics, partition states and brokers as values, and the rules for topic names."""

import re
from collections.abc import Mapping, Sequence

from attrs import evolve

from ...ports.broker_api.features import SupportedVersionRange
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.types import TopicPartition
from ...ports.values import frozen

TOPIC_NAME_MAX = 249
NO_LEADER = -1
UNKNOWN_EPOCH = -1
ALONE_EPOCH = 0
"""The broker epoch where no other broker can reach the tree."""
CORDONED_KEY, ALL_LOG_DIRS = "cordoned.log.dirs", "*"
"""The setting of a broker whose data folders get no new replicas (KIP-1066), and its value for all of them."""
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise `ApiError(INVALID_TOPIC_EXCEPTION)` for a name that no topic may have (facts D7)."""
    reason = _name_fault(name)
    if reason:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name[:260]!r} {reason}")


def is_topic_name(name: str) -> bool:
    """Return True for a name that a topic may have."""
    return not _name_fault(name)


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
    """Return the topic's name in metrics; two topics may not share it (facts D7)."""
    return topic.replace(".", "_")


@frozen(kw_only=True)
class Topic:
    """A topic.

    `partitions` maps 0, 1, 2... to broker ids, the preferred leader first; `configs` are the topic's own overrides.
    `adding` and `removing`, of partitions that move: which of these brokers come, and which go once they have come.
    `former`: the brokers from which partitions have moved away. One that was down then may still have their logs.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = {}
    adding: Mapping[int, tuple[int, ...]] = {}
    removing: Mapping[int, tuple[int, ...]] = {}
    former: tuple[int, ...] = ()

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0])

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def log_holders(self) -> frozenset[int]:
        """The brokers that may have logs of the topic: its replicas, and former ones."""
        return frozenset(self.former).union(*self.partitions.values())

    def with_configs(self, configs: Mapping[str, str]) -> "Topic":
        """Return the topic with these overrides in place of its own."""
        return evolve(self, configs=dict(configs))

    def with_partitions(self, added: Mapping[int, tuple[int, ...]]) -> "Topic":
        """Return the topic with further partitions."""
        return evolve(self, partitions={**self.partitions, **added})


@frozen
class ReplicaId:
    """One life of a broker: its number, and the epoch that it was registered with. -1: unknown, 0: it is alone."""

    broker_id: int
    broker_epoch: int = UNKNOWN_EPOCH


@frozen
class LastRegistration:
    """The last registration of a broker as a persistent node of the tree has it, and whether it has ended in order."""

    broker_id: int
    broker_epoch: int
    ended: bool = False
    removed: bool = False
    """True if the broker has left the cluster for good since (UnregisterBroker). The node stays: brokers that have seen
    the registration would otherwise take the tree for one that was restored from a backup."""

    @property
    def progress(self) -> tuple[int, bool]:
        """Grows from one node of a broker to the next."""
        return self.broker_epoch, self.ended


@frozen(kw_only=True)
class LifeNote:
    """The note that a broker writes into its data folders when it registers, and when it sees later registrations.

    seen: what the tree had of registrations: this broker's own, and the latest that it has seen of others.
    """

    broker_epoch: int
    seen: tuple[LastRegistration, ...] = ()


@frozen
class LogClaim:
    """The log end report of a replica that may have lost messages: its last leader epoch, and its log end offset."""

    broker_epoch: int
    last_epoch: int
    log_end: int
    lost: bool = False
    """True if the log certainly lacks messages that it had when it was in sync: the disk is newer, or the log on it, or
    the log ended below the high watermark when it was opened."""

    @property
    def extent(self) -> tuple[int, int]:
        """The end of the log, for comparisons: a larger value is a longer log."""
        return self.last_epoch, self.log_end


@frozen(kw_only=True)
class PartitionState:
    """The leader and the in-sync replicas of a partition (facts D1), by broker id; leader -1: there is none."""

    leader: int
    leader_epoch: int
    """Grows by 1 with each change of the leader, also when it is lost."""
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): they left the ISR when it was, or became, smaller than min.insync.replicas,
    and have all that was committed since the high watermark stands still then."""
    suspects: tuple[int, ...] = ()
    """Replicas that were in sync too, but had no clean shutdown since: messages that they had not flushed may be
    lost."""
    broker_epochs: Mapping[int, int] = {}
    """The broker epoch in which each of isr, elr and suspects was in sync."""
    claims: Mapping[int, LogClaim] = {}
    """The log end reports of the replicas, in a partition without leader."""
    partition_epoch: int = 0
    """Grows by 1 with each change of this value."""
    min_isr: int | None = None
    """The `min.insync.replicas` of this state: a message that is committed under it needs an ISR of this size. None: an
    earlier version has written the state, and the leader's own configuration counts."""
    replicas: tuple[int, ...] | None = None
    """The replicas that it holds for, since a reassignment has changed them. None: no reassignment has, or an earlier
    version has written the state; then those of the topic count."""

    def replicas_in(self, assigned: Sequence[int]) -> Sequence[int]:
        """Return the replicas that this state holds for. `assigned`: those of the topic as it is known, which is read
        separately, so it may be older or newer than the state."""
        return assigned if self.replicas is None else self.replicas

    def enough_in_sync(self, replicas: Sequence[int], configured: int) -> int:
        """Return the number of in-sync replicas that make a message committed, at most all replicas (KIP-966)."""
        return min(configured if self.min_isr is None else self.min_isr, len(replicas))

    @property
    def members(self) -> tuple[int, ...]:
        """The replicas of which at least one has every committed message."""
        return tuple(dict.fromkeys((*self.isr, *self.elr, *self.suspects)))


def first_state(replicas: Sequence[int]) -> PartitionState:
    """Return the state of a partition without a stored one: of a broker that is alone, or of an older version's
    tree."""
    return PartitionState(
        leader=replicas[0], leader_epoch=0, isr=tuple(replicas), broker_epochs=dict.fromkeys(replicas, ALONE_EPOCH)
    )


@frozen(kw_only=True)
class BrokerRegistration:
    """A live broker: the addresses that clients reach it by (`kafka://host:port`), and when it started."""

    broker_id: int
    endpoints: tuple[str, ...]
    rack: str | None = None
    started_ms: int = 0
    broker_epoch: int = ALONE_EPOCH
    """The number of the registration, larger than all before."""
    previous_epoch: int = UNKNOWN_EPOCH
    """The broker epoch before, if the broker has lost no data since: its shutdown was clean, or only its session
    ended."""
    leaving: bool = False
    """True in a controlled shutdown: the broker is about to stop, and hands over its leaderships."""
    inter_broker: int = 0
    """The index of the endpoint for other brokers."""
    listener_names: tuple[str, ...] = ()
    """The name of the listener of each endpoint; empty: an older version has registered the broker."""
    min_isr: int | None = None
    """The `min.insync.replicas` in its server.properties, or the default; None: the broker does not register it."""
    offline: frozenset[TopicPartition] = frozenset()
    """Partitions whose logs on this broker are offline: for them it does not count as live."""
    cordoned: bool = False
    """True if all its data folders are cordoned (KIP-1066): it keeps its replicas, and gets no new ones."""
    machine: str | None = None
    """The machine that the broker shares with others (`broker.machine`); None: it has one to itself."""
    features: Mapping[str, SupportedVersionRange] = {}
    """The levels of features that the broker supports; one that is missing, only at the level 0."""
