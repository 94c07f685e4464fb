"""`barnabas consume`: prints messages as lines."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ...clients.consumer.consumer import Consumer
from ..classic import ClusterChoice, find_cluster
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
from .classic import read_broker, read_group
from .group import read_member
from .progress import Extent, Show, Start, parse_start, plain_damage, until_interrupted


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
    with plain_damage():
        _read(cluster, group, partition, wanted, extent, chosen, _shown(as_json, form, style))
    sys.stdout.buffer.flush()


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
        for place, offset in starts.items():
            consumer.seek(place, offset)
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
    for place, end in ends.items():
        left[place] = max(0, end - consumer.position(place))
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
        places = [TopicPartition(topic, number) for number in numbers]
        level = settings.get("isolation.level", "read_uncommitted")
        starts: dict[TopicPartition, int] = {}
        if last is not None:
            first = admin.list_offsets(dict.fromkeys(places, "earliest"))
            end = admin.list_offsets(dict.fromkeys(places, "latest"), isolation_level=level)
            starts = {place: max(first[place], end[place] - last) for place in places}
        ends = admin.list_offsets(dict.fromkeys(places, until_ms)) if until_ms is not None else {}
    return starts, {place: offset for place, offset in ends.items() if offset >= 0}


def _position(start: Start) -> dict[str, Any]:
    if start.time_ms is not None:
        return {"timestamp_ms": start.time_ms}
    if start.last is not None:
        return {"position": "earliest"}
    return {"position": start.offset if start.word is None else start.word}
