"""kafka-features, kafka-metadata-quorum, kafka-topics and kafka-configs of Apache Kafka, as an operator uses them."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from support.compat.console_tools import ConsoleTools
from support.compat.model import Unavailable

from barnabas import Admin
from barnabas.core.cluster import features
from barnabas.ports.broker_api.features import SupportedVersionRange
from barnabas.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.process]

FEATURES, QUORUM = "org.apache.kafka.tools.FeatureCommand", "org.apache.kafka.tools.MetadataQuorumCommand"
TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
FRUIT = "fruit.version"
PARTITIONS = 2100
"""More than one answer of DescribeTopicPartitions holds."""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(features.SUPPORTED, FRUIT, SupportedVersionRange(0, 3))
        with TestBroker() as running:
            yield running


@pytest.fixture(scope="module")
def tools(broker: TestBroker) -> Iterator[ConsoleTools]:
    try:
        opened = ConsoleTools(broker.bootstrap)
    except Unavailable as error:
        pytest.skip(str(error))
    with closing(opened):
        yield opened


def level(tools: ConsoleTools) -> dict[str, str]:
    lines = [line for line in tools.run(FEATURES, "describe").splitlines() if f"Feature: {FRUIT}" in line]
    (words,) = (line.replace(":", " ").split() for line in lines)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_kafka_features_tool_describes_and_changes_levels(tools: ConsoleTools) -> None:
    before = level(tools)
    assert (before["SupportedMinVersion"], before["SupportedMaxVersion"]) == ("0", "3")
    assert before["FinalizedVersionLevel"] == "3"
    assert "was downgraded to 1" in tools.run(FEATURES, "downgrade", "--feature", f"{FRUIT}=1")
    assert "can be upgraded to 2" in tools.run(FEATURES, "upgrade", "--feature", f"{FRUIT}=2", "--dry-run")
    assert level(tools)["FinalizedVersionLevel"] == "1"
    assert "was upgraded to 2" in tools.run(FEATURES, "upgrade", "--feature", f"{FRUIT}=2")
    assert "was disabled" in tools.run(FEATURES, "disable", "--feature", FRUIT, "--unsafe")
    assert level(tools)["FinalizedVersionLevel"] == "0"
    tools.run(FEATURES, "upgrade", "--feature", f"{FRUIT}=3")
    assert int(level(tools)["Epoch"]) == int(before["Epoch"]) + 4


def test_kafka_features_tool_says_why_a_level_is_refused(tools: ConsoleTools) -> None:
    with pytest.raises(RuntimeError, match="only supports versions 0-3"):
        tools.run(FEATURES, "upgrade", "--feature", f"{FRUIT}=4")
    with pytest.raises(RuntimeError, match="does not support this feature"):
        tools.run(FEATURES, "upgrade", "--feature", "metadata.version=25")


def test_kafka_metadata_quorum_tool_names_the_controller(broker: TestBroker, tools: ConsoleTools) -> None:
    with Admin(broker.bootstrap) as admin:
        cluster = admin.describe_cluster()
    said = tools.run(QUORUM, "describe", "--status")
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in said.splitlines())}
    assert fields["ClusterId"] == cluster.cluster_id
    assert int(fields["LeaderId"]) == cluster.controller_id
    assert (fields["HighWatermark"], fields["MaxFollowerLag"]) == ("0", "0")
    assert str(cluster.controller_id) in fields["CurrentVoters"]
    (row,) = (line for line in tools.run(QUORUM, "describe", "--replication").splitlines() if "Leader" in line)
    assert row.split()[0] == str(cluster.controller_id)


def test_kafka_topics_tool_describes_topics_page_by_page(broker: TestBroker, tools: ConsoleTools) -> None:
    broker.create_topic("wide", partitions=PARTITIONS)
    broker.create_topic("xenon", partitions=2)
    said = tools.run(TOPICS, "--describe")
    assert said.count("Topic: wide\tPartition: ") == PARTITIONS
    assert said.count("Topic: xenon\tPartition: ") == 2
    assert "Elr: " in said
    with pytest.raises(RuntimeError, match="nowhere"):
        tools.run(TOPICS, "--describe", "--topic", "nowhere")


def test_kafka_configs_tool_lists_the_groups_with_settings(tools: ConsoleTools) -> None:
    change = ("--alter", "--entity-type", "groups", "--entity-name", "readers")
    tools.run(CONFIGS, *change, "--add-config", "consumer.session.timeout.ms=50000")
    assert "readers" in tools.run(CONFIGS, "--describe", "--entity-type", "groups")
