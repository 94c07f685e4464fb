"""What `send` gives back: the future of a message, without the price of a `Future` per message."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from ....core.client.errors import ClientTimeout
from ....core.client.producer.producer_batch import BatchFuture, Delivery, DeliveryCallback, UnseenFailures
from ....ports.errors import BarnabasError
from .blocking_shell import BlockingShell

if TYPE_CHECKING:
    from asyncio import Future


class DeliveryHandle:
    """One message on its way. It knows its batch and its place in there; the outcome is the batch's."""

    __slots__ = ("_home", "_index", "_shell")

    def __init__(self, home: BatchFuture, index: int, shell: BlockingShell) -> None:
        self._home = home
        self._index = index
        self._shell = shell

    @property
    def done(self) -> bool:
        """True when the outcome is known."""
        return self._find()[0].done

    def result(self, timeout: float | None = None) -> Delivery:
        """Where the message came to stand; waits up to `timeout` seconds (None: for ever).

        Raises the `BarnabasError` it failed with, or `ClientTimeout` when it is still on its way.
        """
        if not self.done:
            self._shell.check_process()
            with self._shell.lock:
                if not self._shell.wait(lambda: self.done, timeout):
                    text = f"no delivery within {timeout} s; the message is still on its way{self._shell.why}"
                    raise ClientTimeout(text)
        return self._outcome()

    @property
    def home(self) -> BatchFuture:
        """Where the message is now. For the producer."""
        return self._home

    def move(self, home: BatchFuture, index: int) -> None:
        """The message is somewhere else now. With the shell's lock held."""
        home.callbacks += [(index, callback) for _, callback in self._home.callbacks]
        self._home.callbacks = []
        self._home, self._index = home, index

    def add_callback(self, callback: DeliveryCallback) -> None:
        """Have `callback(error, delivery)` called once: on the producer's thread, or at once when done already."""
        self._shell.check_process()
        with self._shell.lock:
            home, index = self._find()
            if not home.done:
                home.callbacks.append((index, callback))
                return
        try:
            delivery = self._outcome()
        except BarnabasError as error:
            callback(error, None)
        else:
            callback(None, delivery)

    def __await__(self) -> Generator[object, None, Delivery]:
        if not self.done:
            from asyncio import get_running_loop

            loop = get_running_loop()
            future: Future[None] = loop.create_future()

            def wake(*_: object) -> None:
                loop.call_soon_threadsafe(_set, future)

            self.add_callback(wake)
            yield from future
        return self._outcome()

    def _outcome(self) -> Delivery:
        """What `result` gives once it is known. The program has asked for it."""
        home, index = self._find()
        if home.unseen is not None and not self._shell.is_foreign:
            with self._shell.lock:
                UnseenFailures.saw(home, index)
        return home.delivery(index)

    def _find(self) -> tuple[BatchFuture, int]:
        return self._home.find(self._index)

    def __repr__(self) -> str:
        return f"<DeliveryHandle {'done' if self.done else 'on its way'}>"


def _set(future: Future[None]) -> None:
    if not future.done():  # the waiting task may have been cancelled
        future.set_result(None)


class ManyHandle:
    """Several messages on their way: runs of messages in batches, and single ones."""

    __slots__ = ("_runs", "_shell", "_singles", "count")

    def __init__(
        self, shell: BlockingShell, runs: list[tuple[BatchFuture, int, int]], singles: list[DeliveryHandle]
    ) -> None:
        """`runs`: batch, number of its first message that is ours, how many."""
        self._shell = shell
        self._runs = runs
        self._singles = singles
        self.count = len(singles) + sum(run[2] for run in runs)

    @property
    def done(self) -> bool:
        """True when every outcome is known."""
        return all(handle.done for handle in self._singles) and all(home.done_all() for home, _, _ in self._runs)

    def result(self, timeout: float | None = None) -> int:
        """How many messages were delivered: all of them; waits up to `timeout` seconds (None: for ever).

        Raises the error of the first one that failed, or `ClientTimeout` when some are still on their way.
        """
        self._wait(timeout)
        if self._singles or not all(home.all_delivered() for home, _, _ in self._runs):
            failed = [each for each in self._outcomes() if isinstance(each, BarnabasError)]
            if failed:
                raise failed[0]
        return self.count

    def deliveries(self, timeout: float | None = None) -> list[Delivery | BarnabasError]:
        """Per message where it came to stand, or the error it failed with. Raises `ClientTimeout`."""
        self._wait(timeout)
        return self._outcomes()

    def _outcomes(self) -> list[Delivery | BarnabasError]:
        outcomes: list[Delivery | BarnabasError] = []
        for handle in self._handles():
            try:
                outcomes.append(handle.result())
            except BarnabasError as error:
                outcomes.append(error)
        return outcomes

    def __await__(self) -> Generator[object, None, int]:
        for handle in self._handles():
            if not handle.done:
                with suppress(BarnabasError):  # `result` raises the first one, when all are known
                    yield from handle.__await__()
        return self.result()

    def _handles(self) -> chain[DeliveryHandle]:
        runs = (
            DeliveryHandle(home, index, self._shell)
            for home, first, count in self._runs
            for index in range(first, first + count)
        )
        return chain(self._singles, runs)

    def _wait(self, timeout: float | None) -> None:
        if self.done:
            return
        self._shell.check_process()
        with self._shell.lock:
            if not self._shell.wait(lambda: self.done, timeout):
                text = f"not everything was delivered within {timeout} s; the rest is still on its way{self._shell.why}"
                raise ClientTimeout(text)


def all_done(homes: list[BatchFuture], handles: list[DeliveryHandle]) -> bool:
    """True when all of them have ended; those that have are taken out."""
    while homes:
        last = homes[-1]
        if not last.done_all():
            return False
        homes.pop()
    while handles:
        if not handles[-1].done:
            return False
        handles.pop()
    return True
