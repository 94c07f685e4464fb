"""Sinks of a stream for which Spark's API for Python data sources has no place."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...ports.errors import ConfigError
from ..source.options import write_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append_batches(**options: str) -> "Callable[[DataFrame, int], None]":
    """For `writeStream.foreachBatch(...)`: append the rows of each batch to topics, with the options of `df.write`.

    Spark refuses the output mode `update` for data sources in Python; with this it can be had, as Spark's Kafka sink
    has it: the rows that changed are appended. At least once, like the sink. Raises `ConfigError` at once for wrong
    options. `**{"kafka.bootstrap.servers": ...}` for those with dots.
    """
    chosen = write_options(options)
    if chosen.txn_version is not None:
        raise ConfigError("txnVersion is the number of each batch here: leave it out")

    def append(rows: "DataFrame", batch: int) -> None:
        numbered = {} if chosen.txn_app_id is None else {"txnVersion": str(batch)}
        rows.write.format("barnabas").mode("append").options(**options, **numbered).save()

    return append
