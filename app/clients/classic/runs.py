"""The conversion of what a user gives to `send` into runs of bytes; all its errors are found here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from ....core.classic.producer.run import ENTRY_OVERHEAD, Run, Wish, too_large
from ....core.classic.producer.sender import REQUEST_BYTES_MAX
from ....core.classic.registry.layout import BrokerPartition
from ....core.client.errors import EncodeError
from ....core.message.classic.reader import ShallowMessage
from ....core.message.message import Message
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError

if TYPE_CHECKING:
    from ..shared.encoding import Encoding

TOPIC_LENGTH_MAX = 255
_TOPICS_MAX = 10_000


class ProducerData(NamedTuple):
    """Values of one topic, with one key or none: they go to one partition together."""

    topic: str
    values: Sequence[Any]
    key: Any = None


class RunMaker:
    """Encodes and checks for one producer. Callable from any thread."""

    def __init__(self, encoding: Encoding, max_message_bytes: int | None) -> None:
        """`max_message_bytes`: a larger value is refused here; None where it is compressed before it is measured."""
        self._encoding = encoding
        self._max = max_message_bytes
        self._topics: set[str] = set()

    def run(self, topic: str, value: Any, key: Any, partition: Any, headers: Iterable[Any] = ()) -> Run:
        """One message. Raises `EncodeError`, `ApiError` INVALID_TOPIC_EXCEPTION or MESSAGE_TOO_LARGE."""
        if topic not in self._topics:
            self._check_topic(topic)
        if headers:
            raise EncodeError("a message of the classic format has no headers")
        wish = None if partition is None else wish_of(partition)
        shallow = type(value) is ShallowMessage
        if shallow:
            data, key_data, size = value, self._encoding.encode(topic, b"", key)[1], len(value.value)
        else:
            data, key_data = self._encoding.encode(topic, value, key)
            if data is None:
                raise EncodeError("a message of the classic format has a value: b'' is the shortest")
            size = len(data)
        if self._max is not None and size > self._max:
            raise too_large(size)
        return Run(topic, (data,), key_data, wish, size, shallow)

    def runs(self, topic: str, values: Sequence[Any], key: Any, partition: Any) -> list[Run]:
        """Many, in their order: those that follow each other with the same key in one run. Raises as `run`."""
        kinds = set(map(type, values))
        if kinds == {bytes} and self._encoding.plain:
            if topic not in self._topics:
                self._check_topic(topic)
            if self._max is not None and len(largest := max(values, key=len)) > self._max:
                raise too_large(len(largest))
            key_data = None if key is None else self._encoding.encode(topic, b"", key)[1]
            wish = None if partition is None else wish_of(partition)
            return [Run(topic, list(values), key_data, wish, sum(map(len, values)))]
        singles = [self._single(topic, value, key, partition) for value in values]
        return [_joined(list(group)) for _, group in groupby(singles, lambda run: (run.key, run.shallow))]

    def _single(self, topic: str, value: Any, key: Any, partition: Any) -> Run:
        if type(value) is Message:
            return self.run(topic, value.value, value.key if key is None else key, partition, value.headers)
        return self.run(topic, value, key, partition)

    def _check_topic(self, topic: str) -> None:
        """Check a topic by the rules of brokers (facts A3), which close the connection for a name that breaks them."""
        good = isinstance(topic, str) and topic not in ("", ".", "..") and "/" not in topic
        if not good or len(topic) > TOPIC_LENGTH_MAX or not topic.isprintable():
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r:.300}")
        try:
            topic.encode()
        except UnicodeEncodeError as error:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r:.300}: {error}") from error
        if len(self._topics) < _TOPICS_MAX:
            self._topics.add(topic)


def wish_of(partition: Any) -> Wish:
    """A partition as a user says it. Raises `EncodeError`."""
    if type(partition) is int and -1 <= partition < 2**31:
        return partition
    if isinstance(partition, tuple) and len(partition) == 2 and all(type(number) is int for number in partition):
        return BrokerPartition(*partition)
    raise EncodeError(f"partition {partition!r}: expected a number, or a pair of broker and partition")


def split_run(run: Run, messages_max: int | None) -> list[Run]:
    """The run in parts that fit into a batch and into a request."""
    if run.size <= REQUEST_BYTES_MAX and (messages_max is None or run.count <= messages_max):
        return [run]
    parts: list[Run] = []
    values: list[Any] = []
    size = 0
    for value in run.values:
        length = len(value.value) if isinstance(value, ShallowMessage) else len(value)
        full = len(values) == messages_max or size + length + ENTRY_OVERHEAD * (len(values) + 1) > REQUEST_BYTES_MAX
        if values and full:
            parts.append(Run(run.topic, values, run.key, run.wish, size, run.shallow))
            values, size = [], 0
        values.append(value)
        size += length
    parts.append(Run(run.topic, values, run.key, run.wish, size, run.shallow))
    return parts


def _joined(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    first = runs[0]
    size = sum(run.size for run in runs) - ENTRY_OVERHEAD * len(runs)
    values: list[Any] = [run.values[0] for run in runs]
    return Run(first.topic, values, first.key, first.wish, size, first.shallow)
