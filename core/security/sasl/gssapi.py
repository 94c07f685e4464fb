"""GSSAPI (RFC 4752): Kerberos tickets; both sides, without a security layer: TLS encrypts the connection."""

from collections.abc import Callable
from typing import Protocol

from ....ports.broker_api.envelope import Principal
from ....ports.errors import BarnabasError
from ....ports.scheduler import Outcome, Scheduler
from ..kerberos_short_namer import KerberosShortNamer, NoMatchingKerberosRule
from .exchange import AuthenticatedClient, Offloaded, SaslAuthenticationError

GSSAPI = "GSSAPI"
_AUTH_ONLY = 1
"""The bit of "no security layer"."""
_OFFER = bytes((_AUTH_ONLY, 0, 0, 0))
"""No security layer, hence no size of its messages."""


class GssError(BarnabasError):
    """Kerberos refuses, or a token is none; the text is that of the library."""


class GssContext(Protocol):
    """One security context of Kerberos, on one side. Methods raise `GssError`."""

    @property
    def is_complete(self) -> bool: ...

    @property
    def client_name(self) -> str:
        """The principal of the client, as `primary/host@REALM`; of a complete context."""
        ...

    def step(self, token: bytes | None) -> bytes:
        """Take the other side's token (None: begin), and return this side's, or nothing. May block."""
        ...

    def wrap(self, content: bytes) -> bytes:
        """Protect a message against changes."""
        ...

    def unwrap(self, token: bytes) -> bytes:
        """Return the content of a protected message."""
        ...


class GssapiServerExchange:
    """The server's side: tokens until the context is complete, then the offer and the choice of no security layer."""

    def __init__(self, context: GssContext, namer: KerberosShortNamer) -> None:
        self._context = context
        self._namer = namer
        self._has_offered = False
        self.client: AuthenticatedClient | None = None

    def evaluate(self, response: bytes) -> bytes | Offloaded:
        if self._has_offered:
            return self._finish(response)
        if self._context.is_complete:
            return self._offer()
        return Offloaded(work=lambda: self._step(response), then=lambda token: token or self._offer())

    def _step(self, response: bytes) -> bytes:
        """Take a token of the client; returns what the context answers, which may be nothing once it is complete."""
        try:
            token = self._context.step(response)
        except GssError as error:
            raise SaslAuthenticationError(_failure(str(error))) from None
        if not token and not self._context.is_complete:
            raise SaslAuthenticationError(_failure("the token of the client is incomplete"))
        return token

    def _offer(self) -> bytes:
        self._has_offered = True
        return self._context.wrap(_OFFER)

    def _finish(self, response: bytes) -> bytes:
        try:
            choice = self._context.unwrap(response)
        except GssError:
            raise SaslAuthenticationError(_failure("the choice of a security layer cannot be read")) from None
        if len(choice) < 4 or choice[0] != _AUTH_ONLY:
            raise SaslAuthenticationError(_failure("the client asks for a security layer, and there is none"))
        # The client is who its ticket says. As in Kafka, the authorization id behind the choice has no effect:
        # kafka-python sends the name of the service there.
        try:
            short = self._namer.short_name(self._context.client_name)
        except NoMatchingKerberosRule as error:
            raise SaslAuthenticationError(_failure(str(error))) from None
        self.client = AuthenticatedClient(principal=Principal("User", short))
        return b""


def _failure(why: str) -> str:
    return f"Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI: {why}"


class GssapiClient:
    """The client's side; fulfils `ClientAuthenticator`."""

    mechanism = GSSAPI

    def __init__(self, make_context: Callable[[], GssContext]) -> None:
        """`make_context` finds the credentials and blocks; it raises `GssError`."""
        self._make_context = make_context
        self._context: GssContext | None = None
        self._first = b""
        self._has_chosen = False

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:
        """Obtain the ticket for the broker from the KDC, on a worker."""

        def done(outcome: Outcome[None]) -> None:
            error = outcome.error
            if error is None or isinstance(error, BarnabasError):
                ready(error)
            else:
                ready(GssError(f"no Kerberos ticket was obtained: {type(error).__name__}"))

        scheduler.offload(self._begin, done)

    def _begin(self) -> None:
        context = self._make_context()
        self._first = context.step(None)
        self._context = context

    def first(self) -> bytes:
        """Return the ticket; blocks if `prepare` was not called. Raises `GssError`."""
        if self._context is None:
            self._begin()
        return self._first

    def next(self, challenge: bytes) -> bytes | None:
        context = self._context
        if context is None:
            raise SaslAuthenticationError("the exchange has not begun")
        if self._has_chosen:
            return None
        try:
            if not context.is_complete:
                return context.step(challenge)
            offer = context.unwrap(challenge)
            if len(offer) < 4 or not offer[0] & _AUTH_ONLY:
                raise SaslAuthenticationError("the service requires a security layer of SASL, which is not supported")
            self._has_chosen = True
            return context.wrap(_OFFER)
        except GssError as error:
            raise SaslAuthenticationError(str(error)) from None
