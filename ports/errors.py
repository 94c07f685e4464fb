"""The root of every error that Barnabas raises on purpose.

Branches: `ApiError` (a rule of the log or protocol, with its wire code); `StorageError`, `CoordinationError` and
`TransportError` (the outside failed; defined next to their ports); `ConfigError` (the user's configuration);
`ClosedError` (a call on something already closed); `Malformed` (bytes that no protocol makes). Adapters translate their
technology's exceptions at their edge.
"""

from typing import Any

from .error_codes import ErrorCode


class BarnabasError(Exception):
    """The base of the errors that a caller may want to handle. The text says what to do, where possible.

    An error that `barnabas` exports has that name in tracebacks. All can be pickled, without their causes.
    """

    __module__ = "barnabas"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made_again, (type(self), self.args), self.__dict__


class ApiError(BarnabasError):
    """A request that the broker refuses, or an answer that says so; `code` is what travels on the wire."""

    __module__ = "barnabas"

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class ConfigError(BarnabasError):
    """A configuration key or value that cannot be used; the text names the key and the allowed values."""

    __module__ = "barnabas"


class ClosedError(BarnabasError):
    """The object was closed before or during the call."""

    __module__ = "barnabas"


class Malformed(BarnabasError):
    """Bytes that violate the protocol. The only answer is to close the connection."""


def broker_failed() -> ApiError:
    """Return the error for an unexpected exception in the broker; clients get no details."""
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed; see its log")


def _made_again(kind: type[BarnabasError], args: tuple[Any, ...]) -> BarnabasError:
    """Return an error as it was pickled, without `__init__`, whose arguments are other ones in some classes."""
    return kind.__new__(kind, *args)
