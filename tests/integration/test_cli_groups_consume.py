"""`barnabas consume --group` with a broker of the current generation."""

import json
import signal
import subprocess
from collections.abc import Iterator

import pytest
from support.command import barnabas_here
from support.process import COMMAND, barnabas
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Producer

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli")]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(storage="memory", group_initial_rebalance_delay_ms=0) as broker:
        with Admin(broker) as admin, Producer(broker) as producer:
            admin.create_topic("t", partitions=1)
            admin.create_topic("logs.a", partitions=1)
            for number in range(5):
                producer.send("t", b"%d" % number, timestamp_ms=1000 * number)
            producer.send("logs.a", b"log")
        yield broker


def committed(broker: Broker, group: str, topic: str = "t") -> int | None:
    with Consumer(broker, group_id=group) as asking:
        (at,) = asking.committed([(topic, 0)]).values()
    return None if at is None else at.offset


def test_consume_with_group_resumes_at_committed_offset(broker: Broker) -> None:
    b = ("--bootstrap", broker.bootstrap, "--group", "g")
    first = barnabas("consume", "t", "--from-beginning", "--count", "2", *b).stdout
    assert first == b"0\n1\n"
    assert committed(broker, "g") == 2
    rest = barnabas_here("consume", "t", "--from-beginning", "-e", "--json", *b).stdout.splitlines()
    assert [json.loads(line)["offset"] for line in rest] == [2, 3, 4]
    assert committed(broker, "g") == 5
    assert barnabas_here("consume", "t", "--from-beginning", "--timeout", "0.3", *b).stdout == b""


def test_topics_by_their_names_and_a_time_to_begin(broker: Broker) -> None:
    b = ("--bootstrap", broker.bootstrap, "-e")
    assert barnabas_here("consume", "--include", "logs.*", "--from-beginning", "-g", "p", *b).stdout == b"log\n"
    assert barnabas_here("consume", "--blacklist", "logs.*", "--from", "@3000", "-g", "q", *b).stdout == b"3\n4\n"
    for wrong, text in ((("-p", "0"), b"not allowed with --group"), (("--from", "then"), b"--from 'then'")):
        failed = barnabas_here("consume", "t", "-g", "q", *wrong, *b, expect=2)
        assert text in failed.stderr
    failed = barnabas_here(
        "consume", "t", "-g", "q", "-b", "127.0.0.1:1", "--set", "default.api.timeout.ms=50", expect=1
    )
    assert b"127.0.0.1:1" in failed.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("t",), b"--share needs --group"),
        (("-g", "s", "--include", "t"), b"and a TOPIC"),
        (("t", "-g", "s", "-p", "0"), b"--partition: not allowed with --share"),
        (("t", "-g", "s", "--from-beginning"), b"share.auto.offset.reset"),
        (("t", "-g", "s", "-e"), b"--stop-at-end are not allowed with --share"),
    ],
)
def test_share_option_refuses_what_share_groups_do_not_have(words: tuple[str, ...], text: bytes) -> None:
    assert text in barnabas_here("consume", "--share", *words, "-b", "127.0.0.1:1", expect=2).stderr


def test_a_signal_ends_it_in_order(broker: Broker) -> None:
    command = [str(COMMAND), "consume", "t", "--from-beginning", "-g", "s", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(5)] == [b"%d\n" % number for number in range(5)]
        with Producer(broker) as producer:
            producer.send("t", b"5").result()
        assert process.stdout.readline() == b"5\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0
    assert committed(broker, "s") == 6
    with Admin(broker) as admin:
        wait_for(lambda: not admin.describe_groups(["s"])[0].members)
