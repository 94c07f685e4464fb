"""Every moment of a recording at which the power may go, and what is found then."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...ports.entropy import Entropy
from .disk import Disk, Left
from .operations import Note, Operation


class Crash(NamedTuple):
    """A power cut after a number of `operations`; `number` says which of the states that may be left then."""

    operations: int
    number: int
    left: Left
    noted: Sequence[object]
    """All that was noted until then."""


def crashes(
    operations: Sequence[Operation], entropy: Entropy, *, first: int = 0, more: int = 4, loose: bool = True
) -> Iterator[Crash]:
    """Yield what may be left after each of the operations from number `first` on: each content once after the same
    notes.

    `more` is the number of random states at each moment, in addition to the extremes of what is possible.
    """
    disk, noted = Disk(), list[object]()
    reported: set[tuple[int, int]] = set()
    for count, operation in enumerate(operations, 1):
        disk.play(operation)
        if isinstance(operation, Note):
            noted.append(operation.what)
        if count < first:
            continue
        for number, left in enumerate(disk.left(entropy, more, loose=loose)):
            known = left.key, len(noted)
            if known not in reported:
                reported.add(known)
                yield Crash(count, number, left, noted)
