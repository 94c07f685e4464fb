"""Description of a table: its contents, and the age of its newest row."""

from collections.abc import Callable, Mapping, Sequence

from attrs import frozen

from ..state import Commit, DataFile, no_table
from ..store import TableStore
from .times import Times, file_times

Progress = Callable[[int, int], None]


@frozen(kw_only=True)
class TopicDescription:
    """Description of the table's rows of one topic. Times are those of the records, in milliseconds since the epoch;
    None: no row, or no file says.
    """

    topic: str
    topic_id: str
    rows: int
    files: int
    size_bytes: int
    oldest_ms: int | None
    newest_ms: int | None
    next_offsets: Mapping[str, int]
    """The next offsets by partition; of a classic topic by broker-partition."""


@frozen(kw_only=True)
class TableDescription:
    folder: str
    format: str
    layout: Sequence[str]
    """The columns that are folders."""
    commit: int
    committed_ms: int
    topics: Sequence[TopicDescription]
    damaged: Sequence[str]
    """The ranges that the table lacks since they were damaged when they were read."""

    @property
    def newest_ms(self) -> int | None:
        return max((each.newest_ms for each in self.topics if each.newest_ms is not None), default=None)


def describe_table(store: TableStore, *, progress: Progress = lambda _done, _of: None) -> TableDescription:
    """Reads a footer per file. Raises `TableError`."""
    last = store.last()
    if last is None:
        raise no_table(store.folder)
    files = store.files()
    times: dict[str, Times] = {}
    for number, file in enumerate(files, 1):
        times[file.name] = file_times(store.folder, file)
        progress(number, len(files))
    names = sorted(set(last.topics) | {_topic(file) for file in files})
    return TableDescription(
        folder=str(store.folder.absolute()),
        format=store.format,
        layout=list(files[0].partition) if files else [],
        commit=last.number,
        committed_ms=last.created_ms,
        topics=[_describe(name, last, [file for file in files if _topic(file) == name], times) for name in names],
        damaged=[str(each) for each in last.damaged],
    )


def _describe(name: str, last: Commit, files: Sequence[DataFile], times: Mapping[str, Times]) -> TopicDescription:
    state = last.topics.get(name)
    oldest = [times[file.name].oldest_ms for file in files]
    newest = [times[file.name].newest_ms for file in files]
    return TopicDescription(
        topic=name,
        topic_id=state.topic_id if state is not None else "",
        rows=sum(file.rows for file in files),
        files=len(files),
        size_bytes=sum(file.size_bytes for file in files),
        oldest_ms=min((each for each in oldest if each is not None), default=None),
        newest_ms=max((each for each in newest if each is not None), default=None),
        next_offsets=dict(state.next_offsets) if state is not None else {},
    )


def _topic(file: DataFile) -> str:
    return file.partition.get("topic") or ""
