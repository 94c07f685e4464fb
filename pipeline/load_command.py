"""Output of `barnabas load`: for one load, and for one round after the other."""

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import typer
from attrs import asdict, frozen

from ..app.cli.options import print_json
from ..app.cli.times import age_text
from ..ports.errors import BarnabasError, ConfigError
from ..ports.report import counted
from .load import NOTHING, LoadProgress, LoadResult, TopicsFailed, failures_by_topic
from .option_names import command_text
from .progress_output import ProgressOutput
from .session import local_session
from .spark.ending import java_runs
from .tables.quarantine import FOLDER as QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Loads again and again, with one Spark session for all of them.

Run = Callable[["SparkSession"], "LoadResult"]
Sessions = Callable[[], AbstractContextManager["SparkSession"]]


@frozen(kw_only=True)
class Round:
    """One load: when it began, and its result or why there is none."""

    began: datetime
    result: "LoadResult | None" = None
    error: BarnabasError | None = None


def lasting_session() -> AbstractContextManager["SparkSession"]:
    """Open a session for hours, not for seconds."""
    return local_session(quick=False)


def rounds(
    run: Run,
    every_s: float,
    stop: Event,
    on_round: Callable[[Round], None],
    *,
    sessions: Sessions = lasting_session,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Run a load every `every_s` seconds until `stop` is set, which ends the present one first.

    A failed round is reported, and the next round comes all the same: a broker may be away. Only an error that no round
    can mend, a `ConfigError`, is raised. A session whose Java has died is replaced. `started` is called after Spark's
    start, which takes the signals.
    """
    while not stop.is_set():
        with sessions() as spark:
            started()
            while not stop.is_set() and _alive(spark):
                began = time.monotonic()
                on_round(_one(run, spark))
                stop.wait(max(0.0, every_s - (time.monotonic() - began)))


def _one(run: Run, spark: "SparkSession") -> Round:
    began = datetime.now(UTC)
    try:
        return Round(began=began, result=run(spark))
    except ConfigError:
        raise
    except BarnabasError as error:
        return Round(began=began, error=error)


def _alive(spark: "SparkSession") -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no type hints

    try:
        return java_runs() and not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, AttributeError, OSError):
        return False


def load_rounds(
    run: Run,
    every_s: float,
    topics: Sequence[str],
    *,
    as_json: bool,
    sessions: Sessions = lasting_session,
    output: ProgressOutput | None = None,
) -> None:
    """A line for each round on standard output; the first SIGTERM or Ctrl-C ends it after the present round."""
    stop = Event()

    def stop_soon(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.SIG_DFL)

    def heed_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop_soon)

    def say(done: Round) -> None:
        if as_json:
            print_json(_round_facts(done, topics))
        else:
            typer.echo(f"{done.began:%Y-%m-%d %H:%M:%S} {_round_text(done)}")
        sys.stdout.flush()

    def starting() -> AbstractContextManager["SparkSession"]:
        if output is not None:
            output.step("starting Spark")
        return sessions()

    heed_signals()
    rounds(run, every_s, stop, say, sessions=starting, started=heed_signals)


def _round_text(done: Round) -> str:
    result = done.error.result if isinstance(done.error, TopicsFailed) else done.result
    parts = []
    if result is not None:
        parts.append(f"{counted(result.rows, 'new row')} in {counted(result.files, 'file')}")
        parts += [f"{sum(result.from_bucket.values()):,} from the bucket"] if result.from_bucket else []
        parts.append(_age_text(result))
        parts += [f"lost: {each}" for each in result.lost]
        parts += result.deleted
        parts += [_quarantine_text(result)] if result.quarantined else []
    if done.error is not None:
        parts.append(f"failed: {_error_text(done.error)}")
    return "; ".join(text for text in parts if text)


def _round_facts(done: Round, topics: Sequence[str]) -> dict[str, object]:
    result = done.error.result if isinstance(done.error, TopicsFailed) else done.result
    failed = {} if done.error is None else failures_by_topic(done.error, topics)
    facts = _facts(result or NOTHING, failed) if result is not None or failed else {}
    error = None if done.error is None else _error_text(done.error)
    return {"began": done.began.isoformat(), **facts, "error": error}


def _error_text(error: Exception) -> str:
    if isinstance(error, TopicsFailed):
        return error.text({topic: command_text(each) for topic, each in error.failed.items()})
    return command_text(error)


def _facts(done: LoadResult, failed: Mapping[str, Exception]) -> dict[str, object]:
    now_ms = time.time() * 1000
    return {
        "rows": done.rows,
        "replaced_rows": done.replaced_rows,
        "files": done.files,
        "version": done.commit,
        "lost": list(done.lost),
        "deleted": list(done.deleted),
        "absent": list(done.absent),
        "damaged": [asdict(each) for each in done.damaged],
        "from_bucket": dict(done.from_bucket),
        "quarantined": done.quarantined,
        "failed": {topic: command_text(error) for topic, error in failed.items()},
        "newest": {topic: _iso(ms) for topic, ms in done.newest_ms.items()},
        "newest_age_s": {topic: round((now_ms - ms) / 1000, 3) for topic, ms in done.newest_ms.items()},
        "group_error": done.group_error,
    }


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _age_text(done: LoadResult) -> str:
    if not done.newest_ms:
        return ""
    age_ms = time.time() * 1000 - max(done.newest_ms.values())
    return f"newest row {age_text(age_ms)} old" if age_ms >= 0 else "newest row is of the future"


def say_progress(output: ProgressOutput, into: Path) -> Callable[[LoadProgress], None]:
    """Return what says the steps of one load."""

    def say(at: LoadProgress) -> None:
        if at.step == "plan":
            output.step("looking for new messages")
        elif at.step == "start":
            for topic, rows in at.topics.items():
                past = f", {at.from_bucket[topic]:,} from the bucket" if topic in at.from_bucket else ""
                output.print_line(f"{topic}: {rows:,} new {'message' if rows == 1 else 'messages'}{past}")
            if at.rows:
                output.step("starting Spark")
        elif at.rows:
            output.count("reading", at.rows_read, at.rows)
        if at.step == "commit":
            output.step(f"committing to {into}")

    return say


def print_result(
    done: LoadResult, failed: Mapping[str, Exception], into: Path, group: str | None, *, as_json: bool
) -> None:
    for topic, error in failed.items():
        text = command_text(error).removeprefix(f"{topic}: ")
        typer.echo(f"not loaded: {topic}: {text}", err=True)
    for lost in done.lost:
        typer.echo(f"lost: {lost}", err=True)
    for deleted in done.deleted:
        typer.echo(deleted, err=True)
    for damaged in done.damaged:
        typer.echo(f"left out, since it is damaged: {damaged}", err=True)
    if done.quarantined:
        typer.echo(f"{_quarantine_text(done)}, in {into / QUARANTINE}", err=True)
    if done.absent:
        typer.echo(f"not there now, to be loaded another time: {', '.join(done.absent)}", err=True)
    if done.group_error is not None:
        typer.echo(f"loaded, but the offsets of group {group} were not committed: {done.group_error}", err=True)
    if as_json:
        print_json(_facts(done, failed))
    else:
        replaced = f" in place of {done.replaced_rows}" if done.replaced_rows else ""
        age = _age_text(done)
        rows, files = counted(done.rows, "new row"), counted(done.files, "file")
        typer.echo(f"{rows}{replaced} in {files} in {into}{age and '; '}{age}")


def _quarantine_text(done: LoadResult) -> str:
    return counted(
        done.quarantined, "row does not decode and is in quarantine", "rows do not decode and are in quarantine"
    )


def file_or_text(given: str) -> str | Path:
    """Return a file's path where there is one of that name."""
    try:
        return Path(given) if Path(given).is_file() else given
    except OSError:  # too long for a name
        return given
