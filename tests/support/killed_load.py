"""A load in a process of its own, which dies there: `killed_load.py WHERE TOPIC TABLE JAVA_LOG STEP` kills itself at a
step of its commit."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PORT = "PYSPARK_GATEWAY_PORT"
"""Python finds here the JVM that it is to use, instead of starting one."""


def begin_load(
    where: str, topic: str, table: Path, step: str = "", *, spark: "SparkSession | None" = None
) -> "subprocess.Popen[str]":
    """Its output is a line per step of the load. With `spark` it uses the JVM of that session, which survives it: for
    steps in which Java has no part; starting one takes long. Without, its process group is all that is of it."""
    environment = os.environ | {"TMPDIR": str(table.parent)}  # what a killed process leaves goes with the test
    if spark is not None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        parameters = gateway.gateway_parameters
        environment |= {_PORT: str(parameters.port), "PYSPARK_GATEWAY_SECRET": parameters.auth_token}
    arguments = [where, topic, str(table), str(table.with_name("java.log")), step]
    command = [sys.executable, __file__, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=environment)


def killed_at(where: str, topic: str, table: Path, step: str, spark: "SparkSession") -> None:
    """A load that has killed itself at this step."""
    with begin_load(where, topic, table, step, spark=spark) as process:
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def _attached() -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark's own
    java = gateway.jvm.org.apache.spark
    context = java.api.java.JavaSparkContext.fromSparkContext(java.SparkContext.getOrCreate())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=SparkConf(_jconf=context.getConf())))


def _main() -> None:
    from barnabas.pipeline import commits
    from barnabas.pipeline import load as module

    where, topic, table, log, step = sys.argv[1:]

    def kill(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    class Log(commits.CommitLog):
        def __init__(self, folder: Path) -> None:
            super().__init__(folder, checkpoint=kill)

    spark = _attached() if _PORT in os.environ else None
    with patch.object(module, "CommitLog", Log):
        module.load(
            where, [topic], Path(table), spark=spark, log_file=Path(log), progress=lambda at: print(at.step, flush=True)
        )


if __name__ == "__main__":
    _main()
