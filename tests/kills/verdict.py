"""The invariants of the target after any kill: each message of the source once, no partial transaction."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

Seen = Sequence[tuple[int, int, str]]
"""(partition, offset, value) of each message, in the order in which it was read."""


def faults(source_ends: Mapping[int, int], target: Seen, witness: Seen, positions: Mapping[int, int]) -> list[str]:
    """Return one line for each fault.

    target:    read by a consumer that started at the end.
    witness:   read meanwhile.
    positions: of the group, by partition of the source.
    """
    return [
        *partial_transactions(target),
        *lost_or_doubled(source_ends, target),
        *aborted_reads(target, witness),
        *offsets_apart(source_ends, positions),
    ]


def offsets_apart(source_ends: Mapping[int, int], positions: Mapping[int, int]) -> list[str]:
    """Return where committed offsets and output are apart: the group has not come to the end of the source."""
    if dict(positions) == dict(source_ends):
        return []
    return [f"the group stands at {dict(positions)}, the source ends at {dict(source_ends)}"]


def partial_transactions(target: Seen) -> list[str]:
    """Return the transactions of which only some messages can be read."""
    parts: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _, _, value in target:
        name, number, count, _ = value.split()
        parts[name, int(count)].append(int(number))
    return [
        f"transaction {name} has {sorted(numbers)} of its {count} messages"
        for (name, count), numbers in parts.items()
        if sorted(numbers) != list(range(count))
    ]


def lost_or_doubled(source_ends: Mapping[int, int], target: Seen) -> list[str]:
    """Return the messages of the source that were not transformed exactly once."""
    times = Counter(value.split()[3] for _, _, value in target)
    wanted = {f"{partition}:{offset}" for partition, end in source_ends.items() for offset in range(end)}
    found = [f"message {each} of the source was lost" for each in sorted(wanted - times.keys())]
    found += [f"message {each} was never in the source" for each in sorted(times.keys() - wanted)]
    return found + [f"message {each} is there {count} times" for each, count in times.items() if count > 1]


def aborted_reads(target: Seen, witness: Seen) -> list[str]:
    """Return the faults of the witness: aborted, missing or reordered messages."""
    found = []
    for partition in {each[0] for each in (*target, *witness)}:
        there = [each[1:] for each in target if each[0] == partition]
        read = [each[1:] for each in witness if each[0] == partition]
        if read != there[: len(read)]:
            other = next((one, two) for one, two in zip([*read, None], [*there, None], strict=False) if one != two)
            found.append(f"partition {partition}: {other[0]} was read meanwhile, {other[1]} is there in the end")
    return found
