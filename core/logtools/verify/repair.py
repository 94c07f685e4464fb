"""Mending: check, carry out what the findings ask for, and check again, until nothing is found any more."""

from collections.abc import Callable, Sequence

from ....ports.storage import Folder, LogDir
from ....ports.values import frozen
from ...log.names import CLASSIC_SUFFIX, LOG_SUFFIX, classic_folder_partition, folder_partition
from .findings import Finding, Fix, problems
from .fixes import Several

_ROUNDS_MAX = 8
"""What is mended may bring to light what it hid; each round ends with less."""


@frozen(kw_only=True)
class Repaired:
    """What a repair has done, or would do."""

    mended: Sequence[Finding]
    left: Sequence[Finding]
    """What is still wrong, if anything is: it needs a person."""
    notes: Sequence[Finding]


def repair(log_dir: LogDir, check: Callable[[LogDir], Sequence[Finding]]) -> Repaired:
    """Mend what `check` finds in a data folder, which nobody else uses. Raises `StorageError`; it may be repeated."""
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
    return Repaired(mended=mended, left=problems(found), notes=[finding for finding in found if finding.is_note])


def _carry_out(log_dir: LogDir, findings: Sequence[Finding]) -> None:
    done: set[tuple[str, Fix]] = set()
    flushed = False
    for finding in findings:
        if finding.on_root and not flushed:
            _flush_segments(log_dir)
            flushed = True
        name = "" if finding.on_root else finding.file.partition("/")[0]
        folder: Folder = log_dir.folder(name) if name else log_dir.root
        for fix in finding.fix.fixes if isinstance(finding.fix, Several) else [finding.fix]:
            if fix is not None and (name, fix) not in done:
                done.add((name, fix))
                fix(folder)


def _flush_segments(log_dir: LogDir) -> None:
    """What a checkpoint calls durable must be so before it says it."""
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
