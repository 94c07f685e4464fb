"""The behaviour of a session when its server is suspended."""

from support.server_process import ServerProcess
from support.waiting import wait_for

from barnabas.ports.coordination import Coordination, CoordinationError, SessionState
from barnabas.testing.contracts.coordination_harness import Recorder

_NO_ANSWER = ("no answer", "cannot be reached", "lost the connection")
"""The last is kazoo's word, when a ping of its own was under way before the server stood still."""


def check_fail_over_from_stopped_server(session: Coordination, server: ServerProcess) -> None:
    """The session time is 12 s. `heartbeat` gives up after 4 s; another server serves long before the session ends."""
    states: Recorder[SessionState] = Recorder()
    session.add_session_listener(states)
    session.create("/registered", ephemeral=True)
    server.pause()
    try:
        observed = _refusal_of(session)
        assert any(text in observed for text in _NO_ANSWER), observed
        wait_for(lambda: not _refusal_of(session))
        assert (states.calls[0], states.calls[-1]) == (SessionState.SUSPENDED, SessionState.CONNECTED)
        assert SessionState.EXPIRED not in states.calls
        assert session.get("/registered").ephemeral
    finally:
        server.resume()


def _refusal_of(session: Coordination) -> str:
    try:
        session.heartbeat()
    except CoordinationError as error:
        return str(error)
    return ""
