"""Simulated power cuts: all operations on a folder are recorded, and the folder is made again as it may be found after
a crash at any moment.

    with Recording(folder) as recording:
        work(folder)                       # notes what it promises: recording.note(...)
    for crash in crashes(recording.operations, entropy):
        crash.left.write_to(elsewhere)     # or crash.left.files, in memory
        look(elsewhere, crash.noted)       # is all there that was promised?
"""

from .disk import Disk, Left
from .operations import Cut, Made, Moved, Note, Operation, Removed, Synced, Wrote
from .recording import Crash, Recording, crashes

__all__ = [
    "Crash",
    "Cut",
    "Disk",
    "Left",
    "Made",
    "Moved",
    "Note",
    "Operation",
    "Recording",
    "Removed",
    "Synced",
    "Wrote",
    "crashes",
]
