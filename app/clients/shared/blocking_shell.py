"""The threads of a client: users' threads wait for events on its reactor."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

from ....core.client.driver import Driver, Submit
from ....core.client.errors import ClientTimeout
from ....ports.errors import BarnabasError, ClosedError
from ....ports.scheduler import Outcome, Scheduler
from ...connector import Connector
from .process import ProcessBound

T = TypeVar("T")
GRACE_S = 5.0
"""The time in seconds after a call's deadline at which the reactor counts as dead."""

logger = logging.getLogger("barnabas.client")


class BlockingShell(ProcessBound, ABC):
    """A lock, a condition on it that is notified when something may have come true, and a driver on the reactor."""

    _scheduler: Scheduler
    _driver: Driver

    def __init__(self, connector: Connector) -> None:
        super().__init__()
        self.connector = connector
        self.clock = connector.clock
        self.lock = threading.Lock()
        self.changed = connector.condition(self.lock)
        self.closed = False
        self.is_of_program = False
        """True if the reactor has a thread of this program, which runs until the program has ended."""

    def _begin(self, scheduler: Scheduler, submit: Submit) -> None:
        """Make the driver; subclasses call it once, with the running reactor and the function that sends requests."""
        self._scheduler = scheduler
        self._driver = Driver(scheduler, self.clock, submit)

    @abstractmethod
    def _close_links(self) -> None:
        """Close every link, and fail pending requests. Reactor only."""

    @property
    def why(self) -> str:
        """The reason why the brokers do not respond, as the end of an error text; empty while they do."""
        return ""

    def warn(self, text: str) -> None:
        """Log a warning about a problem that may disappear."""
        logger.warning(text)

    def report(self, text: str, error: BaseException | None = None) -> None:
        """Log an error that no call can raise."""
        logger.error(text, exc_info=error)

    def now_ms(self) -> float:
        return self.clock.monotonic_ms()

    def wake(self) -> None:
        """Make the driver poll the state machines soon. Any thread."""
        try:
            self._driver.wake()
        except ClosedError:
            if not self.closed:
                raise

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` on the reactor, unless the client is closed. Any thread."""
        try:
            self._scheduler.call_soon(work)
        except ClosedError:
            if not self.closed:
                raise

    def post_later(self, delay_ms: float, work: Callable[[], None]) -> None:
        """Run `work` on the reactor after this time, unless the client is closed by then. Any thread."""

        def unless_closed() -> None:
            if not self.closed:
                work()

        self.post(lambda: self._call_later(delay_ms, unless_closed))

    def _call_later(self, delay_ms: float, work: Callable[[], None]) -> None:
        self._scheduler.call_later(delay_ms, work)

    def wait(self, true: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait on `changed` until `true()`; call it with the lock held. False when the time is over.

        Raises `ClosedError` when the client is closed meanwhile, `BarnabasError` on the reactor's own thread.
        """
        if true():
            return True
        self.check_process()
        if self.connector.owns_thread():
            raise BarnabasError("a callback must not wait for its own client; do it from another thread")
        deadline_ms = None if timeout_s is None else self.now_ms() + timeout_s * 1000
        while not self.closed:
            left_ms = None if deadline_ms is None else deadline_ms - self.now_ms()
            if left_ms is not None and left_ms <= 0:
                return False
            self.changed.wait(None if left_ms is None else left_ms / 1000)
            if true():
                return True
        raise ClosedError("the client was closed")

    def on_reactor(self, work: Callable[[Callable[[Outcome[T]], None]], None], timeout_s: float | None, late: str) -> T:
        """Run `work` on the reactor, and wait until it calls the callback that it gets. Call without the lock.

        Raises the error of the outcome, `ClientTimeout` with the text `late`, and what `wait` raises.
        """
        answers: list[Outcome[T]] = []

        def done(outcome: Outcome[T]) -> None:
            with self.lock:
                answers.append(outcome)
                self.changed.notify_all()

        self._scheduler.call_soon(lambda: work(done))
        with self.lock:
            if not self.wait(lambda: bool(answers), timeout_s):
                raise ClientTimeout(late)
        return answers[0].get()

    def close(self) -> None:
        """Close every link, fail pending requests, stop the reactor if it is ours. Twice is harmless."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            self._driver.retire()
            self.changed.notify_all()
        ended: list[bool] = []

        def close_links() -> None:
            try:
                self._driver.close()
                self._close_links()
            finally:
                with self.lock:
                    ended.append(True)
                    self.changed.notify_all()

        try:
            if self.connector.owns_thread():
                close_links()
                return
            self._scheduler.call_soon(close_links)
            with self.lock:
                self.changed.wait_for(lambda: bool(ended), GRACE_S)
        except ClosedError:
            pass  # the reactor is gone, and its links with it
        self.connector.stop()
