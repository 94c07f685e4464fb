"""The findings of a check: each with its cost and its fix."""

from collections.abc import Iterable
from typing import Protocol

from ....ports.storage import Folder
from ....ports.values import frozen


class Fix(Protocol):
    """A change to the files of one folder, as a value, so that equal fixes are applied once."""

    def __call__(self, folder: Folder) -> None:
        """Apply the fix; an interrupted one may be repeated. Raises `StorageError`."""
        ...


@frozen(kw_only=True)
class Loss:
    """Messages that no file can restore."""

    first_offset: int
    next_offset: int
    """Exclusive; -1 if the end of the loss is unknown."""
    messages: int | None = None
    """Upper bound of their number; None if it is unknown."""
    bytes: int = 0
    """Bytes cut out of segments into a file *.aside."""


@frozen(kw_only=True)
class Finding:
    """A defect of the files, or a note."""

    kind: str
    """A stable identifier for programs: see docs/recovery.md."""
    file: str
    """The file or folder, below the data folder."""
    text: str
    """The problem, for a person."""
    remedy: str = ""
    """The action of a repair, or of an administrator."""
    position: int = -1
    """Position in the file, in bytes."""
    loss: Loss | None = None
    fix: Fix | None = None
    """None for a note: a start handles it, or it costs nothing."""
    needs_person: bool = False
    """True if no repair is possible."""
    on_root: bool = False
    """True if `fix` is for the files directly in the data folder."""

    @property
    def is_note(self) -> bool:
        return self.fix is None and not self.needs_person

    def __str__(self) -> str:
        place = f" at position {self.position}" if self.position >= 0 else ""
        return f"{self.file}{place}: {self.text}"


def note(kind: str, file: str, text: str, remedy: str = "") -> Finding:
    return Finding(kind=kind, file=file, text=text, remedy=remedy)


def problems(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without the notes."""
    return [finding for finding in findings if not finding.is_note]
