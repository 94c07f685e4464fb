"""Transactions: the transactional ids, one of them with its partitions, hanging ones, and the producers of a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from ... import ConfigError, TopicPartition
from ..application import PageCall, PageRoute
from ..paging import PageOfRows, sort_by
from .topics import describe, whole

_SORTS = {
    "id": lambda row: row.transactional_id,
    "state": lambda row: row.state,
    "producer": lambda row: row.producer_id,
    "coordinator": lambda row: row.coordinator,
}
_PRODUCERS_PARTITIONS_MAX = 200


def list_transactions(call: PageCall) -> Response:
    """Show the transactional ids, from the snapshot."""
    snapshot = call.connection.transaction_snapshot()
    wanted, state = call.query("q").strip(), call.query("state")
    rows: Sequence[Any] = [
        each
        for each in snapshot.listed
        if wanted.lower() in each.transactional_id.lower() and (not state or each.state == state)
    ]
    rows, sort = sort_by(rows, call.query("sort", "id"), _SORTS)
    return call.page(
        "transactions.html.j2",
        snapshot=snapshot,
        trouble=call.connection.transactions.trouble,
        rows=PageOfRows(rows, call.number("page", 1, least=1)),
        sort=sort,
        wanted=wanted,
        state=state,
        states=sorted({each.state for each in snapshot.listed}),
    )


def show_transaction(call: PageCall) -> Response:
    """Show one transactional id with the partitions of its transaction."""
    name = call.query("id")
    if not name:
        raise HTTPException(404, "The address names no transactional id.")
    found = call.connection.admin.describe_transaction(name)
    topic_partitions = [TopicPartition(topic, number) for topic, numbers in found.topics.items() for number in numbers]
    return call.page(
        "transaction.html.j2",
        transaction=found,
        topic_partitions=sorted(topic_partitions)[:1000],
        count=len(topic_partitions),
    )


def show_hanging(call: PageCall) -> Response:
    """Look for hanging transactions in one topic, or in all."""
    topic, minutes = call.query("topic").strip(), call.number("minutes", 15)
    found, asked = [], bool(call.query("minutes"))
    if asked:
        topics = [topic] if topic else None
        found = call.connection.admin.find_hanging_transactions(
            max_timeout_ms=minutes * 60_000, topics=topics, now_ms=time.time_ns() // 1_000_000
        )
    return call.page("transactions_hanging.html.j2", topic=topic, minutes=minutes, found=found, asked=asked)


def abort(call: PageCall) -> Response:
    """Abort a hanging transaction in one partition."""
    form = call.form
    tp = TopicPartition(form.get("topic", ""), whole(form.get("partition", ""), "partition"))
    producer_id = whole(form.get("producer_id", ""), "producer id")
    if not tp.topic:
        raise ConfigError("name the partition of the transaction")
    with call.change(f"abort the transaction of producer {producer_id} in {tp}"):
        call.connection.admin.abort_transaction(
            tp,
            producer_id=producer_id,
            producer_epoch=whole(form.get("producer_epoch", ""), "producer epoch"),
            coordinator_epoch=whole(form.get("coordinator_epoch", "-1"), "coordinator epoch"),
        )
    return call.redirect("/transactions/hanging?minutes=15", f"The transaction in {tp} was aborted.")


def producers(call: PageCall) -> Response:
    """Show the producers of a topic that its leaders know: idempotent and transactional ones."""
    topic = describe(call)
    shown = sorted(topic.partitions, key=lambda each: each.partition)[:_PRODUCERS_PARTITIONS_MAX]
    partitions = [TopicPartition(topic.name or "", each.partition) for each in shown if each.leader >= 0]
    found = call.connection.admin.describe_producers(partitions) if partitions else {}
    rows = [(tp, each) for tp, active in found.items() for each in active]
    rows.sort(key=lambda row: -row[1].last_timestamp_ms)
    return call.page(
        "topic_producers.html.j2", topic=topic, tab="producers", page=PageOfRows(rows, call.number("page", 1, least=1))
    )


PAGES = (
    PageRoute("/transactions", list_transactions),
    PageRoute("/transaction", show_transaction),
    PageRoute("/transactions/hanging", show_hanging),
    PageRoute("/transactions/abort", abort, ("POST",)),
    PageRoute("/topics/{topic}/producers", producers),
)
