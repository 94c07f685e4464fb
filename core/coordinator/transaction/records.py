"""The records of `__transaction_state`: Kafka's own keys and values (facts E3).

The key is a transactional id (version 0), the value its state; None forgets the id. Values of version 1, which Kafka
writes for the second version of transactions, are read, not written.
"""

from collections.abc import Iterable
from struct import Struct

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..record_fields import FlexibleReader, RecordReader, UnknownVersion, encode_text
from .states import TransactionState

_KEY = b"\x00\x00"
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_INT = Struct(">i")
_SHORT_BYTES = 2
_FLEXIBLE = 1
NO_PARTITIONS: frozenset[TopicPartition] = frozenset()


@frozen(kw_only=True)
class StoredTransaction:
    """The state of a transactional id in the log. Times are wall-clock; `started_ms` is when the transaction began,
    also after its end, and -1 before the first one of a producer.

    `producer_epoch` -1: no producer has got it yet.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = NO_PARTITIONS
    updated_ms: int = -1
    started_ms: int = -1


def encode_key(transactional_id: str) -> bytes:
    """Raises `ApiError` INVALID_REQUEST for one that is too long."""
    return _KEY + encode_text(transactional_id)


def encode_value(value: StoredTransaction) -> bytes:
    """Version 0. Raises as `encode_key`."""
    head = _HEAD.pack(0, value.producer_id, value.producer_epoch, value.timeout_ms, value.state)
    if value.state is TransactionState.EMPTY:
        partitions = b"\xff\xff\xff\xff"  # null, as Kafka writes it
    else:
        partitions = b"".join(_encode_partitions(value.partitions))
    return head + partitions + _TIMES.pack(value.updated_ms, value.started_ms)


def _encode_partitions(partitions: Iterable[TopicPartition]) -> Iterable[bytes]:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    yield _INT.pack(len(topics))
    for topic, numbers in topics.items():
        yield encode_text(topic)
        yield _INT.pack(len(numbers))
        for number in numbers:
            yield _INT.pack(number)


def decode_key(key: bytes) -> str:
    """The transactional id. Raises `UnknownVersion`, and `ApiError` CORRUPT_MESSAGE for nonsense."""
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
        reader = FlexibleReader(value[_SHORT_BYTES:])
    producer_id, epoch, timeout_ms = reader.i64(), reader.i16(), reader.i32()
    state = _state(reader.i8())
    partitions: set[TopicPartition] = set()
    for _ in range(reader.optional_count() or 0):
        topic = reader.text()
        partitions.update(TopicPartition(topic, reader.i32()) for _ in range(reader.count()))
        reader.skip_tags()
    return StoredTransaction(
        producer_id=producer_id,
        producer_epoch=epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        updated_ms=reader.i64(),
        started_ms=reader.i64(),
    )


def _state(number: int) -> TransactionState:
    try:
        return TransactionState(number)
    except ValueError:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"a transaction in the state {number}") from None
