"""Remote storage in a folder keeps the contract of remote storage."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from barnabas.adapters.remote_folder import FolderRemoteStorage, open_folder_remote_storage
from barnabas.adapters.storage_fs import open_log_dir
from barnabas.ports.errors import ConfigError
from barnabas.ports.remote_storage import RemoteStorage, RemoteStorageError
from barnabas.testing.contracts.remote_storage import RemoteStorageContract


class TestFolderRemoteStorage(RemoteStorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> RemoteStorage:
        return FolderRemoteStorage(tmp_path / "remote")


def test_url_names_the_folder(tmp_path: Path) -> None:
    storage = open_folder_remote_storage(f"file://{tmp_path}/a%20b", {})
    storage.put("k", b"x")
    assert (tmp_path / "a b" / "k").read_bytes() == b"x"
    for url in ("file://host/path", "file:relative", "file:///x?y"):
        with pytest.raises(ConfigError, match="file:///PATH"):
            open_folder_remote_storage(url, {})


def test_unfinished_file_is_no_object(tmp_path: Path) -> None:
    storage = FolderRemoteStorage(tmp_path)
    storage.put("a/k", b"x")
    (tmp_path / "a" / ".part-1").write_bytes(b"half")
    assert [each.key for each in storage.list_objects("a")] == ["a/k"]
    with pytest.raises(ValueError, match="dot"):
        storage.read("a/.part-1")


def test_failed_system_call_is_a_remote_storage_error(tmp_path: Path) -> None:
    storage = FolderRemoteStorage(tmp_path)
    storage.put("a", b"x")
    with pytest.raises(RemoteStorageError, match="cannot store the object a/b"):
        storage.put("a/b", b"x")


def test_last_object_takes_its_folders_with_it(tmp_path: Path) -> None:
    storage = FolderRemoteStorage(tmp_path)
    storage.put("a/b/c", b"x")
    storage.delete("a/b/c")
    assert [each.name for each in tmp_path.iterdir()] == []


def _refused(*_: object) -> int:
    raise OSError(errno.EXDEV, "another file system")


@pytest.mark.parametrize("missing", [(), ("copy_file_range",), ("copy_file_range", "sendfile")])
def test_range_of_a_file_is_copied_by_what_the_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: Sequence[str]
) -> None:
    for name in missing:
        monkeypatch.setattr(os, name, _refused, raising=False)
    assert _stored(tmp_path) == CONTENT[3:503]


@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="the system has no copy_file_range")
def test_range_of_a_file_that_is_copied_in_part_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.copy_file_range, [0]

    def once(source: int, target: int, count: int, offset: int) -> int:
        calls[0] += 1
        return real(source, target, 100, offset) if calls[0] == 1 else _refused()

    monkeypatch.setattr(os, "copy_file_range", once)
    assert _stored(tmp_path) == CONTENT[3:503]
    assert calls[0] == 2


CONTENT = bytes(range(250)) * 4


def _stored(tmp_path: Path) -> bytes:
    """Store a part of a segment, and return what is in the store."""
    storage = FolderRemoteStorage(tmp_path / "store")
    log_dir = open_log_dir(tmp_path / "data")
    try:
        file = log_dir.folder("t-0").open("segment")
        file.append(CONTENT)
        storage.put("k", file.region(3, 500))
    finally:
        log_dir.close()
    return storage.read("k").content
