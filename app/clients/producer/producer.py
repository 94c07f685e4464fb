"""The producer of messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from ....core.client.arguments import check_topic
from ....core.client.errors import ClientTimeout, HookError, QueueFull, topic_error
from ....core.client.producer.handlers import (
    BatchOutcome,
    CallbackHandler,
    EventHandler,
    ProducerItem,
    gives_headers,
    sees_messages,
)
from ....core.client.producer.identity import ProducerIdentity
from ....core.client.producer.partitioner import Partitioner
from ....core.client.producer.pending_messages import PendingMessage
from ....core.client.producer.producer_batch import (
    BatchFuture,
    DeliveryCallback,
    EncodedMessage,
    ProducerBatch,
    UnseenFailures,
)
from ....core.client.producer.record_accumulator import bytes_up_to
from ....core.client.producer.sender import Sender, SenderSettings
from ....core.message.message import Message
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ....ports.report import counted
from ...config.security_settings import SecuritySettings
from ..arrow import require_arrow
from ..classic.choice import is_classic
from ..classic.producer_settings import ClassicProducerSettings
from ..shared.at_exit import flush_at_exit
from ..shared.blocking_shell import logger
from ..shared.client_arguments import ClientArguments
from ..shared.connect import Plugins, open_shell, plugin_host, with_security
from ..shared.delivery import DeliveryHandle, ManyHandle, all_done
from ..shared.encoding import (
    by_name,
    checked_headers,
    checked_partition,
    checked_timestamp,
    encoding_of,
)
from ..shared.foreign_methods import PRODUCER, explain_foreign_names
from ..shared.hooks import HookOwner, HookPath, QueueLimits, still_wait
from ..shared.locked import Locked, LockedSender
from ..shared.process import check_process_in_methods
from ..shared.protocols import AnyProducer
from ..shared.settings import ProducerSettings, copy_settings, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from ..shared.typed_settings import AnyProducerKeywords
from .record_appender import RecordAppender, SendsRecords

if TYPE_CHECKING:
    from types import TracebackType

    from ....core.client.producer.sequence_numbers import SequenceAssigner
    from ....core.client.producer.transaction_manager import PreparedTransaction, TransactionManager
    from ....core.client.serde import Encoder
    from ....core.message.codec import Codec
    from ....core.message.numbered_header import NumberedHeader
    from ..shared.bootstrap import Bootstrap
    from ..shared.client_shell import ClientShell
    from .transactions import ProducerTransactions

_FIRST_LOOK_MS = 5_000.0
"""The time after a failure at which the producer logs failures whose outcome its program has not asked for."""
_NEXT_LOOK_MS = 60_000.0


# `Producer.send_many`: whole runs of messages put into batches at once.

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
            singles.append(_append_one(appender, topic, values[at], partition, runs, singles))
            at += 1
            continue
        # Up to the first value that is too large alone nothing is checked one by one: a batch holds less.
        with appender.lock:
            appender.check_taking()
            need = min(ends[-1] - before, max(ends[at] - before, _RUN_BYTES))
            try:
                if not accumulator.has_room(need):
                    appender.wait_for_room(need)
            except QueueFull as error:
                error.taken = ManyHandle(shell, runs, singles)
                raise
            available = len(view.available)
            takes_turns = partition is None and available > 1
            if takes_turns:
                appender.end_turn(topic, ends[at] - before)
            tp = appender.resolve_partition(view, topic, (None, None, (), None), partition)
            batch = accumulator.batch_for(tp, ends[at] - before)
            most = appender.turn_end(batch, available, ends[-1] - before) if takes_turns else None
            taken = accumulator.extend(batch, values, ends, at, most)
            runs.append((batch, batch.count - taken, taken))
            at += taken
        shell.wake()
    return ManyHandle(shell, runs, singles)


def _append_one(
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


class ProducerHooks(HookPath):
    """The hook path to the accumulator of the current generation."""

    def __init__(
        self, owner: HookOwner, appender: RecordAppender, events: EventHandler, callbacks: CallbackHandler | None
    ) -> None:
        settings = appender.settings
        limits = QueueLimits(
            batch_messages=settings.batch_num_messages,
            queue_ms=settings.linger_ms,
            queue_messages=settings.queue_buffering_max_messages,
            block_ms=settings.max_block_ms,
            hurry=settings.producer_type == "sync",
        )
        super().__init__(owner, appender.shell, events, callbacks, limits)
        self._appender = appender

    def send_many(self, topic: str, values: Sequence[Any], partition: int | None, key: Any) -> ManyHandle:
        """Queue messages, one after the other. Raises the errors of `send`."""
        return ManyHandle(self._shell, [], [self._send_one(topic, value, key, partition) for value in values])

    def _send_one(self, topic: str, value: Any, key: Any, partition: int | None) -> DeliveryHandle:
        if type(value) is Message:
            own_key = value.key if key is None else key
            return self.send(topic, value.value, own_key, partition, value.headers, value.timestamp_ms, None)
        return self.send(topic, value, key, partition, (), None, None)

    def route(self, item: ProducerItem) -> None:
        appender = self._appender
        handle = self.taken(item)
        try:
            headers = checked_headers(item.headers) if item.headers else ()
            if item.timestamp_ms is not None:
                checked_timestamp(item.timestamp_ms)
            data, key = appender.encoding.encode(item.topic, item.value, item.key)
            appender.append(item.topic, (data, key, headers, item.timestamp_ms), item.partition, handle)
        except BarnabasError as error:
            self._owner.fail_handle(handle, error)
        except (TypeError, ValueError) as error:  # a hook may have changed the topic
            self._owner.fail_handle(handle, HookError(f"an event handler sent what cannot be sent: {error}"))

    def has_room(self) -> bool:
        return self._appender.accumulator.has_room(1)


Handlers = tuple[EventHandler, CallbackHandler | None]


def needs_queue(handlers: Handlers | None) -> bool:
    """Return True if messages have to pass through the classic hook points."""
    if handlers is None:
        return False
    events, callbacks = handlers
    return type(events) is not EventHandler or callbacks is None or sees_messages(callbacks)


class BatchHooks:
    """Calls `before_batch` and `after_batch` of a callback handler, for whole batches."""

    def __init__(
        self, handlers: Handlers | None, report: Callable[[str, BaseException], None], *, transactional: bool
    ) -> None:
        callbacks = handlers[1] if handlers is not None else None
        self._callbacks = callbacks if isinstance(callbacks, CallbackHandler) else CallbackHandler()
        self._closes = handlers is not None and not needs_queue(handlers)
        self._report = report
        self._transactional = transactional
        self._in_transaction: list[BatchOutcome] = []

    @property
    def stamp(self) -> Callable[[str, int, int], NumberedHeader | None] | None:
        """Return the function that gives a batch its header; None without such a handler."""
        return self._callbacks.before_batch if gives_headers(self._callbacks) else None

    def start(self, bootstrap: object) -> None:
        """Start the handler, when the producer begins. Raises the handler's errors."""
        self._callbacks.start(bootstrap)

    def on_batch_done(self, batch: ProducerBatch) -> None:
        """Report a batch whose outcome is known. Call it on the reactor, or when that has stopped."""
        if batch.numbered is None:
            return
        outcome = BatchOutcome(batch.tp.topic, batch.count, batch.wall_ms, batch.numbered, batch.error)
        if self._transactional:
            self._in_transaction.append(outcome)
        else:
            self._call_after_batch(outcome)

    def transaction_ended(self, error: BarnabasError | None) -> None:
        """Report the batches of a transaction: delivered, or failed with `error`."""
        outcomes, self._in_transaction = self._in_transaction, []
        for outcome in outcomes:
            self._call_after_batch(outcome._replace(error=outcome.error or error))

    def _call_after_batch(self, outcome: BatchOutcome) -> None:
        try:
            self._callbacks.after_batch(outcome)
        except Exception as error:  # noqa: BLE001  # reported; the messages are where they are
            self._report("callback handler: after_batch failed", error)

    def close(self) -> None:
        """Close the handler, unless the handler queue closes it."""
        self.transaction_ended(ClosedError("the producer was closed before it knew of the end of the transaction"))
        if self._closes:
            try:
                self._callbacks.close()
            except Exception as error:  # noqa: BLE001  # reported
                self._report("callback handler: close failed", error)


def producer_defaults() -> dict[str, object]:
    """Return the defaults of the settings of a producer: those of the current generation, then those of the classic."""
    return defaults_of(ProducerSettings, SecuritySettings, ClassicProducerSettings)


@explain_foreign_names(PRODUCER)
@check_process_in_methods("_shell")
class Producer(SendsRecords, AnyProducer):
    """Sends messages to topics. All methods may be called from any thread.

        with Producer("localhost:9092", compression_type="zstd") as producer:
            producer.send("views", b"/index.html", key=b"user-1")

    bootstrap:        "host:port,host:port", or a running `Broker` of this process; or a mapping of settings with
                      `bootstrap.servers`, as confluent-kafka takes it.
    encoder, key_encoder, partitioner, event_handler, callback_handler: names of plugins, or objects
        (encoders also functions of the value).
    plugins:          objects with hooks, modules or names of modules, in addition to the installed; or a `PluginHost`.
    config:           names of Kafka, of its other clients or of 0.7, with dots; `settings` are the same in snake case
                      and win (see `barnabas.ProducerKeywords`).

    transactional_id:
                      makes a transactional producer: it sends messages only within `transaction()`, and consumers with
                      `read_committed` see all messages of a transaction or none.

    The partitioner chooses partitions for messages without one; messages keep their order within a partition. Raises
    `ConfigError`.

    With `classic://host:port`, or without a bootstrap but with `broker_list`, `zk_connect`, `etcd_connect` or
    `coordination`, it is a `ClassicProducer`, for brokers of the classic generation.

    Settings, as keyword arguments: `acks`, `compression_type`, `compressed_topics`, `linger_ms`, `batch_size`,
    `batch_num_messages`, `buffer_memory`, `queue_buffering_max_messages`, `max_block_ms`, `max_request_size`,
    `max_in_flight_requests_per_connection`, `retries`, `delivery_timeout_ms`, `enable_idempotence`, `transactional_id`,
    `transaction_timeout_ms`, `producer_type`, `allow_auto_create_topics`, `encoder`, `key_encoder`, `partitioner`,
    `event_handler`, `event_handler_props`, `callback_handler`, `callback_handler_props`. The signature has the default
    of each, docs/configuration.md explains them.

    Settings of every client: `client_id`, `request_timeout_ms`, `socket_connection_setup_timeout_ms`,
    `retry_backoff_ms`, `retry_backoff_max_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `metadata_max_age_ms`, `default_api_timeout_ms`; and those of its connections, `security_protocol`, `ssl_...` and
    `sasl_...`.
    """

    __signature__ = SettingsSignature(AnyProducerKeywords, producer_defaults)

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if cls is Producer and is_classic(args, kwargs):
            from ..classic.producer import ClassicProducer

            made: Any = ClassicProducer(*args, **kwargs)
            return cast("Self", made)
        return super().__new__(cls)

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        """Make the result of `Producer(...)` an instance of `Producer`, in both generations."""
        return True if cls is Producer and AnyProducer in other.__mro__ else NotImplemented

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        key_encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        partitioner: str | Partitioner | None = None,
        event_handler: str | EventHandler | None = None,
        callback_handler: str | CallbackHandler | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AnyProducerKeywords],
    ) -> None:
        arguments = ClientArguments(bootstrap, config, settings)
        bootstrap = arguments.bootstrap
        encoder, key_encoder = (
            arguments.take_object("encoder", encoder),
            arguments.take_object("key_encoder", key_encoder),
        )
        partitioner = arguments.take_object("partitioner", partitioner)
        given = by_name(
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
            event_handler=event_handler,
            callback_handler=callback_handler,
        )
        self.settings = chosen = read_settings(ProducerSettings, arguments.config, {**given, **arguments.settings})
        host = plugin_host(plugins)
        encoding = encoding_of(host, chosen, encoder, key_encoder)
        wanted = chosen.partitioner if partitioner is None else partitioner
        partitioned = host.partitioner(wanted) if isinstance(wanted, str) else wanted
        if not isinstance(partitioned, Partitioner):
            raise ConfigError(
                f"partitioner: {type(partitioned).__name__} is not a Partitioner; give a name, or an object of a "
                "subclass of barnabas.plugins.Partitioner"
            )
        codec = host.codecs().by_name(chosen.compression_type)
        handlers = HookPath.handlers(host, chosen, event_handler, callback_handler)
        self.delivered = 0
        """The number of messages that are known to have arrived."""
        self.failed = 0
        """The number of messages that are not known to have arrived, though they may have; handles have the errors."""
        self._reported_failures = 0
        self._unseen = UnseenFailures()
        self._warned = 0
        """The number of unseen failures that the log has reported already."""
        self._looks = False
        self._sync = chosen.producer_type == "sync"
        self._ended: list[ProducerBatch] = []
        """Batches whose outcome is known and whose callbacks have not run yet."""
        self._refused: list[tuple[Sequence[PendingMessage], BarnabasError]] = []
        """Messages that never got into a batch and whose handles have not failed yet, with the error."""
        self._shell = open_shell(bootstrap, chosen, allow_auto_create=chosen.allow_auto_create_topics)
        self._lock = self._shell.lock
        self._view = self._shell.view
        runs = encoding.plain and partitioned.sticky and not needs_queue(handlers) and not self._sync
        try:
            partitioned.start(self._shell.connector.entropy)
            manager = self._transaction_manager()
            self._appender = RecordAppender(
                self._shell,
                chosen,
                encoding,
                partitioned,
                runs=runs,
                not_placed=self._not_placed,
                transaction=manager,
            )
            self._batch_hooks = BatchHooks(
                handlers, self._shell.report, transactional=chosen.transactional_id is not None
            )
            self._make_machines(codec, handlers, manager)
            self._batch_hooks.start(with_security(bootstrap, chosen))
        except BaseException:
            self._shell.close()
            raise
        if self._shell.is_of_program:
            flush_at_exit(self, Producer._end_with_program)

    def _make_machines(
        self, codec: Codec | None, handlers: Handlers | None, manager: TransactionManager | None
    ) -> None:
        chosen, appender = self.settings, self._appender
        self._accumulator = appender.accumulator
        self._transactions = None if manager is None else self._make_transactions(manager)
        self._accumulator.hurry = int(self._sync)
        topics = frozenset(chosen.compressed_topics)
        self._sender = Sender(
            self._accumulator,
            self._view,
            self._shell.connector.entropy,
            copy_settings(SenderSettings, chosen, max_in_flight=chosen.max_in_flight_requests_per_connection),
            codec_for=lambda topic: codec if not topics or topic in topics else None,
            settled=self._settled,
            identity=self._numbering(),
            stamp=self._batch_hooks.stamp,
        )
        changed = self._shell.changed
        self._shell.add_part(LockedSender(self._sender, changed, self._run_callbacks), guarded=False)
        self._shell.add_part(Locked(appender.unplaced, changed, self._run_callbacks), guarded=False)
        self._hooks: ProducerHooks | None = None
        if handlers is not None and needs_queue(handlers):
            owner = HookOwner(check_open=appender.check_taking, fail_handle=self._fail_handle)
            self._hooks = ProducerHooks(owner, appender, *handlers)
            self._shell.add_part(self._hooks.queue, guarded=False)

    def _transaction_manager(self) -> TransactionManager | None:
        if self.settings.transactional_id is None:
            return None
        from ....core.client.producer.transaction_manager import TransactionManager, TransactionSettings

        return TransactionManager(
            self._view,
            self._shell.connector.entropy,
            copy_settings(TransactionSettings, self.settings, timeout_ms=self.settings.transaction_timeout_ms),
            unsettled=lambda: self._appender.accumulator.messages,
            changed=self._shell.changed.notify_all,
        )

    def _make_transactions(self, manager: TransactionManager) -> ProducerTransactions:
        from .transactions import ProducerTransactions

        return ProducerTransactions(self._appender, manager, self._flush_hooks, self._batch_hooks.transaction_ended)

    def _numbering(self) -> SequenceAssigner | None:
        if self._transactions is not None:
            return self._transactions.machine
        return self._make_identity() if self.settings.idempotent else None

    def _make_identity(self) -> ProducerIdentity:
        return ProducerIdentity(
            self._view,
            self._shell.connector.entropy,
            retry_backoff_ms=self.settings.retry_backoff_ms,
            retry_backoff_max_ms=self.settings.retry_backoff_max_ms,
            unsupported=lambda: logger.warning(
                "the broker knows no idempotent producers: a retry may bring a message twice "
                "(enable.idempotence=false silences this)"
            ),
        )

    if TYPE_CHECKING:  # else it is that of `SendsRecords`

        def send(
            self,
            topic: str,
            value: Any = None,
            key: Any = None,
            *,
            partition: int | None = None,
            headers: Iterable[tuple[str, bytes | None]] = (),
            timestamp_ms: int | None = None,
            on_delivery: DeliveryCallback | None = None,
        ) -> DeliveryHandle:
            """Take a message for delivery; `value` may also be a whole `Message`.

            Waits only while the buffer is full, up to `max.block.ms`; with `producer.type=sync`, until the delivery.
            Calls `on_delivery(error, delivery)` on the producer's thread. Raises `TypeError` and `ValueError` for an
            invalid topic name, `EncodeError` (which is also a `TypeError` for a wrong type), `QueueFull`,
            `ClosedError`, `ApiError` (MESSAGE_TOO_LARGE, or a partition that the topic does not have); with sync, also
            the error of the delivery.
            """

    def send_many(
        self, topic: str, values: Sequence[Any], *, partition: int | None = None, key: Any = None
    ) -> ManyHandle:
        """Take many messages (values, or `Message`s) in their order; much faster than a `send` for each.

        Raises the errors of `send`: an encoding error before any message is taken, `QueueFull` with the handle of the
        messages taken until then in its `taken`.
        """
        check_topic(topic)
        if self._hooks is not None:
            handle = self._hooks.send_many(topic, values, partition, key)
        else:
            handle = send_many(self._appender, topic, values, partition, key)
        if self._sync:
            handle.result()
        return handle

    def send_arrow(self, table: object, topic: str, *, partition: int | None = None) -> ManyHandle:
        """Take the rows of a table as messages: of pyarrow, or any with Arrow's interface (polars, pandas, DuckDB).

        Columns: `value`, and optionally `key`, `headers`, `timestamp` (else now) and `partition`; others are ignored.
        Keys and values are bytes or text, and no encoder changes them. Waits for the topic's metadata, and for room.
        Raises the errors of `send_many`; the messages taken until then are sent.
        """
        require_arrow("send_arrow")
        from .send_arrow import send_arrow

        handle = send_arrow(self._appender, self._hooks, table, topic, partition)
        if self._sync:
            handle.result()
        return handle

    @property
    def would_block(self) -> bool:
        """True if `send` may have to wait now: for room, or (sync) for the delivery."""
        return self._sync or not self._accumulator.has_room(self.settings.max_request_size)

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, and wait until the outcome of all messages sent before this call is known.

        Handles, callbacks and `failed` report failures. Raises `ClientTimeout` after `timeout` seconds.
        """
        with self._lock:
            self._accumulator.hurry += 1
            try:
                self._flush_hooks(timeout)
                homes: list[BatchFuture] = list(self._accumulator.unsettled)
                unplaced = [m.token for m in self._appender.unplaced.waiting() if isinstance(m.token, DeliveryHandle)]
                self._shell.wake()
                if not self._shell.wait(lambda: all_done(homes, unplaced), timeout):
                    left = counted(self._accumulator.messages, "message is", "messages are")
                    raise ClientTimeout(f"flush: {left} still on the way after {timeout} s{self._shell.why}")
            finally:
                self._accumulator.hurry -= 1

    def confirm(self, timeout: float | None = 30.0) -> None:
        """Call `flush`, and raise `BarnabasError` if a message sent since the last call is not known to have arrived.

        Raises `ClientTimeout` after `timeout` seconds.
        """
        self.flush(timeout)
        with self._lock:
            failed, self._reported_failures = self.failed - self._reported_failures, self.failed
            self._unseen = UnseenFailures()
            self._warned = 0
        if failed:
            unknown = counted(failed, "message is", "messages are")
            raise BarnabasError(f"{unknown} not known to have arrived; the handle of each has the reason")

    # --- transactions; all raise `ConfigError` without a `transactional_id`, `ClientTimeout` after `timeout` seconds
    # --- (default: `default.api.timeout.ms`), and, permanently, `ProducerFenced` or another error after which this
    # --- producer is unusable

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id and epoch from the transaction coordinator.

        The coordinator ends the open transaction of an earlier producer of this transactional id, and fences that one.
        The first transaction calls this automatically. Twice is harmless.
        """
        self._transactional().initialize(timeout)

    @contextmanager
    def transaction(self, timeout: float | None = None) -> Iterator[Self]:
        """Run a block as a transaction: commit at its end; abort if it raises an exception, which passes on.

            with producer.transaction():
                producer.send("totals", total)
                producer.send_offsets(consumer)

        Raises `AbortNeeded` if the transaction could not be committed, and was aborted; its cause is the error of the
        part that failed. After `ClientTimeout` the commit may still succeed: call `commit_transaction()` again to learn
        the outcome. Raises `TransactionError` within another transaction.
        """
        transactions = self._transactional()
        transactions.begin_transaction(timeout)
        try:
            yield self
        except BaseException as error:
            transactions.leave(error, timeout)
            raise
        transactions.leave(None, timeout)

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction; end it with `commit_transaction` or `abort_transaction`.

        Raises `TransactionError` within another transaction.
        """
        self._transactional().begin_transaction(timeout)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver all messages, and commit the transaction. After `ClientTimeout`, call it again to continue waiting.

        Raises `AbortNeeded` if something in the transaction has failed: then only `abort_transaction()` is possible.
        """
        self._transactional().commit(timeout)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop unsent messages, and abort the transaction. After `ClientTimeout`, call it again to continue waiting."""
        self._transactional().abort(timeout)

    def prepare_transaction(self, timeout: float | None = None) -> PreparedTransaction:
        """Deliver all messages, and hand the transaction over to a producer that resumes it, in any process.

        This producer is unusable then, and may be closed. Between transactions it hands over its identity alone: the
        producer that resumes it begins its own transactions, and is fenced as this producer would be. The transaction's
        timeout continues to run. Raises `AbortNeeded` if something in the transaction has failed.
        """
        return self._transactional().prepare(timeout)

    def resume_transaction(self, prepared: PreparedTransaction) -> None:
        """Take over what a producer of the same transactional id has prepared, in place of `init_transactions`.

        Then commit or abort the transaction. Raises `TransactionError` once this producer has initialized itself, or
        for another transactional id.
        """
        self._transactional().resume(prepared)

    def send_offsets(self, offsets: Any, group: Any = None, *, timeout: float | None = None) -> None:
        """Add a group's offsets to the transaction, which commits them; return when the group coordinator has them.

        offsets: a `Consumer`: all messages that it has handed out, for its group and its membership; or as in
                 `Consumer.commit`: a message, several, or partition → offset.
        group:   the group's name, its `Consumer`, or `consumer.group_metadata`; needed unless `offsets` is a consumer.

        The consumer must not commit automatically (`enable_auto_commit=False`). Raises `CommitFailed` if another member
        owns the partitions by now; the transaction must then be aborted.
        """
        self._transactional().send_offsets(offsets, group, timeout)

    def _transactional(self) -> ProducerTransactions:
        if self._transactions is None:
            raise ConfigError(
                "a producer without transactional.id has no transactions: Producer(..., transactional_id=ID)"
            )
        return self._transactions

    def close(self, timeout: float | None = None) -> None:
        """Deliver all messages, then stop; further sends raise `ClosedError`. Twice is harmless.

        An open transaction is aborted.

        With a `timeout` in seconds, messages that are not delivered by then fail; without one, each message has its
        delivery timeout. The producer logs the number of failed messages whose outcome the program has not asked for.
        The end of the `with` block raises `DeliveryFailed` instead, unless another exception ends the block.
        """
        if self._close(timeout):
            self._report_unseen()

    def _close(self, timeout: float | None) -> bool:
        """Close the producer; return False if it was closed already."""
        with self._lock:
            if self._appender.closed:
                return False
            self._appender.close()
        try:
            if self._transactions is not None:
                self._transactions.end(timeout)
            if self._hooks is not None:
                self._hooks.drain(timeout)
            self.flush(timeout)
        except ClientTimeout:
            self._shell.report("closed with messages that could not be delivered in time; they have failed")
        finally:
            self._stop()
        return True

    def _report_unseen(self) -> None:
        failure = self._unseen.error()
        if failure is not None:
            self._shell.report(str(failure))

    def _end_with_program(self, timeout: float) -> None:
        """Send the remaining messages within `timeout` seconds, when the program ends with this producer open."""
        if self._appender.closed or self._shell.is_foreign or self._transactions is not None:
            return
        held = self._held()
        if held:
            self._shell.warn(
                f"the program ends with a producer that was not closed, and {counted(held, 'message')} on the way, for "
                f"which it waits up to {timeout:.3g} s: use `with Producer(...)`, or call close()"
            )
            try:
                self.flush(timeout)
            except ClientTimeout:
                lost = counted(self._held(), "message is", "messages are")
                self._shell.report(f"the program ends, and {lost} not delivered{self._shell.why}")
        self._report_unseen()

    def _held(self) -> int:
        """Return the number of messages whose outcome is not known."""
        return self._accumulator.messages + (self._hooks.queue.waiting if self._hooks is not None else 0)

    def describe_delay(self) -> str:
        """Say which messages are not delivered because brokers refuse them for now, or do not answer; empty: none."""
        with self._lock:
            refused = [batch for batch in self._accumulator.unsettled if batch.failure is not None]
            held, why = self._held() + len(self._appender.unplaced.waiting()), self._shell.why
        if refused:
            return _refused_text(refused)
        return f"{counted(held, 'message waits', 'messages wait')}{why}" if held and why else ""

    def partitions(self, topic: str, timeout: float = 30.0, *, at_least: int = 1) -> int:
        """Return the number of partitions of a topic. Raises `ApiError`, or `ClientTimeout` after `timeout` seconds.

        While the known number is less than `at_least`, the producer asks the cluster again, up to `timeout` seconds.
        """
        with self._lock:
            self._appender.check_open()
            return partition_count(self._shell, topic, timeout, at_least)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer. Raises `DeliveryFailed` for failures whose outcome the program has not asked for."""
        if self._shell.is_foreign:
            return  # its messages are delivered by the process that made it
        self._close(None)
        failure = self._unseen.error()
        if failure is None:
            return
        if error is None:
            raise failure
        self._shell.report(str(failure))

    # --- with the lock held

    def _not_placed(self, group: Sequence[PendingMessage], error: BarnabasError) -> None:
        self._refused.append((group, error))
        if self._transactions is not None:
            self._transactions.machine.failed(error)

    def _settled(self, batches: Sequence[ProducerBatch]) -> None:
        for batch in batches:
            if batch.error is None:
                self.delivered += batch.count
            else:
                self.failed += batch.count
                if self._transactions is None:  # else the commit reports it
                    self._unseen.add(batch, batch.count)
                    self._warn_soon()
        self._ended += batches
        self._shell.changed.notify_all()

    def _flush_hooks(self, timeout: float | None) -> None:
        if self._hooks is None:
            return
        queue = self._hooks.queue
        mark = queue.put_count
        queue.hurry += 1
        self._shell.wake()
        try:
            if not self._shell.wait(lambda: queue.dispatched_count >= mark, timeout):
                raise ClientTimeout(f"flush: {still_wait(queue.waiting)}")
        finally:
            queue.hurry -= 1

    def _warn_soon(self) -> None:
        """Schedule the check whether the program has asked for the outcome of failed messages."""
        if self._unseen.count > self._warned and not self._looks and not self._appender.closed:
            self._looks = True
            self._shell.post_later(_FIRST_LOOK_MS if not self._warned else _NEXT_LOOK_MS, self._warn_unseen)

    # --- without the lock

    def _warn_unseen(self) -> None:
        """Log the failures that the program has not asked for: a long-running one may drop the handles of `send`."""
        with self._lock:
            self._looks = False
            failure = self._unseen.error() if self._unseen.count > self._warned else None
            self._warned = self._unseen.count
        if failure is not None:
            self._shell.warn(str(failure))

    def _run_callbacks(self) -> None:
        """Run the callbacks of messages that have ended. Reactor only, or after it has stopped."""
        ended, self._ended = self._ended, []
        for batch in ended:
            self._batch_hooks.on_batch_done(batch)
            batch.run_callbacks(self._callback_failed)
        refused, self._refused = self._refused, []
        for group, error in refused:
            for unplaced in group:
                if isinstance(unplaced.token, DeliveryHandle):
                    self._fail_handle(unplaced.token, error)

    def _callback_failed(self, error: BaseException) -> None:
        self._shell.report("a delivery callback raised", error)

    def _fail_handle(self, handle: DeliveryHandle, error: BarnabasError | None) -> None:
        """End a message that is in no batch: failed, or (None) handled elsewhere. For the hooks' path."""
        with self._lock:
            future = handle.batch_future
            if future.done:
                return
            future.finish(error)
            self.failed += error is not None
            if self._transactions is None:
                self._unseen.add(future, 1)
                self._warn_soon()
            elif error is not None:
                self._transactions.machine.failed(error)
            self._shell.changed.notify_all()
        future.run_callbacks(self._callback_failed)

    def _stop(self) -> None:
        closed = ClosedError("the producer was closed before the message was delivered")
        self._shell.close()
        with self._lock:
            self._appender.unplaced.fail_all(closed)
            self._sender.fail_waiting(closed)
        self._run_callbacks()
        if self._hooks is not None:
            self._hooks.close(closed)
        self._batch_hooks.close()


def _refused_text(batches: Sequence[ProducerBatch]) -> str:
    """Return the text for batches that wait for a retry: the reason of the oldest one, and its partition."""
    oldest = min(batches, key=lambda batch: batch.created_ms)
    partitions = {batch.tp for batch in batches}
    text = counted(sum(batch.count for batch in batches), "message waits", "messages wait")
    node, _ = oldest.tried
    place = f"{oldest.tp} (broker {node})" if node >= 0 else str(oldest.tp)
    if len(partitions) > 1:
        place += f" and {counted(len(partitions) - 1, 'other partition')}"
    error = oldest.failure
    if not isinstance(error, ApiError):
        return f"{text}: {place}: {error}"
    own = error.message if error.message != str(oldest.tp) else ""
    return f"{text}: {error.code.name} at {place}" + (f": {own}" if own else "")


def partition_count(shell: ClientShell, topic: str, timeout: float, at_least: int) -> int:
    """Return the number of partitions of a topic. Call with the lock held.

    Waits up to `timeout` seconds for the topic, and for `at_least` partitions. Raises `ApiError`, `ClientTimeout`.
    """
    view = shell.view

    def settled() -> bool:
        found, error = view.topic(topic), view.topic_errors.get(topic)
        if found is not None and len(found.leaders) < at_least:
            view.request_refresh()
            shell.wake()
            return False
        return found is not None or (error is not None and not error.retriable)

    view.add_topics([topic])
    shell.wake()
    shell.wait(settled, timeout)
    found, error = view.topic(topic), view.topic_errors.get(topic)
    if found is not None:
        return len(found.leaders)
    if error is not None:
        raise topic_error(error, topic)
    raise ClientTimeout(f"no metadata of topic {topic} within {timeout} s{view.why}")
