"""Produce and fetch over TLS 1.3 against plain text, with librdkafka, in one run: rates and the broker's CPU.

The client encrypts, too: the CPU of the broker is what TLS costs it.
"""

import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from harness import Result, RunningBroker, broker, librdkafka_rate

from barnabas.app.certificates import DevelopmentAuthority

MESSAGES = 300_000
ROUNDS = 3
TOPIC = "bench"
PLAIN, TLS = "plain", "TLS"


def _produced(running: RunningBroker, security: Mapping[str, object]) -> tuple[float, float]:
    before = running.cpu_seconds()
    rate = librdkafka_rate({"bootstrap.servers": running.bootstrap, **security}, TOPIC, MESSAGES)
    return rate, (running.cpu_seconds() - before) / MESSAGES * 1e6


def _fetched(running: RunningBroker, security: Mapping[str, object]) -> tuple[float, float]:
    settings = {"bootstrap.servers": running.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, **security, "fetch.message.max.bytes": 1_048_576})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    before, started, got = running.cpu_seconds(), time.perf_counter(), 0
    while got < MESSAGES:
        got += len(consumer.consume(10_000, 10))
    seconds = time.perf_counter() - started
    used = running.cpu_seconds() - before
    consumer.close()
    return got / seconds, used / got * 1e6


def measure() -> list[Result]:
    """Return the best of several rounds, which take turns."""
    with ExitStack() as keep:
        folder = Path(keep.enter_context(tempfile.TemporaryDirectory()))
        authority = DevelopmentAuthority(folder)
        store = authority.issue("broker", ("localhost", "127.0.0.1"), 2).path
        running = {
            PLAIN: keep.enter_context(broker()),
            TLS: keep.enter_context(broker(None, f"ssl.keystore.location={store}", scheme="ssl")),
        }
        security: dict[str, dict[str, object]] = {
            PLAIN: {},
            TLS: {"security.protocol": "SSL", "ssl.ca.location": str(authority.path)},
        }
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for _ in range(ROUNDS):
            for kind in (PLAIN, TLS):
                found.setdefault(("produce", kind), []).append(_produced(running[kind], security[kind]))
                found.setdefault(("fetch", kind), []).append(_fetched(running[kind], security[kind]))
    results = []
    for what in ("produce", "fetch"):
        rate = {kind: max(each for each, _ in found[what, kind]) for kind in (PLAIN, TLS)}
        cpu = {kind: min(each for _, each in found[what, kind]) for kind in (PLAIN, TLS)}
        details = {f"{kind} /s": rate[kind] for kind in rate} | {f"{kind} us of CPU": cpu[kind] for kind in cpu}
        results.append(Result(f"TLS: {what} / plain text", rate[TLS] / rate[PLAIN], details=details))
        results.append(Result(f"TLS: CPU of the broker to {what} / plain text", cpu[TLS] / cpu[PLAIN], at_least=False))
    return results


if __name__ == "__main__":
    for result in measure():
        print(result)
