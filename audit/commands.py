"""`barnabas audit`: compares the tiers; and `barnabas audit count`, the tier of a cluster."""

import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..app.cli.command_config import secured_by_command_config
from ..app.cli.options import AsJson, Bootstrap, print_json, progress
from ..app.cli.reaching import check_reachable
from ..app.cli.tables import show
from ..app.cli.times import parse_period_ms, parse_time_ms
from ..app.extras import require
from ..ports.errors import BarnabasError, ConfigError
from ..ports.report import counted
from .reports import BROKER, PRODUCER

if TYPE_CHECKING:
    from .reading import AuditReader
    from .reconcile import Reconciliation

_DISAGREE = 1

Topics = Annotated[
    list[str] | None, typer.Option("--topics", metavar="TOPIC[,TOPIC...]", help="Only these; may be given again.")
]


def register_audit(app: typer.Typer) -> None:
    group = typer.Typer(invoke_without_command=True, no_args_is_help=False)
    group.callback()(audit)
    group.command("count")(count)
    app.add_typer(group, name="audit")


def audit(
    context: typer.Context,
    bootstrap: Annotated[
        list[str] | None,
        typer.Option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            help="A cluster with an audit topic; again for each further one.",
            envvar="BARNABAS_BOOTSTRAP",
        ),
    ] = None,
    topics: Topics = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Windows since then: 2026-01-31T12:00[Z], or an age such as 2h."),
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page, too.")] = None,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Continue and show changes until Ctrl-C.")] = False,
    every: Annotated[str, typer.Option(metavar="DURATION", help="How often, with --watch.")] = "5s",
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="By how much the clocks of the servers may differ.")
    ] = "10s",
) -> None:
    """Compare the counts of the tiers: did all messages arrive everywhere, once, and with which delay?

    Exits 0 when all decided messages agree, 1 when messages were lost or duplicated. A window is open while messages of
    it may still arrive; messages that a tier has not reached yet are pending, not lost.
    """
    if context.invoked_subcommand is not None:
        return
    from .reading import AuditReader

    if not bootstrap:
        raise ConfigError("--bootstrap HOST:PORT is missing: give a broker of the cluster")
    if html is not None:
        require("the audit's page", ["jinja2"], "audit")
    every_s, grace_ms = parse_period_ms(every, "--every") / 1000, parse_period_ms(grace, "--grace")
    since_ms = 0 if since is None else parse_time_ms(since, "--since")
    for cluster in bootstrap:
        check_reachable(cluster)
    reader = AuditReader([secured_by_command_config(cluster) for cluster in bootstrap], since_ms=since_ms)
    agrees, names = True, names_of(topics)
    try:
        while True:
            found = _reconciled(reader, names, since_ms, grace_ms)
            agrees = found.agrees
            unknown = None if watch else _unknown(names, reader.totals.topics)
            if unknown is None or found.windows:
                _print(found, html, as_json=as_json)
            if unknown is not None:
                raise unknown
            if not watch:
                break
            time.sleep(every_s)
    except KeyboardInterrupt:
        if not watch:
            raise
    finally:
        reader.close()
    raise typer.Exit(0 if agrees else _DISAGREE)


def _reconciled(reader: "AuditReader", topics: list[str], since_ms: int, grace_ms: int) -> "Reconciliation":
    from .publishing import wall_ms
    from .reconcile import reconcile

    with progress("audit", None):
        reader.read()
    return reconcile(reader.totals, now_ms=wall_ms(), topics=topics, since_ms=since_ms, grace_ms=grace_ms)


def _unknown(names: Sequence[str], known: Sequence[str]) -> BarnabasError | None:
    """Return an error for topics that no tier has counted: they may be misspelt."""
    unknown = [name for name in names if name not in known]
    if not unknown:
        return None
    there = f"those counted are {', '.join(known)}" if known else "no topic has been counted yet"
    return BarnabasError(f"no tier has counted topic {', '.join(unknown)}; {there}")


def _print(found: "Reconciliation", html: Path | None, *, as_json: bool) -> None:
    from .publishing import wall_ms
    from .view import as_tree, sections

    if html is not None:
        from .view import write_page

        write_page(found, html, wall_ms())
    if as_json:
        print_json(as_tree(found))
    else:
        show(sections(found))


def count(
    bootstrap: Bootstrap,
    tier: Annotated[str, typer.Option(metavar="NAME", help="What the cluster is called in the audit.")] = BROKER,
    after: Annotated[str, typer.Option(metavar="TIER", help="The tier that its messages come from.")] = PRODUCER,
    topics: Topics = None,
    window: Annotated[str, typer.Option(metavar="DURATION", help="Count in windows of this length.")] = "10m",
    interval: Annotated[str, typer.Option(metavar="DURATION", help="How often counts are published.")] = "10s",
    instance: Annotated[
        str, typer.Option(metavar="NAME", help="Of several that share the work, each needs a name of its own.")
    ] = "1",
    once: Annotated[bool, typer.Option("--once", help="Count the present messages, and end.")] = False,
) -> None:
    """Count the messages of a cluster's topics exactly once, until Ctrl-C or SIGTERM.

    Prints "barnabas auditing TIER" on standard output once it has joined.
    """
    from .auditor import Auditor

    if once:
        check_reachable(bootstrap)
    made = Auditor(
        secured_by_command_config(bootstrap),
        tier=tier,
        after=after,
        topics=names_of(topics),
        window_ms=parse_period_ms(window, "--window"),
        interval_s=parse_period_ms(interval, "--interval") / 1000,
        instance=instance,
    )
    before = {number: signal.signal(number, lambda *_: made.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if once:
            made.count_to_end()
        else:
            typer.echo(f"barnabas auditing {tier}")
            with progress("counted", None) as advance:
                made.run(advance)
    finally:
        made.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    typer.echo(f"{counted(made.counted, 'message')} counted", err=True)


def names_of(topics: list[str] | None) -> list[str]:
    return [name for group in topics or () for name in group.split(",") if name]
