"""The security of connections to etcd: TLS, and the user whose token goes with each request."""

import ssl
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import grpc
from aetcd import rpc

from ...core.tree.service_url import Endpoint
from ...ports.coordination import CoordinationError
from ...ports.values import Secret, frozen

_STALE_TOKEN = ("invalid auth token", "auth store is old", "revision in header is old", "user name is empty")
"""etcd's texts for a token that has expired, is in another member's memory, or is older than a change of users."""


class LoginRefused(CoordinationError):
    """etcd refuses the user or the password."""


@frozen(kw_only=True)
class EtcdSecurity:
    """The files are read for each new connection, so that renewed certificates are used."""

    has_tls: bool = False
    cacert: str | None = None
    """The PEM file of the authorities; None: those of the system, or gRPC's own list."""
    cert: str | None = None
    key: str | None = None
    user: str = ""
    password: Secret[str] | None = None

    @property
    def scheme(self) -> str:
        """The scheme of etcd's own URLs."""
        return "https" if self.has_tls else "http"

    def tls_context(self, *, of_server: bool) -> ssl.SSLContext | None:
        """Return the TLS of members among themselves before etcd runs: both ends show a certificate. None: there is
        none. Raises `CoordinationError`."""
        if not self.has_tls or self.cert is None:
            return None
        purpose = ssl.Purpose.CLIENT_AUTH if of_server else ssl.Purpose.SERVER_AUTH
        try:
            context = ssl.create_default_context(purpose, cafile=self.cacert)
            context.load_cert_chain(self.cert, self.key)
        except OSError as error:
            raise CoordinationError(f"etcd.cacert, etcd.cert or etcd.key cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def open_channel(self, endpoint: Endpoint, options: list[tuple[str, Any]]) -> grpc.Channel:
        """Return a channel, which connects later. Raises `CoordinationError` for a file that cannot be read."""
        if not self.has_tls:
            return grpc.insecure_channel(str(endpoint), options=options)
        authorities = _read(self.cacert or ssl.get_default_verify_paths().cafile)
        credentials = grpc.ssl_channel_credentials(authorities, _read(self.key), _read(self.cert))
        return grpc.secure_channel(str(endpoint), credentials, options=options)


class Login:
    """The token of a user on one connection. Any thread may call."""

    def __init__(self, channel: grpc.Channel, endpoint: Endpoint, user: str, password: Secret[str]) -> None:
        self._stub = rpc.AuthStub(channel)
        self._endpoint = endpoint
        self._user = user
        self._password = password
        self._lock = Lock()
        self._token = ""

    def token(self, timeout_s: float, stale: str = "") -> str:
        """Return a token other than `stale`; the first one, and one after a stale one, costs a request. Raises
        `LoginRefused`, and what gRPC raises."""
        with self._lock:
            if not self._token or self._token == stale:
                self._token = ""
                request = rpc.AuthenticateRequest(name=self._user, password=self._password.value)
                try:
                    self._token = self._stub.Authenticate(request, timeout=timeout_s).token
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
                        raise
                    text = f"etcd at {self._endpoint} refused the login of etcd.user={self._user}: {error.details()}"
                    raise LoginRefused(text) from None  # the request has the password
            return self._token


def call_with_token(login: Login, method: Callable[..., Any], request: Any, timeout_s: float) -> Any:
    """Make a request with the user's token, and once more with a new one if etcd does not take it: it has not done
    anything then."""
    token = login.token(timeout_s)
    try:
        return method(request, timeout=timeout_s, metadata=(("token", token),))
    except grpc.RpcError as error:
        if not is_stale_token(error):
            raise
        token = login.token(timeout_s, stale=token)
        return method(request, timeout=timeout_s, metadata=(("token", token),))


def is_stale_token(error: Any) -> bool:
    """Return True if etcd asks for a new token."""
    return isinstance(error, grpc.Call) and any(text in (error.details() or "") for text in _STALE_TOKEN)


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise CoordinationError(f"{path} cannot be read, for the TLS of etcd: {error.strerror}") from error
