"""The client's side of a SASL exchange, as a link to a broker drives it."""

from collections.abc import Callable
from typing import Protocol

from ....ports.errors import BarnabasError
from ....ports.scheduler import Scheduler


class ClientAuthenticator(Protocol):
    """One authentication to one broker. A re-authentication has an object of its own.

    A failed exchange raises `SaslAuthenticationError`; its text has no secret.
    """

    @property
    def mechanism(self) -> str:
        """The name of the mechanism for SaslHandshake."""
        ...

    def prepare(self, scheduler: Scheduler, ready: Callable[[BarnabasError | None], None]) -> None:
        """Obtain the credentials, then call `ready`, at once or later on the scheduler's thread. Called once, first.

        A mechanism whose credentials are configured calls it at once; a token may have to be requested. An error means
        that there are no credentials.
        """
        ...

    def first(self) -> bytes:
        """Return the client's first message."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """Return the answer to a message of the broker; None after the last one, if the broker proved itself."""
        ...


SaslFactory = Callable[[str], ClientAuthenticator]
"""Makes the authenticator of a new connection to a host."""
