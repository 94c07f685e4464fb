"""`barnabas produce`: lines to messages."""

import gzip
import io
import sys
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from ...core.message.message import Message
from ...ports.errors import ConfigError
from ..clients.faces import ProducerFace
from ..clients.producer import Producer
from .classic import ClusterChoice, find_cluster
from .options import (
    PATIENCE_MS,
    AnyBootstrap,
    BrokerList,
    Coordination,
    EtcdConnect,
    Settings,
    ZkConnect,
    parse_settings,
    progress,
)

LINES_AT_ONCE = 5_000


def register(app: typer.Typer) -> None:
    app.command("produce")(produce)


def produce(
    context: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Read from here, not standard input; .gz is unpacked.")
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="What stands between key and value in a line.")
    ] = None,
    compression: Annotated[str, typer.Option(help="none, gzip, snappy, lz4 or zstd.")] = "none",
    acks: Annotated[str | None, typer.Option(help="all, 1 or 0.", show_default="all")] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", help="Always this one.")] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option("--transactional-id", metavar="ID", help="All lines in one transaction: readers see all or none."),
    ] = None,
    bootstrap: AnyBootstrap = None,
    broker_list: BrokerList = None,
    zk_connect: ZkConnect = None,
    etcd_connect: EtcdConnect = None,
    coordination: Coordination = None,
    settings: Settings = None,
) -> None:
    """Send each line as a message; a line without the key separator has no key.

    Classic brokers take gzip and snappy; of a key they only use which partition it chooses.
    """
    cluster = find_cluster(
        context,
        bootstrap,
        broker_list=broker_list,
        zk_connect=zk_connect,
        etcd_connect=etcd_connect,
        coordination=coordination,
    )
    separator = key_separator.encode() if key_separator is not None else None
    if separator == b"":
        raise ConfigError("--key-separator must not be empty")
    given = parse_settings(settings)
    if transactional_id is not None:
        given["transactional.id"] = transactional_id
    with _open(file) as lines, _producer(cluster, compression, acks, given) as producer:
        sent = 0
        whole = producer.transaction() if "transactional.id" in given else nullcontext()
        with whole, progress(f"to {topic}", None) as advance:
            messages = (_message(line.rstrip(b"\n"), separator) for line in lines)
            while batch := list(islice(messages, LINES_AT_ONCE)):
                producer.send_many(topic, batch, partition=partition)
                sent += len(batch)
                advance(sent)
        _finish(producer)
        failed = producer.failed
    typer.echo(f"{sent - failed} messages to {topic}", err=True)
    if failed:
        typer.echo(f"barnabas: {failed} messages were not taken", err=True)
        raise typer.Exit(1)


def _producer(cluster: ClusterChoice, compression: str, acks: str | None, settings: dict[str, str]) -> ProducerFace:
    if not cluster.classic:
        config = {"max.block.ms": PATIENCE_MS, "compression.type": compression, "acks": acks or "all", **settings}
        return Producer(cluster.bootstrap, config=config)
    if acks is not None:
        raise ConfigError("--acks: classic brokers do not answer a produce")
    places: dict[str, Any] = dict(cluster.places)
    return Producer(cluster.bootstrap, config={"compression.codec": compression, **settings}, **places)


def _finish(producer: ProducerFace) -> None:
    """Wait for the answers; the classic generation has none, there brokers are asked whether they have taken it all."""
    from ..clients.classic.producer import ClassicProducer

    if isinstance(producer, ClassicProducer):
        producer.confirm(PATIENCE_MS / 1000)
    else:
        producer.flush()


def _open(file: Path | None) -> BinaryIO:
    if file is None:
        return sys.stdin.buffer
    if file.suffix == ".gz":
        return io.BufferedReader(gzip.open(file))
    return file.open("rb")


def _message(line: bytes, separator: bytes | None) -> Message:
    if separator is None:
        return Message(value=line)
    key, found, value = line.partition(separator)
    return Message(value=value, key=key) if found else Message(value=line)
