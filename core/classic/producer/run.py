"""Values of one topic that a producer sends together: what the classic API calls producer data (facts A6)."""

from collections.abc import Sequence

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError
from ...client.producer.producer_batch import BatchFuture, Delivery
from ...message.classic.reader import ShallowMessage
from ...message.classic.writer import encode_set, encode_shallow
from ...message.codec import Codec
from ..registry.layout import BrokerPartition

Wish = BrokerPartition | int | None
"""The wish of a sender: that partition of that broker; that partition of any broker; or None, as the key says."""

ENTRY_OVERHEAD = 10
"""Length, magic, attributes and CRC of a message (facts A2)."""


class Run(BatchFuture):
    """One or more values with one key, which go to one partition together. One handle may point at each of them.

    A plain slotted class: an asynchronous producer makes one for each message.
    """

    __slots__ = ("count", "key", "place", "shallow", "size", "topic", "values", "wish")

    def __init__(
        self,
        topic: str,
        values: Sequence[bytes] | Sequence[ShallowMessage],
        key: bytes | None,
        wish: Wish,
        size: int,
        shallow: bool = False,
    ) -> None:
        """`size`: bytes of the values; `shallow`: they are messages that pass on unopened."""
        super().__init__()
        self.topic = topic
        self.values = values
        self.key = key
        self.wish = wish
        self.count = len(values)
        self.size = size + ENTRY_OVERHEAD * self.count
        self.shallow = shallow
        self.place: BrokerPartition | None = None
        """The partition that it goes to, once that has been decided."""

    def delivery(self, index: int) -> Delivery:  # noqa: ARG002  # one place for all of them
        if self.error is not None:
            raise self.error
        partition = -1 if self.place is None else self.place.partition
        return Delivery(self.topic, partition, -1, -1)  # the classic wire gives no offsets to producers

    def finish(self, error: BarnabasError | None) -> None:
        super().finish(error)
        self.values = ()  # a user may keep the handle for long


def first_value(run: Run) -> bytes:
    """Return the value that a partitioner gets."""
    value = run.values[0]
    return value if isinstance(value, bytes) else value.value


def encode_runs(runs: Sequence[Run], codec: Codec | None, max_message_bytes: int) -> bytes:
    """Encode runs as one message set; with a codec as one wrapper, or several if it would exceed `max_message_bytes`.

    Raises `ApiError` MESSAGE_TOO_LARGE, and what the codec raises.
    """
    if len(runs) == 1 and not runs[0].shallow:
        return _encode_plain(runs[0].values, codec, max_message_bytes)  # type: ignore[arg-type]  # not shallow: bytes
    pieces: list[bytes] = []
    plain: list[bytes] = []
    for run in runs:
        for value in run.values:
            if isinstance(value, bytes):
                plain.append(value)
                continue
            if plain:
                pieces.append(_encode_plain(plain, codec, max_message_bytes))
                plain = []
            pieces.append(encode_shallow(value.value, value.codec_id))
    if plain:
        pieces.append(_encode_plain(plain, codec, max_message_bytes))
    return b"".join(pieces)


def _encode_plain(values: Sequence[bytes], codec: Codec | None, max_message_bytes: int) -> bytes:
    encoded = encode_set(values, codec=codec)
    if codec is None or len(encoded) - ENTRY_OVERHEAD <= max_message_bytes:
        return encoded
    count = len(values)
    if count == 1:
        size = len(encoded) - ENTRY_OVERHEAD
        raise too_large(size)
    half = count // 2
    return _encode_plain(values[:half], codec, max_message_bytes) + _encode_plain(
        values[half:], codec, max_message_bytes
    )


def too_large(size: int) -> ApiError:
    """Return the error for a message of `size` bytes."""
    return ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"{size} bytes; raise max.message.size here and at the broker")
