"""A batch whose records were laid out elsewhere, many at once."""

from ....ports.types import TopicPartition
from ...message.batch_header import TRANSACTIONAL_BIT
from ...message.batch_writer import assemble_batch
from ...message.codec import Codec
from ...message.record_parser import parse_records
from .producer_batch import ProducerBatch


class PrebuiltBatch(ProducerBatch):
    """Takes no further messages. It is numbered, compressed and, when necessary, retried like any other batch."""

    __slots__ = ("base_timestamp", "max_timestamp", "records")

    def __init__(
        self,
        tp: TopicPartition,
        now_ms: float,
        records: memoryview,
        count: int,
        *,
        base_timestamp: int,
        max_timestamp: int,
        timestamps: list[int | None] | None,
    ) -> None:
        """`records`: `count` of them, at offset deltas 0, 1, ..., their times relative to `base_timestamp`.

        `timestamps`: the timestamp of each message in its `Delivery`; None: the base timestamp for all.
        """
        super().__init__(tp, now_ms, base_timestamp)
        self.records = records
        self.count = count
        self.bytes = len(records)
        self.full = True
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp
        self.timestamps = timestamps

    def encode(self, codec: Codec | None, transactional: bool = False) -> bytearray:
        if self.numbered is not None:
            self._open()
            return super().encode(codec, transactional)
        idempotent = self.base_sequence >= 0
        return assemble_batch(
            self.records,
            count=self.count,
            codec=codec,
            base_offset=0,
            last_offset_delta=self.count - 1,
            attributes=TRANSACTIONAL_BIT if transactional else 0,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=self.producer_id if idempotent else -1,
            producer_epoch=self.producer_epoch if idempotent else -1,
            base_sequence=self.base_sequence,
        )

    def split(self) -> tuple[ProducerBatch, ProducerBatch]:
        self._open()
        return super().split()

    def _open(self) -> None:
        """Parse the records into the columns of other batches, to add headers to the messages or to split the batch."""
        if self.values:
            return
        data = bytes(self.records)
        found = parse_records(data, 0, len(data), self.count, with_headers=True)
        self.values, self.keys, self.headers = found.values, found.keys, found.headers
        self.timestamps = [self.base_timestamp + delta for delta in found.timestamp_deltas]

    def _drop_content(self) -> None:
        super()._drop_content()
        self.records = memoryview(b"")
