"""The records of one partition that one fetch has acquired (Kafka: `ShareInFlightBatch`, `ShareCompletedFetch`)."""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from ....ports.broker_api.share_groups import AcknowledgeType, AcquiredRecords
from ....ports.errors import ApiError
from ....ports.types import TopicPartition
from ...message.batch_header import BatchHeader
from ...message.batch_reader import decode_batch, whole_batches
from ...message.codec import Codecs
from ...message.corrupt_record import CorruptRecord, is_damage
from ...message.message import ShareMessage

if TYPE_CHECKING:
    from .share_session_handler import ShareSessionHandler

_OFFSET_OF = attrgetter("offset")


class ShareInFlightBatch:
    """Record batches with acquired records among them. One thread reads it."""

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        session: "ShareSessionHandler",
        records: bytes,
        acquired: Sequence[AcquiredRecords],
        *,
        codecs: Codecs,
        lock_until_ms: float,
        check_crc: bool = True,
    ) -> None:
        self.tp = tp
        self.tip = (topic_id, tp.partition)
        self.session = session
        """The share session that has acquired the records: only there can they be acknowledged."""
        self.acquired = acquired
        self.lock_until_ms = lock_until_ms
        """The time at which the leader releases what is not acknowledged by then."""
        self.has_lapsed = False
        """True when the locks are gone, so that the rest of these records must not be handed out."""
        self.messages: list[ShareMessage] = []
        """The messages that were decoded so far."""
        self.handed_out = 0
        """The number of messages that the user has got. Its thread alone changes it."""
        self.processed = 0
        """The number of messages that the user has finished with. Its thread alone changes it."""
        self.accepted = 0
        """The number of messages that are accepted, in implicit mode. Changed under the lock."""
        self.unusable: deque[tuple[int, int]] = deque()
        """(offset, acknowledge type) of records that the user does not get: gaps, and what cannot be decoded."""
        self.size = len(records)
        self._records = records
        self._codecs = codecs
        self._check_crc = check_crc
        self._seen = acquired[0].first_offset if acquired else 0
        self._chunks = self._read()

    @property
    def count(self) -> int:
        """The number of acquired records."""
        return sum(each.last_offset - each.first_offset + 1 for each in self.acquired)

    def decode_more(self) -> bool:
        """Add the acquired messages of the next record batch to `messages`; return False if there is none.

        Raises `CorruptRecord`, and rejects the records of that batch; `ApiError` for a codec that is missing, and
        releases them. The next call continues with the batch after it.
        """
        try:
            found = next(self._chunks, None)
        except ApiError:
            self._chunks = self._read()
            raise
        self.messages += found or ()
        return found is not None

    def take_finished(self) -> list[int]:
        """Return the offsets of the messages with which the user has finished since the last call. Lock held."""
        start, self.accepted = self.accepted, max(self.accepted, self.processed)
        return [message.offset for message in self.messages[start : self.accepted]]

    def _read(self) -> Iterator[list[ShareMessage]]:
        for position, header in whole_batches(self._records):
            if header.next_offset <= self._seen:
                continue
            ranges = self._acquired_within(header)
            self._skip_to(max(self._seen, header.base_offset))
            self._seen = header.next_offset
            if not ranges:
                continue
            if header.control:
                self._reject(ranges, AcknowledgeType.GAP)
                continue
            messages = self._decode(position, header, ranges)
            found = self._acquired_of(messages, ranges[0])
            for acquired in ranges[1:]:
                found += self._acquired_of(messages, acquired)
            if found:
                yield found
        if self.acquired:
            self._skip_to(self.acquired[-1].last_offset + 1)

    def _decode(self, position: int, header: BatchHeader, ranges: Sequence[AcquiredRecords]) -> list[ShareMessage]:
        """Return all messages of the batch, with the delivery count of the first range."""
        try:
            messages = decode_batch(
                memoryview(self._records)[position : position + header.size],
                self._codecs,
                topic=self.tp.topic,
                partition=self.tp.partition,
                check_crc=self._check_crc,
                header=header,
                delivery_count=ranges[0].delivery_count,
            )
            return cast("list[ShareMessage]", messages)
        except ApiError as error:
            damaged = is_damage(error)
            self._reject(ranges, AcknowledgeType.REJECT if damaged else AcknowledgeType.RELEASE)
            if damaged:
                raise CorruptRecord(*self.tp, ranges[0].first_offset, error.message) from error
            raise

    def _acquired_within(self, header: BatchHeader) -> list[AcquiredRecords]:
        """Return the acquired ranges, cut to the offsets of the batch."""
        first, last = header.base_offset, header.last_offset
        return [
            AcquiredRecords(max(first, each.first_offset), min(last, each.last_offset), each.delivery_count)
            for each in self.acquired
            if each.first_offset <= last and each.last_offset >= first
        ]

    def _acquired_of(self, messages: list[ShareMessage], acquired: AcquiredRecords) -> list[ShareMessage]:
        first, last, count = acquired.first_offset, acquired.last_offset, acquired.delivery_count
        if not messages or messages[0].offset < first or messages[-1].offset > last:
            start = bisect_left(messages, first, key=_OFFSET_OF)
            messages = messages[start : bisect_left(messages, last + 1, key=_OFFSET_OF)]
        if len(messages) < last - first + 1:
            present = {each.offset for each in messages}
            self.unusable.extend(
                (offset, AcknowledgeType.GAP) for offset in range(first, last + 1) if offset not in present
            )
        if not messages or messages[0].delivery_count == count:
            return messages
        return [each._replace(delivery_count=count) for each in messages]

    def _skip_to(self, offset: int) -> None:
        """Acknowledge the acquired offsets before `offset`, for which there is no batch, as gaps."""
        if self._seen < offset:
            for each in self.acquired:
                last = min(each.last_offset, offset - 1)
                self._reject([AcquiredRecords(max(self._seen, each.first_offset), last, 0)], AcknowledgeType.GAP)
            self._seen = offset

    def _reject(self, ranges: Sequence[AcquiredRecords], kind: int) -> None:
        self.unusable.extend(
            (offset, kind) for each in ranges for offset in range(each.first_offset, each.last_offset + 1)
        )
