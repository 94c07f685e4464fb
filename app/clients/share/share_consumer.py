"""The share consumer: a member of a share group, whose messages are acknowledged one by one (KIP-932).

`ShareFetchBuffer` carries messages to the user's thread, and acknowledgements back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from ....core.client.effects import NEVER, Poll
from ....core.client.errors import ClientTimeout, DecodeError
from ....core.client.group.events import GroupSettings
from ....core.client.share.share_consume_request_manager import CommitResults, ShareConsumeRequestManager
from ....core.client.share.share_membership import ShareMembershipManager, new_member_id
from ....core.client.share.share_session_handler import ShareFetchSettings
from ....core.message.message import KeyT_co, ShareMessage, ValueT_co
from ....plugins.builtin.encoders import BytesSerde
from ....ports.broker_api.share_groups import AcknowledgeType, ShareAcquireMode
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ...config.security_settings import SecuritySettings
from ..shared import settings as settings_table
from ..shared.blocking_shell import logger
from ..shared.client_arguments import ClientArguments
from ..shared.connect import Plugins, open_shell, plugin_host
from ..shared.encoding import decoders_of
from ..shared.foreign_methods import SHARE_CONSUMER, explain_foreign_names
from ..shared.process import check_process_in_methods
from ..shared.settings import copy_settings, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from ..shared.typed_settings import ShareConsumerKeywords

if TYPE_CHECKING:
    from types import TracebackType

    from ....core.client.serde import Decoder
    from ....core.client.share.share_consume_request_manager import ShareConsumeRequestManager, ShareInFlightBatch
    from ..shared.bootstrap import Bootstrap
    from ..shared.client_shell import ClientShell


_RecordKey = tuple[str, int, int]


class ShareFetchBuffer:
    """Hands out the messages of acquired batches one by one. One thread at a time, but for `acknowledge`.

    In implicit mode a message is accepted when the user has asked for the one after it. In explicit mode the buffer
    holds each message that was handed out, until it is acknowledged.
    """

    def __init__(
        self,
        shell: ClientShell,
        manager: ShareConsumeRequestManager,
        decoder: Decoder,
        key_decoder: Decoder,
        *,
        implicit: bool,
    ) -> None:
        self._shell = shell
        self._manager = manager
        self._decoder = decoder
        self._key_decoder = key_decoder
        self._plain = type(decoder) is BytesSerde and type(key_decoder) is BytesSerde
        self._implicit = implicit
        self._current: ShareInFlightBatch | None = None
        self._held: dict[_RecordKey, ShareInFlightBatch] = {}
        """The messages in the user's hands, in explicit mode."""
        self._owed: set[_RecordKey] = set()
        """The held messages that must be acknowledged before the user asks for more."""
        self._earlier = 0

    @property
    def holds(self) -> bool:
        """True while fetched messages are there."""
        return self._current is not None or bool(self._manager.ready)

    @property
    def handed_out(self) -> int:
        """The number of messages that were handed out so far."""
        current = self._current
        return self._earlier + (0 if current is None else current.handed_out)

    def rest(self) -> Iterator[ShareMessage[Any, Any]]:
        """Yield the remaining messages of the current batch. Raises the error of one that cannot be read."""
        batch, plain, implicit = self._current, self._plain, self._implicit
        while batch is not None and self._more(batch):
            messages = batch.messages
            for index in range(batch.handed_out, len(messages)):
                if batch.has_lapsed:
                    break
                message = messages[index] if plain else self._decoded(batch, index)
                batch.handed_out = number = index + 1
                if implicit:
                    yield message
                    if batch is self._current:
                        batch.processed = number
                else:
                    self._hold(batch, message)
                    yield message
                    self.check_acknowledged()
                if batch is not self._current:  # the user has asked for messages elsewhere, or has left
                    return
                if batch.handed_out != number:
                    break
        self._finish(batch)

    def move_messages(self, found: list[ShareMessage[Any, Any]], wanted: int) -> None:
        """Add messages of the current batch until `found` has as many as are `wanted`."""
        batch = self._current
        while batch is not None and len(found) < wanted and self._more(batch):
            start = batch.handed_out
            end = min(len(batch.messages), start + wanted - len(found))
            if self._plain:
                taken = batch.messages[start:end]
                batch.handed_out = end
                found += taken
            else:
                taken = []
                for index in range(start, end):
                    message = self._decoded(batch, index)
                    batch.handed_out = index + 1
                    found.append(message)
                    taken.append(message)
                    if not self._implicit:
                        self._hold(batch, message)
            if not self._implicit and self._plain:
                for message in taken:
                    self._hold(batch, message)
        if batch is not None and len(found) < wanted:
            self._finish(batch)

    def select(self) -> bool:
        """Make the next batch the current one; return False if there is none. Lock held."""
        if self._current is None:
            self._current = self._manager.next_batch(self._shell.now_ms())
            self._shell.wake()  # from now on, what the user has finished with is acknowledged in time
        return self._current is not None

    def select_next(self) -> bool:
        """Do what `select` does, without the lock."""
        with self._shell.lock:
            return self.select()

    def drop(self) -> None:
        """Forget all messages, because the sessions end. Lock held."""
        if self._current is not None:
            self._earlier += self._current.handed_out
        self._current = None
        self._held.clear()
        self._owed.clear()

    def finish_all(self) -> None:
        """Note that the user has processed everything that was handed out, in implicit mode. Lock held."""
        if self._implicit:
            for batch in list(self._manager.reading):
                batch.processed = batch.handed_out
                if batch is not self._current:
                    self._manager.finish_batch(batch, self._shell.now_ms())

    def check_acknowledged(self) -> None:
        """Raise `ApiError` if a message that was handed out is not acknowledged, in explicit mode."""
        if self._owed:
            topic, partition, offset = min(self._owed)
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{counted(len(self._owed), 'message')} not acknowledged, the first one at "
                f"{topic}-{partition} offset {offset}: with share.acknowledgement.mode=explicit, acknowledge each "
                'message before you ask for more, or "renew" those that take longer',
            )

    def acknowledge(self, message: ShareMessage[Any, Any], kind: AcknowledgeType, now_ms: float) -> None:
        """Acknowledge a message that is held. Lock held."""
        key = (message.topic, message.partition, message.offset)
        batch = self._held.get(key)
        if batch is None:
            where = f"{TopicPartition(message.topic, message.partition)} offset {message.offset}"
            text = (
                f"the message at {where} is not in the hands of this consumer: it is acknowledged already, or not its"
            )
            raise ApiError(ErrorCode.INVALID_RECORD_STATE, text)
        self._owed.discard(key)
        if kind is not AcknowledgeType.RENEW:
            del self._held[key]
        self._manager.acknowledge(batch, (message.offset,), kind, now_ms)

    def _more(self, batch: ShareInFlightBatch) -> bool:
        """Decode more if all decoded messages are handed out. Return False at the end, or when the locks are gone."""
        while not batch.has_lapsed:
            if batch.handed_out < len(batch.messages):
                return True
            if not batch.decode_more():
                break
        return False

    def _finish(self, batch: ShareInFlightBatch | None) -> None:
        """Leave a batch whose messages were all handed out. In implicit mode the last ones may still be in use."""
        if batch is None or batch is not self._current:
            return
        with self._shell.lock:
            self._current = None
            self._earlier += batch.handed_out
            if not self._implicit or batch.processed == batch.handed_out:
                self._manager.finish_batch(batch, self._shell.now_ms())

    def _hold(self, batch: ShareInFlightBatch, message: ShareMessage[Any, Any]) -> None:
        key = (message.topic, message.partition, message.offset)
        self._held[key] = batch
        self._owed.add(key)

    def _decoded(self, batch: ShareInFlightBatch, index: int) -> ShareMessage[Any, Any]:
        message = batch.messages[index]
        try:
            return message._replace(
                value=self._decoder.decode(message.topic, message.value),
                key=self._key_decoder.decode(message.topic, message.key),
            )
        except Exception as error:
            with self._shell.lock:
                del batch.messages[index]
                self._manager.acknowledge(batch, (message.offset,), AcknowledgeType.RELEASE, self._shell.now_ms())
            where = f"{message.topic}-{message.partition} offset {message.offset}"
            raise DecodeError(f"the message at {where} cannot be decoded, and is released: {error}") from error


CLOSE_S = 5.0
"""The default timeout of `close` and `unsubscribe`, in seconds, for the brokers."""
_LOOKS_PER_POLL_INTERVAL = 20
_EXPLICIT = "share.acknowledgement.mode=explicit"
_KINDS = {
    kind.name.lower(): kind
    for kind in (AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT, AcknowledgeType.RENEW)
}

_BY_NUMBER = {int(kind): kind for kind in _KINDS.values()}

AcknowledgementCommitCallback = Callable[[Mapping[TopicPartition, frozenset[int]], BarnabasError | None], object]
"""A callback of acknowledgements: gets the offsets, and None or the error for which they had no effect."""


def share_consumer_defaults() -> dict[str, object]:
    """Return the defaults of the settings of a share consumer."""
    return defaults_of(settings_table.ShareConsumerSettings, SecuritySettings)


@explain_foreign_names(SHARE_CONSUMER)
@check_process_in_methods("_shell")
class ShareConsumer(Generic[ValueT_co, KeyT_co]):
    """Gets messages as a member of a share group: each goes to one member at a time, whichever has time for it.

        with ShareConsumer("localhost:9092", group_id="thumbnails") as consumer:
            consumer.subscribe("images")
            for message in consumer:
                make_thumbnail(message.value)

        with ShareConsumer("localhost:9092", group_id="jobs", share_acknowledgement_mode="explicit") as consumer:
            consumer.subscribe("jobs")
            for message in consumer:
                consumer.acknowledge(message, "accept" if run(message.value) else "release")

    bootstrap:            "host:port,host:port", or a running `Broker` of this process; or a mapping of settings with
                          `bootstrap.servers`, as confluent-kafka takes it.
    decoder, key_decoder: names of plugins, objects, or functions of the bytes.
    plugins:              objects with hooks, modules or names of modules, in addition to the installed ones.
    config:               names of Kafka or of its other clients, with dots; `settings` are the same in snake case and
                          win (see `barnabas.ShareConsumerKeywords`).

    A message is locked for this consumer for a while (`acquisition_lock_timeout_ms`). Within that time it is
    acknowledged, or it is delivered again, here or elsewhere; `message.delivery_count` says for the how manieth time.
    In implicit mode, who asks for the next messages accepts the earlier ones. In explicit mode, each message must be
    acknowledged before the user asks for more. If an exception ends the `with` block, what was not acknowledged is
    released for others at once.

    One thread at a time may use the consumer; any thread may call `acknowledge`, `close` and `wakeup`. Raises
    `ConfigError`.

    Settings, as keyword arguments: `group_id`, `share_acknowledgement_mode`, `share_acquire_mode`, `max_poll_records`,
    `max_poll_interval_ms`, `fetch_min_bytes`, `fetch_max_wait_ms`, `fetch_max_bytes`, `check_crcs`,
    `consumer_timeout_ms`, `client_rack`, `decoder`, `key_decoder`. The signature has the default of each,
    docs/configuration.md explains them.

    Settings of every client: `client_id`, `request_timeout_ms`, `socket_connection_setup_timeout_ms`,
    `retry_backoff_ms`, `retry_backoff_max_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `metadata_max_age_ms`, `default_api_timeout_ms`; and those of its connections, `security_protocol`, `ssl_...` and
    `sasl_...`.
    """

    __signature__ = SettingsSignature(ShareConsumerKeywords, share_consumer_defaults)

    @overload
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co] | None = None,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: ShareConsumer[Any, bytes | None],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: ShareConsumer[Any, KeyT_co],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co],
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: ShareConsumer[Any, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: ShareConsumer[bytes | None, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: None = None,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: ShareConsumer[ValueT_co, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co],
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ShareConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        key_decoder: str | Decoder | Callable[[bytes], Any] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        arguments = ClientArguments(bootstrap, config, settings)
        decoder, key_decoder = (
            arguments.take_object("decoder", decoder),
            arguments.take_object("key_decoder", key_decoder),
        )
        names = {"decoder": decoder, "key_decoder": key_decoder}
        given = {name: thing for name, thing in names.items() if isinstance(thing, str)}
        self.settings = chosen = read_settings(
            settings_table.ShareConsumerSettings, arguments.config, {**given, **arguments.settings}
        )
        host = plugin_host(plugins)
        values, keys = decoders_of(host, chosen, decoder, key_decoder)
        self._implicit = chosen.share_acknowledgement_mode == "implicit"
        self._shell = open_shell(arguments.bootstrap, chosen)
        self._lock = self._shell.lock
        view, entropy = self._shell.view, self._shell.connector.entropy
        member_id = new_member_id(entropy)
        notify = self._shell.changed.notify_all
        self._manager = ShareConsumeRequestManager(
            view, entropy, _fetch_settings(chosen), host.codecs(), member_id, notify
        )
        self._membership = ShareMembershipManager(
            view,
            entropy,
            copy_settings(GroupSettings, chosen, client_rack=chosen.client_rack or None),
            member_id,
            self._manager.assign,
            notify,
        )
        self._reading = ShareFetchBuffer(self._shell, self._manager, values, keys, implicit=self._implicit)
        # The driver polls last what is added first: fetches after the membership, whose assignment they need.
        self._shell.add_part(self._manager)
        self._shell.add_part(self._membership)
        self._shell.add_part(_Attendance(self))
        self._callback: AcknowledgementCommitCallback | None = None
        self._calling_back = False
        self._failure: BarnabasError | None = None
        self._closing = False
        self._ended = threading.Event()
        self._woken = False
        self._waiting = False
        """True while the user waits for messages, and so has processed the earlier ones."""
        self._user = threading.current_thread()
        """The thread that asked for messages last."""

    # --- what to read

    def subscribe(self, topics: str | Iterable[str]) -> None:
        """Subscribe to these topics, and no others; those that do not exist yet are read once they do."""
        wanted = [topics] if isinstance(topics, str) else list(topics)
        if not wanted:
            raise ConfigError("subscribe() needs a topic; unsubscribe() ends a subscription")
        with self._lock:
            self._check_open()
            self._membership.subscribe(wanted, self._shell.now_ms())
            self._shell.wake()

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Leave the group, and release what is not acknowledged; wait at most `timeout` seconds (default 5)."""
        with self._lock:
            self._check_open()
            self._reading.finish_all()
        self._leave(CLOSE_S if timeout is None else timeout)
        self._call_back()

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics."""
        with self._lock:
            return sorted(self._membership.topics.names)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions from which this member gets messages now; other members may have them, too."""
        with self._lock:
            return sorted(self._manager.assigned.values())

    @property
    def acquisition_lock_timeout_ms(self) -> int | None:
        """The time for which messages are locked for this consumer; None before the first ones have come."""
        with self._lock:
            return self._manager.acquisition_lock_timeout_ms

    # --- messages

    def messages(
        self, *, timeout: float | None = None, before_waiting: Callable[[], object] | None = None
    ) -> Iterator[ShareMessage[ValueT_co, KeyT_co]]:
        """Iterate over messages for ever, or until none came for `timeout` seconds (default `consumer.timeout.ms`).

        It calls `before_waiting` when it has handed out all fetched messages: the time to flush. Raises the
        `BarnabasError` of a message or partition that cannot be read; call again to continue after it.
        """
        limit = timeout
        if limit is None and self.settings.consumer_timeout_ms >= 0:
            limit = self.settings.consumer_timeout_ms / 1000
        self._begin()
        while True:
            yield from self._reading.rest()
            if before_waiting is not None and not self._reading.holds:
                before_waiting()
            if not self._next(limit):
                return

    def __iter__(self) -> Iterator[ShareMessage[ValueT_co, KeyT_co]]:
        return self.messages()

    def poll(self, timeout: float = 0.0) -> ShareMessage[ValueT_co, KeyT_co] | None:
        """Return the next message, or None if none comes within `timeout` seconds."""
        found = self.poll_many(1, timeout)
        return found[0] if found else None

    def poll_many(
        self, max_messages: int | None = None, timeout: float = 0.0
    ) -> list[ShareMessage[ValueT_co, KeyT_co]]:
        """Return the next messages, at most `max_messages` (default `max.poll.records`).

        Waits up to `timeout` seconds for the first message.
        """
        wanted = self.settings.max_poll_records if max_messages is None else max_messages
        found: list[ShareMessage[Any, Any]] = []
        self._begin()
        try:
            self._reading.move_messages(found, wanted)
            while len(found) < wanted and (self._reading.select_next() if found else self._next(timeout)):
                self._reading.move_messages(found, wanted)
        except BarnabasError as error:
            if not found:
                raise
            self._failure = error  # the next call raises it
        return found

    def wakeup(self) -> None:
        """Let the call that waits for messages, or the next one, return without any. From any thread."""
        with self._lock:
            self._woken = True
            self._shell.changed.notify_all()

    # --- acknowledgements

    def acknowledge(self, message: ShareMessage[Any, Any], kind: str | int = "accept") -> None:
        """Acknowledge a message, in explicit mode; `commit_sync` says whether that had an effect.

        kind: a word, or a number of Kafka's `AcknowledgeType`.
              accept: it is processed.
              release: deliver it again, here or to another member.
              reject: never deliver it again, since it cannot be processed.
              renew: lock it for longer; the user may ask for other messages meanwhile, and acknowledges it later.

        Raises `ConfigError` in implicit mode, and `ApiError` INVALID_RECORD_STATE for a message that this consumer has
        not handed out, or that is acknowledged already.
        """
        chosen = _KINDS.get(kind.lower()) if isinstance(kind, str) else _BY_NUMBER.get(kind)
        if chosen is None:
            raise ConfigError(f"acknowledge: unknown type {kind!r}; known types: {', '.join(_KINDS)}")
        if self._implicit:
            raise ConfigError(f"acknowledge() needs {_EXPLICIT}; in implicit mode, asking for more messages accepts")
        with self._lock:
            self._check_open()
            self._reading.acknowledge(message, chosen, self._shell.now_ms())
            if chosen is AcknowledgeType.RENEW:
                self._shell.wake()

    def commit_sync(self, timeout: float | None = None) -> dict[TopicPartition, BarnabasError | None]:
        """Send the acknowledgements, and return their result by partition: None, or the error.

        In implicit mode it first accepts all messages that were handed out. An error means that the messages are
        delivered again. Raises `ClientTimeout` after `timeout` seconds (default `default.api.timeout.ms`).
        """
        limit = self.settings.default_api_timeout_ms / 1000 if timeout is None else timeout
        answers: list[CommitResults] = []
        with self._lock:
            self._check_open()
            self._reading.finish_all()
            self._manager.commit(self._shell.putter(answers), self._shell.now_ms())
            self._shell.wake()
            if not self._shell.wait(lambda: bool(answers), limit):
                raise ClientTimeout(f"acknowledgements: no answer within {limit:g} s{self._shell.why}")
        self._call_back()
        return dict(answers[0])

    def commit_async(self) -> None:
        """Send the acknowledgements like `commit_sync`, without waiting; the callback gets their results."""
        with self._lock:
            self._check_open()
            self._reading.finish_all()
            self._manager.commit(lambda _results: None, self._shell.now_ms())
            self._shell.wake()

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Call `callback(offsets by partition, error or None)` with each result of acknowledgements.

        It runs on the user's thread: when the user asks for messages, in `commit_sync`, or on closing. Without one,
        errors are logged.
        """
        self._callback = callback

    # --- the end

    def metrics(self) -> dict[str, float]:
        """Return what this consumer has done so far, by the names of Kafka's metrics; latencies in ms."""
        with self._lock:
            metrics, fetches = self._manager.metrics, max(1, self._manager.metrics.fetches)
            return {
                "fetch-total": float(metrics.fetches),
                "fetch-latency-avg": metrics.fetch_latency_ms / fetches,
                "fetch-latency-max": metrics.fetch_latency_max_ms,
                "fetch-size-avg": metrics.fetched_bytes / fetches,
                "fetch-throttle-time-avg": metrics.throttle_ms / fetches,
                "bytes-consumed-total": float(metrics.fetched_bytes),
                "records-per-request-avg": metrics.fetched_records / fetches,
                "records-consumed-total": float(self._reading.handed_out),
                "acknowledgements-send-total": float(metrics.acknowledgements),
                "acknowledgements-error-total": float(metrics.acknowledgement_errors),
                "heartbeat-total": float(self._membership.heartbeats),
                "rebalance-total": float(self._membership.rebalances),
            }

    def close(self, timeout: float | None = None, *, accept: bool | None = None) -> None:
        """Send the acknowledgements, release all other messages, and leave the group. Twice is harmless.

        Waits at most `timeout` seconds (default 5) for the brokers. Iteration on another thread raises `ClosedError`.
        In implicit mode, `accept` says whether the messages that were handed out are processed; None: not, if another
        thread may still process one.
        """
        accept = self._user_is_done() if accept is None else accept
        with self._lock:
            first, self._closing = not self._closing, True
            if accept:
                self._reading.finish_all()
            self._shell.changed.notify_all()
        limit = CLOSE_S if timeout is None else timeout
        if not first:
            self._ended.wait(limit)
            return
        try:
            if not self._shell.connector.owns_thread():
                self._leave(limit)
        finally:
            self._shell.close()
            self._ended.set()
        with self._lock:
            self._manager.fail_all(ClosedError("the consumer was closed"))
        self._call_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.close(accept=kind is None or self._waiting)

    # --- inside

    def _user_is_done(self) -> bool:
        """Return True if the thread that got the last message waits for more, is the one that closes, or has ended."""
        return self._waiting or self._user is threading.current_thread() or not self._user.is_alive()

    def _check_open(self) -> None:
        if self._closing:
            raise ClosedError("the consumer was closed")

    def _leave(self, timeout_s: float) -> None:
        """Close the share sessions and leave the group."""
        done: list[object] = []
        put = self._shell.putter(done)
        with self._lock:
            self._reading.drop()
            self._manager.finish(lambda: put("sessions"), self._shell.now_ms())
            self._membership.leave(lambda: put("group"))
            self._shell.wake()
            self._shell.wait(lambda: len(done) == 2, timeout_s)

    def _begin(self) -> None:
        """Called when the user asks for messages: accepts the earlier ones, or checks that they are acknowledged."""
        if self._calling_back:
            raise BarnabasError("a callback of acknowledgements must not ask for messages")
        self._user = threading.current_thread()
        with self._lock:
            self._check_open()
            self._reading.check_acknowledged()
            self._reading.finish_all()
        self._call_back()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _next(self, timeout: float | None) -> bool:
        """Take the next batch. Return False on timeout, or after `wakeup`. Raises its error."""
        deadline_ms = NEVER if timeout is None else self._shell.now_ms() + timeout * 1000
        while True:
            with self._lock:
                self._reading.check_acknowledged()
                self._reading.finish_all()
                took = self._wait(deadline_ms)
                woken, self._woken = self._woken and not took, self._woken and took
            self._call_back()
            if took or woken or self._shell.now_ms() >= deadline_ms:
                return took

    def _wait(self, deadline_ms: float) -> bool:
        """Wait for a batch, or something else that the user's thread has to do. Lock held."""
        manager, membership, view = self._manager, self._membership, self._shell.view
        took = False

        def came() -> bool:
            nonlocal took
            if self._closing or self._woken or manager.failures or membership.failures:
                return True
            if view.authentication_error is not None or manager.results:
                return True
            took = self._reading.select()
            return took

        if not membership.topics.active and not self._closing:
            raise ConfigError("nothing is subscribed: call subscribe(topics) first")
        now_ms = self._shell.now_ms()
        membership.polled(now_ms)
        if self._reading.select():
            return True
        manager.wants = self._waiting = True
        self._shell.wake()
        try:
            self._shell.wait(came, None if deadline_ms == NEVER else max(0.0, deadline_ms - now_ms) / 1000)
            self._waiting = self._closing
        finally:
            manager.wants = False
        self._check_open()
        for failures in (membership.failures, manager.failures):
            if failures and not took:
                raise failures.popleft()
        if not took and view.authentication_error is not None:
            raise view.authentication_error
        return took

    def _call_back(self) -> None:
        """Hand the results of acknowledgements to the user's callback, or log their errors."""
        if self._calling_back:
            return
        self._calling_back = True
        try:
            while self._manager.results:
                tp, offsets, error = self._manager.results.popleft()
                if self._callback is not None:
                    self._callback({tp: offsets}, error)
                elif error is not None and not self._closing:
                    logger.warning("%s not acknowledged: %s", counted(len(offsets), "message"), error)
        finally:
            self._calling_back = False


class _Attendance:
    """Notes on the reactor that the user makes progress, so that the member stays in its group."""

    def __init__(self, consumer: ShareConsumer[Any, Any]) -> None:
        self._consumer = consumer
        self._look_ms = -NEVER
        self._progress = -1

    def poll(self, now_ms: float) -> Poll:
        consumer = self._consumer
        if now_ms >= self._look_ms:
            self._look_ms = now_ms + consumer.settings.max_poll_interval_ms / _LOOKS_PER_POLL_INTERVAL
            progress = consumer._reading.handed_out
            if consumer._manager.wants or progress != self._progress:
                self._progress = progress
                consumer._membership.polled(now_ms)
        return Poll([], self._look_ms)


def _fetch_settings(chosen: settings_table.ShareConsumerSettings) -> ShareFetchSettings:
    return copy_settings(
        ShareFetchSettings,
        chosen,
        acquire_mode=ShareAcquireMode[chosen.share_acquire_mode.upper()],
        implicit=chosen.share_acknowledgement_mode == "implicit",
    )
