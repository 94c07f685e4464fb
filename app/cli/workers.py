"""`barnabas serve` with several workers: the parent that starts, watches and stops them."""

from __future__ import annotations

import json
import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, cast

from ...ports.report import counted, to_logger
from ...ports.values import Secret
from ..compose.worker_control import ControlledWorker
from ..compose.workers import WorkersMetrics, opened_workers
from ..logs import ROOT, log_report
from .logging_setup import set_up
from .processes import Lines, ManagedProcess, NamedLines, Processes

if TYPE_CHECKING:
    from typing import TextIO

    from ..compose.workers import Worker
    from ..config import BrokerConfig

logger = logging.getLogger(f"{ROOT}.app.workers")
PARENT = "parent"
_CHECK_S = 0.02
IN_SYNC_WAIT_S = 60.0
"""The longest wait for replicas before the next worker is restarted."""


def run_workers(
    file: Path | None, given: Mapping[str, object], read: BrokerConfig, announce: Callable[[list[str]], None]
) -> None:
    """Run the workers until SIGTERM or SIGINT. `given`: the settings in addition to `file`; `read`: both of them.

    `announce` gets the shared listeners once all workers are ready and know each other.
    """
    names = [f"worker-{number}" for number in range(1, read.workers + 1)]
    lines = Lines(sys.stderr, [PARENT, *names], read.logging_format)
    set_up(read.logging_level, read.logging_format, cast("TextIO", NamedLines(lines, PARENT)))
    with opened_workers(read) as opened:
        shows_metrics = read.metrics_address is not None
        started = [StartedWorker(worker, file, given, shows_metrics=shows_metrics) for worker in opened.workers]

        def announced() -> None:
            _wait_until_known([each.control for each in started])
            where = ", ".join(opened.listeners)
            logger.info("%s of %s are ready", counted(len(started), "worker"), where)
            services = started[0].process.listeners[len(read.listeners) :]  # they run with worker 1
            announce([*opened.listeners, *services])

        def ready() -> None:
            Thread(target=announced, name="announce", daemon=True).start()

        with ExitStack() as keep:
            for each in started:
                keep.callback(each.control.connect, None)
            if shows_metrics:
                by_number = {str(number): each.control for number, each in enumerate(started, start=1)}
                keep.callback(WorkersMetrics(read, by_number, to_logger(log_report, "app.workers")).close)
            members = [each.process for each in started]
            Processes(
                members, lines, restart=True, ready=ready, wait_until_stable=lambda: _wait_until_settled(started)
            ).run()


class StartedWorker:
    """A worker as a process, and the channel to it."""

    def __init__(self, worker: Worker, file: Path | None, given: Mapping[str, object], *, shows_metrics: bool) -> None:
        self.name = worker.name
        self.control = ControlledWorker()
        self._worker = worker
        self._theirs: socket.socket | None = None
        self._described = {
            "config": None if file is None else str(file),
            "settings": {key: _plain(value) for key, value in {**given, **worker.settings}.items()},
            "shared": {index: port.fileno() for index, port in worker.shared.items()},
            "metrics": shows_metrics,
        }
        self.process = ManagedProcess(
            worker.name, (worker.name,), module=f"{__package__}.worker", before=self._before, started=self._after
        )

    def _before(self) -> tuple[bytes, Sequence[int]]:
        ours, self._theirs = socket.socketpair()
        self.control.connect(ours)
        descriptors = [*(port.fileno() for port in self._worker.shared.values()), self._theirs.fileno()]
        described = {**self._described, "control": self._theirs.fileno()}
        return json.dumps(described).encode() + b"\n", descriptors

    def _after(self) -> None:
        assert self._theirs is not None
        self._theirs.close()


def _wait_until_settled(workers: Sequence[StartedWorker]) -> None:
    """Wait until the workers know each other, and no partition that they lead has a replica out of sync.

    After `IN_SYNC_WAIT_S` the next worker is restarted all the same: another machine may be down.
    """
    controls = [each.control for each in workers]
    until_s = monotonic() + IN_SYNC_WAIT_S
    while not (_know_each_other(controls) and all(each.under_replicated() == 0 for each in controls)):
        if monotonic() > until_s:
            logger.warning(
                "replicas are out of sync after %g s; the next worker is restarted all the same", IN_SYNC_WAIT_S
            )
            return
        sleep(_CHECK_S)


def _plain(value: object) -> object:
    if isinstance(value, Secret):
        return _plain(value.value)
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else value


def _wait_until_known(workers: Sequence[ControlledWorker]) -> None:
    """Wait until each worker has seen all the others, so that topics can be created with replicas on all of them."""
    while not _know_each_other(workers):
        sleep(_CHECK_S)


def _know_each_other(workers: Sequence[ControlledWorker]) -> bool:
    found = [known for worker in workers if (known := worker.known_brokers()) is not None]
    own = {number for number, _ in found}
    return len(found) == len(workers) and all(own <= others for _, others in found)
