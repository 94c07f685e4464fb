"""A real request of each way on docs/architecture.md enters every function that the page names."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
from support.architecture_ways import STEP, ways_of
from support.group_members import QUICK
from support.schema_registry import Asking, serving
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer, SimpleConsumer
from barnabas.app.clients.shared.protocols import AnySimpleConsumer
from barnabas.testing import TestBroker, TestCluster

SETTINGS: dict[str, Any] = {
    "storage": "memory",
    "coordination": "memory",
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "2000"}
ONE = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'
TWO = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'


class CallTracer:
    """The Python functions that this thread and threads it has started since enter, before and during a request."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        self._before: set[CodeType] = set()
        self._during: set[CodeType] = set()
        self._current = self._before

    def start(self) -> None:
        threading.setprofile(self._on_event)
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @contextmanager
    def request(self) -> Iterator[None]:
        """The request is under way: what was entered so far only prepared it, and what comes later cleans up."""
        self._current = self._during
        yield
        self._current = set()

    @property
    def entered_before(self) -> set[str]:
        return self._names(self._before)

    @property
    def entered(self) -> set[str]:
        return self._names(self._during)

    def _on_event(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self._current.add(frame.f_code)

    def _names(self, codes: set[CodeType]) -> set[str]:
        """Return the entered functions in the form of the page: `file:Class.function`."""
        found = [(Path(code.co_filename), code.co_qualname) for code in codes]
        return {
            f"{path.relative_to(self._checkout).as_posix()}:{name}"
            for path, name in found
            if path.is_relative_to(self._checkout)
        }


@pytest.fixture
def tracer(checkout: Path) -> Iterator[CallTracer]:
    tracer = CallTracer(checkout)
    tracer.start()
    try:
        yield tracer
    finally:
        tracer.stop()


def produce(tracer: CallTracer) -> None:
    with Broker(**SETTINGS) as broker, Producer(broker.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        with tracer.request():
            producer.send("t", b"b", partition=0).result(PATIENCE_S)


def fetch(tracer: CallTracer) -> None:
    with Broker(**SETTINGS) as broker, SimpleConsumer(broker.bootstrap) as consumer:
        with Producer(broker.bootstrap, linger_ms=0) as producer:
            producer.send("t", b"a", partition=0).result(PATIENCE_S)
        with tracer.request():
            assert values_of(consumer) == [b"a"]


def join_group(tracer: CallTracer) -> None:
    with Broker(**SETTINGS) as broker:
        with Admin(broker) as admin:
            admin.create_topic("t")
        with Consumer(broker.bootstrap, group_id="g", **QUICK) as consumer, tracer.request():
            consumer.subscribe(["t"])
            wait_for(lambda: consumer.poll(0.1) is None and bool(consumer.assignment))


def end_transaction(tracer: CallTracer) -> None:
    with (
        Broker(**SETTINGS) as broker,
        Producer(broker.bootstrap, transactional_id="txn", linger_ms=0) as producer,
        Consumer(broker.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest") as consumer,
    ):
        producer.begin_transaction()
        producer.send("t", b"a", partition=0).result(PATIENCE_S)
        consumer.assign([("t", 0)])
        assert consumer.poll(0.1) is None
        with tracer.request():
            producer.commit_transaction()
            wait_for(lambda: consumer.poll(0.1) is not None)


def follow(tracer: CallTracer) -> None:
    """In the steady state: the fetch sessions are there, and the follower only asks for what is new."""
    with TestCluster(brokers=2) as cluster:
        topic = cluster.create_topic(partitions=1)
        cluster.produce(topic, ["a"], partition=0)
        cluster.wait_in_sync(topic)
        with tracer.request():
            cluster.produce(topic, ["b"], partition=0)
            cluster.assert_produced(topic, ["a", "b"])


def elect(tracer: CallTracer) -> None:
    with TestCluster(brokers=3) as cluster:
        topic = cluster.create_topic(partitions=1)
        cluster.wait_in_sync(topic)
        leader = cluster.leader(topic)
        assert leader is not None
        with tracer.request():
            cluster.kill(leader)
            cluster.wait_until(lambda: cluster.leader(topic) not in (None, leader), "not elected")
            cluster.produce(topic, ["a"], partition=0)


def produce_classic(tracer: CallTracer) -> None:
    settings = {**SETTINGS, "listeners": ("classic://127.0.0.1:0",), "message_format": "classic"}
    with (
        Broker(**settings, log_flush_interval_messages=1) as broker,
        Producer(bootstrap=broker.listeners[0]) as producer,
        SimpleConsumer(broker.listeners[0]) as consumer,
    ):
        producer.send("t", b"a", partition=0)
        wait_for(lambda: values_of(consumer) == [b"a"])
        with tracer.request():
            producer.send("t", b"b", partition=0)
            wait_for(lambda: values_of(consumer) == [b"a", b"b"])


def compact(tracer: CallTracer) -> None:
    with Broker(**SETTINGS, config={"log.cleaner.backoff.ms": 50}) as broker, SimpleConsumer(broker) as consumer:
        with Admin(broker) as admin:
            admin.create_topic("t", configs=COMPACT)
        with tracer.request():
            with Producer(broker, linger_ms=0) as producer:
                for number in range(100):
                    producer.send("t", b"%d" % number * 50, b"key", partition=0).result(PATIENCE_S)
            wait_for(lambda: len(values_of(consumer)) < 50)


def register_schema(tracer: CallTracer) -> None:
    with TestBroker() as broker, serving(broker.bootstrap) as url:
        ask = Asking(url)
        assert ask.register("s", ONE) == 1
        with tracer.request():
            assert ask.register("s", TWO) == 2


def values_of(consumer: AnySimpleConsumer) -> list[bytes | None]:
    return [message.value for piece in consumer.read("t", 0, 0) for message in piece]


WAYS: dict[str, Callable[[CallTracer], None]] = {
    "A produce request": produce,
    "A fetch request": fetch,
    "A group join": join_group,
    "A transaction's end": end_transaction,
    "A follower's fetch": follow,
    "An election": elect,
    "A classic produce": produce_classic,
    "A compaction": compact,
    "A schema registered": register_schema,
}
BEFORE_THE_REQUEST = {
    "A follower's fetch": {"core/replica/replica_manager.py:LeadershipManager.apply"},
    "A schema registered": {"schemas/registry/server.py:make_app"},
}
"""Once, before requests: the broker becomes a follower, and the registry makes its routes."""
WITH_SPARK = {"A Spark read", "A load"}
"""They run in Spark's workers as well, processes of their own: tests/architecture checks that their functions exist."""


def test_every_way_of_the_page_is_played_or_needs_spark(checkout: Path) -> None:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert set(ways_of(page)) == {*WAYS, *WITH_SPARK}


@pytest.mark.parametrize("way", WAYS)
def test_request_enters_every_function_named_on_its_way(checkout: Path, tracer: CallTracer, way: str) -> None:
    page = (checkout / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = [f"{file}:{name}" for file, name in STEP.findall(ways_of(page)[way])]
    WAYS[way](tracer)
    tracer.stop()
    before = BEFORE_THE_REQUEST.get(way, set())
    assert before <= tracer.entered_before
    missing = [step for step in named if step not in tracer.entered | before]
    assert missing == [], f"{way}: the page names what this request does not enter"
