"""`barnabas mirror`: copies topics from source clusters to a target cluster."""

import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...ports.errors import ConfigError
from ...ports.report import counted
from .client_files import parse_settings, read_client_file
from .options import progress

if TYPE_CHECKING:
    from ..mirror import MirrorMaker

LOOK_S = 0.5


def register(app: typer.Typer) -> None:
    app.command("mirror")(mirror)


def mirror(
    consumer_config: Annotated[
        list[Path],
        typer.Option(
            "--consumer-config",
            "--consumer.config",
            "--source-config",
            metavar="FILE",
            help="A source cluster; may be repeated.",
        ),
    ],
    producer_config: Annotated[
        Path,
        typer.Option(
            "--producer-config", "--producer.config", "--target-config", metavar="FILE", help="The target cluster."
        ),
    ],
    whitelist: Annotated[str | None, typer.Option(metavar="REGEX", help="Copy only these topics.")] = None,
    blacklist: Annotated[str | None, typer.Option(metavar="REGEX", help="Exclude these topics.")] = None,
    streams: Annotated[int, typer.Option("--num-streams", "--num.streams", min=1, help="Streams of each source.")] = 1,
    producers: Annotated[
        int, typer.Option("--num-producers", "--num.producers", min=1, help="Producers to the target.")
    ] = 1,
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once", help="Between current clusters: use transactions, with the offsets stored in the target."
        ),
    ] = False,
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="number|key",
            help="Between current clusters: keep the partition number of each message (default), or let the target's "
            "partitioner choose by the key.",
        ),
    ] = None,
    audit: Annotated[
        str | None,
        typer.Option(metavar="TIER", help="Audit the copies as this tier, such as mirror."),
    ] = None,
    identical: Annotated[
        bool,
        typer.Option(
            "--identical",
            help="Same offsets, batches and leader epochs, in topics that are read-only until promoted; the target is "
            "a cluster of Barnabas.",
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --identical: show the differences, and change nothing.")
    ] = False,
    promote: Annotated[
        list[str] | None,
        typer.Option(
            "--promote", metavar="TOPIC", help="With --identical: end the mirroring of TOPIC; may be repeated."
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="With --identical: make mirrors of topics that the target has already."),
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--audit-set", metavar="KEY=VALUE", help="Audit settings: after (the source tier), window.ms."),
    ] = None,
) -> None:
    """Copy topics from other clusters, at least once, until Ctrl-C or SIGTERM.

    Configuration files are TOML, or `key=value` lines. A source is classic with zk.connect or etcd.connect (and
    groupid), current with bootstrap.servers (and group.id, or offsets.file for the offsets). The target is classic with
    zk.connect, etcd.connect or broker.list, current with bootstrap.servers. Each has its own security settings
    (security.protocol, sasl.*, ssl.*). Prints "barnabas mirroring" on standard
    output once it is connected to all of them.
    """
    if identical:
        _mirror_identically(
            consumer_config, producer_config, whitelist, dry_run=dry_run, promote=promote or (), overwrite=overwrite
        )
        return
    if dry_run or promote or overwrite:
        raise ConfigError("--dry-run, --promote and --overwrite need --identical")
    from ..mirror import MirrorMaker

    if (whitelist is None) == (blacklist is None):
        raise ConfigError("give exactly one of --whitelist and --blacklist")
    made = MirrorMaker(
        [read_client_file(file) for file in consumer_config],
        read_client_file(producer_config),
        whitelist=whitelist,
        blacklist=blacklist,
        streams=streams,
        producers=producers,
        exactly_once=exactly_once,
        partition_by=partition_by,
        counter="" if audit is None else "audit",
        counter_props={"tier": audit, **parse_settings(settings)} if audit is not None else None,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: made.stop())
    with made:
        typer.echo("barnabas mirroring")
        _watch(made)
    typer.echo(f"{counted(made.copied, 'message')} copied", err=True)


def _mirror_identically(
    sources: list[Path], target: Path, whitelist: str | None, *, dry_run: bool, promote: Sequence[str], overwrite: bool
) -> None:
    from ..mirror.identical import IdenticalMirror

    if len(sources) != 1:
        raise ConfigError("--identical has one source: give one --source-config")
    if whitelist is None and not promote:
        raise ConfigError("--identical needs --whitelist, the topics")
    wanted = whitelist or "|".join(map(re.escape, promote))
    made = IdenticalMirror(read_client_file(sources[0]), read_client_file(target), topics=wanted, overwrite=overwrite)
    try:
        if dry_run:
            if not made.topics():
                typer.echo(f"barnabas: the source has no topic that matches {wanted}", err=True)
            found = [*made.differences(), *made.cluster_differences()]
            for each in found:
                typer.echo(f"{each.topic} {each.text}".strip())
            typer.echo(f"{counted(len(found), 'difference')}; nothing was changed", err=True)
            return
        for topic in promote:
            seconds = made.promote(topic)
            typer.echo(f"{topic} is promoted: it takes records since {seconds:.2f} s after the begin")
        if promote:
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: made.stop())
        made.begin()
        typer.echo("barnabas mirroring")
        sys.stdout.flush()
        made.run()
        typer.echo(f"{counted(made.copied.batches, 'batch', 'batches')} copied", err=True)
    finally:
        made.close()


def _watch(mirror: "MirrorMaker") -> None:
    with progress("copied", None) as advance:
        while not mirror.wait(LOOK_S):
            advance(mirror.copied)
