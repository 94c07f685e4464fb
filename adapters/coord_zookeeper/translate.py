"""kazoo's exceptions and answers as ours."""

from typing import Any

from kazoo import exceptions as kazoo
from kazoo.handlers.threading import KazooTimeoutError

from ...core.tree.service_url import ServiceUrl
from ...ports.coordination import (
    BadVersion,
    CoordinationError,
    Node,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)

FAILURES = (kazoo.KazooException, KazooTimeoutError)
"""The exceptions that a call of kazoo may raise."""

_REFUSALS: dict[type[kazoo.KazooException], type[CoordinationError]] = {
    kazoo.NodeExistsError: NodeExists,
    kazoo.NoNodeError: NoNode,
    kazoo.NotEmptyError: NotEmpty,
    kazoo.BadVersionError: BadVersion,
}
_OUTCOME = "; whether the service has done it is not known"


def to_coordination_error(error: Exception, path: str, where: ServiceUrl) -> CoordinationError:
    """The port's error for a failed call on `path`."""
    refusal = _REFUSALS.get(type(error))
    if refusal is not None:
        return refusal(path)
    if isinstance(error, kazoo.NoChildrenForEphemeralsError):
        return CoordinationError(f"{path}: its parent is ephemeral and cannot have children")
    if isinstance(error, kazoo.NoAuthError):
        text = f"{path}: ZooKeeper at {where.servers} refused: the ACL of the node does not allow it"
        return CoordinationError(f"{text}; see zookeeper.sasl.jaas.config and zookeeper.set.acl")
    if isinstance(error, kazoo.InvalidACLError):
        text = f"{path}: ZooKeeper at {where.servers} refused its ACL: the session has no identity"
        return CoordinationError(f"{text}; zookeeper.set.acl=true needs a login or a client certificate")
    if isinstance(error, KazooTimeoutError):
        return CoordinationError(f"{path}: no answer from ZooKeeper at {where.servers} in time{_OUTCOME}")
    if isinstance(error, kazoo.ConnectionClosedError | kazoo.ConnectionLoss):
        return CoordinationError(f"{path}: lost the connection to ZooKeeper at {where.servers}{_OUTCOME}")
    if isinstance(error, kazoo.UnimplementedError):
        text = f"{path}: ZooKeeper at {where.servers} does not know this request"
        return CoordinationError(f"{text}; every server of the ensemble has to be 3.6 or newer")
    if isinstance(error, kazoo.SessionExpiredError):
        return SessionExpired(f"{path}: the session with ZooKeeper at {where.servers} expired")
    if not isinstance(error, kazoo.KazooException):
        return CoordinationError(
            f"{path}: ZooKeeper at {where.servers} answered what makes no sense: {error}{_OUTCOME}"
        )
    return CoordinationError(f"{path}: ZooKeeper at {where.servers} refused: {type(error).__name__} {error}".rstrip())


def to_node(answer: Any) -> Node:
    """kazoo's pair (data, stat)."""
    data, stat = answer
    return Node(data=bytes(data), version=stat.version, ephemeral=stat.ephemeralOwner != 0)
