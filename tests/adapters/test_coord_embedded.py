import errno
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from support.security_entities import SecurityEntitySuite

from barnabas.adapters.coord_embedded import EmbeddedCoordination, NodeStore, rewrite_file
from barnabas.ports.coordination import CoordinationError, Node, NoNode
from barnabas.testing.contracts.coordination import CoordinationContract, Harness, Opened, machine_for


def _ignore(text: str) -> None:
    """The suite makes watches raise on purpose."""


class EmbeddedHarness(Harness):
    several_sessions = False
    faults = frozenset()

    def __init__(self, path: Path) -> None:
        self._session = EmbeddedCoordination(str(path), report=_ignore)

    def session(self) -> EmbeddedCoordination:
        return self._session

    def close(self) -> None:
        self._session.close()


class TestEmbeddedCoordination(CoordinationContract, SecurityEntitySuite):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[EmbeddedHarness]:
        harness = EmbeddedHarness(tmp_path / "coordination.db")
        yield harness
        harness.close()


class _OpenedFile:
    def __init__(self) -> None:
        self._folder = TemporaryDirectory()
        self._path = f"{self._folder.name}/coordination.db"
        self.session = EmbeddedCoordination(self._path)

    def reopen(self) -> EmbeddedCoordination:
        self.session.close()
        self.session = EmbeddedCoordination(self._path)
        return self.session

    def close(self) -> None:
        self.session.close()
        self._folder.cleanup()


def _open_fresh() -> Opened:
    opened = _OpenedFile()
    return Opened(opened.session, opened.reopen, opened.close)


TestEmbeddedMachine = machine_for(_open_fresh).TestCase
TestEmbeddedMachine.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


def _in_another_process(code: str, path: Path) -> "subprocess.CompletedProcess[str]":
    program = f"from barnabas.adapters.coord_embedded import EmbeddedCoordination\nimport os, signal, sys\n{code}"
    return subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)


def test_a_killed_process_leaves_what_it_wrote_but_no_ephemeral_nodes(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    code = """
session = EmbeddedCoordination(sys.argv[1])
session.create("/a/b", b"0")
session.set("/a/b", b"1")
session.create("/a/registered", ephemeral=True)
session.create("/brokers/ids/1", ephemeral=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert _in_another_process(code, path).returncode == -9
    session = EmbeddedCoordination(str(path))
    assert session.get("/a/b") == Node(data=b"1", version=1)
    assert session.children("/a") == ["b"]
    assert session.children("/brokers/ids") == []
    session.close()


def test_two_processes_cannot_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    session = EmbeddedCoordination(str(path))
    other = _in_another_process("EmbeddedCoordination(sys.argv[1])", path)
    assert other.returncode == 1
    assert "CoordinationError" in other.stderr
    assert "in use by another broker" in other.stderr
    session.create("/a")
    session.close()
    assert _in_another_process("EmbeddedCoordination(sys.argv[1]).get('/a')", path).returncode == 0


def test_one_process_cannot_open_a_file_twice(tmp_path: Path) -> None:
    path = str(tmp_path / "coordination.db")
    session = EmbeddedCoordination(path)
    with pytest.raises(CoordinationError, match="in use by another broker"):
        EmbeddedCoordination(path)
    session.create("/a")
    session.close()
    again = EmbeddedCoordination(path)
    assert again.children("/a") == []
    again.close()


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CoordinationError, match="nowhere/coordination"):
        EmbeddedCoordination(str(tmp_path / "nowhere" / "coordination.db"))


def test_a_damaged_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    path.write_bytes(b"something else " * 1000)
    with pytest.raises(CoordinationError, match="cannot be used"):
        EmbeddedCoordination(str(path))
    assert path.read_bytes() == b"something else " * 1000


def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (id)")
    other.commit()
    other.close()
    with pytest.raises(CoordinationError, match="another program"):
        EmbeddedCoordination(str(path))
    other = sqlite3.connect(path)
    assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    other.close()


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "coordination.db")
    EmbeddedCoordination(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(CoordinationError, match="99"):
        EmbeddedCoordination(path)


@pytest.mark.parametrize("row", [("no/slash", b"", 0), ("/a//b", b"", 0), ("/a", 5, 0)])
def test_rows_that_make_no_sense_are_a_clear_error(tmp_path: Path, row: tuple[object, object, object]) -> None:
    path = str(tmp_path / "coordination.db")
    EmbeddedCoordination(path).close()
    raw = sqlite3.connect(path)
    raw.execute("INSERT INTO node VALUES (?, ?, ?)", row)
    raw.commit()
    raw.close()
    with pytest.raises(CoordinationError, match="damaged"):
        EmbeddedCoordination(path)


def test_a_failed_write_changes_nothing(tmp_path: Path) -> None:
    session = EmbeddedCoordination(str(tmp_path / "coordination.db"))
    session.create("/a", b"0")
    connection = session._store._connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(CoordinationError, match="full"):
        session.create("/big/node", bytes(100_000))
    with pytest.raises(NoNode):
        session.get("/big")
    assert session.set("/a", b"1") == 1
    session.close()


def test_every_commit_is_synced(tmp_path: Path) -> None:
    """A sync for each commit (2 = FULL) makes writes survive a power cut, which no test can cause."""
    session = EmbeddedCoordination(str(tmp_path / "coordination.db"))
    connection = session._store._connection
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    session.close()


def test_a_copy_of_the_main_file_alone_has_every_change(tmp_path: Path) -> None:
    session = EmbeddedCoordination(str(tmp_path / "coordination.db"))
    for number in range(3):
        session.create(f"/a/{number}", b"x")
        copy = tmp_path / f"copy{number}.db"
        copy.write_bytes((tmp_path / "coordination.db").read_bytes())
        other = EmbeddedCoordination(str(copy))
        assert other.children("/a") == [str(each) for each in range(number + 1)]
        other.close()
    session.close()
    assert sorted(path.name for path in tmp_path.glob("coordination*")) == ["coordination.db"]


def test_open_of_non_database_file_raises_error_with_recovery_hint(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    path.write_bytes(b"\xff" * 8192)
    with pytest.raises(CoordinationError, match=r"move it away.*topics recover"):
        EmbeddedCoordination(str(path))


def test_rewrite_on_full_disk_leaves_existing_files_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("tree", "tree-wal"):
        (tmp_path / name).write_bytes(b"what there is")

    def full(_source: object, target: str) -> None:
        Path(target).write_bytes(b"wh")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space left"):
            rewrite_file(tmp_path / "tree", [("/a", b"1", 0)])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "tree": b"what there is",
        "tree-wal": b"what there is",
    }
    assert rewrite_file(tmp_path / "tree", [("/a", b"1", 0)]).name == "tree.aside"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree", "tree.aside", "tree.aside-wal"]


def test_file_of_the_tree_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    for _ in range(2):
        store = NodeStore(str(path))
        store.save([])
        assert [file.name for file in tmp_path.iterdir() if file.stat().st_mode & 0o077] == []
        store.close()
        path.chmod(0o644)  # as an earlier version left it
