"""`barnabas topics`: list, create, describe, change, delete and recover topics."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, BarnabasError, ConfigError
from ....ports.types import TopicPartition
from .. import classic
from ..client_files import read_client_file
from ..options import (
    AnyBootstrap,
    AsJson,
    Bootstrap,
    Coordination,
    EtcdConnect,
    ZkConnect,
    describe,
    open_admin,
    parse_settings,
    print_json,
    print_table,
)
from ..tables import size_text
from .delete_records import delete_records
from .recover import add_recover_command

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

KNOWN_S, LOOK_S = 5.0, 0.02

topics = typer.Typer(help="List, create, describe, change, delete and recover topics.", no_args_is_help=True)
add_recover_command(topics)
topics.command("delete-records")(delete_records)


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
            admin.create_topic(name, partitions=partitions, replication_factor=replication_factor, configs=settings)
        except ApiError as error:
            if not if_not_exists or error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            typer.echo(f"{name} exists")
            return
        _wait_known(admin, name)
    typer.echo(f"created {name}")


def _settings(given: list[str] | None) -> dict[str, str]:
    """Parse settings, or files of them. Raises `ConfigError`."""
    found: dict[str, str] = {}
    for each in given or ():
        if "=" not in each and not Path(each).exists():
            raise ConfigError(f"{each!r} is neither KEY=VALUE nor a file with such lines")
        found |= parse_settings([each]) if "=" in each else read_client_file(Path(each))
    return found


def _wait_known(admin: "Admin", name: str) -> None:
    """Wait until each broker knows the topic, so that the next command finds it: brokers learn of it with a delay.

    A broker that does not answer, or not in time, is left out.
    """
    until = time.monotonic() + KNOWN_S
    others = admin.describe_cluster().brokers
    for node in others if len(others) > 1 else ():
        with open_admin(f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}") as other:
            while time.monotonic() < until:
                try:
                    if name in other.list_topics(internal=True):
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
    shown = [{**row, "bytes": size_text(sizes.get((row["partition"], row["leader"])))} for row in rows]
    print_table(["size" if name == "bytes" else name for name in rows[0]], (row.values() for row in shown))


def _sizes(admin: "Admin", name: str, partitions: list[int]) -> dict[tuple[object, object], int]:
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
        if partitions is not None:
            admin.create_partitions(name, partitions)
        if settings:
            admin.alter_topic_configs(name, settings)
    typer.echo(f"changed {name}")


@topics.command()
def delete(
    bootstrap: Bootstrap,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="A missing topic is no error.")] = False,
) -> None:
    """Delete a topic with all its messages."""
    with open_admin(bootstrap) as admin:
        try:
            admin.delete_topics([name])
        except ApiError as error:
            if not if_exists or error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            typer.echo(f"{name} does not exist")
            return
    typer.echo(f"deleted {name}")


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
