"""Small files of a partition, as loads leave them, into larger ones."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from attrs import frozen

from ..state import DataFile, TableError
from ..store import TableStore
from .changes import change_files
from .rewriting import rewrite, staged_names

COMPACT = "compact"
TARGET_BYTES = 128 * 1024 * 1024
_COMMIT_BYTES = 4 * 1024**3
"""The approximate size of one commit: an interruption loses only this work, and the disk needs only this space."""

Progress = Callable[[int, int], None]
"""Called with the number of files done, and of all."""


@frozen(kw_only=True)
class Compacted:
    """Result of a compaction: the numbers of files before and after; `commit` None: there was nothing to do."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    commit: int | None


def compact(
    store: TableStore, *, target_bytes: int = TARGET_BYTES, progress: Progress = lambda _done, _of: None
) -> Compacted:
    """Needs the lock. Rows and offsets stay as they are. Raises `TableError`."""
    bins = list(choose(store.files(), target_bytes))
    total = sum(map(len, bins))
    done = after = bytes_after = 0
    commit: int | None = None
    for several in _portions(bins):
        last = store.last()
        if last is None:
            raise TableError(f"{store.folder} is not a loaded table")
        staging = store.begin_commit()
        for index, files in enumerate(several):
            rows = rewrite(store.folder, files, staging, index).rows
            if rows != sum(file.rows for file in files):
                said = ", ".join(file.name for file in files)
                raise TableError(f"{store.folder}: {rows} rows were read from {said}, which should have more or less")
            done += len(files)
            progress(done, total)
        rows = sum(file.rows for files in several for file in files)
        names = staged_names(staging, rows, gather=False)  # they are as large as they should be
        bytes_after += sum((staging.folder / name).stat().st_size for name in names)
        after += len(names)
        removed = [file.name for files in several for file in files]
        commit = store.commit(staging, change_files(last, COMPACT, files=names, removed=removed)).number
    before = sum(file.size_bytes for files in bins for file in files)
    return Compacted(files_before=total, files_after=after, bytes_before=before, bytes_after=bytes_after, commit=commit)


def choose(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of files to join: of the same partition, smaller than half of the target, at least two."""
    small = [file for file in files if file.size_bytes < target_bytes // 2]
    for _, group in groupby(sorted(small, key=_place), key=lambda file: _place(file)[0]):
        together: list[DataFile] = []
        size = 0
        for file in group:
            if together and size + file.size_bytes > target_bytes:
                if len(together) > 1:
                    yield together
                together, size = [], 0
            together.append(file)
            size += file.size_bytes
        if len(together) > 1:
            yield together


def _place(file: DataFile) -> tuple[tuple[tuple[str, str], ...], str]:
    return tuple((column, value or "") for column, value in file.partition.items()), file.name


def _portions(bins: Sequence[list[DataFile]]) -> Iterator[list[list[DataFile]]]:
    portion: list[list[DataFile]] = []
    size = 0
    for files in bins:
        portion.append(files)
        size += sum(file.size_bytes for file in files)
        if size >= _COMMIT_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
