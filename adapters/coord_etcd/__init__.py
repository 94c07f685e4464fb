"""The coordination tree in etcd (aetcd's messages over gRPC)."""

from .coordination import EtcdCoordination

__all__ = ["EtcdCoordination"]
