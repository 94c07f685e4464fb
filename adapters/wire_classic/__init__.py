"""The classic protocol, both ends, without I/O: frames become typed values, typed values become the pieces of frames."""

from .client import ClassicLink, connect_classic
from .server import ClassicServer

__all__ = ["ClassicLink", "ClassicServer", "connect_classic"]
