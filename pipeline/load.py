"""Bring topics into a table, exactly once: what is new since the last load, or everything since a time."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from ..ports.errors import BarnabasError, ConfigError
from ..schemas.access import access_settings, is_access_setting
from .session import require_spark
from .source.decoding_options import decoding_of
from .tables.formats import open_store, require_format
from .tables.loading import LoadProgress, LoadResult, Progress, TableLoad, no_progress
from .tables.source import LoadSource
from .tables.state import Commit, plain_os_errors
from .topics.client_options import reader_settings
from .topics.group_offsets import check_group, commit_to_group
from .topics.model import PLACE_SETTINGS, ClusterPartition, Where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoadProgress", "LoadResult", "TopicsFailed", "load"]

ROWS_PER_FILE = 2_000_000
_REASONS = {
    "auto.offset.reset": "a load continues at the offsets of the table; since_ms (--since) starts elsewhere",
    "enable.auto.commit": "the table stores its offsets; group (--group) commits them to a group as well",
}
"""The reasons why a load refuses these client settings; the data source names options of its own in their place."""


class TopicsFailed(BarnabasError):
    """Some topics were not loaded, and why; `result` is what was loaded of the others, which is in the table."""

    def __init__(self, failed: Mapping[str, BarnabasError], result: LoadResult) -> None:
        super().__init__(self.text({topic: str(error) for topic, error in failed.items()}))
        self.failed = failed
        self.result = result

    @staticmethod
    def text(errors: Mapping[str, str]) -> str:
        """Return the text of the error, from the text of each topic's error."""
        return "some topics were not loaded, the others were: " + "; ".join(f"{t}: {e}" for t, e in errors.items())


def load(
    bootstrap: str | Where,
    topics: Sequence[str],
    into: Path | str,
    *,
    since_ms: int | None = None,
    spark: "SparkSession | None" = None,
    fail_on_data_loss: bool = True,
    skip_damaged: bool = False,
    recreated: str = "fail",
    rows_per_file: int = ROWS_PER_FILE,
    progress: Progress = no_progress,
    client: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    group: str | None = None,
    format: str | None = None,
    catalog: str = "",
    table: str = "",
    partition_by: str | None = None,
    value_format: str | None = None,
    registry: str | None = None,
    value_schema: str | Path | None = None,
) -> LoadResult:
    """Load everything new of `topics` into the table in folder `into`; table and offsets change together or not at all.

    Kill it anywhere or run it twice: each record up to the end (as of the start of the load) is in the table once.
    `since_ms` reads again from the first record of that time or later, and replaces what the table has from there on; a
    first load with `since_ms` begins there. `recreated` says what to do with a topic that was deleted and created
    again: "fail", or "replace" its rows. `spark` None = a local session for this load; its Java's messages go to
    `log_file`. `client` are client settings by their dotted names. All Spark workers must have the folder at this path.

    Only what is committed is loaded: a transaction when it has ended, and an aborted one never, unless `client` says
    isolation.level=read_uncommitted.

    `group` is a consumer group without members: the load commits the table's offsets to it once they are safe, so that
    tools that show lag see them. The table's own offsets are what counts, so a failure of this commit fails nothing.

    `bootstrap` is HOST:PORT[,...]; of a classic cluster zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX,
    classic://HOST:PORT[,...], or "" with one of zk.connect, etcd.connect, coordination, broker.list in `client`. There
    `since_ms` goes by segments, since messages have no times: what it brings again may begin earlier.

    Damaged records stop a load with their place and the reason; with `skip_damaged` the load continues behind them, and
    result and report list the offsets that the table lacks.

    `format` of a new table is "delta" (default), "iceberg" (`catalog`: the URI of a REST or SQL catalog instead of one
    in the folder; `table`: its NAMESPACE.NAME there), or "parquet"; `partition_by` says how its rows are shared out to
    folders below those of the topics: "day" (of the record's time, default), "hour", "month", "field:NAME" of a JSON
    value, "header:NAME", "key", "key-hash:BUCKETS", several with a comma, or "none". The table keeps both.

    With `value_format` "avro", "json" or "protobuf" the column `value` is typed, by the newest schema of the topic's
    subject at `registry`, or by `value_schema` (a file, or a text as the data source's option `value.schema` has it).
    New fields of later schemas become new columns, null in older rows; a field whose type has changed is an error. Rows
    that do not decode are in a table of their own below this one, DIR/_quarantine, with their bytes and the reason; the
    result counts them. Later loads must give the same format, registry and schema. `client` may have the settings of
    the registry's client, such as `basic.auth.user.info` and `schema.registry.ssl.truststore.location`.

    A topic that cannot be loaded does not stop the others: `TopicsFailed` reports it when they are in the table.

    Raises `TableLocked`, `TopicRecreated`, `ApiError` (OFFSET_OUT_OF_RANGE: data was deleted before it was loaded; with
    `fail_on_data_loss` False the load continues and reports it in the result), and other kinds of `BarnabasError`.
    """
    require_spark("a load")
    if not topics:
        raise ConfigError("name at least one topic to load")
    if recreated not in ("fail", "replace"):
        raise ConfigError(f"recreated must be 'fail' or 'replace', not {recreated!r}")
    access = access_settings(client or {})
    settings = {name: value for name, value in (client or {}).items() if not is_access_setting(name)}
    where = bootstrap if isinstance(bootstrap, Where) else Where.of(bootstrap, settings)
    check_group(group, where)
    settings = {name: value for name, value in settings.items() if name not in PLACE_SETTINGS}
    if not where.classic:
        settings.setdefault("isolation.level", "read_committed")
    settings = reader_settings(settings, classic=where.classic, reasons=_REASONS)
    store = open_store(Path(into), format, catalog=catalog, table=table)
    require_format(store.format)
    loading = TableLoad(
        store=store,
        source=LoadSource(
            where,
            settings,
            fail_on_data_loss,
            skip_damaged,
            rows_per_file,
            _decoding(value_format, registry, value_schema, access),
        ),
        partition_by=partition_by,
        since_ms=since_ms,
        recreated=recreated,
        spark=spark,
        progress=progress,
        log_file=log_file,
    )
    with plain_os_errors(store.folder), store.locked():
        store.recover()
        done, failed = loading.run_each(list(dict.fromkeys(topics)))
        last = store.last()
        if group is not None and last is not None:
            loaded = [topic for topic in topics if topic not in failed]
            done = evolve(done, group_error=_commit_to_group(group, loading.source, last, loaded))
    if failed:
        raise TopicsFailed(failed, done)
    return done


def _decoding(
    value_format: str | None, registry: str | None, schema: str | Path | None, access: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the options of the data source for these arguments. Raises `ConfigError`."""
    given = {"value.format": value_format, **(access if value_format else {}), "schema.registry.url": registry}
    if schema is not None:
        given["value.schema.file" if isinstance(schema, Path) else "value.schema"] = str(schema)
    options = {name: value for name, value in given.items() if value is not None}
    return options if decoding_of(options) is not None else {}


def _commit_to_group(group: str, source: LoadSource, last: Commit, topics: Sequence[str]) -> str | None:
    """Commit the table's offsets to the group, also if a load found nothing new: the commit before may have failed."""
    from .topics.connect import common_settings

    offsets = {
        ClusterPartition(name, int(key)): n for name in topics for key, n in last.topics[name].next_offsets.items()
    }
    return commit_to_group(source.where.bootstrap, common_settings(source.client), group, offsets)
