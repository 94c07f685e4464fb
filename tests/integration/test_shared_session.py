"""Sessions of clients beside a broker keep the promises of the port, one underlying session for all of them."""

from collections.abc import Iterator

import pytest

from barnabas.adapters.coord_memory import MemorySession, MemoryTree
from barnabas.app.embedded_broker import SharedSession
from barnabas.ports.coordination import Coordination
from barnabas.testing.contracts.coordination import CoordinationContract


def _ignore(text: str) -> None:
    """The suite makes watches raise on purpose."""


class SharedHarness:
    several_sessions = True
    faults: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self._session: MemorySession = MemoryTree(report=_ignore).session()
        self._owners: dict[str, SharedSession] = {}
        self._made: list[SharedSession] = []

    def session(self) -> SharedSession:
        self._made.append(SharedSession(self._session, self._owners))
        return self._made[-1]

    def expire_session(self, session: Coordination) -> None:
        raise NotImplementedError("it would end all of them")

    def disconnect(self, session: Coordination) -> None:
        raise NotImplementedError("it would cut all of them")

    def reconnect(self, session: Coordination) -> None:
        raise NotImplementedError("it would cut all of them")

    def restart_server(self) -> None:
        raise NotImplementedError("there is no server")

    def close(self) -> None:
        for session in self._made:
            session.close()
        self._session.close()


class TestSharedSession(CoordinationContract):
    @pytest.fixture
    def harness(self) -> Iterator[SharedHarness]:
        harness = SharedHarness()
        yield harness
        harness.close()
