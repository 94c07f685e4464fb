"""One rich request and result per API, every value a different one, and what an independent decoder should see in them.

`wire` trees use the field names of the protocol's own definitions (snake case, as kio has them), for the newest version
that we speak; older versions have a part of the fields.
"""

from support.kafka_sample import Sample
from support.kafka_samples_acls import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from support.kafka_samples_admin import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_CONNECTIONS,
    DESCRIBE_LOG_DIRS,
    UNREGISTER_BROKER,
)
from support.kafka_samples_consumer_groups import CONSUMER_GROUP_DESCRIBE, CONSUMER_GROUP_HEARTBEAT
from support.kafka_samples_data import LIST_OFFSETS, METADATA, PRODUCE
from support.kafka_samples_fetch import FETCH
from support.kafka_samples_groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from support.kafka_samples_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH, TXN_OFFSET_COMMIT
from support.kafka_samples_producers import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID, WRITE_TXN_MARKERS
from support.kafka_samples_replicas import (
    ALTER_CLIENT_QUOTAS,
    ALTER_PARTITION_REASSIGNMENTS,
    DESCRIBE_CLIENT_QUOTAS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
    OFFSET_FOR_LEADER_EPOCH,
    REPLACE_CONFIGS,
)
from support.kafka_samples_security import (
    ALTER_USER_SCRAM_CREDENTIALS,
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from support.kafka_samples_share_groups import (
    SHARE_ACKNOWLEDGE,
    SHARE_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
)
from support.kafka_samples_transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    LIST_TRANSACTIONS,
)

__all__ = ["CLIENT_SAMPLES", "SAMPLES", "Sample"]

CLIENT_SAMPLES: dict[int, Sample] = {
    68: CONSUMER_GROUP_HEARTBEAT,
    69: CONSUMER_GROUP_DESCRIBE,
    76: SHARE_GROUP_HEARTBEAT,
    77: SHARE_GROUP_DESCRIBE,
    78: SHARE_FETCH,
    79: SHARE_ACKNOWLEDGE,
}
"""Those of APIs that our clients speak and our broker does not offer (`table.CLIENT_ONLY`)."""

SAMPLES: dict[int, Sample] = {
    0: PRODUCE,
    1: FETCH,
    2: LIST_OFFSETS,
    3: METADATA,
    8: OFFSET_COMMIT,
    9: OFFSET_FETCH,
    10: FIND_COORDINATOR,
    11: JOIN_GROUP,
    12: HEARTBEAT,
    13: LEAVE_GROUP,
    14: SYNC_GROUP,
    15: DESCRIBE_GROUPS,
    16: LIST_GROUPS,
    19: CREATE_TOPICS,
    20: DELETE_TOPICS,
    21: DELETE_RECORDS,
    22: INIT_PRODUCER_ID,
    23: OFFSET_FOR_LEADER_EPOCH,
    27: WRITE_TXN_MARKERS,
    24: ADD_PARTITIONS_TO_TXN,
    25: ADD_OFFSETS_TO_TXN,
    26: END_TXN,
    28: TXN_OFFSET_COMMIT,
    29: DESCRIBE_ACLS,
    30: CREATE_ACLS,
    31: DELETE_ACLS,
    32: DESCRIBE_CONFIGS,
    33: REPLACE_CONFIGS,
    30_000: DESCRIBE_CONNECTIONS,
    35: DESCRIBE_LOG_DIRS,
    37: CREATE_PARTITIONS,
    38: CREATE_DELEGATION_TOKEN,
    39: RENEW_DELEGATION_TOKEN,
    40: EXPIRE_DELEGATION_TOKEN,
    41: DESCRIBE_DELEGATION_TOKEN,
    42: DELETE_GROUPS,
    43: ELECT_LEADERS,
    44: ALTER_CONFIGS,
    45: ALTER_PARTITION_REASSIGNMENTS,
    46: LIST_PARTITION_REASSIGNMENTS,
    47: OFFSET_DELETE,
    48: DESCRIBE_CLIENT_QUOTAS,
    49: ALTER_CLIENT_QUOTAS,
    50: DESCRIBE_USER_SCRAM_CREDENTIALS,
    51: ALTER_USER_SCRAM_CREDENTIALS,
    60: DESCRIBE_CLUSTER,
    64: UNREGISTER_BROKER,
    61: DESCRIBE_PRODUCERS,
    65: DESCRIBE_TRANSACTIONS,
    66: LIST_TRANSACTIONS,
}
