"""`barnabas log verify` and `barnabas log repair`: find and repair damage in the files of a broker."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from attrs import evolve

from ....ports.report import counted
from ....ports.storage import FolderLocked
from ..options import AsJson, print_json, progress

if TYPE_CHECKING:
    from ....core.logtools.verify.data_folder import CheckContext, CheckResult
    from ....core.logtools.verify.findings import Finding
    from ....core.logtools.verify.repair import RepairResult
    from ....ports.storage import LogDir
    from ...compose.log_files import LogPlace, LookedTree

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
    from ...compose.log_files import log_places, opened_place

    places = log_places(paths)
    rows: list[dict[str, object]] = []
    wrong = 0
    for place in places:
        in_use = place.in_use
        tree = _tree(place, in_use=in_use)
        with opened_place(place, to_write=False) as log_dir:
            context = _context(places, place, tree, alone=None, in_use=in_use)
            checked = _with_tree(_checked(log_dir, place, context), tree, log_dir)
        wrong += len(_problems(checked.findings))
        row = _counts(place, checked) | {"in_use": in_use}
        rows.append(row | _sorted_out(checked.findings))
        if not as_json:
            if in_use:
                typer.echo(_IN_USE.format(path=place.path), err=True)
            _print_findings(place, checked.findings, notes=notes)
            _print_counts(checked, wrong=len(_problems(checked.findings)))
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    if wrong:
        raise typer.Exit(1)


def repair(
    paths: Folders,
    apply: Annotated[bool, typer.Option("--apply", help="Repair; the default only shows the plan.")] = False,
    alone: Annotated[
        bool | None,
        typer.Option(
            "--alone/--replica",
            help="Whether no other broker has replicas of these logs. Default: whether the coordination file of a "
            "single broker is in the folder.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how to repair the files of a stopped broker, and what is lost; with --apply do it.

    No message is deleted: what is cut out of a segment goes to a file *.aside. Ends with 1 while problems remain.
    """
    from ....core.logtools.verify.overlay_folder import OverlayLogDir
    from ....core.logtools.verify.repair import repair as mend
    from ...compose.log_files import log_places, opened_place

    places = log_places(paths)
    rows: list[dict[str, object]] = []
    failed = False
    for place in places:
        if place.in_use:
            raise FolderLocked(f"a broker has {place.path} open; stop it, then repair")
        with opened_place(place, to_write=apply) as opened:
            tree, of_tree = _repaired_tree(place, applied=apply)
            context = _context(places, place, tree, alone=alone, in_use=False)
            log_dir: LogDir = opened if apply else OverlayLogDir(opened)
            found = mend(log_dir, partial(_findings, place, context))
        left = [*(tree.findings if tree is not None else ()), *found.left]
        found = evolve(found, mended=[*of_tree, *found.mended], left=left)
        failed = failed or bool(found.left) or (bool(found.mended) and not apply)
        rows.append(_repaired_row(place, found, applied=apply))
        if not as_json:
            _print_repair(place, found, context, applied=apply)
    if as_json:
        print_json(rows[0] if len(rows) == 1 else rows)
    if failed:
        raise typer.Exit(1)


def _tree(place: "LogPlace", *, in_use: bool) -> "LookedTree | None":
    """Read the coordination file, if it is there and no broker is writing it."""
    from ...compose.log_files import look_at_tree

    file = place.coordination_file
    return None if file is None or in_use else look_at_tree(file)


def _repaired_tree(place: "LogPlace", *, applied: bool) -> "tuple[LookedTree | None, list[Finding]]":
    """Return (the coordination file after its repair, the findings that the repair resolves)."""
    from ...compose.log_files import mend_tree

    before = _tree(place, in_use=False)
    if before is None or not before.is_damaged:
        return before, []
    assert place.coordination_file is not None
    if applied:
        mend_tree(place.coordination_file, before)
        after = _tree(place, in_use=False)
        assert after is not None
        return after, [finding for finding in before.findings if finding not in after.findings]
    return evolve(before, findings=[]), before.findings


def _with_tree(checked: "CheckResult", tree: "LookedTree | None", log_dir: "LogDir") -> "CheckResult":
    from ....core.log.names import folder_partition
    from ....core.logtools.verify.tree_check import without_folder

    if tree is None:
        return checked
    present = {partition for name in log_dir.folders() if (partition := folder_partition(name)) is not None}
    missing = without_folder(tree.topics, present, "coordination.db")
    return evolve(checked, findings=[*tree.findings, *checked.findings, *missing])


def _context(
    places: Sequence["LogPlace"],
    place: "LogPlace",
    tree: "LookedTree | None",
    *,
    alone: bool | None,
    in_use: bool,
) -> "CheckContext":
    from ....core.logtools.verify.data_folder import CheckContext
    from ....plugins.builtin.codecs import builtin_codecs

    if alone is None:
        alone = not place.is_data_folder or any(each.coordination_file is not None for each in places)
    return CheckContext(
        alone=alone,
        in_use=in_use,
        only=place.partitions,
        codecs=builtin_codecs(),
        topics=None if tree is None else tree.topics,
    )


def _checked(log_dir: "LogDir", place: "LogPlace", context: "CheckContext") -> "CheckResult":
    from ....core.logtools.verify.data_folder import DataFolderCheck

    with progress(f"checking {place.path.name}", None) as advance:
        done = 0

        def checking(name: str) -> None:
            nonlocal done
            done += 1
            advance(done, label=name)

        return DataFolderCheck(log_dir, evolve(context, progress=checking)).check()


def _findings(place: "LogPlace", context: "CheckContext", log_dir: "LogDir") -> Sequence["Finding"]:
    return _checked(log_dir, place, context).findings


# --- output


def _problems(findings: Iterable["Finding"]) -> list["Finding"]:
    from ....core.logtools.verify.findings import problems

    return problems(findings)


def _print_findings(place: "LogPlace", findings: Iterable["Finding"], *, notes: bool) -> None:
    for finding in findings:
        if notes or not finding.is_note:
            typer.echo(f"{place.path}/{finding}{_remedy(finding)}")


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


def _print_repair(place: "LogPlace", found: "RepairResult", known: "CheckContext", *, applied: bool) -> None:
    if not found.mended and not found.left:
        typer.echo(f"{place.path}: no problem to repair")
        return
    if not known.alone:
        typer.echo(
            f"{place.path}: assuming other replicas; use --alone if no other broker has these messages", err=True
        )
    for finding in found.mended:
        typer.echo(f"{place.path}/{finding}; {finding.remedy}")
        if finding.loss is not None:
            typer.echo(f"  lost: {_loss_in_words(finding)}")
    for finding in found.left:
        typer.echo(f"{place.path}/{finding}; not mended{_remedy(finding)}")
    what = "mended" if applied else "would be mended"
    mended = counted(len(found.mended), "problem")
    typer.echo(f"{mended} {what}, {len(found.left)} left; {_sum_in_words(found.mended)}")
    if not applied and found.mended:
        typer.echo("nothing was changed; the same with --apply does it", err=True)


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


def _counts(place: "LogPlace", checked: "CheckResult") -> dict[str, object]:
    counts = checked.counts
    return {
        "folder": str(place.path),
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


def _repaired_row(place: "LogPlace", found: "RepairResult", *, applied: bool) -> dict[str, object]:
    total = _sum_of_losses(found.mended)
    return {
        "folder": str(place.path),
        "applied": applied,
        "mended": [_row(finding) for finding in found.mended],
        "left": [_row(finding) for finding in found.left],
        "notes": [_row(finding) for finding in found.notes],
        "lost": {"messages": total["messages"], "bytes": total["bytes"], "of_unknown_extent": total["unknown"]},
    }
