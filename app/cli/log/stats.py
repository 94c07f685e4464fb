"""`barnabas log stats`: statistics of the logs in a folder, by segment, partition and topic."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....ports.errors import ConfigError
from ....ports.report import counted
from ..options import AsJson, print_json, print_table, progress
from .stats_page import page
from .stats_rows import SegmentRow, codecs_in_words, fields, gather, moment

if TYPE_CHECKING:
    from ....core.logtools.stats.log_stats import LogStats
    from ....ports.storage import Folder

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or a broker's data folder.")]
_GRAINS = ("topic", "partition", "segment")
_COLUMNS = ("bytes", "batches", "messages", "bytes/message", "codecs", "keys", "from", "to", "messages/s", "bytes/s")


def stats(
    paths: Folders,
    by: Annotated[str, typer.Option("--by", metavar="GRAIN", help="A row for each topic, partition or segment.")] = (
        "topic"
    ),
    headers_only: Annotated[
        bool, typer.Option("--headers-only", help="Open no batch: faster, without keys and sizes of messages.")
    ] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Also write a page with charts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print bytes, rates, keys, codecs and sizes of messages, of a running or stopped broker. Nothing is changed.

    The number of different keys is exact up to 1,024, then off by 2 % or so. Rates are by the messages' timestamps.
    """
    if by not in _GRAINS:
        raise ConfigError(f"--by {by}: give one of {', '.join(_GRAINS)}")
    gathered = gather(_segments(paths, records=not headers_only))
    if html is not None:
        html.write_text(page(gathered), encoding="utf-8")
    rows = {"topic": gathered.topics, "partition": gathered.partitions, "segment": gathered.segments}[by]
    if as_json:
        print_json([fields(row) for row in rows])
    else:
        _show(rows, by)
        if html is not None:
            typer.echo(f"the page is {html}", err=True)


def _segments(paths: Sequence[Path], *, records: bool) -> Iterator[SegmentRow]:
    from ....core.log.names import classic_folder_partition, folder_partition, folder_state
    from ...compose.log_files import log_places, opened_place

    for place in log_places(paths):
        with opened_place(place, to_write=False) as log_dir, progress("reading", None) as advance:
            for number, name in enumerate(log_dir.folders()):
                partition = folder_partition(name) or classic_folder_partition(name)
                wanted = name in place.partitions if place.partitions else partition is not None
                if not wanted or folder_state(name) is not None:
                    continue
                advance(number, label=name)
                topic, index = partition if partition is not None else (name, 0)
                for segment, figures in _figures_of(log_dir.folder(name), records=records):
                    yield SegmentRow(topic=topic, partition=index, segment=segment, figures=figures)


def _figures_of(folder: "Folder", *, records: bool) -> Iterator[tuple[str, "LogStats"]]:
    from ....core.log.names import CLASSIC_SEGMENT_FILE, LOG_SUFFIX, SEGMENT_FILE
    from ....core.logtools.stats.log_stats import batch_figures, classic_figures
    from ....plugins.builtin.codecs import builtin_codecs
    from ....ports.storage import FileMissing

    codecs = builtin_codecs()
    for name, info in sorted(folder.files().items()):
        found, classic = SEGMENT_FILE.fullmatch(name), CLASSIC_SEGMENT_FILE.fullmatch(name)
        is_segment = found is not None and found["kind"] == LOG_SUFFIX and not found["state"]
        if not is_segment and (classic is None or classic["state"]):
            continue
        try:
            file = folder.open(name, create=False)
        except FileMissing:
            continue  # retention has deleted it
        try:
            if is_segment:
                yield name, batch_figures(file, int(name[:20]), codecs, records=records)
            else:
                yield name, classic_figures(file, info.modified_ms, codecs, records=records)
        finally:
            file.close()


# --- output


def _show(rows: Sequence[SegmentRow], by: str) -> None:
    if not rows:
        typer.echo("there are no segments", err=True)
        return
    names = {"topic": ("topic",), "partition": ("topic", "partition"), "segment": ("topic", "partition", "segment")}[by]
    print_table((*names, *_COLUMNS), ([*(getattr(row, name) for name in names), *_cells(row.figures)] for row in rows))
    damaged = sum(row.figures.damaged_bytes for row in rows)
    if damaged:
        typer.echo(
            f"{counted(damaged, 'byte is', 'bytes are')} damaged and not counted; see 'barnabas log verify'",
            err=True,
        )


def _cells(figures: "LogStats") -> list[object]:
    about = "" if figures.keys.is_exact else "~"
    return [
        figures.bytes,
        figures.batches,
        figures.messages,
        round(figures.bytes / figures.messages) if figures.messages else "-",
        codecs_in_words(figures) or "-",
        f"{about}{figures.keys.estimate()}" if figures.opened else "-",
        moment(figures.first_ms),
        moment(figures.last_ms),
        _rate(figures.per_second(figures.messages)),
        _rate(figures.per_second(figures.bytes)),
    ]


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"
