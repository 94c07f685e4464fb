"""The extent of consuming: where it begins and ends, for groups and for single brokers."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ....core.message.corrupt_record import CorruptRecord
from ....core.message.message import Message
from ....ports.errors import BarnabasError, ConfigError
from ....ports.values import frozen
from ..times import parse_time_ms

COMMIT_S = 1.0
"""Interval of commits of printed messages."""

Show = Callable[[Message, int | None], object]
"""Prints a message; the number is that of its broker, if known."""


@frozen(kw_only=True)
class Start:
    """The start of reading: exactly one attribute is set.

    word:    "earliest" or "latest".
    offset:  the offset in each partition.
    time_ms: the first message of that time or later.
    last:    number of offsets before the end of each partition.
    """

    word: str | None = None
    offset: int | None = None
    time_ms: int | None = None
    last: int | None = None


_WORDS = {"beginning": "earliest", "earliest": "earliest", "end": "latest", "latest": "latest"}


def parse_start(text: str) -> Start:
    """Parse the value of `--from`. Raises `ConfigError`."""
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
    """The part to read. `until_ms`: only messages before the first one of that time or later."""

    start: Start
    count: int | None
    timeout_s: float | None
    stop_at_end: bool
    until_ms: int | None = None


class Progress:
    """Counts messages, and the time since the last one."""

    def __init__(self, extent: Extent) -> None:
        self._left = extent.count
        self._timeout_s = extent.timeout_s
        self._last = time.monotonic()

    def got(self) -> bool:
        """Count a message; return True if it was the last one."""
        self._last = time.monotonic()
        if self._left is not None:
            self._left -= 1
        return self._left == 0

    @property
    def timed_out(self) -> bool:
        return self._timeout_s is not None and time.monotonic() - self._last >= self._timeout_s


@contextmanager
def plain_damage() -> Iterator[None]:
    """Turn a `CorruptRecord` into an error that names the option; the output before it is flushed."""
    try:
        yield
    except CorruptRecord as error:
        sys.stdout.buffer.flush()
        raise BarnabasError(f"{error.message}; --skip-damaged skips the corrupt records") from error


@contextmanager
def until_interrupted(*, has_end: bool) -> Iterator[None]:
    """End without an error on Ctrl-C if there is no other end."""
    try:
        yield
    except KeyboardInterrupt:
        if has_end:
            raise


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Yield a list that receives the signal (SIGTERM or SIGINT) to stop."""
    came: list[int] = []
    before = {number: signal.signal(number, lambda n, _: came.append(n)) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
