"""Storage in the file system keeps the storage contract, also when the system fails under it."""

import errno
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.ports.storage import FolderLocked, LogDir, StorageError, StorageFull, StorageReadOnly
from barnabas.testing.contracts.storage import Reopen, StorageContract, check_failed_append_leaves_nothing, machine_for


def _fresh(open_files_max: int | None = None) -> Reopen:
    path = tempfile.mkdtemp(prefix="barnabas-storage-")

    def reopen() -> LogDir:
        return open_log_dir(path, open_files_max=open_files_max)

    weakref.finalize(reopen, shutil.rmtree, path)
    return reopen


class TestFileStorage(StorageContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Reopen:
        return lambda: open_log_dir(tmp_path / "data")


class TestFileStorageWithFewDescriptors(StorageContract):
    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Reopen:
        return lambda: open_log_dir(tmp_path / "data", open_files_max=1)


TestFileStorageMachine = machine_for(_fresh).TestCase
TestFileStorageMachineWithFewDescriptors = machine_for(lambda: _fresh(1)).TestCase


@pytest.fixture
def log_dir(tmp_path: Path) -> Iterator[LogDir]:
    log_dir = open_log_dir(tmp_path / "data")
    yield log_dir
    log_dir.close()


def _failing(number: int) -> Callable[..., int]:
    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (errno.ENOSPC, StorageFull),
        (errno.EDQUOT, StorageFull),
        (errno.EROFS, StorageReadOnly),
        (errno.EACCES, StorageReadOnly),
        (errno.EIO, StorageError),
    ],
)
def test_failed_write_raises_storage_error_and_leaves_no_bytes(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch, number: int, error: type[StorageError]
) -> None:
    file = log_dir.folder("t-0").open("a.log")
    file.append(b"before")
    with monkeypatch.context() as patch:
        check_failed_append_leaves_nothing(file, error, lambda: patch.setattr(os, "writev", _failing(number)))
    assert file.append(b"after") == 6
    file.close()


def test_short_write_then_full(log_dir: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    file = log_dir.folder("t-0").open("a.log")
    file.append(b"before")
    real, calls = os.writev, 0

    def short(fd: int, buffers: tuple[bytes, ...]) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, (bytes(buffers[0])[:1000],))

    with monkeypatch.context() as patch:
        check_failed_append_leaves_nothing(file, StorageFull, lambda: patch.setattr(os, "writev", short))
    assert log_dir.folder("t-0").files()["a.log"].size == 6
    file.close()


def test_short_write_is_continued_until_complete(log_dir: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    file = log_dir.folder("t-0").open("a.log")
    real = os.writev
    monkeypatch.setattr(os, "writev", lambda fd, buffers: real(fd, (b"".join(buffers)[:7],)))
    assert file.append(b"0123456789", b"abcdefghij") == 0
    assert file.read(0, 99) == b"0123456789abcdefghij"
    file.close()


def test_half_written_end_that_could_not_be_cut_is_cut_before_the_next_append(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = log_dir.folder("t-0").open("a.log")
    file.append(b"before")
    real = os.writev

    def half(fd: int, buffers: tuple[bytes, ...]) -> int:
        real(fd, (b"half",))
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", half)
        patch.setattr(os, "ftruncate", _failing(errno.EIO))
        with pytest.raises(StorageError):
            file.append(b"x" * 10)
        assert file.read(0, 99) == b"before"
        with pytest.raises(StorageError, match="half-written"):
            file.append(b"x" * 10)
    assert file.append(b"after") == 6
    assert log_dir.folder("t-0").files()["a.log"].size == 11
    assert file.read(0, 99) == b"beforeafter"
    file.close()


def test_the_system_refuses_larger_files(log_dir: LogDir) -> None:
    """A real short write: the limit of the process on file sizes."""
    file = log_dir.folder("t-0").open("a.log")
    file.append(b"before")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        check_failed_append_leaves_nothing(
            file, StorageFull, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert file.append(b"after") == 6
    file.close()


def test_file_that_may_only_be_read(log_dir: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = log_dir.folder("t-0")
    file = folder.open("a.log")
    file.append(b"abc")
    file.close()
    real = os.open

    def read_only(path: str, flags: int, *rest: int) -> int:
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        file = folder.open("a.log")
        assert file.read(0, 9) == b"abc"
        for call in (lambda: file.append(b"x"), lambda: file.truncate(1), lambda: folder.open("new")):
            with pytest.raises(StorageReadOnly):
                call()
    assert file.append(b"d") == 3
    file.close()


def test_failed_small_write_keeps_the_old_content(log_dir: LogDir, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = log_dir.folder("t-0")
    folder.write_small("checkpoint", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _failing(errno.ENOSPC))
        with pytest.raises(StorageFull):
            folder.write_small("checkpoint", b"new")
    assert folder.read_small("checkpoint") == b"old"
    assert list(folder.files()) == ["checkpoint"]


def _open_descriptors(of: Path) -> int:
    """Return the number of open files below a folder, without those that other threads have open."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # it is closed by now
            found += of in descriptor.readlink().parents
    return found


def test_stored_write_error_holds_no_file_descriptor_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The volume could not be unmounted otherwise."""
    if not Path("/proc/self/fd").exists():
        pytest.skip("no /proc to see open descriptors in")
    file = open_log_dir(tmp_path).folder("t-0").open("a.log")

    def full(fd: int, buffers: tuple[bytes, ...]) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StorageFull) as disk_full:
        file.append(b"x")
    assert _open_descriptors(tmp_path / "t-0") == 1
    file.close()
    assert disk_full.value.__traceback__ is not None
    assert _open_descriptors(tmp_path / "t-0") == 0


def test_few_descriptors_for_many_files(tmp_path: Path) -> None:
    log_dir = open_log_dir(tmp_path / "data", open_files_max=8)
    folder = log_dir.folder("t-0")
    counts = Path("/proc/self/fd").exists()
    files = [folder.open(f"{number}.log") for number in range(100)]
    for number, file in enumerate(files):
        file.append(b"%d" % number)
    folder.delete("3.log")
    assert [int(file.read(0, 9)) for file in files] == list(range(100))
    regions = [file.region(0, 9) for file in files[:20]]
    for file in files:
        file.flush()
    assert [int(region.read()) for region in regions] == list(range(20))
    if counts:
        assert _open_descriptors(tmp_path) <= 8 + len(regions) + 1  # that of the lock
    for file in files:
        file.close()
    regions.clear()
    log_dir.close()


@pytest.mark.parametrize("call", ["append", "read", "truncate"])
def test_a_descriptor_that_another_thread_gives_back_stays_open_for_the_call_under_way(
    log_dir: LogDir, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Else its number may be another file's by the time that it is written to."""
    folder = log_dir.folder("t-0")
    file, other = folder.open("a.log"), folder.open("other.log")
    file.append(b"abc")
    calls: dict[str, tuple[str, Callable[[], object]]] = {
        "append": ("writev", lambda: file.append(b"def")),
        "read": ("pread", lambda: file.read(0, 3)),
        "truncate": ("ftruncate", lambda: file.truncate(1)),
    }
    name, use = calls[call]
    real, opened = getattr(os, name), list[int]()

    def given_back(fd: int, *rest: object) -> object:
        file.release()  # type: ignore[attr-defined]  # as the pool does, from any thread
        opened.append(os.open(log_dir.path, os.O_RDONLY))  # takes the lowest free number
        return real(fd, *rest)

    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, name, given_back)
            use()
        assert other.size == 0
        assert file.read(0, 9) == {"append": b"abcdef", "read": b"abc", "truncate": b"a"}[call]
    finally:
        for each in opened:
            os.close(each)
        file.close()
        other.close()


def test_a_file_that_is_opened_again_and_again_has_one_place_among_the_open_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file on a volume that became read-only is opened again by each append."""
    log_dir = open_log_dir(tmp_path / "data", open_files_max=2)
    folder = log_dir.folder("t-0")
    folder.open("a.log").close()
    real, opened = os.open, list[str]()

    def read_only(path: str, flags: int, *rest: int) -> int:
        opened.append(str(path))
        assert len(opened) < 100
        if flags & os.O_ACCMODE != os.O_RDONLY:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        file = folder.open("a.log")
        for _ in range(5):
            with pytest.raises(StorageReadOnly):
                file.append(b"x")
    assert file.append(b"y") == 0
    file.close()
    log_dir.close()


def test_lock_holds_against_another_process(tmp_path: Path) -> None:
    log_dir = open_log_dir(tmp_path / "data")
    script = (
        "import sys\nfrom barnabas.adapters.storage_fs import open_log_dir\n"
        "from barnabas.ports.storage import FolderLocked\n"
        "try:\n    open_log_dir(sys.argv[1]).close()\nexcept FolderLocked as error:\n    sys.exit(str(error))\n"
    )
    command = [sys.executable, "-c", script, log_dir.path]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert log_dir.path in refused.stderr
    with pytest.raises(FolderLocked):
        open_log_dir(tmp_path / "data")
    log_dir.close()
    assert subprocess.run(command, capture_output=True, text=True, check=False).returncode == 0


def test_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="file"):
        open_log_dir(tmp_path / "file" / "data")
