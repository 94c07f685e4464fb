"""The command line, as a person or a script uses it."""

import gzip
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.command import barnabas_here
from support.long_tests import first_is_quick
from support.process import BrokerProcess, barnabas, broker_process

from barnabas.app.cli import options

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("cli")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_process(tmp_path_factory.mktemp("cli") / "data") as running:
        yield running


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in ("serve", "topics", "produce", "consume", "log", "load", "report", "demo", "bench")),
        *(["topics", name] for name in ("list", "create", "describe", "alter", "delete")),
        *(["log", name] for name in ("dump", "verify", "repair", "stats")),
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(words: list[str]) -> None:
    assert b"Usage: barnabas " + " ".join(words).encode() in barnabas_here(*words, "--help").stdout


def test_help_lists_every_command() -> None:
    out = barnabas("--help").stdout.decode()
    names = "serve topics groups configs cluster brokers produce consume log load report demo bench"
    for name in names.split():
        assert re.search(rf"\b{name}\b", out), name


def test_version_option_prints_version() -> None:
    assert re.fullmatch(rb"barnabas \d+\.\d+\.\d+\n", barnabas("--version").stdout)


def test_wrong_usage_ends_with_2() -> None:
    assert barnabas("nonsense", expect=2).stderr
    for words in (["serve", "--nonsense"], ["topics", "list"]):
        assert barnabas_here(*words, expect=2).stderr


def test_ready_line_names_the_real_port(broker: BrokerProcess) -> None:
    assert re.fullmatch(r"barnabas ready kafka://127\.0\.0\.1:[1-9]\d*\n", broker.ready_line)


def test_topics_commands_create_alter_describe_and_delete(broker: BrokerProcess, tmp_path: Path) -> None:
    b = ("--bootstrap", broker.bootstrap)
    barnabas("topics", "create", "cli-topics", "-p", "3", "--set", "retention.ms=1000", *b)
    assert {"topic": "cli-topics", "partitions": 3} in json.loads(barnabas_here("topics", "list", "--json", *b).stdout)
    assert b"cli-topics" in barnabas_here("topics", "list", *b).stdout
    settings = tmp_path / "topic.properties"
    settings.write_text("segment.bytes=1048576\n")
    barnabas_here("topics", "alter", "cli-topics", "-p", "5", "--config", settings, *b)
    barnabas_here("topics", "alter", "cli-topics", "--delete-config", "retention.ms", *b)
    described = json.loads(barnabas_here("topics", "describe", "cli-topics", "--json", *b).stdout)
    assert len(described["partitions"]) == 5
    assert described["configs"] == {"segment.bytes": "1048576"}
    assert b"log_end_offset" in barnabas_here("topics", "describe", "cli-topics", *b).stdout.lower()
    barnabas_here("topics", "delete", "cli-topics", *b)
    failed = barnabas_here("topics", "describe", "cli-topics", *b, expect=1)
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in failed.stderr
    assert failed.stderr.count(b"\n") == 1


def test_produce_from_stdin_and_consume_to_the_end(broker: BrokerProcess) -> None:
    b = ("--bootstrap", broker.bootstrap)
    barnabas_here("topics", "create", "cli-lines", "-p", "1", *b)
    barnabas("produce", "cli-lines", "-K", ":", *b, stdin=b"a:one\nno key\n\nb:two:three\n")
    out = barnabas("consume", "cli-lines", "--from", "beginning", "-e", "-K", "|", *b).stdout
    assert out == b"a|one\n|no key\n|\nb|two:three\n"
    lines = barnabas_here("consume", "cli-lines", "--from", "1", "--count", "1", "--json", *b).stdout.splitlines()
    record = json.loads(lines[0])
    assert (record["offset"], record["key"], record["value"]) == (1, None, "no key")
    assert barnabas_here("consume", "cli-lines", "--from", "@99999999999999", "-e", *b).stdout == b""


@pytest.mark.parametrize("codec", first_is_quick(["zstd", "none", "gzip", "snappy", "lz4"]))
def test_produce_a_packed_file_with_each_codec(broker: BrokerProcess, tmp_path: Path, codec: str) -> None:
    lines = [b"line %d" % number for number in range(2000)]
    file = tmp_path / "lines.txt.gz"
    file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n"))
    b = ("--bootstrap", broker.bootstrap)
    barnabas_here("topics", "create", f"cli-{codec}", "-p", "1", *b)
    barnabas_here("produce", f"cli-{codec}", "-f", file, "--compression", codec, *b)
    assert barnabas_here("consume", f"cli-{codec}", "--from", "beginning", "-e", *b).stdout.splitlines() == lines


def test_errors_are_one_line_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = f"kafka://127.0.0.1:{busy.getsockname()[1]}"
        in_use = barnabas("serve", "--data", tmp_path / "a", "--listen", taken, "--log-level", "error", expect=1)
        assert taken.removeprefix("kafka://").encode() in in_use.stderr
    unknown = barnabas_here("serve", "--data", tmp_path / "b", "--set", "log.segment.byte=1", expect=2)
    assert b"log.segment.bytes" in unknown.stderr
    bad = barnabas_here("serve", "--data", tmp_path / "c", "--set", "num.partitions=many", expect=2)
    assert b"num.partitions" in bad.stderr
    monkeypatch.setattr(options, "PATIENCE_MS", 300)
    nowhere = barnabas_here("topics", "list", "--bootstrap", "127.0.0.1:1", expect=1)
    assert b"127.0.0.1:1" in nowhere.stderr
    for failed in (unknown, bad, nowhere):
        assert failed.stderr.count(b"\n") == 1, failed.stderr


def test_two_brokers_do_not_share_a_folder(tmp_path: Path) -> None:
    with broker_process(tmp_path / "data"):
        second = barnabas("serve", "--data", tmp_path / "data", "--log-level", "error", expect=1)
        assert str(tmp_path / "data").encode() in second.stderr


def test_sigterm_is_an_orderly_shutdown_and_log_commands_read_what_is_left(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with broker_process(data) as running:
        barnabas_here("topics", "create", "kept", "-p", "1", "-b", running.bootstrap)
        barnabas_here("produce", "kept", "-b", running.bootstrap, stdin=b"one\ntwo\nthree\n")
        assert b"0 problems" in barnabas("log", "verify", data).stdout
        assert running.stop() == 0
    assert (data / ".kafka_cleanshutdown").exists()
    out = barnabas_here("log", "dump", "--records", data / "kept-0").stdout
    assert b"'value': 'three'" in out
    lines = barnabas_here("log", "dump", "--json", data / "kept-0" / f"{0:020d}.log").stdout.splitlines()
    assert sum(json.loads(line)["count"] for line in lines) == 3
    segment = data / "kept-0" / f"{0:020d}.log"
    damaged = bytearray(segment.read_bytes())
    damaged[-1] ^= 0xFF
    segment.write_bytes(damaged)
    assert b"CRC" in barnabas_here("log", "verify", data, expect=1).stdout
