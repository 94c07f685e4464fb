"""The partitions of a broker, without one: come and go, append until the replicas have it, read as far as one may."""

from collections.abc import Sequence

import pytest
from support.replica_harness import ME, OTHER, ReplicaHarness, reached

from barnabas.core.log.append_origin import AppendOrigin
from barnabas.core.log.config import LogConfig
from barnabas.core.message.message_set import MessageSet
from barnabas.core.replica.leader import appender
from barnabas.core.replica.partition.fetch_isolation import FetchIsolation
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.fetch import FetchResultPartition
from barnabas.ports.broker_api.produce import ProducePartition, ProduceResultPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.ports.types import TopicPartition
from barnabas.testing.logs import numbered, put
from barnabas.testing.manual_broker import batch


@pytest.fixture
def harness() -> ReplicaHarness:
    return ReplicaHarness()


def codes(observed: Sequence[ProduceResultPartition | FetchResultPartition]) -> list[ErrorCode]:
    return [each.error for each in observed]


def count(result: FetchResultPartition) -> int:
    return len(list(MessageSet(result.records, builtin_codecs())))


# --- coming and going


def sent(harness: ReplicaHarness, sequence: int, producer: int = 1) -> ErrorCode:
    observed: list[ProduceResultPartition] = []

    def done(results: Sequence[ProduceResultPartition] | ApiError) -> None:
        assert not isinstance(results, ApiError)
        observed.extend(results)

    records = numbered(b"%d" % sequence, producer=producer, sequence=sequence)
    harness.replicas.append([ProducePartition("t", 0, records)], done, acks=1, timeout_ms=0)
    return observed[0].error


def test_a_producer_that_was_early_begins_where_it_was_refused(harness: ReplicaHarness) -> None:
    """It has heard of a new topic before its leader has made the log; the other batch was on its way already."""
    assert [sent(harness, 0), sent(harness, 1)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    harness.open()
    assert sent(harness, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [sent(harness, 0), sent(harness, 1), sent(harness, 2)] == [ErrorCode.NONE] * 3
    assert sent(harness, 7, producer=2) is ErrorCode.NONE, "one without a refusal may begin anywhere"


def test_early_batches_expire(harness: ReplicaHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appender, "BATCHES_MAX", 10)
    sent(harness, 0)
    harness.clock.advance(appender.PATIENCE_MS + 1)
    for producer in range(2, 14):
        sent(harness, 0, producer)
    harness.open()
    assert sent(harness, 1) is ErrorCode.NONE, "it was long ago"
    assert sent(harness, 1, 2) is ErrorCode.NONE, "there were too many since"
    assert sent(harness, 1, 13) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_partition_listeners_are_called_in_order(harness: ReplicaHarness) -> None:
    observed: list[tuple[int, str, object]] = []

    def listen(number: int) -> None:
        harness.replicas.listen(
            lambda partition: observed.append((number, "opened", partition.topic_partition)),
            lambda keys: observed.append((number, "dropped", tuple(keys))),
        )

    listen(1)
    listen(2)
    key = harness.open().topic_partition
    harness.open()
    assert observed == [(1, "opened", key), (2, "opened", key)], "what is here already does not come again"
    observed.clear()
    never_here = TopicPartition("t", 7)
    assert harness.replicas.drop([key, never_here])
    assert observed == [(1, "dropped", (key, never_here)), (2, "dropped", (key, never_here))]
    assert key not in harness.replicas.partitions
    assert harness.logs.get(key) is None


def test_unknown_partition_is_refused_by_name(harness: ReplicaHarness) -> None:
    assert harness.append()[0].error_message == "no t-0"
    with pytest.raises(ApiError, match="no t-0"):
        harness.replicas.led("t", 0)
    harness.open().leader = OTHER
    with pytest.raises(ApiError, match="is led by broker 2"):
        harness.replicas.led("t", 0)


def test_delayed_requests_of_a_dropped_partition_are_answered(harness: ReplicaHarness) -> None:
    key = harness.open(replicas=(ME, OTHER)).topic_partition
    appended, read = harness.append(), harness.read(offset=0, max_wait_ms=500)
    assert (appended, read) == ([], [])
    harness.replicas.drop([key])
    assert codes(appended) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert codes(read) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert len(harness.replicas.purgatory) == 0


# --- append


def test_acks_all_is_answered_when_the_in_sync_replicas_have_it(harness: ReplicaHarness) -> None:
    partition = harness.open(replicas=(ME, OTHER))
    waiting, at_once = harness.append(), harness.append(acks=1)
    assert (waiting, codes(at_once)) == ([], [ErrorCode.NONE])
    assert reached(partition, OTHER, 1)
    harness.replicas.purgatory.check(partition.topic_partition)
    assert [(each.error, each.base_offset) for each in waiting] == [(ErrorCode.NONE, 0)]


def test_acks_all_does_not_wait_for_ever(harness: ReplicaHarness) -> None:
    harness.open(replicas=(ME, OTHER))
    waiting = harness.append(timeout_ms=100)
    harness.scheduler.advance(99)
    assert waiting == []
    harness.scheduler.advance(1)
    assert codes(waiting) == [ErrorCode.REQUEST_TIMED_OUT]


def test_topics_of_the_broker_itself_are_open_to_itself_alone(harness: ReplicaHarness) -> None:
    harness.open("__transaction_state")
    assert codes(harness.append("__transaction_state")) == [ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert codes(harness.append("__transaction_state", origin=AppendOrigin.BROKER)) == [ErrorCode.NONE]


def test_an_append_that_is_to_be_durable_waits_for_the_disk() -> None:
    harness = ReplicaHarness(LogConfig(flush_messages=1))
    partition = harness.open()
    waiting, unasked = harness.append(acks=1), harness.append(acks=0)
    assert (waiting, codes(unasked)) == ([], [ErrorCode.NONE])
    harness.scheduler.run_pending()
    assert codes(waiting) == [ErrorCode.NONE]
    assert partition.log.recovery_point == 2, "the second had its own flush"


# --- read


@pytest.mark.parametrize(
    ("isolation", "seen"),
    [(FetchIsolation.LOG_END, 3), (FetchIsolation.HIGH_WATERMARK, 1), (FetchIsolation.TXN_COMMITTED, 1)],
)
def test_a_follower_sees_what_consumers_do_not_see(
    harness: ReplicaHarness, isolation: FetchIsolation, seen: int
) -> None:
    partition = harness.open(replicas=(ME, OTHER))
    for _ in range(3):
        put(partition.log, b"x")
    reached(partition, OTHER, 1)
    (result,) = harness.read(isolation)
    assert (count(result), result.high_watermark) == (seen, 1)


def test_a_follower_waits_for_appends_and_a_consumer_for_the_high_watermark(harness: ReplicaHarness) -> None:
    partition = harness.open(replicas=(ME, OTHER))
    follower = harness.read(FetchIsolation.LOG_END, max_wait_ms=500)
    consumer = harness.read(max_wait_ms=500)
    harness.append()
    assert ([count(each) for each in follower], consumer) == ([1], [])
    reached(partition, OTHER, 1)
    harness.replicas.purgatory.check(partition.topic_partition)
    assert [count(each) for each in consumer] == [1]
    bytes_out = harness.metrics.value("kafka_server_brokertopicmetrics_bytesout_total", topic="t")
    assert bytes_out == len(batch(b"x")), "what followers copy is not counted as read"


def test_delete_records_is_refused_for_a_compacted_topic() -> None:
    harness = ReplicaHarness(LogConfig(cleanup_policy=frozenset({"compact"})))
    harness.open()
    (observed,) = harness.delete(-1)
    assert (observed.error, observed.low_watermark) == (ErrorCode.POLICY_VIOLATION, -1)
