"""The end of a session, also of one whose Java has ended before it."""

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stop_session(spark: "SparkSession") -> None:
    """Stop it. If its Java is gone, pyspark forgets it: the next session of this process gets another one."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no type hints

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # pyspark's, of a Java that does not answer
        try:
            if java_runs():
                spark.stop()
                return
        except (Py4JError, OSError):
            pass  # since a moment ago
    _forget(spark)


def java_runs() -> bool:
    """Return whether the Java of this process's sessions runs. A failed request would show it, too, but logs pages."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def _forget(spark: "SparkSession") -> None:
    """Remove pyspark's references to a Java that is gone, to which it would send requests for ever."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession, SQLContext

    spark.sparkContext._jsc = None
    spark.sparkContext.stop()  # Python's part of it
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
