"""The state of `top`, and its changes by keys, snapshots and messages; pure, for tests without a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from ....ports.types import TopicPartition
from ....ports.values import frozen
from ..groups.trend import Trend, trend_of
from .look import BrokerDetail, GroupDetail, GroupFigures, Look, PartitionFigures, Tab, TopicFigures

FILTER_MAX = 100
"""Maximum length of a filter."""
PAGE = 10
"""Rows per Page Up and Page Down."""
APART_S = 0.5
"""Minimum distance of two snapshots for a rate."""

Sort = Literal["name", "rate", "lag", "size"]
_TABS: Mapping[str, Tab] = {"b": "brokers", "t": "topics", "g": "groups"}
_SORTS: Mapping[str, Sort] = {"n": "name", "r": "rate", "l": "lag", "s": "size"}
PANES: Mapping[Tab, Sequence[str]] = {
    "topics": ("messages", "partitions"),
    "groups": ("partitions", "members"),
    "brokers": ("connections",),
}
"""The views of an open row on each tab; the Tab key shows the next one."""
_STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -PAGE, "page down": PAGE}
_FAR = {"home": 0, "end": -1}


@frozen
class Rate:
    """Rates per second; None if unknown (the first snapshot, a topic that was created again, deleted files)."""

    messages: float | None = None
    bytes: float | None = None


@frozen(kw_only=True)
class TailedMessage:
    """A message of the open topic, as text."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    value: str | None
    headers: str = ""


@frozen(kw_only=True)
class Tailed:
    """The messages of the open topic, the newest first. `missed`: number of skipped messages."""

    messages: Sequence[TailedMessage] = ()
    missed: int = 0
    problem: str = ""


@frozen(kw_only=True)
class TopState:
    """opened: the name of the open topic, group or broker, of which `pane` is shown. gone: the error if the cluster
    does not answer. Rates are between the snapshots `before` and `look`, trends of groups between `groups_before` and
    `look`."""

    tab: Tab = "topics"
    opened: str | None = None
    pane: str = "messages"
    sort: Sort = "name"
    help: bool = False
    filter: str = ""
    search: str = ""
    editing: bool = False
    paused: bool = False
    selected: str | None = None
    selected_message: str | None = None
    look: Look | None = None
    topics: Sequence[TopicFigures] | None = None
    partitions: Sequence[PartitionFigures] | None = None
    groups: Sequence[GroupFigures] | None = None
    detail: GroupDetail | BrokerDetail | None = None
    before: Look | None = None
    rates: Mapping[str, Rate] = attrs.field(factory=dict)
    partition_rates: Mapping[TopicPartition, Rate] = attrs.field(factory=dict)
    groups_before: Look | None = None
    group_trends: Mapping[str, Trend] = attrs.field(factory=dict)
    gone: str = ""
    tailed: Tailed = Tailed()
    done: bool = False

    @property
    def text(self) -> str:
        """Return the text by which rows are filtered."""
        return self.filter if self.opened is None else self.search

    @property
    def at(self) -> str | None:
        """Return the name of the selected row; None: the first one."""
        return self.selected if self.opened is None else self.selected_message


def looked(state: TopState, look: Look) -> TopState:
    """Apply a snapshot."""
    if state.paused:
        return state
    changed = attrs.evolve(state, look=look, gone="")
    if look.groups is not None:
        changed = _with_trends(attrs.evolve(changed, groups=look.groups), look)
    if look.detail is not None and look.detail.name == state.opened:
        changed = attrs.evolve(changed, detail=look.detail)
    if look.topics is None:
        return changed
    changed = attrs.evolve(changed, topics=look.topics, partitions=look.partitions)
    before = state.before
    if before is None:
        return attrs.evolve(changed, before=look)
    if look.at_s - before.at_s < APART_S:
        return changed
    partition_rates = partition_rates_of(before, look)
    return attrs.evolve(changed, before=look, rates=rates_of(before, look), partition_rates=partition_rates)


def _with_trends(state: TopState, look: Look) -> TopState:
    """Apply the groups of a snapshot: how their lags change since the one before."""
    before = state.groups_before
    if before is None:
        return attrs.evolve(state, groups_before=look)
    seconds = look.at_s - before.at_s
    if seconds < APART_S:
        return state
    old = {group.name: (group.lag, None) for group in before.groups or ()}
    trends = {group.name: trend_of(old.get(group.name), (group.lag, None), seconds) for group in look.groups or ()}
    return attrs.evolve(state, groups_before=look, group_trends=trends)


def rates_of(before: Look, now: Look) -> dict[str, Rate]:
    """Return the rates of each topic between two snapshots with topics."""
    seconds = now.at_s - before.at_s
    old = {topic.name: topic for topic in before.topics or ()}
    return {
        topic.name: Rate(
            _per_second(old[topic.name].end, topic.end, seconds),
            _per_second(old[topic.name].bytes, topic.bytes, seconds),
        )
        for topic in now.topics or ()
        if topic.name in old
    }


def partition_rates_of(before: Look, now: Look) -> dict[TopicPartition, Rate]:
    """Return the rates of each partition between two snapshots with topics."""
    seconds = now.at_s - before.at_s
    old = {each.tp: each for each in before.partitions or ()}
    return {
        each.tp: Rate(
            _per_second(old[each.tp].end, each.end, seconds), _per_second(old[each.tp].bytes, each.bytes, seconds)
        )
        for each in now.partitions or ()
        if each.tp in old
    }


def _per_second(before: int | None, now: int | None, seconds: float) -> float | None:
    return None if before is None or now is None or now < before or seconds <= 0 else (now - before) / seconds


def failed(state: TopState, why: str) -> TopState:
    """Apply an error of the cluster; the last snapshot remains."""
    return attrs.evolve(state, gone=why)


def arrived(state: TopState, topic: str, tailed: Tailed) -> TopState:
    """Apply new messages, or the reason for none."""
    return state if state.paused or state.opened != topic else attrs.evolve(state, tailed=tailed)


def pressed(state: TopState, key: str, names: Sequence[str]) -> TopState:
    """Apply a key. `names`: the shown rows, from top to bottom."""
    if key == "ctrl-c":
        return attrs.evolve(state, done=True)
    if state.help:
        return attrs.evolve(state, help=False, done=key == "q")
    if state.editing:
        return _edited(state, key)
    if key in _SORTS:
        return attrs.evolve(state, sort=_SORTS[key])
    if key in _STEPS or key in _FAR:
        return _moved(state, key, names)
    if key in _TABS:
        return attrs.evolve(state, tab=_TABS[key], opened=None, paused=False, selected=None, filter="")
    match key:
        case "q":
            return attrs.evolve(state, done=True)
        case "p" | " ":
            return attrs.evolve(state, paused=not state.paused)
        case "/":
            return attrs.evolve(state, editing=True)
        case "esc":
            return _back(state)
        case "enter":
            return _opened(state, names)
        case "tab":
            return _next_pane(state)
        case "?":
            return attrs.evolve(state, help=True)
    return state


def _next_pane(state: TopState) -> TopState:
    panes = PANES[state.tab]
    if state.opened is None or len(panes) == 1:
        return state
    following = panes[(panes.index(state.pane) + 1) % len(panes)]
    return attrs.evolve(state, pane=following, search="", selected_message=None)


def _back(state: TopState) -> TopState:
    """Clear the filter, or close what is open."""
    if state.text:
        return _with_text(state, "")
    return attrs.evolve(state, opened=None, paused=False)


def _opened(state: TopState, names: Sequence[str]) -> TopState:
    if state.opened is not None or not names:
        return state
    return attrs.evolve(
        state,
        opened=names[index_of(state.at, names)],
        pane=PANES[state.tab][0],
        detail=None,
        paused=False,
        search="",
        selected_message=None,
        tailed=Tailed(),
    )


def _moved(state: TopState, key: str, names: Sequence[str]) -> TopState:
    if not names:
        return state
    to = _FAR[key] if key in _FAR else max(0, min(len(names) - 1, index_of(state.at, names) + _STEPS[key]))
    # On the first row, the selection follows the newest message.
    if state.opened is not None:
        return attrs.evolve(state, selected_message=names[to] if to else None)
    return attrs.evolve(state, selected=names[to])


def index_of(name: str | None, names: Sequence[str]) -> int:
    """Return the index of the selected row; the first one if it is gone."""
    return names.index(name) if name is not None and name in names else 0


def _edited(state: TopState, key: str) -> TopState:
    match key:
        case "enter":
            return attrs.evolve(state, editing=False)
        case "esc":
            return _with_text(attrs.evolve(state, editing=False), "")
        case "backspace":
            return _with_text(state, state.text[:-1])
    if len(key) == 1 and key.isprintable() and len(state.text) < FILTER_MAX:
        return _with_text(state, state.text + key)
    return state


def _with_text(state: TopState, text: str) -> TopState:
    if state.opened is None:
        return attrs.evolve(state, filter=text)
    return attrs.evolve(state, search=text)
