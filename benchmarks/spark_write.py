"""Writing rows to a topic on two cores, against Spark's connector: in a batch, and in the micro-batches of a stream."""

from pathlib import Path
from statistics import median

from harness import MESSAGE_BYTES, Result
from spark_pair import Bench, bench, rounds, seconds

PARTITIONS = 4
ROWS = 400_000
FILES = 6
ROUNDS = 5
STREAM_ROUNDS = 3


def _rows(found: Bench, folder: Path) -> None:
    """Write files of distinct rows, as long as the values of the other benchmarks."""
    value = f"cast(rpad(cast(id as string), {MESSAGE_BYTES}, 'x') as binary) as value"
    for number in range(FILES):
        part = found.spark.range(number * ROWS, (number + 1) * ROWS // FILES + number * ROWS, numPartitions=2)
        part.selectExpr(value).coalesce(1).write.mode("append").option("compression", "none").parquet(str(folder))


def _batch(found: Bench, folder: Path, side: str) -> float:
    frame = found.spark.read.parquet(str(folder))
    writer = frame.write.format(side).mode("append").options(**found.server, topic="out")
    return ROWS / seconds(writer.save)


def _stream(found: Bench, folder: Path, side: str) -> float:
    frame = found.spark.readStream.schema("value binary").option("maxFilesPerTrigger", "2").parquet(str(folder))
    batches = found.stream(frame, side, {**found.server, "topic": "out"})[1:]
    return median(float(each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000) for each in batches)


def measure() -> list[Result]:
    with bench() as found:
        found.create("out", PARTITIONS)
        folder = found.folder()
        _rows(found, folder)
        written = rounds(found, ROUNDS, lambda side: _batch(found, folder, side))
        streamed = rounds(found, STREAM_ROUNDS, lambda side: _stream(found, folder, side))
    return [
        Result("Spark batch write, ratio to the connector", written.ratio(), "", 1.0, details=written.details()),
        Result("Spark stream write, ratio to the connector", streamed.ratio(), "", 1.0, details=streamed.details()),
    ]


if __name__ == "__main__":
    for result in measure():
        print(result)
