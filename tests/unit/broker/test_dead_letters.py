"""Dead letters of share groups (KIP-1191, facts D7), with the broker's own coordinator and persister."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.core.cluster import features
from barnabas.core.message.batch_reader import decode_columns
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.broker_api.features import SupportedVersionRange
from barnabas.ports.broker_api.produce import Produce, ProducePartition
from barnabas.ports.broker_api.share_groups import (
    AcknowledgementBatch,
    ShareAcknowledge,
    ShareAcknowledgePartition,
    ShareFetch,
    ShareFetchPartition,
)
from barnabas.ports.broker_api.share_state import (
    InitializePartition,
    InitializeShareGroupState,
    ReadPartition,
    ReadShareGroupState,
)
from barnabas.ports.error_codes import ErrorCode as E
from barnabas.testing.logs import bytes_of
from barnabas.testing.manual_broker import ManualBroker

ACCEPT, RELEASE, REJECT = b"\x01", b"\x02", b"\x03"
TOPIC = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
Letter = tuple[bytes | None, bytes | None, dict[str, str]]


class Group:
    """The share group g on partition 1 of topic t, with a topic for dead letters of one partition."""

    def __init__(self, topic: str | None = "dlq.t", partitions: int = 1, **settings: Any) -> None:
        self.broker = ManualBroker(share_coordinator_state_topic_num_partitions=2, **settings)
        self.broker.create("t", 2)
        if topic is not None:
            self.broker.create(topic, partitions, **{"errors.deadletterqueue.group.enable": "true"})
        self.topic_id = self.broker.node.state.image.topic("t").topic_id
        self.epoch = 0
        entry = InitializePartition(self.topic_id, 1, 1, 0)
        self.persist("initialize_state", InitializeShareGroupState(group_id="g", partitions=[entry]))
        self.broker.wait(200)

    def configure(self, **settings: Any) -> None:
        manager = self.broker.node.api.group_configs
        manager.update_group_config("g", settings)

    def persist(self, method: str, request: Any) -> Any:
        answers: list[Any] = []
        getattr(self.broker.node.api.share_coordinator.persister, method)(request, answers.append)
        self.broker.wait(0)
        return answers[0].partitions[0] if answers else None

    def state(self) -> tuple[int, list[tuple[int, int, int, int]]]:
        request = ReadShareGroupState(group_id="g", partitions=[ReadPartition(self.topic_id, 1)])
        outcome = self.persist("read_state", request)
        batches = [
            (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in outcome.state_batches
        ]
        return outcome.start_offset, batches

    def fetch(self) -> list[tuple[int, int, int]]:
        """Return the ranges that the member acquires."""
        entry = ShareFetchPartition(self.topic_id, 1, topic="t")
        request = ShareFetch(
            group_id="g",
            member_id="m",
            share_session_epoch=self.epoch,
            max_wait_ms=10,
            min_bytes=1,
            max_bytes=1_000_000,
            max_records=500,
            batch_size=500,
            partitions=[entry],
        )
        answers = self.broker.submit(request)
        self.broker.wait(10)
        self.epoch += 1
        (answer,) = answers
        assert answer.error is E.NONE
        return [
            (each.first_offset, each.last_offset, each.delivery_count)
            for part in answer.partitions
            for each in part.acquired_records
        ]

    def acknowledge(self, *batches: tuple[int, int, bytes]) -> None:
        rows = [AcknowledgementBatch(*each) for each in batches]
        entry = ShareAcknowledgePartition(self.topic_id, 1, rows, "t")
        answers = self.broker.submit(
            ShareAcknowledge(group_id="g", member_id="m", share_session_epoch=self.epoch, partitions=[entry])
        )
        self.broker.wait(0)
        self.epoch += 1
        assert [each.error for each in answers[0].partitions] == [E.NONE]

    def letters(self, topic: str = "dlq.t", partition: int = 0) -> list[Letter]:
        log = self.broker.node.state.replicas.partitions[topic, partition].log
        if not log.log_end_offset:
            return []
        columns = decode_columns(bytes_of(log, 0), builtin_codecs(), with_headers=True)
        return [
            (key, value, {name: (data or b"").decode() for name, data in headers})
            for key, value, headers in zip(columns.keys, columns.values, columns.headers, strict=True)
        ]


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    made.configure(errors_deadletterqueue_topic_name="dlq.t")
    yield made
    made.broker.stop()
    assert made.broker.reports == []


def test_rejected_records_become_letters_with_headers_of_their_origin(group: Group) -> None:
    group.broker.produce("t", *[b"x"] * 5, partition=1)
    assert group.fetch() == [(0, 4, 1)]
    group.acknowledge((0, 0, ACCEPT), (1, 2, REJECT), (3, 3, RELEASE))
    group.broker.wait(100)
    expected = {
        "__dlq.errors.topic": "t",
        "__dlq.errors.partition": "1",
        "__dlq.errors.group": "g",
        "__dlq.errors.delivery.count": "1",
        "__dlq.errors.message": "Offset rejected by client.",
    }
    assert group.letters() == [
        (None, None, {**expected, "__dlq.errors.offset": "1"}),
        (None, None, {**expected, "__dlq.errors.offset": "2"}),
    ]
    assert group.state() == (3, [(3, 3, 0, 1)])
    assert group.fetch() == [(3, 3, 2)]


def test_records_whose_deliveries_are_used_up_become_letters(group: Group) -> None:
    group.configure(errors_deadletterqueue_topic_name="dlq.t", share_delivery_count_limit=2)
    group.broker.produce("t", b"x", partition=1)
    assert group.fetch() == [(0, 0, 1)]
    group.acknowledge((0, 0, RELEASE))
    assert group.fetch() == [(0, 0, 2)]
    group.broker.wait(30_001)  # the lock lapses
    ((_, _, headers),) = group.letters()
    assert headers["__dlq.errors.message"] == "Offset delivery count exceeded the threshold."
    assert headers["__dlq.errors.delivery.count"] == "2"
    assert group.state() == (1, [])


def test_letters_have_the_messages_if_the_group_wants_copies(group: Group) -> None:
    group.configure(errors_deadletterqueue_topic_name="dlq.t", errors_deadletterqueue_copy_record_enable=True)
    group.broker.produce("t", *[b"value %d" % number for number in range(1_200)], partition=1)
    (first, last, _), *_ = group.fetch()
    assert (first, last) == (0, 1_199)
    group.acknowledge((0, 1_199, REJECT))
    group.broker.wait(1_000)
    letters = group.letters()
    assert [value for _, value, _ in letters] == [b"value %d" % number for number in range(1_200)]
    assert [headers["__dlq.errors.offset"] for _, _, headers in letters] == [str(each) for each in range(1_200)]
    assert group.state() == (1_200, [])


def test_headers_of_the_message_follow_those_of_the_letter(group: Group) -> None:
    group.configure(errors_deadletterqueue_topic_name="dlq.t", errors_deadletterqueue_copy_record_enable=True)
    sent = memoryview(encode_batch([Message(b"v", b"k", (("own", b"1"),))], now_ms=1_000))
    assert group.broker.ask(Produce(partitions=[ProducePartition("t", 1, sent)], acks=-1)).partitions[0].error is E.NONE
    group.fetch()
    group.acknowledge((0, 0, REJECT))
    group.broker.wait(100)
    ((key, value, headers),) = group.letters()
    assert (key, value, headers["own"]) == (b"k", b"v", "1")


def test_the_partition_of_a_letter_is_that_of_its_message() -> None:
    group = Group(partitions=3)
    group.configure(errors_deadletterqueue_topic_name="dlq.t")
    group.broker.produce("t", b"x", partition=1)
    group.fetch()
    group.acknowledge((0, 0, REJECT))
    group.broker.wait(100)
    assert [len(group.letters(partition=each)) for each in range(3)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("topic", "exists", "why"),
    [
        ("dlq.other", False, "there is no topic dlq.other"),
        ("plain", True, "does not begin with dlq."),
        ("__consumer_offsets", False, "begins with __"),
        ("dlq.off", True, "lacks errors.deadletterqueue.group.enable=true"),
    ],
)
def test_records_are_archived_and_reported_if_letters_cannot_be_written(topic: str, exists: bool, why: str) -> None:
    group = Group(None)
    if exists:
        group.broker.create(topic)
    group.configure(errors_deadletterqueue_topic_name=topic)
    group.broker.produce("t", *[b"x"] * 3, partition=1)
    group.fetch()
    group.acknowledge((0, 1, REJECT))
    group.broker.wait(100)
    assert group.state() == (2, [])
    (line,) = group.broker.reports
    assert why in line
    group.acknowledge((2, 2, REJECT))
    group.broker.wait(100)
    assert group.state() == (3, [])
    assert len(group.broker.reports) == 1


def test_the_topic_is_made_if_the_broker_may() -> None:
    group = Group(None, errors_deadletterqueue_auto_create_topics_enable=True)
    group.configure(errors_deadletterqueue_topic_name="dlq.new")
    group.broker.produce("t", b"x", partition=1)
    group.fetch()
    group.acknowledge((0, 0, REJECT))
    group.broker.wait(1_000)
    configs = group.broker.node.state.image.topic("dlq.new").configs
    assert configs["errors.deadletterqueue.group.enable"] == "true"
    assert len(group.letters("dlq.new")) == 1
    assert group.broker.reports == []


def test_letters_that_were_not_written_are_written_by_the_next_leader() -> None:
    group = Group(None, errors_deadletterqueue_auto_create_topics_enable=True)
    group.configure(errors_deadletterqueue_topic_name="dlq.new")
    group.broker.produce("t", *[b"x"] * 2, partition=1)
    group.fetch()
    handle: Any = group.broker.node.api._handlers[ShareFetch]
    manager = handle.__self__.share_partitions
    manager._send_letters = lambda: lambda _led, _letters, _done: None  # they stay on their way
    group.acknowledge((0, 1, REJECT))
    group.broker.wait(1_000)
    assert group.state() == (0, [(0, 1, 3, 1)]), "ARCHIVING is stored"
    group.broker.restart()
    group.broker.wait(500)
    group.epoch = 0
    group.configure(errors_deadletterqueue_topic_name="dlq.new")
    assert group.fetch() == []
    group.broker.wait(1_000)
    assert len(group.letters("dlq.new")) == 2
    assert group.state() == (2, [])


def test_without_share_version_2_records_are_archived_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(features.SUPPORTED, features.SHARE_VERSION, SupportedVersionRange(0, 1))
    group = Group()
    group.configure(errors_deadletterqueue_topic_name="dlq.t")
    group.broker.produce("t", b"x", partition=1)
    group.fetch()
    group.acknowledge((0, 0, REJECT))
    group.broker.wait(100)
    assert group.state() == (1, [])
    assert group.letters() == []
