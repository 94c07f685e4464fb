"""The coordination tree in etcd (aetcd's messages over gRPC)."""

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else gRPC writes to stderr about each handshake that fails

from .coordination import EtcdCoordination
from .security import EtcdSecurity

__all__ = ["EtcdCoordination", "EtcdSecurity"]
