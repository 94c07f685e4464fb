"""Brokers among themselves need CLUSTER_ACTION: followers without it leave the ISR, and come back with it."""

from support.waiting import wait_for

from barnabas.ports.broker_api.acls import (
    AclBinding,
    AclBindingFilter,
    PermissionType,
    ResourceType,
)
from barnabas.ports.broker_api.operations import Operation
from barnabas.testing import TestCluster

ANONYMOUS = "User:ANONYMOUS"
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "min.insync.replicas": "1",
}


def cluster_acl(operation: Operation, permission: PermissionType) -> AclBinding:
    return AclBinding(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        principal=ANONYMOUS,
        operation=operation,
        permission=permission,
    )


def test_followers_without_cluster_action_leave_the_isr_until_they_have_it_again() -> None:
    with TestCluster(brokers=3, config=CONFIG) as cluster:
        topic = cluster.create_topic(partitions=1, replication_factor=3)
        cluster.produce(topic, ["before"])
        cluster.wait_in_sync(topic)
        with cluster.admin() as admin:
            denied = cluster_acl(Operation.CLUSTER_ACTION, PermissionType.DENY)
            admin.create_acls([cluster_acl(Operation.ALL, PermissionType.ALLOW), denied])
            meanwhile: list[str] = []

            def is_alone() -> bool:
                """Return True once the leader has heard of it: a message waits until its followers have it, or left."""
                meanwhile.append(f"{len(meanwhile)}")
                cluster.produce(topic, meanwhile[-1:])
                return len(cluster.in_sync(topic)) == 1

            wait_for(is_alone)
            chosen = AclBindingFilter(operation=Operation.CLUSTER_ACTION)
            wait_for(lambda: admin.delete_acls([chosen]) == [denied])  # each broker hears of it in its own time
            cluster.wait_in_sync(topic)
        cluster.assert_produced(topic, ["before", *meanwhile])
