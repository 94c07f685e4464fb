"""InitProducerId (22) and DescribeProducers (61)."""

from attrs import evolve

from ...ports.broker_api.producers import (
    ActiveProducer,
    DescribedPartition,
    DescribeProducers,
    DescribeProducersResult,
    InitProducerId,
    InitProducerIdResult,
)
from ...ports.errors import Malformed
from .api import Api
from .fenced import FencedError
from .schema import ERROR, ERROR_TEXT, I16, I32, I64, NULLABLE_TEXT, TEXT, Array, ByTopic, Field, Pairs, Struct

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
        raise Malformed("the answer is about other partitions than the question")
    return evolve(result, partitions=[found[place] for place in asked])


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

APIS = (INIT_PRODUCER_ID, DESCRIBE_PRODUCERS)
