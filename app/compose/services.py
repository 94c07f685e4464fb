"""Services beside a broker in `barnabas serve`, in their own threads: the schema registry, and those of other packages.

A service is a function under its name in the entry-point group, called with the configuration and HOST:PORT of the
broker, when that answers. It returns a `Service` once it serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from threading import Thread
from typing import TYPE_CHECKING, Protocol

from ...ports.errors import BarnabasError, ConfigError

if TYPE_CHECKING:
    from ..config import BrokerConfig

ENTRY_POINT_GROUP = "barnabas.services"


class Service(Protocol):
    """Something that serves until it is stopped."""

    @property
    def listener(self) -> str:
        """The URL where it serves."""
        ...

    def stop(self) -> None:
        """Stop in order; return when it has ended. The broker still answers."""
        ...


class Services:
    """The services that the configuration asks for. No method waits."""

    def __init__(self, config: BrokerConfig) -> None:
        """Raises `ConfigError` for a service that is not installed."""
        points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        missing = [name for name in config.services if name not in points]
        if missing:
            raise ConfigError(f"{missing[0]}.listen: {missing[0]} is not installed")
        self._config = config
        self._makers = [points[name] for name in config.services]
        self._running: list[Service] = []
        self._starting: Thread | None = None

    def start(
        self, listeners: Sequence[str], ready: Callable[[list[str]], None], failed: Callable[[BarnabasError], None]
    ) -> None:
        """One after the other; then `ready` with the listeners, theirs last, or `failed`. In a thread of its own."""

        def run() -> None:
            try:
                for maker in self._makers:
                    self._running.append(maker.load()(self._config, _own_address(listeners)))
            except BarnabasError as error:
                failed(error)
            except Exception as error:  # noqa: BLE001  # another package's; `failed` gets it
                failed(BarnabasError(f"the service {maker.name} ({maker.value}) failed: {error!r}"))
            else:
                ready([*listeners, *(service.listener for service in self._running)])

        self._starting = Thread(target=run, name="barnabas-services", daemon=True)
        self._starting.start()

    def stop(self, then: Callable[[], None]) -> None:
        """The newest first; then `then`. In a thread of its own."""

        def run() -> None:
            if self._starting is not None:
                self._starting.join()
            while self._running:
                self._running.pop().stop()
            then()

        Thread(target=run, name="barnabas-services-stop", daemon=True).start()


def _own_address(listeners: Sequence[str]) -> str:
    """Return the broker's address for a client on this machine. Raises `ConfigError`."""
    address = next((each.partition("://")[2] for each in listeners if each.startswith("kafka://")), None)
    if address is None:
        raise ConfigError("services beside a broker need a listener kafka://HOST:PORT")
    host, _, port = address.rpartition(":")
    anywhere = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}
    return f"{anywhere.get(host, host)}:{port}"
