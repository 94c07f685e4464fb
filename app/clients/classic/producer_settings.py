"""The settings of a classic producer (facts A6), and of a classic simple consumer."""

from collections.abc import Mapping
from typing import ClassVar

from attrs import field
from attrs.validators import ge, in_

from ....ports.values import frozen
from ...config.security_settings import NO_SECURITY, SecuritySettings


@frozen(kw_only=True)
class RegistrySettings:
    """The settings for registries. Times in ms."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "zk.sessiontimeout.ms": "zookeeper_session_timeout_ms",
        "zk.connectiontimeout.ms": "zookeeper_connection_timeout_ms",
        "zk.synctime.ms": "zookeeper_sync_time_ms",
    }
    coordination_settings: Mapping[str, object] = {}
    """The security of the connection to the registries: `zookeeper.*` and `etcd.*`, as for a broker."""
    zookeeper_session_timeout_ms: int = field(default=6000, validator=ge(1))
    """The silence after which the session with ZooKeeper or etcd ends."""
    zookeeper_connection_timeout_ms: int = field(default=0, validator=ge(0))
    """The longest wait for the first connection; 0: a session."""
    zookeeper_sync_time_ms: int = field(default=2000, validator=ge(0))
    """Accepted for old configurations; a producer waits for no follower."""


@frozen(kw_only=True)
class ClassicProducerSettings(RegistrySettings):
    """The names are those of Kafka 0.7 with underscores; sizes in bytes, times in ms."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        **RegistrySettings.ALIASES,
        "queue.enqueueTimeout.ms": "queue_enqueue_timeout_ms",
        "zk.read.num.retries": "zk_read_num_retries",
        "compression.type": "compression_codec",
        "linger.ms": "queue_time",
        "retries": "num_retries",
    }
    broker_list: str = ""
    """The brokers, ID:HOST:PORT,...; in place of registries."""
    zk_connect: str = ""
    """HOST:PORT,.../CHROOT of the ZooKeeper with the registries."""
    etcd_connect: str = ""
    """HOST:PORT,.../PREFIX of the etcd with the registries."""
    client_id: str = "barnabas"
    """The name of the producer in its log."""
    security: SecuritySettings = NO_SECURITY
    """TLS of connections to brokers: `security.protocol` and `ssl.*`."""
    producer_type: str = field(default="sync", validator=in_(("sync", "async")))
    """With sync, `send` returns when the broker has the message; with async messages wait in a queue."""
    encoder: str = "bytes"
    """The encoder of values: bytes, string, json, or a plug-in's."""
    key_encoder: str = "bytes"
    """The encoder of keys, which only the partitioner sees."""
    partitioner: str = ""
    """Default: the key's hash modulo the sorted list of broker partitions, by chance without a key."""
    compression_codec: str = "none"
    """The codec of batches: none (0), gzip (1), snappy (2), or a plug-in's."""
    compressed_topics: tuple[str, ...] = ()
    """With a codec, asynchronous producers compress only these topics; empty = all."""
    num_retries: int = field(default=0, validator=ge(0))
    """The retries of a request whose connection broke, at the same broker; asynchronous only; it may arrive twice."""
    zk_read_num_retries: int = field(default=3, validator=ge(0))
    """The number of further reads of the registries when no broker is found."""
    buffer_size: int = field(default=102_400, validator=ge(1))
    """While more bytes than this wait in a connection to go out, further requests wait before it."""
    connect_timeout_ms: int = field(default=5000, validator=ge(1))
    """The longest wait for a connection."""
    socket_timeout_ms: int = field(default=30_000, validator=ge(1))
    """The longest wait for an answer, where there is one."""
    reconnect_interval: int = field(default=30_000, validator=ge(1))
    """The number of requests after which a connection is replaced."""
    reconnect_time_interval_ms: float = 10_000_000
    """The time after which a connection is replaced; negative = never."""
    max_message_size: int = field(default=1_000_000, validator=ge(1))
    """The largest message."""
    queue_time: float = field(default=5000, validator=ge(0))
    """The longest wait of messages in the queue of an asynchronous producer for a full batch."""
    queue_size: int = field(default=10_000, validator=ge(1))
    """The number of messages that this queue holds."""
    queue_enqueue_timeout_ms: float = 0
    """The longest wait of `send` for a place: 0 = none, negative = for ever; then it raises `QueueFull`."""
    batch_size: int = field(default=200, validator=ge(1))
    """The number of messages in a batch of an asynchronous producer."""
    event_handler: str = ""
    """The plug-in that gets each batch that is about to go out."""
    event_handler_props: Mapping[str, object] = {}
    """The settings of that plug-in."""
    callback_handler: str = ""
    """The plug-in that watches and changes messages on their way."""
    callback_handler_props: Mapping[str, object] = {}
    """The settings of that plug-in."""


@frozen(kw_only=True)
class ClassicConsumerSettings:
    """The settings of a classic simple consumer; sizes in bytes, times in ms."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "max.partition.fetch.bytes": "fetch_size",
        "buffer.size": "socket_buffersize",
        "request.timeout.ms": "socket_timeout_ms",
        "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    }
    client_id: str = "barnabas"
    """The name of the consumer in its log."""
    security: SecuritySettings = NO_SECURITY
    """TLS of connections to brokers: `security.protocol` and `ssl.*`."""
    socket_timeout_ms: int = field(default=30_000, validator=ge(1))
    """The longest wait for an answer."""
    connect_timeout_ms: int = field(default=10_000, validator=ge(1))
    """The longest wait for a connection."""
    socket_buffersize: int = field(default=65_536, validator=ge(1))
    """Accepted for old configurations; the system sizes its own buffers."""
    fetch_size: int = field(default=1_048_576, validator=ge(4))
    """The bytes of a partition that a fetch asks for."""
    fetch_size_max: int = field(default=104_857_600, validator=ge(4))
    """The size up to which a fetch grows for one message that is larger than it."""
    check_crcs: bool = True
    """Whether checksums of messages are verified."""
    skip_damaged: bool = False
    """Skip damaged messages, in readers that report what they leave out: the pipeline's. A fetch raises."""
