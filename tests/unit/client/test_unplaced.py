"""Messages that wait for the metadata of their topic: each for as long as it may, and no longer."""

from collections.abc import Sequence
from typing import Any

from barnabas.adapters.system import ManualClock, SeededEntropy
from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.producer.pending_messages import PendingMessage, PendingTopicMessages
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.metadata import MetadataResult, TopicMetadata
from barnabas.ports.broker_api.metadata import PartitionMetadata as Part
from barnabas.ports.errors import BarnabasError
from barnabas.ports.transport import TransportError
from barnabas.ports.types import TopicPartition


class Waiting:
    """Messages that wait, with what became of them."""

    def __init__(self, limit_ms: float = 100) -> None:
        self.view = ClusterView([("home", 1)], SeededEntropy(1), ViewSettings())
        self.routed: list[tuple[object, float]] = []
        self.failed: list[tuple[list[object], BarnabasError]] = []
        self.messages = PendingTopicMessages(
            self.view, limit_ms=limit_ms, limit_key="delivery.timeout.ms", route=self._route, failed=self._failed
        )

    def _route(self, topic: str, message: PendingMessage, since_ms: float) -> None:
        self.routed.append((message.token, since_ms))

    def _failed(self, group: Sequence[PendingMessage], error: BarnabasError) -> None:
        self.failed.append(([each.token for each in group], error))

    def put(self, token: object, now_ms: float, topic: str = "t") -> None:
        self.messages.put(topic, PendingMessage((b"x", None, (), None), None, 1, token), now_ms)

    def answer(self, result: Any, now_ms: float) -> None:
        (send,) = self.view.poll(now_ms).sends
        send.answer(result, now_ms)


def test_each_message_fails_when_its_own_time_is_over() -> None:
    waiting = Waiting(limit_ms=100)
    waiting.put("first", 0)
    waiting.put("second", 60)
    assert waiting.messages.poll(99).wake_ms == 100
    assert not waiting.failed
    assert waiting.messages.poll(100).wake_ms == 160
    assert [tokens for tokens, _ in waiting.failed] == [["first"]]
    assert "t" in waiting.messages
    waiting.messages.poll(160)
    assert [tokens for tokens, _ in waiting.failed] == [["first"], ["second"]]
    assert "t" not in waiting.messages


def test_the_error_names_the_setting_and_the_cause() -> None:
    waiting = Waiting(limit_ms=100)
    waiting.put("message", 0)
    waiting.answer(TransportError("cannot connect to home:1: Connection refused"), 10)
    waiting.messages.poll(100)
    ((_, error),) = waiting.failed
    assert "no metadata of topic t within delivery.timeout.ms (100 ms)" in str(error)
    assert str(error).endswith("; last: cannot connect to home:1: Connection refused")


def test_a_message_that_gets_its_place_has_waited_since_it_was_sent() -> None:
    waiting = Waiting(limit_ms=100)
    waiting.put("message", 20)
    topic = TopicMetadata(name="t", partitions=[Part(partition=0, leader=1, leader_epoch=0, replicas=[1], isr=[1])])
    broker = BrokerNode(node_id=1, host="home", port=1)
    waiting.answer(MetadataResult(cluster_id="c", controller_id=1, brokers=[broker], topics=[topic]), 90)
    waiting.messages.poll(90)
    assert waiting.routed == [("message", 20)]


def test_delivery_timeout_of_batch_starts_with_send() -> None:
    clock = ManualClock()
    clock.advance(90)
    accumulator = RecordAccumulator(AccumulatorSettings(delivery_timeout_ms=100), clock, lambda _: None)
    batch = accumulator.append(TopicPartition("t", 0), (b"x", None, (), None), 1, since_ms=20)
    assert accumulator.expire(119) == ([], 120)
    assert accumulator.expire(120)[0] == [batch]


def test_other_topics_do_not_shorten_it() -> None:
    waiting = Waiting(limit_ms=100)
    waiting.put("one", 0, "t")
    waiting.put("other", 10, "u")
    waiting.messages.poll(100)
    assert [tokens for tokens, _ in waiting.failed] == [["one"]]
