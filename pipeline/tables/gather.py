"""Small files of one folder become one: each task of Spark's writes its own file into every folder it has rows for."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from .files import parquet_rows

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SMALL_BYTES = 16 * 1024 * 1024
SMALL_ROWS = 50_000
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_THREADS = 2


def gather_small_files(
    paths: Iterable[Path], *, small_bytes: int = SMALL_BYTES, small_rows: int = SMALL_ROWS, rows_max: int | None = None
) -> None:
    """Join the small ones of these Parquet files that are in the same folder, up to eight times `small_bytes` and
    `rows_max` rows in a file. The first file of each group stays, with all the rows; the others are deleted. A file
    with `small_rows` or more does not count as small, however well it is compressed: to rewrite it would cost as much
    as the load.
    """
    few = (path for path in paths if path.stat().st_size < small_bytes)
    rows = {path: parquet_rows(path) for path in few}
    small = sorted(path for path, count in rows.items() if count < small_rows)
    groups: list[list[Path]] = []
    for _, of_folder in groupby(small, key=lambda path: path.parent):
        groups += _filled([(path, rows[path]) for path in of_folder], 8 * small_bytes, rows_max)
    with ThreadPoolExecutor(_THREADS, "barnabas-gather") as threads:
        for _ in threads.map(_merge, (group for group in groups if len(group) > 1)):
            pass


def _filled(files: Sequence[tuple[Path, int]], most_bytes: int, most_rows: int | None) -> list[list[Path]]:
    groups: list[list[Path]] = [[]]
    size = rows = 0
    for path, count in files:
        here = path.stat().st_size
        if groups[-1] and (size + here > most_bytes or (most_rows is not None and rows + count > most_rows)):
            groups.append([])
            size = rows = 0
        groups[-1].append(path)
        size, rows = size + here, rows + count
    return groups


def _merge(paths: Sequence[Path]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = paths[0].with_suffix(".gathering")
    writer: pq.ParquetWriter | None = None
    waiting: list[pa.Table] = []
    for path in paths:
        with pq.ParquetFile(path) as file:
            if writer is None:
                writer = pq.ParquetWriter(target, file.schema_arrow, compression="zstd")
            for index in range(file.num_row_groups):
                waiting.append(file.read_row_group(index))
                if sum(table.nbytes for table in waiting) > _ROW_GROUP_BYTES:
                    _write(writer, waiting)
    if writer is not None:
        _write(writer, waiting)
        writer.close()
    target.rename(paths[0])
    for path in paths[1:]:
        path.unlink()


def _write(writer: "pq.ParquetWriter", waiting: "list[pa.Table]") -> None:
    import pyarrow as pa

    if waiting:
        writer.write_table(pa.concat_tables(waiting))
        waiting.clear()
