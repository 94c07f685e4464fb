"""The record times of a file's rows, from its footer."""

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from attrs import frozen

from ..state import DataFile

COLUMN = "timestamp"


@frozen(kw_only=True)
class Times:
    """Milliseconds since the epoch, of the oldest and the newest row; None: unknown. `complete` False: there may be
    further rows that have no time."""

    oldest_ms: int | None = None
    newest_ms: int | None = None
    complete: bool = False


def file_times(folder: Path, file: DataFile) -> Times:
    """Classic messages have no times: rows without one count to the end of the day that their folder names."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(folder / file.name)
    column = next((i for i in range(footer.num_columns) if footer.schema.column(i).path == COLUMN), None)
    if column is None:
        return _of_folder(file)
    found = [footer.row_group(i).column(column).statistics for i in range(footer.num_row_groups)]
    if any(each is None or not (each.has_min_max or each.null_count) for each in found):
        return Times()
    timed = [each for each in found if each.has_min_max]
    if not timed:
        return _of_folder(file)
    return Times(
        oldest_ms=min(_ms(each.min) for each in timed),
        newest_ms=max(_ms(each.max) for each in timed),
        complete=len(timed) == len(found) and not any(each.null_count for each in timed),
    )


def _of_folder(file: DataFile) -> Times:
    day = file.partition.get("day")
    if day is None:
        return Times()
    try:
        begin = datetime.combine(date.fromisoformat(day), time(), UTC)
    except ValueError:
        return Times()
    return Times(oldest_ms=_ms(begin), newest_ms=_ms(begin + timedelta(days=1)) - 1, complete=True)


def _ms(moment: datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
