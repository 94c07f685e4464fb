"""The mirror: threads that carry batches from the streams of all sources to the target."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ...core.classic.consumer.streams import StreamMessage
from ...core.classic.registry.group import Owned
from ...core.classic.registry.topic_filter import TopicFilter
from ...core.client.consumer.subscription_state import AtOffset
from ...core.client.errors import AbortNeeded, ClientTimeout, EncodeError, HookError, NoOffset
from ...core.client.group.events import CommittedOffset
from ...core.message.classic.reader import ShallowMessage
from ...core.message.corrupt_record import is_damage
from ...core.message.message import Message
from ...ports.broker_api.metadata import NO_TOPIC_ID
from ...ports.errors import ApiError, BarnabasError, ClosedError, ConfigError
from ...ports.report import counted
from ...ports.types import TopicPartition
from ..clients.admin.admin import Admin
from ..clients.classic.consumer_connector import ConsumerConnector
from ..clients.classic.producer import ClassicProducer
from ..clients.classic.streams import MessageStream
from ..clients.producer.producer import Producer
from ..clients.shared.blocking_shell import logger
from ..clients.shared.bootstrap import Bootstrap
from ..clients.shared.connect import plugin_host, secured
from ..clients.shared.delivery import ManyHandle
from .layout import AS_LAID_OUT, PlacingSender, TopicLayout, keeps_numbers
from .sources import AssignedReader, AssignedSource
from .taken import MirrorReader, MirrorSource, MirrorTarget, Taken, TopicMaker, dotted

if TYPE_CHECKING:
    from types import TracebackType

    from ...core.client.message_counter import MessageCounter
    from ..clients.consumer.consumer import Consumer

BATCH_MESSAGES = 1000
TAKE_S = 0.5
RETRY_S = 0.2
RETRY_MAX_S = 5.0


# The reports of a mirror's stream on the messages that it copies; they are sent along with them.

LOOK_S = 5.0
"""The interval at which the ends of the source are looked up, and reported when nothing is copied."""
_ADMIN_MS = 5000


class StreamCount:
    """Counts one stream of a current cluster. Used by its thread alone."""

    def __init__(self, counter: MessageCounter, bootstrap: Bootstrap, consumer: Consumer) -> None:
        self._counter = counter
        self._consumer = consumer
        self._admin = Admin(bootstrap, default_api_timeout_ms=_ADMIN_MS)
        self._read_ends_s = -LOOK_S

    def reports(self, batch: Sequence[Taken]) -> Sequence[Message]:
        """Return the reports to send with the batch; an empty batch can have some, too."""
        due = time.monotonic() - self._read_ends_s >= LOOK_S
        if not batch and not due:
            return ()
        if due:
            self._read_source_ends()
            self._read_ends_s = time.monotonic()
        messages = [taken.message for taken in batch if isinstance(taken.message, Message)]
        return self._counter.reports(messages, self._positions())

    def _read_source_ends(self) -> None:
        partitions = self._counter.unprobed(self._consumer.assignment)
        if not partitions:
            return
        now_ms = time.time_ns() // 1_000_000
        try:
            ends = self._admin.list_offsets(dict.fromkeys(partitions, "latest"))
            topics = self._admin.describe_topics(sorted({tp.topic for tp in partitions}))
        except BarnabasError as error:
            logger.info("mirror: the ends of the source cannot be looked up now: %s", error)
            return
        self._counter.probed(now_ms, ends, {topic.name or "": len(topic.partitions) for topic in topics})

    def _positions(self) -> dict[TopicPartition, int]:
        positions = {}
        for tp in self._consumer.assignment:
            try:
                positions[tp] = self._consumer.position(tp, 0)
            except BarnabasError as error:
                logger.debug("mirror: %s has no position yet: %s", tp, error)
        return positions

    def close(self) -> None:
        self._admin.close()


_CLASSIC_KEYS = ("zk.connect", "etcd.connect", "coordination")
OFFSETS_FILE = "offsets.file"


def make_source(config: Mapping[str, Any], topics: TopicFilter, *, shallow: bool) -> MirrorSource:
    """Make a source of a consumer's configuration: classic with `zk.connect`, `etcd.connect` or `coordination`, current
    with `bootstrap.servers` and either `group.id` or `offsets.file`. Raises `ConfigError`."""
    settings = dotted(config)
    classic = [key for key in _CLASSIC_KEYS if settings.get(key)]
    if classic and settings.get("bootstrap.servers"):
        raise ConfigError(
            f"a consumer configuration has {classic[0]} (classic) and bootstrap.servers; take one of them"
        )
    if classic:
        return ClassicSource(settings, topics, shallow=shallow)
    if settings.get("bootstrap.servers"):
        return _current_source(settings, topics)
    raise ConfigError("a consumer configuration needs zk.connect or etcd.connect (classic), or bootstrap.servers")


def _current_source(config: Mapping[str, Any], topics: TopicFilter) -> MirrorSource:
    group = config.get("group.id") or config.get("groupid")
    file = config.get(OFFSETS_FILE)
    if bool(group) == bool(file):
        raise ConfigError(
            f"a source with bootstrap.servers keeps its offsets in a group (group.id=NAME) or in a file "
            f"({OFFSETS_FILE}=PATH); give one of them, not {'both' if group else 'none'}"
        )
    if file:
        return FileSource(config, topics)
    from .sources import GroupSource

    return GroupSource(config, topics)


class ClassicSource:
    """A member of a consumer group: several mirrors of one group share the partitions."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter, *, shallow: bool) -> None:
        settings = {key: value for key, value in config.items() if key != "coordination"}
        settings["autocommit.enable"] = False  # else a rebalance would commit what the target has not got
        settings.setdefault("shallowiterator.enable", shallow)
        if settings["shallowiterator.enable"] in (True, "true") and not shallow:
            raise ConfigError("shallowiterator.enable=true needs a classic target, which knows compressed wrappers")
        self._topics = topics
        self._connector = ConsumerConnector(coordination=config.get("coordination"), config=settings)
        self.name = f"group {self._connector.settings.groupid}"

    def open(self, streams: int) -> list[MirrorReader]:
        return [
            _ClassicReader(stream) for stream in self._connector.create_message_streams_by_filter(self._topics, streams)
        ]

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Commit offsets of partitions still ours; the next owner of others copies again what is not committed."""
        self._connector.commit_offsets(cast("dict[Owned, int]", offsets))

    def close(self) -> None:
        self._connector.shutdown()


class _ClassicReader:
    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream
        self.consumer = None

    @property
    def ended(self) -> bool:
        return self._stream.ended

    def poll_messages(self, max_messages: int, timeout: float) -> list[Taken]:
        first = self._stream.poll(timeout)
        taken: list[Taken] = []
        message = first
        while message is not None:
            taken.append(_of_stream(message))
            message = self._stream.poll() if len(taken) < max_messages else None
        return taken


def _of_stream(message: StreamMessage) -> Taken:
    source_partition = (message.topic, message.place)
    if message.codec_id:
        content: Message | ShallowMessage = ShallowMessage(message.value, message.codec_id)
    else:
        content = Message(message.value)
    return Taken(message.topic, content, source_partition, message.offset)


class FileSource(AssignedSource):
    """The offsets are kept in a file, and nothing in the cluster."""

    def __init__(self, config: Mapping[str, Any], topics: TopicFilter) -> None:
        settings = dict(config)
        self._file = Path(str(settings.pop(OFFSETS_FILE)))
        self._lock = threading.Lock()
        self._offsets = _read_offsets(self._file)
        super().__init__(settings, topics)

    def start_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
        with self._lock:
            return {tp: AtOffset(self._offsets[tp]) for tp in partitions if tp in self._offsets}

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """The file holds the old content or the new one, whole."""
        with self._lock:
            self._offsets.update(cast("dict[TopicPartition, int]", offsets))
            tree: dict[str, dict[str, int]] = {}
            for (topic, partition), offset in sorted(self._offsets.items()):
                tree.setdefault(topic, {})[str(partition)] = offset
            draft = self._file.with_name(self._file.name + ".tmp")
            with draft.open("w", encoding="utf-8") as file:
                json.dump(tree, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self._file)


def _read_offsets(file: Path) -> dict[TopicPartition, int]:
    """Raises `ConfigError` for a file that is no offsets file."""
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        return {TopicPartition(t, int(p)): int(offset) for t, ps in tree.items() for p, offset in ps.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"{OFFSETS_FILE}={file} cannot be read: {error}") from error


_CLASSIC_TARGET_KEYS = ("zk.connect", "etcd.connect", "broker.list", "coordination")


def is_classic_target(config: Mapping[str, Any]) -> bool:
    """Return True if the producer's configuration names a classic cluster.

    Raises `ConfigError` if it names no cluster, or two.
    """
    given = {key for key, value in dotted(config).items() if value}
    classic = [key for key in _CLASSIC_TARGET_KEYS if key in given]
    if classic and "bootstrap.servers" in given:
        raise ConfigError(f"the producer configuration has {classic[0]} (classic) and bootstrap.servers; take one")
    if not classic and "bootstrap.servers" not in given:
        raise ConfigError(
            "the producer configuration needs zk.connect, etcd.connect or broker.list (classic), or bootstrap.servers"
        )
    return bool(classic)


def check_counted(sources: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> None:
    """Raises `ConfigError` where messages cannot be counted."""
    if is_classic_target(target) or not all("bootstrap.servers" in dotted(config) for config in sources):
        raise ConfigError("counting what is copied needs bootstrap.servers (the current generation) at both ends")


def bootstrap_of(config: Mapping[str, Any]) -> Bootstrap:
    """Return the bootstrap servers in a configuration for a current cluster."""
    return secured(str(dotted(config)["bootstrap.servers"]), config)


def make_target(config: Mapping[str, Any], *, by_number: bool, laid_out: bool) -> MirrorTarget:
    """Make a target of a producer's configuration; `laid_out`: layouts make its topics. Raises `ConfigError`,
    `BarnabasError`."""
    settings = dotted(config)
    if is_classic_target(config):
        return ClassicTarget(settings)
    return CurrentTarget(settings | AS_LAID_OUT if laid_out else settings, by_number=by_number)


class ClassicTarget:
    """Keys, headers and timestamps end here: the classic format has none. A null value cannot be copied."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        settings = {key: value for key, value in config.items() if key not in ("coordination", "producer.type")}
        self._producer = ClassicProducer(coordination=config.get("coordination"), config=settings)

    def deliver(
        self,
        batch: list[Taken],
        reports: Sequence[Message] = (),  # noqa: ARG002  # none come here
        layout: TopicMaker | None = None,  # noqa: ARG002  # brokers make topics by themselves
    ) -> None:
        for topic, group in groupby(batch, attrgetter("topic")):
            self._producer.send_many(topic, [_classic(taken.message) for taken in group])
        self._producer.confirm()

    def close(self) -> None:
        self._producer.close()


def _classic(message: Message | ShallowMessage) -> Any:
    return message if isinstance(message, ShallowMessage) else message.value


class CurrentTarget:
    """Keys, headers and timestamps stay; so do the numbers of partitions, or the partitioner chooses."""

    def __init__(self, config: Mapping[str, Any], *, by_number: bool) -> None:
        settings = {key: value for key, value in config.items() if key not in ("bootstrap.servers", "producer.type")}
        self._producer = Producer(config["bootstrap.servers"], config={"acks": "all", **settings})
        self._sender = PlacingSender(self._producer, by_number=by_number)

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = (), layout: TopicMaker | None = None) -> None:
        try:
            self._confirm(self._sender.send(batch), layout)
            self._confirm(self._sender.report(reports), layout)
        except BarnabasError:
            self._sender.forget()
            raise

    def _confirm(self, handles: list[ManyHandle], layout: TopicMaker | None) -> None:
        if handles:
            self._sender.await_sends(layout)
        for handle in handles:
            handle.result()

    def close(self) -> None:
        self._producer.close()


# Copying exactly once: messages, and how far their source is read, go to the target in one transaction (KIP-98).
#
# The positions are those of the source's `group.id`, kept by the target. Each stream reads every n-th partition and
# has a transactional id of its own, so that a mirror that was replaced, and does not know it, is fenced.

ID_PREFIX = "barnabas-mirror"


def check_exactly_once(sources: Sequence[Mapping[str, Any]], target: Mapping[str, Any]) -> None:
    """Raises `ConfigError` where it cannot be had."""
    for config in (*sources, target):
        if not dotted(config).get("bootstrap.servers"):
            raise ConfigError("exactly once needs bootstrap.servers (the current generation) at both ends")
    groups = [dotted(config).get("group.id") for config in sources]
    if not all(groups):
        raise ConfigError(
            "exactly once keeps the positions with the target: give each source a group.id, the name there"
        )
    if len(set(groups)) < len(groups):
        raise ConfigError("exactly once needs a different group.id for each source: the target stores offsets by it")


class TransactionalSource(AssignedSource):
    """A cluster of which the target knows how far it was copied; target topics get as many partitions."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topics: TopicFilter,
        target: Mapping[str, Any],
        layout: TopicLayout,
        *,
        by_number: bool,
    ) -> None:
        settings = dotted(config)
        self._group = str(settings.pop("group.id"))
        settings["enable.auto.commit"] = False
        super().__init__({"isolation.level": "read_committed", **settings}, topics)
        self._target_config = dotted(target)
        self._target = Admin(secured(self._target_config["bootstrap.servers"], self._target_config))
        self._layout = layout
        self.by_number = by_number
        self.streams: list[TransactionalStream] = []
        self.name = f"{self.bootstrap} (group {self._group} at the target)"

    def open(self, streams: int) -> list[MirrorReader]:
        """Open the streams; older mirrors are fenced before the positions are read."""
        base = f"{self._target_config.get('transactional.id', ID_PREFIX)}-{self._group}"
        for number in range(streams):
            self.streams.append(TransactionalStream(self, number, streams, self._producer(f"{base}-{number}")))
        self._fence_others(base, streams)
        self._readers = list(self.streams)
        return list(self.streams)

    def start_of(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, AtOffset]:
        found = self._target.group_offsets(self._group, partitions, require_stable=True)
        return {tp: AtOffset(each.offset, topic_id=_topic_id_of(each.metadata)) for tp, each in found.items()}

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions, after creating them in the target, which stores offsets of its own partitions only."""
        topic_partitions = super().partitions()
        self._layout.provide(Counter(tp.topic for tp in topic_partitions))
        return topic_partitions

    def commit(self, offsets: dict[Hashable, int]) -> None:
        """Do nothing: the target got the positions with the messages."""

    def positions(self, batch: Sequence[Taken]) -> tuple[dict[Hashable, CommittedOffset], str]:
        """Return the source offsets behind this batch, and the group that they belong to.

        Each offset carries its topic id: a topic that was made again under its name is copied from its beginning.
        """
        positions: dict[Hashable, CommittedOffset] = {
            taken.source_partition: CommittedOffset(taken.next_offset, metadata=taken.topic_id.hex()) for taken in batch
        }
        return positions, self._group

    def close(self) -> None:
        super().close()
        for stream in self.streams:
            stream.abort_and_close()
        self._target.close()

    def _producer(self, transactional_id: str) -> Producer:
        known = ("bootstrap.servers", "producer.type", "transactional.id")
        settings = {key: value for key, value in self._target_config.items() if key not in known}
        settings |= {**AS_LAID_OUT, "transactional.id": transactional_id}
        producer = Producer(self._target_config["bootstrap.servers"], config=settings)
        try:
            producer.init_transactions()
        except BaseException:
            producer.close()
            raise
        return producer

    def _fence_others(self, base: str, streams: int) -> None:
        """Streams of an earlier run that had more of them."""
        for listed in self._target.list_transactions():
            number = listed.transactional_id.removeprefix(f"{base}-")
            if number.isascii() and number.isdigit() and int(number) >= streams:
                self._producer(f"{base}-{number}").close()


def _topic_id_of(note: str | None) -> bytes:
    """Return the topic id that `positions` noted. Earlier mirrors noted none, and others may have something else."""
    try:
        topic_id = bytes.fromhex(note or "")
    except ValueError:
        return NO_TOPIC_ID
    return topic_id if len(topic_id) == len(NO_TOPIC_ID) else NO_TOPIC_ID


class TransactionalStream(AssignedReader):
    """One stream of a source, and the producer that copies what it gives. Fulfils `MirrorReader` and `MirrorTarget`."""

    def __init__(self, source: TransactionalSource, number: int, of: int, producer: Producer) -> None:
        super().__init__(source, number, of)
        self._of_source = source
        self._producer = producer
        self._sender = PlacingSender(producer, by_number=source.by_number)
        self._committing = False
        """A transaction is complete, and whether it was committed is not known."""
        self._aborting = False
        """One has failed, and is to be aborted before the next."""

    def deliver(self, batch: list[Taken], reports: Sequence[Message] = (), layout: TopicMaker | None = None) -> None:
        """Returns when the target has the batch and the positions behind it. Raises `BarnabasError`: it has neither, or
        after `ClientTimeout` maybe both, which the next call, with the same batch, finds out."""
        if self._committing:
            self._commit()
            return
        if self._aborting:
            self._producer.abort_transaction()
            self._aborting = False
        self._producer.begin_transaction()
        self._aborting = True
        try:
            self._send(batch, reports, layout)
        except BarnabasError:
            self._sender.forget()
            raise
        self._aborting, self._committing = False, True
        self._commit()

    def _send(self, batch: list[Taken], reports: Sequence[Message], layout: TopicMaker | None) -> None:
        """Send within the transaction timeout: a later commit would be fenced, as after the start of another mirror."""
        limit_s = self._producer.settings.transaction_timeout_ms / 1000
        offsets, group = self._of_source.positions(batch)
        self._sender.send(batch)
        self._sender.report(reports)
        self._sender.await_sends(layout, limit_s / 2)
        self._producer.send_offsets(offsets, group, timeout=limit_s / 4)

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except ClientTimeout:
            raise
        except AbortNeeded as error:
            self._aborting, self._committing = True, False
            if isinstance(error.__cause__, BarnabasError):
                raise error.__cause__ from None
            raise
        self._committing = False

    def abort_and_close(self) -> None:
        """Close the producer, which aborts what was not committed."""
        self._producer.close()


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
        """The event that is set when the mirror is to stop."""
        return self._stopping

    def deliver(
        self,
        batch: list[Taken],
        layout: TopicLayout | None,
        own: MirrorTarget | None = None,
        reports: Sequence[Message] = (),
    ) -> bool:
        """Have the target take the batch; False if it did not before the end. Raises what can never be taken.

        `layout`: the partitions of the target's topics. `reports`: messages of the audit that go with the batch.

        `own`: of the stream alone; else whichever is free.
        """
        pause_s = RETRY_S
        while True:
            target = own or self._free.get()
            try:
                if layout is not None:
                    layout.make_room(taken.source_partition for taken in batch)
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
            self._offsets.update({taken.source_partition: taken.next_offset for taken in batch})

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
            self._report(f"mirror: cannot commit the offsets of {self.source.name}; retrying: {error}")


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
                batch = self._poll_batch()
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
            text = f"mirror: new topics of {self._book.source.name} cannot be created on the target; retrying: {error}"
            self._mirror.report(text)

    def _poll_batch(self) -> list[Taken]:
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
