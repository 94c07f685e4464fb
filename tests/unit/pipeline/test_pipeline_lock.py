import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.pipeline.tables.lock import TableLocked, exclusive

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
