"""`barnabas mirror` and `MirrorMaker`: between the generations, at least once, through restarts of either side."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.ports import free_port
from support.process import COMMAND, barnabas
from support.waiting import PATIENCE_S, wait_for
from support.zookeeper_server import ZookeeperServer

from barnabas import Admin, Broker, Consumer, Message, Producer
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.app.compose.coordination import client_coordination
from barnabas.app.mirror import MirrorMaker, layout
from barnabas.app.mirror.maker import ClassicSource
from barnabas.core.classic.registry.layout import BrokerPartition, offset_path
from barnabas.core.client.errors import NoOffset
from barnabas.core.message.classic.message_set import ClassicMessageSet
from barnabas.ports.broker_api.offsets import LATEST
from barnabas.ports.coordination import Coordination, NoNode
from barnabas.ports.errors import BarnabasError, ConfigError

FAST = {"fetcher.backoff.ms": 20, "rebalance.backoff.ms": 100}


def classic_broker(data: Path | None = None, **settings: Any) -> Broker:
    return Broker(
        data,
        listeners=settings.pop("listeners", ["classic://127.0.0.1:0"]),
        storage="memory" if data is None else "fs",
        log_flush_interval=1,
        log_flush_scheduler_interval_ms=20,
        **settings,
    )


def current_broker(**settings: Any) -> Broker:
    return Broker(storage="memory", **settings)


def source_of(broker: Broker, group: str = "mirror") -> dict[str, Any]:
    return {"coordination": broker, "groupid": group, **FAST}


def classic_sets(broker: Broker, topic: str, partitions: int = 1) -> list[ClassicMessageSet]:
    with ClassicSimpleConsumer(f"classic://{broker.bootstrap}") as consumer:
        return [consumer.fetch(topic, partition, 0) for partition in range(partitions)]


def classic_values(broker: Broker, topic: str, partitions: int = 1) -> list[bytes]:
    return [message.value or b"" for each in classic_sets(broker, topic, partitions) for message in each]


def current_messages(broker: Broker, topic: str) -> list[Message]:
    with Consumer(broker) as consumer:
        consumer.assign(topic, position="earliest")
        return list(consumer.messages(stop_at_end=True))


@contextmanager
def mirroring(
    sources: list[dict[str, Any]], target: dict[str, Any], copied: int = 0, **settings: Any
) -> Iterator[MirrorMaker]:
    """Run a mirror until it has copied a number of messages."""
    named = {"whitelist": ".*"} if "blacklist" not in settings else {}
    with MirrorMaker(sources, target, commit_interval_ms=50, **{**named, **settings}) as mirror:
        yield mirror
        wait_for(lambda: mirror.copied >= copied or mirror.wait(0))


def test_two_classic_clusters_into_a_classic_one() -> None:
    with classic_broker() as one, classic_broker(num_partitions=2) as two, classic_broker(num_partitions=2) as target:
        with Producer(broker_list=f"0:{one.bootstrap}") as producer:
            producer.send_many("views", [b"1-%d" % number for number in range(500)])
            producer.send("secret", b"x")
        with Producer(broker_list=f"0:{two.bootstrap}") as producer:
            producer.send_many("views", [b"2-%d" % number for number in range(500)])
        sources = [source_of(one), source_of(two)]
        with mirroring(sources, {"coordination": target}, 1000, streams=2, producers=2, blacklist="secret"):
            pass
        found = sorted(classic_values(target, "views", 2))
        assert found == sorted([b"%d-%d" % (cluster, number) for cluster in (1, 2) for number in range(500)])
        assert classic_values(target, "secret", 2) == []


def test_compressed_wrappers_pass_on_unopened() -> None:
    with classic_broker() as source, classic_broker() as target:
        with Producer(broker_list=f"0:{source.bootstrap}", compression_codec=1) as producer:
            producer.send_many("views", [b"a" * 100, b"b" * 100])
            producer.send_many("views", [b"c"])
        with mirroring([source_of(source)], {"broker.list": f"0:{target.bootstrap}"}, 2):
            pass
        (before,), (after,) = classic_sets(source, "views"), classic_sets(target, "views")
        assert [(m.codec_id, m.value) for m in after.shallow()] == [(m.codec_id, m.value) for m in before.shallow()]
        assert classic_values(target, "views") == [b"a" * 100, b"b" * 100, b"c"]


def test_from_classic_to_current_wrappers_are_opened() -> None:
    with classic_broker() as source, current_broker() as target:
        with Producer(broker_list=f"0:{source.bootstrap}", compression_codec=2) as producer:
            producer.send_many("views", [b"a", b"b"])
        with mirroring([source_of(source)], {"bootstrap.servers": target.bootstrap}, 2):
            pass
        assert [message.value for message in current_messages(target, "views")] == [b"a", b"b"]


def test_from_current_to_current_keys_headers_and_times_stay(tmp_path: Path) -> None:
    config = {"offsets.file": str(tmp_path / "offsets.json")}
    with current_broker() as source, current_broker() as target:
        messages = [Message(b"%d" % n, b"k%d" % n, (("h", b"v"),), 1000 + n) for n in range(100)]
        with Admin(source) as admin, Producer(source) as producer:
            admin.create_topic("views", partitions=2)
            producer.send_many("views", messages)
        config["bootstrap.servers"] = source.bootstrap
        with mirroring([config], {"bootstrap.servers": target.bootstrap}, 100, streams=2):
            pass
        found = sorted(current_messages(target, "views"), key=lambda m: m.timestamp_ms or 0)
        assert [m[:4] for m in found] == [m[:4] for m in messages]
        with mirroring([config], {"bootstrap.servers": target.bootstrap}) as mirror:
            with Producer(source) as producer:
                producer.send("views", b"new")
            wait_for(lambda: mirror.copied == 1)
        assert len(current_messages(target, "views")) == 101


def test_from_current_to_classic(tmp_path: Path) -> None:
    with current_broker() as source, classic_broker() as target:
        with Producer(source, compression_type="gzip") as producer:
            producer.send_many("views", [Message(b"%d" % n, b"key", (("h", b"v"),)) for n in range(50)])
        config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
        with mirroring([config], {"broker.list": f"0:{target.bootstrap}"}, 50):
            pass
        assert classic_values(target, "views") == [b"%d" % n for n in range(50)]


def test_a_group_shares_a_current_source_and_keeps_its_offsets() -> None:
    """Two mirrors with two streams each are four members of a group; what one leaves, the others or the next take."""
    with current_broker(group_initial_rebalance_delay_ms=0) as source, current_broker() as target:
        with Admin(source) as admin, Producer(source) as producer:
            admin.create_topic("views", partitions=4)
            producer.send_many("views", [b"%d" % number for number in range(400)])
            producer.send("secret", b"x").result()
        quick = {"metadata.max.age.ms": 50, "heartbeat.interval.ms": 30}
        config = {"bootstrap.servers": source.bootstrap, "group.id": "mirror", **quick}
        to = {"bootstrap.servers": target.bootstrap}
        how: dict[str, Any] = {"streams": 2, "blacklist": "secret"}
        with mirroring([config], to, **how) as one, mirroring([config], to, **how) as two, Producer(source) as p:
            p.send_many("views", [b"%d" % number for number in range(400, 600)])
            p.send("new", b"600")
            wait_for(lambda: one.copied + two.copied >= 601)
        with Consumer(source, group_id="mirror") as asking:
            ends = asking.end_offsets([("views", number) for number in range(4)])
            # Keys are missing, so chance may leave a partition empty: it has no position.
            assert {tp: at.offset if at else 0 for tp, at in asking.committed(ends).items()} == ends
        with mirroring([config], to, **how) as again, Producer(source) as p:
            p.send("views", b"601")
            wait_for(lambda: again.copied == 1)
        found = current_messages(target, "views") + current_messages(target, "new")
        assert sorted(int(message.value or b"-1") for message in found) == list(range(602))
        with Admin(target) as admin:
            assert "secret" not in {topic.name for topic in admin.describe_topics()}


def in_partitions(broker: Broker, topic: str) -> list[set[bytes | None]]:
    """Return the values in each partition."""
    with Admin(broker) as admin:
        found: list[set[bytes | None]] = [set() for _ in admin.describe_topics([topic])[0].partitions]
    for message in current_messages(broker, topic):
        found[message.partition].add(message.value)
    return found


def test_partitions_stay_what_they_are() -> None:
    """Also those that are added, those that are empty, and where the target had fewer."""
    with current_broker(group_initial_rebalance_delay_ms=0) as source, current_broker(num_partitions=7) as target:
        with Admin(source) as admin, Admin(target) as there:
            for topic, partitions in (("views", 3), ("clicks", 4), ("empty", 2), ("_more", 1)):
                admin.create_topic(topic, partitions=partitions)
            there.create_topic("clicks", partitions=1)
            there.create_topic("_more", partitions=3)
        with Producer(source) as producer:  # one key everywhere: a partitioner would take one partition
            for number in range(3):
                producer.send_many("views", [Message(b"%d" % number, b"key")] * 20, partition=number)
            producer.send("clicks", b"c", key=b"key", partition=3)
            producer.send("_more", b"m", partition=0)
        quick = {"metadata.max.age.ms": 50, "heartbeat.interval.ms": 30}
        config = {"bootstrap.servers": source.bootstrap, "group.id": "mirror", **quick}
        with (
            mirroring([config], {"bootstrap.servers": target.bootstrap}, 64, streams=2, producers=2) as mirror,
            Admin(source) as admin,
        ):
            wait_for(lambda: mirror.copied >= 62)
            admin.create_partitions("views", 5)
            with Producer(source) as producer:
                producer.send("views", b"new", partition=4)
                producer.send("views", b"old", partition=0)
        assert in_partitions(target, "views") == [{b"0", b"old"}, {b"1"}, {b"2"}, set(), {b"new"}]
        assert in_partitions(target, "clicks") == [set(), set(), set(), {b"c"}]
        assert in_partitions(target, "empty") == [set(), set()]
        assert in_partitions(target, "_more") == [{b"m"}, set(), set()]


@pytest.mark.parametrize(
    ("target", "settings"), [({}, {"partition_by": "key"}), ({"partitioner.class": "murmur2"}, {})]
)
def test_mirror_uses_partitioner_of_target(target: dict[str, Any], settings: dict[str, Any], tmp_path: Path) -> None:
    with current_broker() as source, current_broker(num_partitions=3) as to:
        with Admin(source) as admin, Producer(source) as producer:
            admin.create_topic("views", partitions=2)
            for number in range(2):
                producer.send_many("views", [Message(b"%d" % number, b"key")] * 20, partition=number)
        config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
        with mirroring([config], {"bootstrap.servers": to.bootstrap, **target}, 40, **settings):
            pass
        assert sorted(in_partitions(to, "views"), key=len) == [set(), set(), {b"0", b"1"}]


def test_a_topic_that_the_target_has_lost_is_made_again(tmp_path: Path) -> None:
    with current_broker() as source, current_broker(auto_create_topics_enable=False) as target:
        with Admin(source) as admin, Producer(source) as producer, Admin(target) as there:
            admin.create_topic("views", partitions=2)
            config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
            to = {"bootstrap.servers": target.bootstrap, "delivery.timeout.ms": 500, "max.block.ms": 500}
            with mirroring([config], {**to, "request.timeout.ms": 400}, 2) as mirror:
                producer.send("views", b"before", partition=1).result()
                wait_for(lambda: mirror.copied == 1)
                there.delete_topics(["views"])
                producer.send("views", b"after", partition=1).result()
        assert in_partitions(target, "views") == [set(), {b"after"}]


def test_mirror_commits_no_offset_that_the_target_lacks() -> None:
    with current_broker(group_initial_rebalance_delay_ms=0) as source:
        with Producer(source) as producer:
            producer.send("views", b"1").result()
        config = {"bootstrap.servers": source.bootstrap, "group.id": "mirror"}
        to = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 100, "max.block.ms": 100}
        observed: list[str] = []
        with mirroring([config], to, report=observed.append):
            wait_for(lambda: any("sent again" in text for text in observed))
        with Consumer(source, group_id="mirror") as asking:
            assert asking.committed([("views", 0)]) == {("views", 0): None}


def test_new_topics_are_picked_up() -> None:
    with classic_broker() as source, classic_broker() as target:
        producer = Producer(broker_list=f"0:{source.bootstrap}")
        with mirroring([source_of(source)], {"broker.list": f"0:{target.bootstrap}"}, 2, whitelist="new.*"), producer:
            producer.send("new-1", b"1")
            producer.send("old", b"x")
            producer.send("new-2", b"2")
        assert classic_values(target, "new-1") + classic_values(target, "new-2") == [b"1", b"2"]


def test_restarts_of_the_mirror_lose_nothing_and_repeat_little() -> None:
    with (
        classic_broker() as source,
        classic_broker() as target,
        Producer(broker_list=f"0:{source.bootstrap}") as producer,
    ):
        sent = []
        for turn in range(3):
            values = [b"%d-%d" % (turn, number) for number in range(200)]
            producer.send_many("views", values)
            sent += values
            with mirroring([source_of(source)], {"broker.list": f"0:{target.bootstrap}"}, 200):
                pass
        assert classic_values(target, "views") == sent  # an orderly stop repeats nothing


def _has_copied(mirror: MirrorMaker, messages: int) -> bool:
    return mirror.copied >= messages


def _has_committed_all(tree: Coordination, source: Broker) -> bool:
    with ClassicSimpleConsumer(f"classic://{source.bootstrap}") as consumer:
        end = consumer.offset_at("views", 0, LATEST)
    try:
        return tree.get(offset_path("mirror", "views", BrokerPartition(1, 0))).data == b"%d" % end
    except NoNode:
        return False


def _write_on(producer: Producer, sent: list[bytes], more: threading.Event) -> Callable[[], None]:
    def run() -> None:
        number = 0
        while not more.is_set():
            value = b"%06d" % number
            try:
                producer.send("views", value).result()
            except BarnabasError:
                continue
            sent.append(value)
            number += 1

    return run


def test_the_target_restarts(tmp_path: Path) -> None:
    with classic_broker() as source:
        at = [f"classic://127.0.0.1:{free_port()}"]
        target = classic_broker(tmp_path / "target", listeners=at).start()
        sent: list[bytes] = []
        enough = threading.Event()
        with Producer(broker_list=f"0:{source.bootstrap}") as producer:
            writer = threading.Thread(target=_write_on(producer, sent, enough))
            writer.start()
            try:
                with mirroring([source_of(source)], {"broker.list": f"0:{target.bootstrap}"}) as mirror:
                    for _ in range(2):
                        wait_for(partial(_has_copied, mirror, mirror.copied + 201))
                        target.close()
                        target = classic_broker(tmp_path / "target", listeners=at).start()
                    enough.set()
                    writer.join()
                    wait_for(lambda: len(set(classic_values(target, "views"))) == len(set(sent)))
            finally:
                enough.set()
                writer.join()
        found = classic_values(target, "views")
        target.close()
        assert set(found) == set(sent)
        first_seen = list(dict.fromkeys(found))
        assert first_seen == sorted(first_seen)  # copied again at most, never out of order


@pytest.fixture
def zookeeper(zookeeper_server: ZookeeperServer) -> str:
    return f"zookeeper://127.0.0.1:{zookeeper_server.port}/{uuid4().hex}"


@pytest.mark.process
@pytest.mark.xdist_group("zookeeper")
def test_the_source_restarts_while_it_is_mirrored(zookeeper: str, tmp_path: Path) -> None:
    where = f"{zookeeper}/restarts"
    at = [f"classic://127.0.0.1:{free_port()}"]

    def started() -> Broker:
        return classic_broker(tmp_path / "source", coordination=where, listeners=at).start()

    source = started()
    config = {"coordination": where, "groupid": "mirror", **FAST}
    with classic_broker() as target, closing(client_coordination(where)) as tree:
        with mirroring([config], {"broker.list": f"0:{target.bootstrap}"}, 400) as mirror:
            for turn in range(2):
                with ClassicProducer(zk_connect=where) as producer:
                    producer.send_many("views", [b"%d" % n for n in range(turn * 200, turn * 200 + 200)])
                    producer.confirm()
                wait_for(partial(_has_copied, mirror, 200 * turn + 200))
                wait_for(partial(_has_committed_all, tree, source))  # else those 200 are copied once more
                source.close()
                source = started()
        assert classic_values(target, "views") == [b"%d" % n for n in range(400)]
    source.close()


@pytest.mark.process
@pytest.mark.xdist_group("zookeeper")
def test_mirror_command_copies_messages_until_terminated(zookeeper: str, tmp_path: Path) -> None:
    where = f"{zookeeper}/command"
    config = tmp_path / "source.properties"
    config.write_text(f"# a source\ngroupid = mirror\nzk.connect={where}\nfetcher.backoff.ms=20\n")
    to = tmp_path / "target.toml"
    with classic_broker(coordination=where) as source, current_broker() as target:
        with Producer(broker_list=f"0:{source.bootstrap}") as producer:
            producer.send_many("views", [b"1", b"2"])
        to.write_text(f'bootstrap.servers = "{target.bootstrap}"\n')
        command = [str(COMMAND), "mirror", "--consumer.config", str(config), "--producer-config", str(to)]
        running = subprocess.Popen([*command, "--whitelist", "views"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert running.stdout is not None
            assert running.stdout.readline() == b"barnabas mirroring\n"
            with Admin(target) as admin:
                wait_for(lambda: "views" in admin.list_topics())
            wait_for(lambda: len(current_messages(target, "views")) == 2)
        finally:
            running.terminate()
            _, log = running.communicate(timeout=PATIENCE_S)
        assert running.returncode == 0
        assert b"2 messages copied" in log


@pytest.mark.slow
def test_the_command_says_what_is_wrong(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.properties", tmp_path / "bad.properties"
    good.write_text("broker.list=0:127.0.0.1:1\n")
    bad.write_text("groupid\n")
    done = barnabas("mirror", "--consumer-config", good, "--producer-config", good, expect=2)
    assert b"exactly one of --whitelist and --blacklist" in done.stderr
    named: list[str | Path] = ["--producer-config", good, "--whitelist", "a"]
    assert (
        b"line 1: 'groupid' is not KEY=VALUE" in barnabas("mirror", "--consumer-config", bad, *named, expect=2).stderr
    )
    assert b"needs zk.connect" in barnabas("mirror", "--consumer-config", good, *named, expect=2).stderr


def test_message_that_the_target_refuses_stops_the_mirror(tmp_path: Path) -> None:
    with current_broker() as source, classic_broker() as target:
        with Producer(source) as producer:
            producer.send("views", None, key=b"gone")
        config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
        mirror = MirrorMaker([config], {"broker.list": f"0:{target.bootstrap}"}, whitelist="views")
        with mirror, pytest.raises(BarnabasError, match="has a value"):
            mirror.wait(PATIENCE_S)


def test_a_partition_that_cannot_be_read_on_stops_the_mirror(tmp_path: Path) -> None:
    """With auto.offset.reset=none, say after a log was truncated: else it would stay behind in silence."""
    offsets = tmp_path / "offsets.json"
    offsets.write_text('{"views": {"0": 99}}')
    with current_broker() as source, current_broker() as target:
        with Producer(source) as producer:
            producer.send("views", b"one")
        config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(offsets), "auto.offset.reset": "none"}
        mirror = MirrorMaker([config], {"bootstrap.servers": target.bootstrap}, whitelist="views")
        with mirror, pytest.raises(NoOffset, match="has no offset 99"):
            mirror.wait(PATIENCE_S)


@pytest.mark.parametrize(
    ("sources", "target", "settings", "fault"),
    [
        ([], {"broker.list": "0:a:1"}, {"whitelist": "a"}, "at least one source"),
        ([{"groupid": "g"}], {"broker.list": "0:a:1"}, {"whitelist": "a"}, "needs zk.connect or etcd.connect"),
        ([{}], {}, {"whitelist": "a"}, "producer configuration needs"),
        ([{}], {"broker.list": "0:a:1"}, {}, "exactly one of whitelist and blacklist"),
        ([{}], {"broker.list": "0:a:1"}, {"whitelist": "("}, "not a regular expression"),
        ([{"bootstrap.servers": "a:1"}], {"broker.list": "0:a:1"}, {"whitelist": "a"}, "group.id=NAME.*not none"),
        (
            [{"bootstrap.servers": "a:1", "group.id": "g", "offsets.file": "f"}],
            {"broker.list": "0:a:1"},
            {"whitelist": "a"},
            "not both",
        ),
        ([{"bootstrap.servers": "a:1", "zk.connect": "a"}], {"broker.list": "0:a:1"}, {"whitelist": "a"}, "take one"),
        ([{}], {"broker.list": "0:a:1"}, {"whitelist": "a", "partition_by": "hash"}, "neither 'number' nor 'key'"),
        ([{}], {"broker.list": "0:a:1"}, {"whitelist": "a", "partition_by": "number"}, "needs a target with bootstrap"),
        (
            [{"bootstrap.servers": "a:1", "group.id": "g"}],
            {"bootstrap.servers": "b:1", "partitioner.class": "murmur2"},
            {"whitelist": "a", "partition_by": "number"},
            "partitioner.class=murmur2; drop one",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    sources: list[dict[str, Any]], target: dict[str, Any], settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        MirrorMaker(sources, target, **settings).start()


def test_a_wrapper_cannot_pass_to_a_current_cluster_unopened() -> None:
    from barnabas.core.classic.registry.topic_filter import TopicFilter

    with pytest.raises(ConfigError, match="shallowiterator"):
        ClassicSource({"shallowiterator.enable": "true"}, TopicFilter.whitelist("a"), shallow=False)


def test_a_topic_of_the_target_that_is_deleted_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "CHECK_WAIT_S", 0.1)
    with current_broker() as source, current_broker() as target, Producer(source) as producer:
        with Admin(source) as admin:
            admin.create_topic("views", partitions=3)
        config = {"bootstrap.servers": source.bootstrap, "offsets.file": str(tmp_path / "offsets.json")}
        with mirroring([config], {"bootstrap.servers": target.bootstrap}) as mirror:
            for value in (b"old", b"new"):
                copied = mirror.copied
                for partition in range(3):
                    producer.send("views", value, partition=partition)
                wait_for(lambda: mirror.copied == copied + 3)  # noqa: B023  # waited for at once
                if value == b"old":
                    with Admin(target) as admin:
                        admin.delete_topics(["views"])
        assert in_partitions(target, "views") == [{b"new"}] * 3
