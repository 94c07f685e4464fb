"""Decoders and bytes that lie, from a seed; `make fuzz MINUTES=10` looks for more, guided by what the bytes reach."""

import pytest
from fuzz.bounds import Finding, attempt, attempt_traced
from fuzz.mutating import mutated
from fuzz.targets import TARGETS, Target

COUNT = 150


@pytest.mark.parametrize("name", TARGETS)
def test_only_declared_errors_come_out(name: str) -> None:
    target = TARGETS[name]
    for number, data in enumerate(mutated(target.seeds, COUNT, name)):
        try:
            (attempt_traced if number % 10 == 0 else attempt)(target, data)
        except Finding as finding:
            finding.add_note(f"{name}: {data.hex()}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_the_seeds_are_good(name: str) -> None:
    """Most of them at least, else nothing behind the first check would be reached."""
    target, good = TARGETS[name], 0
    for data in target.seeds:
        try:
            target.decode(data)
        except target.errors:
            continue
        good += 1
    assert good >= max(1, len(target.seeds) // 2)


def test_what_is_not_declared_is_found() -> None:
    def wrong(data: bytes) -> int:
        return {b"good": 1}[data]

    with pytest.raises(Finding, match="KeyError"):
        for data in mutated([b"good"], 10, "wrong"):
            attempt(Target(wrong, [b"good"]), data)
    with pytest.raises(Finding, match="MiB"):
        attempt_traced(Target(lambda data: bytes(100 << 20) and None, []), b"")
