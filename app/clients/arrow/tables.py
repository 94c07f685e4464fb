"""Records as Arrow tables with the columns of Spark's Kafka source."""

from functools import partial

import numpy as np
import pyarrow as pa

from ....core.message.batch_header import BatchHeader
from ....core.message.corrupt_record import CorruptRecord, Damage, is_damage
from ....core.message.message_set import MessageSet
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ..shared.blocking_shell import logger
from .decode import ArrowColumns, decode_set
from .record_columns import HEADERS_TYPE

TIMESTAMPS_MS = (-62_135_596_800_000, 253_402_300_799_999)
"""The years 1 to 9999. Producers may send any number; one that is no date becomes the nearest, and stops no reader."""

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""`timestampType`: 0 = the producer's time, 1 = the broker's."""
SCHEMA_WITH_HEADERS = SCHEMA.append(pa.field("headers", HEADERS_TYPE))


def record_batch(tp: TopicPartition, columns: ArrowColumns) -> pa.RecordBatch:
    """Return a batch of the records of one partition, with headers if `columns` has them."""
    count = len(columns)
    arrays = [
        columns.keys,
        columns.values,
        pa.repeat(pa.scalar(tp.topic, pa.string()), count),
        pa.array(np.full(count, tp.partition, dtype=np.int32)),
        pa.array(columns.offsets),
        pa.array(columns.timestamps_ms.clip(*TIMESTAMPS_MS) * 1000).cast(SCHEMA.field("timestamp").type),
        pa.array(columns.log_append_time.astype(np.int32)),
    ]
    if columns.headers is None:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    return pa.RecordBatch.from_arrays([*arrays, columns.headers], schema=SCHEMA_WITH_HEADERS)


class GatheredRows:
    """Collects records for a table."""

    def __init__(self, with_headers: bool) -> None:
        self.with_headers = with_headers
        self._rows = 0
        self._batches: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        return self._rows

    def add(self, tp: TopicPartition, columns: ArrowColumns) -> None:
        """Append records."""
        if len(columns):
            self._batches.append(record_batch(tp, columns))
            self._rows += len(columns)

    def add_set(self, messages: MessageSet, *, upto: int | None = None, skip_damaged: bool = False) -> None:
        """Append the messages of a set before `upto`. Raises `CorruptRecord`; with `skip_damaged` it logs a warning."""
        tp = TopicPartition(messages.topic, messages.partition)
        position = messages.from_offset
        if skip_damaged:
            messages.on_damage = partial(_left_out, tp)
        try:
            for columns in decode_set(messages, upto=upto, with_headers=self.with_headers):
                self.add(tp, columns)
                position = columns.next_offset
        except ApiError as error:
            raise (CorruptRecord(*tp, position, error.message) if is_damage(error) else error) from error

    def table(self) -> pa.Table:
        """Return the table of all records."""
        return pa.Table.from_batches(self._batches, SCHEMA_WITH_HEADERS if self.with_headers else SCHEMA)


def _left_out(tp: TopicPartition, header: BatchHeader, error: ApiError) -> None:
    damage = Damage(*tp, header.base_offset, header.next_offset, error.message)
    logger.warning("left out, since it is damaged: %s", damage)
