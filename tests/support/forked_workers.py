"""`--workers N`: N processes share the tests of one collection, each forked from the process that has collected them.

pytest-xdist starts Pythons that import and collect the same once more each: 12 s of CPU time per worker, and half a
minute before the first test where two cores share four of them. Its plugin is not used with `--workers`.
"""

import atexit
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe, connection
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from support.sharing_out import Parts

RUN_VARIABLE = "BARNABAS_TEST_RUN"
"""The environment variable that names a run of the tests in all its processes."""

_STOP = -1
_SHOWN_S = 0.005
"""The durations from which on pytest's `--durations` shows a setup or a teardown."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=1, help="how many forked processes share the tests")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("workers") > 1:
        config.pluginmanager.register(ForkedWorkers(config, config.getoption("workers")), ForkedWorkers.NAME)


class ForkedWorkers:
    """The plugin of the process that has collected the tests: it hands them out, and reports what the workers say."""

    NAME = "forked workers"

    def __init__(self, config: pytest.Config, workers: int) -> None:
        self._config = config
        self._count = workers
        self._workers: dict[connection.Connection[Any, Any], _Worker] = {}
        self._all_reports = config.option.verbose > 0 or bool(config.getoption("xmlpath", default=None))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            raise session.Interrupted(f"{session.testsfailed} errors during collection")
        if session.config.option.collectonly or not session.items:
            return None
        terminal: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.showfspath = False
        os.environ[RUN_VARIABLE] = f"process {os.getpid()}"
        folders: Any = self._config
        folders._tmp_path_factory.getbasetemp()  # made once, for the workers' folders in it
        parts = Parts(session.items)
        before = signal.signal(signal.SIGTERM, self._interrupt)
        try:
            for number in range(min(self._count, len(parts))):
                self._fork(session, number, parts)
            self._share_out(session, parts)
        finally:
            self._stop()
            signal.signal(signal.SIGTERM, before)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _interrupt(self, *_: object) -> NoReturn:
        """Handle SIGTERM as Ctrl-C, which a terminal sends to all processes: fixtures stop the servers of the tests."""
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGINT)
        raise KeyboardInterrupt

    def _share_out(self, session: pytest.Session, parts: Parts) -> None:
        while self._workers:
            for ready in connection.wait(list(self._workers)):
                worker = self._workers[ready]  # type: ignore[index]  # `wait` returns what it was given
                kind, *said = worker.receive()
                if kind == "ended":
                    self._bury(session, worker, parts)
                elif kind == "report":
                    self._report(session, worker, said[0])
                elif kind == "done":
                    item = session.items[said[0]]
                    worker.pending.remove(said[0])
                    session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
                    worker.hand_out(parts)
                elif kind == "warning":
                    session.config.hook.pytest_warning_recorded.call_historic(kwargs=said[0])
                elif kind == "exit":
                    pytest.exit(*said)
                else:
                    raise RuntimeError(f"the worker {worker.name} failed:\n{said[0]}")
            if session.shouldfail or session.shouldstop:
                return

    def _report(self, session: pytest.Session, worker: "_Worker", data: Mapping[str, Any]) -> None:
        report = session.config.hook.pytest_report_from_serializable(config=session.config, data=data)
        report.node = worker.node
        session.config.hook.pytest_runtest_logreport(report=report)

    def _bury(self, session: pytest.Session, worker: "_Worker", parts: Parts) -> None:
        """See a worker off. If it died at work, its present test has failed, and another worker has the others."""
        del self._workers[worker.pipe]
        status = worker.wait()
        if not worker.pending:
            return
        item = session.items[worker.pending.popleft()]
        text = f"the worker {worker.name} died while it ran {item.nodeid}: exit code {status}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        report.node = worker.node  # type: ignore[attr-defined]
        session.config.hook.pytest_runtest_logreport(report=report)
        session.config.hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        parts.put_back(worker.pending)
        if len(parts):
            self._fork(session, worker.number, parts)

    def _fork(self, session: pytest.Session, number: int, parts: Parts) -> None:
        ours, theirs = Pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        with warnings.catch_warnings():
            # Libraries may have threads of their own. Those that tests use make them again after a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for other in (ours, *self._workers):
                other.close()
            _work(session, theirs, number, self._count, all_reports=self._all_reports)
        theirs.close()
        worker = self._workers[ours] = _Worker(pid, number, ours)
        worker.hand_out(parts)

    def _stop(self) -> None:
        """Let the workers end after their present tests, and wait until they have ended."""
        for worker in self._workers.values():
            worker.send([_STOP])
        while self._workers:
            for ready in connection.wait(list(self._workers)):
                worker = self._workers[ready]  # type: ignore[index]
                if worker.receive() == ("ended",):
                    del self._workers[worker.pipe]
                    worker.wait()


class _Worker:
    """A worker in the eyes of the process that hands out the tests; pending: what it was handed and has not done."""

    def __init__(self, pid: int, number: int, pipe: "connection.Connection[Any, Any]") -> None:
        self.pid = pid
        self.number = number
        self.name = f"gw{number}"
        self.pipe = pipe
        self.pending: deque[int] = deque()
        # What pytest shows of a worker of pytest-xdist, in each line with -v and above a failure.
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=self.name), _workerinfocache=f"[{self.name}]")
        self._exhausted = False

    def hand_out(self, parts: Parts) -> None:
        """A worker has to know the test after the present one, but no further ones: others may be free before it."""
        while len(self.pending) < 2 and not self._exhausted:
            if not len(parts):
                self._exhausted = True
                self.send([_STOP])
                return
            part = parts.take()
            self.pending.extend(part)
            self.send(part)

    def send(self, positions: Sequence[int]) -> None:
        with suppress(ConnectionError):  # it has died: reading from it says so
            self.pipe.send(positions)

    def receive(self) -> tuple[Any, ...]:
        try:
            return tuple(self.pipe.recv())
        except (EOFError, ConnectionError):
            return ("ended",)

    def wait(self) -> int:
        self.pipe.close()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _work(
    session: pytest.Session, pipe: "connection.Connection[Any, Any]", number: int, count: int, *, all_reports: bool
) -> NoReturn:
    """Run what comes through the pipe, and end this process: what its parent does after the tests is not for it."""
    code = 3
    try:
        _become_worker(session, pipe, number, count, all_reports=all_reports)
        try:
            _run_all(session, pipe)
        finally:
            os.chdir(session.startpath)
            session.config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
            session.config._ensure_unconfigure()
        code = 0
    except pytest.exit.Exception as error:
        pipe.send(("exit", error.msg, error.returncode))
    except KeyboardInterrupt:
        pass  # its parent was interrupted as well
    except BaseException:  # noqa: BLE001  # the parent raises it again
        pipe.send(("error", traceback.format_exc()))
    finally:
        try:
            atexit._run_exitfuncs()
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(code)


def _become_worker(
    session: pytest.Session, pipe: "connection.Connection[Any, Any]", number: int, count: int, *, all_reports: bool
) -> None:
    config: Any = session.config
    name = f"gw{number}"
    config.workerinput = {"workerid": name, "workercount": count}  # the names of pytest-xdist, for which plugins look
    os.environ.update(PYTEST_XDIST_WORKER=name, PYTEST_XDIST_WORKER_COUNT=str(count))
    capture = config.pluginmanager.get_plugin("capturemanager")
    if capture.is_globally_capturing() or capture._global_capturing is not None:
        capture.stop_global_capturing()  # its files are the parent's
        capture.start_global_capturing()
        capture.suspend_global_capture()
    for reporting in ("terminalreporter", ForkedWorkers.NAME):
        plugin = config.pluginmanager.get_plugin(reporting)
        if plugin is not None:
            config.pluginmanager.unregister(plugin)
    folders = config._tmp_path_factory
    folders._given_basetemp, folders._basetemp = folders.getbasetemp() / f"popen-{name}", None
    config.pluginmanager.register(_Reporting(config, pipe.send, all_reports=all_reports))


def _run_all(session: pytest.Session, pipe: "connection.Connection[Any, Any]") -> None:
    waiting: deque[int] = deque()

    def take() -> int:
        while not waiting or pipe.poll():
            positions = pipe.recv()
            if positions == [_STOP] and not ended:
                ended.append(True)
            waiting.extend(positions)
        return waiting.popleft()

    ended: list[bool] = []
    position = take()
    while position != _STOP:
        after = take()
        following = None if after == _STOP else session.items[after]
        session.config.hook.pytest_runtest_protocol(item=session.items[position], nextitem=following)
        pipe.send(("done", position))
        position = after


class _Reporting:
    """The plugin that sends a worker's reports to its parent, but for those which nothing shows."""

    def __init__(self, config: pytest.Config, send: Callable[[object], None], *, all_reports: bool) -> None:
        self._config = config
        self._send = send
        self._all_reports = all_reports

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._all_reports or not _is_dull(report):
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self._send(("report", data))

    def pytest_warning_recorded(self, warning_message: Any, when: str, nodeid: str, location: Any) -> None:
        if when != "runtest":
            return  # the parent has it
        warning_message.message, warning_message.source = warning_message.category(str(warning_message.message)), None
        said = {"warning_message": warning_message, "when": when, "nodeid": nodeid, "location": location}
        self._send(("warning", said))


def _is_dull(report: pytest.TestReport) -> bool:
    return report.when != "call" and report.passed and not report.sections and report.duration < _SHOWN_S
