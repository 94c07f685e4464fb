"""kafka-python, which warns of its own use of the standard library when it is imported."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
    from kafka.errors import TopicAlreadyExistsError

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaProducer",
    "NewPartitions",
    "NewTopic",
    "TopicAlreadyExistsError",
    "TopicPartition",
]
