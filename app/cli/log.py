"""`barnabas log`: look at the files of a broker, running or not, without changing them."""

import mmap
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...core.log.examine import (
    Finding,
    examine_index,
    examine_segment,
    examine_time_index,
    index_entries,
    time_index_entries,
)
from ...core.message.batch_header import BatchHeader, crc_valid
from ...core.message.message_set import MessageSet
from ...ports.errors import ConfigError
from ...ports.words import Buffer
from .consume import message_fields
from .options import AsJson, print_json

log = typer.Typer(help="Look at the files of a log: dump, verify.", no_args_is_help=True)

_LOG_FILE = re.compile(r"(\d{20})\.(log|index|timeindex)")
_CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


def register(app: typer.Typer) -> None:
    app.add_typer(log, name="log")


@log.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of a log, or folders with them.")],
    records: Annotated[bool, typer.Option("--records", help="Print the messages too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the batches of segments and the entries of indexes."""
    for path in _log_files(paths):
        base_offset, kind = _name(path)
        with _mapped(path) as content:
            if as_json:
                print_json({"file": str(path), "entries": list(_json_entries(content, kind, base_offset, records))})
                continue
            typer.echo(f"{path}  {len(content)} bytes")
            for line in _lines(content, kind, base_offset, records):
                typer.echo(f"  {line}")


@log.command()
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or a broker's data folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check every batch and every index; ends with 1 if anything is wrong.

    While a broker writes, the end of its newest segment may look cut.
    """
    segments, batches, problems = 0, 0, []
    for path in _log_files(paths):
        base_offset, kind = _name(path)
        if kind != "log":
            continue
        segments += 1
        with _mapped(path) as content:
            next_offset = base_offset
            for finding in examine_segment(content, base_offset):
                batches += 1
                if finding.header is not None:
                    next_offset = finding.header.next_offset
                if finding.problem:
                    problems.append(f"{path} at position {finding.position}: {finding.problem}")
            problems += _index_problems(path, content, base_offset, next_offset)
    if as_json:
        print_json({"segments": segments, "batches": batches, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"{segments} segments, {batches} batches, {len(problems)} problems")
    if problems:
        raise typer.Exit(1)


def _index_problems(segment: Path, content: Buffer, base_offset: int, next_offset: int) -> Iterator[str]:
    for suffix in (".index", ".timeindex"):
        path = segment.with_suffix(suffix)
        if not path.exists():
            continue  # a missing index is rebuilt at the next start
        with _mapped(path) as index:
            if suffix == ".index":
                problem = examine_index(index, content, base_offset)
            else:
                problem = examine_time_index(index, base_offset, next_offset)
        if problem:
            yield f"{path}: {problem}; delete the file and restart the broker to rebuild it"


def _log_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and _LOG_FILE.fullmatch(p.name))
            if not found:
                raise ConfigError(f"{path} holds no segments; give a partition's folder or a broker's data folder")
            yield from found
        elif not path.exists():
            raise ConfigError(f"{path} does not exist")
        else:
            _name(path)
            yield path


def _name(path: Path) -> tuple[int, str]:
    match = _LOG_FILE.fullmatch(path.name)
    if match is None:
        raise ConfigError(f"{path} is no file of a log (20 digits and .log, .index or .timeindex)")
    return int(match[1]), match[2]


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    """The content of a file without reading all of it into memory."""
    if path.stat().st_size == 0:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()


def _lines(content: Buffer, kind: str, base_offset: int, records: bool) -> Iterator[str]:
    if kind == "index":
        yield from (f"offset {offset}  position {position}" for offset, position in index_entries(content, base_offset))
    elif kind == "timeindex":
        yield from (f"timestamp {time}  offset {offset}" for time, offset in time_index_entries(content, base_offset))
    else:
        for finding in examine_segment(content, base_offset):
            fields = _batch_fields(content, finding)
            yield "  ".join(f"{name} {value}" for name, value in fields.items())
            if records:
                yield from (f"  | {fields}" for fields in _record_fields(content, finding))


def _json_entries(content: Buffer, kind: str, base_offset: int, records: bool) -> Iterator[Mapping[str, object]]:
    if kind == "index":
        yield from ({"offset": offset, "position": at} for offset, at in index_entries(content, base_offset))
    elif kind == "timeindex":
        yield from ({"timestamp": time, "offset": offset} for time, offset in time_index_entries(content, base_offset))
    else:
        for finding in examine_segment(content, base_offset):
            fields = _batch_fields(content, finding)
            if records:
                fields["records"] = list(_record_fields(content, finding))
            yield fields


def _batch_fields(content: Buffer, finding: Finding) -> dict[str, object]:
    fields: dict[str, object] = {"position": finding.position}
    header = finding.header
    if header is not None:
        fields |= {
            "offsets": f"{header.base_offset}..{header.last_offset}",
            "count": header.count,
            "bytes": header.size,
            "codec": _codec_name(header),
            "epoch": header.leader_epoch,
            "timestamps": f"{header.base_timestamp}..{header.max_timestamp}",
            "producer": f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}",
            "crc": "ok" if crc_valid(content, header, finding.position) else "WRONG",
        }
        marks = ("transactional", "control", "log_append_time")
        fields |= {mark: "yes" for mark in marks if getattr(header, mark)}
    if finding.problem:
        fields["problem"] = finding.problem
    return fields


def _codec_name(header: BatchHeader) -> str:
    known = header.codec_id < len(_CODEC_NAMES)
    return _CODEC_NAMES[header.codec_id] if known else f"unknown ({header.codec_id})"


def _record_fields(content: Buffer, finding: Finding) -> Iterator[dict[str, object]]:
    if finding.header is None or finding.problem:
        return
    from ...plugins.builtin.codecs import builtin_codecs

    batch = bytes(content[finding.position : finding.position + finding.header.size])
    for message in MessageSet(batch, builtin_codecs()):
        fields = message_fields(message)
        del fields["topic"], fields["partition"]
        yield fields
