"""`barnabas groups`: list, describe, reset and delete groups of all types."""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ....ports.broker_api.configs import ResourceKind
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.types import TopicPartition
from ..options import AsJson, Bootstrap, Execute, Yes, confirm, open_admin, print_json, print_table
from ..times import age_text, parse_duration_ms, parse_time_ms
from .trend import age_trend_text, deliveries_text, done_in_ms, done_in_text, trend_of, trend_text

if TYPE_CHECKING:
    from ....ports.broker_api.groups import Coordinator
    from ...clients.admin.admin import Admin
    from ...clients.admin.consumer_lag import GroupSummary
    from ...clients.admin.group_details import GroupDetails, MemberDetails

groups = typer.Typer(
    help="List, describe, reset and delete groups of all types: classic, consumer and share.", no_args_is_help=True
)


# `barnabas groups reset-offsets`: change the committed offsets of a group.

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
    all_topics: Annotated[bool, typer.Option("--all-topics", help="All topics with offsets of the group.")] = False,
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
    execute: Execute = False,
    as_json: AsJson = False,
) -> None:
    """Show the new offsets of a group without members; with --execute set them.

    They are the committed offsets, of a share group the start offsets. They are limited to the range between the first
    message and the end of each partition.
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
        is_share = admin.describe_groups([name])[0].type == "share"
        reset = admin.reset_share_group_offsets if is_share else admin.reset_group_offsets
        changes = reset(name, topics=topics, dry_run=not execute, **where)
    rows = [{column: getattr(change, column) for column in _COLUMNS} for change in changes]
    if as_json:
        print_json({"group": name, "executed": execute, "partitions": rows})
        return
    print_table(_COLUMNS, (["-" if value is None else value for value in row.values()] for row in rows))
    if not execute:
        typer.echo("nothing was changed; repeat the command with --execute to change it", err=True)


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


add_reset_command(groups)


share = typer.Typer(help="What is special to share groups: their start offsets.", no_args_is_help=True)
groups.add_typer(share, name="share")


def register(app: typer.Typer) -> None:
    app.add_typer(groups, name="groups")


Name = Annotated[str, typer.Argument(metavar="GROUP")]
TrendSeconds = Annotated[
    float | None,
    typer.Option(
        "--trend",
        metavar="SECONDS",
        min=0.2,
        help="Look twice, SECONDS apart: how fast the lag grows, and when a shrinking one will be gone.",
    ),
]


class GroupOrder(StrEnum):
    """The orders of `groups list`."""

    NAME = "name"
    LAG = "lag"
    TIME = "time"
    MEMBERS = "members"


def _largest_first(column: str) -> Callable[[dict[str, Any]], Any]:
    """Return the key of an order: the largest first, unknown ones last, then by name."""

    def key(row: dict[str, Any]) -> Any:
        return row[column] is None, -(row[column] or 0), row["group"]

    return key


_ORDERS: dict[GroupOrder, Callable[[dict[str, Any]], Any]] = {
    GroupOrder.NAME: lambda row: row["group"],
    GroupOrder.LAG: _largest_first("lag"),
    GroupOrder.TIME: _largest_first("lag_ms"),
    GroupOrder.MEMBERS: _largest_first("members"),
}


@groups.command("list")
def list_groups(
    bootstrap: Bootstrap,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only in this state: Stable, Empty, PreparingRebalance, CompletingRebalance, Assigning, Reconciling; "
            "may be repeated.",
        ),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only of this type: classic, consumer or share; may be repeated."),
    ] = None,
    sort: Annotated[GroupOrder, typer.Option("--sort", help="The order: by name, or the largest first.")] = (
        GroupOrder.NAME
    ),
    lag: Annotated[
        bool, typer.Option("--lag/--no-lag", help="Read members and lags, or only names and states.")
    ] = True,
    trend: TrendSeconds = None,
    as_json: AsJson = False,
) -> None:
    """List the groups with states, members and lag: unread messages, and the age of the oldest one.

    The lag costs two requests for 100 groups, one to each broker for the ends of partitions, and up to 40 small reads
    for the ages; --no-lag saves them. An age needs the right to read the topic. The lag of a share group counts the
    messages that are neither acknowledged nor given up.
    """
    states, types = state or (), group_type or ()
    if trend is not None and not lag:
        raise ConfigError("--trend needs the lags, which --no-lag leaves out")
    with open_admin(bootstrap) as admin:
        if not lag:
            listed = admin.list_groups(states=states, types=types)
            if as_json:
                print_json(
                    [
                        {"group": e.group_id, "state": e.state, "type": e.group_type, "protocol": e.protocol_type}
                        for e in listed
                    ]
                )
            else:
                rows = ((e.group_id, e.state or "-", e.group_type or "-", e.protocol_type or "-") for e in listed)
                print_table(("group", "state", "type", "protocol"), rows)
            return

        def fetch_lags() -> dict[str, dict[str, Any]]:
            found = admin.list_group_lags(states=states, types=types)
            now_ms = time.time_ns() // 1_000_000
            return {each.group_id: _group_fields(each, now_ms) for each in found}

        fields = sorted(_with_trends(fetch_lags, trend).values(), key=_ORDERS[sort])
    if as_json:
        print_json(fields)
        return
    trends = () if trend is None else _TREND_COLUMNS
    columns = ("group", "state", "type", "protocol", "members", "lag", "lag_time", *trends, "topics")
    print_table(columns, ([_cell(_shown(row)[column]) for column in columns] for row in fields))


_TREND_COLUMNS = ("trend", "time_trend", "done_in")
KeyT = TypeVar("KeyT")


def _with_trends(
    fetch_lags: Callable[[], dict[KeyT, dict[str, Any]]], seconds: float | None
) -> dict[KeyT, dict[str, Any]]:
    """Return the rows of a look, by any key; with `seconds` of a second look so much later, with trends."""
    first, began = fetch_lags(), time.monotonic()
    if seconds is None:
        return first
    time.sleep(seconds)
    second = fetch_lags()
    elapsed = time.monotonic() - began
    for key, row in second.items():
        before = (first[key]["lag"], first[key]["lag_ms"]) if key in first else None
        found = trend_of(before, (row["lag"], row["lag_ms"]), elapsed)
        row["lag_per_s"] = None if found.messages is None else round(found.messages, 3)
        row["lag_ms_per_s"] = None if found.age_ms is None else round(found.age_ms, 1)
        row["done_in_ms"] = done_in_ms(row["lag"], found)
    return second


def _group_fields(group: "GroupSummary", now_ms: int) -> dict[str, Any]:
    return {
        "group": group.group_id,
        "state": group.state,
        "type": group.type,
        "protocol": group.protocol_type,
        "assignor": group.protocol or None,
        "coordinator": group.coordinator,
        "members": group.members,
        "lag": group.lag,
        "lag_ms": _lag_ms(group.unread_since_ms, group.lag, now_ms),
        "topics": list(group.topics),
    }


def _lag_ms(unread_since_ms: int | None, lag: int | None, now_ms: int) -> int | None:
    """Return the age of the oldest unread message; 0 if there is none, None if it is unknown."""
    return 0 if lag == 0 else None if unread_since_ms is None else max(0, now_ms - unread_since_ms)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row with the texts of its lists and times."""
    shown = {**row, "lag_time": _age(row["lag_ms"])}
    if "topics" in row:
        shown["topics"] = ",".join(row["topics"])
    if "lag_per_s" in row:
        shown["trend"], shown["time_trend"] = trend_text(row["lag_per_s"]), age_trend_text(row["lag_ms_per_s"])
        shown["done_in"] = done_in_text(row["done_in_ms"])
    return shown


def _age(lag_ms: int | None) -> str:
    return "-" if lag_ms is None else age_text(lag_ms).replace(" ", "")


@groups.command("describe")
def describe_group(
    bootstrap: Bootstrap,
    name: Name,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Committed offsets and lag of each partition; the default.")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="The members, with their assignments.")] = False,
    state: Annotated[bool, typer.Option("--state", help="State, epochs, assignor and coordinator.")] = False,
    trend: TrendSeconds = None,
    as_json: AsJson = False,
) -> None:
    """Show the offsets and the lag of a group in each partition; or its members, or its state.

    Of a share group these are the start offsets: all messages below them are acknowledged or given up. What is
    in flight above them, and how often it was delivered, only brokers of Barnabas say.
    """
    if offsets + members + state > 1:
        raise ConfigError("give one of --offsets, --members and --state")
    if trend is not None and (members or state):
        raise ConfigError("--trend is about offsets, not about --members and --state")
    with open_admin(bootstrap) as admin:
        details = _existing(admin, name)
        if members:
            _show_members(details, as_json)
        elif state:
            _show_state(details, admin.coordinator(name), as_json)
        else:
            show_offsets(admin, details, trend, as_json=as_json)


@groups.command()
def delete(
    bootstrap: Bootstrap,
    names: Annotated[list[str], typer.Argument(metavar="GROUP...", show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete groups without members, with their committed offsets. On a terminal it asks first."""
    with open_admin(bootstrap) as admin:
        for name in names:
            _existing(admin, name)
            confirm(f"Delete group {name} with its committed offsets? [y/N]", yes=yes)
            admin.delete_groups([name])
            typer.echo(f"deleted {name}")


@groups.command("delete-offsets")
def delete_offsets(
    bootstrap: Bootstrap,
    name: Name,
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="TOPIC[:P,...]", help="A topic or some partitions; may be repeated."),
    ],
) -> None:
    """Delete the offsets of a group in topics that none of its members reads; of a share group in whole topics."""
    with open_admin(bootstrap) as admin:
        if _existing(admin, name).type == "share":
            admin.delete_share_group_offsets(name, _whole_topics(topic))
            typer.echo(f"deleted the start offsets of {name} in {', '.join(topic)}")
            return
        gone = admin.delete_group_offsets(name, parse_topics(topic))
    if not gone:
        raise ConfigError(f"group {name} has no committed offsets there; see `barnabas groups describe {name}`")
    typer.echo(f"deleted the positions of {name} in {_joined(gone)}")


def _whole_topics(given: Sequence[str]) -> list[str]:
    """Return the topics. Raises `ConfigError` for some partitions of one."""
    for text in given:
        if ":" in text:
            raise ConfigError(f"--topic {text!r}: the offsets of a share group are deleted for whole topics")
    return list(given)


def _existing(admin: "Admin", name: str) -> "GroupDetails":
    (details,) = admin.describe_groups([name])
    if not details.exists:
        text = f"group {name!r} does not exist; `barnabas groups list` shows the existing groups"
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, text)
    return details


def show_offsets(admin: "Admin", details: "GroupDetails", trend: float | None, *, as_json: bool) -> None:
    """Print the offsets and the lag of a group in each partition."""
    is_share = details.type == "share"
    offset = "start_offset" if is_share else "committed"

    def fetch_lag() -> dict[TopicPartition, dict[str, Any]]:
        lags = admin.group_lag(details.group_id, times=True)
        now_ms = time.time_ns() // 1_000_000
        return {
            tp: {
                "topic": tp.topic,
                "partition": tp.partition,
                offset: each.committed,
                "log_end_offset": each.end,
                "lag": each.lag,
                "lag_ms": _lag_ms(each.unread_since_ms, each.lag, now_ms),
                **({"members": [member.member_id for member in each.members]} if is_share else _reader(each.member)),
            }
            for tp, each in lags.items()
        }

    found = _with_trends(fetch_lag, trend)
    in_flight = _in_flight(admin, details.group_id) if is_share else {}
    for tp, row in found.items():
        row.update(in_flight.get(tp, {}))
    rows, total = list(found.values()), sum(row["lag"] or 0 for row in found.values())
    dead_letters = _dead_letters(admin, details.group_id) if is_share else None
    if as_json:
        more = {"dead_letters": dead_letters} if is_share else {}
        print_json({**_head(details), "lag": total, **more, "partitions": rows})
        return
    epochs = ""
    if details.group_epoch is not None:
        epochs = f"  {details.type}  epoch {details.group_epoch}, assignment {details.assignment_epoch}"
    typer.echo(f"{details.group_id}  {details.state}{epochs}  lag {total}")
    if dead_letters is not None:
        typer.echo(f"dead letters: {dead_letters['messages']} in {dead_letters['topic']}")
    columns: tuple[str, ...] = ("topic", "partition", offset, "log_end_offset", "lag", "lag_time")
    columns += () if trend is None else _TREND_COLUMNS
    columns += (*_IN_FLIGHT, "members") if is_share else ("member", "client_id", "host")
    shown = [_shown(row) for row in rows]
    if is_share:
        shown = [
            {**row, "members": len(row["members"]), "deliveries": deliveries_text(row.get("deliveries", {}))}
            for row in shown
        ]
    print_table(columns, ([_cell(row.get(column)) for column in columns] for row in shown))


_IN_FLIGHT = ("acquired", "available", "given_up", "deliveries")


def _in_flight(admin: "Admin", name: str) -> "dict[TopicPartition, dict[str, Any]]":
    """Return the messages in flight of each partition; none where the brokers do not describe them."""
    try:
        found = admin.describe_share_partitions(name)
    except ApiError as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    return {
        tp: {
            "acquired": each.acquired,
            "available": each.available,
            "given_up": each.archived,
            "deliveries": {str(delivered.delivery_count): delivered.records for delivered in each.deliveries},
            "holders": [
                {"member": held.member_id, "messages": held.records, "lock_ms": held.lock_ms} for held in each.holders
            ],
        }
        for tp, each in found.items()
    }


def _dead_letters(admin: "Admin", name: str) -> dict[str, Any] | None:
    """Return the group's topic for dead letters, and the number of its messages; None: the group has none."""
    key = "errors.deadletterqueue.topic.name"
    try:
        entries = admin.describe_configs(ResourceKind.GROUP, name, [key])
        topic = next((entry.value for entry in entries if entry.name == key), None)
        if not topic:
            return None
        partitions = [(topic, each.partition) for each in admin.describe_topic(topic).partitions]
        first, end = (admin.list_offsets(dict.fromkeys(partitions, which)) for which in ("earliest", "latest"))
    except ApiError:  # no right to see the settings, or there is no such topic yet
        return None
    return {"topic": topic, "messages": sum(end.values()) - sum(first.values())}


def _head(details: "GroupDetails") -> dict[str, object]:
    """Return the fields of a group that every description of it begins with."""
    epochs = {"group_epoch": details.group_epoch, "assignment_epoch": details.assignment_epoch}
    more = {} if details.group_epoch is None else epochs
    return {"group": details.group_id, "state": details.state, "type": details.type, **more}


def _reader(member: "MemberDetails | None") -> dict[str, object]:
    if member is None:
        return {"member": None, "client_id": None, "host": None}
    return {"member": member.member_id, "client_id": member.client_id, "host": member.client_host.lstrip("/")}


def _show_members(details: "GroupDetails", as_json: bool) -> None:
    has_epochs = details.group_epoch is not None
    rows: list[dict[str, object]] = [
        {
            **_reader(member),
            "instance": member.group_instance_id,
            "topics": list(member.topics),
            "partitions": len(member.assignment),
            "assignment": _by_topic(member.assignment),
            **(_of_epochs(member) if has_epochs else {}),
        }
        for member in details.members
    ]
    if as_json:
        print_json({**_head(details), "members": rows})
        return
    more = ("epoch", "protocol") if has_epochs else ()
    columns = ("member", "instance", "client_id", "host", *more, "partitions", "assignment")
    columns += ("target",) if details.type == "consumer" else ()
    shown = [
        {**row, "assignment": _joined(member.assignment), "target": _joined(member.target_assignment or ())}
        for row, member in zip(rows, details.members, strict=True)
    ]
    print_table(columns, ([_cell(row[column]) for column in columns] for row in shown))


def _of_epochs(member: "MemberDetails") -> dict[str, object]:
    """Return the fields of a member that members of classic groups do not have."""
    target = member.target_assignment
    return {
        "epoch": member.member_epoch,
        "protocol": member.protocol or None,
        "rack": member.rack_id,
        "pattern": member.topic_pattern,
        **({} if target is None else {"target": _by_topic(target)}),
    }


def _show_state(details: "GroupDetails", coordinator: "Coordinator", as_json: bool) -> None:
    row = {
        **_head(details),
        "protocol": details.protocol_type,
        "assignor": details.protocol,
        "members": len(details.members),
        "coordinator": f"{coordinator.node_id} ({coordinator.host}:{coordinator.port})",
    }
    if as_json:
        print_json({**row, "coordinator": coordinator.node_id})
    else:
        print_table(row.keys(), [[_cell(value) for value in row.values()]])


def _by_topic(partitions: "Sequence[TopicPartition]") -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics


def _joined(partitions: "Sequence[TopicPartition]") -> str:
    """Return `a:0,1 b:2`, the form of --topic."""
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(partitions).items())


def _cell(value: object) -> object:
    """Return a dash for None, so that columns can be counted."""
    return "-" if value is None or value == "" else value


# `barnabas groups share`: the start offsets of share groups.


@share.command("describe-offsets")
def describe_start_offsets(bootstrap: Bootstrap, name: Name, as_json: AsJson = False) -> None:
    """Show the start offsets of a share group, below which all messages are acknowledged or given up."""
    with open_admin(bootstrap) as admin:
        _existing_share_group(admin, name)
        offsets = admin.share_group_offsets(name)
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "leader_epoch": each.leader_epoch,
            "start_offset": each.offset,
            "lag": each.lag,
        }
        for tp, each in offsets.items()
    ]
    if as_json:
        print_json({"group": name, "partitions": rows})
        return
    columns = ("topic", "partition", "leader_epoch", "start_offset", "lag")
    print_table(columns, ([_cell(row[column]) for column in columns] for row in rows))


@share.command("alter-offsets")
def alter_start_offsets(
    bootstrap: Bootstrap,
    name: Name,
    offsets: Annotated[list[str], typer.Argument(metavar="TOPIC:P=OFFSET...", show_default=False)],
) -> None:
    """Set start offsets of a share group without members. What it has delivered there is forgotten."""
    wanted = parse_offsets(offsets)
    with open_admin(bootstrap) as admin:
        _existing_share_group(admin, name)
        admin.alter_share_group_offsets(name, wanted)
    typer.echo(f"changed the start offsets of {name} in {_joined(list(wanted))}")


def parse_offsets(given: Sequence[str]) -> dict[TopicPartition, int]:
    """Parse start offsets: `["a:0=5"]`. Raises `ConfigError`."""
    found: dict[TopicPartition, int] = {}
    for text in given:
        tp, _, offset = text.rpartition("=")
        topic, _, partition = tp.rpartition(":")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            raise ConfigError(f"{text!r}: give TOPIC:PARTITION=OFFSET, such as orders:0=1200")
        found[TopicPartition(topic, int(partition))] = int(offset)
    return found


def _existing_share_group(admin: "Admin", name: str) -> None:
    details = _existing(admin, name)
    if details.type != "share":
        raise ConfigError(f"group {name!r} is not a share group; its type is {details.type}")


share.command("reset-offsets")(reset_offsets)
share.command("delete-offsets")(delete_offsets)
