"""The reports in the audit topic: three kinds of JSON objects, each small enough for a message.

counts:   number and sequences of messages of a topic and window that a tier counted since its last report.
reach:    the time up to which the tier has counted everything in its source, per partition.
instance: a producer runs, or has reported everything and ended.

Each has the reporter's name (`by`) and a number (`n`), so that duplicates are dropped.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve

from ..ports.values import frozen
from .ranges import Range

TOPIC = "_audit"
PRODUCER = "producer"
BROKER = "broker"
WINDOW_MS = 600_000
RANGES_MAX = 2000
"""Maximum number of ranges in a report; more are split."""
_VERSION = 1


@frozen(kw_only=True)
class Reporter:
    """The sender of reports. Times in ms since 1970."""

    tier: str
    after: str = ""
    """The previous tier; "" for producers."""
    writes: bool = False
    """True if it counts messages when it writes them; others count later."""
    by: str
    number: int = 0
    time_ms: int = 0


@frozen(kw_only=True)
class CountReport:
    """Messages of one topic, window and instance that a tier counted since the last report."""

    origin: Reporter
    topic: str
    window_ms: int
    width_ms: int
    instance: str = ""
    """"" for messages without a stamp: only their number is known."""
    count: int
    ranges: Sequence[Range] = ()
    delays: Mapping[int, int] = {}
    failed: bool = False
    """True for messages of a producer without an acknowledgement."""


@frozen(kw_only=True)
class TopicReach:
    """The progress of a tier in a topic."""

    partitions: int
    upto_ms: Mapping[int, int]
    """Partition → the time up to which everything is counted."""
    since_ms: int = 0
    """Earlier messages are not covered: the tier began at the end of the topic then."""


@frozen(kw_only=True)
class ReachReport:
    """The reach of a tier, by topic."""

    origin: Reporter
    topics: Mapping[str, TopicReach]


@frozen(kw_only=True)
class InstanceReport:
    """The state of an instance of a producer; `by` is its name."""

    origin: Reporter
    closed: bool


Report = CountReport | ReachReport | InstanceReport
_KINDS = {CountReport: "counts", ReachReport: "reach", InstanceReport: "instance"}


def encode(report: Report) -> bytes:
    """Encode a report as JSON."""
    origin = report.origin
    kind = _KINDS[type(report)]
    tree: dict[str, Any] = {"v": _VERSION, "kind": kind, "tier": origin.tier, "after": origin.after}
    tree |= {"writes": True} if origin.writes else {}
    tree |= {"by": origin.by, "n": origin.number, "time": origin.time_ms}
    if isinstance(report, CountReport):
        tree |= {"topic": report.topic, "window": report.window_ms, "width": report.width_ms}
        tree |= {"instance": report.instance, "count": report.count, "ranges": report.ranges}
        tree |= {"delays": report.delays} | ({"failed": True} if report.failed else {})
    elif isinstance(report, ReachReport):
        tree["topics"] = {
            topic: {"partitions": reach.partitions, "upto": reach.upto_ms, "since": reach.since_ms}
            for topic, reach in report.topics.items()
        }
    else:
        tree["closed"] = report.closed
    return json.dumps(tree, separators=(",", ":")).encode()


def decode(data: bytes | None) -> Report | None:
    """Decode a report; return None for anything else: a tombstone, a later version, data of others."""
    try:
        tree = json.loads(data or b"")
        return _decode(tree) if tree["v"] == _VERSION else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _decode(tree: Mapping[str, Any]) -> Report | None:
    origin = Reporter(
        tier=str(tree["tier"]),
        after=str(tree["after"]),
        writes=bool(tree.get("writes", False)),
        by=str(tree["by"]),
        number=_int(tree["n"]),
        time_ms=_int(tree["time"]),
    )
    if tree["kind"] == "counts":
        return CountReport(
            origin=origin,
            topic=str(tree["topic"]),
            window_ms=_int(tree["window"]),
            width_ms=max(1, _int(tree["width"])),
            instance=str(tree["instance"]),
            count=_int(tree["count"]),
            ranges=[_range(*pair) for pair in tree["ranges"]],
            delays={_int(bucket): _int(count) for bucket, count in tree["delays"].items()},
            failed=bool(tree.get("failed", False)),
        )
    if tree["kind"] == "reach":
        return ReachReport(origin=origin, topics={str(topic): _reach(each) for topic, each in tree["topics"].items()})
    if tree["kind"] == "instance":
        return InstanceReport(origin=origin, closed=bool(tree["closed"]))
    return None


def _reach(tree: Mapping[str, Any]) -> TopicReach:
    upto = {_int(partition): _int(time_ms) for partition, time_ms in tree["upto"].items()}
    return TopicReach(partitions=_int(tree["partitions"]), upto_ms=upto, since_ms=_int(tree["since"]))


def _int(value: Any) -> int:
    number = int(value)
    if not 0 <= number < 2**64:
        raise ValueError(f"{number} is not a number of a report")
    return number


def _range(first: Any, last: Any) -> Range:
    found = (_int(first), _int(last))
    if found[0] > found[1]:
        raise ValueError(f"{found} is not a range")
    return found


def in_pieces(report: CountReport) -> Iterator[CountReport]:
    """Split a report that has too many ranges."""
    if len(report.ranges) <= RANGES_MAX:
        yield report
        return
    left = report.delays
    for start in range(0, len(report.ranges), RANGES_MAX):
        ranges = report.ranges[start : start + RANGES_MAX]
        count = sum(last - first + 1 for first, last in ranges)
        yield evolve(report, ranges=ranges, count=count, delays=left)
        left = {}
