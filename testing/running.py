"""The test brokers and clusters that run in this process."""

from typing import Protocol

from ..ports.errors import ConfigError


class RunningBroker(Protocol):
    """A `TestBroker` or `TestCluster`, as far as its messages can be read."""

    @property
    def source(self) -> object:
        """The argument with which a client reads from it: the broker itself, or an address."""
        ...


_running: list[RunningBroker] = []


def started(broker: RunningBroker) -> None:
    """Add a broker to the running ones."""
    _running.append(broker)


def stopped(broker: RunningBroker) -> None:
    """Remove a broker that has stopped from the running ones."""
    _running.remove(broker)


def running_broker() -> RunningBroker:
    """The one test broker that runs in this process. Raises `ConfigError` for none or several."""
    if len(_running) != 1:
        raise ConfigError(f"{len(_running) or 'no'} test brokers run here: say which is meant with broker=")
    return _running[0]
