"""What confluent-kafka exports for administrators without declaring so."""

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # exported, but not declared so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

__all__ = ["AdminClient", "AlterConfigOpType", "ConfigEntry", "ConfigResource", "NewPartitions", "NewTopic"]
