"""`barnabas log`: dump, check and repair the files of a broker, running or not."""

import json
import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve

from ....core.log.checkpoints import (
    CLEANED,
    HIGH_WATERMARK,
    LEADER_EPOCHS,
    LOG_START,
    PARTITION_METADATA,
    RECOVERY_POINT,
    SEGMENTS,
    parse_epochs,
    parse_offsets,
    parse_partition_metadata,
    parse_segments,
)
from ....core.log.producers.snapshot import decode_snapshot
from ....core.log.segment.transaction_index import ENTRY as ABORTED_ENTRY
from ....core.logtools.dump import (
    BatchFinding,
    ClassicFinding,
    examine_classic_segment,
    examine_segment,
    index_entries,
    time_index_entries,
)
from ....core.message.batch_header import DELETE_HORIZON_BIT, BatchHeader, is_crc_valid
from ....core.message.classic.message_set import ClassicMessageSet
from ....core.message.codec import Codecs
from ....core.message.control_records import read_marker
from ....core.message.message import Message
from ....core.message.message_set import MessageSet
from ....ports.errors import ApiError, ConfigError
from ....ports.report import counted
from ....ports.storage import FolderLocked
from ....ports.types import Buffer
from ..message_format import message_fields
from ..options import AsJson, Execute, print_json, progress
from ..tier import tier
from .stats import stats

if TYPE_CHECKING:
    from ....core.logtools.verify.data_folder import CheckContext, CheckResult, RepairResult
    from ....core.logtools.verify.findings import Finding
    from ....ports.storage import LogDir
    from ...compose.log_files import CheckedTree, LogDirSelection


log = typer.Typer(help="Dump, check, repair and summarize the files of a log.", no_args_is_help=True)


# `barnabas log verify` and `barnabas log repair`: find and repair damage in the files of a broker.

Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Partition folders, or a broker's data folder.")]
_IN_USE = "a broker has {path} open: unfinished writes may look damaged, and are left out where they are known"


def add_check_commands(log: typer.Typer) -> None:
    log.command()(verify)
    log.command()(repair)


def verify(
    paths: Folders,
    notes: Annotated[
        bool, typer.Option("--notes", help="Also list harmless findings: stale and quarantined files.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check every file of a log; ends with 1 if anything is wrong. Nothing is changed.

    It works while a broker has the folder open, which it reports, and on a copy of the folder.
    """
    from ...compose.log_files import open_selection, select_log_dirs

    selections = select_log_dirs(paths)
    rows: list[dict[str, object]] = []
    wrong = 0
    for selection in selections:
        in_use = selection.in_use
        tree = _tree(selection, in_use=in_use)
        with open_selection(selection, to_write=False) as log_dir:
            context = _context(selections, selection, tree, alone=None, in_use=in_use)
            checked = _with_tree(_checked(log_dir, selection, context), tree, log_dir)
        wrong += len(_problems(checked.findings))
        row = _counts(selection, checked) | {"in_use": in_use}
        rows.append(row | _sorted_out(checked.findings))
        if not as_json:
            if in_use:
                typer.echo(_IN_USE.format(path=selection.path), err=True)
            _print_findings(selection, checked.findings, notes=notes)
            _print_counts(checked, wrong=len(_problems(checked.findings)))
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    if wrong:
        raise typer.Exit(1)


def repair(
    paths: Folders,
    execute: Execute = False,
    alone: Annotated[
        bool | None,
        typer.Option(
            "--alone/--replica",
            help="Whether no other broker has replicas of these logs. Default: whether the coordination file of a "
            "single broker is in the folder.",
        ),
    ] = None,
    as_json: AsJson = False,
    apply: Annotated[bool, typer.Option("--apply", hidden=True, help="The earlier name of --execute.")] = False,
) -> None:
    """Show how to repair the files of a stopped broker, and what is lost; with --execute do it.

    No message is deleted: what is cut out of a segment goes to a file *.aside. Ends with 1 while problems remain.
    """
    from ....core.logtools.verify.data_folder import repair as repair_folder
    from ....core.logtools.verify.overlay_folder import OverlayLogDir
    from ...compose.log_files import open_selection, select_log_dirs

    execute = execute or apply
    selections = select_log_dirs(paths)
    rows: list[dict[str, object]] = []
    failed = False
    for selection in selections:
        if selection.in_use:
            raise FolderLocked(f"a broker has {selection.path} open; stop it, then repair")
        with open_selection(selection, to_write=execute) as opened:
            tree, of_tree = _repaired_tree(selection, applied=execute)
            context = _context(selections, selection, tree, alone=alone, in_use=False)
            log_dir: LogDir = opened if execute else OverlayLogDir(opened)
            found = repair_folder(log_dir, partial(_findings, selection, context))
        left = [*(tree.findings if tree is not None else ()), *found.left]
        found = evolve(found, repaired=[*of_tree, *found.repaired], left=left)
        failed = failed or bool(found.left) or (bool(found.repaired) and not execute)
        rows.append(_repaired_row(selection, found, applied=execute))
        if not as_json:
            _print_repair(selection, found, context, applied=execute)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    if failed:
        raise typer.Exit(1)


def _tree(selection: "LogDirSelection", *, in_use: bool) -> "CheckedTree | None":
    """Read the coordination file, if it is there and no broker is writing it."""
    from ...compose.log_files import check_tree

    file = selection.coordination_file
    return None if file is None or in_use else check_tree(file)


def _repaired_tree(selection: "LogDirSelection", *, applied: bool) -> "tuple[CheckedTree | None, list[Finding]]":
    """Return (the coordination file after its repair, the findings that the repair resolves)."""
    from ...compose.log_files import repair_tree

    before = _tree(selection, in_use=False)
    if before is None or not before.is_damaged:
        return before, []
    assert selection.coordination_file is not None
    if applied:
        repair_tree(selection.coordination_file, before)
        after = _tree(selection, in_use=False)
        assert after is not None
        return after, [finding for finding in before.findings if finding not in after.findings]
    return evolve(before, findings=[]), before.findings


def _with_tree(checked: "CheckResult", tree: "CheckedTree | None", log_dir: "LogDir") -> "CheckResult":
    from ....core.log.names import folder_partition
    from ....core.logtools.verify.tree_check import without_folder

    if tree is None:
        return checked
    present = {partition for name in log_dir.folders() if (partition := folder_partition(name)) is not None}
    missing = without_folder(tree.topics, present, "coordination.db")
    return evolve(checked, findings=[*tree.findings, *checked.findings, *missing])


def _context(
    selections: Sequence["LogDirSelection"],
    selection: "LogDirSelection",
    tree: "CheckedTree | None",
    *,
    alone: bool | None,
    in_use: bool,
) -> "CheckContext":
    from ....core.logtools.verify.data_folder import CheckContext
    from ....plugins.builtin.codecs import builtin_codecs

    if alone is None:
        alone = not selection.is_data_folder or any(each.coordination_file is not None for each in selections)
    return CheckContext(
        alone=alone,
        in_use=in_use,
        only=selection.partitions,
        codecs=builtin_codecs(),
        topics=None if tree is None else tree.topics,
    )


def _checked(log_dir: "LogDir", selection: "LogDirSelection", context: "CheckContext") -> "CheckResult":
    from ....core.logtools.verify.data_folder import DataFolderCheck

    with progress(f"checking {selection.path.name}", None) as advance:
        done = 0

        def checking(name: str) -> None:
            nonlocal done
            done += 1
            advance(done, label=name)

        return DataFolderCheck(log_dir, evolve(context, progress=checking)).check()


def _findings(selection: "LogDirSelection", context: "CheckContext", log_dir: "LogDir") -> Sequence["Finding"]:
    return _checked(log_dir, selection, context).findings


# --- output


def _problems(findings: Iterable["Finding"]) -> list["Finding"]:
    from ....core.logtools.verify.findings import problems

    return problems(findings)


def _print_findings(selection: "LogDirSelection", findings: Iterable["Finding"], *, notes: bool) -> None:
    for finding in findings:
        if notes or not finding.is_note:
            typer.echo(f"{selection.path}/{finding}{_remedy(finding)}")


def _remedy(finding: "Finding") -> str:
    return f"; {finding.remedy}" if finding.remedy and (finding.is_note or finding.needs_person) else ""


def _print_counts(checked: "CheckResult", wrong: int) -> None:
    counts = checked.counts
    parts = (
        counted(counts.partitions, "partition"),
        counted(counts.segments, "segment"),
        counted(counts.batches, "batch", "batches"),
        counted(counts.messages, "message"),
        counted(wrong, "problem"),
    )
    typer.echo(", ".join(parts))


def _print_repair(selection: "LogDirSelection", found: "RepairResult", known: "CheckContext", *, applied: bool) -> None:
    if not found.repaired and not found.left:
        typer.echo(f"{selection.path}: no problem to repair")
        return
    if not known.alone:
        typer.echo(
            f"{selection.path}: assuming other replicas; use --alone if no other broker has these messages", err=True
        )
    for finding in found.repaired:
        typer.echo(f"{selection.path}/{finding}; {finding.remedy}")
        if finding.loss is not None:
            typer.echo(f"  lost: {_loss_in_words(finding)}")
    for finding in found.left:
        typer.echo(f"{selection.path}/{finding}; not repaired{_remedy(finding)}")
    what = "repaired" if applied else "to repair"
    repaired = counted(len(found.repaired), "problem")
    typer.echo(f"{repaired} {what}, {len(found.left)} left; {_sum_in_words(found.repaired)}")
    if not applied and found.repaired:
        typer.echo("nothing was changed; repeat the command with --execute to repair it", err=True)


def _loss_in_words(finding: "Finding") -> str:
    loss = finding.loss
    assert loss is not None
    parts = []
    if loss.next_offset < 0:
        parts.append(f"the offsets from {loss.first_offset} on")
    elif loss.next_offset > loss.first_offset:
        parts.append(f"the offsets {loss.first_offset} to {loss.next_offset - 1}")
    else:
        parts.append("no offset")
    unknown = loss.messages is None
    parts.append("unknown number of messages" if unknown else f"at most {counted(loss.messages or 0, 'message')}")
    parts.append(counted(loss.bytes, "byte"))
    return ", ".join(parts)


def _sum_in_words(findings: Iterable["Finding"]) -> str:
    total = _sum_of_losses(findings)
    messages = counted(total["messages"], "message") + (" and more" if total["unknown"] else "")
    return f"lost: at most {messages}, {counted(total['bytes'], 'byte')}"


def _sum_of_losses(findings: Iterable["Finding"]) -> dict[str, int]:
    losses = [finding.loss for finding in findings if finding.loss is not None]
    return {
        "messages": sum(loss.messages or 0 for loss in losses),
        "bytes": sum(loss.bytes for loss in losses),
        "unknown": sum(loss.messages is None for loss in losses),
    }


def _counts(selection: "LogDirSelection", checked: "CheckResult") -> dict[str, object]:
    counts = checked.counts
    return {
        "folder": str(selection.path),
        "partitions": counts.partitions,
        "segments": counts.segments,
        "batches": counts.batches,
        "messages": counts.messages,
    }


def _sorted_out(findings: Sequence["Finding"]) -> dict[str, object]:
    return {
        "problems": [_row(finding) for finding in findings if not finding.is_note],
        "notes": [_row(finding) for finding in findings if finding.is_note],
    }


def _row(finding: "Finding") -> dict[str, object]:
    row: dict[str, object] = {"kind": finding.kind, "file": finding.file, "text": finding.text}
    if finding.position >= 0:
        row["position"] = finding.position
    if finding.remedy:
        row["remedy"] = finding.remedy
    loss = finding.loss
    if loss is not None:
        row["lost"] = {
            "first_offset": loss.first_offset,
            "last_offset": loss.next_offset - 1 if loss.next_offset >= 0 else None,
            "messages": loss.messages,
            "bytes": loss.bytes,
        }
    return row


def _repaired_row(selection: "LogDirSelection", found: "RepairResult", *, applied: bool) -> dict[str, object]:
    total = _sum_of_losses(found.repaired)
    return {
        "folder": str(selection.path),
        "applied": applied,
        "mended": [_row(finding) for finding in found.repaired],
        "left": [_row(finding) for finding in found.left],
        "notes": [_row(finding) for finding in found.notes],
        "lost": {"messages": total["messages"], "bytes": total["bytes"], "of_unknown_extent": total["unknown"]},
    }


add_check_commands(log)
log.command()(stats)
log.add_typer(tier, name="tier")

_LOG_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex|snapshot|kafka)")


def register(app: typer.Typer) -> None:
    app.add_typer(log, name="log")


# The output of `barnabas log dump` for each kind of file.

Fields = dict[str, object]
RECORDS = "records"
RecordDecoder = Callable[[Message], Fields]
"""Returns further fields of a message."""

_CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
_LATE = 2**63 - 1


def entries(
    content: Buffer, kind: str, base_offset: int, *, records: bool, decoder: RecordDecoder | None = None
) -> Iterator[Fields]:
    """Yield the fields of the entries of a segment file; with `records` their messages too."""
    if kind == "log":
        return _batches(content, base_offset, records, decoder)
    if kind == "kafka":
        return _classic_messages(content, base_offset, records)
    return _INDEXES[kind](content, base_offset)


def small_file_entries(content: bytes, name: str) -> Iterator[Fields]:
    """Yield the fields of a checkpoint or label; one that cannot be read has the field `problem`."""
    try:
        yield from _SMALL_FILES[name](content)
    except (ValueError, TypeError) as error:
        yield {"problem": str(error)}


def as_lines(fields: Fields) -> Iterator[str]:
    """Yield the lines for a person."""
    messages = fields.pop(RECORDS, ())
    yield "  ".join(f"{name} {value}" for name, value in fields.items())
    assert isinstance(messages, Iterable)
    for message in messages:
        yield f"  | {message}"


def _batches(content: Buffer, base_offset: int, records: bool, decoder: RecordDecoder | None) -> Iterator[Fields]:
    codecs = _codecs()
    for finding in examine_segment(content, base_offset):
        fields = _batch_fields(content, finding)
        header = finding.header
        if header is not None and header.control and not finding.problem:
            fields |= _marker_fields(content, finding.position, header)
        elif records and header is not None:
            whole = not finding.problem
            batch = bytes(content[finding.position : finding.position + header.size]) if whole else b""
            fields[RECORDS] = _message_fields(MessageSet(batch, codecs), decoder)
        yield fields


def _marker_fields(content: Buffer, position: int, header: BatchHeader) -> Fields:
    try:
        marker = read_marker(bytes(content[position : position + header.size]), header)
    except ApiError as error:
        return {"problem": error.message}
    if marker is None:
        return {}
    return {"marker": "COMMIT" if marker.committed else "ABORT", "coordinator_epoch": marker.coordinator_epoch}


def _batch_fields(content: Buffer, finding: BatchFinding) -> Fields:
    fields: Fields = {"position": finding.position}
    header = finding.header
    if header is not None:
        fields |= {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.count,
            "bytes": header.size,
            "codec": _codec_name(header.codec_id),
            "leader_epoch": header.leader_epoch,
            "base_timestamp": header.base_timestamp,
            "max_timestamp": header.max_timestamp,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "crc": "ok" if is_crc_valid(content, header, finding.position) else "WRONG",
        }
        marks = ("transactional", "control", "log_append_time")
        fields |= {mark: True for mark in marks if getattr(header, mark)}
        if header.attributes & DELETE_HORIZON_BIT:
            fields["delete_horizon"] = header.base_timestamp
    if finding.problem:
        fields["problem"] = finding.problem
    return fields


def _classic_messages(content: Buffer, base_offset: int, records: bool) -> Iterator[Fields]:
    for finding in examine_classic_segment(content):
        fields = _classic_fields(finding, base_offset)
        if records:
            at, whole = finding.position, not finding.problem
            entry = bytes(content[at : at + finding.size]) if whole else b""
            fields[RECORDS] = _message_fields(ClassicMessageSet(entry, _codecs(), from_offset=base_offset + at))
        yield fields


def _classic_fields(finding: ClassicFinding, base_offset: int) -> Fields:
    fields: Fields = {"position": finding.position, "offset": base_offset + finding.position}
    if finding.size:
        fields |= {
            "next": base_offset + finding.position + finding.size,
            "bytes": finding.size,
            "payload": finding.payload_bytes,
            "magic": finding.magic,
            "codec": _codec_name(finding.codec_id),
            "crc": "ok" if finding.crc_valid else "WRONG",
        }
    if finding.problem:
        fields["problem"] = finding.problem
    return fields


def _codec_name(codec_id: int) -> str:
    return _CODEC_NAMES[codec_id] if codec_id < len(_CODEC_NAMES) else f"unknown ({codec_id})"


def _message_fields(messages: Iterable[Message], decoder: RecordDecoder | None = None) -> list[Fields]:
    found = []
    for message in messages:
        fields = message_fields(message)
        del fields["topic"], fields["partition"]
        if decoder is not None:
            fields |= decoder(message)
        found.append(fields)
    return found


def _codecs() -> Codecs:
    from ....plugins.builtin.codecs import builtin_codecs

    return builtin_codecs()


# --- indexes, snapshots


def _index(content: Buffer, base_offset: int) -> Iterator[Fields]:
    for offset, position in index_entries(content, base_offset):
        yield {"offset": offset, "position": position}


def _time_index(content: Buffer, base_offset: int) -> Iterator[Fields]:
    for timestamp, offset in time_index_entries(content, base_offset):
        yield {"timestamp": timestamp, "offset": offset}


def _aborted(content: Buffer, _base_offset: int) -> Iterator[Fields]:
    whole = len(content) - len(content) % ABORTED_ENTRY.size
    for version, producer_id, first, last, stable in ABORTED_ENTRY.iter_unpack(bytes(content[:whole])):
        yield {
            "version": version,
            "producer_id": producer_id,
            "first_offset": first,
            "last_offset": last,
            "last_stable_offset": stable,
        }


def _snapshot(content: Buffer, _base_offset: int) -> Iterator[Fields]:
    try:
        states = decode_snapshot(bytes(content), now_ms=_LATE)
    except ValueError as error:
        yield {"problem": str(error)}
        return
    for producer_id, known in states.producers.items():
        yield {
            "producer_id": producer_id,
            "producer_epoch": known.epoch,
            "last_sequence": known.last_sequence,
            "last_offset": known.batches[-1].last_offset if known.batches else -1,
            "timestamp": known.seen_ms,
            "coordinator_epoch": known.coordinator_epoch,
            "txn_first_offset": known.txn_first_offset,
        }


_INDEXES: Mapping[str, Callable[[Buffer, int], Iterator[Fields]]] = {
    "index": _index,
    "timeindex": _time_index,
    "txnindex": _aborted,
    "snapshot": _snapshot,
}


# --- checkpoints


def _offsets(content: bytes) -> Iterator[Fields]:
    for (topic, partition), offset in parse_offsets(content).items():
        yield {"topic": topic, "partition": partition, "offset": offset}


def _segments(content: bytes) -> Iterator[Fields]:
    for (topic, partition), sealed in parse_segments(content).items():
        for base_offset, next_base, size in sealed:
            yield {
                "topic": topic,
                "partition": partition,
                "base_offset": base_offset,
                "next_base": next_base,
                "bytes": size,
            }


def _epochs(content: bytes) -> Iterator[Fields]:
    for epoch, start_offset in parse_epochs(content):
        yield {"leader_epoch": epoch, "start_offset": start_offset}


def _label(content: bytes) -> Iterator[Fields]:
    from ....core.cluster.layout import encode_id

    yield {"topic_id": encode_id(parse_partition_metadata(content))}


_SMALL_FILES: Mapping[str, Callable[[bytes], Iterator[Fields]]] = {
    RECOVERY_POINT: _offsets,
    LOG_START: _offsets,
    HIGH_WATERMARK: _offsets,
    CLEANED: _offsets,
    SEGMENTS: _segments,
    LEADER_EPOCHS: _epochs,
    PARTITION_METADATA: _label,
}
SMALL_FILES = frozenset(_SMALL_FILES)


@log.command()
def dump(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files of a log, or folders of them.")],
    records: Annotated[bool, typer.Option("--records", help="Print the messages too.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets-decoder", help="The messages of __consumer_offsets, decoded.")
    ] = False,
    transactions: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="The messages of __transaction_state, decoded.")
    ] = False,
    share_states: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="The messages of __share_group_state, decoded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each entry.")] = False,
) -> None:
    """Print the content of segments (batches or classic messages), indexes, snapshots and checkpoints."""
    decoder = _decoder(offsets=offsets, transactions=transactions, share_states=share_states)
    for path in _log_files(paths):
        with _mapped(path) as content:
            found = _LOG_FILE.fullmatch(path.name)
            if found is None:
                printed, kind = small_file_entries(bytes(content), path.name), path.name
            else:
                base_offset, kind = int(found[1]), found[2]
                with_records = records or decoder is not None
                printed = entries(content, kind, base_offset, records=with_records, decoder=decoder)
            if not as_json:
                typer.echo(f"{path}  {counted(len(content), 'byte')}")
            for fields in printed:
                if as_json:
                    typer.echo(json.dumps({"file": str(path), "type": kind, **fields}, ensure_ascii=False))
                    continue
                for line in as_lines(fields):
                    typer.echo(f"  {line}")


def _decoder(*, offsets: bool, transactions: bool, share_states: bool) -> RecordDecoder | None:
    chosen = offsets + transactions + share_states
    if chosen > 1:
        raise ConfigError(
            "--offsets-decoder, --transaction-log-decoder and --share-group-state-decoder are for different topics; "
            "give one of them"
        )
    if not chosen:
        return None
    from ...clients import internal_records as decoders

    if share_states:
        return decoders.share_states
    return decoders.offsets if offsets else decoders.transactions


def _log_files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.is_file() and _is_log_file(p))
            if not found:
                raise ConfigError(f"{path} has no segments; give a partition folder or a broker's data folder")
            yield from found
        elif not path.exists():
            raise ConfigError(f"{path} does not exist")
        elif not _is_log_file(path):
            raise ConfigError(f"{path} is not a file of a log (20 digits and .log, .index and so on, or a checkpoint)")
        else:
            yield path


def _is_log_file(path: Path) -> bool:
    return path.name in SMALL_FILES or _LOG_FILE.fullmatch(path.name) is not None


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    """Map the content of a file into memory."""
    if path.stat().st_size == 0:
        yield b""
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            yield view
        finally:
            view.release()
