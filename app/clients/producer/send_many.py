"""`Producer.send_many`: whole runs of messages put into batches at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ....core.client.errors import QueueFull
from ....core.client.producer.producer_batch import BatchFuture, EncodedMessage
from ....core.client.producer.record_accumulator import bytes_up_to
from ....core.message.message import Message
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.encoding import checked_headers, checked_partition, checked_timestamp

if TYPE_CHECKING:
    from .record_appender import RecordAppender

_RUN_BYTES = 65_536
"""The room in the buffer, at least, for which the next run of values waits."""


def send_many(
    appender: RecordAppender, topic: str, values: Sequence[Any], partition: int | None, key: Any
) -> ManyHandle:
    """See `Producer.send_many`."""
    if partition is not None:
        partition = checked_partition(partition)
    kinds = set(map(type, values))
    if kinds == {bytes} and key is None and appender.encoding.plain:
        return _send_values(appender, topic, list(values), partition)
    messages = [_encoded(appender, topic, value, key) for value in values]
    if kinds == {Message} and key is None and all(m[1] is None and not m[2] and m[3] is None for m in messages):
        plain = [m[0] for m in messages]
        if None not in plain:
            return _send_values(appender, topic, plain, partition)  # type: ignore[arg-type]  # none of them is None
    handles: list[DeliveryHandle] = []
    for message in messages:
        try:
            handles.append(appender.append(topic, message, partition))
        except QueueFull as error:
            error.taken = ManyHandle(appender.shell, [], handles)
            raise
    return ManyHandle(appender.shell, [], handles)


def _encoded(appender: RecordAppender, topic: str, value: Any, key: Any) -> EncodedMessage:
    if type(value) is not Message:
        return (*appender.encoding.encode(topic, value, key), (), None)
    data, own_key = appender.encoding.encode(topic, value[0], value[1] if key is None else key)
    headers = checked_headers(value[2]) if value[2] else ()
    if value[3] is not None:
        checked_timestamp(value[3])
    return data, own_key, headers, value[3]


def _send_values(appender: RecordAppender, topic: str, values: list[bytes], partition: int | None) -> ManyHandle:
    """Send values without keys, headers and timestamps; with a sticky partitioner, a batch at a time."""
    shell, accumulator = appender.shell, appender.accumulator
    runs: list[tuple[BatchFuture, int, int]] = []
    singles: list[DeliveryHandle] = []
    ends = bytes_up_to(values)
    at, count = 0, len(values)
    one_by_one = partition is None and not appender.partitioner.sticky
    limit = appender.settings.max_request_size
    while at < count:
        before = ends[at - 1] if at else 0
        view = appender.view.topic(topic)
        if view is None or one_by_one or topic in appender.unplaced or ends[at] - before > limit:
            singles.append(_take_one(appender, topic, values[at], partition, runs, singles))
            at += 1
            continue
        # Up to the first value that is too large by itself nothing is checked one by one: a batch holds less.
        with appender.lock:
            appender.check_taking()
            need = min(ends[-1] - before, max(ends[at] - before, _RUN_BYTES))
            try:
                if not accumulator.has_room(need):
                    appender.wait_for_room(need)
            except QueueFull as error:
                error.taken = ManyHandle(shell, runs, singles)
                raise
            tp = appender.resolve_partition(view, topic, (None, None, (), None), partition)
            batch, taken = accumulator.extend(tp, values, ends, at)
            runs.append((batch, batch.count - taken, taken))
            at += taken
        shell.wake()
    return ManyHandle(shell, runs, singles)


def _take_one(
    appender: RecordAppender,
    topic: str,
    value: bytes,
    partition: int | None,
    runs: list[tuple[BatchFuture, int, int]],
    singles: list[DeliveryHandle],
) -> DeliveryHandle:
    try:
        return appender.append(topic, (value, None, (), None), partition)
    except QueueFull as error:
        error.taken = ManyHandle(appender.shell, runs, singles)
        raise
