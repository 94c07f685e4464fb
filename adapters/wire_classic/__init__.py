"""The classic protocol of Kafka 0.7, both ends, without I/O: frames become typed values, and back."""

from .client import ClassicLink, connect_classic
from .server import ClassicServer

__all__ = ["ClassicLink", "ClassicServer", "connect_classic"]
