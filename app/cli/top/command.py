"""`barnabas top`: the live state of a cluster.

In a terminal, keys, snapshots and messages change the state, which is drawn on the screen.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ....core.message.message import Message
from ....ports.errors import BarnabasError
from ...clients.admin.admin import Admin
from ..command_config import connection_settings
from ..consume.progress import stopping
from ..message_format import headers_text
from ..options import Bootstrap, open_admin
from ..reaching import check_reachable
from ..tables import Section, show
from .look import Look, Looker, Tab
from .state import Tailed, TailedMessage, TopState, arrived, failed, looked, pressed
from .view import View, view_of

if TYPE_CHECKING:
    from ...clients.consumer.consumer import Consumer


class Watcher:
    """Takes a snapshot now, and then every `interval_s`, while it is not paused."""

    def __init__(self, looker: Looker, interval_s: float, on_snapshot: Callable[[Look | BarnabasError], None]) -> None:
        """`on_snapshot` is called from that thread."""
        self._looker = looker
        self._interval_s = interval_s
        self._on_snapshot = on_snapshot
        self._tabs: Sequence[Tab] | None = ("topics",)
        self._opened: str | None = None
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def show(self, tabs: Sequence[Tab] | None, opened: str | None = None) -> None:
        """Set the requested tabs and the open group or broker, and request at once if they change; None: pause."""
        if (tabs, opened) != (self._tabs, self._opened):
            self._tabs, self._opened = tabs, opened
            self._changed.set()

    def stop(self) -> None:
        """Stop requesting. A running request ends when its `Admin` is closed."""
        self._stopping = True
        self._changed.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stopping:
            self._changed.clear()
            tabs, opened = self._tabs, self._opened
            if tabs is not None:
                self._look(tabs, opened)
            self._changed.wait(self._interval_s)

    def _look(self, tabs: Sequence[Tab], opened: str | None) -> None:
        try:
            found: Look | BarnabasError = self._looker.take_snapshot(tabs, opened)
        except BarnabasError as error:
            found = error
        if not self._stopping:
            self._on_snapshot(found)


AROUND = 5
"""Number of lines that are not rows: head, tabs, notice, column names, foot."""
_RIGHT = {
    *("partitions", "messages/s", "bytes/s", "end", "size", "members", "lag", "leaders", "replicas", "in_sync"),
    *("lag_time", "committed", "age", "requests", "in", "out"),
}
KEY_WIDTH = 30
"""Number of shown columns of a key, so that there is room for the value."""


def drawn(view: View, width: int, height: int, color_system: str | None) -> list[str]:
    """Return `height` lines with colour escapes, none wider than `width`."""
    out = StringIO()
    console = Console(
        file=out,
        width=width,
        height=height,
        force_terminal=True,
        color_system=color_system,  # type: ignore[arg-type]  # one of its own names, or None
        legacy_windows=False,
        highlight=False,
    )
    lines = [
        Text(view.head, style="bold"),
        Text.assemble(*_tabs(view.tabs)),
        Text(view.notice, style="bold red"),
    ]
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
    room = max(1, height - AROUND)
    console.print(_table(view, room))
    body = out.getvalue().split("\n")[: height - 1]
    body += [""] * (height - 1 - len(body))
    out.seek(0)
    out.truncate()
    console.print(Text(view.foot, style="dim"), no_wrap=True, overflow="ellipsis", crop=True, end="")
    return [*body, out.getvalue()][-height:]


def _tabs(tabs: Sequence[tuple[str, bool]]) -> list[tuple[str, str]]:
    return [(f" {name} ", "reverse" if active else "") for name, active in tabs]


def first_shown(selected: int, rows: int, room: int) -> int:
    """Return the index of the first shown row, so that the selected one is visible."""
    return max(0, min(selected - room // 2, rows - room))


def _table(view: View, room: int) -> Table:
    """Lay out only the visible rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True, header_style="bold cyan")
    for column in view.columns:
        table.add_column(
            column.upper(),
            no_wrap=True,
            overflow="ellipsis",
            justify="right" if column in _RIGHT else "left",
            max_width=KEY_WIDTH if column == "key" else None,
            ratio=1 if column == view.columns[-1] else None,
        )
    first = first_shown(view.selected, len(view.rows), room)
    for number, row in enumerate(view.rows[first : first + room], first):
        table.add_row(*(Text(cell) for cell in row.cells), style="reverse" if number == view.selected else "")
    return table


PATIENCE_MS = 5000
"""Timeout of a snapshot before it is reported that the cluster does not answer."""
LEAVE_S = 1.0

_Change = Callable[[TopState], TopState]


# The terminal: its keys and its screen while `top` runs, and its restoration afterwards.

_NAMED = {
    "\r": "enter",
    "\t": "tab",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x03": "ctrl-c",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
}
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O[ -~])")
_UNFINISHED = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|O)?")
_LONGEST = 32


class KeyReader:
    """Stores the bytes of an incomplete key."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._rest = ""

    @property
    def waits(self) -> bool:
        """Return True after an Escape: it is the Esc key, or begins another key whose rest follows at once."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """Return the complete keys: letters, or names such as "up" and "esc". Unknown ones are left out."""
        text = self._rest + self._decoder.decode(data)
        self._rest = ""
        keys = []
        at = 0
        while at < len(text):
            if text[at] != "\x1b":
                keys.append(_NAMED.get(text[at], text[at]))
                at += 1
                continue
            found = _SEQUENCE.match(text, at)
            if found is not None:
                keys.append(_NAMED.get(found[0], ""))
                at = found.end()
                continue
            unfinished = _UNFINISHED.match(text, at)
            if unfinished is not None and unfinished.end() == len(text) and len(text) - at <= _LONGEST:
                self._rest = text[at:]
                break
            keys.append("esc")
            at += 1
        return [key for key in keys if key]

    def flush(self) -> list[str]:
        """Return the Esc key, since nothing followed the Escape."""
        rest, self._rest = self._rest, ""
        return ["esc", *rest[1:]] if rest else []


_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
ESCAPE_S = 0.05
"""Maximum time between an Escape and the rest of a key that begins with it."""


class Terminal:
    """Shows lines and waits for keys; `wake` lets other threads interrupt the wait."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._keys = KeyReader()
        self._woken, self._waker = os.pipe()
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self._before: list[Any] = []
        self._old_wakeup = -1
        self._old_resized: Any = None
        self.hung_up = False

    def __enter__(self) -> Terminal:
        self._before = termios.tcgetattr(self._in)
        # A signal (the window is resized, the process must end) interrupts the wait too.
        self._old_wakeup = signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        self._old_resized = signal.signal(signal.SIGWINCH, lambda *_: None)
        try:
            tty.setraw(self._in)
            self._write(_ENTER)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        with suppress(OSError):  # the terminal is closed
            self._write(_LEAVE)
        with suppress(termios.error):
            termios.tcsetattr(self._in, termios.TCSAFLUSH, self._before)
        signal.set_wakeup_fd(self._old_wakeup)
        signal.signal(signal.SIGWINCH, self._old_resized)

    def wake(self) -> None:
        """Interrupt the wait, from any thread."""
        with suppress(BlockingIOError):  # it is interrupted already
            os.write(self._waker, b"\0")

    def size(self) -> tuple[int, int]:
        """Return the numbers of columns and lines."""
        found = os.get_terminal_size(self._out)
        return found.columns or 80, found.lines or 24

    def show(self, lines: Sequence[str]) -> None:
        """Overwrite the whole screen without flicker."""
        self._write(_HOME + "\r\n".join(line + _END_OF_LINE for line in lines) + _END_OF_SCREEN)

    def wait(self) -> list[str]:
        """Wait for keys and return them; none when it was interrupted."""
        limit = ESCAPE_S if self._keys.waits else None
        ready, _, _ = select.select([self._in, self._woken], [], [], limit)
        if not ready:
            return self._keys.flush()
        if self._woken in ready:
            os.read(self._woken, 4096)
        if self._in not in ready:
            return []
        try:
            data = os.read(self._in, 4096)
        except OSError:  # the other end of the terminal is closed
            data = b""
        self.hung_up = not data
        return self._keys.feed(data)

    def _write(self, text: str) -> None:
        data = memoryview(text.encode(errors="replace"))
        while data:
            data = data[os.write(self._out, data) :]


def run(bootstrap: str, interval_s: float, *, internal: bool) -> None:
    """Run until the user quits, a signal arrives, or the terminal is closed."""
    with stopping() as signals:
        config = connection_settings()
        admin = Admin(bootstrap, config={"default.api.timeout.ms": PATIENCE_MS, **config})
        try:
            with Terminal() as terminal:
                _Live(bootstrap, config, terminal, Looker(admin, internal=internal), interval_s).run(signals)
        finally:
            admin.close()


# The newest messages of a topic, bounded in memory and in requests to the brokers.

MESSAGES_MAX = 1000
"""Maximum number of stored messages, which are searched."""
FIRST = 100
"""Approximate number of messages shown when a topic is opened."""
TEXT_MAX = 2000
"""Maximum length of a stored key, value or header text."""
BATCH = 500
ROUND_S = 0.5
"""Interval of reads of one batch each: faster messages are skipped, to limit the load on the brokers."""
AGAIN_S = 2.0
_SETTINGS = {"max.partition.fetch.bytes": 1 << 18, "default.api.timeout.ms": 5000}


def to_tailed(message: Message) -> TailedMessage:
    """Return the part of a message that is shown and searched."""
    return TailedMessage(
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp_ms,
        key=_text(message.key),
        value=_text(message.value),
        headers=_text(headers_text(message)) or "",
    )


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    text = data[: 4 * TEXT_MAX].decode(errors="backslashreplace")
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + "…"


class Tail:
    """Reads a topic in a thread of its own, from its last messages on."""

    def __init__(
        self, bootstrap: str, config: Mapping[str, Any], topic: str, on_change: Callable[[Tail], None]
    ) -> None:
        """`on_change` is called from that thread, when there is something new."""
        self.topic = topic
        self._bootstrap = bootstrap
        self._config = {**_SETTINGS, **config}
        self._on_change = on_change
        self._messages: deque[TailedMessage] = deque(maxlen=MESSAGES_MAX)
        self._missed = 0
        self._problem = ""
        self._stopping = threading.Event()
        self._resting = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tail {topic}", daemon=True)
        self._now = Tailed()

    @property
    def now(self) -> Tailed:
        """Return the stored messages as an immutable value."""
        return self._now

    def start(self) -> None:
        self._thread.start()

    def rest(self, resting: bool) -> None:
        """Pause or resume the requests."""
        if resting:
            self._resting.set()
        else:
            self._resting.clear()

    def stop(self) -> None:
        """Stop requesting; the thread ends soon."""
        self._stopping.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def _run(self) -> None:
        from ...clients.consumer.consumer import Consumer

        while not self._stopping.is_set():
            try:
                with Consumer(self._bootstrap, config=self._config) as consumer:
                    self._begin(consumer)
                    while not self._stopping.is_set():
                        self._round(consumer)
            except BarnabasError as error:
                self._report(problem=str(error))
                self._stopping.wait(AGAIN_S)

    def _begin(self, consumer: Consumer) -> None:
        consumer.assign(self.topic, position="latest")
        self._to_the_last(consumer, FIRST if not self._messages else 0)

    def _to_the_last(self, consumer: Consumer, messages: int) -> int:
        """Seek to about `messages` before the end; return how many were skipped."""
        first, ends = consumer.beginning_offsets(), consumer.end_offsets()
        each = max(1, messages // max(1, len(ends))) if messages else 0
        passed = 0
        for tp, end in ends.items():
            to = max(first[tp], end - each)
            passed += max(0, to - consumer.position(tp))
            consumer.seek(tp, to)
        return passed

    def _round(self, consumer: Consumer) -> None:
        if self._resting.is_set():
            self._stopping.wait(ROUND_S)
            return
        batch = consumer.poll_many(BATCH, timeout=ROUND_S)
        if batch or self._problem:
            self._keep(batch)
        if batch:
            self._stopping.wait(ROUND_S)
        if len(batch) == BATCH and sum(consumer.lag().values()) > MESSAGES_MAX:
            self._missed += self._to_the_last(consumer, BATCH)

    def _keep(self, batch: Sequence[Message]) -> None:
        # Partitions are read one after the other.
        by_time = sorted(batch, key=lambda message: message.timestamp_ms or 0)
        self._messages.extendleft(to_tailed(message) for message in by_time)
        self._report(problem="")

    def _report(self, *, problem: str) -> None:
        self._problem = problem
        self._now = Tailed(messages=tuple(self._messages), missed=self._missed, problem=problem)
        self._on_change(self)


class _Live:
    def __init__(
        self, bootstrap: str, config: Mapping[str, Any], terminal: Terminal, looker: Looker, interval_s: float
    ) -> None:
        self._bootstrap = bootstrap
        self._config = config
        self._terminal = terminal
        self._watcher = Watcher(looker, interval_s, self._on_snapshot)
        self._changes: SimpleQueue[_Change] = SimpleQueue()
        self._state = TopState()
        self._tail: Tail | None = None
        self._colors = Console().color_system

    def run(self, signals: list[int]) -> None:
        self._watcher.start()
        try:
            while not (self._state.done or signals or self._terminal.hung_up):
                self._draw()
                for key in self._terminal.wait():
                    self._state = pressed(self._state, key, view_of(self._state).names)
                self._take_changes()
                self._follow()
        finally:
            self._watcher.stop()
            if self._tail is not None:
                self._tail.stop()
                self._tail.join(LEAVE_S)
            self._watcher.join(LEAVE_S)

    def _draw(self) -> None:
        width, height = self._terminal.size()
        self._terminal.show(drawn(view_of(self._state), width, height, self._colors))

    def _follow(self) -> None:
        """Request the content that is shown now."""
        state = self._state
        topic = state.opened if state.tab == "topics" else None
        self._watcher.show(None if state.paused else (state.tab,), None if topic is not None else state.opened)
        if self._tail is not None and self._tail.topic != topic:
            self._tail.stop()
            self._tail = None
        if topic is not None and self._tail is None:
            self._tail = Tail(self._bootstrap, self._config, topic, self._came)
            self._tail.start()
        if self._tail is not None:
            self._tail.rest(state.paused or state.pane != "messages")
            if not state.paused and state.tailed is not self._tail.now:
                self._came(self._tail)

    # --- from other threads

    def _on_snapshot(self, found: Look | BarnabasError) -> None:
        if isinstance(found, BarnabasError):
            why = str(found)
            self._change(lambda state: failed(state, why))
        else:
            look = found
            self._change(lambda state: looked(state, look))

    def _came(self, tail: Tail) -> None:
        self._change(lambda state: arrived(state, tail.topic, tail.now))

    def _change(self, change: _Change) -> None:
        self._changes.put(change)
        self._terminal.wake()

    def _take_changes(self) -> None:
        while True:
            try:
                change = self._changes.get_nowait()
            except Empty:
                return
            self._state = change(self._state)


def register(app: typer.Typer) -> None:
    app.command("top")(top)


def top(
    bootstrap: Bootstrap,
    interval: Annotated[float, typer.Option(metavar="SECONDS", min=0.2, help="Refresh interval.")] = 2.0,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
) -> None:
    """Show brokers, topics with their rates, groups with their lag, and new messages; without a terminal, print the
    state once.

    Keys: b, t, g: brokers, topics, groups; arrows or j and k move; Enter opens a topic (its newest messages, Tab: its
    partitions), a group (its lag in each partition, Tab: its members) or a broker (its connections); n, r, l, s sort by
    name, rate, lag and size; / filters rows by a text (messages: key=TEXT searches keys only); p pauses; Esc goes back;
    ? shows all keys; q quits.
    """
    if not _at_a_terminal():
        _look_once(bootstrap, internal=internal)
        return
    check_reachable(bootstrap)

    run(bootstrap, interval, internal=internal)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}


def _look_once(bootstrap: str, *, internal: bool) -> None:
    with open_admin(bootstrap) as admin:
        state = looked(TopState(), Looker(admin, internal=internal).take_snapshot(("topics", "groups")))
    sections: list[Section] = []
    for tab in ("brokers", "topics", "groups"):
        view = view_of(TopState(tab=tab, look=state.look, topics=state.topics, groups=state.groups))
        if not sections:
            sections += [Section(view.head), *([Section(view.notice, alarm=True)] if view.notice else [])]
        title = tab if view.rows else f"no {tab}"
        sections.append(Section(title, view.columns, [row.cells for row in view.rows]))
    show(sections)
