"""Bring topics into a table, exactly once: what is new since the last load, or everything since a time."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from ..ports.errors import ApiError, BarnabasError, ConfigError
from ..schemas.access import access_settings, is_access_setting
from .session import local_session, require_spark
from .source.decoding_options import decoding_of
from .source.ranges import offsets_in_bucket
from .spark.errors import SparkFailed, plain_spark_errors
from .tables.files import FileFacts, file_facts
from .tables.formats import open_store, require_format
from .tables.layout import Layout, agreed_layout
from .tables.load_plan import LoadPlan, TopicRecreated, plan_load
from .tables.quarantine import put_in_quarantine
from .tables.reading import AffectedFile, affected_files
from .tables.rows import DAMAGE_NOTES, PROGRESS_NOTES, write_rows
from .tables.source import LoadSource
from .tables.state import Commit, Range, Staging, TableChange, TableError, plain_os_errors
from .tables.store import TableStore
from .tables.typed import TopicNotTyped, typed_values
from .topics.client_options import reader_settings
from .topics.damage import DamagedRange, read_damage, still_damaged
from .topics.group_offsets import check_group, commit_to_group
from .topics.model import PLACE_SETTINGS, REMOTE_STORAGE, Cluster, ClusterPartition, Where
from .topics.read_progress import read_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["LoadProgress", "LoadResult", "TopicsFailed", "load"]

ROWS_PER_FILE = 2_000_000
_REASONS = {
    "auto.offset.reset": "a load continues at the offsets of the table; since_ms (--since) starts elsewhere",
    "enable.auto.commit": "the table stores its offsets; group (--group) commits them to a group as well",
}
"""The reasons why a load refuses these client settings; the data source names options of its own in their place."""


# One load into a table whose lock is held: plan, rows written by Spark, commit.

FILES_MAX = 10_000
"""The limit of files of one load: only a partitioning that is finer than useful makes more."""
_DISK_FULL = os.strerror(errno.ENOSPC)
_POLL_S = 0.2
_QUICK_ROWS = 500_000
_FAULTS_OF_A_TOPIC = (ApiError, TopicRecreated, SparkFailed, TopicNotTyped)


@frozen(kw_only=True)
class LoadProgress:
    """Progress of a load: `step` is plan, start, read or commit; `done` of `total` tasks; `rows` expected in all, and
    `rows_read` of them, of a classic cluster a guess. `topics`: the expected rows of each topic that has new ones.
    """

    step: str
    done: int = 0
    total: int = 0
    rows: int = 0
    rows_read: int = 0
    topics: Mapping[str, int] = field(factory=dict)
    from_bucket: Mapping[str, int] = field(factory=dict)
    """The offsets of each topic that come from its remote storage, past the brokers."""


@frozen(kw_only=True)
class LoadResult:
    """Result of a load: `rows` added, `replaced_rows` that were there before. `commit` None = there was nothing new."""

    rows: int
    files: int
    commit: int | None
    ranges: Sequence[Range]
    replaced_rows: int = 0
    lost: Sequence[str] = ()
    deleted: Sequence[str] = ()
    """The offsets that a topic had lost, to retention for example, before this first load of it."""
    absent: Sequence[str] = ()
    """Partitions loaded before whose classic brokers were not there; a later load continues with them."""
    damaged: Sequence[DamagedRange] = ()
    """The ranges that were left out, with `skip_damaged`."""
    newest_ms: Mapping[str, int] = field(factory=dict)
    """The time of the newest record in the table, for each topic of this load whose records have times."""
    from_bucket: Mapping[str, int] = field(factory=dict)
    """The offsets of each topic that came from its remote storage, past the brokers, as planned."""
    quarantined: int = 0
    """Rows that do not decode: they are not in the table but in the one below it, in `quarantine.FOLDER`."""
    group_error: str | None = None
    """The reason why the commit to the group failed; rows and offsets are in the table nevertheless."""

    def joined(self, other: "LoadResult") -> "LoadResult":
        """Return the result of this load and a later one together."""
        return LoadResult(
            rows=self.rows + other.rows,
            files=self.files + other.files,
            commit=self.commit if other.commit is None else other.commit,
            ranges=[*self.ranges, *other.ranges],
            replaced_rows=self.replaced_rows + other.replaced_rows,
            lost=[*self.lost, *other.lost],
            deleted=[*self.deleted, *other.deleted],
            absent=[*self.absent, *other.absent],
            damaged=[*self.damaged, *other.damaged],
            newest_ms={**self.newest_ms, **other.newest_ms},
            from_bucket={**self.from_bucket, **other.from_bucket},
            quarantined=self.quarantined + other.quarantined,
        )


NOTHING = LoadResult(rows=0, files=0, commit=None, ranges=())
Progress = Callable[[LoadProgress], None]


def no_progress(_progress: LoadProgress) -> None:
    return None


@frozen(kw_only=True)
class TableLoad:
    """`run` may be called again and again, each time it begins where the table is."""

    store: TableStore
    source: LoadSource
    partition_by: str | None
    since_ms: int | None
    recreated: str
    spark: "SparkSession | None"
    progress: Progress
    log_file: Path | None

    def run(self, topics: Sequence[str]) -> LoadResult:
        """Load the topics: all of them in one commit, or none."""
        self.progress(LoadProgress(step="plan"))
        last = self.store.last()
        layout = agreed_layout(None if last is None else last.layout, self.partition_by)
        with self._connected() as cluster:
            plan = self.plan(cluster, last, topics)
            if REMOTE_STORAGE in self.source.client:
                plan = evolve(plan, from_bucket=offsets_in_bucket(cluster, plan.ranges))
        if plan.changes(last):
            done = self._carried_out(plan, last, layout)
        else:
            self._check_typed(plan, topics)
            newest = {} if last is None else last.newest_ms
            done = evolve(NOTHING, lost=plan.lost, absent=_texts(plan), newest_ms=newest)
        done = evolve(done, deleted=plan.deleted)
        return evolve(done, newest_ms={name: ms for name, ms in done.newest_ms.items() if name in topics})

    def run_each(self, topics: Sequence[str]) -> tuple[LoadResult, Mapping[str, BarnabasError]]:
        """Load as many of the topics as possible, and return the faults of the others; without faults it is a single
        load. Raises an error that is no topic's fault, and the fault of a topic that is the only one.
        """
        try:
            return self.run(topics), {}
        except _FAULTS_OF_A_TOPIC:
            if len(topics) == 1:
                raise
        failed: dict[str, BarnabasError] = {}
        good = self._without_faults(topics, failed)
        done = NOTHING
        if failed and good:  # the plan has found the topics at fault
            try:
                return self.run(good), failed
            except _FAULTS_OF_A_TOPIC:
                pass
        for topic in good:
            try:
                done = done.joined(self.run([topic]))
            except _FAULTS_OF_A_TOPIC as error:
                failed[topic] = error
        return done, failed

    def plan(self, cluster: Cluster, last: Commit | None, topics: Sequence[str]) -> LoadPlan:
        return plan_load(
            cluster,
            last,
            topics,
            since_ms=self.since_ms,
            fail_on_data_loss=self.source.fail_on_data_loss,
            recreated=self.recreated,
        )

    def _check_typed(self, plan: LoadPlan, topics: Sequence[str]) -> None:
        """Report a wrong format or registry also when nothing is new, for topics that have had messages."""
        typed_values(self.source, self.store, [name for name in topics if any(plan.topics[name].next_offsets.values())])

    def _without_faults(self, topics: Sequence[str], failed: dict[str, BarnabasError]) -> list[str]:
        """Return the topics that can be planned; the reasons why others cannot go into `failed`."""
        last = self.store.last()
        with self._connected() as cluster:
            for topic in topics:
                try:
                    self.plan(cluster, last, [topic])
                except _FAULTS_OF_A_TOPIC as error:
                    failed[topic] = error
        return [topic for topic in topics if topic not in failed]

    @contextmanager
    def _connected(self) -> Iterator[Cluster]:
        from .topics.connect import connect_cluster

        cluster: Cluster = connect_cluster(self.source.where, self.source.client)
        try:
            yield cluster
        finally:
            cluster.close()

    def _carried_out(self, plan: LoadPlan, last: Commit | None, layout: Layout) -> LoadResult:
        """Carry out the plan. A load that fails removes what it has written at once: the disk may be full of it."""
        try:
            return self._carry_out(plan, last, layout)
        except (BarnabasError, OSError) as error:
            with suppress(BarnabasError, OSError):
                self.store.recover()
            if self._is_in_effect(plan, last):
                text = (
                    f"{self.store.folder}: the load is in the table, and what was left to do after it failed: {error}"
                )
                raise TableError(text) from error
            if _DISK_FULL in str(error):  # no topic's fault
                text = (
                    f"{self.store.folder}: {_DISK_FULL}; nothing of this load is in the table, make room and load again"
                )
                raise TableError(text) from error
            raise

    def _is_in_effect(self, plan: LoadPlan, before: Commit | None) -> bool:
        """Return False also when the table cannot be read."""
        with suppress(BarnabasError, OSError):
            now = self.store.last()
            if now is None or (before is not None and now.number <= before.number):
                return False
            return dict(now.topics) == plan.topics and list(now.ranges) == _ranges(plan)
        return False

    def _carry_out(self, plan: LoadPlan, last: Commit | None, layout: Layout) -> LoadResult:
        self.progress(
            LoadProgress(step="start", rows=plan.rows, topics=plan.rows_by_topic, from_bucket=plan.from_bucket)
        )
        affected = affected_files(self.store, plan.replaced_from, plan.replaced_topics)
        if not plan.ranges and not affected:
            return self._commit(plan, last, layout, affected, self.store.begin_commit())
        typed = typed_values(self.source, self.store, list(dict.fromkeys(part.topic for part in plan.ranges)))
        own = local_session(quick=plan.rows < _QUICK_ROWS, log_file=self.log_file)
        with own if self.spark is None else nullcontext(self.spark) as session:
            staging = self.store.begin_commit()
            with plain_spark_errors(), _watched(session, self.progress, plan, staging.folder / PROGRESS_NOTES):
                undecodable = write_rows(
                    session, plan, self.source, self.store, layout, affected, staging.folder, typed
                )
            self._check_same_topics(plan)
            self.progress(LoadProgress(step="commit", rows=plan.rows, rows_read=plan.rows))
            if typed is not None and plan.ranges:
                with plain_spark_errors():
                    put_in_quarantine(session, self.store, plan, self.source, typed, undecodable)
            done = self._commit(plan, last, layout, affected, staging)
            return evolve(done, quarantined=undecodable)

    def _check_same_topics(self, plan: LoadPlan) -> None:
        """Raise `TopicRecreated` if a topic was created again since the plan: the rows may be those of another one."""
        known = {part.topic: plan.topics[part.topic].topic_id for part in plan.ranges}
        if not any(known.values()):
            return
        with self._connected() as cluster:
            found = cluster.topics(list(known))
        for topic, topic_id in known.items():
            if topic_id and (topic not in found or found[topic].topic_id != topic_id):
                text = f"topic {topic!r} was deleted or created again during the load"
                raise TopicRecreated(f"{text}; nothing is committed, load once more")

    def _commit(
        self,
        plan: LoadPlan,
        last: Commit | None,
        layout: Layout,
        affected: Sequence[AffectedFile],
        staging: Staging,
    ) -> LoadResult:
        damaged = read_damage(staging.folder / DAMAGE_NOTES)
        names = staging.name_files(rows_max=self.source.rows_per_file)
        facts = [file_facts(staging.folder, name) for name in names]
        if self.source.decoding and not facts and not self.store.exists():
            # The first row makes the table, since only then its columns are known; until then there is nothing to keep.
            shutil.rmtree(staging.folder)
            return evolve(NOTHING, ranges=_ranges(plan), lost=plan.lost, absent=_texts(plan), damaged=damaged)
        remaining = sum(file.rows - file.replaced_rows for file in affected)
        rows = sum(each.rows for each in facts) - remaining
        _check(plan, rows, len(facts))
        change = TableChange(
            layout=str(layout),
            topics=plan.topics,
            ranges=_ranges(plan),
            rows=rows,
            replaced_rows=sum(file.replaced_rows for file in affected),
            files=[each.name for each in facts],
            removed=[file.name for file in affected],
            lost=plan.lost,
            damaged=still_damaged(
                () if last is None else last.damaged, plan.replaced_from.items(), plan.replaced_topics, damaged
            ),
            newest_ms=_newest(last, plan, facts),
        )
        commit = self.store.commit(staging, change)
        return LoadResult(
            rows=rows,
            files=len(facts),
            commit=commit.number,
            ranges=change.ranges,
            replaced_rows=change.replaced_rows,
            lost=plan.lost,
            absent=_texts(plan),
            damaged=damaged,
            newest_ms=change.newest_ms,
            from_bucket=plan.from_bucket,
        )


def _check(plan: LoadPlan, rows: int, files: int) -> None:
    if rows < 0 or (plan.rows_max is not None and rows > plan.rows_max):
        text = f"{rows} rows were written for {plan.rows_max} offsets; nothing is committed, please report this"
        raise TableError(text)
    if files > FILES_MAX:
        text = f"{rows} rows went into {files} files, more than {FILES_MAX}; nothing is committed"
        raise TableError(f"{text}; partition by something coarser, such as month or key-hash:16")


def _ranges(plan: LoadPlan) -> list[Range]:
    return [
        Range(topic=each.topic, partition=each.partition, start=each.start, end=each.end, broker=each.broker)
        for each in plan.ranges
    ]


def _newest(last: Commit | None, plan: LoadPlan, facts: Sequence[FileFacts]) -> dict[str, int]:
    newest = {} if last is None else {t: ms for t, ms in last.newest_ms.items() if t not in plan.replaced_topics}
    for each in facts:
        topic = each.partition["topic"]
        if topic is not None and each.newest_ms is not None:
            newest[topic] = max(newest.get(topic, each.newest_ms), each.newest_ms)
    return newest


def _texts(plan: LoadPlan) -> list[str]:
    return [str(tp) for tp in plan.absent]


@contextmanager
def _watched(spark: "SparkSession", progress: Progress, plan: LoadPlan, notes: Path) -> Iterator[None]:
    """Report what the tasks of the Spark job that runs inside have read, while it runs."""
    if progress is no_progress:
        yield
        return
    done = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def watch() -> None:
        reported = (-1, -1, -1)
        while not done.wait(_POLL_S):
            infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            counts = [(info.numCompletedTasks, info.numTasks) for info in infos if info is not None]
            read = plan.rows_of(read_progress(notes))
            now = (sum(c for c, _ in counts), sum(n for _, n in counts), read)
            if counts and now != reported:
                progress(LoadProgress(step="read", done=now[0], total=now[1], rows=plan.rows, rows_read=read))
                reported = now

    thread = threading.Thread(target=watch, name="barnabas-load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


class TopicsFailed(BarnabasError):
    """Some of several topics, or all of them, were not loaded, and why; `result` is what was loaded of the others,
    which is in the table.
    """

    def __init__(self, failed: Mapping[str, BarnabasError], result: LoadResult, *, all_failed: bool = False) -> None:
        self.all_failed = all_failed
        self.failed = failed
        self.result = result
        super().__init__(self.text({topic: str(error) for topic, error in failed.items()}))

    def text(self, errors: Mapping[str, str]) -> str:
        """Return the text of the error, from the text of each topic's error."""
        start = "no topic was loaded" if self.all_failed else "some topics were not loaded, the others were"
        return f"{start}: {'; '.join(f'{topic}: {error}' for topic, error in errors.items())}"


def failures_by_topic(error: BarnabasError, topics: Sequence[str]) -> Mapping[str, BarnabasError]:
    """Return the topics that an error of `load` says something about: those of `TopicsFailed`, or the only one."""
    if isinstance(error, TopicsFailed):
        return error.failed
    return {topics[0]: error} if len(topics) == 1 and isinstance(error, _FAULTS_OF_A_TOPIC) else {}


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
    from_bucket: str = "",
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

    `from_bucket`: the URL of the cluster's remote storage, whose keys each Spark worker has in its environment; what
    brokers have only there is read past them.

    A topic that cannot be loaded does not stop the others: `TopicsFailed` reports it when they are in the table, also
    if none of several topics could be loaded. A single topic raises its own error.

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
    if from_bucket:
        settings[REMOTE_STORAGE] = from_bucket
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
        names = list(dict.fromkeys(topics))
        done, failed = loading.run_each(names)
        last = store.last()
        if group is not None and last is not None:
            loaded = [topic for topic in names if topic not in failed]
            done = evolve(done, group_error=_commit_to_group(group, loading.source, last, loaded))
    if failed:
        raise TopicsFailed(failed, done, all_failed=len(failed) == len(names))
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
