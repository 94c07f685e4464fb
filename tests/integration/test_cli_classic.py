"""The command line with brokers of the classic generation, in ZooKeeper and etcd."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from support.command import barnabas_here
from support.long_tests import first_is_quick
from support.process import COMMAND, barnabas
from support.registry_kinds import WITH_BOTH, server_of
from support.waiting import PATIENCE_S, wait_for

from barnabas import Broker
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.compose.coordination import client_coordination
from barnabas.core.classic.registry.registries import children
from barnabas.ports.coordination import NodeExists

pytestmark = pytest.mark.process

LINES = [b"line %d" % number for number in range(200)]
QUICK = ("--set", "fetcher.backoff.ms=10", "--set", "rebalance.backoff.ms=100", "--set", "zk.sessiontimeout.ms=2000")


class Cluster:
    """Two brokers, and the option that names their registries."""

    def __init__(self, url: str, folder: Path, stack: ExitStack) -> None:
        self.url = url
        kind, _, rest = url.partition("://")
        self.option = ("--zk-connect" if kind == "zookeeper" else "--etcd-connect", rest)
        self.brokers = [stack.enter_context(self._broker(folder, number)) for number in (1, 2)]

    def _broker(self, folder: Path, number: int) -> Broker:
        config = {"broker.id": number, "num.partitions": 2, "log.flush.interval.messages": 1}
        listeners = ["classic://127.0.0.1:0"]
        return Broker(folder / str(number), listeners=listeners, coordination=self.url, config=config)

    def children(self, path: str) -> list[str]:
        with closing(client_coordination(self.url)) as session:
            return children(session, path)

    def fill(self, topic: str) -> None:
        """Every line once, over all partitions."""
        with ClassicProducer(coordination=self.url) as producer:
            for broker_id in (1, 2):
                producer.send(topic, LINES[broker_id - 1], partition=(broker_id, 0))
            wait_for(lambda: len(self.children(f"/brokers/topics/{topic}")) == 2)
            for line in LINES[2:]:
                producer.send(topic, line)


@pytest.fixture(scope="module", params=WITH_BOTH)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    url = f"{request.param}://127.0.0.1:{server_of(request).port}/{uuid4().hex}"
    with ExitStack() as stack:
        yield Cluster(url, tmp_path_factory.mktemp("cluster"), stack)


def consume(cluster: Cluster, *arguments: str) -> list[bytes]:
    done = barnabas_here("consume", *arguments, *cluster.option, *QUICK)
    return done.stdout.splitlines()


def test_a_group_that_cannot_agree_ends_consume_with_an_error(cluster: Cluster) -> None:
    cluster.fill("taken")
    path = "/consumers/taken/owners/taken/1-0"
    with closing(client_coordination(cluster.url)) as session:
        for parent in ("/consumers", "/consumers/taken", "/consumers/taken/owners", "/consumers/taken/owners/taken"):
            with suppress(NodeExists):
                session.create(parent, b"")
        session.create(path, b"somebody-0")
        options = ("taken", "-g", "taken", "--from-beginning", "--set", "rebalance.retries.max=2")
        failed = barnabas_here("consume", *options, *cluster.option, *QUICK, expect=1)
        assert failed.stdout == b""
        assert f"{path} is owned by 'somebody-0'".encode() in failed.stderr.splitlines()[-1]
        assert children(session, "/consumers/taken/ids") == []


def test_produce_by_registries_and_consume_in_a_group(cluster: Cluster) -> None:
    said = barnabas("produce", "lines", *cluster.option, stdin=b"\n".join(LINES) + b"\n").stderr
    assert said == b"200 messages to lines\n"
    options = ("lines", "-g", "readers", "--from-beginning")
    first = barnabas("consume", *options, "--max-messages", "50", *cluster.option, *QUICK).stdout.splitlines()
    assert len(first) == 50
    rest = consume(cluster, *options, "--max-messages", "150")
    assert sorted(first + rest) == sorted(LINES), "the second begins where the first has committed"
    assert consume(cluster, *options, "--timeout", "0.5") == []
    other = consume(cluster, "lines", "-g", "others", "--from-beginning", "-c", "200", "--json")
    records = [json.loads(line) for line in other]
    assert sorted(record["value"].encode() for record in records) == sorted(LINES)
    assert {record["topic"] for record in records} == {"lines"}
    assert {record["broker"] for record in records} <= {1, 2}
    assert set(records[0]) == {
        *("topic", "broker", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    }


def test_consume_filters_topics_by_whitelist_and_blacklist(cluster: Cluster) -> None:
    for topic in ("white-a", "white-b", "black"):
        cluster.fill(topic)
    wanted = ("-g", "by-name", "--from-beginning", "-c", "400", "--json")
    lines = consume(cluster, "--whitelist", "white-.*", *wanted)
    assert {json.loads(line)["topic"] for line in lines} == {"white-a", "white-b"}
    lines = consume(
        cluster, "--blacklist", "(?!black).*", "-g", "not-by-name", "--from-beginning", "-c", "200", "--json"
    )
    assert {json.loads(line)["topic"] for line in lines} == {"black"}


def test_topics_commands_list_and_describe_classic_cluster(cluster: Cluster) -> None:
    cluster.fill("known")
    listed = json.loads(barnabas_here("topics", "list", *cluster.option, "--json").stdout)
    assert {"topic": "known", "partitions": 4, "brokers": [1, 2]} in listed
    assert re.search(rb"(?m)^known +4 +1,2$", barnabas_here("topics", "list", *cluster.option).stdout)
    described = json.loads(barnabas_here("topics", "describe", "known", "--coordination", cluster.url, "--json").stdout)
    assert described["topic"] == "known"
    rows = described["partitions"]
    assert [(row["broker"], row["partition"]) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert {row["address"] for row in rows} == {broker.bootstrap for broker in cluster.brokers}
    assert sum(row["log_end_offset"] for row in rows) == sum(10 + len(line) for line in LINES)
    assert {row["log_start_offset"] for row in rows} == {0}
    assert barnabas_here("topics", "describe", "known", *cluster.option).stdout.startswith(b"known\nBROKER  ADDRESS ")
    failed = barnabas_here("topics", "describe", "nobodys", *cluster.option, expect=1)
    assert b"UNKNOWN_TOPIC_OR_PARTITION" in failed.stderr


def test_one_broker_by_partition_and_offset(cluster: Cluster) -> None:
    broker = cluster.brokers[0]
    where = ("--bootstrap", f"classic://{broker.bootstrap}")
    barnabas_here("produce", "single", *where, "-p", "0", stdin=b"\n".join(LINES) + b"\n")
    one = ("consume", "single", *where, "-p", "0")
    wait_for(lambda: barnabas_here(*one, "--offset", "0", "-e").stdout.splitlines() == LINES)
    records = [json.loads(line) for line in barnabas_here(*one, "--from", "0", "-c", "3", "--json").stdout.splitlines()]
    assert [record["value"].encode() for record in records] == LINES[:3]
    rest = barnabas_here(*one, "--offset", str(records[-1]["offset"]), "-e").stdout.splitlines()
    assert rest == LINES[3:]
    assert barnabas_here(*one, "-e").stdout == b""
    assert barnabas_here(*one, "--from", "end", "--timeout", "0.3").stdout == b""
    assert barnabas_here(*one, "--from", "@1", "-e").stdout.splitlines() == LINES
    small = barnabas_here(*one, "--from-beginning", "-e", "--set", "fetch.size=20").stdout.splitlines()
    assert small == LINES, "a fetch that is smaller than a message grows"
    failed = barnabas_here("consume", "single", *where, "-p", "7", "--offset", "0", expect=1)
    assert failed.stderr.startswith(b"barnabas: ")


def test_produce_with_keys_and_codecs_and_to_a_list(cluster: Cluster) -> None:
    listed = ",".join(f"{number}:{broker.bootstrap}" for number, broker in enumerate(cluster.brokers, start=1))
    stdin = b"a:1\na:2\nb:3\nno key\n"
    barnabas_here("produce", "packed", "--broker-list", listed, "--compression", "gzip", "-K", ":", stdin=stdin)
    wait_for(lambda: cluster.children("/brokers/topics/packed"))
    barnabas_here("produce", "packed", *cluster.option, "--compression", "snappy", "-K", ":", stdin=stdin)
    got = consume(cluster, "packed", "-g", "packed", "--from-beginning", "-c", "8")
    assert sorted(got) == sorted([b"1", b"2", b"3", b"no key"] * 2)


@pytest.mark.parametrize("number", first_is_quick([signal.SIGTERM, signal.SIGINT]))
def test_consume_commits_printed_offsets_and_leaves_group_on_signal(cluster: Cluster, number: signal.Signals) -> None:
    topic = f"stopped-{number.name}"
    cluster.fill(topic)
    command = [str(COMMAND), "consume", topic, "-g", topic, "--from-beginning", *cluster.option, *QUICK]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        got = [running.stdout.readline().rstrip(b"\n") for _ in LINES]
        running.send_signal(number)
        assert running.stdout.read() == b""
        assert running.wait(PATIENCE_S) == 0
    assert sorted(got) == sorted(LINES)
    assert cluster.children(f"/consumers/{topic}/ids") == []
    path = f"/consumers/{topic}/offsets/{topic}"
    with closing(client_coordination(cluster.url)) as session:
        offsets = {place: int(session.get(f"{path}/{place}").data) for place in children(session, path)}
    assert sum(offsets.values()) == sum(10 + len(line) for line in LINES)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["produce", "t"], "--broker-list"),
        (["produce", "t", "--zk-connect", "a:1", "--etcd-connect", "a:1"], "--zk-connect and --etcd-connect"),
        (["produce", "t", "-b", "classic://127.0.0.1:1", "--zk-connect", "a:1"], "--bootstrap and --zk-connect"),
        (["produce", "t", "--broker-list", "0:localhost"], "'0:localhost' is not of the form id:host:port"),
        (["produce", "t", "--broker-list", "0:a:1", "--acks", "1"], "--acks"),
        (["produce", "t", "--broker-list", "0:a:1", "--compression", "zstd"], "none, gzip and snappy"),
        (["consume", "t", "--zk-connect", "a:1"], "--group"),
        (["consume", "t", "-b", "classic://127.0.0.1:1", "-g", "g"], "--zk-connect"),
        (["consume", "t", "-b", "classic://127.0.0.1:1"], "--partition"),
        (["consume", "-b", "127.0.0.1:1"], "TOPIC"),
        (["consume", "t", "--whitelist", "t", "--zk-connect", "a:1", "-g", "g"], "TOPIC"),
        (["consume", "t", "--zk-connect", "a:1", "-g", "g", "--from", "7"], "--from"),
        (["consume", "t", "--zk-connect", "a:1", "-g", "g", "-e"], "--stop-at-end"),
        (["consume", "t", "--zk-connect", "a:1", "-g", "g", "-p", "0"], "--partition"),
        (["consume", "t", "--zk-connect", "a:1", "-g", "g/h"], "groupid 'g/h'"),
        (["consume", "t", "--coordination", "zoo://a", "-g", "g"], "unknown coordination scheme 'zoo'; known: "),
        (["consume", "t", "-b", "classic://127.0.0.1:1", "-p", "0", "--from", "then"], "--from 'then'"),
        (["topics", "list", "-b", "classic://127.0.0.1:1"], "--zk-connect"),
        (["topics", "describe", "a/b", "--zk-connect", "a:1"], "'a/b'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_that_names_what_to_change(words: list[str], names: str) -> None:
    failed = barnabas_here(*words, expect=2)
    assert names in failed.stderr.decode()
    assert failed.stderr.count(b"\n") == 1


def test_a_bootstrap_from_the_environment_gives_way(cluster: Cluster) -> None:
    environment = {**os.environ, "BARNABAS_BOOTSTRAP": "127.0.0.1:1"}
    command = [str(COMMAND), "topics", "list", *cluster.option]
    assert (
        subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE_S, check=False).returncode == 0
    )


def test_unreachable_broker_gives_one_line_error() -> None:
    for words in (
        ["produce", "t", "--broker-list", "0:127.0.0.1:1"],
        ["produce", "t", "-b", "classic://127.0.0.1:1"],
        ["consume", "t", "-b", "classic://127.0.0.1:1", "-p", "0", "--offset", "0"],
    ):
        failed = barnabas_here(*words, stdin=b"line\n", expect=1)
        assert b"127.0.0.1:1" in failed.stderr
        assert failed.stderr.splitlines()[-1].startswith(b"barnabas: ")
