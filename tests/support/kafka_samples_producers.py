"""Samples of the APIs of idempotent producers."""

from attrs import evolve
from support.kafka_sample import LONG_NAME, Sample

from barnabas.ports.broker_api.groups import PartitionOutcome
from barnabas.ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from barnabas.ports.broker_api.transactions import TxnMarker, WriteTxnMarkers, WriteTxnMarkersResult, WrittenTxnMarker
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition

INIT_PRODUCER_ID = Sample(
    InitProducerId(transactional_id="orders", transaction_timeout_ms=77, producer_id=4001, producer_epoch=12),
    {"transactional_id": "orders", "transaction_timeout": 77, "producer_id": 4001, "producer_epoch": 12},
    InitProducerIdResult(error=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=4002, producer_epoch=13, throttle_ms=9),
    {"throttle_time": 9, "error_code": 51, "producer_id": 4002, "producer_epoch": 13},
)

DESCRIBE_PRODUCERS = Sample(
    DescribeProducers(topics={"clicks": [0, 5], LONG_NAME: []}),
    {
        "topics": [
            {"name": "clicks", "partition_indexes": [0, 5]},
            {"name": LONG_NAME, "partition_indexes": []},
        ]
    },
    DescribeProducersResult(
        partitions=[
            DescribedPartition(
                topic="clicks",
                partition=0,
                producers=[
                    ActiveProducer(
                        producer_id=7,
                        producer_epoch=3,
                        last_sequence=99,
                        last_timestamp_ms=1_600_000_000_123,
                        coordinator_epoch=4,
                        current_txn_start_offset=1 << 40,
                    ),
                    ActiveProducer(producer_id=8, producer_epoch=0),
                ],
            ),
            DescribedPartition(
                topic="clicks", partition=5, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, error_message="ask broker 3"
            ),
        ],
        throttle_ms=21,
    ),
    {
        "throttle_time": 21,
        "topics": [
            {
                "name": "clicks",
                "partitions": [
                    {
                        "partition_index": 0,
                        "error_code": 0,
                        "error_message": None,
                        "active_producers": [
                            {
                                "producer_id": 7,
                                "producer_epoch": 3,
                                "last_sequence": 99,
                                "last_timestamp": 1_600_000_000_123,
                                "coordinator_epoch": 4,
                                "current_txn_start_offset": 1 << 40,
                            },
                            {
                                "producer_id": 8,
                                "producer_epoch": 0,
                                "last_sequence": -1,
                                "last_timestamp": -1,
                                "coordinator_epoch": -1,
                                "current_txn_start_offset": -1,
                            },
                        ],
                    },
                    {
                        "partition_index": 5,
                        "error_code": 6,
                        "error_message": "ask broker 3",
                        "active_producers": [],
                    },
                ],
            }
        ],
    },
)

_WRITE_TXN_MARKERS = Sample(
    WriteTxnMarkers(
        markers=[
            TxnMarker(
                producer_id=1 << 40,
                producer_epoch=12,
                committed=True,
                partitions=[TopicPartition("clicks", 0), TopicPartition("clicks", 5), TopicPartition(LONG_NAME, 7)],
                coordinator_epoch=9,
            ),
            TxnMarker(producer_id=3, producer_epoch=0, committed=False, partitions=[]),
        ]
    ),
    {
        "markers": [
            {
                "producer_id": 1 << 40,
                "producer_epoch": 12,
                "transaction_result": True,
                "topics": [
                    {"name": "clicks", "partition_indexes": [0, 5]},
                    {"name": LONG_NAME, "partition_indexes": [7]},
                ],
                "coordinator_epoch": 9,
            },
            {
                "producer_id": 3,
                "producer_epoch": 0,
                "transaction_result": False,
                "topics": [],
                "coordinator_epoch": 0,
            },
        ]
    },
    WriteTxnMarkersResult(
        markers=[
            WrittenTxnMarker(
                producer_id=1 << 40,
                partitions=[
                    PartitionOutcome("clicks", 0),
                    PartitionOutcome("clicks", 5, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
                ],
            )
        ]
    ),
    {
        "markers": [
            {
                "producer_id": 1 << 40,
                "topics": [
                    {
                        "name": "clicks",
                        "partitions": [
                            {"partition_index": 0, "error_code": 0},
                            {"partition_index": 5, "error_code": 52},
                        ],
                    }
                ],
            }
        ]
    },
)

_MARKERS = _WRITE_TXN_MARKERS.request.markers
WRITE_TXN_MARKERS = Sample(
    WriteTxnMarkers(markers=[evolve(_MARKERS[0], transaction_version=2), *_MARKERS[1:]]),
    {
        "markers": [
            {**wire, "transaction_version": version}
            for wire, version in zip(_WRITE_TXN_MARKERS.request_wire["markers"], (2, 0), strict=True)
        ]
    },
    _WRITE_TXN_MARKERS.result,
    _WRITE_TXN_MARKERS.result_wire,
    older=_WRITE_TXN_MARKERS,
    older_until=1,
)
