"""Remote storage in a folder keeps the contract of remote storage."""

from pathlib import Path

import pytest

from barnabas.adapters.remote_folder import FolderRemoteStorage, open_folder_remote_storage
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
