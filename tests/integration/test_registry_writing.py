"""The writer when it does not learn what became of a transaction, and when another one writes."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import pytest
from support.schema_registry import serving
from support.waiting import PATIENCE_S

from barnabas import Producer
from barnabas.ports.errors import ConfigError
from barnabas.schemas.registry.errors import RegistryError
from barnabas.schemas.registry.library import Library
from barnabas.schemas.registry.records import Record, SchemaRecord, encode
from barnabas.schemas.registry.registry import SchemaReader, SchemaWriter, committed_reader
from barnabas.schemas.registry.server import Given, register
from barnabas.schemas.registry.state import Subjects
from barnabas.schemas.registry.words import Content, Version
from barnabas.testing import TestBroker

ATTEMPT_MS = 500


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@contextmanager
def writing(broker: TestBroker, timeout_s: float = 20) -> Iterator[tuple[SchemaReader, SchemaWriter]]:
    reader = SchemaReader(broker.bootstrap, "_schemas", attempt_ms=ATTEMPT_MS)
    writer = SchemaWriter(broker.bootstrap, "_schemas", reader, attempt_ms=ATTEMPT_MS, timeout_s=timeout_s)
    reader.start()
    writer.start()
    try:
        assert reader.wait_loaded()
        yield reader, writer
    finally:
        writer.stop()
        reader.stop()


class Wish:
    """A registration that counts how often it was decided."""

    def __init__(self, subject: str, name: str) -> None:
        self.decided = 0
        self._given = Given(subject=subject, content=Content("AVRO", f'{{"type":"fixed","name":"{name}","size":1}}'))

    def __call__(self, subjects: Subjects) -> tuple[Any, list[Record]]:
        self.decided += 1
        version, records = register(self._given, subjects, Library())
        return version.id, records


def test_a_commit_whose_answer_is_lost_is_found_in_the_log(broker: TestBroker) -> None:
    with writing(broker) as (reader, writer):
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1
        wish = Wish("b", "B")
        with broker.faults.delay("EndTxn", times=1) as fault:
            answer = writer.submit(wish)
            fault.wait()
            assert answer.result(PATIENCE_S) == 2
        assert wish.decided == 1
        assert [each.id for each in reader.snapshot().of_subject("b")] == [2]


def test_a_transaction_that_was_not_committed_is_written_again(broker: TestBroker) -> None:
    with writing(broker) as (reader, writer):
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1
        wish = Wish("b", "B")
        with broker.faults.error("EndTxn", "COORDINATOR_NOT_AVAILABLE") as fault:
            answer = writer.submit(wish)
            fault.wait()
            with pytest.raises(TimeoutError):
                answer.result(1.0)
        assert answer.result(PATIENCE_S) == 2
        assert wish.decided > 1
        assert [each.id for each in reader.snapshot().of_subject("b")] == [2]


def test_fenced_registry_writer_reads_schemas_of_other_writer(broker: TestBroker) -> None:
    with writing(broker) as (_, one), writing(broker) as (_, two):
        assert one.submit(Wish("s", "A")).result(PATIENCE_S) == 1
        assert two.submit(Wish("t", "B")).result(PATIENCE_S) == 2
        late = Wish("u", "C")
        assert one.submit(late).result(PATIENCE_S) == 3
        assert one.submit(Wish("v", "A")).result(PATIENCE_S) == 1


def test_brokers_that_are_away_for_too_long(broker: TestBroker) -> None:
    with writing(broker) as (_, writer):
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1
    with writing(broker, timeout_s=1) as (reader, writer):
        broker.stop()
        with pytest.raises(RegistryError) as refused:
            writer.submit(Wish("b", "B")).result(PATIENCE_S)
        assert (refused.value.code, refused.value.status) == (50003, 503)
        assert reader.snapshot().of_subject("a")


def test_rejected_schema_record_does_not_fail_other_registrations(broker: TestBroker) -> None:
    with writing(broker) as (_, writer):
        writer.submit(Wish("first", "First")).result(PATIENCE_S)
        with broker.admin() as admin:
            admin.alter_topic_configs("_schemas", {"max.message.bytes": "400"})
        answers = [writer.submit(Wish(name, "F" + "x" * size)) for name, size in (("a", 1), ("b", 400), ("c", 2))]
        assert [answers[0].result(PATIENCE_S), answers[2].result(PATIENCE_S)] == [2, 3]
        with pytest.raises(RegistryError, match="refuse the record") as refused:
            answers[1].result(PATIENCE_S)
        assert refused.value.code == 50001


def test_a_record_that_says_nothing_is_left_out(broker: TestBroker, caplog: pytest.LogCaptureFixture) -> None:
    with writing(broker) as (reader, writer):
        with Producer(broker.bootstrap) as producer:
            producer.send("_schemas", b"{}", key=b"what").result(PATIENCE_S)
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1
        assert reader.snapshot().of_subject("a")
    assert "offset 0 is ignored" in caplog.text


@pytest.mark.parametrize(
    ("partitions", "policy", "why"),
    [(1, "delete", "barnabas configs set cleanup.policy=compact --topic _schemas"), (2, "compact", "has 2 partitions")],
)
def test_a_topic_that_would_lose_schemas_is_refused(broker: TestBroker, partitions: int, policy: str, why: str) -> None:
    with broker.admin() as admin:
        admin.create_topic("_schemas", partitions=partitions, configs={"cleanup.policy": policy})
    with pytest.raises(ConfigError, match=why), serving(broker.bootstrap):
        pass


def test_cancelled_registration_does_not_disturb_other_registrations(broker: TestBroker) -> None:
    """A client that disconnects, or a server that stops, cancels the request."""
    with writing(broker) as (_, writer):
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1
    with writing(broker, timeout_s=1) as (_, writer):
        broker.stop()
        writer.submit(Wish("b", "B")).cancel()
        with pytest.raises(RegistryError, match="cannot be reached"):
            writer.submit(Wish("c", "C")).result(PATIENCE_S)


def test_failing_registration_does_not_fail_other_registrations(broker: TestBroker) -> None:
    def fails(subjects: Subjects) -> tuple[Any, list[Record]]:
        raise AttributeError("of no schema")

    def half_a_character(subjects: Subjects) -> tuple[Any, list[Record]]:
        return register(
            Given(subject="h", content=Content("AVRO", '"int"', metadata='{"a":"\ud800"}')), subjects, Library()
        )

    with writing(broker) as (_, writer):
        first = writer.submit(Wish("first", "First"))
        answers = [writer.submit(wish) for wish in (fails, half_a_character, Wish("b", "B"), Wish("c", "C"))]
        assert [first.result(PATIENCE_S), answers[2].result(PATIENCE_S), answers[3].result(PATIENCE_S)] == [1, 2, 3]
        with pytest.raises(RegistryError) as failed:
            answers[0].result(PATIENCE_S)
        with pytest.raises(RegistryError) as refused:
            answers[1].result(PATIENCE_S)
        assert (failed.value.code, refused.value.code) == (50001, 42201)


def test_a_topic_whose_first_records_are_gone(broker: TestBroker) -> None:
    """One that was no compacted topic before."""
    with broker.admin() as admin:
        admin.create_topic("_schemas", partitions=1, replication_factor=1, configs={"cleanup.policy": "delete"})
        with Producer(broker.bootstrap) as producer:
            producer.send("_schemas", b"{}", key=b"what").result(PATIENCE_S)
        admin.delete_records({("_schemas", 0): 1})
        admin.alter_topic_configs("_schemas", {"cleanup.policy": "compact"})
    with writing(broker) as (_, writer):
        assert writer.submit(Wish("a", "A")).result(PATIENCE_S) == 1


def test_recreated_schema_topic_is_read_from_beginning(broker: TestBroker) -> None:
    """The registry makes no request during the deletion."""
    one, other = (SchemaReader(broker.bootstrap, "_schemas", attempt_ms=ATTEMPT_MS) for _ in range(2))
    names = iter("abcd")

    def look(reader: SchemaReader, records: int) -> list[str]:
        """Return the subjects after `records` further records, written after the reader has connected."""
        reader._stopping.set()  # it polls on demand only
        with Producer(broker.bootstrap) as producer, committed_reader(broker.bootstrap, ATTEMPT_MS) as consumer:
            reader._follow(consumer)
            for name in islice(names, records):
                version = Version(subject=name, version=1, id=1, content=Content("AVRO", '"int"'))
                key, value = encode(SchemaRecord(name, 1, version))
                producer.send("_schemas", value, key).result(PATIENCE_S)
            fetched = consumer.fetch("_schemas", 0, reader._position, max_wait_ms=0)
            with reader._changed:
                reader._apply_messages(list(fetched), fetched.next_offset)
        return sorted(reader._subjects.versions)

    assert look(one, 1) == ["a"]
    with broker.admin() as admin:
        admin.delete_topics(["_schemas"])
    assert look(other, 2) == ["b", "c"]
    assert look(one, 1) == ["b", "c", "d"]
