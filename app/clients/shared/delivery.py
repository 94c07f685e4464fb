"""The handles that `send` returns: futures of messages, without the cost of a `Future` per message."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from ....core.client.errors import ClientTimeout
from ....core.client.producer.producer_batch import BatchFuture, Delivery, DeliveryCallback, UnseenFailures
from ....ports.errors import BarnabasError
from .blocking_shell import BlockingShell
from .foreign_methods import HANDLE, explain_foreign_names

if TYPE_CHECKING:
    from asyncio import Future


class DeliveryHandle:
    """The handle of one sent message. It knows its batch and its index there; the batch has the outcome."""

    __slots__ = ("_future", "_index", "_shell")

    def __init__(self, future: BatchFuture, index: int, shell: BlockingShell) -> None:
        self._future = future
        self._index = index
        self._shell = shell

    @property
    def done(self) -> bool:
        """True when the outcome is known."""
        return self._find()[0].done

    def result(self, timeout: float | None = None) -> Delivery:
        """Wait up to `timeout` seconds (None: for ever), and return the delivery: topic, partition and offset.

        Raises the `BarnabasError` with which the message failed, or `ClientTimeout` while its outcome is not known.
        """
        if not self.done:
            self._shell.check_process()
            with self._shell.lock:
                if not self._shell.wait(lambda: self.done, timeout):
                    text = f"no delivery within {timeout} s; the message is still on its way{self._shell.why}"
                    raise ClientTimeout(text)
        return self._outcome()

    @property
    def batch_future(self) -> BatchFuture:
        """The batch, or the future, that holds the message now. For the producer."""
        return self._future

    def move(self, future: BatchFuture, index: int) -> None:
        """Move the message, with its callbacks, to another batch. With the shell's lock held."""
        future.callbacks += [(index, callback) for _, callback in self._future.callbacks]
        self._future.callbacks = []
        self._future, self._index = future, index

    def add_callback(self, callback: DeliveryCallback) -> None:
        """Call `callback(error, delivery)` once: on the producer's thread, or immediately if done already."""
        self._shell.check_process()
        with self._shell.lock:
            future, index = self._find()
            if not future.done:
                future.callbacks.append((index, callback))
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
        """Return or raise the known outcome, and note that the program has asked for it."""
        future, index = self._find()
        if future.unseen is not None and not self._shell.is_foreign:
            with self._shell.lock:
                UnseenFailures.saw(future, index)
        return future.delivery(index)

    def _find(self) -> tuple[BatchFuture, int]:
        return self._future.find(self._index)

    def __repr__(self) -> str:
        return f"<DeliveryHandle {'done' if self.done else 'on its way'}>"


explain_foreign_names(HANDLE)(DeliveryHandle)  # a decorator would leave it uncompiled


def _set(future: Future[None]) -> None:
    if not future.done():  # the waiting task may have been cancelled
        future.set_result(None)


class ManyHandle:
    """The handle of several sent messages: runs of messages in batches, and single ones."""

    __slots__ = ("_runs", "_shell", "_singles", "count")

    def __init__(
        self, shell: BlockingShell, runs: list[tuple[BatchFuture, int, int]], singles: list[DeliveryHandle]
    ) -> None:
        """Make it of `runs` (batch, index of the first message of this handle, number of messages) and `singles`."""
        self._shell = shell
        self._runs = runs
        self._singles = singles
        self.count = len(singles) + sum(run[2] for run in runs)

    @property
    def done(self) -> bool:
        """True when every outcome is known."""
        return all(handle.done for handle in self._singles) and all(future.done_all() for future, _, _ in self._runs)

    def result(self, timeout: float | None = None) -> int:
        """Wait up to `timeout` seconds (None: for ever), and return the number of messages, all of them delivered.

        Raises the error of the first message that failed, or `ClientTimeout` while not all outcomes are known.
        """
        self._wait(timeout)
        if self._singles or not all(future.all_delivered() for future, _, _ in self._runs):
            failed = [each for each in self._outcomes() if isinstance(each, BarnabasError)]
            if failed:
                raise failed[0]
        return self.count

    def deliveries(self, timeout: float | None = None) -> list[Delivery | BarnabasError]:
        """Return for each message its delivery, or the error with which it failed. Raises `ClientTimeout`."""
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
            DeliveryHandle(future, index, self._shell)
            for future, first, count in self._runs
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


def all_done(futures: list[BatchFuture], handles: list[DeliveryHandle]) -> bool:
    """Return True if all have ended; removes ended ones from the lists."""
    while futures:
        last = futures[-1]
        if not last.done_all():
            return False
        futures.pop()
    while handles:
        if not handles[-1].done:
            return False
        handles.pop()
    return True
