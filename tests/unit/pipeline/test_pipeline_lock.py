import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.ports import free_port
from support.waiting import PATIENCE_S

from barnabas.pipeline.load import load
from barnabas.pipeline.tables.lock import TableLocked, exclusive
from barnabas.ports.errors import BarnabasError

_HOLDER = """
import sys
from pathlib import Path
from barnabas.pipeline.tables.lock import exclusive
with exclusive(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "table" / "_barnabas" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TableLocked, match=f"table is being changed by process {holder.pid} "), exclusive(path):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with exclusive(path):
            pass


def test_folders_that_were_made_for_a_lock_alone_go_with_it(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for table in (there, tmp_path / "not" / "yet"):
        with exclusive(table / "_barnabas" / "lock"):
            (table / "_barnabas" / "staging").mkdir()
        assert list(tmp_path.rglob("*")) == [there]


@pytest.mark.parametrize("name", ["_barnabas/commits/000001.json", "part.parquet"])
def test_a_lock_stays_where_something_has_come(tmp_path: Path, name: str) -> None:
    table = tmp_path / "table"
    with exclusive(table / "_barnabas" / "lock"):
        (table / name).parent.mkdir(exist_ok=True)
        (table / name).touch()
    assert (table / name).exists()
    with exclusive(table / "_barnabas" / "lock"):
        pass
    assert (table / name).exists()


def test_waiter_for_a_removed_lock_holds_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "table" / "_barnabas" / "lock"
    has_it, may_go = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        with exclusive(path, wait_s=30):
            has_it.set()
            may_go.wait(PATIENCE_S)

    waiting = threading.Thread(target=wait_for_it)
    with exclusive(path):
        waiting.start()
        assert not has_it.wait(0.1)
    try:
        assert has_it.wait(PATIENCE_S)
        with pytest.raises(TableLocked), exclusive(path):
            pass
    finally:
        may_go.set()
        waiting.join()
    assert not list(tmp_path.iterdir())


def test_a_load_from_nowhere_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BarnabasError, match=r"127\.0\.0\.1"):
        load(f"127.0.0.1:{free_port()}", ["t"], tmp_path / "table", client={"default.api.timeout.ms": "200"})
    assert not list(tmp_path.iterdir())
