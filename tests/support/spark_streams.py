"""Streams of Spark on a slow machine."""

import time
from collections.abc import Callable
from typing import TypeVar

from support.waiting import PATIENCE_S

T = TypeVar("T")


def despite_slow_workers(run: Callable[[], T]) -> T:
    """Return what `run` returns, called again while Spark gives up waiting for a Python worker.

    A source of streams has a worker of its own, for which Spark waits 10 seconds (`PythonWorkerFactory`, without a
    setting); a loaded machine takes longer to start it. `run` begins where the checkpoint says.
    """
    deadline = time.monotonic() + 5 * PATIENCE_S
    while True:
        try:
            return run()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error) or time.monotonic() > deadline:
                raise
