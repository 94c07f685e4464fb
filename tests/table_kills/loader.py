"""The process that is killed: it loads and compacts by commands in lines of JSON, with one Spark session.

It answers with lines of JSON: the steps of its work as it comes to them, then `done` or `failed`.
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from barnabas.pipeline import load as load_module
from barnabas.pipeline.session import local_session
from barnabas.pipeline.spark.errors import JAVA_ENDED
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.upkeep.maintenance import compact
from barnabas.ports.errors import BarnabasError


class Steps:
    """Counts the steps of a commit, and ends the process at one of them, as kill -9 does."""

    def __init__(self) -> None:
        self.kill_at = -1
        self.seen = 0

    def begin(self, kill_at: int) -> None:
        self.kill_at, self.seen = kill_at, 0

    def __call__(self, name: str) -> None:
        if self.seen == self.kill_at:
            say(event="killed", step=name)
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def watch_iceberg(steps: Steps) -> None:
    """Steps inside of pyiceberg's commit: each file of its own, and the catalog's change."""
    from sqlalchemy import event
    from sqlalchemy.orm import Session

    from barnabas.pipeline.tables.iceberg import durable

    class RecordedStream(durable.SyncedStream):
        def close(self) -> None:
            steps("close a file of metadata")
            super().close()

    patch.object(durable, "SyncedStream", RecordedStream).start()
    event.listen(Session, "before_commit", lambda _session: steps("before the catalog's commit"))
    event.listen(Session, "after_commit", lambda _session: steps("after the catalog's commit"))


def work(order: dict[str, Any], bootstrap: str, spark: Any, steps: Steps) -> None:
    folder = Path(order["folder"])
    steps.begin(order["kill_at"])
    if order["work"] == "compact":
        store = open_store(folder, order["format"], checkpoint=steps)
        with store.locked():
            store.recover()
            rows = compact(store).files_after
    else:
        with patch.object(load_module, "open_store", partial(open_store, checkpoint=steps)):
            done = load_module.load(
                bootstrap,
                order["topics"],
                folder,
                spark=spark,
                since_ms=order["since_ms"],
                format=order["format"],
                progress=lambda state: say(event="step", step=state.step),
            )
        rows = done.rows
    say(event="done", rows=rows, steps=steps.seen)


def main() -> None:
    bootstrap, log_file = sys.argv[1], Path(sys.argv[2])
    steps = Steps()
    watch_iceberg(steps)
    orders = iter(sys.stdin)
    while True:
        with local_session(cores=2, log_file=log_file) as spark:
            say(event="ready")
            for line in orders:
                try:
                    work(json.loads(line), bootstrap, spark, steps)
                except BarnabasError as error:
                    say(event="failed", error=str(error), kind=type(error).__name__)
                    if JAVA_ENDED in str(error):
                        break  # as a load that continues does it: with a new session
            else:
                return


if __name__ == "__main__":
    main()
