"""CreateTopics that takes its time: what is answered when, and what the disk is asked for."""

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.adapters.storage_memory.memory import MemoryFolder
from barnabas.adapters.system import SeededEntropy
from barnabas.app.broker.handlers.topic_creation import TOPICS_AT_A_TIME
from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import Topic
from barnabas.core.log.manager.creation import LogCreation, LogOpening
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.coordination import NodeChange
from barnabas.ports.error_codes import ErrorCode
from barnabas.testing.manual_broker import ManualBroker

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class SlowDisk(ManualBroker):
    """Work off the broker's thread takes up to 200 ms."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler._entropy, self.scheduler._offload_ms_max = SeededEntropy(1), 100.0


def request(count: int, timeout_ms: int = 60_000) -> CreateTopics:
    return CreateTopics(topics=[NewTopic(name=f"t{number}") for number in range(count)], timeout_ms=timeout_ms)


def test_create_topics_timeout_reports_unfinished_topics_that_are_created_later() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(100, timeout_ms=300))
    broker.scheduler.advance(299)
    assert not asked
    broker.scheduler.advance(1)
    codes = [topic.error for topic in asked[0].topics]
    done = codes.count(NONE)
    assert 0 < done < 100
    assert codes == [NONE] * done + [TIMED_OUT] * (100 - done), "in order"
    assert "will be" in (asked[0].topics[-1].error_message or "")
    broker.scheduler.advance(5000)
    assert len(broker.ask(Metadata(topics=None)).topics) == 100
    assert len(asked) == 1


def test_who_does_not_wait_is_answered_at_once() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(2, timeout_ms=0))
    assert [topic.error for topic in asked[0].topics] == [TIMED_OUT, TIMED_OUT]
    broker.scheduler.advance(1000)
    assert {topic.name for topic in broker.ask(Metadata(topics=None)).topics} == {"t0", "t1"}


def test_create_topics_rejects_more_partitions_than_limit_per_request() -> None:
    broker = ManualBroker()
    news = [NewTopic(name="a", partitions=6000), NewTopic(name="b", partitions=6000), NewTopic(name="c", partitions=1)]
    answer = broker.ask(CreateTopics(topics=news, validate_only=True))
    assert [topic.error for topic in answer.topics] == [NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.POLICY_VIOLATION]


def test_the_data_folder_is_flushed_once_for_many_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker()
    flushed: list[str] = []
    monkeypatch.setattr(MemoryFolder, "flush", lambda self: flushed.append(self.name))
    topics = [NewTopic(name=f"t{number}", partitions=10) for number in range(10)]
    answer = broker.ask(CreateTopics(topics=topics))
    assert {topic.error for topic in answer.topics} == {NONE}
    assert len(broker.node.state.replicas.partitions) == 100
    assert flushed == ["memory:"]


def _commits(broker: ManualBroker, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[NodeChange]]:
    found: list[Sequence[NodeChange]] = []
    coordination = broker.node.state.registry.coordination
    commit = coordination.commit

    def counted(changes: Sequence[NodeChange], **guards: Any) -> None:
        found.append(changes)
        commit(changes, **guards)

    monkeypatch.setattr(coordination, "commit", counted)
    return found


def test_several_topics_of_a_request_are_stored_in_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker()
    commits = _commits(broker, monkeypatch)
    topics = [NewTopic(name=f"t{number}", configs={"retention.ms": "1000"}) for number in range(10)]
    answer = broker.ask(CreateTopics(topics=topics))
    assert {topic.error for topic in answer.topics} == {NONE}
    assert [len(changes) for changes in commits] == [20]
    broker.restart()
    made = broker.ask(Metadata(topics=None)).topics
    assert {topic.name for topic in made} == {f"t{number}" for number in range(10)}


def test_a_topic_that_another_broker_has_just_made_costs_the_others_nothing() -> None:
    broker = ManualBroker()
    other = broker.tree.session()
    other.create(
        layout.topic_path("t1"), layout.encode_topic(Topic(name="t1", topic_id=bytes(15) + b"x", partitions={0: (1,)}))
    )
    answer = broker.ask(request(3))
    assert [topic.error for topic in answer.topics] == [NONE, ErrorCode.TOPIC_ALREADY_EXISTS, NONE]


def test_names_that_collide_in_metrics_are_refused_within_a_request() -> None:
    answer = ManualBroker().ask(CreateTopics(topics=[NewTopic(name="a.b"), NewTopic(name="a_b"), NewTopic(name="c")]))
    assert [topic.error for topic in answer.topics] == [NONE, ErrorCode.INVALID_TOPIC_EXCEPTION, NONE]


def test_logs_of_many_partitions_are_begun_by_several_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker()
    sizes: list[int] = []
    begin = LogCreation._begin_logs

    def counted(creation: LogCreation, openings: Sequence[tuple[LogOpening, bytes | None]]) -> None:
        sizes.append(len(openings))
        begin(creation, openings)

    monkeypatch.setattr(LogCreation, "_begin_logs", counted)
    broker.ask(CreateTopics(topics=[NewTopic(name="many", partitions=40), NewTopic(name="few", partitions=2)]))
    assert sizes == [14, 14, 14]


def test_one_topic_does_not_wait_behind_many() -> None:
    broker = SlowDisk()
    many = broker.submit(request(200))
    broker.scheduler.advance(50)
    one = broker.submit(CreateTopics(topics=[NewTopic(name="one")], timeout_ms=60_000))
    while not one:
        broker.scheduler.advance(10)
    known = len(broker.ask(Metadata(topics=None)).topics)
    assert not many
    assert known <= 1 + 3 * TOPICS_AT_A_TIME, "it waits for the change that was under way, and for one more at most"


def test_a_stop_in_between_ends_in_order() -> None:
    broker = SlowDisk()
    broker.submit(request(100))
    broker.scheduler.advance(350)
    broker.restart()
    broker.scheduler.advance(5000)
    made = broker.ask(Metadata(topics=None)).topics
    assert 0 < len(made) < 100
    assert {p.leader for topic in made for p in topic.partitions} == {1}
    assert not [line for line in broker.reports if "no clean shutdown" in line]
