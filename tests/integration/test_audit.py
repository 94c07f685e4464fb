"""The audit over a real broker: every tier counts exactly once, and what was lost or doubled is named."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from support.command import barnabas_here
from support.tables import Rows, commit_rows
from support.waiting import PATIENCE_S, wait_for

from barnabas import AbortNeeded, Admin, ApiError, Consumer, ErrorCode, Producer
from barnabas.app.mirror import MirrorMaker
from barnabas.audit import auditor as auditor_module
from barnabas.audit import commands
from barnabas.audit.auditor import AuditedConsumer, Auditor
from barnabas.audit.publishing import wall_ms
from barnabas.audit.reading import AuditReader
from barnabas.audit.reconcile import Reconciliation, reconcile
from barnabas.audit.reports import TOPIC, CountReport, Reporter, encode
from barnabas.audit.stamp import HEADER
from barnabas.pipeline.table_audit import TableAudit, audited_load
from barnabas.pipeline.tables.formats import open_store
from barnabas.pipeline.tables.quarantine import FOLDER as QUARANTINE
from barnabas.ports.errors import ConfigError
from barnabas.ports.types import TopicPartition
from barnabas.testing import TestBroker

QUICK = {"interval.ms": 100, "window.ms": 60_000}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with TestBroker() as broker:
        yield broker.bootstrap


@pytest.fixture
def broker() -> Iterator[str]:
    """One of its own, for tests that are about all topics."""
    with TestBroker() as broker:
        yield broker.bootstrap


def audited(bootstrap: str, instance: str, **settings: Any) -> Producer:
    props = {**QUICK, "instance": instance}
    return Producer(bootstrap, callback_handler="audit", callback_handler_props=props, **settings)


def count(bootstrap: str, **settings: Any) -> int:
    """Return the counts of an auditor at the end of the topic."""
    auditor = Auditor(bootstrap, window_ms=60_000, interval_s=0.1, **settings)
    try:
        auditor.count_to_end()
        return auditor.counted
    finally:
        auditor.close()


def reconciled(bootstrap: str, *topics: str) -> Reconciliation:
    return reconciled_of([bootstrap], *topics)


def reconciled_of(bootstraps: list[str], *topics: str) -> Reconciliation:
    reader = AuditReader(bootstraps)
    try:
        reader.read()
        return reconcile(reader.totals, now_ms=wall_ms(), topics=topics, grace_ms=0)
    finally:
        reader.close()


def named(found: Reconciliation, kind: str, name: str) -> set[str]:
    return {str(w) for window in found.windows for t in window.tiers if t.tier == name for w in getattr(t, kind)}


def test_producer_broker_and_consumer_agree_transactions_too(broker: str) -> None:
    with Admin(broker) as admin:
        admin.create_topic("views", partitions=3)
    with audited(broker, "web-1/a") as plain, audited(broker, "web-2/b", transactional_id="t") as transactional:
        plain.send_many("views", [b"x" * 10] * 5000)
        for number in range(100):
            plain.send("views", b"y", key=b"%d" % number)
        with transactional.transaction():
            transactional.send_many("views", [b"committed"] * 10)
        with pytest.raises(KeyError), transactional.transaction():
            transactional.send_many("views", [b"aborted"] * 10)
            transactional.flush()
            raise KeyError
    assert count(broker) == 5110
    with AuditedConsumer(broker, group_id="billing", auto_offset_reset="earliest", window_ms=60_000) as consumer:
        consumer.subscribe("views")
        for number, _ in enumerate(consumer, start=1):
            if number == 5110:
                break

        def at_end() -> bool:
            assert not consumer.poll_many(timeout=0.1)
            consumer.commit()
            return consumer.upto_ms > 0

        wait_for(at_end)
    found = reconciled(broker, "views")
    assert found.agrees
    assert not found.unclosed
    for name in ("broker", "consumer:billing"):
        figures = [t for window in found.windows for t in window.tiers if t.tier == name]
        assert sum(t.arrived for t in figures) == sum(t.expected for t in figures) == 5110
        assert not any(t.pending or t.unstamped or t.unconfirmed for t in figures)
        assert all(t.delay_median_ms is not None for t in figures if t.count)


def test_audit_names_each_dropped_and_doubled_message(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
    with audited(bootstrap, "web-1/drop") as producer:
        producer.send_many("orders", [b"%d" % number for number in range(100)])
    with Consumer(bootstrap) as consumer, Producer(bootstrap) as copier:
        consumer.assign("orders", position="earliest")
        messages = list(consumer.messages(stop_at_end=True))
        assert all(message.headers[-1][0] == HEADER for message in messages)
        for message in (*messages[40:43], messages[42], *messages[70:71]):
            copier.send("orders", message.value, headers=message.headers)
        copier.send("orders", b"by somebody else")
    with Admin(bootstrap) as admin:
        admin.delete_records({("orders", 0): 7})
    count(bootstrap, topics=["orders"], instance="drop")
    found = reconciled(bootstrap, "orders")
    assert not found.agrees
    assert named(found, "lost", "broker") == {"web-1/drop 0-6"}
    assert named(found, "doubled", "broker") == {"web-1/drop 40-41", "web-1/drop 42 x2", "web-1/drop 70"}
    assert sum(t.unstamped for window in found.windows for t in window.tiers) == 1
    assert found.messages("lost") == 7
    assert found.messages("doubled") == 5


def test_next_consumer_counts_uncommitted_messages(bootstrap: str) -> None:
    with audited(bootstrap, "web-1/again") as producer:
        producer.send_many("again", [b"x"] * 50)
    with pytest.raises(RuntimeError), AuditedConsumer(bootstrap, group_id="a", auto_offset_reset="earliest") as first:
        first.subscribe("again")
        assert len(first.poll_many(30, timeout=PATIENCE_S)) == 30
        raise RuntimeError
    with AuditedConsumer(bootstrap, group_id="a", auto_offset_reset="earliest", window_ms=60_000) as second:
        second.subscribe("again")
        taken = len(second.poll_many(20, timeout=PATIENCE_S))
        with pytest.raises(KeyError), second.transaction():
            raise KeyError
        second.commit()
        taken += len(second.poll_many(5, timeout=PATIENCE_S))
        second.rewind()
        while taken < 55:
            taken += len(second.poll_many(timeout=PATIENCE_S))
        second.commit()
    found = reconciled(bootstrap, "again")
    assert found.agrees
    assert sum(t.count for window in found.windows for t in window.tiers if t.tier == "consumer:a") == 50


def test_a_transaction_with_counts_takes_what_else_is_sent(bootstrap: str) -> None:
    with audited(bootstrap, "web-1/work") as producer:
        producer.send_many("work", [b"x"] * 5)
    with AuditedConsumer(bootstrap, group_id="w", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("work")
        orders = consumer.poll_many(5, timeout=PATIENCE_S)
        with consumer.transaction() as producer:
            producer.send_many("invoices", [message.value for message in orders])
    with Consumer(bootstrap, isolation_level="read_committed") as reader:
        reader.assign("invoices", position="earliest")
        assert len(list(reader.messages(stop_at_end=True))) == 5
    assert sum(t.count for w in reconciled(bootstrap, "work").windows for t in w.tiers if t.tier == "consumer:w") == 5


def test_topic_without_audit_is_reported_as_such() -> None:
    with TestBroker() as broker, pytest.raises(ConfigError, match="it is not audited"):
        AuditReader([broker.bootstrap])
    with pytest.raises(ConfigError, match="unknown colour"):
        Producer("127.0.0.1:1", callback_handler="audit", callback_handler_props={"colour": 1})
    with pytest.raises(ConfigError, match="whole number"):
        Producer("127.0.0.1:1", callback_handler="audit", callback_handler_props={"window.ms": 0})


def test_an_audited_producer_works_where_the_reports_cannot_go(bootstrap: str) -> None:
    props = {**QUICK, "bootstrap.servers": "127.0.0.1:1"}
    producer = Producer(bootstrap, callback_handler="audit", callback_handler_props=props)
    assert producer.send("lonely", b"x").result(PATIENCE_S).offset == 0
    producer.close(1)


def _abort_needed(code: ErrorCode) -> AbortNeeded:
    error = AbortNeeded("the transaction has to be aborted")
    error.__cause__ = ApiError(code, "")
    return error


def test_count_to_end_ends_with_a_commit_and_at_a_missing_right(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Producer(broker) as producer:
        producer.send_many("views", [b"x"] * 20).result(PATIENCE_S)
    failures = [_abort_needed(ErrorCode.UNKNOWN_PRODUCER_ID), _abort_needed(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    commit = AuditedConsumer.commit

    def fail_first(self: AuditedConsumer) -> None:
        commits.append(self)
        if failures:
            self._read_end_offsets()  # the reader is at the end, and the commit fails
            raise failures.pop(0)
        commit(self)

    commits: list[AuditedConsumer] = []
    monkeypatch.setattr(AuditedConsumer, "commit", fail_first)
    auditor = Auditor(broker, window_ms=60_000, interval_s=3600, topics=["views"])
    with pytest.raises(AbortNeeded):
        auditor.count_to_end()
    assert len(commits) == 2
    auditor.count_to_end()
    assert len(commits) == 3
    with Admin(broker) as admin:
        assert sum(at.offset for at in admin.group_offsets(f"{TOPIC}-broker").values()) == 20
    auditor.close()


def test_the_audit_topic_is_not_audited(broker: str) -> None:
    with audited(broker, "web-1/self") as producer:
        producer.send(TOPIC, b"no report")
        assert producer.send("t", b"x").result(PATIENCE_S).offset == 0
    with Consumer(broker) as consumer:
        consumer.assign(TOPIC, position="earliest")
        assert [m.headers for m in consumer.messages(stop_at_end=True) if m.value == b"no report"] == [()]
    assert count(broker) == 1


def test_audit_commands_count_and_report_messages(broker: str, tmp_path: Path) -> None:
    with audited(broker, "web-1/cli") as producer:
        producer.send_many("views", [b"x"] * 20)
    counted = barnabas_here("audit", "count", "--bootstrap", broker, "--once", "--window", "1m")
    assert (counted.returncode, counted.stderr) == (0, b"20 messages counted\n")
    page = tmp_path / "audit.html"
    fine = barnabas_here("audit", "--bootstrap", broker, "--html", str(page), "--grace", "1ms", "--since", "1h")
    assert fine.returncode == 0, fine.stderr
    assert fine.stdout.startswith(b"all tiers agree; windows: 1 ")
    assert "100 % of producer" in page.read_text(encoding="utf-8")
    with Admin(broker) as admin:
        admin.create_topic("gone", partitions=1)
        with audited(broker, "web-2/cli") as producer:
            producer.send_many("gone", [b"x"] * 5)
        admin.delete_records({("gone", 0): 2})
    barnabas_here("audit", "count", "--bootstrap", broker, "--once", "--window", "1m")
    wrong = barnabas_here(
        "audit", "--bootstrap", broker, "--json", "--grace", "1ms", "--topics", "gone,other", expect=1
    )
    tree = json.loads(wrong.stdout)
    assert (tree["lost"], tree["doubled"], {w["topic"] for w in tree["windows"]}) == (2, 0, {"gone"})
    assert wrong.stderr == b"barnabas: no tier has counted topic other; those counted are gone, views\n"
    typo = barnabas_here("audit", "--bootstrap", broker, "--topics", "vews", expect=1)
    assert (typo.stdout, b"topic vews; those counted are gone, views" in typo.stderr) == (b"", True)
    other = barnabas_here("audit", "--since", "tomorrow", "--bootstrap", broker, expect=2)
    assert b"is not a time" in other.stderr
    for words in ((), ("count", "--once")):
        away = barnabas_here("audit", *words, "--bootstrap", "127.0.0.1:1", expect=1)
        assert b"no broker there: 127.0.0.1:1" in away.stderr


def test_quarantined_rows_count_as_arrived_in_the_table(bootstrap: str, tmp_path: Path) -> None:
    table, day = tmp_path / "t", "2024-01-01"
    topic_id = made(bootstrap, "bad")
    commit_rows(open_store(table / QUARANTINE), Rows("bad", day, [3, 4, 10]))  # 10 is of a load that was killed then
    commit_rows(open_store(table), Rows("bad", day, [0, 1, 2, 5, 6, 7, 8, 9]), topic_id=topic_id)
    audit = TableAudit(bootstrap, table, ["bad"], tier="table")
    assert audit.count() == 10
    assert audit.count() == 0


def test_where_a_first_load_fails_nothing_is_said_of_a_count(bootstrap: str, tmp_path: Path) -> None:
    made(bootstrap, "here")
    observed: list[str] = []
    audit = TableAudit(bootstrap, tmp_path / "table", ["here"])
    with pytest.raises(ZeroDivisionError), audited_load(audit, observed.append):
        raise ZeroDivisionError
    assert observed == []


def test_a_topic_that_is_gone_or_another_does_not_keep_a_table_from_being_counted(
    bootstrap: str, tmp_path: Path
) -> None:
    ids = {topic: made(bootstrap, topic) for topic in ("goes", "made-again", "stays")}
    commit_rows(open_store(tmp_path), *(Rows(topic, "2024-01-01", range(5)) for topic in ids), topic_id=ids["stays"])
    audit = TableAudit(bootstrap, tmp_path, list(ids), tier="kept")
    with Admin(bootstrap) as admin:
        admin.delete_topics(["goes", "made-again"])
    made(bootstrap, "made-again")
    assert audit.count() == 5
    assert audit.count() == 0


def test_a_topic_that_is_deleted_does_not_end_the_audit(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditor_module, "_POSITIONS_S", 0.3)
    monkeypatch.setattr(auditor_module, "_ADMIN_MS", 500)
    for topic in ("goes", "stays"):
        made(broker, topic)
    with audited(broker, "web-1/d") as producer:
        for topic in ("goes", "stays"):
            producer.send_many(topic, [b"x"] * 10)
        producer.flush()
        auditor = Auditor(broker, window_ms=60_000, interval_s=3600)
        try:
            while auditor.counted < 20:
                auditor.step()
            with Admin(broker) as admin:
                admin.delete_topics(["goes"])
            producer.send_many("stays", [b"x"] * 5)
            producer.flush()
            auditor.count_to_end()
        finally:
            auditor.close()
    found = reconciled(broker, "stays")
    assert found.agrees
    assert sum(t.count for window in found.windows for t in window.tiers if t.tier == "broker") == 15


def made(bootstrap: str, topic: str) -> str:
    """Create a topic with one partition; return its id."""
    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=1)
        return str(admin.describe_topics([topic])[0].topic_id.hex())


def test_audit_watch_shows_changes_until_interrupted(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Admin(broker) as admin:
        admin.create_topic("views", partitions=1)
    with audited(broker, "web-1/w") as producer:
        producer.send_many("views", [b"x"] * 5)
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            with Admin(broker) as admin:
                admin.delete_records({("views", 0): 2})
            count(broker)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(commands, "time", SimpleNamespace(sleep=wait))
    words = ("audit", "--bootstrap", broker, "--topics", "views", "--grace", "1ms", "--watch", "--every", "250ms")
    shown = barnabas_here(*words, expect=1).stdout.decode()
    assert waits == [0.25, 0.25]
    before, _, after = shown.partition("the tiers do not agree, messages: 2 lost")
    assert before.startswith("nothing can be compared yet")
    assert "lost before broker  views" in after


def test_a_reader_that_cannot_begin_leaves_nothing_open(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if not thread.name.startswith("barnabas-worker")}

    before = threads()
    monkeypatch.setattr(auditor_module, "Producer", Mock(side_effect=ConfigError("none")))
    with pytest.raises(ConfigError):
        AuditedConsumer(broker, group_id="g")
    assert threads() <= before


def test_committed_messages_count_before_their_markers_arrive(broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    origin = Reporter(tier="web", by="web-1", time_ms=wall_ms())
    report = CountReport(origin=origin, topic="views", window_ms=0, width_ms=60_000, count=5)
    with Admin(broker) as admin, Producer(broker, transactional_id="tier") as producer:
        admin.create_topic(TOPIC, partitions=1)
        reader = AuditReader([broker])
        producer.begin_transaction()
        producer.send(TOPIC, encode(report))
        producer.flush()
        reached = Consumer.reached

        def committed(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
            if not reader.totals.topics:
                producer.commit_transaction()
                monkeypatch.undo()
            return reached(consumer, ends)

        monkeypatch.setattr(Consumer, "reached", committed)
        reader.read()
        reader.close()
    assert reader.totals.topics == ["views"]


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_audit_finds_messages_that_a_mirror_drops_and_doubles(exactly_once: bool) -> None:
    with TestBroker() as one, TestBroker() as two:
        with Admin(one.bootstrap) as admin:
            admin.create_topic("views", partitions=2)
        with audited(one.bootstrap, "web-1/m") as producer:
            producer.send_many("views", [b"x"] * 500, partition=0)
        source = {"bootstrap.servers": one.bootstrap, "group.id": "copy"}
        target = {"bootstrap.servers": two.bootstrap}
        props = {"tier": "mirror", "window.ms": 60_000}
        with MirrorMaker(
            [source], target, whitelist="views", exactly_once=exactly_once, counter="audit", counter_props=props
        ) as mirror:
            wait_for(lambda: mirror.copied >= 500 or mirror.wait(0))
            wait_for(lambda: is_fully_reported(two.bootstrap, "mirror", "views"))
        with Consumer(two.bootstrap) as consumer, Producer(two.bootstrap) as copier:
            consumer.assign("views", position="earliest")
            found_there = list(consumer.messages(stop_at_end=True))
            messages = [m for m in found_there if m.partition == found_there[0].partition]
            copier.send("views", messages[-1].value, headers=messages[-1].headers)
        with Admin(two.bootstrap) as admin:
            admin.delete_records({("views", messages[0].partition): messages[2].offset + 1})
        dropped = sorted(int.from_bytes((m.headers[-1][1] or b"")[-8:]) for m in messages[:3])
        copied = int.from_bytes((messages[-1].headers[-1][1] or b"")[-8:])
        assert count(one.bootstrap) == 500
        count(two.bootstrap, tier="broker-two", after="mirror", topics=["views"])
        found = reconciled_of([one.bootstrap, two.bootstrap], "views")
        assert [t.tier for t in found.windows[0].tiers] == ["producer", "broker", "mirror", "broker-two"]
        assert named(found, "lost", "mirror") == named(found, "doubled", "mirror") == set()
        assert sum(t.arrived for w in found.windows for t in w.tiers if t.tier == "mirror") == 500
        assert named(found, "lost", "broker-two") == {f"web-1/m {dropped[0]}-{dropped[2]}"}
        assert named(found, "doubled", "broker-two") == {f"web-1/m {copied}"}
        assert not found.unclosed


def is_fully_reported(bootstrap: str, tier_name: str, topic: str) -> bool:
    reader = AuditReader([bootstrap])
    try:
        reader.read()
        return reader.totals.upto_ms(tier_name, topic) > 0
    finally:
        reader.close()
