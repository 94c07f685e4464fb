"""A client in a process: what it does is reported in lines of JSON, and it is asked whether it still reacts.

    python -P -m chaos.child MODULE:CLASS '{"name": ...}'

The class is created with the settings, and `run` is called on the main thread. "react" on the standard input has
`react` called on another thread, so that a client that waits in a call can answer; "stop", or the end of the input
because the parent is gone, ends the process.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

Report = Callable[[str, Any], None]
EXIT_S = 60
"""The time in which a client whose parent has ended may close."""


class Role(Protocol):
    """A client that runs in the process."""

    def run(self, report: Report, stopping: threading.Event) -> None:
        """Work until `stopping` is set, and close. `report` takes what a line of JSON can say."""

    def react(self) -> str:
        """Make a call that librdkafka's main thread answers without any broker; say what it answered."""


def main() -> int:
    where, settings = sys.argv[1:]
    module, _, name = where.partition(":")
    stopping, lock = threading.Event(), threading.Lock()
    out = sys.stdout.buffer

    def report(kind: str, value: Any) -> None:
        line = json.dumps([kind, value]).encode() + b"\n"
        with lock:
            out.write(line)
            out.flush()

    role: Role = getattr(import_module(module), name)(**json.loads(settings))

    def react() -> None:
        try:
            answer = role.react()
        except Exception as error:  # noqa: BLE001  an error is a reaction
            answer = repr(error)
        report("reaction", answer)

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "react":
                threading.Thread(target=react, daemon=True).start()
            else:
                stopping.set()
        stopping.set()
        time.sleep(EXIT_S)
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    try:
        role.run(report, stopping)
    except BaseException as error:  # noqa: BLE001  reported
        report("died", repr(error))
        return 1
    report("ended", "")
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # what librdkafka still does at the exit of a process is not of interest
