"""The coordination tree in ZooKeeper (kazoo)."""

from .coordination import ZookeeperCoordination

__all__ = ["ZookeeperCoordination"]
