"""Contract suite for adapters of remote storage."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ...ports.remote_storage import ObjectChanged, ObjectMissing, RemoteStorage
from ...ports.storage import Region
from ...ports.types import Buffer, Position

BAD_KEYS = ["", "/a", "a/", "a//b", "..", "a/../b", ".", "a/.", "a\0b", "a\\b"]


class _Bytes:
    """A region of a file, in memory."""

    position = Position(0)

    def __init__(self, content: bytes) -> None:
        self._content = content

    @property
    def size(self) -> int:
        return len(self._content)

    def fileno(self) -> int:
        return -1

    def read(self, start: int = 0, size: int | None = None) -> bytes:
        return self._content[start : None if size is None else start + size]


class RemoteStorageContract:
    """Inherit, and provide the fixture `storage`: an empty one."""

    large = 20_000_000
    """The size of a large object; an adapter with parts of another size may set it."""
    many_objects = 1050
    """More objects than a store lists in one answer; an adapter whose store lists fewer may set it."""

    @pytest.fixture
    def storage(self) -> Iterator[RemoteStorage]:
        raise NotImplementedError

    @pytest.mark.parametrize("content", [b"abc", bytearray(b"abc"), memoryview(b"xabc")[1:], _Bytes(b"abc")])
    def test_put_content_is_read_back(self, storage: RemoteStorage, content: Buffer | Region) -> None:
        storage.put("a/b/c", content)
        assert storage.read("a/b/c").content == b"abc"
        assert storage.get_range("a/b/c", 0, 3) == b"abc"

    def test_put_again_replaces_the_whole_object(self, storage: RemoteStorage) -> None:
        storage.put("k", b"a long first content")
        storage.put("k", b"short")
        assert storage.read("k").content == b"short"

    def test_empty_object_exists(self, storage: RemoteStorage) -> None:
        storage.put("k", b"")
        assert storage.read("k").content == b""
        assert [(each.key, each.size) for each in storage.list_objects("")] == [("k", 0)]

    def test_large_object_from_a_region_is_whole(self, storage: RemoteStorage) -> None:
        content = bytes(range(256)) * (self.large // 256) + b"the end"
        storage.put("large", _Bytes(content))
        assert storage.get_range("large", self.large // 2, 100) == content[self.large // 2 : self.large // 2 + 100]
        assert storage.get_range("large", len(content) - 7, 100) == b"the end"
        assert storage.read("large").content == content

    @pytest.mark.parametrize(
        ("start", "size", "found"),
        [(0, 4, b"0123"), (3, 4, b"3456"), (8, 100, b"89"), (9, 1, b"9"), (10, 5, b""), (50, 5, b""), (2, 0, b"")],
    )
    def test_range_is_clipped_to_the_object(self, storage: RemoteStorage, start: int, size: int, found: bytes) -> None:
        storage.put("k", b"0123456789")
        assert storage.get_range("k", start, size) == found

    def test_missing_object_is_reported(self, storage: RemoteStorage) -> None:
        for call in (lambda: storage.read("no/such"), lambda: storage.get_range("no/such", 0, 1)):
            with pytest.raises(ObjectMissing, match="no/such"):
                call()

    def test_deleted_object_is_missing(self, storage: RemoteStorage) -> None:
        storage.put("a/b", b"x")
        storage.delete("a/b")
        storage.delete("a/b")
        storage.delete("never/there")
        with pytest.raises(ObjectMissing):
            storage.read("a/b")
        storage.put("a/b", b"y")
        assert storage.read("a/b").content == b"y"

    def test_listing_has_whole_names_below_the_prefix_in_order(self, storage: RemoteStorage) -> None:
        for key in ("t-1/0/b", "t-1/0/a", "t-10/0/a", "t-1/1/a", "other"):
            storage.put(key, key.encode())
        assert [each.key for each in storage.list_objects("t-1")] == ["t-1/0/a", "t-1/0/b", "t-1/1/a"]
        assert [each.key for each in storage.list_objects("t-1/0/")] == ["t-1/0/a", "t-1/0/b"]
        assert [each.key for each in storage.list_objects("t-1/9")] == []
        assert [(each.key, each.size) for each in storage.list_objects("")][:1] == [("other", 5)]
        assert len(list(storage.list_objects(""))) == 5

    def test_many_objects_are_all_listed(self, storage: RemoteStorage) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: storage.put(f"many/{number:04d}", b"x"), range(self.many_objects)))
        keys = [f"many/{number:04d}" for number in range(self.many_objects)]
        assert [each.key for each in storage.list_objects("many")] == keys

    def test_replace_creates_only_a_missing_object(self, storage: RemoteStorage) -> None:
        storage.replace("a/m", b"one", None)
        with pytest.raises(ObjectChanged):
            storage.replace("a/m", b"two", None)
        assert storage.read("a/m").content == b"one"

    def test_replace_needs_the_present_version(self, storage: RemoteStorage) -> None:
        first = storage.replace("m", b"one", None)
        assert storage.read("m").version == first
        second = storage.replace("m", b"two", first)
        assert second != first
        for outdated in (first, None):
            with pytest.raises(ObjectChanged):
                storage.replace("m", b"three", outdated)
        assert (storage.read("m").content, storage.read("m").version) == (b"two", second)
        storage.put("m", b"by put")
        with pytest.raises(ObjectChanged):
            storage.replace("m", b"three", second)
        storage.delete("m")
        with pytest.raises(ObjectChanged):
            storage.replace("m", b"three", second)
        storage.replace("m", b"four", None)

    def test_one_of_many_concurrent_replacements_wins(self, storage: RemoteStorage) -> None:
        version = storage.replace("m", b"start", None)

        def attempt(number: int) -> int | None:
            try:
                storage.replace("m", b"by %d" % number, version)
            except ObjectChanged:
                return None
            return number

        with ThreadPoolExecutor(8) as pool:
            winners = [each for each in pool.map(attempt, range(16)) if each is not None]
        assert len(winners) == 1
        assert storage.read("m").content == b"by %d" % winners[0]

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_bad_key_is_refused(self, storage: RemoteStorage, key: str) -> None:
        for call in (
            lambda: storage.put(key, b""),
            lambda: storage.replace(key, b"", None),
            lambda: storage.read(key),
            lambda: storage.get_range(key, 0, 1),
            lambda: storage.delete(key),
        ):
            with pytest.raises(ValueError, match="key"):
                call()

    def test_negative_range_is_refused(self, storage: RemoteStorage) -> None:
        storage.put("k", b"abc")
        for start, size in ((-1, 1), (0, -1)):
            with pytest.raises(ValueError, match="range"):
                storage.get_range("k", start, size)

    def test_close_twice_is_harmless(self, storage: RemoteStorage) -> None:
        storage.close()
        storage.close()
