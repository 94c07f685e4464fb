"""`barnabas consume`: prints messages as lines."""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....core.classic.registry.topic_filter import TopicFilter
from ....core.message.message import Message
from ....ports.broker_api.offsets import EARLIEST, LATEST
from ....ports.coordination import CoordinationError
from ....ports.errors import BarnabasError, ConfigError
from ....ports.types import TopicPartition
from ...clients.consumer.consumer import Consumer
from ...clients.share.share_consumer import ShareConsumer
from ..classic import ClusterChoice, find_cluster, open_simple, warn
from ..escapes import separator, unescaped
from ..message_format import LETTERS, NULL, LineStyle, compile_format, json_line
from ..options import (
    PATIENCE_MS,
    AnyBootstrap,
    AsJson,
    ClientConfig,
    Coordination,
    EtcdConnect,
    IsolationLevel,
    Settings,
    SkipDamaged,
    ZkConnect,
    client_settings,
    open_admin,
    progress,
    reading_settings,
)
from ..reaching import check_reachable
from ..times import parse_time_ms
from .progress import COMMIT_S, Extent, Progress, Show, Start, parse_start, plain_damage, stopping, until_interrupted

if TYPE_CHECKING:
    from ...clients.classic.consumer_connector import ConsumerConnector
    from ...clients.classic.simple_consumer import ClassicSimpleConsumer
    from ...clients.classic.streams import MessageStream


def register(app: typer.Typer) -> None:
    app.command("consume")(consume)


def consume(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", show_default=False)] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "--offset",
            "-o",
            metavar="WHERE",
            help="beginning, end, an offset, -N for the last N of each partition, or a time: 2026-01-31T12:00, -15m, "
            "@MILLISECONDS.",
        ),
    ] = "end",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="Short for --from beginning.")] = False,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=0, help="Print the last N messages of each partition, and stop."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop before messages of that time or later, and at the current log end."),
    ] = None,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; may be repeated.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", "--max-messages", min=1, help="Stop after this number of messages.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop when no message arrived for this time.")
    ] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", "-e", help="Stop at the current log end.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help=f"kcat's: {LETTERS}; \\n, \\t, \\x1f.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help=r"Print the key and this before the value; \t, \x1f.")
    ] = None,
    headers: Annotated[
        bool, typer.Option("--headers", help="Print name=value,... and a tab before each line.")
    ] = False,
    null: Annotated[str, typer.Option("--null", metavar="TEXT", help="Text for a tombstone.")] = NULL.decode(),
    as_json: AsJson = False,
    bootstrap: AnyBootstrap = None,
    zk_connect: ZkConnect = None,
    etcd_connect: EtcdConnect = None,
    coordination: Coordination = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Join this group and commit the offsets of printed messages; --from applies where the group has no "
            "offset. Groups of classic brokers are in their registries.",
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share",
            help="With --group: as a member of a share group, which gives each message to one member; it is accepted "
            "once it is printed. Where the group begins is its setting share.auto.offset.reset.",
        ),
    ] = False,
    whitelist: Annotated[
        str | None,
        typer.Option(
            "--whitelist", "--include", metavar="REGEX", help="With --group, instead of TOPIC: the topics to read."
        ),
    ] = None,
    blacklist: Annotated[
        str | None, typer.Option(metavar="REGEX", help="With --group, instead of TOPIC: the topics to exclude.")
    ] = None,
    skip_damaged: SkipDamaged = False,
    isolation_level: IsolationLevel = None,
    config: ClientConfig = None,
    settings: Settings = None,
) -> None:
    """Print the value of each message as a line; with --json an object per line, with all fields of the message.

    Classic brokers are read in a group, or one of them with --bootstrap and --partition; the offset of their messages
    is that of the next one.
    """
    cluster = find_cluster(
        context, bootstrap, zk_connect=zk_connect, etcd_connect=etcd_connect, coordination=coordination
    )
    wanted = _wanted(group, topic=topic, whitelist=whitelist, blacklist=blacklist)
    extent = Extent(
        start=Start(last=last) if last is not None else parse_start("beginning" if from_beginning else start),
        count=count,
        timeout_s=timeout,
        stop_at_end=stop_at_end or last is not None,
        until_ms=None if until is None else parse_time_ms(until, "--until"),
    )
    chosen = client_settings(config, settings)
    chosen = reading_settings(chosen, skip_damaged=skip_damaged, isolation_level=isolation_level)
    style = LineStyle(
        key_separator=separator(key_separator, "--key-separator"), headers=headers, null=unescaped(null, "--null")
    )
    if share:
        _check_share(cluster, group, partition, wanted, extent, from_beginning or start != "end")
        read_share_member(
            str(cluster.bootstrap), str(group), wanted["topic"], extent, chosen, _shown(as_json, form, style)
        )
        return
    with plain_damage():
        _read(cluster, group, partition, wanted, extent, chosen, _shown(as_json, form, style))
    sys.stdout.buffer.flush()


# `barnabas consume --group` with brokers of the current generation.

LOOK_S = 0.2
"""Interval in which a waiting member checks for a signal to stop."""


def read_member(
    bootstrap: str, group: str, wanted: Mapping[str, str], extent: Extent, settings: Mapping[str, str], show: Show
) -> None:
    """Print the messages that a member of a group receives, until SIGTERM or Ctrl-C, or until `extent` is read.

    `wanted` has one of topic, whitelist and blacklist. Messages are committed after they are printed. Raises
    `BarnabasError`.
    """
    if extent.until_ms is not None or extent.start.last is not None:
        raise ConfigError("--until and --from -N are not allowed with --group")
    check_reachable(bootstrap)
    config = {
        "default.api.timeout.ms": PATIENCE_MS,
        "auto.offset.reset": extent.start.word or "latest",
        **settings,
        "group.id": group,
        "enable.auto.commit": False,
    }
    with stopping() as stopped, Consumer(bootstrap, config=config) as consumer:
        member = _Member(consumer, extent, show)
        member.subscribe(wanted)
        try:
            member.read(stopped)
        except BarnabasError:
            member.try_to_save()
            raise
        member.save()


class _Member:
    def __init__(self, consumer: Consumer, extent: Extent, show: Show) -> None:
        self._consumer = consumer
        self._extent = extent
        self._show = show
        self._new = False
        self._saved = time.monotonic()
        self._ends: dict[TopicPartition, int] = {}

    def subscribe(self, wanted: Mapping[str, str]) -> None:
        """Subscribe. Raises `BarnabasError` for an unreachable cluster, which a member would try to reach for ever."""
        self._consumer.committed([(wanted.get("topic", "any"), 0)])
        listeners: dict[str, Any] = {"on_assigned": self._assigned, "on_revoked": self._revoked, "on_lost": self._gone}
        if "topic" in wanted:
            self._consumer.subscribe(wanted["topic"], **listeners)
        else:
            (kind, text), *_ = wanted.items()
            self._consumer.subscribe(pattern=TopicFilter(text, white=kind == "whitelist").pattern, **listeners)

    def read(self, stopped: list[int]) -> None:
        """Print messages until the extent is read."""
        progress = Progress(self._extent)
        while True:
            for message in self._consumer.messages(stop_at_end=self._extent.stop_at_end, timeout=LOOK_S):
                self._show(message, None)
                self._new = True
                if progress.got() or stopped:
                    return
                if time.monotonic() - self._saved >= COMMIT_S:
                    self.try_to_save()
            if self._new:
                self.try_to_save()
            if stopped or progress.timed_out or (self._extent.stop_at_end and self._at_end):
                return

    @property
    def _at_end(self) -> bool:
        return self._consumer.settled and self._consumer.reached(self._ends)

    def save(self) -> None:
        """Flush the output, then commit the printed messages."""
        sys.stdout.buffer.flush()
        self._consumer.commit()
        self._new = False
        self._saved = time.monotonic()

    def try_to_save(self) -> None:
        try:
            self.save()
        except BarnabasError as error:
            self._saved = time.monotonic()
            warn("offset commit failed, and is retried: %s", error)

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        start = self._extent.start
        if start.word is None:
            new = [tp for tp, at in self._consumer.committed(partitions).items() if at is None]
            if start.time_ms is not None:
                self._consumer.seek_to_time(start.time_ms, new)
            elif start.offset is not None:
                for tp in new:
                    self._consumer.seek(tp, start.offset)
        if self._extent.stop_at_end:
            self._ends |= self._consumer.end_offsets(partitions)

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        self.try_to_save()
        self._gone(partitions)

    def _gone(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._ends.pop(tp, None)


# `barnabas consume --group --share`.


def read_share_member(
    bootstrap: str, group: str, topic: str, extent: Extent, settings: Mapping[str, str], show: Show
) -> None:
    """Print the messages that a member of a share group receives, until SIGTERM or Ctrl-C, or until `extent` is read.

    Messages are accepted after they are printed. Raises `BarnabasError`.
    """
    check_reachable(bootstrap)
    progress, left = Progress(extent), extent.count
    config = {**settings, "group.id": group, "share.acknowledgement.mode": "explicit"}
    with stopping() as stopped, ShareConsumer(bootstrap, config=config) as consumer:
        consumer.subscribe(topic)
        while not (stopped or progress.timed_out or left == 0):
            wanted = consumer.settings.max_poll_records
            messages = consumer.poll_many(wanted if left is None else min(left, wanted), LOOK_S)
            for message in messages:
                show(message, None)
                progress.got()
            sys.stdout.buffer.flush()
            for message in messages:
                consumer.acknowledge(message)
            left = None if left is None else left - len(messages)


def _check_share(
    cluster: ClusterChoice,
    group: str | None,
    partition: list[int] | None,
    wanted: Mapping[str, str],
    extent: Extent,
    has_start: bool,
) -> None:
    if group is None or "topic" not in wanted:
        raise ConfigError("--share needs --group, the name of the share group, and a TOPIC")
    if cluster.classic:
        raise ConfigError("--share: brokers of the classic generation have no share groups")
    if partition:
        raise ConfigError("--partition: not allowed with --share: leaders hand out messages of all partitions")
    if has_start or extent.start.last is not None:
        raise ConfigError("--from: where a share group begins is its setting share.auto.offset.reset")
    if extent.until_ms is not None or extent.stop_at_end:
        raise ConfigError("--until and --stop-at-end are not allowed with --share; --timeout stops when nothing comes")


# `barnabas consume` with brokers of the classic generation.

ASK_AGAIN_S = 0.1
"""A classic broker answers at once, even without messages."""
_RESETS = {"earliest": "smallest", "latest": "largest"}


def read_broker(
    bootstrap: str,
    topic: str,
    partitions: Collection[int],
    extent: Extent,
    settings: Mapping[str, str],
    show: Show,
) -> None:
    """Print partitions of one broker. Raises `ConfigError`, `ApiError`, `TransportError`."""
    if extent.until_ms is not None:
        raise ConfigError("--until: messages of classic brokers have no timestamps")
    with open_simple(bootstrap, settings) as consumer:
        at = {number: _offset(consumer, topic, number, extent.start) for number in partitions}
        ends = None
        if extent.stop_at_end:
            ends = {number: consumer.offset_at(topic, number, LATEST) for number in at}
        progress = Progress(extent)
        while at:
            if ends is not None:
                at = {number: offset for number, offset in at.items() if offset < ends[number]}
            if not _read_once(consumer, topic, at, ends, progress, show) or progress.timed_out:
                return


def _read_once(
    consumer: "ClassicSimpleConsumer",
    topic: str,
    at: dict[int, int],
    ends: Mapping[int, int] | None,
    progress: Progress,
    show: Show,
) -> bool:
    """Print the available messages, and advance `at`. Return False when the extent is read."""
    came = False
    for number, offset in at.items():
        limit = None if ends is None else min(consumer.settings.fetch_size, ends[number] - offset)
        found = consumer.fetch(topic, number, offset, limit)
        for message in found:
            show(message, None)
            if progress.got():
                return False
        at[number] = found.next_offset
        came = came or found.next_offset > offset
    if at and not came:
        sys.stdout.buffer.flush()
        time.sleep(ASK_AGAIN_S)
    return True


def _offset(consumer: "ClassicSimpleConsumer", topic: str, partition: int, start: Start) -> int:
    if start.word is not None:
        return consumer.offset_at(topic, partition, EARLIEST if start.word == "earliest" else LATEST)
    if start.offset is not None:
        return start.offset
    if start.time_ms is None:
        raise ConfigError("--from: offsets of classic brokers are byte positions, so the last N messages are unknown")
    # The base offset of a segment: messages of this generation have no timestamp.
    found = consumer.offset_at(topic, partition, start.time_ms)
    return found if found >= 0 else consumer.offset_at(topic, partition, EARLIEST)


def read_group(
    cluster: ClusterChoice,
    group: str,
    wanted: Mapping[str, str],
    extent: Extent,
    settings: Mapping[str, str],
    show: Show,
) -> None:
    """Print the messages that a member of a consumer group receives, until SIGTERM or Ctrl-C.

    `wanted` has one of topic, whitelist and blacklist. Messages are committed after they are printed. Raises
    `ConfigError`, `CoordinationError`, and the error of a partition.
    """
    word = extent.start.word
    if extent.stop_at_end or extent.until_ms is not None or word is None:
        raise ConfigError(
            "in a group, --stop-at-end, --until and --from with an offset or a time mean nothing; use --timeout"
        )
    from ...clients.classic.consumer_connector import ConsumerConnector

    config = {"autocommit.enable": "false", "autooffset.reset": _RESETS[word], "groupid": group, **settings}
    with stopping() as stopped, ConsumerConnector(**_where(cluster), config=config) as connector:
        topic = wanted.get("topic")
        if topic is not None:
            (stream,) = connector.create_message_streams({topic: 1})[topic]
        else:
            (stream,) = connector.create_message_streams_by_filter(
                whitelist=wanted.get("whitelist"), blacklist=wanted.get("blacklist")
            )
        try:
            _read_stream(connector, stream, stopped, Progress(extent), show)
        except BarnabasError:
            _save(connector)
            raise
        _save(connector)


def _where(cluster: ClusterChoice) -> dict[str, Any]:
    if "broker_list" in cluster.places or cluster.bootstrap is not None:
        raise ConfigError("--group: classic groups need --zk-connect, --etcd-connect or --coordination")
    return dict(cluster.places)


def _read_stream(
    connector: "ConsumerConnector", stream: "MessageStream", stopped: list[int], progress: Progress, show: Show
) -> None:
    from ....core.classic.consumer.settings import ConsumerRebalanceFailed

    saved = time.monotonic()
    new = False
    while not stopped:
        try:
            message = stream.poll(0 if new else ASK_AGAIN_S)
        except ConsumerRebalanceFailed as error:
            warn("%s", error)
            continue
        if message is not None:
            show(
                Message(message.value, topic=message.topic, partition=message.partition, offset=message.offset),
                message.broker_id,
            )
            new = True
            if progress.got():
                return
        if new and (message is None or time.monotonic() - saved >= COMMIT_S):
            try:
                _save(connector)
            except CoordinationError as error:
                warn("the offsets are not committed; retrying: %s", error)
            saved = time.monotonic()
            new = False
        if message is None and progress.timed_out:
            return


def _save(connector: "ConsumerConnector") -> None:
    sys.stdout.buffer.flush()
    connector.commit_offsets()


def _read(
    cluster: ClusterChoice,
    group: str | None,
    partition: list[int] | None,
    wanted: dict[str, str],
    extent: Extent,
    settings: dict[str, Any],
    show: Show,
) -> None:
    if group is not None:
        if partition:
            raise ConfigError("--partition: not allowed with --group, which assigns the partitions")
        if cluster.classic:
            read_group(cluster, group, wanted, extent, settings, show)
        else:
            read_member(str(cluster.bootstrap), group, wanted, extent, settings, show)
    elif cluster.places:
        raise ConfigError("--group is missing: brokers in a registry are read in a group")
    elif cluster.classic:
        if not partition:
            raise ConfigError("--partition is missing: a classic broker does not list its partitions")
        read_broker(str(cluster.bootstrap), wanted["topic"], partition, extent, settings, show)
    else:
        _read_current(str(cluster.bootstrap), wanted["topic"], partition, extent, settings, show)


def _wanted(group: str | None, **names: str | None) -> dict[str, str]:
    wanted = {name: value for name, value in names.items() if value is not None}
    if len(wanted) != 1 or (group is None and "topic" not in wanted):
        raise ConfigError("give a TOPIC, or with --group --whitelist or --blacklist")
    return wanted


def _shown(as_json: bool, form: str | None, style: LineStyle) -> Show:
    if form is not None and (as_json or style.headers or style.key_separator is not None):
        raise ConfigError("--format excludes --json, --headers and --key-separator")
    write = sys.stdout.buffer.write
    if as_json:
        return lambda message, broker: write(json_line(message, broker))
    if form is not None:
        made = compile_format(form)
        return lambda message, _: write(made(message))
    return lambda message, _: write(style.line(message))


def _read_current(
    bootstrap: str,
    topic: str,
    partitions: list[int] | None,
    extent: Extent,
    settings: dict[str, Any],
    show: Show,
) -> None:
    out = sys.stdout.buffer
    starts, ends = _bounds(bootstrap, topic, partitions, extent, settings)
    stop_at_end = extent.stop_at_end or extent.until_ms is not None
    has_end = stop_at_end or extent.count is not None or extent.timeout_s is not None
    with (
        until_interrupted(has_end=has_end),
        Consumer(bootstrap, config={"default.api.timeout.ms": PATIENCE_MS, **settings}) as consumer,
    ):
        consumer.assign(topic, partitions=partitions, **_position(extent.start))
        for tp, offset in starts.items():
            consumer.seek(tp, offset)
        shown = 0
        with _progress(consumer, topic, extent, ends) as advance:

            def caught_up() -> None:
                out.flush()
                advance(shown)

            for message in consumer.messages(
                stop_at_end=stop_at_end, timeout=extent.timeout_s, before_waiting=caught_up
            ):
                if message.offset >= ends.get(TopicPartition(message.topic, message.partition), message.offset + 1):
                    consumer.pause((message.topic, message.partition))
                    continue
                show(message, None)
                shown += 1
                if shown == extent.count:
                    break
            advance(shown)


@contextmanager
def _progress(
    consumer: Consumer, topic: str, extent: Extent, ends: Mapping[TopicPartition, int]
) -> Iterator[Callable[[float], None]]:
    """Show a progress bar if the output is not the terminal; its total is the number of messages to read now."""
    if sys.stdout.isatty() or not sys.stderr.isatty():
        yield lambda _shown: None
        return
    left = consumer.lag()
    for tp, end in ends.items():
        left[tp] = max(0, end - consumer.position(tp))
    there = sum(left.values())
    total = there if extent.count is None else min(there, extent.count)
    endless = not extent.stop_at_end and extent.until_ms is None
    with progress(f"from {topic}", extent.count if endless else total) as advance:
        yield lambda shown: advance(shown, extent.count if endless else total)


def _bounds(
    bootstrap: str, topic: str, partitions: list[int] | None, extent: Extent, settings: dict[str, Any]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where to begin for the last messages of each partition, and where to end for those before a time."""
    last, until_ms = extent.start.last, extent.until_ms
    if last is None and until_ms is None:
        check_reachable(bootstrap)
        return {}, {}
    with open_admin(bootstrap) as admin:
        numbers = partitions or [each.partition for each in admin.describe_topics([topic])[0].partitions]
        topic_partitions = [TopicPartition(topic, number) for number in numbers]
        level = settings.get("isolation.level", "read_uncommitted")
        starts: dict[TopicPartition, int] = {}
        if last is not None:
            first = admin.list_offsets(dict.fromkeys(topic_partitions, "earliest"))
            end = admin.list_offsets(dict.fromkeys(topic_partitions, "latest"), isolation_level=level)
            starts = {tp: max(first[tp], end[tp] - last) for tp in topic_partitions}
        ends = admin.list_offsets(dict.fromkeys(topic_partitions, until_ms)) if until_ms is not None else {}
    return starts, {tp: offset for tp, offset in ends.items() if offset >= 0}


def _position(start: Start) -> dict[str, Any]:
    if start.time_ms is not None:
        return {"timestamp_ms": start.time_ms}
    if start.last is not None:
        return {"position": "earliest"}
    return {"position": start.offset if start.word is None else start.word}
