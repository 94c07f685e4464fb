"""The commands that the pipeline adds to `barnabas`: load, report, demo."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..app.cli.command_config import registry_settings, secured_by_command_config
from ..app.cli.options import AsJson, FromBucket, Settings, SkipDamaged, client_settings
from ..app.cli.reaching import check_reachable
from ..app.cli.times import parse_period_ms, parse_time_ms
from ..app.extras import require
from ..ports.errors import BarnabasError, ConfigError
from ..ports.report import counted
from .option_names import on_command_line
from .session import REPORT_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .load import LoadProgress, LoadResult

Cluster = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="A broker of the cluster; of a classic one zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX, or "
        "classic://HOST:PORT,... of every broker.",
        envvar="BARNABAS_BOOTSTRAP",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Do not say what is being done on standard error.")]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="The table's folder; made when it is missing.")]


def register_load(app: typer.Typer) -> None:
    app.command("load")(load)


def register_report(app: typer.Typer) -> None:
    app.command("report")(report)


def register_demo(app: typer.Typer) -> None:
    app.command("demo")(demo)


def load(
    topics: Annotated[
        list[str], typer.Option("--topics", metavar="TOPIC[,TOPIC...]", help="What to load; may be given again.")
    ],
    into: Into,
    bootstrap: Cluster = "",
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Load again from this time: 2026-01-31T12:00[:00][Z], an age (2h), or ms."),
    ] = None,
    recreated: Annotated[
        str, typer.Option(help="A topic that was deleted and created again: fail, or replace its rows.")
    ] = "fail",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Continue where messages were deleted before they were loaded.")
    ] = False,
    skip_damaged: SkipDamaged = False,
    isolation_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="read_uncommitted: messages of aborted transactions, too.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP", help="A consumer group for which the offsets are committed, so that tools show its lag."
        ),
    ] = None,
    table_format: Annotated[
        str | None, typer.Option("--format", help="Of a new table: delta, iceberg, or parquet. Default: delta.")
    ] = None,
    catalog: Annotated[
        str, typer.Option(metavar="URI", help="Of a new Iceberg table: a REST or SQL catalog. Default: in its folder.")
    ] = "",
    table: Annotated[str, typer.Option(metavar="NAMESPACE.NAME", help="The name of a new Iceberg table there.")] = "",
    partition_by: Annotated[
        str | None,
        typer.Option(
            metavar="LAYOUT",
            help="Of a new table: hour, day, month, field:NAME, header:NAME, key, key-hash:N, several with a comma, "
            "or none. Default: day.",
        ),
    ] = None,
    value_format: Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Typed values: avro, json or protobuf; keys stay bytes. Default: bytes."),
    ] = None,
    registry: Annotated[
        str | None, typer.Option(metavar="URL", help="The schema registry, as in http://127.0.0.1:8081.")
    ] = None,
    value_schema: Annotated[
        str | None,
        typer.Option(metavar="SCHEMA", help="A file or a text. Default: the newest of the topic's subject."),
    ] = None,
    every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Load again at this interval, such as 30s, 5m or 1h, until SIGTERM or Ctrl-C."
        ),
    ] = None,
    audit: Annotated[
        str | None,
        typer.Option(metavar="TIER", help="Count what is loaded: as this tier of the audit, say table."),
    ] = None,
    audit_window: Annotated[
        str, typer.Option(metavar="TIME", help="The length of the audit's windows, the same in all tiers.")
    ] = "10m",
    from_bucket: FromBucket = "",
    settings: Settings = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Bring everything new since the last load into a table, each message exactly once."""
    from .load import NOTHING, TopicsFailed, failures_by_topic
    from .load import load as run
    from .load_command import file_or_text, load_rounds, print_result, say_progress
    from .progress_output import PlainLines, ProgressOutput, progress_output
    from .table_audit import TableAudit, audited_load
    from .topics.model import Where

    names = [name for group in topics for name in group.split(",") if name]
    if not names:
        raise ConfigError("--topics names no topic")
    since_ms = None if since is None else parse_time_ms(since, "--since")
    client = client_settings(None, settings)
    if isolation_level is not None:
        client["isolation.level"] = isolation_level
    where = Where.of(bootstrap, client, named="--bootstrap")

    counting = None
    if audit is not None:
        window_ms = parse_period_ms(audit_window, "--audit-window")
        counting = TableAudit(secured_by_command_config(bootstrap), into, names, tier=audit, window_ms=window_ms)
        if every is None:
            check_reachable(bootstrap)

    def once(spark: "SparkSession | None", advance: "Callable[[LoadProgress], None]") -> "LoadResult":
        with audited_load(counting, lambda text: typer.echo(text, err=True)):
            return run(
                where,
                names,
                into,
                since_ms=since_ms,
                recreated=recreated,
                fail_on_data_loss=not allow_data_loss,
                skip_damaged=skip_damaged,
                progress=advance,
                client={**client, **registry_settings()} if registry else client,
                group=group,
                format=table_format,
                catalog=catalog,
                table=table,
                partition_by=partition_by,
                value_format=value_format,
                registry=registry,
                value_schema=None if value_schema is None else file_or_text(value_schema),
                from_bucket=from_bucket,
                spark=spark,
            )

    if every is not None:
        every_s = parse_period_ms(every, "--every") / 1000
        if since is not None:
            raise ConfigError("--since goes with one load: leave --every out")
        with on_command_line():
            said = ProgressOutput() if quiet else PlainLines()
            load_rounds(lambda spark: once(spark, lambda _: None), every_s, names, as_json=as_json, output=said)
        return

    failed: Mapping[str, Exception] = {}
    with on_command_line(), progress_output(quiet=quiet) as output:
        say = say_progress(output, into)

        def show_progress(at: "LoadProgress") -> None:
            if at.step == "plan" and bootstrap and "://" not in bootstrap:  # all is checked that needs no cluster
                check_reachable(bootstrap)
            say(at)

        try:
            done = once(None, show_progress)
        except BarnabasError as error:
            failed = failures_by_topic(error, names)
            if not failed or not (as_json or isinstance(error, TopicsFailed)):
                raise
            done = error.result if isinstance(error, TopicsFailed) else NOTHING
    print_result(done, failed, into, group, as_json=as_json)
    if failed:
        raise typer.Exit(1)


def report(
    table: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `barnabas load` has filled.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Default: DIR.html")] = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic; default: a section for each.")] = None,
    audit: Annotated[
        list[str] | None,
        typer.Option(
            "--audit",
            metavar="HOST:PORT",
            help="A cluster whose audit says how complete topics are; again for more.",
        ),
    ] = None,
    event_time: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Show rows by the time in this field of JSON values (ISO 8601, or s, ms, us, ns since 1970), not by "
            "that of the record.",
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Turn a loaded table into one HTML page: an index of its topics, and of each volume, sizes, keys, fields, newest
    values and how fresh it is; access logs and metrics with charts of their own."""
    require("a report", REPORT_PACKAGES, "spark")
    from .progress_output import progress_output
    from .report import report as run

    page = out or table.resolve().with_name(table.resolve().name + ".html")
    with on_command_line(), progress_output(quiet=quiet) as output:
        done = run(table, page, topic=topic, audit=audit or [], event_time=event_time, progress=output.step)
    unit = "line" if set(done.kinds.values()) == {"access log"} else "row"
    typer.echo(f"{counted(done.lines, unit)}, {done.parsed} parsed, {done.malformed} malformed")
    for damaged in done.damaged:
        typer.echo(f"not in the table, since it is damaged: {damaged}", err=True)
    typer.echo(str(done.page.resolve()))


def demo(
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="An access log, plain or .gz. Default: this machine's metrics."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where table and page go.")] = Path("demo-out"),
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch this machine when there is no log.")] = 8,
) -> None:
    """From a log line to a warehouse table: broker, producer, consumer, load and report in one go."""
    from .demo import run

    if not run(log, out, seconds):
        raise typer.Exit(1)
