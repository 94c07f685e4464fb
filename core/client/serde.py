"""Conversion of a user's values to bytes and back."""

from typing import Any, Protocol


class Encoder(Protocol):
    """Makes bytes of a key or a value. Called on the thread that sends; an exception fails that message only."""

    def encode(self, topic: str, value: Any) -> bytes | None:
        """Return the bytes of `value`; None stands for "no key" or a null value. An error describes the problem."""
        ...


class Decoder(Protocol):
    """Makes a user's value of the bytes of a key or a value. Called when a message is handed out."""

    def decode(self, topic: str, data: bytes | None) -> Any:
        """Return the value of `data`; None stands for "no key" or a null value. An error describes the problem."""
        ...
