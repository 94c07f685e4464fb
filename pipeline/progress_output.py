"""Progress of a long command on standard error: one line that changes on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer
from attrs import define

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

LINE_EVERY_S = 5.0
"""The least time between two plain lines that differ in their numbers only."""


class ProgressOutput:
    """Says the steps of a command, and how far a step is. This one says nothing: for `--quiet`."""

    def step(self, text: str) -> None:
        """Begin a step, such as "starting Spark"."""

    def count(self, text: str, done: int, total: int) -> None:
        """Say how far a step is: "reading 10,000 of 11,368"."""

    def print_line(self, text: str) -> None:
        """Say something that stays on the screen."""


@define
class PlainLines(ProgressOutput):
    """For files and pipes: a line for each step; numbers at most every few seconds, the last of a step always."""

    clock: Callable[[], float] = time.monotonic
    _last: str = ""
    _counted: str = ""
    _said_at: float = 0.0

    def step(self, text: str) -> None:
        if text != self._last:
            typer.echo(f"{text} ...", err=True)
        self._last = text

    def count(self, text: str, done: int, total: int) -> None:
        line = f"{text} {done:,} of {total:,}"
        now = self.clock()
        if line == self._counted or (text == self._last and done < total and now - self._said_at < LINE_EVERY_S):
            return
        self._last, self._counted, self._said_at = text, line, now
        typer.echo(line, err=True)

    def print_line(self, text: str) -> None:
        typer.echo(text, err=True)


@define
class TerminalLine(ProgressOutput):
    """For a person: one line with a bar, gone at the end."""

    bar: "Progress"
    task: "TaskID"

    def step(self, text: str) -> None:
        self.bar.remove_task(self.task)
        self.task = self.bar.add_task(f"{text} ...", total=None)

    def count(self, text: str, done: int, total: int) -> None:
        self.bar.update(self.task, completed=done, total=total, description=f"{text} {done:,} of {total:,}")

    def print_line(self, text: str) -> None:
        self.bar.console.print(text, markup=False, highlight=False)


@contextmanager
def progress_output(*, quiet: bool) -> Iterator[ProgressOutput]:
    """Yield what suits standard error and `--quiet`. Standard output stays free for the result."""
    if quiet:
        yield ProgressOutput()
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        parts = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Progress(*parts, console=Console(stderr=True), transient=True) as bar:
            yield TerminalLine(bar, bar.add_task("starting ...", total=None))
    else:
        yield PlainLines()
