"""The paths of the classic registries in the coordination tree, and the content of their nodes (facts A7)."""

from typing import NamedTuple

from ....ports.errors import ConfigError
from ....ports.values import frozen

BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"

_LONG_MAX = 2**63 - 1


class BrokerPartition(NamedTuple):
    """One partition of a topic: each broker has its own. `str()` is its name in the registries: `broker-partition`."""

    broker_id: int
    partition: int

    def __str__(self) -> str:
        return f"{self.broker_id}-{self.partition}"


@frozen(kw_only=True)
class ClassicBroker:
    """A live broker. `creator_id` distinguishes two that claim one id: host and milliseconds of the start."""

    broker_id: int
    creator_id: str
    host: str
    port: int


def thread_id(consumer_id: str, number: int) -> str:
    """Return the name of one stream of a consumer; numbers count from 0 in each topic."""
    return f"{consumer_id}-{number}"


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{BROKER_TOPICS}/{topic}"


def topic_broker_path(topic: str, broker_id: int) -> str:
    return f"{BROKER_TOPICS}/{topic}/{broker_id}"


def consumer_ids_path(group: str) -> str:
    return f"{CONSUMERS}/{group}/ids"


def consumer_path(group: str, consumer_id: str) -> str:
    return f"{CONSUMERS}/{group}/ids/{consumer_id}"


def owners_path(group: str, topic: str) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}"


def owner_path(group: str, topic: str, place: BrokerPartition) -> str:
    return f"{CONSUMERS}/{group}/owners/{topic}/{place}"


def offsets_path(group: str, topic: str | None = None) -> str:
    """Above the offsets of one topic, or above all topics."""
    return f"{CONSUMERS}/{group}/offsets" if topic is None else f"{CONSUMERS}/{group}/offsets/{topic}"


def offset_path(group: str, topic: str, place: BrokerPartition) -> str:
    return f"{CONSUMERS}/{group}/offsets/{topic}/{place}"


def check_name(kind: str, name: str) -> str:
    """Check that a name can be a part of a path, and return it; errors call it `kind`. Raises `ConfigError`."""
    if not name or name in (".", "..") or "/" in name or not name.isprintable():
        rule = "it may not be empty, '.' or '..', nor contain '/' or characters that cannot be printed"
        raise ConfigError(f"{kind} {name[:200]!r} cannot be used: {rule}")
    return name


def encode_broker(broker: ClassicBroker) -> bytes:
    """`creatorId:host:port`."""
    return f"{broker.creator_id}:{broker.host}:{broker.port}".encode()


def decode_broker(name: str, data: bytes) -> ClassicBroker:
    """Decode a broker from its node's name and content. Raises `ValueError` with what is wrong."""
    creator, first, rest = _text(data).partition(":")
    host, second, port = rest.rpartition(":")
    if not (first and second and host):
        raise ValueError(f"{data[:100]!r} is not of the form creatorId:host:port")
    number = decode_number(port.encode(), "port", 65_535)
    if number == 0:
        raise ValueError("the port is 0")
    return ClassicBroker(broker_id=decode_name(name, "broker id"), creator_id=creator, host=host, port=number)


def encode_number(number: int) -> bytes:
    """Encode a partition count or an offset as decimal text."""
    return str(number).encode()


def decode_number(data: bytes, what: str, largest: int = _LONG_MAX) -> int:
    """Decode a number from 0 to `largest`. Raises `ValueError`."""
    text = _text(data).strip()
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= largest):
        raise ValueError(f"{data[:100]!r} is not a valid {what}")
    return int(text)


def decode_name(name: str, what: str) -> int:
    """Decode the number that names a node; leading zeros are errors, so that no two nodes mean the same number.

    Raises `ValueError`.
    """
    number = decode_number(name.encode(), what, 2**31 - 1)
    if str(number) != name:
        raise ValueError(f"{name[:100]!r} is not a valid {what}")
    return number


def decode_place(name: str) -> BrokerPartition:
    """Decode `broker-partition`. Raises `ValueError`."""
    broker, dash, partition = name.partition("-")
    if not dash:
        raise ValueError(f"{name[:100]!r} is not of the form broker-partition")
    return BrokerPartition(decode_name(broker, "broker id"), decode_name(partition, "partition"))


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{data[:100]!r} is not UTF-8") from error
