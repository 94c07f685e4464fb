"""One rich request and result per API, every value a different one, and what an independent decoder should see in them.

`wire` trees use the field names of the protocol's own definitions (snake case, as kio has them), for the newest version
that we speak; older versions have a part of the fields.
"""

from support.kafka_sample import Sample
from support.kafka_samples_admin import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CONFIGS,
    DESCRIBE_LOG_DIRS,
)
from support.kafka_samples_data import FETCH, LIST_OFFSETS, METADATA, PRODUCE
from support.kafka_samples_producers import DESCRIBE_PRODUCERS, INIT_PRODUCER_ID

__all__ = ["SAMPLES", "Sample"]

SAMPLES: dict[int, Sample] = {
    0: PRODUCE,
    1: FETCH,
    2: LIST_OFFSETS,
    3: METADATA,
    19: CREATE_TOPICS,
    20: DELETE_TOPICS,
    21: DELETE_RECORDS,
    22: INIT_PRODUCER_ID,
    32: DESCRIBE_CONFIGS,
    35: DESCRIBE_LOG_DIRS,
    37: CREATE_PARTITIONS,
    44: ALTER_CONFIGS,
    60: DESCRIBE_CLUSTER,
    61: DESCRIBE_PRODUCERS,
}
