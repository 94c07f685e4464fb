"""`barnabas brokers`: list and describe the brokers of a cluster and their connections; move everything off one, and
forget one that left."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from time import monotonic, sleep, time_ns
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...ports.broker_api.cluster import BrokerNode, ConnectionDescription, LogDirDescription
from ...ports.broker_api.configs import ConfigSource, ResourceKind
from ...ports.errors import BarnabasError, ConfigError
from ...ports.report import counted
from ...ports.transport import TransportError
from .options import AsJson, Bootstrap, Execute, open_admin, print_json, print_table, progress
from .tables import Section, clean, list_text, show, size_text
from .times import age_text

if TYPE_CHECKING:
    from ..clients.admin.draining import BrokerDrain, DrainPlan, DrainProgress

brokers = typer.Typer(help="List, describe, drain and remove the brokers of a cluster.", no_args_is_help=True)

LOOK_S, LINE_S = 0.5, 10.0
FAILURES_MAX = 20
"""The most requests in a row that may fail while the progress of a drain is shown."""


def register(app: typer.Typer) -> None:
    app.add_typer(brokers, name="brokers")


@brokers.command("list")
def list_brokers(bootstrap: Bootstrap, as_json: AsJson = False) -> None:
    """List the live brokers, and which of them is the controller."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
    rows = [_node(broker, found.controller_id) for broker in sorted(found.brokers, key=lambda each: each.node_id)]
    if as_json:
        print_json(rows)
    else:
        print_table(
            ("broker", "address", "rack", "controller"),
            ((row["id"], row["address"], row["rack"] or "-", "yes" if row["controller"] else "-") for row in rows),
        )


@brokers.command("describe")
def describe_broker(
    bootstrap: Bootstrap,
    broker: Annotated[int, typer.Argument(metavar="ID")],
    as_json: AsJson = False,
) -> None:
    """Describe a broker: leaderships and replicas, data folders, settings that differ from the defaults."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_cluster()
        node = next((each for each in found.brokers if each.node_id == broker), None)
        if node is None:
            there = list_text(sorted(each.node_id for each in found.brokers))
            raise ConfigError(f"unknown broker {broker}; known brokers: {there}")
        topics = admin.describe_topics()
        folders = admin.describe_log_dirs([broker])[broker]
        settings = admin.describe_configs(ResourceKind.BROKER, broker)
    partitions = [partition for topic in topics for partition in topic.partitions]
    fields = {
        **_node(node, found.controller_id),
        "leaders": sum(partition.leader == broker for partition in partitions),
        "replicas": sum(broker in partition.replicas for partition in partitions),
        "in_sync": sum(broker in partition.isr for partition in partitions),
        "log_dirs": [_folder(folder) for folder in folders],
        "configs": {entry.name: entry.value for entry in settings if entry.source is not ConfigSource.DEFAULT},
    }
    if as_json:
        print_json(fields)
    else:
        show(_sections(fields))


def drain(
    bootstrap: Bootstrap,
    broker: Annotated[int, typer.Argument(metavar="ID")],
    execute: Execute = False,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            metavar="N",
            min=1,
            help="Partitions with more replicas lose the one on this broker, and get no other one.",
        ),
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="Maximum rate per second for copies to and from each broker."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the broker is empty, or not.")] = True,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="Cancel the moves, and let the broker get new replicas again.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Move all replicas off a broker, which gets no new ones from then on; then it may be stopped and removed.

    A dry run without --execute. Other replicas in sync lead at once; the replicas, of internal topics too, go to the
    brokers with the fewest, in other racks where possible. It may be interrupted, and run again to continue.
    """
    from ..clients.admin.draining import BrokerDrain

    with open_admin(bootstrap) as admin:
        drain = BrokerDrain(admin, broker, replication_factor=replication_factor, throttle=throttle)
        if cancel:
            cancelled = drain.cancel()
            typer.echo(f"{counted(cancelled, 'move')} cancelled; broker {broker} gets new replicas again")
            return
        plan = drain.plan()
        if as_json:
            print_json(_plan_fields(plan, executed=execute))
        else:
            _show_plan(plan)
        if not execute:
            typer.echo("dry run, nothing is changed: add --execute to drain the broker", err=True)
            return
        drain.start(plan)
        if wait:
            _watch_drain(drain, plan)
        else:
            again = f"'barnabas brokers drain {broker} --execute' shows their progress"
            typer.echo(f"the moves continue in the cluster; {again}", err=True)


brokers.command("drain")(drain)
brokers.command("decommission", hidden=True)(drain)


@brokers.command("remove")
def remove(bootstrap: Bootstrap, broker: Annotated[int, typer.Argument(metavar="ID")]) -> None:
    """Forget a broker that has left for good: its settings, and what the cluster remembers of it.

    Refused for one that is alive or has replicas: drain it, stop it, then remove it.
    """
    with open_admin(bootstrap) as admin:
        admin.unregister_broker(broker)
    typer.echo(f"removed broker {broker}")


def _show_plan(plan: DrainPlan) -> None:
    held = counted(len(plan.after) + plan.already_moving, "partition")
    moving = f", {plan.already_moving} on their way off it" if plan.already_moving else ""
    lost = len(plan.after) - len(plan.copies)
    dropped = f"; {counted(lost, 'partition')} with a replica less" if lost else ""
    size = f"{counted(len(plan.copies), 'replica')} with {size_text(plan.copy_bytes)} to copy"
    state = "" if plan.is_alive else ", which is down,"
    head = f"broker {plan.broker}{state} has {held}{moving}: {size}{dropped}"
    targets = Counter(broker for _, broker in plan.copies)
    sizes: Counter[int] = Counter()
    for tp, broker in plan.copies:
        sizes[broker] += plan.sizes.get(tp, 0)
    rows = [(broker, count, size_text(sizes[broker])) for broker, count in sorted(targets.items())]
    show([Section(head, ("broker", "replicas", "size"), rows)])


def _plan_fields(plan: DrainPlan, *, executed: bool) -> dict[str, Any]:
    return {
        "broker": plan.broker,
        "alive": plan.is_alive,
        "executed": executed,
        "already_moving": plan.already_moving,
        "copy_bytes": plan.copy_bytes,
        "partitions": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas_before": list(plan.before[tp]),
                "replicas": list(held),
                "bytes": plan.sizes.get(tp, 0),
            }
            for tp, held in sorted(plan.after.items())
        ],
    }


def _watch_drain(drain: BrokerDrain, plan: DrainPlan) -> None:
    """Show the progress until the broker is empty. Moves of partitions that it still got begin on the way."""
    total = len(plan.after) + plan.already_moving
    failures, said = 0, monotonic()
    try:
        with progress("moved", total) as advance:
            while True:
                try:
                    left = drain.advance()
                    failures = 0
                except ConfigError:
                    raise
                except BarnabasError:
                    failures += 1
                    if failures > FAILURES_MAX:
                        raise
                    sleep(LOOK_S)
                    continue
                total = max(total, left.replicas)
                advance(total - left.replicas, total, f"moved ({_copied(left, plan)})")
                if left.is_done:
                    break
                if monotonic() - said > LINE_S:
                    said = monotonic()
                    _say_progress(left, plan)
                sleep(LOOK_S)
        drain.end()
    except KeyboardInterrupt:
        again = f"'barnabas brokers drain {plan.broker} --execute' continues, with --cancel it ends them"
        typer.echo(f"barnabas: interrupted; the moves continue in the cluster: {again}", err=True)
        raise
    done = f"broker {plan.broker} has no replicas, and gets no new ones"
    typer.echo(f"{done}; stop it, then run 'barnabas brokers remove {plan.broker}'", err=True)


def _say_progress(left: DrainProgress, plan: DrainPlan) -> None:
    """Write a line where there is no progress bar."""
    if not sys.stderr.isatty():
        leads = f", of which it leads {left.leaders}" if left.leaders else ""
        text = f"broker {plan.broker} still has {counted(left.replicas, 'partition')}{leads}"
        typer.echo(f"{text}; copied {_copied(left, plan)}", err=True)


def _copied(left: DrainProgress, plan: DrainPlan) -> str:
    return f"{size_text(left.copied_bytes)} of {size_text(max(plan.copy_bytes, left.copied_bytes))}"


class ConnectionOrder(StrEnum):
    """The orders of `brokers connections`."""

    AGE = "age"
    REQUESTS = "requests"
    BYTES = "bytes"
    CLIENT = "client"


_ORDERS: dict[ConnectionOrder, Callable[[dict[str, Any]], Any]] = {
    ConnectionOrder.AGE: lambda row: row["connected_at_ms"],
    ConnectionOrder.REQUESTS: lambda row: -row["requests"],
    ConnectionOrder.BYTES: lambda row: -(row["bytes_in"] + row["bytes_out"]),
    ConnectionOrder.CLIENT: lambda row: (row["client_id"] or "", row["connected_at_ms"]),
}
CONNECTIONS_MAX = 10_000
"""The most connections that the command asks each broker for."""
CONNECTION_COLUMNS = (
    *("broker", "client_id", "software", "address", "principal", "listener"),
    *("age", "requests", "in", "out"),
)


@brokers.command("connections")
def list_connections(
    bootstrap: Bootstrap,
    broker: Annotated[int | None, typer.Option("--broker", metavar="ID", help="Only those of this broker.")] = None,
    sort: Annotated[ConnectionOrder, typer.Option("--sort", help="The first ones shown.")] = ConnectionOrder.AGE,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Most connections to show.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List the connections to the brokers: client id, software, address, principal, listener, age, requests and bytes.

    Brokers of Kafka cannot answer this. Client id and software are what the client says of itself.
    """
    rows, silent = list[dict[str, Any]](), list[int]()
    now_ms = time_ns() // 1_000_000
    with open_admin(bootstrap) as admin:
        ids = [broker] if broker is not None else sorted(each.node_id for each in admin.describe_cluster().brokers)
        for node in ids:
            try:
                found = admin.describe_connections([node], limit=CONNECTIONS_MAX)[node]
            except TransportError as error:
                typer.echo(f"broker {node} does not answer: {error}", err=True)
                silent.append(node)
                continue
            rows += [connection_fields(node, connection) for connection in found]
    rows.sort(key=_ORDERS[sort])
    if len(rows) > limit:
        typer.echo(f"showing {limit} of {counted(len(rows), 'connection')}; --limit {len(rows)} shows all", err=True)
    if as_json:
        print_json(rows[:limit])
    else:
        print_table(CONNECTION_COLUMNS, [connection_cells(row, now_ms) for row in rows[:limit]])
    if silent:
        raise typer.Exit(1)


def connection_fields(broker: int, connection: ConnectionDescription) -> dict[str, Any]:
    """Return a connection as a JSON object."""
    return {
        "broker": broker,
        "connection": connection.connection_id,
        "client_id": connection.client_id,
        "software_name": connection.software_name or None,
        "software_version": connection.software_version or None,
        "address": f"[{host}]:{connection.port}" if ":" in (host := connection.host) else f"{host}:{connection.port}",
        "principal": connection.principal,
        "listener": connection.listener,
        "encrypted": connection.is_encrypted,
        "connected_at_ms": connection.connected_at_ms,
        "requests": connection.requests,
        "in_flight": connection.in_flight,
        "bytes_in": connection.bytes_in,
        "bytes_out": connection.bytes_out,
    }


def connection_cells(row: dict[str, Any], now_ms: int) -> list[object]:
    """Return the cells of `CONNECTION_COLUMNS`. Clients choose their ids, so control characters are escaped."""
    software = " ".join(filter(None, (row["software_name"], row["software_version"])))
    age = "-" if row["connected_at_ms"] < 0 else age_text(now_ms - row["connected_at_ms"]).replace(" ", "")
    names = [clean(text) if text else "-" for text in (row["client_id"], software)]
    place = (row["address"], clean(row["principal"]), row["listener"])
    return [row["broker"], *names, *place, age, row["requests"], *map(size_text, (row["bytes_in"], row["bytes_out"]))]


def _node(node: BrokerNode, controller: int) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "address": f"{node.host}:{node.port}",
        "rack": node.rack,
        "controller": node.node_id == controller,
    }


def _folder(folder: LogDirDescription) -> dict[str, Any]:
    return {
        "path": folder.path,
        "partitions": len(folder.replicas),
        "bytes": sum(replica.size_bytes for replica in folder.replicas),
        "lag": sum(replica.lag for replica in folder.replicas),
        "usable_bytes": folder.usable_bytes,
        "total_bytes": folder.total_bytes,
        "error": folder.error.name if folder.error else None,
    }


def _sections(fields: dict[str, Any]) -> list[Section]:
    rack = f", rack {fields['rack']}" if fields["rack"] else ""
    role = ", the controller" if fields["controller"] else ""
    held = f"leads {fields['leaders']} of {counted(fields['replicas'], 'partition')}, in sync in {fields['in_sync']}"
    columns = ("folder", "partitions", "size", "lag", "free", "state")
    rows = [
        (
            folder["path"],
            folder["partitions"],
            size_text(folder["bytes"]),
            folder["lag"],
            size_text(folder["usable_bytes"]),
            folder["error"] or "online",
        )
        for folder in fields["log_dirs"]
    ]
    configs = [(name, "-" if value is None else value) for name, value in fields["configs"].items()]
    return [
        Section(f"broker {fields['id']} at {fields['address']}{rack}{role}: {held}", columns, rows),
        Section(
            "settings that differ from the defaults" if configs else "all settings at their defaults",
            ("key", "value"),
            configs,
        ),
    ]
