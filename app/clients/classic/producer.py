"""The producer of the classic generation (facts A6)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ....core.classic.producer.run import ENTRY_OVERHEAD, Run, Wish, first_value, too_large
from ....core.classic.producer.sender import REQUEST_BYTES_MAX, ProducerSender, SendingSettings
from ....core.classic.registry.layout import BrokerPartition
from ....core.client.effects import NEVER, Poll
from ....core.client.errors import ClientTimeout, EncodeError, QueueFull
from ....core.client.producer.handlers import gives_headers
from ....core.client.producer.partitioner import Partitioner
from ....core.client.producer.producer_batch import BatchFuture, DeliveryCallback, UnseenFailures
from ....core.message.classic.reader import ShallowMessage
from ....core.message.message import Message
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ....ports.report import counted
from ....ports.scheduler import Outcome
from ....ports.values import frozen
from ..shared.at_exit import flush_at_exit
from ..shared.client_arguments import ClientArguments
from ..shared.connect import plugin_host
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.encoding import by_name, check_callback, checked_headers, choose_index, encoding_of
from ..shared.hooks import HookOwner, HookPath, QueueLimits, still_wait
from ..shared.process import check_process_in_methods
from ..shared.protocols import AnyProducer
from ..shared.settings import read_settings
from .choice import Whereabouts, find_out
from .opening import classic_codec, classic_connector, classic_partitioner, make_directory, make_pool, open_coordination
from .producer_settings import ClassicProducerSettings
from .shell import ClassicShell

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from ....core.client.producer.handlers import CallbackHandler, EventHandler, ProducerItem
    from ....core.client.serde import Encoder
    from ....core.message.codec import Codec
    from ...connector import Connector
    from ..shared.encoding import Encoding


# The queue of an asynchronous classic producer without hooks (facts A6: queue.time, queue.size, batch.size).


class RunQueue:
    """Runs between `send` and the requests. With hooks, `core.client.producer.hook_queue` stands in its place.

    A batch goes out when it has `batch_messages`, or `queue_ms` after the last one went.
    """

    def __init__(self, *, batch_messages: int, queue_ms: float) -> None:
        self._batch_messages = batch_messages
        self._queue_ms = queue_ms
        self._queue: deque[Run] = deque()
        self._last_ms: float | None = None
        self.waiting = 0
        """Messages in the queue."""
        self.hurry = 0
        """While this is > 0, a batch need not fill up."""

    def put(self, run: Run) -> bool:
        """Queue a run; True when the owner should be woken."""
        before = self.waiting
        self.waiting = before + run.count
        self._queue.append(run)
        return not before or self.waiting // self._batch_messages != before // self._batch_messages

    def drain(self, now_ms: float) -> list[Run]:
        """Take the batch that is to go out now; empty if none is, then `wake_ms` says when to look again."""
        if self._last_ms is None:
            self._last_ms = now_ms
        late = self.hurry or now_ms >= self._last_ms + self._queue_ms
        if not self.waiting or not (late or self.waiting >= self._batch_messages):
            return []
        self._last_ms = now_ms
        return self._take_batch()

    @property
    def wake_ms(self) -> float:
        """The time when the next batch is due at the latest; `NEVER` while nothing waits."""
        return self._last_ms + self._queue_ms if self.waiting and self._last_ms is not None else NEVER

    def _take_batch(self) -> list[Run]:
        batch, count = list[Run](), 0
        while self._queue and (not count or count + self._queue[0].count <= self._batch_messages):
            run = self._queue.popleft()
            batch.append(run)
            count += run.count
        self.waiting -= count
        return batch


# The lock around the queue of an asynchronous classic producer, which its users' threads fill.


class RunDispatch:
    """Takes the batches that are due, with the lock held, and hands them on without it."""

    def __init__(
        self,
        queue: RunQueue,
        lock: AbstractContextManager[object],
        dispatch: Callable[[Sequence[Run]], None],
        has_room: Callable[[], bool],
        progress: Callable[[], None],
    ) -> None:
        """`has_room` is False while enough is under way: the code that makes room polls again."""
        self._queue = queue
        self._lock = lock
        self._dispatch = dispatch
        self._has_room = has_room
        self._progress = progress

    def poll(self, now_ms: float) -> Poll:
        while self._has_room():
            with self._lock:
                batch, wake_ms = self._queue.drain(now_ms), self._queue.wake_ms
            if not batch:
                return Poll([], wake_ms)
            self._dispatch(batch)
            self._progress()
        return Poll([], NEVER)


# The classic hook points, on the way to the classic wire.


@frozen(kw_only=True)
class RunOwner(HookOwner):
    """The part of a `ClassicProducer` that the hooks use."""

    settings: ClassicProducerSettings
    shell: ClassicShell
    run_of: Callable[[str, Any, Any, Any, Iterable[Any]], Run]
    """Encodes and checks a message. Raises `EncodeError`, `ApiError`."""
    adopt: Callable[[Run, DeliveryHandle], None]
    """Makes a run the message of a handle."""
    dispatch: Callable[[Sequence[Run]], None]
    """Sends runs now. Reactor only."""
    has_room: Callable[[], bool]
    """Returns False while the messages under way fill the memory."""


class ClassicHooks(HookPath):
    """Encodes what an event handler sends on; each batch goes out as one, grouped by broker, topic and partition."""

    def __init__(self, producer: RunOwner, events: EventHandler, callbacks: CallbackHandler | None) -> None:
        settings = producer.settings
        limits = QueueLimits(
            batch_messages=settings.batch_size,
            queue_ms=settings.queue_time,
            queue_messages=settings.queue_size,
            block_ms=settings.queue_enqueue_timeout_ms,
            hurry=settings.producer_type == "sync",
        )
        super().__init__(producer, producer.shell, events, callbacks, limits)
        self._producer = producer
        self._routed: list[Run] = []

    def route(self, item: ProducerItem) -> None:
        handle = self.taken(item)
        try:
            run = self._producer.run_of(item.topic, item.value, item.key, item.partition, item.headers)
        except BarnabasError as error:
            self._producer.fail_handle(handle, error)
            return
        self._producer.adopt(run, handle)
        if not self._routed:
            self._shell.post(self.flush_routed)  # an event handler may send on its own time, too
        self._routed.append(run)

    def flush_routed(self) -> None:
        """Send what has been routed. Reactor only."""
        routed, self._routed = self._routed, []
        if routed:
            self._producer.dispatch(routed)

    def progress(self) -> None:
        self.flush_routed()
        super().progress()

    def has_room(self) -> bool:
        return self._producer.has_room()


# The conversion of what a user gives to `send` into runs of bytes; all its errors are found here.

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
        """Return a run of one encoded message.

        Raises `EncodeError`, `ApiError` INVALID_TOPIC_EXCEPTION or MESSAGE_TOO_LARGE.
        """
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
            text = (
                f"{topic!r:.300}: a name has 1 to {TOPIC_LENGTH_MAX} printable characters without /, and is not . or .."
            )
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, text)
        try:
            topic.encode()
        except UnicodeEncodeError as error:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r:.300}: {error}") from error
        if len(self._topics) < _TOPICS_MAX:
            self._topics.add(topic)


def wish_of(partition: Any) -> Wish:
    """Return the wish that a user's `partition` argument means. Raises `EncodeError`."""
    if type(partition) is int and -1 <= partition < 2**31:
        return partition
    if isinstance(partition, tuple) and len(partition) == 2 and all(type(number) is int for number in partition):
        return BrokerPartition(*partition)
    raise EncodeError(f"partition {partition!r}: expected a number, or a pair of broker and partition")


def split_run(run: Run, messages_max: int | None) -> list[Run]:
    """Split a run into parts that fit into a batch and into a request."""
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


@check_process_in_methods("shell")
class ClassicProducer(AnyProducer):
    """Sends messages to topics of classic brokers. All methods may be called from any thread.

        with Producer(broker_list="0:localhost:9093") as producer: ...
        with Producer(zk_connect="localhost:2181/kafka", producer_type="async", compression_codec=1) as producer: ...

    bootstrap, or one of these instead of it:
        "classic://host:port", also several, or of a load balancer: brokers choose the partitions.
    broker_list:      `id:host:port,id2:host:port`, the same with the brokers' ids.
    zk_connect, etcd_connect: `host:port,host:port/path` of the registries, where brokers and partitions are found, and
                      what comes and goes is noticed.
    coordination:     the same as "zookeeper://...", "etcd://...", a running `Broker`, or what opens a session.
    encoder, key_encoder, partitioner, event_handler, callback_handler, plugins, config, settings: as with `Producer`;
                      the names of the settings are in `producer_settings.ClassicProducerSettings`.
    connector:        in place of TCP, for tests.

    The classic wire answers nothing: a message counts as delivered when all of it was handed to the connection to its
    broker, its offset is given as -1, and the broker may lose it still. Values that one `send_many` takes without a key
    go to one partition, batch by batch. Raises `ConfigError`, `CoordinationError`.
    """

    def __init__(
        self,
        bootstrap: object = None,
        *,
        encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        key_encoder: str | Encoder | Callable[[Any], bytes | None] | None = None,
        partitioner: str | Partitioner | None = None,
        event_handler: str | EventHandler | None = None,
        callback_handler: str | CallbackHandler | None = None,
        coordination: object = None,
        connector: Connector | None = None,
        plugins: Sequence[object] = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        arguments = ClientArguments(bootstrap, config, settings)
        bootstrap, config = arguments.bootstrap, arguments.config
        encoder, key_encoder = (
            arguments.take_object("encoder", encoder),
            arguments.take_object("key_encoder", key_encoder),
        )
        given = by_name(
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
            event_handler=event_handler,
            callback_handler=callback_handler,
        )
        coordination = config.pop("coordination", None) if coordination is None else coordination
        self.settings = chosen = read_settings(ClassicProducerSettings, config, {**given, **arguments.settings})
        host = plugin_host(plugins)
        encoding = encoding_of(host, chosen, encoder, key_encoder)
        codec = classic_codec(host, chosen.compression_codec)
        self._maker = RunMaker(encoding, None if codec is not None else chosen.max_message_size)
        handlers = HookPath.handlers(host, chosen, event_handler, callback_handler)
        if handlers is not None and gives_headers(handlers[1]):
            raise ConfigError(
                "the callback handler gives messages headers, which the classic generation does not have; "
                "an encoder can put what they say before the value"
            )
        where = find_out(
            bootstrap,
            broker_list=chosen.broker_list,
            zk_connect=chosen.zk_connect,
            etcd_connect=chosen.etcd_connect,
            coordination=coordination,
        )
        self._partitioner = classic_partitioner(host, chosen.partitioner if partitioner is None else partitioner, where)
        self.delivered = 0
        """Messages that have been handed to a broker's connection."""
        self.failed = 0
        """Messages that have not: their handles have the reason."""
        self._unseen = UnseenFailures()
        self._closing = False
        self._sync = chosen.producer_type == "sync"
        self._unsettled: dict[Run, None] = {}
        self._coordination = open_coordination(where, chosen, host)
        try:
            self.shell = ClassicShell(connector or classic_connector((), chosen))
        except BaseException:
            self._close_coordination()
            raise
        self._lock = self.shell.lock
        self._partitioner.start(self.shell.connector.entropy)
        self._compose(where, codec)
        self._make_queue(handlers)
        if connector is None:
            flush_at_exit(self, ClassicProducer._end_with_program)

    def _compose(self, where: Whereabouts, codec: Codec | None) -> None:
        chosen, connector, scheduler = self.settings, self.shell.connector, self.shell.scheduler
        self._directory = make_directory(where, self._coordination, scheduler)
        self._static = where.brokers is not None
        pool = self._pool = make_pool(connector, scheduler, chosen)
        topics = frozenset(() if self._sync else chosen.compressed_topics)  # as in 0.7: see the facts
        sender = ProducerSender(
            self._directory,
            pool,
            scheduler,
            connector.entropy,
            SendingSettings(
                num_retries=0 if self._sync else chosen.num_retries,
                zk_read_num_retries=chosen.zk_read_num_retries,
                max_message_bytes=chosen.max_message_size,
            ),
            choose=self._choose,
            codec_for=lambda topic: codec if not topics or topic in topics else None,
            settled=self._runs_settled,
        )
        self._machine = sender
        closed = ClosedError("the producer was closed before the message was sent")
        self.shell.hanging_up += [lambda: sender.fail_unplaced(closed), pool.close, self._directory.close]

    def _make_queue(self, handlers: tuple[EventHandler, CallbackHandler | None] | None) -> None:
        chosen = self.settings
        self._classic_hooks: ClassicHooks | None = None
        self._queue: RunQueue | None = None
        if handlers is not None:
            owner = RunOwner(
                check_open=self._check_open,
                fail_handle=self._fail_handle,
                settings=chosen,
                shell=self.shell,
                run_of=self._maker.run,
                adopt=self._adopt,
                dispatch=self._dispatch,
                has_room=self._has_room,
            )
            self._classic_hooks = ClassicHooks(owner, *handlers)
            self.shell.drive(self._classic_hooks.queue)
        elif not self._sync:
            self._queue = RunQueue(batch_messages=chosen.batch_size, queue_ms=chosen.queue_time)
            self.shell.drive(RunDispatch(self._queue, self._lock, self._dispatch, self._has_room, self._progress))

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: BrokerPartition | tuple[int, int] | int | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        on_delivery: DeliveryCallback | None = None,
    ) -> DeliveryHandle:
        """Take a message; `value` may also be a `Message`, or a `ShallowMessage`, which passes on unopened.

        partition: the number of a partition, at any broker that has it; or (broker, partition). -1: the broker chooses.

        The classic format has neither keys nor headers nor timestamps nor null values: a key only chooses the
        partition, a timestamp is left out, a header is an `EncodeError`, and so is None. With `producer.type` sync it
        returns when the message was handed to the connection, and raises what kept it from there; async it waits only
        while the queue is full, as `queue.enqueueTimeout.ms` says. Raises `QueueFull`, `EncodeError`, `ClosedError`,
        `ApiError` (MESSAGE_TOO_LARGE, INVALID_TOPIC_EXCEPTION).
        """
        del timestamp_ms
        check_callback(on_delivery)
        if type(value) is Message:
            value, key, headers = value[0], value[1] if key is None else key, value[2]
        if self._classic_hooks is not None:
            own_headers = checked_headers(headers) if headers else ()
            wish: Any = partition
            handle = self._classic_hooks.send(topic, value, key, wish, own_headers, None, on_delivery)
        else:
            run = self._maker.run(topic, value, key, partition, headers)
            if on_delivery is not None:
                run.callbacks.append((0, on_delivery))
            self._enqueue(run)
            handle = DeliveryHandle(run, 0, self.shell)
        if self._sync:
            handle.result()
        return handle

    def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        partition: BrokerPartition | tuple[int, int] | int | None = None,
        key: Any = None,
    ) -> ManyHandle:
        """Take many messages in their order; much quicker than as many `send`. With sync one request for each broker.

        Raises what `send` raises: what is wrong with a message before anything is taken, `QueueFull` with what was
        taken until then in `taken`.
        """
        return self.send_data([ProducerData(topic, values, key)], partition=partition)

    def send_data(
        self, data: Iterable[ProducerData], *, partition: BrokerPartition | tuple[int, int] | int | None = None
    ) -> ManyHandle:
        """Send like `send_many`, for several topics and keys at once."""
        if self._classic_hooks is not None:
            handle = self._send_singly(self._classic_hooks, data, partition)
        else:
            limit = None if self._sync else self.settings.batch_size
            runs = list(chain.from_iterable(self._maker.runs(*each, partition) for each in data))
            handle = self._enqueue_all([part for run in runs for part in split_run(run, limit)])
        if self._sync:
            handle.result()
        return handle

    def _send_singly(self, hooks: ClassicHooks, data: Iterable[ProducerData], partition: Any) -> ManyHandle:
        handles: list[DeliveryHandle] = []
        try:
            for topic, values, key in data:
                for value in values:
                    message = value if type(value) is Message else Message(value, key)
                    own_key = message.key if key is None else key
                    handles.append(hooks.send(topic, message[0], own_key, partition, message.headers, None, None))
        except QueueFull as error:
            error.taken = ManyHandle(self.shell, [], handles)
            raise
        return ManyHandle(self.shell, [], handles)

    @property
    def would_block(self) -> bool:
        """True if `send` may wait now: for a place in the queue, or (sync) until it was sent."""
        waiting = self._classic_hooks.queue.waiting if self._classic_hooks is not None else 0
        if self._queue is not None:
            waiting = self._queue.waiting
        return self._sync or waiting >= self.settings.queue_size

    def flush(self, timeout: float | None = None) -> None:
        """Send everything at once, and wait until the outcome of all that was sent before this call is known.

        Failures are reported by handles, callbacks and `failed`. Raises `ClientTimeout` after `timeout` seconds.
        """
        queue = self._queue if self._classic_hooks is None else self._classic_hooks.queue
        with self._lock:
            if queue is not None:
                queue.hurry += 1
            try:
                self._flush_classic_hooks(timeout)
                runs = list(self._unsettled)
                self.shell.wake()
                if not self.shell.wait(lambda: _all_done(runs), timeout):
                    left = counted(len(runs), "send is", "sends are")
                    raise ClientTimeout(f"flush: {left} still on the way after {timeout} s")
            finally:
                if queue is not None:
                    queue.hurry -= 1

    def confirm(self, timeout: float | None = 30.0) -> None:
        """`flush`, and find out that the brokers have dealt with all that was sent since the last call.

        The wire has no answer to a produce, but a question asked after it on the same connection is answered after it.
        Raises the error for which something may be lost (send again for at least once), `ClientTimeout`. What a broker
        refuses as too large is lost all the same.
        """
        failed = self.failed
        self.flush(timeout)
        with self._lock:
            self._unseen = UnseenFailures()
        self.shell.on_reactor(
            lambda done: self._pool.prove(lambda error: done(Outcome(error=error))),
            timeout,
            f"the brokers did not acknowledge everything within {timeout} s",
        )
        if self.failed > failed:
            raise BarnabasError(f"{counted(self.failed - failed, 'message')} could not be sent")

    def close(self, timeout: float | None = None) -> None:
        """Send everything, then close the handlers, then the connections. Twice is harmless.

        With a `timeout` in seconds what is not sent by then fails. (The 2011 producer closed its callback handler
        first, before the last batch.) Leaving the `with` block raises `DeliveryFailed` for messages that have failed
        without their outcome having been asked for; `close` leaves that to the log, which gets each failure.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
        try:
            if self._classic_hooks is not None:
                self._classic_hooks.drain(timeout)
            self.flush(timeout)
        except ClientTimeout:
            self.shell.report("closed with messages that could not be sent in time; they have failed")
        finally:
            self._stop()

    def places(self, topic: str, timeout: float = 30.0) -> list[BrokerPartition]:
        """Return the partitions of the topic on live brokers, sorted. Raises `CoordinationError`, `ClientTimeout`."""

        def find_partitions(done: Callable[[Outcome[Sequence[BrokerPartition]]], None]) -> None:
            def learnt(error: BarnabasError | None) -> None:
                done(Outcome(value=self._directory.places(topic) or (), error=error))

            if self._directory.places(topic) is None:
                self._directory.learn(topic, learnt)
            else:
                learnt(None)

        with self._lock:
            self._check_open()
        late = f"the partitions of topic {topic} could not be read within {timeout} s"
        found = self.shell.on_reactor(find_partitions, timeout, late)
        return list(found)

    def partitions(self, topic: str, timeout: float = 30.0) -> int:
        """Return the number of partitions of a topic on all live brokers together. Raises as `places`."""
        return len(self.places(topic, timeout))

    def _check_open(self) -> None:
        """Raises `ClosedError` once `close` has begun."""
        if self._closing:
            raise ClosedError("the producer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it. Raises `DeliveryFailed` for failed messages whose outcome nothing has asked for."""
        if self.shell.is_foreign:
            return  # what it holds is for the process that made it to send
        self.close()
        failure = self._unseen.error()
        if failure is not None and error is None:
            raise failure

    def _end_with_program(self, timeout: float) -> None:
        """Send what the producer holds, within `timeout` seconds: the program ends without having closed it."""
        if self._closing or self.shell.is_foreign:
            return
        queue = self._queue if self._classic_hooks is None else self._classic_hooks.queue
        held = sum(run.count for run in list(self._unsettled)) + (
            queue.waiting if self._classic_hooks is not None and queue is not None else 0
        )
        if not held:
            return
        self.shell.warn(
            f"the program ends with a producer that was not closed, and {counted(held, 'message')} on the way, for "
            f"which it waits up to {timeout:.3g} s: use `with Producer(...)`, or call close()"
        )
        try:
            self.flush(timeout)
        except ClientTimeout as error:
            self.shell.report(f"the program ends with messages that were not sent: {error}")

    # --- for the hooks

    def _adopt(self, run: Run, handle: DeliveryHandle) -> None:
        """The handle's message is this run from now on."""
        with self._lock:
            self._unsettled[run] = None
            handle.move(run, 0)

    def _dispatch(self, runs: Sequence[Run]) -> None:
        """Send these now. Reactor only."""
        self._machine.dispatch(runs)

    def _has_room(self) -> bool:
        """Return True if the messages under way leave room for another one in `queue.size`."""
        return self._machine.messages < self.settings.queue_size

    # --- on the way

    def _enqueue(self, run: Run) -> None:
        queue = self._queue
        if queue is None:
            self._send_now((run,))
            return
        with self._lock:
            self._check_open()
            if queue.waiting >= self.settings.queue_size:
                self._wait_for_place(queue)
            self._unsettled[run] = None
            if queue.put(run):
                self.shell.wake()

    def _enqueue_all(self, runs: Sequence[Run]) -> ManyHandle:
        if self._queue is None:
            self._send_now(runs)
        else:
            for number, run in enumerate(runs):
                try:
                    self._enqueue(run)
                except QueueFull as error:
                    error.taken = _many(self.shell, runs[:number])
                    raise
        return _many(self.shell, runs)

    def _send_now(self, runs: Sequence[Run]) -> None:
        """Send without a queue: on this thread, if the reactor's has nothing to do."""
        with self._lock:
            self._check_open()
            self._unsettled.update(dict.fromkeys(runs))
        self.shell.run(lambda: self._machine.dispatch(runs))

    def _wait_for_place(self, queue: RunQueue) -> None:
        limit_ms, size = self.settings.queue_enqueue_timeout_ms, self.settings.queue_size
        self.shell.wake()
        if limit_ms and not self.shell.connector.owns_thread():
            seconds = limit_ms / 1000 if limit_ms > 0 else None
            if self.shell.wait(lambda: queue.waiting < size, seconds):
                self._check_open()
                return
        raise QueueFull(
            f"{counted(queue.waiting, 'message waits', 'messages wait')} to be sent (queue.size), "
            f"queue.enqueueTimeout.ms is {limit_ms:g}"
        )

    def _choose(self, run: Run, count: int) -> int:
        if self._static:
            return self.shell.connector.entropy.below(count)  # brokers, not partitions: any will do
        index = choose_index(self._partitioner, run.topic, run.key, first_value(run), count, range(count))
        if run.key is None and self._partitioner.sticky:
            self._partitioner.next_batch(run.topic, index)
        return index

    def _progress(self) -> None:
        with self._lock:
            self.shell.changed.notify_all()

    def _flush_classic_hooks(self, timeout: float | None) -> None:
        if self._classic_hooks is None:
            return
        queue = self._classic_hooks.queue
        mark = queue.put_count
        self.shell.wake()
        if not self.shell.wait(lambda: queue.dispatched_count >= mark, timeout):
            raise ClientTimeout(f"flush: {still_wait(queue.waiting)}")

    # --- what became of it

    def _runs_settled(self, runs: Sequence[Run], error: BarnabasError | None) -> None:
        with self._lock:
            for run in runs:
                if self._unsettled.pop(run, run) is None:
                    self._count(run, error)
            self.shell.changed.notify_all()
        for run in runs:
            if run.callbacks:
                run.run_callbacks(self._callback_failed)
        if error is not None and not self._sync:
            topic = runs[0].topic
            count = sum(run.count for run in runs)
            lost = counted(count, f"message to topic {topic} was", f"messages to topic {topic} were")
            self.shell.report(f"{lost} not sent: {error}")
        if self._queue is not None or self._classic_hooks is not None:
            self.shell.wake()

    def _count(self, run: Run, error: BarnabasError | None) -> None:
        run.finish(error)
        if error is None:
            self.delivered += run.count
        else:
            self.failed += run.count
            self._unseen.add(run, run.count)

    def _callback_failed(self, error: BaseException) -> None:
        self.shell.report("a delivery callback raised", error)

    def _fail_handle(self, handle: DeliveryHandle, error: BarnabasError | None) -> None:
        """End a message that is in no run: failed, or (None) handled elsewhere. For the hooks' path."""
        with self._lock:
            future: BatchFuture = handle.batch_future
            if future.done:
                return
            future.finish(error)
            self.failed += error is not None
            self._unseen.add(future, 1)
            self.shell.changed.notify_all()
        future.run_callbacks(self._callback_failed)

    def _stop(self) -> None:
        closed = ClosedError("the producer was closed before the message was sent")
        if self._classic_hooks is not None:
            self._classic_hooks.close(closed)
        self.shell.close()
        with self._lock:
            left = list(self._unsettled)
        if left:
            self._runs_settled(left, closed)
        self._close_coordination()

    def _close_coordination(self) -> None:
        if self._coordination is not None:
            self._coordination.close()


def _many(shell: ClassicShell, runs: Sequence[Run]) -> ManyHandle:
    return ManyHandle(shell, [(run, 0, run.count) for run in runs], [])


def _all_done(runs: list[Run]) -> bool:
    while runs and runs[-1].done:
        runs.pop()
    return not runs
