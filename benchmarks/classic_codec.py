"""Encoding, decoding and checking classic sets of 200-byte messages, against copying them and against CRC alone."""

import timeit
from collections.abc import Callable, Iterable
from zlib import crc32

from harness import MESSAGE_BYTES, Result

from barnabas.core.message.classic.reader import decode_set
from barnabas.core.message.classic.validation import find_valid_prefix, validate_set
from barnabas.core.message.classic.writer import encode_set
from barnabas.core.message.codec import NO_CODECS
from barnabas.core.traffic.steps import complete

BATCH_SIZES = (1, 50, 1000)
GOAL_BATCH_SIZE = 50
GOALS = {"encode": 1.5, "decode with CRC": 1.0, "the broker's check": 1.0}
"""Million messages per second and core."""
OVERHEAD_BYTES_GOAL = 10
LIMIT_BYTES = 1_000_000
SECONDS_PER_ROUND = 0.02
ROUNDS = 9


def _rates(works: dict[str, Callable[[], object]], messages: int) -> dict[str, float]:
    """Million messages per second of each, the best of some rounds; a round has all of them, so that they compare."""
    numbers = {}
    for name, work in works.items():
        once = max(min(timeit.repeat(work, number=1, repeat=3)), 1e-7)
        numbers[name] = max(1, int(SECONDS_PER_ROUND / once))
    best = dict.fromkeys(works, 0.0)
    for _ in range(ROUNDS):
        for name, work in works.items():
            rate = messages * numbers[name] / timeit.timeit(work, number=numbers[name]) / 1e6
            best[name] = max(best[name], rate)
    return best


def _measure_batch(count: int) -> Iterable[Result]:
    payloads = [(b"%d " % number).ljust(MESSAGE_BYTES, b"v") for number in range(count)]
    records = encode_set(payloads)
    received = memoryview(bytearray(records))
    rates = _rates(
        {
            "copy": lambda: b"".join([bytes(memoryview(payload)) for payload in payloads]),
            "CRC": lambda: [crc32(payload) for payload in payloads],
            "encode": lambda: encode_set(payloads),
            "decode with CRC": lambda: decode_set(records),
            "the broker's check": lambda: complete(validate_set(received, NO_CODECS, max_message_bytes=LIMIT_BYTES)),
            "the walk of a recovery": lambda: find_valid_prefix(received),
        },
        count,
    )
    copy, crc = rates.pop("copy"), rates.pop("CRC")
    for name, rate in rates.items():
        details = {"M msg/s": rate, "copy M msg/s": copy, "CRC alone M msg/s": crc}
        if count == GOAL_BATCH_SIZE and name in GOALS:
            yield Result(f"classic {name}, a core, sets of {count}", rate, "M msg/s", GOALS[name], details=details)
        yield Result(f"classic {name}, sets of {count}", rate / copy, "x copy", details=details)
    overhead = (len(records) - count * MESSAGE_BYTES) / count
    name = f"classic bytes added to a payload, sets of {count}"
    yield Result(name, overhead, "bytes", OVERHEAD_BYTES_GOAL, at_least=False)


def measure() -> Iterable[Result]:
    for count in BATCH_SIZES:
        yield from _measure_batch(count)


if __name__ == "__main__":
    for result in measure():
        rates = "  ".join(f"{name} {value:.2f}" for name, value in result.details.items())
        verdict = {None: "", True: "met", False: "MISSED"}[result.met]
        print(f"{result.name:<52} {result.ratio:8.2f} {result.unit:<8} {verdict:<7} {rates}")
