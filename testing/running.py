"""The test brokers and clusters that run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ..ports.errors import ConfigError

if TYPE_CHECKING:
    from ..app.clients.shared.bootstrap import Bootstrap


class RunningBroker(Protocol):
    """A `TestBroker` or `TestCluster`, as far as its messages can be read."""

    @property
    def source(self) -> Bootstrap:
        """The argument with which a client reads from it: the broker itself, or an address."""
        ...


_running: list[RunningBroker] = []
_patience_s = 10.0


def patience_s() -> float:
    """Return the seconds that `assert_produced` waits by default."""
    return _patience_s


def set_patience_s(seconds: float) -> float:
    """Set the seconds that `assert_produced` waits by default; return the previous number."""
    global _patience_s  # one for the process, as the running brokers are
    before, _patience_s = _patience_s, seconds
    return before


def started(broker: RunningBroker) -> None:
    """Add a broker to the running ones."""
    _running.append(broker)


def stopped(broker: RunningBroker) -> None:
    """Remove a broker that has stopped from the running ones."""
    _running.remove(broker)


def running_broker() -> RunningBroker:
    """Return the one test broker that runs in this process. Raises `ConfigError` for none or several."""
    if len(_running) != 1:
        raise ConfigError(f"{len(_running) or 'no'} test brokers run here: say which is meant with broker=")
    return _running[0]
