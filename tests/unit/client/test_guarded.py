"""Machines behind the lock of their users: what holds it, and what does not."""

from threading import Condition, Lock
from typing import Any

from barnabas.adapters.system import ManualClock, SeededEntropy
from barnabas.app.clients.shared.locked import Locked, LockedSender
from barnabas.core.client.cluster_view import ClusterView, ViewSettings
from barnabas.core.client.effects import NEVER, Poll, Send
from barnabas.core.client.producer.record_accumulator import AccumulatorSettings, RecordAccumulator
from barnabas.core.client.producer.sender import Sender, SenderSettings
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.cluster import BrokerNode
from barnabas.ports.broker_api.metadata import Metadata, MetadataResult, PartitionMetadata, TopicMetadata
from barnabas.ports.errors import ClosedError
from barnabas.ports.types import TopicPartition


def test_a_machine_is_polled_and_answered_with_the_lock_and_heard_without() -> None:
    lock, held = Lock(), list[tuple[str, bool]]()

    class Machine:
        def poll(self, now_ms: float) -> Poll:
            held.append(("poll", lock.locked()))
            return Poll([Send(1, Metadata(), lambda *_: held.append(("answer", lock.locked())))], NEVER)

    guarded = Locked(Machine(), Condition(lock), lambda: held.append(("after", lock.locked())))
    guarded.poll(0).sends[0].answer("fine", 0)
    assert held == [("poll", True), ("after", False), ("answer", True), ("after", False)]


def test_batches_are_compressed_without_the_lock_and_settled_with_it() -> None:
    lock, clock, held = Lock(), ManualClock(), list[tuple[str, bool]]()
    view = ClusterView([("home", 1)], SeededEntropy(1), ViewSettings())
    view.add_topics(["t"])
    view.poll(0).sends[0].answer(
        MetadataResult(
            brokers=[BrokerNode(node_id=1, host="home", port=1)],
            cluster_id="home",
            controller_id=1,
            topics=[
                TopicMetadata(
                    name="t",
                    partitions=[PartitionMetadata(partition=0, leader=1, leader_epoch=0, replicas=[1], isr=[1])],
                )
            ],
        ),
        0,
    )
    accumulator = RecordAccumulator(AccumulatorSettings(linger_ms=0), clock, lambda _: None)
    accumulator.append(TopicPartition("t", 0), (b"x", None, (), None), 100)

    def codec_for(_: str) -> Any:
        held.append(("compress", lock.locked()))
        return builtin_codecs().by_name("gzip")

    def settled(_: Any) -> None:
        held.append(("settled", lock.locked()))

    sender = Sender(
        accumulator, view, SeededEntropy(1), SenderSettings(retries=0), codec_for=codec_for, settled=settled
    )
    guarded = LockedSender(sender, Condition(lock), lambda: held.append(("after", lock.locked())))
    (send,) = guarded.poll(10).sends
    send.answer(ClosedError("gone"), 20)
    assert held == [("compress", False), ("after", False), ("settled", True), ("after", False)]
