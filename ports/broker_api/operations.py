"""The operations on a resource (`AclOperation`), and the bit fields of Metadata, DescribeCluster and DescribeGroups."""

from collections.abc import Iterable
from enum import IntEnum

NO_AUTHORIZED_OPERATIONS = -(2**31)
"""The value for "not requested"."""


class Operation(IntEnum):
    """An operation of access control lists; its number is its bit.

    ANY is for filters only, UNKNOWN for numbers that this version does not know.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def bit_field(operations: Iterable[Operation]) -> int:
    """Return the operations as the bit field of the protocol."""
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
"""All operations on a topic."""

GROUP_OPERATIONS = bit_field(
    (Operation.READ, Operation.DELETE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
)
"""All operations on a group."""

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
"""All operations on the cluster."""
