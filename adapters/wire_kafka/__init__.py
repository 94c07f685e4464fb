"""The Kafka protocol, both ends, without I/O: frames become typed values, typed values become the pieces of frames."""

from .client import KafkaLink, connect_kafka
from .server import KafkaServer

__all__ = ["KafkaLink", "KafkaServer", "connect_kafka"]
