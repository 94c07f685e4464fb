"""`barnabas groups reset-offsets`: change the committed offsets of a group."""

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, open_admin, print_json, print_table
from ..times import parse_duration_ms, parse_time_ms

_COLUMNS = ("topic", "partition", "before", "after", "log_start_offset", "log_end_offset", "lag")


def add_reset_command(groups: typer.Typer) -> None:
    groups.command("reset-offsets")(reset_offsets)


def reset_offsets(
    bootstrap: Bootstrap,
    name: Annotated[str, typer.Argument(metavar="GROUP")],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="TOPIC[:P,...]", help="A topic or some partitions; may be repeated."),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics with committed offsets of the group.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first message.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Past the last message.")] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="To the first message of this time or later, such as 2026-01-31T12:00:00; UTC unless it says +hh:mm.",
        ),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="To the first message not older than this: 90m, 2h30m, P7D."),
    ] = None,
    to_offset: Annotated[int | None, typer.Option(metavar="N", help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="Offsets to move forward; negative: backward.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Execute; the default only shows the plan.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the new committed offsets of a group without members; with --execute commit them.

    Offsets are limited to the range between the first message and the end of each partition.
    """
    if all_topics == bool(topic):
        raise ConfigError("select topics with either --topic TOPIC, or --all-topics")
    where = _where(
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_datetime=to_datetime,
        by_duration=by_duration,
        to_offset=to_offset,
        shift_by=shift_by,
    )
    with open_admin(bootstrap) as admin:
        topics = None if all_topics else parse_topics(topic or ())
        changes = admin.reset_group_offsets(name, topics=topics, dry_run=not execute, **where)
    rows = [{column: getattr(change, column) for column in _COLUMNS} for change in changes]
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": rows})
        return
    print_table(_COLUMNS, (["-" if value is None else value for value in row.values()] for row in rows))
    if not execute:
        typer.echo("nothing was changed; the same with --execute does it", err=True)


def parse_topics(given: Sequence[str]) -> list[str | tuple[str, int] | TopicPartition]:
    """Parse topics: `["a", "b:0,2"]` → `["a", ("b", 0), ("b", 2)]`. Raises `ConfigError`."""
    topics: list[str | tuple[str, int] | TopicPartition] = []
    for text in given:
        topic, colon, numbers = text.partition(":")
        if not topic or (colon and not all(number.isdecimal() for number in numbers.split(","))):
            raise ConfigError(f"--topic {text!r}: give TOPIC, or TOPIC:0,1 for some of its partitions")
        topics += [(topic, int(number)) for number in numbers.split(",")] if colon else [topic]
    return topics


def _where(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_datetime: str | None,
    by_duration: str | None,
    to_offset: int | None,
    shift_by: int | None,
) -> dict[str, Any]:
    given: list[dict[str, Any]] = []
    if to_earliest:
        given.append({"to": "earliest"})
    if to_latest:
        given.append({"to": "latest"})
    if to_datetime is not None:
        given.append({"timestamp_ms": parse_time_ms(to_datetime, "--to-datetime")})
    if by_duration is not None:
        ago_ms = parse_duration_ms(by_duration, "--by-duration")
        given.append({"timestamp_ms": max(0, time.time_ns() // 1_000_000 - ago_ms)})
    if to_offset is not None:
        given.append({"offset": to_offset})
    if shift_by is not None:
        given.append({"shift": shift_by})
    if len(given) != 1:
        text = "--to-earliest, --to-latest, --to-datetime, --by-duration, --to-offset and --shift-by"
        raise ConfigError(f"select the new offsets with exactly one of {text}")
    return given[0]
