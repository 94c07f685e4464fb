"""The entry of messages into a producer: into a batch, or into the queue of those without a partition yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ....core.client.arguments import check_topic
from ....core.client.errors import QueueFull, no_partition
from ....core.client.producer.hashing import murmur2_partition
from ....core.client.producer.pending_messages import PendingMessage, PendingTopicMessages
from ....core.client.producer.producer_batch import BatchFuture, DeliveryCallback, EncodedMessage, ProducerBatch
from ....core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator, message_bytes
from ....core.message.message import Message
from ....plugins.builtin.partitioners import KeyedPartitioner
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ....ports.values import mypyc_attr
from ..shared.delivery import DeliveryHandle
from ..shared.encoding import (
    Encoding,
    check_callback,
    checked_headers,
    checked_partition,
    checked_timestamp,
    choose_index,
    choose_partition,
)
from ..shared.hooks import HookPath
from ..shared.settings import copy_settings

if TYPE_CHECKING:
    from ....core.client.cluster_view import TopicView
    from ....core.client.producer.partitioner import Partitioner
    from ....core.client.producer.transaction_manager import TransactionManager
    from ..shared.client_shell import ClientShell
    from ..shared.settings import ProducerSettings

TURN_BYTES = 16_384
"""Messages without a key go to another partition after this number of bytes (Kafka's default of batch.size, KIP-794).

Later turns are longer, up to batch.size, but none has more than each partition has got on average: few messages are
spread, and many fill large batches.
"""

AppendFailedCallback = Callable[[Sequence[PendingMessage], BarnabasError], None]


class RecordAppender:
    """Takes messages until it is closed.

    not_placed: called, with the lock held, with messages that never got a partition, and the error.
    transaction: the transaction manager of all messages, if the producer has a transactional id.
    runs:       whether a message with only a value may go to the batch of the last such message of its topic.
    """

    def __init__(
        self,
        shell: ClientShell,
        settings: ProducerSettings,
        encoding: Encoding,
        partitioner: Partitioner,
        *,
        runs: bool,
        not_placed: AppendFailedCallback,
        transaction: TransactionManager | None,
    ) -> None:
        self.shell = shell
        self.lock = shell.lock
        self.view = shell.view
        self.settings = settings
        self.encoding = encoding
        self.plain: bool = encoding.plain and encoding.plain_keys
        """True if bytes need no call of an encoder."""
        self.partitioner = partitioner
        self.accumulator = RecordAccumulator(
            copy_settings(
                AccumulatorSettings,
                settings,
                batch_messages=settings.batch_num_messages,
                buffer_messages=settings.queue_buffering_max_messages,
            ),
            shell.clock,
            self._batch_closed,
        )
        blocks = 0 < settings.max_block_ms < settings.delivery_timeout_ms
        self.unplaced = PendingTopicMessages(
            shell.view,
            limit_ms=settings.max_block_ms if blocks else settings.delivery_timeout_ms,
            limit_key="max.block.ms" if blocks else "delivery.timeout.ms",
            route=self._place_late,
            failed=self._not_placed,
        )
        self.closed = False
        """When True, no messages are taken."""
        self.transaction = transaction
        self.runs: dict[str, ProducerBatch] = {}
        """Topic → the batch of the next message that has only a value; `append_plain` takes it, or refuses."""
        self.keyed_runs: dict[str, list[ProducerBatch | None]] = {}
        """Topic → per partition the batch of its next message with key and value alone, for `append_keyed`, or None.

        The partitions are those of the metadata when a message last took the long way, as for messages in open batches.
        """
        self._turns: dict[str, ProducerBatch] = {}
        """Topic → the batch of the partition whose turn it is to get messages without a key."""
        self._turn_bytes: dict[str, int] = {}
        """Topic → the bytes of its turns that have ended."""
        self.takes_turns = partitioner.sticky
        self._hashes_keys = type(partitioner) is KeyedPartitioner and partitioner.hashed is murmur2_partition
        """Whether keys have the default partitioner, which needs no call of Python then."""
        self._max_request_size: int = settings.max_request_size
        self._keyed_end: int = min(settings.batch_size, settings.max_request_size)
        self._may_run = runs
        self._keyed_may_run = runs and self._hashes_keys and encoding.plain_keys
        self._on_not_placed = not_placed

    def check_open(self) -> None:
        """Raises `ClosedError` once it is closed."""
        if self.closed:
            raise ClosedError("the producer is closed")

    def check_taking(self) -> None:
        """Raises `ClosedError`, or the error of a transaction that takes no messages now."""
        self.check_open()
        if self.transaction is not None:
            self.transaction.check_sending()

    def append(
        self,
        topic: str,
        message: EncodedMessage,
        partition: int | None,
        handle: DeliveryHandle | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryHandle:
        """Put an encoded message into its batch, or keep it until it has one. With a `handle`, from hooks: at once."""
        if partition is not None and type(partition) is not int:
            partition = checked_partition(partition)
        value, key, headers, _ = message
        size = message_bytes(value, key, headers)
        if size > self._max_request_size:
            limit = self._max_request_size
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, f"about {size} bytes; max.request.size is {limit}")
        with self.lock:
            if handle is not None:
                if self.transaction is not None:
                    self.transaction.check_sending()
            else:
                if self.closed or self.transaction is not None:
                    self.check_taking()
                if not self.accumulator.has_room(size):
                    self.wait_for_room(size)
            view = self.view.topic(topic)
            if view is None or topic in self.unplaced:
                return self._place_later(topic, PendingMessage(message, partition, size, handle), on_delivery)
            batch = self._append(view, topic, message, partition, size)
            index = batch.count - 1
            if not index:
                self.shell.wake()
            if handle is not None:
                handle.move(batch, index)
                return handle
            if on_delivery is not None:
                batch.callbacks.append((index, on_delivery))
        return DeliveryHandle(batch, index, self.shell)

    # --- with the lock held

    def close(self) -> None:
        """Refuse all messages from now on."""
        self.closed = True
        self.end_runs()

    def end_runs(self) -> None:
        """Let each topic's next message take the long way, which looks at everything."""
        for batch in self.runs.values():
            batch.run_end = 0
        self.runs.clear()
        for batches in self.keyed_runs.values():
            for each in batches:
                if each is not None:
                    each.keyed_end = 0
        self.keyed_runs.clear()

    def resolve_partition(
        self, view: TopicView, topic: str, message: EncodedMessage, partition: int | None
    ) -> TopicPartition:
        """Return the partition of a message. Raises `ApiError` for a partition that the topic does not have.

        Raises `EncodeError` when the partitioner fails.
        """
        if partition is None:
            partition = choose_partition(self.partitioner, topic, message, view)
        elif not 0 <= partition < len(view.leaders):
            raise no_partition(topic, len(view.leaders), partition)
        return view.partitions[partition]

    def _append(
        self,
        view: TopicView,
        topic: str,
        message: EncodedMessage,
        partition: int | None,
        size: int,
        since_ms: float | None = None,
    ) -> ProducerBatch:
        if partition is None and message[1] is not None:
            value, key, _, _ = message
            if key and self._hashes_keys:
                chosen = murmur2_partition(key, len(view.leaders))
            else:
                chosen = choose_index(self.partitioner, topic, key, value, len(view.leaders), view.available)
            batch = self.accumulator.append(view.partitions[chosen], message, size, since_ms)
            if self._keyed_may_run and key and type(value) is bytes:
                self._begin_keyed_run(topic, len(view.leaders), chosen, batch)
            return batch
        takes_turns = self.takes_turns and partition is None
        if takes_turns:
            self.end_turn(topic, size)
        tp = self.resolve_partition(view, topic, message, partition)
        batch = self.accumulator.append(tp, message, size, since_ms)
        if takes_turns and self._turns.get(topic) is not batch:
            self._begin_turn(batch, batch.bytes - size, len(view.available))
        return batch

    def end_turn(self, topic: str, size: int) -> None:
        """Let the partitioner move if the turn has no room for the next `size` bytes without a key."""
        turn = self._turns.get(topic)
        if turn is not None and not turn.full and turn.bytes + size > turn.turn_end:
            self._turn_bytes[topic] = self._turn_bytes.get(topic, 0) + turn.bytes - turn.turn_begin
            self._batch_closed(turn.tp)

    def turn_end(self, batch: ProducerBatch, available: int, expected: int) -> int:
        """Return how many bytes the batch may have before another one of `available` partitions has its turn.

        `expected`: the bytes that are known to follow.
        """
        if self._turns.get(batch.tp.topic) is not batch:
            self._begin_turn(batch, batch.bytes, available, expected)
        return batch.turn_end

    def _begin_turn(self, batch: ProducerBatch, begin: int, available: int, expected: int = 0) -> None:
        topic, most = batch.tp.topic, self.settings.batch_size
        if available > 1:
            most = min(most, max(TURN_BYTES, expected // available, self._turn_bytes.get(topic, 0) // available))
        batch.turn_begin = begin
        batch.turn_end = min(begin + most, self.settings.batch_size)
        self._turns[topic] = batch
        if self._may_run:
            self.runs[topic] = batch
            self.accumulator.begin_run(batch, batch.turn_end)

    def _begin_keyed_run(self, topic: str, partitions: int, chosen: int, batch: ProducerBatch) -> None:
        """Let the next messages with keys of this partition go to the batch without looking at everything."""
        batches = self.keyed_runs.get(topic)
        if batches is None or len(batches) != partitions:
            none: list[ProducerBatch | None] = [None] * partitions
            batches = self.keyed_runs[topic] = none
        batches[chosen] = batch
        if not batch.keyed_end:
            self.accumulator.begin_keyed_run(batch, self._keyed_end)

    def wait_for_room(self, size: int) -> None:
        """Wait for room in the buffer, up to `max.block.ms`. Raises `QueueFull`, `ClosedError`."""
        limit_ms, accumulator = self.settings.max_block_ms, self.accumulator
        if limit_ms and not self.shell.connector.owns_thread():
            accumulator.hurry += 1
            self.shell.wake()
            try:
                if self.shell.wait(lambda: accumulator.has_room(size), limit_ms / 1000 if limit_ms > 0 else None):
                    self.check_taking()
                    return
            finally:
                accumulator.hurry -= 1
        held = f"{counted(accumulator.messages, 'message')}, {accumulator.bytes} bytes"
        raise QueueFull(f"the producer holds {held} and did not get rid of them within max.block.ms ({limit_ms:g})")

    def _place_later(
        self, topic: str, unplaced: PendingMessage, on_delivery: DeliveryCallback | None
    ) -> DeliveryHandle:
        handle = unplaced.token
        if not isinstance(handle, DeliveryHandle):
            handle = DeliveryHandle(BatchFuture(), 0, self.shell)
            unplaced = evolve(unplaced, token=handle)
        if on_delivery is not None:
            handle.batch_future.callbacks.append((0, on_delivery))
        self.keyed_runs.pop(topic, None)
        self.unplaced.put(topic, unplaced, self.shell.now_ms())
        self.accumulator.hold(unplaced.size)
        self.shell.wake()
        return handle

    def _place_late(self, topic: str, unplaced: PendingMessage, since_ms: float) -> None:
        view, handle = self.view.topic(topic), unplaced.token
        if view is None or not isinstance(handle, DeliveryHandle):
            raise BarnabasError(f"topic {topic} has gone")
        if self.transaction is not None:
            self.transaction.check_sending(late=True)
        batch = self._append(view, topic, unplaced.message, unplaced.partition, unplaced.size, since_ms)
        self.accumulator.hold(-unplaced.size)
        handle.move(batch, batch.count - 1)

    def _not_placed(self, group: Sequence[PendingMessage], error: BarnabasError) -> None:
        for unplaced in group:
            self.accumulator.hold(-unplaced.size)
        self._on_not_placed(group, error)

    def _batch_closed(self, tp: TopicPartition) -> None:
        try:
            self.partitioner.next_batch(*tp)
        except Exception as error:  # noqa: BLE001  # no message is to blame; its next choice may fail one
            self.shell.report(f"the partitioner {type(self.partitioner).__name__} failed in next_batch", error)


@mypyc_attr(allow_interpreted_subclasses=True)
class SendsRecords:
    """The method `send` of a producer, compiled with the appender (docs/design/architecture.md, 'Compiled modules')."""

    _appender: RecordAppender
    _hooks: HookPath | None
    _sync: bool

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        *,
        partition: Any = None,
        headers: Any = (),
        timestamp_ms: Any = None,
        on_delivery: Any = None,
    ) -> DeliveryHandle:
        """Take a message for delivery; `value` may also be a whole `Message`.

        Waits only while the buffer is full, up to `max.block.ms`; with `producer.type=sync`, until the delivery. Calls
        `on_delivery(error, delivery)` on the producer's thread. The class has no types of arguments, which a compiled
        method would check before our own checks.
        """
        appender = self._appender
        if appender.shell.is_foreign:
            appender.shell.check_process()
        if partition is None and timestamp_ms is None and on_delivery is None and not headers and type(value) is bytes:
            if key is None:
                batch = appender.runs.get(topic)
                if batch is not None:
                    with appender.lock:
                        index = appender.accumulator.append_plain(batch, value)
                    if index >= 0:
                        return DeliveryHandle(batch, index, appender.shell)
            elif type(key) is bytes and key:
                batches = appender.keyed_runs.get(topic)
                batch = None
                if batches is not None:
                    batch = batches[0 if len(batches) == 1 else murmur2_partition(key, len(batches))]
                if batch is not None:
                    with appender.lock:
                        index = appender.accumulator.append_keyed(batch, key, value)
                    if index >= 0:
                        return DeliveryHandle(batch, index, appender.shell)
        if type(topic) is not str:
            check_topic(topic)
        if on_delivery is not None:
            check_callback(on_delivery)
        if partition is not None and type(partition) is not int:
            partition = checked_partition(partition)
        if type(value) is Message:
            value, key, headers, timestamp_ms = value[0], value[1] if key is None else key, value[2], value[3]
        own_headers = checked_headers(headers) if headers else ()
        if timestamp_ms is not None:
            checked_timestamp(timestamp_ms)
        if self._hooks is not None:
            handle = self._hooks.send(topic, value, key, partition, own_headers, timestamp_ms, on_delivery)
        else:
            data, key_data = value, key
            if not (appender.plain and type(value) is bytes and (key is None or type(key) is bytes)):
                data, key_data = appender.encoding.encode(topic, value, key)
            handle = appender.append(topic, (data, key_data, own_headers, timestamp_ms), partition, None, on_delivery)
        if self._sync:
            handle.result()
        return handle
