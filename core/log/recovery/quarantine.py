"""Quarantine of files that do not belong to a log: they are renamed, so that nothing is lost."""

from collections.abc import Callable

from ....ports.report import warning
from ....ports.storage import Folder
from ..names import QUARANTINE_SUFFIX


def quarantine_files(folder: Folder, names: list[str], why: str, report: Callable[[str], None]) -> None:
    """Rename the existing ones of the files, never over another; report the first. Raises `StorageError`."""
    present = set(folder.files())
    taken: list[tuple[str, str]] = []
    for name in names:
        if name not in present:
            continue
        new_name, number = name + QUARANTINE_SUFFIX, 1
        while new_name in present:
            number += 1
            new_name = f"{name}{QUARANTINE_SUFFIX}-{number}"
        folder.rename(name, new_name)
        present.add(new_name)
        taken.append((name, new_name))
    if taken:
        name, new_name = taken[0]
        report(warning(f"{folder.name}/{name} {why}; renamed to {new_name}", file=new_name))
