"""Which versions of a subject have to get on with each other, and whether they do."""

from collections.abc import Sequence
from enum import StrEnum

from .parsed import Difference, InvalidSchema, ParsedSchema

_SHOWN_CHARS = 10_000


class Compatibility(StrEnum):
    """As the Confluent REST API names them."""

    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"
    NONE = "NONE"

    @property
    def transitive(self) -> bool:
        """With all versions, not the newest one alone."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def backward(self) -> bool:
        """The new schema reads what older ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        """Older schemas read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


def conflicts(level: Compatibility, new: ParsedSchema, older: Sequence[tuple[int, ParsedSchema]]) -> list[str]:
    """Why the schema may not follow the older versions (number, schema; oldest first) at that level; empty: it may.

    The last lines say with which version, and what was asked for. Raises `InvalidSchema` where that cannot be decided.
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
        kinds = f"a schema of {new.format} does not follow one of {old.format}"
        return [Difference("FORMAT_MISMATCH", "/", kinds).said("", "")]
    names = "the new schema", "the old schema"
    try:
        found = [each.said(*names) for each in new.cannot_read(old)] if level.backward else []
        return found + ([each.said(*reversed(names)) for each in old.cannot_read(new)] if level.forward else [])
    except RecursionError:
        raise InvalidSchema("the types refer to each other too deep to be compared") from None
