"""The channel between the parent of workers and each of them: the parent asks for metrics, health and brokers.

It is a socket pair, so it needs no port, and ends with either process. A request is a word and an answer is bytes, each
after its length. An empty answer to a question of health means yes.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from functools import partial
from threading import Lock, Thread
from time import monotonic

METRICS, HEALTHY, READY, BROKERS, UNDER_REPLICATED = b"metrics", b"healthy", b"ready", b"brokers", b"under-replicated"
ANSWER_S = 5.0
_LENGTH_BYTES = 4
_READ_BYTES = 65_536

Check = Callable[[], str | None]
"""Returns the reason of ill health, or None."""


class _Frames:
    """Frames on a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._received = bytearray()

    def send(self, frame: bytes, timeout_s: float | None) -> None:
        self._sock.settimeout(timeout_s)
        self._sock.sendall(len(frame).to_bytes(_LENGTH_BYTES) + frame)

    def receive(self, timeout_s: float | None) -> bytes:
        """Return the next frame. Raises `OSError`: TimeoutError, after which the rest can still be received."""
        until = None if timeout_s is None else monotonic() + timeout_s
        while True:
            size = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES])
            if len(self._received) >= max(size, _LENGTH_BYTES):
                frame = bytes(self._received[_LENGTH_BYTES:size])
                del self._received[:size]
                return frame
            if until is not None and monotonic() >= until:
                raise TimeoutError
            self._sock.settimeout(None if until is None else max(0.001, until - monotonic()))
            data = self._sock.recv(_READ_BYTES)
            if not data:
                raise ConnectionError("the other end is closed")
            self._received += data

    def close(self) -> None:
        self._sock.close()


class WorkerControl:
    """The end of a worker: it answers in a thread of its own."""

    def __init__(self, sock: socket.socket) -> None:
        self._frames = _Frames(sock)
        self._answers: dict[bytes, Callable[[], bytes]] = {READY: lambda: b"the broker is starting"}
        Thread(target=self._serve, name="barnabas-control", daemon=True).start()

    def show(self, metrics: Callable[[], bytes], healthy: Check, ready: Check) -> None:
        """Answer with these from now on; a broker that starts is healthy, and not ready."""

        def answer_of(check: Check) -> bytes:
            return (check() or "").encode()

        self._answers |= {METRICS: metrics, HEALTHY: partial(answer_of, healthy), READY: partial(answer_of, ready)}

    def show_cluster(self, known: Callable[[], tuple[int, list[int]]], under_replicated: Callable[[], int]) -> None:
        """Answer the questions for brokers and replicas from now on.

        `known`: the number of this broker, and those of all live ones. `under_replicated`: how many partitions that it
        leads have a replica out of sync.
        """
        self._answers[BROKERS] = lambda: json.dumps(known()).encode()
        self._answers[UNDER_REPLICATED] = lambda: b"%d" % under_replicated()

    def _serve(self) -> None:
        try:
            while True:
                answer = self._answers.get(self._frames.receive(None), bytes)
                self._frames.send(answer(), None)
        except OSError:
            self._frames.close()  # the parent has ended


class WorkerSilent(Exception):
    """A worker does not answer; the text says why."""

    def __init__(self, reason: str, *, runs: bool = False) -> None:
        """`runs`: the process runs all the same."""
        super().__init__(reason)
        self.runs = runs


class ControlledWorker:
    """The end of the parent. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._frames: _Frames | None = None
        self._late = 0
        """The number of answers that have not come in time."""

    def connect(self, sock: socket.socket | None) -> None:
        """Ask a new process from now on; None: there is none."""
        with self._lock:
            if self._frames is not None:
                self._frames.close()
            self._frames, self._late = None if sock is None else _Frames(sock), 0

    def ask(self, what: bytes) -> bytes:
        """Return the answer. Raises `WorkerSilent`."""
        with self._lock:
            if self._frames is None:
                raise WorkerSilent("it does not run")
            try:
                self._frames.send(what, ANSWER_S)
                self._late += 1
                while True:
                    answer = self._frames.receive(ANSWER_S)
                    self._late -= 1
                    if not self._late:
                        return answer
            except TimeoutError as error:
                raise WorkerSilent(f"it has not answered within {ANSWER_S:.0f} s", runs=True) from error
            except OSError as error:
                raise WorkerSilent("it has ended") from error

    def known_brokers(self) -> tuple[int, set[int]] | None:
        """Return the number of the worker and those of the live brokers that it knows; None while it does not say."""
        found = self._answer(BROKERS)
        if not found:
            return None
        own, others = json.loads(found)
        return own, set(others)

    def under_replicated(self) -> int | None:
        """Return how many partitions that the worker leads have a replica out of sync; None while it does not say."""
        found = self._answer(UNDER_REPLICATED)
        return int(found) if found else None

    def _answer(self, what: bytes) -> bytes:
        try:
            return self.ask(what)
        except WorkerSilent:
            return b""
