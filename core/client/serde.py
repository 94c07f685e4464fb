"""Conversion of a user's values to bytes and back."""

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    DecodedT_co = TypeVar("DecodedT_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    DecodedT_co = TypeVar("DecodedT_co", covariant=True)


class Encoder(Protocol):
    """Makes bytes of a key or a value. Called on the thread that sends; an exception fails that message only."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        """Return the bytes of `value`; None stands for "no key" or a null value. An error describes the problem."""
        ...


class Decoder(Protocol[DecodedT_co]):
    """Makes a user's value of the bytes of a key or a value. Called when a message is handed out."""

    def decode(self, topic: str, data: bytes | None) -> DecodedT_co:
        """Return the value of `data`; None stands for "no key" or a null value. An error describes the problem."""
        ...
