"""Topics and loaded tables as views of a Spark session: SQL for what is larger than a machine."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...app.clients.admin.admin import Admin
from ...ports.errors import BarnabasError, ConfigError
from ..spark.errors import plain_spark_errors
from ..table import read_table
from ..topics.connect import common_settings
from ..topics.model import REMOTE_STORAGE
from .output import FITTING, TABLE_ROWS, print_rows
from .tables import files_by_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROMPT, MORE = "sql> ", "...> "
_ENDS = {"exit", "quit", r"\q"}
_TOKENS = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/|;|[^'\"`;/-]+|.", re.DOTALL)


def define_views(
    spark: "SparkSession", bootstrap: str, client: Mapping[str, str], tables: Mapping[str, Path], *, bucket: str = ""
) -> list[str]:
    """Define a view for each topic (TOPIC), and for each topic of a loaded table (NAME_TOPIC); return their names.

    bucket: the URL of the cluster's remote storage, from which old records come past the brokers.
    """
    names = []
    remote = {REMOTE_STORAGE: bucket} if bucket else {}
    if bootstrap:
        with Admin(bootstrap, config=common_settings(client)) as admin:
            topics = [topic.name for topic in admin.describe_topics() if topic.name and not topic.internal]
        for topic in topics:
            options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
            frame = spark.read.format("barnabas").options(**options, **client, **remote).load()
            names.append(_define(frame, topic))
    for name, folder in tables.items():
        names += [
            _define(read_table(spark, folder, topics=[each]), f"{name}_{each}") for each in files_by_topic(folder)
        ]
    if not names:
        raise ConfigError("there is nothing to ask: topics need --bootstrap HOST:PORT, loaded tables --table DIR")
    return names


def statements(text: str) -> list[str]:
    """Return the statements of a text, at the semicolons that are in no quotes and comments."""
    found = [""]
    for token in _TOKENS.findall(text):
        if token == ";":
            found.append("")
        elif not token.startswith(("--", "/*")):
            found[-1] += token
    return [each.strip() for each in found if each.strip()]


def is_complete(text: str) -> bool:
    """Return True if the text ends with the end of a statement."""
    tokens = [token for token in _TOKENS.findall(text) if token.strip() and not token.startswith(("--", "/*"))]
    return bool(tokens) and tokens[-1] == ";"


def run_statement(spark: "SparkSession", sql: str, format_: str) -> None:
    """Print what a statement gives, if that is rows. Raises `SparkFailed`."""
    with plain_spark_errors():
        frame = spark.sql(sql)
        if not frame.columns:
            return
        if format_ in (FITTING, "table", "vertical"):
            frame = frame.limit(TABLE_ROWS + 1)
        print_rows(frame.columns, _rows(frame), format_)


def converse(spark: "SparkSession", format_: str, show_error: Any) -> None:
    """Ask for statements until the user ends (Ctrl-D, exit, quit). An error is printed, and ends nothing."""
    waiting = ""
    while True:
        try:
            line = input(MORE if waiting else PROMPT)
        except EOFError:
            return
        except KeyboardInterrupt:
            waiting = ""
            continue
        if not waiting and line.strip().rstrip(";").lower() in _ENDS:
            return
        waiting += line + "\n"
        if not is_complete(waiting):
            waiting = waiting if waiting.strip() else ""
            continue
        text, waiting = waiting, ""
        try:
            for sql in statements(text):
                run_statement(spark, sql, format_)
        except BarnabasError as error:
            show_error(str(error))


def _define(frame: Any, name: str) -> str:
    columns = [
        f"cast({each} as string) as {each}" if each in ("key", "value") else f"`{each}`" for each in frame.columns
    ]
    plain = re.fullmatch(r"[A-Za-z_]\w*", name) is not None
    quoted = name if plain else f"`{name}`"
    frame.selectExpr(*columns).createOrReplaceTempView(quoted)
    return quoted


def _rows(frame: Any) -> Iterator[tuple[Any, ...]]:
    for row in frame.toLocalIterator():
        yield tuple(row.asDict(recursive=True).values())
