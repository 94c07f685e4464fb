"""Consumer groups as a broker serves them: coordinators, members, positions, over restarts and failures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from support.coordination_faults import FaultyCoordination
from support.group_requests import (
    OFFSETS,
    commit,
    committed,
    committing,
    fetching,
    find,
    heartbeat,
    joining,
    offsets_partition_of,
    stable,
)

from barnabas.core.message.message_set import MessageSet
from barnabas.ports.broker_api.consumer_groups import ConsumerGroupDescribe, ConsumerGroupHeartbeat
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import (
    DeleteGroups,
    DescribeGroups,
    LeaveGroup,
    LeavingMember,
    ListGroups,
    OffsetDelete,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.topics import CreatePartitions, NewPartitions
from barnabas.ports.coordination import Coordination
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import TopicPartition
from barnabas.testing.manual_broker import HERE, ManualBroker

COUNTERS = "kafka_server_group_coordinator_metrics"
GAUGES = "kafka_coordinator_group_groupmetadatamanager"


@contextmanager
def running(*, initial_delay_ms: int = 0, **settings: Any) -> Iterator[ManualBroker]:
    simulated = ManualBroker(group_initial_rebalance_delay_ms=initial_delay_ms, **settings)
    simulated.create("t", 2)
    yield simulated
    simulated.stop()


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    with running() as simulated:
        yield simulated


# --- where the coordinator is


def test_the_first_search_makes_the_topic(broker: ManualBroker) -> None:
    found = find(broker, "g", "other")
    assert [(each.key, each.error, each.node_id, each.host, each.port) for each in found] == [
        (group, ErrorCode.NONE, 1, "broker", 9092) for group in ("g", "other")
    ]
    (topic,) = broker.ask(Metadata(topics=[OFFSETS])).topics
    assert topic.internal
    assert [(each.partition, each.leader) for each in topic.partitions] == [(number, 1) for number in range(50)]
    log = broker.node.state.replicas.partitions[offsets_partition_of("g")].log.config
    assert (log.compacted, log.segment_bytes, log.compression_type) == (True, 104_857_600, "producer")
    assert log.max_message_bytes > 32 * 1024 * 1024
    again = find(broker, "g")
    assert again == found[:1]


def test_the_topic_is_as_configured() -> None:
    topic: dict[str, Any] = {"offsets_topic_num_partitions": 3, "offsets_topic_segment_bytes": 2_000_000}
    with running(**topic, auto_create_topics_enable=False, compression_type="gzip") as broker:
        assert find(broker)[0].error is ErrorCode.NONE
        partitions = [key for key in broker.node.state.replicas.partitions if key[0] == OFFSETS]
        assert len(partitions) == 3
        config = broker.node.state.replicas.partitions[offsets_partition_of("g", 3)].log.config
        assert (config.segment_bytes, config.compression_type) == (2_000_000, "producer")


def test_where_topics_are_classic_ones() -> None:
    with running(message_format="classic") as broker:
        assert find(broker)[0].error is ErrorCode.NONE
        assert broker.node.state.replicas.partitions[offsets_partition_of("g")].log.config.message_format == "v2"


def test_a_search_for_nothing_makes_no_topic(broker: ManualBroker) -> None:
    assert find(broker, "x", key_type=2)[0].error is ErrorCode.INVALID_REQUEST
    assert OFFSETS not in broker.node.state.image.topics


def test_metadata_and_create_topics_make_the_same_topic() -> None:
    with running(offsets_topic_num_partitions=4) as broker:
        (topic,) = broker.ask(Metadata(topics=[OFFSETS])).topics
        assert (topic.error, len(topic.partitions), topic.internal) == (ErrorCode.NONE, 4, True)
        assert commit(broker, "g", {("t", 0): 5}) == [ErrorCode.NONE]
    with running(offsets_topic_num_partitions=4) as broker:
        broker.create(OFFSETS, partitions=7)
        assert commit(broker, "g", {("t", 0): 5}) == [ErrorCode.NONE]
        assert broker.node.state.replicas.partitions[offsets_partition_of("g", 7)].log.log_end_offset == 1


def test_group_requests_before_offsets_topic_exists_get_not_coordinator(broker: ManualBroker) -> None:
    assert commit(broker, "g", {("t", 0): 5}) == [ErrorCode.NOT_COORDINATOR]
    assert broker.ask(joining()).error is ErrorCode.NOT_COORDINATOR
    assert not broker.ask(ListGroups()).groups


def test_a_topic_that_cannot_be_made_now() -> None:
    faults: list[FaultyCoordination] = []

    def wrapped(session: Coordination) -> Coordination:
        faults.append(FaultyCoordination(session))
        return faults[-1]

    broker = ManualBroker(wrap_session=wrapped)
    made = sum(name == "commit" for name, _ in faults[0].calls)
    faults[0].fail("commit", made + 1, done=False)
    (refused,) = find(broker)
    assert (refused.error, refused.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    assert "connection is lost" in (refused.error_message or "")
    assert find(broker)[0].error is ErrorCode.NONE
    broker.stop()


# --- members and positions


def test_a_group_from_its_first_member_to_its_end(broker: ManualBroker) -> None:
    find(broker)
    member = stable(broker)
    assert member.member_id.startswith("test-")
    assert heartbeat(broker, member) is ErrorCode.NONE
    request = committing("g", {("t", 0): 5, ("t", 1): 6, ("t", 9): 7}, "note")
    assert [each.error for each in broker.ask(request).partitions] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    (described,) = broker.ask(DescribeGroups(group_ids=["g"])).groups
    assert (described.state, [each.client_host for each in described.members]) == ("Stable", ["/127.0.0.1"])
    left = broker.ask(LeaveGroup(group_id="g", members=[LeavingMember(member_id=member.member_id)]))
    assert [each.error for each in left.members] == [ErrorCode.NONE]
    outcomes = broker.ask(request).partitions
    assert [each.error for each in outcomes] == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (fetched,) = broker.ask(fetching("g")).groups
    assert [(each.partition, each.offset, each.leader_epoch, each.metadata) for each in fetched.partitions] == [
        (0, 5, 3, "note"),
        (1, 6, 3, "note"),
    ]
    assert [(each.group_id, each.state) for each in broker.ask(ListGroups()).groups] == [("g", "Empty")]
    deleted = broker.ask(OffsetDelete(group_id="g", partitions=[TopicPartition("t", 0)]))
    assert deleted.partitions[0].error is ErrorCode.NONE
    assert committed(broker, "g") == {("t", 1): 6}
    assert broker.ask(DeleteGroups(group_ids=["g", "h"])).groups[0].error is ErrorCode.NONE
    assert committed(broker, "g") == {}


def test_a_restart_keeps_members_generations_and_positions(broker: ManualBroker) -> None:
    find(broker)
    commit(broker, "simple", {("t", 0): 5})
    commit(broker, "simple", {("t", 0): 7, ("t", 1): 1})
    member = stable(broker)
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "simple") == {("t", 0): 7, ("t", 1): 1}
    assert heartbeat(broker, member) is ErrorCode.NONE
    (described,) = broker.ask(DescribeGroups(group_ids=["g"])).groups
    assert [(each.member_id, each.assignment) for each in described.members] == [(member.member_id, b"all of it")]
    broker.scheduler.advance(11_000)
    assert heartbeat(broker, member) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stable(broker).generation_id > member.generation_id


def test_commits_of_one_turn_go_together(broker: ManualBroker) -> None:
    find(broker)
    groups = [f"g{number}" for number in range(200)]
    answers = [broker.submit(committing(group, {("t", 0): 5})) for group in groups]
    assert answers == [[]] * 200
    broker.scheduler.run_pending()
    assert all(answer[0].partitions[0].error is ErrorCode.NONE for answer in answers)
    state = broker.node.state
    logs = [state.replicas.partitions[key].log for key in {offsets_partition_of(group) for group in groups}]
    assert sum(log.log_end_offset for log in logs) == 200
    for log in logs:
        records = log.read(0, max_bytes=1 << 20, limit=log.log_end_offset).records
        assert len(list(MessageSet(records).batches())) == 1
    broker.restart()
    broker.scheduler.run_pending()
    assert all(committed(broker, group) == {("t", 0): 5} for group in groups)


def test_large_writes_of_one_turn_stay_below_the_largest_batch(broker: ManualBroker) -> None:
    find(broker)
    state = broker.node.state
    key = offsets_partition_of("g")
    state.replicas.partitions[key].log.update_config(
        state.settings.log_config({**state.image.topics[OFFSETS].configs, "max.message.bytes": "6000"}, OFFSETS)
    )
    answers = [broker.submit(committing("g", {("t", 0): number}, "m" * 4000)) for number in range(5)]
    broker.scheduler.run_pending()
    assert [answer[0].partitions[0].error for answer in answers] == [ErrorCode.NONE] * 5
    assert committed(broker, "g") == {("t", 0): 4}


def test_answers_wait_for_a_flush_where_it_is_asked_for() -> None:
    with running(log_flush_interval_messages=1) as broker:
        find(broker)
        assert commit(broker, "g", {("t", 0): 5}) == [ErrorCode.NONE]
        log = broker.node.state.replicas.partitions[offsets_partition_of("g")].log
        assert log.recovery_point == log.log_end_offset == 1


def test_a_full_disk(broker: ManualBroker) -> None:
    find(broker)
    member = stable(broker)
    broker.disk.capacity = broker.disk.used
    assert commit(broker, "simple", {("t", 0): 5}) == [ErrorCode.NOT_COORDINATOR]
    assert committed(broker, "simple") == {}
    broker.disk.capacity = None
    assert commit(broker, "simple", {("t", 0): 6}) == [ErrorCode.NONE]
    assert heartbeat(broker, member) is ErrorCode.NONE


def test_waiting_member_at_a_stop_gets_not_coordinator() -> None:
    with running(initial_delay_ms=3000) as broker:
        find(broker)
        waiting = broker.submit(joining())
        unanswered = broker.submit(committing("simple", {("t", 0): 5}))
        broker.scheduler.run_pending()
        late = broker.submit(committing("simple", {("t", 0): 6}))
        broker.stop()
        assert waiting[0].error is ErrorCode.NOT_COORDINATOR
        assert unanswered[0].partitions[0].error is late[0].partitions[0].error is ErrorCode.NONE
        broker.restart()
        broker.scheduler.run_pending()
        assert committed(broker, "simple") == {("t", 0): 6}


def test_a_closed_connection_leaves_its_member_in_the_group(broker: ManualBroker) -> None:
    """It may come back over another one; who does not is gone after a session."""
    find(broker)
    member = stable(broker)
    broker.node.state.gone(HERE.connection)
    assert heartbeat(broker, member) is ErrorCode.NONE
    request = joining(member=member.member_id)
    answers = broker.submit(request, Caller(client_id="test", host="127.0.0.1", connection=2))
    broker.scheduler.run_pending()
    assert answers[0].member_id == member.member_id


def test_group_metrics_count_groups_and_rebalances(broker: ManualBroker) -> None:
    find(broker)
    value = broker.metrics.value
    stable(broker)
    commit(broker, "simple", {("t", 0): 5, ("t", 1): 5})
    broker.ask(OffsetDelete(group_id="simple", partitions=[TopicPartition("t", 0)]))
    assert value(f"{COUNTERS}_offset_commit_total") == 2
    assert value(f"{COUNTERS}_offset_deletion_total") == 1
    assert value(f"{COUNTERS}_group_completed_rebalance_total") == 1
    gauges = {name: value(f"{GAUGES}_{name}") for name in ("numgroups", "numgroupsstable", "numgroupsempty")}
    assert gauges == {"numgroups": 2, "numgroupsstable": 1, "numgroupsempty": 1}
    assert value(f"{GAUGES}_numoffsets") == 1
    broker.clock.set_wall(broker.clock.now_ms() + 7 * 24 * 3_600_000)
    broker.scheduler.advance(600_000)
    assert value(f"{COUNTERS}_offset_expiration_total") == 1
    assert (value(f"{GAUGES}_numgroups"), value(f"{GAUGES}_numoffsets")) == (0, 0)
    assert not broker.ask(ListGroups()).groups


def joining_by_consumer_protocol(group: str, member: str, epoch: int = 0) -> ConsumerGroupHeartbeat:
    return ConsumerGroupHeartbeat(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if epoch == 0 else -1,
        subscribed_topic_names=["t"] if epoch == 0 else None,
        topic_partitions=[] if epoch == 0 else None,
    )


def test_group_metrics_count_groups_by_protocol_and_consumer_groups_by_state(broker: ManualBroker) -> None:
    find(broker)
    stable(broker)
    for group in ("one", "two"):
        answers = broker.submit(joining_by_consumer_protocol(group, "m"))
        broker.scheduler.run_pending()
        assert answers[0].member_epoch == 2
    assert broker.ask(joining_by_consumer_protocol("two", "m", -1)).member_epoch == -1

    def count(name: str, **labels: str) -> float | None:
        return broker.metrics.value(f"{COUNTERS}_{name}", **labels)

    assert [count("group_count", protocol=each) for each in ("classic", "consumer", "share")] == [1, 2, 0]
    found = {each: count("consumer_group_count", state=each) for each in ("stable", "empty", "reconciling")}
    assert found == {"stable": 1, "empty": 1, "reconciling": 0}
    assert count("consumer_group_rebalance_total") == 2


def test_topic_that_grows_gives_its_members_more_partitions(broker: ManualBroker) -> None:
    find(broker)
    broker.ask(joining_by_consumer_protocol("one", "m"))
    broker.ask(CreatePartitions(topics=[NewPartitions(topic="t", count=3)]))
    broker.scheduler.advance(1_000)
    result = broker.ask(joining_by_consumer_protocol("one", "m", 2))
    assert result.assignment is not None
    assert [list(each.partitions) for each in result.assignment] == [[0, 1, 2]]


def test_broker_without_the_consumer_protocol_refuses_its_requests() -> None:
    with running(group_coordinator_rebalance_protocols="classic") as broker:
        find(broker)
        assert broker.ask(joining_by_consumer_protocol("one", "m")).error is ErrorCode.UNSUPPORTED_VERSION
        (described,) = broker.ask(ConsumerGroupDescribe(group_ids=["one"])).groups
        assert described.error is ErrorCode.UNSUPPORTED_VERSION
