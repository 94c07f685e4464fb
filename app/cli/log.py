"""`barnabas log`: look at the files of a broker, running or not, without changing them."""

import mmap
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ...core.log.config import LONG_MAX
from ...core.log.examine import examine_index, examine_segment, examine_time_index
from ...core.log.examine_classic import examine_classic_chain, examine_classic_segment
from ...core.log.names import CLASSIC_SUFFIX, segment_file
from ...ports.errors import ConfigError
from ...ports.words import Buffer
from .log_entries import as_lines, entries
from .options import AsJson, print_json

log = typer.Typer(help="Look at the files of a log: dump, verify.", no_args_is_help=True)

_LOG_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|kafka)")


def register(app: typer.Typer) -> None:
    app.add_typer(log, name="log")


@log.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of a log, or folders with them.")],
    records: Annotated[bool, typer.Option("--records", help="Print the messages too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the batches or classic messages of segments and the entries of indexes."""
    for path in _log_files(paths):
        base_offset, kind = _name(path)
        with _mapped(path) as content:
            found = entries(content, kind, base_offset, records=records)
            if as_json:
                print_json({"file": str(path), "entries": list(found)})
                continue
            typer.echo(f"{path}  {len(content)} bytes")
            for fields in found:
                for line in as_lines(fields):
                    typer.echo(f"  {line}")


@log.command()
def verify(
    paths: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or a broker's data folder.")
    ],
    as_json: AsJson = False,
) -> None:
    """Check every batch or classic message and every index; ends with 1 if anything is wrong.

    While a broker writes, the end of its newest segment may look cut.
    """
    counts = {"segments": 0, "batches": 0, "messages": 0}
    problems: list[str] = []
    classic: dict[Path, list[tuple[int, int]]] = defaultdict(list)
    files = [path for path in _log_files(paths) if _name(path)[1] in ("log", "kafka")]
    for path, following in zip(files, [*files[1:], None], strict=True):
        base_offset, kind = _name(path)
        counts["segments"] += 1
        with _mapped(path) as content:
            if kind == "log":
                below = _name(following)[0] if following is not None and following.parent == path.parent else LONG_MAX
                counts["batches"] += _verify_batches(path, content, base_offset, below, problems)
            else:
                counts["messages"] += _verify_messages(path, content, problems)
                classic[path.parent].append((base_offset, len(content)))
    for folder, segments in classic.items():
        for base_offset, problem in examine_classic_chain(segments):
            problems.append(f"{folder / segment_file(base_offset, CLASSIC_SUFFIX)} {problem}")
    if as_json:
        print_json({**counts, "problems": problems})
    else:
        for problem in problems:
            typer.echo(problem)
        told = [f"{count} {what}" for what, count in counts.items() if count or what != "messages"]
        typer.echo(", ".join([*told, f"{len(problems)} problems"]))
    if problems:
        raise typer.Exit(1)


def _verify_batches(path: Path, content: Buffer, base_offset: int, below: int, problems: list[str]) -> int:
    """Add what is wrong with a segment of batches and its indexes; how many batches were found.

    `below` is where the next segment begins. What is missing before it counts, unless offsets are missing between
    batches too, as they are where the log was compacted.
    """
    count, next_offset, compacted = 0, base_offset, False
    damaged: list[tuple[int, int]] = []
    for finding in examine_segment(content, base_offset, below):
        if finding.header is not None:
            count += 1
            compacted = compacted or finding.header.base_offset > next_offset
            next_offset = finding.header.next_offset
        if finding.problem:
            problems.append(f"{path} at position {finding.position}: {finding.problem}")
        if finding.header is None:
            damaged.append((finding.position, finding.end))
    if next_offset < below < LONG_MAX and not (compacted or damaged):
        problems.append(f"{path} ends at offset {next_offset}: the offsets {next_offset} to {below - 1} are missing")
    problems += _index_problems(path, content, base_offset, next_offset, damaged)
    return count


def _verify_messages(path: Path, content: Buffer, problems: list[str]) -> int:
    """The same for a segment of classic messages; compressed ones count as one."""
    count = 0
    for finding in examine_classic_segment(content):
        count += 1
        if finding.problem:
            problems.append(f"{path} at position {finding.position}: {finding.problem}")
    return count


def _index_problems(
    segment: Path, content: Buffer, base_offset: int, next_offset: int, damaged: list[tuple[int, int]]
) -> Iterator[str]:
    for suffix in (".index", ".timeindex"):
        path = segment.with_suffix(suffix)
        if not path.exists():
            continue  # a missing index is rebuilt at the next start
        with _mapped(path) as index:
            if suffix == ".index":
                problem = examine_index(index, content, base_offset, damaged)
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
        raise ConfigError(f"{path} is no file of a log (20 digits and .log, .index, .timeindex or .kafka)")
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
