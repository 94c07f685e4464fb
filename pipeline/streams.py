"""Beside the data source, what a stream can have that Spark's API for Python data sources has no place for."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..ports.errors import ConfigError
from .options import write_options
from .stream_plan import StreamOffsets

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


def offsets_behind_latest(source: Any) -> dict[str, str]:
    """How far a stream is behind the ends of its topics' partitions: minOffsetsBehindLatest, maxOffsetsBehindLatest and
    avgOffsetsBehindLatest, as Spark's Kafka source has them among the metrics of its progress.

    `source` is one of `query.lastProgress.sources`, or of `event.progress.sources` in a `StreamingQueryListener`. Empty
    before the first batch. Python data sources cannot put metrics into the progress themselves.
    """
    end, latest = (_offsets(source, name) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None or not latest.positions:
        return {}
    behind = [
        offset - (0 if end.another(place.topic, latest.topic_ids.get(place.topic, "")) else end.positions.get(place, 0))
        for place, offset in latest.positions.items()
    ]
    return {
        "minOffsetsBehindLatest": str(min(behind)),
        "maxOffsetsBehindLatest": str(max(behind)),
        "avgOffsetsBehindLatest": str(sum(behind) / len(behind)),
    }


def _offsets(source: Any, name: str) -> StreamOffsets | None:
    """Spark tells them as JSON in an object, or as a mapping in a mapping."""
    found = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(found, str):
        found = json.loads(found)
    return StreamOffsets.unpacked(found) if found else None
