"""The states of a connection that authenticates by SASL, Kafka's `SaslServerAuthenticator`.

before the handshake → authenticating → authenticated, and again from the handshake on where sessions end (KIP-368).
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from attrs import evolve

from ....ports.broker_api.envelope import Principal
from ....ports.broker_api.sasl import SaslAuthenticateResult, SaslHandshakeResult
from ....ports.error_codes import ErrorCode
from ....ports.scheduler import Outcome
from ....ports.values import frozen
from .exchange import AuthenticatedClient, Offloaded, SaslAuthenticationError, ServerExchange

REAUTHENTICATION_INTERVAL_MS = 1000.0
"""A session cannot begin re-authentications more often than this (KIP-368)."""


@frozen(kw_only=True)
class AuthenticationContext:
    """The input of a principal builder."""

    mechanism: str
    """The SASL mechanism; empty for a connection without SASL."""
    principal: Principal
    """The principal without a builder."""
    host: str
    listener: str
    peer_subject: str | None = None
    """The subject of the client's certificate."""


class PrincipalBuilder(Protocol):
    """Makes the principal of a connection, Kafka's `KafkaPrincipalBuilder`."""

    def build(self, context: AuthenticationContext) -> Principal:
        """Return the principal of a connection (`context`).

        Must not block; an exception refuses the client. Owner thread only.
        """
        ...


@frozen(kw_only=True)
class SaslMechanism:
    """An enabled mechanism of a listener."""

    make_exchange: Callable[[], ServerExchange]
    max_reauth_ms: int = 0
    """`connections.max.reauth.ms`; 0 = sessions do not end."""


@frozen(kw_only=True)
class SaslListener:
    """The SASL settings of a listener."""

    mechanisms: Mapping[str, SaslMechanism]
    failed_delay_ms: float = 100.0
    """`connection.failed.authentication.delay.ms`."""
    max_receive_bytes: int = 524_288
    """`sasl.server.max.receive.size`: the largest frame of a client that is not authenticated."""
    timeout_ms: float = 30_000.0
    """The time that a new connection has to authenticate."""
    build_principal: Callable[[AuthenticationContext], Principal] | None = None
    """A `PrincipalBuilder`'s."""


class State(Enum):
    """The states of a connection."""

    HANDSHAKE = "before SaslHandshake"
    AUTHENTICATE = "exchanging tokens"
    AUTHENTICATED = "authenticated"
    FAILED = "failed"


class ServerAuthenticator:
    """The authentication of one connection. Times are of one clock each: `now_ms` monotonic, `wall_ms` wall-clock.

    A refused answer (`error` is set) ends the connection: the shell sends it after the delay and closes.
    """

    def __init__(
        self, settings: SaslListener, *, host: str = "", listener: str = "", subject: str | None = None
    ) -> None:
        self._settings = settings
        self._context = AuthenticationContext(
            mechanism="", principal=Principal("", ""), host=host, listener=listener, peer_subject=subject
        )
        self.state = State.HANDSHAKE
        self.expects_raw_tokens = False
        """True after SaslHandshake version 0: frames are tokens without a header."""
        self.client: AuthenticatedClient | None = None
        """The authenticated client; during a re-authentication the previous one."""
        self.mechanism = ""
        self.expires_ms: float | None = None
        """The end of the session on the monotonic clock."""
        self._exchange: ServerExchange | None = None
        self._versions_answered = False
        self._bad_mechanism = ""
        self._reauthentication_began_ms: float | None = None

    @property
    def has_lifetime(self) -> bool:
        """True if the session ends, so that the connection has to be watched."""
        return self.expires_ms is not None

    def is_expired(self, now_ms: float) -> bool:
        """Return True if only a re-authentication is allowed."""
        return self.expires_ms is not None and now_ms > self.expires_ms

    def allow_api_versions(self) -> bool:
        """Return True if ApiVersions may be answered now: before the handshake, and once."""
        return self.state is State.HANDSHAKE and self.client is None and not self._versions_answered

    def on_api_versions_answered(self) -> None:
        self._versions_answered = True

    def allow_reauthentication(self, now_ms: float) -> bool:
        """Return True if SaslHandshake begins a re-authentication; otherwise it is a request like others."""
        if self.state is not State.AUTHENTICATED or not self.has_lifetime:
            return False
        began_ms = self._reauthentication_began_ms
        return began_ms is None or now_ms - began_ms >= REAUTHENTICATION_INTERVAL_MS

    def on_handshake(self, mechanism: str, version: int, now_ms: float) -> SaslHandshakeResult:
        """Choose the mechanism. Without `allow_reauthentication` it is called before the authentication only."""
        enabled = list(self._settings.mechanisms)
        found = self._settings.mechanisms.get(mechanism)
        if found is None:
            self.state = State.FAILED
            return SaslHandshakeResult(error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=enabled)
        if self.client is not None:
            self._reauthentication_began_ms = now_ms
            if mechanism != self.mechanism:
                text = f"SASL mechanism '{mechanism}' requested by client is not supported for re-authentication"
                self._bad_mechanism = f"{text} of mechanism '{self.mechanism}'"
        else:
            self.mechanism = mechanism
        self._exchange = found.make_exchange()
        self.expects_raw_tokens = version == 0
        self.state = State.AUTHENTICATE
        return SaslHandshakeResult(mechanisms=enabled)

    def on_token(self, token: bytes, now_ms: float, wall_ms: float) -> SaslAuthenticateResult | Offloaded:
        """Handle a message of the exchange; after `Offloaded` the next input is `on_offloaded`."""
        if self._bad_mechanism:
            return self._refused(self._bad_mechanism)
        exchange = self._exchange
        if self.state is not State.AUTHENTICATE or exchange is None:
            raise ValueError("a token without a handshake")
        try:
            answer = exchange.evaluate(token)
            return answer if isinstance(answer, Offloaded) else self._answered(answer, now_ms, wall_ms)
        except SaslAuthenticationError as error:
            return self._refused(error.message)

    def on_offloaded(
        self, offloaded: Offloaded, outcome: Outcome[object], now_ms: float, wall_ms: float
    ) -> SaslAuthenticateResult:
        """Handle the result of offloaded work. Its exceptions refuse the client; it gets no details."""
        try:
            return self._answered(offloaded.then(outcome.get()), now_ms, wall_ms)
        except SaslAuthenticationError as error:
            return self._refused(error.message)
        except Exception:  # noqa: BLE001  a hook's own; the shell reports it, the client gets no details
            return self._refused(
                f"Authentication failed due to an error of the broker with SASL mechanism {self.mechanism}"
            )

    def on_illegal_request(self) -> None:
        """Handle a request that is not allowed in this state; the shell answers it with ILLEGAL_SASL_STATE."""
        self.state = State.FAILED

    def _answered(self, answer: bytes, now_ms: float, wall_ms: float) -> SaslAuthenticateResult:
        exchange = self._exchange
        client = exchange.client if exchange is not None else None
        if client is None:
            return SaslAuthenticateResult(auth_bytes=answer)
        build = self._settings.build_principal
        if build is not None:
            context = evolve(self._context, mechanism=self.mechanism, principal=client.principal)
            try:
                client = evolve(client, principal=build(context))
            except Exception:  # noqa: BLE001  a hook's own; it refuses the client
                return self._refused("Authentication failed: the principal of the client cannot be built")
        if self.client is not None and client.principal != self.client.principal:
            text = f"Cannot change principals during re-authentication from {self.client.principal}"
            return self._refused(f"{text}: {client.principal}")
        lifetime_ms = self._lifetime_ms(client, wall_ms)
        if lifetime_ms is not None and lifetime_ms <= 0:
            return self._refused(f"Authentication failed: the credential of mechanism {self.mechanism} has expired")
        self.client = client
        self._exchange = None
        self.expects_raw_tokens = False
        self.state = State.AUTHENTICATED
        self.expires_ms = None if lifetime_ms is None else now_ms + lifetime_ms
        return SaslAuthenticateResult(auth_bytes=answer, session_lifetime_ms=lifetime_ms or 0)

    def _lifetime_ms(self, client: AuthenticatedClient, wall_ms: float) -> int | None:
        """Return the lifetime of the session, the smallest of the broker's and the credential's; None: no end."""
        limits = []
        max_reauth_ms = self._settings.mechanisms[self.mechanism].max_reauth_ms
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        if client.expires_at_ms is not None:
            limits.append(int(client.expires_at_ms - wall_ms))
        return min(limits, default=None)

    def _refused(self, text: str) -> SaslAuthenticateResult:
        self.state = State.FAILED
        self._exchange = None
        return SaslAuthenticateResult(error=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text)
