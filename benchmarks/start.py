"""From process start to "ready", and the memory that the broker then holds."""

from statistics import median

from harness import Result, broker


def measure() -> list[Result]:
    seconds, resident = [], []
    for _ in range(5):
        with broker() as running:
            seconds.append(running.seconds_to_ready)
            resident.append(running.resident_bytes() / 1e6)
    return [
        Result("process start to ready", median(seconds), "s", 0.5, at_least=False),
        Result("resident memory when ready", median(resident), "MB", 35, at_least=False),
    ]
