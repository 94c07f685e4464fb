"""The examples of delivery guarantees, run as their README says, and killed at random moments."""

import fcntl
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest
from support.registry_kinds import WITH_BOTH, WITH_ETCD, WITH_ZOOKEEPER, server_of
from support.waiting import PATIENCE_S, wait_for

from barnabas import Broker, Producer

pytestmark = pytest.mark.process

SESSION_MS = 2000
QUICK = (
    *("fetcher.backoff.ms=10", "rebalance.backoff.ms=100", "rebalance.retries.max=50"),
    f"zk.sessiontimeout.ms={SESSION_MS}",
)
UNTIL_IDLE = "consumer.timeout.ms=4000"
FOR_EVER = "consumer.timeout.ms=-1"
KILLS = 3
PIECE = 400
"""Pages from one kill to the next."""
PACKED = 10
"""Pages in one request, every other time compressed."""


@pytest.fixture(params=WITH_BOTH)
def registries(request: pytest.FixtureRequest) -> str:
    """A tree of this test alone."""
    return f"{request.param}://127.0.0.1:{server_of(request).port}/{uuid4().hex}"


class Site:
    """The topic of page views, with two partitions, and its producer."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url = url
        self.viewed: list[str] = []
        config = {"num.partitions": 2, "log.flush.interval.messages": 1}
        broker = Broker(folder, listeners=["classic://127.0.0.1:0"], coordination=url, config=config)
        address = f"classic://{stack.enter_context(broker).bootstrap}"
        self._producers = [
            stack.enter_context(Producer(address, encoder="string", config={"compression.codec": codec}))
            for codec in ("none", "gzip")
        ]
        self._sent = 0

    def view(self, count: int) -> list[str]:
        """Produce `count` new page views to one partition."""
        pages = [f"/page-{len(self.viewed) + number}" for number in range(count)]
        self._producers[self._sent % 2].send_many("views", pages, partition=self._sent // 2 % 2)
        self._sent += 1
        self.viewed += pages
        return pages

    def view_last(self) -> set[str]:
        """Produce a last page to each partition, compressed and not: a reader with these has all messages."""
        return {page for _ in range(4) for page in self.view(1)}


class Program:
    """One of the examples, which may be started again and again; `out` is what it has printed in all its lives."""

    def __init__(self, name: str, where: str, folder: Path, *more: str) -> None:
        self._command = [sys.executable, name, where, "views", *more, *QUICK]
        self.out = folder / "out"
        self._errors = folder / "errors"
        self._running: subprocess.Popen[bytes] | None = None

    def start(self, setting: str = FOR_EVER, stdout: int | None = None) -> subprocess.Popen[bytes]:
        with self.out.open("ab") as out, self._errors.open("ab") as errors:
            self._running = subprocess.Popen([*self._command, setting], stdout=stdout or out, stderr=errors)
        return self._running

    def kill(self) -> None:
        assert self._running is not None
        assert self._running.poll() is None, self.errors()
        self._running.kill()
        self._running.wait()

    def run_to_the_end(self) -> None:
        """Until it has waited for more in vain, and ends in order."""
        assert self.start(UNTIL_IDLE).wait(PATIENCE_S) == 0, self.errors()

    def run_until(self, done: Callable[[], bool]) -> None:
        self.start()
        wait_for(done)
        self.kill()

    def lines(self) -> list[str]:
        return self.out.read_text().splitlines()

    def errors(self) -> str:
        return self._errors.read_text()

    def stop(self) -> None:
        if self._running is not None and self._running.poll() is None:
            self._running.kill()
            self._running.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def site(registries: str, tmp_path: Path, stack: ExitStack) -> Site:
    return Site(registries, tmp_path / "data", stack)


Start = Callable[..., Program]


@pytest.fixture
def example(site: Site, checkout: Path, tmp_path: Path, stack: ExitStack) -> Start:
    def make(name: str, *more: str) -> Program:
        program = Program(str(checkout / "examples" / "classic" / name), site.url, tmp_path, *more)
        stack.callback(program.stop)
        return program

    return make


def kill_at_random(program: Program, site: Site, done: Callable[[], Collection[str]]) -> None:
    """Views and kills; `done` returns the pages that were processed."""
    for _ in range(KILLS):
        program.start()
        wait_for(partial(lambda pages: pages <= set(done()), site.view_last()))
        moment = random.randrange(PIECE // PACKED)
        for number in range(PIECE // PACKED):
            if number == moment:
                program.kill()
            site.view(PACKED)


zookeeper_shows_it = pytest.mark.parametrize("registries", [WITH_ZOOKEEPER], indirect=True)
etcd_shows_it = pytest.mark.parametrize("registries", [WITH_ETCD], indirect=True)
"""Runs with one coordination service, where a second one adds no coverage."""


@pytest.mark.slow
@zookeeper_shows_it
def test_at_least_once_loses_nothing(example: Start, site: Site) -> None:
    program = example("at_least_once.py")
    kill_at_random(program, site, program.lines)
    program.run_to_the_end()
    assert set(program.lines()) == set(site.viewed)


@pytest.mark.slow
@zookeeper_shows_it
def test_at_most_once_gives_nothing_twice(example: Start, site: Site) -> None:
    program = example("at_most_once.py")
    kill_at_random(program, site, program.lines)
    program.run_to_the_end()
    before = len(site.viewed)
    for _ in range(4):
        site.view(PACKED)
    program.run_until(lambda: set(site.viewed[before:]) <= set(program.lines()))  # no process is killed after this
    lines = program.lines()
    assert [page for page, count in Counter(lines).items() if count > 1] == []
    assert set(lines) <= set(site.viewed)


@pytest.mark.slow
def test_at_most_once_example_prints_no_page_twice_after_long_pause(example: Start, site: Site) -> None:
    for _ in range(200):
        site.view(PACKED)
    reading, writing = os.pipe()
    fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, 4096)
    program = example("at_most_once.py")
    paused = program.start(stdout=writing)
    os.close(writing)
    try:
        wait_for(lambda: waiting_bytes(reading) > 4000)  # it has printed what fits, and has more in its hands
        paused.send_signal(signal.SIGSTOP)
        last = site.view_last()
        program.run_until(lambda: last <= set(program.lines()))
        taken = os.read(reading, 1 << 16)  # it can continue as soon as it runs
        paused.send_signal(signal.SIGCONT)
        last = site.view_last()
        while not last <= set(taken.decode().splitlines()) and (part := os.read(reading, 1 << 16)):
            taken += part  # to its last page, or its end: it may fail where it finds its session gone
    finally:
        paused.kill()
        paused.wait()
        os.close(reading)
    late = taken.decode().splitlines()
    assert late
    assert [page for page, count in Counter(late + program.lines()).items() if count > 1] == []


def waiting_bytes(pipe: int) -> int:
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4), sys.byteorder)


class Counts:
    """The contents of the database of exactly_once.py."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def views(self) -> dict[str, int]:
        if not self._file.exists():
            return {}
        with closing(sqlite3.connect(self._file, timeout=60)) as connection:
            try:
                return dict(connection.execute("SELECT page, count FROM views"))
            except sqlite3.OperationalError:
                return {}  # not made yet


@pytest.fixture
def counts(tmp_path: Path) -> Counts:
    return Counts(tmp_path / "views.db")


@pytest.mark.slow
@etcd_shows_it
def test_exactly_once_counts_every_view_once(example: Start, site: Site, counts: Counts, tmp_path: Path) -> None:
    program = example("exactly_once.py", str(tmp_path / "views.db"))
    kill_at_random(program, site, counts.views)
    last = site.view_last()
    program.run_until(lambda: last <= set(counts.views()))
    assert counts.views() == dict.fromkeys(site.viewed, 1)


@pytest.mark.slow
def test_exactly_once_example_counts_each_view_once_after_pause(
    example: Start, site: Site, counts: Counts, tmp_path: Path
) -> None:
    """Both write to one database; it is busy when one of them is paused, who wakes up with counted messages in hand."""
    programs = [example("exactly_once.py", str(tmp_path / "views.db")) for _ in range(2)]
    paused = programs[0].start()
    first = site.view_last()
    wait_for(lambda: set(counts.views()) == first)
    with closing(sqlite3.connect(tmp_path / "views.db", isolation_level=None)) as busy:
        busy.execute("BEGIN IMMEDIATE")
        for _ in range(40):
            site.view(PACKED)
        time.sleep(0.5)  # it has them in its hands by now; if not, the test proves less
        paused.send_signal(signal.SIGSTOP)
        busy.execute("ROLLBACK")
    programs[1].start()
    wait_for(lambda: set(counts.views()) == set(site.viewed))
    paused.send_signal(signal.SIGCONT)
    for _ in range(40):
        site.view(PACKED)
    wait_for(lambda: set(counts.views()) == set(site.viewed))
    for program in programs:
        program.kill()
    last = site.view_last()
    programs[0].run_until(lambda: last <= set(counts.views()))
    assert counts.views() == dict.fromkeys(site.viewed, 1)


def test_how_the_readme_runs_them(checkout: Path) -> None:
    """Every program is named with what its own description says."""
    folder = checkout / "examples" / "classic"
    readme = (folder / "README.md").read_text()
    for program in folder.glob("*.py"):
        usage = re.search(rf"(?m)^(python examples/classic/{program.name} \S+ views)", program.read_text())
        assert usage is not None
        assert usage[1].replace("localhost", "127.0.0.1") in readme
