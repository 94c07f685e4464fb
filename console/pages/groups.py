"""Groups of all types: the list with lags and their trend, one group's members and partitions, the reset of offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import ApiError, ConfigError, ErrorCode, TopicPartition
from ...ports.values import frozen
from ..application import PageCall, PageRoute
from ..connection import GroupTrend
from ..paging import PageOfRows, sort_by
from ..rendering import segment, zone_of
from .messages import parse_time
from .topics import describe, whole

SHARE = "share"
_PARTITIONS_PAGE = 200
_TARGETS = ("earliest", "latest", "time", "offset", "shift")


@frozen(kw_only=True)
class GroupRow:
    """A row of the list: a group with its trend. `late_ms`: the age of its oldest unread message."""

    group: Any
    trend: GroupTrend | None
    late_ms: int | None

    @property
    def group_id(self) -> str:
        return str(self.group.group_id)


_SORTS = {
    "group": lambda row: row.group_id,
    "type": lambda row: row.group.type,
    "state": lambda row: row.group.state,
    "members": lambda row: row.group.members,
    "lag": lambda row: row.group.lag,
    "late": lambda row: row.late_ms,
}


def list_groups(call: PageCall) -> Response:
    """Show the groups, from the snapshot."""
    snapshot = call.connection.group_snapshot()
    wanted, state, kind = call.query("q").strip(), call.query("state"), call.query("type")
    found = [
        each
        for each in snapshot.groups.values()
        if wanted.lower() in each.group_id.lower()
        and (not state or each.state == state)
        and (not kind or each.type == kind)
    ]
    rows: Sequence[GroupRow] = [
        GroupRow(
            group=each,
            trend=None,
            late_ms=None if each.unread_since_ms is None else max(0, snapshot.taken_ms - each.unread_since_ms),
        )
        for each in found
    ]
    rows, sort = sort_by(rows, call.query("sort", "-lag"), _SORTS)
    page = PageOfRows(rows, call.number("page", 1, least=1))
    page.rows = [
        GroupRow(group=row.group, trend=call.connection.trend(row.group_id), late_ms=row.late_ms) for row in page.rows
    ]
    return call.page(
        "groups.html.j2",
        snapshot=snapshot,
        trouble=call.connection.groups.trouble,
        rows=page,
        sort=sort,
        wanted=wanted,
        state=state,
        kind=kind,
        states=sorted({each.state for each in snapshot.groups.values()}),
        kinds=sorted({each.type for each in snapshot.groups.values()}),
    )


def show_group(call: PageCall) -> Response:
    """Show one group: state, members, and the lag in each partition."""
    group_id = _group_id(call)
    admin = call.connection.admin
    details = admin.describe_group(group_id)
    lags = admin.group_lag(group_id, times=True)
    if not details.exists and not lags:
        raise HTTPException(404, f"There is no group {group_id}.")
    flight, refused = {}, ""
    if details.type == SHARE:
        try:
            flight = admin.describe_share_partitions(group_id)
        except ApiError as error:
            refused = str(error)
    known = [each.lag for each in lags.values() if each.lag is not None]
    since = [each.unread_since_ms for each in lags.values() if each.unread_since_ms is not None]
    rows = [(tp, each, flight.get(tp)) for tp, each in lags.items()]
    if call.query("sort") == "lag":
        rows.sort(key=lambda row: -(row[1].lag or 0))
    return call.page(
        "group.html.j2",
        group=details,
        page=PageOfRows(rows, call.number("page", 1, least=1), _PARTITIONS_PAGE),
        lag=sum(known) if known else None,
        since_ms=min(since, default=None),
        trend=call.connection.trend(group_id),
        chart=call.connection.lag_chart(group_id),
        refused=refused,
        topics=sorted({tp.topic for tp in lags}),
    )


def ask_for_reset(call: PageCall) -> Response:
    """Show the form of a reset and, once it is filled, the offsets of each partition before and after."""
    group_id = _group_id(call)
    details = call.connection.admin.describe_group(group_id)
    given = {name: call.query(name) for name in ("to", "time", "offset", "shift", "topic", "partitions")}
    changes, problem = [], ""
    if given["to"]:
        try:
            changes = _planned(call, group_id, details.type, given)
        except ConfigError as error:
            problem = str(error)
        except ApiError as error:
            if error.code is not ErrorCode.NON_EMPTY_GROUP:
                raise
            problem = f"{error}. Stop its members first: offsets of a group that reads cannot be reset."
    offsets = call.connection.admin.group_offsets(group_id) if details.type != SHARE else {}
    starts = call.connection.admin.share_group_offsets(group_id) if details.type == SHARE else {}
    return call.page(
        "group_reset.html.j2",
        400 if problem else 200,
        group=details,
        given=given,
        changes=changes,
        problem=problem,
        targets=_TARGETS,
        topics=sorted({tp.topic for tp in (*offsets, *starts)}),
    )


def _planned(call: PageCall, group_id: str, kind: str, given: Mapping[str, str]) -> list[Any]:
    """Return what a reset would change. Raises `BarnabasError`."""
    to, target = given["to"], dict[str, Any]()
    if to in ("earliest", "latest"):
        target["to"] = to
    elif to == "time":
        zone = zone_of(call.request.cookies.get("zone", "")) or UTC
        target["timestamp_ms"] = parse_time(given["time"], zone)
    elif to in ("offset", "shift"):
        target[to] = whole(given[to], to)
    else:
        raise ConfigError(f"reset to {to[:20]!r}: choose one of {', '.join(_TARGETS)}")
    topics: list[Any] | None = None
    if given["topic"]:
        numbers = [whole(each, "partitions") for each in given["partitions"].replace(",", " ").split()]
        topics = [TopicPartition(given["topic"], each) for each in numbers] or [given["topic"]]
    admin = call.connection.admin
    reset = admin.reset_share_group_offsets if kind == SHARE else admin.reset_group_offsets
    return list(reset(group_id, topics=topics, dry_run=True, **target))


def reset(call: PageCall) -> Response:
    """Set the offsets that the form has for each partition."""
    group_id = call.form.get("id", "")
    details = call.connection.admin.describe_group(group_id)
    offsets: dict[Any, int] = {}
    for name, value in call.form.items():
        topic, _, partition = name.removeprefix("offset:").rpartition("-")
        if name.startswith("offset:") and value.strip():
            offsets[TopicPartition(topic, whole(partition, "partition"))] = whole(value.strip(), name)
    if not offsets:
        raise ConfigError("there are no offsets to set")
    shown = ", ".join(f"{tp}={offset}" for tp, offset in sorted(offsets.items())[:20])
    with call.change(f"reset {len(offsets)} offsets of group {group_id}: {shown}"):
        if details.type == SHARE:
            call.connection.admin.alter_share_group_offsets(group_id, offsets)
        else:
            if not details.exists and not call.connection.admin.group_offsets(group_id):
                raise ConfigError(f"group {group_id} does not exist")
            call.connection.admin.alter_group_offsets(group_id, offsets)
    return call.redirect(f"/group?id={segment(group_id)}", f"{len(offsets)} offsets of {group_id} were reset.")


def delete(call: PageCall) -> Response:
    """Delete a group without members after its name was typed, or its offsets in one topic."""
    group_id, topic = call.form.get("id", ""), call.form.get("topic", "")
    if topic:
        with call.change(f"delete the offsets of group {group_id} in topic {topic}"):
            details = call.connection.admin.describe_group(group_id)
            if details.type == SHARE:
                call.connection.admin.delete_share_group_offsets(group_id, [topic])
            else:
                call.connection.admin.delete_group_offsets(group_id, [topic])
        return call.redirect(f"/group?id={segment(group_id)}", f"{group_id} has no offsets in {topic} any longer.")
    if call.form.get("name", "").strip() != group_id:
        raise ConfigError("the typed name does not match the group; nothing was deleted")
    with call.change(f"delete group {group_id}"):
        call.connection.admin.delete_group(group_id)
    call.connection.groups.refresh()
    return call.redirect("/groups", f"Group {group_id} was deleted.")


def groups_of_topic(call: PageCall) -> Response:
    """Show the groups that read a topic, from the snapshot."""
    topic = describe(call)
    snapshot = call.connection.group_snapshot()
    rows = [each for each in snapshot.groups.values() if topic.name in each.topics]
    return call.page(
        "topic_groups.html.j2",
        topic=topic,
        tab="groups",
        snapshot=snapshot,
        trouble=call.connection.groups.trouble,
        page=PageOfRows(rows, call.number("page", 1, least=1)),
    )


def _group_id(call: PageCall) -> str:
    found = call.query("id")
    if not found:
        raise HTTPException(404, "The address names no group.")
    return found


PAGES = (
    PageRoute("/groups", list_groups),
    PageRoute("/group", show_group),
    PageRoute("/group/reset", ask_for_reset),
    PageRoute("/group/reset", reset, ("POST",)),
    PageRoute("/group/delete", delete, ("POST",)),
    PageRoute("/topics/{topic}/groups", groups_of_topic),
)
