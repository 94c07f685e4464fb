"""The coordination tree in ZooKeeper (kazoo)."""

from .coordination import ZookeeperCoordination
from .security import NodeAcls, ZookeeperSecurity

__all__ = ["NodeAcls", "ZookeeperCoordination", "ZookeeperSecurity"]
