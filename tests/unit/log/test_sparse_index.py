"""Sparse indexes against a plain list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.storage_memory import MemoryDisk, MemoryFile, MemoryLogDir
from barnabas.core.log.segment.offset_index import OFFSET_ENTRY, TIME_ENTRY, CorruptIndex, SparseIndex
from barnabas.ports.storage import Folder, StorageFull


def _reopened(folder: Folder, index: SparseIndex) -> SparseIndex:
    index.write()
    index.close()
    return SparseIndex(folder, "i", OFFSET_ENTRY, folder.files()["i"].size)


@pytest.mark.parametrize("count", [0, 1, 5, 511, 512, 513, 1024, 5000])
@pytest.mark.parametrize("reopen", [False, True])
def test_find_in_tail_and_file(count: int, reopen: bool) -> None:
    folder = MemoryLogDir().folder("t-0")
    index = SparseIndex(folder, "i", OFFSET_ENTRY)
    for number in range(count):
        index.append((number * 10 + 5, number * 100))
    if reopen:
        index = _reopened(folder, index)
    assert index.count == count
    assert index.last() == ((count * 10 - 5, count * 100 - 100) if count else None)
    assert index.find(0, 4) is None
    for number in {0, 1, count // 2, count - 2, count - 1} & set(range(count)):
        entry = (number * 10 + 5, number * 100)
        assert index.find(0, number * 10 + 5) == index.find(0, number * 10 + 14) == entry
        assert index.find(1, number * 100) == entry
    if count:
        assert index.find(0, 10**8) == index.last()


@given(
    deltas=st.lists(st.integers(1, 3), max_size=1200),
    written=st.integers(0, 1200),
    bound=st.integers(0, 3000),
    targets=st.lists(st.integers(0, 3000), max_size=5),
)
def test_truncate_then_find_as_a_list_does(deltas: list[int], written: int, bound: int, targets: list[int]) -> None:
    folder = MemoryLogDir().folder("t-0")
    index = SparseIndex(folder, "i", OFFSET_ENTRY)
    model: list[tuple[int, int]] = []
    for number, delta in enumerate(deltas):
        model.append(((model[-1][0] if model else 0) + delta, number))
        index.append(model[-1])
        if number == written:
            index.write()
    index.truncate(0, bound)
    model = [entry for entry in model if entry[0] < bound]
    for _ in range(2):
        assert index.count == len(model)
        assert index.last() == (model[-1] if model else None)
        for target in targets:
            below = [entry for entry in model if entry[0] <= target]
            assert index.find(0, target) == (below[-1] if below else None)
        index = _reopened(folder, index)


def test_memory_is_bounded_and_the_file_grows_in_blocks() -> None:
    folder = MemoryLogDir().folder("t-0")
    index = SparseIndex(folder, "i", TIME_ENTRY)
    for number in range(1030):
        index.append((number, number))
    assert folder.files()["i"].size == 1024 * TIME_ENTRY.size


def test_full_disk_keeps_entries_in_memory() -> None:
    disk = MemoryDisk(capacity=100)
    folder = MemoryLogDir(disk).folder("t-0")
    index = SparseIndex(folder, "i", OFFSET_ENTRY)
    for number in range(1030):
        index.append((number, number))
    assert [index.find(0, number) for number in (0, 511, 1029)] == [(0, 0), (511, 511), (1029, 1029)]
    with pytest.raises(StorageFull):
        index.write()
    disk.capacity = None
    index = _reopened(folder, index)
    assert index.count == 1030
    assert index.find(0, 700) == (700, 700)


def test_file_that_shrank_is_damaged() -> None:
    folder = MemoryLogDir().folder("t-0")
    index = SparseIndex(folder, "i", OFFSET_ENTRY)
    index.append((1, 1))
    index = _reopened(folder, index)
    folder.open("i").truncate(3)
    with pytest.raises(CorruptIndex):
        index.find(0, 5)


def test_a_search_costs_little_however_long_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = MemoryLogDir().folder("t-0")
    count = 300_000
    file = folder.open("i")
    file.append(b"".join(map(OFFSET_ENTRY.pack, range(count), range(count))))
    index = SparseIndex(folder, "i", OFFSET_ENTRY, file.size)
    real, sizes = type(file).read, []

    def counted(self: MemoryFile, position: int, size: int) -> bytes:
        sizes.append(size)
        return real(self, position, size)

    monkeypatch.setattr(MemoryFile, "read", counted)
    assert index.find(0, 123_456) == (123_456, 123_456)
    assert len(sizes) <= 11
    assert sum(sizes) <= 4096 + 10 * 8
