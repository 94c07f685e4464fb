"""The values of the registry."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from hashlib import md5
from uuid import UUID

from ...ports.values import frozen
from ..formats.compatibility import Compatibility

DEFAULT_LEVEL = Compatibility.BACKWARD
VERSION_MAX = ID_MAX = 2**31 - 1
LATEST = -1


class Mode(StrEnum):
    """The mode of a subject, which restricts changes."""

    READWRITE = "READWRITE"
    READONLY = "READONLY"
    IMPORT = "IMPORT"
    """Clients assign the ids, and compatibility is not checked: for moving a registry."""


@frozen
class Reference:
    """A version of a subject that a schema refers to, under the name used in the schema."""

    name: str
    subject: str
    version: int


@frozen
class Content:
    """The content of a schema id: equal contents have the same id in all subjects."""

    format: str
    text: str
    references: tuple[Reference, ...] = ()
    metadata: str = ""
    """Metadata and rules as JSON, or empty: stored for clients, without effect in the registry."""
    rule_set: str = ""


@lru_cache(maxsize=100_000)
def guid_of(content: Content) -> str:
    """Return the id that the content has in every registry: the MD5 digest of the schema, as a UUID.

    For a schema without references, metadata and rules it is the one of Confluent's registry.
    """
    digest = md5(content.text.encode("utf-8", "surrogatepass"), usedforsecurity=False)
    parts = [str(part) for each in content.references for part in (each.name, each.subject, each.version)]
    parts += [part for part in (content.metadata, content.rule_set) if part]
    for part in parts:
        digest.update(b"\x01" + part.encode("utf-8", "surrogatepass"))
    return str(UUID(bytes=digest.digest()))


@frozen(kw_only=True)
class Version:
    """A version of a subject. `deleted`: softly; it can still be read by its id."""

    subject: str
    version: int
    id: int
    content: Content
    deleted: bool = False


@frozen(kw_only=True)
class Config:
    """The settings of a subject, or of all; None: not set."""

    level: Compatibility | None = None
    normalize: bool | None = None
