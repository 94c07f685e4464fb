"""What may be done with a resource: the bit fields of Metadata, DescribeCluster and DescribeGroups (facts C5)."""

from collections.abc import Iterable
from enum import IntEnum

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""Stands for "not asked for"."""


class Operation(IntEnum):
    """What an access control list can allow; each is the bit of its number."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bit_field(operations: Iterable[Operation]) -> int:
    """The operations as clients are told them."""
    return sum(1 << operation for operation in set(operations))


TOPIC_OPERATIONS = bit_field(
    (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    )
)
"""All that there is for a topic."""

GROUP_OPERATIONS = bit_field(
    (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
)
"""All that there is for a group."""

CLUSTER_OPERATIONS = bit_field(
    (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    )
)
"""All that there is for the cluster."""
