"""Errors that arise on the client's side alone. Refusals by a broker are `ApiError`."""

from typing import Any

from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, BarnabasError
from ...ports.report import counted
from ...ports.transport import Address, TransportError


class QueueFull(BarnabasError):
    """The producer's buffer is full and stayed so for `max.block.ms`; the message was not taken."""

    __module__ = "barnabas"

    taken: object = None
    """After `send_many`: the handle of those messages that were taken before."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.args  # the handle belongs to this process


class EncodeError(BarnabasError):
    """A key or value could not be encoded, or a partitioner failed; the cause is attached."""

    __module__ = "barnabas"


class EncodeTypeError(EncodeError, TypeError):
    """A key, value, header, partition or timestamp has a type that cannot be encoded."""

    __module__ = "barnabas"


class EncodeValueError(EncodeError, ValueError):
    """A header, partition or timestamp has the right type and a value that cannot be encoded."""

    __module__ = "barnabas"


class DecodeError(EncodeError):
    """A key or value could not be decoded; the cause is attached.

    It is an `EncodeError`, too, since that was the error before there was this one.
    """

    __module__ = "barnabas"


class HookError(BarnabasError):
    """A plugin's hook raised, or returned something unusable; the message it was called with has failed."""

    __module__ = "barnabas"


class DeliveryFailed(BarnabasError):
    """Messages were not delivered, and the program had not asked for their outcome when it left the producer's block.

    The cause is the error of the first one.
    """

    __module__ = "barnabas"

    def __init__(self, message: str, failed: int = 0) -> None:
        super().__init__(message)
        self.failed = failed
        """The number of messages."""


class ClientTimeout(BarnabasError, TimeoutError):
    """No answer within the time given. The call may still take effect."""

    __module__ = "barnabas"


class NoOffset(BarnabasError):
    """A partition has no position, or one out of range, and `auto.offset.reset` is none."""

    __module__ = "barnabas"


class LogTruncated(NoOffset):
    """The log lost records that were read, and `auto.offset.reset` is none: those messages are gone (KIP-320).

    Other messages may have their offsets now. `offset` is the reader's position; the reader and the log agree up to
    `end_offset`: `seek` there to read what the log has now.
    """

    __module__ = "barnabas"

    def __init__(self, message: str, offset: int = -1, end_offset: int = -1) -> None:
        super().__init__(message)
        self.offset = offset
        self.end_offset = end_offset


class CommitFailed(ApiError):
    """The positions were not committed, because their partitions are another member's now, or may be soon.

    Messages read since the last commit are delivered again, here or to another member. Poll again to rejoin the group.
    """

    __module__ = "barnabas"


def no_partition(topic: str, count: int, partition: int) -> ApiError:
    """Return the error for a partition number that a topic with `count` partitions does not have."""
    text = f"{topic} has {counted(count, 'partition')}, no {partition}"
    return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: " does not exist; create it (`Admin.create_topic`, `barnabas topics create`) "
    "or compare its name with `barnabas topics list`",
    ErrorCode.INVALID_TOPIC_EXCEPTION: ": a name has 1 to 249 characters, each of a-z, A-Z, 0-9, '.', '_' and '-'",
}


def topic_error(error: ErrorCode, topic: str) -> ApiError:
    """Return the error that a broker has given for a topic, with what to do about it."""
    return ApiError(error, f"topic {topic}{_ADVICE.get(error, '')}")


def silent(address: Address | None) -> TransportError | None:
    """Return the error for a broker that neither answered nor closed the connection; None without an address."""
    if address is None:
        return None
    return TransportError(f"{address[0]}:{address[1]} has said nothing; does a broker run there?")


class TransactionError(BarnabasError):
    """A call that does not fit the producer's transaction: none is under way, or one is already."""

    __module__ = "barnabas"


class AbortNeeded(TransactionError):
    """The transaction can no longer be committed: abort it, and begin another one. The cause is attached."""

    __module__ = "barnabas"


class TransactionAborted(BarnabasError):
    """The message was not sent, since its transaction was aborted or has to be."""

    __module__ = "barnabas"


class ProducerFenced(ApiError):
    """Another producer has begun under the transactional id, or the transaction took longer than its timeout.

    The coordinator has aborted the open transaction. This producer cannot be used again.
    """

    __module__ = "barnabas"
