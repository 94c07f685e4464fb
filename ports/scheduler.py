"""Timers and work off the reactor thread."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

from .values import frozen

T = TypeVar("T")


@frozen(kw_only=True)
class Outcome(Generic[T]):
    """The result of offloaded work: a value, or the exception that it raised."""

    value: T | None = None
    error: BaseException | None = None

    @classmethod
    def of(cls, work: Callable[[], T]) -> "Outcome[T]":
        """Run the work, and return its value or exception."""
        try:
            return cls(value=work())
        except BaseException as error:  # noqa: BLE001  handed on
            return cls(error=error)

    def get(self) -> T:
        """Return the value, or raise the exception of the work."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None is a legal T


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Forget the callback; harmless when it has already run. Owner thread only."""
        ...


class Scheduler(Protocol):
    """Runs callbacks on the one thread that owns the state (the reactor), one at a time, never nested.

    A callback that raises is reported once by the scheduler's owner; it stops neither the timers nor the thread.
    """

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the owner thread after `delay_ms` (0: on the next turn). Owner thread only."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Run `callback` on the owner thread on its next turn, in the order of the calls. Callable from any thread.

        Raises `ClosedError` when the scheduler has stopped.
        """
        ...

    def offload(self, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> None:
        """Run `work` on a worker thread (it may block, it must not touch state of the owner), then `done` on the owner.

        Owner thread only. `done` is called exactly once, also when `work` raises. Two calls may run at the same time
        and finish in any order.
        """
        ...


@runtime_checkable
class LendsTurns(Protocol):
    """A scheduler whose thread other threads may stand in for while it sleeps."""

    def run_here(self, work: Callable[[], None]) -> bool:
        """Run `work` and what follows from it at once on the calling thread, in place of the owner thread, while that
        one sleeps; return False, and do nothing, while it does not. Callable from any thread, without locks that
        callbacks take."""
        ...
