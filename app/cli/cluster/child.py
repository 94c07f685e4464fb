"""Runs `barnabas` as a child process: it stops (SIGTERM) when the other end of its standard input is closed."""

import os
import signal
import sys
import threading

from ..main import main


def _watch_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_watch_parent, name="parent", daemon=True).start()
    main(sys.argv[1:])
