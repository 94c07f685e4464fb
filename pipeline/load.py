"""Bring topics into a table, exactly once: what is new since the last load, or everything since a time."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from ..ports.errors import ConfigError
from .session import local_session, register, require_spark, session_settings
from .source.options import partitions_json
from .spark.errors import plain_spark_errors
from .table import AffectedFile, affected_files, spark_path, table_schema
from .tables.formats import open_store
from .tables.load_plan import LoadPlan, TopicRecreated, plan_load, task_count
from .tables.parquet import parquet_rows
from .tables.state import Commit, Range, Staging, TableChange, TableError, plain_os_errors
from .tables.store import TableStore
from .topics.client_options import reader_settings
from .topics.damage import DamagedRange, read_damage, still_damaged
from .topics.group_offsets import check_group, commit_to_group
from .topics.model import PLACE_SETTINGS, Cluster, ClusterPartition, Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_FILE = 2_000_000
_POLL_S = 0.2
_QUICK_ROWS = 500_000
_DAMAGE = "damage"
"""Where tasks leave notes, below staging."""
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.maxConcurrentOutputFileWriters": "32",
}
"""Days are UTC days; timestamps have the type that all readers of Parquet know, not Spark's old INT96; and a task keeps
files of several topics and days open, instead of sorting its rows by them first."""


_REASONS = {
    "auto.offset.reset": "a load goes on where the table is; since_ms begins elsewhere",
    "enable.auto.commit": "the table keeps its offsets; group=... tells them to a group",
}
"""Why a client setting cannot be had, where the data source names options of its own."""


@frozen(kw_only=True)
class LoadProgress:
    """Where a load is: `step` is plan, start, read or commit; `done` of `total` tasks; `rows` expected in all, of a
    classic cluster a guess."""

    step: str
    done: int = 0
    total: int = 0
    rows: int = 0


@frozen(kw_only=True)
class LoadResult:
    """What a load did: `rows` added, `replaced_rows` that were there before. `commit` None = there was nothing new."""

    rows: int
    files: int
    commit: int | None
    ranges: Sequence[Range]
    replaced_rows: int = 0
    lost: Sequence[str] = ()
    absent: Sequence[str] = ()
    """Partitions loaded before whose classic brokers were not there; a later load goes on with them."""
    damaged: Sequence[DamagedRange] = ()
    """What was left out, with `skip_damaged`."""
    group_error: str | None = None
    """Why the group could not be told; rows and offsets are in the table nevertheless."""


Progress = Callable[[LoadProgress], None]


def _quiet(_progress: LoadProgress) -> None:
    return None


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
    progress: Progress = _quiet,
    client: Mapping[str, str] | None = None,
    log_file: Path | None = None,
    group: str | None = None,
) -> LoadResult:
    """Load everything new of `topics` into the table in folder `into`; table and offsets change together or not at all.

    Kill it anywhere or run it twice: each record up to the end (as of the start of the load) is in the table once.
    `since_ms` reads again from the first record of that time or later, and replaces what the table has from there on;
    a first load with `since_ms` begins there. `recreated` says what to do with a topic that was deleted and created
    again: "fail", or "replace" its rows. `spark` None = a local session for this load; its Java's messages go to
    `log_file`. `client` are client settings by their dotted names. All Spark workers must have the folder at this path.

    Only what is committed is loaded: a transaction when it has ended, and an aborted one never, unless `client` says
    isolation.level=read_uncommitted.

    `group` is a consumer group, without members, that is told the table's offsets once they are safe, so that tools
    that show lag see them; the table's own ones are what counts, so a group that cannot be told fails nothing.

    `bootstrap` is HOST:PORT[,...]; of a classic cluster zookeeper://HOST:PORT/CHROOT, etcd://HOST:PORT/PREFIX,
    classic://HOST:PORT[,...], or "" with one of zk.connect, etcd.connect, coordination, broker.list in `client`. There
    `since_ms` goes by segments, since messages have no times: what it brings again may begin earlier.

    Damaged records stop a load with where and why; with `skip_damaged` it goes on behind them, and result and report
    tell which offsets the table lacks.

    Raises `TableLocked`, `TopicRecreated`, `ApiError` (OFFSET_OUT_OF_RANGE: data was deleted before it was loaded;
    `fail_on_data_loss` False goes on and tells it in the result), and what else a `BarnabasError` can be.
    """
    require_spark("a load")
    if not topics:
        raise ConfigError("name at least one topic to load")
    settings = dict(client or {})
    where = bootstrap if isinstance(bootstrap, Where) else Where.of(bootstrap, settings)
    check_group(group, where)
    settings = {name: value for name, value in settings.items() if name not in PLACE_SETTINGS}
    if not where.classic:
        settings.setdefault("isolation.level", "read_committed")
    settings = reader_settings(settings, classic=where.classic, reasons=_REASONS)
    source = _Source(where, settings, fail_on_data_loss, skip_damaged, rows_per_file)
    store = open_store(Path(into))
    with plain_os_errors(store.folder), store.locked():
        progress(LoadProgress(step="plan"))
        store.recover()
        last = store.last()
        plan = _plan(source, last, topics, since_ms, recreated)
        if plan.changes(last):
            done = _carry_out(plan, last, source, store, spark, progress, log_file)
        else:
            done = LoadResult(rows=0, files=0, commit=None, ranges=(), lost=plan.lost, absent=_texts(plan))
        return done if group is None else evolve(done, group_error=_tell(group, source, plan, topics))


@frozen
class _Source:
    where: Where
    client: Mapping[str, str]
    fail_on_data_loss: bool
    skip_damaged: bool
    rows_per_file: int


def _plan(
    source: _Source, last: Commit | None, topics: Sequence[str], since_ms: int | None, recreated: str
) -> LoadPlan:
    from .topics.connect import connect_cluster

    cluster: Cluster = connect_cluster(source.where, source.client)
    try:
        fail = source.fail_on_data_loss
        return plan_load(cluster, last, topics, since_ms=since_ms, fail_on_data_loss=fail, recreated=recreated)
    finally:
        cluster.close()


def _carry_out(
    plan: LoadPlan,
    last: Commit | None,
    source: _Source,
    store: TableStore,
    spark: "SparkSession | None",
    progress: Progress,
    log_file: Path | None,
) -> LoadResult:
    progress(LoadProgress(step="start", rows=plan.rows))
    affected = affected_files(store, plan.replaced_from, plan.replaced_topics)
    if not plan.ranges and not affected:
        return _commit(store, last, plan, affected, store.begin())
    own = local_session(quick=plan.rows < _QUICK_ROWS, log_file=log_file)
    with own if spark is None else nullcontext(spark) as session:
        staging = store.begin()
        with plain_spark_errors(), _watched(session, progress, plan.rows):
            _write(session, plan, source, store.folder, affected, staging.folder)
        _check_same_topics(plan, source)
        progress(LoadProgress(step="commit", rows=plan.rows))
        return _commit(store, last, plan, affected, staging)


def _check_same_topics(plan: LoadPlan, source: _Source) -> None:
    """What was read under a topic's name may be of another one, made since the plan. Raises `TopicRecreated`."""
    from .topics.connect import connect_cluster

    known = {part.topic: plan.topics[part.topic].topic_id for part in plan.ranges}
    if not any(known.values()):
        return
    cluster: Cluster = connect_cluster(source.where, source.client)
    try:
        found = cluster.topics(list(known))
    finally:
        cluster.close()
    for topic, topic_id in known.items():
        if topic_id and (topic not in found or found[topic].topic_id != topic_id):
            text = f"topic {topic!r} was deleted or created again during the load; nothing is committed, load once more"
            raise TopicRecreated(text)


def _tell(group: str, source: _Source, plan: LoadPlan, topics: Sequence[str]) -> str | None:
    """Also after a load that found nothing new: one before may not have reached the group."""
    from .topics.connect import common_settings

    offsets = {
        ClusterPartition(name, int(key)): n for name in topics for key, n in plan.topics[name].next_offsets.items()
    }
    return commit_to_group(source.where.bootstrap, common_settings(source.client), group, offsets)


def _write(
    spark: "SparkSession",
    plan: LoadPlan,
    source: _Source,
    folder: Path,
    affected: Sequence[AffectedFile],
    staging: Path,
) -> None:
    """Spark's part: new rows, and the rows to keep of files that are replaced, as Parquet below `staging`."""
    partly = [file.name for file in affected if file.replaced_rows < file.rows]
    with session_settings(spark, _SETTINGS):
        parts = [_new_rows(register(spark), plan, source, staging)] if plan.ranges else []
        if partly:
            parts.append(_kept_rows(spark, plan, folder, partly))
        if not parts:
            return
        writer = reduce(lambda a, b: a.unionByName(b), parts).write.mode("append").option("compression", "zstd")
        if source.where.classic:  # a task is a partition, however many rows it has
            writer = writer.option("maxRecordsPerFile", source.rows_per_file)
        writer.partitionBy("topic", "day").parquet(spark_path(staging))


def _new_rows(session: "SparkSession", plan: LoadPlan, source: _Source, staging: Path) -> "DataFrame":
    from pyspark.sql import functions

    assigned: dict[str, list[str]] = {}
    for part in plan.ranges:
        assigned.setdefault(part.topic, []).append(part.place.key)
    reader = session.read.format("barnabas").options(
        **{f"kafka.{key}": value for key, value in source.client.items()},
        **source.where.options,
        assign=json.dumps(assigned),
        startingOffsets=partitions_json({part.place: part.start for part in plan.ranges}),
        endingOffsets=partitions_json({part.place: part.end for part in plan.ranges}),
        failOnDataLoss=str(source.fail_on_data_loss).lower(),
        failOnDamage=str(not source.skip_damaged).lower(),
        damageReport=str((staging / _DAMAGE).absolute()),
        includeHeaders="true",
    )
    if source.where.classic:
        rows, moment = reader.load(), functions.current_timestamp()
    else:
        cores = session.sparkContext.defaultParallelism
        tasks = task_count([part.size for part in plan.ranges], cores=cores, rows_per_file=source.rows_per_file)
        sliced = reader.option("minPartitions", str(tasks)).option("maxRecordsPerPartition", str(source.rows_per_file))
        nothing = functions.lit(None).cast("int")
        rows = sliced.load().coalesce(tasks).withColumn("broker", nothing).withColumn("wrapperIndex", nothing)
        moment = functions.col("timestamp")
    return rows.withColumn("day", functions.to_date(moment)).select(*table_schema().names)


def _kept_rows(session: "SparkSession", plan: LoadPlan, folder: Path, names: Sequence[str]) -> "DataFrame":
    from pyspark.sql import functions

    pairs = [
        functions.lit(value)
        for place, start in plan.replaced_from.items()
        for value in (f"{place.topic}/{place.key}", start)
    ]
    position = functions.concat_ws("/", "topic", functions.concat_ws("-", "broker", "partition"))
    replaced_from = functions.try_element_at(functions.create_map(*pairs), position)
    files = [spark_path(folder / name, to_read=True) for name in names]
    frame = session.read.schema(table_schema()).option("basePath", spark_path(folder)).parquet(*files)
    return frame.where(replaced_from.isNull() | (functions.col("offset") < replaced_from))


def _commit(
    store: TableStore,
    last: Commit | None,
    plan: LoadPlan,
    affected: Sequence[AffectedFile],
    staging: Staging,
) -> LoadResult:
    damaged = read_damage(staging.folder / _DAMAGE)
    before = last.damaged if last is not None else ()
    files = staging.name_files()
    kept = sum(file.rows - file.replaced_rows for file in affected)
    rows = sum(parquet_rows(staging.folder / name) for name in files) - kept
    replaced = sum(file.replaced_rows for file in affected)
    if rows < 0 or (plan.rows_max is not None and rows > plan.rows_max):
        text = f"{rows} rows were written for {plan.rows_max} offsets; nothing is committed, please report this"
        raise TableError(text)
    ranges = [
        Range(topic=r.topic, partition=r.partition, start=r.start, end=r.end, broker=r.broker) for r in plan.ranges
    ]
    commit = store.commit(
        staging,
        TableChange(
            topics=plan.topics,
            ranges=ranges,
            rows=rows,
            replaced_rows=replaced,
            files=files,
            removed=[file.name for file in affected],
            lost=plan.lost,
            damaged=still_damaged(before, plan.replaced_from.items(), plan.replaced_topics, damaged),
        ),
    )
    return LoadResult(
        rows=rows,
        files=len(files),
        commit=commit.number,
        ranges=ranges,
        replaced_rows=replaced,
        lost=plan.lost,
        absent=_texts(plan),
        damaged=damaged,
    )


def _texts(plan: LoadPlan) -> list[str]:
    return [str(place) for place in plan.absent]


@contextmanager
def _watched(spark: "SparkSession", progress: Progress, rows: int) -> Iterator[None]:
    """Report finished tasks of the Spark job that runs inside, while it runs."""
    if progress is _quiet:
        yield
        return
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        told = (-1, -1)
        while not done.wait(_POLL_S):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            counts = [(info.numCompletedTasks, info.numTasks) for info in infos if info is not None]
            now = (sum(c for c, _ in counts), sum(n for _, n in counts))
            if counts and now != told:
                progress(LoadProgress(step="read", done=now[0], total=now[1], rows=rows))
                told = now

    thread = threading.Thread(target=watch, name="barnabas-load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
