"""The records of `__transaction_state`: Kafka's own keys and values (facts E3).

The key is a transactional id (version 0), the value its state; None forgets the id. A value of version 1 is flexible,
and has tagged fields for version 2 of transactions (KIP-890). It is written where transaction.version is 1 or later,
and for every transaction of version 2: a coordinator that did not know of it would take a late marker, whose epoch the
next transaction has, for one of that transaction.
"""

from collections.abc import Iterable
from struct import Struct

from ....ports.broker_api.transactions import EPOCH_BUMP
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..record_fields import FlexibleReader, RecordReader, UnknownVersion, encode_text, encode_varint
from .states import TransactionState

_KEY = b"\x00\x00"
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_INT = Struct(">i")
_LONG = Struct(">q")
_SHORT = Struct(">h")
_FLEXIBLE = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION = 0, 1, 2
"""The tagged fields. The fourth, 3, is for two-phase commits (KIP-939), which no broker offers yet."""
NO_ID = -1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@frozen(kw_only=True)
class StoredTransaction:
    """The state of a transactional id in the log. Times are wall-clock; `started_ms` is when the transaction began,
    also after its end, and -1 before the first one of a producer.

    `producer_epoch` -1: no producer has got it yet.
    `previous_producer_id`, `next_producer_id`: the ids before and after this one, whose epochs are used up; -1: none.
    `client_transaction_version`: the version of transactions of the producer that began or ended the last one.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    updated_ms: int = -1
    started_ms: int = -1
    previous_producer_id: int = NO_ID
    next_producer_id: int = NO_ID
    client_transaction_version: int = 0

    @property
    def supports_epoch_bump(self) -> bool:
        """True if the transaction is of version 2."""
        return self.client_transaction_version >= EPOCH_BUMP


def encode_key(transactional_id: str) -> bytes:
    """Raises `ApiError` INVALID_REQUEST for one that is too long."""
    return _KEY + encode_text(transactional_id)


def encode_value(value: StoredTransaction, transaction_version: int = 0) -> bytes:
    """Encode a state where the cluster has this transaction.version. Raises as `encode_key`."""
    tags = _tags(value)
    if transaction_version < _FLEXIBLE and not tags:
        head = _HEAD.pack(0, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
        partitions = b"\xff\xff\xff\xff"  # null, as Kafka writes it
        if value.state is not TransactionState.EMPTY:
            partitions = b"".join(_encode_partitions(value.partitions))
        return head + partitions + _TIMES.pack(value.updated_ms, value.started_ms)
    head = _HEAD.pack(_FLEXIBLE, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    partitions = b"\x00"
    if value.state is not TransactionState.EMPTY:
        partitions = b"".join(_encode_partitions_flexibly(value.partitions))
    fields = b"".join(encode_varint(tag) + encode_varint(len(data)) + data for tag, data in tags)
    return head + partitions + _TIMES.pack(value.updated_ms, value.started_ms) + encode_varint(len(tags)) + fields


def _tags(value: StoredTransaction) -> list[tuple[int, bytes]]:
    """Return the tagged fields that differ from their defaults, in ascending order."""
    tags = []
    if value.previous_producer_id != NO_ID:
        tags.append((_PREVIOUS_ID, _LONG.pack(value.previous_producer_id)))
    if value.next_producer_id != NO_ID:
        tags.append((_NEXT_ID, _LONG.pack(value.next_producer_id)))
    if value.client_transaction_version:
        tags.append((_CLIENT_VERSION, _SHORT.pack(value.client_transaction_version)))
    return tags


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _encode_partitions(partitions: Iterable[TopicPartition]) -> Iterable[bytes]:
    topics = _by_topic(partitions)
    yield _INT.pack(len(topics))
    for topic, numbers in topics.items():
        yield encode_text(topic)
        yield _INT.pack(len(numbers))
        for number in numbers:
            yield _INT.pack(number)


def _encode_partitions_flexibly(partitions: Iterable[TopicPartition]) -> Iterable[bytes]:
    topics = _by_topic(partitions)
    yield encode_varint(len(topics) + 1)
    for topic, numbers in topics.items():
        name = topic.encode()
        yield encode_varint(len(name) + 1) + name
        yield encode_varint(len(numbers) + 1)
        for number in numbers:
            yield _INT.pack(number)
        yield b"\x00"


def decode_key(key: bytes) -> str:
    """Decode a transactional id. Raises `UnknownVersion`, and `ApiError` CORRUPT_MESSAGE for a malformed key."""
    reader = RecordReader(key)
    version = reader.i16()
    if version != 0:
        raise UnknownVersion("a key", version)
    return reader.text()


def decode_value(value: bytes) -> StoredTransaction:
    """Versions 0 and 1. Raises as `decode_key`."""
    reader = RecordReader(value)
    version = reader.i16()
    if version not in (0, _FLEXIBLE):
        raise UnknownVersion("a transaction", version)
    if version == _FLEXIBLE:
        reader = FlexibleReader(value[_SHORT.size :])
    producer_id, epoch, timeout_ms = reader.i64(), reader.i16(), reader.i32()
    state = _state(reader.i8())
    partitions: set[TopicPartition] = set()
    for _ in range(reader.optional_count() or 0):
        topic = reader.text()
        partitions.update(TopicPartition(topic, reader.i32()) for _ in range(reader.count()))
        reader.skip_tags()
    updated_ms, started_ms, tags = reader.i64(), reader.i64(), reader.tags()
    return StoredTransaction(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        updated_ms=updated_ms,
        started_ms=started_ms,
        previous_producer_id=RecordReader(tags[_PREVIOUS_ID]).i64() if _PREVIOUS_ID in tags else NO_ID,
        next_producer_id=RecordReader(tags[_NEXT_ID]).i64() if _NEXT_ID in tags else NO_ID,
        client_transaction_version=RecordReader(tags[_CLIENT_VERSION]).i16() if _CLIENT_VERSION in tags else 0,
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a transaction in the state {number}") from None
