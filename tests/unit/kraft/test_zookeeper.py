"""The nodes of Kafka's brokers in ZooKeeper, as an import reads them."""

import json

from barnabas.adapters.coord_memory import MemoryTree
from barnabas.core.kraft.image import KraftImage, read_zookeeper
from barnabas.ports.broker_api.acls import PatternType, PermissionType, ResourceType
from barnabas.ports.broker_api.configs import ResourceKind
from barnabas.ports.broker_api.operations import Operation
from barnabas.ports.coordination import NodeExists

TOPIC_ID = bytes(range(16))
SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"
NODES = {
    "/brokers/topics/orders": {"version": 2, "partitions": {"0": [1, 2], "1": [2, 1]}},
    "/brokers/topics/orders/partitions/0/state": {"version": 1, "leader": 2, "leader_epoch": 7, "isr": [2]},
    "/brokers/topics/broken": {"version": 1},
    "/config/topics/orders": {"version": 1, "config": {"retention.ms": "-1"}},
    "/config/topics/none": {"version": 1, "config": {}},
    "/config/brokers/<default>": {"version": 1, "config": {"log.retention.ms": "1000"}},
    "/config/users/alice": {"version": 1, "config": {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "1024"}},
    "/config/users/bob": {"version": 1, "config": {"SCRAM-SHA-256": "nonsense"}},
    "/config/users/<default>/clients/c%2A": {"version": 1, "config": {"request_percentage": "50"}},
    "/kafka-acl/Topic/orders": {
        "version": 1,
        "acls": [{"principal": "User:a", "permissionType": "Allow", "operation": "DescribeConfigs", "host": "*"}],
    },
    "/kafka-acl-extended/PREFIXED/Group/g": {
        "version": 1,
        "acls": [{"principal": "User:a", "permissionType": "Deny", "operation": "Read", "host": "*"}, {"no": 1}],
    },
    "/latest_producer_id_block": {"version": 1, "broker": 1, "block_start": "2000", "block_end": "2999"},
}


def read(nodes: dict[str, object]) -> KraftImage:
    session = MemoryTree().session()
    for path, value in nodes.items():
        parts = path.split("/")
        for end in range(2, len(parts)):
            try:
                session.create("/".join(parts[:end]))
            except NodeExists:
                continue
        try:
            session.create(path, json.dumps(value).encode())
        except NodeExists:
            session.set(path, json.dumps(value).encode())
    return read_zookeeper(session, lambda _: TOPIC_ID)


def test_topics_settings_and_security_are_read() -> None:
    image = read(dict(NODES))
    topic = image.topics[TOPIC_ID]
    assert (topic.name, topic.partitions[0].leader, topic.partitions[0].leader_epoch) == ("orders", 2, 7)
    assert topic.partitions[1].replicas == (2, 1)
    assert image.configs_of(ResourceKind.TOPIC, "orders") == {"retention.ms": "-1"}
    assert image.configs_of(ResourceKind.BROKER, "") == {"log.retention.ms": "1000"}
    assert image.users["alice"]["SCRAM-SHA-256"].iterations == 4096
    assert image.quotas == {
        (("user", "alice"),): {"producer_byte_rate": 1024.0},
        (("client-id", "c*"), ("user", None)): {"request_percentage": 50.0},
    }
    acls = {(acl.resource_type, acl.pattern_type, acl.operation, acl.permission) for acl in image.acls.values()}
    assert acls == {
        (ResourceType.TOPIC, PatternType.LITERAL, Operation.DESCRIBE_CONFIGS, PermissionType.ALLOW),
        (ResourceType.GROUP, PatternType.PREFIXED, Operation.READ, PermissionType.DENY),
    }
    assert image.next_producer_id == 3000


def test_nodes_that_make_no_sense_are_counted() -> None:
    skipped = read(dict(NODES)).skipped
    assert len(skipped) == 3
    assert any("broken" in text for text in skipped)


def test_empty_tree_has_no_topics() -> None:
    assert not read({}).topics
