"""The settings of a classic consumer: the names and defaults of 0.7 (facts A8), and a few of our own."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field
from attrs.validators import ge, in_

from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.errors import BarnabasError
from ....ports.values import frozen

_RESETS = {"smallest": EARLIEST, "earliest": EARLIEST, "largest": LATEST, "latest": LATEST, "none": None}


class ConsumerTimeout(BarnabasError, TimeoutError):
    """No message came within `consumer.timeout.ms`; the stream can be iterated on."""

    __module__ = "barnabas"


class ConsumerRebalanceFailed(BarnabasError):
    """The group did not agree within `rebalance.retries.max` attempts, or the registries could not be reached.

    Making the message streams raises it when the first rebalance fails: the connector is shut down then. Later every
    stream raises it once. The consumer stays in its group and continues to read what it still owns; the next change
    that it sees makes it try again: of the group, a topic, the brokers, its session, or of the owner that was in its
    way.
    """

    __module__ = "barnabas"


@frozen(kw_only=True)
class ConnectorSettings:
    """Times in ms, sizes in bytes. Each field is the dotted name of 0.7 with underscores."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "group.id": "groupid",
        "auto.offset.reset": "autooffset_reset",
        "connect.timeout.ms": "socket_connection_setup_timeout_ms",
        "zookeeper.session.timeout.ms": "zk_sessiontimeout_ms",
        "zookeeper.connection.timeout.ms": "zk_connectiontimeout_ms",
    }
    groupid: str = ""
    """The group of consumers that share the partitions."""
    zk_connect: str = ""
    """HOST:PORT,.../CHROOT of the ZooKeeper with the registries."""
    etcd_connect: str = ""
    """HOST:PORT,.../PREFIX of the etcd with the registries."""
    coordination_settings: Mapping[str, object] = {}
    """The security of the connection to the registries: `zookeeper.*` and `etcd.*`, as for a broker."""
    client_id: str = "barnabas"
    """The name of the consumer in its log."""
    consumerid: str = ""
    """The consumer id instead of a generated one; for tests. Two consumers of one group must not share it."""
    socket_timeout_ms: int = field(default=30_000, validator=ge(1))
    """The longest wait for an answer."""
    socket_buffersize: int = field(default=65_536, validator=ge(1))
    """Accepted, without effect: the transport sizes its own buffers."""
    socket_connection_setup_timeout_ms: int = field(default=10_000, validator=ge(1))
    """The longest wait for a connection."""
    reconnect_backoff_ms: float = field(default=50, validator=ge(0))
    """The wait before a broker that could not be reached is tried again; it doubles."""
    reconnect_backoff_max_ms: float = field(default=1000, validator=ge(0))
    """The longest such wait."""
    fetch_size: int = field(default=1_048_576, validator=ge(1))
    """The bytes of a partition that a fetch asks for."""
    fetch_size_max: int = field(default=67_108_864, validator=ge(1))
    """Ours: the size up to which a fetch of one partition grows for a single message larger than `fetch.size`."""
    fetch_max_bytes: int = field(default=52_428_800, validator=ge(1))
    """Ours: the bytes that one request asks for in all; further partitions wait for the next one."""
    fetcher_backoff_ms: float = field(default=1000, validator=ge(0))
    """The pause of a fetcher whose partitions had nothing."""
    autocommit_enable: bool = True
    """Commit automatically what was handed out, at an interval and at the end."""
    autocommit_interval_ms: float = field(default=10_000, validator=ge(1))
    """The interval of `autocommit.enable`."""
    autooffset_reset: str = field(default="smallest", validator=in_(tuple(_RESETS)))
    """The start position without an offset, or with one out of range; `none` raises that in the stream."""
    queuedchunks_max: int = field(default=10, validator=ge(1))
    """Chunks that wait per stream. What was asked for before it was full still comes: one more per partition."""
    rebalance_retries_max: int = field(default=4, validator=ge(1))
    """The attempts at a rebalance before `ConsumerRebalanceFailed`."""
    rebalance_strategy: str = "range"
    """Ours: the `Rebalancer` that shares out the partitions, by its name; the same for all members of a group."""
    consumer_timeout_ms: float = -1
    """The longest wait of a stream for a message before it raises `ConsumerTimeout`; -1 = for ever."""
    shallowiterator_enable: bool = False
    """Streams give the outer messages as stored, compressed wrappers unopened."""
    check_crcs: bool = True
    """Whether checksums of messages are verified."""
    decoder: str = "bytes"
    """The decoder of values: bytes, string, json, or a plug-in's."""
    zk_sessiontimeout_ms: int = field(default=6000, validator=ge(1))
    """The silence after which the session with ZooKeeper or etcd ends; the others share the partitions then."""
    zk_connectiontimeout_ms: int = field(validator=ge(1))
    """The longest wait for the first connection. Default: a session."""
    zk_synctime_ms: float = field(default=2000, validator=ge(0))
    """The delay that a ZooKeeper follower may have; also the default wait of a rebalance."""
    rebalance_backoff_ms: float = field(validator=ge(0))
    """The wait before a rebalance is tried again. Default: `zk.synctime.ms`."""
    mirror_topics_whitelist: str = ""
    """Accepted, without effect, as in 0.7.1 and later; so are the next two."""
    mirror_topics_blacklist: str = ""
    """Accepted, without effect."""
    mirror_consumer_numthreads: int = 1
    """Accepted, without effect."""

    zk_suspended_stop_ms: float = field(validator=ge(-1))
    """Ours: how long a consumer without connection to the registries hands out messages; then it waits for the
    connection, since its session may end and another own its partitions. Default: a third of the session; -1: for
    ever, as in 0.7."""

    @zk_suspended_stop_ms.default
    def _a_third_of_the_session(self) -> float:
        return self.zk_sessiontimeout_ms / 3  # clients notice a silent service after two thirds

    @zk_connectiontimeout_ms.default
    def _as_the_session(self) -> int:
        return self.zk_sessiontimeout_ms

    @rebalance_backoff_ms.default
    def _as_the_sync_time(self) -> float:
        return self.zk_synctime_ms

    @property
    def reset_time_ms(self) -> int | None:
        """The time to ask the broker for if there is no offset: EARLIEST or LATEST; None: that is an error."""
        return _RESETS[self.autooffset_reset]
