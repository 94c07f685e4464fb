"""Readers that are not librdkafka's, for the tests of the watchdog: they are given as much as the test says."""

import threading
import time
from pathlib import Path
from typing import Any

from chaos.child import Report

GIVEN_BEFORE = 3
"""Messages that a reader is given before it stands still."""
ALL = 10


class FakeReader:
    """Given all messages, if another process of it ran before; otherwise it stands still after the first few.

    `bootstrap` is a folder where the processes leave a file each.
    """

    reacts_while_still = False

    def __init__(self, name: str, bootstrap: str, group: str | None, protocol: str) -> None:
        folder = Path(bootstrap)
        self._is_first = not any(folder.iterdir())
        (folder / f"{name}-{time.monotonic_ns()}").touch()

    def run(self, report: Report, stopping: threading.Event) -> None:
        for offset in range(GIVEN_BEFORE if self._is_first else ALL):
            report("polls", [[0, 0, offset, f"value-{offset}", time.monotonic()]])
        stopping.wait()
        if self._is_first and not self.reacts_while_still:
            threading.Event().wait()

    def react(self) -> str:
        if self._is_first and not self.reacts_while_still:
            threading.Event().wait()
        return "assigned"


class WithheldReader(FakeReader):
    """Waits for a broker that returns no further messages: it reacts."""

    reacts_while_still = True


class FakeSpan:
    """Reads spans as `SpanRole` does, from nowhere; the first process stands still, and reacts if `topic` says so."""

    def __init__(self, bootstrap: str, topic: str, spans: list[Any], isolation: str) -> None:
        folder = Path(bootstrap)
        self._reacts = topic == "reacts"
        self._is_first = not any(folder.iterdir())
        (folder / str(time.monotonic_ns())).touch()
        self._spans = spans

    def run(self, report: Report, stopping: threading.Event) -> None:
        for partition, first, end in self._spans:
            report("messages", [[partition, offset, f"value-{offset}"] for offset in range(first, end)])
        report("complete", not self._is_first)
        stopping.wait()

    def react(self) -> str:
        if not self._reacts:
            threading.Event().wait()
        return "assigned"
