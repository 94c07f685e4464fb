"""Loads again and again, with one Spark session for all of them."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING

from attrs import frozen

from ...ports.errors import BarnabasError, ConfigError
from ..session import local_session
from ..spark.ending import java_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..load import LoadResult

Run = Callable[["SparkSession"], "LoadResult"]
Sessions = Callable[[], AbstractContextManager["SparkSession"]]


@frozen(kw_only=True)
class Round:
    """One load: when it began, and its result or why there is none."""

    began: datetime
    result: "LoadResult | None" = None
    error: BarnabasError | None = None


def lasting_session() -> AbstractContextManager["SparkSession"]:
    """Open a session for hours, not for seconds."""
    return local_session(quick=False)


def rounds(
    run: Run,
    every_s: float,
    stop: Event,
    on_round: Callable[[Round], None],
    *,
    sessions: Sessions = lasting_session,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Run a load every `every_s` seconds until `stop` is set, which ends the present one first.

    A failed round is reported, and the next round comes all the same: a broker may be away. Only an error that no round
    can mend, a `ConfigError`, is raised. A session whose Java has died is replaced. `started` is called after Spark's
    start, which takes the signals.
    """
    while not stop.is_set():
        with sessions() as spark:
            started()
            while not stop.is_set() and _alive(spark):
                began = time.monotonic()
                on_round(_one(run, spark))
                stop.wait(max(0.0, every_s - (time.monotonic() - began)))


def _one(run: Run, spark: "SparkSession") -> Round:
    began = datetime.now(UTC)
    try:
        return Round(began=began, result=run(spark))
    except ConfigError:
        raise
    except BarnabasError as error:
        return Round(began=began, error=error)


def _alive(spark: "SparkSession") -> bool:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no type hints

    try:
        return java_runs() and not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, AttributeError, OSError):
        return False
