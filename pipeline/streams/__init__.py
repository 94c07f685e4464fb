"""Streams over topics: small functions over DataFrames, for `rows.transform(...)`, and sinks for their results.

All of them take and return DataFrames of Spark, batches and streams unless they say otherwise; arguments have Spark's
names. docs/streams.md shows each of them.
"""

from .operators import (
    anomaly_scores,
    as_messages,
    co_occurrence,
    deduplicated,
    item_pairs,
    join_latest,
    join_within,
    json_fields,
    latest,
    top_k,
)
from .progress import offsets_behind_latest
from .sinks import append_batches, connector_checkpoint, page_batches, table_batches
from .watching import watch
from .windows import over_limit, rate_limited, sessions, windowed_counts

__all__ = [
    "anomaly_scores",
    "append_batches",
    "as_messages",
    "co_occurrence",
    "connector_checkpoint",
    "deduplicated",
    "item_pairs",
    "join_latest",
    "join_within",
    "json_fields",
    "latest",
    "offsets_behind_latest",
    "over_limit",
    "page_batches",
    "rate_limited",
    "sessions",
    "table_batches",
    "top_k",
    "watch",
    "windowed_counts",
]
