"""A load in a process of its own, which dies there: `killed_load.py WHERE TOPIC TABLE JAVA_LOG STEP` kills itself at a
step of its commit."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from unittest.mock import patch


def begin_load(where: str, topic: str, table: Path, step: str = "") -> "subprocess.Popen[str]":
    """Start a load that prints a line per step, in a process group with its own JVM, so that a kill ends all of it:
    in the JVM of the tests it would leave a data source whose Python process is dead."""
    environment = os.environ | {"TMPDIR": str(table.parent)}  # what a killed process leaves goes with the test
    arguments = [where, topic, str(table), str(table.with_name("java.log")), step]
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)


def killed_at(where: str, topic: str, table: Path, step: str) -> None:
    """A load that has killed itself at this step."""
    with begin_load(where, topic, table, step) as process:
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its JVM
    assert process.returncode == -signal.SIGKILL


def _main() -> None:
    from barnabas.pipeline import load as module
    from barnabas.pipeline.tables.formats import open_store

    where, topic, table, log, step = sys.argv[1:]

    def kill(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    with patch.object(module, "open_store", partial(open_store, checkpoint=kill)):
        module.load(where, [topic], Path(table), log_file=Path(log), progress=lambda at: print(at.step, flush=True))


if __name__ == "__main__":
    _main()
