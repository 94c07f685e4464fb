"""The part of the coordination contract about watch_below."""

import threading
from collections.abc import Collection

import pytest

from ...ports.coordination import CreateNode, DeleteNode, SessionState, SetNode
from .coordination_harness import Follower, Harness, Recorder, Watch


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
