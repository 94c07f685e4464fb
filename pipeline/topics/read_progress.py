"""Progress of Spark's reading tasks: each task notes its offsets, and the driver sums them up."""

from collections import Counter
from pathlib import Path


def write_progress(folder: Path, topic: str, slice_name: str, offsets: int) -> None:
    """Note how many offsets of a slice of the topic are read. A task that is repeated replaces its note."""
    note = folder / topic / slice_name
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(str(offsets), encoding="ascii")


def read_progress(folder: Path) -> Counter[str]:
    """Return the number of offsets that are read of each topic."""
    done: Counter[str] = Counter()
    for note in folder.glob("*/*"):
        text = note.read_text(encoding="ascii")
        done[note.parent.name] += int(text or 0)  # empty while it is replaced
    return done
