"""Reading a topic into Spark: 200-byte values on two cores, all columns, compared with Spark's connector."""

from harness import Result
from spark_pair import Bench, bench, rounds, seconds

TOPIC = "bench"
PARTITIONS = 4
ROWS = 1_600_000
ROUNDS = 5


def _rate(found: Bench, side: str, **options: str) -> float:
    frame = found.spark.read.format(side).options(**found.server, subscribe=TOPIC, **options)
    return ROWS / seconds(lambda: frame.load().write.format("noop").mode("overwrite").save())


def measure() -> list[Result]:
    with bench() as found:
        found.fill(TOPIC, PARTITIONS, ROWS)
        rates = rounds(found, ROUNDS, lambda side: _rate(found, side))
        before = found.running.cpu_seconds()
        _rate(found, "barnabas")
        broker_cpu = found.running.cpu_seconds() - before
    details = {**rates.details(), "broker CPU s": broker_cpu}
    return [Result("Spark batch read, ratio to the connector", rates.ratio(), "", 1.2, details=details)]


if __name__ == "__main__":
    print(measure())
