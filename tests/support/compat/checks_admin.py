"""The checks of topics and settings."""

from support.waiting import wait_for

from .model import PATIENCE_S, Client
from .world import World


def check_create(world: World, client: Client) -> None:
    topic = world.name("created")
    client.create_topic(topic, 3, {"retention.ms": "123000"})
    wait_for(lambda: client.partitions(topic) == 3, PATIENCE_S)
    assert len(world.admin.describe_topics([topic])[0].partitions) == 3
    assert world.admin.topic_overrides(topic) == {"retention.ms": "123000"}


def check_alter(world: World, client: Client) -> None:
    topic = world.topic(2)
    client.add_partitions(topic, 5)
    wait_for(lambda: client.partitions(topic) == 5, PATIENCE_S)
    client.set_config(topic, "retention.ms", "456000")
    assert world.admin.topic_overrides(topic) == {"retention.ms": "456000"}


def check_delete(world: World, client: Client) -> None:
    topic = world.topic()
    wait_for(lambda: client.partitions(topic) == 1, PATIENCE_S)
    client.delete_topic(topic)
    wait_for(lambda: client.partitions(topic) is None, PATIENCE_S)
    assert topic not in world.admin.list_topics()


def check_configs(world: World, client: Client) -> None:
    topic = world.topic(retention_ms="789000")
    assert client.topic_config(topic, "retention.ms") == "789000"
    assert client.topic_config(topic, "cleanup.policy") == "delete"
