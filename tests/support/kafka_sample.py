"""What a sample of an API is."""

from typing import Any

from attrs import frozen

ID_A, ID_B = bytes(range(16)), bytes(range(16, 32))
NO_ID = bytes(16)
LONG_NAME = "n" * 249
UNSET = -0x8000_0000
NO_LEADER = {"leader_id": -1, "leader_epoch": -1}


@frozen
class Sample:
    """A request and a result of one API, each with the tree that it is on the wire.

    `older`: another sample for the versions up to `older_until`, which cannot express this one.
    """

    request: Any
    request_wire: dict[str, Any]
    result: Any
    result_wire: dict[str, Any]
    older: "Sample | None" = None
    older_until: int = -1

    def at(self, version: int) -> "Sample":
        """The sample for a version."""
        return self if self.older is None or version > self.older_until else self.older.at(version)
