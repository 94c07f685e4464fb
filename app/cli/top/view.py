"""The rows of a state; pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ....ports.report import counted
from ....ports.values import frozen
from ..cluster.status import DOWN, NO_NODE
from ..tables import clean, size_text
from .state import Rate, TailedMessage, TopState, index_of

_TABLE_KEYS = "b brokers  t topics  g groups   ↑↓ j k move  enter open  / filter  p pause  esc back  q quit"
_MESSAGE_KEYS = "↑↓ j k move  / search (key=TEXT: in keys only)  p pause  esc back  q quit"
_COLUMNS = {
    "brokers": ("broker", "address", "leaders", "replicas", "in_sync", "size", "lag", "state"),
    "topics": ("topic", "partitions", "messages/s", "bytes/s", "end", "size", "state"),
    "groups": ("group", "state", "members", "lag", "topics"),
}
_MESSAGE_COLUMNS = ("partition", "offset", "time", "key", "value")
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
    rows = _message_rows(state) if state.opened is not None else _table_rows(state)
    names = [row.name for row in rows]
    tabs = [(tab, tab == state.tab and state.opened is None) for tab in _COLUMNS]
    if state.opened is not None:
        tabs.append((f"topic {clean(state.opened)}", True))
    return View(
        head=_head(state),
        tabs=tabs,
        notice=_notice(state),
        columns=_COLUMNS[state.tab] if state.opened is None else _MESSAGE_COLUMNS,
        rows=rows,
        selected=index_of(state.at, names),
        foot=_foot(state, len(rows)),
    )


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
    if state.opened is not None and state.topics is not None and state.opened not in {t.name for t in state.topics}:
        return f"topic {clean(state.opened)} does not exist; esc goes back"
    if state.opened is not None and state.tailed.problem:
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


def _foot(state: TopState, shown: int) -> str:
    parts = []
    if state.paused:
        parts.append("PAUSED")
    if state.opened is not None:
        newest = counted(len(state.tailed.messages), "message") if state.text else counted(shown, "message")
        parts.append(f"{shown} of the newest {newest}" if state.text else f"the newest {newest}")
        if state.tailed.missed:
            parts.append(f"{state.tailed.missed} more skipped")
    if state.editing:
        return "   ".join([f"/{state.text}▏", *parts, "enter applies the text, esc clears it"])
    if state.text:
        parts.append(f"/{state.text}")
    parts.append(_TABLE_KEYS if state.opened is None else _MESSAGE_KEYS)
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
            broker.problem or ("up, controller" if broker.controller else "up"),
        )
        for broker in (state.look.status.brokers if state.look else ())
    ]


def _topic_rows(state: TopState) -> list[ShownRow]:
    rows = []
    for topic in state.topics or ():
        rate = state.rates.get(topic.name, Rate())
        figures = (number_text(rate.messages), rate_text(rate.bytes), topic.end, size_text(topic.bytes))
        rows.append(_row(topic.name, topic.name, topic.partitions, *figures, topic.trouble or "ok"))
    return rows


def _group_rows(state: TopState) -> list[ShownRow]:
    groups = state.groups or ()
    return [_row(g.name, g.name, g.state, g.members, g.lag, ",".join(g.topics) or "-") for g in groups]


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
