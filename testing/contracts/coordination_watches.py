"""The part of the coordination contract about watches."""

import threading

from .coordination_harness import Harness, Recorder, Watch, exists


class WatchSuite:
    """watch, listen."""

    def test_watch_reports_every_kind_of_change(self, harness: Harness) -> None:
        session = harness.session()
        watch = Watch(session, "/a")
        session.create("/a", b"1")
        watch.wait(b"1", [])
        session.set("/a", b"2")
        watch.wait(b"2", [])
        session.create("/a/x")
        watch.wait(b"2", ["x"])
        session.create("/a/y", ephemeral=True)
        watch.wait(b"2", ["x", "y"])
        session.delete("/a/x")
        watch.wait(b"2", ["y"])
        session.delete("/a/y")
        watch.wait(b"2", [])
        session.delete("/a")
        watch.wait(None, None)
        session.create("/a", b"again")
        watch.wait(b"again", [])

    def test_watch_reports_node_created_as_missing_parent(self, harness: Harness) -> None:
        session = harness.session()
        watch, parents_watch = Watch(session, "/a/b"), Watch(session, "/a")
        session.create("/a/b/c")
        watch.wait(b"", ["c"])
        parents_watch.wait(b"", ["b"])

    def test_watch_reports_last_of_many_changes(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        watch = Watch(session, "/a")
        for number in range(100):
            session.set("/a", b"%d" % number)
        watch.wait(b"99", [])

    def test_calls_come_one_at_a_time_from_a_thread_of_the_adapter(self, harness: Harness) -> None:
        session = harness.session()
        seen: Recorder[str] = Recorder()
        inside = threading.Lock()

        def changed(name: str) -> None:
            assert inside.acquire(blocking=False)
            seen(name)
            inside.release()

        session.watch("/a", lambda: changed("a"))
        session.watch("/b", lambda: changed("b"))
        for number in range(20):
            session.create(f"/a/{number}")
            session.create(f"/b/{number}")
        session.create("/a/last")
        session.create("/b/last")
        seen.wait(lambda seen: {"a", "b"} <= set(seen))
        assert threading.get_ident() not in seen.threads

    def test_a_watch_may_call_the_session(self, harness: Harness) -> None:
        session = harness.session()
        session.create("/a")
        session.watch("/a", lambda: None if exists(session, "/made") else session.create("/made"))
        made = Watch(session, "/made")
        session.set("/a", b"1")
        made.wait(b"", [])

    def test_two_watches_of_one_node_both_report(self, harness: Harness) -> None:
        session = harness.session()
        first, second = Watch(session, "/a"), Watch(session, "/a")
        session.create("/a", b"1")
        first.wait(b"1", [])
        second.wait(b"1", [])

    def test_cancelled_watch_reports_nothing(self, harness: Harness) -> None:
        session = harness.session()
        cancelled, other = Watch(session, "/a"), Watch(session, "/a")
        cancelled.cancel()
        cancelled.cancel()
        session.create("/a", b"1")
        other.wait(b"1", [])
        session.set("/a", b"2")
        other.wait(b"2", [])
        assert cancelled.seen.calls == []

    def test_a_watch_that_raises_does_not_silence_the_others(self, harness: Harness) -> None:
        session = harness.session()

        def broken() -> None:
            raise RuntimeError("a broken watch")

        session.watch("/a", broken)
        watch = Watch(session, "/a")
        session.create("/a", b"1")
        watch.wait(b"1", [])
        session.set("/a", b"2")
        watch.wait(b"2", [])
