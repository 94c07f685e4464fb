"""The tiers: which messages of tiered topics are on the disks of brokers, in remote storage, or in both."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from ... import BarnabasError
from ...app.tiers import Stored, TierTopic, read_tiers, total
from ..application import PageCall, PageRoute
from ..connection import StillReading
from ..paging import PageOfRows, sort_by
from .topics import describe

_SORTS = {
    "topic": lambda row: row.name,
    "partitions": lambda row: len(row.partitions),
    "remote": lambda row: row.remote_only,
    "both": lambda row: row.both,
    "waiting": lambda row: row.local_only,
    "since": lambda row: None if row.waiting_since_ms is None else -row.waiting_since_ms,
    "local": lambda row: row.local_bytes,
    "stored": lambda row: row.stored_bytes,
}
_PARTITIONS_PAGE = 200


def _stored(call: PageCall) -> tuple[Stored | None, str]:
    """Return what the remote storage has, or why that is not known; neither where the console has none."""
    watched = call.console.store
    if watched is None:
        return None, ""
    try:
        found: Stored = watched.current()
    except StillReading:
        return None, "The remote storage is being read."
    except BarnabasError as error:
        return None, str(error)
    return found, "" if watched.trouble is None else str(watched.trouble)


def tiers(call: PageCall) -> Response:
    """Show the tiered topics, from a snapshot."""
    snapshot = call.connection.tier_snapshot()
    _, problem = _stored(call)
    wanted = call.query("q").strip()
    rows: Sequence[TierTopic] = [each for each in snapshot.topics if wanted.lower() in each.name.lower()]
    rows, sort = sort_by(rows, call.query("sort", "topic"), _SORTS)
    return call.page(
        "tiers.html.j2",
        snapshot=snapshot,
        trouble=call.connection.tiers.trouble,
        problem=problem,
        rows=PageOfRows(rows, call.number("page", 1, least=1)),
        sort=sort,
        wanted=wanted,
        has_store=call.console.store is not None,
        local_bytes=total([each.local_bytes for each in snapshot.topics]),
        stored_bytes=total([each.stored_bytes for each in snapshot.topics]),
    )


def topic_tiers(call: PageCall) -> Response:
    """Show the tiers of each partition of one topic."""
    topic = describe(call)
    stored, problem = _stored(call)
    found = next(iter(read_tiers(call.connection.admin, [topic], stored).topics), None)
    page = PageOfRows([] if found is None else found.partitions, call.number("page", 1, least=1), _PARTITIONS_PAGE)
    return call.page(
        "topic_tiers.html.j2",
        topic=topic,
        tab="tiers",
        found=found,
        page=page,
        problem=problem,
        has_store=call.console.store is not None,
    )


PAGES = (PageRoute("/tiers", tiers), PageRoute("/topics/{topic}/tiers", topic_tiers))
