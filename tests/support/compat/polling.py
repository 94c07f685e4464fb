"""A member of a group in a thread of its own, for the libraries whose consumers are polled."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from .model import PATIENCE_S, Record


class Polled(Protocol):
    """A consumer that has subscribed; used by one thread."""

    def poll(self) -> list[Record]:
        """Return the records that arrived within about 50 ms."""

    def assignment(self) -> frozenset[tuple[str, int]]: ...

    def commit(self) -> None:
        """Wait until what `poll` returned is committed."""

    def close(self) -> None: ...


class PollingMember:
    """Polls until it is closed. An error of the library is raised by the next call."""

    def __init__(self, open_consumer: Callable[[], Polled]) -> None:
        self._open = open_consumer
        self._received: list[Record] = []
        self._assignment: frozenset[tuple[str, int]] = frozenset()
        self._commits: queue.SimpleQueue[Future[None]] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="compatibility-member")
        self._thread.start()

    def assignment(self) -> frozenset[tuple[str, int]]:
        self._check()
        return self._assignment

    def received(self) -> list[Record]:
        self._check()
        return list(self._received)

    def commit(self) -> None:
        done: Future[None] = Future()
        self._commits.put(done)
        done.result(PATIENCE_S)

    def close(self) -> None:
        self._closing.set()
        self._thread.join(PATIENCE_S)
        if self._thread.is_alive():
            raise TimeoutError("the member does not close")
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"the member failed: {self._failure!r}") from self._failure

    def _run(self) -> None:
        try:
            consumer = self._open()
            try:
                while not self._closing.is_set():
                    self._received += consumer.poll()
                    self._assignment = consumer.assignment()
                    self._answer_commits(consumer)
            finally:
                consumer.close()
        except Exception as error:  # noqa: BLE001  the test's thread raises it
            self._failure = error

    def _answer_commits(self, consumer: Polled) -> None:
        while not self._commits.empty():
            done = self._commits.get()
            try:
                consumer.commit()
            except Exception as error:  # noqa: BLE001  for the caller of the commit
                done.set_exception(error)
            else:
                done.set_result(None)
