"""Topics that Metadata makes by naming them: off the broker's thread, and a bounded number of them."""

from collections.abc import Callable

import pytest

from barnabas.app.broker.handlers.topic_creation import COMMITS_AT_A_TIME
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import CreateTopics, NewTopic
from barnabas.ports.coordination import CHANGES_MAX
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import StorageError
from barnabas.testing.manual_broker import ManualBroker, produce

NONE, LATER, UNKNOWN = ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def errors(broker: ManualBroker, *names: str) -> dict[str | None, ErrorCode]:
    return {topic.name: topic.error for topic in broker.ask(Metadata(topics=list(names))).topics}


def test_more_than_a_request_may_make_are_asked_for_again() -> None:
    broker = ManualBroker(auto_create_topics_max_per_request=20, auto_create_topics_max_per_second=10)
    names = [f"t{number}" for number in range(50)]
    first = errors(broker, *names)
    assert [name for name, error in first.items() if error is NONE] == names[:20], "in the order of the request"
    assert set(list(first.values())[20:]) == {LATER}
    assert errors(broker, *names)["t20"] is LATER, "no time has passed"
    assert sum("auto.create.topics.max.per.second=10" in line for line in broker.reports) == 1
    broker.scheduler.advance(1000)
    again = errors(broker, *names)
    assert [name for name, error in again.items() if error is NONE] == names[:30]
    for _ in range(2):
        broker.scheduler.advance(1000)
        again = errors(broker, *names)
    assert set(again.values()) == {NONE}
    assert len(broker.node.state.image.topics) == 50
    assert sum("they get LEADER_NOT_AVAILABLE and retry" in line for line in broker.reports) == 1, (
        "not one line for each request"
    )


def test_auto_creation_rejects_invalid_names_without_counting_them_to_limit() -> None:
    broker = ManualBroker(auto_create_topics_max_per_request=1)
    assert errors(broker, "a/b", "..", "fine") == {
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "..": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "fine": NONE,
    }


def test_requests_during_auto_creation_get_retriable_errors() -> None:
    broker = ManualBroker()
    asked = broker.submit(Metadata(topics=["t"]))
    known = broker.submit(Metadata(topics=["t"], allow_auto_topic_creation=False))[0].topics[0]
    assert (known.error, [(p.leader, p.error) for p in known.partitions]) == (NONE, [(-1, LATER)])
    assert broker.submit(produce("t", b"x"))[0].partitions[0].error is UNKNOWN
    assert not asked
    broker.scheduler.run_pending()
    assert (asked[0].topics[0].error, asked[0].topics[0].partitions[0].leader) == (NONE, 1)
    assert broker.produce("t", b"x").error is NONE


def test_metadata_answers_leader_not_available_when_auto_creation_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker()
    offloaded: list[Callable[[], object]] = []
    with monkeypatch.context() as patch:
        patch.setattr(broker.scheduler, "offload", lambda work, done: offloaded.append(lambda: done(work())))
        patch.setattr("barnabas.core.log.manager.creation.LogCreation.__call__", lambda _: None)
        first, second = (broker.submit(Metadata(topics=["t", name])) for name in ("u", "v"))
        broker.scheduler.advance(500)
        assert (first, second) == ([], [])
        broker.scheduler.advance(600)
    assert [topic.error for topic in second[0].topics] == [NONE, LATER], "t is known, and has no leader yet"
    assert second[0].topics[0].partitions[0].error is LATER
    assert len(first) == len(second) == 1


def test_auto_creation_reports_storage_error_and_succeeds_on_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = ManualBroker()

    def broken(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    with monkeypatch.context() as patch:
        patch.setattr("barnabas.core.log.partition_log.unified_log.UnifiedLog.create", broken)
        assert errors(broker, "t") == {"t": ErrorCode.KAFKA_STORAGE_ERROR}
    assert errors(broker, "t") == {"t": NONE}


def test_auto_creation_is_not_delayed_by_large_create_topics_request() -> None:
    broker = ManualBroker()
    big = broker.submit(CreateTopics(topics=[NewTopic(name=f"big{number}") for number in range(500)]))
    small = broker.submit(Metadata(topics=["small"]))
    broker.scheduler.run_until(lambda: bool(small))
    assert small[0].topics[0].error is NONE
    assert len(broker.node.state.image.topics) <= 1 + 2 * COMMITS_AT_A_TIME * CHANGES_MAX
    broker.scheduler.run_until(lambda: bool(big))
    assert {topic.error for topic in big[0].topics} == {NONE}
