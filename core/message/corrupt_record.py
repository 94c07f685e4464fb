"""Corrupt records found by a consumer, and the offsets that it skipped."""

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError
from ...ports.values import frozen

_OF_THE_RECORDS = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD})


class CorruptRecord(ApiError):
    """Records that cannot be read: their partition, the first offset and the reason.

    A retry does not help: continue after them with `seek`, or with `skip.damaged`.
    """

    __module__ = "barnabas"

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, f"{topic}-{partition} is damaged at offset {offset}: {reason}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    @property
    def retriable(self) -> bool:
        return False


@frozen
class Damage:
    """Offsets of a partition that were skipped: start ≤ offset < end."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}: offsets {self.start} to {self.end}: {self.reason}"


def is_damage(error: ApiError) -> bool:
    """Return True for corrupt records, as opposed to a missing codec or a bound that is too low."""
    return error.code in _OF_THE_RECORDS
