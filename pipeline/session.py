"""A local Spark session with the data source `barnabas`, quick to start."""

import functools
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..app.extras import require
from ..ports.errors import ConfigError
from .spark.ending import stop_session
from .spark.errors import SparkFailed, summary
from .spark.java import LOG_VARIABLE, find_java, spark_java_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SPARK_PACKAGES = ("pyspark", "pyarrow", "pandas", "numpy", "cattrs")
REPORT_PACKAGES = (*SPARK_PACKAGES, "jinja2")
"""The packages of the extra `spark`."""
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Halves the start of a session; jobs of a minute and more are twice as quick without the second option."""
LASTING_JVM = "-XX:+UseSerialGC"
_WORKER_START = "120s"
"""The time that Java waits for a Python worker to connect. Spark's 15 s are too few on a busy machine."""
_PY4J_LOGGERS = (None, "py4j.clientserver", "py4j.java_gateway")
"""Loggers, the root among them."""
_SOCKET_FOLDER_BYTES_MAX = 60
"""The path of a Unix socket has 104 bytes on some systems; Spark's names in the folder take 43."""


def require_spark(purpose: str = "the pipeline on Spark") -> None:
    """Raises `ConfigError` when a package that the pipeline needs is missing."""
    require(purpose, SPARK_PACKAGES, "spark")


_REDACTED = "spark.sql.redaction.options.regex"
_REDACTED_DEFAULT = "(?i)url"
SECRET_OPTIONS = r"(?i)url|secret|password|token|jaas|ssl[.]key|ssl[.]keystore[.]key|user[.]info"
"""The options whose values Spark does not show: its own pattern, and our passwords and keys."""


# The Python that Spark starts for the data source: it must have Barnabas, too.

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


def register(spark: "SparkSession") -> "SparkSession":
    """Make `spark.read.format("barnabas")` and `df.write.format("barnabas")` known to a session of yours.

    Spark's workers for it run this Python, unless you have chosen one with PYSPARK_PYTHON or spark.pyspark.python.
    Plans, and with them the event log and the user interface, show no passwords of options then
    (`spark.sql.redaction.options.regex`, unless the session has one of its own). Raises `ConfigError` when that Python,
    or that of a cluster, has no Barnabas.
    """
    require_spark()
    from .source.datasource import BarnabasDataSource

    with workers_python(spark):
        spark.dataSource.register(BarnabasDataSource)
    if spark.conf.get(_REDACTED, _REDACTED_DEFAULT) == _REDACTED_DEFAULT:
        spark.conf.set(_REDACTED, SECRET_OPTIONS)
    return spark


@contextmanager
def session_settings(spark: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    """Change SQL settings of a session, which may be the user's own, and put them back at the end."""
    before = {key: spark.conf.get(key, None) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, old in before.items():
            if old is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, old)


@contextmanager
def local_session(
    app_name: str = "barnabas",
    *,
    cores: int | None = None,
    memory: str = "2g",
    quick: bool = True,
    log_level: str = "ERROR",
    log_file: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> Iterator["SparkSession"]:
    """A session with the data source registered: the running one of this process, else a local one, stopped at the end.

    `cores` None = all of this machine. `quick` suits jobs of seconds, not of minutes. `log_file` gets what Java would
    print on standard error (None: it is shown only when the session does not start). `config` overrides any Spark
    setting. Raises `ConfigError` when pyspark or Java is missing, `SparkFailed`.
    """
    require_spark()
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield register(running)
        return
    scratch = Path(tempfile.mkdtemp(prefix="barnabas-spark-"))
    settings = local_settings(scratch, cores=cores, memory=memory, quick=quick, log_level=log_level) | dict(
        config or {}
    )
    try:
        spark = _start(app_name, settings, log_file or scratch / "java.log")
        try:
            yield register(spark)
        finally:
            stop_session(spark)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def local_settings(scratch: Path, *, cores: int | None, memory: str, quick: bool, log_level: str) -> dict[str, str]:
    """Return the Spark settings of a local session; everything it writes for itself goes below `scratch`."""
    count = cores or os.cpu_count() or 1
    return {
        "spark.master": f"local[{count}]",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": f"{QUICK_JVM if quick else LASTING_JVM} -Dderby.system.home={scratch}",
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": log_level,
        "spark.python.authenticate.socketTimeout": _WORKER_START,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(count),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_unix_sockets(scratch),
    }


def _unix_sockets(folder: Path) -> dict[str, str]:
    """Java and the Python workers speak over Unix sockets in a folder that no other user can enter, where they can.

    Over TCP each task stands still for 40 ms: Java sends in two steps and leaves Nagle's algorithm on, and the worker,
    which has nothing to say yet, delays its acknowledgement of the first one.
    """
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(folder)) > _SOCKET_FOLDER_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }


def _start(app_name: str, settings: Mapping[str, str], log_file: Path) -> "SparkSession":
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no type hints
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    for logger in _PY4J_LOGGERS:
        logging.getLogger(logger).addFilter(_is_no_interrupt)
    with _environment(log_file):
        try:
            with _interrupts_later():
                SparkContext.getOrCreate(SparkConf().setAppName(app_name).setAll(list(settings.items())))
            return SparkSession.builder.getOrCreate()
        except (PySparkException, Py4JError) as error:
            said = log_file.read_text(errors="replace").strip() if log_file.exists() else ""
            raise SparkFailed(f"Spark did not start: {said[-2000:] or summary(str(error))}") from error


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C while Java begins: pyspark would delete the folder in which Java announces its port before it knows
    of the Java process, which would then stay behind for ever. Afterwards the earlier handler is back: pyspark's own
    one sends Java a request in the middle of another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    """Filter out py4j's long lines about Ctrl-C, which it raises as well."""
    return not (record.exc_info and isinstance(record.exc_info[1], KeyboardInterrupt))


@contextmanager
def _environment(log_file: Path) -> Iterator[None]:
    """Set the environment that Spark's launcher reads; restore it afterwards, except the Python for the workers."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    log_file.parent.mkdir(parents=True, exist_ok=True)
    java_home = spark_java_home(find_java(), log_file=log_file)
    changes = {"JAVA_HOME": str(java_home), LOG_VARIABLE: str(log_file.absolute())}
    before = {key: os.environ.get(key) for key in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
