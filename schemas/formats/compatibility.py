"""The compatibility levels of a subject, and the check of a new schema."""

from collections.abc import Sequence
from enum import StrEnum

from .parsed import Difference, InvalidSchema, ParsedSchema

_SHOWN_CHARS = 10_000


class Compatibility(StrEnum):
    """The compatibility levels of the Confluent REST API."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    @property
    def transitive(self) -> bool:
        """Return True if all versions are checked, not only the newest one."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """Return True if the new schema must read data of older ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Return True if older schemas must read data of the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


def conflicts(level: Compatibility, new: ParsedSchema, older: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Return why the schema is incompatible with the older versions (number, schema; oldest first); empty if
    compatible.

    The last lines have the version and the level. Raises `InvalidSchema` if the schemas cannot be compared.
    """
    if level is Compatibility.NONE:
        return []
    for version, old in reversed(older if level.transitive else older[-1:]):
        found = _between(level, new, old)
        if found:
            return [
                *found,
                f"{{oldSchemaVersion: {version}}}",
                f"{{oldSchema: '{old.canonical[:_SHOWN_CHARS]}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []


def _between(level: Compatibility, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    if new.format != old.format:
        kinds = f"a schema of type {new.format} is incompatible with one of type {old.format}"
        return [Difference("FORMAT_MISMATCH", "/", kinds).said("", "")]
    names = "the new schema", "the old schema"
    try:
        found = [each.said(*names) for each in new.cannot_read(old)] if level.backward else []
        return found + ([each.said(*reversed(names)) for each in old.cannot_read(new)] if level.forward else [])
    except RecursionError:
        raise InvalidSchema("the types nest too deep to be compared") from None
