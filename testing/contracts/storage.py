"""Contract suite for storage adapters, and a state machine that compares a folder with plain bytes.

`reopen()` opens the data folder again, with what an earlier opening left in it; the earlier one must be closed by then.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from ...ports.errors import ClosedError
from ...ports.storage import File, FileMissing, Folder, FolderLocked, LogDir, Region, StorageError

Reopen = Callable[[], LogDir]
BAD_NAMES = ["", ".", "..", "a/b", "/etc", "../x", "a\0b", "a\\b"]


class StorageContract:
    """Inherit, and provide the fixture `reopen`."""

    @pytest.fixture
    def reopen(self) -> Reopen:
        raise NotImplementedError

    @pytest.fixture
    def log_dir(self, reopen: Reopen) -> Iterator[LogDir]:
        log_dir = reopen()
        yield log_dir
        log_dir.close()

    @pytest.fixture
    def folder(self, log_dir: LogDir) -> Folder:
        return log_dir.folder("topic-0")

    def test_append_says_where_and_is_visible_at_once(self, folder: Folder) -> None:
        file = folder.open("a.log")
        assert (file.name, file.size) == ("a.log", 0)
        assert file.append(b"one", bytearray(b"two"), memoryview(b"three")) == 0
        assert file.append(b"four") == 11
        assert file.append() == 15
        assert file.size == 15
        assert file.read(3, 8) == b"twothree"
        assert file.read(12, 100) == b"our"
        assert file.read(15, 1) == file.read(99, 1) == b""
        file.close()

    def test_very_many_buffers_are_one_append(self, folder: Folder) -> None:
        file = folder.open("many")
        assert file.append(*[b"%d," % number for number in range(3000)]) == 0
        assert file.read(0, file.size) == b"".join(b"%d," % number for number in range(3000))
        file.close()

    def test_negative_positions_and_sizes_are_refused(self, folder: Folder) -> None:
        file = folder.open("a")
        for call in (file.read, file.region):
            with pytest.raises(ValueError, match="-1"):
                call(-1, 1)
            with pytest.raises(ValueError, match="-1"):
                call(1, -1)
        file.close()

    def test_region_is_clipped_to_the_file(self, folder: Folder) -> None:
        file = folder.open("a.log")
        file.append(b"0123456789")
        region = file.region(4, 100)
        assert (region.position, region.size, region.read()) == (4, 6, b"456789")
        assert region.read(2, 2) == b"67"
        assert region.read(4, 100) == b"89"
        assert region.read(6) == b""
        file.append(b"abc")
        assert region.read() == b"456789"
        assert file.region(50, 3).size == 0
        file.close()

    def test_region_outlives_deletion_renaming_and_closing(self, folder: Folder) -> None:
        deleted, renamed, replaced = (folder.open(name) for name in ("deleted", "renamed", "replaced"))
        for file in (deleted, renamed, replaced):
            file.append(file.name.encode())
        regions = [file.region(0, 100) for file in (deleted, renamed, replaced)]
        folder.delete("deleted")
        folder.rename("renamed", "elsewhere")
        folder.rename("elsewhere", "replaced")
        for file in (deleted, renamed, replaced):
            file.close()
        assert [region.read() for region in regions] == [b"deleted", b"renamed", b"replaced"]

    def test_open_file_stays_readable_after_rename_and_deletion(self, folder: Folder) -> None:
        file = folder.open("old")
        file.append(b"1")
        folder.rename("old", "new")
        file.append(b"2")
        assert folder.files()["new"].size == 2
        folder.delete("new")
        file.append(b"3")
        assert file.read(0, 9) == b"123"
        assert "new" not in folder.files()
        file.close()

    def test_truncate(self, folder: Folder) -> None:
        file = folder.open("a.log")
        file.append(b"0123456789")
        region = file.region(2, 8)
        file.truncate(5)
        assert (file.size, file.read(0, 99), region.read()) == (5, b"01234", b"234")
        file.truncate(5)
        for size in (6, -1):
            with pytest.raises(ValueError, match="truncate"):
                file.truncate(size)
        assert file.append(b"x") == 5
        assert file.read(0, 99) == b"01234x"
        file.close()

    def test_closed_file_says_so(self, folder: Folder) -> None:
        file = folder.open("a.log")
        file.append(b"abc")
        file.close()
        file.close()
        for call in (lambda: file.read(0, 1), lambda: file.append(b"x"), file.flush, lambda: file.region(0, 1)):
            with pytest.raises(ClosedError):
                call()

    def test_open_without_create(self, folder: Folder) -> None:
        with pytest.raises(FileMissing):
            folder.open("nothing", create=False)
        assert folder.files() == {}
        folder.open("something").close()
        folder.open("something", create=False).close()

    def test_missing_files(self, folder: Folder) -> None:
        with pytest.raises(FileMissing):
            folder.rename("nothing", "new")
        with pytest.raises(FileMissing):
            folder.read_small("nothing")
        folder.delete("nothing")

    def test_small_files_are_replaced_whole(self, folder: Folder) -> None:
        folder.write_small("checkpoint", b"0\n0\n")
        folder.write_small("checkpoint", b"")
        assert folder.read_small("checkpoint") == b""
        folder.write_small("checkpoint", b"0\n1\nx 0 5\n")
        assert folder.read_small("checkpoint") == b"0\n1\nx 0 5\n"
        assert list(folder.files()) == ["checkpoint"]

    def test_several_small_files_at_once(self, folder: Folder) -> None:
        folder.write_small("a", b"old")
        folder.write_all_small({"a": b"1", "b": b"22"})
        folder.write_all_small({})
        assert {name: folder.read_small(name) for name in folder.files()} == {"a": b"1", "b": b"22"}

    def test_listing(self, folder: Folder) -> None:
        file = folder.open("a.log")
        file.append(b"abc")
        folder.write_small("b", b"12")
        files = folder.files()
        assert {name: info.size for name, info in files.items()} == {"a.log": 3, "b": 2}
        assert all(info.modified_ms >= 0 for info in files.values())
        file.close()

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_only_plain_names(self, log_dir: LogDir, folder: Folder, name: str) -> None:
        calls: list[Callable[[], object]] = [
            lambda: folder.open(name),
            lambda: folder.delete(name),
            lambda: folder.rename("a", name),
            lambda: folder.rename(name, "a"),
            lambda: folder.read_small(name),
            lambda: folder.write_small(name, b""),
            lambda: folder.write_all_small({name: b""}),
            lambda: log_dir.folder(name),
            lambda: log_dir.rename_folder("topic-0", name),
            lambda: log_dir.rename_folder(name, "b"),
            lambda: log_dir.delete_folder(name),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="plain"):
                call()

    def test_folders(self, log_dir: LogDir) -> None:
        for name in ("b-1", "a-0", "c-2"):
            folder = log_dir.folder(name)
            assert folder.name == name
            folder.write_small("f", name.encode())
        assert log_dir.folders() == ["a-0", "b-1", "c-2"]
        assert log_dir.folder("a-0").read_small("f") == b"a-0"
        log_dir.delete_folder("b-1")
        log_dir.delete_folder("b-1")
        assert log_dir.folders() == ["a-0", "c-2"]
        assert log_dir.folder("b-1").files() == {}
        with pytest.raises(StorageError):
            log_dir.rename_folder("a-0", "c-2")
        with pytest.raises(FileMissing):
            log_dir.rename_folder("d-3", "e-4")

    def test_a_removed_folder_does_not_come_back_with_what_is_written_there(self, log_dir: LogDir) -> None:
        """A flush that is under way may write to a removed folder."""
        folder = log_dir.folder("a-0")
        file = folder.open("f")
        log_dir.delete_folder("a-0")
        writes: list[Callable[[], object]] = [
            lambda: file.append(b"1"),
            lambda: folder.write_small("g", b"2"),
            lambda: folder.open("h").close(),
            folder.flush,
        ]
        for write in writes:
            with suppress(StorageError):
                write()
        file.close()
        assert log_dir.folders() == []

    def test_open_files_follow_their_folder(self, log_dir: LogDir) -> None:
        folder = log_dir.folder("a-0")
        file = folder.open("f")
        file.append(b"1")
        log_dir.rename_folder("a-0", "a-0.123-delete")
        assert folder.name == "a-0.123-delete"
        file.append(b"2")
        assert folder.files()["f"].size == 2
        assert file.read(0, 9) == b"12"
        region = file.region(0, 2)
        file.close()
        assert log_dir.folder("a-0").files() == {}
        log_dir.delete_folder("a-0.123-delete")
        assert region.read() == b"12"

    def test_root_stores_files_next_to_folders(self, log_dir: LogDir, folder: Folder) -> None:
        log_dir.root.write_small("meta.properties", b"version=0\n")
        assert log_dir.root.read_small("meta.properties") == b"version=0\n"
        assert "meta.properties" in log_dir.root.files()
        assert "topic-0" not in log_dir.root.files()
        assert log_dir.folders() == ["topic-0"]
        log_dir.root.flush()

    def test_one_broker_at_a_time(self, reopen: Reopen) -> None:
        first = reopen()
        with pytest.raises(FolderLocked, match="another broker") as caught:
            reopen()
        assert first.path in str(caught.value)
        first.close()
        first.close()
        reopen().close()

    def test_reopening_finds_everything(self, reopen: Reopen) -> None:
        log_dir = reopen()
        file = log_dir.folder("t-0").open("a.log")
        file.append(b"abc")
        file.flush()
        file.close()
        log_dir.close()
        log_dir = reopen()
        assert log_dir.folders() == ["t-0"]
        file = log_dir.folder("t-0").open("a.log", create=False)
        assert file.append(b"d") == 3
        assert file.read(0, 9) == b"abcd"
        file.close()
        log_dir.close()

    def test_free_space_is_number_or_unknown(self, log_dir: LogDir) -> None:
        total, usable = log_dir.space()
        assert (total, usable) == (-1, -1) or 0 <= usable <= total

    def test_flush_and_regions_work_on_other_threads_while_the_owner_appends(self, folder: Folder) -> None:
        file = folder.open("a.log")
        file.append(b"0123456789" * 100)
        errors: list[BaseException] = []

        def flush_and_read(region: Region) -> None:
            try:
                for _ in range(20):
                    file.flush()
                    folder.flush()
                    assert region.read(990, 10) == b"0123456789"
            except BaseException as error:  # noqa: BLE001  # handed to the test below
                errors.append(error)

        threads = [threading.Thread(target=flush_and_read, args=(file.region(0, 1000),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for number in range(500):
            assert file.append(b"x" * 10) == 1000 + number * 10
        for thread in threads:
            thread.join()
        assert not errors
        file.close()


def check_failed_append_leaves_nothing(file: File, error: type[StorageError], fault: Callable[[], None]) -> None:
    """Check an adapter that can be made to fail: nothing half-written stays. `fault` is planted already when called."""
    size, before = file.size, file.read(0, file.size)
    fault()
    with pytest.raises(error):
        file.append(b"x" * 100_000)
    assert (file.size, file.read(0, size + 1)) == (size, before)


_names = st.sampled_from(["a", "b", "c"])
_bytes = st.binary(max_size=40)


def machine_for(make: Callable[[], Reopen]) -> type[RuleBasedStateMachine]:
    """Return a machine that compares a folder of a fresh store (`make()`) with byte arrays, close and reopen
    included."""

    class StorageMachine(RuleBasedStateMachine):
        regions = Bundle("regions")

        def __init__(self) -> None:
            super().__init__()
            self.reopen = make()
            self.log_dir = self.reopen()
            self.folder = self.log_dir.folder("t-0")
            self.model: dict[str, bytearray] = {}
            self.files: dict[str, File] = {}

        def _open(self, name: str) -> File:
            if name not in self.files:
                self.files[name] = self.folder.open(name)
                self.model.setdefault(name, bytearray())
            return self.files[name]

        @rule(name=_names, parts=st.lists(_bytes, max_size=3))
        def append(self, name: str, parts: list[bytes]) -> None:
            position = self._open(name).append(*parts)
            assert position == len(self.model[name])
            self.model[name] += b"".join(parts)

        @rule(name=_names, position=st.integers(0, 60), size=st.integers(0, 60))
        def read(self, name: str, position: int, size: int) -> None:
            assert self._open(name).read(position, size) == self.model[name][position : position + size]

        @rule(target=regions, name=_names, position=st.integers(0, 60), size=st.integers(0, 60))
        def region(self, name: str, position: int, size: int) -> tuple[Region, bytes]:
            region = self._open(name).region(position, size)
            return region, bytes(self.model[name][position : position + size])

        @rule(pair=consumes(regions))
        def read_region(self, pair: tuple[Region, bytes]) -> None:
            region, expected = pair
            assert region.size == len(expected)
            # Truncated meanwhile: shorter, and what was appended after that may differ.
            assert len(region.read()) <= len(expected)

        @rule(name=_names, share=st.floats(0, 1))
        def truncate(self, name: str, share: float) -> None:
            size = int(len(self.model.get(name, b"")) * share)
            self._open(name).truncate(size)
            del self.model[name][size:]

        @rule(old=_names, new=_names)
        def rename(self, old: str, new: str) -> None:
            if old not in self.model:
                with pytest.raises(FileMissing):
                    self.folder.rename(old, new)
                return
            self.folder.rename(old, new)
            if old == new:
                return
            replaced = self.files.pop(new, None)
            if replaced is not None:
                assert replaced.read(0, 10_000) == self.model[new]
                replaced.close()
            self.model[new] = self.model.pop(old)
            if old in self.files:
                self.files[new] = self.files.pop(old)

        @rule(name=_names)
        def delete(self, name: str) -> None:
            self.folder.delete(name)
            content = self.model.pop(name, None)
            file = self.files.pop(name, None)
            if file is not None:
                assert file.read(0, 10_000) == bytes(content or b"")
                file.close()

        @rule(name=_names, content=_bytes)
        @precondition(lambda self: not self.files)
        def write_small(self, name: str, content: bytes) -> None:
            self.folder.write_small(name, content)
            self.model[name] = bytearray(content)

        @rule()
        def flush(self) -> None:
            for file in self.files.values():
                file.flush()
            self.folder.flush()

        @rule(name=_names)
        def close_file(self, name: str) -> None:
            if name in self.files:
                self.files.pop(name).close()

        @rule()
        def close_and_reopen(self) -> None:
            for file in self.files.values():
                file.close()
            self.files.clear()
            self.log_dir.close()
            self.log_dir = self.reopen()
            self.folder = self.log_dir.folder("t-0")

        @invariant()
        def holds_what_the_model_holds(self) -> None:
            assert {name: info.size for name, info in self.folder.files().items()} == {
                name: len(content) for name, content in self.model.items()
            }
            for name, content in self.model.items():
                if name in self.files:
                    assert self.files[name].read(0, 10_000) == content
                else:
                    assert self.folder.read_small(name) == content

        def teardown(self) -> None:
            for file in self.files.values():
                file.close()
            self.log_dir.close()

    return StorageMachine
