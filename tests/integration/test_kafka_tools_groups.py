"""kafka-groups, kafka-consumer-groups, kafka-share-groups and kafka-configs of Apache Kafka at groups of all types."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.model import Unavailable
from support.waiting import wait_for

from barnabas import Consumer, ShareConsumer
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.testing import TestBroker

pytestmark = pytest.mark.slow

GROUPS = "org.apache.kafka.tools.GroupsCommand"
CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
SHARE_GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
CONFIGS = "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    """Topic `t` of two partitions with ten messages each."""
    with TestBroker() as running:
        running.create_topic("t", partitions=2)
        running.produce("t", [b"%d" % number for number in range(10)], partition=0)
        running.produce("t", [b"%d" % number for number in range(10)], partition=1)
        yield running


@pytest.fixture(scope="module")
def tools(broker: TestBroker) -> Iterator[ConsoleTools]:
    try:
        opened = ConsoleTools(broker.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(opened):
        yield opened


def rows(said: str) -> list[dict[str, str]]:
    """Return the rows of the only table in a text, by the names of its columns."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    (head,) = [line for line in lines if line[0] == "GROUP"]
    return [dict(zip(head, line, strict=False)) for line in lines if line != head and len(line) >= len(head) - 3]


def test_consumer_group_is_listed_described_reset_and_deleted(broker: TestBroker, tools: ConsoleTools) -> None:
    with Consumer(
        broker.bootstrap, group_id="c", client_id="me", group_protocol="consumer", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["t"])
        for _ in range(4):
            next(iter(consumer.messages()))
        consumer.commit()
        with broker.admin() as admin:
            wait_for(lambda: admin.describe_group("c").state == "Stable")
            epoch = str(admin.describe_group("c").group_epoch)
        (listed,) = rows(tools.run(GROUPS, "--list"))
        assert listed == {"GROUP": "c", "TYPE": "Consumer", "PROTOCOL": "consumer"}
        assert tools.run(GROUPS, "--list", "--consumer").count("Consumer") == 1
        of = ("--describe", "--group", "c")
        offsets = rows(tools.run(CONSUMER_GROUPS, *of))
        assert sum(int(row["LAG"]) for row in offsets if row["LAG"] != "-") == 16
        (state,) = rows(tools.run(CONSUMER_GROUPS, *of, "--state"))
        assert (state["ASSIGNMENT-STRATEGY"], state["STATE"]) == ("uniform", "Stable")
        (verbose,) = rows(tools.run(CONSUMER_GROUPS, *of, "--members", "--verbose"))
        assert verbose["CURRENT-EPOCH"] == verbose["TARGET-EPOCH"] == epoch
        assert verbose["CURRENT-ASSIGNMENT"] == verbose["TARGET-ASSIGNMENT"] == "t:0,1"
    reset = ("--reset-offsets", "--group", "c", "--all-topics", "--to-earliest", "--execute")
    assert {row["NEW-OFFSET"] for row in rows(tools.run(CONSUMER_GROUPS, *reset))} == {"0"}
    assert "was successful" in tools.run(CONSUMER_GROUPS, "--delete", "--group", "c")
    assert "Consumer" not in tools.run(GROUPS, "--list", "--consumer")


def test_share_group_is_listed_described_reset_and_deleted(broker: TestBroker, tools: ConsoleTools) -> None:
    with broker.admin() as admin:
        admin.alter_configs(ResourceKind.GROUP, "s", {"share.auto.offset.reset": "earliest"})
        with ShareConsumer(broker.bootstrap, group_id="s", client_id="me") as consumer:
            consumer.subscribe("t")
            read = 0
            while read < 20:
                read += len(consumer.poll_many(20, timeout=1))
            consumer.commit_sync()
            epoch = str(admin.describe_group("s").group_epoch)
            (listed,) = rows(tools.run(GROUPS, "--list", "--share"))
            assert listed == {"GROUP": "s", "TYPE": "Share", "PROTOCOL": "share"}
            of = ("--describe", "--group", "s")
            (state,) = rows(tools.run(SHARE_GROUPS, *of, "--state"))
            assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
            (member,) = rows(tools.run(SHARE_GROUPS, *of, "--members", "--verbose"))
            assert (member["CLIENT-ID"], member["#PARTITIONS"]) == ("me", "2")
            assert member["MEMBER-EPOCH"] == epoch
        wait_for(lambda: admin.describe_group("s").state == "Empty")
        offsets = rows(tools.run(SHARE_GROUPS, *of, "--verbose"))
        assert [row["LAG"] for row in offsets] == ["0", "0"]
        reset = ("--reset-offsets", "--group", "s", "--topic", "t", "--to-earliest", "--execute")
        assert "0" in tools.run(SHARE_GROUPS, *reset)
        assert {tp.partition: each.offset for tp, each in admin.share_group_offsets("s").items()} == {0: 0, 1: 0}
        assert "Successful" in tools.run(SHARE_GROUPS, "--delete-offsets", "--group", "s", "--topic", "t")
        assert admin.share_group_offsets("s") == {}
        assert "successful" in tools.run(SHARE_GROUPS, "--delete", "--group", "s")
        assert not admin.describe_group("s").exists


def test_settings_of_a_group_are_set_within_the_bounds_of_the_broker(tools: ConsoleTools) -> None:
    of = ("--entity-type", "groups", "--entity-name", "g")
    tools.run(CONFIGS, "--alter", *of, "--add-config", "share.record.lock.duration.ms=20000")
    assert "share.record.lock.duration.ms=20000" in tools.run(CONFIGS, "--describe", *of)
    said = tools.run(CONFIGS, "--describe", *of, "--all")
    assert "consumer.session.timeout.ms=45000" in said
    assert "DYNAMIC_GROUP_CONFIG:share.record.lock.duration.ms=20000" in said
    with pytest.raises(RuntimeError, match=r"group\.share\.min\.record\.lock\.duration\.ms"):
        tools.run(CONFIGS, "--alter", *of, "--add-config", "share.record.lock.duration.ms=1")
    tools.run(CONFIGS, "--alter", *of, "--delete-config", "share.record.lock.duration.ms")
    assert "20000" not in tools.run(CONFIGS, "--describe", *of)
