"""The part of the coordination contract about sessions: several with one tree, and faults."""

import threading
from collections.abc import Collection

import pytest

from ...ports.coordination import (
    BadVersion,
    Coordination,
    CoordinationError,
    CreateNode,
    DeleteNode,
    Node,
    NodeExists,
    SessionExpired,
    SessionState,
    SetNode,
)
from .coordination_harness import WAIT_S, Follower, Harness, Recorder, Watch, exists, wait_until


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


# The part of the coordination contract about watch_below.


class BelowSuite:
    """watch_below."""

    def test_watch_below_reports_every_kind_of_change(self, harness: Harness) -> None:
        session = harness.session()
        follower = Follower(session, "/top")
        session.create("/top", b"0")
        follower.wait({"/top": b"0"})
        session.create("/top/a/b", b"1", ephemeral=True)
        follower.wait({"/top": b"0", "/top/a": b"", "/top/a/b": b"1"})
        session.set("/top/a/b", b"2")
        session.set("/top", b"3")
        follower.wait({"/top": b"3", "/top/a": b"", "/top/a/b": b"2"})
        session.delete("/top/a/b")
        session.create("/top/e")
        follower.wait({"/top": b"3", "/top/a": b"", "/top/e": b""})
        session.commit([CreateNode("/top/c/d", b"4"), SetNode("/top/e", b"5"), DeleteNode("/top/a")])
        follower.wait({"/top": b"3", "/top/c": b"", "/top/c/d": b"4", "/top/e": b"5"})

    def test_watch_below_reports_only_changed_paths(self, harness: Harness) -> None:
        session = harness.session()
        made = Watch(session, "/last")
        session.commit([CreateNode("/top/a/b"), CreateNode("/topper/a"), CreateNode("/to"), CreateNode("/other/top/a")])
        session.create("/last")
        made.wait(b"", [])  # notifications of the creations above may come late: let them pass
        changes: Recorder[tuple[str, ...]] = Recorder()
        session.watch_below("/top", lambda paths: changes(tuple(paths or ())))
        session.set("/top/a/b", b"1")
        changes.wait(lambda seen: seen == [("/top/a/b",)])
        for path in ("/topper/a", "/topper", "/to", "/other/top/a"):
            session.set(path, b"1")
        session.delete("/top/a/b")
        changes.wait(lambda seen: seen == [("/top/a/b",)] * 2)
        session.set("/top", b"1")
        changes.wait(lambda seen: seen == [("/top/a/b",)] * 2 + [("/top",)])

    def test_changes_during_callback_are_reported_together_each_path_once(self, harness: Harness) -> None:
        session = harness.session()
        first, may_return = threading.Event(), threading.Event()
        changes: Recorder[tuple[str, ...] | None] = Recorder()

        def changed(paths: Collection[str] | None) -> None:
            first.set()
            may_return.wait(30)
            changes(None if paths is None else tuple(paths))

        later = Watch(session, "/zlast")
        session.watch_below("/top", changed)
        session.create("/top", b"0")
        assert first.wait(30)
        for number in range(10):
            session.set("/top", b"%d" % number)
            session.create(f"/top/{number}")
        session.create("/zlast")
        may_return.set()
        later.wait(b"", [])
        changes.wait(lambda seen: {path for paths in seen for path in paths or ()} == {"/top", *_numbered(10)})
        assert all(len(paths or ()) == len(set(paths or ())) for paths in changes.calls)
        # How many there are is the service's affair: it may send one change at a time.
        assert any(len(paths or ()) > 1 for paths in changes.calls)

    def test_watch_below_reports_last_of_many_changes(self, harness: Harness) -> None:
        session = harness.session()
        follower = Follower(session, "/top")
        for number in range(50):
            session.create(f"/top/{number}", b"0")
            session.set(f"/top/{number}", b"%d" % number)
        for number in range(0, 50, 2):
            session.delete(f"/top/{number}")
        follower.wait({"/top": b"", **{f"/top/{number}": b"%d" % number for number in range(1, 50, 2)}})

    def test_watches_of_single_nodes_and_of_all_below_go_together(self, harness: Harness) -> None:
        session = harness.session()
        before, inner = Watch(session, "/top"), Watch(session, "/top/a")
        follower, deeper = Follower(session, "/top"), Follower(session, "/top/a")
        after, inner_after = Watch(session, "/top"), Watch(session, "/top/a")
        for number in range(3):
            data = b"%d" % number
            session.create("/top", data)
            session.create("/top/a", data)
            for watch in (before, after):
                watch.wait(data, ["a"])
            for watch in (inner, inner_after):
                watch.wait(data, [])
            session.create("/top/a/b")
            for watch in (inner, inner_after):
                watch.wait(data, ["b"])
            follower.wait({"/top": data, "/top/a": data, "/top/a/b": b""})
            deeper.wait({"/top/a": data, "/top/a/b": b""})
            for path in ("/top/a/b", "/top/a", "/top"):
                session.delete(path)
            for watch in (before, inner, after, inner_after):
                watch.wait(None, None)
            follower.wait({})
        follower.cancel()
        session.create("/top", b"alone")
        before.wait(b"alone", [])
        after.wait(b"alone", [])
        session.create("/top/a", b"deep")
        inner.wait(b"deep", [])
        deeper.wait({"/top/a": b"deep"})

    def test_cancelled_watch_below_reports_nothing(self, harness: Harness) -> None:
        session = harness.session()
        cancelled, other = Follower(session, "/top"), Follower(session, "/top")
        cancelled.cancel()
        cancelled.cancel()
        session.create("/top/a", b"1")
        other.wait({"/top": b"", "/top/a": b"1"})
        session.set("/top/a", b"2")
        other.wait({"/top": b"", "/top/a": b"2"})
        assert cancelled.changes.calls == []

    def test_paths_that_are_none(self, harness: Harness) -> None:
        session = harness.session()
        for path in ("", "/", "top", "/top/"):
            with pytest.raises(ValueError, match="path"):
                session.watch_below(path, lambda paths: None)

    def test_watch_below_reports_changes_of_other_sessions(self, harness: Harness) -> None:
        if not harness.several_sessions:
            pytest.skip("this adapter has one session")
        one, other = harness.session(), harness.session()
        follower = Follower(other, "/top")
        one.create("/top/a", b"1", ephemeral=True)
        follower.wait({"/top": b"", "/top/a": b"1"})
        one.close()
        follower.wait({"/top": b""})

    def test_a_new_connection_says_that_anything_may_have_changed(self, harness: Harness) -> None:
        if not {"disconnect", "reconnect"} <= harness.faults:
            pytest.skip("this adapter cannot cause: disconnect, reconnect")
        one, other = harness.session(), harness.session()
        states: Recorder[SessionState] = Recorder()
        one.add_session_listener(states)
        one.create("/top/a", b"1")
        follower, single = Follower(one, "/top"), Watch(one, "/top/a")
        harness.disconnect(one)
        states.wait(lambda seen: seen == [SessionState.SUSPENDED])
        other.set("/top/a", b"2")
        other.create("/top/b")
        harness.reconnect(one)
        follower.changes.wait(lambda seen: None in seen)
        follower.wait({"/top": b"", "/top/a": b"2", "/top/b": b""})
        single.wait(b"2", [])
        other.set("/top/a", b"3")
        follower.wait({"/top": b"", "/top/a": b"3", "/top/b": b""})
        single.wait(b"3", [])

    def test_watch_below_survives_expired_session(self, harness: Harness) -> None:
        if "expire_session" not in harness.faults:
            pytest.skip("this adapter cannot cause: expire_session")
        session = harness.session()
        session.create("/top/a", b"1", ephemeral=True)
        follower = Follower(session, "/top")
        harness.expire_session(session)
        follower.changes.wait(lambda seen: None in seen)
        follower.wait({"/top": b""})
        session.create("/top/a", b"2")
        follower.wait({"/top": b"", "/top/a": b"2"})


def _numbered(count: int) -> set[str]:
    return {f"/top/{number}" for number in range(count)}
