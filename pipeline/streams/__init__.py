"""Streams over topics: what a job needs beside `spark.readStream.format("barnabas")`."""

from .progress import offsets_behind_latest
from .sinks import append_batches

__all__ = ["append_batches", "offsets_behind_latest"]
