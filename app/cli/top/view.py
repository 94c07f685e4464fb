"""The rows of a state; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from ....ports.report import counted
from ....ports.values import frozen
from ..cluster.status import DOWN, NO_NODE
from ..groups.trend import Trend, deliveries_text, done_in_ms, done_in_text, trend_text
from ..tables import clean, list_text, size_text
from ..times import age_text
from .look import BrokerDetail, GroupDetail, PartitionFigures, TopicFigures
from .state import PANES, Rate, Sort, TailedMessage, TopState, index_of

T = TypeVar("T")

_TABLE_KEYS = "b brokers  t topics  g groups   ↑↓ j k move  enter open  / filter  n r l s sort  ? help  q quit"
_MESSAGE_KEYS = "tab partitions   ↑↓ j k move  / search (key=TEXT: in keys only)  p pause  esc back  ? help  q quit"
_DETAIL_KEYS = "↑↓ j k move  / filter  n r l s sort  p pause  esc back  ? help  q quit"
_HELP = (
    ("b  t  g", "show brokers, topics, groups"),
    ("↑ ↓  j k  PgUp PgDn  Home End", "move"),
    ("Enter", "open a topic (messages, partitions), a group (lag, members) or a broker (connections)"),
    ("Tab", "the other view of what is open"),
    ("n  r  l  s", "sort by name, rate (messages per second), lag, size (bytes); the largest first"),
    ("/", "filter rows by a text; of messages: search, key=TEXT in keys only"),
    ("p  Space", "pause and continue"),
    ("Esc", "clear the filter, or go back"),
    ("?", "this help; any key leaves it"),
    ("q  Ctrl-C", "quit"),
)
_COLUMNS = {
    "brokers": ("broker", "address", "leaders", "replicas", "in_sync", "size", "lag", "state"),
    "topics": ("topic", "partitions", "messages/s", "bytes/s", "end", "size", "state"),
    "groups": ("group", "state", "type", "members", "lag", "trend", "done_in", "topics"),
}
_PANE_COLUMNS = {
    "messages": ("partition", "offset", "time", "key", "value"),
    "topics": ("partition", "leader", "messages/s", "bytes/s", "end", "size", "replicas", "isr"),
    "groups": ("topic", "partition", "committed", "end", "lag", "lag_time", "client_id", "host"),
    "share groups": (
        *("topic", "partition", "start_offset", "end", "lag", "lag_time"),
        *("acquired", "available", "given_up", "deliveries", "members"),
    ),
    "members": ("client_id", "host", "instance", "epoch", "partitions", "member", "assignment"),
    "connections": ("client_id", "software", "address", "principal", "age", "requests", "in", "out", "listener"),
}
"""The columns of what is open, by its pane, or by its tab for its partitions."""
NULL = "NULL"


@frozen
class ShownRow:
    """A row; keys select it by `name`."""

    name: str
    cells: Sequence[str]


@frozen(kw_only=True)
class View:
    """The content of the screen, from top to bottom."""

    head: str
    tabs: Sequence[tuple[str, bool]]
    notice: str
    """The problem; empty without one."""
    columns: Sequence[str]
    rows: Sequence[ShownRow]
    selected: int
    foot: str

    @property
    def names(self) -> list[str]:
        return [row.name for row in self.rows]


def view_of(state: TopState) -> View:
    if state.help:
        return _help(state)
    rows = _pane_rows(state) if state.opened is not None else _table_rows(state)
    names = [row.name for row in rows]
    return View(
        head=_head(state),
        tabs=_tabs(state),
        notice=_notice(state),
        columns=_COLUMNS[state.tab] if state.opened is None else _PANE_COLUMNS[_pane(state)],
        rows=rows,
        selected=index_of(state.at, names),
        foot=_foot(state, len(rows)),
    )


def _help(state: TopState) -> View:
    rows = [ShownRow(keys, [keys, text]) for keys, text in _HELP]
    columns = ("keys", "what they do")
    return View(
        head=_head(state),
        tabs=[("help", True)],
        notice="",
        columns=columns,
        rows=rows,
        selected=-1,
        foot="any key: back",
    )


def _tabs(state: TopState) -> list[tuple[str, bool]]:
    tabs = [(tab, tab == state.tab and state.opened is None) for tab in _COLUMNS]
    if state.opened is not None:
        subject = f"{state.tab[:-1]} {clean(state.opened)}"
        labels = [f"{subject}: {PANES[state.tab][0]}", *PANES[state.tab][1:]]
        tabs += [(label, pane == state.pane) for label, pane in zip(labels, PANES[state.tab], strict=True)]
    return tabs


def _pane(state: TopState) -> str:
    """Return the key of the open pane's columns."""
    if state.pane != "partitions":
        return state.pane
    is_share = isinstance(state.detail, GroupDetail) and state.detail.type == "share"
    return "share groups" if state.tab == "groups" and is_share else state.tab


def _head(state: TopState) -> str:
    if state.look is None:
        return "barnabas top"
    status = state.look.status
    controller = "no controller" if status.controller == NO_NODE else f"controller {status.controller}"
    topics, partitions = status.topics, status.partitions
    if not state.look.shows_internal:
        topics, partitions = topics - len(status.internal), partitions - sum(status.internal.values())
    counts = ((len(status.brokers), "broker"), (topics, "topic"), (partitions, "partition"))
    return ", ".join([f"cluster {status.cluster_id}", controller, *(counted(*each) for each in counts)])


def _notice(state: TopState) -> str:
    if state.gone:
        return f"the cluster does not answer: {state.gone}" + ("; showing the last known state" if state.look else "")
    if state.opened is not None and not _exists(state):
        return f"{state.tab[:-1]} {clean(state.opened)} does not exist; esc goes back"
    if state.opened is not None and state.tab == "topics" and state.tailed.problem:
        return state.tailed.problem
    if state.look is None:
        return ""
    status = state.look.status
    down = sum(broker.problem == DOWN for broker in status.brokers)
    troubled = sum(broker.problem is not None for broker in status.brokers) - down
    words = (
        (len(status.offline), "offline partition", ""),
        (len(status.under_replicated), "under-replicated partition", ""),
        (down, "broker", " down"),
        (troubled, "broker", " with a problem"),
    )
    said = [f"{counted(number, thing)}{state}" for number, thing, state in words if number]
    return ", ".join([*said, state.look.problem] if state.look.problem else said)


def _exists(state: TopState) -> bool:
    """Return False if what is open is known to be gone."""
    if state.tab == "topics":
        return state.topics is None or state.opened in {topic.name for topic in state.topics}
    if state.tab == "groups":
        return not isinstance(state.detail, GroupDetail) or state.detail.exists
    return state.look is None or state.opened in {str(broker.id) for broker in state.look.status.brokers}


def _foot(state: TopState, shown: int) -> str:
    parts = []
    shows_messages = state.opened is not None and state.pane == "messages"
    if state.paused:
        parts.append("PAUSED")
    if state.sort != "name" and not shows_messages:
        parts.append(f"by {state.sort}")
    if shows_messages:
        newest = counted(len(state.tailed.messages), "message") if state.text else counted(shown, "message")
        parts.append(f"{shown} of the newest {newest}" if state.text else f"the newest {newest}")
        if state.tailed.missed:
            parts.append(f"{state.tailed.missed} more skipped")
    if state.editing:
        return "   ".join([f"/{state.text}▏", *parts, "enter applies the text, esc clears it"])
    if state.text:
        parts.append(f"/{state.text}")
    if state.opened is None:
        parts.append(_TABLE_KEYS)
    elif shows_messages:
        parts.append(_MESSAGE_KEYS)
    else:
        other = [pane for pane in PANES[state.tab] if pane != state.pane]
        parts += [f"tab {pane}" for pane in other] + [_DETAIL_KEYS]
    return "   ".join(parts)


# --- tables


def _table_rows(state: TopState) -> list[ShownRow]:
    rows = {"brokers": _broker_rows, "topics": _topic_rows, "groups": _group_rows}[state.tab](state)
    wanted = state.filter.casefold()
    return [row for row in rows if not wanted or any(wanted in cell.casefold() for cell in _searched(state, row))]


def _searched(state: TopState, row: ShownRow) -> Sequence[str]:
    """Return the searched texts: names and states, since a digit would match every number."""
    return row.cells if state.tab == "brokers" else (row.cells[0], row.cells[-1])


def _broker_rows(state: TopState) -> list[ShownRow]:
    brokers = state.look.status.brokers if state.look else ()
    return [
        _row(
            str(broker.id),
            broker.id,
            broker.address,
            broker.leaders,
            broker.replicas,
            broker.in_sync,
            size_text(broker.bytes),
            broker.lag,
            broker.problem or (f"{broker.state}, controller" if broker.controller else broker.state),
        )
        for broker in _sorted(brokers, state.sort, lag=lambda b: b.lag, size=lambda b: b.bytes)
    ]


def _topic_rows(state: TopState) -> list[ShownRow]:
    def rate(topic: TopicFigures) -> float | None:
        return state.rates.get(topic.name, Rate()).messages

    rows = []
    for topic in _sorted(state.topics or (), state.sort, rate=rate, size=lambda t: t.bytes):
        found = state.rates.get(topic.name, Rate())
        figures = (number_text(found.messages), rate_text(found.bytes), topic.end, size_text(topic.bytes))
        rows.append(_row(topic.name, topic.name, topic.partitions, *figures, topic.trouble or "ok"))
    return rows


def _group_rows(state: TopState) -> list[ShownRow]:
    rows = []
    for group in _sorted(state.groups or (), state.sort, lag=lambda g: g.lag):
        trend = state.group_trends.get(group.name, Trend())
        figures = (group.lag, trend_text(trend.messages), done_in_text(done_in_ms(group.lag, trend)))
        topics = ",".join(group.topics) or "-"
        rows.append(_row(group.name, group.name, group.state, group.type, group.members, *figures, topics))
    return rows


def _sorted(
    rows: Sequence[T],
    sort: Sort,
    *,
    rate: Callable[[T], float | None] | None = None,
    lag: Callable[[T], float | None] | None = None,
    size: Callable[[T], float | None] | None = None,
) -> list[T]:
    """Return the rows with the largest first, unknown ones last; in their order if they do not have this figure."""
    figures: dict[Sort, Callable[[T], float | None] | None] = {"rate": rate, "lag": lag, "size": size}
    figure = figures.get(sort)
    if figure is None:
        return list(rows)

    def key(row: T) -> tuple[bool, float]:
        value = figure(row)
        return value is None, -(value or 0.0)

    return sorted(rows, key=key)


# --- what is open


def _pane_rows(state: TopState) -> list[ShownRow]:
    if state.pane == "messages":
        return _message_rows(state)
    rows = {
        "topics": _partition_rows,
        "groups": _lag_rows,
        "share groups": _share_rows,
        "members": _member_rows,
        "connections": _connection_rows,
    }[_pane(state)](state)
    wanted = state.search.casefold()
    return [row for row in rows if not wanted or any(wanted in cell.casefold() for cell in row.cells)]


def _partition_rows(state: TopState) -> list[ShownRow]:
    partitions = [each for each in state.partitions or () if each.topic == state.opened]

    def rate(each: PartitionFigures) -> float | None:
        return state.partition_rates.get(each.tp, Rate()).messages

    rows = []
    for each in _sorted(partitions, state.sort, rate=rate, size=lambda p: p.bytes):
        found = state.partition_rates.get(each.tp, Rate())
        figures = (number_text(found.messages), rate_text(found.bytes), each.end, size_text(each.bytes))
        leader = None if each.leader == NO_NODE else each.leader
        copies = (list_text(each.replicas), list_text(each.isr))
        rows.append(_row(str(each.partition), each.partition, leader, *figures, *copies))
    return rows


def _lag_rows(state: TopState) -> list[ShownRow]:
    if not isinstance(state.detail, GroupDetail):
        return []
    rows = []
    for tp, lag in _sorted(list(state.detail.partitions.items()), state.sort, lag=lambda item: item[1].lag):
        reader = (None, None) if lag.member is None else (lag.member.client_id, lag.member.client_host.lstrip("/"))
        since = "0s" if lag.lag == 0 else _age(state, lag.unread_since_ms)
        figures = (tp.topic, tp.partition, lag.committed, lag.end, lag.lag, since)
        rows.append(_row(str(tp), *figures, *reader))
    return rows


def _share_rows(state: TopState) -> list[ShownRow]:
    if not isinstance(state.detail, GroupDetail):
        return []
    rows = []
    for tp, lag in _sorted(list(state.detail.partitions.items()), state.sort, lag=lambda item: item[1].lag):
        since = "0s" if lag.lag == 0 else _age(state, lag.unread_since_ms)
        found = state.detail.in_flight.get(tp)
        flight: tuple[object, ...] = (None, None, None, None)
        if found is not None:
            counts = {str(each.delivery_count): each.records for each in found.deliveries}
            flight = (found.acquired, found.available, found.archived, deliveries_text(counts) or None)
        figures = (tp.topic, tp.partition, lag.committed, lag.end, lag.lag, since)
        rows.append(_row(str(tp), *figures, *flight, len(lag.members)))
    return rows


def _member_rows(state: TopState) -> list[ShownRow]:
    members = state.detail.members if isinstance(state.detail, GroupDetail) else ()
    return [
        _row(
            member.member_id,
            member.client_id,
            member.client_host.lstrip("/"),
            member.group_instance_id,
            member.member_epoch,
            len(member.assignment),
            member.member_id,
            list_text(sorted(map(str, member.assignment))),
        )
        for member in members
    ]


def _connection_rows(state: TopState) -> list[ShownRow]:
    connections = state.detail.connections if isinstance(state.detail, BrokerDetail) else ()
    return [
        _row(
            str(each.connection_id),
            each.client_id,
            f"{each.software_name} {each.software_version}".strip() or None,
            f"{each.host}:{each.port}",
            each.principal,
            _age(state, each.connected_at_ms),
            each.requests,
            size_text(each.bytes_in),
            size_text(each.bytes_out),
            each.listener,
        )
        for each in _sorted(connections, state.sort, rate=lambda c: c.requests, size=lambda c: c.bytes_in + c.bytes_out)
    ]


def _age(state: TopState, since_ms: int | None) -> str | None:
    if since_ms is None or since_ms < 0 or state.look is None:
        return None
    return age_text(state.look.at_ms - since_ms).replace(" ", "")


def _row(name: str, *cells: object) -> ShownRow:
    return ShownRow(name, ["-" if cell is None else clean(str(cell)) for cell in cells])


def number_text(number: float | None) -> str:
    """Format a number: `0`, `0.5`, `12`, `3400`; a dash for None."""
    if number is None:
        return "-"
    return f"{number:.1f}" if 0 < number < 10 else f"{number:.0f}"


def rate_text(bytes_per_s: float | None) -> str:
    return "-" if bytes_per_s is None else size_text(round(bytes_per_s))


# --- messages


def _message_rows(state: TopState) -> list[ShownRow]:
    return [_message_row(message) for message in state.tailed.messages if found_in(message, state.search)]


def found_in(message: TailedMessage, wanted: str) -> bool:
    """Return True if key, value or headers contain the text, or for `key=TEXT` the key; case is ignored."""
    text = wanted.casefold()
    if text.startswith("key="):
        return text[4:] in (message.key or "").casefold()
    return any(text in (part or "").casefold() for part in (message.key, message.value, message.headers))


def _message_row(message: TailedMessage) -> ShownRow:
    value = NULL if message.value is None else message.value
    if message.headers:
        value = f"{value}  [{message.headers}]"
    return _row(
        f"{message.partition}:{message.offset}",
        message.partition,
        message.offset,
        time_text(message.timestamp_ms),
        message.key,
        value,
    )


def time_text(timestamp_ms: int | None) -> str | None:
    """Format a time in UTC, as commands accept it."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):  # producers may send any number
        return f"@{timestamp_ms}"
    return moment.strftime("%Y-%m-%dT%H:%M:%S")
