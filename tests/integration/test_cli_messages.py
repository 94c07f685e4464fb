"""Messages from lines and to lines: `barnabas produce` and `barnabas consume`, as kcat's users expect."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.command import barnabas_here
from support.process import COMMAND
from support.pseudo_terminal import AtTerminal
from support.waiting import PATIENCE_S

from barnabas import Admin, Message, Producer
from barnabas.app.cli import reaching
from barnabas.app.cli.escapes import unescaped
from barnabas.ports.errors import ConfigError
from barnabas.testing import TestBroker

START_MS = 1_700_000_000_000
Run = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


def new_topic(broker: TestBroker, partitions: int) -> str:
    """For messages of 2023."""
    return broker.create_topic(partitions=partitions, configs={"retention.ms": "-1"})


@pytest.fixture
def topic(broker: TestBroker) -> str:
    return new_topic(broker, 1)


@pytest.fixture
def run(broker: TestBroker) -> Run:
    def call(*words: str, stdin: bytes = b"", expect: int = 0) -> subprocess.CompletedProcess[bytes]:
        return barnabas_here(*words, "--bootstrap", broker.bootstrap, stdin=stdin, expect=expect)

    return call


def printed(run: Run, topic: str, *words: str) -> bytes:
    return run("consume", topic, "--from", "beginning", "-e", *words).stdout


def messages(run: Run, topic: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in printed(run, topic, "--json").splitlines()]


def test_headers_keys_times_and_tombstones(run: Run, topic: str) -> None:
    given = ("-k", "k", "-H", "a=1", "-H", "b=x=y", "-H", "none", "-Z", "--timestamp", "2023-11-14T22:13:20Z")
    run("produce", topic, *given, stdin=b"one\n\n")
    first, tombstone = messages(run, topic)
    assert (first["key"], first["value"], first["timestamp"]) == ("k", "one", START_MS)
    assert first["headers"] == [["a", "1"], ["b", "x=y"], ["none", None]]
    assert (tombstone["key"], tombstone["value"]) == ("k", None)
    assert printed(run, topic) == b"one\nNULL\n"
    assert printed(run, topic, "--null", "") == b"one\n\n"
    assert printed(run, topic, "--headers") == b"a=1,b=x=y,none=NULL\tone\na=1,b=x=y,none=NULL\tNULL\n"


def test_separators_may_be_any_bytes(run: Run, topic: str) -> None:
    run("produce", topic, "-K", r"\t", "-D", r"\x1e", stdin=b"a\tone\nmore\x1eno key\x1eb\ttwo")
    assert [(m["key"], m["value"]) for m in messages(run, topic)] == [
        ("a", "one\nmore"),
        (None, "no key"),
        ("b", "two"),
    ]
    assert printed(run, topic, "-K", r"\x1f") == b"a\x1fone\nmore\n\x1fno key\nb\x1ftwo\n"
    assert "must not be empty" in run("produce", topic, "-K", "", expect=2).stderr.decode()
    assert unescaped(r"\\\n\r\0\x41", "-K") == b"\\\n\r\x00A"
    for wrong in (r"\q", "\\"):
        with pytest.raises(ConfigError, match="unknown escape"):
            unescaped(wrong, "-K")


def test_json_of_consume_is_produced_unchanged(broker: TestBroker, run: Run) -> None:
    source, target = new_topic(broker, 2), new_topic(broker, 2)
    sent = [
        Message(b"text", b"key", (("h", b"1"), ("h", None), ("bytes", b"\xff")), START_MS),
        Message(b"\xff\x00", None, (), START_MS + 1),
        Message(None, b"gone", (), START_MS + 2),
        Message("Grüße".encode(), b"\xfe", (), START_MS + 3),
    ]
    with Producer(broker.bootstrap) as producer:
        for number, message in enumerate(sent):
            producer.send_many(source, [message], partition=number % 2)
    lines = printed(run, source, "--json")
    run("produce", target, "--json", "--keep-partitions", stdin=lines)

    def records_of(name: str) -> list[tuple[object, ...]]:
        names = ("partition", "offset", "timestamp", "key", "value", "headers")
        return sorted(tuple(map(str, (message[each] for each in names))) for message in messages(run, name))

    assert records_of(target) == records_of(source)
    assert len(records_of(target)) == len(sent)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"{", "line 2"),
        (b'"text"', '"value" is expected'),
        (b'{"key": "k"}', '"value" is expected'),
        (b'{"value": {"a": 1}}', "base64"),
        (b'{"value": {"base64": "%"}}', "base64"),
        (b'{"value": "v", "timestamp": "now"}', "milliseconds"),
        (b'{"value": "v", "headers": {"a": "b"}}', '"headers" must be'),
        (b'{"value": "v", "partition": "0"}', '"partition" must be'),
    ],
)
def test_a_line_that_is_no_message_is_named(run: Run, topic: str, line: bytes, why: str) -> None:
    observed = run("produce", topic, "--json", stdin=b'{"value": "good"}\n' + line + b"\n", expect=1).stderr.decode()
    assert "line 2" in observed
    assert why in observed


def test_produce_reports_each_kind_of_error_once_with_count(broker: TestBroker, run: Run) -> None:
    compacted = broker.create_topic(partitions=1, configs={"cleanup.policy": "compact"})
    done = run("produce", compacted, "-K", ":", stdin=b"a:kept\nkeyless\nanother\n" + b"no key\n" * 10, expect=1)
    first, second = done.stderr.decode().splitlines()
    assert first.endswith(f"messages to {compacted}")
    assert second.startswith("barnabas: ")
    assert "INVALID_RECORD" in second or "key" in second
    assert int(second.split()[1]) == 13 - int(first.split()[0])


def test_the_format_letters_of_kcat(broker: TestBroker, run: Run, topic: str) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, Message(b"value", b"key", (("a", b"1"), ("b", None)), START_MS)).result(PATIENCE_S)
        producer.send(topic, Message(None, None, (), START_MS + 1)).result(PATIENCE_S)
    out = printed(run, topic, "-f", r"%t [%p] at %o, %T: %k(%K)=%s(%S) %h 100%%\n")
    assert out.decode().splitlines() == [
        f"{topic} [0] at 0, {START_MS}: key(3)=value(5) a=1,b=NULL 100%",
        f"{topic} [0] at 1, {START_MS + 1}: NULL(-1)=NULL(-1)  100%",
    ]
    assert printed(run, topic, "-f", "%R%s") == b"\x00\x00\x00\x05value\xff\xff\xff\xffNULL"
    assert printed(run, topic, "-f", "plain;") == b"plain;plain;"
    assert "unknown letter %q" in run("consume", topic, "-f", "%q", expect=2).stderr.decode()
    assert "--format excludes" in run("consume", topic, "-f", "%s", "--json", expect=2).stderr.decode()


def test_the_last_of_each_partition(broker: TestBroker, run: Run) -> None:
    topic = broker.create_topic(partitions=2)
    with Producer(broker.bootstrap) as producer:
        for number in range(2):
            producer.send_many(topic, [b"%d-%d" % (number, n) for n in range(5)], partition=number).result(PATIENCE_S)
    expected = [b"0-3", b"0-4", b"1-3", b"1-4"]
    assert sorted(run("consume", topic, "--last", "2").stdout.split()) == expected
    assert sorted(run("consume", topic, "--offset=-2", "-e").stdout.split()) == expected
    assert run("consume", topic, "--last", "9", "-p", "1").stdout.split() == [b"1-%d" % n for n in range(5)]
    assert run("consume", topic, "--last", "0").stdout == b""


def test_from_a_time_until_a_time(broker: TestBroker, run: Run) -> None:
    topic = new_topic(broker, 2)
    with Producer(broker.bootstrap) as producer:
        for minute in range(6):
            message = Message(b"%d" % minute, timestamp_ms=START_MS + 60_000 * minute)
            producer.send_many(topic, [message], partition=minute % 2).result(PATIENCE_S)
    between = ("--from", "2023-11-14T22:14:20Z", "--until", f"@{START_MS + 240_000}")
    assert sorted(run("consume", topic, *between).stdout.split()) == [b"1", b"2", b"3"]
    assert sorted(run("consume", topic, "--from", "beginning", "--until", "now").stdout.split()) == [
        b"%d" % n for n in range(6)
    ]
    assert run("consume", topic, "--from", "-5m", "-e").stdout == b""
    assert "not allowed with --group" in run("consume", topic, "-g", "g", "--until", "now", expect=2).stderr.decode()


def test_settings_of_the_client_from_a_file(broker: TestBroker, run: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=nowhere:1\nmax.request.size=200\n# more\n")
    done = run("produce", topic, "--config", str(file), stdin=b"x" * 1000, expect=1)
    assert "200" in done.stderr.decode()
    run("produce", topic, "--config", str(file), "--set", "max.request.size=100000", stdin=b"x" * 1000)
    with Admin(broker.bootstrap) as admin:
        assert admin.list_offsets({(topic, 0): "latest"}) == {(topic, 0): 1}
    file.write_text("no pair")
    assert "line 1" in run("produce", topic, "--config", str(file), expect=2).stderr.decode()


def test_a_host_that_is_not_there_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert reaching.REACH_S < 3
    monkeypatch.setattr(reaching, "REACH_S", 0.3)
    for command in (
        *("consume t", "consume t -g g", "produce t", "top", "load --topics t --into warehouse"),
        *("topics list", "topics create t", "topics describe t", "topics delete t --yes", "configs describe --topic t"),
        *("groups list", "groups describe g", "transactions list", "acls list", "users list", "quotas list"),
        *("cluster overview", "cluster status", "brokers list", "brokers connections"),
    ):
        observed = barnabas_here(*command.split(), "--bootstrap", "127.0.0.1:1", expect=1).stderr.decode()
        what_to_do = "start one (barnabas serve), or correct the address"
        assert observed == f"barnabas: no broker there: 127.0.0.1:1: Connection refused; {what_to_do}\n"


@pytest.mark.process
@pytest.mark.parametrize(("words", "last"), [("--last 10", "20/20"), (f"--until {START_MS + 100}", "100/100")])
def test_progress_shows_how_much_is_left(broker: TestBroker, tmp_path: Path, words: str, last: str) -> None:
    """The messages do not go to the terminal."""
    topic = new_topic(broker, 2)
    broker.produce(topic, [Message(b"%d" % n, timestamp_ms=START_MS + n) for n in range(100)], partition=0)
    broker.produce(topic, [Message(b"%d" % n, timestamp_ms=START_MS + 100 + n) for n in range(200)], partition=1)
    line = f"{COMMAND} consume {topic} --from beginning {words} -b {broker.bootstrap} > {tmp_path / 'out'}"
    with AtTerminal(["-c", line], program="/bin/sh") as terminal:
        assert terminal.ended() == 0, terminal.screen
        assert last in terminal.written
    assert len((tmp_path / "out").read_bytes().splitlines()) == int(last.partition("/")[0])
