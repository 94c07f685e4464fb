"""Files that do not belong into a log are set aside: renamed, so that a person can look at them and nothing is lost."""

from collections.abc import Callable

from ....ports.report import warning
from ....ports.storage import Folder
from ..names import QUARANTINE_SUFFIX


def quarantine_files(folder: Folder, names: list[str], why: str, report: Callable[[str], None]) -> None:
    """Rename those of the files that are there, never over another; one line about the first. Raises `StorageError`."""
    present = set(folder.files())
    taken: list[tuple[str, str]] = []
    for name in names:
        if name not in present:
            continue
        kept, number = name + QUARANTINE_SUFFIX, 1
        while kept in present:
            number += 1
            kept = f"{name}{QUARANTINE_SUFFIX}-{number}"
        folder.rename(name, kept)
        present.add(kept)
        taken.append((name, kept))
    if taken:
        name, kept = taken[0]
        report(warning(f"{folder.name}/{name} {why}; it is set aside as {kept}", file=kept))
