"""Producers and transactions: InitProducerId (22), AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26),
WriteTxnMarkers (27), DescribeProducers (61), DescribeTransactions (65), ListTransactions (66).
"""

from typing import Generic, TypeVar

from attrs import evolve

from ...ports.broker_api.groups import PartitionOutcome
from ...ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from ...ports.broker_api.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResult,
    EndTxn,
    EndTxnResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
    TxnMarker,
    WriteTxnMarkers,
    WriteTxnMarkersResult,
    WrittenTxnMarker,
)
from ...ports.error_codes import ErrorCode
from ...ports.errors import Malformed
from ...ports.types import TopicPartition
from .api import Api
from .schema import (
    BOOL,
    ERROR,
    ERROR_TEXT,
    I8,
    I16,
    I32,
    I64,
    NULLABLE_TEXT,
    TEXT,
    Array,
    ByTopic,
    Field,
    FieldCodec,
    Flag,
    Pairs,
    Struct,
)
from .wire import Reader, Writer

T = TypeVar("T")


# PRODUCER_FENCED came with Kafka 2.7; clients before know INVALID_PRODUCER_EPOCH (KIP-588, facts C6).


class FencedError:
    """An error code; versions below `since` carry INVALID_PRODUCER_EPOCH in place of PRODUCER_FENCED."""

    def __init__(self, *, since: int) -> None:
        self._since = since

    def read(self, reader: Reader, version: int) -> ErrorCode:
        return ERROR.read(reader, version)

    def write(self, writer: Writer, version: int, value: ErrorCode) -> None:
        if version < self._since and value is ErrorCode.PRODUCER_FENCED:
            value = ErrorCode.INVALID_PRODUCER_EPOCH
        ERROR.write(writer, version, value)


_FENCED = FencedError(since=2)
_VERSION_2 = 5
"""The first version of AddPartitionsToTxn and of EndTxn that belongs to version 2 of transactions (KIP-890)."""
_BATCHED = 4
"""From this version on brokers ask each other; what clients say has stayed as it was."""


class _Single(Generic[T]):
    """An array that has one element here: each transaction is asked about separately."""

    def __init__(self, item: FieldCodec[T]) -> None:
        self._item = item

    def read(self, reader: Reader, version: int) -> T:
        count = reader.count()
        if count != 1:
            raise Malformed(f"{count} transactions in one AddPartitionsToTxn; this broker takes one")
        return self._item.read(reader, version)

    def write(self, writer: Writer, version: int, value: T) -> None:
        writer.count(1)
        self._item.write(writer, version, value)


class _AddPartitions:
    """The request; its transaction is an element of an array where brokers ask."""

    def __init__(self) -> None:
        ours = Field("partitions", ByTopic(TopicPartition, Field("partition", I32), inline=True))
        names = (Field("transactional_id", TEXT), Field("producer_id", I64), Field("producer_epoch", I16))
        self._alone = Struct(AddPartitionsToTxn, *names, ours)
        version_2 = Flag("supports_epoch_bump", since=_VERSION_2)
        self._among = _Single(Struct(AddPartitionsToTxn, *names, Field("verify_only", BOOL), ours, version_2))

    def read(self, reader: Reader, version: int) -> AddPartitionsToTxn:
        if version < _BATCHED:
            return self._alone.read(reader, version)
        value = self._among.read(reader, version)
        reader.skip_tags()
        return value

    def write(self, writer: Writer, version: int, value: AddPartitionsToTxn) -> None:
        if version < _BATCHED:
            self._alone.write(writer, version, value)
        else:
            self._among.write(writer, version, value)
            writer.end()


class _AddedPartitions:
    """The result, in the same two forms."""

    def __init__(self) -> None:
        outcomes = ByTopic(PartitionOutcome, Field("partition", I32), Field("error", _FENCED))
        self._alone = Struct(AddPartitionsToTxnResult, Field("throttle_ms", I32), Field("partitions", outcomes))
        self._among = _Single(
            Struct(AddPartitionsToTxnResult, Field("transactional_id", TEXT), Field("partitions", outcomes))
        )

    def read(self, reader: Reader, version: int) -> AddPartitionsToTxnResult:
        if version < _BATCHED:
            return self._alone.read(reader, version)
        throttle_ms = I32.read(reader, version)
        error = ERROR.read(reader, version)
        if error is not ErrorCode.NONE:
            if reader.count():
                raise Malformed(f"AddPartitionsToTxn was answered with {error.name} and with transactions")
            reader.skip_tags()
            return AddPartitionsToTxnResult(partitions=(), error=error, throttle_ms=throttle_ms)
        value = evolve(self._among.read(reader, version), throttle_ms=throttle_ms)
        reader.skip_tags()
        return value

    def write(self, writer: Writer, version: int, value: AddPartitionsToTxnResult) -> None:
        if version < _BATCHED:
            self._alone.write(writer, version, value)
            return
        I32.write(writer, version, value.throttle_ms)
        ERROR.write(writer, version, value.error)
        if value.error is ErrorCode.NONE:
            self._among.write(writer, version, value)
        else:
            writer.count(0)
        writer.end()


def _version_of_add_partitions(request: AddPartitionsToTxn) -> int:
    """Return the version for brokers, 0 for clients."""
    return _VERSION_2 if request.supports_epoch_bump else _BATCHED if request.verify_only else 0


ADD_PARTITIONS_TO_TXN = Api(
    key=24,
    versions=(0, 5),
    flexible_from=3,
    request_type=AddPartitionsToTxn,
    request=_AddPartitions(),
    result=_AddedPartitions(),
    least_version=_version_of_add_partitions,
    most_version=lambda request: _version_of_add_partitions(request) or _BATCHED - 1,
    by_partition=True,
)

ADD_OFFSETS_TO_TXN = Api(
    key=25,
    versions=(0, 4),
    flexible_from=3,
    request_type=AddOffsetsToTxn,
    request=Struct(
        AddOffsetsToTxn,
        Field("transactional_id", TEXT),
        Field("producer_id", I64),
        Field("producer_epoch", I16),
        Field("group_id", TEXT),
    ),
    result=Struct(AddOffsetsToTxnResult, Field("throttle_ms", I32), Field("error", _FENCED)),
)

END_TXN = Api(
    key=26,
    versions=(0, 5),
    flexible_from=3,
    request_type=EndTxn,
    request=Struct(
        EndTxn,
        Field("transactional_id", TEXT),
        Field("producer_id", I64),
        Field("producer_epoch", I16),
        Field("committed", BOOL),
        Flag("supports_epoch_bump", since=_VERSION_2),
    ),
    result=Struct(
        EndTxnResult,
        Field("throttle_ms", I32),
        Field("error", _FENCED),
        Field("producer_id", I64, since=_VERSION_2),
        Field("producer_epoch", I16, since=_VERSION_2),
    ),
    least_version=lambda request: _VERSION_2 if request.supports_epoch_bump else 0,
    most_version=lambda request: _VERSION_2 if request.supports_epoch_bump else _VERSION_2 - 1,
)

DESCRIBE_TRANSACTIONS = Api(
    key=65,
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeTransactions,
    request=Struct(DescribeTransactions, Field("transactional_ids", Array(TEXT))),
    result=Struct(
        DescribeTransactionsResult,
        Field("throttle_ms", I32),
        Field(
            "transactions",
            Array(
                Struct(
                    DescribedTransaction,
                    Field("error", ERROR),
                    Field("transactional_id", TEXT),
                    Field("state", TEXT),
                    Field("timeout_ms", I32),
                    Field("start_ms", I64),
                    Field("producer_id", I64),
                    Field("producer_epoch", I16),
                    Field("topics", Pairs(TEXT, Array(I32))),
                )
            ),
        ),
    ),
    long_answers=True,
)

LIST_TRANSACTIONS = Api(
    key=66,
    versions=(0, 2),
    flexible_from=0,
    request_type=ListTransactions,
    request=Struct(
        ListTransactions,
        Field("states", Array(TEXT)),
        Field("producer_ids", Array(I64)),
        Field("duration_ms", I64, since=1),
        Field("pattern", NULLABLE_TEXT, since=2),
    ),
    result=Struct(
        ListTransactionsResult,
        Field("throttle_ms", I32),
        Field("error", ERROR),
        Field("unknown_states", Array(TEXT)),
        Field(
            "transactions",
            Array(
                Struct(
                    ListedTransaction,
                    Field("transactional_id", TEXT),
                    Field("producer_id", I64),
                    Field("state", TEXT),
                )
            ),
        ),
    ),
    least_version=lambda request: 2 if request.pattern else 1 if request.duration_ms >= 0 else 0,
    long_answers=True,
)


INIT_PRODUCER_ID = Api(
    key=22,
    versions=(0, 5),
    flexible_from=2,
    request_type=InitProducerId,
    request=Struct(
        InitProducerId,
        Field("transactional_id", NULLABLE_TEXT),
        Field("transaction_timeout_ms", I32),
        Field("producer_id", I64, since=3),
        Field("producer_epoch", I16, since=3),
    ),
    result=Struct(
        InitProducerIdResult,
        Field("throttle_ms", I32),
        Field("error", FencedError(since=4)),
        Field("producer_id", I64),
        Field("producer_epoch", I16),
    ),
    least_version=lambda request: 3 if request.producer_id >= 0 else 0,
)


def _in_order(request: DescribeProducers, result: DescribeProducersResult) -> DescribeProducersResult:
    """Return the result with its partitions in the order of the request."""
    found = {(each.topic, each.partition): each for each in result.partitions}
    asked = [(topic, number) for topic, numbers in request.topics.items() for number in numbers]
    if found.keys() != set(asked):
        raise Malformed("the response has other partitions than the request")
    return evolve(result, partitions=[found[tp] for tp in asked])


DESCRIBE_PRODUCERS = Api(
    key=61,
    versions=(0, 0),
    flexible_from=0,
    request_type=DescribeProducers,
    request=Struct(DescribeProducers, Field("topics", Pairs(TEXT, Array(I32)))),
    result=Struct(
        DescribeProducersResult,
        Field("throttle_ms", I32),
        Field(
            "partitions",
            ByTopic(
                DescribedPartition,
                Field("partition", I32),
                Field("error", ERROR),
                Field("error_message", ERROR_TEXT),
                Field(
                    "producers",
                    Array(
                        Struct(
                            ActiveProducer,
                            Field("producer_id", I64),
                            Field("producer_epoch", I32),
                            Field("last_sequence", I32),
                            Field("last_timestamp_ms", I64),
                            Field("coordinator_epoch", I32),
                            Field("current_txn_start_offset", I64),
                        )
                    ),
                ),
            ),
        ),
    ),
    long_answers=True,
    completed=_in_order,
)


WRITE_TXN_MARKERS = Api(
    key=27,
    versions=(0, 2),
    flexible_from=1,
    request_type=WriteTxnMarkers,
    request=Struct(
        WriteTxnMarkers,
        Field(
            "markers",
            Array(
                Struct(
                    TxnMarker,
                    Field("producer_id", I64),
                    Field("producer_epoch", I16),
                    Field("committed", BOOL),
                    Field("partitions", ByTopic(TopicPartition, Field("partition", I32), inline=True)),
                    Field("coordinator_epoch", I32),
                    Field("transaction_version", I8, since=2),
                )
            ),
        ),
    ),
    result=Struct(
        WriteTxnMarkersResult,
        Field(
            "markers",
            Array(
                Struct(
                    WrittenTxnMarker,
                    Field("producer_id", I64),
                    Field("partitions", ByTopic(PartitionOutcome, Field("partition", I32), Field("error", ERROR))),
                )
            ),
        ),
    ),
    long_answers=True,
)


APIS = (
    ADD_PARTITIONS_TO_TXN,
    ADD_OFFSETS_TO_TXN,
    END_TXN,
    DESCRIBE_TRANSACTIONS,
    LIST_TRANSACTIONS,
    INIT_PRODUCER_ID,
    DESCRIBE_PRODUCERS,
    WRITE_TXN_MARKERS,
)
