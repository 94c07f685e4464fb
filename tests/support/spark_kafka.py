"""Spark's own Kafka connector for the installed pyspark."""

from collections.abc import Sequence
from pathlib import Path

from support.maven import NoJars, is_complete, maven_jars

_IN_PYSPARK = (
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.spark:spark-tags_2.13",
    "org.lz4:lz4-java",
    "at.yawk.lz4:lz4-java",
    "org.xerial.snappy:snappy-java",
    "com.github.luben:zstd-jni",
    "org.scala-lang:scala-library",
    "org.scala-lang.modules:scala-parallel-collections_2.13",
    "org.slf4j:slf4j-api",
    "com.google.code.findbugs:jsr305",
)
_STAND_INS = {"4.2": ("4.2.0", "4.0.0"), "4.3": ("4.2.0", "4.0.0")}
"""By Spark's minor version: releases of the connector and of its token provider that were tried with it. Repositories
have new releases later than PyPI has, and mirrors of them not all."""


def connector_jars(cache: Path) -> list[Path]:
    """Return the jars that pyspark lacks, fetched once into a folder below `cache`. Raises `NoJars`."""
    import pyspark

    version = pyspark.__version__
    stand_in = _STAND_INS.get(version.rpartition(".")[0])
    if stand_in is not None and is_complete(_folder(cache, *stand_in)):
        return _fetch(cache, *stand_in)
    try:
        return _fetch(cache, version, version)
    except NoJars as exact:
        if stand_in is None:
            raise
        try:
            return _fetch(cache, *stand_in)
        except NoJars as other:
            raise NoJars(f"{exact}; instead {stand_in[0]}: {other}") from other


def session_config(jars: Sequence[Path]) -> dict[str, str]:
    """Return Spark settings for a session with these jars; idle clients of the connector are soon closed."""
    if not jars:
        return {}
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.kafka.producer.cache.timeout": "2s",
        "spark.kafka.producer.cache.evictorThreadRunInterval": "1s",
        "spark.kafka.consumer.cache.timeout": "2s",
        "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
    }


def _fetch(cache: Path, connector: str, tokens: str) -> list[Path]:
    return maven_jars(
        _folder(cache, connector, tokens),
        [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}"],
        managed=[f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{tokens}"],
        without=_IN_PYSPARK,
    )


def _folder(cache: Path, connector: str, tokens: str) -> Path:
    return cache / f"spark-kafka-{connector}-{tokens}"
