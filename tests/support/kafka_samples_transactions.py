"""Samples of the APIs of the transaction coordinator."""

from typing import Any

from attrs import evolve
from support.kafka_sample import LONG_NAME, Sample

from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.transactions import (
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
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

_PARTITIONS = [TopicPartition("clicks", 0), TopicPartition("clicks", 5), TopicPartition(LONG_NAME, 7)]
_OUTCOMES = [
    PartitionOutcome("clicks", 0),
    PartitionOutcome("clicks", 5, ErrorCode.INVALID_TXN_STATE),
    PartitionOutcome(LONG_NAME, 7, ErrorCode.CONCURRENT_TRANSACTIONS),
]
_TOPICS = [{"name": "clicks", "partitions": [0, 5]}, {"name": LONG_NAME, "partitions": [7]}]
_OBSERVED = [
    {
        "name": "clicks",
        "results_by_partition": [
            {"partition_index": 0, "partition_error_code": 0},
            {"partition_index": 5, "partition_error_code": 48},
        ],
    },
    {"name": LONG_NAME, "results_by_partition": [{"partition_index": 7, "partition_error_code": 51}]},
]


def _added_by_broker(*, verify_only: bool) -> dict[str, Any]:
    transaction = {"transactional_id": "orders", "producer_id": 1 << 40, "producer_epoch": 12, "topics": _TOPICS}
    return {"transactions": [{**transaction, "verify_only": verify_only}]}


_ADDING = AddPartitionsToTxn(
    transactional_id="orders", producer_id=1 << 40, producer_epoch=12, partitions=_PARTITIONS, verify_only=True
)
_ADDED = AddPartitionsToTxnResult(partitions=_OUTCOMES, transactional_id="orders", throttle_ms=3)
_ADDED_WIRE = {
    "throttle_time": 3,
    "error_code": 0,
    "results_by_transaction": [{"transactional_id": "orders", "topic_results": _OBSERVED}],
}

ADD_PARTITIONS_TO_TXN = Sample(
    evolve(_ADDING, verify_only=False, supports_epoch_bump=True),
    _added_by_broker(verify_only=False),
    _ADDED,
    _ADDED_WIRE,
    older=Sample(
        _ADDING,
        _added_by_broker(verify_only=True),
        _ADDED,
        _ADDED_WIRE,
        older=Sample(
            evolve(_ADDING, verify_only=False),
            {
                "v3_and_below_transactional_id": "orders",
                "v3_and_below_producer_id": 1 << 40,
                "v3_and_below_producer_epoch": 12,
                "v3_and_below_topics": _TOPICS,
            },
            AddPartitionsToTxnResult(partitions=_OUTCOMES, throttle_ms=3),
            {"throttle_time": 3, "results_by_topic_v3_and_below": _OBSERVED},
        ),
        older_until=3,
    ),
    older_until=4,
)

ADD_OFFSETS_TO_TXN = Sample(
    AddOffsetsToTxn(transactional_id="orders", producer_id=1 << 41, producer_epoch=13, group_id="readers"),
    {"transactional_id": "orders", "producer_id": 1 << 41, "producer_epoch": 13, "group_id": "readers"},
    AddOffsetsToTxnResult(error=ErrorCode.CONCURRENT_TRANSACTIONS, throttle_ms=4),
    {"throttle_time": 4, "error_code": 51},
)

_ENDING = EndTxn(transactional_id="orders", producer_id=1 << 42, producer_epoch=14, committed=True)
_ENDING_WIRE = {"transactional_id": "orders", "producer_id": 1 << 42, "producer_epoch": 14, "committed": True}
_ENDED = EndTxnResult(error=ErrorCode.INVALID_TXN_STATE, throttle_ms=5)
_ENDED_WIRE = {"throttle_time": 5, "error_code": 48}
END_TXN = Sample(
    evolve(_ENDING, supports_epoch_bump=True),
    _ENDING_WIRE,
    evolve(_ENDED, producer_id=1 << 43, producer_epoch=15),
    {**_ENDED_WIRE, "producer_id": 1 << 43, "producer_epoch": 15},
    older=Sample(_ENDING, _ENDING_WIRE, _ENDED, _ENDED_WIRE),
    older_until=4,
)

DESCRIBE_TRANSACTIONS = Sample(
    DescribeTransactions(transactional_ids=["orders", LONG_NAME]),
    {"transactional_ids": ["orders", LONG_NAME]},
    DescribeTransactionsResult(
        transactions=[
            DescribedTransaction(
                transactional_id="orders",
                state="Ongoing",
                timeout_ms=60_000,
                start_ms=1_600_000_000_123,
                producer_id=1 << 43,
                producer_epoch=15,
                topics={"clicks": [0, 5], LONG_NAME: [7]},
            ),
            DescribedTransaction(transactional_id=LONG_NAME, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, start_ms=0),
        ],
        throttle_ms=6,
    ),
    {
        "throttle_time": 6,
        "transaction_states": [
            {
                "error_code": 0,
                "transactional_id": "orders",
                "transaction_state": "Ongoing",
                "transaction_timeout": 60_000,
                "transaction_start_time": 1_600_000_000_123,
                "producer_id": 1 << 43,
                "producer_epoch": 15,
                "topics": [
                    {"topic": "clicks", "partitions": [0, 5]},
                    {"topic": LONG_NAME, "partitions": [7]},
                ],
            },
            {
                "error_code": 105,
                "transactional_id": LONG_NAME,
                "transaction_state": "",
                "transaction_timeout": 0,
                "transaction_start_time": 0,
                "producer_id": -1,
                "producer_epoch": -1,
                "topics": [],
            },
        ],
    },
)

_LIST_TRANSACTIONS = Sample(
    ListTransactions(states=["Ongoing", "Odd"], producer_ids=[7, 1 << 44], duration_ms=99),
    {"state_filters": ["Ongoing", "Odd"], "producer_id_filters": [7, 1 << 44], "duration_filter": 99},
    ListTransactionsResult(
        transactions=[ListedTransaction(transactional_id="orders", producer_id=7, state="Ongoing")],
        error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        unknown_states=["Odd"],
        throttle_ms=8,
    ),
    {
        "throttle_time": 8,
        "error_code": 14,
        "unknown_state_filters": ["Odd"],
        "transaction_states": [{"transactional_id": "orders", "producer_id": 7, "transaction_state": "Ongoing"}],
    },
    older=Sample(
        ListTransactions(states=["Ongoing"], producer_ids=[7]),
        {"state_filters": ["Ongoing"], "producer_id_filters": [7]},
        ListTransactionsResult(),
        {"throttle_time": 0, "error_code": 0, "unknown_state_filters": [], "transaction_states": []},
    ),
    older_until=0,
)
LIST_TRANSACTIONS = Sample(
    evolve(_LIST_TRANSACTIONS.request, pattern="ord.*"),
    {**_LIST_TRANSACTIONS.request_wire, "transactional_id_pattern": "ord.*"},
    _LIST_TRANSACTIONS.result,
    _LIST_TRANSACTIONS.result_wire,
    older=_LIST_TRANSACTIONS,
    older_until=1,
)
