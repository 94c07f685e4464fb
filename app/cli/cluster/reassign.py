"""`barnabas cluster reassign`: move partitions to other brokers, with the file format of Kafka's own tool."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.errors import ConfigError
from ....ports.report import counted
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, open_admin, print_json, print_table, progress
from ..tables import list_text

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin
    from ...clients.admin.reassignments import ReplicaAssignment

reassign = typer.Typer(help="Plan, execute, verify and cancel moves of partitions.", no_args_is_help=True)

LOOK_S, BELIEVED_S = 0.2, 2.0

File = Annotated[Path, typer.Argument(metavar="FILE", help="Output of `plan`; - is standard input.")]


@reassign.command("plan")
def plan(
    bootstrap: Bootstrap,
    topics: Annotated[
        str | None, typer.Option("--topics", metavar="TOPIC,...", help="Topics to reassign; default: all.")
    ] = None,
    brokers: Annotated[
        str | None, typer.Option("--brokers", metavar="ID,...", help="Target brokers; default: all but drained ones.")
    ] = None,
    add: Annotated[
        str | None,
        typer.Option("--add", metavar="ID,...", help="New brokers, in addition to those that have replicas already."),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", min=1, help="Replicas of each partition; default: unchanged."),
    ] = None,
) -> None:
    """Print an assignment with equal shares for all brokers and few moves. Changes nothing.

    `--add 4` gives a new broker its share. To empty a broker: `barnabas brokers drain`. Standard output is JSON for
    `execute` (and for kafka-reassign-partitions); standard error says what would move.
    """
    from ...clients.admin.reassignments import current_assignment, moved, places_of, planned, replica_sizes, to_json

    if brokers is not None and add is not None:
        raise ConfigError("give --brokers or --add, not both")
    with open_admin(bootstrap) as admin:
        current = current_assignment(admin, None if topics is None else _words(topics))
        log_dirs = admin.describe_log_dirs()
        racks = places_of(admin.describe_cluster().brokers)
    sizes = replica_sizes(log_dirs)
    cordoned = {broker for broker, folders in log_dirs.items() if all(each.is_cordoned for each in folders)}
    if brokers is not None:
        wanted = _chosen("--brokers", brokers, racks)
    elif add is not None:
        holders = {broker for held in current.values() for broker in held} - cordoned
        wanted = {each: rack for each, rack in racks.items() if each in holders} | _chosen("--add", add, racks)
    else:
        wanted = {each: rack for each, rack in racks.items() if each not in cordoned}
    refused = sorted(cordoned & wanted.keys())
    if refused:
        text = f"broker {refused[0]} is drained, so it gets no replicas"
        raise ConfigError(f"{text}; 'barnabas brokers drain {refused[0]} --cancel' ends that")
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
    """Start a reassignment and return at once. Standard output is the assignment before; `execute` it to go back.

    The throttle remains until `verify` finds the reassignment complete.
    """
    from ...clients.admin.reassignments import current_assignment, set_throttle, to_json

    wanted = _read(file)
    with open_admin(bootstrap) as admin:
        current = current_assignment(admin, sorted({place.topic for place in wanted}))
        _check_known(wanted, current)
        if throttle is not None:
            set_throttle(admin, wanted, current, throttle)
        admin.reassign_partitions(wanted)
    typer.echo(
        "the assignment before, as JSON on standard output; save it: `execute` with it is the way back", err=True
    )
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
    from ...clients.admin.reassignments import remove_throttle

    wanted = _read(file)
    with open_admin(bootstrap) as admin:
        states = _wait(admin, wanted) if wait else _settled(admin, wanted)
        moving = any(state == "moving" for state in states.values())
        if not moving and not preserve_throttles:
            remove_throttle(admin, {place.topic for place in wanted})
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
    from ...clients.admin.reassignments import remove_throttle

    if everything == (file is not None):
        raise ConfigError("select the moves with FILE, or --all")
    with open_admin(bootstrap) as admin:
        moving = [TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()]
        given = None if file is None else _read(file)
        chosen = [place for place in moving if given is None or place in given]
        if chosen:
            admin.reassign_partitions(dict.fromkeys(chosen))
        remove_throttle(admin, {place.topic for place in (chosen if given is None else given)})
    typer.echo(f"{counted(len(chosen), 'move')} cancelled")


def _words(text: str) -> list[str]:
    return sorted({word.strip() for word in text.split(",") if word.strip()})


def _chosen(option: str, text: str, racks: Mapping[int, str | None]) -> dict[int, str | None]:
    """Select brokers by id. Raises `ConfigError` for an unknown one."""
    words = _words(text)
    unknown = [word for word in words if not word.isdigit() or int(word) not in racks]
    if unknown or not words:
        raise ConfigError(
            f"{option} {text}: unknown broker {', '.join(unknown)}; known brokers: {list_text(sorted(racks))}"
        )
    return {int(word): racks[int(word)] for word in words}


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
    from ...clients.admin.reassignments import current_assignment

    moving = {TopicPartition(move.topic, move.partition) for move in admin.list_reassignments()}
    there = set(admin.list_topics(internal=True))
    current = current_assignment(admin, sorted({place.topic for place in wanted} & there))
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
