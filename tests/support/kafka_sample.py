"""What a sample of an API is."""

from typing import Any

from attrs import frozen

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))
NO_ID = bytes(16)
LONG_NAME = "n" * 249
UNSET = -0x8000_0000


@frozen
class Sample:
    """A request and a result of one API, each with the tree that it is on the wire."""

    request: Any
    request_wire: dict[str, Any]
    result: Any
    result_wire: dict[str, Any]
