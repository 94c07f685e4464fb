"""The mirror: threads that carry batches from the streams of all sources to the target."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.errors import EncodeError, HookError, NoOffset
from ...core.message.corrupt_record import is_damage
from ...core.message.message import Message
from ...ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ...ports.report import counted
from ..clients.shared.blocking_shell import logger
from ..clients.shared.connect import plugin_host, secured
from .counting import StreamCount
from .exactly_once import TransactionalSource, check_exactly_once
from .layout import TopicLayout, keeps_numbers
from .sources import make_source
from .taken import MirrorReader, MirrorSource, MirrorTarget, Taken, dotted
from .targets import bootstrap_of, check_counted, is_classic_target, make_target

if TYPE_CHECKING:
    from types import TracebackType

BATCH_MESSAGES = 1000
TAKE_S = 0.5
RETRY_S = 0.2
RETRY_MAX_S = 5.0


class MirrorMaker:
    """Copies the topics that a filter allows from any number of clusters into one, at least once.

        with MirrorMaker([{"zk.connect": "a:2181", "groupid": "mirror"}], {"bootstrap.servers": "b:9092"},
                         whitelist="views.*") as mirror:
            mirror.wait()

    sources:   consumer configurations, one per cluster: classic (`zk.connect`, `etcd.connect`) or current
               (`bootstrap.servers`, with `group.id`, or with `offsets.file` to keep the offsets here).
    target:    a producer's configuration: classic (`zk.connect`, `etcd.connect`, `broker.list`) or current.
    whitelist, blacklist: one of them, a `TopicFilter` expression over the names of topics.
    streams:   how many of each source, each with a thread; `producers`: how many of the target.
    commit_interval_ms: how often the sources learn how far the target has got.
    exactly_once: messages and positions go to the target in one transaction, between current clusters. A source's
               `group.id` then names its positions at the target, and `streams` share the partitions of this mirror
               alone: a second one with that group fences the first. `transactional.id` of the target begins the names
               of the streams. Those who read committed messages see each once.
    partition_by: "number": between current clusters a topic of the target gets as many partitions as it has at the
               source, also when some are added there, and a message goes into the one of the same number. "key": the
               target's partitioner chooses, as it does for messages of classic sources in any case. Not given: by
               number, unless the target's configuration names a partitioner.

    counter:   name of a plug-in that counts the copies, and reports to the target: "audit". `counter_props` are for it;
               `plugins` may bring others. Both clusters have to be current ones.

    Unless it is exactly once, offsets are committed only after the target took the messages: what was under way at a
    crash is copied again. A target that cannot be reached is tried again for ever. What it can never take (a message
    larger than it allows, a null value for a classic one) stops the mirror; so does a damaged message of a source,
    unless `skip.damaged` is true in its configuration (then the log names what was left out). Raises `ConfigError`;
    `start` also `BarnabasError`.
    """

    def __init__(
        self,
        sources: Sequence[Mapping[str, Any]],
        target: Mapping[str, Any],
        *,
        whitelist: str | None = None,
        blacklist: str | None = None,
        streams: int = 1,
        producers: int = 1,
        commit_interval_ms: float = 1000.0,
        exactly_once: bool = False,
        partition_by: str | None = None,
        counter: str = "",
        counter_props: Mapping[str, object] | None = None,
        plugins: Sequence[object] = (),
        report: Callable[[str], None] = logger.warning,
    ) -> None:
        if (whitelist is None) == (blacklist is None):
            raise ConfigError("a mirror needs exactly one of whitelist and blacklist")
        if not sources:
            raise ConfigError("a mirror needs at least one source: a consumer configuration")
        if streams < 1 or producers < 1:
            raise ConfigError("a mirror needs at least one stream and one producer")
        if exactly_once:
            check_exactly_once(sources, target)
        if counter:
            check_counted(sources, target)
        self._counter = counter
        self._counter_props = dict(counter_props or {})
        self._plugins = plugins
        self._counts: list[StreamCount] = []
        allowed = TopicFilter.whitelist(whitelist) if whitelist is not None else TopicFilter.blacklist(blacklist or "")
        self.copied = 0
        """Messages that the target took; compressed wrappers that passed unopened count as one."""
        self._filter = allowed
        self._source_configs = [dict(config) for config in sources]
        self._target_config = dict(target)
        self._shallow = is_classic_target(target)
        self._exactly_once = exactly_once
        self._by_number = keeps_numbers(partition_by, dotted(target))
        self._layouts: list[TopicLayout] = []
        self._streams = streams
        self._commit_s = commit_interval_ms / 1000
        self.report = report
        self._producers = producers
        self._sources: list[MirrorSource] = []
        self._targets: list[MirrorTarget] = []
        self._free: queue.Queue[MirrorTarget] = queue.Queue()
        self._carriers: list[_Carrier] = []
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: BarnabasError | None = None
        self._closed = False

    def start(self) -> MirrorMaker:
        """Join the sources and connect to the target. Raises `BarnabasError`; everything is closed again then."""
        try:
            if self._exactly_once:
                self._join_exactly_once()
            else:
                self._join()
        except BaseException:
            self.close()
            raise
        for carrier in self._carriers:
            carrier.thread.start()
        return self

    def _join(self) -> None:
        laid_out = self._by_number and all(dotted(config).get("bootstrap.servers") for config in self._source_configs)
        for _ in range(self._producers):
            self._targets.append(make_target(self._target_config, by_number=self._by_number, laid_out=laid_out))
            self._free.put(self._targets[-1])
        for config in self._source_configs:
            self._sources.append(make_source(config, self._filter, shallow=self._shallow))
        for config, source in zip(self._source_configs, self._sources, strict=True):
            book = _Book(source, self._commit_s, self.report)
            layout = self._layout(config) if self._by_number else None
            self._carriers += [
                _Carrier(self, book, reader, layout, count=self._count(config, reader))
                for reader in source.open(self._streams)
            ]

    def _join_exactly_once(self) -> None:
        for config in self._source_configs:
            layout = self._layout(config)
            assert layout is not None, "both ends are current clusters"
            source = TransactionalSource(config, self._filter, self._target_config, layout, by_number=self._by_number)
            self._sources.append(source)
            book = _Book(source, self._commit_s, self.report)
            source.open(self._streams)
            self._carriers += [
                _Carrier(self, book, stream, layout, stream, count=self._count(config, stream))
                for stream in source.streams
            ]

    def _layout(self, config: Mapping[str, Any]) -> TopicLayout | None:
        """Return the layout of a source; None unless both are current clusters."""
        source = dotted(config).get("bootstrap.servers")
        if not source or self._shallow:
            return None
        self._layouts.append(TopicLayout(secured(source, config), dotted(self._target_config), self._filter))
        return self._layouts[-1]

    def _count(self, config: Mapping[str, Any], reader: MirrorReader) -> StreamCount | None:
        if not self._counter or reader.consumer is None:
            return None
        counter = plugin_host(self._plugins).message_counter(self._counter, self._counter_props)
        counter.start(bootstrap_of(self._target_config))
        self._counts.append(StreamCount(counter, bootstrap_of(config), reader.consumer))
        return self._counts[-1]

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the mirror has come to an end: closed, or for good. Raises why, in the second case."""
        ended = self._ended.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return ended

    def stop(self) -> None:
        """Ask the streams to end; `close` does so, too, and waits. Callable from any thread and a signal handler."""
        self._stopping.set()
        self._ended.set()

    def close(self) -> None:
        """Deliver what is under way if the target can be reached, commit, and close. A second call has no effect.

        The sources are closed first, then the target (facts A9).
        """
        self.stop()
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for carrier in self._carriers:
            if carrier.thread.is_alive():
                carrier.thread.join()
        closing = [source.close for source in self._sources] + [target.close for target in self._targets]
        for close in closing + [count.close for count in self._counts] + [layout.close for layout in self._layouts]:
            try:
                close()
            except BarnabasError as error:
                self.report(f"mirror: {error}")

    def __enter__(self) -> MirrorMaker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- for the carriers

    @property
    def stopping(self) -> threading.Event:
        return self._stopping

    def deliver(
        self,
        batch: list[Taken],
        layout: TopicLayout | None,
        own: MirrorTarget | None = None,
        reports: Sequence[Message] = (),
    ) -> bool:
        """Have the target take the batch; False if it did not before the end. Raises what can never be taken.

        `own`: of the stream alone; else whichever is free.
        """
        pause_s = RETRY_S
        while True:
            target = own or self._free.get()
            try:
                if layout is not None:
                    layout.make_room(taken.place for taken in batch)
                target.deliver(batch, reports, layout)
            except BarnabasError as error:
                if _is_final(error):
                    raise
                if layout is not None:
                    layout.forget()
                self.report(f"mirror: the target did not take {_sent_again(len(batch))}: {error}")
            else:
                with self._lock:
                    self.copied += len(batch)
                return True
            finally:
                if own is None:
                    self._free.put(target)
            if self._stopping.wait(pause_s):
                return False
            pause_s = min(RETRY_MAX_S, 2 * pause_s)

    def fail(self, error: BarnabasError) -> None:
        """Stop the mirror, which cannot continue after this error."""
        with self._lock:
            self._failure = self._failure or error
        self.stop()


def _sent_again(count: int) -> str:
    return counted(count, "message, which is sent again", "messages, which are sent again")


def _is_final(error: BarnabasError) -> bool:
    return isinstance(error, EncodeError | ConfigError) or (isinstance(error, ApiError) and not error.retriable)


class _Book:
    """The offsets up to which the target has the partitions of a source."""

    def __init__(self, source: MirrorSource, interval_s: float, report: Callable[[str], None]) -> None:
        self.source = source
        self._interval_s = interval_s
        self._committed_s = time.monotonic()
        self._report = report
        self._lock = threading.Lock()
        self._offsets: dict[Hashable, int] = {}

    def store_offsets(self, batch: list[Taken]) -> None:
        with self._lock:
            self._offsets.update({taken.place: taken.next_offset for taken in batch})

    def commit(self, *, now: bool = False) -> None:
        """Commit the offsets, once in an interval or at once."""
        with self._lock:
            if not self._offsets or (not now and time.monotonic() < self._committed_s + self._interval_s):
                return
            self._committed_s = time.monotonic()
            offsets, self._offsets = self._offsets, {}
        try:
            self.source.commit(offsets)
        except (BarnabasError, OSError) as error:
            with self._lock:
                self._offsets = {**offsets, **self._offsets}
            self._report(f"mirror: the offsets of {self.source.name} are not committed, which is tried again: {error}")


class _Carrier:
    """One stream and its thread."""

    def __init__(
        self,
        mirror: MirrorMaker,
        book: _Book,
        reader: MirrorReader,
        layout: TopicLayout | None,
        target: MirrorTarget | None = None,
        count: StreamCount | None = None,
    ) -> None:
        self._mirror = mirror
        self._book = book
        self._reader = reader
        self._layout = layout
        self._target = target
        self._count = count
        self.thread = threading.Thread(target=self._run, name=f"mirror {book.source.name}", daemon=True)

    def _run(self) -> None:
        mirror = self._mirror
        try:
            while not mirror.stopping.is_set() and not self._reader.ended:
                self._keep_layout()
                batch = self._take()
                reports = self._reports(batch)
                if batch or reports:
                    if not mirror.deliver(batch, self._layout, self._target, reports):
                        break
                    self._book.store_offsets(batch)
                self._book.commit()
        except BarnabasError as error:
            mirror.fail(error)
        finally:
            self._book.commit(now=True)

    def _reports(self, batch: list[Taken]) -> Sequence[Message]:
        try:
            return self._count.reports(batch) if self._count is not None else ()
        except BarnabasError:
            raise
        except Exception as error:
            raise HookError(f"the message counter failed: {error!r}") from error

    def _keep_layout(self) -> None:
        try:
            if self._layout is not None:
                self._layout.refresh_topics()
        except BarnabasError as error:
            if _is_final(error):
                raise
            text = f"mirror: new topics of {self._book.source.name} are not made now, which is tried again: {error}"
            self._mirror.report(text)

    def _take(self) -> list[Taken]:
        try:
            return self._reader.poll_messages(BATCH_MESSAGES, TAKE_S)
        except ClosedError:
            return []
        except BarnabasError as error:
            if isinstance(error, NoOffset) or (isinstance(error, ApiError) and is_damage(error)):
                raise  # asking again would leave the partition behind for ever, in silence
            self._mirror.report(f"mirror: reading from {self._book.source.name}: {error}")
            self._mirror.stopping.wait(RETRY_S)
            return []
