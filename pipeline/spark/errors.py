"""Spark's errors, several pages of stack traces, as one line that says what happened."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ...ports.errors import BarnabasError
from ..option_names import Option, option_in

JAVA_ENDED = "Spark's Java has ended"
_REPEATING_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""pyspark logs each error of a query, as a line of JSON, before it raises it (pyspark.errors.exceptions.base)."""
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""If this variable is set, Spark's Python workers send Java an exception without its traceback (pyspark.util)."""
_OURS = re.compile(r"barnabas\.[\w.]+\.(\w+): (.+)")
_PYTHON = re.compile(r"^(?:\w+\.)*(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)

_JAVA = re.compile(r"^(?:Caused by)?: (?:\w+\.)+[\w$]+: (.+)$", re.MULTILINE)
"""The exceptions in a Java stack trace: the one that was thrown and its causes, the first cause last."""


class SparkFailed(BarnabasError):
    """A Spark job failed; `__cause__` has the complete error, `option` the option that the text recommends."""

    def __init__(self, text: str) -> None:
        self.option: Option | None = option_in(text)
        super().__init__(text if self.option is None else text.replace(self.option.spark, self.option.python))


@contextmanager
def plain_spark_errors() -> Iterator[None]:
    """Turn what Spark raises inside into `SparkFailed`, its text the error that a task or the planning raised."""
    from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]  # py4j has no type hints
    from pyspark.errors import PySparkException

    try:
        with _said_once():
            yield
    except (Py4JNetworkError, ConnectionError) as error:
        text = f"{JAVA_ENDED}, killed or out of memory; nothing is changed, try again with a new session"
        raise SparkFailed(text) from error
    except (PySparkException, Py4JError) as error:
        raise SparkFailed(summary(str(error))) from error


@contextmanager
def _said_once() -> Iterator[None]:
    """Disable the log lines of errors that are raised anyway."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in _REPEATING_LOGGERS]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


def summary(text: str) -> str:
    """Return the line of a Spark error that a person needs: our own error where there is one, else the last Python one,
    else what Java gives as the first cause."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    python = _PYTHON.findall(text)
    if python:
        name, message = python[-1]
        return f"{name}: {message}".strip()
    java = _JAVA.findall(text)
    if java:
        return str(java[-1]).strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "Spark failed without saying why")


@contextmanager
def plain_worker_errors() -> Iterator[None]:
    """Let a Python worker of Spark report our errors by their message, without the traceback of our code and Spark's.
    The worker ends with the exception, so the setting has no later effect. Also a decorator.
    """
    try:
        yield
    except BarnabasError:
        if in_worker():
            os.environ[_HIDE_TRACEBACK] = "1"
        raise


def in_worker() -> bool:
    """Return True in a process that Spark started to run Python."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and str(spec.name).startswith("pyspark.")
