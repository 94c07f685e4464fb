"""A real coordination server for a module of tests, and what the contract suite needs of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from barnabas.ports.coordination import Coordination
from barnabas.testing.contracts.coordination import Opened


class CoordinationServer(Protocol):
    @property
    def port(self) -> int: ...

    def start(self) -> None: ...

    def wait_ready(self) -> None: ...

    def stop(self) -> None: ...


ServerT = TypeVar("ServerT", bound=CoordinationServer)


@contextmanager
def running(server: ServerT, servers: list[ServerT]) -> Iterator[ServerT]:
    """Run a server; `servers` has it meanwhile, for machines of hypothesis, which take no fixture."""
    try:
        server.start()
        server.wait_ready()
        servers.append(server)
        yield server
    finally:
        servers.clear()
        server.stop()


def reopened(connect: Callable[[], Coordination]) -> Opened:
    """Return a session of `connect`, and how a machine of the contract suite ends it and opens another one."""
    session = connect()

    def reopen() -> Coordination:
        nonlocal session
        session.close()
        session = connect()
        return session

    def close() -> None:
        session.close()

    return Opened(session, reopen, close)


def ignore(text: str) -> None:
    """Take no note of a report: the suite makes watches raise on purpose."""
