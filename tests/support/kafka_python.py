"""kafka-python, which warns of its own use of the standard library when it is imported."""

import logging
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka import errors as kafka_errors
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic, OffsetSpec
    from kafka.errors import TopicAlreadyExistsError
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.structs import MemberState, OffsetAndMetadata

# It leaves unconnected sockets to the garbage collector, and its log records, which pytest keeps until a test is
# over, hold the errors that hold them: without records they are collected where their test expects it.
logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)

__all__ = [
    "AbstractTokenProvider",
    "ConfigResource",
    "ConfigResourceType",
    "ConsumerRebalanceListener",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "MemberState",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "TopicAlreadyExistsError",
    "TopicPartition",
    "kafka_errors",
]
