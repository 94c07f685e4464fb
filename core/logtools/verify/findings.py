"""What a check tells: one finding for each thing that is wrong, what it costs, and what mends it."""

from collections.abc import Iterable
from typing import Protocol

from ....ports.storage import Folder
from ....ports.values import frozen


class Fix(Protocol):
    """A change to the files of one folder, as a value: what asks for the same twice gets it once."""

    def __call__(self, folder: Folder) -> None:
        """Carry it out. Interrupted at any point it may be repeated. Raises `StorageError`."""
        ...


@frozen(kw_only=True)
class Loss:
    """Messages that nothing in the files can bring back."""

    first_offset: int
    next_offset: int
    """Exclusive; -1 where nobody knows how far it went."""
    messages: int | None = None
    """At most so many; None where nobody knows."""
    bytes: int = 0
    """Taken out of segments, and kept aside."""


@frozen(kw_only=True)
class Finding:
    """Something that is not as it should be."""

    kind: str
    """A word for programs, the same for ever: see docs/recovery.md."""
    file: str
    """The file or folder, below the data folder."""
    text: str
    """What is wrong, for a person."""
    remedy: str = ""
    """What a repair does about it, or what a person should do."""
    position: int = -1
    """Where in the file, in bytes."""
    loss: Loss | None = None
    fix: Fix | None = None
    """None for a note: a start deals with it, or nothing is lost by it."""
    needs_person: bool = False
    """True for what is wrong and cannot be mended."""
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
    """Those that are more than notes."""
    return [finding for finding in findings if not finding.is_note]
