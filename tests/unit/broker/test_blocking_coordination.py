"""Changes of topics and configs over a coordination service that blocks, fails, and loses answers."""

from collections.abc import Sequence
from typing import Any

import pytest
from support.coordination_faults import BlockingCoordination

from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigDescription,
    ConfigResource,
    DescribeConfigs,
    IncrementalAlterConfigs,
    ResourceKind,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import (
    CreatePartitions,
    CreateTopics,
    CreateTopicsResult,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from barnabas.ports.coordination import Coordination
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import StorageError
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import ManualBroker

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR


class SlowBroker(ManualBroker):
    """A broker whose coordination calls are made off its thread."""

    def __init__(self) -> None:
        self.sessions: list[BlockingCoordination] = []
        super().__init__(wrap_session=self._slow)

    def _slow(self, session: Coordination) -> Coordination:
        self.sessions.append(BlockingCoordination(session))
        return self.sessions[-1]

    @property
    def service(self) -> BlockingCoordination:
        return self.sessions[-1]

    def create_topics(self, *names: str, **configs: str) -> list[ErrorCode]:
        return _errors(self.ask(CreateTopics(topics=[NewTopic(name=name, configs=configs) for name in names])))

    def delete(self, name: str) -> ErrorCode:
        return self.ask(DeleteTopics(names=[name])).topics[0].error

    def grow(self, name: str, count: int) -> ErrorCode:
        return self.ask(CreatePartitions(topics=[NewPartitions(topic=name, count=count)])).topics[0].error

    def alter(self, resource: ConfigResource, key: str, value: str) -> ErrorCode:
        change = ConfigAlteration(resource=resource, name=key, value=value)
        request = IncrementalAlterConfigs(resources=[resource], alterations=[change])
        return self.ask(request).resources[0].error

    def config(self, resource: ConfigResource, key: str) -> str | None:
        request = DescribeConfigs(resources=[ConfigDescription(resource=resource, keys=[key])])
        entries = self.ask(request).resources[0].entries
        return entries[0].value if entries else None

    def partitions(self, name: str) -> int:
        topic = self.ask(Metadata(topics=[name], allow_auto_topic_creation=False)).topics[0]
        return len(topic.partitions)

    def names(self) -> set[str]:
        return {topic.name or "" for topic in self.ask(Metadata(topics=None)).topics}

    def later(self) -> None:
        """Long enough to look again at what a failed change has left."""
        self.scheduler.advance(120_000)

    def topics_after_a_restart(self) -> set[str]:
        self.restart()
        return self.names()


def _errors(result: CreateTopicsResult) -> list[ErrorCode]:
    return [topic.error for topic in result.topics]


TOPIC = ConfigResource(kind=ResourceKind.TOPIC, name="t")
BROKER = ConfigResource(kind=ResourceKind.BROKER, name="1")
ALL_BROKERS = ConfigResource(kind=ResourceKind.BROKER, name="")


@pytest.fixture
def broker() -> SlowBroker:
    return SlowBroker()


def test_other_requests_are_answered_while_a_change_waits(broker: SlowBroker) -> None:
    broker.create("t")
    created = broker.submit(CreateTopics(topics=[NewTopic(name="u")]))
    known = broker.submit(Metadata(topics=["t"]))
    missing = broker.submit(Metadata(topics=["t", "v"]))
    assert not created
    assert [topic.name for topic in known[0].topics] == ["t"]
    assert not missing, "it makes a topic, which is a change"
    broker.scheduler.run_pending()
    assert _errors(created[0]) == [NONE]
    assert [(topic.name, topic.error) for topic in missing[0].topics] == [("t", NONE), ("v", NONE)]
    assert broker.produce("v", b"x").error is NONE
    assert broker.topics_after_a_restart() == {"t", "u", "v"}


def test_second_concurrent_create_of_topic_gets_topic_already_exists(broker: SlowBroker) -> None:
    requests = [CreateTopics(topics=[NewTopic(name="t")]) for _ in range(2)]
    first, second = (broker.submit(request) for request in requests)
    named = [broker.submit(Metadata(topics=["t", "auto"])) for _ in range(3)]
    gone = broker.submit(DeleteTopics(names=["t"]))
    again = broker.submit(CreateTopics(topics=[NewTopic(name="t", partitions=2)]))
    broker.scheduler.run_pending()
    assert (_errors(first[0]), _errors(second[0])) == ([NONE], [ErrorCode.TOPIC_ALREADY_EXISTS])
    assert [[topic.error for topic in answer[0].topics] for answer in named] == [[NONE, NONE]] * 3
    assert (gone[0].topics[0].error, _errors(again[0])) == (NONE, [NONE])
    assert (broker.names(), broker.partitions("t")) == ({"t", "auto"}, 2)


def test_topic_and_config_changes_work_with_slow_coordination(broker: SlowBroker) -> None:
    assert broker.create_topics("t", "u", "t.t") == [NONE, NONE, NONE]
    assert broker.grow("t", 3) is NONE
    assert broker.alter(TOPIC, "retention.ms", "5") is NONE
    assert broker.alter(BROKER, "log.flush.interval.messages", "7") is NONE
    assert broker.alter(ALL_BROKERS, "log.flush.interval.ms", "8") is NONE
    assert broker.delete("u") is NONE
    for _ in range(2):
        config = broker.node.state.replicas.partitions[("t", 2)].log.config
        assert (config.retention_ms, config.flush_messages, config.flush_ms) == (5, 7, 8)
        assert broker.topics_after_a_restart() == {"t", "t.t"}


def test_while_the_service_cannot_be_reached_changes_fail_and_all_else_works(broker: SlowBroker) -> None:
    broker.create("t")
    broker.service.down = True
    reports = len(broker.reports)
    calls = len(broker.service.calls)
    answer = broker.ask(CreateTopics(topics=[NewTopic(name="u"), NewTopic(name="v"), NewTopic(name="w")]))
    assert _errors(answer) == [TIMED_OUT] * 3
    assert "not connected" in (answer.topics[0].error_message or "")
    assert broker.delete("t") is TIMED_OUT
    assert broker.grow("t", 2) is TIMED_OUT
    assert broker.alter(TOPIC, "retention.ms", "5") is TIMED_OUT
    assert broker.alter(BROKER, "log.flush.interval.messages", "7") is TIMED_OUT
    assert broker.ask(Metadata(topics=["x"])).topics[0].error is ErrorCode.LEADER_NOT_AVAILABLE
    assert broker.produce("t", b"still works").error is NONE
    assert broker.values("t") == [b"still works"]
    assert (broker.names(), broker.partitions("t"), broker.config(TOPIC, "retention.ms")) == ({"t"}, 1, "604800000")
    assert len(broker.service.calls) == calls
    assert len(broker.reports) == reports + 1, broker.reports
    broker.later()
    broker.service.down = False
    broker.later()
    assert (broker.names(), broker.partitions("t")) == ({"t"}, 1)
    assert broker.create_topics("u") == [NONE]
    assert broker.topics_after_a_restart() == {"t", "u"}


def test_invalid_requests_are_rejected_while_coordination_is_down(broker: SlowBroker) -> None:
    broker.service.down = True
    assert broker.create_topics("..") == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert broker.create_topics("t", **{"no.such.key": "1"}) == [ErrorCode.INVALID_CONFIG]
    assert broker.delete("t") is TIMED_OUT  # another broker may have created it
    broker.service.down = False
    assert broker.delete("t") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("restarted", [False, True])
def test_topic_whose_creation_timed_out_appears_later(broker: SlowBroker, restarted: bool) -> None:
    broker.service.fail("commit", len([name for name, _ in broker.service.calls if name == "commit"]) + 1)
    assert broker.create_topics("t") == [TIMED_OUT]  # its node was made, but who knows
    assert broker.names() == set()
    if restarted:
        broker.restart()
    else:
        broker.later()
    assert broker.names() == {"t"}
    assert broker.produce("t", b"x").error is NONE
    assert broker.values("t") == [b"x"]


def test_a_topic_whose_making_was_not_answered_is_found_by_who_tries_again(broker: SlowBroker) -> None:
    broker.service.deaf = True
    assert broker.create_topics("t", **{"retention.ms": "5"}) == [TIMED_OUT]
    broker.service.deaf = False
    assert broker.create_topics("t") == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert broker.config(ConfigResource(kind=ResourceKind.TOPIC, name="t"), "retention.ms") == "5"  # both or neither
    broker.service.fail("commit", len([name for name, _ in broker.service.calls if name == "commit"]) + 1)
    assert broker.ask(Metadata(topics=["u"])).topics[0].error is ErrorCode.LEADER_NOT_AVAILABLE
    assert broker.ask(Metadata(topics=["u"])).topics[0].error is NONE
    assert broker.create_topics("u") == [ErrorCode.TOPIC_ALREADY_EXISTS]
    assert broker.produce("u", b"x").error is NONE


def test_a_deletion_that_was_not_answered_is_finished(broker: SlowBroker) -> None:
    broker.create("t")
    broker.produce("t", b"gone")
    broker.service.deaf = True
    assert broker.delete("t") is TIMED_OUT
    assert broker.names() == {"t"}
    broker.service.deaf = False
    broker.later()
    assert broker.names() == set()
    assert broker.produce("t", b"x").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.create("t")
    assert broker.values("t") == []
    assert broker.topics_after_a_restart() == {"t"}


def test_a_deletion_counts_once_it_is_marked(broker: SlowBroker) -> None:
    broker.create("t")
    service = broker.service
    service.before("delete", 1, lambda: setattr(service, "down", True))
    service.fail("delete", 1, done=False)
    assert broker.delete("t") is NONE
    assert broker.names() == set()
    service.down = False
    assert broker.create_topics("t") == [NONE], "what was left is removed first"
    assert broker.topics_after_a_restart() == {"t"}


def test_growth_that_was_not_answered_is_found(broker: SlowBroker) -> None:
    broker.create("t")
    broker.service.deaf = True
    assert broker.grow("t", 3) is TIMED_OUT
    assert broker.partitions("t") == 1
    broker.service.deaf = False
    assert broker.grow("t", 3) is ErrorCode.INVALID_PARTITIONS, "it has them"
    assert broker.produce("t", b"x", partition=2).error is NONE


@pytest.mark.parametrize("resource", [TOPIC, BROKER, ALL_BROKERS])
def test_configs_whose_storing_was_not_answered_count_in_the_end(broker: SlowBroker, resource: ConfigResource) -> None:
    broker.create("t")
    key = "flush.messages" if resource is TOPIC else "log.flush.interval.messages"
    assert broker.alter(resource, key, "6") is NONE
    broker.service.deaf = True
    assert broker.alter(resource, key, "7") is TIMED_OUT
    assert broker.config(resource, key) == "6"
    broker.service.deaf = False
    broker.later()
    assert broker.config(resource, key) == "7"
    assert broker.node.state.replicas.partitions[("t", 0)].log.config.flush_messages == 7


@pytest.mark.parametrize("is_new", [True, False])
def test_partitions_stay_if_the_disk_of_another_new_one_fails(
    broker: SlowBroker, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    """Clients may have had messages acknowledged in those that are open, before the failure was known."""
    create = UnifiedLog.create

    def broken(folder: Any, *, topic_partition: TopicPartition, **others: Any) -> UnifiedLog:
        if topic_partition == ("u", 1):
            raise StorageError("the disk is full")
        return create(folder, topic_partition=topic_partition, **others)

    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "create", broken)
        if is_new:
            broker.create("u", partitions=3)
        else:
            broker.create("u", partitions=1)
            assert broker.grow("u", 3) is NONE
    assert (broker.names(), broker.partitions("u")) == ({"u"}, 3)
    assert [broker.produce("u", b"x", partition=each).error for each in range(3)] == [NONE, STORAGE_ERROR, NONE]
    assert [line for line in broker.reports if "opening the logs of topic u failed" in line]
    broker.restart()
    assert broker.produce("u", b"x", partition=1).error is NONE


def test_a_disk_that_fails_leaves_no_topic(broker: SlowBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    broker.create("t")
    with monkeypatch.context() as patch:
        patch.setattr(UnifiedLog, "create", broken)
        assert broker.create_topics("u") == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert broker.grow("t", 2) is ErrorCode.KAFKA_STORAGE_ERROR
        broker.service.fail("commit", [name for name, _ in broker.service.calls].count("commit") + 2, done=False)
        assert broker.grow("t", 2) is TIMED_OUT  # taking it back failed
    assert (broker.names(), broker.partitions("t")) == ({"t"}, 2)
    broker.later()
    assert broker.produce("t", b"x", partition=1).error is NONE
    assert broker.topics_after_a_restart() == {"t"}


def test_changes_that_wait_when_the_broker_stops_are_forgotten(broker: SlowBroker) -> None:
    waiting: Sequence[list[CreateTopicsResult]] = [
        broker.submit(CreateTopics(topics=[NewTopic(name=name)])) for name in ("t", "u", "v")
    ]
    broker.service.down = True
    broker.restart()
    assert broker.create_topics("w") == [NONE]
    assert broker.names() - {"t"} == {"w"}
    assert all(len(answers) <= 1 for answers in waiting)
