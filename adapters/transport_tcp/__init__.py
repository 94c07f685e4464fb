"""The reactor (scheduler and sockets are one loop) and TCP connections on it."""

from .listener import open_port
from .reactor import Reactor
from .tcp import TcpTransport

__all__ = ["Reactor", "TcpTransport", "open_port"]
