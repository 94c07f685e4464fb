"""`barnabas cluster reassign`: move partitions to other brokers, with the file format of Kafka's own tool."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.broker_api.configs import ConfigSource, ResourceKind
from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, open_admin, print_json, print_table, progress
from ..tables import list_text

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...clients.admin.reassignments import ReplicaAssignment

reassign = typer.Typer(help="Plan, execute, verify and cancel moves of partitions.", no_args_is_help=True)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
"""Broker settings in bytes per second: the rate of a throttled leader, and of a throttled follower."""
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Topic settings, `PARTITION:BROKER,...`: the throttled replicas that send, and that receive."""
LOOK_S, BELIEVED_S = 0.2, 2.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="Output of `plan`; - is standard input.")]


@reassign.command("plan")
def plan(
    bootstrap: Bootstrap,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="TOPIC,...", help="Topics to reassign; default: all.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="ID,...", help="Target brokers; default: all.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="Replicas of each partition; default: unchanged."),
    ] = None,
) -> None:
    """Print an assignment with equal shares for all brokers and few moves. Changes nothing.

    Standard output is JSON for `execute` (and for kafka-reassign-partitions); standard error says what would move.
    """
    from ...clients.admin.reassignments import moved, planned, to_json

    with open_admin(bootstrap) as admin:
        current = _held(admin, None if topics is None else _words(topics))
        sizes = _sizes(admin, current)
        racks = {node.node_id: node.rack for node in admin.describe_cluster().brokers}
    wanted = racks if brokers is None else _chosen(brokers, racks)
    proposed = planned(current, wanted, replication_factor)
    changed = {place: held for place, held in proposed.items() if tuple(held) != tuple(current[place])}
    copies = moved(current, proposed)
    size = sum(sizes.get(place, 0) for place, _ in copies)
    change = f"{len(changed)} of {counted(len(current), 'partition')} {'changes' if len(changed) == 1 else 'change'}"
    typer.echo(f"{change}, {counted(len(copies), 'replica')} with {size:,} bytes to copy", err=True)
    typer.echo(to_json(proposed))


@reassign.command("execute")
def execute(
    bootstrap: Bootstrap,
    file: File,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="Maximum rate per second for copies to and from each broker."),
    ] = None,
) -> None:
    """Start a reassignment and return at once. Prints the current assignment, for the way back.

    The throttle remains until `verify` finds the reassignment complete.
    """
    from ...clients.admin.reassignments import to_json

    wanted = _read(file)
    with open_admin(bootstrap) as admin:
        current = _held(admin, sorted({place.topic for place in wanted}))
        _check_known(wanted, current)
        if throttle is not None:
            _throttle(admin, wanted, current, throttle)
        admin.reassign_partitions(wanted)
    typer.echo(to_json({place: current[place] for place in wanted}))
    more = "" if throttle is None else "; `barnabas cluster reassign verify` takes the throttle off at the end"
    typer.echo(f"{counted(len(wanted), 'partition is on its way', 'partitions are on their way')}{more}", err=True)


@reassign.command("verify")
def verify(
    bootstrap: Bootstrap,
    file: File,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the reassignment has completed.")] = False,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Do not remove the throttle after completion.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the progress of the moves. Ends with 0 when all are complete (and removes the throttle), else with 1."""
    wanted = _read(file)
    with open_admin(bootstrap) as admin:
        states = _wait(admin, wanted) if wait else _settled(admin, wanted)
        moving = any(state == "moving" for state in states.values())
        if not moving and not preserve_throttles:
            _unthrottle(admin, wanted)
    rows = [(place.topic, place.partition, list(wanted[place]), state) for place, state in sorted(states.items())]
    columns = ("topic", "partition", "replicas", "state")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, ((topic, partition, list_text(held), state) for topic, partition, held, state in rows))
    if any(state != "done" for state in states.values()):
        raise typer.Exit(1)


@reassign.command("cancel")
def cancel(
    bootstrap: Bootstrap,
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Output of `plan`.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="All running moves.")] = False,
) -> None:
    """Cancel moves that are not complete: their previous replicas remain."""
    if everything == (file is not None):
        raise ConfigError("select the moves with FILE, or --all")
    with open_admin(bootstrap) as admin:
        moving = [TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()]
        given = None if file is None else _read(file)
        chosen = [place for place in moving if given is None or place in given]
        if chosen:
            admin.reassign_partitions(dict.fromkeys(chosen))
        _unthrottle(admin, chosen if given is None else list(given))
    typer.echo(f"{counted(len(chosen), 'move')} cancelled")


def _words(text: str) -> list[str]:
    return sorted({word.strip() for word in text.split(",") if word.strip()})


def _chosen(text: str, racks: Mapping[int, str | None]) -> dict[int, str | None]:
    """Select brokers by id. Raises `ConfigError` for an unknown one."""
    words = _words(text)
    unknown = [word for word in words if not word.isdigit() or int(word) not in racks]
    if unknown or not words:
        raise ConfigError(
            f"--brokers {text}: unknown broker {', '.join(unknown)}; known brokers: {list_text(sorted(racks))}"
        )
    return {int(word): racks[int(word)] for word in words}


def _held(admin: Admin, topics: Sequence[str] | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the replicas of each partition; for a running move, the target replicas."""
    found = {
        TopicPartition(str(topic.name), each.partition): tuple(each.replicas)
        for topic in admin.describe_topics(topics)
        for each in topic.partitions
    }
    for move in admin.list_reassignments():
        place = TopicPartition(move.topic, move.partition)
        if place in found:
            found[place] = tuple(broker for broker in move.replicas if broker not in move.removing)
    return found


def _sizes(admin: Admin, places: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, int]:
    """Return the size of the largest replica of each partition in bytes."""
    sizes: dict[TopicPartition, int] = {}
    for folders in admin.describe_log_dirs().values():
        for replica in (replica for folder in folders for replica in folder.replicas):
            place = TopicPartition(replica.topic, replica.partition)
            if place in places:
                sizes[place] = max(sizes.get(place, 0), replica.size_bytes)
    return sizes


def _read(file: Path) -> dict[TopicPartition, tuple[int, ...]]:
    from ...clients.admin.reassignments import from_json

    if str(file) == "-":
        return from_json(sys.stdin.read(), "standard input")
    return from_json(file.read_bytes(), str(file))


def _check_known(wanted: ReplicaAssignment, current: ReplicaAssignment) -> None:
    unknown = sorted(str(place) for place in wanted if place not in current)
    if unknown:
        raise ConfigError(f"unknown partition {', '.join(unknown)}")


def _states(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    """Return "done", "moving", "other replicas" (without a move) or "no such partition" for each partition."""
    moving = {TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()}
    there = set(admin.list_topics(internal=True))
    current = _held(admin, sorted({place.topic for place in wanted} & there))
    states = {}
    for place, held in wanted.items():
        if place not in current:
            states[place] = "no such partition"
        elif place in moving:
            states[place] = "moving"
        else:
            states[place] = "done" if tuple(held) == current[place] else "other replicas"
    return states


def _settled(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    """Return `_states`, but wait before reporting differences, since brokers learn of changes with a delay."""
    until = time.monotonic() + BELIEVED_S
    while True:
        states = _states(admin, wanted)
        if set(states.values()) <= {"done", "moving"} or time.monotonic() > until:
            return states
        time.sleep(LOOK_S)


def _wait(admin: Admin, wanted: ReplicaAssignment) -> dict[TopicPartition, str]:
    with progress("moved", len(wanted)) as advance:
        while True:
            states = _settled(admin, wanted)
            left = sum(state == "moving" for state in states.values())
            advance(len(wanted) - left)
            if not left:
                return states
            time.sleep(LOOK_S)


def _throttle(admin: Admin, wanted: ReplicaAssignment, current: ReplicaAssignment, rate: int) -> None:
    from ...clients.admin.reassignments import moved

    copies = moved(current, wanted)
    for topic in sorted({place.topic for place, _ in copies}):
        places = sorted({place for place, _ in copies if place.topic == topic})
        gives = [f"{place.partition}:{broker}" for place in places for broker in current[place]]
        takes = [f"{place.partition}:{broker}" for place, broker in copies if place.topic == topic]
        changes = dict(zip(THROTTLED, (",".join(gives), ",".join(takes)), strict=True))
        admin.alter_configs(ResourceKind.TOPIC, topic, changes)
    for node in admin.describe_cluster().brokers:
        admin.alter_configs(ResourceKind.BROKER, node.node_id, dict.fromkeys(RATES, str(rate)))


def _unthrottle(admin: Admin, places: Iterable[TopicPartition]) -> None:
    """Reset what `_throttle` has set; a deleted topic has no settings."""
    for topic in sorted({place.topic for place in places} & set(admin.list_topics(internal=True))):
        _reset(admin, ResourceKind.TOPIC, topic, THROTTLED)
    for node in admin.describe_cluster().brokers:
        _reset(admin, ResourceKind.BROKER, node.node_id, RATES)


def _reset(admin: Admin, kind: ResourceKind, name: str | int, keys: Sequence[str]) -> None:
    changed = [e.name for e in admin.describe_configs(kind, name, keys) if e.source is not ConfigSource.DEFAULT]
    if changed:
        admin.alter_configs(kind, name, dict.fromkeys(changed))
