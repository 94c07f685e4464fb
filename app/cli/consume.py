"""`barnabas consume`: messages to lines."""

import base64
import json
import sys
from typing import Annotated, Any

import typer

from ...core.message.message import Message
from ...ports.errors import ConfigError
from ..clients.consumer import Consumer
from .classic import ClusterChoice, find_cluster
from .classic_consume import read_broker, read_group
from .consuming import Extent, Show, plain_damage
from .group_consume import read_member
from .options import (
    PATIENCE_MS,
    AnyBootstrap,
    AsJson,
    Coordination,
    EtcdConnect,
    IsolationLevel,
    Settings,
    SkipDamaged,
    ZkConnect,
    reading_settings,
)


def register(app: typer.Typer) -> None:
    app.command("consume")(consume)


def consume(
    context: typer.Context,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", show_default=False)] = None,
    start: Annotated[
        str,
        typer.Option(
            "--from", "--offset", metavar="WHERE", help="beginning, end, an offset, or a time as @milliseconds."
        ),
    ] = "end",
    from_beginning: Annotated[bool, typer.Option("--from-beginning", help="The same as --from beginning.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; may be given again.")
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-c", "--max-messages", min=1, help="Stop after so many messages.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop when no message came for so long.")
    ] = None,
    stop_at_end: Annotated[bool, typer.Option("--stop-at-end", "-e", help="Stop where the log ends now.")] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Print the key and this before the value.")
    ] = None,
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
            help="The group to be a member of. What was printed is committed; --from counts where the group has no "
            "offset yet. The group of classic brokers is in their registries.",
        ),
    ] = None,
    whitelist: Annotated[
        str | None,
        typer.Option("--whitelist", "--include", metavar="REGEX", help="In a group, instead of TOPIC: these topics."),
    ] = None,
    blacklist: Annotated[
        str | None, typer.Option(metavar="REGEX", help="In a group, instead of TOPIC: all topics but these.")
    ] = None,
    skip_damaged: SkipDamaged = False,
    isolation_level: IsolationLevel = None,
    settings: Settings = None,
) -> None:
    """Print each message's value as a line; with --json an object per line, with everything about the message.

    Classic brokers are read in a group, or one of them with --bootstrap and --partition; the offset of their messages
    is that of the next one.
    """
    cluster = find_cluster(
        context, bootstrap, zk_connect=zk_connect, etcd_connect=etcd_connect, coordination=coordination
    )
    wanted = _wanted(group, topic=topic, whitelist=whitelist, blacklist=blacklist)
    start = "beginning" if from_beginning else start
    extent = Extent(start=start, count=count, timeout_s=timeout, stop_at_end=stop_at_end)
    chosen = reading_settings(settings, skip_damaged=skip_damaged, isolation_level=isolation_level)
    with plain_damage():
        _read(cluster, group, partition, wanted, extent, chosen, _shown(as_json, key_separator))
    sys.stdout.buffer.flush()


def _read(
    cluster: ClusterChoice,
    group: str | None,
    partition: list[int] | None,
    wanted: dict[str, str],
    extent: Extent,
    settings: dict[str, str],
    show: Show,
) -> None:
    if group is not None:
        if partition:
            raise ConfigError("--partition: a group shares the partitions by itself")
        if cluster.classic:
            read_group(cluster, group, wanted, extent, settings, show)
        else:
            read_member(str(cluster.bootstrap), group, wanted, extent, settings, show)
    elif cluster.places:
        raise ConfigError("registries keep consumer groups: name one with --group")
    elif cluster.classic:
        if not partition:
            raise ConfigError("a classic broker does not tell its partitions: name one with --partition")
        read_broker(str(cluster.bootstrap), wanted["topic"], partition, extent, settings, show)
    else:
        _read_current(str(cluster.bootstrap), wanted["topic"], partition, extent, settings, show)


def _wanted(group: str | None, **names: str | None) -> dict[str, str]:
    wanted = {name: value for name, value in names.items() if value is not None}
    if len(wanted) != 1 or (group is None and "topic" not in wanted):
        raise ConfigError("give a TOPIC, or in a group --whitelist or --blacklist")
    return wanted


def _shown(as_json: bool, key_separator: str | None) -> Show:
    separator = key_separator.encode() if key_separator is not None else None
    write = sys.stdout.buffer.write
    if as_json:
        return lambda message, broker: write(_as_json(message, broker))
    return lambda message, _: write(_as_line(message, separator))


def _read_current(
    bootstrap: str,
    topic: str,
    partitions: list[int] | None,
    extent: Extent,
    settings: dict[str, str],
    show: Show,
) -> None:
    out = sys.stdout.buffer
    with Consumer(bootstrap, config={"default.api.timeout.ms": PATIENCE_MS, **settings}) as consumer:
        consumer.assign(topic, partitions=partitions, **_where(extent.start))
        left = extent.count
        for message in consumer.messages(stop_at_end=extent.stop_at_end, timeout=extent.timeout_s):
            show(message, None)
            if left is not None and (left := left - 1) == 0:
                break
            if not consumer.buffered:
                out.flush()


def _where(start: str) -> dict[str, Any]:
    if start in ("beginning", "earliest"):
        return {"position": "earliest"}
    if start in ("end", "latest"):
        return {"position": "latest"}
    number = start.removeprefix("@")
    if not number.isdigit():
        raise ConfigError(
            f"--from {start!r}: give beginning, end, an offset such as 42, or a time such as @1700000000000"
        )
    return {"timestamp_ms": int(number)} if start.startswith("@") else {"position": int(number)}


def _as_line(message: Message, separator: bytes | None) -> bytes:
    value = message.value or b""
    if separator is None:
        return value + b"\n"
    return (message.key or b"") + separator + value + b"\n"


def message_fields(message: Message, broker: int | None = None) -> dict[str, object]:
    """Everything about a message, ready for JSON; a partition of the classic generation belongs to a broker."""
    fields = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
        "timestamp_type": message.timestamp_type,
        "key": _text(message.key),
        "value": _text(message.value),
        "headers": [[name, _text(value)] for name, value in message.headers],
    }
    return fields if broker is None else {**fields, "broker": broker}


def _as_json(message: Message, broker: int | None) -> bytes:
    return json.dumps(message_fields(message, broker), ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as text; anything else as `{"base64": ...}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
