"""The repair: check, apply the fixes of the findings, and check again, until there are no findings."""

from collections.abc import Callable, Sequence

from ....ports.storage import Folder, LogDir
from ....ports.values import frozen
from ...log.names import CLASSIC_SUFFIX, LOG_SUFFIX, classic_folder_partition, folder_partition
from .findings import Finding, Fix, problems
from .fixes import FixSequence

_ROUNDS_MAX = 8
"""Maximum number of rounds: a fix may reveal further defects, fewer in each round."""


@frozen(kw_only=True)
class RepairResult:
    """The result of a repair, or of a dry run."""

    mended: Sequence[Finding]
    left: Sequence[Finding]
    """The remaining findings, which need an administrator."""
    notes: Sequence[Finding]


def repair(log_dir: LogDir, check: Callable[[LogDir], Sequence[Finding]]) -> RepairResult:
    """Repair the defects that `check` finds in a data folder without another user. May be repeated.

    Raises `StorageError`.
    """
    mended: list[Finding] = []
    for _ in range(_ROUNDS_MAX):
        found = check(log_dir)
        wrong = [finding for finding in found if finding.fix is not None]
        if not wrong:
            break
        _carry_out(log_dir, wrong)
        mended += wrong
    else:
        found = check(log_dir)
    return RepairResult(mended=mended, left=problems(found), notes=[finding for finding in found if finding.is_note])


def _carry_out(log_dir: LogDir, findings: Sequence[Finding]) -> None:
    done: set[tuple[str, Fix]] = set()
    flushed = False
    for finding in findings:
        if finding.on_root and not flushed:
            _flush_segments(log_dir)
            flushed = True
        name = "" if finding.on_root else finding.file.partition("/")[0]
        folder: Folder = log_dir.folder(name) if name else log_dir.root
        for fix in finding.fix.fixes if isinstance(finding.fix, FixSequence) else [finding.fix]:
            if fix is not None and (name, fix) not in done:
                done.add((name, fix))
                fix(folder)


def _flush_segments(log_dir: LogDir) -> None:
    """Flush the segments: what a checkpoint calls durable must be durable before."""
    for name in log_dir.folders():
        if folder_partition(name) is None and classic_folder_partition(name) is None:
            continue
        folder = log_dir.folder(name)
        for file in folder.files():
            if file.endswith((LOG_SUFFIX, CLASSIC_SUFFIX)):
                opened = folder.open(file, create=False)
                opened.flush()
                opened.close()
        folder.flush()
