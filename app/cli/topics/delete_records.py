"""`barnabas topics delete-records`: deletes records at the beginning of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.errors import ConfigError
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, open_admin, print_json, print_table
from ..times import parse_time_ms

if TYPE_CHECKING:
    from ...clients.admin.admin import Admin

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
    execute: Annotated[bool, typer.Option("--execute", help="Execute; the default only shows the plan.")] = False,
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
        places = [TopicPartition(name, number) for number in sorted(set(numbers))]
        first = admin.list_offsets(dict.fromkeys(places, "earliest"))
        last = admin.list_offsets(dict.fromkeys(places, "latest"))
        if before_offset is not None:
            ends = dict.fromkeys(places, before_offset)
        else:
            ends = dict(last) if before is None else _at_time(admin, places, parse_time_ms(before, "--before"), last)
        ends = {place: max(first[place], end) for place, end in ends.items()}
        if execute:
            first = admin.delete_records({(place.topic, place.partition): end for place, end in ends.items()})
    rows = [(place.partition, first[place], ends[place], last[place]) for place in places]
    if as_json:
        print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        return
    print_table(_COLUMNS, rows)
    if not execute:
        typer.echo("nothing is deleted yet: give --execute", err=True)


def _at_time(
    admin: Admin, places: list[TopicPartition], time_ms: int, last: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(places, time_ms))
    return {place: offset if offset >= 0 else last[place] for place, offset in found.items()}
