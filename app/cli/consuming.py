"""What the ways of consuming have in common: how much is read, and how it ends."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ...core.message.corrupt_record import CorruptRecord
from ...core.message.message import Message
from ...ports.errors import BarnabasError, ConfigError
from ...ports.values import frozen
from .times import parse_time_ms

COMMIT_S = 1.0
"""How often what was printed is committed."""

Show = Callable[[Message, int | None], object]
"""Prints a message; the number is that of its broker, where it is known."""


@frozen(kw_only=True)
class Start:
    """Where reading begins: exactly one of these is set.

    word:   "earliest" or "latest".
    offset: the same in each partition.
    time_ms: at the first message of that time or later.
    last:   so many offsets before the end of each partition.
    """

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    last: int | None = None


_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


def parse_start(text: str) -> Start:
    """What `--from` says. Raises `ConfigError`."""
    if text in _WORDS:
        return Start(word=_WORDS[text])
    if text.isdecimal():
        return Start(offset=int(text))
    if text[:1] == "-" and text[1:].isdecimal():
        return Start(last=int(text[1:]))
    try:
        return Start(time_ms=parse_time_ms(text, "--from"))
    except ConfigError:
        raise ConfigError(
            f"--from {text!r}: give beginning, end, an offset such as 42, -10 for the last ten of each partition, or a "
            "time such as 2026-01-31T12:00, -15m or @1700000000000"
        ) from None


@frozen(kw_only=True)
class Extent:
    """How much is read. `until_ms`: only what comes before the first message of that time or later."""

    start: Start
    count: int | None
    timeout_s: float | None
    stop_at_end: bool
    until_ms: int | None = None


class Progress:
    """Counts messages, and the time without any."""

    def __init__(self, extent: Extent) -> None:
        self._left = extent.count
        self._timeout_s = extent.timeout_s
        self._last = time.monotonic()

    def got(self) -> bool:
        """One more message; True if it was the last one wanted."""
        self._last = time.monotonic()
        if self._left is not None:
            self._left -= 1
        return self._left == 0

    @property
    def timed_out(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._last >= self._timeout_s


@contextmanager
def plain_damage() -> Iterator[None]:
    """Damage, as an error that says what to do next; what was printed before is out."""
    try:
        yield
    except CorruptRecord as error:
        sys.stdout.buffer.flush()
        raise BarnabasError(f"{error.message}; --skip-damaged goes on behind it") from error


@contextmanager
def until_interrupted(*, has_end: bool) -> Iterator[None]:
    """Ctrl-C is the end of what has no other one."""
    try:
        yield
    except KeyboardInterrupt:
        if has_end:
            raise


@contextmanager
def stopping() -> Iterator[list[int]]:
    """A list that the signal comes into which tells to stop."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
