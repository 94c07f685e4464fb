"""Files and folders that are symbolic links: they are read and written where they lie, and never taken for missing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.adapters.storage_fs import open_log_dir
from barnabas.core.log.config import LogConfig
from barnabas.core.traffic.steps import complete
from barnabas.ports.storage import LogDir, StorageError
from barnabas.testing.logs import open_log, put, read_all

SEGMENTS = LogConfig(segment_bytes=250)
VALUES = [b"value %02d" % number for number in range(12)]
EXPECTED = list(enumerate(VALUES))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def log_dir(data: Path) -> Iterator[LogDir]:
    log_dir = open_log_dir(data)
    yield log_dir
    log_dir.close()


@pytest.fixture
def partition(log_dir: LogDir, data: Path) -> Path:
    log = open_log(log_dir.folder("t-0"), config=SEGMENTS)
    for value in VALUES:
        put(log, value)
    log.close()
    return data / "t-0"


def move(path: Path, elsewhere: Path) -> Path:
    """Put a file or a folder elsewhere, with a link in its place."""
    target = path.rename(elsewhere / path.name)
    path.symlink_to(target)
    return target


def test_segments_that_are_links_are_read_like_others(log_dir: LogDir, partition: Path, elsewhere: Path) -> None:
    for path in sorted(partition.iterdir()):
        if path.name.startswith(f"{0:020d}") or path.name.startswith(f"{6:020d}"):
            move(path, elsewhere)
    log = open_log(log_dir.folder("t-0"), config=SEGMENTS)
    assert read_all(log) == EXPECTED
    assert log.log_start_offset == 0
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 9]


def test_a_newest_segment_that_is_a_link_is_appended_to_and_cut_where_it_lies(
    log_dir: LogDir, partition: Path, elsewhere: Path
) -> None:
    target = move(partition / f"{9:020d}.log", elsewhere)
    log = open_log(log_dir.folder("t-0"), config=LogConfig())
    before = target.stat().st_size
    put(log, b"more")
    assert read_all(log) == [*EXPECTED, (12, b"more")]
    assert target.stat().st_size > before
    log.truncate_to(10)
    assert read_all(log) == EXPECTED[:10]
    assert target.stat().st_size < before
    log.close()
    assert read_all(open_log(log_dir.folder("t-0"))) == EXPECTED[:10]


def test_retention_takes_the_link_and_leaves_what_it_leads_to(
    log_dir: LogDir, partition: Path, elsewhere: Path
) -> None:
    target = move(partition / f"{0:020d}.log", elsewhere)
    log = open_log(log_dir.folder("t-0"), config=LogConfig(segment_bytes=250, retention_bytes=500))
    removed = complete(log.retain(0, log.log_end_offset))
    for segment in removed:
        segment.delete()
    assert log.log_start_offset > 0
    assert read_all(log) == EXPECTED[log.log_start_offset :]
    assert target.exists()
    assert not [path for path in partition.iterdir() if path.is_symlink()]


def test_a_link_that_leads_nowhere_is_an_error_and_not_an_empty_log(
    log_dir: LogDir, partition: Path, elsewhere: Path
) -> None:
    target = move(partition / f"{9:020d}.log", elsewhere)
    away = target.rename(elsewhere / "away")
    with pytest.raises(StorageError, match=r"symbolic link to .*, which does not exist"):
        open_log(log_dir.folder("t-0"), config=SEGMENTS)
    away.rename(target)
    assert read_all(open_log(log_dir.folder("t-0"), config=SEGMENTS)) == EXPECTED


def test_links_of_others_to_nowhere_and_to_folders_are_passed_over(log_dir: LogDir, partition: Path) -> None:
    (partition / ".#00.log").symlink_to("someone@somewhere")
    (partition / "folder").symlink_to(partition.parent)
    assert not {".#00.log", "folder"} & set(log_dir.folder("t-0").files())
    assert read_all(open_log(log_dir.folder("t-0"), config=SEGMENTS)) == EXPECTED


def test_a_partition_that_is_a_link_is_found_renamed_and_deleted(
    log_dir: LogDir, partition: Path, elsewhere: Path
) -> None:
    target = move(partition, elsewhere)
    assert "t-0" in log_dir.folders()
    log = open_log(log_dir.folder("t-0"), config=SEGMENTS)
    assert read_all(log) == EXPECTED
    log.close()
    log_dir.rename_folder("t-0", "t-0.0abc-delete")
    assert log_dir.folders() == ["t-0.0abc-delete"]
    log_dir.delete_folder("t-0.0abc-delete")
    assert log_dir.folders() == []
    assert target.is_dir(), "the link alone goes"


def test_a_partition_that_is_a_link_to_nowhere_cannot_be_opened(
    log_dir: LogDir, partition: Path, elsewhere: Path
) -> None:
    target = move(partition, elsewhere)
    target.rename(elsewhere / "away")
    with pytest.raises(StorageError):
        log_dir.folder("t-0")


def test_file_with_another_hard_link_is_copied_before_the_first_write(
    log_dir: LogDir, data: Path, elsewhere: Path
) -> None:
    folder = log_dir.folder("t-0")
    (elsewhere / "linked").write_bytes(b"0123456789")
    for name in ("grows", "shrinks"):
        (data / "t-0" / name).hardlink_to(elsewhere / "linked")
        file = folder.open(name)
        region = file.region(0, 10)
        if name == "grows":
            file.append(b"more")
        else:
            file.truncate(4)
        assert region.read() == b"0123456789"
        assert file.read(0, 100) == {"grows": b"0123456789more", "shrinks": b"0123"}[name]
        file.append(b"end")
        file.close()
    assert (elsewhere / "linked").read_bytes() == b"0123456789"
    assert (data / "t-0" / "shrinks").read_bytes() == b"0123end"
    assert not list((data / "t-0").glob("*.cleaned"))
