"""The Python that Spark starts for the data source: it must have Barnabas, too."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_ENVIRONMENT = "PYSPARK_PYTHON"
_SETTING = "spark.pyspark.python"
_SPARKS_DEFAULT = "python3"
_PROBE_S = 60.0
_PROBE = (
    "import sys, importlib.util as u; print(*sys.version_info[:2], sep='.'); "
    "print(*[n for n in ('barnabas', 'pyarrow', 'pandas', 'numpy') if u.find_spec(n) is None])"
)


@contextmanager
def workers_python(spark: "SparkSession") -> Iterator[None]:
    """While a data source is registered, let the session give it a Python that has Barnabas.

    That is the one chosen by PYSPARK_PYTHON or spark.pyspark.python; else on this machine (`local`) the one that runs
    this, not the first `python3` of PATH. Raises `ConfigError` for a chosen one, or a cluster's, that cannot be.
    """
    context = _context(spark)
    if context is None:
        yield
        return
    before = context.pythonExec
    context.pythonExec = _suitable(context)
    try:
        yield
    finally:
        context.pythonExec = before


def _context(spark: "SparkSession") -> "SparkContext | None":
    """Return the context; None with Spark Connect: the server has its own workers."""
    from pyspark.errors import PySparkException

    try:
        return spark.sparkContext
    except PySparkException:
        return None


def _suitable(context: "SparkContext") -> str:
    chosen = os.environ.get(_ENVIRONMENT) or context.getConf().get(_SETTING)
    if not chosen and str(context.master).startswith("local"):
        return sys.executable
    python = chosen or _SPARKS_DEFAULT
    fault = None if shutil.which(python) == sys.executable else _fault(python)
    if fault is not None:
        origin = (
            f"{python!r}, chosen for Spark's workers," if chosen else f"{python!r}, Spark's choice for its workers,"
        )
        raise ConfigError(
            f"{origin} {fault}; set {_ENVIRONMENT} or {_SETTING} to a Python that has Barnabas (here that is "
            f"{sys.executable}) before the session is made"
        )
    return python


@functools.cache
def _fault(python: str) -> str | None:
    """Return why it cannot be the workers' Python, or None: run it on this machine, where it plans each read."""
    path = shutil.which(python)
    if path is None:
        return "is not on this machine, where reads are planned"
    try:
        answer = subprocess.run(
            [path, "-c", _PROBE], capture_output=True, text=True, timeout=_PROBE_S, check=True
        ).stdout.splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    version = ".".join(map(str, sys.version_info[:2]))
    if answer[0] != version:
        return f"is Python {answer[0]}, but this is Python {version}"
    return f"lacks {', '.join(answer[1].split())}" if answer[1:] and answer[1] else None
