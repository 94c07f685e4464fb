"""`__consumer_offsets`: what is read at a start, what goes with deleted topics, and what is not allowed."""

from collections.abc import Iterator

import pytest
from support.group_requests import (
    OFFSETS,
    commit,
    committed,
    committing,
    find,
    heartbeat,
    load_error,
    offsets_partition_of,
    stable,
)
from support.long_tests import first_is_quick

from barnabas.core.coordinator.group.records import encode_offset_key
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.message.batch_header import HEADER_SIZE
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.configs import ConfigAlteration, ConfigResource, IncrementalAlterConfigs, ResourceKind
from barnabas.ports.broker_api.envelope import Caller
from barnabas.ports.broker_api.groups import ListGroups
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.topics import (
    CreatePartitions,
    DeleteRecords,
    DeleteRecordsPartition,
    DeleteTopics,
    NewPartitions,
)
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.storage import StorageError
from barnabas.testing.manual_broker import ITSELF, ManualBroker, batch

MONTH_MS = 30 * 24 * 3_600_000


@pytest.fixture
def broker() -> Iterator[ManualBroker]:
    simulated = ManualBroker(group_initial_rebalance_delay_ms=0, offsets_load_buffer_size=200)
    simulated.create("t", 2)
    find(simulated)
    yield simulated
    simulated.stop()


def segment_of(broker: ManualBroker, group: str) -> bytearray:
    """Return the bytes of the log that has a group's records."""
    return broker.disk.folders[str(offsets_partition_of(group))]["00000000000000000000.log"].data


def write(broker: ManualBroker, group: str, *records: tuple[bytes | None, bytes | None], caller: Caller) -> ErrorCode:
    """Records into the partition that keeps a group, as a client sends them."""
    messages = [Message(value, key) for key, value in records]
    entry = ProducePartition(*offsets_partition_of(group), memoryview(encode_batch(messages, now_ms=1)))
    return broker.ask(Produce(partitions=[entry], acks=-1), caller).partitions[0].error


# --- loading


def test_groups_are_loading_until_their_partition_is_read(broker: ManualBroker) -> None:
    for number in range(30):
        commit(broker, "g", {("t", 0): number, ("t", 1): 2 * number})
    member = stable(broker, "h")
    broker.restart()
    assert load_error(broker, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert find(broker, "g")[0].error is ErrorCode.NONE
    empty = next(
        f"x{number}"
        for number in range(99)
        if offsets_partition_of(f"x{number}") not in map(offsets_partition_of, ("g", "h"))
    )
    broker.restart()
    assert load_error(broker, empty) is ErrorCode.NONE
    assert heartbeat(broker, member, "h") is ErrorCode.NONE
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {("t", 0): 29, ("t", 1): 58}
    assert heartbeat(broker, member, "h") is ErrorCode.NONE
    load_ms = broker.metrics.value("kafka_server_group_coordinator_metrics_partition_load_time_max")
    assert load_ms is not None
    assert load_ms >= 0


def test_records_that_cannot_be_read_are_left_out(broker: ManualBroker) -> None:
    commit(broker, "g", {("t", 0): 5})
    unknown = (b"\0\x63garbage", b"x"), (encode_offset_key("g", "t", 1), b"\0\x09"), (b"", b"")
    assert write(broker, "g", *unknown, caller=ITSELF) is ErrorCode.NONE
    commit(broker, "g", {("t", 1): 6})
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {("t", 0): 5, ("t", 1): 6}
    (report,) = [text for text in broker.reports if "left out" in text]
    assert report.startswith(f"{offsets_partition_of('g')}: 3 records were left out")


@pytest.mark.parametrize("damage", ["a record", "the length", "a whole header"])
def test_damaged_batches_are_left_out(damage: str) -> None:
    """In a segment that is not the newest: that one is repaired by the log itself."""
    broker = ManualBroker(offsets_topic_segment_bytes=250, offsets_load_buffer_size=200)
    broker.create("t", 2)
    find(broker)
    commit(broker, "g", {("t", 0): 5})
    first = len(segment_of(broker, "g"))
    commit(broker, "g", {("t", 0): 6})
    commit(broker, "g", {("t", 1): 7})
    commit(broker, "g", {("t", 1): 8})
    assert len(broker.node.state.replicas.partitions[offsets_partition_of("g")].log.segments) == 2
    broker.stop()
    data = segment_of(broker, "g")
    if damage == "a record":
        data[first + HEADER_SIZE + 9] ^= 0xFF
    elif damage == "the length":
        data[first + 8 : first + 12] = (50_000).to_bytes(4, "big")
    else:
        data[first : first + HEADER_SIZE] = b"\xee" * HEADER_SIZE
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {("t", 0): 5, ("t", 1): 8}
    (report,) = [text for text in broker.reports if "left out" in text]
    assert report.startswith(f"{offsets_partition_of('g')}: left out the")
    broker.stop()


@pytest.mark.parametrize("slice_bytes", first_is_quick([200, 100_000]))
@pytest.mark.parametrize("byte", first_is_quick([8, 16, HEADER_SIZE + 9, 0, 5, 6, 7, 10, 11, 18], 3))
def test_the_commits_behind_a_damaged_batch_count(byte: int, slice_bytes: int) -> None:
    """One flipped bit in the middle of the newest segment, between two orderly starts."""
    broker = ManualBroker(offsets_load_buffer_size=slice_bytes)
    broker.create("t", 40)
    find(broker)
    starts = []
    for number in range(40):
        starts.append(len(segment_of(broker, "g")))
        commit(broker, "g", {("t", number): number})
    for bit in (0, 3):
        broker.stop()
        segment_of(broker, "g")[starts[20] + byte] ^= 1 << bit
        broker.reports.clear()
        broker.restart()
        broker.scheduler.run_pending()
        found = committed(broker, "g")
        assert {("t", n): n for n in range(40) if n != 20}.items() <= found.items()
        assert [text for text in broker.reports if "left out" in text], "it is reported"
        broker.stop()
        segment_of(broker, "g")[starts[20] + byte] ^= 1 << bit
        broker.restart()


def test_a_disk_that_cannot_be_read_for_a_while(broker: ManualBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(broker, "g", {("t", 0): 5})
    read = UnifiedLog.read

    def fails(*_: object, **__: object) -> object:
        raise StorageError("the disk does not answer")

    monkeypatch.setattr(UnifiedLog, "read", fails)
    broker.restart()
    broker.scheduler.run_pending()
    assert load_error(broker, "g") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    monkeypatch.setattr(UnifiedLog, "read", read)
    broker.scheduler.advance(1000)
    assert committed(broker, "g") == {("t", 0): 5}
    assert any("the disk does not answer" in text for text in broker.reports)


def test_a_stop_in_the_middle_of_loading(broker: ManualBroker) -> None:
    for group in ("a", "b", "c"):
        commit(broker, group, {("t", 0): 5})
    broker.restart()
    broker.restart()
    broker.scheduler.run_pending()
    assert all(committed(broker, group) == {("t", 0): 5} for group in ("a", "b", "c"))


# --- with the topics that they are of


def test_positions_go_with_their_topic(broker: ManualBroker) -> None:
    broker.create("u", 1)
    commit(broker, "g", {("t", 0): 5, ("u", 0): 6})
    on_its_way = broker.submit(DeleteTopics(names=["t"]))
    assert not on_its_way[0].topics[0].error
    assert committed(broker, "g") == {("u", 0): 6}
    broker.create("t", 2)
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {("u", 0): 6}


def test_a_position_that_is_being_written_goes_with_its_topic(broker: ManualBroker) -> None:
    answers = broker.submit(committing("g", {("t", 0): 5}))
    broker.submit(DeleteTopics(names=["t"]))
    broker.scheduler.run_pending()
    assert len(answers) == 1
    broker.create("t", 2)
    assert committed(broker, "g") == {}
    broker.restart()
    broker.scheduler.run_pending()
    assert committed(broker, "g") == {}


def test_a_topic_that_is_deleted_while_groups_are_loading(broker: ManualBroker) -> None:
    for group in ("g", "h", "i"):
        commit(broker, group, {("t", 0): 5})
    broker.restart()
    broker.submit(DeleteTopics(names=["t"]))
    broker.create("t", 2)
    broker.scheduler.run_pending()
    for _ in range(2):
        assert [committed(broker, group) for group in ("g", "h", "i")] == [{}] * 3
        broker.restart()
        broker.scheduler.run_pending()
    commit(broker, "g", {("t", 0): 1})
    assert committed(broker, "g") == {("t", 0): 1}


# --- forbidden requests


def test_clients_cannot_write_into_it(broker: ManualBroker) -> None:
    record = (encode_offset_key("g", "t", 0), None)
    assert write(broker, "g", record, caller=Caller(client_id="app")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert write(broker, "g", record, caller=Caller()) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert write(broker, "g", record, caller=Caller(client_id="__admin_client")) is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert write(broker, "g", record, caller=ITSELF) is ErrorCode.NONE
    mixed = [ProducePartition("t", 0, batch(b"x")), ProducePartition("__transaction_state", 0, batch(b"x"))]
    answer = broker.ask(Produce(partitions=mixed, acks=1))
    assert [each.error for each in answer.partitions] == [ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_a_record_without_a_key_is_named(broker: ManualBroker) -> None:
    """The one compacted topic there is."""
    messages = [Message(b"a", b"key"), Message(b"b"), Message(b"c")]
    entry = ProducePartition(*offsets_partition_of("g"), memoryview(encode_batch(messages, now_ms=1)))
    refused = broker.ask(Produce(partitions=[entry], acks=-1), ITSELF).partitions[0]
    assert refused.error is ErrorCode.INVALID_RECORD
    assert [each.index for each in refused.record_errors] == [1, 2]
    assert all("needs a key" in (each.message or "") for each in refused.record_errors)


def test_offsets_topic_cannot_be_deleted_grown_or_shortened(broker: ManualBroker) -> None:
    commit(broker, "g", {("t", 0): 5})
    topic_id = broker.node.state.image.topics[OFFSETS].topic_id
    for wanted in (DeleteTopics(names=[OFFSETS]), DeleteTopics(names=[], topic_ids=[topic_id])):
        assert broker.ask(wanted).topics[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    grown = broker.ask(CreatePartitions(topics=[NewPartitions(topic=OFFSETS, count=60)]))
    assert grown.topics[0].error is ErrorCode.INVALID_TOPIC_EXCEPTION
    entry = DeleteRecordsPartition(topic=OFFSETS, partition=offsets_partition_of("g").partition, offset=-1)
    assert broker.ask(DeleteRecords(partitions=[entry])).partitions[0].error is ErrorCode.POLICY_VIOLATION
    assert [each.group_id for each in broker.ask(ListGroups()).groups] == ["g"]


def test_retention_leaves_it_alone(broker: ManualBroker) -> None:
    resource = ConfigResource(kind=ResourceKind.TOPIC, name=OFFSETS)
    for name, value in (
        ("cleanup.policy", "delete"),
        ("retention.ms", "1"),
        ("retention.bytes", "1"),
        ("segment.bytes", "300"),
    ):
        change = ConfigAlteration(resource=resource, name=name, value=value)
        request = IncrementalAlterConfigs(resources=[resource], alterations=[change])
        assert not broker.ask(request).resources[0].error
    commit(broker, "first", {("t", 0): 1})
    for number in range(20):
        commit(broker, "g", {("t", 0): number})
    log = broker.node.state.replicas.partitions[offsets_partition_of("g")].log
    assert len(log.segments) > 5
    broker.clock.set_wall(broker.clock.now_ms() + MONTH_MS)
    broker.node.state.logs.retain()
    assert log.log_start_offset == 0
    broker.restart()
    broker.scheduler.run_pending()
    broker.node.state.logs.retain()
    assert broker.node.state.replicas.partitions[offsets_partition_of("g")].log.log_start_offset == 0
    assert committed(broker, "first") == {("t", 0): 1}
