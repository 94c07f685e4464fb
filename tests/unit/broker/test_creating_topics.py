"""CreateTopics that takes its time: what is answered when, and what the disk is asked for."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.coordination_faults import BlockingCoordination, FaultyCoordination

from barnabas.adapters.storage_memory import MemoryFolder
from barnabas.adapters.system import SeededEntropy
from barnabas.app.broker.handlers.topic_creation import COMMITS_AT_A_TIME, TOPICS_AT_A_TIME
from barnabas.core.cluster import layout
from barnabas.core.cluster.topics import Topic
from barnabas.core.log.manager.creation import LogCreation, LogOpening
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import CreateTopics, DeleteTopics, NewTopic
from barnabas.ports.coordination import CHANGES_MAX, Coordination, NodeChange
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import StorageError
from barnabas.testing.manual_broker import ManualBroker

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT


class SlowDisk(ManualBroker):
    """Work off the broker's thread takes up to 200 ms, also that of the coordination service."""

    def __init__(self) -> None:
        super().__init__(wrap_session=BlockingCoordination)
        self.scheduler._entropy, self.scheduler._offload_ms_max = SeededEntropy(1), 100.0


def request(count: int, timeout_ms: int = 60_000) -> CreateTopics:
    return CreateTopics(topics=[NewTopic(name=f"t{number}") for number in range(count)], timeout_ms=timeout_ms)


def test_create_topics_timeout_reports_unfinished_topics_that_are_created_later() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(600, timeout_ms=200))
    broker.scheduler.advance(199)
    assert not asked
    broker.scheduler.advance(1)
    codes = [topic.error for topic in asked[0].topics]
    done = codes.count(NONE)
    assert 0 < done < 600
    assert codes == [NONE] * done + [TIMED_OUT] * (600 - done), "in order"
    assert "will be" in (asked[0].topics[-1].error_message or "")
    broker.scheduler.advance(5000)
    assert len(broker.ask(Metadata(topics=None)).topics) == 600
    assert len(asked) == 1


def test_request_without_wait_is_answered_at_once() -> None:
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


def test_commits_of_a_large_request_are_made_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SlowDisk()
    under_way: list[int] = []
    offload = broker.scheduler.offload
    begun = 0

    def counted(work: Any, done: Any) -> None:
        nonlocal begun
        begun += 1
        under_way.append(begun)

        def ended(outcome: Any) -> None:
            nonlocal begun
            begun -= 1
            done(outcome)

        offload(work, ended)

    monkeypatch.setattr(broker.scheduler, "offload", counted)
    asked = broker.submit(request(COMMITS_AT_A_TIME * CHANGES_MAX))
    while not asked:
        broker.scheduler.advance(10)
    assert {topic.error for topic in asked[0].topics} == {NONE}
    assert max(under_way) == COMMITS_AT_A_TIME


def test_a_topic_that_exists_already_costs_the_other_commits_of_a_large_request_nothing() -> None:
    broker = SlowDisk()
    topic = Topic(name="t50", topic_id=bytes(15) + b"x", partitions={0: (1,)})
    broker.tree.session().create(layout.topic_path("t50"), layout.encode_topic(topic))
    asked = broker.submit(request(100))
    while not asked:
        broker.scheduler.advance(10)
    errors = {topic.name: topic.error for topic in asked[0].topics if topic.error is not NONE}
    assert errors == {"t50": ErrorCode.TOPIC_ALREADY_EXISTS}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_commit_without_an_answer_fails_only_its_topics_which_are_read_again(is_done: bool) -> None:
    faults: list[FaultyCoordination] = []

    def faulty(session: Coordination) -> Coordination:
        faults.append(FaultyCoordination(session))
        return BlockingCoordination(faults[-1])

    broker = ManualBroker(wrap_session=faulty)
    commits = sum(name == "commit" for name, _ in faults[-1].calls)
    faults[-1].fail("commit", commits + 2, done=is_done)
    asked = broker.submit(request(100))
    broker.scheduler.advance(10_000)
    failed = [topic.name for topic in asked[0].topics if topic.error is not NONE]
    assert failed == [f"t{number}" for number in range(40, 80)]
    assert {topic.error for topic in asked[0].topics} == {NONE, TIMED_OUT}
    made = {topic.name for topic in broker.ask(Metadata(topics=None)).topics}
    assert made == {topic.name for topic in asked[0].topics if is_done or topic.name not in failed}
    assert leaders(broker) == [1] * len(made)


def test_large_request_for_topics_that_exist_says_so() -> None:
    broker = ManualBroker(wrap_session=BlockingCoordination)
    for error in (NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        assert {topic.error for topic in broker.ask(request(100)).topics} == {error}


def test_names_that_collide_in_metrics_in_two_commits_of_a_request_are_refused() -> None:
    broker = ManualBroker(wrap_session=BlockingCoordination)
    names = ["a.b", *(f"t{number}" for number in range(60)), "a_b"]
    answer = broker.ask(CreateTopics(topics=[NewTopic(name=name) for name in names]))
    errors = {topic.name: topic.error for topic in answer.topics if topic.error is not NONE}
    assert errors == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


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
    many = broker.submit(request(600))
    broker.scheduler.advance(50)
    one = broker.submit(CreateTopics(topics=[NewTopic(name="one")], timeout_ms=60_000))
    while not one:
        broker.scheduler.advance(10)
    known = len(broker.ask(Metadata(topics=None)).topics)
    assert not many
    most = 1 + 2 * COMMITS_AT_A_TIME * CHANGES_MAX
    assert known <= most, "it waits for the change that was under way, and for one more at most"


def leaders(broker: ManualBroker) -> list[int]:
    return [each.leader for topic in broker.ask(Metadata(topics=None)).topics for each in topic.partitions]


def test_request_of_many_topics_is_answered_when_the_tree_has_them_and_their_logs_follow() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(30))
    while not asked:
        broker.scheduler.advance(10)
    assert {topic.error for topic in asked[0].topics} == {NONE}
    assert leaders(broker) == [-1] * 30
    assert not broker.node.state.replicas.partitions
    refused = broker.node.state.unknown_partition("t29", 0)
    assert (refused.code, refused.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t29-0 is being made")
    broker.scheduler.advance(5000)
    assert leaders(broker) == [1] * 30


def test_request_of_a_few_topics_is_answered_when_their_logs_exist() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(TOPICS_AT_A_TIME))
    while not asked:
        broker.scheduler.advance(1)
    assert leaders(broker) == [1] * TOPICS_AT_A_TIME


def test_topic_deleted_before_its_logs_were_created_gets_none() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(30))
    while not asked:
        broker.scheduler.advance(10)
    deleted = broker.submit(DeleteTopics(names=["t20"]))
    broker.scheduler.advance(5000)
    assert deleted[0].topics[0].error is NONE
    assert leaders(broker) == [1] * 29
    assert ("t20", 0) not in broker.node.state.logs.logs()


def test_stored_topics_whose_logs_a_stop_prevented_are_opened_by_the_next_start() -> None:
    broker = SlowDisk()
    asked = broker.submit(request(30))
    while not asked:
        broker.scheduler.advance(10)
    broker.restart()
    assert leaders(broker) == [1] * 30


def test_logs_that_cannot_be_created_after_the_answer_leave_the_topics_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SlowDisk()
    asked = broker.submit(request(30))
    while not asked:
        broker.scheduler.advance(10)
    create = LogOpening.create

    def failing(opening: LogOpening, topic_id: bytes | None) -> Any:
        if opening.partition.topic == "t3":
            raise StorageError("the disk is full")
        return create(opening, topic_id)

    monkeypatch.setattr(LogOpening, "create", failing)
    broker.scheduler.advance(5000)
    assert [line for line in broker.reports if "opening the logs of topic t3 failed" in line]
    assert leaders(broker).count(-1) == 1
    assert broker.node.state.unknown_partition("t3", 0).code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_stop_in_between_ends_in_order() -> None:
    broker = SlowDisk()
    broker.submit(request(300))
    while not broker.node.state.image.topics:
        broker.scheduler.advance(1)
    broker.restart()
    broker.scheduler.advance(5000)
    made = broker.ask(Metadata(topics=None)).topics
    assert 0 < len(made) < 300
    assert {p.leader for topic in made for p in topic.partitions} == {1}
    assert not [line for line in broker.reports if "no clean shutdown" in line]
