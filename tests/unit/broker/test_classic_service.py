"""The broker's answers to classic requests, without threads, sockets or disks."""

from typing import Any

import pytest
from support.classic_frames import gzip_wrapper, message_set
from support.waiting import wait_for

from barnabas.ports.broker_api.classic import (
    RANDOM_PARTITION,
    ClassicFetch,
    ClassicFetchPartition,
    ClassicFetchResultPartition,
    ClassicOffsets,
    ClassicOffsetsResult,
    ClassicProduce,
    ClassicProducePartition,
    ClassicProduceResultPartition,
)
from barnabas.ports.broker_api.cluster import DescribeLogDirs
from barnabas.ports.broker_api.configs import (
    ConfigAlteration,
    ConfigOp,
    ConfigResource,
    IncrementalAlterConfigs,
    ResourceKind,
)
from barnabas.ports.broker_api.metadata import Metadata
from barnabas.ports.broker_api.offsets import EARLIEST, LATEST, ListOffsets, ListOffsetsPartition
from barnabas.ports.broker_api.topics import CreatePartitions, CreateTopics, DeleteTopics, NewPartitions, NewTopic
from barnabas.ports.coordination import NoNode
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.types import Buffer
from barnabas.testing.manual_broker import ManualBroker

LISTENERS = "kafka://broker:9092,classic://broker:9093"


class ClassicBroker(ManualBroker):
    """Every append is flushed at once unless the settings say otherwise."""

    def __init__(self, **settings: object) -> None:
        given: dict[str, Any] = {"listeners": LISTENERS, "log_flush_interval_messages": 1, **settings}
        super().__init__(**given)

    def put(self, topic: str, records: bytes, partition: int = 0) -> ClassicProduceResultPartition:
        place = ClassicProducePartition(topic, partition, memoryview(bytearray(records)))
        return self.ask(ClassicProduce(partitions=[place])).partitions[0]

    def take(
        self, topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20
    ) -> ClassicFetchResultPartition:
        asked = ClassicFetchPartition(topic, partition, offset, max_bytes)
        return self.ask(ClassicFetch(partitions=[asked])).partitions[0]

    def records(self, topic: str, offset: int = 0, partition: int = 0, max_bytes: int = 1 << 20) -> bytes:
        result = self.take(topic, offset, partition, max_bytes)
        assert result.error is ErrorCode.NONE
        return content(result)

    def offsets(self, topic: str, time_ms: int, max_offsets: int = 10, partition: int = 0) -> ClassicOffsetsResult:
        return self.ask(ClassicOffsets(topic=topic, partition=partition, time_ms=time_ms, max_offsets=max_offsets))

    def node_data(self, path: str) -> bytes:
        return self.tree.session().get(path).data


def content(result: ClassicFetchResultPartition) -> bytes:
    records: Buffer = result.records if isinstance(result.records, bytes | bytearray | memoryview) else b""
    return bytes(records) or (result.records.read() if not isinstance(result.records, Buffer) else b"")


@pytest.fixture
def broker() -> ClassicBroker:
    return ClassicBroker()


def test_produced_messages_are_fetched_byte_for_byte(broker: ClassicBroker) -> None:
    first, second = message_set(b"hello", b"", b"x" * 1000), gzip_wrapper(b"a", b"b", b"c")
    assert broker.put("t", first) == ClassicProduceResultPartition("t", 0, next_offset=len(first))
    assert broker.put("t", second).next_offset == len(first) + len(second)
    assert broker.records("t") == first + second
    assert broker.records("t", len(first)) == second
    assert broker.records("t", len(first) + len(second)) == b""
    assert broker.records("t", 3, max_bytes=7) == first[3:10], "any byte is an offset, and a set may be cut"


def test_only_what_is_flushed_is_visible() -> None:
    broker = ClassicBroker(log_flush_interval_messages=5)
    some, more = message_set(b"1", b"2"), gzip_wrapper(b"3", b"4", b"5")
    broker.put("t", some)
    assert broker.records("t") == b""
    assert broker.offsets("t", LATEST).offsets == [0]
    broker.put("t", more)
    assert broker.records("t") == some + more, "the messages inside a wrapper count"
    assert broker.offsets("t", LATEST).offsets == [len(some + more), 0]


def test_flushed_by_time() -> None:
    broker = ClassicBroker(log_flush_interval_messages=1000, log_flush_interval_ms=2000)
    broker.put("t", message_set(b"1"))
    assert broker.records("t") == b""
    broker.scheduler.advance(4000)
    assert broker.records("t") == message_set(b"1")


def test_broker_config_change_applies_to_auto_created_topics() -> None:
    broker = ClassicBroker(log_flush_interval_messages=1000)
    broker.put("t", message_set(b"1"))
    resource = ConfigResource(kind=ResourceKind.BROKER, name="1")
    change = ConfigAlteration(resource=resource, name="log.flush.interval.messages", op=ConfigOp.SET, value="2")
    altered = broker.ask(IncrementalAlterConfigs(resources=[resource], alterations=[change]))
    assert [result.error for result in altered.resources] == [ErrorCode.NONE]
    broker.put("t", message_set(b"2"))
    assert broker.records("t") == message_set(b"1", b"2")


def test_offsets_outside_the_log(broker: ClassicBroker) -> None:
    broker.put("t", message_set(b"hello"))
    assert broker.take("t", 10_000).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert broker.take("t", -1).error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_partitions_of_a_topic(broker: ClassicBroker) -> None:
    broker = ClassicBroker(num_partitions=3)
    assert broker.put("t", message_set(b"two"), 2).error is ErrorCode.NONE
    assert broker.records("t", 0, 2) == message_set(b"two")
    assert broker.records("t", 0, 1) == b"", "a partition without a log is empty"
    assert broker.records("never written", 77, 1) == b""
    for partition in (3, -1, 2**31 - 1):
        assert broker.take("t", 0, partition).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.put("t", message_set(b"x"), 3).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.put("t", message_set(b"x"), -2).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.offsets("t", LATEST, partition=3).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [folder for folder in broker.disk.folders if folder.startswith("t-")] == ["t-2"]


def test_the_broker_chooses_among_all_partitions() -> None:
    broker = ClassicBroker(num_partitions=4)
    chosen = {broker.put("t", message_set(b"x"), RANDOM_PARTITION).partition for _ in range(100)}
    assert chosen == {0, 1, 2, 3}


def test_partition_counts_of_single_topics() -> None:
    broker = ClassicBroker(topic_partition_count_map="wide:5,narrow:1", num_partitions=2)
    ends = {topic: broker.put(topic, message_set(b"x"), 4).error for topic in ("wide", "narrow", "other")}
    wrong = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ends == {"wide": ErrorCode.NONE, "narrow": wrong, "other": wrong}


def test_offsets_of_what_is_not_there(broker: ClassicBroker) -> None:
    assert broker.offsets("t", LATEST).offsets == [0]
    assert broker.offsets("t", EARLIEST).offsets == [0]
    assert broker.offsets("t", LATEST, 0).offsets == []
    assert broker.offsets("t", 10**15).offsets == []
    assert not broker.disk.folders.keys() & {"t-0"}


def test_offsets_of_segments() -> None:
    broker = ClassicBroker(log_segment_bytes=100)
    ends = [0]
    for _ in range(6):
        ends.append(broker.put("t", message_set(b"x" * 60)).next_offset)
        broker.scheduler.advance(1000)
    begins = [ends[0], ends[2], ends[4]]  # a segment may exceed its size by one set
    assert broker.offsets("t", LATEST).offsets == [ends[-1], *reversed(begins)]
    assert broker.offsets("t", LATEST, 2).offsets == [ends[-1], begins[-1]]
    assert broker.offsets("t", EARLIEST).offsets == [0]
    assert broker.offsets("t", 1).offsets == []
    assert broker.offsets("t", -3).error is ErrorCode.NONE


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\0b", "x" * 256, "\ud800"])
def test_requests_with_illegal_topic_names_are_rejected(broker: ClassicBroker, name: str) -> None:
    assert broker.put(name, message_set(b"x")).error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert broker.take(name).error is ErrorCode.UNKNOWN_SERVER_ERROR, "-1 in the classic protocol"
    assert broker.offsets(name, LATEST).error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_bad_sets_change_nothing(broker: ClassicBroker) -> None:
    good = message_set(b"good")
    broker.put("t", good)
    bad = bytearray(message_set(b"fine", b"damaged"))
    bad[-1] ^= 1
    assert broker.put("t", bytes(bad)).error is ErrorCode.CORRUPT_MESSAGE
    assert broker.records("t") == good
    assert broker.put("t", good + good[:7]).next_offset == 2 * len(good), "what is after the last whole one is cut off"
    assert broker.put("t", b"").error is ErrorCode.NONE
    assert broker.records("t") == good + good


def test_too_large_messages() -> None:
    broker = ClassicBroker(message_max_bytes=100)
    assert broker.put("t", message_set(b"x" * 101)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert broker.put("t", message_set(b"x" * 100, b"y" * 100)).error is ErrorCode.NONE
    assert broker.put("t", gzip_wrapper(b"z" * 5000)).error is ErrorCode.NONE, "the wrapper counts"


def test_a_fetch_of_several_leaves_the_others_alone(broker: ClassicBroker) -> None:
    one, two = message_set(b"1"), message_set(b"2")
    broker.put("a", one)
    broker.put("b", two)
    asked = [("a", 0, 0), ("a", 0, 9999), ("a", 9, 0), ("b", 0, 0), ("..", 0, 0), ("c", 0, 5)]
    places = [ClassicFetchPartition(topic, number, offset, 1000) for topic, number, offset in asked]
    results = broker.ask(ClassicFetch(partitions=places)).partitions
    assert [(int(result.error), content(result)) for result in results] == [
        (0, one),
        (1, b""),
        (3, b""),
        (0, two),
        (-1, b""),
        (0, b""),
    ]


def test_a_fetch_of_nothing_and_of_less_than_nothing(broker: ClassicBroker) -> None:
    broker.put("t", message_set(b"1"))
    assert broker.records("t", max_bytes=0) == b""
    assert broker.take("t", max_bytes=-1).error is ErrorCode.INVALID_FETCH_SIZE
    assert broker.records("t", max_bytes=2**31 - 1) == message_set(b"1")
    assert broker.ask(ClassicFetch(partitions=[])).partitions == []


def test_an_answer_has_a_largest_size(broker: ClassicBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.app.broker.handlers.classic.ANSWER_BYTES_MAX", 100)
    sets = {"a": message_set(b"a" * 50), "b": message_set(b"b" * 50), "c": message_set(b"c")}
    for topic, records in sets.items():
        broker.put(topic, records)
    places = [ClassicFetchPartition(topic, 0, 0, 2**31 - 1) for topic in ("a", "b", "c", "none")]
    results = broker.ask(ClassicFetch(partitions=places)).partitions
    assert [content(result) for result in results] == [sets["a"], b"", sets["c"], b""]
    assert all(result.error is ErrorCode.NONE for result in results)
    broker.put("a", message_set(b"a" * 50))
    assert len(broker.records("a")) == 100


def test_produce_and_fetch_update_topic_metrics(broker: ClassicBroker) -> None:
    records = message_set(b"1", b"2") + gzip_wrapper(b"3", b"4", b"5")
    broker.put("t", records)
    broker.records("t")
    names = [f"kafka_server_brokertopicmetrics_{what}_total" for what in ("messagesin", "bytesin", "bytesout")]
    assert [broker.metrics.value(name, topic="t") for name in names] == [5, len(records), len(records)]
    assert broker.metrics.value("kafka_topic_partition_current_offset", topic="t", partition="0") == len(records)


def test_classic_messages_survive_restart() -> None:
    broker = ClassicBroker(num_partitions=2)
    records = message_set(b"one", b"two")
    broker.put("t", records, 1)
    broker.put("with space é", records, 0)
    broker.restart()
    assert broker.records("t", 0, 1) == records
    assert broker.records("with space é") == records
    assert broker.put("t", records, 1).next_offset == 2 * len(records)
    assert not [folder for folder in broker.disk.folders if folder.endswith("-stray")]


# --- the registries


def test_broker_and_topics_are_registered_until_stop() -> None:
    broker = ClassicBroker(num_partitions=3, broker_id=5)
    started = broker.clock.now_ms()
    broker.scheduler.run_pending()
    assert broker.node_data("/brokers/ids/5") == f"broker-{started}:broker:9093".encode()
    broker.put("t", message_set(b"x"), 1)
    broker.scheduler.run_pending()
    assert broker.node_data("/brokers/topics/t/5") == b"3"
    broker.scheduler.advance(10)
    broker.restart()
    assert broker.node_data("/brokers/ids/5") == f"broker-{started + 10}:broker:9093".encode()
    assert broker.node_data("/brokers/topics/t/5") == b"3"
    broker.stop()
    eyes = broker.tree.session()
    assert eyes.children("/brokers/ids") == eyes.children("/brokers/topics/t") == []


def stands(broker: ManualBroker, path: str) -> bool:
    try:
        broker.tree.session().get(path)
    except NoNode:
        return False
    return True


def test_a_broker_of_one_generation_is_not_in_the_registry_of_the_other() -> None:
    classic, current = ClassicBroker(listeners="classic://broker:9093"), ManualBroker()
    ids = ("/brokers/ids/1", "/barnabas/brokers/ids/1")
    assert [stands(classic, path) for path in ids] == [True, False]
    assert [stands(current, path) for path in ids] == [False, True]


def test_registration_can_be_switched_off() -> None:
    broker = ClassicBroker(classic_registration_enable=False)
    broker.put("t", message_set(b"x"))
    broker.scheduler.run_pending()
    assert not stands(broker, "/brokers")


def test_all_is_registered_again_after_the_session_expired(broker: ClassicBroker) -> None:
    broker.put("t", message_set(b"x"))
    broker.scheduler.run_pending()
    session = broker.node.coordination
    before = broker.node_data("/barnabas/brokers/ids/1")
    broker.tree.expire(session)  # type: ignore[arg-type]  # it is the tree's own session
    eyes = broker.tree.session()
    assert eyes.children("/brokers/ids") == eyes.children("/barnabas/brokers/ids") == []

    def back() -> bool:
        broker.scheduler.run_pending()
        return eyes.children("/brokers/topics/t") == ["1"]

    wait_for(back)
    assert eyes.children("/brokers/ids") == ["1"]
    assert broker.node_data("/barnabas/brokers/ids/1") == before


# --- the other generation


def test_a_topic_of_the_current_generation_is_refused_with_one_line(broker: ClassicBroker) -> None:
    broker.create("modern")
    broker.produce("modern", b"v2")
    assert broker.put("modern", message_set(b"x")).error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    for _ in range(3):
        assert broker.take("modern").error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert broker.offsets("modern", LATEST).error is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert len([line for line in broker.reports if "modern" in line and "kafka://" in line]) == 1
    assert broker.values("modern") == [b"v2"]


@pytest.mark.parametrize("created", [True, False])
def test_a_classic_topic_is_refused_by_the_current_generation(broker: ClassicBroker, created: bool) -> None:
    if created:
        broker.create("old", message_format="classic")
    broker.put("old", message_set(b"x"))
    topic = broker.ask(Metadata(topics=["old"])).topics[0]
    assert (topic.error, [part.leader for part in topic.partitions]) == (ErrorCode.NONE, [1])
    unsupported = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert broker.produce("old", b"v2").error is unsupported
    assert broker.fetch("old").partitions[0].error is unsupported
    asked = ListOffsetsPartition(topic="old", partition=0, timestamp=-1)
    assert broker.ask(ListOffsets(partitions=[asked])).partitions[0].error is unsupported
    assert broker.ask(CreateTopics(topics=[NewTopic(name="old")])).topics[0].error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert broker.records("old") == message_set(b"x")


def test_a_created_classic_topic_has_its_own_number_of_partitions(broker: ClassicBroker) -> None:
    broker.create("old", 3, message_format="classic")
    broker.scheduler.run_pending()
    assert broker.node_data("/brokers/topics/old/1") == b"3"
    assert broker.put("old", message_set(b"x"), 2).error is ErrorCode.NONE
    assert broker.put("old", message_set(b"x"), 3).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    grown = broker.ask(CreatePartitions(topics=[NewPartitions(topic="old", count=5)])).topics[0]
    assert grown.error is ErrorCode.NONE
    assert broker.put("old", message_set(b"x"), 4).error is ErrorCode.NONE
    broker.scheduler.run_pending()
    assert broker.node_data("/brokers/topics/old/1") == b"5"
    broker.restart()
    assert broker.records("old", 0, 4) == message_set(b"x")
    assert broker.node_data("/brokers/topics/old/1") == b"5"


def test_a_created_classic_topic_can_be_deleted(broker: ClassicBroker) -> None:
    broker.create("old", 2, message_format="classic")
    broker.put("old", message_set(b"x"), 1)
    assert broker.ask(DeleteTopics(names=["old"])).topics[0].error is ErrorCode.NONE
    broker.scheduler.run_pending()
    assert broker.tree.session().children("/brokers/topics/old") == []
    assert not [folder for folder in broker.disk.folders if folder.startswith("old-")]
    assert broker.put("old", message_set(b"new")).next_offset == len(message_set(b"new"))


def test_without_auto_creation_only_known_topics_are_there() -> None:
    broker = ClassicBroker(auto_create_topics_enable=False, topic_partition_count_map="listed:2")
    broker.create("made", message_format="classic")
    wrong = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.put("unknown", message_set(b"x")).error is wrong
    assert broker.take("unknown").error is wrong
    assert broker.put("made", message_set(b"x")).error is ErrorCode.NONE
    assert broker.put("listed", message_set(b"x"), 1).error is ErrorCode.NONE


def test_log_folders_are_described(broker: ClassicBroker) -> None:
    broker.put("t", message_set(b"x"))
    described = broker.ask(DescribeLogDirs()).log_dirs[0]
    assert [(found.topic, found.partition, found.size_bytes) for found in described.replicas] == [
        ("t", 0, len(message_set(b"x")))
    ]


# --- sets that take long to check


def produce(broker: ClassicBroker, records: bytes, partition: int = 0) -> list[Any]:
    view = memoryview(bytearray(records))
    answers = broker.submit(ClassicProduce(partitions=[ClassicProducePartition("t", partition, view)]))
    view[:] = bytes(len(view))  # the memory is the connection's again
    return answers


@pytest.mark.parametrize("packed", [False, True])
def test_others_are_served_while_a_long_set_is_checked(packed: bool) -> None:
    broker, ms = ClassicBroker(num_partitions=2), [0.0]

    def tick() -> float:
        ms[0] += 1.0
        return ms[0]

    service = broker.node.api._handlers[ClassicProduce].__self__  # type: ignore[attr-defined]
    service._steps._now_ms = tick  # every piece of the check takes a turn
    payloads = [b"x" * 20] * 100_000
    records = gzip_wrapper(*payloads) if packed else message_set(*payloads)
    long = produce(broker, records)
    assert not long
    one = message_set(b"one")
    assert produce(broker, one)[0].partitions[0].next_offset == len(one)
    broker.scheduler.run_pending()
    assert long[0].partitions[0].next_offset == len(one) + len(records)
    assert ms[0] > 50, "the clock is looked at behind every piece"
    assert service._long_bytes == 0


def test_a_long_set_that_is_damaged_far_behind_is_refused_as_a_whole() -> None:
    broker = ClassicBroker()
    plain = bytearray(message_set(*[b"x" * 20] * 5_000))
    plain[-1] ^= 1
    (answer,) = produce(broker, bytes(plain))
    broker.scheduler.run_pending()
    assert answer.partitions[0].error is ErrorCode.CORRUPT_MESSAGE
    assert broker.put("t", message_set(b"one")).next_offset == len(message_set(b"one"))
