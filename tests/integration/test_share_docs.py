"""The programs of the page on share groups run, against brokers that follow a script."""

import time

import pytest
from support.documents import blocks
from support.plain_cluster import PlainCluster, PlainConnector
from support.share_group_script import ShareGroupScript
from support.waiting import PATIENCE_S

from barnabas import Message
from barnabas.core.message.batch_writer import encode_batch
from barnabas.ports.types import TopicPartition

PAGE = "docs/share-consumer.md"
PROGRAMS = [block.code for block in blocks(PAGE) if block.language == "python"]


def run(program: str, topic: str, values: list[bytes]) -> tuple[ShareGroupScript, TopicPartition]:
    """Run a program until no message has come for a while, once or until it has accepted all of them."""
    tp = TopicPartition(topic, 0)
    cluster = PlainCluster(**{topic: 1})
    group = ShareGroupScript(cluster, lambda: time.monotonic() * 1000)
    cluster.append(tp, encode_batch([Message(value) for value in values], now_ms=1000))
    names = {"connector": PlainConnector(cluster)}
    program = program.replace('"127.0.0.1:9092"', "connector, consumer_timeout_ms=1500").replace(
        "poll_many(100, timeout=10)", "poll_many(100, timeout=1.5)"
    )
    deadline = time.monotonic() + PATIENCE_S
    while not group.all_done(tp):  # on a busy machine the first message may take longer than a while
        assert time.monotonic() < deadline
        exec(compile(program, PAGE, "exec"), names)
    return group, tp


def test_implicit_program_accepts_every_message(capsys: pytest.CaptureFixture[str]) -> None:
    group, tp = run(PROGRAMS[0], "images", [b"a.png", b"b.png"])
    assert capsys.readouterr().out.splitlines() == ["a.png delivery 1", "b.png delivery 1"]
    assert group.all_done(tp)


def test_explicit_program_decides_about_each_message() -> None:
    group, tp = run(PROGRAMS[1], "jobs", [b'{"command": "now"}', b'{"command": "later"}', b"{}"])
    assert group.all_done(tp)


def test_asynchronous_program_works_on_many_messages() -> None:
    group, tp = run(PROGRAMS[2], "mails", [b"%d" % number for number in range(30)])
    assert group.all_done(tp)
