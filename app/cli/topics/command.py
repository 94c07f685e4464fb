"""`barnabas topics`: list, create, describe, measure, change, delete and recover topics."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....ports.broker_api.configs import ResourceKind
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from .. import classic
from ..client_files import parse_settings, read_client_file
from ..configs import changes_text, settings_before
from ..options import (
    AnyBootstrap,
    AsJson,
    Bootstrap,
    Coordination,
    EtcdConnect,
    Execute,
    Settings,
    Yes,
    ZkConnect,
    asks,
    confirm,
    describe,
    open_admin,
    print_json,
    print_table,
)
from ..tables import size_text
from ..tier import open_remote, restore
from ..times import parse_time_ms

if TYPE_CHECKING:
    from ....ports.broker_api.topics import CreatedTopic
    from ...clients.admin.admin import Admin

KNOWN_S, LOOK_S = 5.0, 0.02

topics = typer.Typer(help="List, create, describe, change, delete and recover topics.", no_args_is_help=True)


_RECOVER_COLUMNS = ("topic", "topic_id", "partitions", "action", "note")


def add_recover_command(topics: typer.Typer) -> None:
    topics.command("recover")(recover)


def recover(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The broker's data folder, as for 'serve'.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Configuration (TOML).")] = None,
    settings: Settings = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Show the topics in the folders of a stopped broker that its coordination tree lacks; with --execute create them
    there.

    Folders do not change, nor do topics of the tree, except for missing partitions. Folders do not have the settings of
    their topics: set those again that differ from the defaults. Give --config and --set as for 'serve'.
    """
    from ....core.cluster.change_queue import complete
    from ....core.cluster.layout import encode_id
    from ....core.cluster.registry import ClusterRegistry
    from ...broker.lifecycle.topic_recovery import REFUSE, carry_out, check_no_live_brokers, plan_recovery
    from ...compose.broker import system_entropy
    from ...compose.log_files import opened_offline
    from ...config import read_config
    from ...logs import log_report

    given = parse_settings(settings)
    if data is not None:
        given["log.dirs"] = str(data)
    broker = read_config(config, given)
    if broker.coordination == "memory":
        raise ConfigError("coordination=memory loses all topics at every stop: there is no tree to recover")
    entropy = system_entropy()
    with opened_offline(broker, log_report, to_write=execute) as (log_dirs, coordination):
        check_no_live_brokers(coordination, log_report)
        registry = ClusterRegistry(coordination, log_report)
        complete(registry.load())
        plan = plan_recovery(log_dirs, broker, registry, entropy, log_report)
        if execute:
            carry_out(plan, registry, entropy)
    rows: list[dict[str, object]] = [
        {
            "topic": found.name,
            "topic_id": encode_id(found.topic.topic_id) if found.topic is not None else None,
            "partitions": len(found.topic.partitions) if found.topic is not None else None,
            "action": found.action,
            "note": found.note,
        }
        for found in plan.topics
    ]
    if as_json:
        print_json({"cluster_id": plan.cluster_id, "executed": execute, "topics": rows})
    else:
        _show(rows, execute=execute)
    if any(found.action == REFUSE for found in plan.topics):
        raise typer.Exit(1)


def _show(rows: list[dict[str, object]], *, execute: bool) -> None:
    if not rows:
        typer.echo("the coordination tree knows all topics that have folders", err=True)
        return
    print_table(_RECOVER_COLUMNS, ([row[column] or "-" for column in _RECOVER_COLUMNS] for row in rows))
    if not execute:
        typer.echo("nothing was changed; repeat the command with --execute to change it", err=True)


add_recover_command(topics)


# `barnabas topics delete-records`: deletes records at the beginning of partitions.

_COLUMNS = ("partition", "log_start_offset", "before", "log_end_offset")


def delete_records(
    bootstrap: Bootstrap,
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    before_offset: Annotated[
        int | None,
        typer.Option(
            "--before-offset", metavar="N", min=0, help="Delete records below this offset; needs --partition."
        ),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="TIME", help="Delete older records: 2026-01-31T12:00, -7d, @MS."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete all current records.")] = False,
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Only this one; may be repeated.")
    ] = None,
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Delete the records of partitions up to an offset or a time, irrevocably. A dry run without --execute.

    A time selects the records before the first one of that time or later. If timestamps are not in order, some older
    records remain.
    """
    if (before_offset is not None) + (before is not None) + everything != 1:
        raise ConfigError("select the records with exactly one of --before-offset, --before and --all")
    if before_offset is not None and not partition:
        raise ConfigError("--before-offset needs --partition, since offsets are per partition")
    with open_admin(bootstrap) as admin:
        numbers = partition or [each.partition for each in admin.describe_topics([name])[0].partitions]
        topic_partitions = [TopicPartition(name, number) for number in sorted(set(numbers))]
        first = admin.list_offsets(dict.fromkeys(topic_partitions, "earliest"))
        last = admin.list_offsets(dict.fromkeys(topic_partitions, "latest"))
        if before_offset is not None:
            ends = dict.fromkeys(topic_partitions, before_offset)
        else:
            ends = (
                dict(last)
                if before is None
                else _at_time(admin, topic_partitions, parse_time_ms(before, "--before"), last)
            )
        ends = {tp: max(first[tp], end) for tp, end in ends.items()}
        if execute:
            first = admin.delete_records({(tp.topic, tp.partition): end for tp, end in ends.items()})
    rows = [(tp.partition, first[tp], ends[tp], last[tp]) for tp in topic_partitions]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        return
    print_table(_COLUMNS, rows)
    if not execute:
        typer.echo("nothing is deleted yet: give --execute", err=True)


def _at_time(
    admin: Admin, partitions: list[TopicPartition], time_ms: int, last: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(partitions, time_ms))
    return {tp: offset if offset >= 0 else last[tp] for tp, offset in found.items()}


topics.command("delete-records")(delete_records)


topics.command(name="restore")(restore)
topics.command(name="open-remote")(open_remote)


def register(app: typer.Typer) -> None:
    app.add_typer(topics, name="topics")


Name = Annotated[str, typer.Argument(metavar="TOPIC")]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "--config",
        metavar="KEY=VALUE",
        help="A topic setting; may be repeated. --config FILE: settings of a file.",
    ),
]


@topics.command("list")
def list_topics(
    context: typer.Context,
    bootstrap: AnyBootstrap = None,
    zk_connect: ZkConnect = None,
    etcd_connect: EtcdConnect = None,
    coordination: Coordination = None,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the topics with their partition counts; of classic brokers also their brokers."""
    cluster = _cluster(context, bootstrap, zk_connect, etcd_connect, coordination)
    if cluster.places:
        _print(classic.list_topics(cluster), ("topic", "partitions", "brokers"), as_json)
        return
    with open_admin(str(cluster.bootstrap)) as admin:
        found = sorted(admin.describe_topics(), key=lambda topic: topic.name or "")
    rows = [(topic.name, len(topic.partitions)) for topic in found if internal or not topic.internal]
    if as_json:
        print_json([{"topic": name, "partitions": count} for name, count in rows])
    else:
        print_table(("topic", "partitions"), rows)


@topics.command()
def create(
    bootstrap: Bootstrap,
    name: Name,
    partitions: Annotated[int, typer.Option("--partitions", "-p", help="-1: the broker's default.")] = -1,
    replication_factor: Annotated[int, typer.Option("--replication-factor", help="-1: the broker's default.")] = -1,
    config: Configs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
) -> None:
    """Create a topic."""
    settings = _settings(config)
    with open_admin(bootstrap) as admin:
        try:
            made = admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=settings
            )
        except ApiError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            typer.echo(f"{name} exists")
            return
        _wait_known(admin, name)
    typer.echo(f"created {name}{_size_of(made)}")


def _size_of(topic: CreatedTopic) -> str:
    """Return the counts for a person; nothing if the broker hides them or is too old to return them."""
    if topic.partitions < 0:
        return ""
    return f": {counted(topic.partitions, 'partition')}, {counted(topic.replication_factor, 'replica')} each"


def _settings(given: list[str] | None) -> dict[str, str]:
    """Parse settings, or files of them. Raises `ConfigError`."""
    found: dict[str, str] = {}
    for each in given or ():
        if "=" not in each and not Path(each).exists():
            raise ConfigError(f"{each!r} is neither KEY=VALUE nor a properties file")
        found |= parse_settings([each]) if "=" in each else read_client_file(Path(each))
    return found


def _is_led(admin: Admin, name: str) -> bool:
    return all(each.leader >= 0 for topic in admin.describe_topics([name]) for each in topic.partitions)


def _wait_known(admin: Admin, name: str) -> None:
    """Wait until each broker knows the topic and its leaders, so that the next command finds it and no offline
    partition: brokers learn of it with a delay.

    A broker that does not answer, or not in time, is left out.
    """
    until = time.monotonic() + KNOWN_S
    others = admin.describe_cluster().brokers
    for node in others if len(others) > 1 else ():
        with open_admin(f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}") as other:
            while time.monotonic() < until:
                try:
                    if name in other.list_topics(internal=True) and _is_led(other, name):
                        break
                except BarnabasError:
                    break
                time.sleep(LOOK_S)


@topics.command("describe")
def describe_topic(
    context: typer.Context,
    name: Name,
    bootstrap: AnyBootstrap = None,
    zk_connect: ZkConnect = None,
    etcd_connect: EtcdConnect = None,
    coordination: Coordination = None,
    as_json: AsJson = False,
) -> None:
    """Show the partitions of a topic with leaders, offsets, sizes, and the settings that differ from the defaults.

    Of classic brokers: the partitions that each of them has, with offsets.
    """
    cluster = _cluster(context, bootstrap, zk_connect, etcd_connect, coordination)
    if cluster.places:
        found = classic.describe_topic(cluster, name)
        if as_json:
            print_json({"topic": name, "partitions": found})
        else:
            typer.echo(name)
            _print(found, ("broker", "address", "partition", "log_start_offset", "log_end_offset"), as_json)
        return
    with open_admin(str(cluster.bootstrap)) as admin:
        topic = admin.describe_topics([name])[0]
        first = admin.list_offsets({TopicPartition(name, p.partition): "earliest" for p in topic.partitions})
        last = admin.list_offsets({TopicPartition(name, p.partition): "latest" for p in topic.partitions})
        changed = admin.topic_overrides(name)
        sizes = _sizes(admin, name, [p.partition for p in topic.partitions])
    rows = [
        {
            "partition": p.partition,
            "leader": p.leader,
            "leader_epoch": p.leader_epoch,
            "replicas": list(p.replicas),
            "isr": list(p.isr),
            "log_start_offset": first[TopicPartition(name, p.partition)],
            "log_end_offset": last[TopicPartition(name, p.partition)],
            "bytes": sizes.get((p.partition, p.leader)),
        }
        for p in sorted(topic.partitions, key=lambda p: p.partition)
    ]
    if as_json:
        print_json({"topic": name, "topic_id": topic.topic_id.hex(), "configs": changed, "partitions": rows})
        return
    typer.echo(f"{name}  id {topic.topic_id.hex()}  {describe(changed)}".rstrip())
    if source := changed.get("remote.storage.source"):
        typer.echo(f"read-only: the records are those of {source} in remote storage, which another cluster writes")
    shown = [{**row, "bytes": size_text(sizes.get((row["partition"], row["leader"])))} for row in rows]
    print_table(["size" if name == "bytes" else name for name in rows[0]], (map(_cell, row.values()) for row in shown))


class PartitionOrder(StrEnum):
    """The orders of `topics partitions`."""

    RATE = "rate"
    BYTES = "bytes"
    SIZE = "size"
    END = "end"
    NAME = "name"


_FIGURES = {
    PartitionOrder.RATE: "messages_per_s",
    PartitionOrder.BYTES: "bytes_per_s",
    PartitionOrder.SIZE: "bytes",
    PartitionOrder.END: "log_end_offset",
}


@topics.command("partitions")
def list_partitions(
    bootstrap: Bootstrap,
    names: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC...]", show_default=False)] = None,
    sort: Annotated[
        PartitionOrder, typer.Option("--sort", help="The largest first, or by name.")
    ] = PartitionOrder.RATE,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.2, help="Time over which rates are measured.")
    ] = 2.0,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most partitions to show.")] = 50,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    as_json: AsJson = False,
) -> None:
    """Measure which partitions are written to most: messages and bytes per second, with leader, size and replicas.

    Two looks, --interval seconds apart. Bytes are those of the leader's log, compressed; their rate is unknown while
    retention deletes files.
    """
    from ..top.look import Looker
    from ..top.state import Rate, partition_rates_of

    with open_admin(bootstrap) as admin:
        if names:
            admin.describe_topics(names)  # an unknown one is an error
        looker = Looker(admin, internal=internal or bool(names))
        before = looker.take_snapshot(("topics",))
        time.sleep(interval)
        now = looker.take_snapshot(("topics",))
    rates = partition_rates_of(before, now)
    rows: list[dict[str, Any]] = []
    for each in now.partitions or ():
        if names and each.topic not in names:
            continue
        rate = rates.get(each.tp, Rate())
        rows.append(
            {
                "topic": each.topic,
                "partition": each.partition,
                "leader": None if each.leader < 0 else each.leader,
                "messages_per_s": None if rate.messages is None else round(rate.messages, 3),
                "bytes_per_s": None if rate.bytes is None else round(rate.bytes, 3),
                "bytes": each.bytes,
                "log_end_offset": each.end,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
        )
    if sort in _FIGURES:
        rows.sort(key=lambda row: (row[_FIGURES[sort]] is None, -(row[_FIGURES[sort]] or 0)))
    if len(rows) > limit:
        typer.echo(f"showing {limit} of {len(rows)} partitions; --limit {len(rows)} shows all", err=True)
    if as_json:
        print_json(rows[:limit])
        return
    columns = ("topic", "partition", "leader", "messages/s", "bytes/s", "size", "log_end_offset", "replicas", "isr")
    print_table(columns, (_rate_cells(row) for row in rows[:limit]))


def _rate_cells(row: dict[str, Any]) -> list[object]:
    from ..top.view import number_text, rate_text

    rates = (number_text(row["messages_per_s"]), rate_text(row["bytes_per_s"]), size_text(row["bytes"]))
    cells = (row["topic"], row["partition"], _cell(row["leader"]))
    return [*cells, *rates, *(_cell(row[name]) for name in ("log_end_offset", "replicas", "isr"))]


def _sizes(admin: Admin, name: str, partitions: list[int]) -> dict[tuple[object, object], int]:
    """Return the bytes of each (partition, broker), for the brokers that answer."""
    found: dict[tuple[object, object], int] = {}
    for broker in admin.describe_cluster().brokers:
        try:
            folders = admin.describe_log_dirs([broker.node_id], {name: partitions})[broker.node_id]
        except BarnabasError:
            continue
        for folder in folders:
            for replica in folder.replicas:
                if replica.topic == name:
                    found[replica.partition, broker.node_id] = replica.size_bytes
    return found


@topics.command()
def alter(
    bootstrap: Bootstrap,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="New total number of partitions.")
    ] = None,
    config: Configs = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Reset to the default; may be repeated.")
    ] = None,
) -> None:
    """Add partitions to a topic, or change its settings."""
    settings: dict[str, str | None] = {**_settings(config), **dict.fromkeys(delete_config or ())}
    if partitions is None and not settings:
        raise typer.BadParameter("nothing to change: give --partitions, --config or --delete-config")
    with open_admin(bootstrap) as admin:
        changes = []
        if partitions is not None:
            count = len(admin.describe_topics([name])[0].partitions)
            admin.create_partitions(name, partitions)
            changes.append(f"partitions {count} -> {partitions}")
        if settings:
            before = settings_before(admin, ResourceKind.TOPIC, name, settings)
            admin.alter_topic_configs(name, settings)
            changes.append(changes_text(before, settings))
    typer.echo(f"changed {name}: {', '.join(changes)}")


@topics.command()
def delete(
    bootstrap: Bootstrap,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A missing topic is no error.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a topic with all its messages. On a terminal it asks first: type the name of the topic."""
    with open_admin(bootstrap) as admin:
        try:
            if asks(yes=yes):
                confirm(f"{_described_size(admin, name)}. Type its name to delete it", yes=yes, answers=[name])
            admin.delete_topics([name])
        except ApiError as error:
            if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            typer.echo(f"{name} does not exist")
            return
    typer.echo(f"deleted {name}")


def _described_size(admin: Admin, name: str) -> str:
    """Return how large a topic is, for a question. Raises `ApiError` if it does not exist."""
    (topic,) = admin.describe_topics([name])
    numbers = [each.partition for each in topic.partitions]
    sizes: dict[int, int] = {}
    for folders in admin.describe_log_dirs(topics={name: numbers}).values():
        for replica in (replica for folder in folders for replica in folder.replicas):
            sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size_bytes)
    return f"topic {name} has {counted(len(numbers), 'partition')} and {size_text(sum(sizes.values()))} of messages"


def _cluster(
    context: typer.Context,
    bootstrap: str | None,
    zk_connect: str | None,
    etcd_connect: str | None,
    coordination: str | None,
) -> classic.ClusterChoice:
    """Return the cluster of the options. Raises `ConfigError`, also for the address of a classic broker."""
    cluster = classic.find_cluster(
        context, bootstrap, zk_connect=zk_connect, etcd_connect=etcd_connect, coordination=coordination
    )
    if cluster.classic and not cluster.places:
        raise ConfigError(
            "a classic broker cannot list its topics: give --zk-connect, --etcd-connect or --coordination"
        )
    return cluster


def _print(rows: list[dict[str, object]], columns: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        print_table(columns, ([_cell(row[column]) for column in columns] for row in rows))


def _cell(value: object) -> object:
    """Join lists without spaces, for `awk`."""
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None else value
