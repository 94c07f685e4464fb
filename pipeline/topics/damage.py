"""Damaged ranges that a read left out, on their way from Spark's tasks to the table's report."""

import json
import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from attrs import asdict, evolve, frozen

_SUFFIX = ".json"


@frozen(kw_only=True)
class DamagedRange:
    """Offsets of a partition that were left out: start ≤ offset < end; `broker` as in `Place`."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str
    broker: int = -1

    @property
    def tp(self) -> tuple[str, int, int]:
        """The fields of a `ClusterPartition`."""
        return self.topic, self.partition, self.broker

    def __str__(self) -> str:
        key = str(self.partition) if self.broker < 0 else f"{self.broker}-{self.partition}"
        return f"{self.topic}-{key}: offsets {self.start} to {self.end}: {self.reason}"


def write_damage(folder: Path, damaged: DamagedRange) -> None:
    """Leave a note in the folder, which is made if it is missing. Any process; a task that is repeated notes again."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / f"{uuid.uuid4().hex}.tmp"
    draft.write_text(json.dumps(asdict(damaged)), encoding="utf-8")
    draft.rename(draft.with_suffix(_SUFFIX))


def read_damage(folder: Path) -> list[DamagedRange]:
    """Return all that was noted there, each range once."""
    import cattrs

    texts = [path.read_text(encoding="utf-8") for path in folder.glob(f"*{_SUFFIX}")] if folder.is_dir() else []
    return merged(cattrs.structure(json.loads(text), DamagedRange) for text in texts)


def merged(found: Iterable[DamagedRange]) -> list[DamagedRange]:
    """Sort the ranges and remove overlaps: tasks that share a damaged batch report it twice."""
    result: list[DamagedRange] = []
    for each in sorted(found, key=lambda d: (d.tp, d.start, d.end)):
        last = result[-1] if result else None
        if last is not None and last.tp == each.tp and each.start < last.end:
            result[-1] = evolve(last, end=max(last.end, each.end))
        else:
            result.append(each)
    return result


def still_damaged(
    before: Sequence[DamagedRange],
    read_from: Iterable[tuple[tuple[str, int, int], int]],
    replaced_topics: Collection[str],
    new: Sequence[DamagedRange],
) -> list[DamagedRange]:
    """Return the ranges that a table lacks after a load that read places again from some offset on, and found `new`."""
    starts = dict(read_from)
    remaining = [
        evolve(each, end=min(each.end, starts.get(each.tp, each.end)))
        for each in before
        if each.topic not in replaced_topics
    ]
    return merged([*(each for each in remaining if each.start < each.end), *new])
