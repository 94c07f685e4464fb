"""The invariants of each visible version of a table: every offset below the one reached, once."""

from collections import Counter
from collections.abc import Mapping

Seen = Counter[tuple[str, int, int]]
Offsets = Mapping[tuple[str, int], int]


def faults(seen: Seen, reached: Offsets) -> list[str]:
    """Return one line for each fault of rows that should be all up to these offsets."""
    found = [f"{place} is there {count} times" for place, count in seen.items() if count > 1]
    wanted = {(topic, partition, at) for (topic, partition), end in reached.items() for at in range(end)}
    lost, foreign = sorted(wanted - seen.keys()), sorted(seen.keys() - wanted)
    if lost:
        found.append(f"{len(lost)} rows are lost, {lost[0]} to {lost[-1]}")
    if foreign:
        found.append(f"{len(foreign)} rows are there that the offsets do not know, {foreign[0]} to {foreign[-1]}")
    return found


def went_back(before: Offsets, now: Offsets) -> list[str]:
    """Return the offsets that are smaller than before: a commit may not go back."""
    return [
        f"{place} was at {end} and is at {now.get(place, 0)}"
        for place, end in before.items()
        if now.get(place, 0) < end
    ]
