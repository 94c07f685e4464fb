"""The consumer: of assigned partitions, or as a member of a consumer group."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Self, Unpack, overload

from ....core.client.arguments import as_topic_partition, check_offset
from ....core.client.consumer.fetcher import Fetcher
from ....core.client.consumer.subscription_state import AtOffset, AtTime, FetcherSettings, StartPosition
from ....core.client.group.events import CommittedOffset, GroupMetadata
from ....core.message.corrupt_record import Damage
from ....core.message.message import KeyT_co, Message, ValueT_co
from ....ports.errors import BarnabasError, ClosedError, ConfigError
from ....ports.types import TopicPartition
from ...config.security_settings import SecuritySettings
from ..arrow import gather
from ..shared import settings as settings_table
from ..shared.client_arguments import ClientArguments
from ..shared.connect import Plugins, open_shell, plugin_host
from ..shared.encoding import decoders_of
from ..shared.foreign_methods import CONSUMER, KEYWORDS, explain_foreign_names
from ..shared.process import check_process_in_methods
from ..shared.settings import copy_settings, read_settings
from ..shared.signature import SettingsSignature, defaults_of
from ..shared.typed_settings import ConsumerKeywords
from .fetch_buffer import FetchBuffer
from .group_coordinator import CommitCallback, GroupCoordinatorClient, assignors_of
from .partition_finder import PartitionFinder, StartOffset, TopicPartitionLike, start_at, subscription_of
from .positions import ConsumerPositions, committed_or_reset, offsets_to_commit
from .rebalance_listener import PartitionsCallback, RebalanceListener, listener_of

if TYPE_CHECKING:
    from types import TracebackType

    from pyarrow import Table

    from ....core.client.serde import Decoder
    from ..shared.bootstrap import Bootstrap

CLOSE_S = 5.0
"""The default timeout of `close` and `unsubscribe`, in seconds, for the group coordinator."""


def consumer_defaults() -> dict[str, object]:
    """Return the defaults of the settings of a consumer."""
    return defaults_of(settings_table.ConsumerSettings, SecuritySettings)


@explain_foreign_names(CONSUMER, KEYWORDS)
@check_process_in_methods("_shell")
class Consumer(Generic[ValueT_co, KeyT_co]):
    """Reads messages of assigned partitions, or of its share as a member of a group; it fetches ahead of its user.

        with Consumer("localhost:9092", group_id="billing") as consumer:
            consumer.subscribe("orders")
            for message in consumer:
                print(message.value)

        with Consumer("localhost:9092") as consumer:
            consumer.assign("views", position="earliest")
            for message in consumer.messages(stop_at_end=True):
                print(message.value)

    bootstrap:            "host:port,host:port", or a running `Broker` of this process; or a mapping of settings with
                          `bootstrap.servers`, as confluent-kafka takes it.
    decoder, key_decoder: names of plugins, objects, or functions of the bytes.
    plugins:              objects with hooks, modules or names of modules, in addition to the installed ones.
    config:               names of Kafka, of its other clients or of 0.7, with dots; `settings` are the same in snake
                          case and win (see `barnabas.ConsumerKeywords`).

    One thread at a time may use the consumer; any thread may call `close`, and `commit` with given offsets. Iteration
    over the consumer itself is `messages()`. With a group, the consumer commits positions as in Kafka, unless
    `enable.auto.commit` is false: every `auto.commit.interval.ms`, before partitions are revoked, and on closing. It
    commits when the user asks for more messages, and so never a message that the user still processes. If an
    exception ends the `with` block, the consumer commits nothing more, unless the exception came while it waited for
    messages (Ctrl-C, for example): then the user has processed all that were handed out. Raises `ConfigError`.

    Settings, as keyword arguments: `group_id`, `group_instance_id`, `group_protocol`, `group_remote_assignor`,
    `enable_auto_commit`, `auto_commit_interval_ms`, `partition_assignment_strategy`, `session_timeout_ms`,
    `heartbeat_interval_ms`, `max_poll_interval_ms`, `exclude_internal_topics`, `client_rack`; of fetches:
    `fetch_min_bytes`, `fetch_max_wait_ms`, `fetch_max_bytes`, `max_partition_fetch_bytes`, `max_poll_records`,
    `auto_offset_reset`, `isolation_level`, `check_crcs`, `skip_damaged`, `consumer_timeout_ms`,
    `allow_auto_create_topics`, `decoder`, `key_decoder`. The signature has the default of each, docs/configuration.md
    explains them.

    Settings of every client: `client_id`, `request_timeout_ms`, `socket_connection_setup_timeout_ms`,
    `retry_backoff_ms`, `retry_backoff_max_ms`, `reconnect_backoff_ms`, `reconnect_backoff_max_ms`,
    `metadata_max_age_ms`, `default_api_timeout_ms`; and those of its connections, `security_protocol`, `ssl_...` and
    `sasl_...`.
    """

    __signature__ = SettingsSignature(ConsumerKeywords, consumer_defaults)

    @overload
    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co] | None = None,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co] | None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, bytes | None],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: None = None,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, KeyT_co],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: Callable[[bytes], KeyT_co] | Decoder[KeyT_co],
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: str,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[bytes | None, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: None = None,
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[ValueT_co, Any],
        bootstrap: Bootstrap | None = None,
        *,
        decoder: Callable[[bytes], ValueT_co] | Decoder[ValueT_co],
        key_decoder: str,
        plugins: Plugins = (),
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerKeywords],
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
            settings_table.ConsumerSettings, arguments.config, {**given, **arguments.settings}
        )
        host = plugin_host(plugins)
        values, keys = decoders_of(host, chosen, decoder, key_decoder)
        assignors = assignors_of(chosen, host) if chosen.group_id else []
        self._shell = open_shell(arguments.bootstrap, chosen, allow_auto_create=chosen.allow_auto_create_topics)
        self._lock = self._shell.lock
        view, entropy = self._shell.view, self._shell.connector.entropy
        self._fetcher = Fetcher(view, entropy, _fetcher_settings(chosen), host.codecs(), self._shell.changed.notify_all)
        self._shell.add_part(self._fetcher)
        self._finder = PartitionFinder(
            self._shell, timeout_ms=chosen.default_api_timeout_ms, auto_create=chosen.allow_auto_create_topics
        )
        self._reading = FetchBuffer(self._shell, self._fetcher, values, keys)
        self._positions = ConsumerPositions(self._shell, self._fetcher, self._reading, chosen)
        self._group: GroupCoordinatorClient | None = None
        if chosen.group_id:
            self._group = GroupCoordinatorClient(self._shell, self._fetcher, self._reading, assignors, chosen)
        self._failure: BarnabasError | None = None
        self._closing = False
        self._asked = False
        """True while the user waits for messages, and so has processed the earlier ones."""
        self._user = threading.current_thread()
        """The thread that asked for messages last."""

    # --- what to read

    def subscribe(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        on_assigned: PartitionsCallback | None = None,
        on_revoked: PartitionsCallback | None = None,
        on_lost: PartitionsCallback | None = None,
    ) -> None:
        """Subscribe to these topics, and no others, as a member of `group.id`.

        topics:   one, or several; those that do not exist yet are read once they do (see `metadata.max.age.ms`).
        pattern:  instead: all topics whose whole name matches, including those that are created later. A member by
                  `group_protocol="consumer"` lets the coordinator match it where Python and RE2 agree on it.
        listener: called with partitions that come and go (see `RebalanceListener`), or the functions `on_assigned`,
        `on_revoked`, `on_lost`.

        Without a committed offset, `auto.offset.reset` decides where to begin. The consumer joins the group in the
        background; it gets its first partitions when the user asks for messages. Raises `ConfigError`.
        """
        group = self._in_group("subscribe()", "or read partitions with assign()")
        rebalance_listener = listener_of(listener, on_assigned, on_revoked, on_lost)
        wanted = subscription_of(topics, pattern)
        if self._fetcher.partitions and not group.membership.subscribed:
            raise ConfigError("partitions are assigned by hand: call unsubscribe() before subscribe()")
        group.subscribe(wanted, rebalance_listener)

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Stop reading all partitions. With a group, commit first, if automatic commits are on, and leave the group.

        `timeout`: how many seconds to wait at most for the group coordinator (default 5).
        """
        if self._group is not None:
            self._group.give_up(CLOSE_S if timeout is None else timeout)
        with self._lock:
            self._reading.drop()
            self._assign({})

    @property
    def subscription(self) -> list[str]:
        """The subscribed topics; with a pattern, those that match it now.

        If the coordinator matches the pattern, they are the topics of which this member has partitions.
        """
        return [] if self._group is None else sorted(self._group.membership.topics)

    def assign(
        self,
        what: str | TopicPartitionLike | Iterable[str | TopicPartitionLike],
        *,
        partitions: Iterable[int] | None = None,
        position: StartOffset | None = None,
        timestamp_ms: int | None = None,
    ) -> list[TopicPartition]:
        """Assign these topics and partitions, and no others, to this consumer; return the partitions.

        what:         a topic, a (topic, partition), or several; a topic stands for its `partitions` (None: all).
        position:     where to begin: an offset, "earliest" or "latest". Default: the committed offset of `group.id`, if
                      there is one; else `auto.offset.reset` decides.
        timestamp_ms: begin at the first message of that time (ms since 1970) or later; at the end if there is none.

        With `group.id` the consumer does not become a member of the group, but commits its positions. Raises `ApiError`
        for a topic or partition that does not exist, `ClientTimeout`, `ConfigError`.
        """
        start = start_at(position, timestamp_ms)
        if self._group is not None and self._group.membership.subscribed:
            raise ConfigError("the group shares out the partitions: call unsubscribe() before assign()")
        topic_partitions = self._finder.topic_partitions(what, partitions)
        if start is None:
            found = (
                {} if self._group is None else self._group.committed(topic_partitions, self._positions.limit_s(None))
            )
            starts = committed_or_reset(topic_partitions, found, self.settings.auto_offset_reset.value)
        else:
            starts = dict.fromkeys(topic_partitions, start)
        with self._lock:
            self._reading.drop()
            self._assign(starts)
            if self._group is not None:
                self._group.keep_committing()
            self._shell.wake()
        return topic_partitions

    def _assign(self, starts: Mapping[TopicPartition, StartPosition]) -> None:
        """Read these partitions, and no longer ask for the metadata of topics that only others belong to. Lock held."""
        before = {tp.topic for tp in self._fetcher.partitions}
        self._fetcher.assign(starts)
        for topic in before - {tp.topic for tp in starts}:
            self._shell.view.forget(topic)

    @overload
    def seek(self, place: TopicPartitionLike, position: StartOffset | AtOffset) -> None: ...

    @overload
    def seek(self, topic: str, partition: int, offset: StartOffset | AtOffset, /) -> None: ...

    def seek(
        self,
        place: TopicPartitionLike | str,
        position: StartOffset | AtOffset,
        offset: StartOffset | AtOffset | None = None,
    ) -> None:
        """Continue reading a partition at a position: an offset, "earliest" or "latest".

        `seek(topic, partition, offset)` or `seek((topic, partition), offset)`. An `AtOffset` may also name the id of
        the topic. Raises `ConfigError` unless the partition is assigned.
        """
        if isinstance(place, str) != (offset is not None):
            raise TypeError("seek: give topic, partition and offset, or a pair (topic, partition) and the offset")
        if isinstance(place, str) and offset is not None:
            place, position = as_topic_partition((place, position)), offset
        start = position if isinstance(position, AtOffset) else start_at(position, None)
        assert start is not None
        self._positions.seek({as_topic_partition(place): start})

    def seek_to_time(self, timestamp_ms: int, places: Iterable[TopicPartitionLike] | None = None) -> None:
        """Continue at the first message of that time (ms since 1970) or later, in these partitions.

        `places` None: in all assigned ones. Raises `ConfigError` for a partition that is not assigned.
        """
        check_offset(timestamp_ms, "timestamp_ms")
        self._positions.seek(dict.fromkeys(self._positions.chosen(places), AtTime(timestamp_ms)))

    def pause(self, *places: TopicPartitionLike) -> None:
        """Hand out no messages of these partitions (none given: all assigned) until `resume`; positions are kept.

        In a group, a pause lasts as long as the partition stays with this member.
        """
        self._positions.pause(places, True)

    def resume(self, *places: TopicPartitionLike) -> None:
        """Undo `pause`; also read a partition again after its error was raised. No partition given: all assigned."""
        self._positions.pause(places, False)

    @property
    def paused(self) -> list[TopicPartition]:
        """The assigned partitions that are paused."""
        return [tp for tp, state in self._fetcher.partitions.items() if state.paused]

    # --- positions and offsets; all but `assignment` and `damaged` raise `ApiError`, `ClientTimeout`

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._positions.assignment

    @property
    def damaged(self) -> Sequence[Damage]:
        """The damaged records that were skipped so far, as offsets; empty unless `skip.damaged` is true."""
        return tuple(self._reading.damaged)

    def position(self, place: TopicPartitionLike, timeout: float | None = None) -> int:
        """Return the offset of the next message that the user gets; wait while the consumer looks it up.

        Raises `ClientTimeout` after `timeout` seconds (default `default.api.timeout.ms`), or the partition's error.
        """
        return self._positions.position(place, timeout)

    def topic_id(self, place: TopicPartitionLike) -> bytes:
        """Return the id of the topic that the consumer reads there; `NO_TOPIC_ID` while it is not known.

        All messages of the last `poll_many` are of this topic: one `poll_many` does not read on in another topic of the
        same name.
        """
        return self._positions.state(as_topic_partition(place)).topic_id

    def lag(
        self, places: Iterable[TopicPartitionLike] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the lag of each partition (None: the assigned ones): its end minus the position, in offsets.

        The end comes from the last fetch, without a request; before the first fetch it is looked up. With
        `read_committed` it is the last stable offset. A paused partition is not fetched: use `end_offsets`.
        """
        return self._positions.lag(places, timeout)

    def beginning_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        """Return the first offset of each partition (None: the assigned ones)."""
        return self._positions.beginning_offsets(places)

    def end_offsets(self, places: Iterable[TopicPartitionLike] | None = None) -> dict[TopicPartition, int]:
        """Return the offset after the last message of each partition (None: the assigned ones)."""
        return self._positions.end_offsets(places)

    def offsets_for_times(self, times: Mapping[TopicPartitionLike, int]) -> dict[TopicPartition, int | None]:
        """Return per partition the offset of the first message of that time (ms) or later; None if there is none."""
        return self._positions.offsets_for_times(times)

    def high_watermark(self, place: TopicPartitionLike) -> int:
        """Return the high watermark of the partition at the last fetch; -1 before the first fetch."""
        return self._positions.high_watermark(place)

    # --- messages

    def messages(
        self,
        *,
        stop_at_end: bool = False,
        timeout: float | None = None,
        before_waiting: Callable[[], object] | None = None,
    ) -> Iterator[Message[ValueT_co, KeyT_co]]:
        """Iterate over messages for ever; with `stop_at_end`, up to the end that each partition has now.

        In a group, `stop_at_end` ends the iteration when the group has settled, as far as this member knows, and each
        of its partitions is read up to the end that it had when this member got it. A member without partitions is then
        at the end at once. It stays a member after the iteration: partitions that come later wait for the next call.

        The iteration also ends when no message came for `timeout` seconds (default `consumer.timeout.ms`; None and -1:
        wait for ever). It calls `before_waiting` when it has handed out all fetched messages: the time to flush. Raises
        the `BarnabasError` of a partition that cannot be read; call again to read the other partitions, and that one
        after `seek` or `resume`.
        """
        runs = self._runs(stop_at_end, timeout, before_waiting)
        # No Python code runs for a message; but an error of a decoder ends the iteration, as others do.
        return chain.from_iterable(runs) if self._reading.plain else (message for run in runs for message in run)

    def _runs(
        self, stop_at_end: bool, timeout: float | None, before_waiting: Callable[[], object] | None
    ) -> Iterator[Iterator[Message[ValueT_co, KeyT_co]]]:
        """Yield iterators over what `messages` iterates over."""
        limit = timeout
        if limit is None and self.settings.consumer_timeout_ms >= 0:
            limit = self.settings.consumer_timeout_ms / 1000
        ends = self._first_ends(stop_at_end)
        self._asked, self._user = False, threading.current_thread()
        while True:
            yield from self._reading.runs(ends)
            if before_waiting is not None and not self.buffered:
                before_waiting()
            if not self._next(limit, ends):
                return

    def __iter__(self) -> Iterator[Message[ValueT_co, KeyT_co]]:
        return self.messages()

    def poll(self, timeout: float = 0.0) -> Message[ValueT_co, KeyT_co] | None:
        """Return the next message, or None if none comes within `timeout` seconds."""
        found = self.poll_many(1, timeout)
        return found[0] if found else None

    def poll_many(self, max_messages: int | None = None, timeout: float = 0.0) -> list[Message[ValueT_co, KeyT_co]]:
        """Return the next messages, at most `max_messages` (default `max.poll.records`).

        Waits up to `timeout` seconds for the first message. In a group, the rebalance listener and a commit before
        partitions are revoked may take longer than `timeout`.
        """
        wanted = self.settings.max_poll_records if max_messages is None else max_messages
        found: list[Message[Any, Any]] = []
        self._collect(lambda: self._reading.move_messages(found, wanted), found, wanted, timeout)
        return found

    def fetch_arrow(self, timeout: float = 0.0, *, rows: int = 100_000, headers: bool = False) -> Table:
        """Return the next messages as a `pyarrow.Table` with the columns of Spark's Kafka source.

        Keys and values are bytes, without the decoders. Works like `poll_many`, but takes whole fetches until there are
        `rows` messages or more.
        """
        gathered = gather(headers)
        self._collect(lambda: self._reading.rest_as_arrow(gathered), gathered, rows, timeout)
        return gathered.table()

    @property
    def buffered(self) -> bool:
        """True while fetched messages are there; False if the consumer has to wait for the next one."""
        return self._reading.holds or any(
            state.completed_fetches and not state.paused for state in self._fetcher.partitions.values()
        )

    def reached(self, ends: Mapping[TopicPartition, int]) -> bool:
        """Return True if the user has all messages before the offsets `ends`, of the partitions that are not paused."""
        with self._lock:
            return self._reading.at(ends)

    # --- the group

    def commit(self, what: Any = None, *, timeout: float | None = None) -> None:
        """Commit offsets of the group, at which it continues; return when the coordinator has stored them.

        what: None for everything that was handed out so far; a message, or several, for the offsets after them; or
              partition → offset (an int, or a `CommittedOffset` with metadata) of the next message to read.

        Raises `CommitFailed` if this member does not own the partitions, or has lost them; `ApiError`; `ClientTimeout`
        after `timeout` seconds (default `default.api.timeout.ms`); `ConfigError` without a group.
        """
        group = self._in_group("commit()")
        offsets = self._offsets_of(what, group)
        if offsets:
            group.commit(offsets, self._positions.limit_s(timeout))

    def commit_async(self, what: Any = None, callback: CommitCallback | None = None) -> None:
        """Commit like `commit`, without waiting. The callback gets the offsets, and None or the error of the commit.

        It runs on the user's thread: when the user asks for messages, at the next `commit`, or on closing.
        """
        group = self._in_group("commit_async()")
        offsets = self._offsets_of(what, group)
        group.commit_async(offsets, callback, self._positions.limit_s(None))

    def committed(
        self, places: Iterable[TopicPartitionLike] | None = None, timeout: float | None = None
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Return the committed offsets of partitions (None: the assigned ones), with leader epoch and metadata.

        The value is None where nothing is committed. Raises `ApiError`, `ClientTimeout`, `ConfigError` without a group.
        """
        group = self._in_group("committed()")
        return group.committed(self._positions.chosen(places), self._positions.limit_s(timeout))

    @property
    def group_metadata(self) -> GroupMetadata:
        """The identity of this consumer in its group, for `Producer.send_offsets`.

        If the group has removed this member, the old identity stays until the user asks for messages again. Raises
        `ConfigError` without a group.
        """
        return self._in_group("group_metadata").metadata()

    @property
    def settled(self) -> bool:
        """True while this member has its share of the partitions, as far as it knows, and none to release."""
        with self._lock:
            return self._group is not None and self._group.settled

    def enforce_rebalance(self, reason: str = "the application asks for it") -> None:
        """Start a rebalance of the group; `reason` is for the broker's log. Raises `ConfigError` without a group.

        By `group_protocol="consumer"` it only sends a complete heartbeat, upon which the coordinator decides.
        """
        with self._lock:
            self._in_group("enforce_rebalance()").membership.rejoin(reason)
            self._shell.wake()

    def close(self, timeout: float | None = None, *, auto_commit: bool | None = None) -> None:
        """Stop fetching and close the connections; iteration on another thread raises `ClosedError`. Twice is harmless.

        With a group, the consumer first commits, if automatic commits are on; a member also calls its listener's
        `on_revoked`, and leaves the group, unless it is a static member. This waits at most `timeout` seconds (default
        5) for the coordinator. `auto_commit` None: nothing is committed if another thread may still process a message.
        """
        auto_commit = self._user_is_done() if auto_commit is None else auto_commit
        with self._lock:
            first, self._closing = not self._closing, True
            self._reading.suspend_current()
            self._shell.changed.notify_all()
        try:
            if first and self._group is not None and not self._shell.connector.owns_thread():
                self._group.give_up(CLOSE_S if timeout is None else timeout, auto_commit=auto_commit)
        finally:
            self._shell.close()
        if first and self._group is not None:
            self._group.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._shell.is_foreign:
            self.close(auto_commit=kind is None or self._asked)

    # --- inside

    def _user_is_done(self) -> bool:
        """Return True if the thread that got the last message waits for more, is the one that closes, or has ended."""
        return self._asked or self._user is threading.current_thread() or not self._user.is_alive()

    @property
    def _is_member(self) -> bool:
        return self._group is not None and self._group.membership.subscribed

    def _in_group(self, what: str, instead: str = "") -> GroupCoordinatorClient:
        if self._group is None:
            raise ConfigError(", ".join(filter(None, (f"{what} needs a group: Consumer(..., group_id=NAME)", instead))))
        return self._group

    def _handle_events(self) -> None:
        """Called when the user asks for messages. Raises an error that has been kept for the user."""
        self._shell.check_process()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._group is not None:
            self._group.handle_events()

    def _collect(self, collect: Callable[[], object], found: Sized, wanted: int, timeout: float | None) -> None:
        """Call `collect` until `found` is long enough. If `found` has messages, an error waits for the next call."""
        self._handle_events()
        self._asked, self._user = False, threading.current_thread()
        try:
            collect()
            while len(found) < wanted and (self._collect_at_once() if found else self._next(timeout, None)):
                collect()
        except BarnabasError as error:
            if not len(found):
                raise
            self._failure = error  # the next call raises it

    def _next(self, timeout: float | None, ends: dict[TopicPartition, int] | None) -> bool:
        """Take the next completed fetch. Return False on timeout, or when all ends are reached. Raises its error."""
        deadline = None if timeout is None else self._shell.now_ms() / 1000 + timeout
        self._asked = True
        while True:
            self._handle_events()
            if ends is not None and self._is_member:
                self._follow(ends)
            took = self._wait_for_fetch(deadline, ends)
            if took or self._group is None or not self._group.wanted:
                self._asked = False
                return took

    def _wait_for_fetch(self, deadline: float | None, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Wait for a fetch. Return False on timeout, at all ends, or when the group needs the user's thread."""
        reading, group = self._reading, self._group
        took = False

        def came() -> bool:
            nonlocal took
            if self._closing or (group is not None and group.wanted) or self._all_read(ends):
                return True
            took = reading.select_next_fetch()
            return took or self._shell.view.authentication_error is not None

        with self._lock:
            if not self._fetcher.partitions and not self._is_member and not self._closing:
                raise ConfigError("nothing is assigned: call assign() first, or subscribe() as a member of a group")
            left = None if deadline is None else max(0.0, deadline - self._shell.now_ms() / 1000)
            if group is None:
                self._shell.wait(came, left)
            else:
                group.wait(came, left)
            if self._closing:
                raise ClosedError("the consumer was closed")
            if not took and (refusal := self._shell.view.authentication_error) is not None:
                raise refusal
        return took

    def _collect_at_once(self) -> bool:
        with self._lock:
            if self._group is not None and self._group.wanted:
                return False
            return self._reading.select_next_fetch(may_go_back=False)

    def _at_end(self, ends: Mapping[TopicPartition, int] | None) -> bool:
        with self._lock:
            return self._all_read(ends)

    def _all_read(self, ends: Mapping[TopicPartition, int] | None) -> bool:
        """Return True if all ends are reached, and the group of a member has settled. Lock held."""
        if ends is None:
            return False
        if self._group is not None and self._is_member:
            return self._group.settled and self._fetcher.partitions.keys() <= ends.keys() and self._reading.at(ends)
        return self._reading.at(ends)

    def _first_ends(self, stop_at_end: bool) -> dict[TopicPartition, int] | None:
        """Return the offsets at which to stop; none yet for a member, whose partitions are still to come."""
        if not stop_at_end:
            return None
        return {} if self._is_member else self.end_offsets()

    def _follow(self, ends: dict[TopicPartition, int]) -> None:
        """Look up the ends of newly assigned partitions, and drop those of partitions that are gone."""
        topic_partitions = self.assignment
        for gone in ends.keys() - topic_partitions:
            del ends[gone]
        ends |= self.end_offsets([tp for tp in topic_partitions if tp not in ends])

    def _offsets_of(self, what: Any, group: GroupCoordinatorClient) -> dict[TopicPartition, CommittedOffset]:
        with self._lock:
            positions = group.positions()
        return positions if what is None else offsets_to_commit(what, positions)


def _fetcher_settings(chosen: settings_table.ConsumerSettings) -> FetcherSettings:
    return copy_settings(
        FetcherSettings,
        chosen,
        min_bytes=chosen.fetch_min_bytes,
        max_wait_ms=chosen.fetch_max_wait_ms,
        max_bytes=chosen.fetch_max_bytes,
        max_partition_bytes=chosen.max_partition_fetch_bytes,
        reset=chosen.auto_offset_reset,
        check_crc=chosen.check_crcs,
        rack=chosen.client_rack,
        near_ms=chosen.metadata_max_age_ms,
    )
