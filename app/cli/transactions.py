"""`barnabas transactions`: list and describe transactions, find hanging ones, and abort them."""

from collections.abc import Sequence
from time import time
from typing import Annotated, Any

import typer
from attrs import asdict

from ...core.client.errors import TransactionError
from ...ports.errors import ConfigError
from ...ports.types import TopicPartition
from .options import AsJson, Bootstrap, open_admin, print_json, print_table
from .tables import list_text

transactions = typer.Typer(
    help="List and describe transactions; find hanging ones, and abort them.", no_args_is_help=True
)

MAX_TIMEOUT_MS = 900_000
"""The default of `transaction.max.timeout.ms`."""

PartitionArgument = Annotated[str, typer.Argument(metavar="TOPIC:PARTITION")]


def register(app: typer.Typer) -> None:
    app.add_typer(transactions, name="transactions")


@transactions.command("list")
def list_transactions(
    bootstrap: Bootstrap,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only in this state: Ongoing, Empty, ...; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="ID", help="Only of this producer; may be repeated.")
    ] = None,
    longer_than: Annotated[
        int,
        typer.Option("--longer-than", metavar="MS", help="Only those open for longer than this.", show_default=False),
    ] = -1,
    as_json: AsJson = False,
) -> None:
    """List the transactional ids with the states of their transactions."""
    with open_admin(bootstrap) as admin:
        found = admin.list_transactions(states=state or (), producer_ids=producer_id or (), duration_ms=longer_than)
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        columns = ("transactional id", "coordinator", "producer", "state")
        print_table(columns, ((e.transactional_id, e.coordinator, e.producer_id, e.state) for e in found))


@transactions.command("describe")
def describe_transaction(
    bootstrap: Bootstrap,
    name: Annotated[str, typer.Argument(metavar="ID")],
    as_json: AsJson = False,
) -> None:
    """Describe a transactional id: its producer, state and duration, and the partitions of the transaction."""
    with open_admin(bootstrap) as admin:
        (found,) = admin.describe_transactions([name])
        coordinator = admin.transaction_coordinator(name).node_id
    partitions = [f"{topic}:{number}" for topic, numbers in sorted(found.topics.items()) for number in sorted(numbers)]
    fields: dict[str, Any] = {
        "transactional_id": name,
        "coordinator": coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms if found.start_ms >= 0 else None,
        "duration_ms": max(0, _now_ms() - found.start_ms) if found.start_ms >= 0 else None,
        "partitions": partitions,
    }
    if as_json:
        print_json(fields)
        return
    fields["partitions"] = list_text(partitions)
    print_table(("field", "value"), ((key, "-" if value is None else value) for key, value in fields.items()))


@transactions.command("producers")
def describe_producers(
    bootstrap: Bootstrap,
    partitions: Annotated[list[str], typer.Argument(metavar="TOPIC:PARTITION...")],
    as_json: AsJson = False,
) -> None:
    """List the producers of a partition, and the start offsets of their open transactions."""
    with open_admin(bootstrap) as admin:
        found = admin.describe_producers([_topic_partition(each) for each in partitions])
    rows = [
        {"topic": tp.topic, "partition": tp.partition, **asdict(producer)}
        for tp, producers in found.items()
        for producer in producers
    ]
    _show(rows, _PRODUCER_COLUMNS, as_json)


@transactions.command("find-hanging")
def find_hanging(
    bootstrap: Bootstrap,
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only in this topic; may be repeated.")
    ] = None,
    max_timeout_ms: Annotated[
        int, typer.Option("--max-timeout-ms", metavar="MS", help="The brokers' transaction.max.timeout.ms.")
    ] = MAX_TIMEOUT_MS,
    as_json: AsJson = False,
) -> None:
    """List transactions that are open longer than the maximum timeout, and unknown to their coordinator.

    They block read_committed consumers for ever: see `transactions abort`.
    """
    with open_admin(bootstrap) as admin:
        found = admin.find_hanging_transactions(max_timeout_ms=max_timeout_ms, topics=topic)
    now_ms = _now_ms()
    rows = [{**asdict(each), "idle_ms": now_ms - each.last_timestamp_ms} for each in found]
    _show(rows, _HANGING_COLUMNS, as_json)


@transactions.command()
def abort(
    bootstrap: Bootstrap,
    partition: PartitionArgument,
    start_offset: Annotated[
        int | None,
        typer.Option("--start-offset", metavar="OFFSET", help="Start offset of the transaction, from find-hanging."),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", help="Instead of it: the producer,")
    ] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch", metavar="EPOCH", help="its epoch,")] = None,
    coordinator_epoch: Annotated[
        int, typer.Option("--coordinator-epoch", metavar="EPOCH", help="and the epoch of the coordinator.")
    ] = -1,
) -> None:
    """Abort a hanging transaction in a partition: its messages there count as aborted."""
    tp = _topic_partition(partition)
    with open_admin(bootstrap) as admin:
        if start_offset is not None:
            if producer_id is not None or producer_epoch is not None:
                raise ConfigError("give --start-offset, or --producer-id and --producer-epoch")
            producers = admin.describe_producers([tp])[tp]
            found = next((each for each in producers if each.current_txn_start_offset == start_offset), None)
            if found is None:
                raise TransactionError(f"no open transaction in {partition} begins at offset {start_offset}")
            producer_id, producer_epoch = found.producer_id, found.producer_epoch
            coordinator_epoch = found.coordinator_epoch
        if producer_id is None or producer_epoch is None:
            raise ConfigError("give --start-offset, or --producer-id and --producer-epoch")
        admin.abort_transaction(
            tp, producer_id=producer_id, producer_epoch=producer_epoch, coordinator_epoch=coordinator_epoch
        )
    typer.echo(f"aborted in {partition}: the transaction of producer {producer_id}, epoch {producer_epoch}", err=True)


_PRODUCER_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "last_sequence",
    "last_timestamp_ms",
    "coordinator_epoch",
    "current_txn_start_offset",
)
_HANGING_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp_ms",
    "idle_ms",
)


def _show(rows: Sequence[dict[str, Any]], columns: Sequence[str], as_json: bool) -> None:
    if as_json:
        print_json(rows)
    else:
        titles = [column.replace("_", " ") for column in columns]
        print_table(titles, ([row[column] for column in columns] for row in rows))


def _topic_partition(text: str) -> TopicPartition:
    topic, colon, number = text.rpartition(":")
    if not colon or not topic or not number.isdecimal():
        raise ConfigError(f"{text!r} is not TOPIC:PARTITION")
    return TopicPartition(topic, int(number))


def _now_ms() -> int:
    return int(time() * 1000)
