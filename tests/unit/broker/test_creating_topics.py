"""CreateTopics that takes its time: what is answered when, and what the disk is asked for."""

import pytest

from barnabas.adapters.storage_memory.memory import MemoryFolder
from barnabas.adapters.system import SeededEntropy
from barnabas.ports.broker_api import CreateTopics, Metadata, NewTopic
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


def test_what_is_not_made_in_time_is_told_and_made_all_the_same() -> None:
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


def test_one_request_makes_so_many_partitions() -> None:
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


def test_a_stop_in_between_ends_in_order() -> None:
    broker = SlowDisk()
    broker.submit(request(100))
    broker.scheduler.advance(350)
    broker.restart()
    broker.scheduler.advance(5000)
    made = broker.ask(Metadata(topics=None)).topics
    assert 0 < len(made) < 100
    assert {p.leader for topic in made for p in topic.partitions} == {1}
    assert not [line for line in broker.reports if "no orderly stop" in line]
