"""Everyday commands: show a cluster, name it, delete records, interrupt a command, complete a word."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import Command, barnabas_here
from support.long_tests import first_is_quick
from support.process import COMMAND
from support.waiting import PATIENCE_S

from barnabas import Admin, Message, Producer
from barnabas.testing import TestBroker

START_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("BARNABAS_BOOTSTRAP", "BARNABAS_PROFILE"):
        monkeypatch.setenv(name, "")  # it is set within the test, and put back after it
        monkeypatch.delenv(name)
    return tmp_path


def test_the_overview_of_a_cluster(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=2)
    for words in (["cluster"], ["cluster", "overview"]):
        out = barnabas_here(*words, "--bootstrap", broker.bootstrap).stdout.decode()
        assert f"{topic}, 2 partitions" in out
        assert broker.bootstrap in out
        assert "__consumer_offsets" not in out
    found = json.loads(barnabas_here("cluster", "overview", "-t", topic, "--json", "-b", broker.bootstrap).stdout)
    assert [each["topic"] for each in found["topics"]] == [topic]
    assert [each["leader"] for each in found["topics"][0]["partitions"]] == [found["brokers"][0]["id"]] * 2
    assert "Usage" in barnabas_here("cluster", expect=2).stdout.decode()


class Terminal(io.StringIO):
    """Standard input as a person types it."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "words", "is_deleted"),
    [("{topic}\n", [], True), ("", ["--yes"], True), ("\n", [], False), ("y\n", [], False), ("{TOPIC}\n", [], False)],
    ids=["name", "yes", "nothing", "y", "upper"],
)
def test_topic_is_deleted_on_terminal_only_after_its_name(
    broker: TestBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    words: list[str],
    is_deleted: bool,
) -> None:
    topic = broker.create_topic(partitions=2)
    broker.produce(topic, ["a"])
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    monkeypatch.setattr("sys.stdin", Terminal(answer.format(topic=topic, TOPIC=topic.upper())))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    done = run("topics", "delete", topic, *words, expect=0 if is_deleted else 1)
    assert (f"topic {topic} has 2 partitions and" in done.out + done.err) is not bool(words)
    with Admin(broker.bootstrap) as admin:
        assert (topic not in admin.list_topics()) is is_deleted
    assert is_deleted or "nothing was deleted" in done.err


@pytest.mark.parametrize("answer", ["y", "n"])
def test_group_is_deleted_on_terminal_after_yes(
    broker: TestBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    topic, group = broker.create_topic(), f"asked-{answer}"
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {(topic, 0): 0})
        run = Command(capsys, "--bootstrap", broker.bootstrap)
        monkeypatch.setattr("sys.stdin", Terminal(f"{answer}\n"))
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        run("groups", "delete", group, expect=0 if answer == "y" else 1)
        assert (group in {each.group_id for each in admin.list_groups()}) is (answer == "n")


def test_produce_says_why_messages_wait_while_the_broker_refuses_them(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=1)
    fault = broker.faults.error("Produce", "KAFKA_STORAGE_ERROR", topic=topic)
    words = [str(COMMAND), "produce", topic, "--bootstrap", broker.bootstrap]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.close()
        line = process.stderr.readline().decode()
        assert line.startswith(f"barnabas: 3 messages wait: KAFKA_STORAGE_ERROR at {topic}-0 (broker "), line
        fault.remove()
        assert process.stderr.read().endswith(f"3 messages to {topic}\n".encode())
        assert process.wait(PATIENCE_S) == 0
    broker.assert_produced(topic, ["a", "b", "c"])


def test_producer_describes_delay_of_refused_messages_only(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=2)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, b"a", partition=0).result(PATIENCE_S)
        assert producer.describe_delay() == ""
        with broker.faults.error("Produce", "KAFKA_STORAGE_ERROR", topic=topic) as fault:
            sent = [producer.send(topic, b"b", partition=number) for number in (0, 1)]
            fault.wait(4)
            text = producer.describe_delay()
            assert text.startswith("2 messages wait: KAFKA_STORAGE_ERROR at")
            assert "and 1 other partition" in text
        for each in sent:
            each.result(PATIENCE_S)
        assert producer.describe_delay() == ""


def test_records_are_dropped_up_to_a_time_or_an_offset(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = broker.create_topic(partitions=2, configs={"retention.ms": "-1"})
    with Producer(broker.bootstrap) as producer:
        for minute in range(6):
            message = Message(b"%d" % minute, timestamp_ms=START_MS + 60_000 * minute)
            producer.send_many(topic, [message], partition=minute % 2).result(PATIENCE_S)
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    dry = run("topics", "delete-records", topic, "--before", "2023-11-14T22:15:20Z")
    assert "--execute" in dry.err

    def starts() -> list[int]:
        return [p["log_start_offset"] for p in json.loads(run("topics", "describe", topic, "--json").out)["partitions"]]

    assert starts() == [0, 0]
    run("topics", "delete-records", topic, "--before", "2023-11-14T22:15:20Z", "--execute")
    assert starts() == [1, 1], "0 and 1 min are older than 2 min"
    run("topics", "delete-records", topic, "--before-offset", "2", "-p", "1", "--execute")
    assert starts() == [1, 2]
    observed = json.loads(run("topics", "delete-records", topic, "--all", "--execute", "--json").out)
    assert [row["log_start_offset"] for row in observed] == [3, 3]
    assert "exactly one" in run("topics", "delete-records", topic, expect=2).err
    assert "--partition" in run("topics", "delete-records", topic, "--before-offset", "2", expect=2).err
    assert "OFFSET_OUT_OF_RANGE" in run(
        "topics", "delete-records", topic, "--before-offset", "9", "-p", "0", "--execute", expect=1
    ).err  # fmt: skip


def test_a_topic_is_described_with_sizes(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    topic = broker.create_topic(partitions=1)
    with Producer(broker.bootstrap) as producer:
        producer.send(topic, os.urandom(5000)).result(PATIENCE_S)
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    (partition,) = json.loads(run("topics", "describe", topic, "--json").out)["partitions"]
    assert 5000 < partition["bytes"] < 6000
    assert "KiB" in run("topics", "describe", topic).out


def test_hot_partition_is_the_first_of_topics_partitions(
    broker: TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    hot, cold = broker.create_topic(partitions=3), broker.create_topic(partitions=1)
    stop = threading.Event()

    def write() -> None:
        with broker.producer() as producer:
            while not stop.is_set():
                producer.send(hot, b"x" * 100, partition=2)
                stop.wait(0.005)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        rows = json.loads(run("topics", "partitions", "--interval", "1", "--json").out)
        lines = run("topics", "partitions", hot, cold, "--interval", "0.5", "--limit", "2")
    finally:
        stop.set()
        writer.join()
    assert (rows[0]["topic"], rows[0]["partition"], rows[0]["leader"]) == (hot, 2, 1)
    assert rows[0]["messages_per_s"] > 0
    assert {row["messages_per_s"] for row in rows[1:]} == {0.0}
    table = lines.out.splitlines()
    assert table[0].split()[3:5] == ["MESSAGES/S", "BYTES/S"]
    assert table[1].split()[:3] == [hot, "2", "1"]
    assert len(table) == 3
    assert "showing 2 of 4 partitions" in lines.err
    by_name = run("topics", "partitions", hot, "--sort", "name", "--interval", "0.2").out.splitlines()
    assert [line.split()[1] for line in by_name[1:]] == ["0", "1", "2"]
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("topics", "partitions", "not-there", expect=1).err


def test_clusters_have_names(broker: TestBroker, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Command(capsys)
    topic = broker.create_topic()
    assert "unknown profile 'dev'" in run("--profile", "dev", "topics", "list", expect=2).err
    run("profile", "set", "nowhere", "127.0.0.1:1")
    run("profile", "set", "dev", broker.bootstrap)
    assert (home / "barnabas" / "config.toml").exists()
    assert topic in run("--profile", "dev", "topics", "list").out
    assert "127.0.0.1:1" in run("topics", "list", expect=1).err, "the first one is in use"
    run("profile", "use", "dev")
    assert topic in run("topics", "list").out
    listed = {each["name"]: each["in_use"] for each in json.loads(run("profile", "list", "--json").out)}
    assert listed == {"dev": True, "nowhere": False}
    os.environ["BARNABAS_BOOTSTRAP"] = "127.0.0.1:2"
    assert "127.0.0.1:2" in run("topics", "list", expect=1).err, "the variable stands over the profile in use"
    assert topic in run("--profile", "dev", "topics", "list").out, "and the option over the variable"
    del os.environ["BARNABAS_BOOTSTRAP"]
    run("profile", "remove", "dev")
    assert "unknown profile 'dev'" in run("profile", "use", "dev", expect=2).err
    (home / "barnabas" / "config.toml").write_text("profile = 1")
    assert "config.toml" in run("profile", "list", expect=2).err


@pytest.mark.parametrize("shell", first_is_quick(["bash", "zsh", "fish"]))
def test_shells_complete_commands(shell: str, command: Path) -> None:
    asked = {
        "bash": {"COMP_WORDS": "barnabas top", "COMP_CWORD": "1"},
        "zsh": {"_TYPER_COMPLETE_ARGS": "barnabas top"},
        "fish": {"_TYPER_COMPLETE_ARGS": "barnabas top", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    environment = {**os.environ, "_BARNABAS_COMPLETE": f"complete_{shell}", **asked}
    done = subprocess.run([command], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert "topics" in done.stdout


def _consuming(broker: TestBroker, topic: str, *words: str) -> "subprocess.Popen[bytes]":
    call = [sys.executable, "-m", "barnabas.app.cli.main", "consume", topic, "--from", "beginning", *words]
    code = "from barnabas.app.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *call[3:], "--bootstrap", broker.bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


@pytest.mark.parametrize(("words", "code"), [((), 0), (("-c", "5"), 130)], ids=["for ever", "until five came"])
def test_ctrl_c_ends_consume_without_error_output(broker: TestBroker, words: tuple[str, ...], code: int) -> None:
    topic = broker.create_topic(partitions=1)
    broker.produce(topic, [b"one"])
    running = _consuming(broker, topic, *words)
    assert running.stdout is not None
    assert running.stdout.readline() == b"one\n"
    running.send_signal(signal.SIGINT)
    _, observed = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, observed) == (code, b"")


def test_reader_that_closes_the_pipe_ends_the_command_quietly(broker: TestBroker) -> None:
    topic = broker.create_topic(partitions=1)
    broker.produce(topic, [b"x" * 1000] * 1000)
    running = _consuming(broker, topic)
    assert running.stdout is not None
    running.stdout.read(10)
    running.stdout.close()
    assert running.stderr is not None
    observed = running.stderr.read()
    running.stderr.close()
    assert (running.wait(PATIENCE_S), observed) == (0, b"")


def test_records_of_a_topic_that_is_not_there(broker: TestBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run = Command(capsys, "--bootstrap", broker.bootstrap)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run("topics", "delete-records", "none", "--all", expect=1).err
    with Admin(broker.bootstrap) as admin:
        assert "none" not in admin.list_topics()


@pytest.mark.parametrize(
    "words", first_is_quick(["consume {topic} --stop-at-end", "cluster status", "cluster overview", "topics list"])
)
def test_closed_standard_output_receives_nothing(broker: TestBroker, words: str) -> None:
    topic = broker.create_topic()
    broker.produce(topic, ["x"])
    line = f"exec {COMMAND} {words.format(topic=topic)} -b {broker.bootstrap} >&-"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, timeout=5 * PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_wrong_arguments_give_readable_errors(broker: TestBroker, home: Path, tmp_path: Path) -> None:
    b = ["-b", broker.bootstrap]
    missing = str(tmp_path / "missing")
    for words, expect, says in (
        (["produce", "t", "--file", missing, *b], 1, f"{missing}: No such file or directory"),
        (
            ["topics", "create", "t", "--set", "retention.ms", *b],
            2,
            "'retention.ms' is neither KEY=VALUE nor a properties file",
        ),
        (["brokers", "describe", "9", *b], 2, "unknown broker 9; known brokers: "),
        (["cluster", "reassign", "plan", "--brokers", "9", *b], 2, "unknown broker 9; known brokers: "),
        (["profile", "set", "dev", "a host"], 2, "'a host' has no port"),
        (
            ["mirror", "--consumer-config", missing, "--producer-config", missing, "--whitelist", "x"],
            2,
            "read: No such",
        ),
    ):
        observed = barnabas_here(*words, expect=expect).stderr.decode()
        assert says in observed
        assert "Errno" not in observed
