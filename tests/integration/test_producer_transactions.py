"""Our producer's transactions over the wire, at our broker and at Apache Kafka."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import confluent_kafka
import pytest
from support.command import barnabas_here
from support.kafka_server import KafkaServer
from support.long_tests import first_is_quick
from support.waiting import wait_for

from barnabas import AbortNeeded, Admin, CommitFailed, Consumer, Producer, ProducerFenced
from barnabas.adapters.wire_kafka.api import Api
from barnabas.adapters.wire_kafka.client import KafkaLink
from barnabas.ports.broker_api.metadata import NO_TOPIC_ID
from barnabas.ports.broker_api.produce import Produce
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestBroker

pytestmark = [pytest.mark.process]

WAIT_S = 240


@pytest.fixture(scope="module", params=first_is_quick(["barnabas", "kafka"]))
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "barnabas":
        with TestBroker() as broker:
            yield broker.bootstrap
        return
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    server.start()
    try:
        server.wait_ready()
        yield server.bootstrap
    finally:
        server.stop()


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"t-{uuid4().hex[:8]}"
    with Admin(bootstrap) as admin:
        admin.create_topic(name, partitions=2)
    return name


def transactional(bootstrap: str, name: str, **settings: Any) -> Producer:
    return Producer(bootstrap, transactional_id=name, linger_ms=0, **settings)


def until_read(bootstrap: str, topic: str, expected: list[bytes]) -> None:
    """The markers come after the answer to who commits."""
    wait_for(lambda: len(read(bootstrap, topic)) >= len(expected), WAIT_S)
    assert read(bootstrap, topic) == expected


def read(bootstrap: str, topic: str, level: str = "read_committed") -> list[bytes]:
    with Consumer(bootstrap, isolation_level=level) as consumer:
        consumer.assign(topic, position="earliest")
        return sorted(m.value or b"" for m in consumer.messages(stop_at_end=True, timeout=WAIT_S))


def test_commits_and_aborts(bootstrap: str, topic: str) -> None:
    with transactional(bootstrap, topic) as producer:
        for number in range(6):
            try:
                with producer.transaction():
                    for partition in (0, 1):
                        producer.send(topic, b"%d-%d" % (number, partition), partition=partition).result(WAIT_S)
                    if number % 2:
                        raise LookupError
            except LookupError:
                pass
        committed = [b"%d-%d" % (n, p) for n in (0, 2, 4) for p in (0, 1)]
        until_read(bootstrap, topic, committed)
        assert len(read(bootstrap, topic, "read_uncommitted")) == 12
        with producer.transaction():
            producer.send(topic, b"open").result(WAIT_S)
            assert read(bootstrap, topic) == committed
        until_read(bootstrap, topic, [*committed, b"open"])


def test_positions_pass_the_markers(bootstrap: str, topic: str) -> None:
    with transactional(bootstrap, topic) as producer, Consumer(bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign((topic, 0), position="earliest")
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"x", partition=0).result(WAIT_S)
            producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction()
        wait_for(lambda: consumer.end_offsets()[TopicPartition(topic, 0)] == 8, WAIT_S)
        assert len(list(consumer.messages(stop_at_end=True, timeout=WAIT_S))) == 2
        assert consumer.position((topic, 0)) == 8
        assert consumer.lag() == {(topic, 0): 0}


def test_a_thousand_messages_and_many_small_transactions(bootstrap: str, topic: str) -> None:
    with transactional(bootstrap, topic) as producer:
        with producer.transaction():
            producer.send_many(topic, [b"%04d" % number for number in range(1000)])
        for number in range(1000, 1030):
            with producer.transaction():
                producer.send(topic, b"%04d" % number)
    until_read(bootstrap, topic, sorted(b"%04d" % number for number in range(1030)))


def test_fencing_by_ours_and_by_librdkafka(bootstrap: str, topic: str) -> None:
    config = {"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0}
    with transactional(bootstrap, topic) as first:
        with first.transaction():
            first.send(topic, b"ours")
        first.begin_transaction()
        first.send(topic, b"zombie").result(WAIT_S)
        theirs = confluent_kafka.Producer(config)
        theirs.init_transactions(WAIT_S)
        with pytest.raises(ProducerFenced):
            first.commit_transaction()
        theirs.begin_transaction()
        theirs.produce(topic, b"theirs")
        theirs.commit_transaction(WAIT_S)
        with transactional(bootstrap, topic) as second:
            second.init_transactions()
            theirs.begin_transaction()
            with pytest.raises(confluent_kafka.KafkaException) as fenced:
                theirs.produce(topic, b"zombie")
                theirs.commit_transaction(WAIT_S)
            assert fenced.value.args[0].code() == confluent_kafka.KafkaError._FENCED
    until_read(bootstrap, topic, [b"ours", b"theirs"])


def test_positions_go_with_the_transaction(bootstrap: str, topic: str) -> None:
    group = f"g-{topic}"
    with Producer(bootstrap) as source:
        source.send_many(topic, [b"%d" % number for number in range(10)], partition=0).result(WAIT_S)
    settings: dict[str, Any] = {"group_id": group, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    settings["group_protocol"] = "classic"  # a rebalance gives every member another generation
    with transactional(bootstrap, topic) as producer, Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe(topic)
        taken = consumer.poll_many(4, WAIT_S)
        with pytest.raises(LookupError), producer.transaction():
            producer.send_offsets(consumer)
            raise LookupError
        assert consumer.committed()[TopicPartition(topic, 0)] is None
        with producer.transaction():
            for _ in taken:
                producer.send(topic, b"out", partition=1)
            producer.send_offsets(consumer)
        at = consumer.committed()[TopicPartition(topic, 0)]
        assert at is not None
        assert at.offset == len(taken)
        metadata = consumer.group_metadata
        with producer.transaction():
            producer.send_offsets({(topic, 0): 9}, metadata)
        consumer.enforce_rebalance()
        wait_for(lambda: consumer.poll_many(1, 0.05) is not None and consumer.group_metadata != metadata, WAIT_S)
        with pytest.raises(CommitFailed) as refused, producer.transaction():
            producer.send_offsets({(topic, 0): 10}, metadata)
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
        with producer.transaction():
            producer.send_offsets({(topic, 0): 8}, group)
        with Admin(bootstrap) as admin:
            wait_for(lambda: admin.group_offsets(group)[TopicPartition(topic, 0)].offset == 8, WAIT_S)


def test_refused_transaction_aborts_and_the_next_one_commits(bootstrap: str, topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.alter_topic_configs(topic, {"max.message.bytes": "500"})
    with transactional(bootstrap, topic) as producer:
        with pytest.raises(AbortNeeded), producer.transaction():
            producer.send(topic, b"x" * 1000, partition=0)
        with producer.transaction():
            producer.send(topic, b"good", partition=0)
    until_read(bootstrap, topic, [b"good"])


def test_a_timeout_that_the_broker_does_not_allow(bootstrap: str) -> None:
    with transactional(bootstrap, "long", transaction_timeout_ms=10_000_000) as producer:
        with pytest.raises(ApiError) as refused:
            producer.init_transactions()
        assert refused.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_administrators_see_open_transactions(bootstrap: str, topic: str) -> None:
    with transactional(bootstrap, topic) as producer, Admin(bootstrap) as admin, producer.transaction():
        producer.send(topic, b"x", partition=1).result(WAIT_S)
        (listed,) = admin.list_transactions(states=["Ongoing"])
        (described,) = admin.describe_transactions([topic])
        assert (listed.transactional_id, listed.producer_id) == (topic, described.producer_id)
        assert listed.coordinator == admin.transaction_coordinator(topic).node_id
        assert (described.state, dict(described.topics)) == ("Ongoing", {topic: [1]})
        assert listed in admin.list_transactions(producer_ids=[listed.producer_id])
        assert admin.list_transactions(producer_ids=[listed.producer_id], duration_ms=3_600_000) == []
        with pytest.raises(ConfigError, match="Sleeping"):
            admin.list_transactions(states=["Sleeping"])
        with pytest.raises(ApiError) as unknown:
            admin.describe_transactions(["nobody"])
        assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        known = admin.describe_producers([(topic, 1), (topic, 0)])
        assert known[TopicPartition(topic, 0)] == []
        (active,) = known[TopicPartition(topic, 1)]
        assert (active.producer_id, active.current_txn_start_offset) == (described.producer_id, 0)
        assert admin.find_hanging_transactions(topics=[topic]) == []
        assert admin.find_hanging_transactions(topics=[topic], max_timeout_ms=-1000) == [], "its coordinator knows it"


def test_the_command_shows_it(bootstrap: str, topic: str) -> None:
    def observed(*words: str) -> Any:
        return json.loads(barnabas_here("transactions", *words, "--json", "--bootstrap", bootstrap).stdout)

    with transactional(bootstrap, topic) as producer, producer.transaction():
        producer.send(topic, b"x", partition=0).result(WAIT_S)
        assert [each["transactional_id"] for each in observed("list", "--state", "Ongoing")] == [topic]
        shown = observed("describe", topic)
        assert (shown["state"], shown["partitions"]) == ("Ongoing", [f"{topic}:0"])
        assert 0 <= shown["duration_ms"] < WAIT_S * 1000
        (active,) = observed("producers", f"{topic}:0")
        assert active["producer_id"] == shown["producer_id"]
        assert observed("find-hanging", "--topic", topic) == []
        plain = barnabas_here("transactions", "describe", topic, "--bootstrap", bootstrap).stdout.decode()
        assert f"{topic}:0" in plain
    until_read(bootstrap, topic, [b"x"])  # the marker follows the answer
    abort = ("transactions", "abort", "--bootstrap", bootstrap)
    refused = barnabas_here(*abort, f"{topic}:0", "--start-offset", "0", expect=1)
    assert b"no open transaction" in refused.stderr
    for words in ((f"{topic}:0",), ("nonsense", "--start-offset", "0"), (f"{topic}:0", "--producer-id", "1")):
        barnabas_here(*abort, *words, expect=2)


def test_lines_in_one_transaction(bootstrap: str, topic: str) -> None:
    words = ("produce", topic, "--transactional-id", topic, "--bootstrap", bootstrap)
    barnabas_here(*words, stdin=b"a\nb\nc\n")
    until_read(bootstrap, topic, [b"a", b"b", b"c"])


@pytest.mark.parametrize("name", [None, "x"], ids=["idempotent", "transactional"])
def test_messages_sent_after_recreation_are_in_the_new_topic_in_order(
    bootstrap: str, topic: str, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Produce goes by topic id."""
    sent: set[int] = set()
    encode = KafkaLink._encode

    def encoded(link: KafkaLink, api: Api, version: int, *others: Any) -> Any:
        if api.request_type is Produce:
            sent.add(version)
        return encode(link, api, version, *others)

    monkeypatch.setattr(KafkaLink, "_encode", encoded)
    options: dict[str, Any] = {} if name is None else {"transactional_id": f"{name}-{topic}"}
    with Producer(bootstrap, linger_ms=0, **options) as producer, Admin(bootstrap) as admin:

        def send(values: list[bytes]) -> list[int]:
            with nullcontext() if name is None else producer.transaction():
                return [producer.send(topic, each, partition=0).result(WAIT_S).offset for each in values]

        assert send([b"a", b"b"]) == [0, 1]
        with Consumer(bootstrap) as watcher:
            old = watcher._shell.view
            watcher.assign(topic, position="earliest")
            wait_for(lambda: old.topic_id(topic) != NO_TOPIC_ID, WAIT_S)
            before = old.topic_id(topic)
            admin.delete_topics([topic])

            def is_made() -> bool:
                try:
                    admin.create_topic(topic, partitions=2)
                except ApiError as error:
                    assert error.code is ErrorCode.TOPIC_ALREADY_EXISTS  # Kafka deletes a moment later
                    return False
                return True

            wait_for(is_made, WAIT_S)

            def is_known() -> bool:
                old.request_refresh()
                return old.topic_id(topic) not in (NO_TOPIC_ID, before)

            wait_for(is_known, WAIT_S)
        assert send([b"c", b"d", b"e"]) == [0, 1, 2]
    assert sent == {13}
