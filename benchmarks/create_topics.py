"""100 topics of 4 partitions, made by librdkafka's admin client here and with Apache Kafka: on one broker and on three.

Both servers run at once and are measured by turns; the best of the rounds counts. A round creates the topics with one
request, and with one request for each topic, one after the other; it also creates one topic while such a large request
is being carried out. Apache Kafka answers when its metadata log has the topics, and makes their files afterwards;
Barnabas does the same for such a request ("answered"). Both are also compared by the time until each partition has
acknowledged a message ("usable").
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from cluster import cluster
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import Result, broker
from kafka_cluster import KafkaUnavailable, kafka_cluster

TOPICS = 100
PARTITIONS = 4
ROUNDS = 3
LIMIT_S = 120
HEAD_START_S = 0.05
"""The one topic is requested this long after the large request."""


class Side:
    """The admin client of one server, and its best times."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        settings: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._replicas = replicas
        self._admin, self._other = AdminClient(settings), AdminClient(settings)
        self._producer = Producer({**settings, "acks": "all", "retry.backoff.ms": 20, "retry.backoff.max.ms": 100})
        self.seconds: dict[str, float] = {}
        for client in (self._admin, self._other):  # both know the controller then
            self._make(client, [f"warm-up-{id(client)}"])

    def round(self, number: int) -> None:
        answered, usable = self._one_request(f"together-{number}")
        self._note("one request: answered", answered)
        self._note("one request: usable", usable)
        self._note("one request per topic", self._request_each(f"single-{number}"))
        self._note("one topic meanwhile", self._meanwhile(f"meanwhile-{number}"))

    def _note(self, what: str, seconds: float) -> None:
        self.seconds[what] = min(seconds, self.seconds.get(what, seconds))

    def _one_request(self, prefix: str) -> tuple[float, float]:
        """Seconds until the request is answered, and until each partition has acknowledged a message."""
        started = time.perf_counter()
        self._make(self._admin, _names(prefix))
        answered = time.perf_counter() - started
        for name in _names(prefix):
            for partition in range(PARTITIONS):
                self._producer.produce(name, b"first", partition=partition, on_delivery=_check_delivered)
        if self._producer.flush(LIMIT_S):
            raise RuntimeError(f"not every partition took a message within {LIMIT_S} s")
        return answered, time.perf_counter() - started

    def _request_each(self, prefix: str) -> float:
        started = time.perf_counter()
        for name in _names(prefix):
            self._make(self._admin, [name])
        return time.perf_counter() - started

    def _meanwhile(self, prefix: str) -> float:
        """Seconds for one topic that is asked for while `TOPICS` others are being made."""
        large = self._admin.create_topics(self._new(_names(prefix)), operation_timeout=LIMIT_S)
        time.sleep(HEAD_START_S)
        started = time.perf_counter()
        self._make(self._other, [prefix])
        seconds = time.perf_counter() - started
        for made in large.values():
            made.result(LIMIT_S)
        return seconds

    def _make(self, client: AdminClient, names: list[str]) -> None:
        for made in client.create_topics(self._new(names), operation_timeout=LIMIT_S).values():
            made.result(LIMIT_S)

    def _new(self, names: list[str]) -> list[NewTopic]:
        return [NewTopic(name, PARTITIONS, self._replicas) for name in names]


def _check_delivered(error: object, _message: object) -> None:
    if error is not None:
        raise RuntimeError(f"a message was not delivered: {error}")


def _names(prefix: str) -> list[str]:
    return [f"{prefix}-{number}" for number in range(TOPICS)]


def _measured(brokers: int) -> list[Result]:
    replicas = min(3, brokers)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-", ignore_cleanup_errors=True))
        if brokers == 1:
            bootstrap = stack.enter_context(broker()).bootstrap
        else:
            bootstrap = stack.enter_context(cluster(brokers=brokers)).bootstrap
        sides = {"": Side(bootstrap, replicas)}
        try:
            kafka, _ = stack.enter_context(kafka_cluster(Path(scratch), brokers))
            sides["Apache Kafka "] = Side(kafka, replicas)
        except KafkaUnavailable as error:
            print(f"Apache Kafka cannot be had here: {error}", flush=True)
        for number in range(ROUNDS):
            for side in sides.values():
                side.round(number)
    return [_result(f"{_said(brokers)}, {what}", what, sides) for what in sides[""].seconds]


def _said(brokers: int) -> str:
    return f"{TOPICS} topics, {'1 broker' if brokers == 1 else f'{brokers} brokers'}"


def _result(name: str, what: str, sides: dict[str, Side]) -> Result:
    details = {f"{side}ms": one.seconds[what] * 1000 for side, one in sides.items()}
    ours, theirs = (sides[side].seconds[what] if side in sides else None for side in ("", "Apache Kafka "))
    assert ours is not None
    if theirs is None:
        return Result(f"{name}: seconds", ours, "s", details=details)
    return Result(f"{name} / Apache Kafka's time", ours / theirs, "", 2.0, at_least=False, details=details)


def measure() -> Iterator[Result]:
    yield from _measured(1)
    yield from _measured(3)
