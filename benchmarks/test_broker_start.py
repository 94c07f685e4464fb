"""A broker for tests, and a cluster: from nothing to the first message there and back, against the mock of librdkafka.

Each figure is the median of some processes, in which pytest and confluent-kafka are loaded and nothing of ours; byte
code is there, as after an installation. The mock cluster is met with the same confluent-kafka clients, which are
assigned their partition.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import confluent_kafka
from harness import Result

PROCESSES = 5
TIMES = 3
"""Starts per process; the first one loads the modules."""
PATIENCE_S = 10.0


def _confluent(bootstrap: str, topic: str, consumer: dict[str, Any] | None = None) -> None:
    """One message, there and back."""
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"there and back", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest", **(consumer or {})}
    reader = confluent_kafka.Consumer(settings)
    if consumer is None:
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    else:
        reader.subscribe([topic])
    message = reader.poll(PATIENCE_S)
    assert message is not None
    assert message.value() == b"there and back"
    reader.close()


def _ours(bootstrap: str, topic: str) -> None:
    from barnabas import Consumer, Producer

    with Producer(bootstrap, linger_ms=0) as producer:
        producer.send(topic, b"there and back").result(PATIENCE_S)
    with Consumer(bootstrap) as consumer:
        consumer.assign(topic, position="earliest")
        message = consumer.poll(PATIENCE_S)
    assert message is not None


def _in_a_group(bootstrap: str, topic: str) -> None:
    _confluent(bootstrap, topic, {"enable.auto.commit": False})


def _barnabas(round_trip: Callable[[str, str], None]) -> tuple[float, float]:
    """Seconds until it is ready, and until the message is back."""
    started = time.perf_counter()
    from barnabas.testing import TestBroker

    with TestBroker() as broker:
        topic = broker.create_topic()
        ready = time.perf_counter() - started
        round_trip(broker.bootstrap, topic)
        return ready, time.perf_counter() - started


def _cluster() -> tuple[float, float]:
    """Three brokers; the topic has three replicas, and the message must be on all of them."""
    started = time.perf_counter()
    from barnabas.testing import TestCluster

    with TestCluster(brokers=3) as cluster:
        ready = time.perf_counter() - started
        _confluent(cluster.bootstrap, cluster.create_topic())
        return ready, time.perf_counter() - started


def _mock(_: object = None) -> tuple[float, float]:
    started = time.perf_counter()
    holder = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    found = holder.list_topics("t", timeout=PATIENCE_S)
    (node,) = found.brokers.values()
    ready = time.perf_counter() - started
    _confluent(f"{node.host}:{node.port}", "t")
    return ready, time.perf_counter() - started


WAYS: dict[str, Callable[[], tuple[float, float]]] = {
    "confluent": lambda: _barnabas(_confluent),
    "group": lambda: _barnabas(_in_a_group),
    "ours": lambda: _barnabas(_ours),
    "cluster": _cluster,
    "mock": _mock,
}


def _run(way: str) -> None:
    """Run in a process of its own, and print a line of JSON."""
    import pytest  # noqa: F401  as in the processes that this is for

    print(json.dumps([WAYS[way]() for _ in range(TIMES)]))


def _measured(way: str, byte_code: str) -> dict[str, float]:
    """Return milliseconds."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = byte_code
    runs = []
    for _ in range(PROCESSES + 1):
        done = subprocess.run([sys.executable, __file__, way], capture_output=True, check=True, text=True, env=env)
        runs.append([[1000 * seconds for seconds in pair] for pair in json.loads(done.stdout)])
    del runs[0]  # it wrote the byte code
    return {
        "first_ready": median(run[0][0] for run in runs),
        "first_back": median(run[0][1] for run in runs),
        "next_ready": median(pair[0] for run in runs for pair in run[1:]),
        "next_back": median(pair[1] for run in runs for pair in run[1:]),
    }


def measure() -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as byte_code:
        found = {way: _measured(way, byte_code) for way in WAYS}
    mock = found["mock"]
    results = [
        Result("test broker ready, modules loaded before", found["confluent"]["next_ready"], "ms", 100, at_least=False),
        Result("test broker ready, modules loaded meanwhile", found["confluent"]["first_ready"], "ms"),
    ]
    results += [
        Result(
            "librdkafka's mock cluster ready",
            mock["next_ready"],
            "ms",
            details={"first_in_a_process": mock["first_ready"]},
        )
    ]
    cluster = found["cluster"]
    for which, when in (("next", "modules loaded before"), ("first", "modules loaded meanwhile")):
        details = {"first_message_back": cluster[f"{which}_back"]}
        name = f"test cluster of 3 brokers ready, {when}"
        results.append(Result(name, cluster[f"{which}_ready"], "ms", 500, at_least=False, details=details))
    names = {"confluent": "confluent-kafka", "group": "confluent-kafka in a group", "ours": "our clients"}
    for way, name in names.items():
        for which, when in (("next", "modules loaded before"), ("first", "meanwhile")):
            taken = found[way][f"{which}_back"]
            # In a group, librdkafka waits for timers of its own several times; the broker answers within 1 ms.
            goal = 150 if which == "next" and way != "group" else None
            details = {"mock_ms": mock[f"{which}_back"], "of_mock": taken / mock[f"{which}_back"]}
            results.append(
                Result(
                    f"start and first round trip, {name}, {when}", taken, "ms", goal, at_least=False, details=details
                )
            )
    return results


if __name__ == "__main__":
    _run(sys.argv[1])
