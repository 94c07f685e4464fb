"""Errors that arise on the client's side alone. Refusals by a broker are `ApiError`."""

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.report import counted
from ...ports.transport import Address, TransportError


class QueueFull(BarnabasError):
    """The producer's buffer is full and stayed so for `max.block.ms`; the message was not taken."""

    taken: object = None
    """After `send_many`: the handle of those messages that were taken before."""


class EncodeError(BarnabasError):
    """A key or value could not be encoded or decoded, or a partitioner failed; the cause is attached."""


class EncodeTypeError(EncodeError, TypeError):
    """A key, value, header, partition or timestamp has a type that cannot be encoded."""


class EncodeValueError(EncodeError, ValueError):
    """A header, partition or timestamp has the right type and a value that cannot be encoded."""


class HookError(BarnabasError):
    """A plugin's hook raised, or returned something unusable; the message it was called with has failed."""


class DeliveryFailed(BarnabasError):
    """Messages were not delivered, and the program had not asked for their outcome when it left the producer's block.

    The cause is the error of the first one.
    """

    def __init__(self, message: str, failed: int = 0) -> None:
        super().__init__(message)
        self.failed = failed
        """The number of messages."""


class ClientTimeout(BarnabasError):
    """No answer within the time given. The call may still take effect."""


class NoOffset(BarnabasError):
    """A partition has no position, or one out of range, and `auto.offset.reset` is none."""


class LogTruncated(NoOffset):
    """The log lost records that were read, and `auto.offset.reset` is none: those messages are gone (KIP-320).

    Other messages may have their offsets now. `offset` is the reader's position; the reader and the log agree up to
    `end_offset`: `seek` there to read what the log has now.
    """

    def __init__(self, message: str, offset: int = -1, end_offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset
        self.end_offset = end_offset


class CommitFailed(ApiError):
    """The positions were not committed, because their partitions are another member's now, or may be soon.

    Messages read since the last commit are delivered again, here or to another member. Poll again to rejoin the group.
    """


def no_partition(topic: str, count: int, partition: int) -> ApiError:
    """Return the error for a partition number that a topic with `count` partitions does not have."""
    text = f"{topic} has {counted(count, 'partition')}, no {partition}"
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def silent(address: Address | None) -> TransportError | None:
    """Return the error for a broker that neither answered nor closed the connection; None without an address."""
    if address is None:
        return None
    return TransportError(f"{address[0]}:{address[1]} has said nothing; does a broker run there?")


class TransactionError(BarnabasError):
    """A call that does not fit the producer's transaction: none is under way, or one is already."""


class AbortNeeded(TransactionError):
    """The transaction can no longer be committed: abort it, and begin another one. The cause is attached."""


class TransactionAborted(BarnabasError):
    """The message was not sent, since its transaction was aborted or has to be."""


class ProducerFenced(ApiError):
    """Another producer has begun under the transactional id, or the transaction took longer than its timeout.

    The coordinator has aborted the open transaction. This producer cannot be used again.
    """
