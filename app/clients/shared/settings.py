"""Client settings under their dotted names: Kafka's, librdkafka's and those of 0.7 (facts A6, A8)."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

import attrs
from attrs import field, fields
from attrs.validators import ge, in_

from ....core.client.consumer.subscription_state import Reset
from ....ports.errors import ConfigError
from ....ports.values import Secret, frozen
from ...config.coordination_keys import is_coordination_key, read_coordination_settings
from ...config.security_settings import (
    NO_SECURITY,
    SecuritySettings,
    check_security,
    is_security_key,
)
from .foreign_settings import BOOTSTRAP_KEYS, COUNTERPARTS, IGNORED, OTHER_NAMES, REFUSED, dotted_name, own_settings

logger = logging.getLogger("barnabas.client")

T = TypeVar("T")
AttrsT = TypeVar("AttrsT", bound=attrs.AttrsInstance)

RETRIES_MAX = 2_147_483_647
IDEMPOTENT_IN_FLIGHT_MAX = 5
"""The number of batches of a producer that a broker remembers, to recognise duplicates."""


def copy_settings(kind: type[AttrsT], source: attrs.AttrsInstance, **renamed: Any) -> AttrsT:
    """Make the settings of one part of a client from those of the client, field by field of the same name.

    `renamed` has the fields that `source` has under another name; fields that are in neither keep their defaults.
    """
    there = {each.name for each in attrs.fields(type(source))}
    same = {name: getattr(source, name) for name in attrs.fields_dict(kind) if name in there}
    return kind(**{**same, **renamed})


def _known_acks(_settings: object, _field: object, value: int) -> None:
    if value not in (-1, 0, 1):
        raise ValueError(f"'acks' must be 0, 1 or \"all\" (got {value})")


@frozen(kw_only=True)
class CommonSettings:
    """The settings of every client. Times in ms, sizes in bytes."""

    client_id: str = "barnabas"
    """The name of the client in requests, logs and metrics of brokers."""
    request_timeout_ms: int = field(default=30_000, validator=ge(1))
    """The time that the client waits for a response; then it repeats the request, or the request has failed."""
    socket_connection_setup_timeout_ms: int = field(default=10_000, validator=ge(1))
    """The time that the setup of a connection may take."""
    retry_backoff_ms: float = field(default=100, validator=ge(0))
    """The wait before a request is repeated; it doubles with each failure in a row."""
    retry_backoff_max_ms: float = field(default=1000, validator=ge(0))
    """The longest wait before a request is repeated."""
    reconnect_backoff_ms: float = field(default=50, validator=ge(0))
    """The wait before the next connection to a broker that could not be reached; it doubles with each failure."""
    reconnect_backoff_max_ms: float = field(default=1000, validator=ge(0))
    """The longest wait before the next connection."""
    metadata_max_age_ms: float = field(default=300_000, validator=ge(1))
    """The age of metadata (topics and leaders) at which the client requests it again."""
    default_api_timeout_ms: int = field(default=60_000, validator=ge(1))
    """The whole time that a call waits for its result, with all attempts and the waits between them."""
    security: SecuritySettings = NO_SECURITY
    """TLS and SASL of connections: `security.protocol`, `ssl.*` and `sasl.*`."""


@frozen(kw_only=True)
class ProducerSettings(CommonSettings):
    """The settings of a producer: batches and delivery."""

    acks: int = field(default=-1, validator=_known_acks)
    """The replicas that must have a message: 0 none (no acknowledgement), 1 the leader, -1 or all the whole ISR."""
    compression_type: str = "none"
    """The codec of batches: none, gzip, snappy, lz4, zstd, or a plug-in's."""
    compressed_topics: tuple[str, ...] = ()
    """With a codec: compress only these topics; empty = all."""
    linger_ms: float = field(default=5, validator=ge(0))
    """The time that a batch that is not full waits for more messages."""
    batch_size: int = field(default=262_144, validator=ge(1))
    """About how many bytes go into a batch before compression. A batch of one message may be larger."""
    batch_num_messages: int = field(default=10_000, validator=ge(1))
    """The most messages that go into a batch."""
    buffer_memory: int = field(default=33_554_432, validator=ge(1))
    """The most bytes of messages that may wait for their delivery."""
    queue_buffering_max_messages: int = field(default=1_000_000, validator=ge(1))
    """The most messages that may wait for their delivery."""
    max_block_ms: float = 60_000
    """The time that `send` waits for room: 0 = not at all, negative = for ever; then it raises `QueueFull`. A message
    waits as long for the metadata of its topic, unless `delivery.timeout.ms` is less, or this is 0 or negative."""
    max_request_size: int = field(default=1_048_576, validator=ge(1))
    """The largest message, and how many bytes of batches one request carries, about."""
    max_in_flight_requests_per_connection: int = field(default=5, validator=ge(1))
    """The most requests that wait for a broker's response at a time."""
    retries: int = field(default=RETRIES_MAX, validator=ge(0))
    """The most retries of a batch, within `delivery.timeout.ms`."""
    delivery_timeout_ms: float = field(default=120_000, validator=ge(1))
    """A message that is not delivered within this time after `send` has failed."""
    enable_idempotence: bool | None = None
    """Retries neither duplicate nor reorder messages (facts B2); unset: if acks, retries and in-flight allow it."""
    transactional_id: str | None = None
    """Makes a transactional producer; it fences the producer that had the id before."""
    transaction_timeout_ms: int = field(default=60_000, validator=ge(1))
    """The coordinator aborts a transaction that stays open for longer than this, and fences its producer."""
    producer_type: str = field(default="async", validator=in_(("sync", "async")))
    """With sync, `send` returns when the message has arrived."""
    allow_auto_create_topics: bool = True
    """Whether a topic that is missing may be made by the broker."""
    encoder: str = "bytes"
    """The encoder of values: bytes, string, json, or a plug-in's."""
    key_encoder: str = "bytes"
    """The encoder of keys: bytes, string, json, or a plug-in's."""
    partitioner: str = "murmur2"
    """The partitioner of messages without a partition: murmur2 (as Kafka's Java clients), another, or a plug-in's."""
    event_handler: str = ""
    """The plug-in that gets each batch that is about to go out."""
    event_handler_props: Mapping[str, object] = {}
    """The properties that the event handler receives."""
    callback_handler: str = ""
    """The plug-in that watches and changes messages on their way."""
    callback_handler_props: Mapping[str, object] = {}
    """The properties that the callback handler receives."""

    def __attrs_post_init__(self) -> None:
        transactional = self.transactional_id is not None
        if transactional and self.enable_idempotence is False:
            raise ValueError("transactional.id needs enable.idempotence, which is false; leave one of them out")
        if (self.enable_idempotence or transactional) and not self._allows_idempotence:
            key, way_out = (
                ("transactional.id", "leave it out") if transactional else ("enable.idempotence", "set it to false")
            )
            raise ValueError(
                f"{key} needs acks=all, retries > 0 and max.in.flight.requests.per.connection of at most "
                f"{IDEMPOTENT_IN_FLIGHT_MAX}; {way_out}, or set those"
            )

    @property
    def idempotent(self) -> bool:
        """Whether batches have sequence numbers."""
        return self._allows_idempotence if self.enable_idempotence is None else self.enable_idempotence

    @property
    def _allows_idempotence(self) -> bool:
        in_flight = self.max_in_flight_requests_per_connection
        return self.acks == -1 and self.retries > 0 and in_flight <= IDEMPOTENT_IN_FLIGHT_MAX


@frozen(kw_only=True)
class FetchSettings(CommonSettings):
    """The settings of fetches, for `SimpleConsumer` and `Consumer`."""

    fetch_min_bytes: int = field(default=1, validator=ge(0))
    """A broker with fewer bytes waits before it answers."""
    fetch_max_wait_ms: int = field(default=500, validator=ge(0))
    """The longest time that a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int = field(default=52_428_800, validator=ge(1))
    """About how many bytes an answer carries."""
    max_partition_fetch_bytes: int = field(default=1_048_576, validator=ge(1))
    """About how many bytes an answer carries of one partition."""
    max_poll_records: int = field(default=500, validator=ge(1))
    """The most messages that `poll_many` returns, unless a call names its own limit."""
    auto_offset_reset: Reset = Reset.LATEST
    """The start of reading when no offset is committed, or when the position is out of range: earliest, latest, or none
    (an error)."""
    isolation_level: int = 0
    """With read_committed, the reader gets no messages of open or aborted transactions."""
    check_crcs: bool = True
    """Whether the checksums of batches are verified."""
    skip_damaged: bool = False
    """Skip damaged records, and report which they are; otherwise `CorruptRecord` is raised where they begin."""
    consumer_timeout_ms: float = -1
    """The time that iteration waits for a message before it ends; -1 = for ever."""
    allow_auto_create_topics: bool = False
    """Whether a topic that is missing may be made by the broker."""
    decoder: str = "bytes"
    """The decoder of values: bytes, string, json, or a plug-in's."""
    key_decoder: str = "bytes"
    """The decoder of keys: bytes, string, json, or a plug-in's."""


@frozen(kw_only=True)
class ConsumerSettings(FetchSettings):
    """The settings of a consumer: fetches and group membership. Defaults are Kafka's."""

    group_id: str = ""
    """The consumer group to join, or to commit offsets for; empty = none."""
    group_instance_id: str = ""
    """Makes a static member: its return with this id within the session timeout causes no rebalance (KIP-345)."""
    group_protocol: str = field(default="auto", validator=in_(("classic", "consumer", "auto")))
    """The protocol of the group: `classic`, or `consumer` (KIP-848: the coordinator assigns, without a stop of all).
    `auto`: the latter where the cluster offers it, unless a setting or the group needs the former."""
    group_remote_assignor: str = ""
    """The assignor of the coordinator, `uniform` or `range`, with `group.protocol=consumer`; empty = its choice."""
    enable_auto_commit: bool = True
    """Commit offsets of processed messages automatically: at an interval, before partitions are revoked, on closing."""
    auto_commit_interval_ms: float = field(default=5000, validator=ge(0))
    """The interval of automatic commits."""
    partition_assignment_strategy: tuple[Any, ...] = ("range", "cooperative-sticky")
    """Names, or objects with the methods of an `Assignor`, in the order of preference."""
    session_timeout_ms: int = field(default=45_000, validator=ge(1))
    """The group removes a member whose heartbeats stop for this time."""
    heartbeat_interval_ms: int = field(default=3000, validator=ge(1))
    """The time between two heartbeats of a member; less than `session.timeout.ms`."""
    max_poll_interval_ms: int = field(default=300_000, validator=ge(1))
    """A member that asks for no messages for this time leaves the group; a rebalance waits as long for a member."""
    exclude_internal_topics: bool = True
    """Whether a pattern ignores internal topics."""
    client_rack: str = ""
    """The rack of the consumer, for brokers that choose a near replica (`replica.selector.class`)."""

    def __attrs_post_init__(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms ({self.heartbeat_interval_ms}) must be less than session.timeout.ms "
                f"({self.session_timeout_ms}); a third of it is usual"
            )
        if self.group_instance_id and not self.group_id:
            raise ValueError("group.instance.id needs a group.id")
        classic_only = self._classic_only()
        if self.group_protocol == "consumer" and classic_only:
            raise ValueError(f"{classic_only[0]} cannot be set with group.protocol=consumer: the brokers decide on it")
        if self.group_protocol == "classic" and self.group_remote_assignor:
            raise ValueError("group.remote.assignor needs group.protocol=consumer; see partition.assignment.strategy")

    @property
    def joins_by(self) -> str:
        """The group protocol, without `auto` where settings mean only something to the classic one."""
        return "classic" if self.group_protocol == "auto" and self._classic_only() else self.group_protocol

    def _classic_only(self) -> list[str]:
        """Return the keys of settings, other than their defaults, that only the classic protocol has."""
        defaults = {each.name: each.default for each in fields(ConsumerSettings)}
        names = ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms")
        return [name.replace("_", ".") for name in names if getattr(self, name) != defaults[name]]


@frozen(kw_only=True)
class ShareConsumerSettings(CommonSettings):
    """The settings of a share consumer (KIP-932). Defaults are Kafka's."""

    group_id: str = ""
    """The share group to join; needed."""
    share_acknowledgement_mode: str = field(default="implicit", validator=in_(("implicit", "explicit")))
    """implicit: who asks for more messages has processed the earlier ones. explicit: the user calls `acknowledge` for
    each message."""
    share_acquire_mode: str = field(default="batch_optimized", validator=in_(("batch_optimized", "record_limit")))
    """batch_optimized: a leader hands out whole record batches, and so more than `max.poll.records` at times;
    record_limit: never more, one after the other (Apache Kafka 4.2)."""
    max_poll_records: int = field(default=500, validator=ge(1))
    """About how many records a fetch acquires, and the most that `poll_many` returns if a call has no limit."""
    max_poll_interval_ms: int = field(default=300_000, validator=ge(1))
    """A member that asks for no messages for this time leaves the group, until it asks again."""
    fetch_min_bytes: int = field(default=1, validator=ge(0))
    """A broker with fewer bytes waits before it answers."""
    fetch_max_wait_ms: int = field(default=500, validator=ge(0))
    """The longest time that a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int = field(default=52_428_800, validator=ge(1))
    """About how many bytes an answer carries."""
    check_crcs: bool = True
    """Whether the checksums of batches are verified."""
    consumer_timeout_ms: float = -1
    """The time that iteration waits for a message before it ends; -1 = for ever."""
    client_rack: str = ""
    """The rack of the consumer."""
    decoder: str = "bytes"
    """The decoder of values: bytes, string, json, or a plug-in's."""
    key_decoder: str = "bytes"
    """The decoder of keys: bytes, string, json, or a plug-in's."""

    def __attrs_post_init__(self) -> None:
        if not self.group_id:
            raise ValueError("a ShareConsumer needs a group.id: the name of its share group")


def _integer(value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return int(value)
    except (TypeError, ValueError):
        raise ValueError("expected a whole number") from None


def _number(value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("expected a number") from None


def _boolean(value: Any) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}
    text = str(value).strip().lower()
    if text not in known:
        raise ValueError("expected true or false")
    return known[text]


def _acks(value: Any) -> int:
    text = str(value).strip().lower()
    try:
        return -1 if text == "all" else int(text)
    except ValueError:
        raise ValueError('expected 0, 1 or "all"') from None


def _codec(value: Any) -> str:
    return {"0": "none", "1": "gzip", "2": "snappy"}.get(str(value), str(value))  # the numbers are 0.7's


def _names(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    return tuple(name.strip() for name in parts if name.strip())


def _cipher_suites(value: Any) -> tuple[str, ...]:
    return _names(value.replace(":", ",") if isinstance(value, str) else value)  # OpenSSL separates them by colons


def _reset(value: Any) -> Reset:
    known = {"earliest": Reset.EARLIEST, "smallest": Reset.EARLIEST, "beginning": Reset.EARLIEST}
    known |= {"latest": Reset.LATEST, "largest": Reset.LATEST, "end": Reset.LATEST, "none": Reset.NONE}
    known |= {"error": Reset.NONE}  # librdkafka's
    if isinstance(value, Reset):
        return value
    if str(value).startswith("by_duration:"):
        raise ValueError("give the time to assign(timestamp_ms=...) or seek_to_time(), or earliest, latest or none")
    if value not in known:
        raise ValueError("expected earliest, latest or none")
    return known[value]


def _strategies(value: Any) -> tuple[Any, ...]:
    several = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else [value]
    chosen = tuple(_strategy_of(each) for each in several if not isinstance(each, str) or each != "")
    if not chosen:
        raise ValueError("expected the name of a strategy, or several")
    return chosen


def _strategy_of(value: Any) -> Any:
    """Return the short name of an assignor of Kafka's Java classes, kafka-python or aiokafka; others as they are."""
    if not isinstance(value, str):
        module = getattr(value if isinstance(value, type) else type(value), "__module__", "")
        is_foreign = module.partition(".")[0] in ("kafka", "aiokafka") and isinstance(value.name, str)
        return value.name if is_foreign else value
    name = value.strip()
    classes = {
        "RangeAssignor": "range",
        "RoundRobinAssignor": "roundrobin",
        "StickyAssignor": "sticky",
        "CooperativeStickyAssignor": "cooperative-sticky",
    }
    return classes.get(name.removeprefix("org.apache.kafka.clients.consumer."), name)


def isolation_level_of(value: Any) -> int:
    """Return the number of an isolation level. Raises `ValueError`."""
    known = {"read_uncommitted": 0, "read_committed": 1, "0": 0, "1": 1}
    if str(value) not in known:
        raise ValueError("expected read_uncommitted or read_committed")
    return known[str(value)]


def _encoder_name(value: Any) -> str:
    classes = {
        "DefaultEncoder": "bytes",
        "StringEncoder": "string",
        "DefaultDecoder": "bytes",
        "StringDecoder": "string",
    }
    classes |= {
        f"{kind}{end}": name
        for kind, name in (("ByteArray", "bytes"), ("Bytes", "bytes"), ("String", "string"))
        for end in ("Serializer", "Deserializer")
    }
    name = str(value)
    short = name.removeprefix("kafka.serializer.").removeprefix("org.apache.kafka.common.serialization.")
    return classes.get(short, name)


def _partitioner_name(value: Any) -> str:
    classes = {
        "kafka.producer.DefaultPartitioner": "classic",
        "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
        "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
        "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "murmur2",
    }
    return classes.get(str(value), str(value))


def _retries(value: Any) -> int:
    return RETRIES_MAX if value == math.inf else _integer(value)  # kafka-python's default


def _delivery_timeout(value: Any) -> float:
    return float(value) or RETRIES_MAX  # 0 is librdkafka's "for ever"


def _consumer_timeout(value: Any) -> float:
    return -1 if float(value) == math.inf else float(value)  # kafka-python's default


def _properties(value: Any) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping")
    return value


def _upper(value: Any) -> str:
    return str(value).strip().upper()


def _lower(value: Any) -> str:
    return str(value).strip().lower()


def _endpoint_identification(value: Any) -> str:
    """Return Kafka's text; kafka-python's `ssl_check_hostname` is a truth value."""
    text = str(value).strip().lower()
    return {"true": "https", "false": "none"}.get(text, text)


def _secret(value: Any) -> Secret[str]:
    if isinstance(value, Secret):
        return value
    if not isinstance(value, str):
        raise TypeError("expected a string")
    return Secret(value)


def _security(value: Any) -> SecuritySettings:
    if not isinstance(value, SecuritySettings):
        raise TypeError("expected SecuritySettings")
    return value


def _id(value: Any) -> str:
    if not str(value).strip():
        raise ValueError("expected a name")
    return str(value)


def _token_provider(value: Any) -> Any:
    if value is not None and not callable(value) and not callable(getattr(value, "token", None)):
        raise ValueError("expected a callable that returns a token, or an object with a method token")
    return value


def _ssl_context(value: Any) -> Any:
    import ssl

    if not isinstance(value, ssl.SSLContext):
        raise TypeError("expected an ssl.SSLContext")
    if value.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise ValueError("expected the context of a client, as ssl.create_default_context() makes it")
    return value


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "ssl_context": _ssl_context,
    "coordination_settings": dict,
    "sasl_oauth_token_provider": _token_provider,
    "acks": _acks,
    "retries": _retries,
    "delivery_timeout_ms": _delivery_timeout,
    "consumer_timeout_ms": _consumer_timeout,
    "transactional_id": _id,
    "enable_idempotence": _boolean,
    "partition_assignment_strategy": _strategies,
    "compression_type": _codec,
    "compression_codec": _codec,
    "partitioner": _partitioner_name,
    "compressed_topics": _names,
    "auto_offset_reset": _reset,
    "isolation_level": isolation_level_of,
    "encoder": _encoder_name,
    "key_encoder": _encoder_name,
    "decoder": _encoder_name,
    "key_decoder": _encoder_name,
    "event_handler_props": _properties,
    "callback_handler_props": _properties,
    "security": _security,
    "group_protocol": _lower,
    "share_acknowledgement_mode": _lower,
    "share_acquire_mode": _lower,
    "security_protocol": _upper,
    "sasl_mechanism": _upper,
    "ssl_truststore_type": _upper,
    "ssl_keystore_type": _upper,
    "ssl_endpoint_identification_algorithm": _endpoint_identification,
    "ssl_enabled_protocols": _names,
    "ssl_cipher_suites": _cipher_suites,
}
_BY_TYPE: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    float: _number,
    bool: _boolean,
    str: str,
    Secret[str]: _secret,
}

_GROUPS = "only a Consumer is a member of groups"
_REFUSED = {
    "zk.connect": "clients of the current generation are given the brokers' addresses, not ZooKeeper's",
    "broker.list": "give the brokers' addresses as the client's first argument",
    "group.id": _GROUPS,
    "groupid": _GROUPS,
    "transactional.id": "only producers of the current generation have transactions",
}
"""Keys of other generations or clients, with the reason why this one cannot have them."""
_SECURITY, _COORDINATION = "security", "coordination_settings"  # fields
_OF_SHARE_GROUPS = {
    "auto.offset.reset": "share.auto.offset.reset",
    "isolation.level": "share.isolation.level",
    "session.timeout.ms": "share.session.timeout.ms",
    "heartbeat.interval.ms": "share.heartbeat.interval.ms",
}
"""Settings of a consumer that are those of the group for a share consumer, with their names there."""
_ONLY_FALSE = {"enable.idempotence": "only producers of the current generation are idempotent"}

_CLASSIC_PRODUCER = {
    "producer.type", "queue.time", "queue.size", "queue.enqueueTimeout.ms", "serializer.class", "compressed.topics",
}  # fmt: skip


def read_settings(kind: type[T], config: Mapping[str, Any] | None, given: Mapping[str, Any], *, prefix: str = "") -> T:
    """Read settings from a mapping and from keyword arguments, which win; None counts as not given.

    Names are those of Kafka and of its other clients (see `foreign_settings`), with dots or underscores; one warning
    lists those without effect. A mapping may be shared by a producer, a consumer and an admin client: each of them
    leaves out the settings of the others. `batch.size` counts bytes, as in Kafka; with a key that only 0.7 has
    (`queue.time`, `producer.type`, ...) it counts messages, as there. A kind may have `ALIASES` of its own, dotted name
    → field. Raises `ConfigError` naming the key, with `prefix` before it as the user writes it, and the nearest known
    one if it is unknown.
    """
    fields = {attribute.name: attribute for attribute in attrs.fields(kind)}  # type: ignore[arg-type]  # an attrs class
    known = _known_keys(kind)

    def is_own(key: str) -> bool:
        return key in known

    config, notes = own_settings(config or {}, is_own, prefix=prefix)
    given, more_notes = own_settings(given, is_own, separator="_")
    config = {key: value for key, value in config.items() if dotted_name(key) not in BOOTSTRAP_KEYS}
    if _SECURITY in fields:
        config, given = _with_security(config, given, prefix)
    if _COORDINATION in fields:
        config, given = _with_coordination(config, given)
    if "batch.size" in config and "batch_num_messages" in fields and _CLASSIC_PRODUCER & config.keys():
        config["batch.num.messages"] = config.pop("batch.size")
    found: dict[str, Any] = {}
    names: dict[str, str] = {}
    strays: list[str] = []
    for key, value in config.items():
        named = f"{prefix}{key}"
        if key not in known:
            if kind in _SHARING and not prefix and _owner(key):
                strays.append(key)
            else:
                _refuse(kind, key, value, named, _hint(key, known, prefix))
            continue
        found[known[key]] = _parse(named, fields[known[key]], value)
        names[known[key]] = named
    for name, value in given.items():
        field_name = name if name in fields else known.get(dotted_name(name))
        if field_name is None:
            _refuse(kind, dotted_name(name), value, name, _hint(name, fields))
            continue
        found[field_name] = _parse(name, fields[field_name], value)
    settings = _make(kind, found, names)
    if strays:
        notes = [*notes, f"{', '.join(strays)} (other clients have {'it' if len(strays) == 1 else 'them'})"]
    if notes or more_notes:
        logger.warning(
            "settings without effect in %s: %s", _CLIENTS.get(kind, "a client"), "; ".join(notes + more_notes)
        )
    return settings


_CLIENTS: Mapping[type, str] = {
    ProducerSettings: "a Producer",
    FetchSettings: "a SimpleConsumer",
    ConsumerSettings: "a Consumer",
    ShareConsumerSettings: "a ShareConsumer",
    CommonSettings: "an Admin",
}
_SHARING = (ProducerSettings, ConsumerSettings, CommonSettings)
"""The kinds whose mappings may have settings of the other ones."""


def _known_keys(kind: type) -> dict[str, str]:
    """Return the keys of a kind of settings, dotted name → field."""
    names = [attribute.name for attribute in attrs.fields(kind)]
    known = {name.replace("_", "."): name for name in names}
    known |= {alias: name for alias, name in OTHER_NAMES.items() if name in names}
    known |= getattr(kind, "ALIASES", {})
    return known


@cache
def _owner(key: str) -> str:
    """Return whose setting a dotted key is, for errors; empty if no client has it."""
    if key in _known_keys(ProducerSettings):
        return "consumers and producers" if key in _known_keys(ConsumerSettings) else "producers"
    return "consumers" if key in _known_keys(ConsumerSettings) else ""


def is_client_setting(key: str) -> bool:
    """Return whether any client of the current generation, or a library that it replaces, has this dotted key."""
    return bool(_owner(key)) or key in {*BOOTSTRAP_KEYS, *COUNTERPARTS, *IGNORED, *REFUSED}


def _refuse(kind: type, key: str, value: Any, named: str, hint: str) -> None:
    """Raise `ConfigError` for a setting that this kind does not have, unless the value switches it off."""
    if why := _REFUSED.get(key):
        raise ConfigError(f"{named}: {why}")
    if kind is ShareConsumerSettings and (name := _OF_SHARE_GROUPS.get(key)):
        raise ConfigError(f"{named}: a share group has this setting for all its members: alter {name} of the group")
    if key in _ONLY_FALSE:
        if _boolean(value):
            raise ConfigError(f"{named}: {_ONLY_FALSE[key]}")
        return
    if (owner := _owner(key)) and kind in _CLIENTS:
        raise ConfigError(f"{named}: a setting of {owner}; {_CLIENTS[kind]} does not have it, leave it out")
    raise ConfigError(f"unknown setting {named!r}{hint}")


def _with_security(
    config: Mapping[str, Any], given: Mapping[str, Any], prefix: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings with those of security in one value."""
    of_config = {key: value for key, value in config.items() if is_security_key(key)}
    of_given = {name: value for name, value in given.items() if is_security_key(name.replace("_", "."))}
    config = {key: value for key, value in config.items() if key not in of_config}
    given = {name: value for name, value in given.items() if name not in of_given}
    if of_config or any(value is not None for value in of_given.values()):
        given[_SECURITY] = read_security(of_config, of_given, prefix=prefix)
    return config, given


def is_registry_key(key: str) -> bool:
    """Return whether a dotted key belongs to the security of the connection to registries."""
    return is_coordination_key(key)


def _with_coordination(config: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings with those of the coordination service's security in one value."""
    found = {key: value for key, value in config.items() if is_coordination_key(key)}
    config = {key: value for key, value in config.items() if key not in found}
    named = {name: name.replace("_", ".") for name in given if is_coordination_key(name.replace("_", "."))}
    found |= {key: given[name] for name, key in named.items() if given[name] is not None}
    given = {name: value for name, value in given.items() if name not in named}
    if found:
        given[_COORDINATION] = read_coordination_settings(found)
    return config, given


def read_security(
    config: Mapping[str, Any], given: Mapping[str, Any] | None = None, *, prefix: str = ""
) -> SecuritySettings:
    """Read and check the settings of security as `read_settings` does; those that have no effect are logged."""
    given = {dotted_name(name): value for name, value in (given or {}).items() if value is not None}
    every = {**config, **given}
    found = read_settings(SecuritySettings, every, {}, prefix=prefix)
    fields = _known_keys(SecuritySettings)
    check_security(found, {fields[key]: f"{prefix}{key}" for key in map(dotted_name, every) if key in fields})
    return found


def _make(kind: type[T], found: Mapping[str, Any], names: Mapping[str, str]) -> T:
    """Make the settings. Raises `ConfigError` with the `names` of fields in the user's spelling."""
    try:
        return kind(**found)
    except ValueError as error:
        text = str(error.args[0] if error.args else error)
        for field_name, named in names.items():
            text = text.replace(f"'{field_name}'", named)
        raise ConfigError(text) from error


def _parse(key: str, attribute: Any, value: Any) -> Any:
    parser = _PARSERS.get(attribute.name) or _BY_TYPE[attribute.type]
    try:
        return parser(value)
    except (ValueError, TypeError) as error:
        shown = "" if attribute.type == Secret[str] else f" = {value!r}"
        unit = " of milliseconds" if attribute.name.endswith("_ms") and str(error).endswith("number") else ""
        raise ConfigError(f"{key}{shown}: {error}{unit}") from error


def _hint(key: str, known: Mapping[str, Any], prefix: str = "") -> str:
    from difflib import get_close_matches

    near = get_close_matches(key, known, n=1)
    if near:
        return f"; did you mean {prefix + near[0]!r}?"
    return f"; known: {', '.join(prefix + name for name in sorted(known))}"
