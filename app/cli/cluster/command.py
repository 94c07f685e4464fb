"""`barnabas cluster`: run brokers on this machine; show the status of a cluster, reassign partitions, elect leaders."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....ports.errors import BarnabasError, ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, open_admin, print_json
from ..profiles import BOOTSTRAP_VARIABLE
from ..tables import Section, framed, list_text, show, size_text
from .overview import overview
from .reassign import reassign
from .start import start
from .status import NO_NODE, ClusterStatus, PartitionStatus, ask_status

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

cluster = typer.Typer(
    help="Run a cluster on this machine; show the status of a cluster, reassign partitions, elect leaders.",
    invoke_without_command=True,
)
cluster.command("start")(start)
cluster.command("overview")(overview)
cluster.add_typer(reassign, name="reassign")

SHOWN_MAX = 50
"""Maximum number of partitions in each table for a person; `--json` has all."""


def register(app: typer.Typer) -> None:
    app.add_typer(cluster, name="cluster")


@cluster.callback()
def overview_of(
    context: typer.Context,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap", "-b", metavar="HOST:PORT", help="A broker, for the overview.", envvar=BOOTSTRAP_VARIABLE
        ),
    ] = None,
) -> None:
    """Show the overview if no command is given."""
    if context.invoked_subcommand is not None:
        return
    if bootstrap is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)
    overview(bootstrap)


@cluster.command("status")
def status(
    bootstrap: Bootstrap,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat the status until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, help="Interval of --watch.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, the controller, and the partitions without a leader or with a replica out of sync.

    Ends with 0 when every partition has a leader and all its replicas in sync and every broker answers, else with 1.
    """
    with open_admin(bootstrap) as admin:
        if watch:
            _watch(admin, interval, as_json)
            return
        found = ask_status(admin)
    if as_json:
        print_json(to_fields(found))
    else:
        show(sections_of(found))
    if not found.healthy:
        raise typer.Exit(1)


def _watch(admin: Admin, interval: float, as_json: bool) -> None:
    """Repeat the status until Ctrl-C, even while the cluster does not answer."""
    if as_json:
        _repeat(interval, lambda: typer.echo(json.dumps(to_fields(ask_status(admin)), ensure_ascii=False)))
        return
    if not sys.stdout.isatty():
        _repeat(interval, lambda: show(sections_of(ask_status(admin))))
        return
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:

        def look() -> None:
            try:
                sections = sections_of(ask_status(admin))
            except BarnabasError as error:
                sections = [Section(str(error), alarm=True)]
            live.update(framed([Section(time.strftime("%H:%M:%S")), *sections]), refresh=True)

        _repeat(interval, look)


def _repeat(interval: float, look: Callable[[], None]) -> None:
    try:
        while True:
            try:
                look()
            except BarnabasError as error:
                typer.echo(f"barnabas: {error}", err=True)
            time.sleep(interval)
    except KeyboardInterrupt:
        return


def sections_of(found: ClusterStatus) -> list[Section]:
    """Return the tables for a person."""
    controller = "no controller" if found.controller == NO_NODE else f"controller {found.controller}"
    held = f"{counted(found.topics, 'topic')}, {counted(found.partitions, 'partition')}"
    head = f"cluster {found.cluster_id}, {controller}, {held}"
    columns = ("broker", "address", "rack", "leaders", "replicas", "in_sync", "size", "lag", "state")
    rows = [
        (
            broker.id,
            broker.address or "-",
            broker.rack or "-",
            broker.leaders,
            broker.replicas,
            broker.in_sync,
            size_text(broker.bytes),
            "-" if broker.lag is None else broker.lag,
            broker.problem or "up",
        )
        for broker in found.brokers
    ]
    return [
        Section(head, columns, rows, alarm=found.controller == NO_NODE),
        _trouble("offline partition", found.offline),
        _trouble("under-replicated partition", found.under_replicated),
        *_moves(found),
    ]


def _trouble(what: str, partitions: Sequence[PartitionStatus]) -> Section:
    if not partitions:
        return Section(f"no {what}s")
    more = "" if len(partitions) <= SHOWN_MAX else f", the first {SHOWN_MAX}"
    rows = [
        (
            p.topic,
            p.partition,
            "-" if p.leader == NO_NODE else p.leader,
            list_text(p.replicas),
            list_text(p.isr),
            list_text([f"{broker}:{lag}" for broker, lag in p.lags.items() if lag]),
        )
        for p in partitions[:SHOWN_MAX]
    ]
    columns = ("topic", "partition", "leader", "replicas", "isr", "lag")
    return Section(f"{counted(len(partitions), what)}{more}", columns, rows, alarm=True)


def _moves(found: ClusterStatus) -> list[Section]:
    if not found.reassignments:
        return []
    rows = [
        (move.topic, move.partition, list_text(move.replicas), list_text(move.adding), list_text(move.removing))
        for move in found.reassignments[:SHOWN_MAX]
    ]
    columns = ("topic", "partition", "replicas", "adding", "removing")
    return [Section(f"{counted(len(found.reassignments), 'partition')} on the move", columns, rows)]


def to_fields(found: ClusterStatus) -> dict[str, Any]:
    """Return the JSON object for a program."""
    return {
        "cluster_id": found.cluster_id,
        "controller": found.controller,
        "healthy": found.healthy,
        "topics": found.topics,
        "partitions": found.partitions,
        "brokers": [
            {
                "id": broker.id,
                "address": broker.address,
                "rack": broker.rack,
                "controller": broker.controller,
                "leaders": broker.leaders,
                "replicas": broker.replicas,
                "in_sync": broker.in_sync,
                "bytes": broker.bytes,
                "lag": broker.lag,
                "problem": broker.problem,
            }
            for broker in found.brokers
        ],
        "offline": [_partition_fields(partition) for partition in found.offline],
        "under_replicated": [_partition_fields(partition) for partition in found.under_replicated],
        "reassignments": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
            }
            for move in found.reassignments
        ],
    }


def _partition_fields(partition: PartitionStatus) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "lag": {str(broker): lag for broker, lag in partition.lags.items()},
    }


@cluster.command("elect")
def elect(
    bootstrap: Bootstrap,
    topics: Annotated[
        list[str] | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Topic; may be repeated.")
    ] = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", metavar="NUMBER", help="Partition; may be repeated.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All partitions that need an election.")] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Elect any live replica for partitions without a leader; messages may be lost."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Elect the preferred leaders of partitions (or, with --unclean, any live replica)."""
    from ....ports.broker_api.replicas import ElectionType

    if everything == bool(topics):
        raise ConfigError("select partitions with --all, or --topic TOPIC")
    if partitions and (topics is None or len(topics) != 1):
        raise ConfigError("--partition needs exactly one --topic")
    with open_admin(bootstrap) as admin:
        places = None if everything else _places(admin, topics or (), partitions)
        elected = admin.elect_leaders(places, ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED)
    if as_json:
        print_json([{"topic": place.topic, "partition": place.partition} for place in sorted(elected)])
        return
    for place in sorted(elected):
        typer.echo(f"{place} has a new leader")
    if not elected:
        typer.echo("no partition needed another leader")


def _places(admin: Admin, topics: Sequence[str], partitions: Sequence[int] | None) -> list[TopicPartition]:
    if partitions:
        return [TopicPartition(topics[0], number) for number in partitions]
    found = admin.describe_topics(topics)
    return [TopicPartition(str(topic.name), each.partition) for topic in found for each in topic.partitions]
