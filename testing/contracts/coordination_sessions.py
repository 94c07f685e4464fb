"""The part of the coordination contract about sessions: several with one tree, and faults."""

import threading

import pytest

from ...ports.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    Node,
    NodeExists,
    SessionExpired,
    SessionState,
)
from .coordination_harness import WAIT_S, Harness, Recorder, Watch, exists, wait_until


class SessionSuite:
    """Several sessions with one tree, and faults. What a harness cannot do is skipped."""

    def test_sessions_see_each_others_changes(self, harness: Harness) -> None:
        one, other = _two(harness)
        watch = Watch(other, "/a")
        one.create("/a", b"1")
        watch.wait(b"1", [])
        other.set("/a", b"2", version=0)
        wait_until(lambda: one.get("/a").data == b"2")
        with pytest.raises(BadVersion):
            one.set("/a", b"lost", version=0)
        with pytest.raises(NodeExists):
            other.create("/a")

    def test_closing_removes_ephemeral_nodes_at_once(self, harness: Harness) -> None:
        one, other = _two(harness)
        one.create("/registered/one", ephemeral=True)
        other.create("/registered/other", ephemeral=True)
        watch = Watch(other, "/registered")
        gone = Watch(other, "/registered/one")
        one.close()
        watch.wait(b"", ["other"])
        gone.wait(None, None)
        assert other.children("/registered") == ["other"]

    def test_an_ephemeral_node_can_be_set_and_deleted_by_others(self, harness: Harness) -> None:
        one, other = _two(harness)
        one.create("/a", b"x", ephemeral=True)
        assert other.set("/a", b"y") == 1
        other.delete("/a", version=1)
        other.create("/a", b"z")
        one.close()
        assert other.get("/a") == Node(data=b"z", version=0)

    def test_one_of_many_creates_a_node(self, harness: Harness) -> None:
        sessions = [*_two(harness), harness.session(), harness.session()]
        won: Recorder[int] = Recorder()
        threads = [
            threading.Thread(target=_try_create, args=(session, index, won)) for index, session in enumerate(sessions)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won.calls) == 1
        assert sessions[0].get("/leader").data == b"%d" % won.calls[0]

    def test_an_expired_session_loses_its_ephemeral_nodes_and_begins_again(self, harness: Harness) -> None:
        _needs(harness, "expire_session")
        session = harness.session()
        states: Recorder[SessionState] = Recorder()
        session.add_session_listener(states)
        session.create("/kept", b"k")
        session.create("/registered/one", b"1", ephemeral=True)
        watch = Watch(session, "/kept")
        harness.expire_session(session)
        states.wait(lambda seen: SessionState.EXPIRED in seen)
        wait_until(lambda: not exists(session, "/registered/one"))
        watch.wait(b"k", [])
        session.create("/registered/one", b"2", ephemeral=True)
        assert session.get("/registered/one") == Node(data=b"2", version=0, ephemeral=True)
        assert session.get("/kept").data == b"k"

    def test_watches_outlive_an_expired_session(self, harness: Harness) -> None:
        _needs(harness, "expire_session")
        session = harness.session()
        states: Recorder[SessionState] = Recorder()
        session.add_session_listener(states)
        watch = Watch(session, "/a")
        harness.expire_session(session)
        states.wait(lambda seen: SessionState.EXPIRED in seen)
        session.create("/a", b"1")
        watch.wait(b"1", [])
        session.set("/a", b"2")
        watch.wait(b"2", [])

    def test_other_listeners_learn_of_expired_session(self, harness: Harness) -> None:
        _needs(harness, "expire_session")
        one, other = _two(harness)
        one.create("/registered/one", ephemeral=True)
        other.create("/registered/other", ephemeral=True)
        watch = Watch(other, "/registered")
        harness.expire_session(one)
        watch.wait(b"", ["other"])

    def test_keeping_says_how_long_the_session_lasts_at_least(self, harness: Harness) -> None:
        session = harness.session()
        assert session.heartbeat() > 0
        assert session.heartbeat() == session.heartbeat()

    def test_heartbeat_fails_until_listeners_of_expired_session_return(self, harness: Harness) -> None:
        _needs(harness, "expire_session")
        session = harness.session()
        notified, may_end = threading.Event(), threading.Event()

        def listener(state: SessionState) -> None:
            if state is SessionState.EXPIRED:
                notified.set()
                may_end.wait(WAIT_S)

        session.add_session_listener(listener)
        try:
            harness.expire_session(session)
            assert notified.wait(WAIT_S)
            with pytest.raises(SessionExpired):
                session.heartbeat()
        finally:
            may_end.set()
        wait_until(lambda: _is_alive(session))

    def test_heartbeat_without_connection_fails(self, harness: Harness) -> None:
        _needs(harness, "disconnect", "reconnect")
        session = harness.session()
        harness.disconnect(session)
        with pytest.raises(CoordinationError):
            session.heartbeat()
        harness.reconnect(session)
        wait_until(lambda: _is_alive(session))

    def test_a_lost_connection_keeps_ephemeral_nodes(self, harness: Harness) -> None:
        _needs(harness, "disconnect", "reconnect")
        one, other = _two(harness)
        states: Recorder[SessionState] = Recorder()
        one.add_session_listener(states)
        one.create("/registered/one", ephemeral=True)
        watch = Watch(one, "/a")
        harness.disconnect(one)
        states.wait(lambda seen: seen == [SessionState.SUSPENDED])
        with pytest.raises(CoordinationError):
            one.get("/a")
        other.create("/a", b"meanwhile")
        assert exists(other, "/registered/one")
        harness.reconnect(one)
        states.wait(lambda seen: seen == [SessionState.SUSPENDED, SessionState.CONNECTED])
        watch.wait(b"meanwhile", [])
        assert one.get("/registered/one").ephemeral

    def test_cancelled_listener_is_not_called(self, harness: Harness) -> None:
        _needs(harness, "disconnect", "reconnect")
        session = harness.session()
        cancelled: Recorder[SessionState] = Recorder()
        states: Recorder[SessionState] = Recorder()
        session.add_session_listener(cancelled)()
        session.add_session_listener(states)
        harness.disconnect(session)
        harness.reconnect(session)
        states.wait(lambda seen: SessionState.CONNECTED in seen)
        assert cancelled.calls == []

    def test_what_was_written_survives_a_restart_of_the_service(self, harness: Harness) -> None:
        _needs(harness, "restart_server")
        session = harness.session()
        session.create("/a/b", b"0")
        session.set("/a/b", b"1")
        session.create("/a/gone")
        session.delete("/a/gone")
        watch = Watch(session, "/a/b")
        harness.restart_server()
        wait_until(lambda: _readable(session, "/a/b"))
        assert session.get("/a/b") == Node(data=b"1", version=1)
        assert session.children("/a") == ["b"]
        session.set("/a/b", b"2", version=1)
        watch.wait(b"2", [])


def _two(harness: Harness) -> tuple[Coordination, Coordination]:
    if not harness.several_sessions:
        pytest.skip("this adapter has one session")
    return harness.session(), harness.session()


def _needs(harness: Harness, *faults: str) -> None:
    missing = sorted(set(faults) - harness.faults)
    if missing:
        pytest.skip(f"this adapter cannot cause: {', '.join(missing)}")


def _is_alive(session: Coordination) -> bool:
    try:
        return session.heartbeat() > 0
    except CoordinationError:
        return False


def _readable(session: Coordination, path: str) -> bool:
    try:
        session.get(path)
    except CoordinationError:
        return False
    return True


def _try_create(session: Coordination, index: int, won: Recorder[int]) -> None:
    try:
        session.create("/leader", b"%d" % index, ephemeral=True)
    except NodeExists:
        return
    won(index)
