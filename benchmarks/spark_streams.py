"""Streams from a topic on two cores, against Spark's connector: rows per second, and the delay of small batches."""

from statistics import median
from typing import Any

from harness import Result
from spark_pair import Bench, Rounds, bench, rounds

ROWS = 1_600_000
BATCH = 200_000
SMALL_ROWS = 4_800
SMALL_BATCH = 200
PARTITIONS = 4
ROUNDS = 3


def _batches(found: Bench, side: str, topic: str, most: int, sink: str = "noop") -> list[dict[str, Any]]:
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(most)}
    frame = found.spark.readStream.format(side).options(**found.server, **options).load()
    if sink == "noop":
        return found.stream(frame)
    return found.stream(frame.select("key", "value"), sink, {**found.server, "topic": "out"})


def _rate(found: Bench, side: str) -> float:
    """Return the rate of a batch in the middle: the first one also starts what the stream keeps."""
    batches = _batches(found, side, "large", BATCH)[1:]
    return median(float(each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000) for each in batches)


def _delay_ms(found: Bench, side: str, sink: str = "noop") -> float:
    batches = _batches(found, side, "small", SMALL_BATCH, side if sink != "noop" else sink)[3:]
    return median(float(each["durationMs"]["triggerExecution"]) for each in batches)


def _delays(found: Bench, sink: str) -> Rounds:
    return rounds(found, ROUNDS, lambda side: _delay_ms(found, side, sink))


def measure() -> list[Result]:
    with bench() as found:
        found.fill("small", PARTITIONS, SMALL_ROWS, 100)
        found.create("out", PARTITIONS)
        found.fill("large", PARTITIONS, ROWS)
        read = _delays(found, "noop")
        both = _delays(found, "topic")
        rates = rounds(found, ROUNDS, lambda side: _rate(found, side))
    return [
        Result("Spark stream, ratio to the connector", rates.ratio(), "", 1.0, details=rates.details()),
        Result("Micro-batch of 200 rows, delay, ratio to the connector", read.ratio(), "", 1.2, False, read.details()),
        Result("The same from topic to topic", both.ratio(), "", 1.2, False, both.details()),
    ]


if __name__ == "__main__":
    for result in measure():
        print(result)
