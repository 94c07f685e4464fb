"""Spark's errors, several pages of stack traces, as one line that says what happened."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..ports.errors import BarnabasError

_OURS = re.compile(r"barnabas\.[\w.]+\.(\w+): (.+)")
_PYTHON = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)


class SparkFailed(BarnabasError):
    """A Spark job failed; the whole story is in `__cause__`."""


@contextmanager
def plain_spark_errors() -> Iterator[None]:
    """Turn what Spark raises inside into `SparkFailed`, its text the error that a task or the planning raised."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no type hints
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(summary(str(error))) from error


def summary(text: str) -> str:
    """The line of a Spark error that a person needs: our own error where there is one, else the last Python one."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    python = _PYTHON.findall(text)
    if python:
        name, message = python[-1]
        return f"{name}: {message}".strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed without saying why")
