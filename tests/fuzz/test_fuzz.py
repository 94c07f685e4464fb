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
def test_deeply_nested_and_long_inputs_raise_declared_errors_only(name: str) -> None:
    """No fuzzer nests so deeply by chance."""
    deep = (b"[" * 4000, b"a=" + b"[" * 2000, b"a=" + b"{a=" * 1300, b"a." * 1000 + b"a=1", b'{"a":' * 800)
    for data in (*deep, b"9" * 5000, b"\xff" * 4000, b"\x80" * 4000, b"*2*" + b"(" * 2000, bytes(4000)):
        attempt_traced(TARGETS[name], data)


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


def test_undeclared_exception_is_found() -> None:
    def wrong(data: bytes) -> int:
        return {b"good": 1}[data]

    with pytest.raises(Finding, match="KeyError"):
        for data in mutated([b"good"], 10, "wrong"):
            attempt(Target(wrong, [b"good"]), data)
    with pytest.raises(Finding, match="MiB"):
        attempt_traced(Target(lambda data: bytes(100 << 20) and None, []), b"")
