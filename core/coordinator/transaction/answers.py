"""Answers to requests about transactions that say no more than an error."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....ports.broker_api import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    PartitionOutcome,
)
from ....ports.error_codes import ErrorCode
from ....ports.words import TopicPartition
from .effects import TransactionRequest

_UNAVAILABLE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
}


def write_error(error: ErrorCode) -> ErrorCode:
    """What is told of a transaction that could not be written."""
    return _UNAVAILABLE.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


def outcomes(partitions: Sequence[TopicPartition], error: ErrorCode) -> Sequence[PartitionOutcome]:
    """The same for all of them."""
    return [PartitionOutcome(topic, number, error) for topic, number in partitions]


_ANSWERS: Mapping[type[Any], Callable[[Any, ErrorCode], Any]] = {
    InitProducerId: lambda _, error: InitProducerIdResult(error=error),
    AddPartitionsToTxn: lambda request, error: AddPartitionsToTxnResult(
        partitions=outcomes(request.partitions, error), transactional_id=request.transactional_id
    ),
    AddOffsetsToTxn: lambda _, error: AddOffsetsToTxnResult(error=error),
    EndTxn: lambda _, error: EndTxnResult(error=error),
}


def answer(request: TransactionRequest, error: ErrorCode) -> Any:
    """A result of the request's own type."""
    return _ANSWERS[type(request)](request, error)
