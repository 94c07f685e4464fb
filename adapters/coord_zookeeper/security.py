"""The security of connections to ZooKeeper: TLS, the login by SASL, and the ACLs of new nodes."""

import socket
from collections.abc import Callable
from typing import Protocol

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from ...core.tree.tree import is_at_or_below
from ...ports.values import frozen


class SaslExchange(Protocol):
    """One login. Raises `SaslAuthenticationError`, whose text has no secret."""

    def first(self) -> bytes:
        """Return the client's first message."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the server; None after the last one."""
        ...


@frozen(kw_only=True)
class NodeAcls:
    """The ACLs of new nodes, as Kafka sets them with zookeeper.set.acl=true: who makes a node may do everything with
    it, others may read it."""

    open_paths: tuple[str, ...] = ()
    """The nodes below which everyone may create others."""
    secret_paths: tuple[str, ...] = ()
    """The nodes that no other user may read, and all below them."""

    def of(self, path: str) -> list[ACL]:
        """Return the ACL of the node at `path` of the tree, "" for its root."""
        if path in self.open_paths:
            return list(OPEN_ACL_UNSAFE)
        if any(is_at_or_below(path, secret) for secret in self.secret_paths):
            return list(CREATOR_ALL_ACL)
        return [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


@frozen(kw_only=True)
class ZookeeperSecurity:
    """The security of a session; the default has none."""

    encrypt: Callable[[socket.socket, str], socket.socket] | None = None
    """Returns a connected socket to a host with TLS on it, after the handshake. Raises `OSError`."""
    login: Callable[[str], SaslExchange] | None = None
    """Returns the exchange of a login to a host."""
    user: str = ""
    """The user of the login, for texts."""
    acls: NodeAcls | None = None
    """None: everyone may do everything with new nodes."""


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with TLS of ours: kazoo's makes contexts without ciphers, versions and PKCS#12."""

    def __init__(self, encrypt: Callable[[socket.socket, str], socket.socket]) -> None:
        super().__init__()
        self._encrypt = encrypt

    def create_connection(
        self, address: tuple[str, int], hostname: str, timeout: float | None = None, **_: object
    ) -> socket.socket:
        """Return a connection after its handshake. Raises `OSError`."""
        plain = socket.create_connection(address, timeout)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._encrypt(plain, hostname)
        except BaseException:
            plain.close()
            raise
