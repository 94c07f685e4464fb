"""The check of a data folder of a broker: its partitions and its checkpoints (facts B3).

The repair: check, apply the fixes of the findings, and check again, until there are no findings.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from attrs import field

from ....ports.storage import FileMissing, Folder, LogDir, StorageError
from ....ports.types import TopicPartition
from ....ports.values import frozen
from ...log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED,
    HIGH_WATERMARK,
    LOG_START,
    RECOVERY_POINT,
    SEGMENTS,
    SealedSegment,
    format_offsets,
    format_segments,
    join_segments,
    parse_offsets,
    parse_segments,
)
from ...log.config import LONG_MAX
from ...log.formats.registry import CLASSIC, detect_format
from ...log.manager.meta_properties import META_PROPERTIES, parse_meta_properties
from ...log.names import (
    CLASSIC_SUFFIX,
    ETCD_FOLDER,
    LOG_SUFFIX,
    QUARANTINE_SUFFIX,
    classic_folder_partition,
    folder_partition,
    folder_state,
)
from ...message.codec import NO_CODECS, Codecs
from .classic_partition import ClassicPartition
from .findings import Finding, Fix, Loss, note, problems
from .fixes import FixSequence, Quarantine, Write
from .partition import BatchPartition, PartitionContext
from .tree_check import KnownTopics, label_findings

_ROUNDS_MAX = 8
"""Maximum number of rounds: a fix may reveal further defects, fewer in each round."""


@frozen(kw_only=True)
class RepairResult:
    """The result of a repair, or of a dry run."""

    repaired: Sequence[Finding]
    left: Sequence[Finding]
    """The remaining findings, which need an administrator."""
    notes: Sequence[Finding]


def repair(log_dir: LogDir, check: Callable[[LogDir], Sequence[Finding]]) -> RepairResult:
    """Repair the defects that `check` finds in a data folder without another user. May be repeated.

    Raises `StorageError`.
    """
    repaired: list[Finding] = []
    for _ in range(_ROUNDS_MAX):
        found = check(log_dir)
        wrong = [finding for finding in found if finding.fix is not None]
        if not wrong:
            break
        _carry_out(log_dir, wrong)
        repaired += wrong
    else:
        found = check(log_dir)
    return RepairResult(
        repaired=repaired, left=problems(found), notes=[finding for finding in found if finding.is_note]
    )


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


_OFFSETS = (RECOVERY_POINT, LOG_START, HIGH_WATERMARK, CLEANED)
_TRIES = 3
T = TypeVar("T")


class PartitionCheck(Protocol):
    """The check of the folder of one partition."""

    findings: list[Finding]
    segments: int
    batches: int
    messages: int
    start: int
    end: int
    durable_to: int
    sealed: list[SealedSegment]

    def check(self) -> None: ...


@frozen(kw_only=True)
class Counts:
    """The number of checked files and messages."""

    partitions: int = 0
    segments: int = 0
    batches: int = 0
    messages: int = 0


@frozen(kw_only=True)
class CheckResult:
    """The result of the check of a data folder."""

    findings: Sequence[Finding]
    counts: Counts


@frozen(kw_only=True)
class CheckContext:
    """The context of a check, which the data folder itself does not show."""

    alone: bool = True
    """False if other brokers have replicas of the partitions."""
    in_use: bool = False
    """True if a broker is writing there."""
    only: Collection[str] = ()
    """The folders to check; all if empty."""
    topics: KnownTopics | None = None
    """The topics of a readable coordination file."""
    codecs: Codecs = NO_CODECS
    """Codecs for the wrappers of classic messages; without any, wrappers are not opened."""
    progress: Callable[[str], None] = field(default=lambda _name: None)
    """Called with the name of each partition before its check."""


class DataFolderCheck:
    """Checks a data folder, or some partitions of it, without changes. Raises `StorageError`."""

    def __init__(self, log_dir: LogDir, context: CheckContext) -> None:
        self._log_dir = log_dir
        self._context = context
        self._findings: list[Finding] = []
        self._files = log_dir.root.files()
        self._is_data_folder = bool({*_OFFSETS, META_PROPERTIES, CLEAN_SHUTDOWN, ".lock"} & set(self._files))
        self._clean = CLEAN_SHUTDOWN in self._files
        self._checked: dict[TopicPartition, PartitionCheck] = {}
        self._offsets: dict[str, dict[TopicPartition, int] | None] = {}
        """None: corrupt."""
        self._sealed: dict[TopicPartition, list[SealedSegment]] | None = {}

    def check(self) -> CheckResult:
        for name in _OFFSETS:
            self._offsets[name] = self._read(name, parse_offsets)
        self._sealed = self._read(SEGMENTS, parse_segments)
        self._check_identity()
        for name, partition in self._partitions():
            self._context.progress(name)
            self._try_partition(name, partition)
        if self._is_data_folder and not self._context.in_use:
            self._check_checkpoints()
        checks = self._checked.values()
        counts = Counts(
            partitions=len(self._checked),
            segments=sum(check.segments for check in checks),
            batches=sum(check.batches for check in checks),
            messages=sum(check.messages for check in checks),
        )
        return CheckResult(findings=self._findings, counts=counts)

    def _partitions(self) -> Iterator[tuple[str, TopicPartition]]:
        only = self._context.only
        for name in self._log_dir.folders():
            if only and name not in only:
                continue
            state = folder_state(name)
            partition = folder_partition(name) or classic_folder_partition(name)
            if state == "delete":
                self._findings.append(note("leftover", name, "is of a deleted topic", "the next start removes it"))
            elif state is not None:
                remedy = "inspect it, and delete it when it is not needed"
                self._findings.append(note("aside", name, f"was renamed to *-{state}", remedy))
            elif partition is None:
                if name != ETCD_FOLDER:
                    self._findings.append(note("unknown-file", name, "is not a partition folder", "it is ignored"))
            else:
                yield name, partition

    def _try_partition(self, name: str, partition: TopicPartition) -> None:
        try:
            found = self._check_partition(name, partition)
            if self._context.in_use:
                found = self._without_passing(found, name, partition)
            self._findings += found
        except StorageError as error:
            if self._context.in_use:
                self._findings.append(note("unreadable", name, f"{error}; a broker is changing it", "check again"))
                return
            remedy = "this is for a person: a repair leaves it alone"
            self._findings.append(
                Finding(kind="unreadable", file=name, text=str(error), remedy=remedy, needs_person=True)
            )

    def _without_passing(self, found: list[Finding], name: str, partition: TopicPartition) -> list[Finding]:
        """Return the findings of a second look, while a broker replaces files: damage is what both find."""
        for _ in range(_TRIES):
            if not problems(found):
                break
            again = {(each.kind, each.file, each.position) for each in self._check_partition(name, partition)}
            found = [each for each in found if each.is_note or (each.kind, each.file, each.position) in again]
        return found

    def _check_partition(self, name: str, partition: TopicPartition) -> list[Finding]:
        folder = self._log_dir.folder(name)
        found = detect_format(f"{self._log_dir.path}/{name}", folder.files())
        known = self._known(partition)
        check: PartitionCheck
        if found == CLASSIC:
            check = ClassicPartition(folder, known, self._context.codecs)
        else:
            check = BatchPartition(folder, known)
        check.check()
        self._checked[partition] = check
        labels = label_findings(folder, partition, self._context.topics, classic=found == CLASSIC)
        return [*check.findings, *labels]

    def _known(self, partition: TopicPartition) -> PartitionContext:
        context = self._context
        noted: list[int | None] = []
        for name in _OFFSETS:
            of_all = self._offsets[name]
            noted.append(None if of_all is None else of_all.get(partition))
        recovery_point, log_start, high_watermark, cleaned_to = noted
        return PartitionContext(
            partition=partition,
            recovery_point=recovery_point,
            log_start=log_start or 0,
            high_watermark=high_watermark or 0,
            cleaned_to=cleaned_to or 0,
            sealed=(self._sealed or {}).get(partition, ()),
            in_order=(self._clean or not self._is_data_folder) and not context.in_use,
            alone=context.alone,
            in_use=context.in_use,
            bare=not self._is_data_folder,
        )

    # --- the files directly in the data folder

    def _read(self, name: str, parse: Callable[[bytes], T]) -> T | None:
        try:
            content = self._log_dir.root.read_small(name)
        except FileMissing:
            return parse(b"0\n0\n")
        if not content and not self._clean:
            return parse(b"0\n0\n")  # Kafka creates it empty
        try:
            return parse(content)
        except (ValueError, TypeError) as error:
            self._findings.append(
                Finding(
                    kind="checkpoint-damaged",
                    file=name,
                    text=f"cannot be read: {error}",
                    remedy="it is renamed to *.aside and rebuilt",
                    fix=Quarantine((name,)),
                    on_root=True,
                )
            )
            return None

    def _check_identity(self) -> None:
        for name in self._files:
            if QUARANTINE_SUFFIX in name:
                remedy = "inspect it, and delete it when it is not needed"
                self._findings.append(note("aside", name, "is quarantined", remedy))
        try:
            parse_meta_properties(self._log_dir.root.read_small(META_PROPERTIES))
        except FileMissing:
            return
        except ValueError as error:
            remedy = "it is renamed to *.aside; the next start recreates it"
            self._root_finding("identity-damaged", META_PROPERTIES, str(error), remedy, Quarantine((META_PROPERTIES,)))

    def _root_finding(self, kind: str, name: str, text: str, remedy: str, fix: Fix, loss: Loss | None = None) -> None:
        self._findings.append(Finding(kind=kind, file=name, text=text, remedy=remedy, fix=fix, loss=loss, on_root=True))

    def _check_checkpoints(self) -> None:
        """Compare the checkpoints with the checked logs."""
        damaged = {finding.file for finding in self._findings if finding.kind == "checkpoint-damaged"}
        wanted: dict[str, dict[TopicPartition, int]] = {}
        for name in _OFFSETS:
            wanted[name] = self._wanted(name, self._offsets[name] or {})
        if self._context.only:
            damaged |= {RECOVERY_POINT} if self._offsets[RECOVERY_POINT] is None else set()
        for name, offsets in wanted.items():
            if name in damaged or offsets == self._offsets[name]:
                continue
            fix = Write(name, format_offsets(offsets), keep_old=True)
            for partition, text, loss in self._differences(name, offsets):
                self._root_finding("checkpoint-wrong", name, f"{partition}: {text}", "it is corrected", fix, loss)
        if SEGMENTS not in damaged and self._sealed is not None:
            self._check_sealed(self._sealed)

    def _wanted(self, name: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the correct content of the checkpoint."""
        wanted = dict(offsets)
        for partition, offset in offsets.items():
            check = self._checked.get(partition)
            if check is None:
                if self._clean and not self._context.only and name == RECOVERY_POINT:
                    del wanted[partition]
            elif name == RECOVERY_POINT and check.durable_to:
                continue
            elif offset > check.end or (name == RECOVERY_POINT and self._clean and offset):
                wanted[partition] = check.end
        for partition, check in self._checked.items() if name == RECOVERY_POINT else ():
            if check.durable_to > wanted.get(partition, 0):
                wanted[partition] = check.durable_to
        return wanted

    def _differences(
        self, name: str, wanted: Mapping[TopicPartition, int]
    ) -> Iterator[tuple[TopicPartition, str, Loss | None]]:
        noted = self._offsets[name] or {}
        for partition in {**noted, **wanted}:
            offset, right = noted.get(partition, 0), wanted.get(partition)
            if right == offset:
                continue
            if right is not None and right == self._checked[partition].durable_to:
                yield partition, f"a start would truncate intact batches after the gap that ends at {right}", None
                continue
            if right is None and not offset:
                yield partition, "has no folder", None
            elif right is None:
                loss: Loss | None = Loss(first_offset=0, next_offset=offset)
                yield partition, f"its folder is missing, with all records of the log below offset {offset}", loss
            elif offset > right and name in (RECOVERY_POINT, HIGH_WATERMARK):
                read = "durable once" if name == RECOVERY_POINT else "consumers may have read them"
                # One of the checkpoints is enough to report it.
                first = (
                    max(right, (self._offsets[RECOVERY_POINT] or {}).get(partition, 0))
                    if name == HIGH_WATERMARK
                    else right
                )
                loss = Loss(first_offset=first, next_offset=offset, messages=offset - first) if first < offset else None
                yield partition, f"offsets {right} to {offset - 1} are missing: {read}", loss
            else:
                yield partition, f"offset {offset}, but the log ends at {right}", None

    def _check_sealed(self, noted: Mapping[TopicPartition, list[SealedSegment]]) -> None:
        wanted = {
            partition: self._checked[partition].sealed if partition in self._checked else known
            for partition, known in noted.items()
            if partition in self._checked or self._context.only
        }
        wrong = [partition for partition, known in noted.items() if not self._agree(known, wanted.get(partition, ()))]
        if not wrong:
            return
        lines = [line for partition, sealed in wanted.items() for line in format_segments(partition, sealed)]
        fix = Write(SEGMENTS, join_segments(lines), keep_old=False)
        for partition in wrong:
            text = f"{partition}: the segments differ from the checkpoint"
            self._root_finding("checkpoint-wrong", SEGMENTS, text, "it is rewritten", fix)

    def _agree(self, noted: Collection[SealedSegment], found: Sequence[SealedSegment]) -> bool:
        """Return True if no checkpointed segment is missing or shorter. Segments may be new or have grown, and without
        a clean shutdown the oldest may be deleted."""
        present = {sealed.base_offset: sealed for sealed in found}
        first = found[0].base_offset if found else LONG_MAX
        return all(
            present[sealed.base_offset].size >= sealed.size
            if sealed.base_offset in present
            else not self._clean and sealed.base_offset < first
            for sealed in noted
        )
