"""WriteTxnMarkers (27)."""

from ...ports.broker_api.groups import PartitionOutcome
from ...ports.broker_api.transactions import TxnMarker, WriteTxnMarkers, WriteTxnMarkersResult, WrittenTxnMarker
from ...ports.types import TopicPartition
from .api import Api
from .schema import BOOL, ERROR, I16, I32, I64, Array, ByTopic, Field, Struct

WRITE_TXN_MARKERS = Api(
    key=27,
    versions=(0, 1),
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

APIS = (WRITE_TXN_MARKERS,)
