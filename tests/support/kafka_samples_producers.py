"""Samples of the APIs of idempotent producers."""

from support.kafka_sample import LONG_NAME, Sample

from barnabas.ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from barnabas.ports.error_codes import ErrorCode

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
