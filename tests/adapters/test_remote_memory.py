"""Remote storage in memory keeps the contract of remote storage."""

import pytest

from barnabas.adapters.remote_memory import MemoryRemoteStorage, open_memory_remote_storage
from barnabas.ports.errors import ConfigError
from barnabas.ports.remote_storage import RemoteStorage
from barnabas.testing.contracts.remote_storage import RemoteStorageContract


class TestMemoryRemoteStorage(RemoteStorageContract):
    @pytest.fixture
    def storage(self) -> RemoteStorage:
        return MemoryRemoteStorage()


def test_one_name_is_one_storage_in_a_process() -> None:
    first, again = (open_memory_remote_storage("memory://test-one-name", {}) for _ in range(2))
    first.put("k", b"x")
    assert again.read("k").content == b"x"
    with pytest.raises(ConfigError, match="memory://NAME"):
        open_memory_remote_storage("memory://", {})
