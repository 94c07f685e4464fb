"""`barnabas groups` and `Admin` show the groups of all types, at our broker and at Apache Kafka."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from support.command import Command
from support.kafka_server import KafkaServer
from support.waiting import wait_for

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError
from barnabas.testing import TestBroker

pytestmark = pytest.mark.process

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@contextmanager
def _kafka(folder: Path) -> Iterator[str]:
    names = ("replication.factor", "num.partitions", "min.isr")
    server = KafkaServer(folder, more={f"share.coordinator.state.topic.{name}": "1" for name in names})
    server.start()
    try:
        server.wait_ready()
        yield server.bootstrap
    finally:
        server.stop()


@pytest.fixture(scope="module", params=["barnabas", pytest.param("kafka", marks=pytest.mark.slow)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Topic `t` of two partitions with ten messages each."""
    with ExitStack() as stack:
        if request.param == "kafka":
            address = stack.enter_context(_kafka(tmp_path_factory.mktemp("kafka")))
        else:
            address = stack.enter_context(TestBroker()).bootstrap
        with Admin(address) as admin:
            admin.create_topic("t", partitions=2)
        with Producer(address) as producer:
            for number in range(20):
                producer.send("t", str(number).encode(), partition=number % 2)
        yield address


@pytest.fixture
def admin(bootstrap: str) -> Iterator[Admin]:
    with Admin(bootstrap) as client:
        yield client


@pytest.fixture
def run(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys, "--bootstrap", bootstrap)


def test_consumer_group_is_described_with_epochs_assignment_and_target(
    bootstrap: str, admin: Admin, run: Command
) -> None:
    with Consumer(
        bootstrap,
        group_id="c",
        client_id="me",
        group_protocol="consumer",
        auto_offset_reset="earliest",
        client_rack="r",
    ) as consumer:
        consumer.subscribe(["t"])
        read = [next(iter(consumer.messages())) for _ in range(4)]
        consumer.commit()
        assert len(read) == 4
        wait_for(lambda: admin.describe_group("c").state == "Stable")
        (details,) = admin.describe_consumer_groups(["c"])
        assert details == admin.describe_group("c")
        (member,) = details.members
        assert (details.type, details.protocol_type, details.protocol) == ("consumer", "consumer", "uniform")
        assert details.group_epoch == details.assignment_epoch == member.member_epoch
        assert (member.client_id, member.protocol, member.topics, member.rack_id) == ("me", "consumer", ("t",), "r")
        assert member.assignment == member.target_assignment == [T0, T1]
        assert not admin.describe_share_groups(["c"])[0].exists

        listed = {row["group"]: row for row in json.loads(run("groups", "list", "--type", "consumer", "--json").out)}
        assert listed.keys() == {"c"}
        assert (listed["c"]["type"], listed["c"]["members"], listed["c"]["lag"]) == ("consumer", 1, 16)
        assert run("groups", "list", "--no-lag").out.splitlines()[1].split() == ["c", "Stable", "consumer", "consumer"]
        head, columns, *rows = run("groups", "describe", "c").out.splitlines()
        assert head == f"c  Stable  consumer  epoch {details.group_epoch}, assignment {details.group_epoch}  lag 16"
        assert columns.split()[:6] == ["TOPIC", "PARTITION", "COMMITTED", "LOG_END_OFFSET", "LAG", "LAG_TIME"]
        assert [row.split()[0] for row in rows] == ["t", "t"]
        members = run("groups", "describe", "c", "--members").out.splitlines()
        assert members[0].split()[4:] == ["EPOCH", "PROTOCOL", "PARTITIONS", "ASSIGNMENT", "TARGET"]
        assert members[1].split()[5:] == ["consumer", "2", "t:0,1", "t:0,1"]
        found = json.loads(run("groups", "describe", "c", "--members", "--json").out)
        assert found["members"][0]["target"] == {"t": [0, 1]}
        state = json.loads(run("groups", "describe", "c", "--state", "--json").out)
        assert (state["type"], state["group_epoch"], state["assignor"]) == ("consumer", details.group_epoch, "uniform")
        with pytest.raises(ApiError, match="has members") as refused:
            admin.reset_group_offsets("c", to="earliest")
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    run("groups", "reset-offsets", "c", "--all-topics", "--to-earliest", "--execute")
    assert {tp: lag.lag for tp, lag in admin.group_lag("c").items()} == {T0: 10, T1: 10}
    run("groups", "delete", "c", "--yes")
    assert not admin.describe_group("c").exists


def test_share_group_is_described_and_its_offsets_are_changed(bootstrap: str, admin: Admin, run: Command) -> None:
    run("configs", "set", "share.auto.offset.reset=earliest", "--group", "s")
    settings = {"bootstrap.servers": bootstrap, "group.id": "s", "client.id": "me"}
    consumer = confluent_kafka.ShareConsumer({**settings, "share.acknowledgement.mode": "implicit"})
    consumer.subscribe(["t"])
    found: list[bytes | None] = []

    def read() -> bool:
        found.extend(message.value() for message in consumer.poll(0.5))
        return len(found) >= 20

    wait_for(read)
    (details,) = admin.describe_share_groups(["s"])
    assert details == admin.describe_group("s")
    (member,) = details.members
    assert (details.type, details.state, details.protocol) == ("share", "Stable", "simple")
    assert details.group_epoch is not None
    assert (member.client_id, member.assignment, member.topics) == ("me", [T0, T1], ("t",))
    members = run("groups", "describe", "s", "--members").out.splitlines()
    assert members[0].split()[4:] == ["EPOCH", "PROTOCOL", "PARTITIONS", "ASSIGNMENT"]
    with pytest.raises(ApiError, match="has members"):
        admin.alter_share_group_offsets("s", {T0: 5})
    consumer.commit_sync(30)
    consumer.close()
    wait_for(lambda: admin.describe_group("s").state == "Empty")

    wait_for(lambda: {tp: lag.lag for tp, lag in admin.group_lag("s").items()} == {T0: 0, T1: 0})
    head, columns, *rows = run("groups", "describe", "s").out.splitlines()
    assert head.startswith("s  Empty  share  epoch ")
    assert columns.split()[:5] == ["TOPIC", "PARTITION", "START_OFFSET", "LOG_END_OFFSET", "LAG"]
    # Kafka moves a start offset with the next write: until then it only knows that nothing is left.
    assert [(row.split()[1], row.split()[3:5]) for row in rows] == [("0", ["10", "0"]), ("1", ["10", "0"])]
    (listed,) = json.loads(run("groups", "list", "--type", "share", "--json").out)
    assert (listed["group"], listed["type"], listed["members"], listed["lag"]) == ("s", "share", 0, 0)

    run("groups", "share", "alter-offsets", "s", "t:0=7")
    assert {tp: (each.offset, each.lag) for tp, each in admin.share_group_offsets("s", [T0]).items()} == {T0: (7, 3)}
    dry = json.loads(run("groups", "share", "reset-offsets", "s", "--topic", "t:1", "--to-earliest", "--json").out)
    assert (dry["executed"], dry["partitions"][0]["after"]) == (False, 0)
    run("groups", "reset-offsets", "s", "--topic", "t:1", "--to-offset", "4", "--execute")
    rows = run("groups", "share", "describe-offsets", "s").out.splitlines()[1:]
    assert [(row.split()[1], row.split()[3], row.split()[4]) for row in rows] == [("0", "7", "3"), ("1", "4", "6")]
    (listed,) = admin.list_group_lags(types=["share"])
    assert (listed.lag, listed.topics, listed.protocol_type) == (9, ["t"], "share")
    run("groups", "share", "delete-offsets", "s", "--topic", "t")
    assert admin.share_group_offsets("s") == {}
    run("groups", "delete", "s", "--yes")
    assert not admin.describe_group("s").exists


def test_live_group_moves_to_the_consumer_protocol_and_back(bootstrap: str, admin: Admin, run: Command) -> None:
    def member(protocol: str) -> Consumer[bytes, bytes]:
        return Consumer(bootstrap, group_id="live", group_protocol=protocol, auto_offset_reset="earliest")

    def protocols() -> list[str]:
        found = json.loads(run("groups", "describe", "live", "--members", "--json").out)
        return sorted(member.get("protocol", "") for member in found["members"])

    with ExitStack() as stack:
        old = stack.enter_context(member("classic"))
        old.subscribe(["t"])
        wait_for(lambda: old.poll(0.1) is not None)
        assert (admin.describe_group("live").type, protocols()) == ("classic", [""])
        new = member("consumer")
        try:
            new.subscribe(["t"])

            def both_read() -> bool:
                old.poll(0.05)
                new.poll(0.05)
                return len(old.assignment) == len(new.assignment) == 1

            wait_for(both_read)
            details = admin.describe_group("live")
            assert (details.type, protocols()) == ("consumer", ["classic", "consumer"])
            assert run("groups", "describe", "live", "--members").out.splitlines()[0].split()[5] == "PROTOCOL"
        finally:
            new.close()

        def old_has_all() -> bool:
            old.poll(0.05)
            return len(old.assignment) == 2

        wait_for(old_has_all)
        assert admin.describe_group("live").type == "classic"


def test_commands_for_share_groups_refuse_other_groups(admin: Admin, run: Command) -> None:
    admin.alter_group_offsets("classic", {T0: 5})
    assert "not a share group" in run("groups", "share", "alter-offsets", "classic", "t:0=7", expect=2).err
    assert "not a share group" in run("groups", "share", "describe-offsets", "classic", expect=2).err
    assert "TOPIC:PARTITION=OFFSET" in run("groups", "share", "alter-offsets", "classic", "t=7", expect=2).err


def test_trend_says_how_the_lag_changes(bootstrap: str, admin: Admin, run: Command) -> None:
    admin.alter_group_offsets("slow", {T0: 0})
    lines = run("groups", "describe", "slow", "--trend", "0.2").out.splitlines()
    assert lines[1].split()[4:9] == ["LAG", "LAG_TIME", "TREND", "TIME_TREND", "DONE_IN"]
    assert lines[2].split()[6] == "0/s"
    (row,) = [
        row for row in json.loads(run("groups", "list", "--trend", "0.3", "--json").out) if row["group"] == "slow"
    ]
    assert (row["lag_per_s"], row["done_in_ms"]) == (0.0, None)
    assert 500 < row["lag_ms_per_s"] < 1500
    assert "--trend" in run("groups", "list", "--trend", "1", "--no-lag", expect=2).err
    assert "--trend" in run("groups", "describe", "slow", "--trend", "1", "--state", expect=2).err
