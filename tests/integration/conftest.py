"""Fixtures of the tests with Spark: one session, since its start takes long."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.maven import NoJars
from support.spark_kafka import connector_jars, session_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    )
}
"""Spark's other way to write checkpoints. Without Hadoop's native library its first one starts `stat` and `chmod` for
each file of a micro-batch, a third of the CPU time of a small stream."""

NO_CODE_GENERATION = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark compiles Java code for each query, which takes longer than the few rows of a test: 115 s of CPU time of the
tests that use this session, 83 s without it. Commands in processes of their own keep the default."""

UNVERIFIED = "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""To verify the classes of Spark's jars takes a fifth of the CPU time of a session with one small query."""


@pytest.fixture(scope="session")
def spark_kafka_jars(request: pytest.FixtureRequest, checkout: Path) -> list[Path] | str:
    """Spark's own Kafka connector; a text that says why it is not here; no jars where no test asks for it."""
    wanted = any("spark_kafka" in getattr(item, "fixturenames", ()) for item in request.session.items)
    try:
        return connector_jars(checkout / ".build" / "jars") if wanted else []
    except NoJars as error:
        return str(error)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, spark_kafka_jars: list[Path] | str) -> "Iterator[SparkSession]":
    """A local session with the data source registered. Tests that use it are marked `spark` and of one xdist group."""
    from barnabas.pipeline.session import QUICK_JVM, local_session

    folder = tmp_path_factory.mktemp("spark")
    jars = [] if isinstance(spark_kafka_jars, str) else spark_kafka_jars
    options = f"{QUICK_JVM} {UNVERIFIED} -Dderby.system.home={folder}"
    config = {
        **session_config(jars),
        **QUICK_CHECKPOINTS,
        **NO_CODE_GENERATION,
        "spark.driver.extraJavaOptions": options,
    }
    with local_session("barnabas tests", cores=2, memory="1g", log_file=folder / "java.log", config=config) as session:
        yield session


@pytest.fixture
def spark_kafka(spark: "SparkSession", spark_kafka_jars: list[Path] | str) -> "SparkSession":
    """The session, with Spark's own Kafka connector."""
    if isinstance(spark_kafka_jars, str):
        pytest.skip(f"Spark's Kafka connector cannot be had: {spark_kafka_jars}")
    return spark
