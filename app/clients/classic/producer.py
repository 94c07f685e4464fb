"""The producer of the classic generation (facts A6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Self

from ....core.classic.producer.queue import RunQueue
from ....core.classic.producer.run import Run, first_value
from ....core.classic.producer.sender import ProducerSender, SendingSettings
from ....core.classic.registry.layout import BrokerPartition
from ....core.client.errors import ClientTimeout, QueueFull
from ....core.client.producer.handlers import gives_headers
from ....core.client.producer.partitioner import Partitioner
from ....core.client.producer.producer_batch import BatchFuture, DeliveryCallback, UnseenFailures
from ....core.message.message import Message
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.report import counted
from ....ports.scheduler import Outcome
from ..shared.at_exit import flush_at_exit
from ..shared.connect import plugin_host
from ..shared.delivery import DeliveryHandle, ManyHandle
from ..shared.encoding import by_name, check_callback, checked_headers, choose_index, encoding_of
from ..shared.hooks import HookPath, still_wait
from ..shared.process import check_process_in_methods
from ..shared.protocols import AnyProducer
from ..shared.settings import read_settings
from .choice import Whereabouts, find_out
from .dispatch import RunDispatch
from .hooks import ClassicHooks
from .opening import classic_codec, classic_connector, classic_partitioner, make_directory, make_pool, open_coordination
from .producer_settings import ClassicProducerSettings
from .runs import ProducerData, RunMaker, split_run
from .shell import ClassicShell

if TYPE_CHECKING:
    from types import TracebackType

    from ....core.client.producer.handlers import CallbackHandler, EventHandler
    from ....core.client.serde import Encoder
    from ....core.message.codec import Codec
    from ...connector import Connector


@check_process_in_methods("shell", but=("end_with_program",))
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
        given = by_name(
            encoder=encoder,
            key_encoder=key_encoder,
            partitioner=partitioner,
            event_handler=event_handler,
            callback_handler=callback_handler,
        )
        config = dict(config or {})
        coordination = config.pop("coordination", None) if coordination is None else coordination
        self.settings = chosen = read_settings(ClassicProducerSettings, config, {**given, **settings})
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
            flush_at_exit(self)

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
            self._classic_hooks = ClassicHooks(self, *handlers)
            self.shell.drive(self._classic_hooks.queue)
        elif not self._sync:
            self._queue = RunQueue(batch_messages=chosen.batch_size, queue_ms=chosen.queue_time)
            self.shell.drive(RunDispatch(self._queue, self._lock, self.dispatch, self.has_room, self._progress))

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
            run = self.run_of(topic, value, key, partition, headers)
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
        """The partitions of the topic on live brokers, sorted. Raises `CoordinationError`, `ClientTimeout`."""

        def look(done: Callable[[Outcome[Sequence[BrokerPartition]]], None]) -> None:
            def learnt(error: BarnabasError | None) -> None:
                done(Outcome(value=self._directory.places(topic) or (), error=error))

            if self._directory.places(topic) is None:
                self._directory.learn(topic, learnt)
            else:
                learnt(None)

        with self._lock:
            self.check_open()
        late = f"the partitions of topic {topic} could not be read within {timeout} s"
        found = self.shell.on_reactor(look, timeout, late)
        return list(found)

    def partitions(self, topic: str, timeout: float = 30.0) -> int:
        """Return the number of partitions of a topic on all live brokers together. Raises as `places`."""
        return len(self.places(topic, timeout))

    def check_open(self) -> None:
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

    def end_with_program(self, timeout: float) -> None:
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

    def run_of(self, topic: str, value: Any, key: Any, partition: Any, headers: Iterable[Any]) -> Run:
        """One message, encoded and checked. Raises `EncodeError`, `ApiError`."""
        return self._maker.run(topic, value, key, partition, headers)

    def adopt(self, run: Run, handle: DeliveryHandle) -> None:
        """The handle's message is this run from now on."""
        with self._lock:
            self._unsettled[run] = None
            handle.move(run, 0)

    def dispatch(self, runs: Sequence[Run]) -> None:
        """Send these now. Reactor only."""
        self._machine.dispatch(runs)

    def has_room(self) -> bool:
        """False while what is under way fills the memory."""
        return self._machine.messages < self.settings.queue_size

    # --- on the way

    def _enqueue(self, run: Run) -> None:
        with self._lock:
            self.check_open()
            queue = self._queue
            if queue is None:
                self._unsettled[run] = None
                self.shell.post(lambda: self._machine.dispatch((run,)))
                return
            if queue.waiting >= self.settings.queue_size:
                self._wait_for_place(queue)
            self._unsettled[run] = None
            if queue.put(run):
                self.shell.wake()

    def _enqueue_all(self, runs: Sequence[Run]) -> ManyHandle:
        if self._queue is None:
            with self._lock:
                self.check_open()
                self._unsettled.update(dict.fromkeys(runs))
                self.shell.post(lambda: self._machine.dispatch(runs))
        else:
            for number, run in enumerate(runs):
                try:
                    self._enqueue(run)
                except QueueFull as error:
                    error.taken = _many(self.shell, runs[:number])
                    raise
        return _many(self.shell, runs)

    def _wait_for_place(self, queue: RunQueue) -> None:
        limit_ms, size = self.settings.queue_enqueue_timeout_ms, self.settings.queue_size
        self.shell.wake()
        if limit_ms and not self.shell.connector.owns_thread():
            seconds = limit_ms / 1000 if limit_ms > 0 else None
            if self.shell.wait(lambda: queue.waiting < size, seconds):
                self.check_open()
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

    def fail_handle(self, handle: DeliveryHandle, error: BarnabasError | None) -> None:
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
